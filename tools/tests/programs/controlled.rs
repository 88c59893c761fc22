//! The real commands against a daemon made up on the spot: it serves a door as daemons do and answers what each test tells
//! it to. Whole standard output, standard error and exit codes are compared with Slurm's.

#![allow(clippy::unwrap_used)]

use garrick_frame::{Decoder, Hello, HelloReply, PROTOCOL, Traced, encode, limits};
use garrick_model::{
    entities::association::{AssocId, Association},
    ids::JobId,
    messages::{
        command::{CommandReply, CommandRequest, JobAction, JobSelector, TraceLine},
        priority::{JobPriority, PriorityWeights},
        shares::{AssocView, SharesBoard},
        statistics::AccountingQueue,
    },
    refusal::Refusal,
    time::Timestamp,
    topology::{Layout, NamedTopology, Unit},
    view::LicenseView,
};
use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

/// A folder with a configuration, and a daemon at its door if one is wanted.
struct Place {
    root: PathBuf,
}

static PLACES: AtomicU32 = AtomicU32::new(0);

impl Place {
    /// Nobody serves here.
    fn empty() -> Self {
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("gq-{}-{number}", std::process::id()));
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::create_dir_all(root.join("run")).unwrap();
        // The port makes this cluster's id, and so its run folders, its own.
        let port = 20_000 + std::process::id() % 20_000 + number;
        let conf = format!(
            "ClusterName=gq{number}\nSlurmctldHost=host1\nSlurmctldPort={port}\nSlurmUser=nobody\n\
             NodeName=n[1-2]\nPartitionName=debug Nodes=ALL Default=YES\n"
        );
        fs::write(root.join("etc/slurm.conf"), conf).unwrap();
        Self { root }
    }

    /// A daemon that answers so.
    fn answering(answer: fn(CommandRequest) -> Vec<CommandReply>) -> Self {
        let place = Self::empty();
        let listener = UnixListener::bind(place.root.join("run/ctl.sock")).unwrap();
        thread::spawn(move || {
            for socket in listener.incoming() {
                let socket = socket.unwrap();
                thread::spawn(move || serve(socket, answer));
            }
        });
        place
    }

    fn run(&self, words: &[&str]) -> (String, String, i32) {
        let output = Command::new(env!("CARGO_BIN_EXE_garrick"))
            .args(words)
            .env_clear()
            .env("GARRICK_HOME", &self.root)
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr), output.status.code().unwrap())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.root));
    }
}

/// One conversation; ends when the command closes it.
fn serve(mut socket: UnixStream, answer: fn(CommandRequest) -> Vec<CommandReply>) {
    let mut decoder = Decoder::new(limits::DOOR);
    let mut chunk = [0; 4096];
    let mut greeted = false;
    while let Ok(n @ 1..) = socket.read(&mut chunk) {
        decoder.feed(&chunk[..n]);
        if !greeted {
            let Some(_) = decoder.next::<Hello>().unwrap() else { continue };
            greeted = true;
            let welcome = HelloReply::Welcome { version: PROTOCOL.max, program: "test".to_owned() };
            socket.write_all(&encode(&welcome, limits::DOOR).unwrap()).unwrap();
        }
        while let Some(request) = decoder.next::<Traced<CommandRequest>>().unwrap() {
            for msg in answer(request.msg) {
                let frame = encode(&Traced { trace: 0, cause: 0, msg }, limits::DOOR).unwrap();
                // The command may have heard enough.
                drop(socket.write_all(&frame));
            }
        }
    }
}

fn pong(accounting: AccountingQueue) -> CommandReply {
    CommandReply::Pong { host: "host1".to_owned(), version: "0".to_owned(), accounting }
}

/// Knows no job, node or partition; denies what concerns job 5; everything else is done.
fn knows_nothing(request: CommandRequest) -> Vec<CommandReply> {
    let per_job = |jobs: Vec<JobSelector>| {
        let result = |job: &JobSelector| match job.job.0 {
            5 => Err(Refusal::AccessDenied),
            503 => Ok(()),
            _ => Err(Refusal::InvalidJobId),
        };
        vec![CommandReply::PerJob(jobs.into_iter().map(|j| (j.clone(), result(&j))).collect())]
    };
    match request {
        CommandRequest::Ping => vec![pong(AccountingQueue::default())],
        CommandRequest::ListJobs { jobs, .. } if !jobs.is_empty() => vec![CommandReply::Refused(Refusal::InvalidJobId)],
        CommandRequest::ListJobs { .. } => vec![CommandReply::Jobs { jobs: Vec::new(), at: Timestamp(0), more: false }],
        CommandRequest::ListSteps { .. } => {
            vec![CommandReply::Steps { steps: Vec::new(), missing: Vec::new(), left_out: 0 }]
        }
        CommandRequest::ListPartitions => {
            vec![CommandReply::Partitions {
                partitions: Vec::new(),
                nodes: Vec::new(),
                at: Timestamp(0),
                hidden: Vec::new(),
                nodes_private: false,
            }]
        }
        CommandRequest::ListTopologies => {
            let unit = |name: &str, nodes: &str| Unit { name: name.to_owned(), nodes: nodes.parse().unwrap(), line: 0 };
            let blocks = vec![unit("b1", "n[1-2]"), unit("b2", "n[3-4]")];
            let block = Layout::Block { sizes: vec![2, 4], blocks };
            let named =
                |name: &str, layout| NamedTopology { name: name.to_owned(), cluster_default: false, layout, line: 0 };
            let rings = Layout::Ring { rings: vec![unit("r1", "n[5-8]")] };
            vec![CommandReply::Topologies { topologies: vec![named("first", block), named("second", rings)] }]
        }
        CommandRequest::ListLicenses => {
            let license = |name: &str, total, used| LicenseView {
                name: name.to_owned(),
                total,
                used,
                reserved: 0,
                layer: None,
                remote: None,
            };
            vec![CommandReply::Licenses {
                licenses: vec![license("bar", 2, 0), license("foo", 4, 3)],
                at: Timestamp(0),
            }]
        }
        CommandRequest::ControlJob { jobs, .. } | CommandRequest::UpdateJob { jobs, .. } => per_job(jobs),
        CommandRequest::Cancel(cancel) => per_job(cancel.jobs),
        CommandRequest::UpdateNode { nodes, .. } => {
            vec![CommandReply::Refused(Refusal::InvalidNode(nodes.join(",")))]
        }
        CommandRequest::ShowScript { job: JobId(503) } => {
            vec![CommandReply::Script(b"#!/bin/sh\necho hi\n".to_vec().into())]
        }
        CommandRequest::ShowScript { .. } => vec![CommandReply::Refused(Refusal::InvalidJobId)],
        CommandRequest::ListPriorities => vec![CommandReply::Priorities {
            kind: "priority/basic".to_owned(),
            weights: PriorityWeights::default(),
            jobs: Vec::new(),
        }],
        CommandRequest::ShowConfig => vec![CommandReply::Config {
            pairs: vec![("ClusterName".to_owned(), "peer".to_owned())],
            at: Timestamp(1_795_255_251_000),
        }],
        CommandRequest::Trace { prefixes, .. } => {
            let line = TraceLine {
                process: "controller".to_owned(),
                seq: 1,
                at_us: 1_795_255_251_000_042,
                trace: 1,
                id: 1,
                cause: 0,
                actor: prefixes.join(","),
                message: "Submit".to_owned(),
                queue_us: 7,
                handle_us: 1234,
                outcome: "ok".to_owned(),
            };
            vec![CommandReply::TraceRecords(vec![line]), CommandReply::End]
        }
        _ => vec![CommandReply::Done],
    }
}

fn said(out: &str, err: &str, code: i32) -> (String, String, i32) {
    (out.to_owned(), err.to_owned(), code)
}

#[test]
fn licenses_are_shown_as_slurm_shows_them() {
    let place = Place::answering(knows_nothing);
    let foo = "LicenseName=foo\n    Total=4 Used=3 Free=1 Reserved=0 Remote=no\n";
    let all = format!("LicenseName=bar\n    Total=2 Used=0 Free=2 Reserved=0 Remote=no\n{foo}");
    for word in ["lic", "licenses", "license"] {
        assert_eq!(place.run(&["scontrol", "show", word]), said(&all, "", 0));
    }
    assert_eq!(place.run(&["scontrol", "show", "lic", "foo"]), said(foo, "", 0));
    let line = "LicenseName=foo Total=4 Used=3 Free=1 Reserved=0 Remote=no\n";
    assert_eq!(place.run(&["scontrol", "-o", "show", "lic=foo"]), said(line, "", 0));
    assert_eq!(place.run(&["scontrol", "show", "lic", "baz"]), said("", "License baz not found\n", 1));
}

#[test]
fn topologies_are_shown_by_name_unit_and_node() {
    let place = Place::answering(knows_nothing);
    let b1 = "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\n";
    let b2 = "BlockName=b2 BlockIndex=1 Nodes=n[3-4] BlockSize=2\n";
    let both = "AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[1-4] BlockSize=4\n";
    assert_eq!(place.run(&["scontrol", "show", "topology"]), said(&format!("{b1}{b2}{both}"), "", 0));
    assert_eq!(place.run(&["scontrol", "show", "topology", "block=b2"]), said(b2, "", 0));
    assert_eq!(place.run(&["scontrol", "show", "topology", "first", "node=n1"]), said(&format!("{b1}{both}"), "", 0));
    let ring = "RingName=r1 RingIndex=0 Nodes=n[5-8] RingSize=4\n";
    assert_eq!(place.run(&["scontrol", "show", "topology", "second"]), said(ring, "", 0));
    let missing = "Unit b9 not found in topology first\n";
    assert_eq!(place.run(&["scontrol", "show", "topology", "unit=b9"]), said("", missing, 1));
    assert_eq!(place.run(&["scontrol", "show", "topology", "third"]), said("", "Topology third not found\n", 1));
    let file = "---\n- topology: first\n  cluster_default: false\n  block:\n    block_sizes:\n      - 2\n      - 4\n    \
                blocks:\n      - block: b1\n        nodes: n[1-2]\n      - block: b2\n        nodes: n[3-4]\n\
                - topology: second\n  cluster_default: false\n  ring:\n    rings:\n      - ring: r1\n        \
                nodes: n[5-8]\n";
    assert_eq!(place.run(&["scontrol", "show", "topoconf"]), said(file, "", 0));
}

#[test]
fn unknown_jobs_are_told_in_slurms_words() {
    let place = Place::answering(knows_nothing);
    let load = "slurm_load_jobs error: Invalid job id specified\n";
    assert_eq!(place.run(&["squeue", "-j", "99999999"]), said("", load, 1));
    assert_eq!(place.run(&["scontrol", "show", "job", "99999999"]), said("", load, 1));
    let hold = "Invalid job id specified for job 99999999\nslurm_suspend error:Invalid job id specified\n";
    assert_eq!(place.run(&["scontrol", "hold", "99999999"]), said("", hold, 1));
    let update = "Invalid job id specified for job 99999999\n";
    assert_eq!(place.run(&["scontrol", "update", "jobid=99999999", "timelimit=5"]), said("", update, 1));
    assert_eq!(place.run(&["scontrol", "show", "step", "503.0"]), said("Job step 503.0 not found\n", "", 1));
}

#[test]
fn unknown_nodes_and_partitions_are_told_in_slurms_words() {
    let place = Place::answering(knows_nothing);
    let words = ["scontrol", "update", "nodename=nosuch", "state=drain", "reason=x"];
    assert_eq!(place.run(&words), said("", "slurm_update error: Invalid node name specified\n", 1));
    assert_eq!(place.run(&["scontrol", "show", "node", "nosuch"]), said("Node nosuch not found\n", "", 1));
    assert_eq!(place.run(&["scontrol", "show", "partition", "nosuch"]), said("Partition nosuch not found\n", "", 1));
}

#[test]
fn cancelling_says_what_was_refused_and_nothing_of_what_is_over() {
    let place = Place::answering(knows_nothing);
    assert_eq!(place.run(&["scancel", "99999999"]), said("", "", 0));
    assert_eq!(place.run(&["scancel", "-v", "503"]), said("", "scancel: Terminating job 503\n", 0));
    let denied = "scancel: error: Kill job error on job id 5: Access/permission denied\n";
    assert_eq!(place.run(&["scancel", "5"]), said("", denied, 210));
    assert_eq!(place.run(&["scancel"]), said("", "scancel: error: No job identification provided\n", 1));
    assert_eq!(place.run(&["scancel", "--me"]), said("", "", 0));
}

#[test]
fn ping_tells_whether_the_controller_is_there() {
    let place = Place::answering(knows_nothing);
    assert_eq!(place.run(&["scontrol", "ping"]), said("Slurmctld(primary) at host1 is UP\n", "", 0));
    let place = Place::answering(|_| {
        vec![pong(AccountingQueue { events: 12, stored: 345, away_since: Some(Timestamp::from_secs(1_795_780_200)) })]
    });
    let (out, ..) = place.run(&["scontrol", "ping"]);
    let (begin, end) = (
        "Slurmctld(primary) at host1 is UP\nSlurmdbd is away since 20",
        ": 12 events after position 345 of the log wait for it\n",
    );
    assert!(out.starts_with(begin) && out.ends_with(end), "{out}");
    let (out, _, code) = Place::empty().run(&["scontrol", "ping"]);
    assert_eq!((out.as_str(), code), ("Slurmctld(primary) at host1 is DOWN\n", 1));
}

#[test]
fn a_dead_controller_is_said_and_no_success() {
    let place = Place::empty();
    for (words, call, wanted) in [
        (vec!["squeue"], "slurm_load_jobs error: ", 1),
        (vec!["sinfo"], "slurm_load_partitions: ", 1),
        (vec!["scancel", "5"], "scancel: error: Kill job error on job id 5: ", 8),
        (vec!["scancel", "-n", "x"], "slurm_load_jobs error: ", 1),
        (vec!["scontrol", "show", "node"], "slurm_load_node error: ", 1),
        (vec!["scontrol", "reconfigure"], "slurm_reconfigure error:", 1),
        (vec!["stail", "job/5"], "stail: error: ", 1),
    ] {
        let (out, err, code) = place.run(&words);
        let last = err.lines().last().unwrap_or_default();
        assert_eq!(last, format!("{call}Unable to contact slurm controller (connect failure)"), "{words:?}");
        assert_eq!((out.as_str(), code), ("", wanted), "{words:?}");
    }
}

#[test]
fn configuration_ends_with_whether_the_controller_is_there() {
    let place = Place::answering(knows_nothing);
    assert_eq!(
        place.run(&["scontrol", "show", "config"]),
        said(
            "Configuration data as of 2026-11-21T10:00:51\nClusterName             = peer\n\n\
             Slurmctld(primary) at host1 is UP\n",
            "",
            0
        )
    );
}

#[test]
fn scripts_are_written_to_a_file_or_to_standard_output() {
    let place = Place::answering(knows_nothing);
    let words = ["scontrol", "write", "batch_script", "503", "-"];
    assert_eq!(place.run(&words), said("#!/bin/sh\necho hi\n", "", 0));
    let file = place.root.join("s.sh");
    let words = ["scontrol", "write", "batch_script", "503", file.to_str().unwrap()];
    assert_eq!(place.run(&words), said(&format!("batch script for job 503 written to {}\n", file.display()), "", 0));
    assert_eq!(fs::read(&file).unwrap(), b"#!/bin/sh\necho hi\n");
    let words = ["scontrol", "write", "batch_script", "9", "-"];
    assert_eq!(place.run(&words), said("", "job script retrieval failed: Invalid job id specified\n", 1));
}

/// Priorities of several factors: one job of each of two users.
fn has_priorities(request: CommandRequest) -> Vec<CommandReply> {
    let CommandRequest::ListPriorities = request else { return knows_nothing(request) };
    let job = |id: u32, uid: u32, priority: u32| JobPriority {
        job: JobId(id),
        array_task: None,
        uid,
        user: format!("u{uid}"),
        account: None,
        qos_name: None,
        partition: "debug".to_owned(),
        priority,
        age: 0.5,
        assoc: 0.0,
        fairshare: 0.0,
        job_size: 0.0,
        partition_factor: 1.0,
        qos: 0.0,
        tres: Vec::new(),
        site: 0,
        nice: 0,
    };
    let weights = PriorityWeights { age: 1000, partition: 100, ..PriorityWeights::default() };
    let jobs = vec![job(503, 0, 600), job(504, 1002, 700)];
    vec![CommandReply::Priorities { kind: "priority/multifactor".to_owned(), weights, jobs }]
}

#[test]
fn priorities_are_taken_apart() {
    let place = Place::answering(has_priorities);
    let heading = "          JOBID PARTITION   PRIORITY       SITE        AGE  PARTITION\n";
    let first = "            503 debug            600          0        500        100\n";
    let second = "            504 debug            700          0        500        100\n";
    assert_eq!(place.run(&["sprio"]), said(&format!("{heading}{first}{second}"), "", 0));
    assert_eq!(place.run(&["sprio", "-S", "-Y", "-h"]), said(&format!("{second}{first}"), "", 0));
    assert_eq!(place.run(&["sprio", "-j", "504", "-h"]), said(second, "", 0));
    let weights = "        Weights                               1       1000        100\n";
    assert_eq!(place.run(&["sprio", "-w", "-h"]), said(weights, "", 0));
    assert_eq!(place.run(&["sprio", "-u", "0", "-h", "-o", "%i"]), said("503\n", "", 0));
    let none = "Unable to find jobs matching user/id(s) specified\n";
    assert_eq!(place.run(&["sprio", "-j", "99"]), said(none, "", 0));
    assert_eq!(place.run(&["sprio", "-j", "x"]), said("", "sprio: error: Invalid job id: x\n", 1));
    assert_eq!(place.run(&["sprio", "x"]), said("", "sprio: error: Unrecognized option: x\n", 1));
}

/// The root of a cluster's accounts, with the user who asks and another.
fn has_shares(request: CommandRequest) -> Vec<CommandReply> {
    let (CommandRequest::ListShares | CommandRequest::ShowAssociations) = request else {
        return knows_nothing(request);
    };
    let own = |id: u32, user: Option<&str>| Association {
        id: AssocId(id),
        cluster: "test".to_owned(),
        account: "root".to_owned(),
        user: user.map(str::to_owned),
        parent: user.map(|_| AssocId(1)),
        ..Association::default()
    };
    let view = |id: u32, user: Option<&str>, factor| AssocView {
        association: own(id, user),
        depth: u32::from(user.is_some()),
        norm_shares: 0.5,
        level: f64::INFINITY,
        factor,
        used: [("billing".to_owned(), 120.9), ("cpu".to_owned(), 600.0)].into(),
        ..AssocView::default()
    };
    let associations =
        vec![view(1, None, None), view(2, Some("nobody"), Some(0.25)), view(3, Some("other"), Some(1.0))];
    let tres = vec!["cpu".to_owned(), "billing".to_owned()];
    vec![CommandReply::Shares(Box::new(SharesBoard { fair_tree: true, tres, associations, ..SharesBoard::default() }))]
}

#[test]
fn shares_are_shown_with_what_is_used_of_them() {
    let place = Place::answering(has_shares);
    let lines = "root||0.500000|120|0.000000|\n root|1|0.500000|120|0.000000|0.250000\n";
    let columns = "account,rawshares,normshares,rawusage,effectvusage,fairshare";
    assert_eq!(place.run(&["sshare", "-u", "nobody", "-n", "-P", "-o", columns]), said(lines, "", 0));
    let users = "root                      other \n";
    assert_eq!(place.run(&["sshare", "-U", "-u", "other", "-n", "-o", "account,user"]), said(users, "", 0));
    let bogus = "sshare: error: Invalid field requested: \"bogus\"\n";
    assert_eq!(place.run(&["sshare", "-o", "bogus"]), said("", bogus, 1));
    let (out, err, code) = place.run(&["sshare", "-a", "--json"]);
    assert!(out.contains("\"total_shares\": 3") && err.is_empty() && code == 0, "{out}{err}");
    let (out, err, code) = place.run(&["scontrol", "show", "assoc_mgr", "users=other", "flags=assoc"]);
    assert!(out.contains("UserName=other(4294967294) Partition= Priority=0 ID=3\n"), "{out}");
    assert!(out.contains("GrpTRESMins=cpu=N(10),billing=N(2)") && !out.contains("UserName=nobody"), "{out}");
    assert_eq!((err.as_str(), code), ("", 0));
    assert_eq!(
        place.run(&["scontrol", "show", "assoc_mgr", "users"]),
        said("No value given for option users\n", "", 0)
    );
    let place = Place::answering(knows_nothing);
    let (out, err, code) = place.run(&["sshare"]);
    assert!(out.is_empty() && err.starts_with("Couldn't get shares from controller: ") && code == 255, "{err}");
}

#[test]
fn in_order_of_submission_there_is_nothing_to_take_apart() {
    let place = Place::answering(knows_nothing);
    let said_so = "You are not running a supported priority plugin\n(priority/basic).\n\
                   Only 'priority/multifactor' is supported.\n";
    assert_eq!(place.run(&["sprio"]), said("", said_so, 1));
}

/// Takes orders about priorities only as they must come.
fn moves_jobs(request: CommandRequest) -> Vec<CommandReply> {
    let told = match &request {
        CommandRequest::ControlJob { jobs, action: JobAction::Top } => {
            Some((jobs.clone(), jobs.iter().map(|j| j.job.0).eq([505, 503])))
        }
        CommandRequest::UpdateJob { jobs, change } => {
            Some((jobs.clone(), change.site_factor == Some(-5) || change.nice == Some(100)))
        }
        _ => None,
    };
    let Some((jobs, right)) = told else { return knows_nothing(request) };
    let result = if right { Ok(()) } else { Err(Refusal::JobHeld) };
    vec![CommandReply::PerJob(jobs.into_iter().map(|job| (job, result.clone())).collect())]
}

/// Of array 23, tasks 1 and 2 are over and 3 runs.
fn refuses_some_tasks(request: CommandRequest) -> Vec<CommandReply> {
    let (CommandRequest::ControlJob { jobs, .. } | CommandRequest::UpdateJob { jobs, .. }) = request else {
        return knows_nothing(request);
    };
    let named =
        |ranges: &[(u32, u32, u32)]| JobSelector { job: JobId(23), tasks: Some(ranges.to_vec()), het: None, run: None };
    let some = jobs[0].tasks.is_some();
    let whole = vec![
        (named(&[(1, 2, 1)]), Err(Refusal::AlreadyDone)),
        (named(&[(3, 3, 1)]), Err(Refusal::JobNotPending)),
        (named(&[(4, 5, 1), (9, 9, 1)]), Ok(())),
    ];
    vec![CommandReply::PerJob(if some { vec![(jobs[0].clone(), Err(Refusal::JobNotPending))] } else { whole })]
}

#[test]
fn tasks_of_an_array_that_refuse_are_told_one_by_one() {
    let place = Place::answering(refuses_some_tasks);
    let all = "23_1-2: Job/step already completing or completed\n23_3: Job is no longer pending execution\n\
        23_4-5,9: No error\n";
    assert_eq!(place.run(&["scontrol", "update", "jobid=23", "name=x"]), said("", all, 1));
    assert_eq!(place.run(&["scontrol", "hold", "23"]), said("", all, 1));
    let one = "23_3: Job is no longer pending execution\n";
    assert_eq!(place.run(&["scontrol", "hold", "23_3"]), said("", one, 1));
}

#[test]
fn jobs_are_moved_by_hand() {
    let place = Place::answering(moves_jobs);
    assert_eq!(place.run(&["scontrol", "top", "505,503"]), said("", "", 0));
    let held = "Job is in held state, pending scheduler release for job 8\n";
    assert_eq!(place.run(&["scontrol", "top", "8"]), said("", held, 1));
    assert_eq!(place.run(&["scontrol", "top"]), said("", "too few arguments for keyword:top\n", 1));
    assert_eq!(place.run(&["scontrol", "top", "1", "2"]), said("", "too many arguments for keyword:top\n", 1));
    assert_eq!(place.run(&["scontrol", "top", "x"]), said("", "Invalid job id specified for job x\n", 1));
    assert_eq!(place.run(&["scontrol", "update", "jobid=5", "sitefactor=-5"]), said("", "", 0));
    assert_eq!(place.run(&["scontrol", "update", "jobid=5", "nice"]), said("", "", 0));
    let far = "SiteFactor value out of range (+/- 2147483645). Value ignored\n";
    assert_eq!(place.run(&["scontrol", "update", "jobid=5", "SiteFactor=99999999999"]), said("", far, 1));
}

#[test]
fn empty_clusters_have_headings_only() {
    let place = Place::answering(knows_nothing);
    let heading = "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n";
    assert_eq!(place.run(&["squeue"]), said(heading, "", 0));
    assert_eq!(place.run(&["squeue", "-h"]), said("", "", 0));
    assert_eq!(place.run(&["sinfo"]), said("PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n", "", 0));
    assert_eq!(place.run(&["scontrol", "show", "job"]), said("No jobs in the system\n", "", 0));
    let (out, _, code) = place.run(&["squeue", "--json"]);
    assert!(out.contains("\"jobs\": []") && code == 0, "{out}");
}

#[test]
fn traces_are_one_line_each() {
    let place = Place::answering(knows_nothing);
    let line = "10:00:51.000042 controller     /job/503                 Submit  queue 7us handle 1.2ms\n";
    // A job that the controller has forgotten may be in the traces, and nothing more comes of it.
    assert_eq!(place.run(&["stail", "job/503"]), said(line, "", 0));
    let of_scheduler = line.replace("/job/503  ", "/scheduler");
    assert_eq!(place.run(&["stail", "--follow", "scheduler"]), said(&of_scheduler, "", 0));
    let unknown = "stail: error: job/503: Invalid job id specified\n";
    assert_eq!(place.run(&["stail", "--follow", "job/503"]), said("", unknown, 1));
    let (out, _, code) = place.run(&["stail", "--json", "scheduler"]);
    assert!(out.starts_with("{\"process\":\"controller\"") && out.ends_with("}\n") && code == 0, "{out}");
}

#[test]
fn what_is_not_there_yet_fails() {
    let place = Place::empty();
    for words in [vec!["scontrol", "gethost", "n1"], vec!["scontrol", "show", "slurmd"]] {
        let (out, err, code) = place.run(&words);
        assert!(err.ends_with(" is not supported yet\n") && out.is_empty() && code == 1, "{words:?}: {err}");
    }
    assert_eq!(place.run(&["scontrol", "shwo"]), said("", "invalid keyword: shwo\n", 1));
    assert_eq!(place.run(&["scontrol", "show", "x"]), said("", "invalid entity:x for keyword:show\n", 1));
}

#[test]
fn host_lists_need_no_controller() {
    let place = Place::empty();
    let run = |what: &str, list: &str| place.run(&["scontrol", "show", what, list]);
    assert_eq!(run("hostnames", "lx[0003-0005,8]"), said("lx0003\nlx0004\nlx0005\nlx8\n", "", 0));
    assert_eq!(run("hostlist", "a1,a2,a3,b7"), said("a[1-3],b7\n", "", 0));
    assert_eq!(run("hostlistsorted", "a3,a1,a2"), said("a[1-3]\n", "", 0));
    assert_eq!(place.run(&["scontrol", "version"]), said("slurm 26.05.3\n", "", 0));
}

#[test]
fn every_command_has_help_and_a_version() {
    let place = Place::empty();
    for name in ["squeue", "sinfo", "sprio", "sshare", "scancel", "scontrol", "stail"] {
        let (out, err, code) = place.run(&[name, "--help"]);
        assert!(out.starts_with(&format!("Usage: {name} ")) && err.is_empty() && code == 0, "{name}: {out}{err}");
        let (out, _, code) = place.run(&[name, "--usage"]);
        assert!(out.starts_with(&format!("Usage: {name}")) && out.lines().count() == 1 && code == 0, "{name}: {out}");
        let (out, _, code) = place.run(&[name, "-V"]);
        assert!(out.starts_with("slurm 26.05.3\n") && code == 0, "{name}: {out}");
        let (_, err, code) = place.run(&[name, "--nosuch"]);
        let expected = format!("{name}: unrecognized option '--nosuch'\nTry \"{name} --help\" for more information\n");
        assert_eq!((err, code), (expected, 1));
    }
}

#[test]
fn a_program_of_another_name_lists_the_commands() {
    let place = Place::empty();
    let link = place.root.join("sfoo");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_garrick"), &link).unwrap();
    let output = Command::new(&link).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.starts_with("sfoo: not a command of Garrick") && err.contains("sbatch srun sattach salloc"), "{err}");
    assert_eq!(output.status.code(), Some(1));
    let output = Command::new(&link).args(["squeue", "-V"]).output().unwrap();
    assert!(output.status.success());
}
