//! Whole configuration files: a site's, Slurm's own example, broken ones, a very large one.
#![allow(clippy::unwrap_used)]

use garrick_model::{
    config::{
        self, Config, ConfigReport, ConfiguredState, MemoryPer, OverSubscribe, OverTime, PropagateLimits,
        ReturnToService, SelectUnit, ShowFacts,
    },
    resources::MemoryMib,
    state::PartitionState,
    time::{TimeLimit, Timestamp},
};
use std::path::Path;

const BASE: &str = "ClusterName=c\nSlurmctldHost=h\n";

fn read(text: &str) -> (Option<Config>, ConfigReport) {
    config::read_text(Path::new("/etc/slurm.conf"), text)
}

/// Every finding of a text that follows a minimal head of two lines.
fn findings(text: &str) -> Vec<String> {
    read(&format!("{BASE}{text}"))
        .1
        .problems
        .iter()
        .map(|p| p.to_string().replacen("/etc/slurm.conf:", "", 1))
        .collect()
}

fn site() -> (Config, ConfigReport) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/site.conf");
    let (config, report) = config::read_reporting(&path);
    (config.unwrap_or_else(|| panic!("{report}")), report)
}

#[test]
fn a_site_configuration_is_read_whole() {
    let (c, _) = site();
    assert_eq!(c.cluster_name, "aurora");
    assert_eq!(c.controllers.iter().map(|h| h.target()).collect::<Vec<_>>(), ["10.1.0.1", "10.1.0.2"]);
    assert_eq!((c.slurm_user.as_str(), c.slurmd_user.as_str()), ("slurm", "root"));
    assert_eq!(c.return_to_service, ReturnToService::Always);
    assert_eq!(c.epilog.len(), 2);
    assert_eq!(c.propagate_limits, PropagateLimits::Except(vec!["MEMLOCK".into(), "NOFILE".into()]));
    assert!(c.propagate_limits.includes("stack") && !c.propagate_limits.includes("nofile"));
    assert_eq!(c.scheduler_parameters.value("bf_interval"), Some("60"));
    assert_eq!((c.select.unit, c.select.memory), (SelectUnit::Core, true));
    assert_eq!(c.def_memory, Some(MemoryPer::Cpu(MemoryMib(2000))));
    assert_eq!(c.wait_time_secs, 0);
    assert_eq!(c.slurmd_debug.name(), "info");

    assert_eq!(c.nodes.len(), 140);
    let n = c.node("cn0007").unwrap();
    assert_eq!((n.address.as_str(), n.port, n.settings.weight), ("10.2.0.7", 6818, 10));
    assert_eq!((n.settings.shape.cpus, n.settings.shape.sockets, n.settings.shape.memory.0), (64, 2, 192_000));
    assert_eq!((n.initial.state, n.initial.reason.as_deref()), (ConfiguredState::Drain, Some("bad DIMM # 4")));
    assert_eq!(n.settings.features, ["skylake", "ib"]);
    let gpu = c.node("gn03").unwrap();
    assert_eq!((gpu.settings.shape.cpus, gpu.settings.shape.cpus_per_core()), (64, 1));
    assert_eq!(gpu.settings.gres.as_deref(), Some("gpu:a100:4"));

    let p = |name: &str| c.partition(name).unwrap();
    assert_eq!(c.default_partition().unwrap().name, "batch");
    assert_eq!(p("debug").max_time, TimeLimit::Secs(1800));
    assert_eq!(p("debug").default_time, Some(TimeLimit::Secs(3600)));
    assert_eq!(p("debug").allow_groups, Some(vec!["staff".to_owned(), "students".to_owned()]));
    assert_eq!(p("batch").nodes.to_string(), "cn[0001-0128],gn[01-12]");
    assert_eq!(p("batch").node_sets, ["cpunodes"]);
    assert_eq!(p("batch").def_memory, Some(MemoryPer::Cpu(MemoryMib(3800))));
    assert_eq!(p("gpu").max_cpus_per_node, Some(60));
    assert_eq!((p("long").over_subscribe, p("long").max_time), (OverSubscribe::Exclusive, TimeLimit::Unlimited));
    assert_eq!(p("long").nodes.len(), 140);
    assert_eq!(p("long").over_time_limit, None);
    assert_eq!(p("long").state, PartitionState::Up);
}

#[test]
fn a_partition_may_have_an_over_time_limit_of_its_own() {
    let lines =
        "OverTimeLimit=5\nNodeName=n\nPartitionName=a Nodes=n OverTimeLimit=UNLIMITED\nPartitionName=b Nodes=n\n";
    let c = read(&format!("{BASE}{lines}")).0.unwrap();
    assert_eq!((c.over_time_limit_in("a").minutes(), c.over_time_limit_in("b").minutes()), (None, Some(5)));
}

#[test]
fn a_site_configuration_is_warned_of_only_where_it_is_not_honoured() {
    let (_, report) = site();
    assert!(!report.has_errors());
    let said: Vec<String> = report.warnings().map(|w| format!("{}: {}", w.place.line, w.what)).collect();
    let want = [
        "6: SlurmctldHost=ctl2(10.1.0.2)",
        "27: LaunchParameters=enable_nss_slurm,use_interactive_step",
        "30: SlurmctldTimeout=300",
        "41: SchedulerParameters=bf_interval=60,bf_continue,default_queue_depth=500",
        "57: JobAcctGatherType=jobacct_gather/cgroup",
        "68: PartitionName=debug",
    ];
    assert_eq!(said, want);
    assert_eq!(report.files.len(), 3);
    let last = report.problems.last().unwrap().to_string();
    assert!(last.ends_with("site.conf:68: warning: PartitionName=debug: DefaultTime=01:00:00 is above MaxTime=00:30:00 (MaxTime counts)"), "{last}");
}

#[test]
fn what_a_partition_cannot_mean_is_said() {
    let lines = "NodeName=n[1-2] RealMemory=3000\n\
                 PartitionName=a Nodes=n1 MinNodes=3\n\
                 PartitionName=b Nodes=ALL DefMemPerNode=9000 MaxMemPerNode=200\n\
                 PartitionName=c Nodes=ALL Alternate=d\nPartitionName=d Nodes=ALL Alternate=c\n\
                 PartitionName=e Nodes=ALL SelectTypeParameters=CR_Socket\n\
                 PartitionName=f Nodes=ALL MinNodes=2 DefMemPerNode=3000 MaxMemPerNode=3000 Alternate=e\n";
    let report = read(&format!("{BASE}{lines}")).1;
    let said: Vec<String> = report.warnings().map(ToString::to_string).collect();
    let want = [
        "PartitionName=a: MinNodes=3 is more than the partition's 1: no job runs there",
        "PartitionName=b: DefMemPerNode=9000 is above MaxMemPerNode=200",
        "PartitionName=b: DefMemPerNode=9000 is more than any of its nodes has (3000)",
        "PartitionName=c: Alternate=d: it comes back",
        "PartitionName=d: Alternate=c: it comes back",
        "PartitionName=e: SelectTypeParameters=CR_SOCKET of a partition is not supported yet",
    ];
    assert_eq!(said.len(), want.len(), "{said:#?}");
    for (said, want) in said.iter().zip(want) {
        assert!(said.contains(want), "{said}");
    }
}

#[test]
fn slurms_own_example_is_read() {
    let text = "
SlurmctldHost=dev0(12.34.56.78)\t# Primary server
SlurmctldHost=dev1(12.34.56.79)\t# Backup server
ClusterName=dev
AuthType=auth/munge
Epilog=/usr/local/slurm/epilog
FirstJobId=65536
InactiveLimit=120
JobCompType=jobcomp/filetxt
JobCompLoc=/var/log/slurm/jobcomp
KillWait=30
MaxJobCount=10000
PluginDir=/usr/local/lib:/usr/local/slurm/lib
ReturnToService=0
SlurmctldPort=7002
SlurmdPort=7003
SlurmdSpoolDir=/var/spool/slurmd.spool
SwitchType=switch/none
TmpFS=/tmp
NodeName=DEFAULT CPUs=2 RealMemory=2000 TmpDisk=64000
NodeName=DEFAULT State=UNKNOWN
NodeName=dev[0-25] NodeAddr=edev[0-25] Weight=16
DownNodes=dev20 State=DOWN Reason=\"power,ETA=Dec25\"
PartitionName=DEFAULT MaxTime=30 MaxNodes=10 State=UP
PartitionName=debug Nodes=dev[0-8,18-25] Default=YES
PartitionName=batch Nodes=dev[9-17]  MinNodes=4
PartitionName=long Nodes=dev[9-17] MaxTime=120 AllowGroups=admin
";
    let (c, report) = read(text);
    let c = c.unwrap();
    assert_eq!(report.problems.len(), 2, "{report}");
    assert_eq!(c.node("dev20").unwrap().initial.reason.as_deref(), Some("power,ETA=Dec25"));
    assert_eq!(c.node("dev3").unwrap().address, "edev3");
    assert_eq!(c.partition("debug").unwrap().nodes.len(), 17);
    assert_eq!((c.partition("long").unwrap().max_nodes, c.partition("batch").unwrap().min_nodes), (Some(10), 4));
}

#[test]
fn every_problem_is_found_at_once_with_line_cause_and_suggestion() {
    let said = findings(
        "KilWait=30\nKillWait=soon\nSlurmdPort=99999\nReturnToService=3\nNodeName=n[1-4] Wheight=3\nNodeName=m[1-2] NodeAddr=a[1-3]\n\
         NodeName=k[3-1]\nPartitionName=p Nodes=n[1-4],x[1-2] Stat=UP MaxTime=abc\nFrobnicate=1\nStateSaveLocation=var\nSchedulerType\n",
    );
    let want = [
        "3: error: KilWait=30: unknown key KilWait (did you mean KillWait?)",
        "4: error: KillWait=soon: \"soon\" is not a whole number from 0 to 65533",
        "5: error: SlurmdPort=99999: \"99999\" is not a whole number from 1 to 65535",
        "6: error: ReturnToService=3: \"3\" is not a whole number from 0 to 2",
        "7: error: Wheight=3: unknown key Wheight (did you mean Weight?)",
        "8: error: NodeName=m[1-2]: NodeAddr names 3 for 2 nodes (give one for each node)",
        "9: error: NodeName=k[3-1]: host list \"k[3-1]\": the range \"3-1\" at column 3 runs backwards",
        "10: error: Stat=UP: unknown key Stat (did you mean State?)",
        "10: error: MaxTime=abc: \"abc\" is not a time limit (minutes, hours:minutes:seconds, days-hours, \
         days-hours:minutes:seconds or UNLIMITED)",
        "11: error: Frobnicate=1: unknown key Frobnicate",
        "12: error: StateSaveLocation=var: \"var\" is not an absolute path (begin it with a slash)",
        "10: error: Nodes=n[1-4],x[1-2]: no node or node set is called x[1-2] (every node needs a NodeName line)",
    ];
    let (syntax, rest): (Vec<_>, Vec<_>) = said.into_iter().partition(|line| line.contains("expected Key=Value"));
    assert_eq!(rest, want);
    assert_eq!(syntax, ["13: error: SchedulerType: expected Key=Value (put quotes around a value with blanks)"]);
}

#[test]
fn what_is_missing_is_said() {
    let (none, report) = read("# nothing\n");
    assert!(none.is_none());
    let said: Vec<String> = report.problems.iter().map(|p| p.what.clone()).collect();
    assert_eq!(said, ["ClusterName", "SlurmctldHost"]);
    let no_partition = " error: PartitionName: is missing (for example PartitionName=debug Nodes=ALL Default=YES)";
    assert_eq!(findings("NodeName=a\n"), [no_partition]);
    let absent = config::check(Path::new("/nonexistent/slurm.conf"));
    let text = absent.to_string();
    assert!(text.starts_with("/nonexistent/slurm.conf: error:") && text.contains("No such file"), "{text}");
    assert_eq!(absent.problems.len(), 1);
}

#[test]
fn counts_of_cpus_follow_slurms_rules() {
    let shape = |line: &str| {
        let (config, report) = read(&format!("{BASE}NodeName=n {line}\nPartitionName=p Nodes=n"));
        let said = report.problems.iter().map(|p| format!("{:?}", p.severity)).collect::<Vec<_>>().join(" ");
        let shape = config.map(|c| c.node("n").unwrap().settings.shape.clone());
        (shape.map(|s| (s.cpus, s.sockets, s.cores_per_socket, s.threads_per_core)), said)
    };
    let fine = |line: &str, want: (u32, u32, u32, u32)| assert_eq!(shape(line), (Some(want), String::new()), "{line}");
    fine("", (1, 1, 1, 1));
    fine("CPUs=16", (16, 16, 1, 1));
    fine("Procs=4 CoresPerSocket=2", (4, 2, 2, 1));
    fine("Sockets=2 CoresPerSocket=4 ThreadsPerCore=2", (16, 2, 4, 2));
    fine("CPUs=8 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2", (8, 2, 4, 2));
    fine("Boards=2 SocketsPerBoard=2 CoresPerSocket=3", (12, 4, 3, 1));
    fine("Boards=2 Sockets=2 CoresPerSocket=2", (8, 4, 2, 1));
    assert_eq!(
        shape("CPUs=3 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2"),
        (Some((16, 2, 4, 2)), "Warning".to_owned())
    );
    assert_eq!(shape("CPUs=2 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2"), (None, "Error".to_owned()));
    assert_eq!(shape("Sockets=2 SocketsPerBoard=2"), (None, "Error".to_owned()));
    assert_eq!(shape("Sockets=65535 CoresPerSocket=65535"), (None, "Error".to_owned()));
    assert_eq!(shape("CPUs=0"), (None, "Error".to_owned()));
}

#[test]
fn cores_and_memory_for_the_system_are_kept_from_jobs() {
    let node = "Sockets=2 CoresPerSocket=2 ThreadsPerCore=2 RealMemory=1000";
    let read_shape = |rest: &str| {
        let (config, report) = read(&format!("{BASE}NodeName=a {node} {rest}\nPartitionName=p Nodes=ALL\n"));
        config.unwrap_or_else(|| panic!("{report}")).node("a").unwrap().settings.shape.clone()
    };
    // The last cores of the last sockets, going round the sockets.
    assert_eq!(read_shape("CoreSpecCount=3").reserved_cpus.to_string(), "2-7");
    assert_eq!(read_shape("CoreSpecCount=1").job_cpus().to_string(), "0-5");
    assert_eq!(read_shape("CoreSpecCount=1\nSchedulerParameters=spec_cores_first").job_cpus().to_string(), "2-7");
    assert_eq!(read_shape("CoreSpecCount=1\nSchedulerParameters=SPEC_CORES_FIRST").job_cpus().to_string(), "2-7");
    let replaced = "CoreSpecCount=1\nSchedulerParameters=spec_cores_first\nSchedulerParameters=defer";
    assert_eq!(read_shape(replaced).job_cpus().to_string(), "0-5");
    assert_eq!(read_shape("CpuSpecList=1,6").reserved_cpus.to_string(), "0-1,6-7");
    let shape = read_shape("MemSpecLimit=200");
    assert_eq!((shape.memory.0, shape.job_memory(), shape.job_cpu_count()), (1000, 800, 8));
    let errors = |rest: &str| findings(&format!("NodeName=a {node} {rest}\nPartitionName=p Nodes=ALL\n"));
    assert!(errors("CoreSpecCount=1 CpuSpecList=1")[0].contains("exclude each other"));
    assert!(errors("CoreSpecCount=4")[0].contains("nothing of the node is left for jobs"));
    assert!(errors("MemSpecLimit=1000")[0].contains("nothing of the node is left for jobs"));
}

#[test]
fn several_nodes_on_one_host_are_told_apart_by_port() {
    let text = format!(
        "{BASE}SlurmdPort=7000\nNodeName=n[1-3] NodeHostname=box NodeAddr=127.0.0.1 Port=[7001-7003] CPUs=2\n\
         NodeName=m[1-2] NodeHostname=box.site NodeAddr=127.0.0.1\nPartitionName=p Nodes=ALL"
    );
    let (config, report) = read(&text);
    let c = config.unwrap();
    assert_eq!(c.nodes.iter().map(|n| n.port).collect::<Vec<_>>(), [7001, 7002, 7003, 7000, 7000]);
    assert_eq!(
        c.nodes_on_host("box.site").map(|n| n.name.as_str()).collect::<Vec<_>>(),
        ["n1", "n2", "n3", "m1", "m2"]
    );
    let said: Vec<String> = report.problems.iter().map(|p| p.cause.clone()).collect();
    assert_eq!(said, ["has the same address and port (127.0.0.1:7000) as node m1"]);
    assert!(
        findings("NodeName=n[1-3] Port=[7001-7002]\nPartitionName=p Nodes=ALL")[0].contains("Port names 2 for 3 nodes")
    );
}

#[test]
fn what_excludes_or_repeats_each_other_is_told() {
    let said = findings(
        "DefMemPerCPU=100\nDefMemPerNode=500\nLicenses=a:2,b,a:3\nNodeName=a\n\
         PartitionName=p Nodes=a MaxMemPerNode=5 MaxMemPerCPU=1\n",
    );
    let want = [
        "4: warning: DefMemPerNode=500: DefMemPerCPU at /etc/slurm.conf:3 and this exclude each other; this one counts \
         (keep one of them)",
        "5: warning: Licenses=a:2,b,a:3: a license is given more than once (its counts are added up)",
        "7: warning: MaxMemPerCPU=1: MaxMemPerNode at /etc/slurm.conf:7 and this exclude each other; this one counts \
         (keep one of them)",
    ];
    assert_eq!(said, want);
}

#[test]
fn plugins_that_nobody_has_are_errors() {
    let said = findings(
        "TopologyPlugin=topology/foo\nPriorityType=priority/basik\nSchedulerType=sched/foo\nNodeName=a\n\
         PartitionName=p Nodes=a\n",
    );
    let want = [
        "3: error: TopologyPlugin=topology/foo: \"foo\" is not one of default, flat, none, tree, block, ring, torus3d",
        "4: error: PriorityType=priority/basik: \"basik\" is not one of basic, multifactor (did you mean basic?)",
        "5: error: SchedulerType=sched/foo: \"foo\" is not one of backfill, builtin",
    ];
    assert_eq!(said, want);
}

#[test]
fn names_are_not_given_twice() {
    let said = findings(
        "NodeName=a\nNodeName=a,b\nNodeName=ALL\nPartitionName=p Nodes=a\nPartitionName=p Nodes=a\nNodeSet=a Nodes=z\n",
    );
    let want = [
        "4: error: NodeName=a,b: node a is already configured at /etc/slurm.conf:3",
        "5: error: NodeName=ALL: ALL and DEFAULT are no names for nodes",
        "7: error: PartitionName=p: partition p is already configured",
        "8: error: NodeSet=a: a node has this name too",
        "8: error: NodeSet=a: no node is called z",
    ];
    assert_eq!(said, want);
    let twice = findings("KillWait=3\nkillwait=4\nNodeName=a\nPartitionName=p Nodes=a");
    assert_eq!(
        twice,
        ["4: warning: killwait=4: KillWait is already set at /etc/slurm.conf:3; this one counts (keep one of them)"]
    );
}

#[test]
fn keys_at_their_defaults_and_names_of_components_are_silent() {
    let said = findings(
        "AuthType=auth/munge\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMCSPlugin=mcs/none\nPreemptType=preempt/none\n\
         PreemptMode=OFF\nSuspendTime=INFINITE\nJobSubmitPlugins=\nTrackWCKey=no\nPrivateData=none\nSelectType=select/linear\n\
         AccountingStorageType=accounting_storage/none\nTopologyPlugin=topology/default\nMailProg=/bin/mail\nNodeName=a\n\
         PartitionName=p Nodes=a AllowQos=ALL PreemptMode=OFF",
    );
    assert_eq!(said, Vec::<String>::new());
}

#[test]
fn empty_and_all_are_lists_of_nodes() {
    let (config, report) =
        read(&format!("{BASE}NodeName=a,b\nPartitionName=p Nodes= State=DOWN\nPartitionName=q Nodes=all\n"));
    let c = config.unwrap_or_else(|| panic!("{report}"));
    assert!(c.partition("p").unwrap().nodes.is_empty());
    assert_eq!(c.partition("p").unwrap().state, PartitionState::Down);
    assert_eq!(c.partition("q").unwrap().nodes.to_string(), "a,b");
    assert_eq!(c.partition("q").unwrap().node_sets, ["ALL"]);
}

#[test]
fn show_config_has_every_key_with_units_and_defaults() {
    let (c, _) = site();
    let zone = jiff::tz::TimeZone::UTC;
    let facts = ShowFacts {
        boot_time: Timestamp(1_795_255_251_000),
        next_job_id: 503,
        slurm_uid: Some(64),
        slurmd_uid: Some(0),
        version: "26.05.3",
        zone: &zone,
    };
    let pairs = config::show_config(&c, &facts);
    let value = |key: &str| pairs.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
    for (key, want) in [
        ("AccountingStorageHost", "db1"),
        ("BOOT_TIME", "2026-11-21T10:00:51"),
        ("ClusterName", "aurora"),
        ("DefMemPerCPU", "2000"),
        ("MaxMemPerNode", "UNLIMITED"),
        ("Epilog[1]", "/etc/slurm/epilog.d/20-report"),
        ("JobAcctGatherFrequency", "30"),
        ("JobSubmitPlugins", "(null)"),
        ("KillWait", "30 sec"),
        ("MaxNodeCount", "140"),
        ("NEXT_JOB_ID", "503"),
        ("OverTimeLimit", "0 min"),
        ("PriorityFlags", ""),
        ("PriorityMaxAge", "7-00:00:00"),
        ("PriorityType", "priority/multifactor"),
        ("PriorityWeightAge", "1000"),
        ("PriorityWeightFairShare", "10000"),
        ("PropagateResourceLimitsExcept", "MEMLOCK,NOFILE"),
        ("SelectTypeParameters", "CR_CORE_MEMORY,CR_CORE_DEFAULT_DIST_BLOCK"),
        ("SlurmUser", "slurm(64)"),
        ("SlurmctldHost[1]", "ctl2(10.1.0.2)"),
        ("SlurmdUser", "root(0)"),
        ("SLURM_VERSION", "26.05.3"),
        ("StateSaveLocation", "/var/spool/slurmctld"),
        ("TaskPlugin", "task/affinity,task/cgroup"),
        ("UnkillableStepTimeout", "180 sec"),
    ] {
        assert_eq!(value(key), Some(want), "{key}");
    }
    // Slurm shows no flags as nothing at all.
    assert!(pairs.iter().all(|(key, value)| !key.is_empty() && (!value.is_empty() || key == "PriorityFlags")));
    assert_eq!(c.over_time_limit, OverTime::Minutes(0));
}

#[test]
fn a_file_of_nine_thousand_nodes_in_ranges_is_read_at_once() {
    let mut text = format!(
        "{BASE}NodeName=DEFAULT Sockets=2 CoresPerSocket=64 RealMemory=1000000\nNodeName=lx[0003-8000] NodeAddr=ib[0003-8000] Port=7001\n\
         NodeName=r[1-20]n[01-50] Feature=a,b\nNodeName=z[1-1001] Weight=5\nNodeSet=s Feature=b\n"
    );
    for n in 0..50 {
        text.push_str(&format!("PartitionName=p{n} Nodes=ALL\nPartitionName=q{n} Nodes=lx[0100-7000],s\n"));
    }
    let start = std::time::Instant::now();
    let (config, report) = read(&text);
    let took = start.elapsed();
    let c = config.unwrap_or_else(|| panic!("{report}"));
    eprintln!("{} nodes and {} partitions read in {took:?}", c.nodes.len(), c.partitions.len());
    assert_eq!(c.nodes.len(), 9999);
    assert_eq!(c.partition("q7").unwrap().nodes.len(), 7901);
    assert_eq!(c.node("lx4711").unwrap().address, "ib4711");
}

mod any_text {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn is_read_or_reported(
            lines in proptest::collection::vec(
                ("(NodeName|PartitionName|NodeSet|DownNodes|Include|KillWait|SlurmctldHost|Port|\\PC{0,6})", "\\PC{0,24}|[a-z0-9,\\[\\]-]{0,16}( (State|Nodes|CPUs|Port|NodeAddr|MaxTime)=[a-zA-Z0-9\\[\\]-]{0,8}){0,3}"),
                0..8,
            )
        ) {
            let text: String = lines.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
            let (config, report) = read(&format!("{BASE}{text}"));
            prop_assert_eq!(config.is_none(), report.has_errors());
        }
    }
}

#[test]
fn exit_codes_that_requeue_are_single_ones_and_ranges() {
    let read = |line: &str| read(&format!("{BASE}{line}\nNodeName=n CPUs=1\nPartitionName=p Nodes=n\n"));
    let (config, _) = read("RequeueExit=1-9,18\nRequeueExitHold=77\nSlurmctldParameters=enable_expedited_requeue");
    let config = config.unwrap();
    assert!([1, 9, 18].iter().all(|code| config.requeue_exit.contains(*code)));
    assert!([0, 10, 77].iter().all(|code| !config.requeue_exit.contains(*code)));
    assert_eq!((config.requeue_exit.to_string(), config.requeue_exit_hold.to_string()), ("1-9,18".into(), "77".into()));
    assert!(config.expedited_requeue());
    let (config, _) = read("");
    let config = config.unwrap();
    assert!(config.requeue_exit.is_empty() && !config.expedited_requeue());
    for wrong in ["RequeueExit=9-1", "RequeueExit=300", "RequeueExit=x"] {
        assert!(read(wrong).0.is_none(), "{wrong}");
    }
}

#[test]
fn words_of_select_type_parameters_that_are_not_honoured_are_said() {
    let text = |words: &str| {
        let head = "ClusterName=c\nSlurmctldHost=a\nNodeName=n\nPartitionName=p Nodes=n\n";
        let text = format!("{head}SelectTypeParameters={words}\n");
        let files = [("/x/slurm.conf", text.as_str())];
        let (config, report) = config::read_files(Path::new("/x/slurm.conf"), &files);
        (config.unwrap().select, report.problems.iter().map(ToString::to_string).collect::<Vec<String>>())
    };
    let (select, said) = text("CR_Core,ENFORCE_BINDING_GRES");
    assert!(select.enforce_binding && said.is_empty(), "{said:?}");
    let (_, said) = text("CR_Core,Multiple_Sharing_Gres_PJ,LL_SHARED_GRES");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].ends_with("MULTIPLE_SHARING_GRES_PJ,LL_SHARED_GRES is not supported yet and has no effect"),
        "{said:?}"
    );
}
