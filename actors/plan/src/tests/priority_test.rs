//! Priorities: numbers that Slurm's `sprio` gave for the same jobs and settings, and rules that hold for all.
#![allow(clippy::unwrap_used)]

use crate::{
    rules::priority::{Factors, Rules, Standing, news},
    snapshot::qos::{Qos, QosTable},
};
use garrick_model::{
    config::{Config, PartitionConfig, PriorityFlags, PrioritySettings, WeighedTres},
    gres::{GresCount, GresEntry, GresRequest},
    ids::NodeIndex,
    node_shape::NodeShape,
    resources::{MemoryMib, MemoryRequest},
    spec::{JobSpec, NodeCount},
    state::{JobState, PartitionState},
    testing::{job, node, spec},
    time::{TimeLimit, Timestamp},
    view::{JobView, NodeView, PartitionView, PriorityTerms},
};
use proptest::prelude::*;
use std::sync::Arc;

const NOW: i64 = 100_000;

fn partition(name: &str, job_factor: u16, members: std::ops::Range<u32>) -> Arc<PartitionView> {
    let config = PartitionConfig { name: name.to_owned(), priority_job_factor: job_factor, ..Default::default() };
    Arc::new(PartitionView {
        generation: 1,
        config: Arc::new(config),
        state: PartitionState::Up,
        nodes: members.map(NodeIndex).collect(),
    })
}

/// Ten nodes of four CPUs and 1000 MiB; `p` over all with factor 10, `q` over half of them with factor 40.
fn rules(settings: PrioritySettings) -> Rules {
    let nodes: Vec<Arc<NodeView>> = (0..10).map(|i| Arc::new(node(i, 2))).collect();
    let partitions = [partition("p", 10, 0..10), partition("q", 40, 0..5)];
    Rules::new(&settings, &partitions, &nodes, Timestamp::from_secs(NOW))
}

fn asked() -> PrioritySettings {
    PrioritySettings {
        age: 1000,
        job_size: 100_000,
        partition: 1000,
        tres: vec![(WeighedTres::Cpu, 1000.0), (WeighedTres::Mem, 2000.0)],
        max_age_secs: 3600,
        ..Config::default().priority
    }
}

fn asks(nodes: u32, tasks: u32, partitions: &[&str]) -> JobView {
    let spec = JobSpec {
        nodes: Some(NodeCount { min: nodes, max: Some(nodes) }),
        tasks: Some(tasks),
        partitions: partitions.iter().map(|p| (*p).to_owned()).collect(),
        ..spec()
    };
    let eligible_time = Some(Timestamp::from_secs(NOW));
    JobView { memory: MemoryRequest::All, time_limit: TimeLimit::Unlimited, eligible_time, ..job(7, spec) }
}

fn number(settings: PrioritySettings, job: &JobView) -> u32 {
    rules(settings).priority(job, Standing::default())
}

#[test]
fn numbers_are_those_of_slurm() {
    let is = |job: &JobView| number(asked(), job);
    assert_eq!(is(&asks(1, 1, &["p"])), 6725);
    assert_eq!(is(&asks(1, 4, &["p"])), 10_550);
    assert_eq!(is(&asks(10, 10, &["p"])), 65_000);
    assert_eq!(is(&asks(10, 40, &["p"])), 103_250);
    assert_eq!(is(&asks(2, 2, &["q"])), 14_400);
    let half = JobView { memory: MemoryRequest::PerNode(MemoryMib(500)), ..asks(1, 1, &["p"]) };
    assert_eq!(is(&half), 6625);
    let mut nice = asks(1, 3, &["p"]);
    nice.spec = Arc::new(JobSpec { nice: 50, ..(*nice.spec).clone() });
    assert_eq!(is(&nice), 9225);
}

#[test]
fn of_several_partitions_the_best_counts() {
    assert_eq!(number(asked(), &asks(2, 2, &["q", "p"])), 14_400);
    assert_eq!(number(asked(), &asks(2, 2, &["p", "q"])), 14_400);
}

#[test]
fn small_jobs_are_favoured_where_the_site_wants_it() {
    let size = |settings: PrioritySettings, job: &JobView| {
        let rules = rules(settings);
        rules.factors(job, &rules.partitions["p"], Standing::default()).job_size
    };
    let favor = PrioritySettings { favor_small: true, ..asked() };
    assert!((size(favor.clone(), &asks(1, 1, &["p"])) - 0.9375).abs() < 1e-9);
    assert!((size(favor, &asks(10, 40, &["p"]))).abs() < 1e-9);

    let flags = PriorityFlags { small_relative_to_time: true, ..PriorityFlags::default() };
    let by_time = PrioritySettings { flags, ..asked() };
    let limited = |nodes, tasks, minutes: u64| JobView {
        time_limit: TimeLimit::Secs(60 * minutes),
        ..asks(nodes, tasks, &["p"])
    };
    assert!((size(by_time.clone(), &limited(1, 1, 10)) - 0.01).abs() < 1e-9);
    assert!((size(by_time.clone(), &limited(2, 8, 1)) - 0.2).abs() < 1e-9);
    assert!((size(by_time.clone(), &limited(3, 3, 1)) - 0.3).abs() < 1e-9);
    assert!((size(by_time.clone(), &limited(10, 40, 1)) - 1.0).abs() < 1e-9);
    assert!(size(by_time.clone(), &asks(1, 1, &["p"])).abs() < 1e-9, "no limit is a long time");
    let both = PrioritySettings { favor_small: true, ..by_time };
    assert!((size(both, &asks(1, 1, &["p"])) - 1.0).abs() < 1e-9);
}

#[test]
fn factors_are_not_normalized_where_flags_say_so() {
    let flags = PriorityFlags { no_normal_part: true, no_normal_tres: true, ..PriorityFlags::default() };
    let rules = rules(PrioritySettings { flags, ..asked() });
    let factors = rules.factors(&asks(2, 2, &["q"]), &rules.partitions["q"], Standing::default());
    assert!((factors.partition - 40.0).abs() < 1e-9);
    assert!((factors.tres[0] - 2.0).abs() < 1e-9 && (factors.tres[1] - 2000.0).abs() < 1e-9);
}

#[test]
fn only_eligible_jobs_age() {
    let age = |job: &JobView, flags: PriorityFlags| {
        let rules = rules(PrioritySettings { flags, ..asked() });
        rules.factors(job, &rules.partitions["p"], Standing::default()).age
    };
    let none = PriorityFlags::default();
    let always = PriorityFlags { accrue_always: true, ..none };
    let at = |secs| Some(Timestamp::from_secs(NOW + secs));
    let waited = JobView { eligible_time: at(-1800), ..asks(1, 1, &["p"]) };
    assert!((age(&waited, none) - 0.5).abs() < 1e-9);
    let long = JobView { eligible_time: at(-7200), ..waited.clone() };
    assert!((age(&long, none) - 1.0).abs() < 1e-9);
    let later = JobView { eligible_time: at(60), eligible: false, ..waited.clone() };
    assert!(age(&later, none).abs() < 1e-9);
    assert!(age(&later, always) > 0.0);
    let runs = JobView { state: JobState::Running, eligible: false, start_time: at(-900), ..waited };
    assert!((age(&runs, none) - 0.25).abs() < 1e-9, "it waited until it started");
}

#[test]
fn news_are_of_jobs_that_wait_and_that_nobody_fixed() {
    let rules = rules(asked());
    let plain = JobView { priority: 1, ..asks(1, 1, &["p"]) };
    assert_eq!(news(&rules, &plain, Standing::default()), Some(6725));
    let shown = JobView { priority: 6725, ..plain.clone() };
    assert_eq!(news(&rules, &shown, Standing::default()), None);
    let fixed = JobView { terms: PriorityTerms { fixed: true, ..PriorityTerms::default() }, ..plain.clone() };
    assert_eq!(news(&rules, &fixed, Standing::default()), None);
    assert_eq!(news(&rules, &JobView { priority: 0, ..plain.clone() }, Standing::default()), None, "held");
    let runs = JobView { state: JobState::Running, ..plain.clone() };
    assert_eq!(news(&rules, &runs, Standing::default()), None);

    let flags = PriorityFlags { calculate_running: true, incr_only: true, ..PriorityFlags::default() };
    let other = Rules { settings: PrioritySettings { flags, ..asked() }, ..rules };
    assert!(news(&other, &runs, Standing::default()).is_some());
    assert_eq!(news(&other, &JobView { priority: 10_000, ..plain }, Standing::default()), None, "never less");
}

/// One of ten nodes with four CPUs and 1000 MiB in a partition, where these resources are weighed.
fn weighed(weights: &str, billing: &str, flags: PriorityFlags, job: &JobView) -> (Vec<String>, Vec<f64>) {
    let mut view = (*partition("p", 1, 0..10)).clone();
    let config = PartitionConfig { billing_weights: Some(billing.to_owned()), ..(*view.config).clone() };
    view.config = Arc::new(config);
    let gpus = |kind: &str, count| GresEntry {
        name: "gpu".into(),
        kind: Some(kind.into()),
        count,
        no_consume: false,
        devices: false,
        places: Vec::new(),
        shards: Vec::new(),
    };
    let with_gpus = |i| {
        let plain = node(i, 2);
        NodeView { shape: NodeShape { gres: vec![gpus("h100", 2), gpus("a100", 2)], ..plain.shape }, ..plain }
    };
    let nodes: Vec<Arc<NodeView>> = (0..10).map(|i| Arc::new(with_gpus(i))).collect();
    let text = format!(
        "ClusterName=c\nSlurmctldHost=h\nPriorityType=priority/multifactor\nPriorityWeightTRES={weights}\n\
         NodeName=a CPUs=1\nPartitionName=p Nodes=a\n"
    );
    let (config, _) = garrick_model::config::read_text(std::path::Path::new("slurm.conf"), &text);
    let settings = PrioritySettings { flags, tres: config.unwrap().priority.tres, ..asked() };
    let rules = Rules::new(&settings, &[Arc::new(view)], &nodes, Timestamp::from_secs(NOW));
    let rules = rules.with_licenses([("matlab".to_owned(), 4)].into());
    let names = settings.tres.iter().map(|(kind, _)| kind.name()).collect();
    (names, rules.factors(job, &rules.partitions["p"], Standing::default()).tres)
}

fn asks_for_gpus(licenses: &str) -> JobView {
    let plain = asks(1, 2, &["p"]);
    let count = |kind: Option<&str>, count| GresCount { name: "gpu".into(), kind: kind.map(str::to_owned), count };
    let gres = GresRequest { per_node: vec![count(Some("h100"), 1), count(None, 1)], ..GresRequest::default() };
    let spec = JobSpec { gres, licenses: Some(licenses.to_owned()), ..(*plain.spec).clone() };
    JobView { spec: Arc::new(spec), memory: MemoryRequest::PerNode(MemoryMib(1536)), ..plain }
}

#[test]
fn billing_is_a_sum_or_its_greatest_term() {
    let job = asks_for_gpus("matlab:2");
    let billed = |max_tres: bool, max_tres_gres: bool| {
        let flags = PriorityFlags { max_tres, max_tres_gres, no_normal_tres: true, ..PriorityFlags::default() };
        weighed("billing=1", "CPU=1.0,Mem=1G,GRES/gpu=3,license/matlab=10", flags, &job).1
    };
    // 2 CPUs, 1.5 GiB, 2 GPUs, 2 licenses.
    assert_eq!(billed(false, false), [29.0]);
    assert_eq!(billed(true, false), [26.0]);
    assert_eq!(billed(false, true), [28.0]);
}

#[test]
fn gpus_and_licenses_are_shares_of_those_that_there_are() {
    let weights = "cpu=1,GRES/gpu=3000,gres/gpu:h100=1,license/matlab=1,license/nosuch=1";
    let (names, factors) = weighed(weights, "CPU=1", PriorityFlags::default(), &asks_for_gpus("matlab:2"));
    assert_eq!(names, ["cpu", "gres/gpu", "gres/gpu:h100", "license/matlab", "license/nosuch"]);
    let want = [2.0 / 40.0, 2.0 / 40.0, 1.0 / 20.0, 2.0 / 4.0, 0.0];
    assert!(factors.iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-9), "{factors:?}");
    let raw = PriorityFlags { no_normal_tres: true, ..PriorityFlags::default() };
    assert_eq!(weighed(weights, "CPU=1", raw, &asks_for_gpus("matlab:2")).1, [2.0, 2.0, 1.0, 2.0, 0.0]);
}

fn settings() -> impl Strategy<Value = PrioritySettings> {
    let weights = (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>());
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (weights, flags, any::<bool>(), 1_u64..1_000_000, -1e6..1e6).prop_map(
        |((age, job_size, partition, fairshare), (a, b, c, d), favor_small, max_age_secs, cpu)| PrioritySettings {
            age,
            job_size,
            partition,
            fairshare,
            tres: vec![(WeighedTres::Cpu, cpu)],
            favor_small,
            max_age_secs,
            flags: PriorityFlags {
                accrue_always: a,
                no_normal_part: b,
                no_normal_tres: c,
                small_relative_to_time: d,
                ..PriorityFlags::default()
            },
            ..Config::default().priority
        },
    )
}

fn some_job() -> impl Strategy<Value = JobView> {
    (1_u32..12, 1_u32..60, -1_000_000_i64..1_000_000, any::<i32>(), any::<i32>(), 0_u64..100_000).prop_map(
        |(nodes, tasks, eligible, nice, site, limit)| {
            let plain = asks(nodes, tasks, &["p", "q"]);
            JobView {
                spec: Arc::new(JobSpec { nice, ..(*plain.spec).clone() }),
                eligible_time: Some(Timestamp::from_secs(NOW + eligible)),
                terms: PriorityTerms { site, ..PriorityTerms::default() },
                time_limit: if limit == 0 { TimeLimit::Unlimited } else { TimeLimit::Secs(limit) },
                ..plain
            }
        },
    )
}

proptest! {
    #[test]
    fn a_job_that_waits_is_never_held_by_its_numbers(settings in settings(), job in some_job()) {
        let rules = rules(settings);
        prop_assert!(rules.priority(&job, Standing::default()) >= 1);
    }

    #[test]
    fn normalized_factors_stay_between_nought_and_one(settings in settings(), job in some_job()) {
        let flags = PriorityFlags { no_normal_part: false, no_normal_tres: false, ..settings.flags };
        let rules = rules(PrioritySettings { flags, ..settings });
        let Factors { age, job_size, partition, tres, .. } =
            rules.factors(&job, &rules.partitions["q"], Standing::default());
        for factor in [age, job_size, partition].into_iter().chain(tres) {
            prop_assert!((0.0..=1.0).contains(&factor), "{factor}");
        }
    }

    #[test]
    fn waiting_longer_never_lowers_it(settings in settings(), job in some_job(), more in 0_i64..1_000_000) {
        let now = rules(settings);
        let later = Rules { as_of: Timestamp::from_secs(NOW + more), ..now.clone() };
        prop_assert!(later.priority(&job, Standing::default()) >= now.priority(&job, Standing::default()));
    }

    #[test]
    fn more_nice_never_raises_it(settings in settings(), job in some_job(), more in 0_i32..1_000_000) {
        let rules = rules(settings);
        let nice = job.spec.nice.saturating_add(more);
        let nicer = JobView { spec: Arc::new(JobSpec { nice, ..(*job.spec).clone() }), ..job.clone() };
        prop_assert!(rules.priority(&nicer, Standing::default()) <= rules.priority(&job, Standing::default()));
    }

    #[test]
    fn asked_again_at_the_same_moment_there_is_nothing_new(settings in settings(), job in some_job()) {
        let rules = rules(settings);
        let priority = rules.priority(&job, Standing::default());
        let shown = JobView { priority, ..job };
        prop_assert_eq!(news(&rules, &shown, Standing::default()), None);
    }
}

/// A pass must stay short with many jobs: unoptimized and on a busy machine this is well under a second.
#[test]
fn a_hundred_thousand_jobs_are_looked_at_in_a_moment() {
    let rules = rules(asked());
    let plain = JobView { priority: 6725, ..asks(1, 1, &["p"]) };
    let begun = std::time::Instant::now();
    let told = (0..100_000).filter(|_| news(&rules, &plain, Standing::default()).is_some()).count();
    let took = begun.elapsed();
    eprintln!("100000 jobs looked at in {took:?}");
    assert_eq!(told, 0, "what did not change costs no message");
    assert!(took < std::time::Duration::from_secs(10), "{took:?}");
}

#[test]
fn the_priority_of_a_qos_is_the_factor_of_its_jobs() {
    let of = |priority| Qos { priority, ..Qos::default() };
    let table = QosTable::new([("high".to_owned(), of(40)), ("low".to_owned(), of(10))], Some("low"));
    let job = |name: Option<&str>| {
        let mut job = asks(1, 1, &["p"]);
        Arc::make_mut(&mut job.spec).qos = name.map(str::to_owned);
        job
    };
    let with = |settings| rules(settings).with_qos(Arc::new(table.clone()));
    let usual = with(asked());
    for (name, factor) in [(Some("high"), 1.0), (Some("LOW"), 0.25), (None, 0.25), (Some("other"), 0.0)] {
        assert!((usual.standing(&job(name)).qos - factor).abs() < 1e-9, "{name:?}");
    }
    let mut flags: PriorityFlags = asked().flags;
    flags.no_normal_qos = true;
    let plain = with(PrioritySettings { flags, ..asked() });
    assert!((plain.standing(&job(Some("high"))).qos - 40.0).abs() < 1e-9);
    assert_eq!(rules(asked()).standing(&job(Some("high"))), Standing::default(), "none is known");
}
