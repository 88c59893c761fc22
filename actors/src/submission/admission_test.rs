//! Submission rules, one by one.
#![allow(clippy::unwrap_used)]

use crate::controller::fixtures::Site;
use garrick_events::records::job::JobRecord;
use garrick_events::records::job::Resolved;
use garrick_model::{
    gres::{GresBinding, GresCount, GresRequest},
    ids::JobId,
    node_shape::SpecCores,
    refusal::Refusal,
    resources::{MemoryMib, MemoryRequest},
    spec::{DependencyKind, JobSpec, LayoutRequest, NodeCount, Sharing},
    testing::{array, depends_on, spec},
    time::{TimeLimit, Timestamp},
};

const HEAD: &str = "ClusterName=test\nSlurmctldHost=head\n";

const SITE: &str = "\
NodeName=n[0-1] CPUs=4 RealMemory=1000 Features=gpu
PartitionName=debug Nodes=ALL Default=YES MaxTime=60 DefaultTime=10
PartitionName=staff Nodes=n0 AllowGroups=staff
PartitionName=off Nodes=n0 State=DRAIN
PartitionName=root Nodes=n0 RootOnly=YES
PartitionName=whole Nodes=n0 OverSubscribe=EXCLUSIVE DefMemPerCPU=100 MaxMemPerCPU=200
";

fn submit(site: &str, uid: u32, spec: JobSpec) -> Result<JobRecord, Refusal> {
    Site::new(&format!("{HEAD}{site}")).submit(uid, spec)
}

fn refusal(spec: JobSpec) -> Refusal {
    submit(SITE, 1001, spec).unwrap_err()
}

fn accepted(spec: JobSpec) -> JobRecord {
    submit(SITE, 1001, spec).unwrap()
}

fn on(partition: &str) -> JobSpec {
    JobSpec { partitions: vec![partition.to_owned()], ..spec() }
}

#[test]
fn defaults_are_filled_in_from_the_partition() {
    let record = accepted(JobSpec { time_limit: None, ..spec() });
    let resolved = &record.resolved;
    assert_eq!(
        (resolved.partitions.as_slice(), resolved.time_limit),
        (&["debug".to_owned()][..], TimeLimit::Secs(600))
    );
    assert_eq!((resolved.tasks, resolved.min_nodes, resolved.max_nodes, resolved.cpus), (1, 1, 1, 1));
    assert_eq!(record.priority, 4_294_901_756);
    assert_eq!((record.owner.user.as_str(), record.owner.groups.as_slice()), ("alice", &[1001, 50][..]));
    let record = accepted(JobSpec { memory: MemoryRequest::Default, ..on("whole") });
    assert_eq!(record.resolved.memory, MemoryRequest::PerCpu(MemoryMib(100)));
    assert_eq!(record.resolved.sharing, Sharing::Exclusive);
}

#[test]
fn a_job_has_the_label_that_the_site_lets_it_have() {
    let asks = |settings: &str, uid, label: Option<&str>, sharing| {
        let spec = JobSpec { mcs_label: label.map(str::to_owned), sharing, ..spec() };
        let admitted = submit(&format!("{settings}\n{SITE}"), uid, spec);
        admitted.map(|admitted| (admitted.spec.mcs_label.clone(), admitted.resolved.sharing))
    };
    let label = |text: &str| Some(text.to_owned());
    let groups = "MCSPlugin=mcs/group\nMCSParameters=ondemand,select:users|staff";
    assert_eq!(asks(groups, 1001, Some("users"), Sharing::Default), Ok((label("users"), Sharing::Mcs)));
    assert_eq!(asks(groups, 1001, None, Sharing::Default), Ok((None, Sharing::Default)));
    let refused = Err(Refusal::InvalidMcsLabel(label("staff")));
    assert_eq!(asks(groups, 1001, Some("staff"), Sharing::Default), refused, "not in that group");
    let by_user = "MCSPlugin=mcs/user\nMCSParameters=enforced";
    assert_eq!(asks(by_user, 1001, None, Sharing::Mcs), Ok((label("alice"), Sharing::Mcs)));
    assert_eq!(asks(by_user, 1001, None, Sharing::Default), Ok((label("alice"), Sharing::Default)));
    let by_account = "MCSPlugin=mcs/account\nMCSParameters=enforced";
    assert_eq!(asks(by_account, 1001, None, Sharing::Default), Err(Refusal::InvalidMcsLabel(None)));
    assert_eq!(asks("", 1001, Some("any"), Sharing::Mcs), Ok((None, Sharing::Default)), "there are no labels");
}

#[test]
fn a_task_that_wants_more_memory_than_a_cpu_may_bring_gets_more_cpus() {
    let record = accepted(JobSpec { memory: MemoryRequest::PerCpu(MemoryMib(300)), ..on("whole") });
    assert_eq!((record.resolved.cpus_per_task, record.resolved.memory), (2, MemoryRequest::PerCpu(MemoryMib(150))));
}

#[test]
fn node_and_task_counts_are_made_to_agree() {
    let count = |min, max| Some(NodeCount { min, max });
    let record = accepted(JobSpec { tasks: Some(4), tasks_per_node: Some(2), ..spec() });
    assert_eq!((record.resolved.min_nodes, record.resolved.max_nodes), (2, 4));
    let record = accepted(JobSpec { nodes: count(2, None), tasks_per_node: Some(3), ..spec() });
    assert_eq!((record.resolved.tasks, record.resolved.max_nodes), (6, 2));
    let record = accepted(JobSpec { nodes: count(2, None), tasks: Some(1), ..spec() });
    assert_eq!(record.resolved.min_nodes, 1);
    for wrong in [
        JobSpec { nodes: count(0, None), ..spec() },
        JobSpec { nodes: count(3, Some(2)), ..spec() },
        JobSpec { tasks: Some(0), ..spec() },
        JobSpec { nodes: count(1, Some(1)), nodelist: vec!["n0".to_owned(), "n1".to_owned()], ..spec() },
    ] {
        assert_eq!(refusal(wrong), Refusal::BadNodeCount);
    }
}

#[test]
fn partitions_decide_who_may_come() {
    assert_eq!(refusal(on("nosuch")), Refusal::InvalidPartition("nosuch".to_owned()));
    assert_eq!(refusal(on("staff")), Refusal::GroupNotPermitted);
    assert_eq!(refusal(on("off")), Refusal::PartitionUnavailable);
    assert_eq!(refusal(on("root")), Refusal::AccessDenied);
    assert!(submit(SITE, 0, on("root")).is_ok());
    let both = JobSpec { partitions: vec!["staff".to_owned(), "debug".to_owned()], ..spec() };
    assert_eq!(accepted(both).resolved.partitions, ["debug"]);
    let none = submit("NodeName=n0 CPUs=4\nPartitionName=p Nodes=n0\n", 1001, spec()).unwrap_err();
    assert_eq!(none, Refusal::NoPartition);
}

#[test]
fn root_submits_nothing_where_the_site_says_so() {
    for (key, own, root_may) in [
        ("", "", true),
        ("DisableRootJobs=YES\n", "", false),
        ("DisableRootJobs=YES\n", "DisableRootJobs=NO", true),
        ("", "DisableRootJobs=YES", false),
    ] {
        let site = format!("{key}NodeName=n0 CPUs=4 RealMemory=1000\nPartitionName=debug Nodes=n0 Default=YES {own}\n");
        let root = submit(&site, 0, spec()).map(|_| ());
        assert_eq!(root, if root_may { Ok(()) } else { Err(Refusal::AccessDenied) }, "{key}{own}");
        assert!(submit(&site, 1001, spec()).is_ok(), "{key}{own}");
    }
}

#[test]
fn what_could_never_run_is_refused_with_its_reason() {
    let detail = |text: &str| Refusal::NodeConfigUnavailable { detail: Some(text.to_owned()) };
    let memory = JobSpec { memory: MemoryRequest::PerNode(MemoryMib(5000)), ..spec() };
    assert_eq!(refusal(memory.clone()), detail("Memory specification can not be satisfied"));
    // Nor where memory is no resource that jobs are given.
    let by_cpu = format!("SelectTypeParameters=CR_CPU\n{SITE}");
    assert_eq!(submit(&by_cpu, 1001, memory).unwrap_err(), detail("Memory specification can not be satisfied"));
    let disk = JobSpec { tmp_disk_mib: 10, ..spec() };
    assert!(submit(SITE, 1001, JobSpec { hold: true, ..disk.clone() }).is_ok());
    assert_eq!(refusal(disk), detail("Temporary disk specification can not be satisfied"));
    assert_eq!(
        refusal(JobSpec { cpus_per_task: Some(5), ..spec() }),
        detail("CPU count per node can not be satisfied")
    );
    let all = Refusal::NodeConfigUnavailable { detail: None };
    let one = Some(NodeCount { min: 1, max: Some(1) });
    assert_eq!(refusal(JobSpec { tasks: Some(5), nodes: one, ..spec() }), all);
    // More CPUs or nodes than the partition has may wait, unless the site says otherwise.
    let strict = format!("EnforcePartLimits=ALL\n{SITE}");
    let many = JobSpec { tasks: Some(9), ..spec() };
    assert!(submit(SITE, 1001, many.clone()).is_ok());
    assert_eq!(submit(&strict, 1001, many).unwrap_err(), Refusal::TooManyCpus);
    let wide = JobSpec { nodes: Some(NodeCount { min: 3, max: None }), ..spec() };
    assert!(submit(SITE, 1001, wide.clone()).is_ok());
    assert_eq!(submit(&strict, 1001, wide).unwrap_err(), Refusal::BadNodeCount);
    let long = JobSpec { time_limit: Some(TimeLimit::Secs(7200)), ..spec() };
    assert!(submit(SITE, 1001, long.clone()).is_ok());
    assert_eq!(submit(&strict, 1001, long).unwrap_err(), Refusal::InvalidTimeLimit);
}

#[test]
fn features_and_nodes_must_exist() {
    let with = |text: &str| JobSpec { constraint: Some(text.to_owned()), ..spec() };
    assert!(submit(SITE, 1001, with("gpu")).is_ok());
    assert_eq!(refusal(with("gpu&nosuch")), Refusal::InvalidFeature("gpu&nosuch".to_owned()));
    assert_eq!(refusal(with("gpu&")), Refusal::InvalidFeature("gpu&".to_owned()));
    assert_eq!(refusal(with("gpu*0")), Refusal::InvalidFeature("gpu*0".to_owned()));
    assert_eq!(accepted(with("gpu*2")).resolved.min_nodes, 2);
    assert!(matches!(refusal(with("gpu*3")), Refusal::NodeConfigUnavailable { .. } | Refusal::BadNodeCount));
    assert_eq!(refusal(with("[gpu|nosuch]")), Refusal::InvalidFeature("[gpu|nosuch]".to_owned()));
    let prefers = |text: &str| JobSpec { prefer: Some(text.to_owned()), ..spec() };
    assert_eq!(refusal(prefers("nosuch")), Refusal::InvalidFeature("nosuch".to_owned()));
    assert_eq!(refusal(JobSpec { nodelist: vec!["n9".to_owned()], ..spec() }), Refusal::InvalidNode("n9".to_owned()));
}

#[test]
fn features_of_the_batch_host_are_a_part_of_those_of_the_job() {
    let with = |constraint: Option<&str>, batch: &str| JobSpec {
        constraint: constraint.map(str::to_owned),
        batch_features: Some(batch.to_owned()),
        ..spec()
    };
    assert_eq!(accepted(with(Some("gpu"), "gpu")).spec.batch_features.as_deref(), Some("gpu"));
    for (constraint, batch) in [(None, "gpu"), (Some("gpu"), "fast"), (Some("gpu"), "gpu&"), (Some("gpu"), "gpu*2")] {
        let wrong = Refusal::InvalidFeature(batch.to_owned());
        assert_eq!(refusal(with(constraint, batch)), wrong, "{constraint:?} {batch}");
    }
}

#[test]
fn nodes_are_rebooted_for_jobs_of_administrators_which_have_them_alone() {
    let reboots = || JobSpec { reboot: true, ..spec() };
    let lines = vec!["rebooting of nodes is only allowed for admins".to_owned()];
    assert_eq!(refusal(reboots()), Refusal::Said { lines, refusal: Box::new(Refusal::AccessDenied) });
    let record = submit(SITE, 0, reboots()).unwrap();
    assert!(record.spec.reboot && record.spec.sharing == Sharing::Exclusive);
}

#[test]
fn licenses_must_be_there() {
    let site = format!("Licenses=foo:4,bar\n{SITE}");
    let with = |text: &str| submit(&site, 1001, JobSpec { licenses: Some(text.to_owned()), ..spec() });
    for text in ["foo", "foo:4,bar", "foo:5|bar"] {
        assert!(with(text).is_ok(), "{text}");
    }
    for text in ["nosuch", "foo:5", "bar:2", "foo:5|bar:2", "foo|nosuch", "foo:", "foo,bar|foo"] {
        assert_eq!(with(text).unwrap_err(), Refusal::InvalidLicense(text.to_owned()));
    }
}

#[test]
fn arrays_and_dependencies_must_make_sense() {
    let of = |array| JobSpec { array: Some(array), ..spec() };
    assert_eq!(accepted(of(array(1, 10, Some(2)))).array.unwrap().pending.len(), 10);
    assert_eq!(refusal(of(array(1, 1001, None))), Refusal::InvalidArray);
    assert_eq!(refusal(of(array(5, 1, None))), Refusal::InvalidArray);
    assert_eq!(refusal(of(array(0, u32::MAX, None))), Refusal::InvalidArray);
    assert!(submit(SITE, 1001, depends_on(DependencyKind::AfterOk, 3)).is_ok());
    assert_eq!(refusal(depends_on(DependencyKind::AfterOk, 99)), Refusal::Dependency);
}

#[test]
fn priority_and_nice_are_for_administrators() {
    assert_eq!(refusal(JobSpec { nice: -10, ..spec() }), Refusal::InvalidNice);
    assert_eq!(accepted(JobSpec { nice: 10, ..spec() }).priority, 4_294_901_746);
    assert_eq!(accepted(JobSpec { priority: Some(5), ..spec() }).priority, 4_294_901_756, "passed over");
    assert_eq!(submit(SITE, 0, JobSpec { priority: Some(5), ..spec() }).unwrap().priority, 5);
    assert!(accepted(JobSpec { hold: true, ..spec() }).hold.is_some());
}

#[test]
fn a_batch_job_needs_a_script() {
    assert!(matches!(refusal(JobSpec { script: None, ..spec() }), Refusal::InvalidScript(_)));
    assert!(matches!(refusal(JobSpec { het: Some((JobId(1), 0)), ..spec() }), Refusal::NotSupported(_)));
}

#[test]
fn some_partitions_are_for_jobs_in_reservations() {
    let site = format!("{SITE}\nPartitionName=class Nodes=n0 ReqResv=YES\n");
    let on = |reservations: &[&str]| {
        let reservations = reservations.iter().map(|name| (*name).to_owned()).collect();
        let asked = JobSpec { partitions: vec!["class".into()], reservations, ..spec() };
        Site::new(&format!("{HEAD}{site}")).reserved("course").submit(1001, asked)
    };
    assert_eq!(on(&[]).unwrap_err(), Refusal::AccessDenied);
    assert!(on(&["course"]).is_ok());
    assert_eq!(on(&["lecture"]).unwrap_err(), Refusal::InvalidReservation("lecture".to_owned()));
}

#[test]
fn with_enforce_binding_gres_jobs_with_gpus_get_cpus_near_to_them_unless_they_say_otherwise() {
    let site = |words: &str| {
        format!(
            "GresTypes=gpu\nSelectTypeParameters={words}\nNodeName=n0 CPUs=4 RealMemory=1000 Gres=gpu:2\n\
             PartitionName=debug Nodes=ALL Default=YES\n"
        )
    };
    let gpus = |binding| {
        let per_node = vec![GresCount { name: "gpu".into(), kind: None, count: 1 }];
        JobSpec { gres: GresRequest { per_node, binding, ..GresRequest::default() }, ..spec() }
    };
    let binding = |words: &str, spec| submit(&site(words), 1001, spec).unwrap().spec.gres.binding;
    assert_eq!(binding("CR_Core,ENFORCE_BINDING_GRES", gpus(None)), Some(GresBinding::Enforce));
    assert_eq!(binding("CR_Core,ENFORCE_BINDING_GRES", gpus(Some(GresBinding::Disable))), Some(GresBinding::Disable));
    assert_eq!(binding("CR_Core,ENFORCE_BINDING_GRES", spec()), None);
    assert_eq!(binding("CR_Core", gpus(None)), None);
}

#[test]
fn cores_left_to_the_system_make_the_node_the_jobs_own_and_count_where_the_site_allows_it() {
    let leaving = |cores| {
        let layout = LayoutRequest { left_to_system: Some(SpecCores::Cores(cores)), ..LayoutRequest::default() };
        JobSpec { layout, ..spec() }
    };
    let record = accepted(leaving(1));
    assert_eq!((record.resolved.sharing, record.spec.layout.left_to_system), (Sharing::Exclusive, None));
    let allowed = format!("AllowSpecResourcesUsage=YES\n{SITE}");
    let record = submit(&allowed, 1001, leaving(1)).unwrap();
    assert_eq!(record.resolved.sharing, Sharing::Exclusive);
    assert_eq!(record.spec.layout.left_to_system, Some(SpecCores::Cores(1)));
    let refused = submit(&allowed, 1001, leaving(4)).unwrap_err();
    assert!(matches!(refused, Refusal::NodeConfigUnavailable { .. }), "{refused:?}");
}

#[test]
fn jobs_with_gpus_get_cpus_and_memory_for_each_where_they_do_not_say() {
    let site = "GresTypes=gpu\nDefCpuPerGPU=2\nDefMemPerGPU=100\nNodeName=n0 CPUs=16 RealMemory=1000 Gres=gpu:4\n\
                PartitionName=debug Nodes=ALL Default=YES\n\
                PartitionName=own Nodes=ALL DefCpuPerGPU=3 DefMemPerGPU=200\n\
                PartitionName=both Nodes=ALL JobDefaults=DefCpuPerGPU=4,DefMemPerGPU=50\n\
                PartitionName=other Nodes=ALL DefMemPerCPU=10\n";
    let gpus = |partition: &str| {
        let per_node = vec![GresCount { name: "gpu".into(), kind: None, count: 2 }];
        let gres = GresRequest { per_node, ..GresRequest::default() };
        JobSpec { gres, memory: MemoryRequest::Default, ..on(partition) }
    };
    let of = |spec: JobSpec| {
        let record = submit(site, 1001, spec).unwrap();
        let gres = &record.spec.gres;
        (gres.cpus_per_gpu, gres.mem_per_gpu.map(|m| m.0), record.resolved.cpus, record.resolved.memory)
    };
    assert_eq!(of(gpus("debug")), (Some(2), Some(100), 4, MemoryRequest::Default));
    assert_eq!(of(gpus("own")), (Some(3), Some(200), 6, MemoryRequest::Default));
    assert_eq!(of(gpus("both")), (Some(4), Some(50), 8, MemoryRequest::Default));
    assert_eq!(of(gpus("other")), (Some(2), None, 4, MemoryRequest::PerCpu(MemoryMib(10))));
    let said = JobSpec { cpus_per_task: Some(1), memory: MemoryRequest::PerNode(MemoryMib(5)), ..gpus("own") };
    assert_eq!(of(said), (None, None, 1, MemoryRequest::PerNode(MemoryMib(5))));
    let none = JobSpec { memory: MemoryRequest::Default, ..on("own") };
    assert_eq!(of(none), (None, None, 1, MemoryRequest::Default));
}

const CHOOSY: &str = "\
NodeName=n[0-1] CPUs=4 RealMemory=1000
PartitionName=open Nodes=ALL Default=YES
PartitionName=physics Nodes=ALL AllowAccounts=physics
PartitionName=fast Nodes=ALL DenyQos=low
PartitionName=old Nodes=ALL State=DRAIN Alternate=older
PartitionName=older Nodes=ALL State=INACTIVE Alternate=open
PartitionName=round Nodes=ALL State=DRAIN Alternate=about
PartitionName=about Nodes=ALL State=DRAIN Alternate=round
";

#[test]
fn accounts_and_qos_count_at_submission_where_limits_are_enforced() {
    let of = |account: &str, qos: &str, partitions: &[&str]| JobSpec {
        account: Some(account.to_owned()),
        qos: Some(qos.to_owned()),
        partitions: partitions.iter().map(|p| (*p).to_owned()).collect(),
        ..spec()
    };
    let with = |enforce: &str, uid: u32, spec: JobSpec| {
        let site = format!("EnforcePartLimits={enforce}\n{CHOOSY}");
        submit(&site, uid, spec).map(|admitted| admitted.resolved.partitions)
    };
    let wrong_account = Err(Refusal::InvalidAccount(Some("maths".to_owned())));
    let wrong_qos = Err(Refusal::InvalidQos(Some("low".to_owned())));
    let names = |names: &[&str]| Ok(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
    for enforce in ["ANY", "ALL"] {
        assert_eq!(with(enforce, 1001, of("maths", "", &["physics"])), wrong_account);
        assert_eq!(with(enforce, 1001, of("physics", "low", &["fast"])), wrong_qos);
        assert_eq!(with(enforce, 0, of("physics", "low", &["fast"])), names(&["fast"]));
        assert_eq!(with(enforce, 1001, of("physics", "", &["physics", "fast"])), names(&["physics", "fast"]));
    }
    assert_eq!(with("ANY", 1001, of("maths", "", &["physics", "open"])), names(&["open"]));
    assert_eq!(with("ALL", 1001, of("maths", "", &["physics", "open"])), wrong_account);
    // It waits until the partition takes it.
    assert_eq!(with("NO", 1001, of("maths", "low", &["physics", "fast"])), names(&["physics", "fast"]));
    let text = Refusal::InvalidAccount(None).to_string();
    assert_eq!(text, "Invalid account or account/partition combination specified");
}

#[test]
fn jobs_for_a_closed_partition_go_to_its_alternate() {
    let to = |partitions: &[&str]| {
        let partitions = partitions.iter().map(|p| (*p).to_owned()).collect();
        submit(CHOOSY, 1001, JobSpec { partitions, ..spec() }).map(|admitted| admitted.resolved.partitions)
    };
    assert_eq!(to(&["old"]), Ok(vec!["open".to_owned()]));
    assert_eq!(to(&["open", "old", "fast"]), Ok(vec!["open".to_owned(), "fast".to_owned()]));
    assert_eq!(to(&["round"]), Err(Refusal::PartitionUnavailable));
}

#[test]
fn scheduler_parameters_bound_what_may_be_submitted() {
    let with = |words: &str, spec: JobSpec| {
        submit(&format!("Licenses=abc:1\nSchedulerParameters={words}\n{SITE}"), 1001, spec).map(|_| ())
    };
    let tasks = |last| JobSpec { array: Some(array(1, last, None)), ..spec() };
    assert_eq!(with("max_array_tasks=3", tasks(3)), Ok(()));
    assert_eq!(with("max_array_tasks=3", tasks(4)), Err(Refusal::InvalidArray));
    let wants = || JobSpec { constraint: Some("later".to_owned()), ..spec() };
    assert_eq!(with("defer", wants()), Err(Refusal::InvalidFeature("later".to_owned())));
    assert_eq!(with("ignore_constraint_validation", wants()), Ok(()));
    let prefers = || JobSpec { prefer: Some("later".to_owned()), ..spec() };
    assert_eq!(with("ignore_constraint_validation", prefers()), Err(Refusal::InvalidFeature("later".to_owned())));
    assert_eq!(with("ignore_prefer_validation", prefers()), Ok(()));
    let licenses = || JobSpec { licenses: Some("abc:2".to_owned()), ..spec() };
    assert_eq!(with("defer", licenses()), Err(Refusal::InvalidLicense("abc:2".to_owned())));
    assert_eq!(with("allow_zero_lic", licenses()), Ok(()));
    let size = with("max_script_size=9", spec()).unwrap_err().to_string();
    assert_eq!(size, "Batch script is invalid: it has 10 bytes, and this cluster takes 9 (max_script_size)");
    assert_eq!(with("max_script_size=10", spec()), Ok(()));
}

#[test]
fn memory_for_each_gpu_says_nothing_without_gpus() {
    let site = "GresTypes=gpu\nDefMemPerCPU=100\nNodeName=n0 CPUs=4 RealMemory=1000 Gres=gpu:2\n\
        PartitionName=debug Nodes=ALL Default=YES\n";
    let with = |count| {
        let per_node = if count > 0 { vec![GresCount { name: "gpu".into(), kind: None, count }] } else { Vec::new() };
        let gres = GresRequest { per_node, mem_per_gpu: Some(MemoryMib(300)), ..GresRequest::default() };
        submit(site, 1001, JobSpec { gres, memory: MemoryRequest::Default, ..spec() }).unwrap()
    };
    let none = with(0);
    assert_eq!((none.resolved.memory, none.spec.gres.mem_per_gpu), (MemoryRequest::PerCpu(MemoryMib(100)), None));
    let one = with(1);
    assert_eq!((one.resolved.memory, one.spec.gres.mem_per_gpu), (MemoryRequest::Default, Some(MemoryMib(300))));
}

/// `--gpus` is the total, and says with the number for each node how many nodes there are.
#[test]
fn gpus_asked_for_in_several_ways_must_agree() {
    let site = "GresTypes=gpu\nNodeName=n[0-3] CPUs=8 RealMemory=1000 Gres=gpu:4\n\
        PartitionName=debug Nodes=ALL Default=YES\n";
    let gpus = |count: u64| match count {
        0 => Vec::new(),
        count => vec![GresCount { name: "gpu".into(), kind: None, count }],
    };
    let fixed = |n: u32| Some(NodeCount { min: n, max: Some(n) });
    let asked = |total, on_node, of_task| GresRequest {
        total: gpus(total),
        gpus_per_node: gpus(on_node),
        per_task: gpus(of_task),
        ..GresRequest::default()
    };
    let job = |gres, nodes, tasks, tasks_per_node| JobSpec { gres, nodes, tasks, tasks_per_node, ..spec() };
    let of_sockets = GresRequest { sockets: Some(2), per_socket: gpus(2), ..asked(2, 0, 0) };
    let of_gres = GresRequest { per_node: gpus(2), ..asked(1, 0, 0) };
    for contradiction in [
        job(asked(5, 2, 0), None, None, None),
        job(asked(3, 2, 0), fixed(2), None, None),
        job(asked(2, 4, 0), None, None, None),
        job(asked(4, 2, 0), fixed(1), None, None),
        job(asked(4, 2, 0), None, Some(1), None),
        job(of_gres, None, None, None),
        job(of_sockets, None, None, None),
        job(asked(0, 1, 1), fixed(2), None, Some(3)),
        job(asked(0, 1, 1), fixed(2), Some(3), None),
        job(asked(0, 1, 2), None, Some(1), None),
        job(asked(0, 0, 1), None, None, None),
        job(asked(0, 0, 1), Some(NodeCount { min: 1, max: Some(2) }), None, None),
    ] {
        let refused = submit(site, 1001, contradiction.clone()).unwrap_err();
        assert!(matches!(refused, Refusal::InvalidGres(_)), "{refused:?} for {contradiction:?}");
    }
    let shape = |spec: JobSpec| {
        let record = submit(site, 1001, spec).unwrap();
        let Resolved { min_nodes, max_nodes, tasks, .. } = record.resolved;
        (min_nodes, max_nodes, tasks)
    };
    assert_eq!(shape(job(asked(4, 2, 0), None, None, None)), (2, 2, 2));
    assert_eq!(shape(job(asked(4, 2, 0), Some(NodeCount { min: 1, max: Some(4) }), Some(4), None)), (2, 2, 4));
    assert_eq!(shape(job(asked(4, 2, 1), None, None, None)), (2, 2, 4));
    assert_eq!(shape(job(asked(0, 2, 1), fixed(2), None, None)), (2, 2, 4));
    assert_eq!(shape(job(asked(0, 2, 1), None, Some(3), None)), (2, 3, 3));
    assert_eq!(shape(job(asked(0, 0, 1), None, Some(3), None)).2, 3);
    assert_eq!(shape(job(asked(0, 0, 1), fixed(2), None, None)), (2, 2, 2));
}

/// Steps multiply it with the CPUs of a task.
#[test]
fn memory_per_cpu_beyond_the_limit_is_less_for_more_cpus_in_what_steps_are_told_too() {
    let memory = MemoryRequest::PerCpu(MemoryMib(350));
    let record = accepted(JobSpec { memory, tasks: Some(1), ..on("whole") });
    assert_eq!((record.spec.cpus_per_task, record.resolved.cpus_per_task), (Some(2), 2));
    assert_eq!(
        (record.spec.memory, record.resolved.memory),
        (MemoryRequest::PerCpu(MemoryMib(175)), record.spec.memory)
    );
}

#[test]
fn a_node_that_is_to_give_more_memory_than_its_cpus_may_bring_gives_more_cpus() {
    let site = |limit: &str| {
        format!("NodeName=n[0-1] CPUs=4 RealMemory=4000\nPartitionName=debug Nodes=ALL Default=YES {limit}\n")
    };
    let asked = |limit: &str, spec| submit(&site(limit), 1001, spec);
    let per_node = |mib| JobSpec { memory: MemoryRequest::PerNode(MemoryMib(mib)), ..spec() };
    let record = asked("MaxMemPerCPU=500", per_node(1400)).unwrap();
    assert_eq!((record.spec.min_cpus_per_node, record.resolved.cpus), (Some(3), 3));
    assert_eq!(record.resolved.memory, MemoryRequest::PerNode(MemoryMib(1400)));
    let wide = JobSpec { cpus_per_task: Some(4), ..per_node(1400) };
    assert_eq!(asked("MaxMemPerCPU=500", wide).unwrap().spec.min_cpus_per_node, None);
    let refused = |limit: &str, spec| match asked(limit, spec).unwrap_err() {
        Refusal::NodeConfigUnavailable { detail } => detail.unwrap_or_default(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused("MaxMemPerCPU=500", per_node(2100)), "CPU count per node can not be satisfied");
    let memory = "Memory specification can not be satisfied";
    assert_eq!(refused("MaxMemPerNode=2000", per_node(2100)), memory);
    let by_cpu = JobSpec { memory: MemoryRequest::PerCpu(MemoryMib(1500)), cpus_per_task: Some(2), ..spec() };
    assert_eq!(refused("MaxMemPerNode=2000", by_cpu), memory);
}

#[test]
fn a_least_limit_is_within_the_limit_and_both_before_the_deadline() {
    let secs = |secs| Some(TimeLimit::Secs(secs));
    let with = |limit, least, deadline: Option<i64>, begin: Option<i64>| {
        let deadline = deadline.map(Timestamp::from_secs);
        let begin = begin.map(Timestamp::from_secs);
        submit(SITE, 1001, JobSpec { time_limit: secs(limit), time_min: least, deadline, begin, ..spec() }).map(drop)
    };
    assert_eq!(with(1200, secs(1500), None, None), Err(Refusal::InvalidTimeLimit));
    assert_eq!(with(1200, secs(1200), None, None), Ok(()));
    // It is 1000 now.
    assert_eq!(with(1200, None, Some(2199), None), Err(Refusal::InvalidTimeLimit));
    assert_eq!(with(1200, None, Some(2200), None), Ok(()));
    assert_eq!(with(1200, secs(60), Some(1100), None), Ok(()));
    assert_eq!(with(1200, secs(60), Some(1100), Some(1050)), Err(Refusal::InvalidTimeLimit));
}
