//! Options for the command itself: what it prints, what it waits for, what it runs.

use super::{
    table::{
        ALLOC, Arg,
        Arg::{Optional, Required},
        BATCH, BATCH_ALLOC, BATCH_RUN, EVERY, JOB, OptionDef, RUN,
    },
    typed::{Given, Help, OptionError, Sourced},
    values,
};
use garrick_model::{
    ids::Sluid,
    messages::command::JobSelector,
    sampling::Periods,
    spec::{Mpi, NodeCount},
    time::TimeLimit,
};

/// The options.
pub const OPTIONS: &[OptionDef] = &[
    OptionDef::new(
        "wrap",
        None,
        Required("command"),
        BATCH,
        "wrap command string in a sh script and submit",
        |t, g| {
            t.wrap = g.value.map(std::ffi::OsStr::to_owned);
            Ok(())
        },
    ),
    OptionDef::new("clusters", Some('M'), Required("names"), JOB, "clusters to issue commands to", |t, g| {
        t.clusters = g.text()?.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Ok(())
    })
    .env(&["SBATCH_CLUSTERS", "SALLOC_CLUSTERS", "SLURM_CLUSTERS"]),
    OptionDef::new(
        "parsable",
        None,
        Arg::None,
        BATCH_RUN,
        "print only the id (and the cluster's name if named)",
        |t, _| {
            t.parsable = true;
            Ok(())
        },
    ),
    OptionDef::new("wait", Some('W'), Arg::None, BATCH, "wait for completion of the submitted job", |t, _| {
        t.wait = true;
        Ok(())
    })
    .env(&["SBATCH_WAIT"]),
    OptionDef::new(
        "test-only",
        None,
        Arg::None,
        JOB,
        "print when and where the job would start, without submitting it",
        |t, _| {
            t.test_only = true;
            Ok(())
        },
    ),
    OptionDef::new("uid", None, Required("user"), BATCH, "submit as another user (root only)", |t, g| {
        t.uid = g.string()?;
        Ok(())
    }),
    OptionDef::new("gid", None, Required("group"), BATCH, "submit as another group (root only)", |t, g| {
        t.gid = g.string()?;
        Ok(())
    }),
    OptionDef::inert("ignore-pbs", None, Arg::None, BATCH, "ignore #PBS lines", "`#PBS` lines are always ignored")
        .env(&["SBATCH_IGNORE_PBS"]),
    OptionDef::new("no-shell", None, Arg::None, ALLOC, "exit when the allocation is made, and keep it", |t, _| {
        t.no_shell = true;
        Ok(())
    }),
    OptionDef::new(
        "kill-command",
        Some('K'),
        Optional("signal"),
        ALLOC,
        "signal the command when the allocation ends",
        |t, g| {
            t.kill_command = Some(match g.text()? {
                "" => libc::SIGTERM,
                name => g.checked(values::signal(name))?,
            });
            Ok(())
        },
    )
    .env(&["SALLOC_KILL_CMD"]),
    OptionDef::new("bell", None, Arg::None, ALLOC, "ring the terminal bell when the job is allocated", |t, _| {
        t.bell = true;
        Ok(())
    })
    .env(&["SALLOC_BELL"]),
    OptionDef::new("no-bell", None, Arg::None, ALLOC, "do NOT ring the terminal bell", |t, _| {
        t.bell = false;
        Ok(())
    })
    .env(&["SALLOC_NO_BELL"]),
    OptionDef::inert(
        "wait-all-nodes",
        None,
        Required("0|1"),
        BATCH_ALLOC,
        "wait for all nodes",
        "a job always waits until all its nodes are ready",
    )
    .checked(|g| match g.text()? {
        "" => Ok(()),
        _ if g.number(0)? > 1 => Err(g.invalid()),
        _ => Ok(()),
    })
    .env(&["SBATCH_WAIT_ALL_NODES", "SALLOC_WAIT_ALL_NODES"]),
    OptionDef::new("delay-boot", None, Required("mins"), JOB, "delay boot for desired node features", |t, g| {
        match g.checked(values::time_limit(g.text()?))? {
            TimeLimit::Secs(secs) => t.delay_boot_secs = Some(secs),
            TimeLimit::Unlimited => g.checked(None)?,
        }
        Ok(())
    })
    .env(&["SBATCH_DELAY_BOOT", "SALLOC_DELAY_BOOT", "SLURM_DELAY_BOOT"]),
    OptionDef::new("het-group", None, Required("component"), RUN, "run in this component of the job", |t, g| {
        t.het_group = Some(g.text()?.to_owned());
        Ok(())
    }),
    OptionDef::new("ignore-signals", None, Required("list"), RUN, "signals that srun does not react to", |t, g| {
        t.ignored_signals = ignored_signals(g)?;
        Ok(())
    }),
    // Not in srun(1): for `InteractiveStepOptions` (slurm.conf(5)). It takes nothing from other steps.
    OptionDef::new("interactive", None, Arg::None, RUN, "a shell for salloc: one task beside other steps", |t, g| {
        t.overlap = true;
        t.ntasks = Some(Sourced { value: 1, source: g.source });
        t.nodes = Some(Sourced { value: NodeCount { min: 1, max: Some(1) }, source: g.source });
        Ok(())
    }),
    OptionDef::new(
        "cpu-freq",
        None,
        Required("p1[-p2][:gov]"),
        JOB,
        "frequency or governor of the CPUs of steps",
        |t, g| {
            t.cpu_freq = Some(g.text()?.to_owned());
            Ok(())
        },
    )
    .env(&["SBATCH_CPU_FREQ_REQ", "SALLOC_CPU_FREQ_REQ", "SLURM_CPU_FREQ_REQ"]),
    OptionDef::new("gpu-freq", None, Required("spec"), JOB, "frequency of the GPUs of steps", |t, g| {
        t.gpu_freq = Some(values::gpu_frequency(g)?);
        Ok(())
    })
    .env(&["SBATCH_GPU_FREQ", "SALLOC_GPU_FREQ", "SLURM_GPU_FREQ"]),
    OptionDef::new(
        "oom-kill-step",
        None,
        Optional("0|1"),
        JOB,
        "end the whole step when a task of it runs out of memory",
        |t, g| {
            t.oom_kill_step = Some(match g.text()? {
                "" | "1" => true,
                "0" => false,
                _ => return Err(g.invalid()),
            });
            Ok(())
        },
    ),
    OptionDef::new(
        "preserve-env",
        Some('E'),
        Arg::None,
        RUN,
        "keep SLURM_JOB_NUM_NODES and SLURM_NTASKS as they are in the environment",
        |t, _| {
            t.preserve_env = true;
            Ok(())
        },
    ),
    OptionDef::inert(
        "resv-ports",
        None,
        Optional("count"),
        RUN,
        "reserve communication ports",
        "ports are for the PMI of Cray, which is not there",
    )
    .checked(ports)
    .env(&["SLURM_RESV_PORTS"]),
    OptionDef::new("resv-ports", None, Optional("count"), BATCH_ALLOC, "reserve communication ports", |_, _| {
        let text = "Slurmstepd step management must be enabled to use --resv-ports for job allocations";
        Err(OptionError::Declined(text.to_owned()))
    })
    .checked(ports),
    OptionDef::new("jobid", None, Required("id"), RUN, "run under an already allocated job", |t, g| {
        let text = g.text()?.trim();
        match text.parse::<Sluid>() {
            Ok(run) => (t.jobid, t.job_named) = (None, g.sourced(JobSelector::from(run))),
            Err(_) if text.len() > 1 && text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u32>().is_err() => {
                let text = format!("Bad job/step specified: {text}: JobID larger than acceptable range");
                return Err(OptionError::Fatal(text));
            }
            Err(_) if !text.starts_with(|c: char| c.is_ascii_digit()) => {
                let text = format!("Bad job/step specified: {text}: JobID can not be zero");
                return Err(OptionError::Fatal(text));
            }
            Err(_) if text.contains('_') => (t.jobid, t.job_named) = (None, g.sourced(array_element(text)?)),
            Err(_) => (t.jobid, t.job_named) = (g.sourced(g.checked(text.parse().ok())?), None),
        }
        Ok(())
    })
    // The last one that is set counts.
    .env(&["SLURM_JOB_SLUID", "SLURM_JOBID", "SLURM_JOB_ID"]),
    OptionDef::new(
        "multi-prog",
        None,
        Arg::None,
        RUN,
        "the executable is a file that lists programs for ranges of tasks",
        |t, _| {
            t.multi_prog = true;
            Ok(())
        },
    ),
    OptionDef::new(
        "kill-on-bad-exit",
        Some('K'),
        Optional("0|1"),
        RUN,
        "kill the step if any task ends with an exit code other than 0",
        |t, g| {
            t.kill_on_bad_exit = Some(match g.text()? {
                "" | "1" => true,
                "0" => false,
                _ => return Err(g.invalid()),
            });
            Ok(())
        },
    )
    .env(&["SLURM_KILL_BAD_EXIT"]),
    OptionDef::new(
        "wait",
        Some('W'),
        Required("sec"),
        RUN,
        "seconds to wait for other tasks after the first one ended",
        |t, g| {
            t.wait_secs = Some(g.number(0)?);
            Ok(())
        },
    )
    .env(&["SLURM_WAIT"]),
    OptionDef::new("wait-for-children", None, Arg::None, RUN, "a task ends with the last of its processes", |t, _| {
        t.wait_for_children = true;
        Ok(())
    }),
    OptionDef::new("prolog", None, Required("program"), RUN, "program that srun runs before the step", |t, g| {
        t.prolog = g.value.map(std::ffi::OsStr::to_owned).filter(|program| !program.is_empty());
        Ok(())
    })
    .env(&["SLURM_PROLOG"]),
    OptionDef::new("epilog", None, Required("program"), RUN, "program that srun runs after the step", |t, g| {
        t.epilog = g.value.map(std::ffi::OsStr::to_owned).filter(|program| !program.is_empty());
        Ok(())
    })
    .env(&["SLURM_EPILOG"]),
    OptionDef::new("task-prolog", None, Required("program"), RUN, "program to run before each task", |t, g| {
        t.task_scripts.prolog = Some(g.text()?.to_owned()).filter(|program| !program.is_empty());
        Ok(())
    })
    .env(&["SLURM_TASK_PROLOG"]),
    OptionDef::new("task-epilog", None, Required("program"), RUN, "program to run after each task", |t, g| {
        t.task_scripts.epilog = Some(g.text()?.to_owned()).filter(|program| !program.is_empty());
        Ok(())
    })
    .env(&["SLURM_TASK_EPILOG"]),
    OptionDef::new(
        "disable-status",
        Some('X'),
        Arg::None,
        RUN,
        "pass on the first Ctrl-C instead of reporting status",
        |t, _| {
            t.disable_status = true;
            Ok(())
        },
    )
    .env(&["SLURM_DISABLE_STATUS"]),
    OptionDef::new("quit-on-interrupt", None, Arg::None, RUN, "quit on a single Ctrl-C", |t, _| {
        t.quit_on_interrupt = true;
        Ok(())
    }),
    OptionDef::new(
        "mpi",
        None,
        Required("type"),
        RUN,
        "type of MPI being used: none, pmi2 or pmix (list shows all)",
        |t, g| {
            let text = g.text()?;
            let known = Mpi::named(text);
            match text {
                _ if known.is_some() => t.mpi = known,
                "list" => t.help = Some(Help::MpiList),
                "cray_shasta" => return Err(g.not_supported()),
                other => {
                    return Err(OptionError::Declined(format!(
                        "Invalid MPI type '{other}', --mpi=list for acceptable types"
                    )));
                }
            }
            Ok(())
        },
    )
    .env(&["SLURM_MPI_TYPE"]),
    OptionDef::inert("stepmgr", None, Arg::None, JOB, "run a step manager per job", "every job has a step manager"),
    OptionDef::inert(
        "slurmd-debug",
        None,
        Required("level"),
        RUN,
        "debug level of the step daemon",
        "`stepd` writes its own log; `stail` shows what it does",
    ),
    OptionDef::inert(
        "msg-timeout",
        None,
        Required("secs"),
        RUN,
        "message timeout",
        "messages have limits of their own",
    )
    .checked(|g| g.number(0).map(drop)),
    OptionDef::inert(
        "treewidth",
        None,
        Required("n"),
        RUN,
        "width of the launch tree",
        "the step manager reaches every node itself",
    ),
    OptionDef::inert(
        "threads",
        Some('T'),
        Required("threads"),
        RUN,
        "launch threads",
        "the step manager launches, and needs no threads in `srun`",
    )
    .checked(|g| g.number(0).map(drop))
    .env(&["SLURM_THREADS"]),
    OptionDef::new("acctg-freq", None, Required("list"), JOB, "accounting and profiling sampling intervals", |t, g| {
        let periods = values::sampling(g)?;
        t.sample_secs = periods.task;
        t.profiling.periods = Periods { task: None, ..periods };
        Ok(())
    })
    .env(&["SBATCH_ACCTG_FREQ", "SALLOC_ACCTG_FREQ", "SLURM_ACCTG_FREQ"]),
    OptionDef::new(
        "profile",
        None,
        Required("list"),
        JOB,
        "time series to record: all, none, or some of energy,filesystem,network,task",
        |t, g| {
            t.profiling.series = Some(values::profile(g)?);
            Ok(())
        },
    )
    .env(&["SBATCH_PROFILE", "SALLOC_PROFILE", "SLURM_PROFILE"]),
    OptionDef::inert(
        "network",
        None,
        Required("type"),
        JOB,
        "information about the interconnect",
        "there is no plugin for an interconnect that reads it",
    )
    .env(&["SBATCH_NETWORK", "SALLOC_NETWORK", "SLURM_NETWORK"]),
    OptionDef::new("conf", None, Required("file"), EVERY, "slurm.conf of the cluster to use", |t, g| {
        t.conf = g.value.map(std::path::PathBuf::from);
        Ok(())
    }),
    OptionDef::new("quiet", Some('Q'), Arg::None, JOB, "quiet mode (suppress informational messages)", |t, _| {
        t.quiet = true;
        Ok(())
    }),
    OptionDef::new("verbose", Some('v'), Arg::None, EVERY, "verbose mode (more with each -v)", |t, g| {
        // A variable says how often.
        t.verbose = match g.value {
            Some(_) => g.text()?.trim().parse().unwrap_or(1),
            None => t.verbose.saturating_add(1),
        };
        Ok(())
    })
    .env(&["SBATCH_DEBUG", "SALLOC_DEBUG", "SLURM_DEBUG"]),
    OptionDef::new("help", Some('h'), Arg::None, EVERY, "show this help message", |t, _| {
        t.help = Some(Help::Full);
        Ok(())
    }),
    OptionDef::new("usage", None, Arg::None, EVERY, "display brief usage message", |t, _| {
        t.help = Some(Help::Usage);
        Ok(())
    }),
    OptionDef::new("version", Some('V'), Arg::None, EVERY, "output version information and exit", |t, _| {
        t.help = Some(Help::Version);
        Ok(())
    }),
];
/// A number of ports.
fn ports(given: &Given<'_>) -> Result<(), OptionError> {
    match given.text()? {
        "" => Ok(()),
        text => given.number_in(text, 0, "--resv-port").map(drop),
    }
}

/// An element of a job array: `12_3`.
fn array_element(text: &str) -> Result<JobSelector, OptionError> {
    let bad = |why: &str| OptionError::Fatal(format!("Bad job/step specified: {text}: {why}"));
    match text.split_once('_').map(|(_, index)| index) {
        Some("") => return Err(bad("Job Array ID must not be an empty string")),
        Some(index) if !index.bytes().all(|b| b.is_ascii_digit()) => {
            return Err(bad("Job Array ID includes unexpected non-numeric characters"));
        }
        _ => {}
    }
    text.parse().map_err(|_| bad("Job Array ID larger than acceptable range"))
}

/// Those that `srun` can ignore (srun(1)).
fn ignored_signals(given: &Given<'_>) -> Result<Vec<i32>, OptionError> {
    const CAN_BE: [i32; 6] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];
    let text = given.text()?;
    if text.trim().is_empty() {
        return Err(OptionError::Text("--ignore-signals requires at least one signal".to_owned()));
    }
    let one = |word: &str| match values::signal(word.trim()) {
        None => Err(OptionError::Text(format!("Invalid signal name or number: {word}"))),
        Some(signal) if !CAN_BE.contains(&signal) => {
            Err(OptionError::Declined(format!("Signal {word} cannot be ignored")))
        }
        Some(signal) => Ok(signal),
    };
    text.split(',').map(one).collect()
}
