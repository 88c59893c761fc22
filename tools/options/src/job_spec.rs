//! Checks the options and turns them into a [`JobSpec`]. Called by `sbatch`, `salloc`, and `srun` without an allocation.

use super::{
    gres, layout,
    typed::{OptionError, Source, Sourced, Typed},
    values,
};
use garrick_model::{
    cpu_freq::{CpuFreq, FrequencyRules},
    hostlist,
    node_sizes::NodeSizes,
    refusal::Refusal,
    spec::{Distribution, EnvEntry, JobKind, JobSpec, NodeCount, ResourceLimit},
};
use serde_bytes::ByteBuf;
use std::{
    collections::BTreeSet,
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The process that asks, as far as it travels with a job or step.
#[derive(Clone, Debug, Default)]
pub struct Submitter {
    /// Its working directory.
    pub work_dir: PathBuf,
    /// Host.
    pub host: String,
    /// Process.
    pub pid: u32,
    /// Session.
    pub session: u32,
    /// File mode creation mask.
    pub umask: u32,
    /// Nice value.
    pub nice: i32,
    /// Soft limits that travel.
    pub rlimits: Vec<ResourceLimit>,
    /// Variables that travel.
    pub environment: Vec<EnvEntry>,
    /// The command line as typed.
    pub submit_line: String,
    /// What the site makes of `--cpu-freq`.
    pub frequencies: FrequencyRules,
}

/// What is to run.
#[derive(Clone, Debug)]
pub struct Work {
    /// A batch script or an allocation.
    pub kind: JobKind,
    /// Name where the user gives none.
    pub default_name: String,
    /// Arguments of the script, or the command.
    pub argv: Vec<OsString>,
    /// The script's text.
    pub script: Option<Vec<u8>>,
    /// The script's path.
    pub command: Option<String>,
}

/// A specification, and what to tell the user about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked<T> {
    /// Specification.
    pub spec: T,
    /// Lines for the user.
    pub warnings: Vec<String>,
}

/// What `--licenses` and `--resources` ask for together.
fn all_licenses(typed: &Typed) -> Option<String> {
    let asked: Vec<&str> = [&typed.licenses, &typed.resources]
        .into_iter()
        .flatten()
        .map(String::as_str)
        .filter(|t| !t.is_empty())
        .collect();
    Some(asked.join(",")).filter(|text| !text.is_empty())
}

/// Checks and converts.
pub fn build(typed: &Typed, submitter: Submitter, work: Work) -> Result<Checked<JobSpec>, OptionError> {
    let mut warnings = Vec::new();
    let task_nodes = task_nodes(typed)?;
    let nodes = if task_nodes.is_empty() { fitting_nodes(typed, &mut warnings) } else { None };
    if typed.begin.zip(typed.deadline).is_some_and(|(begin, deadline)| deadline < begin) {
        let text = "Incompatible begin and deadline time specification";
        return Err(OptionError::Text(text.to_owned()));
    }
    // As many tasks as threads are asked for (`--extra-node-info` in sbatch(1)).
    let by_threads = typed.layout.threads_of_node.filter(|_| typed.ntasks_per_node.is_none());
    let by_threads = by_threads.map(|threads| threads.saturating_mul(nodes.map_or(1, |nodes| nodes.min)));
    let mut environment = submitter.environment;
    if typed.user_env {
        environment.push(ByteBuf::from(b"SLURM_GET_USER_ENV=1".to_vec()));
    }
    let spec = JobSpec {
        kind: work.kind,
        name: typed.job_name.clone().filter(|n| !n.is_empty()).unwrap_or(work.default_name),
        account: typed.account.clone(),
        qos: typed.qos.clone(),
        comment: typed.comment.clone(),
        mail: typed.mail.clone(),
        extra: typed.extra.clone().filter(|text| !text.is_empty()),
        wckey: typed.wckey.clone(),
        partitions: typed.partitions.clone(),
        delay_boot_secs: typed.delay_boot_secs,
        node_sizes: if task_nodes.is_empty() && nodes == typed.nodes.map(|n| n.value) {
            typed.node_sizes.clone()
        } else {
            NodeSizes::default()
        },
        nodes: if task_nodes.is_empty() { nodes } else { Some(distinct(&task_nodes)) },
        tasks: match u32::try_from(task_nodes.len()) {
            Ok(0) => typed.ntasks.map(|n| n.value).or(by_threads),
            listed => listed.ok(),
        },
        // A list says how many each node has.
        tasks_per_node: typed.ntasks_per_node.filter(|_| task_nodes.is_empty()).map(|n| n.value),
        cpus_per_task: gres::cpus_of_task(typed),
        min_cpus_per_node: typed.mincpus,
        memory: typed.memory.map(|m| m.value).unwrap_or_default(),
        tmp_disk_mib: typed.tmp_disk_mib,
        time_limit: typed.time_limit,
        time_min: typed.time_min,
        constraint: typed.constraint.clone().filter(|c| !c.is_empty()),
        prefer: typed.prefer.clone().filter(|p| !p.is_empty()),
        batch_features: typed.batch_features.clone().filter(|f| !f.is_empty()),
        reboot: typed.reboot,
        gres: gres::of_job(typed)?,
        user_env: typed.user_env,
        cpu_freq: frequency(typed, &submitter.frequencies)?,
        gpu_freq: typed.gpu_freq,
        sample_secs: typed.sample_secs,
        profiling: typed.profiling,
        oom_kill_step: typed.oom_kill_step,
        reservations: typed.reservations.clone(),
        licenses: all_licenses(typed),
        nodelist: if task_nodes.is_empty() { asked_nodes(typed)? } else { each_once(task_nodes.clone()) },
        exclude: excluded_nodes(typed)?,
        sharing: typed.sharing,
        mcs_label: typed.mcs_label.clone().filter(|label| !label.is_empty()),
        contiguous: typed.contiguous,
        topology: typed.topology.clone(),
        layout: layout::of_job(typed, task_nodes)?,
        array: typed.array.clone(),
        dependencies: typed.dependencies.clone().unwrap_or_default(),
        begin: typed.begin,
        deadline: typed.deadline,
        hold: typed.hold,
        priority: typed.priority,
        nice: typed.nice,
        requeue: typed.requeue,
        expedite: typed.expedite,
        no_kill: typed.no_kill,
        kill_on_invalid_dep: typed.kill_on_invalid_dep,
        immediate_secs: typed.immediate_secs,
        work_dir: work_dir(typed, &submitter.work_dir)?,
        stdin: typed.input.clone(),
        stdout: typed.output.clone(),
        stderr: typed.error.clone(),
        open_mode: typed.open_mode,
        environment: Arc::new(environment),
        script: work.script.map(|text| Arc::new(ByteBuf::from(text))),
        argv: byte_words(work.argv),
        umask: submitter.umask,
        process_nice: submitter.nice,
        rlimits: submitter.rlimits,
        signal: typed.signal,
        submit_host: submitter.host,
        alloc_sid: submitter.session,
        submit_line: submitter.submit_line,
        command: work.command,
        het: None,
        het_size: 0,
        array_task: None,
        cron: None,
    };
    Ok(Checked { spec, warnings })
}

/// `--cpu-freq`, as the site has it.
pub(super) fn frequency(typed: &Typed, rules: &FrequencyRules) -> Result<Option<CpuFreq>, OptionError> {
    typed.cpu_freq.as_deref().map(|text| values::cpu_frequency(text, rules)).transpose()
}

/// Words as they travel.
pub fn byte_words(words: Vec<OsString>) -> Vec<ByteBuf> {
    words.into_iter().map(|w| ByteBuf::from(w.into_vec())).collect()
}

/// The working directory, absolute.
pub fn work_dir(typed: &Typed, current: &Path) -> Result<String, OptionError> {
    let path = match &typed.chdir {
        Some(chdir) => current.join(chdir),
        None => current.to_owned(),
    };
    path.into_os_string()
        .into_string()
        .map_err(|p| OptionError::Text(format!("working directory is not UTF-8: {}", p.to_string_lossy())))
}

/// The node count, made small enough for the tasks that are asked for.
pub fn fitting_nodes(typed: &Typed, warnings: &mut Vec<String>) -> Option<NodeCount> {
    let nodes = typed.nodes?.value;
    let Some(Sourced { value: tasks, .. }) = typed.ntasks else { return Some(nodes) };
    if tasks >= nodes.min {
        return Some(nodes);
    }
    warnings.push(format!("can't run {tasks} processes on {} nodes, setting nnodes to {tasks}", nodes.min));
    Some(NodeCount { min: tasks, max: nodes.max.map(|max| max.min(tasks)) })
}

/// With `--distribution=arbitrary`: the node of each task, from SLURM_HOSTFILE or `--nodelist`, where one of them is there:
/// so many as there are to be tasks, or on so many nodes as are asked for.
pub fn task_nodes(typed: &Typed) -> Result<Vec<String>, OptionError> {
    let mut names = match (&typed.hostfile, &typed.nodelist) {
        _ if typed.distribution != Some(Distribution::Arbitrary) => return Ok(Vec::new()),
        (Some(file), _) => names_in_file("nodelist", file)?,
        (None, Some(list)) => node_names("nodelist", list)?,
        (None, None) => return Ok(Vec::new()),
    };
    let asked = |count: Sourced<u32>| (count.source != Source::Environment).then_some(count.value as usize);
    if let Some(tasks) = typed.ntasks.and_then(asked) {
        if names.len() < tasks {
            let text = format!("{tasks} tasks were asked for, and the list of nodes for them has {}", names.len());
            return Err(OptionError::Text(text));
        }
        names.truncate(tasks);
    } else if let Some(nodes) = typed.nodes.filter(|n| n.source != Source::Environment).map(|n| n.value) {
        let found = distinct(&names).min;
        if found < nodes.min {
            let text = format!("{} nodes were asked for, and the list of nodes for tasks has {found}", nodes.min);
            return Err(OptionError::Text(text));
        }
        let most = nodes.max.unwrap_or(nodes.min) as usize;
        let mut seen = BTreeSet::new();
        let within = names.iter().take_while(|name| {
            seen.insert(name.as_str());
            seen.len() <= most
        });
        let within = within.count();
        names.truncate(within);
    }
    Ok(names)
}

/// How many different nodes these are.
fn distinct(names: &[String]) -> NodeCount {
    let count = u32::try_from(names.iter().collect::<BTreeSet<_>>().len()).unwrap_or(u32::MAX);
    NodeCount { min: count, max: Some(count) }
}

fn each_once(mut names: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

/// `--nodelist` and `--nodefile`, each name once, in the order given.
pub fn asked_nodes(typed: &Typed) -> Result<Vec<String>, OptionError> {
    let mut names = match &typed.nodelist {
        Some(list) => node_names("nodelist", list)?,
        None => Vec::new(),
    };
    if let Some(file) = &typed.nodefile {
        names.extend(names_in_file("nodefile", file)?);
    }
    Ok(each_once(names))
}

/// `--exclude`.
pub fn excluded_nodes(typed: &Typed) -> Result<Vec<String>, OptionError> {
    typed.exclude.as_ref().map_or_else(|| Ok(Vec::new()), |list| node_names("exclude", list))
}

/// A host list, or a file of them when there is a slash in it.
fn node_names(option: &'static str, text: &str) -> Result<Vec<String>, OptionError> {
    if text.contains('/') {
        names_in_file(option, text)
    } else {
        hostlist::expand(text).map_err(|_| match option {
            "nodelist" => OptionError::Fatal("Invalid node list specified".to_owned()),
            _ => OptionError::Refused(Refusal::InvalidNode(text.to_owned())),
        })
    }
}

fn names_in_file(option: &'static str, path: &str) -> Result<Vec<String>, OptionError> {
    let text = std::fs::read_to_string(path).map_err(|cause| {
        let error = OptionError::Text(format!("Invalid --{option} node file"));
        error.after(format!("slurm_allocate_resources error opening file {path}, {cause}"))
    })?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let lists: Vec<&str> = lines.flat_map(str::split_whitespace).map(|w| w.trim_matches(',')).collect();
    hostlist::expand(&lists.join(",")).map_err(|_| OptionError::Invalid { name: option })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        sources::{command_line, lay_over},
        table::Command,
    };
    use garrick_model::{
        resources::{MemoryMib, MemoryRequest},
        spec::Sharing,
        time::{TimeLimit, Timestamp},
    };

    fn typed(args: &str) -> Typed {
        let args: Vec<OsString> = args.split_whitespace().map(OsString::from).collect();
        let parsed = command_line(Command::Sbatch, &args).unwrap();
        lay_over(Command::Sbatch, &[], &|_| None, &parsed.options, Timestamp::from_secs(0)).unwrap()
    }

    fn built(args: &str) -> Checked<JobSpec> {
        let submitter = Submitter { work_dir: "/home/alice".into(), umask: 0o22, ..Submitter::default() };
        let work = Work {
            kind: JobKind::Batch,
            default_name: "job.sh".to_owned(),
            argv: vec!["a".into()],
            script: Some(b"#!/bin/sh\n".to_vec()),
            command: Some("/home/alice/job.sh".to_owned()),
        };
        build(&typed(args), submitter, work).unwrap()
    }

    #[test]
    fn an_ordinary_batch_line_becomes_a_specification() {
        let spec = built("-J demo -N2-3 -n4 -c2 --mem=1G -t 10 -p a,b -w n[1-2] -x n9 --exclusive=user -H --nice").spec;
        assert_eq!((spec.name.as_str(), spec.tasks, spec.cpus_per_task), ("demo", Some(4), Some(2)));
        assert_eq!(spec.nodes, Some(NodeCount { min: 2, max: Some(3) }));
        assert_eq!(spec.memory, MemoryRequest::PerNode(MemoryMib(1024)));
        assert_eq!(spec.time_limit, Some(TimeLimit::Secs(600)));
        assert_eq!((spec.partitions, spec.nodelist), (vec!["a".into(), "b".into()], vec!["n1".into(), "n2".into()]));
        assert_eq!((spec.exclude, spec.sharing, spec.hold, spec.nice), (vec!["n9".into()], Sharing::User, true, 100));
        assert_eq!((spec.work_dir.as_str(), spec.umask), ("/home/alice", 0o22));
    }

    #[test]
    fn defaults_are_the_scripts_name_and_nothing_else() {
        let spec = built("").spec;
        assert_eq!(spec.name, "job.sh");
        assert_eq!((spec.nodes, spec.tasks, spec.time_limit, spec.stdout), (None, None, None, None));
    }

    #[test]
    fn fewer_tasks_than_nodes_make_fewer_nodes() {
        let checked = built("-N5 -n4");
        assert_eq!(checked.warnings, ["can't run 4 processes on 5 nodes, setting nnodes to 4"]);
        assert_eq!(checked.spec.nodes.unwrap().min, 4);
        assert!(built("-N4 -n4").warnings.is_empty());
    }

    fn refused(args: &str) -> String {
        let work = Work {
            kind: JobKind::Batch,
            default_name: "job.sh".to_owned(),
            argv: Vec::new(),
            script: None,
            command: None,
        };
        let args: Vec<OsString> = args.split_whitespace().map(OsString::from).collect();
        let parsed = command_line(Command::Sbatch, &args).unwrap();
        lay_over(Command::Sbatch, &[], &|_| None, &parsed.options, Timestamp::from_secs(0))
            .map_err(|error| format!("{error:?}"))
            .and_then(|typed| build(&typed, Submitter::default(), work).map_err(|error| error.to_string()))
            .map(drop)
            .unwrap_err()
    }

    #[test]
    fn a_list_says_the_node_of_each_task_of_an_arbitrary_job() {
        let asked = |args: &str| {
            let spec = built(args).spec;
            (spec.tasks, spec.nodes.map(|n| (n.min, n.max)), spec.nodelist.join(","), spec.layout.task_nodes.join(","))
        };
        let all = (Some(4), Some((3, Some(3))), "n2,n1,n3".to_owned(), "n2,n1,n2,n3".to_owned());
        assert_eq!(asked("-m arbitrary -w n2,n1,n2,n3"), all);
        assert_eq!(asked("-m arbitrary -w n2,n1,n2,n3 --ntasks-per-node=2 -N3"), all);
        let two = (Some(3), Some((2, Some(2))), "n2,n1".to_owned(), "n2,n1,n2".to_owned());
        assert_eq!(asked("-m arbitrary -w n2,n1,n2,n3 -n3"), two);
        assert_eq!(asked("-m arbitrary -w n2,n1,n2,n3 -N2"), two);
        assert_eq!(asked("-m arbitrary -n3"), (Some(3), None, String::new(), String::new()), "as block");
        assert_eq!(
            refused("-m arbitrary -w n2,n1 -n3"),
            "3 tasks were asked for, and the list of nodes for them has 2"
        );
        assert_eq!(
            refused("-m arbitrary -w n2,n1 -N3"),
            "3 nodes were asked for, and the list of nodes for tasks has 2"
        );
    }

    #[test]
    fn what_excludes_each_other_is_refused_in_one_place() {
        for (args, both) in [
            ("--mem=1G --mem-per-cpu=1G", "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive."),
            ("--mem-per-cpu=0 --mem=0", "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive."),
            ("-c3 --cpus-per-gpu=2 --gpus=2", "--cpus-per-task and --cpus-per-gpu are mutually exclusive."),
            ("--tres-per-task=cpu=2 -c3", "--tres-per-task and --cpus-per-task are mutually exclusive."),
            ("--gres=gpu:1 --gpus-per-node=1", "--gres=gpu and --gpus-per-node are mutually exclusive."),
            ("--exclusive --oversubscribe", "--exclusive and --oversubscribe are mutually exclusive."),
            ("--hint=compute_bound -B 2", "mutually exclusive with --hint"),
            ("--begin=now+2hours --deadline=now+1hour", "Incompatible begin and deadline time specification"),
        ] {
            let said = refused(args);
            assert!(said.contains(both), "{args}: {said}");
        }
        assert_eq!(built("--mem=1G --mem=2G").spec.memory, MemoryRequest::PerNode(MemoryMib(2048)));
        assert_eq!(built("-c3 -c4").spec.cpus_per_task, Some(4));
    }

    #[test]
    fn a_task_for_each_thread_that_is_asked_for() {
        assert_eq!(built("-B 2:2:2").spec.tasks, Some(8));
        assert_eq!(built("-N2 -B 2:2:2").spec.tasks, Some(16));
        assert_eq!(built("-n3 -B 2:2:2").spec.tasks, Some(3));
        assert_eq!(built("-B 2:2").spec.tasks, None);
    }

    #[test]
    fn commas_are_no_partition() {
        assert_eq!(built("-p ,").spec.partitions, [","]);
        assert_eq!(built("-p a,").spec.partitions, ["a"]);
    }

    #[test]
    fn a_relative_directory_is_taken_from_the_current_one() {
        assert_eq!(built("-D sub").spec.work_dir, "/home/alice/sub");
        assert_eq!(built("-D /tmp").spec.work_dir, "/tmp");
    }

    #[test]
    fn zero_memory_asks_for_all() {
        assert_eq!(built("--mem=0").spec.memory, MemoryRequest::All);
    }

    #[test]
    fn a_node_file_may_span_lines_and_repeat_names() {
        let dir = std::env::temp_dir().join(format!("garrick-nodefile-{}", std::process::id()));
        std::fs::write(&dir, "n1 n2, # first\nn[2-3]\n").unwrap();
        let typed = Typed { nodefile: Some(dir.to_str().unwrap().to_owned()), ..Typed::default() };
        assert_eq!(asked_nodes(&typed).unwrap(), ["n1", "n2", "n3"]);
        std::fs::remove_file(&dir).unwrap();
        let error = asked_nodes(&typed).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.exit_code()), ("Invalid --nodefile node file", 255));
    }
}
