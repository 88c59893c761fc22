//! PMI in the shepherd: what the tasks of a step here tell each other. Between nodes it travels with fences only: each node sends
//! what its tasks told once all of them have come, and gets what those of all nodes told.
//!
//! A task that ends between its first and last request leaves others waiting: the step is ended then, as MPI programs expect.
//!
//! With PMIx the first task of the node has started a server, which speaks here for all of them: it alone comes to fences, and says
//! when which task begins and finishes.

use crate::{
    env_entry::entry,
    pmi::{Answer, Asked, MAPPING_KEY, MOST_FENCED, MOST_KEY, MOST_VALUE, Request, VARIABLES, bytes_of, pair_bytes},
    shepherd::{core::ShepherdCore, messages::ShepherdEffect, state::StepHere},
};
use garrick_model::{
    ids::StepId,
    messages::shepherd::{ShepherdToStepMgr, StepStart},
    spec::{EnvEntry, Mpi},
};
use std::collections::{BTreeMap, BTreeSet};

/// The descriptor that tasks find their node at: the first behind the standard ones.
const TASK_FD: u32 = 3;
/// Most bytes of keys and values that the tasks of a node may tell between two fences.
const MOST_TOLD: usize = MOST_FENCED / 2;
/// Most bytes of keys and values that a node knows of a step: 64 MiB, some 280,000 of MPICH's tasks.
const MOST_KNOWN: usize = 64 << 20;

/// What a step that uses PMI has here.
#[derive(Debug, Default)]
pub struct PmiHere {
    /// Where all tasks are.
    mapping: String,
    /// Known keys and values.
    known: BTreeMap<String, String>,
    /// Bytes told since the last fence.
    bytes: usize,
    /// Bytes that came from all nodes, and that are for this one only.
    from_all: usize,
    /// Told since the last fence.
    told: Vec<(String, String)>,
    /// Told on this node only.
    of_node: BTreeMap<String, String>,
    /// Tasks that wait for such.
    waiting: Vec<(u64, String, Option<String>)>,
    /// A PMIx server speaks for the tasks.
    pmix: bool,
    /// The task that starts the server.
    server: Option<u64>,
    /// Version that is spoken with each task, by token.
    versions: BTreeMap<u64, u32>,
    /// Tasks that have begun and not finished, by token.
    begun: BTreeSet<u64>,
    /// Who has come to the fence, with the thread.
    come: BTreeMap<u64, Option<String>>,
    /// Number of the fence.
    fence: u32,
    /// Tasks that are over and whose sockets are still open, with their ranks.
    over: Vec<(u64, u32)>,
}

impl PmiHere {
    /// Of a step that uses PMI.
    pub(super) fn of(start: &StepStart, mpi: Mpi) -> Option<Box<Self>> {
        let mapping = start.mapping.clone().unwrap_or_default();
        (!mpi.is_none()).then(|| Box::new(Self { mapping, pmix: mpi == Mpi::Pmix, ..Self::default() }))
    }

    fn answer(&self, token: u64, request: &Request, answer: &Answer, thread: Option<&str>) -> ShepherdEffect {
        let version = self.versions.get(&token).copied().unwrap_or(1);
        ShepherdEffect::PmiAnswer { token, data: answer.encode(version, request, thread) }
    }

    /// The node's first task is to be started.
    pub(super) const fn starts_server(&mut self, token: u64) {
        self.server = Some(token);
    }

    /// A task has ended. True if that was within its MPI program, or if nobody will serve the others because of it.
    pub(super) fn task_ended(&mut self, token: u64) -> bool {
        self.waiting.retain(|(waiting, ..)| *waiting != token);
        if self.pmix && self.server == Some(token) && !self.versions.contains_key(&token) {
            return true;
        }
        // Its socket is its server's, which goes on.
        if !self.pmix {
            self.versions.remove(&token);
        }
        self.begun.remove(&token)
    }

    /// The sockets that are not needed any more once so many tasks are left here and this one is over.
    pub(super) fn unused(&mut self, token: u64, rank: u32, left: u32) -> Vec<u64> {
        self.over.push((token, rank));
        if self.pmix && left > 0 { Vec::new() } else { self.left_open() }
    }

    /// Sockets of tasks that are over. They are to be closed with the step at the latest.
    pub(super) fn left_open(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.over).into_iter().map(|(token, _)| token).collect()
    }

    /// How many come to a fence, of so many tasks.
    const fn comers(&self, tasks: u32) -> u64 {
        if self.pmix { 1 } else { tasks as u64 }
    }

    /// Why this cannot be kept.
    fn too_much(&self, key: &str, value: &str) -> Option<String> {
        if key.len() > MOST_KEY || value.len() > MOST_VALUE {
            return Some(format!("a key has up to {MOST_KEY} bytes and a value up to {MOST_VALUE}"));
        }
        let more = pair_bytes(key, value);
        if self.from_all + self.bytes + more > MOST_KNOWN {
            return Some(format!("a node knows up to {MOST_KNOWN} bytes"));
        }
        (self.bytes + more > MOST_TOLD).then(|| format!("a node tells up to {MOST_TOLD} bytes between two fences"))
    }

    fn put(&mut self, key: &str, value: &str) -> Answer {
        if let Some(why) = self.too_much(key, value) {
            return Answer::Refused(why);
        }
        self.bytes += pair_bytes(key, value);
        self.told.push((key.to_owned(), value.to_owned()));
        self.known.insert(key.to_owned(), value.to_owned());
        Answer::Done
    }

    fn put_for_node(&mut self, key: &str, value: &str, out: &mut Vec<ShepherdEffect>) -> Answer {
        if let Some(why) = self.too_much(key, value) {
            return Answer::Refused(why);
        }
        self.from_all += pair_bytes(key, value);
        for (token, wanted, thread) in std::mem::take(&mut self.waiting) {
            if wanted == key {
                let answer = Answer::Value(Some(value.to_owned()));
                out.push(self.answer(token, &Request::NodeAttr(wanted, true), &answer, thread.as_deref()));
            } else {
                self.waiting.push((token, wanted, thread));
            }
        }
        self.of_node.insert(key.to_owned(), value.to_owned());
        Answer::Done
    }

    /// What is known of a step of so many tasks.
    fn fact(&self, key: &str, tasks: u32) -> Option<String> {
        match key {
            MAPPING_KEY => Some(self.mapping.clone()),
            "universeSize" => Some(tasks.to_string()),
            _ => None,
        }
    }
}

/// The variables of a task of this rank, of so many.
pub(super) fn variables(step: StepId, rank: u32, tasks: u32) -> Vec<EnvEntry> {
    let [fd, job, own, size] = VARIABLES;
    vec![entry(fd, TASK_FD), entry(job, step), entry(own, rank), entry(size, tasks)]
}

/// What the step manager is told when all tasks of a step here have come to a fence.
fn full_fence(step: StepId, here: &StepHere) -> Option<ShepherdToStepMgr> {
    let pmi = here.pmi.as_deref().filter(|pmi| pmi.come.len() as u64 == pmi.comers(here.tasks_here))?;
    Some(ShepherdToStepMgr::PmiFence { step, fence: pmi.fence, puts: pmi.told.clone() })
}

impl StepHere {
    /// The rank that a request is about, and the token of its task if that still runs. Only a PMIx server speaks for others.
    fn meant(&self, own: u32, token: u64, named: Option<u32>) -> (u32, Option<u64>) {
        match named.filter(|_| self.pmi.as_deref().is_some_and(|pmi| pmi.pmix)) {
            Some(rank) => (rank, self.token(rank)),
            None => (own, Some(token)),
        }
    }
}

impl ShepherdCore {
    /// The step and the rank of the task whose socket that is. The task of a PMIx server's socket may be over.
    fn speaker(&self, token: u64) -> Option<(StepId, u32)> {
        let of_server = || {
            self.steps.iter().find_map(|(step, here)| {
                let over = &here.pmi.as_deref()?.over;
                over.iter().find(|(of, _)| *of == token).map(|(_, rank)| (*step, *rank))
            })
        };
        self.tasks.get(&token).map(|task| (task.step, task.rank)).or_else(of_server)
    }

    /// A task asks for something.
    pub(super) fn pmi(&mut self, token: u64, asked: Asked, out: &mut Vec<ShepherdEffect>) {
        let Some((step, own)) = self.speaker(token) else { return };
        let Some(here) = self.steps.get_mut(&step) else { return };
        let size = here.launch.total_tasks;
        let Asked { request, thread, rank } = asked;
        let (rank, about) = here.meant(own, token, rank);
        let Some(pmi) = here.pmi.as_deref_mut() else { return };
        let answer = match &request {
            Request::Init(version) => {
                pmi.versions.insert(token, *version);
                if !pmi.pmix {
                    pmi.begun.insert(token);
                }
                Answer::Init(*version)
            }
            Request::Begin => {
                // One that is over already is known to have been.
                pmi.begun.extend(about);
                Answer::Done
            }
            Request::FullInit => Answer::FullInit { rank, size },
            Request::Maxes => Answer::Maxes,
            Request::AppNum => Answer::AppNum,
            Request::UniverseSize => Answer::UniverseSize(size),
            Request::Name => Answer::Name(step.to_string()),
            Request::Put(key, value) => pmi.put(key, value),
            Request::Get(key) => Answer::Value(pmi.known.get(key).cloned().or_else(|| pmi.fact(key, size))),
            Request::JobAttr(key) => Answer::Value(pmi.fact(key, size)),
            Request::PutNodeAttr(key, value) => pmi.put_for_node(key, value, out),
            Request::NodeAttr(key, waits) => match pmi.of_node.get(key).cloned() {
                None if *waits => return pmi.waiting.push((token, key.clone(), thread)),
                value => Answer::Value(value),
            },
            Request::Fence => {
                pmi.come.insert(token, thread);
                let told = full_fence(step, here);
                return told.into_iter().for_each(|told| self.say(told, out));
            }
            Request::Finalize => {
                if let Some(token) = about {
                    pmi.begun.remove(&token);
                }
                Answer::Done
            }
            Request::Abort(why) | Request::Malformed(why) => return self.pmi_abort(step, rank, why.clone(), out),
            Request::Other(name) => Answer::Refused(format!("{name} is not supported")),
        };
        out.push(pmi.answer(token, &request, &answer, thread.as_deref()));
    }

    /// A step manager that was restarted knows nothing of fences.
    pub(super) fn repeat_fences(&self, out: &mut Vec<ShepherdEffect>) {
        let told = self.steps.iter().filter_map(|(step, here)| full_fence(*step, here));
        told.for_each(|told| self.say(told, out));
    }

    /// All tasks of the step have come.
    pub(super) fn fenced(
        &mut self,
        step: StepId,
        fence: u32,
        puts: Vec<(String, String)>,
        out: &mut Vec<ShepherdEffect>,
    ) {
        let Some(pmi) = self.steps.get_mut(&step).and_then(|here| here.pmi.as_deref_mut()) else { return };
        if fence != pmi.fence {
            return;
        }
        pmi.fence += 1;
        pmi.from_all += bytes_of(&puts);
        if pmi.from_all > MOST_KNOWN {
            let why = format!("its tasks told each other more than {MOST_KNOWN} bytes");
            let token = pmi.come.keys().next().copied();
            if let Some((_, rank)) = token.and_then(|token| self.speaker(token)) {
                self.pmi_abort(step, rank, why, out);
            }
            return;
        }
        pmi.told.clear();
        pmi.bytes = 0;
        pmi.known.extend(puts);
        for (token, thread) in std::mem::take(&mut pmi.come) {
            out.push(pmi.answer(token, &Request::Fence, &Answer::Done, thread.as_deref()));
        }
    }

    /// The step cannot go on.
    pub(super) fn pmi_abort(&self, step: StepId, rank: u32, message: String, out: &mut Vec<ShepherdEffect>) {
        self.say(ShepherdToStepMgr::PmiAbort { step, rank, message }, out);
    }
}
