//! `scontrol update` of jobs: what each job would ask for then is judged as a submission of its owner's, and sent to the job.

use super::{
    admission::{Change, Submitter},
    circles::Awaited,
    front::ControllerActor,
    messages::ControllerMsg,
    per_task::Asked,
    ports::ReplySink,
    selection::{Named, may_act},
    texts,
};
use crate::job::{
    messages::{Authority, CHANGED_MEANWHILE, JobCommand},
    record::{JobRecord, Phase},
};
use garrick_model::{
    config::McsPlugin,
    ids::JobId,
    messages::command::{Caller, CommandReply, JobChange, JobSelector},
    refusal::Refusal,
    time::Timestamp,
    view::JobView,
};
use garrick_runtime::{AskError, Context, ReplyTo};

/// So often a change is judged again whose job has changed meanwhile; whoever asked is then told to come again.
const MOST_TRIES: u32 = 64;

/// A change of one job that is under way.
pub struct Update {
    job: JobId,
    selector: JobSelector,
    by: Authority,
    change: JobChange,
    /// Times that it was judged.
    tries: u32,
    reply: ReplyTo<Result<(), Refusal>>,
}

impl ControllerActor {
    pub(super) fn update_job(
        &mut self,
        cx: &mut Context<Self>,
        by: Authority,
        jobs: Vec<JobSelector>,
        mut change: JobChange,
        mut replies: Box<dyn ReplySink>,
    ) {
        let jobs = match self.named(jobs) {
            Ok(jobs) => jobs,
            Err(refusal) => {
                replies.send(CommandReply::Refused(refusal));
                return;
            }
        };
        // Others' jobs are not his to ask about: nothing is looked up for them.
        let is_own = |(_, views): &Named| views.iter().any(|view| may_act(by, view));
        let (own, others): (Vec<Named>, Vec<Named>) = jobs.into_iter().partition(is_own);
        let mut asked = Vec::with_capacity(own.len() + others.len());
        for (selector, views) in others {
            let refused = views.iter().map(|view| Asked::refused(view, &selector, Refusal::AccessDenied)).collect();
            asked.push((selector, refused));
        }
        // Only the controller says how nodes are shared.
        change.sharing = None;
        if self.env.config().mcs.plugin == McsPlugin::None {
            change.mcs_label = None;
        }
        let checked = texts::check_change(&change).and_then(|()| self.check_circles(&own, &change));
        if let Err(refusal) = checked {
            let own = own.into_iter().map(|(job, _)| job);
            let refused = own.chain(asked.into_iter().map(|(job, _)| job)).map(|job| (job, Err(refusal.clone())));
            replies.send(CommandReply::PerJob(refused.collect()));
            return;
        }
        for (selector, views) in own {
            let mut judged = Vec::with_capacity(views.len());
            for view in &views {
                let may = if may_act(by, view) { Ok(()) } else { Err(Refusal::AccessDenied) };
                judged.push(may.and_then(|()| self.judged(view, by, &change)));
            }
            // What is wrong for all of them is told of what was named.
            if let Some(refusal) = same_refusal(&judged) {
                let (reply, answer) = ReplyTo::channel();
                reply.reply(Err(refusal));
                asked.push((selector, vec![Asked::of_all(answer)]));
                continue;
            }
            let mut sent = Vec::with_capacity(views.len());
            for (view, judged) in views.iter().zip(judged) {
                match judged {
                    Ok(command) => {
                        let (reply, answer) = ReplyTo::channel();
                        sent.push(Asked::new(view, &selector, answer));
                        let (selector, change) = (selector.clone(), change.clone());
                        let update = Update { job: view.id, selector, by, change, tries: 1, reply };
                        self.send_update(cx, view, update, command);
                    }
                    Err(refusal) => sent.push(Asked::refused(view, &selector, refusal)),
                }
            }
            asked.push((selector, sent));
        }
        Self::answer_per_task(cx, asked, replies);
    }

    /// A job's owner answered.
    pub(super) fn job_updated(
        &mut self,
        cx: &mut Context<Self>,
        update: Update,
        answer: Result<Result<(), Refusal>, AskError>,
    ) {
        let again = answer == Ok(Err(CHANGED_MEANWHILE)) && update.tries < MOST_TRIES;
        match self.env.boards.jobs.get(&update.job).filter(|_| again) {
            Some(view) => match self.judged(&view, update.by, &update.change) {
                Ok(command) => self.send_update(cx, &view, Update { tries: update.tries + 1, ..update }, command),
                Err(refusal) => update.reply.reply(Err(refusal)),
            },
            None => {
                // One that was forgotten meanwhile takes the question with it.
                if let Ok(result) = answer {
                    update.reply.reply(result);
                }
            }
        }
    }

    fn send_update(&self, cx: &mut Context<Self>, view: &JobView, update: Update, command: JobCommand) {
        // The record of an array chooses among its waiting tasks; all others are meant as a whole.
        let tasks = if view.array_pending.is_some() { update.selector.tasks.clone() } else { None };
        if let Some(answer) = self.send_command(cx, view.id, update.by, tasks, command) {
            cx.pipe(answer, move |answer| ControllerMsg::JobUpdated { update: Box::new(update), answer });
        }
    }

    /// What the job is told: of one that waits, what it comes to.
    fn judged(&mut self, view: &JobView, by: Authority, change: &JobChange) -> Result<JobCommand, Refusal> {
        let plain = || JobCommand::Update(Box::new(change.clone()));
        let Some(record) = self.env.committed.job(view.id) else { return Ok(plain()) };
        // What an array knows of its tasks is long, and nothing that is judged.
        let record = JobRecord { array: None, ..record };
        if !matches!(record.phase, Phase::Pending) || !record.may_act(by.uid, by.admin) {
            return Ok(plain());
        }
        let caller =
            Caller { uid: record.owner.uid, gid: record.owner.gid, pid: 0, host: record.spec.submit_host.clone() };
        let admin = self.env.ports.host.administrators().contains(&record.owner.uid);
        // Who else is asked for nothing need not be known.
        let of_user = change.partitions.is_some()
            || change.account.is_some()
            || change.reservations.is_some()
            || change.mcs_label.is_some()
            || change.request.qos.is_some();
        let users = &self.env.ports.users;
        let user = if of_user { self.user_now(caller.uid)? } else { users.user(caller.uid) };
        let owner = Submitter { caller: &caller, user, group: users.group_name(caller.gid), admin };
        let asked = Change { record: &record, change, by };
        let (revise, warnings) = self.with_rules(Timestamp::now(), |rules| rules.revise(&owner, asked))?;
        for warning in warnings {
            tracing::info!(job_id = view.id.0, by = by.uid, warning, "job.update_warned");
        }
        Ok(JobCommand::Revise(Box::new(revise)))
    }

    /// No job may wait for itself.
    fn check_circles(&self, jobs: &[Named], change: &JobChange) -> Result<(), Refusal> {
        let Some(dependencies) = change.dependencies.as_ref().filter(|d| d.list.iter().any(|d| d.job.is_some())) else {
            return Ok(());
        };
        let awaited = Awaited::with(&self.env.boards.jobs.list(), dependencies);
        let circular = jobs.iter().any(|(selector, _)| {
            match self.env.boards.jobs.get(&selector.job).and_then(|view| view.array_task) {
                // A task by the id of its own record.
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

/// The refusal that all of them are.
fn same_refusal<T>(judged: &[Result<T, Refusal>]) -> Option<Refusal> {
    let first = judged.first()?.as_ref().err()?;
    judged.iter().all(|one| one.as_ref().err() == Some(first)).then(|| first.clone())
}
