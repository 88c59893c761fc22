//! Options about generic resources: `--gres`, GPUs by node, task and in all, and what goes with each GPU.

use super::{
    table::{Arg, Arg::Required, JOB, OptionDef, RUN},
    typed::{CPUS_OF_TASK, Given, Help, OptionError, Source, Sourced, Typed},
};
use garrick_model::{
    env_vars,
    gres::{GPU, GpuBind, GresBinding, GresCount, GresRequest},
    refusal::Refusal,
    resources::MemoryMib,
    spec_text::gres::{self as text, GresTextError},
};

const CPUS_PER_GPU: &str = "cpus-per-gpu";

const fn option(
    long: &'static str,
    short: Option<char>,
    arg: Arg,
    help: &'static str,
    set: fn(&mut Typed, &Given<'_>) -> Result<(), OptionError>,
) -> OptionDef {
    OptionDef::new(long, short, arg, JOB, help, set)
}

/// The options.
pub const OPTIONS: &[OptionDef] = &[
    option("gres", None, Required("list"), "required generic resources, name[[:type]:count] on each node", |t, g| {
        t.gres.per_node = match g.text()? {
            "" => None,
            "help" => {
                t.help = Some(Help::Gres);
                None
            }
            list => g.sourced(read(list, text::request)?),
        };
        Ok(())
    })
    .env(&["SBATCH_GRES", "SALLOC_GRES", "SLURM_GRES"]),
    option("gres-flags", None, Required("opts"), "flags of generic resource management", |t, g| {
        for flag in g.text()?.split(',') {
            t.gres.binding = g.sourced(match flag.trim() {
                "disable-binding" => GresBinding::Disable,
                "enforce-binding" => GresBinding::Enforce,
                "allow-task-sharing" | "multiple-tasks-per-sharing" | "one-task-per-sharing" => {
                    return Err(g.not_supported());
                }
                _ => return Err(g.invalid()),
            });
        }
        Ok(())
    })
    .env(&["SBATCH_GRES_FLAGS", "SALLOC_GRES_FLAGS", "SLURM_GRES_FLAGS"]),
    option("gpus", Some('G'), Required("n"), "count of GPUs required for the job, [type:]n", |t, g| {
        t.gres.gpus = g.sourced(read(g.text()?, text::gpus)?);
        Ok(())
    })
    .env(&["SBATCH_GPUS", "SALLOC_GPUS", "SLURM_GPUS"]),
    option("gpus-per-node", None, Required("n"), "GPUs per allocated node, [type:]n", |t, g| {
        t.gres.gpus_per_node = g.sourced(read(g.text()?, text::gpus)?);
        Ok(())
    })
    .env(&["SBATCH_GPUS_PER_NODE", "SALLOC_GPUS_PER_NODE", "SLURM_GPUS_PER_NODE"]),
    option("gpus-per-task", None, Required("n"), "GPUs per task, [type:]n", |t, g| {
        t.gres.gpus_per_task = g.sourced(read(g.text()?, text::gpus)?);
        Ok(())
    })
    .env(&["SBATCH_GPUS_PER_TASK", "SALLOC_GPUS_PER_TASK", "SLURM_GPUS_PER_TASK"]),
    option("gpus-per-socket", None, Required("n"), "GPUs per allocated socket, [type:]n", |t, g| {
        t.gres.gpus_per_socket = g.sourced(read(g.text()?, text::gpus)?);
        Ok(())
    }),
    option("tres-per-task", None, Required("list"), "resources required per task, gres/name[:type]:n", |t, g| {
        let (gres, cpus) = read(g.text()?, text::tres_per_task)?;
        t.gres.tres_per_task = g.sourced(gres);
        // What it says in a job of the CPUs of its tasks is no wish for a step, as with SLURM_CPUS_PER_TASK.
        if cpus.is_none() || g.variable == Some(env_vars::SLURM_TRES_PER_TASK) {
            return Ok(());
        }
        t.cpus_per_task = cpus;
        t.choose(CPUS_OF_TASK, g)
    })
    .env(&["SBATCH_TRES_PER_TASK", "SALLOC_TRES_PER_TASK", "SLURM_TRES_PER_TASK"]),
    option(CPUS_PER_GPU, None, Required("n"), "CPUs per allocated GPU", |t, g| {
        t.gres.cpus_per_gpu = g.sourced(g.number(1)?);
        t.choose(CPUS_OF_TASK, g)
    })
    .env(&["SBATCH_CPUS_PER_GPU", "SALLOC_CPUS_PER_GPU", "SLURM_CPUS_PER_GPU"]),
    option("mem-per-gpu", None, Required("MB"), "real memory per allocated GPU", |t, g| {
        t.gres.mem_per_gpu = g.sourced(g.checked(g.text()?.parse::<MemoryMib>().ok())?);
        Ok(())
    })
    .env(&["SBATCH_MEM_PER_GPU", "SALLOC_MEM_PER_GPU", "SLURM_MEM_PER_GPU"]),
    option("ntasks-per-gpu", None, Required("n"), "number of tasks to invoke for each GPU", |t, g| {
        t.gres.ntasks_per_gpu = g.sourced(g.number(1)?);
        Ok(())
    })
    .env(&["SLURM_NTASKS_PER_GPU"]),
    option("ntasks-per-tres", None, Required("n"), "the older name of ntasks-per-gpu", |t, g| {
        t.gres.ntasks_per_gpu = g.sourced(g.number(1)?);
        Ok(())
    }),
    option("gpu-bind", None, Required("type"), "task to GPU binding", |t, g| {
        let bind = text::gpu_bind(g.text()?).map_err(|error| match error {
            GresTextError::Malformed(text) => OptionError::Text(format!("Invalid --gpu-bind argument: {text}")),
            GresTextError::NotSupported(what) => OptionError::NotSupported(what),
        })?;
        t.gres.gpu_bind = Some(bind);
        Ok(())
    })
    .env(&["SBATCH_GPU_BIND", "SALLOC_GPU_BIND", "SLURM_GPU_BIND"]),
    option("tres-bind", None, Required("spec"), "task to resource binding: gres/gpu:TYPE", |t, g| {
        t.gres.gpu_bind = tres_bind(g.text()?)?;
        Ok(())
    })
    .env(&["SBATCH_TRES_BIND", "SALLOC_TRES_BIND", "SLURM_TRES_BIND"]),
    OptionDef::new("accel-bind", None, Required("letters"), RUN, "bind tasks to what is closest: g (GPUs)", |t, g| {
        let letters = g.text()?;
        if letters.is_empty() || !letters.chars().all(|c| "gmnv".contains(c)) {
            return Err(g.invalid());
        }
        if letters.contains('g') {
            t.gres.gpu_bind = Some(GpuBind::Closest);
        }
        Ok(())
    }),
];

/// `gres/gpu:[verbose,]TYPE`, several joined by `+`: the last one of the GPUs counts. Tasks are bound to nothing else.
fn tres_bind(text: &str) -> Result<Option<GpuBind>, OptionError> {
    let mut bind = None;
    for one in text.split('+') {
        let wrong = || OptionError::Refused(Refusal::InvalidTres);
        let (name, kind) = one.strip_prefix("gres/").and_then(|one| one.split_once(':')).ok_or_else(wrong)?;
        if name != GPU {
            return Err(OptionError::NotSupported(format!("--tres-bind={one}")));
        }
        bind = Some(text::gpu_bind(kind).map_err(|_| wrong())?);
    }
    Ok(bind)
}

fn read<T>(text: &str, parse: impl Fn(&str) -> Result<T, GresTextError>) -> Result<T, OptionError> {
    parse(text).map_err(|error| match error {
        GresTextError::Malformed(_) => OptionError::Refused(Refusal::InvalidGres(text.to_owned())),
        GresTextError::NotSupported(what) => OptionError::NotSupported(what),
    })
}

/// What was asked for, as far as `counts` says of its source that it counts.
fn request(typed: &Typed, counts: impl Fn(Source) -> bool) -> GresRequest {
    fn value<T: Clone>(of: &Option<Sourced<T>>, counts: impl Fn(Source) -> bool) -> Option<T> {
        of.as_ref().filter(|given| counts(given.source)).map(|given| given.value.clone())
    }
    let gres = &typed.gres;
    let list = |of: &Option<Sourced<Vec<GresCount>>>| value(of, &counts).unwrap_or_default();
    let per_node = value(&gres.per_node, |_| true);
    // Both tell of the GPUs of a task, a job's variables of the same: the later place counts.
    let source = |of: &Option<Sourced<Vec<GresCount>>>| of.as_ref().map(|given| given.source).filter(|of| counts(*of));
    let is_gpu = |one: &GresCount| one.name == GPU;
    let mut more = list(&gres.tres_per_task);
    let mut per_task = list(&gres.gpus_per_task);
    if more.iter().any(is_gpu) && source(&gres.tres_per_task) > source(&gres.gpus_per_task) {
        per_task.clear();
    }
    if !per_task.is_empty() {
        more.retain(|one| !is_gpu(one));
    }
    per_task.extend(more);
    let per_socket = list(&gres.gpus_per_socket);
    GresRequest {
        sockets: typed.layout.sockets_per_node.map(|sockets| sockets.value).filter(|_| !per_socket.is_empty()),
        per_socket,
        binding: value(&gres.binding, &counts),
        none: matches!(per_node, Some(None)),
        per_node: per_node.flatten().unwrap_or_default(),
        gpus_per_node: list(&gres.gpus_per_node),
        total: list(&gres.gpus),
        per_task,
        cpus_per_gpu: value(&gres.cpus_per_gpu, &counts),
        mem_per_gpu: value(&gres.mem_per_gpu, &counts),
        tasks_per_gpu: value(&gres.ntasks_per_gpu, &counts),
        bind: gres.gpu_bind.clone(),
    }
}

/// Of a job.
pub fn of_job(typed: &Typed) -> Result<GresRequest, OptionError> {
    let mut asked = request(typed, |_| true);
    if !asked.per_socket.is_empty() && asked.sockets.is_none() {
        return Err(OptionError::Text("--gpus-per-socket needs --sockets-per-node.".to_owned()));
    }
    let of_node = (&typed.gres.per_node, &typed.gres.gpus_per_node);
    if let (Some(gres), Some(gpus)) = of_node
        && gres.source == gpus.source
        && gres.source != Source::Environment
        && gres.value.iter().flatten().any(|asked| asked.name == GPU)
    {
        return Err(OptionError::Text("--gres=gpu and --gpus-per-node are mutually exclusive.".to_owned()));
    }
    if let Some(per_gpu) = &typed.gres.cpus_per_gpu
        && typed.said_otherwise(CPUS_OF_TASK, CPUS_PER_GPU) > Some(per_gpu.source)
    {
        asked.cpus_per_gpu = None;
    }
    if let (Some(memory), Some(per_gpu)) = (&typed.memory, &typed.gres.mem_per_gpu) {
        if memory.source == per_gpu.source {
            return Err(OptionError::Fatal(
                "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.".to_owned(),
            ));
        }
        if memory.source > per_gpu.source {
            asked.mem_per_gpu = None;
        }
    }
    Ok(asked)
}

/// CPUs of a job's task, where no later place says how many a GPU has.
pub fn cpus_of_task(typed: &Typed) -> Option<u32> {
    let per_gpu = typed.gres.cpus_per_gpu.as_ref().map(|per_gpu| per_gpu.source);
    typed.cpus_per_task.filter(|_| typed.said_otherwise(CPUS_OF_TASK, CPUS_PER_GPU) >= per_gpu)
}

/// Of a step, and what it takes over from its job where it names nothing: what the environment says of GPUs is about the
/// job. All tasks of a step may have what each task of the job has, and are bound to GPUs as those.
pub fn of_step(typed: &Typed) -> (GresRequest, GresRequest) {
    let of_environment = |source| source == Source::Environment;
    let mut asked = request(typed, |source| !of_environment(source));
    let GresRequest { mut per_task, tasks_per_gpu, .. } = request(typed, of_environment);
    // A step that asked for nothing but the other GRES of its tasks would go without the GPUs that its job has in all.
    if per_task.iter().all(|one| one.name != GPU) {
        per_task.clear();
    }
    // `--ntasks-per-gpu` of a job implies a binding for its steps (sbatch(1)), where nothing nearer says otherwise.
    if asked.tasks_per_gpu.is_none() && asked.per_task.is_empty() && per_task.is_empty() {
        asked.bind = asked.bind.or(tasks_per_gpu.map(GpuBind::Single));
    }
    (asked, GresRequest { per_task, ..GresRequest::default() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        script_lines::{Mark, ScriptLine},
        sources::{command_line, lay_over},
        table::Command,
    };
    use garrick_model::{gres::list, time::Timestamp};
    use std::ffi::OsString;

    fn typed(command: Command, env: &[(&str, &str)], args: &str) -> Result<Typed, String> {
        let args: Vec<OsString> = args.split_whitespace().map(OsString::from).collect();
        let parsed = command_line(command, &args).unwrap();
        let variable = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(*v));
        let typed = lay_over(command, &[], &variable, &parsed.options, Timestamp::from_secs(0));
        typed.map_err(|error| format!("{error:?}"))
    }

    #[test]
    fn a_job_may_ask_in_every_form() {
        let env = [("SBATCH_MEM_PER_GPU", "1G"), ("SBATCH_GPUS_PER_NODE", "a100:1")];
        let line = "--gres=gpu:h100:2,craynetwork -G 4 --gpus-per-task=1 --cpus-per-gpu=3";
        let asked = of_job(&typed(Command::Sbatch, &env, line).unwrap()).unwrap();
        assert_eq!(list(&asked.per_node), "gpu:h100:2,craynetwork:1");
        assert_eq!((list(&asked.total), list(&asked.gpus_per_node)), ("gpu:4".into(), "gpu:a100:1".into()));
        assert_eq!((list(&asked.per_task), asked.cpus_per_gpu), ("gpu:1".into(), Some(3)));
        assert_eq!(asked.mem_per_gpu, Some(MemoryMib(1024)));
        let bound = "--gpus=h100:2,a100:1 --gpus-per-socket=1 --sockets-per-node=2 --gres-flags=enforce-binding";
        let asked = of_job(&typed(Command::Sbatch, &[], bound).unwrap()).unwrap();
        assert_eq!((list(&asked.total), list(&asked.per_socket)), ("gpu:h100:2,gpu:a100:1".into(), "gpu:1".into()));
        assert_eq!((asked.sockets, asked.binding), (Some(2), Some(GresBinding::Enforce)));
        assert!(of_job(&typed(Command::Sbatch, &[], "--gpus-per-socket=1").unwrap()).is_err());
        let both = typed(Command::Sbatch, &[], "--mem=1G --mem-per-gpu=1G").unwrap();
        assert!(of_job(&both).is_err());
    }

    /// They exclude each other: both sent, that of the script would go over that of the command line.
    #[test]
    fn of_cpus_of_a_task_and_of_a_gpu_the_later_place_counts() {
        let env = [("SBATCH_CPUS_PER_GPU", "2")];
        let counts = |script: &str, env: &[(&str, &str)], line: &str| {
            let words = script.split_whitespace().map(OsString::from).collect();
            let lines = [ScriptLine { number: 2, mark: Mark::Sbatch, words }];
            let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            let parsed = command_line(Command::Sbatch, &args).unwrap();
            let variable = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(*v));
            let now = Timestamp::from_secs(0);
            let typed = lay_over(Command::Sbatch, &lines, &variable, &parsed.options, now).unwrap();
            (cpus_of_task(&typed), of_job(&typed).unwrap().cpus_per_gpu)
        };
        assert_eq!(counts("-c8", &[], "--cpus-per-gpu=1 --gres=gpu:4"), (None, Some(1)));
        assert_eq!(counts("--tres-per-task=cpu=8", &[], "--cpus-per-gpu=1"), (None, Some(1)));
        assert_eq!(counts("--cpus-per-gpu=1 --gres=gpu:4", &[], "-c8"), (Some(8), None));
        assert_eq!(counts("-c8", &env, ""), (None, Some(2)));
        assert_eq!(counts("-c8", &env, "-c3"), (Some(3), None));
        assert_eq!(counts("-c8", &[], "-c3"), (Some(3), None));
    }

    #[test]
    fn a_step_takes_what_its_tasks_have_from_the_environment_and_nothing_else() {
        let env = [("SLURM_GPUS", "8"), ("SLURM_GPUS_PER_TASK", "2"), ("SLURM_GPUS_PER_NODE", "4")];
        let (asked, inherited) = of_step(&typed(Command::Srun, &env, "").unwrap());
        assert!(asked.is_empty() && !asked.none);
        assert_eq!(list(&inherited.per_task), "gpu:2");
        let (asked, _) = of_step(&typed(Command::Srun, &env, "--gpus=1").unwrap());
        assert_eq!(list(&asked.total), "gpu:1");
        let (asked, _) = of_step(&typed(Command::Srun, &env, "--gres=none").unwrap());
        assert!(asked.none);
    }

    #[test]
    fn of_the_gpus_of_a_task_the_later_place_counts() {
        let job = [("SLURM_GPUS_PER_TASK", "1"), ("SLURM_TRES_PER_TASK", "gres/gpu=1")];
        let step = |args| list(&of_step(&typed(Command::Srun, &job, args).unwrap()).0.per_task);
        assert_eq!(step("--tres-per-task=gres/gpu:2"), "gpu:2");
        assert_eq!(step("--gpus-per-task=3"), "gpu:3");
        assert_eq!(step("--tres-per-task=gres/nic:1"), "nic:1");
        let of_job = |env, args| list(&of_job(&typed(Command::Sbatch, env, args).unwrap()).unwrap().per_task);
        assert_eq!(of_job(&[("SBATCH_GPUS_PER_TASK", "1")], "--tres-per-task=gres/gpu:2"), "gpu:2");
        assert_eq!(of_job(&[("SBATCH_GPUS_PER_TASK", "1")], "--tres-per-task=gres/nic:2"), "gpu:1,nic:2");
        let tasks = [("SBATCH_TRES_PER_TASK", "gres/gpu=1,gres/nic=1")];
        assert_eq!(of_job(&tasks, "--gpus-per-task=2"), "gpu:2,nic:1");
    }

    #[test]
    fn a_step_binds_its_tasks_to_gpus_as_its_job_says() {
        let bind = |env: &[(&str, &str)], args| of_step(&typed(Command::Srun, env, args).unwrap()).0.bind;
        let bound = [("SLURM_GPUS", "2"), ("SLURM_GPU_BIND", "map_gpu:1,0")];
        assert_eq!(bind(&bound, ""), Some(GpuBind::Map(vec![1, 0])));
        assert_eq!(bind(&bound, "--gpu-bind=none"), Some(GpuBind::None));
        let shared = [("SLURM_NTASKS_PER_GPU", "2")];
        assert_eq!(bind(&shared, ""), Some(GpuBind::Single(2)));
        assert_eq!(bind(&shared, "--gpu-bind=closest"), Some(GpuBind::Closest));
        assert_eq!(bind(&shared, "--gpus-per-task=1"), None);
    }

    #[test]
    fn a_plain_step_has_the_gpus_of_its_job_whatever_else_its_tasks_have() {
        let step = |env: &[(&str, &str)]| of_step(&typed(Command::Srun, env, "").unwrap());
        let job = [("SLURM_GPUS", "2"), ("SLURM_TRES_PER_TASK", "cpu=1,gres/nic=1")];
        assert_eq!(step(&job), (GresRequest::default(), GresRequest::default()), "all that the job has");
        assert_eq!(list(&step(&[("SLURM_TRES_PER_TASK", "gres/gpu=1,gres/nic=1")]).1.per_task), "gpu:1,nic:1");
        let shared = [("SLURM_NTASKS_PER_GPU", "2"), ("SLURM_TRES_PER_TASK", "gres/nic=1")];
        assert_eq!(step(&shared).0.bind, Some(GpuBind::Single(2)));
    }

    /// It tells of the same in two ways.
    #[test]
    fn what_a_job_says_of_its_tasks_counts_once_and_says_nothing_of_a_steps_cpus() {
        let env = [("SLURM_GPUS_PER_TASK", "1"), ("SLURM_TRES_PER_TASK", "cpu=2,gres/gpu=1,gres/nic=1")];
        let typed = typed(Command::Srun, &env, "").unwrap();
        assert_eq!((list(&of_step(&typed).1.per_task), cpus_of_task(&typed)), ("gpu:1,nic:1".into(), None));
    }

    #[test]
    fn what_cannot_be_is_refused_in_slurms_words() {
        let said = |args| typed(Command::Srun, &[], args).unwrap_err();
        assert!(said("--gres=gpu:x:y").contains("InvalidGres"));
        assert!(said("--gpu-bind=nearest").contains("Invalid"));
        assert!(said("--gres=mps:1").contains("NotSupported"));
        assert!(said("--gres-flags=one-task-per-sharing").contains("NotSupported"));
    }
}
