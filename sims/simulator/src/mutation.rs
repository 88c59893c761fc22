//! Bugs put in on purpose, around the cores and not in them: what a core is told or says is changed on its way, as if the
//! core had the bug. Each has to be noticed by a rule; that is how the rules and the faults themselves are tested.

use super::world::World;
use garrick_actors::{
    job::{
        het::HetMessage,
        messages::{JobInput, JobTimer},
    },
    node::messages::{NodeInput, NodeSettings, NodeTimer},
};
use garrick_model::resources::MemoryMib;

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A node's owner does not look at memory when it is asked for some.
    MemoryIsNotCounted,
    /// A job whose batch host came back without it waits for ever.
    MissingRunsAreNotDeclaredLost,
    /// A node that says nothing is never taken for lost.
    SilentNodesAreNotDeclaredDown,
    /// Nodes are told once that a run is over, and not again: neither after a while nor when they are back.
    RunsAreToldToEndOnce,
    /// What follows from an event leaves before the event is on disk.
    EffectsDoNotWaitForTheDisk,
    /// What is saved in one go is several records, and an array's mark is written before the record of the task that was
    /// split off.
    TasksAreMarkedBeforeTheyExist,
    /// A node's owner now and then forgets what a job holds.
    HoldsAreForgotten,
    /// Components of a heterogeneous job are saved one by one.
    ComponentsAreAcceptedOneByOne,
    /// Of a heterogeneous job only the leader's allocation is saved.
    LeadersAreAllocatedAlone,
    /// A component that runs does not hear what becomes of its leader.
    LeadersEndAlone,
    /// A step manager that looks for a shepherd does not say that its run had one on that node.
    ShepherdsAreBegunAgain,
}

impl Mutation {
    /// Each of them.
    pub const ALL: [Self; 11] = [
        Self::MemoryIsNotCounted,
        Self::MissingRunsAreNotDeclaredLost,
        Self::SilentNodesAreNotDeclaredDown,
        Self::RunsAreToldToEndOnce,
        Self::EffectsDoNotWaitForTheDisk,
        Self::TasksAreMarkedBeforeTheyExist,
        Self::HoldsAreForgotten,
        Self::ComponentsAreAcceptedOneByOne,
        Self::LeadersAreAllocatedAlone,
        Self::LeadersEndAlone,
        Self::ShepherdsAreBegunAgain,
    ];
}

impl World {
    pub(super) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// What the job's owner hears; `None`: nothing.
    pub(super) fn as_job_hears(&self, input: JobInput) -> Option<JobInput> {
        match (self.mutation?, input) {
            (Mutation::MissingRunsAreNotDeclaredLost, JobInput::Timer(JobTimer::Missing))
            | (Mutation::RunsAreToldToEndOnce, JobInput::Timer(JobTimer::CleanUp) | JobInput::RunHeld { .. }) => None,
            (Mutation::LeadersEndAlone, JobInput::Het { message, .. })
                if matches!(*message, HetMessage::End { .. } | HetMessage::Back) =>
            {
                None
            }
            (_, other) => Some(other),
        }
    }

    /// What the node's owner hears.
    pub(super) fn as_node_hears(&mut self, node: usize, input: NodeInput) -> Option<NodeInput> {
        match (self.mutation?, input) {
            (Mutation::SilentNodesAreNotDeclaredDown, NodeInput::Timer(NodeTimer::Silence | NodeTimer::Ping)) => None,
            (Mutation::MemoryIsNotCounted, NodeInput::Registered(mut registration)) => {
                registration.facts.shape = self.nodes[node].settings().shape.clone();
                Some(NodeInput::Registered(registration))
            }
            (Mutation::HoldsAreForgotten, NodeInput::Reserve(ask)) if self.random.one_in_thousand(50) => {
                let first = self.nodes[node].kept().first().map(|kept| (kept.hold.job, kept.hold.sluid));
                Some(first.map_or(NodeInput::Reserve(ask), |(job, sluid)| NodeInput::Release {
                    job,
                    sluid,
                    attempt: None,
                    drain: None,
                }))
            }
            (_, other) => Some(other),
        }
    }

    /// Settings as the node's owner has them.
    pub(super) fn as_owner_has(&self, mut settings: NodeSettings) -> NodeSettings {
        if self.has(Mutation::MemoryIsNotCounted) {
            settings.shape.memory = MemoryMib(1 << 40);
        }
        settings
    }
}
