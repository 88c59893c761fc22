//! The runners of accounting in their short form: questions and a purge beside SQL by hand, clusters beside a service that is fed and
//! asked, and kills of all that keeps records. They need root, and the workspace's programs beside them.

use crate::support::short_form_of;
use garrick_database_servers::Program;
use std::path::Path;

const RUNNER: &str = env!("CARGO_BIN_EXE_garrick-accounting");

/// Is the server of that database installed, and the program to ask it by hand?
fn has(database: &str) -> bool {
    let is_there = match database {
        "postgresql" => Program::Postgres.is_installed(),
        "mariadb" => Program::MariaDb.is_installed(),
        _ => Path::new("/usr/bin/sqlite3").exists(),
    };
    if !is_there {
        eprintln!("skipped: {database} is not installed");
    }
    is_there
}

/// An answer that is not that of the SQL, and a purge that leaves something else than it should, fail by themselves.
#[test]
fn questions_are_answered_as_sql_by_hand_answers_them_and_half_is_purged() {
    for database in ["sqlite", "postgresql", "mariadb"].into_iter().filter(|database| has(database)) {
        let Some(out) = short_form_of(RUNNER, &["questions", "--short", "--database", database]) else { return };
        for question in ["a job and its steps", "a day of all jobs and steps", "use of the cluster, a week"] {
            let asked = out.lines().filter(|line| line.trim_start().starts_with(question)).count();
            assert_eq!(asked, 2, "{question}, at the door and as a command: {out}");
        }
        assert!(out.contains("records archived and deleted"), "{out}");
    }
}

#[test]
fn a_fed_service_keeps_up_beside_a_cluster_that_launches_steps() {
    let Some(out) = short_form_of(RUNNER, &["launching", "--short"]) else { return };
    assert!(out.contains("with the service, which is fed by another cluster too"), "{out}");
}

/// A question that fails, or is answered with more or fewer lines than there are jobs, fails by itself.
#[test]
fn workflow_programs_are_answered_while_jobs_are_submitted() {
    let Some(out) = short_form_of(RUNNER, &["polling", "--short"]) else { return };
    assert!(out.contains("sacct is asked"), "{out}");
}

#[test]
fn records_are_what_was_told_whatever_is_killed() {
    // Nobody asks SQLite by hand here.
    let can_run = |database: &&str| *database == "sqlite" || has(database);
    for database in ["sqlite", "postgresql", "mariadb"].into_iter().filter(can_run) {
        let Some(out) = short_form_of(RUNNER, &["kills", "--short", "--database", database]) else { return };
        assert!(out.contains("0 lost, 0 duplicated, 0 leaked, 0 untrue"), "{out}");
        assert!(out.contains("slurmdbd killed"), "{out}");
    }
}
