//! Running jobs that have reached a limit of minutes, and are ended for it (Slurm's page on resource limits): `GrpTRESMins` of an
//! association or a QOS ends all running jobs of the group that have such a TRES, `MaxTRESMinsPerJob` the job that has used them. Not
//! with `safe`: then no job starts that could reach one, and none is ended, also where a limit is lowered. `GrpWall` ends no job.

use super::accounting::Check;
use crate::snapshot::{
    accounting::Accounting,
    facts::{ClusterView, PartitionFacts},
};
use garrick_model::{
    config::EnforceWord,
    entities::used::Flow,
    ids::{JobId, Sluid},
    state::{JobState, Reason},
    time::Timestamp,
    view::JobView,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Of sums of fractions, that much is missing at most, seconds.
pub(super) const NEARLY: f64 = 1e-3;

/// A limit that is further away is looked at again then: a day.
const LONGEST: f64 = 86_400.0;

/// What limits of minutes say of running jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Minutes {
    /// Runs that are to be ended, each with the reason.
    pub over: Vec<(JobId, Sluid, Reason)>,
    /// When the first of the others reaches a limit, if nothing begins or ends.
    pub next: Option<Timestamp>,
}

/// A run, as far as limits of minutes are concerned.
pub(super) struct Spent {
    /// Seconds for which it had its resources, times `UsageFactor`.
    pub secs: f64,
    /// How much a second adds: 0 while it stands still.
    pub pace: f64,
}

/// Which runs have reached a limit, and when the next one does.
pub fn minutes(view: &ClusterView, jobs: &[Arc<JobView>], now: Timestamp) -> Minutes {
    let accounting = &view.accounting;
    if !accounting.enforces(EnforceWord::Limits) || accounting.enforces(EnforceWord::Safe) {
        return Minutes::default();
    }
    let partitions: BTreeMap<&str, &PartitionFacts> = view.partitions.iter().map(|p| (p.name.as_str(), p)).collect();
    let mut minutes = Minutes::default();
    let works =
        |job: &&Arc<JobView>| matches!(job.state, JobState::Running | JobState::Suspended) && job.ending.is_none();
    for job in jobs.iter().filter(works) {
        let place = job.allocation.as_ref().and_then(|run| partitions.get(run.partition.as_str()));
        match place.and_then(|place| reached(accounting, job, place, now)) {
            Some((secs, reason)) if secs <= 0.0 => minutes.over.push((job.id, job.sluid, reason)),
            Some((secs, _)) => {
                let at = now.plus(Duration::from_secs_f64(secs.clamp(NEARLY, LONGEST)));
                minutes.next = Some(minutes.next.map_or(at, |known| known.min(at)));
            }
            None => {}
        }
    }
    minutes
}

/// In how many seconds the run reaches the first limit, and which one that is.
fn reached(accounting: &Accounting, job: &JobView, place: &PartitionFacts, now: Timestamp) -> Option<(f64, Reason)> {
    let run = job.allocation.as_ref()?;
    let standing = accounting.standing_in(job, place);
    let factor = standing.own.map_or(1.0, |qos| qos.record.usage_factor);
    let stood = job.suspended.as_ref();
    let still = job.state == JobState::Suspended;
    let until = stood.filter(|_| still).map_or(now, |stood| stood.at);
    let whole = until.since(job.start_time?).as_secs_f64();
    let stood_secs = stood.map_or(Duration::ZERO, |stood| Duration::from_millis(stood.stood_ms)).as_secs_f64();
    let spent = Spent { secs: (whole - stood_secs).max(0.0) * factor, pace: if still { 0.0 } else { factor } };
    let demand = accounting.gets(job, &standing, (&run.nodes, &run.licenses), None);
    Check::new(accounting, &demand, None).first_reached(&standing, &spent)
}

/// In how many seconds a run has spent that many minutes of an amount of which it has so much.
pub(super) fn own_reaches(spent: &Spent, amount: u64, most_minutes: u64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let (amount, most) = (amount as f64, most_minutes as f64 * 60.0);
    let left = most - spent.secs * amount;
    if left <= NEARLY {
        return Some(0.0);
    }
    let pace = spent.pace * amount;
    (pace > 0.0).then(|| left / pace)
}

/// In how many seconds a group has used that many minutes of a TRES.
pub(super) fn group_reaches(flow: Option<&Flow>, name: &str, most_minutes: u64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let most = most_minutes as f64 * 60.0 - NEARLY;
    match flow {
        Some(flow) => flow.reaches(name, most),
        None => (most <= 0.0).then_some(0.0),
    }
}
