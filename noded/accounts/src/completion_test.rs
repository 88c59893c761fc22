//! The table on both servers of Debian.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::{Place, run};
use garrick_database_servers::{Program, Server};
use garrick_model::config::storage::Password;
use std::sync::Arc;

const LOG: LogId = LogId(1, u64::MAX);

fn whence(cluster: &str, log: LogId) -> Whence {
    Whence { cluster: cluster.to_owned(), log }
}

fn row(position: u64, job: u32) -> CompletionRow {
    CompletionRow {
        position: Position(position),
        job,
        start: 1000,
        end: 1000 + i64::from(job),
        uid: 1001,
        user: "alice".into(),
        gid: 100,
        group: "users".into(),
        name: "a b'c".into(),
        state: 5,
        partition: "debug".into(),
        limit: "UNLIMITED".into(),
        nodes: "n[1-2]".into(),
        node_count: 2,
        cpus: 8,
    }
}

fn on_each(test: impl AsyncFn(&Place, &Server)) {
    for program in [Program::Postgres, Program::MariaDb] {
        let Some(place) = Place::shared(program) else { continue };
        let server = Arc::clone(place.server.as_ref().unwrap());
        run(test(&place, &server));
    }
}

fn open(place: &Place) -> CompletionStore {
    CompletionStore::of(&place.storage).unwrap().unwrap()
}

#[test]
fn a_run_is_one_row_however_often_it_comes() {
    on_each(async |place, server| {
        let sql = |text: &str| server.sql(place.storage.database(), text);
        let mut store = open(place);
        let of = whence("maple", LOG);
        store.put(&of, &[row(3, 1), row(5, 2)]).await.unwrap();
        // Its answer was lost, and more have come.
        store.put(&of, &[row(5, 2), row(9, 3)]).await.unwrap();
        assert_eq!(sql("SELECT COUNT(*) FROM jobcomp_table"), "3");
        assert_eq!(sql("SELECT SUM(jobid) FROM jobcomp_table"), "6");
        // What is deleted stays so: it is not stored twice.
        sql("DELETE FROM jobcomp_table");
        open(place).put(&of, &[row(3, 1), row(9, 3), row(11, 4)]).await.unwrap();
        assert_eq!(sql("SELECT jobid FROM jobcomp_table"), "4");
        // Another cluster, and a controller that has begun with nothing.
        store.put(&whence("oak", LOG), &[row(2, 7)]).await.unwrap();
        store.put(&whence("maple", LogId(2, 2)), &[row(1, 8)]).await.unwrap();
        assert_eq!(sql("SELECT SUM(jobid) FROM jobcomp_table"), "19");
    });
}

#[test]
fn a_row_has_the_columns_of_slurms_table() {
    on_each(async |place, server| {
        let mut never_ran = row(2, 2);
        (never_ran.nodes, never_ran.name) = (String::new(), "\u{fc}x\0y".into());
        open(place).put(&whence("maple", LOG), &[row(1, 1), never_ran]).await.unwrap();
        for (column, want) in [
            ("user_name", "alice"),
            ("group_name", "users"),
            ("name", "a b'c"),
            ("state", "5"),
            ("timelimit", "UNLIMITED"),
            ("nodelist", "n[1-2]"),
            ("nodecnt", "2"),
            ("proc_cnt", "8"),
            ("starttime", "1000"),
            ("endtime", "1001"),
            ("uid", "1001"),
            ("gid", "100"),
            ("maxprocs", "0"),
        ] {
            let text = format!("SELECT {column} FROM jobcomp_table WHERE jobid = 1");
            assert_eq!(server.sql(place.storage.database(), &text), want, "{column}");
        }
        let none = "SELECT COUNT(*) FROM jobcomp_table WHERE nodelist IS NULL AND jobid = 2";
        assert_eq!(server.sql(place.storage.database(), none), "1");
        let characters = "SELECT CHAR_LENGTH(name) FROM jobcomp_table WHERE jobid = 2";
        assert_eq!(server.sql(place.storage.database(), characters), "2");
    });
}

#[test]
fn a_row_that_the_table_does_not_take_holds_up_no_other() {
    on_each(async |place, server| {
        let sql = |text: &str| server.sql(place.storage.database(), text);
        let mut store = open(place);
        let of = whence("maple", LOG);
        store.put(&of, &[row(1, 1)]).await.unwrap();
        // A table as a site may have made it: narrower.
        let narrow = if sql("SELECT VERSION()").contains("MariaDB") {
            "ALTER TABLE jobcomp_table MODIFY name VARCHAR(8) NOT NULL"
        } else {
            "ALTER TABLE jobcomp_table ALTER COLUMN name TYPE VARCHAR(8)"
        };
        sql(narrow);
        let mut long = row(2, 2);
        long.name = "x".repeat(300);
        store.put(&of, &[long, row(3, 3)]).await.unwrap();
        assert_eq!(sql("SELECT SUM(jobid) FROM jobcomp_table"), "4");
        assert_eq!(sql("SELECT position FROM jobcomp_positions"), "3");
    });
}

#[test]
fn a_table_of_slurm_is_gone_on_with() {
    let Some(place) = Place::shared(Program::MariaDb) else { return };
    let server = Arc::clone(place.server.as_ref().unwrap());
    run(async {
        // As Slurm 22.05 makes it, with its row.
        let table = MYSQL.split(';').next().unwrap().replace("utf8mb4", "latin1");
        server.sql(place.storage.database(), &table);
        let theirs = "INSERT INTO jobcomp_table (jobid, uid, user_name, gid, group_name, name, state, `partition`, timelimit, \
                      nodecnt, proc_cnt) VALUES (1, 0, 'root', 0, 'root', 'x', 3, 'debug', '5', 1, 1)";
        server.sql(place.storage.database(), theirs);
        open(&place).put(&whence("maple", LOG), &[row(1, 2)]).await.unwrap();
        assert_eq!(server.sql(place.storage.database(), "SELECT SUM(jobid) FROM jobcomp_table"), "3");
    });
}

#[test]
fn a_server_that_is_away_gets_them_when_it_is_back() {
    for program in [Program::Postgres, Program::MariaDb] {
        let Some(server) = Server::start(program) else { continue };
        let server = Arc::new(server);
        let place = Place::on(Arc::clone(&server), program);
        run(async {
            let mut store = open(&place);
            let of = whence("maple", LOG);
            store.put(&of, &[row(1, 1)]).await.unwrap();
            server.kill();
            while store.put(&of, &[row(2, 2)]).await.is_ok() {}
            assert!(matches!(store.put(&of, &[row(2, 2)]).await, Err(StoreError::Away(_))));
            server.run();
            while let Err(error) = store.put(&of, &[row(2, 2), row(3, 3)]).await {
                assert!(error.is_lost(), "{error}");
            }
            let sum = server.sql(place.storage.database(), "SELECT SUM(jobid) FROM jobcomp_table");
            assert_eq!(sum, "6");
        });
    }
}

/// A program that says who it is.
fn program(place: &Place, text: &str) -> std::path::PathBuf {
    let script = std::env::temp_dir().join(format!("password-{}-{}", std::process::id(), place.storage.database()));
    garrick_kernel::scratch::put_program(&script, text);
    script
}

#[test]
fn a_program_tells_the_password_of_each_connection() {
    on_each(async |place, server| {
        let count = program(place, "").with_extension("count");
        let text = |password: &str| format!("#!/bin/sh\necho x >> {}\necho '{password}'\n", count.display());
        let script = program(place, &text(garrick_database_servers::PASSWORD));
        let mut storage = place.storage.clone();
        (storage.password, storage.password_script) = (Some(Password::new("wrong")), Some(script.clone()));
        let mut store = CompletionStore::of(&storage).unwrap().unwrap();
        let of = whence("maple", LOG);
        store.put(&of, &[row(1, 1)]).await.unwrap();
        store.put(&of, &[row(2, 2)]).await.unwrap();
        assert_eq!(server.sql(storage.database(), "SELECT SUM(jobid) FROM jobcomp_table"), "3");
        assert_eq!(std::fs::read_to_string(&count).unwrap().lines().count(), 1, "once for a connection");
        for (text, said) in [
            ("#!/bin/sh\necho hush; exit 3\n", "exit status: 3"),
            ("#!/bin/sh\n", "prints no password"),
            ("no program", "cannot be started"),
        ] {
            program(place, text);
            let error = CompletionStore::of(&storage).unwrap().unwrap().put(&of, &[row(3, 3)]).await.unwrap_err();
            let told = error.to_string();
            assert!(matches!(error, StoreError::Away(_)) && told.contains(said) && !told.contains("hush"), "{told}");
        }
        program(place, &text("another"));
        let refused = CompletionStore::of(&storage).unwrap().unwrap().put(&of, &[row(3, 3)]).await.unwrap_err();
        assert!(matches!(refused, StoreError::Refused { .. }), "{refused}");
        std::fs::remove_file(script).unwrap();
    });
}

#[test]
fn what_was_recorded_is_read_in_pages_and_what_slurm_recorded_too() {
    on_each(async |place, server| {
        let mut store = open(place);
        assert_eq!(store.page(None).await.unwrap(), [], "there is no table yet");
        let mut store = open(place);
        let mut never_ran = row(1, 7);
        (never_ran.nodes, never_ran.name) = (String::new(), "\u{fc}x".into());
        let rows: Vec<CompletionRow> =
            std::iter::once(never_ran).chain((2..=1100).map(|at| row(at, 10_000 + at as u32))).collect();
        store.put(&whence("maple", LOG), &rows).await.unwrap();
        let partition = if server.sql(place.storage.database(), "SELECT VERSION()").contains("MariaDB") {
            "`partition`"
        } else {
            "partition"
        };
        let theirs = format!(
            "INSERT INTO jobcomp_table (jobid, uid, user_name, gid, group_name, name, state, {partition}, timelimit, starttime, \
             endtime, nodecnt, proc_cnt) VALUES (8, 0, 'root', 0, 'root', 'x', 3, 'debug', '5', 4000000000, 4000000001, 1, 1)"
        );
        server.sql(place.storage.database(), &theirs);
        let mut read = Vec::new();
        let mut after = None;
        loop {
            let page = store.page(after).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some(last.key());
            read.extend(page);
        }
        let told =
            |row: &CompletionRow| (row.job, row.start, row.end, row.name.clone(), row.nodes.clone(), row.node_count);
        let unnumbered = |row: &CompletionRow| CompletionRow { position: Position::default(), ..row.clone() };
        assert_eq!(read.len(), 1101);
        assert_eq!(read[0], unnumbered(&rows[0]));
        assert_eq!(told(&read[1]), (8, 4_000_000_000, 4_000_000_001, "x".into(), String::new(), 1));
        assert_eq!(read[2..], rows[1..].iter().map(unnumbered).collect::<Vec<_>>());
    });
}
