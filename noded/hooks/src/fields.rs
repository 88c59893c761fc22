//! A job's fields as scripts have them: the names, units and values of Slurm's Lua interface (26.05), each a row of [`FIELDS`].
//! What a change of a job names is read through the same rows: it is patched into an empty request, whose other fields are not set.

use crate::value::{BadValue, INFINITE, MEM_PER_CPU, NICE_OFFSET, NO_VAL, NO_VAL16, NO_VAL64, Value, bad};
use garrick_model::{
    gres::{GPU, GresCount, tres_text},
    hostlist,
    mail::MailTypes,
    messages::command::JobChange,
    resources::{MemoryMib, MemoryRequest},
    spec::{Dependencies, JobKind, JobSpec, NodeCount, Sharing},
    spec_text,
    time::TimeLimit,
};
use serde_bytes::ByteBuf;
use std::sync::Arc;

/// The request of a job, and who makes it.
#[derive(Clone, Debug)]
pub struct Desc {
    /// The request.
    pub spec: JobSpec,
    /// Who.
    pub uid: u32,
    /// Their group.
    pub gid: u32,
    /// Their name.
    pub user: String,
    /// Which component of a heterogeneous job it is.
    pub offset: Option<u32>,
    /// It is a change of a job.
    pub is_change: bool,
}

type Get = fn(&Desc) -> Value;
type Set = fn(&mut JobSpec, &Value) -> Result<(), BadValue>;
type Change = fn(&mut JobChange, &JobSpec);

/// A field.
pub struct Field {
    /// `time_limit`
    pub name: &'static str,
    /// Reads it.
    pub get: Get,
    /// Sets it in a new job; `None`: it cannot be set.
    pub set: Option<Set>,
    /// Takes it over into a change of a job; `None`: changes do not have it.
    pub change: Option<Change>,
}

const fn shown(name: &'static str, get: Get) -> Field {
    Field { name, get, set: None, change: None }
}

const fn settable(name: &'static str, get: Get, set: Set) -> Field {
    Field { name, get, set: Some(set), change: None }
}

const fn full(name: &'static str, get: Get, set: Set, change: Change) -> Field {
    Field { name, get, set: Some(set), change: Some(change) }
}

/// The field of that name.
pub fn field(name: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.name == name)
}

/// Sets a field to what was read.
fn put<T>(field: &mut T, read: Result<T, BadValue>) -> Result<(), BadValue> {
    *field = read?;
    Ok(())
}

fn text(of: Option<&String>) -> Value {
    Value::from(of.cloned())
}

fn gres<'a>(asked: impl IntoIterator<Item = &'a GresCount>) -> Value {
    Value::from(tres_text(asked))
}

/// `gres/gpu:2,gres/gpu:h100:1`, and without `gres/`; empty for none.
fn gres_of(value: &Value) -> Result<Vec<GresCount>, BadValue> {
    let read = |text: &str| {
        let plain: Vec<&str> =
            text.split(',').map(|one| one.strip_prefix("gres/").or(one.strip_prefix("gres:")).unwrap_or(one)).collect();
        spec_text::gres::request(&plain.join(",").replace('=', ":")).ok()
    };
    Ok(value.read("a list of generic resources like gres/gpu:2", read)?.flatten().unwrap_or_default())
}

fn hosts(names: &[String]) -> Value {
    Value::from(Some(hostlist::fold(names)))
}

fn hosts_of(value: &Value) -> Result<Vec<String>, BadValue> {
    Ok(value.read("a host list", |text| hostlist::expand(text).ok())?.unwrap_or_default())
}

fn words_of(value: &Value) -> Result<Vec<String>, BadValue> {
    let text = value.text()?.unwrap_or_default();
    Ok(text.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect())
}

/// `gres/gpu:2`, for each GPU.
fn of_each_gpu(number: Option<u64>) -> Value {
    Value::from(number.map(|number| format!("gres/{GPU}:{number}")))
}

fn each_gpu_of(value: &Value) -> Result<Option<u64>, BadValue> {
    value.read("a number of each GPU like gres/gpu:2", |text| {
        text.strip_prefix("gres/").unwrap_or(text).strip_prefix(GPU)?.trim_start_matches([':', '=']).parse().ok()
    })
}

fn small(number: u64) -> Option<u32> {
    u32::try_from(number).ok()
}

fn sharing(spec: &JobSpec) -> Value {
    Value::from(match spec.sharing {
        Sharing::Default => NO_VAL16,
        Sharing::Exclusive => 0,
        Sharing::Oversubscribe => 1,
        Sharing::User => 2,
        Sharing::Mcs => 3,
    })
}

fn set_sharing(spec: &mut JobSpec, value: &Value) -> Result<(), BadValue> {
    spec.sharing = match value.number()? {
        None => Sharing::Default,
        Some(0) => Sharing::Exclusive,
        Some(1) => Sharing::Oversubscribe,
        Some(2) => Sharing::User,
        Some(3) => Sharing::Mcs,
        Some(_) => return Err(bad("0 (exclusive), 1 (shared), 2 (of one user) or 3 (of one MCS label)", value)),
    };
    Ok(())
}

fn set_min_nodes(spec: &mut JobSpec, value: &Value) -> Result<(), BadValue> {
    let max = spec.nodes.and_then(|nodes| nodes.max);
    spec.nodes = value.number()?.map(|min| NodeCount { min, max });
    Ok(())
}

fn set_max_nodes(spec: &mut JobSpec, value: &Value) -> Result<(), BadValue> {
    let min = spec.nodes.map_or(1, |nodes| nodes.min);
    spec.nodes = match (value.number()?, spec.nodes) {
        (None, None) => None,
        (max, _) => Some(NodeCount { min, max }),
    };
    Ok(())
}

fn of_node(memory: MemoryRequest) -> Value {
    match memory {
        MemoryRequest::PerNode(_) | MemoryRequest::All => Value::memory(memory),
        _ => Value::Nil,
    }
}

fn of_cpu(memory: MemoryRequest) -> Value {
    match memory {
        MemoryRequest::PerCpu(mib) => Value::from_u64(mib.0),
        _ => Value::Nil,
    }
}

fn memory(value: &Value, of: fn(MemoryMib) -> MemoryRequest) -> Result<MemoryRequest, BadValue> {
    match value {
        Value::Nil => Ok(MemoryRequest::Default),
        Value::Number(number) if *number >= NO_VAL64 => Ok(MemoryRequest::Default),
        Value::Number(number) if *number >= MEM_PER_CPU => {
            Ok(MemoryRequest::PerCpu(MemoryMib(Value::Number(number - MEM_PER_CPU).whole()?)))
        }
        other => Ok(match of(MemoryMib(other.whole()?)) {
            MemoryRequest::PerNode(MemoryMib(0)) => MemoryRequest::All,
            memory => memory,
        }),
    }
}

fn set_nice(spec: &mut JobSpec, value: &Value) -> Result<(), BadValue> {
    let wrong = || bad("a nice value beside slurm.NICE_OFFSET", value);
    spec.nice = match value.number()? {
        None => 0,
        Some(number) => i32::try_from(i64::from(number) - NICE_OFFSET).map_err(|_| wrong())?,
    };
    Ok(())
}

fn set_priority(spec: &mut JobSpec, value: &Value) -> Result<(), BadValue> {
    let number = value.number()?;
    spec.hold = number == Some(0);
    spec.priority = number.filter(|number| *number > 0);
    Ok(())
}

fn set_requeue(spec: &mut JobSpec, value: &Value) -> Result<(), BadValue> {
    spec.requeue = value.flag()?;
    Ok(())
}

fn set_script(spec: &mut JobSpec, value: &Value) -> Result<(), BadValue> {
    match value {
        Value::Text(text) if spec.kind == JobKind::Batch => {
            spec.script = Some(Arc::new(ByteBuf::from(text.clone())));
            Ok(())
        }
        other => Err(bad("the script of a batch job", other)),
    }
}

fn set_environment(spec: &mut JobSpec, value: &Value) -> Result<(), BadValue> {
    let Value::Environment(all) = value else { return Err(bad("a table of environment variables", value)) };
    spec.environment = Arc::new(all.clone());
    Ok(())
}

/// The script or command, and its arguments.
fn argv(spec: &JobSpec) -> Vec<Vec<u8>> {
    let script = spec.command.as_ref().filter(|_| spec.kind == JobKind::Batch).map(|path| path.as_bytes().to_vec());
    script.into_iter().chain(spec.argv.iter().map(|word| word.to_vec())).collect()
}

/// As asked for, or as many as are named, or as the tasks fill.
fn least_nodes(desc: &Desc) -> Value {
    let named = small(desc.spec.nodelist.len() as u64).filter(|named| *named > 0);
    let filled = desc.spec.tasks.zip(desc.spec.tasks_per_node.filter(|each| *each > 0));
    let filled = filled.map(|(tasks, each)| tasks.div_ceil(each));
    Value::or(desc.spec.nodes.map(|nodes| nodes.min).or(named).or(filled), NO_VAL)
}

/// A file's name from the root; `None`: none is named.
fn file(spec: &JobSpec, name: Option<&String>) -> Value {
    Value::from(name.map(|name| match name.starts_with('/') || spec.work_dir.is_empty() {
        true => name.clone(),
        false => format!("{}/{name}", spec.work_dir.trim_end_matches('/')),
    }))
}

/// A change has none: it is 0 there.
fn offset(desc: &Desc) -> Value {
    Value::or(desc.offset, if desc.is_change { 0 } else { NO_VAL })
}

fn least_cpus(desc: &Desc) -> Value {
    if desc.is_change {
        return Value::from(NO_VAL);
    }
    let spec = &desc.spec;
    Value::from(spec.tasks.unwrap_or(1).saturating_mul(spec.cpus_per_task.unwrap_or(1)))
}

/// Those of the flags that scripts have names for.
fn bitflags(desc: &Desc) -> Value {
    let spec = &desc.spec;
    let set = [
        (spec.kill_on_invalid_dep == Some(true), 1),
        (spec.kill_on_invalid_dep == Some(false), 2),
        (spec.layout.spread, 256),
        (spec.layout.fewest_nodes, 512),
        (spec.topology.spread_segments, 1 << 43),
        (spec.topology.consolidate_segments, 1 << 44),
        (spec.expedite, 1 << 45),
    ];
    Value::from_u64(set.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum())
}

/// All fields that scripts have, by name.
pub const FIELDS: &[Field] = &[
    full(
        "account",
        |d| text(d.spec.account.as_ref()),
        |s, v| put(&mut s.account, v.text()),
        |c, s| c.account.clone_from(&s.account),
    ),
    shown("alloc_node", |d| Value::from(d.spec.submit_host.as_str())),
    shown("argc", |d| Value::from_u64(argv(&d.spec).len() as u64)),
    shown("argv", |d| Some(argv(&d.spec)).filter(|argv| !argv.is_empty()).map_or(Value::Nil, Value::Words)),
    settable(
        "array_inx",
        |d| Value::from(d.spec.array.as_ref().map(ToString::to_string)),
        |s, v| put(&mut s.array, v.read("a list of array indices like 0-7%2", |text| text.parse().ok())),
    ),
    full(
        "begin_time",
        |d| d.spec.begin.map_or(Value::from(0), Value::from),
        |s, v| put(&mut s.begin, v.time()),
        |c, s| c.begin = s.begin,
    ),
    shown("bitflags", bitflags),
    shown("boards_per_node", |_| Value::from(0)),
    full(
        "comment",
        |d| text(d.spec.comment.as_ref()),
        |s, v| put(&mut s.comment, v.text()),
        |c, s| c.comment = Some(s.comment.clone().unwrap_or_default()),
    ),
    settable(
        "contiguous",
        |d| Value::from(if d.is_change { NO_VAL16 } else { u32::from(d.spec.contiguous) }),
        |s, v| {
            s.contiguous = v.flag()?.unwrap_or_default();
            Ok(())
        },
    ),
    settable(
        "cores_per_socket",
        |d| Value::or(d.spec.layout.cores_per_socket, NO_VAL16),
        |s, v| put(&mut s.layout.cores_per_socket, v.number()),
    ),
    shown("cpu_freq_gov", |_| Value::from(NO_VAL)),
    shown("cpu_freq_max", |_| Value::from(NO_VAL)),
    shown("cpu_freq_min", |_| Value::from(NO_VAL)),
    full(
        "cpus_per_task",
        |d| Value::or(d.spec.cpus_per_task, NO_VAL16),
        |s, v| put(&mut s.cpus_per_task, v.number()),
        |c, s| c.request.cpus_per_task = s.cpus_per_task,
    ),
    settable(
        "cpus_per_tres",
        |d| of_each_gpu(d.spec.gres.cpus_per_gpu.map(u64::from)),
        |s, v| {
            s.gres.cpus_per_gpu = each_gpu_of(v)?.and_then(small);
            Ok(())
        },
    ),
    shown("cron_job", |d| Value::from(d.spec.cron.is_some())),
    settable(
        "delay_boot",
        |d| d.spec.delay_boot_secs.map_or(Value::from(NO_VAL), Value::from_u64),
        |s, v| {
            s.delay_boot_secs = v.number()?.map(u64::from);
            Ok(())
        },
    ),
    full(
        "dependency",
        |d| Value::from(Some(d.spec.dependencies.to_string())),
        |s, v| {
            let read = v.read("a list of dependencies like afterok:12", |text| text.parse::<Dependencies>().ok())?;
            s.dependencies = read.unwrap_or_default();
            Ok(())
        },
        |c, s| c.dependencies = Some(s.dependencies.clone()),
    ),
    shown("end_time", |_| Value::from(0)),
    settable("environment", |d| Value::Environment(d.spec.environment.to_vec()), set_environment),
    full(
        "exc_nodes",
        |d| hosts(&d.spec.exclude),
        |s, v| put(&mut s.exclude, hosts_of(v)),
        |c, s| c.exclude = Some(s.exclude.clone()),
    ),
    full(
        "extra",
        |d| text(d.spec.extra.as_ref()),
        |s, v| put(&mut s.extra, v.text()),
        |c, s| c.extra = Some(s.extra.clone().unwrap_or_default()),
    ),
    full(
        "features",
        |d| text(d.spec.constraint.as_ref()),
        |s, v| put(&mut s.constraint, v.text()),
        |c, s| c.constraint = Some(s.constraint.clone().unwrap_or_default()),
    ),
    settable("gres", |d| gres(&d.spec.gres.per_node), |s, v| put(&mut s.gres.per_node, gres_of(v))),
    shown("group_id", |d| Value::from(d.gid)),
    shown("het_job_offset", offset),
    settable(
        "immediate",
        |d| Value::from(u32::from(d.spec.immediate_secs.is_some())),
        |s, v| {
            s.immediate_secs = v.number()?.filter(|number| *number > 0);
            Ok(())
        },
    ),
    full(
        "licenses",
        |d| text(d.spec.licenses.as_ref()),
        |s, v| put(&mut s.licenses, v.text()),
        |c, s| c.licenses = Some(s.licenses.clone().unwrap_or_default()),
    ),
    full(
        "mail_type",
        |d| match (d.is_change, d.spec.mail.types.bits()) {
            (true, 0) => Value::from(NO_VAL16),
            (_, bits) => Value::from(u32::from(bits)),
        },
        |s, v| {
            let bits = u16::try_from(v.number()?.unwrap_or(0)).ok().and_then(MailTypes::from_bits);
            put(&mut s.mail.types, bits.ok_or_else(|| bad("a sum of slurm.MAIL_JOB_* numbers", v)))
        },
        |c, s| c.mail_types = Some(s.mail.types),
    ),
    full(
        "mail_user",
        |d| text(d.spec.mail.user.as_ref()),
        |s, v| put(&mut s.mail.user, v.text()),
        |c, s| c.mail_user = Some(s.mail.user.clone().unwrap_or_default()),
    ),
    shown("max_cpus", |_| Value::from(NO_VAL)),
    full(
        "max_nodes",
        |d| Value::or(d.spec.nodes.and_then(|nodes| nodes.max), NO_VAL),
        set_max_nodes,
        |c, s| c.nodes = s.nodes,
    ),
    full(
        "mcs_label",
        |d| text(d.spec.mcs_label.as_ref()),
        |s, v| put(&mut s.mcs_label, v.text()),
        |c, s| c.mcs_label = Some(s.mcs_label.clone().unwrap_or_default()),
    ),
    settable(
        "mem_per_tres",
        |d| of_each_gpu(d.spec.gres.mem_per_gpu.map(|mib| mib.0)),
        |s, v| {
            s.gres.mem_per_gpu = each_gpu_of(v)?.map(MemoryMib);
            Ok(())
        },
    ),
    shown("min_cpus", least_cpus),
    full(
        "min_mem_per_cpu",
        |d| of_cpu(d.spec.memory),
        |s, v| put(&mut s.memory, memory(v, MemoryRequest::PerCpu)),
        |c, s| c.memory = Some(s.memory),
    ),
    full(
        "min_mem_per_node",
        |d| of_node(d.spec.memory),
        |s, v| put(&mut s.memory, memory(v, MemoryRequest::PerNode)),
        |c, s| c.memory = Some(s.memory),
    ),
    full("min_nodes", least_nodes, set_min_nodes, |c, s| c.nodes = s.nodes),
    full(
        "name",
        |d| Value::from(Some(d.spec.name.clone())),
        |s, v| {
            s.name = v.text()?.unwrap_or_default();
            Ok(())
        },
        |c, s| c.name = Some(s.name.clone()),
    ),
    full(
        "nice",
        |d| match d.spec.nice {
            0 => Value::from(NO_VAL),
            nice => Value::from_i64(NICE_OFFSET + i64::from(nice)),
        },
        set_nice,
        |c, s| c.nice = Some(s.nice),
    ),
    shown("ntasks_per_board", |_| Value::from(0)),
    settable(
        "ntasks_per_core",
        |d| Value::or(d.spec.layout.tasks_per_core, NO_VAL16),
        |s, v| put(&mut s.layout.tasks_per_core, v.number()),
    ),
    settable(
        "ntasks_per_gpu",
        |d| Value::or(d.spec.gres.tasks_per_gpu, NO_VAL16),
        |s, v| put(&mut s.gres.tasks_per_gpu, v.number()),
    ),
    full(
        "ntasks_per_node",
        |d| Value::or(d.spec.tasks_per_node, NO_VAL16),
        |s, v| put(&mut s.tasks_per_node, v.number()),
        |c, s| c.request.tasks_per_node = s.tasks_per_node,
    ),
    settable(
        "ntasks_per_socket",
        |d| Value::or(d.spec.layout.tasks_per_socket, NO_VAL16),
        |s, v| put(&mut s.layout.tasks_per_socket, v.number()),
    ),
    shown("ntasks_per_tres", |d| Value::or(d.spec.gres.tasks_per_gpu, NO_VAL16)),
    full(
        "num_tasks",
        |d| Value::or(d.spec.tasks, NO_VAL),
        |s, v| put(&mut s.tasks, v.number()),
        |c, s| c.tasks = s.tasks,
    ),
    settable("oversubscribe", |d| sharing(&d.spec), set_sharing),
    shown("pack_job_offset", offset),
    full(
        "partition",
        |d| Value::from(Some(d.spec.partitions.join(","))),
        |s, v| put(&mut s.partitions, words_of(v)),
        |c, s| c.partitions = Some(s.partitions.clone()),
    ),
    full(
        "pn_min_cpus",
        |d| Value::or(d.spec.min_cpus_per_node, NO_VAL16),
        |s, v| put(&mut s.min_cpus_per_node, v.number()),
        |c, s| c.request.min_cpus_per_node = s.min_cpus_per_node,
    ),
    full(
        "pn_min_memory",
        |d| Value::memory(d.spec.memory),
        |s, v| put(&mut s.memory, memory(v, MemoryRequest::PerNode)),
        |c, s| c.memory = Some(s.memory),
    ),
    full(
        "pn_min_tmp_disk",
        |d| match d.spec.tmp_disk_mib {
            0 => Value::from(NO_VAL),
            mib => Value::from_u64(mib),
        },
        |s, v| {
            s.tmp_disk_mib = v.number()?.map_or(0, u64::from);
            Ok(())
        },
        |c, s| c.request.tmp_disk_mib = Some(s.tmp_disk_mib),
    ),
    full(
        "prefer",
        |d| text(d.spec.prefer.as_ref()),
        |s, v| put(&mut s.prefer, v.text()),
        |c, s| c.prefer = Some(s.prefer.clone().unwrap_or_default()),
    ),
    full(
        "priority",
        |d| if d.spec.hold { Value::from(0) } else { Value::or(d.spec.priority, NO_VAL) },
        set_priority,
        |c, s| c.priority = if s.hold { Some(0) } else { s.priority },
    ),
    full(
        "qos",
        |d| text(d.spec.qos.as_ref()),
        |s, v| put(&mut s.qos, v.text()),
        |c, s| c.request.qos = Some(s.qos.clone().unwrap_or_default()),
    ),
    shown("reboot", |d| if d.spec.reboot { Value::from(1) } else { Value::from(NO_VAL16) }),
    full(
        "req_nodes",
        |d| hosts(&d.spec.nodelist),
        |s, v| put(&mut s.nodelist, hosts_of(v)),
        |c, s| c.nodelist = Some(s.nodelist.clone()),
    ),
    full(
        "req_switch",
        |d| Value::or(d.spec.topology.switches, NO_VAL),
        |s, v| put(&mut s.topology.switches, v.number()),
        |c, s| c.switches = Some((s.topology.switches.unwrap_or_default(), s.topology.switches_wait_secs)),
    ),
    full("requeue", |d| Value::or(d.spec.requeue.map(u32::from), NO_VAL16), set_requeue, |c, s| c.requeue = s.requeue),
    full(
        "reservation",
        |d| Value::from(Some(d.spec.reservations.join(","))),
        |s, v| put(&mut s.reservations, words_of(v)),
        |c, s| c.reservations = Some(s.reservations.clone()),
    ),
    settable(
        "script",
        |d| d.spec.script.as_ref().map_or(Value::Nil, |script| Value::Text(script.to_vec())),
        set_script,
    ),
    full(
        "segment_size",
        |d| Value::or(d.spec.topology.segment, 0),
        |s, v| {
            s.topology.segment = v.number()?.filter(|size| *size > 0);
            Ok(())
        },
        |c, s| c.segment = Some(s.topology.segment.unwrap_or_default()),
    ),
    settable("shared", |d| sharing(&d.spec), set_sharing),
    shown("site_factor", |_| Value::from(NO_VAL)),
    shown("sockets_per_board", |_| Value::from(0)),
    settable(
        "sockets_per_node",
        |d| Value::or(d.spec.layout.sockets_per_node, NO_VAL16),
        |s, v| put(&mut s.layout.sockets_per_node, v.number()),
    ),
    shown("spank_job_env_size", |_| Value::from(0)),
    full(
        "std_err",
        |d| file(&d.spec, d.spec.stderr.as_ref()),
        |s, v| put(&mut s.stderr, v.text()),
        |c, s| c.request.stderr.clone_from(&s.stderr),
    ),
    full(
        "std_in",
        |d| match (&d.spec.stdin, d.spec.script.is_some()) {
            (None, true) => Value::from("/dev/null"),
            (stdin, _) => file(&d.spec, stdin.as_ref()),
        },
        |s, v| put(&mut s.stdin, v.text()),
        |c, s| c.request.stdin.clone_from(&s.stdin),
    ),
    full(
        "std_out",
        |d| file(&d.spec, d.spec.stdout.as_ref()),
        |s, v| put(&mut s.stdout, v.text()),
        |c, s| c.request.stdout.clone_from(&s.stdout),
    ),
    shown("submit_line", |d| Value::from(Some(d.spec.submit_line.clone()))),
    settable(
        "threads_per_core",
        |d| Value::or(d.spec.layout.threads_per_core, NO_VAL16),
        |s, v| put(&mut s.layout.threads_per_core, v.number()),
    ),
    full(
        "time_limit",
        |d| Value::minutes(d.spec.time_limit),
        |s, v| put(&mut s.time_limit, v.limit()),
        |c, s| {
            c.time_limit = s.time_limit;
            c.time_limit_delta_secs = None;
        },
    ),
    full(
        "time_min",
        |d| Value::minutes(d.spec.time_min),
        |s, v| put(&mut s.time_min, v.limit()),
        |c, s| c.time_min = s.time_min,
    ),
    settable("tres_per_job", |d| gres(&d.spec.gres.total), |s, v| put(&mut s.gres.total, gres_of(v))),
    settable(
        "tres_per_node",
        |d| gres(d.spec.gres.per_node.iter().chain(&d.spec.gres.gpus_per_node)),
        |s, v| {
            s.gres.gpus_per_node = Vec::new();
            put(&mut s.gres.per_node, gres_of(v))
        },
    ),
    settable("tres_per_socket", |d| gres(&d.spec.gres.per_socket), |s, v| put(&mut s.gres.per_socket, gres_of(v))),
    settable(
        "tres_per_task",
        |d| {
            let cpus = d.spec.cpus_per_task.map(|cpus| format!("cpu={cpus}"));
            let gres = d.spec.gres.per_task.iter().map(|one| format!("gres/{one}"));
            Value::from(Some(cpus.into_iter().chain(gres).collect::<Vec<String>>().join(",")))
        },
        |s, v| {
            let read = |text: &str| spec_text::gres::tres_per_task(&text.replace("cpu=", "cpu:")).ok();
            let (gres, cpus) = v.read("what each task needs, like cpu=2,gres/gpu:1", read)?.unwrap_or_default();
            s.gres.per_task = gres;
            s.cpus_per_task = cpus.or(s.cpus_per_task);
            Ok(())
        },
    ),
    shown("user_id", |d| Value::from(d.uid)),
    shown("user_name", |d| Value::from(d.user.as_str())),
    full(
        "wait4switch",
        |d| d.spec.topology.switches_wait_secs.map_or(Value::from(NO_VAL), Value::from_u64),
        |s, v| {
            s.topology.switches_wait_secs = v.number()?.map(u64::from);
            Ok(())
        },
        |c, s| c.request.switches_wait_secs = s.topology.switches_wait_secs,
    ),
    full(
        "wckey",
        |d| text(d.spec.wckey.as_ref()),
        |s, v| put(&mut s.wckey, v.text()),
        |c, s| c.request.wckey = Some(s.wckey.clone().unwrap_or_default()),
    ),
    full(
        "work_dir",
        |d| Value::from(Some(d.spec.work_dir.clone())),
        |s, v| match v.text()?.filter(|folder| folder.starts_with('/')) {
            Some(folder) => {
                s.work_dir = folder;
                Ok(())
            }
            None => Err(bad("a folder's whole path", v)),
        },
        |c, s| c.request.work_dir = Some(s.work_dir.clone()),
    ),
];

/// What a change names, as a request whose other fields are not set.
pub fn of_change(change: &JobChange) -> JobSpec {
    let mut spec = change.patch(&JobSpec::default(), TimeLimit::Unlimited);
    if change.time_limit.is_none() && change.time_limit_delta_secs.is_none() {
        spec.time_limit = None;
    }
    spec.priority = change.priority.filter(|priority| *priority > 0);
    spec.hold = change.priority == Some(0);
    spec
}

/// A limit of nodes or the like: none is [`INFINITE`].
pub fn or_infinite(number: Option<u32>) -> Value {
    Value::or(number, INFINITE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desc(spec: JobSpec) -> Desc {
        Desc { spec, uid: 5, gid: 60, user: "games".to_owned(), offset: None, is_change: false }
    }

    fn get(desc: &Desc, name: &str) -> Value {
        (field(name).expect("it is a field").get)(desc)
    }

    /// What is set is read again, for values other than the defaults, and a change has it where changes have that field.
    #[test]
    fn what_is_set_is_read_again_and_in_changes_too() {
        let values: &[(&str, Value)] = &[
            ("account", "lab".into()),
            ("array_inx", "1-3%2".into()),
            ("begin_time", Value::from(1_900_000_000)),
            ("comment", "c".into()),
            ("contiguous", Value::from(1)),
            ("cores_per_socket", Value::from(2)),
            ("cpus_per_task", Value::from(3)),
            ("cpus_per_tres", "gres/gpu:2".into()),
            ("delay_boot", Value::from(60)),
            ("dependency", "singleton".into()),
            ("exc_nodes", "n[1-2]".into()),
            ("extra", "e".into()),
            ("features", "fast".into()),
            ("gres", "gres/gpu:1".into()),
            ("immediate", Value::from(1)),
            ("licenses", "foo:2".into()),
            ("mail_type", Value::from(5)),
            ("mail_user", "x@y".into()),
            ("max_nodes", Value::from(4)),
            ("mcs_label", "m".into()),
            ("mem_per_tres", "gres/gpu:100".into()),
            ("min_mem_per_cpu", Value::from(50)),
            ("min_mem_per_node", Value::from(500)),
            ("min_nodes", Value::from(2)),
            ("name", "n".into()),
            ("nice", Value::from_i64(NICE_OFFSET + 5)),
            ("ntasks_per_core", Value::from(1)),
            ("ntasks_per_gpu", Value::from(2)),
            ("ntasks_per_node", Value::from(3)),
            ("ntasks_per_socket", Value::from(4)),
            ("num_tasks", Value::from(9)),
            ("oversubscribe", Value::from(2)),
            ("partition", "a,b".into()),
            ("pn_min_cpus", Value::from(2)),
            ("pn_min_memory", Value::Number(MEM_PER_CPU + 2048.0)),
            ("pn_min_tmp_disk", Value::from(5)),
            ("prefer", "p".into()),
            ("priority", Value::from(0)),
            ("qos", "q".into()),
            ("req_nodes", "n3".into()),
            ("req_switch", Value::from(1)),
            ("requeue", Value::from(1)),
            ("reservation", "r".into()),
            ("script", "#!/bin/sh\n".into()),
            ("segment_size", Value::from(2)),
            ("shared", Value::from(0)),
            ("sockets_per_node", Value::from(2)),
            ("std_err", "/e".into()),
            ("std_in", "/i".into()),
            ("std_out", "/o".into()),
            ("threads_per_core", Value::from(1)),
            ("time_limit", Value::from(7)),
            ("time_min", Value::from(3)),
            ("tres_per_job", "gres/gpu:2".into()),
            ("tres_per_node", "gres/gpu:h100:1".into()),
            ("tres_per_socket", "gres/gpu:1".into()),
            ("tres_per_task", "cpu=2,gres/gpu:1".into()),
            ("wait4switch", Value::from(300)),
            ("wckey", "w".into()),
            ("work_dir", "/tmp".into()),
            ("environment", Value::Environment(vec![ByteBuf::from("A=b")])),
        ];
        for (name, value) in values {
            let field = field(name).unwrap_or_else(|| panic!("{name}"));
            let mut own = desc(JobSpec::default());
            assert_ne!(get(&own, name), *value, "{name}");
            (field.set.unwrap_or_else(|| panic!("{name} cannot be set")))(&mut own.spec, value)
                .unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(get(&own, name), *value, "{name}");
            if let Some(take) = field.change {
                let mut change = JobChange::default();
                take(&mut change, &own.spec);
                assert_eq!(get(&desc(of_change(&change)), name), *value, "a change's {name}");
            }
        }
        let settable = FIELDS.iter().filter(|field| field.set.is_some());
        let untried: Vec<&str> =
            settable.map(|field| field.name).filter(|name| !values.iter().any(|(tried, _)| tried == name)).collect();
        assert!(untried.is_empty(), "{untried:?}");
    }

    #[test]
    fn nothing_is_set_at_first() {
        let own = desc(JobSpec::default());
        for (name, value) in [
            ("time_limit", Value::from(NO_VAL)),
            ("min_nodes", Value::from(NO_VAL)),
            ("num_tasks", Value::from(NO_VAL)),
            ("cpus_per_task", Value::from(NO_VAL16)),
            ("pn_min_memory", Value::Number(NO_VAL64)),
            ("partition", Value::Nil),
            ("min_cpus", Value::from(1)),
        ] {
            assert_eq!(get(&own, name), value, "{name}");
        }
        assert!(FIELDS.iter().map(|field| field.name).is_sorted());
    }

    #[test]
    fn what_a_field_cannot_have_is_told() {
        let mut spec = JobSpec::default();
        for (name, value, said) in [
            ("time_limit", Value::from("soon"), "\"soon\" is not a whole number"),
            ("req_nodes", Value::from("n["), "\"n[\" is not a host list"),
            ("work_dir", Value::from("here"), "\"here\" is not a folder's whole path"),
            ("environment", Value::from("A=b"), "\"A=b\" is not a table of environment variables"),
        ] {
            let set = field(name).and_then(|field| field.set).expect("it can be set");
            assert_eq!(set(&mut spec, &value), Err(BadValue(said.to_owned())));
        }
        assert_eq!(spec, JobSpec::default());
    }
}
