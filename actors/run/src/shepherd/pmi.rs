//! PMI in the shepherd: what the tasks of a step here tell each other. Between nodes it travels with fences only: each node sends
//! what its tasks told once all of them have come, and gets what those of all nodes told.
//!
//! A task that ends between its first and last request leaves others waiting: the step is ended then, as MPI programs expect.

use crate::{
    env_entry::entry,
    pmi::{Answer, Asked, MAPPING_KEY, MOST_FENCED, MOST_KEY, MOST_VALUE, Request},
    shepherd::{core::ShepherdCore, messages::ShepherdEffect, state::StepHere},
};
use garrick_model::{
    ids::StepId,
    messages::shepherd::{ShepherdToStepMgr, StepStart},
    spec::{EnvEntry, Mpi},
};
use std::collections::BTreeMap;

/// The descriptor that tasks find their node at: the first behind the standard ones.
const TASK_FD: u32 = 3;
/// Most bytes of keys and values that the tasks of a node may tell between two fences.
const MOST_TOLD: usize = MOST_FENCED / 2;
/// Most bytes of keys and values that a node knows of a step: 64 MiB, some 300,000 of MPICH's tasks.
const MOST_KNOWN: usize = 64 << 20;

/// What a step that uses PMI has here.
#[derive(Debug)]
pub struct PmiHere {
    /// Where all tasks are.
    mapping: String,
    /// Tasks on all nodes.
    size: u32,
    /// Tasks here.
    here: u32,
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
    /// Version of each task that has begun and not finished, by token.
    versions: BTreeMap<u64, u32>,
    /// Who has come to the fence, with the thread.
    come: BTreeMap<u64, Option<String>>,
    /// Number of the fence.
    fence: u32,
}

impl PmiHere {
    /// Of a step that uses PMI.
    pub(super) fn of(start: &StepStart, mpi: Mpi, size: u32) -> Option<Box<Self>> {
        (mpi == Mpi::Pmi2).then(|| {
            Box::new(Self {
                mapping: start.mapping.clone().unwrap_or_default(),
                size,
                here: u32::try_from(start.tasks.len()).unwrap_or(u32::MAX),
                known: BTreeMap::new(),
                bytes: 0,
                from_all: 0,
                told: Vec::new(),
                of_node: BTreeMap::new(),
                waiting: Vec::new(),
                versions: BTreeMap::new(),
                come: BTreeMap::new(),
                fence: 0,
            })
        })
    }

    /// The variables of a task of this rank.
    pub(super) fn variables(&self, step: StepId, rank: u32) -> Vec<EnvEntry> {
        vec![entry("PMI_FD", TASK_FD), entry("PMI_JOBID", step), entry("PMI_RANK", rank), entry("PMI_SIZE", self.size)]
    }

    fn answer(&self, token: u64, answer: &Answer, thread: Option<&str>) -> ShepherdEffect {
        let version = self.versions.get(&token).copied().unwrap_or(1);
        ShepherdEffect::PmiAnswer { token, data: answer.encode(version, thread) }
    }

    /// Why this cannot be kept.
    fn too_much(&self, key: &str, value: &str) -> Option<String> {
        if key.len() > MOST_KEY || value.len() > MOST_VALUE {
            return Some(format!("a key has up to {MOST_KEY} bytes and a value up to {MOST_VALUE}"));
        }
        let more = key.len() + value.len();
        if self.from_all + self.bytes + more > MOST_KNOWN {
            return Some(format!("a node knows up to {MOST_KNOWN} bytes"));
        }
        (self.bytes + more > MOST_TOLD).then(|| format!("a node tells up to {MOST_TOLD} bytes between two fences"))
    }

    fn put(&mut self, key: String, value: String) -> Result<(), String> {
        if let Some(why) = self.too_much(&key, &value) {
            return Err(why);
        }
        self.bytes += key.len() + value.len();
        self.told.push((key.clone(), value.clone()));
        self.known.insert(key, value);
        Ok(())
    }

    fn put_for_node(&mut self, key: String, value: String, out: &mut Vec<ShepherdEffect>) -> Result<(), String> {
        if let Some(why) = self.too_much(&key, &value) {
            return Err(why);
        }
        self.from_all += key.len() + value.len();
        for (token, wanted, thread) in std::mem::take(&mut self.waiting) {
            if wanted == key {
                let answer = Answer::Value(Request::NodeAttr(wanted, true), Some(value.clone()));
                out.push(self.answer(token, &answer, thread.as_deref()));
            } else {
                self.waiting.push((token, wanted, thread));
            }
        }
        self.of_node.insert(key, value);
        Ok(())
    }

    fn fact(&self, key: &str) -> Option<String> {
        match key {
            MAPPING_KEY => Some(self.mapping.clone()),
            "universeSize" => Some(self.size.to_string()),
            _ => None,
        }
    }
}

impl ShepherdCore {
    /// A task asks for something.
    pub(super) fn pmi(&mut self, token: u64, asked: Asked, out: &mut Vec<ShepherdEffect>) {
        let Some(task) = self.tasks.get(&token) else { return };
        let (step, rank) = (task.step, task.rank);
        let Some(pmi) = self.steps.get_mut(&step).and_then(|here| here.pmi.as_deref_mut()) else { return };
        let Asked { request, thread } = asked;
        let answer = match request.clone() {
            Request::Init(version) => {
                pmi.versions.insert(token, version);
                Answer::Init(version)
            }
            Request::FullInit => Answer::FullInit { rank, size: pmi.size },
            Request::Maxes => Answer::Maxes,
            Request::AppNum => Answer::AppNum,
            Request::UniverseSize => Answer::UniverseSize(pmi.size),
            Request::Name => Answer::Name(step.to_string()),
            Request::Put(key, value) => done(request, pmi.put(key, value)),
            Request::Get(key) => Answer::Value(request, pmi.known.get(&key).cloned().or_else(|| pmi.fact(&key))),
            Request::JobAttr(key) => Answer::Value(request, pmi.fact(&key)),
            Request::PutNodeAttr(key, value) => done(request, pmi.put_for_node(key, value, out)),
            Request::NodeAttr(key, waits) => match pmi.of_node.get(&key).cloned() {
                None if waits => return pmi.waiting.push((token, key, thread)),
                value => Answer::Value(request, value),
            },
            Request::Fence => {
                pmi.come.insert(token, thread);
                return self.come_to_fence(step, out);
            }
            Request::Finalize => {
                let answer = pmi.answer(token, &Answer::Done(request), thread.as_deref());
                pmi.versions.remove(&token);
                return out.push(answer);
            }
            Request::Abort(why) | Request::Malformed(why) => return self.pmi_abort(step, rank, why, out),
            Request::Other(name) => Answer::Refused(Request::Other(name.clone()), format!("{name} is not supported")),
        };
        out.push(pmi.answer(token, &answer, thread.as_deref()));
    }

    /// Tells the step manager when all tasks here have come.
    fn come_to_fence(&mut self, step: StepId, out: &mut Vec<ShepherdEffect>) {
        let Some(pmi) = self.steps.get(&step).and_then(|here| here.pmi.as_deref()) else { return };
        if pmi.come.len() as u64 == u64::from(pmi.here) {
            let (fence, puts) = (pmi.fence, pmi.told.clone());
            self.say(ShepherdToStepMgr::PmiFence { step, fence, puts }, out);
        }
    }

    /// A step manager that was restarted knows nothing of fences.
    pub(super) fn repeat_fences(&self, out: &mut Vec<ShepherdEffect>) {
        let all = |here: &StepHere| here.pmi.as_deref().is_some_and(|pmi| pmi.come.len() as u64 == u64::from(pmi.here));
        for (step, here) in self.steps.iter().filter(|(_, here)| all(here)) {
            let Some(pmi) = here.pmi.as_deref() else { continue };
            let puts = pmi.told.clone();
            self.say(ShepherdToStepMgr::PmiFence { step: *step, fence: pmi.fence, puts }, out);
        }
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
        pmi.from_all += puts.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        if pmi.from_all > MOST_KNOWN {
            let why = format!("its tasks told each other more than {MOST_KNOWN} bytes");
            let token = pmi.come.keys().next().copied();
            if let Some(rank) = token.and_then(|token| self.tasks.get(&token)).map(|task| task.rank) {
                self.pmi_abort(step, rank, why, out);
            }
            return;
        }
        pmi.told.clear();
        pmi.bytes = 0;
        pmi.known.extend(puts);
        for (token, thread) in std::mem::take(&mut pmi.come) {
            out.push(pmi.answer(token, &Answer::Done(Request::Fence), thread.as_deref()));
        }
    }

    /// A task has ended.
    pub(super) fn pmi_ended(&mut self, token: u64, out: &mut Vec<ShepherdEffect>) {
        let Some(task) = self.tasks.get(&token) else { return };
        let (step, rank) = (task.step, task.rank);
        let Some(here) = self.steps.get_mut(&step).filter(|here| !here.ending) else { return };
        let Some(pmi) = here.pmi.as_deref_mut() else { return };
        pmi.waiting.retain(|(waiting, ..)| *waiting != token);
        if pmi.versions.remove(&token).is_some() {
            self.pmi_abort(step, rank, "it ended before the end of its MPI program".to_owned(), out);
        }
    }

    fn pmi_abort(&self, step: StepId, rank: u32, message: String, out: &mut Vec<ShepherdEffect>) {
        self.say(ShepherdToStepMgr::PmiAbort { step, rank, message }, out);
    }
}

fn done(request: Request, outcome: Result<(), String>) -> Answer {
    match outcome {
        Ok(()) => Answer::Done(request),
        Err(why) => Answer::Refused(request, why),
    }
}
