//! `sattach`: commands that watch a running step. Output that is relayed to the step's own command is sent to them too; for other
//! output they are told where it goes.

use crate::stepmgr::{
    core::StepMgrCore,
    launch,
    messages::{ClientId, StepMgrEffect},
    placement::Placement,
    state::{About, RecordState, StepRecord},
};
use garrick_model::{
    ids::{StepId, StepKey},
    messages::{
        shepherd::{StepLaunch, Stream},
        step::{AttachedFile, StepLayout, StepMgrToCommand},
    },
    patterns::{PatternFacts, fill},
    refusal::Refusal,
    spec::StreamTarget,
};

impl StepMgrCore {
    pub(super) fn attach(&mut self, client: ClientId, step: StepId, out: &mut Vec<StepMgrEffect>) {
        let key = step.key();
        let Some(record) = self.steps.get(&key).filter(|_| step.job == self.facts.job) else {
            let refusal = match self.ledger.end_of(key) {
                Some(_) => Refusal::AlreadyDone,
                None if self.rows.find(key).is_some() => Refusal::JobPending,
                None => self.array_named(step).unwrap_or_else(|| Refusal::InvalidStep(step.to_string())),
            };
            return self.refuse(client, refusal, out);
        };
        let RecordState::Running { placement, .. } = &record.state else {
            return self.refuse(client, Refusal::JobPending, out);
        };
        let launch = launch::launch_of(&self.facts, record, placement);
        let layout = StepLayout {
            nodes: placement.nodes.iter().map(|n| self.pool.node(n.slot).name.clone()).collect(),
            ranks: placement.nodes.iter().map(|n| n.ranks.clone()).collect(),
            handed: [&launch.stdin, &launch.stdout, &launch.stderr].map(|t| *t == StreamTarget::Handed),
        };
        let files = self.files(step, record, placement, &launch);
        let input = launch.stdin == StreamTarget::Relay;
        let pty = launch.pty.is_some();
        Self::tell(client, StepMgrToCommand::Attached { layout, files, input, pty }, out);
        if let Some(record) = self.steps.get_mut(&key) {
            record.watchers.push(client);
        }
        if let Some(conversation) = self.clients.get_mut(&client) {
            conversation.about = About::Watch(key);
        }
    }

    /// The refusal if a step array is named: it suggests a running task of it, or its first, as an example.
    fn array_named(&self, step: StepId) -> Option<Refusal> {
        let number = step.key().step.number().filter(|_| step.key().array.is_none())?;
        let tasks = self.tasks_of(number)?;
        let running = self
            .steps
            .iter()
            .filter(|(key, record)| key.step == step.key().step && matches!(record.state, RecordState::Running { .. }));
        let task = running.filter_map(|(key, _)| key.array).next().or_else(|| tasks.indices().next())?;
        let task = StepId::of(step.job, StepKey::task(number, task));
        Some(Refusal::StepArray { array: step.to_string(), task: task.to_string() })
    }

    fn files(
        &self,
        step: StepId,
        record: &StepRecord,
        placement: &Placement,
        launch: &StepLaunch,
    ) -> Vec<AttachedFile> {
        let mut files = Vec::new();
        for (placed, node_id) in placement.nodes.iter().zip(launch::before(&record.spec).nodes..) {
            let node = &self.pool.node(placed.slot).name;
            for rank in &placed.ranks {
                let path = |pattern: &str| {
                    let facts = PatternFacts {
                        job: step.job,
                        array_task: launch.array_task,
                        step: Some(step.key()),
                        node: Some(node),
                        node_id: Some(node_id),
                        task: Some(*rank),
                        user: &launch.user,
                        job_name: &launch.job_name,
                    };
                    let path = fill(pattern, &facts);
                    let under = launch.work_dir.trim_end_matches('/');
                    if path.starts_with('/') { path } else { format!("{under}/{path}") }
                };
                for (target, stream) in [(&launch.stdout, Stream::Stdout), (&launch.stderr, Stream::Stderr)] {
                    let (path, pack) = match (target, &record.spec.output_pack) {
                        (StreamTarget::File(pattern), _) => (path(pattern), false),
                        (StreamTarget::Pack, Some(pattern)) => (path(pattern), true),
                        _ => continue,
                    };
                    files.push(AttachedFile { rank: *rank, node: node.clone(), stream, path, pack });
                }
            }
        }
        files
    }
}
