//! Accounting of a site whose records are on a database server, with a `slurmdbd.conf` as sites have it.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::{
    deployment::{ALICE, ROOT, SLURM, Site},
    triggers::Told,
};
use garrick_database_servers::{PASSWORD, Program, Server, USER};
use std::{fs, os::unix::fs::PermissionsExt as _};

/// A site with accounting on that server. Nothing is started.
fn site(name: &str, server: &Server, storage_type: &str) -> Option<Site> {
    let site = Site::new(name, &["n1"])?;
    for command in ["sacct", "sacctmgr", "sreport", "strigger"] {
        std::os::unix::fs::symlink("garrick", site.work.join(command)).unwrap();
    }
    let text = fs::read_to_string(&site.conf).unwrap();
    fs::write(&site.conf, format!("AccountingStorageType=accounting_storage/slurmdbd\n{text}")).unwrap();
    server.create_database("slurm_acct_db");
    let w = site.work.display();
    let says = site.work.join("password");
    fs::write(&says, format!("#!/bin/sh\necho {PASSWORD}\n")).unwrap();
    fs::set_permissions(&says, fs::Permissions::from_mode(0o755)).unwrap();
    let settings = format!(
        "AuthType=auth/munge\nDbdHost=localhost\nSlurmUser={}\nDebugLevel=info\nDebugFlags=AuditRPCs\n\
         StorageType={storage_type}\nStorageHost=127.0.0.1\nStoragePort={}\nStorageUser={USER}\nStoragePass=old\n\
         StoragePassScript={w}/password\n\
         StorageLoc=slurm_acct_db\nLogFile={w}/log/slurmdbd.log\nPidFile={w}/run/slurmdbd.pid\n",
        SLURM.0, server.port
    );
    let conf = site.work.join("slurmdbd.conf");
    fs::write(&conf, settings).unwrap();
    fs::set_permissions(&conf, fs::Permissions::from_mode(0o600)).unwrap();
    Some(site)
}

/// What sacct says of all jobs of a user, without headings.
fn rows(site: &Site, words: &[&str]) -> Vec<String> {
    let all = [&["-nPX", "-S", "now-1days"], words].concat();
    site.as_user(ALICE, "sacct", &all).out.lines().map(str::to_owned).collect()
}

fn a_site_accounts_on(program: Program, name: &str, storage_type: &str) {
    const TASKS: usize = 6;
    let Some(server) = Server::start(program) else { return };
    let Some(site) = site(name, &server, storage_type) else { return };
    // A password that everybody can read is none.
    let conf = site.work.join("slurmdbd.conf");
    fs::set_permissions(&conf, fs::Permissions::from_mode(0o644)).unwrap();
    let refused = site.as_user(ROOT, "slurmdbd", &["-f", conf.to_str().unwrap()]);
    assert!(refused.code != 0 && refused.err.contains("its mode is 644"), "{refused:?}");
    fs::set_permissions(&conf, fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&conf, Some(ALICE.1), None).unwrap();
    let refused = site.as_user(ROOT, "slurmdbd", &["-f", conf.to_str().unwrap()]);
    assert!(refused.code != 0 && refused.err.contains(&format!("belongs to {}", ALICE.0)), "{refused:?}");
    std::os::unix::fs::chown(&conf, Some(SLURM.1), None).unwrap();
    site.start_accounting();
    site.daemon(ROOT, "slurmctld", &[]);
    site.start_nodes();
    let root = |words: &[&str]| site.as_user(ROOT, words[0], &words[1..]);
    site.await_that("the cluster is known", || {
        root(&["sacctmgr", "-nP", "show", "cluster", "format=cluster"]).out == "site\n"
    });
    root(&["sacctmgr", "-i", "add", "account", "physics", "Description=phys"]).ok();
    root(&["sacctmgr", "-i", "add", "user", ALICE.0, "account=physics"]).ok();
    let shown = root(&["sacctmgr", "show", "config"]).ok().out;
    for line in [
        "StorageBackupHost      = (null)".to_owned(),
        "StorageHost            = 127.0.0.1".to_owned(),
        "StorageLoc             = slurm_acct_db".to_owned(),
        format!("StoragePort            = {}", server.port),
        format!("StorageType            = {storage_type}"),
        format!("StorageUser            = {USER}"),
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
    }
    assert!(!shown.contains(PASSWORD), "{shown}");
    let log = fs::read_to_string(site.work.join("log/slurmdbd.log")).unwrap();
    let audited = |words: &[&str]| log.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(audited(&["audit", "Config", "root"]) && audited(&["audit", "Change", "root"]), "{log}");
    assert!(!log.contains(PASSWORD), "{log}");
    // Jobs go on while the database is away, and are told of when it is back.
    let w = site.work.display();
    let told = Told::new(&site);
    told.set(&site, &["-h", "-H", "-g"]);
    let send = || {
        // Use is counted in whole seconds.
        let steps = format!("{w}/srun -n1 sleep 1");
        let tasks = format!("1-{TASKS}");
        site.as_user(ALICE, "sbatch", &["-a", &tasks, "-n1", "--mem=10", "-o", "/dev/null", "--wrap", &steps]).ok();
    };
    send();
    let completed = |count: usize| {
        let rows = rows(&site, &["-o", "account,state"]);
        rows.len() == count && rows.iter().all(|row| row == "physics|COMPLETED")
    };
    site.await_that("jobs are recorded", || completed(TASKS));
    server.kill();
    site.await_that("the service says that the database is away", || {
        let down = root(&["sacctmgr", "ping"]);
        down.code == 1 && down.out.ends_with("is DOWN\n") && down.err.contains("the database is away")
    });
    let away = site.as_user(ALICE, "sacct", &[]);
    assert!(away.code != 0 && away.err.contains("the database is away"), "{away:?}");
    send();
    let over = || site.as_user(ALICE, "squeue", &["-h"]).out.is_empty();
    site.await_that("jobs run without it", over);
    told.await_all(&site, &["-h *"]);
    server.run();
    site.await_that("all are recorded", || completed(2 * TASKS));
    told.await_all(&site, &["-h *", "-H *"]);
    assert!(root(&["sacctmgr", "ping"]).ok().out.ends_with("is UP\n"));
    let used =
        root(&["sreport", "-nP", "-t", "hours", "user", "top", "start=today", "end=now", "format=account,login"]);
    assert_eq!(used.ok().out, format!("physics|{}\n", ALICE.0));
    assert_eq!(server.sql("slurm_acct_db", "SELECT COUNT(*) FROM jobs"), (2 * TASKS).to_string());
    let steps = server.sql("slurm_acct_db", "SELECT COUNT(*) FROM steps");
    assert_eq!(steps, (4 * TASKS).to_string(), "each has its batch script and a step");
    site.kill_daemon("slurmdbd");
    told.await_all(&site, &["-h *", "-H *", "-g *"]);
    told.set(&site, &["-G"]);
    site.start_accounting();
    told.await_all(&site, &["-h *", "-H *", "-g *", "-G *"]);
    site.kill_daemon("slurmdbd");
    site.end();
}

#[test]
fn a_site_accounts_on_mariadb() {
    a_site_accounts_on(Program::MariaDb, "mariadb", "accounting_storage/mysql");
}

#[test]
fn a_site_accounts_on_postgresql() {
    a_site_accounts_on(Program::Postgres, "postgresql", "accounting_storage/postgresql");
}
