//! Options for sockets, cores and threads, and for the distribution of tasks over nodes.

use super::{
    table::{Arg, Arg::Required, JOB, OptionDef},
    typed::{Given, Help, Hint, OptionError, Source, Sourced, Typed, TypedLayout},
};
use garrick_model::{env_vars::inputs::Input, node_shape::SpecCores, spec::LayoutRequest};

/// The options.
pub const OPTIONS: &[OptionDef] = &[
    OptionDef::new("sockets-per-node", None, Required("S"), JOB, "number of sockets per node to allocate", |t, g| {
        t.layout.sockets_per_node = g.sourced(g.number(1)?);
        Ok(())
    }),
    OptionDef::new("cores-per-socket", None, Required("C"), JOB, "number of cores per socket to allocate", |t, g| {
        t.layout.cores_per_socket = g.sourced(g.number(1)?);
        Ok(())
    }),
    OptionDef::new("threads-per-core", None, Required("T"), JOB, "number of threads per core to allocate", |t, g| {
        t.layout.threads_per_core = g.sourced(g.number(1)?);
        Ok(())
    })
    .env(&["SBATCH_THREADS_PER_CORE", "SALLOC_THREADS_PER_CORE", "SLURM_THREADS_PER_CORE"]),
    OptionDef::new(
        "extra-node-info",
        Some('B'),
        Required("S[:C[:T]]"),
        JOB,
        "minimum sockets, cores and threads of the nodes",
        |t, g| {
            let places = ["first", "second", "third", "fourth"];
            let mut counts = g.text()?.split(':').zip(places).map(|(word, place)| count_or_any(word, place, g));
            let (sockets, cores, threads) = (counts.next(), counts.next(), counts.next());
            if counts.next().is_some() {
                return Err(g.invalid());
            }
            let of = |count: Option<Result<Option<u32>, OptionError>>| count.transpose().map(Option::flatten);
            let (sockets, cores, threads) = (of(sockets)?, of(cores)?, of(threads)?);
            let sourced = |count: Option<u32>| count.map(|value| Sourced { value, source: g.source });
            t.layout.sockets_per_node = sourced(sockets).or(t.layout.sockets_per_node);
            t.layout.cores_per_socket = sourced(cores).or(t.layout.cores_per_socket);
            t.layout.threads_per_core = sourced(threads).or(t.layout.threads_per_core);
            let all = |(sockets, cores, threads): (u32, u32, u32)| sockets.checked_mul(cores)?.checked_mul(threads);
            let threads_of_node = sockets.zip(cores).zip(threads).map(|((s, c), t)| all((s, c, t)));
            t.layout.threads_of_node = threads_of_node.map(|threads| g.checked(threads)).transpose()?;
            Ok(())
        },
    ),
    OptionDef::new("core-spec", Some('S'), Required("cores"), JOB, "count of reserved cores", |t, g| {
        t.layout.core_spec = g.sourced(g.number(0)?);
        Ok(())
    })
    .env(&["SBATCH_CORE_SPEC", "SALLOC_CORE_SPEC", "SLURM_CORE_SPEC"]),
    OptionDef::new("thread-spec", None, Required("threads"), JOB, "count of reserved threads", |t, g| {
        t.layout.thread_spec = g.sourced(g.number(0)?);
        Ok(())
    })
    .env(&["SBATCH_THREAD_SPEC", "SALLOC_THREAD_SPEC", "SLURM_THREAD_SPEC"]),
    OptionDef::new(
        "ntasks-per-socket",
        None,
        Required("n"),
        JOB,
        "maximum number of tasks to invoke on each socket",
        |t, g| {
            t.layout.tasks_per_socket = g.sourced(g.number(1)?);
            Ok(())
        },
    )
    .env(&["SLURM_NTASKS_PER_SOCKET"]),
    OptionDef::new(
        "ntasks-per-core",
        None,
        Required("n"),
        JOB,
        "maximum number of tasks to invoke on each core",
        |t, g| {
            t.layout.tasks_per_core = g.sourced(g.number(1)?);
            Ok(())
        },
    )
    .env(&["SLURM_NTASKS_PER_CORE"]),
    OptionDef::new(
        "hint",
        None,
        Required("type"),
        JOB,
        "compute_bound, memory_bound, multithread or nomultithread",
        |t, g| {
            if g.text()? == "help" {
                t.help = Some(Help::Hint);
                return Ok(());
            }
            let text = g.text()?;
            let hint = Hint::ALL.into_iter().find(|hint| hint.word() == text).ok_or_else(|| {
                OptionError::Declined(format!("unrecognized --hint argument \"{text}\", see --hint=help"))
            })?;
            t.layout.hint = g.sourced(hint);
            Ok(())
        },
    )
    .env(&["SBATCH_HINT", "SALLOC_HINT", "SLURM_HINT"]),
    OptionDef::new("overcommit", Some('O'), Arg::None, JOB, "overcommit resources", |t, g| {
        t.layout.overcommit = is_set(g)?;
        Ok(())
    })
    .env(&["SBATCH_OVERCOMMIT", "SALLOC_OVERCOMMIT", "SLURM_OVERCOMMIT"]),
    OptionDef::new("spread-job", None, Arg::None, JOB, "spread job across as many nodes as possible", |t, g| {
        t.layout.spread = is_set(g)?;
        Ok(())
    })
    .env(&["SBATCH_SPREAD_JOB", "SALLOC_SPREAD_JOB", "SLURM_SPREAD_JOB"]),
    OptionDef::new(
        "use-min-nodes",
        None,
        Arg::None,
        JOB,
        "if a range of node counts is given, prefer the smaller count",
        |t, g| {
            t.layout.fewest_nodes = is_set(g)?;
            Ok(())
        },
    )
    .env(&["SBATCH_USE_MIN_NODES", "SALLOC_USE_MIN_NODES", "SLURM_USE_MIN_NODES"]),
];

/// An option without argument is set by being there, a variable by what it says.
fn is_set(given: &Given<'_>) -> Result<bool, OptionError> {
    Ok(given.value.is_none() || Input::flag_set(given.text()?))
}

/// A count of at least 1, or `*` for any.
fn count_or_any(word: &str, place: &str, given: &Given<'_>) -> Result<Option<u32>, OptionError> {
    match word {
        "*" => Ok(None),
        word => given.number_in(word, 1, &format!("{place} arg of -B")).map(Some),
    }
}

/// What a job asks for.
pub fn of_job(typed: &Typed, task_nodes: Vec<String>) -> Result<LayoutRequest, OptionError> {
    let asked = &typed.layout;
    let counts = [asked.threads_per_core, asked.tasks_per_core, asked.sockets_per_node, asked.cores_per_socket];
    // What is said later goes over what a hint comes to, and the other way round; both at once contradict each other.
    let hint = asked.hint.filter(|hint| counts.iter().flatten().all(|count| count.source <= hint.source));
    // Variables are those of a surrounding job, which has both from its hint.
    let by_hand = hint.filter(|hint| hint.source != Source::Environment);
    if by_hand.is_some_and(|hint| counts.iter().flatten().any(|count| count.source == hint.source)) {
        let text = "Following options are mutually exclusive with --hint: --ntasks-per-core, --threads-per-core, \
                    --sockets-per-node, --cores-per-socket, -B";
        return Err(OptionError::Text(text.to_owned()));
    }
    let threads = asked.threads_per_core.filter(|_| hint.is_none()).map(|threads| threads.value);
    let one_thread = hint.is_some_and(|hint| hint.value != Hint::Multithread).then_some(1);
    let value = |count: Option<Sourced<u32>>| count.map(|count| count.value);
    Ok(LayoutRequest {
        sockets_per_node: value(asked.sockets_per_node),
        cores_per_socket: value(asked.cores_per_socket),
        threads_per_core: one_thread.or(threads),
        tasks_per_socket: value(asked.tasks_per_socket).filter(|_| !asked.overcommit),
        tasks_per_core: value(asked.tasks_per_core).filter(|_| !asked.overcommit && hint.is_none()),
        one_core_per_socket: hint.is_some_and(|hint| hint.value == Hint::MemoryBound),
        overcommit: asked.overcommit,
        spread: asked.spread,
        fewest_nodes: asked.fewest_nodes,
        distribution: typed.distribution,
        within: typed.within,
        task_nodes,
        left_to_system: left_to_system(asked)?,
    })
}

/// Cores or threads, whichever was said later.
fn left_to_system(asked: &TypedLayout) -> Result<Option<SpecCores>, OptionError> {
    Ok(match (asked.core_spec, asked.thread_spec) {
        (Some(cores), Some(threads)) if cores.source == threads.source => {
            return Err(OptionError::Text("--core-spec and --thread-spec are mutually exclusive".to_owned()));
        }
        (Some(cores), threads) if threads.is_none_or(|threads| threads.source < cores.source) => {
            Some(SpecCores::Cores(cores.value))
        }
        (_, threads) => threads.map(|threads| SpecCores::Threads(threads.value)),
    })
}

/// What of it does nothing for a step of a job that has its nodes already: an error where it was asked for by hand.
pub fn check_step(asked: &TypedLayout, warnings: &mut Vec<String>) -> Result<(), OptionError> {
    let by_hand = |count: Option<Sourced<u32>>| count.is_some_and(|count| count.source != Source::Environment);
    let counts = [
        ("--sockets-per-node", asked.sockets_per_node),
        ("--cores-per-socket", asked.cores_per_socket),
        ("--threads-per-core", asked.threads_per_core),
        ("--ntasks-per-socket", asked.tasks_per_socket),
        ("--ntasks-per-core", asked.tasks_per_core),
    ];
    if let Some((name, _)) = counts.into_iter().find(|(_, count)| by_hand(*count)) {
        return Err(OptionError::NotSupported(format!("{name} for a step of a job")));
    }
    if asked.hint.is_some_and(|hint| hint.source != Source::Environment && hint.value != Hint::Multithread) {
        warnings.push("--hint has no effect yet on a step of a job".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        sources::{command_line, lay_over},
        table::Command,
    };
    use garrick_model::time::Timestamp;
    use std::ffi::OsString;

    fn asked(env: &[(&str, &str)], args: &str) -> Result<LayoutRequest, OptionError> {
        let args: Vec<OsString> = args.split_whitespace().map(OsString::from).collect();
        let parsed = command_line(Command::Sbatch, &args).unwrap();
        let variable = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(*v));
        let typed = lay_over(Command::Sbatch, &[], &variable, &parsed.options, Timestamp::from_secs(0)).unwrap();
        of_job(&typed, Vec::new())
    }

    #[test]
    fn extra_node_info_is_short_for_three() {
        let three = |sockets, cores, threads| LayoutRequest {
            sockets_per_node: sockets,
            cores_per_socket: cores,
            threads_per_core: threads,
            ..LayoutRequest::default()
        };
        assert_eq!(asked(&[], "-B 2:4:1").unwrap(), three(Some(2), Some(4), Some(1)));
        assert_eq!(asked(&[], "-B *:4").unwrap(), three(None, Some(4), None));
        assert_eq!(asked(&[], "-B 2").unwrap(), asked(&[], "--sockets-per-node=2").unwrap(),);
    }

    #[test]
    fn cores_or_threads_are_left_to_the_system() {
        let left = |env: &[(&str, &str)], args: &str| asked(env, args).map(|layout| layout.left_to_system);
        assert_eq!(left(&[], "-S 2").unwrap(), Some(SpecCores::Cores(2)));
        assert_eq!(left(&[], "--core-spec=0").unwrap(), Some(SpecCores::Cores(0)));
        assert_eq!(left(&[("SBATCH_THREAD_SPEC", "3")], "").unwrap(), Some(SpecCores::Threads(3)));
        assert_eq!(left(&[("SBATCH_CORE_SPEC", "1")], "--thread-spec=2").unwrap(), Some(SpecCores::Threads(2)));
        assert_eq!(left(&[("SBATCH_THREAD_SPEC", "1")], "--core-spec=2").unwrap(), Some(SpecCores::Cores(2)));
        assert!(left(&[], "-S 1 --thread-spec=1").unwrap_err().to_string().contains("mutually exclusive"));
        assert_eq!(left(&[], "").unwrap(), None);
    }

    #[test]
    fn hints_stand_for_threads_and_cores() {
        let one = LayoutRequest { threads_per_core: Some(1), ..LayoutRequest::default() };
        assert_eq!(asked(&[], "--hint=nomultithread").unwrap(), one);
        assert_eq!(asked(&[], "--hint=compute_bound").unwrap(), one);
        assert_eq!(
            asked(&[], "--hint=memory_bound").unwrap(),
            LayoutRequest { one_core_per_socket: true, ..one.clone() }
        );
        assert_eq!(asked(&[], "--hint=multithread").unwrap(), LayoutRequest::default());
        assert_eq!(asked(&[("SBATCH_THREADS_PER_CORE", "2")], "--hint=nomultithread").unwrap(), one);
        let two = LayoutRequest { threads_per_core: Some(2), ..LayoutRequest::default() };
        assert_eq!(asked(&[("SBATCH_HINT", "nomultithread")], "--threads-per-core=2").unwrap(), two);
        let error = asked(&[], "--hint=nomultithread --ntasks-per-core=1").unwrap_err();
        assert!(error.to_string().starts_with("Following options are mutually exclusive with --hint"), "{error}");
    }

    #[test]
    fn overcommit_makes_tasks_by_socket_and_core_meaningless() {
        let asked = asked(&[("SBATCH_OVERCOMMIT", "1")], "--ntasks-per-core=1 --ntasks-per-socket=2").unwrap();
        assert_eq!(asked, LayoutRequest { overcommit: true, ..LayoutRequest::default() });
    }
}
