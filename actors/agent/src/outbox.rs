//! Reports to the controller: numbered, in order, kept until acknowledged. At any time no more of them are in flight than the
//! connection's queue holds, so none is refused there; the next ones follow when earlier ones are acknowledged.

use crate::messages::RunKey;
use garrick_model::messages::node::{AgentReport, ReleasedRun};
use std::collections::VecDeque;

/// Most bytes of reports in flight, besides the last one. The connection's queue is 16 MiB and has other users.
const UNDER_WAY: usize = 4 << 20;
/// Approximate size of a report that is not about steps.
const SMALL: usize = 512;

/// A report that is not acknowledged.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pending {
    pub seq: u64,
    pub report: AgentReport,
    /// The `stepd`'s report to acknowledge together with it.
    pub from_stepd: Option<(RunKey, u64)>,
    /// The run whose folder can be removed when this is acknowledged.
    pub last_of: Option<RunKey>,
}

impl Pending {
    fn bytes(&self) -> usize {
        match &self.report {
            AgentReport::Steps { steps, .. } => steps.bytes(),
            _ => SMALL,
        }
    }
}

/// The outbox.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Outbox {
    next: u64,
    pub waiting: VecDeque<Pending>,
    /// Highest number that was sent on the current connection.
    sent: u64,
    under_way: usize,
}

impl Outbox {
    /// Adds a report. Numbers start at 1.
    pub fn push(&mut self, report: AgentReport, from_stepd: Option<(RunKey, u64)>, last_of: Option<RunKey>) {
        self.next += 1;
        self.waiting.push_back(Pending { seq: self.next, report, from_stepd, last_of });
    }

    /// A new connection: all reports are sent again.
    pub const fn begin(&mut self) {
        (self.sent, self.under_way) = (0, 0);
    }

    /// Runs whose release is among the waiting reports.
    pub fn released(&self) -> impl Iterator<Item = ReleasedRun> {
        self.waiting.iter().filter_map(|pending| match pending.report {
            AgentReport::NodeReleased { job, sluid, .. } => Some(ReleasedRun { job, sluid, seq: pending.seq }),
            _ => None,
        })
    }

    /// The next report to send, if there is one and room for it.
    pub fn next(&mut self) -> Option<(u64, AgentReport)> {
        let first = self.waiting.front()?.seq;
        let place = usize::try_from((self.sent + 1).saturating_sub(first)).ok()?;
        let next = self.waiting.get(place).filter(|_| self.under_way < UNDER_WAY)?;
        self.sent = next.seq;
        self.under_way += next.bytes();
        Some((next.seq, next.report.clone()))
    }

    /// Removes and returns the reports that are acknowledged.
    pub fn acknowledge(&mut self, upto: u64) -> Vec<Pending> {
        let count = self.waiting.iter().take_while(|p| p.seq <= upto).count();
        let safe: Vec<Pending> = self.waiting.drain(..count).collect();
        let sent = safe.iter().filter(|p| p.seq <= self.sent);
        self.under_way -= sent.map(Pending::bytes).sum::<usize>();
        safe
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garrick_model::{
        ids::{JobId, Sluid},
        view::{StepOrigin, StepRows},
    };

    fn steps(bytes: usize) -> AgentReport {
        let origin = StepOrigin {
            name: String::new(),
            uid: 0,
            partition: String::new(),
            tasks: 1,
            time_limit: garrick_model::time::TimeLimit::Unlimited,
            srun: None,
            submit_line: "x".repeat(bytes),
            priority: 0,
            cpu_freq: None,
            layout: None,
        };
        let steps = StepRows { origins: vec![origin], ..StepRows::default() }.into();
        AgentReport::Steps { job: JobId(7), sluid: Sluid(1), steps }
    }

    fn released() -> AgentReport {
        AgentReport::NodeReleased { job: JobId(7), sluid: Sluid(1), epilog_failed: None, unkillable: None }
    }

    fn sent(outbox: &mut Outbox) -> Vec<u64> {
        std::iter::from_fn(|| outbox.next()).map(|(seq, _)| seq).collect()
    }

    #[test]
    fn large_reports_wait_for_room_and_keep_their_order() {
        let mut outbox = Outbox::default();
        for _ in 0..5 {
            outbox.push(steps(2 << 20), None, None);
        }
        outbox.push(released(), None, None);
        assert_eq!(sent(&mut outbox), [1, 2]);
        assert!(sent(&mut outbox).is_empty());
        assert_eq!(outbox.acknowledge(1).len(), 1);
        assert_eq!(sent(&mut outbox), [3]);
        assert_eq!(outbox.acknowledge(3).len(), 2);
        assert_eq!(sent(&mut outbox), [4, 5]);
        assert_eq!(outbox.acknowledge(5).len(), 2);
        assert_eq!(sent(&mut outbox), [6]);
        assert_eq!((outbox.acknowledge(6).len(), outbox.under_way), (1, 0));
    }

    #[test]
    fn one_that_is_larger_than_the_room_goes_alone() {
        let mut outbox = Outbox::default();
        outbox.push(steps(10 << 20), None, None);
        outbox.push(released(), None, None);
        assert_eq!(sent(&mut outbox), [1]);
        outbox.acknowledge(1);
        assert_eq!(sent(&mut outbox), [2]);
    }

    #[test]
    fn a_new_connection_gets_everything_again_that_is_not_acknowledged() {
        let mut outbox = Outbox::default();
        for _ in 0..3 {
            outbox.push(released(), None, None);
        }
        assert_eq!(sent(&mut outbox), [1, 2, 3]);
        outbox.acknowledge(1);
        outbox.begin();
        assert_eq!(sent(&mut outbox), [2, 3]);
        outbox.begin();
        outbox.acknowledge(2);
        assert_eq!((sent(&mut outbox), outbox.under_way), (vec![3], SMALL));
    }
}
