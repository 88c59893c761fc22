//! Decides about crontabs: which jobs belong to one, and which lines of it are disabled.

use crate::{
    messages::{
        crontab::{CrontabInput, InstallCrontab},
        job::JobInput,
        letter::Letter,
    },
    owner::{Effect, FreshIds, Out, Owner},
};
use garrick_events::event::ControllerEvent;
use garrick_model::{crontab::Crontab, ids::JobId, refusal::Refusal, time::Timestamp};
use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};

/// Errands of the owner of crontabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrontabErrand {
    /// Find the jobs of crontabs.
    Look,
}

/// An effect.
pub type CrontabEffect = Effect<Infallible, Infallible, Result<(), Refusal>, CrontabErrand>;

/// All crontabs, by user.
#[derive(Clone, Debug, Default)]
pub struct CrontabsCore {
    known: BTreeMap<u32, Crontab>,
}

impl CrontabsCore {
    /// As saved.
    pub const fn new(saved: BTreeMap<u32, Crontab>) -> Self {
        Self { known: saved }
    }

    /// The crontab of a user.
    pub fn of(&self, uid: u32) -> Option<&Crontab> {
        self.known.get(&uid)
    }

    fn save(&mut self, uid: u32, crontab: Option<Crontab>, out: &mut Out<Self>) {
        match &crontab {
            Some(crontab) => drop(self.known.insert(uid, crontab.clone())),
            None => drop(self.known.remove(&uid)),
        }
        out.push(Effect::Save(ControllerEvent::Crontab { uid, saved: crontab.map(Box::new) }));
    }

    fn install(&mut self, InstallCrontab { uid, crontab }: InstallCrontab, out: &mut Out<Self>) {
        let before = self.known.get(&uid).cloned();
        if before == crontab {
            return;
        }
        let kept = |job: JobId| crontab.as_ref().is_some_and(|crontab| crontab.has(job));
        let left: Vec<JobId> =
            before.iter().flat_map(|before| &before.jobs).map(|entry| entry.job).filter(|job| !kept(*job)).collect();
        tracing::info!(
            uid,
            jobs = crontab.as_ref().map_or(0, |c| c.jobs.len()),
            left = left.len(),
            "crontab.installed"
        );
        self.save(uid, crontab, out);
        out.extend(left.into_iter().map(leave));
    }

    /// The lines of a job that was cancelled become comments.
    fn over(&mut self, uid: u32, job: JobId, out: &mut Out<Self>) {
        if let Some(crontab) = self.known.get(&uid).filter(|crontab| crontab.has(job)) {
            tracing::info!(uid, job_id = job.0, "crontab.entry_disabled");
            let left = crontab.without(job);
            self.save(uid, Some(left), out);
        }
    }

    /// Jobs without a crontab leave, and lines without a job become comments: what told of it may be lost.
    fn compare(&mut self, living: &[(u32, JobId)], out: &mut Out<Self>) {
        let belongs = |(uid, job): &(u32, JobId)| self.known.get(uid).is_some_and(|crontab| crontab.has(*job));
        out.extend(living.iter().filter(|one| !belongs(one)).map(|(_, job)| leave(*job)));
        let living: BTreeSet<JobId> = living.iter().map(|(_, job)| *job).collect();
        let all = self.known.iter().flat_map(|(uid, crontab)| crontab.jobs.iter().map(|entry| (*uid, entry.job)));
        let gone: Vec<(u32, JobId)> = all.filter(|(_, job)| !living.contains(job)).collect();
        gone.into_iter().for_each(|(uid, job)| self.over(uid, job, out));
    }
}

const fn leave(job: JobId) -> CrontabEffect {
    Effect::Tell(Letter::Job(job, JobInput::LeaveCrontab))
}

impl Owner for CrontabsCore {
    type Input = CrontabInput;
    type Timer = Infallible;
    type Shown = Infallible;
    type Answer = Result<(), Refusal>;
    type Errand = CrontabErrand;

    fn handle(&mut self, _: Timestamp, _: &mut dyn FreshIds, input: CrontabInput, out: &mut Out<Self>) {
        match input {
            CrontabInput::Begun => out.push(Effect::Do(CrontabErrand::Look)),
            CrontabInput::Asked { request, ask } => {
                self.install(ask, out);
                out.push(Effect::Answer { request, answer: Ok(()) });
            }
            CrontabInput::Over { uid, job } => self.over(uid, job, out),
            CrontabInput::Seen { living } => self.compare(&living, out),
        }
    }

    fn timer(timer: Infallible) -> CrontabInput {
        match timer {}
    }
}
