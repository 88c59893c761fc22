//! What of a step manager must survive its restart: which steps were accepted, which started, how they ended. The ledger
//! is changed by [`Ledger::apply`] only, both live and when the journal is read again, so the two cannot differ.

use crate::step::state::{StepResult, worse};
use garrick_model::{
    ids::{RequestId, StepNum},
    spec::StepSpec,
    state::{ExitStatus, JobState, Reason, StepState},
    time::Timestamp,
    view::StepCounts,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

/// A record of the step journal in the job's spool folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum StepEvent {
    /// Minibatch steps were accepted; numbers are consecutive. On disk before the reply.
    Accepted {
        /// Identity of the request.
        request: RequestId,
        /// Number of the first.
        first: u32,
        /// The steps. An empty environment: that of the one before.
        specs: Vec<Arc<StepSpec>>,
        /// When.
        at: Timestamp,
    },
    /// A step's tasks were handed to their nodes.
    Started {
        /// Which.
        step: StepNum,
        /// When.
        at: Timestamp,
    },
    /// A step is over; also one that never started.
    Ended {
        /// How.
        result: StepResult,
        /// When.
        at: Timestamp,
    },
    /// The job is being ended.
    Ending {
        /// State to record.
        state: JobState,
        /// Why.
        reason: Reason,
        /// Exit status to record.
        exit: ExitStatus,
    },
    /// A step manager took the run over from one that died.
    Restarted,
}

/// A minibatch step that waits.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitingSpec {
    /// What was asked for.
    pub spec: Arc<StepSpec>,
    /// Since when.
    pub at: Timestamp,
    /// The step whose environment it has, when its own is empty.
    pub environment_of: Option<Arc<StepSpec>>,
}

/// How a step ended, kept for the life of the run: a few bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedStep {
    /// Final state.
    pub state: StepState,
    /// Exit status.
    pub exit: ExitStatus,
    /// Nobody stayed with it.
    pub minibatch: bool,
}

/// Answers that are kept for repeats of a request. Older ones are forgotten; a repeat comes within seconds.
const ANSWERS_KEPT: usize = 10_000;

/// Durable state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// Next free step number.
    pub next: u32,
    /// Minibatch steps that wait.
    pub waiting: BTreeMap<u32, WaitingSpec>,
    /// Steps with processes.
    pub running: BTreeSet<StepNum>,
    /// Ended numbered steps, by number.
    ended: Vec<Option<EndedStep>>,
    /// Counters of numbered steps; `queued` counts minibatch steps only (attended ones are not durable while they wait).
    pub counts: StepCounts,
    /// Worst exit of any numbered step.
    pub derived: ExitStatus,
    /// The batch step's end.
    pub batch: Option<StepResult>,
    /// Set once the job is being ended.
    pub ending: Option<(JobState, Reason, ExitStatus)>,
    /// Restarts so far.
    pub restarts: u64,
    answers: BTreeMap<RequestId, (u32, u32)>,
    answer_order: VecDeque<RequestId>,
    minibatch: BTreeSet<u32>,
}

impl Ledger {
    /// From the records of a journal.
    pub fn replay(events: impl IntoIterator<Item = StepEvent>) -> Self {
        let mut ledger = Self::default();
        for event in events {
            ledger.apply(&event);
        }
        ledger
    }

    /// The only way to change it.
    pub fn apply(&mut self, event: &StepEvent) {
        match event {
            StepEvent::Accepted { request, first, specs, at } => self.accepted(*request, *first, specs, *at),
            StepEvent::Started { step, .. } => {
                if let StepNum::Number(n) = step {
                    self.next = self.next.max(n + 1);
                    if self.waiting.remove(n).is_some() {
                        self.counts.queued -= 1;
                    }
                    self.counts.running += 1;
                }
                self.running.insert(*step);
            }
            StepEvent::Ended { result, .. } => self.ended(result),
            StepEvent::Ending { state, reason, exit } => {
                if self.ending.is_none() {
                    self.ending = Some((*state, reason.clone(), *exit));
                }
            }
            StepEvent::Restarted => self.restarts += 1,
        }
    }

    fn accepted(&mut self, request: RequestId, first: u32, specs: &[Arc<StepSpec>], at: Timestamp) {
        let mut environment_of = None;
        for (number, spec) in (first..).zip(specs) {
            if !spec.environment.is_empty() {
                environment_of = Some(spec.clone());
            }
            let inherited = if spec.environment.is_empty() { environment_of.clone() } else { None };
            self.waiting.insert(number, WaitingSpec { spec: spec.clone(), at, environment_of: inherited });
            self.minibatch.insert(number);
        }
        let count = specs.len() as u32;
        self.next = self.next.max(first + count);
        self.counts.queued += u64::from(count);
        self.answers.insert(request, (first, count));
        self.answer_order.push_back(request);
        if self.answer_order.len() > ANSWERS_KEPT
            && let Some(oldest) = self.answer_order.pop_front()
        {
            self.answers.remove(&oldest);
        }
    }

    fn ended(&mut self, result: &StepResult) {
        let ran = self.running.remove(&result.step.step);
        match result.step.step {
            StepNum::Number(n) => {
                self.next = self.next.max(n + 1);
                if ran {
                    self.counts.running -= 1;
                } else if self.waiting.remove(&n).is_some() {
                    self.counts.queued -= 1;
                }
                if result.state == StepState::Completed {
                    self.counts.done += 1;
                } else {
                    self.counts.failed += 1;
                }
                self.derived = worse(self.derived, result.exit);
                let at = n as usize;
                if self.ended.len() <= at {
                    self.ended.resize(at + 1, None);
                }
                let minibatch = self.minibatch.remove(&n);
                self.ended[at] = Some(EndedStep { state: result.state, exit: result.exit, minibatch });
            }
            StepNum::Batch => self.batch = Some(result.clone()),
            StepNum::Extern | StepNum::Interactive => {}
        }
    }

    /// Numbers given for a request before: first and how many.
    pub fn answer(&self, request: &RequestId) -> Option<(u32, u32)> {
        self.answers.get(request).copied()
    }

    /// How a numbered step ended, if it did.
    pub fn end_of(&self, step: u32) -> Option<EndedStep> {
        self.ended.get(step as usize).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::state::StepEnd;
    use garrick_model::ids::{JobId, StepId};

    fn spec(name: &str, env: &str) -> Arc<StepSpec> {
        let environment =
            if env.is_empty() { Vec::new() } else { vec![serde_bytes::ByteBuf::from(env.as_bytes().to_vec())] };
        Arc::new(StepSpec { environment, ..crate::stepmgr::builders::step(name) })
    }

    #[test]
    fn steps_with_an_empty_environment_take_that_of_the_one_before() {
        let mut ledger = Ledger::default();
        let specs = vec![spec("a", ""), spec("b", "X=1"), spec("c", "")];
        ledger.apply(&StepEvent::Accepted {
            request: RequestId(1, 1),
            first: 0,
            specs: specs.clone(),
            at: Timestamp(5),
        });
        assert_eq!(ledger.waiting[&0].environment_of, None);
        assert_eq!(ledger.waiting[&1].environment_of, None);
        assert_eq!(ledger.waiting[&2].environment_of, Some(specs[1].clone()));
        assert_eq!(ledger.answer(&RequestId(1, 1)), Some((0, 3)));
        assert_eq!(ledger.next, 3);
    }

    #[test]
    fn counts_follow_the_steps() {
        let mut ledger = Ledger::default();
        let at = Timestamp(1);
        let ended = |n: u32, state, code| StepEvent::Ended {
            result: StepResult {
                step: StepId::new(JobId(1), StepNum::Number(n)),
                state,
                exit: ExitStatus { code, signal: None },
                ended: None::<StepEnd>,
            },
            at,
        };
        for event in [
            StepEvent::Accepted { request: RequestId(0, 0), first: 0, specs: vec![spec("a", ""), spec("b", "")], at },
            StepEvent::Started { step: StepNum::Number(2), at },
            StepEvent::Started { step: StepNum::Number(0), at },
            ended(0, StepState::Failed, 3),
            ended(2, StepState::Completed, 0),
            ended(1, StepState::Cancelled, 0),
        ] {
            ledger.apply(&event);
        }
        assert_eq!(ledger.counts, StepCounts { queued: 0, running: 0, done: 1, failed: 2 });
        assert_eq!(ledger.derived.code, 3);
        assert!(ledger.end_of(0).is_some_and(|e| e.minibatch) && ledger.end_of(2).is_some_and(|e| !e.minibatch));
    }
}
