//! Decides about triggers: which there are, which events they waited for, and which programs run.

use crate::owner::{Effect, FreshIds, Out, Owner};
use garrick_events::event::ControllerEvent;
use garrick_model::{
    hostlist,
    ids::JobId,
    refusal::Refusal,
    time::Timestamp,
    trigger::{Due, MOST, Trigger, TriggerAbout, TriggerEvent, TriggerRequest, TriggerSelector},
    view::JobView,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// How often it is looked whether something happened (strigger(1)).
pub const INTERVAL: Duration = Duration::from_secs(15);

/// The frontend's requests. The answer is sent when the change is on disk. May be asked twice.
#[derive(Clone, Debug, PartialEq)]
pub enum TriggerAsk {
    /// A new one.
    Set {
        /// Who sets it.
        uid: u32,
        /// So many may be this user's.
        most: usize,
        /// What.
        request: TriggerRequest,
    },
    /// Remove some.
    Clear {
        /// Who asks.
        uid: u32,
        /// Root or SlurmUser.
        admin: bool,
        /// Which.
        which: TriggerSelector,
    },
}

/// Inputs of the owner of triggers.
#[derive(Clone, Debug)]
pub enum TriggerInput {
    /// The actor's life begins.
    Begun,
    /// Somebody asks.
    Asked {
        /// Request.
        request: u64,
        /// What.
        ask: TriggerAsk,
    },
    /// It is time to look.
    Tick,
    /// Answer to [`TriggerErrand::Look`].
    Seen(Box<Seen>),
}

/// What happened since it was looked last.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Events of nodes.
    pub nodes: BTreeMap<String, BTreeSet<TriggerEvent>>,
    /// Nodes on which nothing runs, and that could be used.
    pub idle: BTreeSet<String>,
    /// The jobs that triggers are about, as far as they are known.
    pub jobs: BTreeMap<JobId, Arc<JobView>>,
    /// Events of controllers, of the service of accounting and of its database.
    pub others: BTreeSet<TriggerEvent>,
    /// Counts how often the configuration was read.
    pub configurations: u64,
    /// Users who set triggers and whose names are not known yet.
    pub unknown: BTreeSet<u32>,
    /// It happened before the triggers with this number and greater ones were set; `None`: after all were.
    pub before: Option<u32>,
}

/// Errands of the owner of triggers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TriggerErrand {
    /// See what happened.
    Look {
        /// To these jobs.
        jobs: BTreeSet<JobId>,
        /// Whether the names of these users are known.
        owners: BTreeSet<u32>,
        /// For triggers with smaller numbers only.
        before: u32,
    },
    /// Run a program.
    Run {
        /// As the user who set the trigger.
        uid: u32,
        /// Program and arguments.
        program: String,
        /// Its last argument.
        argument: String,
    },
}

/// Its one timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TriggerTimer;

/// An effect. It publishes nothing: triggers are shown as they are saved.
pub type TriggerEffect = Effect<TriggerTimer, std::convert::Infallible, Result<(), Refusal>, TriggerErrand>;

/// All triggers, by number.
#[derive(Clone, Debug, Default)]
pub struct TriggersCore {
    known: BTreeMap<u32, Trigger>,
    last: u32,
    /// Since when nodes are idle, as far as it was seen.
    idle_since: BTreeMap<String, Timestamp>,
    /// Nodes that a trigger was told to be idle: not again while they are.
    told_idle: BTreeSet<(u32, String)>,
    configurations: Option<u64>,
}

impl TriggersCore {
    /// As saved, with the greatest number that was given.
    pub fn new(saved: BTreeMap<u32, Trigger>, last: u32) -> Self {
        Self { known: saved, last, ..Self::default() }
    }

    fn save(&mut self, trigger: u32, saved: Option<Trigger>, out: &mut Out<Self>) {
        match &saved {
            Some(saved) => drop(self.known.insert(trigger, saved.clone())),
            None => {
                self.known.remove(&trigger);
                self.told_idle.retain(|(id, _)| *id != trigger);
            }
        }
        out.push(Effect::Save(ControllerEvent::Trigger { trigger, saved: saved.map(Box::new) }));
    }

    fn set(&mut self, uid: u32, most: usize, request: TriggerRequest, out: &mut Out<Self>) -> Result<(), Refusal> {
        if self.known.values().any(|known| known.uid == uid && known.request == request) {
            return Err(Refusal::TriggerExists);
        }
        let full = |limit| Err(Refusal::Full { limit, after: INTERVAL });
        // Of SlurmUser only that user's own are counted.
        if most < MOST && self.known.len() >= MOST {
            return full(format!("there are {MOST} triggers"));
        }
        if self.known.values().filter(|known| known.uid == uid).count() >= most {
            return full(format!("{most} triggers are this user's"));
        }
        self.last = self.last.saturating_add(1);
        let id = self.last;
        tracing::info!(trigger = id, uid, events = ?request.events, program = request.program, "trigger.set");
        self.save(id, Some(Trigger { id, uid, request, due: None }), out);
        // What happened until now is not what it waits for.
        self.look(id, out);
        Ok(())
    }

    fn clear(&mut self, uid: u32, admin: bool, which: &TriggerSelector, out: &mut Out<Self>) -> Result<(), Refusal> {
        let meant: Vec<(u32, u32)> = self
            .known
            .values()
            .filter(|trigger| which.takes(trigger))
            .map(|trigger| (trigger.id, trigger.uid))
            .collect();
        if meant.is_empty() {
            return Err(Refusal::NoTrigger);
        }
        let own: Vec<u32> = meant.iter().filter(|(_, owner)| admin || *owner == uid).map(|(id, _)| *id).collect();
        if own.is_empty() {
            return Err(Refusal::AccessDenied);
        }
        own.into_iter().for_each(|id| self.save(id, None, out));
        Ok(())
    }

    /// `before`: what happened is for triggers with smaller numbers.
    fn look(&self, before: u32, out: &mut Out<Self>) {
        let job = |trigger: &Trigger| match trigger.request.about {
            TriggerAbout::Job(job) => Some(job),
            _ => None,
        };
        let jobs = self.known.values().filter_map(job).collect();
        let owners = self.known.values().map(|trigger| trigger.uid).collect();
        out.push(Effect::Do(TriggerErrand::Look { jobs, owners, before }));
    }

    fn seen(&mut self, now: Timestamp, seen: &Seen, out: &mut Out<Self>) {
        self.note_idle(now, seen);
        let read_again = self.configurations.replace(seen.configurations).is_some_and(|c| c != seen.configurations);
        let waits = |trigger: &&Trigger| trigger.due.is_none() && seen.before.is_none_or(|before| trigger.id < before);
        let all: Vec<Trigger> = self.known.values().filter(waits).cloned().collect();
        for trigger in all {
            let has = |event| trigger.request.events.contains(&event);
            let of_cluster =
                (has(TriggerEvent::Reconfig) && read_again) || !trigger.request.events.is_disjoint(&seen.others);
            let (argument, since) = match &trigger.request.about {
                _ if of_cluster => (Some("*".to_owned()), now),
                TriggerAbout::Job(job) => self.of_job(&trigger, *job, now, seen, out),
                TriggerAbout::Nodes(_) | TriggerAbout::Controller => (self.of_nodes(&trigger, None, now, seen), now),
            };
            if let Some(argument) = argument {
                let offset = Duration::from_secs(trigger.request.offset_secs.max(0).unsigned_abs().into());
                // What is idle for so long has waited for it.
                let waits = !has(TriggerEvent::Idle) && !has(TriggerEvent::Time);
                let due = Some(Due { at: if waits { since.plus(offset) } else { since }, argument });
                self.save(trigger.id, Some(Trigger { due, ..trigger }), out);
            }
        }
        self.run_due(now, &seen.unknown, out);
        out.push(Effect::SetTimer { timer: TriggerTimer, at: now.plus(INTERVAL) });
    }

    /// Runs what is due. A trigger that does not stay is removed before. One of a user whose name is not known yet stays due: its
    /// program could not run.
    fn run_due(&mut self, now: Timestamp, unknown: &BTreeSet<u32>, out: &mut Out<Self>) {
        let runs = |t: &&Trigger| t.due.as_ref().is_some_and(|d| d.at <= now) && !unknown.contains(&t.uid);
        let due: Vec<Trigger> = self.known.values().filter(runs).cloned().collect();
        for trigger in due {
            let Some(Due { argument, .. }) = trigger.due.clone() else { continue };
            let (id, uid, program) = (trigger.id, trigger.uid, trigger.request.program.clone());
            tracing::info!(trigger = id, program, argument, "trigger.runs");
            let left = trigger.request.permanent.then_some(Trigger { due: None, ..trigger });
            self.save(id, left, out);
            out.push(Effect::Do(TriggerErrand::Run { uid, program, argument }));
        }
    }

    fn note_idle(&mut self, now: Timestamp, seen: &Seen) {
        self.idle_since.retain(|node, _| seen.idle.contains(node));
        self.told_idle.retain(|(_, node)| seen.idle.contains(node));
        for node in &seen.idle {
            self.idle_since.entry(node.clone()).or_insert(now);
        }
    }

    /// The nodes to which what the trigger waits for has happened, as a host list. `of`: only nodes of a job.
    fn of_nodes(&mut self, trigger: &Trigger, of: Option<&JobView>, now: Timestamp, seen: &Seen) -> Option<String> {
        let allocated = |job: &JobView| -> BTreeSet<String> {
            job.allocation.iter().flat_map(|a| &a.nodes).map(|node| node.name.clone()).collect()
        };
        let of = of.map(allocated);
        let meant = |node: &String| match (&of, &trigger.request.about) {
            (Some(nodes), _) => nodes.contains(node),
            (None, TriggerAbout::Nodes(names)) => names.is_empty() || names.contains(node),
            (None, _) => false,
        };
        let events = &trigger.request.events;
        let happened = seen.nodes.iter().filter(|(_, happened)| !happened.is_disjoint(events)).map(|(node, _)| node);
        let mut nodes: BTreeSet<String> = happened.filter(|node| meant(node)).cloned().collect();
        if events.contains(&TriggerEvent::Idle) {
            let long = Duration::from_secs(trigger.request.offset_secs.max(0).unsigned_abs().into());
            let idle = self.idle_since.iter().filter(|(_, since)| now.since(**since) >= long).map(|(node, _)| node);
            for node in idle.filter(|node| meant(node)) {
                if self.told_idle.insert((trigger.id, node.clone())) {
                    nodes.insert(node.clone());
                }
            }
        }
        (!nodes.is_empty()).then(|| hostlist::fold(&nodes))
    }

    /// What happened to a job or its nodes: the program's argument, and when it happened. A trigger about a job that is over is
    /// removed.
    fn of_job(
        &mut self,
        trigger: &Trigger,
        job: JobId,
        now: Timestamp,
        seen: &Seen,
        out: &mut Out<Self>,
    ) -> (Option<String>, Timestamp) {
        let events = &trigger.request.events;
        let Some(view) = seen.jobs.get(&job) else {
            // It was over, and is forgotten.
            if events.contains(&TriggerEvent::Fini) {
                return (Some(job.0.to_string()), now);
            }
            self.save(trigger.id, None, out);
            return (None, now);
        };
        let over = !view.state.waits() && !view.state.works();
        if events.contains(&TriggerEvent::Fini) && over {
            return (Some(job.0.to_string()), view.end_time.unwrap_or(now));
        }
        let shifted = |at: Timestamp| Timestamp(at.0.saturating_add(i64::from(trigger.request.offset_secs) * 1000));
        let limit = view.end_time.filter(|_| view.state.works()).map(shifted);
        if events.contains(&TriggerEvent::Time) && limit.is_some_and(|at| at <= now) {
            return (Some(job.0.to_string()), now);
        }
        if let Some(nodes) = self.of_nodes(trigger, Some(view), now, seen) {
            return (Some(nodes), now);
        }
        if over {
            self.save(trigger.id, None, out);
        }
        (None, now)
    }
}

impl Owner for TriggersCore {
    type Input = TriggerInput;
    type Timer = TriggerTimer;
    type Shown = std::convert::Infallible;
    type Answer = Result<(), Refusal>;
    type Errand = TriggerErrand;

    fn handle(&mut self, now: Timestamp, _: &mut dyn FreshIds, input: TriggerInput, out: &mut Out<Self>) {
        match input {
            TriggerInput::Begun | TriggerInput::Tick => self.look(self.last.saturating_add(1), out),
            TriggerInput::Asked { request, ask } => {
                let answer = match ask {
                    TriggerAsk::Set { uid, most, request } => self.set(uid, most, request, out),
                    TriggerAsk::Clear { uid, admin, which } => self.clear(uid, admin, &which, out),
                };
                out.push(Effect::Answer { request, answer });
            }
            TriggerInput::Seen(seen) => self.seen(now, &seen, out),
        }
    }

    fn timer(_: TriggerTimer) -> TriggerInput {
        TriggerInput::Tick
    }
}
