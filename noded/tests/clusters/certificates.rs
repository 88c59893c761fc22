//! Certificates of a real cluster: listed, made anew while jobs run, and taken back from a node.
#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Cluster, answer, is_root};
use std::process::Command;

/// Serial numbers of a node's certificates, the oldest first, each with its state.
fn certificates(cluster: &Cluster, name: &str) -> Vec<(String, String)> {
    let list = cluster.sh("garrick certs list").ok().out;
    let of_name = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let of_name = of_name.filter(|words| words.get(1) == Some(&name) && words.len() >= 6);
    of_name.map(|words| (words[2].to_owned(), words[5].to_owned())).collect()
}

#[test]
fn certificates_are_renewed_under_running_jobs() {
    let cluster = Cluster::up("renew", &["--nodes", "2", "--cpus", "2", "--memory", "500"]);
    let gate = cluster.fifo("gate");
    let wrap = format!("read -r line < {}; srun -N2 hostname > /dev/null && exit 5", gate.display());
    let job = cluster.run("sbatch", &["-N2", "-o", "/dev/null", "--wrap", &wrap]).ok().job();
    cluster.await_state(&job, "RUNNING");
    let before = certificates(&cluster, "n1");
    assert_eq!(before.len(), 1, "{before:?}");
    cluster.sh("garrick certs renew n1").ok();
    cluster.await_that("n1 has another certificate", || certificates(&cluster, "n1").len() == 2);
    assert_eq!(certificates(&cluster, "n2").len(), 1, "it was not asked");
    cluster.sh("garrick certs renew").ok();
    cluster.await_that("both have another", || {
        certificates(&cluster, "n1").len() == 3 && certificates(&cluster, "n2").len() == 2
    });
    let kept = |node: &str| std::fs::read_to_string(cluster.home.join(format!("spool/{node}/identity/identity.pem")));
    let first = kept("n1").unwrap();
    cluster.sh("garrick certs renew n1").ok();
    cluster.await_that("it is kept for the next start", || kept("n1").is_ok_and(|now| now != first));
    // Step managers and shepherds find each other with the new ones.
    std::fs::write(&gate, "go\n").unwrap();
    cluster.await_state(&job, "FAILED");
    assert_eq!(cluster.job_field(&job, "ExitCode").as_deref(), Some("5:0"));
}

#[test]
fn a_node_whose_certificate_is_revoked_stays_out_until_somebody_vouches_for_it() {
    let cluster = Cluster::up("revoke", &["--nodes", "2", "--cpus", "2", "--memory", "500"]);
    let state = |node: &str| cluster.run("sinfo", &["-h", "-N", "-n", node, "-o", "%T"]).out.trim().to_owned();
    assert_eq!(state("n2"), "idle");
    let pid = cluster.pid_of("node", Some("n2"));
    cluster.sh("garrick certs revoke n2").ok();
    assert!(certificates(&cluster, "n2").iter().all(|(_, state)| state == "revoked"));
    cluster.await_that("n2 is down", || state("n2").starts_with("down"));
    let log = || std::fs::read_to_string(cluster.home.join("log/slurmd-n2.log")).unwrap_or_default();
    cluster.await_that("it is told why", || log().contains("was revoked"));
    // Not by starting again, and not by joining on this host as it did first.
    cluster.kill(pid);
    let conf = cluster.home.join("etc/slurm.conf");
    let slurmd = |token: Option<&str>| {
        let mut command = Command::new(crate::support::built().join("noded"));
        command.args(["--role", "node", "-N", "n2", "-f", conf.to_str().unwrap(), "--home"]).arg(&cluster.home);
        if let Some(token) = token {
            let path = cluster.work.join("token");
            let mut file = std::fs::OpenOptions::new();
            let file = std::os::unix::fs::OpenOptionsExt::mode(file.write(true).create(true), 0o600).open(&path);
            std::io::Write::write_all(&mut file.unwrap(), token.as_bytes()).unwrap();
            command.arg("--token-file").arg(path);
        }
        command.env("GARRICK_HOME", &cluster.home);
        answer(&mut command)
    };
    let identity = cluster.home.join("spool/n2/identity");
    std::fs::remove_dir_all(&identity).unwrap();
    let refused = slurmd(None);
    assert!(refused.code != 0 && refused.err.contains("was revoked"), "{refused:?}");
    // The others go on.
    cluster.run("srun", &["-w", "n1", "true"]).ok();
    let of_n1 = cluster.sh("garrick token --node n1").ok().out;
    let refused = slurmd(Some(&of_n1));
    assert!(refused.code != 0 && refused.err.contains("this token is for node n1"), "{refused:?}");
    let token = cluster.sh("garrick token --node n2").ok().out;
    slurmd(Some(&token)).ok();
    cluster.sh("scontrol update nodename=n2 state=resume").ok();
    cluster.await_that("n2 is back", || state("n2") == "idle");
    cluster.run("srun", &["-w", "n2", "true"]).ok();
    if is_root() {
        // A copy: the folder in which it was built may be closed to other users.
        let own = cluster.work.join("of-a-user");
        crate::support::copy_program(&crate::support::built().join("garrick"), &own);
        let mut command = Command::new(own);
        std::os::unix::process::CommandExt::arg0(&mut command, "garrick");
        command.args(["certs", "list"]).env("GARRICK_HOME", &cluster.home).current_dir("/");
        let refused = answer(std::os::unix::process::CommandExt::uid(&mut command, 65534));
        assert!(refused.code != 0 && refused.out.is_empty(), "{refused:?}");
        assert!(refused.err.contains("Access/permission denied"), "{refused:?}");
    }
}

#[test]
fn the_authority_is_replaced_under_a_running_job_and_waits_for_a_node_that_is_away() {
    let cluster = Cluster::up("rotate", &["--nodes", "2", "--cpus", "2", "--memory", "500"]);
    let public = || std::fs::read_to_string(cluster.home.join("state/ca/ca.crt")).unwrap_or_default();
    let first = public();
    assert!(first.contains("BEGIN CERTIFICATE"));
    let gate = cluster.fifo("gate");
    let step = "srun -N2 hostname > /dev/null";
    let wrap = format!("{step} && read -r line < {} && {step} && exit 5", gate.display());
    let job = cluster.run("sbatch", &["-N2", "-o", "/dev/null", "--wrap", &wrap]).ok().job();
    cluster.await_state(&job, "RUNNING");
    cluster.kill(cluster.pid_of("node", Some("n2")));
    cluster.sh("garrick certs rotate").ok();
    let list = || cluster.sh("garrick certs list").ok().out;
    let made_known = "it is made known; 1 nodes are missing: n2\n";
    cluster.await_that("n1 trusts the new one", || list().ends_with(made_known));
    assert_eq!(public(), first, "the old one issues");
    // It goes on where it was after a restart of the controller.
    cluster.kill(cluster.pid_of("controller", None));
    let conf = cluster.home.join("etc/slurm.conf");
    let mut controller = Command::new(crate::support::built().join("noded"));
    controller.args(["--role", "controller", "-f", conf.to_str().unwrap(), "--home"]).arg(&cluster.home);
    answer(controller.env("GARRICK_HOME", &cluster.home)).ok();
    cluster.await_that("n1 said so again", || list().ends_with(made_known));
    cluster.sh("garrick up").ok();
    cluster.await_that("it is done", || !list().contains("A new authority"));
    assert_ne!(public(), first);
    let kept = |path: &str| std::fs::read_to_string(cluster.home.join(path)).unwrap();
    for own in ["state/identity/identity.pem", "spool/n1/identity/identity.pem", "spool/n2/identity/identity.pem"] {
        let body = |text: &str| text.lines().skip(1).take(4).collect::<Vec<_>>().join("\n");
        cluster.await_that("the old one is not trusted any more", || {
            kept(own).contains(&body(&public())) && !kept(own).contains(&body(&first))
        });
    }
    // Step managers and shepherds were there before all that.
    std::fs::write(&gate, "go\n").unwrap();
    cluster.await_state(&job, "FAILED");
    assert_eq!(cluster.job_field(&job, "ExitCode").as_deref(), Some("5:0"));
    // Once more, and without waiting for who does not come.
    cluster.kill(cluster.pid_of("node", Some("n2")));
    let second = public();
    cluster.sh("garrick certs rotate").ok();
    cluster.await_that("n1 trusts the new one", || list().ends_with(made_known));
    cluster.sh("garrick certs rotate --leave-behind").ok();
    cluster.await_that("n1 has its certificate", || list().ends_with("still trusted; 1 nodes are missing: n2\n"));
    cluster.sh("garrick certs rotate --leave-behind").ok();
    cluster.await_that("it is done", || !list().contains("A new authority"));
    assert_ne!(public(), second);
    cluster.run("srun", &["-w", "n1", "true"]).ok();
}

/// The controller's start, as `garrick up` does it.
fn start_controller(cluster: &Cluster, also: &[&str]) -> crate::support::Answer {
    let mut controller = Command::new(crate::support::built().join("noded"));
    controller.args(["--role", "controller", "-f"]).arg(cluster.home.join("etc/slurm.conf")).args(also);
    answer(controller.arg("--home").arg(&cluster.home).env("GARRICK_HOME", &cluster.home))
}

/// Bytes as a secret of the controller's.
fn put(path: &std::path::Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

/// The disk is as a kill leaves it: between a piece and its event, between that and the place of the piece. And as no kill leaves it.
#[test]
fn a_controller_that_was_killed_amid_a_change_of_its_authority_goes_on_by_its_log() {
    let cluster = Cluster::up("beside", &["--nodes", "1", "--cpus", "2", "--memory", "500"]);
    let state = cluster.home.join("state");
    let (register, beside) = (state.join("ca/issued"), state.join("beside"));
    let sha256 = |bytes: &[u8]| {
        let digest = garrick_transport::identity::fingerprint(bytes);
        digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let under_way = || std::fs::read_dir(&beside).map_or(0, |entries| entries.count());
    let kill = || cluster.kill(cluster.pid_of("controller", None));
    let number = || certificates(&cluster, "n1").len();
    // With the node's second certificate the register is another.
    let first = std::fs::read(&register).unwrap();
    cluster.sh("garrick certs renew n1").ok();
    cluster.await_that("n1 has another certificate", || number() == 2);
    let second = std::fs::read(&register).unwrap();
    // Before the event: nobody was told of it.
    kill();
    put(&beside.join(sha256(b"of a certificate that nobody has")), b"of a certificate that nobody has");
    start_controller(&cluster, &[]).ok();
    assert_eq!((number(), under_way()), (2, 0));
    // After the event: the change is finished.
    kill();
    put(&register, &first);
    put(&beside.join(sha256(&second)), &second);
    start_controller(&cluster, &[]).ok();
    assert_eq!((number(), under_way()), (2, 0));
    assert_eq!(std::fs::read(&register).unwrap(), second);
    // An older register put back by hand, with which a certificate could not be revoked.
    kill();
    put(&register, &first);
    let refused = start_controller(&cluster, &[]);
    assert!(refused.code != 0, "{refused:?}");
    for part in ["ca/issued: it is not the version that the log names", "-i"] {
        assert!(refused.err.contains(part), "{refused:?}");
    }
    put(&register, &second);
    std::fs::rename(state.join("credential.key"), state.join("away")).unwrap();
    let refused = start_controller(&cluster, &[]);
    assert!(refused.code != 0 && refused.err.contains("credential.key: it is missing"), "{refused:?}");
    std::fs::rename(state.join("away"), state.join("credential.key")).unwrap();
    start_controller(&cluster, &[]).ok();
    assert_eq!(number(), 2);
    cluster.run("srun", &["true"]).ok();
    // Whoever says so goes by what is there.
    kill();
    put(&register, &first);
    start_controller(&cluster, &["-i"]).ok();
    assert_eq!(number(), 1);
    kill();
    start_controller(&cluster, &[]).ok();
    assert_eq!(number(), 1);
    // What the log says can be read, and holds no secret.
    let shown = cluster.run("garrick", &["journal", "show", state.join("journal").to_str().unwrap()]).ok().out;
    assert!(shown.contains("piece ca/issued") && shown.contains(&sha256(&first)), "{shown}");
    let key = std::fs::read_to_string(state.join("credential.key")).unwrap();
    assert!(
        !std::fs::read(state.join("journal"))
            .unwrap()
            .windows(key.trim().len())
            .any(|part| part == key.trim().as_bytes())
    );
    cluster.down();
}
