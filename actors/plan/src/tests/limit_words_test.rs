//! Every limit of an association, of a QOS and of a partition's QOS: a job that reaches it, the reason that it shows, and what frees
//! it. The table of `docs/limits.md` is made from these cases; no limit of the model is missing. The reasons were compared with those
//! of Slurm 22.05 with slurmdbd.
#![allow(clippy::unwrap_used)]

use super::accounting_test::{NOW, asks, at, gpus, matlab, on_nodes, outcome, queue, site};
use crate::{
    plan::plan,
    rules::{accounting::submit_limits, accrual::Accruals},
    snapshot::{accounting::PastUsage, affiliation::Affiliation, facts::ClusterView},
};
use garrick_model::{
    entities::{
        Entities,
        association::AssocId,
        limits::{Amounts, Count, Limits, TresLimit},
        qos::QosRecord,
        used::{Flow, Used},
    },
    spec::JobSpec,
    testing::{assert_page, entities},
    time::TimeLimit,
    view::{Accrual, JobView},
};
use std::{fmt::Write as _, sync::Arc, time::Duration};

/// Where a limit is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Account,
    User,
    Qos,
    PartitionQos,
}

/// The number of the partition's QOS.
const PARTQ: u32 = 9;
const ASSOCIATION: &[On] = &[On::Account, On::User];
const QOS: &[On] = &[On::Qos, On::PartitionQos];
const ALL: &[On] = &[On::Account, On::User, On::Qos, On::PartitionQos];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Number(Count),
    Amount(TresLimit),
}

/// What frees a job beside the end of the limit.
#[derive(Clone, Copy, Debug)]
enum Frees {
    /// Another job ends.
    End,
    /// Another job ends or is cancelled.
    Place,
    /// Another job starts, is held or is cancelled.
    Age,
    /// What was used decays, or is set to 0.
    Decay,
    /// It asks for less (or more, where that is the limit).
    Change,
    /// Its priority rises.
    Priority,
}

impl Frees {
    const fn text(self) -> &'static str {
        match self {
            Self::End => "another job ends",
            Self::Place => "another job ends or is cancelled; then it can be submitted",
            Self::Age => "another job starts, is held or ends",
            Self::Decay => "what was used decays or is set to 0, or the job asks for less",
            Self::Change => "the job is changed",
            Self::Priority => "its priority rises",
        }
    }
}

/// One case: the TRES (or none), the number that is set, the jobs, and the reasons that are shown where an association, or a QOS, has
/// that limit.
struct Case {
    tres: &'static str,
    most: u64,
    /// It is there before.
    first: Option<JobSpec>,
    /// It reaches the limit.
    job: JobSpec,
    /// What it could ask for.
    instead: Option<JobSpec>,
    association: &'static str,
    qos: &'static str,
}

struct Row {
    words: &'static str,
    limit: Limit,
    on: &'static [On],
    what: &'static str,
    frees: Frees,
    cases: Vec<Case>,
}

fn short(spec: JobSpec) -> JobSpec {
    JobSpec { time_limit: Some(TimeLimit::Secs(120)), ..spec }
}

/// One job beside another like it.
fn beside(
    each: u64,
    job: impl Fn() -> JobSpec,
    (tres, association, qos): (&'static str, &'static str, &'static str),
) -> Case {
    Case { tres, most: each, first: Some(job()), job: job(), instead: None, association, qos }
}

/// One job alone, which is too much.
fn alone(
    most: u64,
    job: JobSpec,
    instead: JobSpec,
    (tres, association, qos): (&'static str, &'static str, &'static str),
) -> Case {
    Case { tres, most, first: None, job, instead: Some(instead), association, qos }
}

/// Each kind of TRES, twice: the second is over the limit.
fn together(minutes: u64, reasons: [(&'static str, &'static str); 6]) -> Vec<Case> {
    let [cpu, mem, node, gres, license, billing] = reasons;
    let of = |tres, (association, qos)| (tres, association, qos);
    let mut nodes = beside(minutes, || at(asks(1), "n0"), of("node", node));
    nodes.job = at(asks(1), "n1");
    vec![
        beside(minutes, || asks(1), of("cpu", cpu)),
        beside(100 * minutes, || asks(1), of("mem", mem)),
        nodes,
        beside(minutes, || gpus(1), of("gres/gpu", gres)),
        beside(minutes, || matlab(1), of("license/matlab", license)),
        beside(minutes, || asks(1), of("billing", billing)),
    ]
}

/// Each kind of TRES, too much of it or for too long, and half of that.
fn by_itself(most: u64, all: [(JobSpec, JobSpec); 6], reasons: [(&'static str, &'static str); 6]) -> Vec<Case> {
    let names = ["cpu", "mem", "node", "gres/gpu", "license/matlab", "billing"];
    let case = |((tres, (job, instead)), (association, qos))| {
        let most = if tres == "mem" { 100 * most } else { most };
        alone(most, job, instead, (tres, association, qos))
    };
    names.into_iter().zip(all).zip(reasons).map(case).collect()
}

/// Five minutes, and two.
fn times() -> [(JobSpec, JobSpec); 6] {
    [asks(1), asks(1), asks(1), gpus(1), matlab(1), asks(1)].map(|job| (job.clone(), short(job)))
}

/// Two, and one.
fn sizes() -> [(JobSpec, JobSpec); 6] {
    [
        (asks(2), asks(1)),
        (asks(2), asks(1)),
        (on_nodes(asks(2), 2), on_nodes(asks(2), 1)),
        (gpus(2), gpus(1)),
        (matlab(2), matlab(1)),
        (asks(2), asks(1)),
    ]
}

/// A number of jobs.
fn jobs(words: &'static str, count: Count, on: &'static [On], what: &'static str, reasons: [&'static str; 2]) -> Row {
    let cases = vec![beside(1, || asks(1), ("", reasons[0], reasons[1]))];
    let frees = match count {
        Count::GrpSubmit | Count::MaxSubmit | Count::MaxSubmitPerUser | Count::MaxSubmitPerAccount => Frees::Place,
        count if count.is_of_age() => Frees::Age,
        _ => Frees::End,
    };
    Row { words, limit: Limit::Number(count), on, what, frees, cases }
}

#[rustfmt::skip]
fn of_jobs() -> Vec<Row> {
    use Count::*;
    vec![
        jobs("GrpJobs", GrpJobs, ALL, "running jobs together", ["AssocGrpJobsLimit", "QOSGrpJobsLimit"]),
        jobs("MaxJobs", MaxJobs, ASSOCIATION, "running jobs of the association", ["AssocMaxJobsLimit", ""]),
        jobs("MaxJobsPerUser", MaxJobsPerUser, QOS, "running jobs of a user", ["", "QOSMaxJobsPerUserLimit"]),
        jobs("MaxJobsPerAccount", MaxJobsPerAccount, QOS, "running jobs of an account", ["", "MaxJobsPerAccount"]),
        jobs("GrpSubmitJobs", GrpSubmit, ALL, "waiting and running jobs together; each task of an array counts", ["AssocGrpSubmitJobsLimit", "QOSGrpSubmitJobsLimit"]),
        jobs("MaxSubmitJobs", MaxSubmit, ASSOCIATION, "the same of the association", ["AssocMaxSubmitJobLimit", ""]),
        jobs("MaxSubmitJobsPerUser", MaxSubmitPerUser, QOS, "the same of a user", ["", "QOSMaxSubmitJobPerUserLimit"]),
        jobs("MaxSubmitJobsPerAccount", MaxSubmitPerAccount, QOS, "the same of an account", ["", "MaxSubmitJobsPerAccount"]),
        jobs("GrpJobsAccrue", GrpJobsAccrue, &[On::Account, On::User, On::Qos], "waiting jobs together that gain priority by age; each task of an array counts", ["", ""]),
        jobs("MaxJobsAccrue", MaxJobsAccrue, ASSOCIATION, "the same of the association", ["", ""]),
        jobs("MaxJobsAccruePerUser", MaxJobsAccruePerUser, &[On::Qos], "the same of a user", ["", ""]),
        jobs("MaxJobsAccruePerAccount", MaxJobsAccruePerAccount, &[On::Qos], "the same of an account", ["", ""]),
    ]
}

#[rustfmt::skip]
fn of_amounts() -> Vec<Row> {
    use TresLimit::*;
    let row = |words, limit, on, what, frees, cases| Row { words, limit: Limit::Amount(limit), on, what, frees, cases };
    vec![
        row("GrpTRES", GrpTres, ALL, "amounts of running jobs together; a node that several of them share counts once", Frees::End, together(1, [
            ("AssocGrpCpuLimit", "QOSGrpCpuLimit"), ("AssocGrpMemLimit", "QOSGrpMemLimit"), ("AssocGrpNodeLimit", "QOSGrpNodeLimit"),
            ("AssocGrpGRES", "QOSGrpGRES"), ("AssocGrpLicense", "QOSGrpLicense"), ("AssocGrpBilling", "QOSGrpBilling"),
        ])),
        row("MaxTRESPerUser", MaxTresPerUser, QOS, "amounts of a user's running jobs", Frees::End, together(1, [
            ("", "QOSMaxCpuPerUserLimit"), ("", "QOSMaxMemoryPerUser"), ("", "QOSMaxNodePerUserLimit"),
            ("", "QOSMaxGRESPerUser"), ("", "QOSMaxLicensePerUser"), ("", "QOSMaxBillingPerUser"),
        ])),
        row("MaxTRESPerAccount", MaxTresPerAccount, QOS, "amounts of an account's running jobs", Frees::End, together(1, [
            ("", "MaxCpuPerAccount"), ("", "MaxMemoryPerAccount"), ("", "MaxNodePerAccount"),
            ("", "MaxGRESPerAccount"), ("", "MaxLicensePerAccount"), ("", "MaxBillingPerAccount"),
        ])),
        row("GrpTRESRunMins", GrpTresRunMins, ALL, "minutes that running jobs have left by their limits, times amounts", Frees::End, together(5, [
            ("AssocGrpCPURunMinutesLimit", "QOSGrpCPURunMinutesLimit"), ("AssocGrpMemRunMinutes", "QOSGrpMemoryRunMinutes"), ("AssocGrpNodeRunMinutes", "QOSGrpNodeRunMinutes"),
            ("AssocGrpGRESRunMinutes", "QOSGrpGRESRunMinutes"), ("AssocGrpLicenseRunMinutes", "QOSGrpLicenseRunMinutes"), ("AssocGrpBillingRunMinutes", "QOSGrpBillingRunMinutes"),
        ])),
        row("MaxTRESRunMinsPerUser", MaxTresRunMinsPerUser, QOS, "the same of a user", Frees::End, together(5, [
            ("", "MaxCpuRunMinsPerUser"), ("", "MaxMemRunMinsPerUser"), ("", "MaxNodeRunMinsPerUser"),
            ("", "MaxGRESRunMinsPerUser"), ("", "MaxLicenseRunMinsPerUser"), ("", "MaxBillingRunMinsPerUser"),
        ])),
        row("MaxTRESRunMinsPerAccount", MaxTresRunMinsPerAccount, QOS, "the same of an account", Frees::End, together(5, [
            ("", "MaxCpuRunMinsPerAccount"), ("", "MaxMemRunMinsPerAccount"), ("", "MaxNodeRunMinsPerAccount"),
            ("", "MaxGRESRunMinsPerAccount"), ("", "MaxLicenseRunMinsPerAccount"), ("", "MaxBillingRunMinsPerAccount"),
        ])),
        row("GrpTRESMins", GrpTresMins, ALL, "minutes times amounts that all jobs have used; with `safe` also those to come, else also while jobs run", Frees::Decay, by_itself(4, times(), [
            ("AssocGrpCPUMinutesLimit", "QOSGrpCPUMinutesLimit"), ("AssocGrpMemMinutes", "QOSGrpMemoryMinutes"), ("AssocGrpNodeMinutes", "QOSGrpNodeMinutes"),
            ("AssocGrpGRESMinutes", "QOSGrpGRESMinutes"), ("AssocGrpLicenseMinutes", "QOSGrpLicenseMinutes"), ("AssocGrpBillingMinutes", "QOSGrpBillingMinutes"),
        ])),
        row("MaxTRESPerJob", MaxTresPerJob, ALL, "amounts of a job", Frees::Change, by_itself(1, sizes(), [
            ("AssocMaxCpuPerJobLimit", "QOSMaxCpuPerJobLimit"), ("AssocMaxMemPerJob", "QOSMaxMemoryPerJob"), ("AssocMaxNodePerJobLimit", "QOSMaxNodePerJobLimit"),
            ("AssocMaxGRESPerJob", "QOSMaxGRESPerJob"), ("AssocMaxLicensePerJob", "QOSMaxLicensePerJob"), ("AssocMaxBillingPerJob", "QOSMaxBillingPerJob"),
        ])),
        row("MaxTRESPerNode", MaxTresPerNode, ALL, "amounts of a job on a node", Frees::Change, vec![
            alone(1, on_nodes(asks(2), 1), on_nodes(asks(2), 2), ("cpu", "AssocMaxCpuPerNode", "QOSMaxCpuPerNode")),
            alone(100, on_nodes(asks(2), 1), on_nodes(asks(2), 2), ("mem", "AssocMaxMemPerNode", "QOSMaxMemoryPerNode")),
            alone(1, gpus(2), gpus(1), ("gres/gpu", "AssocMaxGRESPerNode", "QOSMaxGRESPerNode")),
        ]),
        row("MaxTRESMinsPerJob", MaxTresMinsPerJob, ALL, "amounts times the time limit, with `safe`; else times the time that the job has run", Frees::Change, by_itself(4, times(), [
            ("AssocMaxCpuMinutesPerJobLimit", "QOSMaxCpuMinutesPerJobLimit"), ("AssocMaxMemMinutesPerJob", "QOSMaxMemoryMinutesPerJob"), ("AssocMaxNodeMinutesPerJob", "QOSMaxNodeMinutesPerJob"),
            ("AssocMaxGRESMinutesPerJob", "QOSMaxGRESMinutesPerJob"), ("AssocMaxLicenseMinutesPerJob", "QOSMaxLicenseMinutesPerJob"), ("AssocMaxBillingMinutesPerJob", "QOSMaxBillingMinutesPerJob"),
        ])),
        row("MinTRESPerJob", MinTresPerJob, QOS, "amounts of a job, at least", Frees::Change, by_itself(2, sizes().map(|(two, one)| (one, two)), [
            ("", "QOSMinCpuNotSatisfied"), ("", "QOSMinMemory"), ("", "QOSMinNode"),
            ("", "QOSMinGRES"), ("", "QOSMinLicense"), ("", "QOSMinBilling"),
        ])),
    ]
}

fn of_time() -> Vec<Row> {
    let case = |most, association, qos| vec![alone(most, asks(1), short(asks(1)), ("", association, qos))];
    let wall = "time of all jobs, with `safe` also of those to come";
    let threshold = "jobs of a lower priority have nothing reserved";
    vec![
        Row {
            words: "GrpWall",
            limit: Limit::Number(Count::GrpWall),
            on: ALL,
            what: wall,
            frees: Frees::Decay,
            cases: case(4, "AssocGrpWallLimit", "QOSGrpWallLimit"),
        },
        Row {
            words: "MaxWall",
            limit: Limit::Number(Count::MaxWall),
            on: ALL,
            what: "time limit of a job",
            frees: Frees::Change,
            cases: case(4, "AssocMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit"),
        },
        Row {
            words: "MinPrioThreshold",
            limit: Limit::Number(Count::MinPrioThreshold),
            on: QOS,
            what: threshold,
            frees: Frees::Priority,
            cases: vec![alone(u32::MAX.into(), on_nodes(asks(12), 3), asks(1), ("", "", ""))],
        },
    ]
}

fn rows() -> Vec<Row> {
    [of_jobs(), of_amounts(), of_time()].into_iter().flatten().collect()
}

/// What accounting knows where that is set there; the partition's QOS is there in any case.
fn with(limit: Limit, on: On, tres: &str, most: u64) -> Entities {
    let mut all = entities();
    all.qos.insert("partq".to_owned(), QosRecord::new(PARTQ, "partq"));
    let limits: &mut Limits = match on {
        On::Account => &mut all.associations.get_mut(&AssocId(3)).unwrap().limits,
        On::User => &mut all.associations.get_mut(&AssocId(4)).unwrap().limits,
        On::Qos => &mut all.qos.get_mut("normal").unwrap().limits,
        On::PartitionQos => &mut all.qos.get_mut("partq").unwrap().limits,
    };
    match limit {
        Limit::Number(count) => drop(limits.counts.insert(count, most)),
        Limit::Amount(limit) => drop(limits.tres.insert(limit, Amounts::from([(tres.to_owned(), most)]))),
    }
    all
}

fn cluster(specs: Vec<JobSpec>, entities: &Entities) -> ClusterView {
    let mut view = site(queue(specs), entities);
    view.partitions[0].qos = Some("partq".to_owned());
    view
}

/// Why the last of these jobs waits; empty: it starts.
fn last(specs: Vec<JobSpec>, entities: &Entities) -> String {
    let count = u32::try_from(specs.len()).unwrap();
    outcome(&plan(&cluster(specs, entities), NOW), count).pop().unwrap()
}

impl Row {
    fn expected(&self, case: &Case, on: On) -> &'static str {
        if ASSOCIATION.contains(&on) { case.association } else { case.qos }
    }

    fn is_of_submission(&self) -> bool {
        matches!(self.frees, Frees::Place)
    }

    /// The job waits with its reason, and starts when the limit is lifted, and after what frees it.
    fn starts(&self, case: &Case, on: On) {
        let (limited, free) = (with(self.limit, on, case.tres, case.most), with(self.limit, on, case.tres, u64::MAX));
        let of = format!("{} {} of {on:?}", self.words, case.tres);
        let all = || case.first.iter().cloned().chain([case.job.clone()]).collect::<Vec<_>>();
        assert_eq!(last(all(), &limited), self.expected(case, on), "{of}");
        let lifted = if matches!(self.limit, Limit::Amount(TresLimit::MinTresPerJob)) { entities() } else { free };
        assert_eq!(last(all(), &lifted), "", "{of}, lifted");
        if case.first.is_some() {
            assert_eq!(last(vec![case.job.clone()], &limited), "", "{of}: the other has ended");
        }
        if let Some(instead) = &case.instead {
            assert_eq!(last(vec![instead.clone()], &limited), "", "{of}: it asks for less");
        }
        if matches!(self.frees, Frees::Decay) {
            self.decays(case, on, &of);
        }
    }

    /// What would be free is used up, until it decays.
    fn decays(&self, case: &Case, on: On, of: &str) {
        let limited = with(self.limit, on, case.tres, case.most);
        let instead = case.instead.clone().unwrap();
        // Two minutes less than there may be, and more than that.
        let times = if case.tres == "mem" { 100.0 } else { 1.0 };
        for (minutes, expected) in [(2.0, ""), (3.0, self.expected(case, on))] {
            let secs = minutes * 60.0;
            let used = Used { tres: [(case.tres.to_owned(), secs * times)].into(), wall_secs: secs };
            let flow = Flow { used, ..Flow::default() };
            let mut view = cluster(vec![instead.clone()], &limited);
            view.accounting.past = Arc::new(match on {
                On::Account => PastUsage { associations: [(AssocId(3), flow)].into(), ..PastUsage::default() },
                On::User => PastUsage { associations: [(AssocId(4), flow)].into(), ..PastUsage::default() },
                On::Qos => PastUsage { qos: [(1, flow)].into(), ..PastUsage::default() },
                On::PartitionQos => PastUsage { qos: [(PARTQ, flow)].into(), ..PastUsage::default() },
            });
            assert_eq!(outcome(&plan(&view, NOW), 1), [expected], "{of}: {minutes} minutes were used");
        }
    }

    /// Those who submit are told.
    fn refuses(&self, case: &Case, on: On) {
        let of = |entities: &Entities| {
            let view = cluster(vec![case.job.clone()], entities);
            submit_limits(&view.accounting, Affiliation::of(&view.pending[0]), Some("partq"))
        };
        let limits = of(&with(self.limit, on, "", case.most));
        let told: Vec<(u64, String)> =
            limits.iter().map(|limit| (limit.most, limit.reason.text().into_owned())).collect();
        assert_eq!(told, [(case.most, self.expected(case, on).to_owned())], "{} of {on:?}", self.words);
        assert_eq!(of(&entities()), []);
    }

    /// The second does not gain priority by age before the first is gone.
    fn gains(&self, case: &Case, on: On) {
        let limited = with(self.limit, on, "", case.most);
        let decide = |jobs: Vec<JobView>| {
            let mut view = cluster(Vec::new(), &limited);
            view.pending = jobs.into_iter().map(Arc::new).collect();
            let mut accruals = Accruals::default();
            for late in [0, 60] {
                accruals.decide(&mut view, NOW.plus(Duration::from_secs(late)));
            }
            view.pending.iter().map(|job| job.terms.accrual).collect::<Vec<_>>()
        };
        let mut jobs = queue(vec![case.first.clone().unwrap(), case.job.clone()]);
        jobs.iter_mut().for_each(|job| job.eligible_time = Some(NOW));
        let of = format!("{} of {on:?}", self.words);
        assert_eq!(decide(jobs.clone()), [Accrual::Since(NOW), Accrual::Waits], "{of}");
        assert_eq!(decide(vec![jobs.remove(1)]), [Accrual::Since(NOW)], "{of}");
    }

    /// Nothing is reserved for it.
    fn reserves(&self, case: &Case, on: On) {
        let reserved = |entities: &Entities| {
            let mut view = cluster(vec![case.job.clone()], entities);
            for node in &mut view.nodes {
                let end = NOW.secs() + 600;
                Arc::make_mut(node).holds.push(garrick_model::testing::hold(99, 0..1, 100, Some(end)));
            }
            plan(&view, NOW).reservations.len()
        };
        assert_eq!(reserved(&with(self.limit, on, "", case.most)), 0, "{on:?}");
        assert_eq!(reserved(&with(self.limit, on, "", 0)), 1, "{on:?}: its priority is higher");
    }

    fn text(&self) -> String {
        let of = match (self.on.contains(&On::Account), self.on.contains(&On::Qos), self.on.contains(&On::PartitionQos))
        {
            (true, true, true) => "association, QOS, partition's QOS",
            (true, true, false) => "association, QOS",
            (true, false, _) => "association",
            (_, _, true) => "QOS, partition's QOS",
            (false, ..) => "QOS",
        };
        let shown = |reason: fn(&Case) -> &'static str| {
            let all: Vec<String> =
                self.cases.iter().map(reason).filter(|word| !word.is_empty()).map(|word| format!("`{word}`")).collect();
            all.join(" ")
        };
        let reasons: Vec<String> = [shown(|case| case.association), shown(|case| case.qos)]
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect();
        let reasons = if reasons.is_empty() { "none: the job is not held back".to_owned() } else { reasons.join("; ") };
        format!("| `{}` | {of} | {} | {reasons} | {} |\n", self.words, self.what, self.frees.text())
    }
}

#[test]
fn every_limit_is_reached_has_its_reason_and_frees_the_job() {
    for row in rows() {
        for (case, on) in row.cases.iter().flat_map(|case| row.on.iter().map(move |on| (case, *on))) {
            match row.frees {
                _ if row.is_of_submission() => row.refuses(case, on),
                Frees::Age => row.gains(case, on),
                Frees::Priority => row.reserves(case, on),
                _ => row.starts(case, on),
            }
        }
    }
}

#[test]
fn no_limit_is_missing_from_the_table() {
    let rows = rows();
    let limits = Count::ALL.map(Limit::Number).into_iter().chain(TresLimit::ALL.map(Limit::Amount));
    for limit in limits {
        assert_eq!(rows.iter().filter(|row| row.limit == limit).count(), 1, "{limit:?}");
        assert!(rows.iter().all(|row| !row.cases.is_empty() && !row.on.is_empty()));
    }
}

#[test]
fn the_page_has_the_table() {
    const PAGE: &str = "docs/limits.md";
    const BEGIN: &str = "<!-- A test makes this table: actors/plan/src/tests/limit_words_test.rs -->\n";
    const END: &str = "<!-- end of the table -->\n";
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    let written = std::fs::read_to_string(path).unwrap();
    let (before, rest) = written.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let mut page =
        format!("{before}{BEGIN}| limit | of | what it limits | reason | what frees a job |\n|---|---|---|---|---|\n");
    rows().iter().for_each(|row| page.push_str(&row.text()));
    let _ = write!(page, "{END}{after}");
    assert_page(PAGE, &page);
}
