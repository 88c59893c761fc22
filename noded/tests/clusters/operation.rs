//! What operators do to daemons that run: signals, logs and their levels, reading the configuration again.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::Cluster;
use garrick_daemon::signals::{self, Meaning};
use std::path::PathBuf;

fn one_node(name: &str) -> Cluster {
    Cluster::up(name, &["--nodes", "1", "--cpus", "2"])
}

fn log_of(c: &Cluster, daemon: &str) -> PathBuf {
    c.home.join(format!("log/{daemon}.log"))
}

fn logged(c: &Cluster, daemon: &str) -> String {
    std::fs::read_to_string(log_of(c, daemon)).unwrap_or_default()
}

fn send(c: &Cluster, pid: i32, numbers: impl Iterator<Item = i32>) {
    for number in numbers {
        c.shell(&format!("kill -{number} {pid}")).ok();
    }
}

/// All signals that are to be without effect on a process, or only to have it read something again.
fn harmless() -> impl Iterator<Item = i32> {
    let by_default = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];
    signals::all().filter(move |number| match signals::meaning(*number) {
        Meaning::Nothing | Meaning::Reconfigure | Meaning::ReopenLog => true,
        Meaning::Kernel => by_default.contains(number),
        Meaning::End => false,
    })
}

#[test]
fn every_signal_means_something() {
    let of = |meaning| signals::all().filter(|number| signals::meaning(*number) == meaning).collect::<Vec<_>>();
    assert_eq!(of(Meaning::End), [libc::SIGINT, libc::SIGTERM]);
    assert_eq!((of(Meaning::Reconfigure), of(Meaning::ReopenLog)), (vec![libc::SIGHUP], vec![libc::SIGUSR2]));
    // slurmctld(8) lists these as ignored.
    for number in [libc::SIGUSR1, libc::SIGTSTP, libc::SIGXCPU, libc::SIGQUIT, libc::SIGPIPE, libc::SIGALRM] {
        assert_eq!(signals::meaning(number), Meaning::Nothing);
    }
    assert!(of(Meaning::Nothing).len() > 30, "those for real time too");
}

// Slurm's recipe for logrotate sends SIGUSR2 to both daemons, which ended them.
#[test]
fn signals_that_do_not_ask_for_the_end_do_not_bring_it() {
    let c = one_node("signals");
    let go = c.fifo("go");
    let job = c.run("sbatch", &["-o", "out", "--wrap", "cat go"]).ok().job();
    c.await_state(&job, "RUNNING");
    let of_daemons = [("slurmctld", c.pid_of("controller", None)), ("slurmd-n1", c.pid_of("node", Some("n1")))];
    let stepd = c.stepd_of(&job, "n1").unwrap();
    for (daemon, pid) in of_daemons {
        send(&c, pid, harmless());
        let log = log_of(&c, daemon);
        let before = logged(&c, daemon);
        std::fs::rename(&log, log.with_extension("old")).unwrap();
        send(&c, pid, [libc::SIGUSR2].into_iter());
        c.await_that("the log is opened anew", || logged(&c, daemon).contains("the log was opened anew"));
        let old = std::fs::read_to_string(log.with_extension("old")).unwrap();
        assert!(old.starts_with(&before), "what was written stays with the old file");
    }
    assert_eq!(of_daemons.map(|(_, pid)| pid), [c.pid_of("controller", None), c.pid_of("node", Some("n1"))]);
    send(&c, stepd, harmless().chain([libc::SIGTERM, libc::SIGINT]));
    assert_eq!(c.stepd_of(&job, "n1"), Some(stepd));
    std::fs::write(go, "gone\n").unwrap();
    c.await_state(&job, "COMPLETED");
    assert_eq!(c.read("out"), "gone\n");
    for ((daemon, pid), number) in of_daemons.into_iter().zip([libc::SIGINT, libc::SIGTERM]).rev() {
        send(&c, pid, [number].into_iter());
        c.await_that("it ended", || !PathBuf::from(format!("/proc/{pid}/exe")).exists());
        assert!(logged(&c, daemon).contains("shutting down"), "{}", logged(&c, daemon));
    }
}

#[test]
fn log_levels_are_those_of_the_configuration_until_they_are_set() {
    let c = Cluster::up_with("levels", &["--nodes", "1", "--cpus", "2"], |_| {
        "SlurmctldDebug=error\nSlurmdDebug=debug".to_owned()
    });
    // Of the start before the change of the configuration there are lines of all kinds.
    let began = logged(&c, "slurmctld").len();
    let since = || logged(&c, "slurmctld").split_off(began);
    let quick = || {
        let job = c.run("sbatch", &["-o", "/dev/null", "--wrap", "true"]).ok().job();
        c.await_state(&job, "COMPLETED");
        job
    };
    quick();
    assert_eq!(since(), "");
    c.await_that("the node logs more", || logged(&c, "slurmd-n1").contains(" debug: "));
    c.sh("scontrol setdebug info").ok();
    let job = quick();
    assert!(since().contains(&format!("job.ended job_id={job} ")) && !since().contains(" debug: "), "{}", since());
    c.sh("scontrol setdebug 5").ok();
    quick();
    assert!(since().contains(" debug: "), "{}", since());
    for (wrong, why) in [
        ("loud", "loud"),
        ("10", "10"),
        ("", "too few arguments"),
        ("info nodes=n[", "n["),
        ("info nodes=n7", "Invalid node name"),
    ] {
        let answer = c.sh(&format!("scontrol setdebug {wrong}"));
        assert!(answer.code != 0 && answer.err.contains(why), "{answer:?}");
    }
    // It is for the time being.
    c.sh("scontrol reconfigure").ok();
    let then = since().len();
    quick();
    assert_eq!(&since()[then..], "");
}

#[test]
fn topics_are_logged_as_the_site_says_and_as_administrators_ask_for_a_while() {
    let c = Cluster::up_with("topics", &["--nodes", "2", "--cpus", "2"], |_| "DebugFlags=TraceJobs".to_owned());
    let since = |log: &str, began: usize| logged(&c, log).split_off(began);
    let job = || {
        let job = c.run("sbatch", &["-w", "n1", "-o", "/dev/null", "--wrap", "true"]).ok().job();
        c.await_state(&job, "COMPLETED");
        job
    };
    let asked = |log: &str| log.lines().any(|line| line.contains(" debug: command.asked request="));
    let changed = |log: &str, job: &str| log.contains(&format!(" debug: job.move job_id={job} "));
    let first = job();
    let began = logged(&c, "slurmctld").len();
    assert!(changed(&logged(&c, "slurmctld"), &first) && !asked(&logged(&c, "slurmctld")));
    c.sh("scontrol setdebugflags -tracejobs +AuditRPCs").ok();
    let second = job();
    let log = since("slurmctld", began);
    assert!(
        asked(&log) && log.contains(&format!(" uid={} ", nix::unistd::geteuid())) && !changed(&log, &second),
        "{log}"
    );
    // A node's daemon has a log of its own.
    let of_node = ["n1", "n2"].map(|node| logged(&c, &format!("slurmd-{node}")).len());
    c.sh("scontrol setdebugflags +agent nodes=n1").ok();
    c.sh("scontrol setdebug error nodes=n2").ok();
    job();
    assert!(since("slurmd-n1", of_node[0]).contains(" debug: agent.heard "));
    assert_eq!(since("slurmd-n2", of_node[1]), "");
    for (wrong, why) in [
        ("tracejobs", "invalid debug flag: tracejobs"),
        ("+loud", "loud"),
        ("-gang", "not supported yet"),
        ("", "too few arguments"),
        ("+steps nodes=n[1,9]", "Invalid node name"),
    ] {
        let answer = c.sh(&format!("scontrol setdebugflags {wrong}"));
        assert!(answer.code != 0 && answer.err.contains(why), "{answer:?}");
    }
    // It is for the time being.
    c.sh("scontrol reconfigure").ok();
    let began = logged(&c, "slurmctld").len();
    let third = job();
    let log = since("slurmctld", began);
    assert!(changed(&log, &third) && !asked(&log), "{log}");
}

#[test]
fn tasks_are_as_nice_as_who_asks_for_them_where_the_site_says_so() {
    for (mode, asked) in [(0, 7), (1, 7), (2, 7), (2, 0)] {
        let c = Cluster::up_with("nice", &["--nodes", "1", "--cpus", "2"], |_| format!("PropagatePrioProcess={mode}"));
        // This test may be nice itself, and its cluster as much.
        let own: i32 = c.shell("nice").ok().out.trim().parse().unwrap();
        let script = "nice; echo $SLURM_PRIO_PROCESS; srun sh -c 'nice; echo $SLURM_PRIO_PROCESS'";
        let job =
            c.shell(&format!("nice -n {asked} sbatch -o out --wrap \"{}\"", script.replace('$', "\\$"))).ok().job();
        c.await_state(&job, "COMPLETED");
        let then = match mode {
            0 => own,
            1 => own + asked,
            _ => own + asked.max(1),
        };
        assert_eq!(c.read("out"), format!("{then}\n{}\n{then}\n{then}\n", own + asked), "{mode} {asked}");
    }
}

#[test]
fn a_job_leaves_a_line_for_each_thing_that_becomes_of_it() {
    let c = one_node("lines");
    let failed = c.run("sbatch", &["-o", "/dev/null", "--wrap", "exit 3"]).ok().job();
    c.await_state(&failed, "FAILED");
    let again = c.run("sbatch", &["-o", "/dev/null", "--wrap", "sleep 100000"]).ok().job();
    c.await_state(&again, "RUNNING");
    c.sh(&format!("scontrol requeue {again}")).ok();
    c.await_state(&again, "PENDING");
    c.sh(&format!("scancel {again}")).ok();
    c.await_state(&again, "CANCELLED");
    let log = logged(&c, "slurmctld");
    let me = nix::unistd::geteuid();
    for (job, words) in [
        (&failed, vec![format!("job.submitted job_id={failed} uid={me}")]),
        (&failed, vec![format!("job.started job_id={failed} "), "nodes=\"n1\"".into(), "partition=\"main\"".into()]),
        (&failed, vec![format!("job.ended job_id={failed} state=Failed "), "exit=\"3:0\" nodes=\"n1\"".into()]),
        (&again, vec![format!("job.requeue_asked"), format!("job_id={again} by={me}")]),
        (&again, vec![format!("job.requeued job_id={again} restarts=1")]),
        (&again, vec![format!("job.cancel_asked"), format!("job_id={again} by={me}")]),
        (&again, vec![format!("job.ended job_id={again} state=Cancelled reason=BeginTime ")]),
    ] {
        let found = log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count();
        assert_eq!(found, 1, "job {job}: {words:?} in\n{log}");
    }
}

#[test]
fn warnings_of_the_configuration_come_once_a_start() {
    let c = Cluster::up_with("warned", &["--nodes", "1", "--cpus", "2"], |_| "MailDomain=example.org".to_owned());
    for line in ["", "UsePAM=1"] {
        let path = c.home.join("slurm.conf");
        let path = if path.exists() { path } else { c.home.join("etc/slurm.conf") };
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}\n{line}\n")).unwrap();
        c.sh("scontrol reconfigure").ok();
        c.sh("scontrol reconfigure").ok();
    }
    let all = logged(&c, "slurmctld") + &logged(&c, "slurmd-n1");
    assert_eq!(all.lines().filter(|line| line.contains("configuration read again")).count(), 4, "{all}");
    for (key, times) in [("MailDomain", 0), ("UsePAM", 1)] {
        assert_eq!(all.lines().filter(|line| line.contains(key)).count(), times, "{key} in {all}");
    }
}

#[test]
fn a_node_with_another_configuration_and_one_that_is_removed_under_its_job_are_in_the_log() {
    let c = Cluster::up("conf", &["--nodes", "2", "--cpus", "2"]);
    let path = c.home.join("slurm.conf");
    let path = if path.exists() { path } else { c.home.join("etc/slurm.conf") };
    let text = std::fs::read_to_string(&path).unwrap();
    // The nodes read the file before it was changed, and say so when they come again.
    let text = format!("{text}\nKillWait=31\n");
    std::fs::write(&path, &text).unwrap();
    assert!(!logged(&c, "slurmctld").contains("node.conf_differs"));
    c.kill(c.pid_of("controller", None));
    c.sh("garrick up").ok();
    c.await_that("the difference is told", || {
        let log = logged(&c, "slurmctld");
        let line = log.lines().find(|line| line.contains("node.conf_differs")).unwrap_or_default().to_owned();
        line.contains("node=\"n") && line.contains("node_has=") && line.contains("controller_has=")
    });
    let pid = c.work.join("pid");
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 100000", pid.display());
    let job = c.run("sbatch", &["-w", "n2", "-o", "/dev/null", "--wrap", &script]).ok().job();
    c.await_state(&job, "RUNNING");
    c.await_that("its script runs", || pid.exists());
    // The first node alone stays, whatever lines there are of the others.
    let one = text.replace("n[1-2]", "n1");
    let one: Vec<&str> = one.lines().filter(|line| !line.starts_with("NodeName=n2")).collect();
    std::fs::write(&path, one.join("\n") + "\n").unwrap();
    c.sh("scontrol reconfigure").ok();
    c.await_that("the removal is told", || {
        let log = logged(&c, "slurmctld");
        let line = log.lines().find(|line| line.contains("node.removed_under_job")).unwrap_or_default().to_owned();
        line.contains("node=\"n2\"") && line.contains(&format!("job_id={job}"))
    });
    c.await_that("so is where the job went", || {
        logged(&c, "slurmctld").contains(&format!("job.requeued job_id={job}"))
    });
    let process = format!("/proc/{}", std::fs::read_to_string(&pid).unwrap().trim());
    c.await_that("what ran there has ended", || !std::path::Path::new(&process).exists());
    c.sh(&format!("scancel {job}")).ok();
    // Its daemon is to be seen by what ends the cluster.
    std::fs::write(&path, &text).unwrap();
    c.sh("scontrol reconfigure").ok();
}

/// Two tasks that hold 64 MiB each, and their batch script, which holds nothing.
#[test]
fn what_running_steps_use_is_seen_of_their_processes() {
    let c = one_node("sstat");
    let w = c.work.display();
    let hog = c.script(
        "hog",
        &format!(
            "#!/bin/bash\nx=$(head -c 67108864 /dev/zero | tr '\\0' a)\ntouch {w}/holds-$SLURM_PROCID\nwhile [ ! -e {w}/over ]; do \
             sleep 0.1; done; : $x\n"
        ),
    );
    let wrapped = format!("srun {}", hog.display());
    let submitted = c.run("sbatch", &["--parsable", "-n2", "-o", "/dev/null", "--wrap", &wrapped]).ok();
    let job = submitted.out.trim().to_owned();
    c.await_that("both hold their memory", || (0..2).all(|rank| c.work.join(format!("holds-{rank}")).exists()));
    let used = |words: &str| c.sh(&format!("sstat -n -P --noconvert {words}")).ok().out;
    let step = used(&format!("-o jobid,ntasks,maxrss,averss,pids -j {job}"));
    let values: Vec<&str> = step.trim().split('|').collect();
    assert_eq!(values[..2], [format!("{job}.0").as_str(), "2"], "{step}");
    let bytes = |text: &str| text.parse::<u64>().unwrap();
    assert!(bytes(values[2]) > 64 << 20 && bytes(values[3]) > 64 << 20, "{step}");
    // Others of them may just have ended.
    let first = values[4].split(',').next().unwrap();
    assert!(std::path::Path::new(&format!("/proc/{first}")).exists(), "{step}");
    let all = used(&format!("-a -o jobid,maxrss -j {job}"));
    let lines: Vec<&str> = all.lines().collect();
    assert!(lines[0].starts_with(&format!("{job}.batch|")) && lines[1].starts_with(&format!("{job}.0|")), "{all}");
    let batch = lines[0].split('|').next_back().map(bytes).unwrap();
    assert!(batch > 0 && batch < 64 << 20, "{all}");
    std::fs::write(c.work.join("over"), "").unwrap();
    c.await_that("it is over", || !c.run("squeue", &["-h", "-j", &job, "-o", "%i"]).out.contains(&job));
    let told = c.sh(&format!("sstat -n -j {job}")).ok();
    assert_eq!(told.err.trim(), format!("sstat: error: No steps running for JobId={job}"));
}

#[test]
fn who_changes_a_partition_is_told_how_long_that_lasts() {
    let c = one_node("partition");
    let told = c.sh("scontrol -v update PartitionName=main MaxTime=60").ok();
    assert!(told.err.contains("partition main stays so until slurmctld is started again"), "{told:?}");
    assert!(logged(&c, "slurmctld").contains("partition.update: in force until"), "{}", logged(&c, "slurmctld"));
    assert_eq!(c.sh("scontrol update PartitionName=main MaxTime=61").ok().err, "");
}

#[test]
fn a_node_that_is_not_well_takes_itself_out_of_service() {
    let c = Cluster::up_with("health", &["--nodes", "2", "--cpus", "2"], |c| {
        let (w, home) = (c.work.display(), c.home.display());
        let program = c.script(
            "check",
            &format!(
                "#!/bin/bash\necho $SLURM_SCRIPT_CONTEXT >> {w}/checked-$SLURMD_NODENAME\n[ -e {w}/sick-$SLURMD_NODENAME ] || exit 0\n\
                 GARRICK_HOME={home} {w}/bin/scontrol update nodename=$SLURMD_NODENAME state=drain reason=feverish\n"
            ),
        );
        format!("HealthCheckProgram={}\nHealthCheckInterval=1", program.display())
    });
    // Before it registers, and again.
    let checks = |node: &str| c.read(&format!("checked-{node}")).lines().count();
    assert!(checks("n1") >= 1 && checks("n2") >= 1);
    c.await_that("it is checked again", || checks("n1") >= 3);
    assert!(c.read("checked-n1").lines().all(|line| line == "health_check_slurmd"));
    let state = |node: &str| c.run("sinfo", &["-h", "-N", "-n", node, "-o", "%T %E"]).out.trim().to_owned();
    assert_eq!(state("n1"), "idle none");
    std::fs::write(c.work.join("sick-n1"), "").unwrap();
    c.await_that("it is out of service", || state("n1") == "drained feverish");
    assert_eq!(state("n2"), "idle none");
}

/// Commands follow each other in scripts: what one was told is done is there for the next.
#[test]
fn who_is_answered_may_look_at_once() {
    let c = Cluster::up_with("at-once", &["--nodes", "1", "--cpus", "2"], |_| "MaxNodeCount=30\n".to_owned());
    // Tasks that leave their array.
    let array = c.sh("sbatch -H -a 0-19 --wrap true").ok().job();
    for task in 0..20 {
        let change = format!("scontrol update JobId={array}_{task} Comment=c{task}");
        let a = c.shell(&format!("{change} && squeue -h -r -j {array}_{task} -o '%i %k'")).ok();
        assert_eq!(a.out, format!("{array}_{task} c{task}\n"));
    }
    c.shell(&format!("scontrol hold {array}_3 && scontrol release {array}_3")).ok();
    // Nodes that are made, and changed.
    for node in 0..10 {
        let a = c.shell(&format!(
            "scontrol create NodeName=x{node} CPUs=1 State=FUTURE >/dev/null && \
             scontrol update NodeName=x{node} Comment=new && scontrol -F -o show node x{node}"
        ));
        assert_eq!(crate::support::field_of(&a.ok().out, "Comment").as_deref(), Some("new"));
    }
    // Updates that do not outlive that a file is read again.
    for _ in 0..5 {
        let partition = c.sh("sinfo -h -o %R").ok().out.trim().to_owned();
        let limit = |text: &str| crate::support::field_of(text, "MaxTime");
        let shown = limit(&c.sh(&format!("scontrol -o show partition {partition}")).ok().out);
        c.sh(&format!("scontrol update PartitionName={partition} MaxTime=7")).ok();
        let a = c.shell(&format!("scontrol reconfigure && scontrol -o show partition {partition}")).ok();
        assert_eq!(limit(&a.out), shown);
    }
    // Partitions of a file that is read again.
    let conf = c.home.join("etc/slurm.conf");
    for number in 0..5 {
        let mut text = std::fs::read_to_string(&conf).unwrap();
        text.push_str(&format!("PartitionName=p{number} Nodes=n1\n"));
        std::fs::write(&conf, text).unwrap();
        let a = c.shell(&format!(
            "scontrol reconfigure && sinfo -h -p p{number} -o %R && sbatch -H -p p{number} --wrap true"
        ));
        assert!(a.ok().out.starts_with(&format!("p{number}\nSubmitted batch job ")));
    }
}
