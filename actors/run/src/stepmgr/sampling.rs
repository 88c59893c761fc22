//! What steps use, for `sstat`: the command is told which nodes will answer, and their answers are passed on as they come.

use super::{
    core::StepMgrCore,
    messages::{ClientId, StepMgrEffect},
    state::{About, RecordState},
};
use crate::step::NodeSlot;
use garrick_model::{
    ids::StepId,
    messages::{shepherd::StepMgrToShepherd, step::StepMgrToCommand},
    step_selector::WhichSteps,
    usage::TaskSample,
    view::StepView,
};
use std::collections::HashMap;

impl StepMgrCore {
    /// Asks the nodes of running steps.
    pub(super) fn sample(&mut self, client: ClientId, named: &WhichSteps, out: &mut Vec<StepMgrEffect>) {
        let mut asked = Vec::new();
        let mut orders = Vec::new();
        let views: HashMap<StepId, StepView> = self.listing().0.into_iter().map(|view| (view.id, view)).collect();
        for (key, record) in self.steps.iter().filter(|(key, _)| named.contains(**key)) {
            let RecordState::Running { placement, .. } = &record.state else { continue };
            let step = StepId::of(self.facts.job, *key);
            let Some(view) = views.get(&step) else { continue };
            let nodes: Vec<NodeSlot> = placement.nodes.iter().map(|node| NodeSlot(node.slot)).collect();
            asked.push((view.clone(), nodes.iter().map(|node| self.name_of(*node)).collect()));
            let sample = StepMgrToShepherd::Sample { step, query: client.0 };
            orders.extend(nodes.into_iter().map(|node| StepMgrEffect::ToShepherd { node, message: sample.clone() }));
        }
        if let Some(conversation) = self.clients.get_mut(&client) {
            conversation.about = About::Sample;
        }
        Self::tell(client, StepMgrToCommand::Sampling(asked), out);
        out.extend(orders);
    }

    /// A node has answered. The command may have gone.
    pub(super) fn sampled(
        &self,
        node: NodeSlot,
        step: StepId,
        query: u64,
        tasks: Vec<TaskSample>,
        out: &mut Vec<StepMgrEffect>,
    ) {
        let client = ClientId(query);
        if self.clients.get(&client).is_some_and(|conversation| conversation.about == About::Sample) {
            Self::tell(client, StepMgrToCommand::Sampled { step, node: self.name_of(node), tasks }, out);
        }
    }

    fn name_of(&self, node: NodeSlot) -> String {
        self.facts.nodes.get(node.0 as usize).map(|node| node.name.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::stepmgr::{
        builders::{run, step},
        harness::Harness,
        run::StepMgrConfig,
    };
    use garrick_model::{
        messages::step::CommandToStepMgr,
        spec::{JobKind, NodeCount, StepSpec},
    };

    #[test]
    fn every_node_of_a_running_step_answers_for_its_tasks() {
        let mut harness = Harness::ready(run(JobKind::Batch, &[1, 1]), StepMgrConfig::default());
        harness.srun(StepSpec { nodes: Some(NodeCount { min: 2, max: Some(2) }), tasks: Some(2), ..step("a") });
        harness.settle();
        let client = harness.connect();
        harness.say(client, CommandToStepMgr::Sample { steps: "0".parse().unwrap() });
        harness.settle();
        let mut heard = harness.heard[&client].iter();
        let Some(StepMgrToCommand::Sampling(asked)) = heard.next() else { panic!("{:?}", harness.heard[&client]) };
        assert_eq!(asked[0].1, ["n1", "n2"]);
        let ranks: Vec<(String, Vec<u32>)> = heard
            .map(|message| match message {
                StepMgrToCommand::Sampled { node, tasks, .. } => {
                    (node.clone(), tasks.iter().map(|task| task.rank).collect())
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(ranks, [("n1".to_owned(), vec![0]), ("n2".to_owned(), vec![1])]);
    }
}
