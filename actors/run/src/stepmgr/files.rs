//! `sbcast`: which nodes a file goes to, and when all of them can take it. The bytes go past the step manager.

use crate::{
    step::NodeSlot,
    stepmgr::{
        core::StepMgrCore,
        messages::{ClientId, StepMgrEffect},
        pool::NodeUse,
        state::About,
    },
};
use garrick_model::{
    ids::StepId,
    messages::{
        files::{FileFailure, FileRequest, MOST_WIDTH},
        step::StepMgrToCommand,
    },
    refusal::Refusal,
};
use std::collections::HashSet;

impl StepMgrCore {
    pub(super) fn send_file(&mut self, client: ClientId, mut request: FileRequest, out: &mut Vec<StepMgrEffect>) {
        if let Err(refusal) = self.file_nodes(&request) {
            return self.refuse(client, refusal, out);
        }
        if let Some(conversation) = self.clients.get_mut(&client) {
            conversation.about = About::File;
        }
        // While it waits, they are looked up again and again: each once.
        request.nodes.sort_unstable();
        request.nodes.dedup();
        self.files.push((client, request));
    }

    /// Sends the files whose nodes are all there. One with a lost node goes to no node at all.
    pub(super) fn try_files(&mut self, out: &mut Vec<StepMgrEffect>) {
        for (client, request) in std::mem::take(&mut self.files) {
            let nodes = match self.file_nodes(&request) {
                Ok(nodes) => nodes,
                Err(refusal) => {
                    self.refuse(client, refusal, out);
                    continue;
                }
            };
            let pool = &self.pool;
            let with = |usage| nodes.iter().map(|slot| pool.node(slot.0)).filter(move |node| node.usage == usage);
            let lost = |name: &str| FileFailure { node: name.into(), operation: "the node is lost".into(), errno: 0 };
            let lost: Vec<FileFailure> = with(NodeUse::Lost).map(|node| lost(&node.name)).collect();
            let all_ready = with(NodeUse::Ready).count() == nodes.len();
            if !lost.is_empty() {
                Self::tell(client, StepMgrToCommand::FileDone(lost), out);
                self.file_is_about(client, About::Done);
                out.push(StepMgrEffect::CloseClient { client });
            } else if all_ready {
                self.file_is_about(client, About::FileUnderWay);
                let FileRequest { file, width, .. } = request;
                out.push(StepMgrEffect::SendFile { client, nodes, file, width: width.min(MOST_WIDTH) });
            } else {
                self.files.push((client, request));
            }
        }
    }

    fn file_is_about(&mut self, client: ClientId, about: About) {
        if let Some(conversation) = self.clients.get_mut(&client) {
            conversation.about = about;
        }
    }

    /// The nodes that are meant, in the job's order.
    fn file_nodes(&self, request: &FileRequest) -> Result<Vec<NodeSlot>, Refusal> {
        if !self.phase.takes_steps() {
            return Err(Refusal::AlreadyDone);
        }
        let all = match request.step {
            Some(step) => self.nodes_of_step(step)?,
            None => (0..self.facts.nodes.len() as u32).map(NodeSlot).collect(),
        };
        if request.nodes.is_empty() {
            return Ok(all);
        }
        let name = |slot: &NodeSlot| self.pool.node(slot.0).name.as_str();
        let there: HashSet<&str> = all.iter().map(name).collect();
        if let Some(strange) = request.nodes.iter().find(|name| !there.contains(name.as_str())) {
            return Err(Refusal::InvalidNode(strange.clone()));
        }
        let wanted: HashSet<&str> = request.nodes.iter().map(String::as_str).collect();
        Ok(all.iter().copied().filter(|slot| wanted.contains(name(slot))).collect())
    }

    /// The nodes of a step that has its place.
    fn nodes_of_step(&self, step: StepId) -> Result<Vec<NodeSlot>, Refusal> {
        let record = self.steps.get(&step.key()).filter(|_| step.job == self.facts.job);
        match record.map(|record| record.state.placement()) {
            Some(Some(placement)) => Ok(placement.nodes.iter().map(|node| NodeSlot(node.slot)).collect()),
            Some(None) => Err(Refusal::JobPending),
            None if self.ledger.end_of(step.key()).is_some() => Err(Refusal::AlreadyDone),
            None => Err(Refusal::InvalidStep(step.to_string())),
        }
    }
}

#[cfg(test)]
#[path = "files_test.rs"]
mod tests;
