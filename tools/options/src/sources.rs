//! Combines the three sources of options: the environment overrides script lines, and the command line overrides both. Within a
//! source the last value wins. Variables by which a job describes itself do not express the user's wishes: for `srun` all other
//! sources override them.

use super::{
    getopt::{self, GetoptError, Occurrence, Parsed},
    script_lines::{Mark, ScriptLine},
    table::{Command, Effect, OptionDef, options_of},
    typed::{Given, OptionError, Source, Typed},
};
use garrick_model::{env_vars, spec::Distribution, time::Timestamp};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fmt,
};

/// Variables that a job sets for its tasks and that `srun` reads: the job's layout, limits and binding.
pub const OF_THE_JOB: &[&str] = &[
    env_vars::SLURM_CPU_BIND,
    env_vars::SLURM_DISTRIBUTION,
    env_vars::SLURM_EXPORT_ENV,
    "SLURM_CPUS_PER_GPU",
    env_vars::SLURM_GPU_BIND,
    "SLURM_GPUS",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_TASK",
    "SLURM_MEM_PER_GPU",
    "SLURM_NTASKS_PER_GPU",
    env_vars::SLURM_JOB_NUM_NODES,
    env_vars::SLURM_MEM_PER_CPU,
    env_vars::SLURM_MEM_PER_NODE,
    env_vars::SLURM_NNODES,
    env_vars::SLURM_NPROCS,
    env_vars::SLURM_NTASKS,
    env_vars::SLURM_NTASKS_PER_CORE,
    env_vars::SLURM_NTASKS_PER_NODE,
    env_vars::SLURM_NTASKS_PER_SOCKET,
    env_vars::SLURM_OVERCOMMIT,
    env_vars::SLURM_THREADS_PER_CORE,
    env_vars::SLURM_TRES_PER_TASK,
    "SRUN_CPUS_PER_TASK",
];

/// Arguments or a value that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// The arguments cannot be taken apart.
    Getopt {
        /// How.
        error: GetoptError,
        /// In which line of the script; `None`: on the command line.
        line: Option<usize>,
    },
    /// Something that is no option stands in a script line.
    Stray {
        /// The word.
        word: String,
        /// Line.
        line: usize,
    },
    /// An option's value cannot be taken.
    Option {
        /// Why.
        error: OptionError,
        /// Where it stands, when that is not the command line.
        place: Option<Place>,
    },
}

/// Where an option stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a line of the script.
    Line(usize),
    /// In an environment variable.
    Variable(&'static str),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(number) => write!(f, "in line {number} of the script"),
            Self::Variable(name) => write!(f, "in environment variable {name}"),
        }
    }
}

/// Takes a command line apart, without applying it. Options end at the first operand, but those of `swait`, which runs
/// nothing that could have options of its own, may stand behind it.
pub fn command_line(command: Command, args: &[OsString]) -> Result<Parsed, SourceError> {
    let options = options_of(command);
    let parsed = match command {
        Command::Swait => getopt::parse_anywhere(&options, args),
        Command::Sbatch | Command::Salloc | Command::Srun => getopt::parse(&options, args),
    };
    parsed.map_err(|error| SourceError::Getopt { error, line: None })
}

/// Lays everything over each other. `variable` looks up the environment.
pub fn lay_over(
    command: Command,
    script: &[ScriptLine],
    variable: &dyn Fn(&str) -> Option<OsString>,
    command_line: &[Occurrence],
    now: Timestamp,
) -> Result<Typed, SourceError> {
    lay_over_defaults(&[], command, script, variable, command_line, now)
}

/// As [`lay_over`], with defaults of the site's filters, over which everything else goes.
pub fn lay_over_defaults(
    defaults: &[Occurrence],
    command: Command,
    script: &[ScriptLine],
    variable: &dyn Fn(&str) -> Option<OsString>,
    command_line: &[Occurrence],
    now: Timestamp,
) -> Result<Typed, SourceError> {
    let mut typed = Typed::default();
    let mut each = |def: &'static OptionDef, given: &Given<'_>| apply(&mut typed, def, given);
    each_occurrence(defaults, Source::Filter, None, now, &mut each)?;
    each_given(command, script, variable, command_line, now, &mut each)?;
    distribute(&mut typed, command, variable)?;
    Ok(typed)
}

/// Options by their long names, each with its last value.
pub type GivenOptions = BTreeMap<&'static str, Option<OsString>>;

/// Every option that is given, as [`lay_over`] would find it.
pub fn given_options(
    command: Command,
    script: &[ScriptLine],
    variable: &dyn Fn(&str) -> Option<OsString>,
    command_line: &[Occurrence],
    now: Timestamp,
) -> Result<GivenOptions, SourceError> {
    let mut options = GivenOptions::new();
    each_given(command, script, variable, command_line, now, &mut |def, given| {
        options.insert(def.long, given.value.map(OsStr::to_owned));
        Ok(())
    })?;
    Ok(options)
}

/// What happens to each option that is given.
type Each<'e> = dyn FnMut(&'static OptionDef, &Given<'_>) -> Result<(), OptionError> + 'e;

/// Goes through all sources, what counts least first.
fn each_given(
    command: Command,
    script: &[ScriptLine],
    variable: &dyn Fn(&str) -> Option<OsString>,
    command_line: &[Occurrence],
    now: Timestamp,
    each: &mut Each<'_>,
) -> Result<(), SourceError> {
    let options = options_of(command);
    let describing = |name: &str| command == Command::Srun && OF_THE_JOB.contains(&name);
    each_variable(command, &options, variable, &describing, now, each)?;
    for line in script {
        // Options of `sbatch` are taken apart as `sbatch` does: a letter may mean something else to `srun`.
        let reader = if line.mark == Mark::Sbatch { Command::Sbatch } else { command };
        let parsed = getopt::parse(&options_of(reader), &line.words)
            .map_err(|error| SourceError::Getopt { error, line: Some(line.number) })?;
        if let Some(word) = parsed.rest.first() {
            return Err(SourceError::Stray { word: word.to_string_lossy().into_owned(), line: line.number });
        }
        let place = Some(Place::Line(line.number));
        each_occurrence(&parsed.options, Source::Script, place.as_ref(), now, each)?;
    }
    each_variable(command, &options, variable, &|name| !describing(name), now, each)?;
    each_occurrence(command_line, Source::CommandLine, None, now, each)
}

/// What else says how tasks go over nodes: of a step a file of hosts goes before all options, and the size of a plane may be
/// in a variable (srun(1)). Jobs take the file where they are to be arbitrary: it may be there for steps in them.
fn distribute(
    typed: &mut Typed,
    command: Command,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<(), SourceError> {
    let text = |name: &str| variable(name).and_then(|value| value.into_string().ok()).filter(|value| !value.is_empty());
    let is_arbitrary = typed.distribution == Some(Distribution::Arbitrary);
    if (command == Command::Srun || is_arbitrary)
        && typed.nodelist.is_none()
        && let Some(file) = text(env_vars::SLURM_HOSTFILE)
    {
        typed.hostfile = Some(file);
        typed.distribution = Some(Distribution::Arbitrary);
    }
    if typed.distribution == Some(Distribution::Plane(0)) {
        let size = text(env_vars::SLURM_DIST_PLANESIZE).and_then(|size| size.parse().ok()).filter(|size| *size > 0);
        let missing = || OptionError::Invalid { name: "distribution" };
        let size = size.ok_or_else(|| SourceError::Option { error: missing(), place: None })?;
        typed.distribution = Some(Distribution::Plane(size));
    }
    Ok(())
}

/// Lays options over what was typed, as more of the command line.
pub fn lay_on(typed: &mut Typed, options: &[Occurrence], now: Timestamp) -> Result<(), OptionError> {
    options.iter().try_for_each(|o| apply(typed, o.def, &given(o, Source::CommandLine, now)))
}

fn each_variable(
    command: Command,
    options: &[&'static OptionDef],
    variable: &dyn Fn(&str) -> Option<OsString>,
    which: &dyn Fn(&str) -> bool,
    now: Timestamp,
    each: &mut Each<'_>,
) -> Result<(), SourceError> {
    for def in options {
        for name in def.variables(command).filter(|name| which(name)) {
            // An empty variable is taken for one that is not set.
            if let Some(mut value) = variable(name).filter(|v| !v.is_empty()) {
                if name == env_vars::SLURM_CPU_BIND {
                    value = wished_binding(value, variable(env_vars::SLURM_CPU_BIND_LIST));
                }
                let source = Source::Environment;
                let given = Given { name: def.long, value: Some(&value), source, variable: Some(name), now };
                each(def, &given).map_err(|error| SourceError::Option { error, place: Some(Place::Variable(name)) })?;
            }
        }
    }
    Ok(())
}

/// A task finds the masks that it and those beside it are bound to: of what it starts in its turn these are no wish, only
/// how much is said of it is. Where something took the list away, these masks are a task's too.
fn wished_binding(value: OsString, list: Option<OsString>) -> OsString {
    let own = |text: &str| {
        let (verbosity, masks) = text.split_once(",mask_cpu:")?;
        list.is_none_or(|list| list == masks).then(|| OsString::from(verbosity))
    };
    value.to_str().and_then(own).unwrap_or(value)
}

fn each_occurrence(
    options: &[Occurrence],
    source: Source,
    place: Option<&Place>,
    now: Timestamp,
    each: &mut Each<'_>,
) -> Result<(), SourceError> {
    options.iter().try_for_each(|o| {
        each(o.def, &given(o, source, now)).map_err(|error| SourceError::Option { error, place: place.cloned() })
    })
}

fn given(o: &Occurrence, source: Source, now: Timestamp) -> Given<'_> {
    Given { name: o.def.long, value: o.value.as_deref(), source, variable: None, now }
}

fn apply(typed: &mut Typed, def: &'static OptionDef, given: &Given<'_>) -> Result<(), OptionError> {
    if let Some(check) = def.check {
        check(given)?;
    }
    match def.effect {
        Effect::Set(set) => set(typed, given),
        Effect::NotSupported => Err(OptionError::NotSupported(format!("--{}", def.long))),
        Effect::Ignored(notice) => {
            typed.notice(notice);
            Ok(())
        }
        Effect::Inert(_) | Effect::ByName => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{script_lines, typed::Sourced};
    use garrick_model::{
        resources::{MemoryMib, MemoryRequest},
        time::TimeLimit,
    };

    fn typed_by(command: Command, script: &str, env: &[(&str, &str)], args: &str) -> Result<Typed, SourceError> {
        let args: Vec<OsString> = args.split_whitespace().map(OsString::from).collect();
        let parsed = command_line(command, &args)?;
        let head = script_lines::read(script.as_bytes(), script_lines::OF_SRUN).unwrap();
        let variable = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(*v));
        lay_over(command, &head.lines, &variable, &parsed.options, Timestamp::from_secs(0))
    }

    #[test]
    fn environment_goes_over_script_and_command_line_over_both() {
        let script = "#!/bin/sh\n#SBATCH -t 1 -p script -A script\n";
        let env = [("SBATCH_TIMELIMIT", "2"), ("SBATCH_PARTITION", "env")];
        let typed = typed_by(Command::Sbatch, script, &env, "-t 3").unwrap();
        assert_eq!(typed.time_limit, Some(TimeLimit::Secs(180)));
        assert_eq!(typed.partitions, ["env"]);
        assert_eq!(typed.account.as_deref(), Some("script"));
    }

    #[test]
    fn the_size_of_a_plane_may_be_in_a_variable() {
        let env = [("SLURM_DISTRIBUTION", "plane"), ("SLURM_DIST_PLANESIZE", "3")];
        assert_eq!(typed_by(Command::Srun, "", &env, "").unwrap().distribution, Some(Distribution::Plane(3)));
        assert_eq!(typed_by(Command::Srun, "", &env, "-m plane=2").unwrap().distribution, Some(Distribution::Plane(2)));
        assert!(typed_by(Command::Srun, "", &[], "-m plane").is_err());
    }

    #[test]
    fn a_file_of_hosts_goes_before_other_distributions_of_steps() {
        let env = [("SLURM_HOSTFILE", "/hosts")];
        let typed = typed_by(Command::Srun, "", &env, "-m cyclic").unwrap();
        assert_eq!((typed.hostfile.as_deref(), typed.distribution), (Some("/hosts"), Some(Distribution::Arbitrary)));
        let typed = typed_by(Command::Srun, "", &env, "-w n1").unwrap();
        assert_eq!((typed.hostfile, typed.distribution), (None, None));
        assert_eq!(typed_by(Command::Sbatch, "", &env, "").unwrap().distribution, None);
        assert_eq!(typed_by(Command::Sbatch, "", &env, "-m arbitrary").unwrap().hostfile.as_deref(), Some("/hosts"));
    }

    #[test]
    fn the_last_of_several_wins() {
        let typed = typed_by(Command::Sbatch, "#!/bin/sh\n#SBATCH -J a\n#SBATCH -J b\n", &[], "").unwrap();
        assert_eq!(typed.job_name.as_deref(), Some("b"));
        // Of options that say the same thing too, where they stand in different places.
        let typed = typed_by(Command::Sbatch, "#!/bin/sh\n#SBATCH --mem=5\n", &[], "--mem-per-cpu=7").unwrap();
        assert_eq!(typed.memory.unwrap().value, MemoryRequest::PerCpu(MemoryMib(7)));
        assert!(typed_by(Command::Sbatch, "", &[], "--mem=5 --mem-per-cpu=7").is_err());
    }

    #[test]
    fn each_command_reads_its_own_variables_only() {
        let env = [("SBATCH_PARTITION", "b"), ("SALLOC_PARTITION", "a"), ("SLURM_PARTITION", "r")];
        assert_eq!(typed_by(Command::Sbatch, "", &env, "").unwrap().partitions, ["b"]);
        assert_eq!(typed_by(Command::Salloc, "", &env, "").unwrap().partitions, ["a"]);
        assert_eq!(typed_by(Command::Srun, "", &env, "").unwrap().partitions, ["r"]);
    }

    #[test]
    fn srun_takes_cpus_per_task_from_its_own_variable_only() {
        let env = [("SLURM_CPUS_PER_TASK", "4")];
        assert_eq!(typed_by(Command::Srun, "", &env, "").unwrap().cpus_per_task, None);
        let env = [("SRUN_CPUS_PER_TASK", "4")];
        assert_eq!(typed_by(Command::Srun, "", &env, "").unwrap().cpus_per_task, Some(4));
    }

    #[test]
    fn malformed_values_are_named_with_their_option_and_place() {
        let SourceError::Option { error, place: None } = typed_by(Command::Sbatch, "", &[], "-t 1x").unwrap_err()
        else {
            panic!("an option's error")
        };
        assert_eq!((error.to_string().as_str(), error.exit_code()), ("Invalid --time specification", 255));
        let SourceError::Option { error, place } =
            typed_by(Command::Srun, "", &[("SLURM_NTASKS", "many")], "").unwrap_err()
        else {
            panic!("an option's error")
        };
        assert_eq!(error.to_string(), "Invalid numeric value \"many\" for --ntasks.");
        assert_eq!(place.unwrap().to_string(), "in environment variable SLURM_NTASKS");
    }

    #[test]
    fn what_is_not_built_is_an_error_and_not_ignored() {
        let SourceError::Option { error, .. } = typed_by(Command::Srun, "", &[], "--no-allocate").unwrap_err() else {
            panic!("an option's error")
        };
        assert_eq!((error.to_string().as_str(), error.exit_code()), ("--no-allocate is not supported yet", 1));
        let SourceError::Option { error, .. } = typed_by(Command::Srun, "", &[], "--mpi=pmix_v9").unwrap_err() else {
            panic!("an option's error")
        };
        assert_eq!(error.to_string(), "Invalid MPI type 'pmix_v9', --mpi=list for acceptable types");
    }

    #[test]
    fn words_of_mail_are_read_and_one_has_to_be_known() {
        let typed =
            typed_by(Command::Sbatch, "#!/bin/sh\n#SBATCH --mail-type=FAIL\n", &[], "--mail-type=end,BEGIN").unwrap();
        assert_eq!((typed.mail.types.to_string().as_str(), typed.notices.len()), ("BEGIN,END", 0));
        let typed = typed_by(Command::Salloc, "", &[], "--mail-type=ALL,NONE --mail-user=me").unwrap();
        assert!(typed.mail.types.is_empty() && typed.mail.user.as_deref() == Some("me"));
        let SourceError::Option { error, .. } = typed_by(Command::Srun, "", &[], "--mail-type=never").unwrap_err()
        else {
            panic!("an option's error")
        };
        assert!(error.to_string().contains("mail-type"), "{error}");
    }

    #[test]
    fn a_stray_word_in_a_script_line_is_an_error() {
        let error = typed_by(Command::Sbatch, "#!/bin/sh\n#SBATCH --output = x\n", &[], "").unwrap_err();
        assert_eq!(error, SourceError::Stray { word: "x".to_owned(), line: 2 });
    }

    #[test]
    fn a_script_for_a_step_goes_over_what_its_job_says_of_itself() {
        let script = "#!/bin/sh\n#SBATCH -n 4 -W --array=0-9\n#SRUN --retries=3 -W 5\n";
        let env = [("SLURM_NTASKS", "8"), ("SLURM_NNODES", "2"), ("SBATCH_ARRAY_INX", "1-2"), ("SRUN_RETRIES", "1")];
        let typed = typed_by(Command::Srun, script, &env, "").unwrap();
        assert_eq!(typed.ntasks, Some(Sourced { value: 4, source: Source::Script }));
        assert_eq!(typed.nodes.map(|n| n.source), Some(Source::Environment));
        assert_eq!((typed.wait, typed.wait_secs, typed.retries), (true, Some(5), Some(1)));
        assert_eq!(typed.array.unwrap().to_string(), "0-9");
    }

    #[test]
    fn options_of_swait_may_stand_behind_the_job() {
        let args: Vec<OsString> = ["7", "--timeout=3", "--", "-x"].map(OsString::from).into();
        let parsed = command_line(Command::Swait, &args).unwrap();
        assert_eq!((parsed.options.len(), parsed.rest), (1, vec![OsString::from("7"), OsString::from("-x")]));
    }

    #[test]
    fn a_surrounding_job_array_makes_no_step_array() {
        let env = [("SBATCH_ARRAY_INX", "1-2"), ("SLURM_ARRAY_TASK_ID", "1"), ("SLURM_ARRAY_JOB_ID", "5")];
        assert_eq!(typed_by(Command::Srun, "", &env, "--async").unwrap().array, None);
    }

    #[test]
    fn an_unknown_option_in_a_script_names_its_line() {
        let error = typed_by(Command::Sbatch, "#!/bin/sh\n#SBATCH --nosuch\n", &[], "").unwrap_err();
        assert!(matches!(error, SourceError::Getopt { line: Some(2), .. }), "{error:?}");
    }

    #[test]
    fn what_a_task_is_bound_to_is_no_wish_for_the_steps_it_starts() {
        let wished = |value: &str, list: Option<&str>| {
            wished_binding(value.into(), list.map(OsString::from)).into_string().unwrap()
        };
        assert_eq!(wished("verbose,mask_cpu:0x1,0x2", Some("0x1,0x2")), "verbose");
        assert_eq!(wished("quiet,mask_cpu:0x1", Some("0x2")), "quiet,mask_cpu:0x1", "somebody wrote it");
        assert_eq!(wished("quiet,mask_cpu:0x1", None), "quiet");
        assert_eq!(wished("verbose,none", Some("")), "verbose,none");
        assert_eq!(wished("cores", None), "cores");
    }

    #[test]
    fn a_time_limit_of_zero_asks_for_none() {
        assert_eq!(typed_by(Command::Sbatch, "", &[], "-t 0").unwrap().time_limit, Some(TimeLimit::Unlimited));
    }
}
