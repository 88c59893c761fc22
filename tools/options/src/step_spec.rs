//! Checks the options and turns them into a [`StepSpec`]. Called by `srun`.

use super::{
    gres,
    job_spec::{
        Checked, Submitter, asked_nodes, byte_words, excluded_nodes, fitting_nodes, frequency, task_nodes, work_dir,
    },
    layout,
    typed::{OptionError, Source, Typed},
};
use garrick_model::{
    resources::MemoryRequest,
    spec::{Distribution, HetPart, MultiProg, Sharing, StdinTo, StepSharing, StepSpec, StreamTarget},
};
use serde_bytes::ByteBuf;
use std::{ffi::OsString, path::Path};

/// What is to run.
#[derive(Clone, Debug, Default)]
pub struct StepWork {
    /// Program and arguments; a script's arguments.
    pub argv: Vec<OsString>,
    /// Lines of a `--multi-prog` file.
    pub multi_prog: Vec<MultiProg>,
    /// Text of a script.
    pub script: Option<Vec<u8>>,
    /// Path of the program, the script or the file, for the name.
    pub program: OsString,
}

/// Where the standard streams go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepStreams {
    /// Input.
    pub stdin: StreamTarget,
    /// Who gets relayed input.
    pub stdin_to: StdinTo,
    /// Output.
    pub stdout: StreamTarget,
    /// Errors.
    pub stderr: StreamTarget,
    /// Output goes to a file that the user did not name.
    pub unasked_output: bool,
}

/// Checks and converts. `pty` is the size of the terminal, for `--pty`.
pub fn build(
    typed: &Typed,
    submitter: Submitter,
    work: StepWork,
    streams: StepStreams,
    pty: Option<(u16, u16)>,
) -> Result<Checked<StepSpec>, OptionError> {
    let mut warnings = Vec::new();
    if !typed.node_sizes.is_empty() {
        return Err(OptionError::NotSupported(format!("--nodes={} for a step of a job", typed.node_sizes)));
    }
    let task_nodes = task_nodes(typed)?;
    let nodelist = if task_nodes.is_empty() { asked_nodes(typed)? } else { Vec::new() };
    let exclude = excluded_nodes(typed)?;
    // The variables of the job say how many nodes the job has. A user who picks nodes on the command line means those.
    let picks = !nodelist.is_empty() || !exclude.is_empty() || typed.relative.is_some();
    let inherited = typed.nodes.is_some_and(|n| n.source == Source::Environment);
    let nodes = if picks && inherited { None } else { fitting_nodes(typed, &mut warnings) };
    // The same for tasks: an inherited layout does not hold for another number of tasks.
    let tasks_per_node = typed.ntasks_per_node.filter(|per_node| {
        per_node.source != Source::Environment || typed.ntasks.is_none_or(|n| n.source == Source::Environment)
    });
    // A list says how many tasks there are, not the job's variables: the step's own, or as much of the job's as is on so many
    // nodes.
    let some_of_jobs = typed.distribution == Some(Distribution::Arbitrary) && nodes.is_some() && !inherited;
    let listed = !task_nodes.is_empty() || some_of_jobs;
    // Memory in the environment is the job's, not this step's: a step that took it would shut out all others.
    let memory = typed.memory.filter(|m| m.source != Source::Environment).map_or(MemoryRequest::Default, |m| m.value);
    let cpus_per_task = gres::cpus_of_task(typed);
    if typed.whole && typed.exact {
        return Err(OptionError::Declined("--exact and --whole are mutually exclusive.".to_owned()));
    }
    let sharing = if typed.overlap {
        StepSharing::Overlap
    } else if typed.whole {
        StepSharing::Default
    } else if typed.exact || typed.sharing == Sharing::Exclusive || cpus_per_task.is_some() {
        // Slurm documents that `-c` implies `--exact`.
        StepSharing::Exact
    } else {
        StepSharing::Default
    };
    if typed.jobid.is_some() {
        layout::check_step(&typed.layout, &mut warnings)?;
    }
    let (gres, inherited_gres) = gres::of_step(typed);
    let spec = StepSpec {
        gres,
        inherited_gres,
        name: typed.job_name.clone().filter(|n| !n.is_empty()).unwrap_or_else(|| base_name(&work.program)),
        nodes,
        tasks: typed.ntasks.filter(|n| !listed || n.source != Source::Environment).map(|n| n.value),
        tasks_per_node: tasks_per_node.map(|n| n.value),
        cpus_per_task,
        memory,
        nodelist,
        exclude,
        relative: typed.relative,
        distribution: typed.distribution.unwrap_or_default(),
        within: typed.within,
        overcommit: typed.layout.overcommit,
        task_nodes,
        sharing,
        cpu_bind: typed.cpu_bind.clone(),
        says_cpu_bind: typed.says_cpu_bind,
        time_limit: typed.time_limit,
        immediate: typed.immediate_secs.is_some(),
        argv: byte_words(work.argv),
        multi_prog: work.multi_prog,
        script: work.script.map(ByteBuf::from),
        work_dir: Some(work_dir(typed, &submitter.work_dir)?),
        environment: submitter.environment,
        stdin: streams.stdin,
        stdin_to: streams.stdin_to,
        stdout: streams.stdout,
        stderr: streams.stderr,
        open_mode: typed.open_mode,
        pty,
        kill_on_bad_exit: typed.kill_on_bad_exit.unwrap_or(false),
        wait_secs: typed.wait_secs.filter(|secs| *secs > 0),
        umask: Some(submitter.umask),
        process_nice: submitter.nice,
        rlimits: submitter.rlimits,
        srun: Some((submitter.host, submitter.pid)),
        submit_line: submitter.submit_line,
        tell_starts: typed.verbose > 0,
        priority: typed.step_priority,
        step_cgroup: typed.step_cgroup,
        unasked_output: streams.unasked_output,
        task_scripts: typed.task_scripts.clone(),
        mpi: typed.mpi.unwrap_or_default(),
        preserve_env: typed.preserve_env,
        cpu_freq: frequency(typed, &submitter.frequencies)?,
        gpu_freq: typed.gpu_freq,
        sample_secs: typed.sample_secs,
        profiling: typed.profiling,
        oom_kill_step: typed.oom_kill_step,
        wait_for_children: typed.wait_for_children,
        het: typed.het_leader.map(|leader| HetPart { leader, behind: None }),
        ..StepSpec::default()
    };
    Ok(Checked { spec, warnings })
}

/// Last part of a path.
pub fn base_name(path: &OsString) -> String {
    Path::new(path).file_name().unwrap_or(path).to_string_lossy().into_owned()
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
        profile::SeriesSet, resources::MemoryMib, sampling::Periods, spec::NodeCount, time::Timestamp,
    };

    fn built(env: &[(&str, &str)], args: &str) -> Checked<StepSpec> {
        let args: Vec<OsString> = args.split_whitespace().map(OsString::from).collect();
        let parsed = command_line(Command::Srun, &args).unwrap();
        let variable = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(*v));
        let typed = lay_over(Command::Srun, &[], &variable, &parsed.options, Timestamp::from_secs(0)).unwrap();
        let submitter = Submitter { work_dir: "/w".into(), ..Submitter::default() };
        let work = StepWork { program: "/bin/true".into(), argv: vec!["/bin/true".into()], ..StepWork::default() };
        build(&typed, submitter, work, StepStreams::default(), None).unwrap()
    }

    const JOB: &[(&str, &str)] =
        &[("SLURM_NNODES", "2"), ("SLURM_NTASKS", "8"), ("SLURM_NTASKS_PER_NODE", "4"), ("SLURM_MEM_PER_NODE", "500")];

    #[test]
    fn a_step_on_some_nodes_of_an_arbitrary_jobs_list_has_the_tasks_that_are_there() {
        let job: Vec<(&str, &str)> = [JOB, &[("SLURM_DISTRIBUTION", "arbitrary")]].concat();
        let tasks = |args: &str| built(&job, args).spec.tasks;
        assert_eq!((tasks("-N1"), tasks(""), tasks("-N1 -n3")), (None, Some(8), Some(3)));
        assert_eq!(built(JOB, "-N1").spec.tasks, Some(8));
    }

    #[test]
    fn a_version_of_pmix_stands_for_pmix() {
        use garrick_model::spec::Mpi;
        assert_eq!((built(&[], "--mpi=pmix_v4").spec.mpi, built(&[], "--mpi=pmix").spec.mpi), (Mpi::Pmix, Mpi::Pmix));
    }

    #[test]
    fn a_step_without_options_takes_its_jobs_layout() {
        let spec = built(JOB, "").spec;
        assert_eq!((spec.nodes, spec.tasks), (Some(NodeCount { min: 2, max: Some(2) }), Some(8)));
        assert_eq!(spec.tasks_per_node, Some(4));
        assert_eq!((spec.name.as_str(), spec.sharing), ("true", StepSharing::Default));
    }

    #[test]
    fn a_step_with_its_own_task_count_drops_the_inherited_layout() {
        let checked = built(JOB, "-n1");
        assert_eq!((checked.spec.tasks, checked.spec.tasks_per_node), (Some(1), None));
        assert_eq!(checked.spec.nodes.unwrap().min, 1);
        assert_eq!(checked.warnings, ["can't run 1 processes on 2 nodes, setting nnodes to 1"]);
    }

    #[test]
    fn a_step_that_picks_nodes_drops_the_inherited_count() {
        assert_eq!(built(JOB, "-w n2 -n1").spec.nodes, None);
        assert_eq!(built(JOB, "-r 1 -n1").spec.nodes, None);
        assert_eq!(built(JOB, "-w n2 -N1 -n1").spec.nodes.unwrap().min, 1);
    }

    #[test]
    fn a_list_of_nodes_is_kept_as_it_is_for_arbitrary_steps() {
        let spec = built(JOB, "-m arbitrary -w n2,n1,n2").spec;
        assert_eq!(
            (spec.task_nodes, spec.nodelist, spec.tasks),
            (vec!["n2".into(), "n1".into(), "n2".into()], vec![], None)
        );
        assert_eq!(built(JOB, "-m arbitrary -w n2,n1,n2 -n2").spec.tasks, Some(2));
        assert_eq!(built(JOB, "-w n2,n1,n2").spec.nodelist, ["n2", "n1"]);
    }

    #[test]
    fn counts_of_cores_are_refused_for_steps_of_jobs() {
        let mut env = JOB.to_vec();
        env.extend([("SLURM_JOB_ID", "7"), ("SLURM_NTASKS_PER_CORE", "1")]);
        assert!(built(&env, "").warnings.is_empty(), "the job's");
        assert_eq!(built(&env, "--hint=nomultithread").warnings, ["--hint has no effect yet on a step of a job"]);
        let args = [OsString::from("--ntasks-per-core=1")];
        let parsed = command_line(Command::Srun, &args).unwrap();
        let variable = |name: &str| (name == "SLURM_JOB_ID").then(|| OsString::from("7"));
        let typed = lay_over(Command::Srun, &[], &variable, &parsed.options, Timestamp::from_secs(0)).unwrap();
        let error = build(&typed, Submitter::default(), StepWork::default(), StepStreams::default(), None).unwrap_err();
        assert_eq!(error.to_string(), "--ntasks-per-core for a step of a job is not supported yet");
    }

    #[test]
    fn memory_counts_only_when_the_step_asks_for_it() {
        assert_eq!(built(JOB, "").spec.memory, MemoryRequest::Default);
        assert_eq!(built(JOB, "--mem=100").spec.memory, MemoryRequest::PerNode(MemoryMib(100)));
    }

    #[test]
    fn exact_is_implied_by_exclusive_and_cpus_per_task() {
        for args in ["--exact", "--exclusive", "-c2"] {
            assert_eq!(built(&[], args).spec.sharing, StepSharing::Exact, "{args}");
        }
        assert_eq!(built(&[], "--overlap -c2").spec.sharing, StepSharing::Overlap);
        assert_eq!(built(&[], "-n2").spec.sharing, StepSharing::Default);
    }

    #[test]
    fn how_often_tasks_are_looked_at_is_the_steps_own_or_not_said() {
        let secs = |env: &[(&str, &str)], args: &str| built(env, args).spec.sample_secs;
        let env = [("SLURM_ACCTG_FREQ", "task=9")];
        assert_eq!(
            (secs(&[], ""), secs(&env, ""), secs(&env, "--acctg-freq=energy=3,task=0")),
            (None, Some(9), Some(0))
        );
        let profiling = |env: &[(&str, &str)], args: &str| built(env, args).spec.profiling;
        let said = profiling(&[("SLURM_PROFILE", "task")], "--acctg-freq=energy=3,task=0 --profile=Energy,filesystem");
        let wanted = (SeriesSet::parse("energy,lustre"), Periods { energy: Some(3), ..Periods::default() });
        assert_eq!((said.series, said.periods), wanted);
        assert_eq!(profiling(&[("SLURM_PROFILE", "none")], "").series, SeriesSet::parse("none"));
        assert_eq!(profiling(&[], "").series, None);
    }

    #[test]
    fn waiting_zero_seconds_means_without_end() {
        assert_eq!(built(&[], "-W0").spec.wait_secs, None);
        assert_eq!(built(&[], "-W5").spec.wait_secs, Some(5));
        assert!(built(&[], "-K").spec.kill_on_bad_exit);
        assert!(!built(&[("SLURM_KILL_BAD_EXIT", "1")], "-K0").spec.kill_on_bad_exit);
    }
}
