//! Bytes in flight in a step: output from the shepherds to the waiting `srun`, and its input to the shepherds. Both are limited
//! by grants: a slow `srun` stops the reading of its own tasks' output and nothing else.

use crate::step::messages::{NodeSlot, Watcher};
use garrick_model::messages::{
    shepherd::{OUTPUT_FRAME_COST, OUTPUT_WINDOW, Stream},
    step::{OUTPUT_GRANT, STDIN_WINDOW},
};
use serde_bytes::ByteBuf;
use std::collections::VecDeque;

/// A frame of output that waits for the command's grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Index of the node in the step.
    pub node: usize,
    /// Rank.
    pub rank: u32,
    /// Which stream.
    pub stream: Stream,
    /// Bytes; empty: end of the stream.
    pub data: ByteBuf,
}

impl Frame {
    fn cost(&self) -> u64 {
        self.data.len() as u64 + OUTPUT_FRAME_COST
    }
}

/// Output relayed to one command. It holds at most one [`OUTPUT_WINDOW`] for each node of the step, since shepherds get new
/// credit only for output that was passed on.
#[derive(Debug)]
pub struct OutputRelay {
    grant: u64,
    waiting: VecDeque<Frame>,
    owed: Vec<u64>,
    held: u64,
}

/// Credit is returned to a shepherd in pieces of at least a quarter of its window, to save messages.
const CREDIT_STEP: u64 = OUTPUT_WINDOW / 4;

impl OutputRelay {
    /// For a step of so many nodes.
    pub fn new(nodes: usize) -> Self {
        Self { grant: OUTPUT_GRANT, waiting: VecDeque::new(), owed: vec![0; nodes], held: 0 }
    }

    /// Takes a frame from a shepherd.
    pub fn push(&mut self, frame: Frame) {
        self.held += frame.cost();
        self.waiting.push_back(frame);
    }

    /// The command has consumed so many bytes.
    pub fn grant(&mut self, bytes: u64) {
        self.grant = self.grant.saturating_add(bytes).min(OUTPUT_GRANT);
    }

    /// No command reads any more: everything may be passed on without limit.
    pub fn open(&mut self) {
        self.grant = u64::MAX;
    }

    /// The next frame that may be passed on, with the credit to return for it, if enough has accumulated.
    pub fn pop(&mut self) -> Option<(Frame, Option<u64>)> {
        let size = self.waiting.front()?.data.len() as u64;
        // A frame larger than the rest of the grant goes when the grant is whole again, so that it cannot block for ever.
        if size > self.grant && self.grant < OUTPUT_GRANT {
            return None;
        }
        let frame = self.waiting.pop_front()?;
        self.held -= frame.cost();
        if self.grant != u64::MAX {
            self.grant = self.grant.saturating_sub(size);
        }
        let owed = &mut self.owed[frame.node];
        *owed += frame.cost();
        let credit = (*owed >= CREDIT_STEP).then(|| std::mem::take(owed));
        Some((frame, credit))
    }

    /// Bytes held back, including the cost of frames.
    pub const fn held(&self) -> u64 {
        self.held
    }
}

/// Input in flight to the nodes with tasks that take it, from the step's command and those that attached to it.
#[derive(Debug)]
pub struct InputRelay {
    /// Nodes that take input: slot, and bytes consumed; `None` if the node needs no more input.
    nodes: Vec<(NodeSlot, Option<u64>)>,
    sent: u64,
    reported: u64,
    /// What is under way, in order: whose (`None`: the command's), and how many bytes.
    from: VecDeque<(Option<Watcher>, u64)>,
    ended: bool,
}

impl InputRelay {
    /// For these nodes.
    pub fn new(nodes: Vec<NodeSlot>) -> Self {
        let nodes = nodes.into_iter().map(|slot| (slot, Some(0))).collect();
        Self { nodes, sent: 0, reported: 0, from: VecDeque::new(), ended: false }
    }

    fn under_way(&self, of: Option<Watcher>) -> u64 {
        self.from.iter().filter(|(whose, _)| *whose == of).map(|(_, bytes)| bytes).sum()
    }

    fn note(&mut self, of: Option<Watcher>, bytes: u64) {
        self.sent += bytes;
        if bytes == 0 {
            return;
        }
        match self.from.back_mut() {
            Some((whose, more)) if *whose == of => *more += bytes,
            _ => self.from.push_back((of, bytes)),
        }
    }

    /// Accounts for input. Returns the nodes to pass it to, or `Err` if the command sent far more than it was granted.
    pub fn push(&mut self, bytes: usize) -> Result<Vec<NodeSlot>, InputOverrun> {
        if self.ended {
            return Ok(Vec::new());
        }
        self.ended = bytes == 0;
        self.note(None, bytes as u64);
        if self.under_way(None) > 4 * STDIN_WINDOW {
            return Err(InputOverrun);
        }
        Ok(self.nodes.iter().filter(|(_, used)| used.is_some()).map(|(slot, _)| *slot).collect())
    }

    /// The same for input of a command that attached, for all that take input or on one node only. Nobody is passed what nobody
    /// takes; `Err` if it sent more than it was granted.
    pub fn push_of(
        &mut self,
        watcher: Watcher,
        bytes: usize,
        only: Option<NodeSlot>,
    ) -> Result<Vec<NodeSlot>, InputOverrun> {
        let bytes = bytes as u64;
        if self.under_way(Some(watcher)).saturating_add(bytes) > STDIN_WINDOW {
            return Err(InputOverrun);
        }
        self.note(Some(watcher), bytes);
        let mut to = Vec::new();
        for (slot, used) in &mut self.nodes {
            match used {
                Some(_) if !self.ended && only.is_none_or(|only| only == *slot) => to.push(*slot),
                Some(used) => *used += bytes,
                None => {}
            }
        }
        Ok(to)
    }

    /// A node's tasks took input.
    pub fn consumed(&mut self, node: NodeSlot, bytes: u64) {
        if let Some((_, Some(used))) = self.nodes.iter_mut().find(|(slot, _)| *slot == node) {
            *used += bytes;
        }
    }

    /// A node needs no more input.
    pub fn closed(&mut self, node: NodeSlot) {
        if let Some((_, used)) = self.nodes.iter_mut().find(|(slot, _)| *slot == node) {
            *used = None;
        }
    }

    /// What to grant, and to whom: as much as the slowest node has taken, in pieces of a quarter window; what commands that attached
    /// have sent, at once.
    pub fn due(&mut self) -> Vec<(Option<Watcher>, u64)> {
        let least = self.nodes.iter().filter_map(|(_, used)| *used).min().unwrap_or(self.sent).min(self.sent);
        let mut new = least.saturating_sub(self.reported);
        if new == 0 || (new < STDIN_WINDOW / 4 && self.from.iter().all(|(whose, _)| whose.is_none())) {
            return Vec::new();
        }
        self.reported = least;
        let mut granted = Vec::new();
        while let Some((whose, bytes)) = self.from.front_mut().filter(|_| new > 0) {
            let part = new.min(*bytes);
            granted.push((*whose, part));
            *bytes -= part;
            new -= part;
            if *bytes == 0 {
                self.from.pop_front();
            }
        }
        granted
    }
}

/// More input came than was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputOverrun;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn frame(bytes: usize) -> Frame {
        Frame { node: 0, rank: 0, stream: Stream::Stdout, data: ByteBuf::from(vec![b'x'; bytes]) }
    }

    #[test]
    fn a_slow_command_holds_output_back_and_its_grant_lets_it_go() {
        let mut relay = OutputRelay::new(1);
        let size = 32 * 1024;
        let fits = OUTPUT_GRANT / size as u64;
        for _ in 0..fits + 2 {
            relay.push(frame(size));
        }
        let mut passed = 0;
        while relay.pop().is_some() {
            passed += 1;
        }
        assert_eq!(passed, fits);
        assert_eq!(relay.held(), 2 * (size as u64 + OUTPUT_FRAME_COST));
        relay.grant(size as u64);
        assert!(relay.pop().is_some());
        assert!(relay.pop().is_none());
    }

    #[test]
    fn shepherds_get_back_what_went_on_and_no_more() {
        let mut relay = OutputRelay::new(1);
        relay.open();
        let mut credit = 0;
        for _ in 0..100 {
            relay.push(frame(1000));
            credit += relay.pop().unwrap().1.unwrap_or(0);
        }
        let all = 100 * (1000 + OUTPUT_FRAME_COST);
        assert!(credit <= all && credit + CREDIT_STEP > all, "{credit}");
    }

    #[test]
    fn input_is_granted_at_the_pace_of_the_slowest_node() {
        let (a, b) = (NodeSlot(0), NodeSlot(1));
        let mut relay = InputRelay::new(vec![a, b]);
        assert_eq!(relay.push(STDIN_WINDOW as usize).unwrap(), [a, b]);
        relay.consumed(a, STDIN_WINDOW);
        assert_eq!(relay.due(), []);
        relay.consumed(b, STDIN_WINDOW / 2);
        assert_eq!(relay.due(), [(None, STDIN_WINDOW / 2)]);
        relay.closed(b);
        assert_eq!(relay.due(), [(None, STDIN_WINDOW / 2)]);
        assert_eq!(relay.push(1).unwrap(), [a]);
    }

    #[test]
    fn commands_that_attached_are_granted_what_they_sent_and_no_more() {
        let (a, b) = (NodeSlot(0), NodeSlot(1));
        let mut relay = InputRelay::new(vec![a, b]);
        assert_eq!(relay.push(10).unwrap(), [a, b]);
        assert_eq!(relay.push_of(7, 5, Some(b)).unwrap(), [b]);
        assert_eq!(relay.push_of(8, STDIN_WINDOW as usize + 1, None), Err(InputOverrun));
        relay.consumed(a, 10);
        assert_eq!(relay.due(), [], "the other node has taken nothing yet");
        relay.consumed(b, 12);
        assert_eq!(relay.due(), [(None, 10), (Some(7), 2)]);
        relay.consumed(b, 3);
        assert_eq!(relay.due(), [(Some(7), 3)]);
        // After the end of the command's own input nobody takes any.
        assert!(relay.push(0).is_ok());
        assert_eq!(relay.push_of(7, 4, None).unwrap(), []);
        assert_eq!(relay.due(), [(Some(7), 4)]);
    }

    #[test]
    fn far_more_input_than_granted_is_an_overrun() {
        let mut relay = InputRelay::new(vec![NodeSlot(0)]);
        assert!(relay.push(4 * STDIN_WINDOW as usize).is_ok());
        assert_eq!(relay.push(1), Err(InputOverrun));
    }
}
