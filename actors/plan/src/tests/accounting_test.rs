//! Limits of associations and QOS in plans: each is reached, has its reason, and frees others when it is lifted. The cases are those
//! of a session with 26.05.3: three nodes of four CPUs, alice in the account physics, the QOS normal.
#![allow(clippy::unwrap_used)]

use crate::{
    fixtures::cluster,
    plan::{Plan, kept::plan_to_keep, plan},
    rules::minutes::{Minutes, minutes},
    snapshot::{
        accounting::{Accounting, AccountingTable, PastUsage},
        facts::{AllocationUnit, ClusterView},
        licenses::LicenseFacts,
    },
};
use garrick_model::{
    config::EnforceWord,
    entities::{
        Entities,
        association::AssocId,
        limits::{Amounts, Count, Limits, TresLimit},
        qos::QosFlag,
        used::{Flow, Used},
    },
    gres::{GresCount, GresEntry, GresRequest, GresShare},
    ids::{JobId, NodeIndex},
    node_shape::NodeShare,
    resources::{CpuSet, MemoryMib, MemoryRequest},
    spec::{JobSpec, NodeCount},
    state::JobState,
    testing::{array, entities, hold, job, node, spec},
    time::{TimeLimit, Timestamp},
    view::{AllocatedNode, Allocation, JobView, NodeHold, SuspendTimes},
};
use proptest::prelude::*;
use std::sync::Arc;

pub(super) const NOW: Timestamp = Timestamp::from_secs(100_000);

/// `-n TASKS -t 5` with 100 MiB for each CPU, as alice.
pub(super) fn asks(tasks: u32) -> JobSpec {
    JobSpec {
        tasks: Some(tasks),
        memory: MemoryRequest::PerCpu(MemoryMib(100)),
        time_limit: Some(TimeLimit::Secs(300)),
        qos: Some("normal".to_owned()),
        ..spec()
    }
}

pub(super) fn on_nodes(spec: JobSpec, nodes: u32) -> JobSpec {
    JobSpec { nodes: Some(NodeCount { min: nodes, max: Some(nodes) }), ..spec }
}

pub(super) fn at(spec: JobSpec, node: &str) -> JobSpec {
    JobSpec { nodelist: vec![node.to_owned()], ..spec }
}

pub(super) fn gpus(count: u64) -> JobSpec {
    let gpu = GresCount { name: "gpu".to_owned(), kind: None, count };
    JobSpec { gres: GresRequest { per_node: vec![gpu], ..GresRequest::default() }, ..asks(1) }
}

pub(super) fn matlab(count: u32) -> JobSpec {
    JobSpec { licenses: Some(format!("matlab:{count}")), ..asks(1) }
}

/// Jobs 1, 2, ... of alice in physics.
pub(super) fn queue(specs: Vec<JobSpec>) -> Vec<JobView> {
    let view = |(spec, id)| JobView { association: Some(AssocId(4)), ..job(id, spec) };
    specs.into_iter().zip(1..).map(view).collect()
}

/// The cluster with those jobs, where all is enforced.
pub(super) fn site(jobs: Vec<JobView>, entities: &Entities) -> ClusterView {
    let nodes = (0..3).map(|index| {
        let mut node = node(index, 2);
        node.shape.gres = vec![GresEntry {
            name: "gpu".to_owned(),
            kind: None,
            count: 4,
            no_consume: false,
            devices: true,
            places: Vec::new(),
            shards: Vec::new(),
        }];
        node
    });
    let mut view = cluster(nodes.collect(), jobs);
    view.policy.unit = AllocationUnit::Cpu;
    view.licenses = LicenseFacts { totals: [("matlab".to_owned(), 4)].into(), ..LicenseFacts::default() };
    view.accounting = Accounting {
        enforce: [EnforceWord::Safe, EnforceWord::Qos].into_iter().collect(),
        table: Arc::new(AccountingTable::new(entities, "test")),
        ..Accounting::default()
    };
    view
}

/// Why each job waits; empty: it starts.
pub(super) fn outcome(plan: &Plan, jobs: u32) -> Vec<String> {
    let of = |id: u32| {
        if plan.starts.iter().any(|start| start.job == JobId(id)) {
            return String::new();
        }
        let reason = plan.reasons.iter().find(|(job, _)| *job == JobId(id));
        reason.map_or_else(|| "nothing".to_owned(), |(_, reason)| reason.text().into_owned())
    };
    (1..=jobs).map(of).collect()
}

fn planned(specs: Vec<JobSpec>, entities: &Entities) -> Vec<String> {
    let count = u32::try_from(specs.len()).unwrap();
    outcome(&plan(&site(queue(specs), entities), NOW), count)
}

pub(super) fn tres(limit: TresLimit, name: &str, most: u64) -> Limits {
    Limits { tres: [(limit, Amounts::from([(name.to_owned(), most)]))].into(), ..Limits::default() }
}

pub(super) fn count(count: Count, most: u64) -> Limits {
    Limits { counts: [(count, most)].into(), ..Limits::default() }
}

/// Where a limit is set.
#[derive(Clone, Copy, Debug)]
enum On {
    Physics,
    Alice,
    Normal,
}

fn limited(on: On, limits: Limits) -> Entities {
    let mut all = entities();
    match on {
        On::Physics => all.associations.get_mut(&AssocId(3)).unwrap().limits = limits,
        On::Alice => all.associations.get_mut(&AssocId(4)).unwrap().limits = limits,
        On::Normal => all.qos.get_mut("normal").unwrap().limits = limits,
    }
    all
}

#[test]
fn each_limit_has_its_reason_and_frees_jobs_when_it_is_lifted() {
    use Count::*;
    use On::*;
    use TresLimit::*;
    let cases: Vec<(On, Limits, Vec<JobSpec>, &[&str])> = vec![
        (
            Physics,
            tres(GrpTres, "cpu", 2),
            vec![asks(2), asks(1), asks(3)],
            &["", "AssocGrpCpuLimit", "AssocGrpCpuLimit"],
        ),
        (Physics, tres(GrpTres, "mem", 300), vec![asks(2), asks(2)], &["", "AssocGrpMemLimit"]),
        (
            Physics,
            tres(GrpTres, "node", 1),
            vec![at(on_nodes(asks(1), 1), "n0"), at(on_nodes(asks(1), 1), "n1"), at(on_nodes(asks(1), 1), "n0")],
            &["", "AssocGrpNodeLimit", ""],
        ),
        (Physics, tres(GrpTres, "gres/gpu", 1), vec![gpus(1), gpus(1)], &["", "AssocGrpGRES"]),
        (Physics, tres(GrpTres, "license/matlab", 1), vec![matlab(1), matlab(1)], &["", "AssocGrpLicense"]),
        (Physics, tres(GrpTres, "billing", 2), vec![asks(2), asks(1)], &["", "AssocGrpBilling"]),
        (Physics, count(GrpJobs, 1), vec![asks(1), asks(1)], &["", "AssocGrpJobsLimit"]),
        (Physics, count(GrpWall, 3), vec![asks(1)], &["AssocGrpWallLimit"]),
        (Physics, tres(GrpTresMins, "cpu", 4), vec![asks(1), asks(2)], &["AssocGrpCPUMinutesLimit"; 2]),
        (Physics, tres(GrpTresMins, "gres/gpu", 4), vec![gpus(1), gpus(2)], &["AssocGrpGRESMinutes"; 2]),
        (Physics, tres(GrpTresRunMins, "cpu", 8), vec![asks(1), asks(1)], &["", "AssocGrpCPURunMinutesLimit"]),
        (Alice, count(MaxJobs, 1), vec![asks(1), asks(1)], &["", "AssocMaxJobsLimit"]),
        (Alice, count(MaxJobs, 0), vec![asks(1)], &["AssocMaxJobsLimit"]),
        (Alice, tres(MaxTresPerJob, "cpu", 2), vec![asks(2), asks(3)], &["", "AssocMaxCpuPerJobLimit"]),
        (Alice, tres(MaxTresPerJob, "mem", 150), vec![asks(2)], &["AssocMaxMemPerJob"]),
        (Alice, tres(MaxTresPerJob, "gres/gpu", 1), vec![gpus(2)], &["AssocMaxGRESPerJob"]),
        (Alice, tres(MaxTresPerJob, "node", 1), vec![on_nodes(asks(2), 2)], &["AssocMaxNodePerJobLimit"]),
        (
            Alice,
            tres(MaxTresPerNode, "cpu", 1),
            vec![on_nodes(asks(2), 1), on_nodes(asks(2), 2)],
            &["AssocMaxCpuPerNode", ""],
        ),
        (Alice, count(MaxWall, 3), vec![asks(1)], &["AssocMaxWallDurationPerJobLimit"]),
        (Alice, tres(MaxTresMinsPerJob, "cpu", 6), vec![asks(1), asks(2)], &["", "AssocMaxCpuMinutesPerJobLimit"]),
        (Normal, tres(GrpTres, "cpu", 2), vec![asks(2), asks(1), asks(3)], &["", "QOSGrpCpuLimit", "QOSGrpCpuLimit"]),
        (Normal, tres(GrpTres, "mem", 300), vec![asks(2), asks(2)], &["", "QOSGrpMemLimit"]),
        (Normal, tres(GrpTres, "gres/gpu", 1), vec![gpus(1), gpus(1)], &["", "QOSGrpGRES"]),
        (Normal, tres(GrpTres, "node", 1), vec![at(asks(1), "n0"), at(asks(1), "n1")], &["", "QOSGrpNodeLimit"]),
        (Normal, count(GrpJobs, 1), vec![asks(1), asks(1)], &["", "QOSGrpJobsLimit"]),
        (Normal, count(GrpWall, 3), vec![asks(1)], &["QOSGrpWallLimit"]),
        (Normal, tres(GrpTresMins, "cpu", 6), vec![asks(2)], &["QOSGrpCPUMinutesLimit"]),
        (Normal, tres(GrpTresRunMins, "cpu", 6), vec![asks(1), asks(1)], &["", "QOSGrpCPURunMinutesLimit"]),
        (Normal, tres(MaxTresPerJob, "cpu", 2), vec![asks(3)], &["QOSMaxCpuPerJobLimit"]),
        (Normal, tres(MaxTresPerJob, "mem", 100), vec![asks(3)], &["QOSMaxMemoryPerJob"]),
        (Normal, tres(MaxTresPerJob, "license/matlab", 1), vec![matlab(2)], &["QOSMaxLicensePerJob"]),
        (Normal, tres(MaxTresPerNode, "cpu", 2), vec![on_nodes(asks(3), 1)], &["QOSMaxCpuPerNode"]),
        (
            Normal,
            tres(MaxTresPerUser, "cpu", 2),
            vec![asks(2), asks(1), asks(3)],
            &["", "QOSMaxCpuPerUserLimit", "QOSMaxCpuPerUserLimit"],
        ),
        (Normal, tres(MaxTresPerUser, "gres/gpu", 1), vec![gpus(1), gpus(1)], &["", "QOSMaxGRESPerUser"]),
        (Normal, tres(MaxTresPerAccount, "cpu", 2), vec![asks(2), asks(1)], &["", "MaxCpuPerAccount"]),
        (Normal, count(MaxJobsPerUser, 1), vec![asks(1), asks(1)], &["", "QOSMaxJobsPerUserLimit"]),
        (Normal, count(MaxJobsPerAccount, 1), vec![asks(1), asks(1)], &["", "MaxJobsPerAccount"]),
        (Normal, count(MaxWall, 3), vec![asks(1)], &["QOSMaxWallDurationPerJobLimit"]),
        (Normal, tres(MaxTresMinsPerJob, "cpu", 6), vec![asks(1), asks(2)], &["", "QOSMaxCpuMinutesPerJobLimit"]),
        (Normal, tres(MaxTresRunMinsPerUser, "cpu", 6), vec![asks(1), asks(1)], &["", "MaxCpuRunMinsPerUser"]),
        (Normal, tres(MaxTresRunMinsPerAccount, "cpu", 6), vec![asks(1), asks(1)], &["", "MaxCpuRunMinsPerAccount"]),
        (Normal, tres(MinTresPerJob, "cpu", 2), vec![asks(1)], &["QOSMinCpuNotSatisfied"]),
        (Normal, tres(MinTresPerJob, "gres/gpu", 1), vec![asks(1)], &["QOSMinGRES"]),
    ];
    for (on, limits, specs, expected) in cases {
        let (of, free) = (format!("{on:?} {limits:?}"), vec![""; specs.len()]);
        assert_eq!(planned(specs.clone(), &limited(on, limits)), expected, "{of}");
        assert_eq!(planned(specs, &entities()), free, "without {of}");
    }
}

#[test]
fn tasks_of_an_array_start_up_to_the_limit() {
    let view = site(
        queue(vec![JobSpec { array: Some(array(1, 5, None)), ..asks(1) }]),
        &limited(On::Alice, count(Count::MaxJobs, 2)),
    );
    let plan = plan(&view, NOW);
    assert_eq!(plan.starts.len(), 2);
    assert_eq!(plan.reasons.iter().map(|(_, reason)| reason.text()).collect::<Vec<_>>(), ["AssocMaxJobsLimit"]);
}

#[test]
fn a_job_over_a_limit_holds_no_other_job_back() {
    let mut jobs = queue(vec![asks(3), asks(2), asks(4)]);
    jobs[2].association = Some(AssocId(5));
    let view = site(jobs, &limited(On::Alice, tres(TresLimit::MaxTresPerJob, "cpu", 2)));
    assert_eq!(outcome(&plan(&view, NOW), 3), ["AssocMaxCpuPerJobLimit", "", ""]);
}

/// A job of alice's that runs on node 0 with so many CPUs for another so many seconds.
fn running(view: &mut ClusterView, id: u32, cpus: u32, secs: u64) -> Arc<JobView> {
    let share = NodeShare {
        cpus: CpuSet::from(0..cpus),
        memory: Some(MemoryMib(100)),
        tasks: 1,
        gres: Vec::<GresShare>::new(),
    };
    let end = NOW.plus(std::time::Duration::from_secs(secs));
    let mut on = (*view.nodes[0]).clone();
    on.holds.push(hold(id, 0..cpus, 100, Some(end.0 / 1000)));
    view.nodes[0] = Arc::new(on);
    let nodes = vec![AllocatedNode { name: "n0".to_owned(), index: NodeIndex(0), share }];
    let allocation = Allocation { nodes, partition: "debug".to_owned(), ..Allocation::default() };
    let mut runs = job(id, asks(cpus));
    (runs.state, runs.end_time, runs.association) = (JobState::Running, Some(end), Some(AssocId(4)));
    runs.allocation = Some(Arc::new(allocation));
    Arc::new(runs)
}

fn beside(specs: Vec<JobSpec>, entities: &Entities, (cpus, secs): (u32, u64)) -> Vec<String> {
    let count = u32::try_from(specs.len()).unwrap();
    let mut view = site(queue(specs), entities);
    let runs = running(&mut view, 99, cpus, secs);
    view.accounting = view.accounting.clone().counting(&[runs], &[], &view.partitions, NOW);
    outcome(&plan(&view, NOW), count)
}

#[test]
fn running_jobs_count_with_what_they_have_and_the_time_they_have_left() {
    let cpus = limited(On::Physics, tres(TresLimit::GrpTres, "cpu", 2));
    assert_eq!(beside(vec![asks(1), asks(1)], &cpus, (1, 60)), ["", "AssocGrpCpuLimit"]);
    let left = limited(On::Physics, tres(TresLimit::GrpTresRunMins, "cpu", 8));
    assert_eq!(beside(vec![asks(1)], &left, (2, 120)), ["AssocGrpCPURunMinutesLimit"]);
    assert_eq!(beside(vec![asks(1)], &left, (2, 90)), [""], "time alone frees it");
    let nodes = limited(On::Physics, tres(TresLimit::GrpTres, "node", 1));
    assert_eq!(beside(vec![at(asks(1), "n1"), at(asks(1), "n0")], &nodes, (1, 60)), ["AssocGrpNodeLimit", ""]);
}

/// Whether one more job may start beside one that shows no run yet, for which a node has such a hold.
fn beside_one_that_starts(change: impl FnOnce(&mut NodeHold)) -> Vec<String> {
    let mut view = site(queue(vec![asks(1)]), &limited(On::Physics, count(Count::GrpJobs, 1)));
    let starts = Arc::new(JobView { association: Some(AssocId(4)), ..job(99, asks(1)) });
    let mut hold = NodeHold { partition: Some("debug".to_owned()), ..hold(99, 0..1, 100, None) };
    change(&mut hold);
    Arc::make_mut(&mut view.nodes[0]).holds.push(hold);
    view.accounting = view.accounting.clone().counting(&[starts], &view.nodes, &view.partitions, NOW);
    outcome(&plan(&view, NOW), 1)
}

#[test]
fn a_job_that_starts_counts_before_it_shows_its_run() {
    assert_eq!(beside_one_that_starts(|_| {}), ["AssocGrpJobsLimit"]);
    assert_eq!(beside_one_that_starts(|hold| hold.kept = true), [""], "only kept for its next run");
    assert_eq!(beside_one_that_starts(|hold| hold.completing = true), [""], "its last run is over");
}

/// So many seconds of CPUs.
fn used(cpu_secs: f64) -> Flow {
    Flow { used: Used { tres: [("cpu".to_owned(), cpu_secs)].into(), wall_secs: 0.0 }, ..Flow::default() }
}

#[test]
fn used_minutes_count_and_only_safe_looks_ahead() {
    let minutes = limited(On::Physics, tres(TresLimit::GrpTresMins, "cpu", 10));
    let with = |used_minutes: f64, safe: bool| {
        let mut view = site(queue(vec![asks(1)]), &minutes);
        let past = used(used_minutes * 60.0);
        view.accounting.past =
            Arc::new(PastUsage { associations: [(AssocId(3), past)].into(), ..PastUsage::default() });
        if !safe {
            view.accounting.enforce = [EnforceWord::Limits].into_iter().collect();
        }
        outcome(&plan(&view, NOW), 1).pop().unwrap()
    };
    assert_eq!((with(5.0, true), with(5.1, true)), (String::new(), "AssocGrpCPUMinutesLimit".to_owned()));
    assert_eq!((with(9.9, false), with(10.0, false)), (String::new(), "AssocGrpCPUMinutesLimit".to_owned()));
}

#[test]
fn the_first_place_where_a_limit_is_set_counts() {
    let mut both = limited(On::Normal, tres(TresLimit::MaxTresPerJob, "cpu", 3));
    both.associations.get_mut(&AssocId(4)).unwrap().limits = tres(TresLimit::MaxTresPerJob, "cpu", 1);
    assert_eq!(
        planned(vec![asks(3), asks(4)], &both),
        ["", "QOSMaxCpuPerJobLimit"],
        "the QOS goes before the association"
    );
    let mut groups = limited(On::Physics, tres(TresLimit::GrpTres, "cpu", 4));
    groups.associations.get_mut(&AssocId(1)).unwrap().limits = tres(TresLimit::GrpTres, "cpu", 2);
    assert_eq!(planned(vec![asks(2), asks(1)], &groups), ["", "AssocGrpCpuLimit"], "groups count at each level");
    groups.qos.get_mut("normal").unwrap().limit_factor = Some(2.0);
    assert_eq!(planned(vec![asks(2), asks(2), asks(1)], &groups), ["", "", "AssocGrpCpuLimit"], "LimitFactor");
}

#[test]
fn the_qos_of_a_partition_limits_its_jobs_unless_theirs_goes_over_it() {
    let mut all = entities();
    let mut partq = garrick_model::entities::qos::QosRecord::new(9, "partq");
    partq.limits = tres(TresLimit::MaxTresPerJob, "cpu", 1);
    partq.limits.counts.insert(Count::MaxJobsPerUser, 1);
    all.qos.insert("partq".to_owned(), partq);
    all.qos.get_mut("high").unwrap().flags.insert(QosFlag::OverPartQos);
    all.qos.get_mut("high").unwrap().limits = tres(TresLimit::MaxTresPerJob, "cpu", 2);
    let high = JobSpec { qos: Some("high".to_owned()), ..asks(2) };
    let mut view = site(queue(vec![asks(2), asks(1), asks(1)]), &all);
    view.partitions[0].qos = Some("partq".to_owned());
    assert_eq!(outcome(&plan(&view, NOW), 3), ["QOSMaxCpuPerJobLimit", "", "QOSMaxJobsPerUserLimit"]);
    let mut view = site(queue(vec![high]), &all);
    view.partitions[0].qos = Some("partq".to_owned());
    assert_eq!(outcome(&plan(&view, NOW), 1), [""]);
}

#[test]
fn usage_counts_more_with_usage_factor_safe() {
    let mut all = limited(On::Normal, tres(TresLimit::MaxTresMinsPerJob, "cpu", 6));
    all.qos.get_mut("normal").unwrap().usage_factor = 3.0;
    assert_eq!(planned(vec![asks(1)], &all), [""]);
    all.qos.get_mut("normal").unwrap().flags.insert(QosFlag::UsageFactorSafe);
    assert_eq!(planned(vec![asks(1)], &all), ["QOSMaxCpuMinutesPerJobLimit"]);
}

#[test]
fn jobs_need_an_association_and_a_qos_that_it_may_use() {
    let mut gone = entities();
    gone.associations.get_mut(&AssocId(4)).unwrap().deleted = true;
    assert_eq!(planned(vec![asks(1)], &gone), ["InvalidAccount"]);
    let mut jobs = queue(vec![asks(1)]);
    jobs[0].association = None;
    assert_eq!(outcome(&plan(&site(jobs.clone(), &entities()), NOW), 1), [""], "it goes by its names");
    jobs[0].user = "stranger".to_owned();
    assert_eq!(outcome(&plan(&site(jobs.clone(), &entities()), NOW), 1), ["InvalidAccount"]);
    let mut view = site(jobs, &gone);
    view.accounting.enforce = Default::default();
    assert_eq!(outcome(&plan(&view, NOW), 1), [""], "nothing is enforced");
    let mut taken = entities();
    taken.associations.get_mut(&AssocId(3)).unwrap().qos.own = Some(["high".to_owned()].into());
    assert_eq!(planned(vec![asks(1), JobSpec { qos: Some("high".to_owned()), ..asks(1) }], &taken), ["InvalidQOS", ""]);
}

#[test]
fn a_share_below_the_threshold_of_the_qos_makes_jobs_wait() {
    let mut all = entities();
    let normal = all.qos.get_mut("normal").unwrap();
    normal.usage_threshold = Some(0.4);
    normal.flags.insert(QosFlag::EnforceUsageThreshold);
    let with = |share: f64| {
        let mut view = site(queue(vec![asks(1)]), &all);
        view.accounting.past =
            Arc::new(PastUsage { fair_share: Arc::new([(AssocId(4), share)].into()), ..PastUsage::default() });
        outcome(&plan(&view, NOW), 1).pop().unwrap()
    };
    assert_eq!((with(0.3), with(0.4)), ("QOSUsageThreshold".to_owned(), String::new()));
}

#[test]
fn a_qos_lifts_limits_of_the_partition_and_reserves_nothing_where_it_says_so() {
    let mut all = entities();
    let mut view = site(queue(vec![asks(1)]), &all);
    view.partitions[0].max_time = TimeLimit::Secs(60);
    assert_eq!(outcome(&plan(&view, NOW), 1), ["PartitionTimeLimit"]);
    all.qos.get_mut("normal").unwrap().flags.insert(QosFlag::PartitionTimeLimit);
    view.accounting.table = Arc::new(AccountingTable::new(&all, "test"));
    assert_eq!(outcome(&plan(&view, NOW), 1), [""]);
    let full = |all: &Entities| {
        let mut view = site(queue(vec![on_nodes(asks(12), 3)]), all);
        running(&mut view, 99, 1, 60);
        plan(&view, NOW).reservations.len()
    };
    assert_eq!(full(&all), 1);
    all.qos.get_mut("normal").unwrap().limits = count(Count::MinPrioThreshold, u64::from(u32::MAX));
    assert_eq!(full(&all), 0);
    all.qos.get_mut("normal").unwrap().limits = Limits::default();
    all.qos.get_mut("normal").unwrap().flags.insert(QosFlag::NoReserve);
    assert_eq!(full(&all), 0);
}

/// What a plan's starts have of the limits, counted in another way: by each association and its parents.
fn overbooked(plan: &Plan, jobs: &[JobView], entities: &Entities) -> Option<String> {
    for association in entities.associations.values() {
        let below = |id: AssocId| entities.lineage(id).any(|above| above.id == association.id);
        let (mut running, mut cpus, mut nodes) = (0, 0, std::collections::BTreeSet::new());
        for start in &plan.starts {
            let job = jobs.iter().find(|job| job.id == start.job).unwrap();
            if below(job.association.unwrap()) {
                running += 1;
                cpus += start.nodes.iter().map(|node| u64::from(node.share.cpus.len())).sum::<u64>();
                nodes.extend(start.nodes.iter().map(|node| node.index));
            }
        }
        let limits = &association.limits;
        let over = limits.count(Count::GrpJobs).is_some_and(|most| running > most)
            || limits.tres(TresLimit::GrpTres, "cpu").is_some_and(|most| cpus > most)
            || limits.tres(TresLimit::GrpTres, "node").is_some_and(|most| nodes.len() as u64 > most)
            || limits.tres(TresLimit::GrpTresRunMins, "cpu").is_some_and(|most| cpus * 5 > most);
        if over {
            return Some(format!("{association:?}: {running} jobs, {cpus} CPUs, {nodes:?}"));
        }
    }
    None
}

proptest! {
    #[test]
    fn no_plan_overbooks_a_limit(
        jobs in proptest::collection::vec((1_u32..5, 0_usize..4, 0_u32..3, proptest::bool::ANY), 1..14),
        limits in proptest::collection::vec((0_usize..8, 0_usize..4, 0_u64..12), 0..8),
    ) {
        let mut all = entities();
        let numbers: Vec<AssocId> = all.associations.keys().copied().collect();
        for (who, what, most) in limits {
            let of = &mut all.associations.get_mut(&numbers[who]).unwrap().limits;
            let set = match what {
                0 => count(Count::GrpJobs, most / 2),
                1 => tres(TresLimit::GrpTres, "cpu", most),
                2 => tres(TresLimit::GrpTres, "node", most / 4),
                _ => tres(TresLimit::GrpTresRunMins, "cpu", most * 5),
            };
            of.counts.extend(set.counts);
            for (limit, amounts) in set.tres {
                of.tres.entry(limit).or_default().extend(amounts);
            }
        }
        let users = [4, 5, 7, 2].map(AssocId);
        let jobs: Vec<JobView> = jobs.into_iter().zip(1..).map(|((tasks, who, tasks_of_array, named), id)| {
            let mut spec = asks(tasks);
            spec.array = (tasks_of_array > 1).then(|| array(1, tasks_of_array, None));
            if named { spec.nodelist = vec!["n1".to_owned()]; }
            JobView { association: Some(users[who]), ..job(id, spec) }
        }).collect();
        let plan = plan(&site(jobs.clone(), &all), NOW);
        prop_assert_eq!(overbooked(&plan, &jobs, &all), None);
        // Nobody waits without a reason.
        for job in &jobs {
            let starts = plan.starts.iter().any(|start| start.job == job.id);
            prop_assert!(starts || plan.reasons.iter().any(|(of, _)| *of == job.id));
        }
    }
}

#[test]
fn a_repair_offers_a_start_to_who_waited_for_a_limit_and_a_changed_limit_needs_a_new_plan() {
    let one = limited(On::Physics, count(Count::GrpJobs, 1));
    let waiting = queue(vec![asks(1), asks(1)]);
    let (first, kept) = plan_to_keep(site(waiting.clone(), &one), NOW);
    assert_eq!(outcome(&first, 2), ["", "AssocGrpJobsLimit"]);
    let table = kept.as_ref().map(|_| ()).map_err(|_| "plans with limits are kept");
    assert_eq!(table, Ok(()));
    // Job 1 runs on node 0, and job 2 goes on waiting.
    let mut busy = site(vec![waiting[1].clone()], &one);
    let runs = running(&mut busy, 1, 1, 300);
    busy.accounting = busy.accounting.clone().counting(&[runs], &[], &busy.partitions, NOW);
    let (repaired, kept) = kept.unwrap().repair(busy.clone(), NOW).unwrap();
    assert!(repaired.starts.is_empty());
    // It ends: the place is job 2's, without a new plan.
    let (repaired, kept) = kept.repair(site(vec![waiting[1].clone()], &one), NOW).unwrap();
    assert_eq!(repaired.starts.iter().map(|start| start.job.0).collect::<Vec<_>>(), [2]);
    let other = site(vec![waiting[1].clone()], &limited(On::Physics, count(Count::GrpJobs, 0)));
    assert!(kept.repair(other, NOW).is_err());
}

#[test]
fn a_repair_finds_who_comes_under_a_limit_among_any_number_of_jobs() {
    let one = limited(On::Physics, count(Count::GrpJobs, 1));
    // Each asks for another run time; those behind them for the same one.
    let kinds = (1..=700).map(|secs| JobSpec { time_limit: Some(TimeLimit::Secs(300 + secs)), ..asks(1) });
    let same = (0..700).map(|_| asks(1));
    let waiting = queue(kinds.chain(same).collect());
    let (first, kept) = plan_to_keep(site(waiting.clone(), &one), NOW);
    assert_eq!(first.starts.iter().map(|start| start.job.0).collect::<Vec<_>>(), [1]);
    let mut kept = kept.unwrap();
    for runs in 1..4_u32 {
        let waits = waiting[runs as usize..].to_vec();
        let mut busy = site(waits.clone(), &one);
        let run = running(&mut busy, runs, 1, 300);
        busy.accounting = busy.accounting.clone().counting(&[run], &[], &busy.partitions, NOW);
        let (repaired, now_kept) = kept.repair(busy, NOW).unwrap();
        assert!(repaired.starts.is_empty() && !now_kept.is_stale());
        let (repaired, now_kept) = now_kept.repair(site(waits, &one), NOW).unwrap();
        assert_eq!(repaired.starts.iter().map(|start| start.job.0).collect::<Vec<_>>(), [runs + 1]);
        assert!(!now_kept.is_stale(), "nobody was left out");
        kept = now_kept;
    }
}

#[test]
fn used_minutes_are_read_anew_by_repairs() {
    let minutes = limited(On::Physics, tres(TresLimit::GrpTresMins, "cpu", 10));
    let after = |used_minutes: f64| {
        let mut view = site(queue(vec![asks(1)]), &minutes);
        let associations = [(AssocId(3), used(used_minutes * 60.0))].into();
        view.accounting.past = Arc::new(PastUsage { associations, ..PastUsage::default() });
        view
    };
    let (first, kept) = plan_to_keep(after(8.0), NOW);
    assert_eq!(outcome(&first, 1), ["AssocGrpCPUMinutesLimit"]);
    let (repaired, kept) = kept.unwrap().repair(after(6.0), NOW).unwrap();
    assert!(repaired.starts.is_empty());
    let (repaired, _) = kept.repair(after(4.9), NOW).unwrap();
    assert_eq!(repaired.starts.len(), 1, "what decays frees it");
}

/// A run of alice's on two CPUs, where limits hold without `safe`, and what limits of minutes say of it.
fn of_minutes(limits: &Entities, past: Flow, change: impl FnOnce(&mut JobView)) -> Minutes {
    let mut view = site(Vec::new(), limits);
    let run = running(&mut view, 99, 2, 3600);
    let mut run = Arc::unwrap_or_clone(run);
    run.start_time = Some(Timestamp(NOW.0 - 300_000));
    change(&mut run);
    view.accounting.enforce = [EnforceWord::Limits].into_iter().collect();
    let qos = [(1, past.clone())].into();
    let associations = [(AssocId(3), past)].into();
    view.accounting.past = Arc::new(PastUsage { associations, qos, ..PastUsage::default() });
    let said = minutes(&view, &[Arc::new(run.clone())], NOW);
    view.accounting.enforce = [EnforceWord::Safe].into_iter().collect();
    assert_eq!(minutes(&view, &[Arc::new(run)], NOW), Minutes::default(), "with safe none is ended");
    said
}

/// Why the run is ended; else in how many seconds it reaches a limit.
fn said(minutes: &Minutes) -> (Vec<String>, Option<u64>) {
    let why = minutes.over.iter().map(|(job, _, reason)| {
        assert_eq!(*job, JobId(99));
        reason.text().into_owned()
    });
    (why.collect(), minutes.next.map(|at| at.since(NOW).as_secs()))
}

#[test]
fn runs_that_reach_a_limit_of_minutes_are_ended() {
    let flow = |secs: f64| Flow { rate: used(2.0).used, ..used(secs) };
    for (on, why) in [(On::Physics, "AssocGrpCPUMinutesLimit"), (On::Normal, "QOSGrpCPUMinutesLimit")] {
        let ten = limited(on, tres(TresLimit::GrpTresMins, "cpu", 10));
        assert_eq!(said(&of_minutes(&ten, flow(600.0), |_| {})), (vec![why.to_owned()], None));
        assert_eq!(said(&of_minutes(&ten, flow(540.0), |_| {})), (vec![], Some(29)), "60 CPU seconds are left");
        let ends = |run: &mut JobView| run.ending = Some(JobState::Cancelled);
        assert_eq!(said(&of_minutes(&ten, flow(600.0), ends)), (vec![], None), "it ends already");
        assert_eq!(said(&of_minutes(&ten, used(540.0), |_| {})), (vec![], None), "nothing more is used");
        let decays = Flow { half_life_secs: 60, ..flow(540.0) };
        assert_eq!(said(&of_minutes(&ten, decays, |_| {})), (vec![], None), "it decays faster");
    }
    let other = limited(On::Physics, tres(TresLimit::GrpTresMins, "gres/gpu", 0));
    assert_eq!(said(&of_minutes(&other, flow(600.0), |_| {})), (vec![], None), "it has no such TRES");
    let wall = limited(On::Physics, count(Count::GrpWall, 1));
    assert_eq!(said(&of_minutes(&wall, flow(600.0), |_| {})), (vec![], None), "that limit lets no job start");
}

#[test]
fn a_run_that_has_used_up_its_own_minutes_is_ended() {
    for (on, why) in [(On::Alice, "AssocMaxCpuMinutesPerJobLimit"), (On::Normal, "QOSMaxCpuMinutesPerJobLimit")] {
        let limit = |most| limited(on, tres(TresLimit::MaxTresMinsPerJob, "cpu", most));
        assert_eq!(said(&of_minutes(&limit(10), Flow::default(), |_| {})), (vec![why.to_owned()], None));
        assert_eq!(said(&of_minutes(&limit(12), Flow::default(), |_| {})), (vec![], Some(60)));
        let mut half = limit(10);
        half.qos.get_mut("normal").unwrap().usage_factor = 0.5;
        assert_eq!(said(&of_minutes(&half, Flow::default(), |_| {})), (vec![], Some(300)), "UsageFactor counts");
        let stands = |run: &mut JobView| {
            run.state = JobState::Suspended;
            let at = Timestamp(NOW.0 - 30_000);
            run.suspended = Some(SuspendTimes { at, stood_ms: 0, by_admin: false, yielded: None, waits_turn: false });
        };
        assert_eq!(said(&of_minutes(&limit(10), Flow::default(), stands)), (vec![], None), "it stands still");
    }
    // A job that could use them up starts nevertheless.
    let mut view = site(queue(vec![asks(2)]), &limited(On::Alice, tres(TresLimit::MaxTresMinsPerJob, "cpu", 6)));
    assert_eq!(outcome(&plan(&view, NOW), 1), ["AssocMaxCpuMinutesPerJobLimit"]);
    view.accounting.enforce = [EnforceWord::Limits].into_iter().collect();
    assert_eq!(outcome(&plan(&view, NOW), 1), [""]);
}

/// The job and the QOS of each start.
fn starts(plan: &Plan) -> Vec<(u32, &str)> {
    plan.starts.iter().map(|start| (start.job.0, start.qos.as_deref().unwrap_or_default())).collect()
}

fn with_qos(names: &str) -> JobSpec {
    JobSpec { qos: Some(names.to_owned()), ..asks(1) }
}

#[test]
fn a_job_starts_with_the_first_of_its_qos_whose_limits_let_it() {
    let mut all = entities();
    all.qos.get_mut("high").unwrap().limits = count(Count::GrpJobs, 1);
    let jobs =
        || queue(vec![with_qos("high,normal"), with_qos("high,normal"), with_qos("high"), with_qos("low,nosuch")]);
    let made = plan(&site(jobs(), &all), NOW);
    assert_eq!(starts(&made), [(1, "high"), (2, "normal"), (4, "low")]);
    assert_eq!(outcome(&made, 4)[2], "QOSGrpJobsLimit");
    // Where none of them lets it, it waits.
    all.qos.get_mut("normal").unwrap().limits = count(Count::GrpJobs, 0);
    assert_eq!(outcome(&plan(&site(jobs(), &all), NOW), 4), ["", "QOSGrpJobsLimit", "QOSGrpJobsLimit", ""]);
    // Tasks of an array go on with the next one.
    let tasks = queue(vec![JobSpec { array: Some(array(1, 3, None)), ..with_qos("high,low") }]);
    let made = plan(&site(tasks, &all), NOW);
    assert_eq!(starts(&made), [(1, "high"), (1, "low"), (1, "low")]);
    // A partition that takes one of them only.
    let mut closed = site(queue(vec![with_qos("high,low")]), &entities());
    let mut takes = garrick_model::config::PartitionConfig::named("debug");
    takes.set("DenyQos", "high").unwrap();
    closed.partitions[0].takes = Some(Arc::new(takes));
    assert_eq!(starts(&plan(&closed, NOW)), [(1, "low")]);
}

#[test]
fn a_job_that_waits_for_resources_has_them_reserved_once_whatever_its_qos() {
    let wide = |names: &str| on_nodes(JobSpec { qos: Some(names.to_owned()), ..asks(6) }, 3);
    let mut view = site(queue(vec![on_nodes(asks(6), 3), wide("high,normal")]), &entities());
    view.pending.reverse();
    let (made, kept) = plan_to_keep(view, NOW);
    assert_eq!(starts(&made).len(), 1);
    assert_eq!(kept.unwrap().reservations().len(), 1);
}

#[test]
fn a_repair_gives_a_job_with_several_qos_the_one_that_is_free() {
    let mut all = entities();
    for name in ["high", "normal"] {
        all.qos.get_mut(name).unwrap().limits = count(Count::GrpJobs, 1);
    }
    let waiting = queue(vec![with_qos("high"), with_qos("normal"), with_qos("high,normal")]);
    let (first, kept) = plan_to_keep(site(waiting.clone(), &all), NOW);
    assert_eq!((starts(&first), outcome(&first, 3)[2].as_str()), (vec![(1, "high"), (2, "normal")], "QOSGrpJobsLimit"));
    let with = |ids: &[u32]| {
        let mut busy = site(vec![waiting[2].clone()], &all);
        let runs: Vec<Arc<JobView>> = ids
            .iter()
            .map(|id| {
                let run = running(&mut busy, *id, 1, 300);
                Arc::new(JobView { spec: Arc::clone(&waiting[*id as usize - 1].spec), ..(*run).clone() })
            })
            .collect();
        busy.accounting = busy.accounting.clone().counting(&runs, &[], &busy.partitions, NOW);
        busy
    };
    let (repaired, kept) = kept.unwrap().repair(with(&[1, 2]), NOW).unwrap();
    assert_eq!(starts(&repaired), []);
    // The job of `normal` ends.
    let (repaired, _) = kept.repair(with(&[1]), NOW).unwrap();
    assert_eq!(starts(&repaired), [(3, "normal")]);
}

#[test]
fn starts_that_no_job_shows_yet_count_for_the_qos_that_they_have() {
    let mut all = entities();
    for name in ["high", "low"] {
        all.qos.get_mut(name).unwrap().limits = count(Count::GrpJobs, 1);
    }
    let jobs = || queue(vec![with_qos("low,normal"), with_qos("low"), with_qos("normal")]);
    let made = plan(&site(jobs(), &all), NOW);
    assert_eq!(starts(&made), [(1, "low"), (3, "normal")]);
    // Proposed, and not answered.
    let mut view = site(jobs(), &all);
    view.count_starts(&made.starts[..1]);
    view.pending.remove(0);
    assert_eq!(starts(&plan(&view, NOW)), [(3, "normal")]);
    // Its nodes are its own, and which of its QOS it has is not shown.
    let mut view = site(queue(vec![with_qos("high,low"), with_qos("low"), with_qos("high"), with_qos("normal")]), &all);
    let hold = NodeHold { partition: Some("debug".to_owned()), ..hold(1, 0..1, 100, None) };
    Arc::make_mut(&mut view.nodes[0]).holds.push(hold);
    let waiting = view.pending.to_vec();
    view.accounting = view.accounting.clone().counting(&waiting, &view.nodes, &view.partitions, NOW);
    view.pending.remove(0);
    assert_eq!(starts(&plan(&view, NOW)), [(4, "normal")]);
}

#[test]
fn repairs_do_not_look_again_at_jobs_of_several_qos_while_nothing_changes() {
    let mut all = entities();
    all.qos.get_mut("high").unwrap().limits = count(Count::GrpJobs, 1);
    let mut takes = garrick_model::config::PartitionConfig::named("debug");
    takes.set("DenyQos", "normal").unwrap();
    let takes = Arc::new(takes);
    // With `normal` they wait for nodes, or the partition does not take them.
    for closed in [false, true] {
        let first = JobSpec { qos: Some("high".to_owned()), ..asks(4) };
        let other = || on_nodes(JobSpec { qos: Some("high,normal".to_owned()), ..asks(12) }, 3);
        let waiting = queue(vec![first, other(), other()]);
        let view = |jobs: &[JobView]| {
            let mut view = site(jobs.to_vec(), &all);
            view.partitions[0].takes = closed.then(|| Arc::clone(&takes));
            view
        };
        let (made, kept) = plan_to_keep(view(&waiting), NOW);
        assert_eq!(starts(&made), [(1, "high")], "{closed}");
        let mut busy = view(&waiting[1..]);
        let run = running(&mut busy, 1, 4, 300);
        let run = Arc::new(JobView { spec: Arc::clone(&waiting[0].spec), ..(*run).clone() });
        busy.accounting = busy.accounting.clone().counting(&[run], &[], &busy.partitions, NOW);
        let (repaired, kept) = kept.unwrap().repair(busy.clone(), NOW).unwrap();
        assert_eq!(starts(&repaired), [], "{closed}");
        let (repaired, kept) = kept.repair(busy, NOW).unwrap();
        assert!(repaired.starts.is_empty() && repaired.reasons.is_empty(), "{closed}: {:?}", repaired.reasons);
        // The first job ends.
        let (repaired, _) = kept.repair(view(&waiting[1..]), NOW).unwrap();
        assert_eq!(starts(&repaired).first(), Some(&(2, "high")), "{closed}");
    }
}
