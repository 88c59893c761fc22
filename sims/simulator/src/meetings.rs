//! Which kinds of jobs each fault affected: a fault that never affects a kind of job tests nothing for it.

use super::world::World;
use garrick_actors::job::core::JobCore;
use garrick_agent::RunKey;
use garrick_events::records::job::Phase;
use garrick_model::{
    ids::JobId,
    spec::{JobKind, Sharing},
};

/// Kinds of jobs; one may be of several.
pub const KINDS: &[&str] = &[
    "batch",
    "array",
    "salloc",
    "heterogeneous",
    "no requeue",
    "dependent",
    "gang",
    "several nodes",
    "steps",
    "steps over nodes",
    "preempted",
    "suspended",
];

/// Faults that are drawn, in the order of the table that [`Counts::met`](super::ledger::Counts::met) fills.
pub const FAULTS: &[&str] = &[
    "link broken",
    "link busy",
    "network cut",
    "agent restart",
    "stepd killed",
    "stepd hangs",
    "step manager killed amid a loss",
    "machine reboot",
    "machine set up anew",
    "machine gone for good",
    "clock step",
    "clock step of a node",
    "slow disk",
    "controller restart",
    "owner of a job failed",
    "owner of a node failed",
    "owner of a partition failed",
    "owner of reservations failed",
    "owner of the roster failed",
    "configuration changed",
    "node drained",
    "node set down",
    "cancel",
    "requeue",
    "update requeue",
    "hold",
    "release",
    "suspend",
    "resume",
    "forged report",
    "report replayed",
    "report said again",
    "run of others registered",
    "root's name used by a node",
    "request of some user",
    "forged order to a shepherd",
];

/// May that cell of the table be filled? A step manager is killed amid a loss where its run has several nodes, and jobs that share
/// CPUs ask for one.
pub fn can_meet(fault: &str, kind: &str) -> bool {
    !(fault == "step manager killed amid a loss" && kind == "gang")
}

impl World {
    fn kinds(&self, core: &JobCore) -> Vec<&'static str> {
        let record = core.record();
        let spec = &record.spec;
        let run = record.phase.run();
        let nodes = run.map_or(0, |run| run.allocation.nodes.len());
        let key = RunKey { job: record.id, sluid: record.sluid };
        let steps = self.step_sides.contains_key(&key);
        let is = [
            spec.kind == JobKind::Batch,
            record.is_array_record() || record.array_task.is_some(),
            spec.kind == JobKind::Allocation && spec.het.is_none(),
            spec.het.is_some(),
            spec.requeue == Some(false),
            !spec.dependencies.list.is_empty(),
            spec.partitions.iter().any(|name| name == "turns") || spec.sharing == Sharing::Oversubscribe,
            nodes > 1,
            steps,
            steps && nodes > 1,
            run.is_some_and(|run| run.preempted.is_some()),
            matches!(record.phase, Phase::Suspended(_)),
        ];
        KINDS.iter().zip(is).filter(|(_, is)| *is).map(|(kind, _)| *kind).collect()
    }

    fn meets(&mut self, fault: &'static str, jobs: impl IntoIterator<Item = JobId>) {
        self.ledger.counts.add(fault);
        for job in jobs {
            let Some(core) = self.jobs.get(&job).filter(|core| !core.is_over()) else { continue };
            for kind in self.kinds(core) {
                self.ledger.counts.meet(fault, kind);
            }
        }
    }

    /// Something happens to a job.
    pub(super) fn meets_job(&mut self, fault: &'static str, job: JobId) {
        self.meets(fault, [job]);
    }

    /// Something happens to a node, and to all that are on it.
    pub(super) fn meets_node(&mut self, fault: &'static str, node: usize) {
        let jobs: Vec<JobId> = self.holds_of(node).into_iter().map(|(job, _)| job).collect();
        self.meets(fault, jobs);
    }

    /// Something happens that is about everybody.
    pub(super) fn meets_all(&mut self, fault: &'static str) {
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        self.meets(fault, jobs);
    }
}
