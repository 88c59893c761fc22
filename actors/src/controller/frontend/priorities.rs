//! Answers `sprio`: the factors of the priorities of waiting jobs.

use super::core::FrontendCore;
use crate::messages::job::Authority;
use garrick_model::{
    config::PrioritySettings,
    messages::{
        command::CommandReply,
        priority::{JobPriority, PriorityWeights},
    },
    view::JobView,
};
use garrick_plan::rules::priority::{self, Factors};

impl FrontendCore {
    pub(super) fn list_priorities(&self, by: Authority) -> CommandReply {
        let config = self.sight.config();
        let rules = self.sight.priority_rules().filter(|_| config.multifactor());
        let kind = config.priority_type.clone();
        let weights = weights(&config.priority);
        let Some(rules) = rules else { return CommandReply::Priorities { kind, weights, jobs: Vec::new() } };
        let accrues = rules.settings.flags.accrue_always;
        let mut jobs = Vec::new();
        // As in Slurm, a job that waits for something other than resources has no priority, unless it ages nevertheless.
        let sees = self.sees_job(by);
        for job in self.sight.boards().jobs.live().into_iter().filter(|job| sees(job)) {
            let waits = job.state.waits() && job.priority > 0 && (job.eligible || accrues);
            let runs = !job.state.waits() && priority::is_calculated(&rules.settings, &job);
            if waits || runs {
                jobs.extend(job.partitions.iter().map(|name| in_partition(&rules, &job, name)));
            }
        }
        CommandReply::Priorities { kind, weights, jobs }
    }
}

fn weights(settings: &PrioritySettings) -> PriorityWeights {
    PriorityWeights {
        age: settings.age,
        assoc: settings.assoc,
        fairshare: settings.fairshare,
        job_size: settings.job_size,
        partition: settings.partition,
        qos: settings.qos,
        tres: settings.tres.iter().map(|(kind, weight)| (kind.name(), *weight)).collect(),
        tres_text: settings.tres_text.clone(),
    }
}

fn in_partition(rules: &priority::Rules, job: &JobView, partition: &str) -> JobPriority {
    let rank = rules.partitions.get(partition).cloned().unwrap_or_default();
    let calculated = rules.factors(job, &rank, rules.standing(job));
    let (factors, priority, tres) = if job.terms.fixed {
        let fixed = Factors { nice: calculated.nice, site: calculated.site, ..Factors::default() };
        (fixed, job.priority, Vec::new())
    } else {
        let (priority, tres) = (rules.number(&calculated), calculated.tres.clone());
        (calculated, priority, tres)
    };
    // Those by which it is judged, also where it names none.
    let association = rules.fair.association(job);
    let qos = rules.fair.qos_of(job).map(|qos| qos.name.clone());
    JobPriority {
        job: job.id,
        array_task: job.array_task,
        uid: job.uid,
        user: job.user.clone(),
        account: association.map(|own| own.account.clone()).or_else(|| job.spec.account.clone()),
        qos_name: qos.or_else(|| job.spec.qos.clone()),
        partition: partition.to_owned(),
        priority,
        age: factors.age,
        assoc: factors.assoc,
        fairshare: factors.fairshare,
        job_size: factors.job_size,
        partition_factor: factors.partition,
        qos: factors.qos,
        tres,
        site: factors.site,
        nice: factors.nice,
    }
}
