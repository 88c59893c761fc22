//! Messages generated from the structure of their types: valid in structure, with values chosen by input bytes. The structure
//! comes from the types themselves, so that a new field is tested at once.

use garrick_accounts::{
    change::{Action, Affected, ChangeRefusal, edit::TresEdit},
    messages::{AccountsRefusal, AccountsReply, AccountsRequest, ServiceOrder},
    records,
};
use garrick_model::{
    batch::{BatchMembers, FailBound, RetryOn, StepCgroup, StepDependencyKind},
    config::{DebugFlag, LogChange, LogLevel, MemoryPer, OverSubscribe, OverTime, SelectUnit, Span},
    cpu_freq::{CpuFreq, Frequency, Governor},
    cron::Schedule,
    entities::{
        association::Shares,
        limits::{Count, TresLimit},
        names::{AdminLevel, FedState},
        qos::{QosFlag, QosPreemptMode},
    },
    gpu_freq::GpuClock,
    gres::{GpuBind, GresBinding},
    ids::StepNum,
    job_query::JobStates,
    messages::{
        command::{CommandReply, CommandRequest, JobAction, JobMilestone, NodeStateChange, ResumeAfter, RunStanding},
        files::FilePart,
        launcher::{FdSource, FileMode, FromLauncher, ToLauncher},
        node::{
            AgentReport, AgentToStepMgr, ControllerToNode, JobCredential, NodeToController, SignalScope, StepMgrToAgent,
        },
        records::{RecordsReply, RecordsRequest},
        shepherd::{LaunchRef, ShepherdToStepMgr, SignalReach, StepMgrToShepherd, Stream},
        step::{CommandToStepMgr, LightReply, StepMgrToCommand},
        stepd::{NodeToStepd, StepdReport, StepdToNode, StepsOrder},
    },
    node_shape::SpecCores,
    outlook::Blocker,
    profile::Series,
    refusal::Refusal,
    reservation::{CoresWanted, NodesWanted, ReservationFlag},
    resources::MemoryRequest,
    spec::{
        CpuBind, CpuOrder, DependencyKind, Distribution, JobKind, Mpi, OpenMode, Sharing, StdinTo, StepSharing,
        StreamTarget, TaskOverWith,
    },
    state::{JobState, NodeBase, NodePower, PartitionState, PowerRequest, Reason, StepState},
    step_selector::WhichSteps,
    time::TimeLimit,
    topology::Layout,
    trigger::{TriggerAbout, TriggerEvent},
    view::{Accrual, AfterReboot},
};
use garrick_transport::{
    Role,
    join::exchange::{JoinReply, JoinRequest, JoinWay},
};
use rmpv::Value;
use serde::Deserialize;
use serde_reflection::{ContainerFormat, Format, Registry, Samples, Tracer, TracerConfig, VariantFormat};
use std::{collections::BTreeMap, rc::Rc, sync::LazyLock};

/// Most values in a message, so that making one takes no longer than reading it.
const MOST_VALUES: usize = 100_000;
/// Long texts count as several.
const BYTES_OF_A_VALUE: usize = 100;
/// Choices from here on are hostile values.
pub const HOSTILE: u8 = 192;

/// The forms of one message's types.
#[derive(Debug)]
pub struct Forms {
    name: &'static str,
    registry: Registry,
    /// Enums of which not every variant is known; none, or a type is missing in the list below.
    pub incomplete: Option<String>,
}

fn traced_all() -> BTreeMap<&'static str, Rc<Forms>> {
    let mut samples = Samples::new();
    drop(new_tracer(&mut samples));
    let mut all = BTreeMap::new();
    macro_rules! add {
        ($($type:ident),* $(,)?) => {
            $(all.insert(stringify!($type), Rc::new(traced::<$type>(stringify!($type), &samples)));)*
        };
    }
    for_every_message!(add);
    add!(JobCredential);
    all
}

thread_local! {
    static ALL: BTreeMap<&'static str, Rc<Forms>> = traced_all();
}

/// The forms of the message type of that name.
pub fn of(name: &str) -> Option<Rc<Forms>> {
    ALL.with(|all| all.get(name).cloned())
}

/// All of them.
pub fn all() -> Vec<Rc<Forms>> {
    ALL.with(|all| all.values().cloned().collect())
}

fn traced<'de, T: Deserialize<'de>>(name: &'static str, samples: &'de Samples) -> Forms {
    let incomplete =
        tracer::<T>(name, samples).registry().err().map(|error| format!("{error}: {}", error.explanation()));
    Forms { name, registry: tracer::<T>(name, samples).registry_unchecked(), incomplete }
}

/// Knows the types of which not any value will do, by a sample.
fn new_tracer(samples: &mut Samples) -> Tracer {
    let mut tracer = Tracer::new(TracerConfig::default().is_human_readable(false));
    let daily: Schedule = "0 0 * * *".parse().unwrap_or_else(|e| panic!("{e}"));
    tracer.trace_value(samples, &daily).unwrap_or_else(|e| panic!("{e}"));
    tracer.trace_value(samples, &Span::Secs(60)).unwrap_or_else(|e| panic!("{e}"));
    tracer
}

/// Knows the forms of a message's types. Enums inside are named: what a message holds shows only one variant of each.
fn tracer<'de, T: Deserialize<'de>>(name: &str, samples: &'de Samples) -> Tracer {
    let mut tracer = new_tracer(&mut Samples::new());
    macro_rules! trace {
        ($($type:ty),* $(,)?) => {
            $(tracer.trace_type::<$type>(samples).unwrap_or_else(|e| panic!("{e}: {}", e.explanation()));)*
        };
    }
    trace!(T);
    trace!(
        Shares,
        Count,
        TresLimit,
        AdminLevel,
        FedState,
        QosFlag,
        QosPreemptMode,
        AccountsRefusal,
        ServiceOrder,
        records::RecordsRequest,
        records::RecordsReply,
        Action,
        AdminLevel,
        Affected,
        AgentReport,
        BatchMembers,
        Blocker,
        ChangeRefusal,
        CoresWanted,
        Count,
        CpuBind,
        CpuFreq,
        CpuOrder,
        DependencyKind,
        Distribution,
        FailBound,
        FdSource,
        FileMode,
        Frequency,
        Governor,
        GpuBind,
        GpuClock,
        GresBinding,
        JobAction,
        JobKind,
        JobMilestone,
        JobState,
        JobStates,
        JoinWay,
        LaunchRef,
        Layout,
        DebugFlag,
        LogChange,
        LightReply,
        LogLevel,
        MemoryPer,
        MemoryRequest,
        NodeBase,
        NodeStateChange,
        NodesWanted,
        OpenMode,
        OverSubscribe,
        OverTime,
        PartitionState,
        QosFlag,
        QosPreemptMode,
        Reason,
        Refusal,
        ResumeAfter,
        TaskOverWith,
        ReservationFlag,
        RetryOn,
        Mpi,
        FilePart,
        Role,
        RunStanding,
        SelectUnit,
        Series,
        Shares,
        Sharing,
        SignalReach,
        SignalScope,
        SpecCores,
        Accrual,
        AfterReboot,
        NodePower,
        PowerRequest,
        TriggerAbout,
        TriggerEvent,
        StdinTo,
        StepCgroup,
        StepDependencyKind,
        StepNum,
        StepSharing,
        StepState,
        StepdReport,
        StepsOrder,
        Stream,
        StreamTarget,
        TimeLimit,
        TresEdit,
        TresLimit,
        WhichSteps,
    );
    if name == "NodeToController" {
        trace!(CommandRequest);
    }
    // One name for several types: each message has one of them.
    match name {
        "CommandReply" | "ControllerToNode" => {
            trace!(CommandReply);
            trace!(Result<(), Refusal>);
        }
        "StepMgrToCommand" => {
            trace!(Result<u32, Refusal>);
        }
        _ => {}
    }
    tracer
}

impl Forms {
    /// The type's name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// How many variants it has.
    pub fn variants(&self) -> usize {
        match &self.registry[self.name] {
            ContainerFormat::Enum(variants) => variants.len(),
            _ => 1,
        }
    }

    /// Makes a message. Each choice takes a byte, the variant first; without more bytes, the plainest value is taken.
    pub fn make(&self, choices: &[u8]) -> Value {
        let mut maker = Maker { registry: &self.registry, choices, values: 0 };
        maker.named(self.name, "", 0)
    }
}

struct Maker<'a> {
    registry: &'a Registry,
    choices: &'a [u8],
    values: usize,
}

impl<'a> Maker<'a> {
    fn choose(&mut self) -> u8 {
        match self.choices.split_first() {
            Some((first, rest)) => {
                self.choices = rest;
                *first
            }
            None => 0,
        }
    }

    fn named(&mut self, name: &'a str, field: &str, depth: usize) -> Value {
        let registry = self.registry;
        match &registry[name] {
            ContainerFormat::UnitStruct => Value::Nil,
            ContainerFormat::NewTypeStruct(inner) => self.value(inner, field, depth),
            ContainerFormat::TupleStruct(forms) => {
                Value::Array(forms.iter().map(|form| self.value(form, field, depth)).collect())
            }
            ContainerFormat::Struct(fields) => self.fields(fields, depth),
            ContainerFormat::Enum(variants) => {
                let turn = usize::from(self.choose()) % variants.len().max(1);
                let Some(variant) = variants.values().nth(turn) else { return Value::Nil };
                let tag = Value::from(variant.name.as_str());
                let content = match &variant.value {
                    VariantFormat::Unit | VariantFormat::Variable(_) => return tag,
                    VariantFormat::NewType(inner) => self.value(inner, field, depth),
                    VariantFormat::Tuple(forms) => {
                        Value::Array(forms.iter().map(|form| self.value(form, field, depth)).collect())
                    }
                    VariantFormat::Struct(fields) => self.fields(fields, depth),
                };
                Value::Map(vec![(tag, content)])
            }
        }
    }

    fn fields(&mut self, fields: &'a [serde_reflection::Named<Format>], depth: usize) -> Value {
        let made =
            fields.iter().map(|field| (Value::from(field.name.as_str()), self.value(&field.value, &field.name, depth)));
        Value::Map(made.collect())
    }

    fn value(&mut self, form: &'a Format, field: &str, depth: usize) -> Value {
        self.values += 1;
        let choice = match form {
            Format::TypeName(name) => return self.named(name, field, depth + 1),
            Format::Tuple(forms) => {
                return Value::Array(forms.iter().map(|form| self.value(form, field, depth)).collect());
            }
            Format::TupleArray { content, size } => {
                return Value::Array((0..*size).map(|_| self.value(content, field, depth)).collect());
            }
            Format::Unit | Format::Variable(_) => return Value::Nil,
            // What holds itself ends somewhere.
            Format::Option(_) | Format::Seq(_) | Format::Map { .. } if depth > 12 => 0,
            _ => self.choose(),
        };
        let hostile = choice.checked_sub(HOSTILE).map(usize::from);
        match form {
            Format::Bool => Value::from(choice % 2 == 1),
            Format::I8 => Value::from(integer(hostile, i8::MIN.into(), i8::MAX.into(), choice)),
            Format::I16 => Value::from(integer(hostile, i16::MIN.into(), i16::MAX.into(), choice)),
            Format::I32 => Value::from(integer(hostile, i32::MIN.into(), i32::MAX.into(), choice)),
            Format::I64 => Value::from(integer(hostile, i64::MIN, i64::MAX, choice)),
            Format::U8 => Value::from(integer(hostile, 0, u8::MAX.into(), choice)),
            Format::U16 => Value::from(integer(hostile, 0, u16::MAX.into(), choice)),
            Format::U32 => Value::from(integer(hostile, 0, u32::MAX.into(), choice)),
            Format::U64 => match hostile {
                Some(which) if which % 8 == 0 => Value::from(u64::MAX),
                Some(which) if which % 8 == 1 => Value::from(u64::MAX - 1),
                // No node has a disk for jobs: what asks for one is refused before anything else is looked at.
                None if field == "tmp_disk_mib" => Value::from(0),
                _ => Value::from(integer(hostile, 0, i64::MAX, choice)),
            },
            Format::F32 | Format::F64 => {
                const FLOATS: [f64; 8] =
                    [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e308, -0.0, f64::MIN_POSITIVE, 1e-300];
                Value::F64(hostile.map_or(1.5, |which| FLOATS[which % FLOATS.len()]))
            }
            Format::Char => Value::from(if hostile.is_some() { "\0" } else { "x" }),
            Format::Str => {
                let text = hostile.map_or(plain_text(field, choice), |which| &TEXTS[which % TEXTS.len()]);
                self.values += text.len() / BYTES_OF_A_VALUE;
                Value::from(text)
            }
            Format::Bytes => {
                let bytes = match hostile {
                    Some(which) => TEXTS[which % TEXTS.len()].as_bytes(),
                    None if field == "script" => b"#!/bin/sh\ntrue\n",
                    None if field == "environment" => b"HOME=/tmp",
                    None => b"true",
                };
                self.values += bytes.len() / BYTES_OF_A_VALUE;
                Value::from(bytes)
            }
            // A job without a script is refused before anything else is looked at.
            Format::Option(inner) if choice % 4 != 0 || field == "script" => self.value(inner, field, depth),
            Format::Seq(inner) => self.list(choice, |maker| maker.value(inner, field, depth)).into(),
            Format::Map { key, value } => {
                let pair = |maker: &mut Self| (maker.value(key, field, depth), maker.value(value, field, depth));
                let mut pairs = self.list(choice, pair);
                pairs.dedup_by(|a, b| a.0 == b.0);
                Value::Map(pairs)
            }
            _ => Value::Nil,
        }
    }

    /// So many as the choice says. Thousands are one that is made once and repeated.
    fn list<T: Clone>(&mut self, choice: u8, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        match choice {
            0..64 => Vec::new(),
            64..HOSTILE => (0..usize::from(choice) % 3 + 1).map(|_| one(self)).collect(),
            HOSTILE.. => {
                let before = self.values;
                let item = one(self);
                let each = (self.values - before).max(1);
                let most = MOST_VALUES.saturating_sub(self.values) / each;
                let count = [100, 1000, 10_000, 50_000][usize::from(choice) % 4].min(most);
                self.values += count * each;
                vec![item; count]
            }
        }
    }
}

fn integer(hostile: Option<usize>, least: i64, most: i64, choice: u8) -> i64 {
    let wanted = match hostile.map(|which| which % 16) {
        None => [1, 0, 2, 3, 10][usize::from(choice) % 5],
        Some(0) => most,
        Some(1) => most - 1,
        Some(2) => least,
        Some(3) => 0,
        Some(4) => -1,
        Some(5) => i64::from(i32::MAX),
        Some(6) => i64::from(u32::MAX),
        Some(7) => i64::from(u32::MAX) - 1,
        Some(8) => 65_535,
        Some(9) => 65_536,
        Some(10) => 1_000_000,
        Some(11) => most / 1000,
        Some(12) => most / 2 + 1,
        Some(13) => 255,
        Some(14) => 4_294_967_290,
        Some(_) => 253_402_300_800_000,
    };
    wanted.clamp(least, most)
}

/// A text that is likely to be taken in that field.
fn plain_text(field: &str, choice: u8) -> &'static str {
    let of_field = match field {
        "partition" | "partitions" => "main",
        "node" | "nodes" | "names" | "nodelist" | "host" | "exclude" => "n1",
        "work_dir" | "stdout" | "stderr" => "/tmp",
        "features" | "constraint" => "a",
        _ => "1",
    };
    [of_field, of_field, of_field, "1", "a", "n1", "main", "/tmp/x"][usize::from(choice) % 8]
}

static TEXTS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let short = [
        "",
        "\0",
        "a\0b",
        "\n",
        "\x1b[31m\r\n\t\x07",
        "\u{202e}\u{feff}\u{10ffff}",
        "%s%n%j%99999999999N",
        "../../../etc/shadow",
        "ALL",
        "*",
        "-1",
        "9999999999999999999999",
        "NaN",
        "-inf",
        "1e999",
        "n[0-4294967295]",
        "n[1-65536]",
        "a[0-99][0-99][0-9]",
        "0-4294967295",
        "0-65535",
        "[a*4294967295&b]",
        "a&b|c&!d",
        "afterok:1",
        "gpu:18446744073709551615",
        "gpu:-1",
        "matlab:4294967295",
        "n[1-2",
        "now+99999999999999weeks",
        "uts99999999999999999",
        "(a=1",
        "CPU=1e308,Mem=-1",
        "root",
    ];
    let long = [
        "a".repeat(100_000),
        "[".repeat(5000),
        "(".repeat(5000),
        "!".repeat(5000),
        "a&".repeat(5000),
        "n1,".repeat(20_000),
        "a[1-9]".repeat(2000),
        "\u{e9}".repeat(20_000),
        "a:1,".repeat(10_000),
        "%j".repeat(20_000),
        "a=1&".repeat(5000),
        "\n".repeat(20_000),
    ];
    short.into_iter().map(ToOwned::to_owned).chain(long).collect()
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_of_every_enum_is_known() {
        let incomplete: Vec<_> = all().iter().filter_map(|f| Some((f.name(), f.incomplete.clone()?))).collect();
        assert!(incomplete.is_empty(), "add to the list of `traced`: {incomplete:?}");
    }
}
