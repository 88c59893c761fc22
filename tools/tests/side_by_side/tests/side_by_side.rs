//! Every scenario file on Garrick as it was built and on Debian's Slurm. Skipped with a message where that is not installed.
#![allow(clippy::unwrap_used, missing_docs)]

use garrick_side_by_side::{
    cluster::{self, Kind},
    differences::Differences,
    report::{self, Pair},
    scenario::Scenario,
};
use std::{collections::BTreeSet, path::Path};

/// Where Debian has it.
const REFERENCE: &str = "/usr";
const VERSION: &str = "22.05";

fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder in which all was built.
fn built() -> &'static Path {
    let built = Path::new(env!("CARGO_BIN_EXE_side-by-side")).parent().unwrap();
    for program in ["garrick", "srun", "noded", "stepd"] {
        let path = built.join(program);
        assert!(path.exists(), "{} is missing: build the whole workspace first", path.display());
    }
    built
}

#[track_caller]
fn compare(name: &str) {
    if cluster::version(Path::new(REFERENCE)).as_deref() != Some(VERSION) {
        eprintln!("skipped: no Slurm {VERSION} in {REFERENCE}");
        return;
    }
    if !cluster::is_possible() {
        eprintln!("skipped: needs root and namespaces");
        return;
    }
    let scenario = Scenario::read(&home().join(format!("scenarios/{name}.toml"))).unwrap();
    if scenario.cases.iter().all(|case| !case.asks(VERSION)) {
        eprintln!("skipped: {name} is all newer than {VERSION}, and compared with newer references by hand");
        return;
    }
    let table = Differences::read(&home().join("differences.toml")).unwrap();
    let work = std::env::temp_dir().join(format!("side-by-side-{}-{name}", std::process::id()));
    let pair = Pair {
        program: env!("CARGO_BIN_EXE_side-by-side").into(),
        ours: built().to_owned(),
        reference: REFERENCE.into(),
        version: VERSION.to_owned(),
        ours_is: Kind::Ours,
        work: work.clone(),
    };
    let outcomes = report::run(&pair, scenario, &table, |_| true).unwrap();
    drop(std::fs::remove_dir_all(&work));
    println!("{}", report::table(&outcomes));
    let failures: Vec<String> = outcomes.iter().filter_map(report::Outcome::failure).collect();
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), outcomes.len(), failures.join("\n"));
    assert!(!outcomes.is_empty());
}

macro_rules! scenarios {
    ($($name:ident)*) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];
        $(#[test]
        fn $name() {
            compare(stringify!($name));
        })*
    };
}

scenarios! {
    cli_filter
    down
    job_submit
    job_submit_plain
    others
    power
    private
    salloc
    sbatch
    sbatch_errors
    sbatch_options
    sbcast
    scancel
    scontrol
    planned
    sacct
    sacctmgr
    scontrol_show
    scrontab
    scrontab_explicit
    sdiag
    sinfo
    site_scripts
    squeue
    sreport
    srun
    srun_errors
    srun_launch
    srun_options
    strigger
}

#[test]
fn every_scenario_file_is_a_test_and_every_listed_case_is_there() {
    let found = std::fs::read_dir(home().join("scenarios")).unwrap().map(|entry| entry.unwrap().path());
    let scenarios: Vec<Scenario> = found.map(|path| Scenario::read(&path).unwrap()).collect();
    let names: BTreeSet<&str> = scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
    assert_eq!(names, NAMES.iter().copied().collect());
    let cases: BTreeSet<String> = scenarios.iter().flat_map(|s| s.cases.iter().map(|case| s.title(case))).collect();
    let table = Differences::read(&home().join("differences.toml")).unwrap();
    let listed: BTreeSet<String> = table.all.into_iter().flat_map(|difference| difference.cases).collect();
    let unknown: Vec<_> = listed.difference(&cases).collect();
    assert!(unknown.is_empty(), "in the table, and in no file: {unknown:?}");
}
