//! Options for the place and the owner: partition, nodes, features, sharing, layout of tasks, user and account.

use super::{
    table::{
        Arg,
        Arg::{Optional, Required},
        BATCH, JOB, OptionDef, RUN,
    },
    typed::{Help, OptionError, SHARING},
    values,
};
use garrick_model::{refusal::Refusal, spec::Sharing, spec_text::licenses::may_be_request};

/// The options.
pub const OPTIONS: &[OptionDef] = &[
    OptionDef::new("account", Some('A'), Required("name"), JOB, "charge job to specified account", |t, g| {
        t.account = g.string()?;
        Ok(())
    })
    .env(&["SBATCH_ACCOUNT", "SALLOC_ACCOUNT", "SLURM_ACCOUNT"]),
    OptionDef::new("qos", Some('q'), Required("qos"), JOB, "quality of service", |t, g| {
        t.qos = g.string()?;
        Ok(())
    })
    .env(&["SBATCH_QOS", "SALLOC_QOS", "SLURM_QOS"]),
    OptionDef::new("wckey", None, Required("wckey"), JOB, "wckey to run job under", |t, g| {
        t.wckey = g.string()?;
        Ok(())
    })
    .env(&["SBATCH_WCKEY", "SALLOC_WCKEY", "SLURM_WCKEY"]),
    OptionDef::new("comment", None, Required("name"), JOB, "arbitrary comment", |t, g| {
        t.comment = g.string()?;
        Ok(())
    }),
    OptionDef::new(
        "extra",
        None,
        Required("text"),
        JOB,
        "arbitrary text, or a constraint on values of nodes",
        |t, g| {
            t.extra = g.string()?;
            Ok(())
        },
    ),
    OptionDef::new("job-name", Some('J'), Required("jobname"), JOB, "name of job", |t, g| {
        t.job_name = g.string()?;
        Ok(())
    })
    .env(&["SBATCH_JOB_NAME", "SALLOC_JOB_NAME"]),
    OptionDef::new("partition", Some('p'), Required("partition"), JOB, "partition requested", |t, g| {
        let text = g.text()?;
        t.partitions = text.split(',').filter(|p| !p.is_empty()).map(str::to_owned).collect();
        // Nothing but commas names no partition, and not the default either.
        if t.partitions.is_empty() && !text.is_empty() {
            t.partitions.push(text.to_owned());
        }
        Ok(())
    })
    .env(&["SBATCH_PARTITION", "SALLOC_PARTITION", "SLURM_PARTITION"]),
    OptionDef::new("reservation", None, Required("name"), JOB, "allocate resources from a reservation", |t, g| {
        t.reservations = g.text()?.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Ok(())
    })
    .env(&["SBATCH_RESERVATION", "SALLOC_RESERVATION", "SLURM_RESERVATION"]),
    OptionDef::new(
        "licenses",
        Some('L'),
        Required("names"),
        JOB,
        "required licenses, name[:count], all of a,b or one of a|b",
        |t, g| {
            let text = g.text()?;
            // Empty takes back what a script line or the environment said.
            if !text.is_empty() && !may_be_request(text) {
                return Err(OptionError::Refused(Refusal::InvalidLicense(text.to_owned())));
            }
            t.licenses = g.string()?;
            Ok(())
        },
    ),
    // The form of resources.yaml(5); the same as more of `--licenses`.
    OptionDef::new(
        "resources",
        None,
        Required("names"),
        JOB,
        "required hierarchical resources, name[:count], all of a,b",
        |t, g| {
            let text = g.text()?;
            if !text.is_empty() && (text.contains('|') || !may_be_request(text)) {
                return Err(OptionError::Refused(Refusal::InvalidLicense(text.to_owned())));
            }
            t.resources = g.string()?;
            Ok(())
        },
    ),
    OptionDef::new("nodelist", Some('w'), Required("hosts..."), JOB, "request a specific list of hosts", |t, g| {
        t.nodelist = g.string()?;
        Ok(())
    }),
    OptionDef::new("nodefile", Some('F'), Required("filename"), JOB, "request a list of hosts from a file", |t, g| {
        t.nodefile = g.string()?;
        Ok(())
    }),
    OptionDef::new("exclude", Some('x'), Required("hosts..."), JOB, "exclude a specific list of hosts", |t, g| {
        t.exclude = g.string()?;
        Ok(())
    }),
    OptionDef::new("constraint", Some('C'), Required("list"), JOB, "specify a list of constraints", |t, g| {
        t.constraint = g.string()?;
        Ok(())
    })
    .env(&["SBATCH_CONSTRAINT", "SALLOC_CONSTRAINT", "SLURM_CONSTRAINT"]),
    OptionDef::new("batch", None, Required("list"), BATCH, "features of the node of the batch script", |t, g| {
        t.batch_features = g.string()?;
        Ok(())
    })
    .env(&["SBATCH_BATCH"]),
    OptionDef::new("reboot", None, Arg::None, JOB, "reboot compute nodes before starting the job", |t, _| {
        t.reboot = true;
        Ok(())
    })
    .env(&["SBATCH_REBOOT", "SALLOC_REBOOT", "SLURM_REBOOT"]),
    OptionDef::new("prefer", None, Required("list"), JOB, "features desired but not required by job", |t, g| {
        t.prefer = g.string()?;
        Ok(())
    }),
    OptionDef::new(
        "exclusive",
        None,
        Optional("user|mcs|topo"),
        JOB,
        "allocate nodes in exclusive mode; for a step: CPUs of its own",
        |t, g| {
            let text = g.text()?;
            t.sharing = match text {
                "" | "topo" => Sharing::Exclusive,
                "user" => Sharing::User,
                "mcs" => Sharing::Mcs,
                _ => return Err(g.invalid()),
            };
            t.topology.exclusive = text == "topo";
            t.choose(SHARING, g)
        },
    )
    .env(&["SBATCH_EXCLUSIVE", "SALLOC_EXCLUSIVE", "SLURM_EXCLUSIVE"]),
    OptionDef::new("mcs-label", None, Required("mcs"), JOB, "multi-category security label", |t, g| {
        t.mcs_label = g.string()?;
        Ok(())
    }),
    OptionDef::new("oversubscribe", Some('s'), Arg::None, JOB, "share nodes with other jobs", |t, g| {
        t.sharing = Sharing::Oversubscribe;
        t.topology.exclusive = false;
        t.choose(SHARING, g)
    }),
    OptionDef::new("contiguous", None, Arg::None, JOB, "demand a contiguous range of nodes", |t, _| {
        t.contiguous = true;
        Ok(())
    }),
    OptionDef::new("distribution", Some('m'), Required("type"), JOB, "distribution of tasks over nodes", |t, g| {
        (t.distribution, t.within) = values::distribution(g)?;
        Ok(())
    })
    .env(&["SBATCH_DISTRIBUTION", "SLURM_DISTRIBUTION"]),
    OptionDef::new("cpu-bind", None, Required("type"), RUN, "bind tasks to CPUs", |t, g| {
        if g.text()? == "help" {
            t.help = Some(Help::CpuBind);
        } else {
            (t.cpu_bind, t.says_cpu_bind) = values::cpu_bind(g)?;
        }
        Ok(())
    })
    .env(&["SLURM_CPU_BIND"]),
    OptionDef::new("mem-bind", None, Required("type"), JOB, "bind memory: none or local (others not yet)", |t, g| {
        if values::mem_bind(g)? {
            t.notice("--mem-bind has no effect yet: memory is not bound");
        }
        Ok(())
    })
    .env(&["SBATCH_MEM_BIND", "SALLOC_MEM_BIND", "SLURM_MEM_BIND"]),
    OptionDef::new(
        "relative",
        Some('r'),
        Required("n"),
        RUN,
        "run the step relative to node n of the allocation",
        |t, g| {
            t.relative = Some(g.number(0)?);
            Ok(())
        },
    ),
    OptionDef::new("exact", None, Arg::None, RUN, "give the step only the resources that it requests", |t, _| {
        t.exact = true;
        Ok(())
    })
    .env(&["SLURM_EXACT"]),
    OptionDef::new("whole", None, Arg::None, RUN, "give the step all that the job has on its nodes", |t, _| {
        t.whole = true;
        Ok(())
    })
    .env(&["SLURM_WHOLE"]),
    OptionDef::new("overlap", None, Arg::None, RUN, "let the step share its resources with other steps", |t, _| {
        t.overlap = true;
        Ok(())
    })
    .env(&["SLURM_OVERLAP"]),
    OptionDef::new("external-launcher", None, Arg::None, RUN, "a step for another launcher (mpirun)", |t, _| {
        t.overlap = true;
        Ok(())
    }),
];
