//! What a request amounts to, as far as that is known before the job starts.

use super::job::{JobRecord, Phase, Resolved};
use garrick_model::{
    config::{BilledTerms, BillingWeights, TrackedTres},
    gres::GPU,
    resources::MemoryRequest,
    spec::JobSpec,
    spec_text::licenses::{LicenseRequest, Licenses},
    view::Allocation,
};
use std::{collections::BTreeMap, sync::Arc};

impl Resolved {
    /// By the name of the TRES: `cpu`, `mem` (MiB), `node`, `gres/gpu`, `gres/gpu:h100`, `license/matlab`. Without billing.
    pub fn tres(&self, spec: &JobSpec) -> BTreeMap<String, u64> {
        let gres = spec.gres.counted(self.min_nodes, self.tasks);
        let (nodes, cpus) = (u64::from(self.min_nodes), u64::from(self.cpus));
        let memory = match self.memory {
            MemoryRequest::PerNode(each) => each.0.saturating_mul(nodes),
            MemoryRequest::PerCpu(each) => each.0.saturating_mul(cpus),
            MemoryRequest::Default | MemoryRequest::All => {
                let each = spec.gres.mem_per_gpu.unwrap_or_default().0;
                each.saturating_mul(gres.get(GPU).copied().unwrap_or(0))
            }
        };
        let usual = [("cpu", cpus), ("mem", memory), ("node", nodes)];
        let mut tres: BTreeMap<String, u64> = usual.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        tres.extend(gres.into_iter().map(|(name, count)| (format!("gres/{name}"), count)));
        let licenses = licenses(spec).0.into_iter();
        tres.extend(licenses.map(|one| (format!("license/{}", one.name), u64::from(one.count))));
        tres.retain(|_, count| *count > 0);
        tres
    }

    /// What is billed by these weights.
    pub fn billed(&self, spec: &JobSpec, weights: &BillingWeights, terms: BilledTerms) -> u64 {
        weights.billed(&self.tres(spec), terms)
    }
}

/// Those that the job asks for. Which of several alternatives it gets is not known yet.
fn licenses(spec: &JobSpec) -> Licenses {
    let mut alternatives = LicenseRequest::of(spec).map(|asked| asked.alternatives).unwrap_or_default();
    if alternatives.len() == 1 { alternatives.remove(0) } else { Licenses::default() }
}

impl JobRecord {
    /// Leaves out types of generic resources that are not counted by themselves, for who counts by the record.
    pub fn count_only(&mut self, tracked: &TrackedTres) {
        spec_counts_only(&mut self.spec, tracked);
        match &mut self.phase {
            Phase::Pending | Phase::Over(None, _) => {}
            Phase::Starting(run) | Phase::Running(run) | Phase::Suspended(run) | Phase::Completing(run, _) => {
                allocation_counts_only(&mut run.allocation, tracked);
            }
            Phase::Over(Some(run), _) => allocation_counts_only(&mut run.allocation, tracked),
        }
    }
}

/// The same of a request.
pub fn spec_counts_only(spec: &mut Arc<JobSpec>, tracked: &TrackedTres) {
    let left_out = |one: &garrick_model::gres::GresCount| {
        one.kind.as_ref().is_some_and(|kind| !tracked.counts_type(&one.name, kind))
    };
    if spec.gres.all().any(left_out) {
        Arc::make_mut(spec).gres.count_only(|name, kind| tracked.counts_type(name, kind));
    }
}

/// The same of an allocation.
pub fn allocation_counts_only(allocation: &mut Arc<Allocation>, tracked: &TrackedTres) {
    let left_out = |share: &garrick_model::gres::GresShare| {
        share.kind.as_ref().is_some_and(|kind| !tracked.counts_type(&share.name, kind))
    };
    if allocation.nodes.iter().flat_map(|node| &node.share.gres).any(left_out) {
        let nodes = Arc::make_mut(allocation).nodes.iter_mut();
        for share in nodes.flat_map(|node| &mut node.share.gres) {
            share.kind = share.kind.take().filter(|kind| tracked.counts_type(&share.name, kind));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::testing::{record, run};
    use garrick_model::{
        gres::{GresCount, GresRequest, GresShare},
        ids::NodeIndex,
        node_shape::NodeShare,
        resources::CpuSet,
        time::Timestamp,
        view::AllocatedNode,
    };

    fn count(kind: Option<&str>, count: u64) -> GresCount {
        GresCount { name: "gpu".into(), kind: kind.map(str::to_owned), count }
    }

    #[test]
    fn a_request_amounts_to_what_is_named_in_it() {
        let gres = GresRequest { per_node: vec![count(Some("h100"), 2), count(None, 1)], ..GresRequest::default() };
        let spec = JobSpec { gres, licenses: Some("matlab:2,a".into()), ..JobSpec::default() };
        let record = record(1, spec);
        let resolved = Resolved { min_nodes: 2, cpus: 4, ..record.resolved.clone() };
        let tres = resolved.tres(&record.spec);
        let of = |name: &str| tres.get(name).copied().unwrap_or(0);
        assert_eq!((of("cpu"), of("node"), of("gres/gpu"), of("gres/gpu:h100")), (4, 2, 6, 4));
        assert_eq!((of("license/matlab"), of("license/a")), (2, 1));
        let weights = BillingWeights::parse("CPU=1,GRES/gpu=10,GRES/gpu:h100=100,license/matlab=1000").unwrap();
        assert_eq!(resolved.billed(&record.spec, &weights, BilledTerms::All), 4 + 60 + 400 + 2000);
        assert_eq!(resolved.billed(&record.spec, &weights, BilledTerms::Greatest), 400 + 2000);
        let either = JobSpec { licenses: Some("matlab:2|a".into()), ..(*record.spec).clone() };
        assert_eq!(resolved.tres(&either).get("license/matlab"), None);
    }

    #[test]
    fn types_that_are_not_counted_are_left_out() {
        let mut record = record(1, JobSpec::default());
        let spec = Arc::make_mut(&mut record.spec);
        spec.gres.total = vec![count(Some("h100"), 2), count(Some("a100"), 1)];
        let node = AllocatedNode { name: "n1".into(), index: NodeIndex(0), share: NodeShare::default() };
        let mut runs = run(Allocation { nodes: vec![node], ..Allocation::default() }, Timestamp(0));
        let share =
            |kind: &str| GresShare { name: "gpu".into(), kind: Some(kind.into()), count: 1, devices: CpuSet::new() };
        Arc::make_mut(&mut runs.allocation).nodes[0].share.gres = vec![share("h100"), share("a100")];
        record.phase = Phase::Running(runs);
        record.count_only(&TrackedTres::parse("gres/gpu:h100").unwrap().0);
        let tres = record.resolved.tres(&record.spec);
        let asked = (tres.get("gres/gpu"), tres.get("gres/gpu:h100"), tres.get("gres/gpu:a100"));
        assert_eq!(asked, (Some(&3), Some(&2), None));
        let had = record.phase.run().unwrap().allocation.tres();
        assert_eq!((had["gres/gpu"], had["gres/gpu:h100"], had.get("gres/gpu:a100")), (2, 1, None));
        let on_each = vec![count(Some("h100"), 2), count(Some("a100"), 1)];
        Arc::make_mut(&mut record.spec).gres = GresRequest { gpus_per_node: on_each, ..GresRequest::default() };
        record.resolved.min_nodes = 2;
        record.count_only(&TrackedTres::default());
        assert_eq!(record.resolved.tres(&record.spec).get("gres/gpu"), Some(&6));
    }
}
