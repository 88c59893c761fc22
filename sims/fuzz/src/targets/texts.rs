//! The grammars of requests. If a value can be parsed and written, parsing the result must give the same value.

use super::{choice, chosen, plain, text};
use crate::target::Target;
use garrick_model::{
    batch::{RetryOn, StepCgroup, StepDependencies},
    date,
    hostlist::{HostList, HostSet},
    ids::{ArrayTask, JobId, Sluid, StepId, StepKey, StepNum, StepSelector},
    messages::command::JobSelector,
    node_sizes::NodeSizes,
    patterns,
    reservation::{AccessList, ReservationFlag},
    resources::{CpuSet, MemoryMib},
    signal,
    spec::{ArraySpec, Dependencies, NodeCount, SignalWarning},
    spec_text::{self, gres, licenses},
    step_selector::{StepsSelector, WhichSteps},
    time::{self, TimeLimit, Timestamp},
};
use garrick_plan::snapshot::{constraint::Wish, extra::Extra};
use garrick_runtime::ActorPath;
use jiff::tz::TimeZone;
use std::{fmt, str::FromStr};

/// When dates without a year are read.
const NOW: Timestamp = Timestamp(1_800_000_000_000);

/// Reads a text. One that can be read can be written, and then reads as the same.
fn round<T: FromStr + fmt::Display + PartialEq + fmt::Debug>(text: &str) {
    if let Ok(read) = text.parse::<T>() {
        let written = read.to_string();
        match written.parse::<T>() {
            Ok(again) => assert_eq!(read, again, "{text:?} is written as {written:?}"),
            Err(_) => panic!("{text:?} is written as {written:?}, which does not read"),
        }
    }
}

/// Reads a text that is not written again.
fn only<T: FromStr>(text: &str) {
    let _ = text.parse::<T>();
}

fn run(readers: &[fn(&str)], input: &[u8]) {
    let (which, rest) = choice(input);
    if let Some(text) = text(rest) {
        readers[which % readers.len()](text);
    }
}

/// Ids of jobs, steps, runs and actors, and selections of them.
pub(super) const IDS: Target = Target {
    name: "ids",
    read: |input| {
        run(
            &[
                round::<JobId>,
                round::<StepKey>,
                round::<StepNum>,
                round::<StepId>,
                round::<StepSelector>,
                round::<ArrayTask>,
                round::<Sluid>,
                round::<JobSelector>,
                round::<StepsSelector>,
                round::<WhichSteps>,
                round::<ActorPath>,
            ],
            input,
        );
    },
    // Ranges of four million are written out to be sorted.
    bytes_per_byte: 200,
    base_bytes: 64 << 20,
    seeds: || {
        chosen(&[
            (0, "5609"),
            (1, "7_3"),
            (2, "batch"),
            (3, "5609+1.7_123"),
            (4, "5609.7"),
            (5, "12_4"),
            (6, "s000000000000"),
            (7, "12_[1-4,7]"),
            (7, "12+1"),
            (8, "5609.7_[1-4:2]"),
            (8, "5609_3.batch"),
            (9, "3-9"),
            (9, "7_*"),
            (10, "/job/1"),
        ])
    },
};

/// Host lists.
pub(super) const HOSTLISTS: Target = Target {
    name: "hostlists",
    read: |input| {
        run(
            &[
                |text| {
                    round::<HostList>(text);
                    if let Ok(list) = HostList::parse_limited(text, 4096) {
                        let names: Vec<String> = list.iter().collect();
                        let folded = garrick_model::hostlist::fold(&names);
                        let again =
                            garrick_model::hostlist::expand(&folded).unwrap_or_else(|e| panic!("{folded:?}: {e}"));
                        assert_eq!(names, again, "{text:?} is folded to {folded:?}");
                        let _ = (list.sorted(), list.sorted_unique());
                    }
                },
                |text| {
                    if HostList::parse_limited(text, 4096).is_ok() {
                        round::<HostSet>(text);
                    }
                },
            ],
            input,
        );
    },
    // Names are made of ranges: up to the limit of names in one list, some hundred bytes each in a few lists at a time.
    bytes_per_byte: 1000,
    base_bytes: 32 << 20,
    seeds: || {
        chosen(&[
            (0, "lx[0003-8000]"),
            (0, "a[1-3]b[2-4],c"),
            (1, "n[1-3],n5,n[09-11]"),
            (0, "n[1-99999999999]"),
            (1, "rack[0-1]-n[0-3]"),
        ])
    },
};

/// Points in time, durations and limits.
pub(super) const TIMES: Target = Target {
    name: "times",
    read: |input| {
        run(
            &[
                |text| {
                    for now in [NOW, Timestamp(0), Timestamp(i64::MAX), Timestamp(i64::MIN)] {
                        if let Ok(at) = date::parse_date(text, now, &TimeZone::UTC) {
                            let _ = at.text(&TimeZone::UTC);
                        }
                    }
                },
                |text| {
                    if let Ok(limit) = text.parse::<TimeLimit>() {
                        let _ = (limit.squeue_text(), limit.sinfo_text(), limit.scontrol_text(), limit.duration());
                    }
                },
                |text| {
                    if let Ok(Some(secs)) = time::parse_duration_secs(text) {
                        let _ = (time::short_duration(secs), time::long_duration(secs));
                    }
                },
                |text| {
                    for at in [NOW, Timestamp(i64::MAX), Timestamp(i64::MIN), Timestamp(-1)] {
                        let _ = at.strftime(text, &TimeZone::UTC);
                    }
                },
            ],
            input,
        );
    },
    // A format may ask for wide fields.
    bytes_per_byte: 1000,
    base_bytes: 64 << 10,
    seeds: || {
        chosen(&[
            (0, "2026-11-24T10:00:00"),
            (0, "now+3days"),
            (0, "uts1800000000"),
            (0, "uts18188000000000000"),
            (0, "teatime tomorrow"),
            (0, "02/29/28-10:00am"),
            (1, "1-00:00:00"),
            (1, "UNLIMITED"),
            (1, "90"),
            (2, "3-12"),
            (2, "10:30"),
            (3, "%Y-%m-%dT%H:%M:%S%.3f"),
        ])
    },
};

/// Numbers of things: memory, CPUs, nodes, generic resources, licenses.
pub(super) const AMOUNTS: Target = Target {
    name: "amounts",
    read: |input| {
        run(
            &[
                |text| {
                    // It is written for people, rounded.
                    let _ = text.parse::<MemoryMib>().map(|memory| memory.to_string());
                },
                round::<CpuSet>,
                |text| {
                    if let Ok(sizes) = text.parse::<NodeSizes>() {
                        assert!(sizes.ascending(1, 4096).count() <= 4096 && sizes.descending(1, 4096).count() <= 4096);
                        let written = sizes.to_string();
                        let again: NodeSizes = written.parse().unwrap_or_else(|e| panic!("{text:?}: {e}"));
                        // What comes to a plain range is written, and read, as one.
                        let same = again.is_empty() || again.ascending(1, 4096).eq(sizes.ascending(1, 4096));
                        assert!(same, "{text:?} is written as {written:?}");
                    }
                },
                round::<NodeCount>,
                |text| {
                    let _ = gres::count(text);
                    if let Ok(Some(counts)) = gres::request(text) {
                        let written = garrick_model::gres::list(&counts);
                        assert_eq!(gres::request(&written).ok().flatten(), Some(counts), "{text:?}: {written:?}");
                    }
                },
                |text| {
                    let _ = (gres::gpus(text), gres::tres_per_task(text), gres::gpu_bind(text));
                },
                |text| {
                    let _ = gres::entries(text);
                },
                only::<licenses::Licenses>,
                |text| {
                    let _ = licenses::with_numbers(text, &|_, _| Some(7));
                    if let Ok(request) = text.parse::<licenses::LicenseRequest>() {
                        let _ = format!("{request:?}");
                    }
                },
                |text| {
                    let _ = garrick_model::config::BillingWeights::parse(text);
                },
            ],
            input,
        );
    },
    bytes_per_byte: 1000,
    base_bytes: 256 << 10,
    seeds: || {
        chosen(&[
            (0, "16G"),
            (0, "8704"),
            (1, "0-3,7"),
            (1, "0-65535"),
            (2, "1-15:4"),
            (2, "1,5,9"),
            (3, "2-4"),
            (4, "gpu:a100:2,shard:3"),
            (4, "none"),
            (5, "2"),
            (5, "a100:2"),
            (5, "cpu=2,gres/gpu:1"),
            (6, "gpu:4(S:0-1)"),
            (7, "matlab:3,ansys"),
            (8, "matlab:3|ansys"),
            (9, "CPU=1.0,Mem=0.25G"),
        ])
    },
};

/// Everything else that a request says: arrays, dependencies, signals, retries, reservations' words.
pub(super) const REQUESTS: Target = Target {
    name: "requests",
    read: |input| {
        run(
            &[
                |text| {
                    round::<ArraySpec>(text);
                    if let Ok(array) = text.parse::<ArraySpec>() {
                        let _ = (array.count(), array.indices_text(), array.min(), array.max());
                        assert!(array.indices().take(100).all(|index| array.contains(index)));
                    }
                },
                round::<Dependencies>,
                |text| {
                    for job in [None, Some(JobId(12))] {
                        if let Ok(read) = StepDependencies::parse(text, job) {
                            let written = read.to_string();
                            assert_eq!(StepDependencies::parse(&written, job), Ok(read), "{text:?}: {written:?}");
                        }
                    }
                },
                only::<SignalWarning>,
                |text| {
                    if let Some(number) = signal::signal_number(text) {
                        let _ = (signal::signal_text(number), signal::signal_description(number));
                    }
                },
                |text| {
                    let _ = spec_text::retry::retry_list(text);
                    round::<RetryOn>(text);
                },
                only::<StepCgroup>,
                only::<ReservationFlag>,
                |text| {
                    if let Some(list) = AccessList::parse(text) {
                        let written = list.to_string();
                        assert_eq!(AccessList::parse(&written).as_ref(), Some(&list), "{text:?}: {written:?}");
                        let _ = (list.with(&list), list.without(&list));
                    }
                },
            ],
            input,
        );
    },
    // Four million indices are a bit each, and then a number each.
    bytes_per_byte: 1000,
    base_bytes: 64 << 20,
    seeds: || {
        chosen(&[
            (0, "0-15:4%2"),
            (0, "1,3,5-7"),
            (0, "0-4294967295"),
            (1, "afterok:12:13+5,after:4"),
            (1, "singleton?afterany:3_4"),
            (2, "afterok:0,afterany:7_3"),
            (2, "afterok:12.0"),
            (3, "B:USR1@60"),
            (4, "SIGRTMIN+3"),
            (5, "1-3,SIGKILL,node"),
            (5, "failure"),
            (6, "yes"),
            (7, "MAINT"),
            (7, "PURGE_COMP=00:05:00"),
            (8, "alice,-bob"),
        ])
    },
};

/// `--constraint` and `--extra`.
pub(super) const CONSTRAINTS: Target = Target {
    name: "constraints",
    read: |input| {
        run(
            &[
                |text| {
                    if let Ok(constraint) = Wish::parse(text) {
                        let _ = (constraint.least_nodes(), Wish::is_together(text));
                        constraint.each_feature(&mut |_| {});
                    }
                },
                |text| {
                    if let Ok(extra) = Extra::parse(text) {
                        let _ = extra.fits(&serde_json::json!({ "a": 1, "b": "x", "c": true }));
                    }
                },
            ],
            input,
        );
    },
    bytes_per_byte: 1000,
    base_bytes: 64 << 10,
    seeds: || {
        chosen(&[
            (0, "intel&gpu"),
            (0, "[rack1*2&rack2*4]"),
            (0, "(a|b)&!c"),
            (0, "[a|b|c]"),
            (1, "(a=1&b!=x)|c<3"),
            (1, "c>=true"),
        ])
    },
};

/// File name patterns.
pub(super) const PATTERNS: Target = Target {
    name: "patterns",
    read: |input| {
        if let Some(text) = text(input) {
            let facts = patterns::PatternFacts {
                job: JobId(5609),
                array_task: None,
                step: Some(StepKey::task(7, 3)),
                node: Some("n1"),
                node_id: Some(0),
                task: None,
                user: "alice",
                job_name: "%j",
            };
            let filled = patterns::fill(text, &facts);
            assert!(filled.len() <= 16 + 32 * text.len(), "{} bytes of {}", filled.len(), text.len());
            let _ = patterns::files_per(text);
        }
    },
    bytes_per_byte: 200,
    base_bytes: 64 << 10,
    seeds: || plain(&["slurm-%j.out", "%A_%a", "out.%5t.%N", "%%j\\%j", "%99999999999j", "%"]),
};
