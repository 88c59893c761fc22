//! Programs of different builds talk to each other while a site is upgraded: within one protocol version, what an older
//! one says is understood by a newer one, and what a newer one adds is ignored by an older one.
//!
//! `data/messages-1.json` is the form of every message when version 1 began. From it, messages are made as a program of
//! then would send them, each variant of each enum at least once, and decoded with the types of now: a field that was added
//! since and is not optional, a variant that went away or a type that changed fails here.

#![allow(clippy::unwrap_used)]

use garrick_model::{
    batch::{BatchMembers, FailBound, RetryOn, StepCgroup, StepDependencyKind},
    config::{MemoryPer, OverSubscribe, OverTime, SelectUnit},
    gres::GpuBind,
    ids::StepNum,
    messages::{
        command::{CommandReply, CommandRequest, JobAction, JobMilestone, NodeStateChange, RunStanding},
        launcher::{FdSource, FromLauncher, ToLauncher},
        node::{
            AgentReport, AgentToStepMgr, ControllerToNode, JobCredential, NodeToController, SignalScope, StepMgrToAgent,
        },
        shepherd::{LaunchRef, ShepherdToStepMgr, SignalReach, StepMgrToShepherd, Stream},
        step::{CommandToStepMgr, StepMgrToCommand},
        stepd::{NodeToStepd, StepdReport, StepdToNode},
    },
    refusal::Refusal,
    resources::MemoryRequest,
    spec::{CpuBind, DependencyKind, Distribution, JobKind, OpenMode, Sharing, StdinTo, StepSharing, StreamTarget},
    state::{JobState, NodeBase, PartitionState, Reason, StepState},
    step_selector::WhichSteps,
    time::TimeLimit,
};
use rmpv::Value;
use serde::{Deserialize, de::DeserializeOwned};
use serde_reflection::{
    ContainerFormat, Format, FormatHolder, Named, Registry, Samples, Tracer, TracerConfig, VariantFormat,
};
use std::{collections::BTreeMap, path::PathBuf};

/// Every enum that travels, as `$act!(Type)`.
macro_rules! for_every_message {
    ($act:ident) => {
        $act!(CommandRequest);
        $act!(CommandReply);
        $act!(CommandToStepMgr);
        $act!(StepMgrToCommand);
        $act!(ControllerToNode);
        $act!(NodeToController);
        $act!(NodeToStepd);
        $act!(StepdToNode);
        $act!(StepMgrToAgent);
        $act!(AgentToStepMgr);
        $act!(StepMgrToShepherd);
        $act!(ShepherdToStepMgr);
        $act!(ToLauncher);
        $act!(FromLauncher);
        $act!(JobCredential);
    };
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/messages-1.json")
}

/// The forms of the types in a message, by the message's name. Names of types are unique within a message.
type Forms = BTreeMap<String, Registry>;

/// The form of one message now. The enums inside are named: what a message holds shows only one variant of each.
fn traced<'de, T: Deserialize<'de>>(samples: &'de Samples) -> Registry {
    let mut tracer = Tracer::new(TracerConfig::default().is_human_readable(false));
    macro_rules! trace {
        ($($type:ty),* $(,)?) => {
            $(tracer.trace_type::<$type>(samples).unwrap_or_else(|e| panic!("{e}: {}", e.explanation()));)*
        };
    }
    trace!(T);
    trace!(
        AgentReport,
        BatchMembers,
        CpuBind,
        DependencyKind,
        Distribution,
        FailBound,
        FdSource,
        GpuBind,
        JobAction,
        JobKind,
        JobMilestone,
        JobState,
        LaunchRef,
        MemoryPer,
        MemoryRequest,
        NodeBase,
        NodeStateChange,
        OpenMode,
        OverSubscribe,
        OverTime,
        PartitionState,
        Reason,
        Refusal,
        RetryOn,
        RunStanding,
        SelectUnit,
        Sharing,
        SignalReach,
        SignalScope,
        StdinTo,
        StepCgroup,
        StepDependencyKind,
        StepNum,
        StepSharing,
        StepState,
        StepdReport,
        Stream,
        StreamTarget,
        TimeLimit,
        WhichSteps,
    );
    tracer.registry_unchecked()
}

/// Only what a message has in it.
fn reachable(all: &Registry, name: &str) -> Registry {
    let mut found = Registry::new();
    let mut open = vec![name.to_owned()];
    while let Some(name) = open.pop() {
        if found.contains_key(&name) {
            continue;
        }
        let form = all[&name].clone();
        let visited = form.visit(&mut |f| {
            if let Format::TypeName(name) = f {
                open.push(name.clone());
            }
            Ok(())
        });
        visited.unwrap();
        found.insert(name, form);
    }
    found
}

/// Makes messages of the forms in a registry.
struct Maker<'r> {
    forms: &'r Registry,
    /// Which variant is next, by enum: over several messages all have their turn.
    turns: BTreeMap<&'r str, usize>,
    /// Adds to every map what a later program might.
    with_more: bool,
}

impl<'r> Maker<'r> {
    /// `of`: the type that has them.
    fn fields(&mut self, of: &str, fields: &'r [Named<Format>], depth: usize) -> Value {
        let mut map: Vec<(Value, Value)> =
            fields.iter().map(|f| (Value::from(f.name.as_str()), self.value(&f.value, depth))).collect();
        // The standard library's own type is what it is.
        if self.with_more && of != "Duration" {
            map.push((Value::from("added_later"), Value::Map(vec![(Value::from("a"), Value::from(1))])));
        }
        Value::Map(map)
    }

    fn value(&mut self, form: &'r Format, depth: usize) -> Value {
        match form {
            Format::TypeName(name) => self.named(name, depth + 1),
            Format::Unit => Value::Nil,
            Format::Bool => Value::from(true),
            Format::I8 | Format::I16 | Format::I32 | Format::I64 => Value::from(1),
            Format::U8 | Format::U16 | Format::U32 | Format::U64 => Value::from(1),
            Format::F32 | Format::F64 => Value::F64(1.5),
            Format::Char => Value::from("x"),
            Format::Str => Value::from("1"),
            Format::Bytes => Value::Binary(vec![1, 2]),
            // What holds itself ends somewhere.
            Format::Option(_) | Format::Seq(_) | Format::Map { .. } if depth > 12 => match form {
                Format::Option(_) => Value::Nil,
                Format::Seq(_) => Value::Array(Vec::new()),
                _ => Value::Map(Vec::new()),
            },
            Format::Option(inner) => self.value(inner, depth),
            Format::Seq(inner) => Value::Array(vec![self.value(inner, depth)]),
            Format::Map { key, value } => Value::Map(vec![(self.value(key, depth), self.value(value, depth))]),
            Format::Tuple(forms) => Value::Array(forms.iter().map(|f| self.value(f, depth)).collect()),
            Format::TupleArray { content, size } => {
                Value::Array((0..*size).map(|_| self.value(content, depth)).collect())
            }
            other => panic!("no message has {other:?}"),
        }
    }

    fn named(&mut self, name: &'r str, depth: usize) -> Value {
        match &self.forms[name] {
            ContainerFormat::UnitStruct => Value::Nil,
            ContainerFormat::NewTypeStruct(inner) => self.value(inner, depth),
            ContainerFormat::TupleStruct(forms) => Value::Array(forms.iter().map(|f| self.value(f, depth)).collect()),
            ContainerFormat::Struct(fields) => self.fields(name, fields, depth),
            ContainerFormat::Enum(variants) => {
                let turn = self.turns.entry(name).or_default();
                let variant = variants.values().nth(*turn % variants.len()).unwrap();
                *turn += 1;
                let tag = Value::from(variant.name.as_str());
                let content = match &variant.value {
                    VariantFormat::Unit => return tag,
                    VariantFormat::NewType(inner) => self.value(inner, depth),
                    VariantFormat::Tuple(forms) => Value::Array(forms.iter().map(|f| self.value(f, depth)).collect()),
                    VariantFormat::Struct(fields) => self.fields(name, fields, depth),
                    other @ VariantFormat::Variable(_) => panic!("no message has {other:?}"),
                };
                Value::Map(vec![(tag, content)])
            }
        }
    }
}

/// Decodes messages of that name, each variant of each enum in it at least once. Returns their number.
fn understood<T: DeserializeOwned>(forms: &Registry, name: &str, with_more: bool) -> usize {
    let (name, form) = forms.get_key_value(name).unwrap();
    let variants = |form: &ContainerFormat| if let ContainerFormat::Enum(v) = form { v.len() } else { 1 };
    // Enums inside have their turns too: as often as the largest of them has variants.
    let most = forms.values().map(variants).max().unwrap();
    let count = variants(form) * most;
    let mut maker = Maker { forms, turns: BTreeMap::new(), with_more };
    for _ in 0..count {
        let message = maker.named(name, 0);
        if let Err(e) = rmp_serde::from_slice::<T>(&encoded(&message)) {
            panic!("{name}: {e}\n{message}");
        }
    }
    count
}

fn encoded(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).unwrap();
    bytes
}

fn saved() -> Forms {
    serde_json::from_slice(&std::fs::read(file()).unwrap()).unwrap()
}

fn all_understood(with_more: bool) {
    let saved = saved();
    let mut all = 0;
    macro_rules! decode {
        ($type:ident) => {
            let name = stringify!($type);
            all += understood::<$type>(&saved[name], name, with_more);
        };
    }
    for_every_message!(decode);
    assert!(all > 1000, "{all}");
}

#[test]
fn what_a_program_of_the_beginning_says_is_understood() {
    all_understood(false);
}

#[test]
fn what_a_later_program_adds_is_ignored() {
    all_understood(true);
}

/// A message that this program does not know is refused as such, and not taken for another.
#[test]
fn an_unknown_message_is_an_error() {
    let unknown = encoded(&Value::Map(vec![(Value::from("InventedLater"), Value::Nil)]));
    assert!(rmp_serde::from_slice::<ControllerToNode>(&unknown).is_err());
    assert!(rmp_serde::from_slice::<NodeToController>(&unknown).is_err());
}

/// Makes the file of the version that is spoken now. That of a version which has been in use is not made again.
#[test]
#[ignore = "makes tests/data/messages-1.json, by hand when the version changes"]
fn make_file() {
    let samples = Samples::new();
    let mut forms = Forms::new();
    macro_rules! add {
        ($type:ident) => {
            let name = stringify!($type);
            forms.insert(name.to_owned(), reachable(&traced::<$type>(&samples), name));
        };
    }
    for_every_message!(add);
    std::fs::write(file(), serde_json::to_string_pretty(&forms).unwrap() + "\n").unwrap();
}
