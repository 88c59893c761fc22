//! `scontrol update` of jobs: the new request of each job is judged like a submission by its owner, and sent to the job.

use super::{
    commands::{tasks_of, told},
    core::{FrontendCore, OfSelectors, Reply, Then, Turn},
    gather::{self, Asked, Heard},
    messages::Said,
    selection::{Named, may_act},
    site_checks::Checked,
    submit_limits::{Move, affiliation},
};
use crate::{
    controller::shells::submitted::tasks,
    messages::job::{Authority, CHANGED_MEANWHILE, JobCommand},
    submission::{
        admission::{Change, Submitter},
        dependency_cycles::Awaited,
        texts,
    },
};
use garrick_events::records::job::{JobRecord, Phase, indices_of};
use garrick_model::{
    config::McsPlugin,
    ids::JobId,
    messages::command::{Caller, CommandReply, JobChange, JobSelector},
    refusal::Refusal,
    spec_text::array::contains_index,
    time::Timestamp,
    view::JobView,
};
use std::sync::Arc;

/// How often a change is judged again because its job has changed meanwhile; then the requester is told to try again.
const MOST_TRIES: u32 = 64;

/// What is asked of one job.
struct UpdateOf<'u> {
    request: u64,
    by: Authority,
    selector: &'u JobSelector,
    change: &'u JobChange,
}

/// An update of jobs in progress.
pub(super) struct Update {
    by: Authority,
    change: JobChange,
    checked: Checked,
    asked: OfSelectors,
    /// Number of the request.
    request: u64,
    /// The jobs that are being asked, in order, and where their answers belong: the selector, and the job among those it means.
    under_way: Vec<(JobId, (usize, usize))>,
    /// How often these were judged.
    tries: u32,
}

impl FrontendCore {
    pub(super) fn update_job(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        by: Authority,
        jobs: Vec<JobSelector>,
        mut change: JobChange,
        mut checked: Checked,
    ) -> Reply {
        // If the jobs belong to others, nothing is looked up for the caller.
        let is_own = |(_, views): &Named| views.iter().any(|view| may_act(by, view));
        let (own, others): (Vec<Named>, Vec<Named>) = self.named(jobs)?.into_iter().partition(is_own);
        let mut asked = Vec::with_capacity(own.len() + others.len());
        for (selector, views) in others {
            let refused = views.iter().map(|view| Asked::refused(view, &selector, Refusal::AccessDenied)).collect();
            asked.push((selector, refused));
        }
        let has_labels = self.sight.config().mcs.plugin != McsPlugin::None;
        for change in checked.changes.values_mut().flatten().chain([&mut change]) {
            // Only the controller sets this.
            change.sharing = None;
            change.mcs_label = change.mcs_label.take().filter(|_| has_labels);
        }
        let fits = |change: &JobChange| texts::check_change(change).and_then(|()| self.check_cycles(&own, change));
        let fits = checked.changes.values().flatten().chain([&change]).try_for_each(fits);
        if let Err(refusal) = fits {
            let own = own.into_iter().map(|(job, _)| job);
            let refused = own.chain(asked.into_iter().map(|(job, _)| job)).map(|job| (job, Err(refusal.clone())));
            return Ok(Some(checked.with(CommandReply::PerJob(refused.collect()))));
        }
        let (mut asks, mut under_way) = (Vec::new(), Vec::new());
        for (selector, views) in own {
            let mut judged = Vec::with_capacity(views.len());
            for view in &views {
                let may = if may_act(by, view) { Ok(()) } else { Err(Refusal::AccessDenied) };
                let asked = |change| UpdateOf { request, by, selector: &selector, change };
                judged.push(may.and_then(|()| {
                    let change = checked.change(view.id, &change)?;
                    self.judged(turn.now, view, &asked(change))
                }));
            }
            // A refusal that is the same for all is reported once.
            if let Some(refusal) = same_refusal(&judged) {
                asked.push((selector, vec![Asked::of_all(Some(Err(refusal)))]));
                continue;
            }
            let mut sent = Vec::with_capacity(views.len());
            for (view, judged) in views.iter().zip(judged) {
                sent.push(match judged {
                    Ok(command) => {
                        under_way.push((view.id, (asked.len(), sent.len())));
                        asks.push(told(view.id, by, tasks_of(view, &selector), command));
                        Asked::waiting(view, &selector)
                    }
                    Err(refusal) => Asked::refused(view, &selector, refusal),
                });
            }
            asked.push((selector, sent));
        }
        let update = Update { by, change, checked, asked, request, under_way, tries: 1 };
        self.ask(turn, request, asks, Then::Update(Box::new(update)));
        Ok(None)
    }

    /// Handles the answers of jobs' owners. `None`: some of them are asked again.
    pub(super) fn updated(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        mut update: Box<Update>,
        said: impl Iterator<Item = Said>,
    ) -> Option<CommandReply> {
        let (mut asks, mut again) = (Vec::new(), Vec::new());
        for ((job, place), said) in std::mem::take(&mut update.under_way).into_iter().zip(said) {
            let result = said.done();
            self.moves.remove(&(update.request, job));
            let has_changed = result == Some(Err(CHANGED_MEANWHILE)) && update.tries < MOST_TRIES;
            let view = self.sight.boards().jobs.get(&job).filter(|_| has_changed);
            let Some((selector, means)) = update.asked.get_mut(place.0) else { continue };
            let Some(one) = means.get_mut(place.1) else { continue };
            let judged = |view: Arc<JobView>| {
                let change = update.checked.change(job, &update.change);
                let asked = |change| UpdateOf { request: update.request, by: update.by, selector, change };
                (change.and_then(|change| self.judged(turn.now, &view, &asked(change))), view)
            };
            one.heard = match view.map(judged) {
                Some((Ok(command), view)) => {
                    again.push((job, place));
                    asks.push(told(job, update.by, tasks_of(&view, selector), command));
                    Heard::Asked
                }
                Some((Err(refusal), _)) => Heard::Is(Err(refusal)),
                // A job that was forgotten meanwhile has no answer.
                None => result.map_or(Heard::Nothing, Heard::Is),
            };
        }
        if again.is_empty() {
            self.moves.retain(|(request, _), _| *request != update.request);
            let answers = gather::per_task(update.asked, std::iter::empty());
            return Some(update.checked.with(CommandReply::PerJob(answers)));
        }
        update.under_way = again;
        update.tries += 1;
        self.ask(turn, request, asks, Then::Update(update));
        None
    }

    /// The command for a job; for a waiting job, with its new request.
    fn judged(&mut self, now: Timestamp, view: &JobView, asked: &UpdateOf<'_>) -> Result<JobCommand, Refusal> {
        let UpdateOf { request, by, selector, change } = *asked;
        let plain = || JobCommand::Update(Box::new(change.clone()));
        let Some(record) = self.sight.committed().job(view.id) else { return Ok(plain()) };
        // An array's list of tasks is long and does not affect the judgement.
        let record = JobRecord { array: None, ..record };
        if !matches!(record.phase, Phase::Pending) || !record.may_act(by.uid, by.admin) {
            return Ok(plain());
        }
        let caller =
            Caller { uid: record.owner.uid, gid: record.owner.gid, pid: 0, host: record.spec.submit_host.clone() };
        let admin = self.sight.administrators().contains(&record.owner.uid);
        // The user's other jobs matter only for these changes.
        let of_user = change.partitions.is_some()
            || change.account.is_some()
            || change.reservations.is_some()
            || change.mcs_label.is_some()
            || change.request.qos.is_some();
        let users = self.sight.users();
        let user = if of_user { self.user_now(caller.uid)? } else { users.user(caller.uid) };
        let owner = Submitter { caller: &caller, user, group: users.group_name(caller.gid), admin };
        let change = Change { record: &record, change, by };
        let revise = self.with_rules(now, |rules| rules.revise(&owner, change))?;
        let (spec, resolved) = (Arc::new(revise.spec.clone()), revise.resolved.clone());
        let to = affiliation(&JobRecord { spec, resolved, ..record.clone() });
        let change = Move { job: view.id, from: affiliation(&record), to, tasks: chosen(view, selector) };
        self.check_move(request, change, by.admin)?;
        Ok(JobCommand::Revise(Box::new(revise)))
    }

    /// No job may depend on itself.
    fn check_cycles(&self, jobs: &[Named], change: &JobChange) -> Result<(), Refusal> {
        let Some(dependencies) = change.dependencies.as_ref().filter(|d| d.list.iter().any(|d| d.job.is_some())) else {
            return Ok(());
        };
        let awaited = Awaited::with(&self.sight.boards().jobs.list(), dependencies);
        let circular = jobs.iter().any(|(selector, _)| {
            match self.sight.boards().jobs.get(&selector.job).and_then(|view| view.array_task) {
                // A task named by the id of its own record.
                Some(task) if selector.tasks.is_none() && task.array_job != selector.job => {
                    let tasks = Some(vec![(task.index, task.index, 1)]);
                    awaited.has(&JobSelector { job: task.array_job, tasks, het: None, run: None })
                }
                _ => awaited.has(selector),
            }
        });
        if circular { Err(Refusal::CircularDependency) } else { Ok(()) }
    }
}

/// For how many jobs those count that a selector means of a job.
fn chosen(view: &JobView, selector: &JobSelector) -> u64 {
    let (Some(array), Some(ranges)) = (&view.array_pending, tasks_of(view, selector)) else { return tasks(view) };
    indices_of(&array.ranges).into_iter().filter(|index| contains_index(&ranges, *index)).count() as u64
}

/// The refusal, if all of them are the same.
fn same_refusal<T>(judged: &[Result<T, Refusal>]) -> Option<Refusal> {
    let first = judged.first()?.as_ref().err()?;
    judged.iter().all(|one| one.as_ref().err() == Some(first)).then(|| first.clone())
}
