//! Keys of `slurm.conf` that stand alone: every one that `slurm.conf(5)` documents up to 26.05, older ones included, in the
//! order of `scontrol show config`.

use super::{
    cli_filter,
    config::{Config, ControllerHost, EnforcePartLimits, PropagateLimits, PropagatePriority, ReturnToService},
    debug_flags::DebugFlags,
    enforce::Enforce,
    gathering,
    health::HealthStates,
    job_defaults::JobDefaults,
    job_submit::{self, JobSubmitPlugin},
    kinds::{
        AbsolutePath, BIT, Codes, Kind, Level, Limit, Minutes, NULL, Numbered, OneOf, Own, Plugin, Text, Words, YES_NO,
        number, or_null, secs, set_memory, shown_memory, some,
    },
    power::{self, KeptNodes, KeptStates, Span},
    preempt,
    priority::{self, WEIGHT, days_and_time},
    private,
    prolog_flags::PrologFlags,
    row::{Row, Show, key, with_defaults},
    scheduling,
    tracked::TrackedTres,
};
use crate::{
    config::syntax::{
        report::SettingError,
        values::{self, MemoryPer, Parameters, PortRange, SelectParameters, SelectUnit, Value},
    },
    cpu_freq::{self, Governor},
    spec::Mpi,
    spec_text::licenses::{Licenses, LicensesError},
};
use std::sync::LazyLock;

/// Greatest `MaxJobId` (`slurm.conf(5)`): the upper bits are kept for job arrays of federations.
const JOB_ID_LIMIT: u32 = 67_108_863;
/// Greatest `MaxNodeCount` (`slurm.conf(5)`).
const MOST_NODES: u32 = 65_536;
/// Greatest `MaxArraySize` (`slurm.conf(5)`).
const ARRAY_LIMIT: u32 = 4_000_001;
/// Least `MaxDBDMsgs` (`slurm.conf(5)`).
const FEWEST_DBD_MSGS: u32 = 10_000;
/// Greatest number of seconds of Slurm's 16-bit times.
const SECS: u32 = 65_533;

const ENFORCE: OneOf<EnforcePartLimits> = OneOf(&[
    ("NO", EnforcePartLimits::No),
    ("YES", EnforcePartLimits::All),
    ("ALL", EnforcePartLimits::All),
    ("ANY", EnforcePartLimits::Any),
]);
const NICE: Numbered<PropagatePriority> =
    Numbered(&[PropagatePriority::No, PropagatePriority::AsAsked, PropagatePriority::BelowDaemon]);
const RETURN: Numbered<ReturnToService> =
    Numbered(&[ReturnToService::Never, ReturnToService::NonResponding, ReturnToService::Always]);
const TOPOLOGY: Plugin = Plugin("topology/", &["default", "flat", "none", "tree", "block", "ring", "torus3d"]);

/// Keys that begin a line of their own kind.
pub(in crate::config) const LINES: &[&str] =
    &["NodeName", "PartitionName", "NodeSet", "DownNodes", "PowerAction", "FrontendName", "FrontEndNode"];

type Key = Row<Config>;

/// Keys on their own lines.
#[rustfmt::skip]
pub(in crate::config) static GLOBAL: &[Key] = &[
    key!("AccountingStorageBackupHost", "", accounting_backup: Text(NULL),
        "the host whose service of accounting is asked where that of `AccountingStorageHost` does not serve"),
    Key::honoured("AccountingStorageEnforce", "", enforce,
        "which of what accounting knows binds jobs: `associations`, `limits`, `qos`, `safe`, `wckeys`, `all`")
        .shown(Show::Value(|c| c.enforce.to_string())),
    key!("AccountingStorageHost", "localhost", accounting_host: Own(host_name, String::clone),
        "the host of the service of accounting"),
    Key::not_yet("AccountingStorageExternalHost", NULL),
    Key::not_yet("AccountingStorageParameters", NULL),
    Key::not_yet("AccountingStoragePass", "").shown(Show::Hidden),
    key!("AccountingStoragePort", "0", accounting_port: number(0, u16::MAX),
        "the port of the service of accounting on another host; 0: 6819"),
    Key::honoured(
        "AccountingStorageTRES",
        "",
        |c, text| {
            let (tracked, note) = TrackedTres::parse(text)?;
            c.tracked = tracked;
            Ok(note)
        },
        "what is counted besides what always is: types of generic resources (`gres/gpu:h100`), which are counted by their names too, \
         and names of licenses and generic resources that the cluster may come to have")
        .shown(Show::Value(|c| c.tracked.to_string())),
    Key::honoured("AccountingStorageType", NULL, accounting,
        "`accounting_storage/slurmdbd`: the controller feeds the service of accounting; `none`: nothing is recorded")
        .shown(Show::AsWritten),
    Key::not_yet("AccountingStorageUser", "").shown(Show::Hidden),
    Key::honoured("AccountingStoreFlags", NULL, |c, text| Ok(c.store_flags.set(text)),
        "what is kept of jobs besides: `job_script`, `job_env`; `job_comment` and `job_extra` always are")
        .shown(Show::AsWritten),
    Key::honoured("AcctGatherEnergyType", NULL, |c, text| Ok(c.gathering.set_energy(text)),
        "how the energy of steps and nodes is measured: `acct_gather_energy/rapl`, `acct_gather_energy/ipmi`, or `none`")
        .shown(Show::AsWritten),
    Key::honoured("AcctGatherFilesystemType", NULL, |c, text| Ok(c.gathering.set_filesystem(text)),
        "which file systems can be recorded in time series: `acct_gather_filesystem/lustre`, or `none`")
        .shown(Show::AsWritten),
    Key::honoured("AcctGatherInterconnectType", NULL, |c, text| Ok(c.gathering.set_interconnect(text)),
        "which networks can be recorded in time series: `acct_gather_interconnect/sysfs`, or `none`")
        .shown(Show::AsWritten),
    key!("AcctGatherNodeFreq", "0", gathering.node_secs: secs(0, SECS),
        "how often the energy of nodes is looked at; 0: never"),
    Key::honoured("AcctGatherProfileType", NULL, |c, text| Ok(c.gathering.set_profile(text)),
        "where time series of steps go: `acct_gather_profile/influxdb`, `acct_gather_profile/hdf5` (files of another form), or `none`")
        .shown(Show::AsWritten),
    key!("AllowSpecResourcesUsage", "no", allow_spec_resources: YES_NO,
        "jobs may set how many cores are kept for the system"),
    Key::honoured("AuthAltTypes", NULL, |c, text| c.auth.set_types(text),
        "`auth/jwt`: commands with a token in `SLURM_JWT` act as the token's user")
        .shown(Show::AsWritten),
    Key::honoured("AuthAltParameters", NULL, |c, text| c.auth.set_parameters(text),
        "`jwt_key=FILE`: the key of tokens (else `jwt_hs256.key` in `StateSaveLocation`); `disable_token_creation`: only \
         administrators make tokens; `max_token_lifespan=SECONDS`: of ordinary users' tokens")
        .shown(Show::AsWritten),
    Key::own_way("AuthInfo", NULL),
    Key::own_way("AuthType", "auth/munge"),
    Key::dropped("BackupAddr"),
    Key::dropped("BackupController"),
    key!("BatchStartTimeout", "10", batch_start_timeout_secs: secs(0, SECS),
        "how long a job may take to start on its nodes"),
    key!("BcastExclude", "/lib,/usr/lib,/lib64,/usr/lib64", bcast_exclude: Words,
        "folders whose shared objects are not sent to nodes with a program; `NONE`: no folder"),
    key!("BcastParameters", "", bcast_parameters: Words,
        "defaults of files that are sent to nodes: `DestDir=`, `Compression=`, `send_libs`"),
    Key::fact("BOOT_TIME", Show::With(|_, facts| facts.boot_time.text(facts.zone))),
    Key::not_yet("BurstBufferType", NULL),
    Key::dropped("CacheGroups"),
    Key::own_way("CertgenParameters", NULL),
    Key::own_way("CertgenType", NULL),
    Key::own_way("CertmgrParameters", NULL),
    Key::own_way("CertmgrType", NULL),
    Key::dropped("CheckpointType"),
    Key::honoured("CliFilterParameters", NULL, |c, text| {
        c.cli_filter_lua = cli_filter::lua_path(text)?;
        Ok(None)
    }, "`cli_filter_lua_path=/PATH/OF/SCRIPT`: where `cli_filter.lua` is, if not beside `slurm.conf`")
        .shown(Show::AsWritten),
    Key::honoured("CliFilterPlugins", NULL, |c, text| {
        c.cli_filters = cli_filter::plugins(text)?;
        Ok(None)
    }, "who looks at options of `sbatch`, `salloc` and `srun`: `lua`, `user_defaults`, `syslog`, `none`, `unix:/PATH/OF/SOCKET`")
        .shown(Show::AsWritten),
    key!("ClusterName", "", cluster_name: Own(cluster_name, String::clone), "the name of the cluster"),
    Key::own_way("CommunicationParameters", NULL),
    key!("CompleteWait", "0", complete_wait_secs: secs(0, SECS),
        "for how long no job starts while the nodes of an ended job are being cleaned"),
    Key::honoured("ControlAddr", "", control_addr, "an older name of the address in `SlurmctldHost`"),
    Key::honoured("ControlMachine", "", control_machine, "an older name of `SlurmctldHost`"),
    Key::dropped("CoreSpecPlugin"),
    Key::honoured("CpuFreqDef", "", |c, text| {
        let governor = text.parse().map_err(|()| SettingError::new(format!("{text} is no governor")))?;
        c.frequencies.default = Some(governor);
        Ok(None)
    }, "the governor of CPUs of steps that ask for none")
        .shown(Show::Value(|c| c.frequencies.default.map_or("Unknown", Governor::name).to_owned())),
    Key::honoured("CpuFreqGovernors", "", |c, text| {
        let governors = cpu_freq::governors(text).map_err(|word| SettingError::new(format!("{word} is no governor")))?;
        c.frequencies.allowed = governors;
        Ok(None)
    }, "the governors that jobs and steps may ask for with `--cpu-freq`")
        .shown(Show::Value(|c| cpu_freq::governor_names(&c.frequencies.allowed))),
    Key::own_way("CredType", "auth/munge"),
    Key::dropped("CryptoType"),
    Key::own_way("DataParserParameters", NULL),
    Key::honoured("DebugFlags", "", debug_flags, "topics that all daemons log in more detail")
        .shown(Show::Value(|c| or_null(&c.debug_flags))),
    Key::honoured("DefCpuPerGPU", "", |c, text| c.job_defaults.set("DefCpuPerGPU", text).map(|()| None),
        "CPUs for each GPU of a job that requests none"),
    Key::honoured("DefMemPerCPU", "", |c, text| set_memory(&mut c.def_memory, MemoryPer::Cpu, text),
        "memory for each CPU of a job that requests none")
        .excludes("DefMemPerNode"),
    Key::honoured("DefMemPerGPU", "", |c, text| c.job_defaults.set("DefMemPerGPU", text).map(|()| None),
        "memory for each GPU of a job that requests none, MiB"),
    Key::honoured("DefMemPerNode", "", |c, text| set_memory(&mut c.def_memory, MemoryPer::Node, text),
        "memory on each node of a job that requests none")
        .excludes("DefMemPerCPU"),
    Key::fact("DefMem", Show::Lines(|c| vec![shown_memory("Def", c.def_memory)])),
    key!("DependencyParameters", "", dependency_parameters: Words, "how dependencies of jobs are handled"),
    key!("DisableRootJobs", "no", disable_root_jobs: YES_NO, "root may not submit jobs"),
    Key::own_way("EioTimeout", "60"),
    key!("EnforcePartLimits", "NO", enforce_part_limits: ENFORCE,
        "whether jobs beyond the limits of their partitions are refused"),
    Key::honoured("Epilog", "", |c, text| add(&mut c.epilog, text), "a program that runs on each node after a job")
        .shown(Show::Lines(|c| shown_programs("Epilog", &c.epilog)))
        .repeated(),
    Key::own_way("EpilogMsgTime", "2000 usec"),
    Key::honoured("EpilogSlurmctld", "", |c, text| add(&mut c.epilog_slurmctld, text),
        "a program that the controller runs when a job's work is over")
        .shown(Show::Lines(|c| shown_programs("EpilogSlurmctld", &c.epilog_slurmctld)))
        .repeated(),
    key!("EpilogTimeout", "UNLIMITED", epilog_timeout_secs: Limit(0, SECS, "65534"),
        "how long Epilogs may run, seconds"),
    Key::dropped("ExtSensorsFreq"),
    Key::dropped("ExtSensorsType"),
    key!("FairShareDampeningFactor", "1", priority.dampening: number(1, SECS),
        "how much more than its share somebody uses before the classic fair-share factor is nearly 0"),
    Key::dropped("FastSchedule"),
    Key::not_yet("FederationParameters", NULL),
    key!("FirstJobId", "1", first_job_id: number(1, JOB_ID_LIMIT), "the id of the first job"),
    Key::own_way("GetEnvTimeout", "2 sec"),
    Key::not_yet("GpuFreqDef", NULL),
    Key::honoured("GresTypes", "", gres_types, "names of the generic resources"),
    Key::own_way("GroupUpdateForce", "1"),
    Key::own_way("GroupUpdateTime", "600 sec"),
    Key::fact("HASH_VAL", Show::Value(|_| "Match".to_owned())),
    Key::own_way("HashPlugin", "hash/k12"),
    key!("HealthCheckInterval", "0", health.interval_secs: secs(0, SECS),
        "how often nodes are checked; 0: only when their daemon starts"),
    key!("HealthCheckNodeState", "ANY", health.states: Own(HealthStates::parse, HealthStates::to_string),
        "which nodes are checked"),
    key!("HealthCheckProgram", "", health.program: Text(NULL), "the program that checks a node"),
    Key::own_way("HttpParserType", "http_parser/libhttp_parser"),
    Key::not_yet("InactiveLimit", "0 sec"),
    key!("InteractiveStepOptions", "--interactive --preserve-env --pty $SHELL", interactive_step_options: Text(NULL),
        "options and command of the `srun` that `salloc` starts with `LaunchParameters=use_interactive_step`"),
    Key::honoured("JobAcctGatherFrequency", "30", |c, text| c.gathering.set_periods(text),
        "how often it is looked at what running tasks use, seconds, or `task=SECONDS` in a list; 0: only at their ends")
        .shown(Show::AsWritten),
    Key::honoured("JobAcctGatherType", NULL, |_, text| Ok(gathering::kind(text)), "")
        .without_effect(|_| false)
        .shown(Show::AsWritten),
    Key::dropped("JobCheckpointDir"),
    Key::honoured("JobAcctGatherParams", NULL, |_, text| Ok(gathering::parameters(text)), "")
        .without_effect(|_| false)
        .shown(Show::AsWritten),
    Key::honoured("JobCompHost", "localhost", |c, text| c.completion.set_host(text).map(|()| None),
        "host of the database server for ended jobs, or `unix:/PATH/OF/SOCKET`")
        .shown(Show::AsWritten),
    Key::honoured("JobCompLoc", "", |c, text| {
        c.completion.location = values::optional(text);
        Ok(None)
    }, "where ended jobs are recorded: a text file, a program, the URL of a server, a file with properties for Kafka, or a \
        database's name or URL")
        .shown(Show::Value(|c| c.completion.shown_location())),
    Key::honoured("JobCompParams", NULL, |c, text| c.completion.set_parameters(text),
        "details of `JobCompType`: what is sent to a server, topics of Kafka, how many programs run at a time")
        .shown(Show::AsWritten),
    Key::honoured("JobCompPass", "", |c, text| {
        c.completion.set_password(text);
        Ok(None)
    }, "the password for the database of ended jobs"),
    Key::honoured("JobCompPassScript", "", |c, text| c.completion.set_password_script(text).map(|()| None),
        "a program that prints the password for the database of ended jobs, in place of `JobCompPass`"),
    Key::honoured("JobCompPort", "0", |c, text| c.completion.set_port(text).map(|()| None),
        "port of the database server for ended jobs; 0: its usual one")
        .shown(Show::AsWritten),
    Key::honoured("JobCompType", NULL, |c, text| c.completion.set_type(text).map(|()| None),
        "how ended jobs are recorded: `filetxt`, `script`, `elasticsearch`, `kafka`, `lua`, `mysql`, `postgresql` or `none`, \
        after `jobcomp/`")
        .shown(Show::AsWritten),
    Key::honoured("JobCompUser", "root", |c, text| {
        c.completion.set_user(text);
        Ok(None)
    }, "who connects to the database of ended jobs")
        .shown(Show::AsWritten),
    Key::not_yet("JobContainerType", "").shown(Show::Hidden),
    Key::own_way("JobCredentialPrivateKey", "").shown(Show::Hidden),
    Key::own_way("JobCredentialPublicCertificate", "").shown(Show::Hidden),
    key!("JobDefaults", "", job_defaults: Own(JobDefaults::parse, or_null), "`DefCpuPerGPU` and `DefMemPerGPU` in one"),
    key!("JobFileAppend", "no", job_file_append: BIT, "output is appended to existing files"),
    key!("JobRequeue", "yes", job_requeue: BIT, "jobs without an option for it may be requeued"),
    Key::honoured("JobSubmitPlugins", NULL, |c, text| {
        c.job_submit = JobSubmitPlugin::parse(text)?;
        Ok(None)
    }, "checks of jobs by the site: `lua`, `require_timelimit`, `all_partitions`, `partition`, `throttle`, `logging`, `unix:/PATH/OF/SOCKET`")
        .shown(Show::Value(|c| job_submit::shown(&c.job_submit))),
    Key::dropped("KeepAliveTime"),
    key!("KillOnBadExit", "no", kill_on_bad_exit: BIT, "a step ends when one of its tasks fails"),
    key!("KillWait", "30", kill_wait_secs: secs(0, SECS), "time from SIGTERM to SIGKILL"),
    Key::honoured("LaunchParameters", NULL, launch_parameters,
        "`use_interactive_step`: where `salloc` starts a shell: on a node of the allocation, or where it was called")
        .shown(Show::Value(|c| Words.show(&c.launch_parameters))),
    Key::dropped("LaunchType"),
    Key::honoured("Licenses", "", read_licenses, "licenses and their numbers")
        .shown(Show::Value(|c| or_null(&c.licenses))),
    Key::own_way("LogTimeFormat", "iso8601_ms"),
    key!("MailDomain", "", mail_domain: Text(NULL), "the domain of users who are sent mail and name none"),
    key!("MailProg", "/bin/mail", mail_prog: AbsolutePath, "the program that sends mail about jobs"),
    key!("MaxArraySize", "1001", max_array_size: number(0, ARRAY_LIMIT), "one above the greatest index of an array"),
    key!("MaxBatchRequeue", "5", max_batch_requeue: number(0, u32::MAX),
        "how often a job is requeued automatically before it is held"),
    Key::honoured("MaxDBDMsgs", "", |c, text| some(&mut c.max_dbd_msgs, &number(FEWEST_DBD_MSGS, u32::MAX), text),
        "how many events of the log may wait for the service of accounting (`SlurmctldParameters=max_dbd_msg_action`)")
        .shown(Show::Value(|c| c.most_for_accounting().to_string())),
    key!("MaxJobCount", "10000", max_job_count: number(1, 200_000_000), "largest number of jobs that the controller keeps"),
    key!("MaxJobId", "67043328", max_job_id: number(1, JOB_ID_LIMIT), "after this id, job ids begin at `FirstJobId` again"),
    Key::honoured("MaxMemPerCPU", "", |c, text| set_memory(&mut c.max_memory, MemoryPer::Cpu, text),
        "largest memory for each CPU of a job")
        .excludes("MaxMemPerNode"),
    Key::honoured("MaxMemPerNode", "", |c, text| set_memory(&mut c.max_memory, MemoryPer::Node, text),
        "largest memory of a job on each node")
        .excludes("MaxMemPerCPU"),
    Key::fact("MaxMem", Show::Lines(|c| vec![shown_memory("Max", c.max_memory)])),
    Key::honoured("MaxNodeCount", "", |c, text| some(&mut c.max_node_count, &number(1, MOST_NODES), text),
        "largest number of nodes at a time, including those that join at run time")
        .shown(Show::Value(|c| c.most_nodes().to_string())),
    Key::honoured("MaxStepCount", "", |c, text| some(&mut c.max_step_count, &number(1, u32::MAX), text),
        "largest number of steps of a job")
        .shown(Show::Value(|c| Limit(1, u32::MAX, "UNLIMITED").show(&c.max_step_count))),
    key!("MaxTasksPerNode", "512", max_tasks_per_node: number(1, 65_533), "largest number of tasks of a step on a node"),
    Key::honoured("MCSPlugin", NULL, |c, text| c.mcs.set_plugin(text).map(|()| None), "which label a job gets")
        .shown(Show::AsWritten),
    Key::dropped("MemLimitEnforce"),
    Key::honoured("MCSParameters", NULL, mcs_parameters,
        "which jobs have labels, and whether nodes are reserved for a label")
        .shown(Show::AsWritten),
    key!("MessageTimeout", "10", message_timeout_secs: secs(1, SECS), "how long daemons wait for answers"),
    Key::honoured("MetricsAuthUsers", NULL, |c, text| { c.metrics.set_users(text); Ok(None) },
        "who reads metrics, with a token, beside root and SlurmUser; unset: everybody")
        .shown(Show::AsWritten),
    Key::honoured("MetricsParameters", NULL, |c, text| Ok(c.metrics.set_parameters(text)),
        "`ignore_private_data`: metrics are told whatever `PrivateData` hides")
        .shown(Show::AsWritten),
    Key::honoured("MetricsType", NULL, |c, text| c.metrics.set_type(text),
        "`metrics/openmetrics`: metrics over HTTP at `SlurmctldPort` (TCP)")
        .shown(Show::AsWritten),
    key!("MinJobAge", "300", min_job_age_secs: secs(0, u32::MAX), "how long the controller keeps an ended job; 0: for ever"),
    Key::honoured("MpiDefault", "none", |c, text| {
        let known = Mpi::named(text);
        c.mpi_default = known.unwrap_or_default();
        Ok(known.map_or_else(|| note(format!("{text} is not supported yet"), "steps need --mpi=pmi2 or pmix"), |_| None))
    }, "how the tasks of a step without `--mpi` find each other: `none`, `pmi2` or `pmix`")
        .shown(Show::AsWritten),
    Key::own_way("MpiParams", NULL),
    Key::fact("MULTIPLE_SLURMD", Show::Value(|_| "Yes".to_owned())),
    Key::not_yet("NamespaceType", NULL),
    Key::fact("NEXT_JOB_ID", Show::With(|_, facts| facts.next_job_id.to_string())),
    Key::not_yet("NodeFeaturesPlugins", NULL),
    key!("OverTimeLimit", "0", over_time_limit: Minutes, "how long jobs may exceed their time limits, minutes"),
    Key::own_way("PluginDir", NULL),
    Key::not_yet("PlugStackConfig", NULL),
    Key::dropped("PowerParameters"),
    Key::dropped("PowerPlugin"),
    Key::honoured("PreemptMode", "", |c, text| c.preempt.set_mode(text).map(|()| None), "how jobs are preempted")
        .shown(Show::Value(|c| c.preempt.shown_mode())),
    key!("PreemptParameters", "", preempt.parameters: Own(preempt::parameters, or_null),
        "further settings of preemption"),
    Key::honoured("PreemptType", "", |c, text| c.preempt.set_kind(text), "which jobs may be preempted by others")
        .shown(Show::Value(|c| c.preempt.shown_kind())),
    key!("PreemptExemptTime", "", preempt.exempt_secs: Own(preempt::exempt_time, |secs| days_and_time(*secs)),
        "how long a job runs before it may be preempted"),
    Key::own_way("PrEpParameters", NULL),
    Key::own_way("PrEpPlugins", "prep/script"),
    Key::not_yet("PriorityParameters", NULL),
    Key::not_yet("PrioritySiteFactorParameters", NULL),
    Key::not_yet("PrioritySiteFactorPlugin", NULL),
    key!("PriorityDecayHalfLife", "7-00:00:00", priority.half_life_secs: Own(priority::half_life, |secs| days_and_time(*secs)),
        "after how long past use counts half; 0: it always counts").shown_if(Config::multifactor),
    key!("PriorityCalcPeriod", "5", priority.calc_period_secs: Own(priority::period, |secs| days_and_time(*secs)),
        "time between calculations of all priorities, minutes").shown_if(Config::multifactor),
    key!("PriorityFavorSmall", "no", priority.favor_small: YES_NO, "small jobs get higher priorities").shown_if(Config::multifactor),
    Key::honoured("PriorityFlags", "", |c, text| c.priority.set_flags(text).map(|()| None), "how factors are calculated")
        .shown(Show::Value(|c| c.priority.flags.words()))
        .shown_if(Config::multifactor),
    key!("PriorityMaxAge", "7-0", priority.max_age_secs: Own(priority::max_age, |secs| days_and_time(*secs)),
        "how long a job waits for the full age factor").shown_if(Config::multifactor),
    key!("PriorityUsageResetPeriod", "NONE", priority.reset_period: Own(priority::ResetPeriod::parse, priority::ResetPeriod::word),
        "when past use is set to 0").shown_if(Config::multifactor),
    key!("PriorityType", "basic", priority_type: Plugin("priority/", &["basic", "multifactor"]),
        "how priorities of jobs are calculated"),
    key!("PriorityWeightAge", "0", priority.age: WEIGHT, "weight of the age factor").shown_if(Config::multifactor),
    key!("PriorityWeightAssoc", "0", priority.assoc: WEIGHT, "weight of the priority of the association")
        .shown_if(Config::multifactor),
    key!("PriorityWeightFairshare", "0", priority.fairshare: WEIGHT, "weight of the fair-share factor")
        .shown(Show::Lines(|c| vec![("PriorityWeightFairShare".to_owned(), WEIGHT.show(&c.priority.fairshare))]))
        .shown_if(Config::multifactor),
    key!("PriorityWeightJobSize", "0", priority.job_size: WEIGHT, "weight of the job size factor").shown_if(Config::multifactor),
    key!("PriorityWeightPartition", "0", priority.partition: WEIGHT,
        "weight of the partition factor").shown_if(Config::multifactor),
    key!("PriorityWeightQOS", "0", priority.qos: WEIGHT, "weight of the priority of the QOS").shown_if(Config::multifactor),
    Key::honoured("PriorityWeightTRES", "", |c, text| c.priority.set_tres(text),
        "weights of CPUs, memory, nodes, billing, `GRES/name`, `GRES/name:type` and `license/name`")
        .shown(Show::Value(|c| Text(NULL).show(&c.priority.tres_text)))
        .shown_if(Config::multifactor),
    Key::honoured("PrivateData", "none", |c, text| private::private_data(&mut c.private_data, text),
        "what ordinary users may not see of others: any of `jobs`, `nodes`, `partitions`, `reservations`, `usage`, `users`")
        .shown(Show::Value(|c| c.private_data.text())),
    Key::own_way("ProctrackType", "proctrack/cgroup"),
    Key::honoured("Prolog", "", |c, text| add(&mut c.prolog, text), "a program that runs on each node before a job")
        .shown(Show::Lines(|c| shown_programs("Prolog", &c.prolog)))
        .repeated(),
    Key::honoured("PrologEpilogTimeout", "", prolog_epilog_timeout, "both `PrologTimeout` and `EpilogTimeout`"),
    Key::honoured("PrologSlurmctld", "", |c, text| add(&mut c.prolog_slurmctld, text),
        "a program that the controller runs before a job is launched")
        .shown(Show::Lines(|c| shown_programs("PrologSlurmctld", &c.prolog_slurmctld)))
        .repeated(),
    key!("PrologTimeout", "UNLIMITED", prolog_timeout_secs: Limit(0, SECS, "65534"),
        "how long Prologs may run, seconds"),
    Key::honoured("PrologFlags", "", prolog_flags, "when Prolog and Epilog run, and what follows a failure")
        .shown(Show::Value(|c| or_null(&c.prolog_flags))),
    key!("PropagatePrioProcess", "0", propagate_priority: NICE, "tasks get the nice value of the command that submits them"),
    Key::honoured("PropagateResourceLimits", "", |c, text| set_limits(c, text, false),
        "resource limits of the submitting shell that tasks get")
        .shown(Show::Value(|c| shown_limits(&c.propagate_limits, false))),
    Key::honoured("PropagateResourceLimitsExcept", "", |c, text| set_limits(c, text, true),
        "resource limits of the submitting shell that tasks do not get")
        .shown(Show::Value(|c| shown_limits(&c.propagate_limits, true))),
    key!("RebootProgram", "", reboot_program: AbsolutePath, "a program that runs on a node to reboot it"),
    key!("ReconfigFlags", "", reconfig_flags: Words, "which updates are kept when the file is read again"),
    key!("RequeueExit", "", requeue_exit: Codes, "exit codes that requeue a job"),
    key!("RequeueExitHold", "", requeue_exit_hold: Codes, "exit codes that requeue a job and hold it"),
    key!("ResumeFailProgram", "", power.resume_fail_program: Text(NULL),
        "a program that is told which nodes did not come within `ResumeTimeout`"),
    key!("ResumeProgram", "", power.resume_program: Text(NULL), "the program that powers nodes up for jobs"),
    key!("ResumeRate", "300", power.resume_rate: Own(per_minute, power::rate),
        "how many nodes are powered up in a minute; 0: any number"),
    key!("ResumeTimeout", "60", power.resume_timeout: Own(Span::parse, Span::with_unit),
        "how long a node may take to come; then it is DOWN, and its jobs are requeued"),
    key!("ResvEpilog", "", resv_epilog: AbsolutePath,
        "a program that the controller runs when a reservation ends, with its name"),
    key!("ResvOverRun", "0", resv_over_run: Minutes, "how long jobs may run after the end of their reservation, minutes"),
    key!("ResvProlog", "", resv_prolog: AbsolutePath,
        "a program that the controller runs when a reservation begins, with its name"),
    key!("ReturnToService", "0", return_to_service: RETURN, "when a node that was DOWN is used again"),
    Key::dropped("RoutePlugin"),
    Key::not_yet("SallocDefaultCommand", "").shown(Show::Hidden),
    Key::not_yet("SbcastParameters", "").shown(Show::Hidden),
    Key::honoured("SchedulerParameters", "", scheduler_parameters, "how the scheduler plans")
        .shown(Show::Value(|c| Words.show(&c.scheduler_parameters))),
    Key::honoured("SchedulerTimeSlice", "", |c, text| c.preempt.set_time_slice(text).map(|()| None),
        "length of a time slice of jobs that share CPUs")
        .shown(Show::Value(|c| format!("{} sec", c.preempt.time_slice_secs()))),
    key!("SchedulerType", "backfill", scheduler_type: Plugin("sched/", &["backfill", "builtin"]),
        "whether later jobs may start before earlier ones"),
    key!("ScronParameters", "", scron_parameters: Words, "whether users may have crontabs, and how their jobs are cancelled"),
    Key::honoured("SelectType", "select/cons_tres", select_type, "what is allocated to jobs: parts of nodes, or whole nodes")
        .shown(Show::Value(|c| c.select_type.clone())),
    Key::honoured("SelectTypeParameters", "", select_type_parameters,
        "the unit that jobs do not share, and whether memory counts")
        .shown(Show::Value(|c| c.select.text.clone())),
    Key::honoured("SlurmUser", "root", |c, text| set_user(&mut c.slurm_user, text), "the user of the controller")
        .shown(Show::With(|c, facts| shown_user(&c.slurm_user, facts.slurm_uid))),
    key!("SlurmctldAddr", "", slurmctld_addr: Text(NULL), "one address for all controllers"),
    key!("SlurmctldDebug", "info", slurmctld_debug: Level, "how much the controller logs"),
    Key::honoured("SlurmctldHost", "", slurmctld_host, "the host of the controller, and its address in brackets")
        .shown(Show::Lines(shown_hosts))
        .repeated(),
    Key::honoured("SlurmctldHttpAuthParameters", NULL, |c, text| c.metrics.set_auth(text),
        "`jwt_key=FILE`: the key of tokens with which users read metrics (HS256)")
        .shown(Show::AsWritten),
    key!("SlurmctldLogFile", "", slurmctld_log_file: Text(NULL), "the log file of the controller"),
    key!("SlurmctldPort", "6817", slurmctld_port: Own(PortRange::parse, PortRange::to_string),
        "the port of the controller"),
    key!("SlurmctldSyslogDebug", "", slurmctld_syslog_debug: Level, "what also goes to the system log"),
    key!("SlurmctldPrimaryOffProg", "", primary_off: AbsolutePath,
        "a program that runs when the controller ends, or another host's controller has taken its place"),
    key!("SlurmctldPrimaryOnProg", "", primary_on: AbsolutePath,
        "a program that runs when a controller has become the cluster's, before it serves"),
    Key::not_yet("SlurmctldTimeout", "120 sec"),
    key!("SlurmctldParameters", "", slurmctld_parameters: Words, "further settings of the controller"),
    key!("SlurmdDebug", "info", slurmd_debug: Level, "how much the node daemons log"),
    Key::not_yet("SlurmdHttpAuthParameters", NULL),
    key!("SlurmdLogFile", "", slurmd_log_file: Text(NULL), "the log file of the node daemons"),
    key!("SlurmdParameters", "", slurmd_parameters: Own(slurmd_parameters, or_null),
        "further settings of the node daemons"),
    key!("SlurmdPidFile", "/var/run/slurmd.pid", slurmd_pid_file: AbsolutePath,
        "where the node daemons keep their process ids"),
    key!("SlurmdPort", "6818", slurmd_port: number(1, u16::MAX), "the port of the node daemons"),
    key!("SlurmdSpoolDir", "/var/spool/slurmd", slurmd_spool_dir: AbsolutePath, "where node daemons keep their state"),
    key!("SlurmdSyslogDebug", "", slurmd_syslog_debug: Level, "what also goes to the system log"),
    key!("SlurmdTimeout", "300", slurmd_timeout_secs: secs(0, SECS), "after how long a silent node is DOWN; 0: never"),
    Key::honoured("SlurmdUser", "root", |c, text| set_user(&mut c.slurmd_user, text), "the user of the node daemons")
        .shown(Show::With(|c, facts| shown_user(&c.slurmd_user, facts.slurmd_uid))),
    key!("SlurmSchedLogFile", "", sched_log_file: Text(NULL),
        "the log of the scheduler: what its passes came to, and how jobs move, with `SlurmSchedLogLevel=1`"),
    key!("SlurmSchedLogLevel", "0", sched_log_level: number(0, 1),
        "1: the log of the scheduler is written; `scontrol schedloglevel` changes it"),
    key!("SlurmctldPidFile", "/var/run/slurmctld.pid", slurmctld_pid_file: AbsolutePath,
        "where the controller keeps its process id"),
    Key::dropped("SlurmctldPlugstack"),
    Key::fact("SLURM_CONF", Show::Value(|c| c.path.display().to_string())),
    Key::fact("SLURM_VERSION", Show::With(|_, facts| facts.version.to_owned())),
    key!("SrunEpilog", "", srun_epilog: AbsolutePath, "a program that `srun` runs after its step"),
    Key::own_way("SrunPortRange", "0-0"),
    key!("SrunProlog", "", srun_prolog: AbsolutePath, "a program that `srun` runs before its step"),
    key!("StateSaveLocation", "/var/spool", state_save_location: AbsolutePath, "where the controller keeps its state"),
    key!("SuspendExcNodes", "", power.kept_nodes: Own(KeptNodes::parse, or_null),
        "nodes that are not powered down; `NODES:4`: four of them that could be used"),
    key!("SuspendExcParts", "", power.kept_partitions: Own(|text| Ok(values::list(text)), |names| power::shown_list(names)),
        "partitions whose nodes are not powered down"),
    key!("SuspendExcStates", "", power.kept_states: Own(KeptStates::parse, or_null),
        "states in which nodes are not powered down"),
    key!("SuspendProgram", "", power.suspend_program: Text(NULL), "the program that powers idle nodes down"),
    key!("SuspendRate", "60", power.suspend_rate: Own(per_minute, power::rate),
        "how many nodes are powered down in a minute; 0: any number"),
    key!("SuspendTime", "INFINITE", power.suspend_time: Own(Span::parse_long, Span::with_unit),
        "after how long an idle node is powered down"),
    key!("SuspendTimeout", "30", power.suspend_timeout: Own(Span::parse, Span::with_unit),
        "how long powering down takes: nothing else is done with the node until then"),
    Key::own_way("SwitchParameters", NULL),
    Key::own_way("SwitchType", NULL),
    key!("TaskEpilog", "", task_epilog: Text(NULL), "a program that runs as the job's user after each task"),
    Key::own_way("TaskPlugin", "task/affinity"),
    Key::own_way("TaskPluginParam", "(null type)"),
    key!("TaskProlog", "", task_prolog: Text(NULL),
        "a program that runs as the job's user before each task, and may change its environment"),
    Key::own_way("TCPTimeout", "2 sec"),
    Key::own_way("TLSParameters", NULL),
    Key::own_way("TLSType", NULL),
    key!("TmpFS", "/tmp", tmp_fs: AbsolutePath, "the folder for temporary files on nodes"),
    Key::honoured("TopologyParam", "", topology_param, "which jobs the topology applies to, and whether it orders nodes")
        .shown(Show::Value(|c| Words.show(&c.topology_param))),
    key!("TopologyPlugin", "flat", topology_type: TOPOLOGY, "how the nodes are connected")
        .shown(Show::Value(|c| format!("topology/{}", c.topology_plugin()))),
    key!("TrackWCKey", "No", track_wckey: YES_NO,
        "jobs that name no WCKey are recorded with their user's default one"),
    Key::own_way("TreeWidth", "16"),
    key!("UnkillableStepProgram", "", unkillable_step_program: AbsolutePath,
        "a program that runs on a node where processes of a job cannot be killed"),
    key!("UnkillableStepTimeout", "60", unkillable_step_timeout_secs: secs(0, SECS),
        "how long killing is tried before `UnkillableStepProgram` runs"),
    Key::own_way("UrlParserType", "url_parser/libhttp_parser"),
    Key::not_yet("UsePAM", "No"),
    Key::not_yet("VSizeFactor", "0 percent"),
    key!("WaitTime", "0", wait_time_secs: secs(0, SECS),
        "how long other tasks of a step may run after the first one ends; 0: for ever"),
    Key::not_yet("X11Parameters", NULL),
];

static DEFAULTS: LazyLock<Config> = LazyLock::new(|| with_defaults(GLOBAL, Config::blank()));

impl Default for Config {
    fn default() -> Self {
        DEFAULTS.clone()
    }
}

/// Nodes in a minute.
fn per_minute(text: &str) -> Value<u32> {
    values::number(text, 0, u32::MAX)
}

/// What there is to say about a value that was accepted.
type Note = Option<SettingError>;

fn note(cause: impl Into<String>, suggestion: &str) -> Note {
    Some(SettingError::new(cause).suggest(suggestion))
}

/// What of it is not honoured, if anything.
fn rest_counts(not_yet: &[&str]) -> Note {
    if not_yet.is_empty() {
        return None;
    }
    note(format!("{} is not supported yet", not_yet.join(", ")), "the rest counts")
}

fn enforce(config: &mut Config, text: &str) -> Value<Note> {
    config.enforce = Enforce::parse(text)?;
    Ok(None)
}

fn host_name(text: &str) -> Value<String> {
    let fits = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == ':')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c));
    if fits { Ok(text.to_owned()) } else { Err(SettingError::new(format!("\"{text}\" is not a host"))) }
}

fn accounting(config: &mut Config, text: &str) -> Value<Note> {
    let lower = text.to_ascii_lowercase();
    let plugin = lower.strip_prefix("accounting_storage/").unwrap_or(&lower);
    config.accounting = plugin == "slurmdbd";
    Ok(if config.accounting { None } else { only_known(text, "accounting_storage/") })
}

/// `none` is the one plugin that Garrick has under the same name.
fn only_known(value: &str, kind: &str) -> Note {
    let lower = value.to_ascii_lowercase();
    if lower.strip_prefix(kind).unwrap_or(&lower) == "none" {
        return None;
    }
    note(format!("{value} is not supported yet"), "nothing is recorded")
}

fn cluster_name(text: &str) -> Value<String> {
    let fits = !text.is_empty() && text.len() <= 40 && !text.contains([' ', '/', ',', '%']);
    if fits {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(SettingError::new(format!(
            "\"{text}\" is not a name of 1 to 40 characters without blanks, commas and slashes"
        )))
    }
}

/// `host` or `host(address)`.
fn controller(text: &str) -> Value<ControllerHost> {
    let wrong =
        || SettingError::new(format!("\"{text}\" is not a host")).suggest("NAME or NAME(ADDRESS), one on each line");
    let (name, address) = match text.split_once('(') {
        Some((name, rest)) => (name, Some(rest.strip_suffix(')').ok_or_else(wrong)?)),
        None => (text, None),
    };
    if name.is_empty() || address == Some("") || text.contains([',', ' ', '/']) {
        return Err(wrong());
    }
    Ok(ControllerHost { name: name.to_owned(), address: address.map(str::to_owned) })
}

fn slurmctld_host(config: &mut Config, text: &str) -> Value<Note> {
    config.controllers.push(controller(text)?);
    Ok(match &config.controllers[..] {
        [first, .., second] => note(
            format!("a second controller is not supported yet: {} takes nothing over", second.name),
            &format!("{} alone is the controller", first.name),
        ),
        _ => None,
    })
}

fn shown_hosts(config: &Config) -> Vec<(String, String)> {
    let shown = |(n, controller): (usize, &ControllerHost)| {
        let address = controller.address.as_ref().map(|a| format!("({a})")).unwrap_or_default();
        (format!("SlurmctldHost[{n}]"), format!("{}{address}", controller.name))
    };
    config.controllers.iter().enumerate().map(shown).collect()
}

fn control_machine(config: &mut Config, text: &str) -> Value<Note> {
    config.controllers.insert(0, controller(text)?);
    Ok(note("ControlMachine is an older name", "write SlurmctldHost=NAME(ADDRESS)"))
}

fn control_addr(config: &mut Config, text: &str) -> Value<Note> {
    let primary = config.controllers.first_mut();
    let primary = primary.ok_or_else(|| SettingError::new("there is no ControlMachine above it"))?;
    primary.address = values::optional(text);
    Ok(note("ControlAddr is an older name", "write SlurmctldHost=NAME(ADDRESS)"))
}

fn set_user(field: &mut String, text: &str) -> Value<Note> {
    if text.is_empty() || text.contains([' ', ':', '/']) {
        return Err(SettingError::new(format!("\"{text}\" is not a user's name or number")));
    }
    // `scontrol show config` writes it as name(number).
    *field = text.split_once('(').map_or(text, |(name, _)| name).to_owned();
    Ok(None)
}

fn shown_user(name: &str, uid: Option<u32>) -> String {
    uid.map_or_else(|| name.to_owned(), |uid| format!("{name}({uid})"))
}

fn add(programs: &mut Vec<String>, text: &str) -> Value<Note> {
    programs.extend(values::optional(text));
    Ok(None)
}

fn shown_programs(name: &str, programs: &[String]) -> Vec<(String, String)> {
    if programs.is_empty() {
        return vec![(name.to_owned(), NULL.to_owned())];
    }
    programs.iter().enumerate().map(|(n, path)| (format!("{name}[{n}]"), path.clone())).collect()
}

fn prolog_epilog_timeout(config: &mut Config, text: &str) -> Value<Note> {
    let limit = values::number_or_unlimited(text, 0, 65_534)?.filter(|&n| n <= SECS);
    (config.prolog_timeout_secs, config.epilog_timeout_secs) = (limit, limit);
    Ok(None)
}

fn debug_flags(config: &mut Config, text: &str) -> Value<Note> {
    let (flags, not_yet) = DebugFlags::parse(text)?;
    config.debug_flags = flags;
    Ok(rest_counts(&not_yet))
}

fn prolog_flags(config: &mut Config, text: &str) -> Value<Note> {
    let (flags, not_yet) = PrologFlags::parse(text)?;
    config.prolog_flags = flags;
    Ok(rest_counts(&not_yet))
}

fn gres_types(config: &mut Config, text: &str) -> Value<Note> {
    config.gres.types = values::list_or_none(text);
    Ok(None)
}

fn read_licenses(config: &mut Config, text: &str) -> Value<Note> {
    let wrong = |e: LicensesError| SettingError::new(e.to_string()).suggest("NAME:COUNT,NAME:COUNT");
    config.licenses = match values::optional(text) {
        Some(text) => text.parse().map_err(wrong)?,
        None => Licenses::default(),
    };
    if values::list(text).len() > config.licenses.0.len() {
        return Ok(note("a license is given more than once", "its counts are added up"));
    }
    Ok(None)
}

fn mcs_parameters(config: &mut Config, text: &str) -> Value<Note> {
    let without = config.mcs.set_parameters(text)?;
    let instead = "users see jobs and nodes of all labels";
    Ok(without.and_then(|word| note(format!("{word} is not supported yet"), instead)))
}

fn scheduler_parameters(config: &mut Config, text: &str) -> Value<Note> {
    let (parameters, note) = scheduling::parameters(text)?;
    config.scheduler_parameters = parameters;
    Ok(note)
}

fn select_type(config: &mut Config, text: &str) -> Value<Note> {
    let words = ["select/cons_tres", "select/cons_res", "select/linear", "select/cray_aries"];
    config.select_type = values::choice(text, &words)?.to_owned();
    match config.select_type.as_str() {
        "select/linear" => {
            config.select.unit = SelectUnit::Node;
            Ok(None)
        }
        "select/cray_aries" => Ok(note(format!("{text} is not supported"), "select/cons_tres is used")),
        _ => Ok(None),
    }
}

fn select_type_parameters(config: &mut Config, text: &str) -> Value<Note> {
    config.select = SelectParameters::parse(text)?;
    Ok(config.select.not_yet())
}

/// Options of `LaunchParameters` that are acted on.
const LAUNCH: &[&str] = &["use_interactive_step"];
/// Options that Slurm has besides.
const LAUNCH_NOT_YET: &[&str] = &[
    "batch_step_set_cpu_freq",
    "cray_net_exclusive",
    "disable_send_gids",
    "enable_nss_slurm",
    "interactive_step_set_cpu_freq",
    "lustre_no_flush",
    "mpir_use_nodeaddr",
    "slurmstepd_memlock",
    "slurmstepd_memlock_all",
    "srun_exclusive_allocation",
    "test_exec",
    "ulimit_pam_adopt",
];

fn launch_parameters(config: &mut Config, text: &str) -> Value<Note> {
    let (taken, not_yet) = words_of(text, LAUNCH, LAUNCH_NOT_YET)?;
    config.launch_parameters = taken;
    Ok(rest_counts(&not_yet))
}

/// Words of a list: as they are shown, and those without effect.
fn words_of(text: &str, known: &[&'static str], not_yet: &[&'static str]) -> Value<(Parameters, Vec<&'static str>)> {
    let all = [known, not_yet].concat();
    let (mut taken, mut without) = (Vec::new(), Vec::new());
    for word in Parameters::parse(text).0 {
        let name = values::choice(word.split('=').next().unwrap_or(&word), &all)?;
        if known.contains(&name) {
            taken.push(name.to_owned());
        } else {
            without.push(name);
            taken.push(word);
        }
    }
    Ok((Parameters(taken), without))
}

/// Options of `TopologyParam` that are acted on.
const TOPOLOGY_PARAM: &[&str] = &["BlockAsNodeRank", "SwitchAsNodeRank", "TopoOptional"];
/// Options that Slurm has besides.
const TOPOLOGY_PARAM_NOT_YET: &[&str] = &["Dragonfly", "RoutePart", "RouteTree", "TopoMaxSizeUnroll"];

fn topology_param(config: &mut Config, text: &str) -> Value<Note> {
    let (taken, not_yet) = words_of(text, TOPOLOGY_PARAM, TOPOLOGY_PARAM_NOT_YET)?;
    config.topology_param = taken;
    Ok(rest_counts(&not_yet))
}

const LIMITS: &[&str] = &[
    "ALL", "NONE", "AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NICE", "NOFILE", "NPROC", "RSS", "RTPRIO", "STACK",
];

fn limits(text: &str, except: bool) -> Value<PropagateLimits> {
    let names: Vec<String> = values::list(text)
        .iter()
        .map(|word| values::choice(word.strip_prefix("RLIMIT_").unwrap_or(word), LIMITS).map(str::to_owned))
        .collect::<Value<Vec<_>>>()?;
    let has = |word: &str| names.iter().any(|n| n == word);
    Ok(match (except, has("ALL"), has("NONE")) {
        (false, true, _) | (true, _, true) => PropagateLimits::All,
        (false, _, true) | (true, true, _) => PropagateLimits::None,
        (false, false, false) => PropagateLimits::Only(names),
        (true, false, false) => PropagateLimits::Except(names),
    })
}

fn set_limits(config: &mut Config, text: &str, except: bool) -> Value<Note> {
    config.propagate_limits = limits(text, except)?;
    Ok(None)
}

fn shown_limits(limits: &PropagateLimits, except: bool) -> String {
    match (limits, except) {
        (PropagateLimits::All, false) => "ALL".to_owned(),
        (PropagateLimits::None, false) => "NONE".to_owned(),
        (PropagateLimits::Only(names), false) | (PropagateLimits::Except(names), true) => names.join(","),
        _ => NULL.to_owned(),
    }
}

/// Words, of which two of our own are numbers: how long records of steps stay.
fn slurmd_parameters(text: &str) -> Value<Parameters> {
    let parameters = Parameters::parse(text);
    for name in ["step_records_days", "step_records_mib"] {
        if let Some(number) = parameters.value(name) {
            values::number(number, 0, u32::MAX)?;
        }
    }
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_travel_as_told() {
        assert_eq!(limits("ALL", false), Ok(PropagateLimits::All));
        assert_eq!(limits("NONE", false), Ok(PropagateLimits::None));
        assert_eq!(limits("ALL", true), Ok(PropagateLimits::None));
        assert_eq!(
            limits("nofile,RLIMIT_CORE", false),
            Ok(PropagateLimits::Only(vec!["NOFILE".into(), "CORE".into()]))
        );
        assert!(limits("NOFILES", false).is_err());
    }

    #[test]
    fn controllers_have_names_and_addresses() {
        let read = |text: &str| controller(text).map(|c| (c.name, c.address));
        assert_eq!(read("a"), Ok(("a".to_owned(), None)));
        assert_eq!(read("a(10.0.0.1)"), Ok(("a".to_owned(), Some("10.0.0.1".to_owned()))));
        for text in ["", "a(", "a()", "a,b", "(x)", "a(b)c"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
