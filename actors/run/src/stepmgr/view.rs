//! Views of steps, for `squeue -s`, `scontrol show step` and the reports to the controller.

use crate::stepmgr::{
    core::StepMgrCore,
    queue::Waiting,
    rows::{Row, RowId},
    run::RunFacts,
    shape::{StepGres, StepShape},
    state::{RecordState, StepRecord},
};
use garrick_model::{
    gres::{self, GresCount, Totals},
    hostlist,
    ids::{StepId, StepKey},
    resources::MemoryMib,
    spec::StepSpec,
    state::{ExitStatus, Reason, StepState},
    step_listing::StepListing,
    time::TimeLimit,
    usage::TaskUsage,
    view::{StepOrigin, StepRow, StepView},
};

/// Most rows of waiting steps in one answer; further ones are left out (`swait` counts them).
const MOST_ROWS: usize = 20_000;

/// How reports describe all steps of a spec.
pub fn origin(facts: &RunFacts, spec: &StepSpec, tasks: u32) -> StepOrigin {
    StepOrigin {
        name: spec.name.clone(),
        uid: facts.uid,
        partition: facts.partition.clone(),
        tasks,
        time_limit: spec.time_limit.unwrap_or(TimeLimit::Unlimited),
        srun: spec.srun.clone(),
        submit_line: spec.submit_line.clone(),
        priority: spec.priority,
        cpu_freq: spec.cpu_freq,
        layout: Some(spec.distribution),
    }
}

/// For the batch script, and steps that ended before anything was recorded.
pub fn nameless(facts: &RunFacts) -> StepOrigin {
    StepOrigin { layout: None, ..origin(facts, &StepSpec { name: "batch".into(), ..StepSpec::default() }, 1) }
}

/// A running step in the form of reports.
pub fn row(facts: &RunFacts, key: StepKey, record: &StepRecord) -> StepRow {
    let mut row = StepRow {
        key,
        origin: 0,
        state: StepState::Pending,
        nodelist: String::new(),
        nodes: record.shape.min_nodes,
        cpus: record.shape.tasks * record.shape.cpus_per_task,
        memory: MemoryMib(0),
        gres: Vec::new(),
        start_time: None,
        end_time: None,
        exit: ExitStatus::SUCCESS,
        attempt: record.attempt,
        usage: TaskUsage::default(),
        spread: None,
        all_of: None,
        reason: Reason::None,
    };
    if let RecordState::Running { placement, since } | RecordState::Unsure { placement, since, .. } = &record.state {
        row.state = StepState::Running;
        row.nodelist = match placement.nodes.as_slice() {
            [one] => facts.nodes[one.slot as usize].name.clone(),
            nodes => hostlist::fold(nodes.iter().map(|n| &facts.nodes[n.slot as usize].name)),
        };
        row.nodes = placement.nodes.len() as u32;
        row.cpus = placement.nodes.iter().map(|n| n.cpu_count).sum();
        row.memory = MemoryMib(placement.nodes.iter().filter_map(|n| n.memory).sum());
        row.gres = gres::counted(placement.nodes.iter().flat_map(|node| &node.gres));
        row.start_time = Some(*since);
    }
    row
}

/// The generic resources that a step requests, on the fewest nodes.
fn asked_gres(shape: &StepShape) -> Vec<GresCount> {
    let StepGres::Asked(asked) = &shape.gres else { return Vec::new() };
    let nodes = u64::from(shape.min_nodes);
    let mut all = asked.on_node(0, Totals::NONE);
    all.iter_mut().for_each(|one| one.count *= nodes);
    all.extend(asked.per_task.iter().map(|one| GresCount { count: one.count * u64::from(shape.tasks), ..one.clone() }));
    all.extend(asked.total.iter().cloned());
    all
}

impl StepMgrCore {
    /// [`Self::views`] as far as they fit into an answer, and the number of lines left out.
    pub fn listing(&self) -> (Vec<StepView>, u64) {
        let rows = self.rows.iter().filter(|(_, row)| row.pending() > 0).count();
        let mut listing = StepListing::default();
        listing.add(self.views(), rows.saturating_sub(MOST_ROWS) as u64);
        listing.finish()
    }

    /// Steps that are not over, including the batch step; waiting steps that differ only in their number are one view.
    pub fn views(&self) -> Vec<StepView> {
        let live = self.steps.iter().map(|(key, record)| {
            let waits = matches!(record.state, RecordState::Queued { .. });
            let reason = match (waits, key.step.number()) {
                (true, Some(number)) => self.reason_of(Waiting::Attended(number)),
                _ => Reason::None,
            };
            let behind = self.lines.is_behind(*key);
            let reason = if behind { Reason::Resources } else { reason };
            let mut row = row(&self.facts, *key, record);
            if behind {
                row.state = StepState::Pending;
                (row.nodelist, row.start_time) = (String::new(), None);
            }
            let mut view = self.view_of(&record.origin, row, reason, &record.spec);
            if record.state.placement().is_none() {
                view.gres = asked_gres(&record.shape);
            }
            view
        });
        let mut views: Vec<StepView> = live.collect();
        let rows = self.rows.iter().filter(|(_, row)| row.pending() > 0).take(MOST_ROWS);
        views.extend(rows.map(|(id, row)| self.view_of_row(id, row)));
        views
    }

    fn view_of(&self, origin: &StepOrigin, row: StepRow, reason: Reason, spec: &StepSpec) -> StepView {
        StepView {
            id: StepId::of(self.facts.job, row.key),
            name: origin.name.clone(),
            state: row.state,
            reason,
            uid: origin.uid,
            partition: origin.partition.clone(),
            nodelist: row.nodelist,
            nodes: row.nodes,
            cpus: row.cpus,
            tasks: origin.tasks,
            start_time: row.start_time,
            end_time: row.end_time,
            time_limit: origin.time_limit,
            exit: row.exit,
            srun: origin.srun.clone(),
            submit_line: origin.submit_line.clone(),
            attempt: row.attempt,
            priority: origin.priority,
            dependency: spec.dependency.as_ref().map(ToString::to_string).unwrap_or_default(),
            waiting: None,
            usage: row.usage,
            gres: row.gres,
            memory: row.memory,
            cpu_freq: origin.cpu_freq,
        }
    }

    fn view_of_row(&self, id: RowId, row: &Row) -> StepView {
        let members = row.all_waiting();
        let first = members.min().unwrap_or(row.members.start);
        let shown = StepRow {
            key: row.step(first),
            origin: 0,
            state: StepState::Pending,
            nodelist: String::new(),
            nodes: row.shape.min_nodes,
            cpus: row.shape.tasks * row.shape.cpus_per_task,
            memory: MemoryMib(0),
            gres: Vec::new(),
            start_time: None,
            end_time: None,
            exit: ExitStatus::SUCCESS,
            attempt: 0,
            usage: TaskUsage::default(),
            spread: None,
            all_of: None,
            reason: Reason::None,
        };
        let mut view = self.view_of(&row.origin, shown, self.reason_of(Waiting::Row(id)), &row.spec);
        view.gres = asked_gres(&row.shape);
        if members.len() == 1 {
            view.attempt = row.tries.get(&first).copied().unwrap_or(0);
            view.start_time = row.delayed.get(&first).copied();
        }
        view.waiting = (row.batch.array().is_some() || members.len() > 1).then(|| row.named(&members, row.limit));
        view
    }
}
