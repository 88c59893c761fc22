//! Advance reservations over real processes: jobs keep off, jobs that ask for it go in, and what was acknowledged outlasts
//! a controller that is killed.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Cluster, field_of};

const ONE: [&str; 6] = ["--nodes", "1", "--cpus", "4", "--memory", "4000"];

fn field(c: &Cluster, field: &str) -> Option<String> {
    field_of(&c.sh("scontrol -o show reservation class").ok().out, field)
}

fn node_state(c: &Cluster) -> Option<String> {
    field_of(&c.sh("scontrol -o show node n1").ok().out, "State")
}

#[test]
fn a_reservation_keeps_others_off_lets_its_own_in_and_outlasts_the_controller() {
    let c = Cluster::up("resv", &["--nodes", "1", "--cpus", "4", "--memory", "2000"]);
    let create =
        "scontrol create reservation ReservationName=class StartTime=now Duration=2:00:00 Users=nobody Nodes=n1";
    let a = c.sh(create).ok();
    assert_eq!(a.out, "Reservation created: class\n");
    let a = c.sh(create);
    assert_eq!((a.code, a.err.as_str()), (1, "Error creating the reservation: Duplicate reservation name\n"), "{a:?}");
    let a = c.sh("scontrol create reservation StartTime=now Duration=30 Users=nobody NodeCnt=1");
    assert_eq!((a.code, a.err.as_str()), (1, "Error creating the reservation: Requested nodes are busy\n"), "{a:?}");
    assert_eq!(field(&c, "State").as_deref(), Some("ACTIVE"));
    assert_eq!(field(&c, "Flags").as_deref(), Some("SPEC_NODES"));
    assert_eq!(node_state(&c).as_deref(), Some("IDLE+RESERVED"));
    assert_eq!(c.sh("sinfo -h -o %t").ok().out, "resv\n");
    assert!(c.sh("sinfo -h -T").ok().out.starts_with("class        ACTIVE  "));

    for (who, says) in [("Users=no_such_one", "Invalid user id"), ("Groups=no_such_one", "Invalid group id")] {
        let a = c.sh(&format!("scontrol create reservation StartTime=now Duration=60 Nodes=n1 {who}"));
        assert_eq!((a.code, a.err), (1, format!("Error creating the reservation: {says}\n")));
    }
    let a = c.sh("sbatch --reservation=other --wrap true");
    assert_eq!(a.code, 1);
    assert!(a.err.contains("Requested reservation is invalid"), "{a:?}");
    let outside = c.sh("sbatch -n1 -t 10 --wrap true").ok().job();
    let reason = || c.sh(&format!("squeue -h -o %r -j {outside}")).ok().out;
    c.await_that("the job outside waits", || reason() == "ReqNodeNotAvail, May be reserved for other job\n");
    let inside =
        c.shell("sbatch -n1 -t 10 -o in.out --reservation=class --wrap 'echo $SLURM_JOB_RESERVATION'").ok().job();
    c.await_state(&inside, "COMPLETED");
    assert_eq!(c.read("in.out"), "class\n");
    assert_eq!(c.sh(&format!("squeue -h -t all -o %v -j {inside}")).ok().out, "class\n");
    let long = c.shell("SBATCH_RESERVATION=class sbatch -n1 -t 180 --wrap true").ok().job();
    assert_eq!(c.job_field(&long, "Reservation").as_deref(), Some("class"));

    let controller = c.pid_of("controller", None);
    c.kill(controller);
    let command_line = format!("/proc/{controller}/cmdline");
    c.await_that("the controller is gone", || std::fs::read(&command_line).map_or(true, |line| line.is_empty()));
    c.sh("garrick up").ok();
    assert_eq!(field(&c, "Nodes").as_deref(), Some("n1"));
    assert_eq!(c.job_field(&outside, "JobState").as_deref(), Some("PENDING"));

    c.sh("scontrol update ReservationName=class Flags+=MAINT Duration=1:00:00").ok();
    assert_eq!(field(&c, "Duration").as_deref(), Some("01:00:00"));
    assert_eq!(c.sh("sinfo -h -o %t").ok().out, "maint\n");
    let a = c.sh("scontrol delete ReservationName=class");
    assert_eq!(
        (a.code, a.err.as_str()),
        (1, "delete_reservation ReservationName=class: Requested reservation is in use\n")
    );
    c.sh("scontrol update ReservationName=class EndTime=now+4seconds").ok();
    c.await_that("the reservation is over", || {
        c.sh("scontrol show reservation").ok().out == "No reservations in the system\n"
    });
    c.await_state(&outside, "COMPLETED");
    c.await_that("the job of a reservation that is gone waits", || {
        c.sh(&format!("squeue -h -o %r -j {long}")).ok().out == "ReservationDeleted\n"
    });
    let a = c.sh("scontrol delete ReservationName=class");
    assert_eq!(
        (a.code, a.err.as_str()),
        (1, "delete_reservation ReservationName=class: Requested reservation is invalid\n")
    );
}

#[test]
fn jobs_move_into_a_reservation_have_its_licenses_and_lose_it_when_it_ends() {
    let c = Cluster::up_with("resvlic", &["--nodes", "1", "--cpus", "4", "--memory", "2000"], |_| {
        "Licenses=abc:4\n".to_owned()
    });
    let create = "scontrol create reservation StartTime=now Duration=60 Users=nobody ReservationName=";
    let a = c.sh(&format!("{create}lic Licenses=abc:5 Flags=ANY_NODES"));
    assert_eq!(
        (a.code, a.err.as_str()),
        (1, "Error creating the reservation: Invalid license specification\n"),
        "{a:?}"
    );
    c.sh(&format!("{create}lic TRES=license/abc=3 Flags=ANY_NODES,PURGE_COMP=20")).ok();
    let record = c.sh("scontrol -o show reservation lic").ok().out;
    assert_eq!(field_of(&record, "Licenses").as_deref(), Some("abc:3"));
    assert_eq!(field_of(&record, "Flags").as_deref(), Some("ANY_NODES,PURGE_COMP=00:20:00"));
    assert_eq!(node_state(&c).as_deref(), Some("IDLE"));
    let json: serde_json::Value = serde_json::from_str(&c.sh("scontrol show reservation --json").ok().out).unwrap();
    assert_eq!(json["reservations"][0]["licenses"], "abc:3");
    assert_eq!(json["reservations"][0]["purge_completed"]["time"]["number"], 1200);

    let job = c.sh("sbatch -n1 -t 10 -L abc:2 --wrap true").ok().job();
    let reason = |job: &str| c.sh(&format!("squeue -h -o %r -j {job}")).ok().out;
    c.await_that("the job outside waits", || reason(&job) == "Licenses\n");
    let a = c.sh(&format!("scontrol update JobId={job} ReservationName=other"));
    assert!(a.code == 1 && a.err.contains("Requested reservation is invalid"), "{a:?}");
    c.sh(&format!("scontrol update JobId={job} ReservationName=lic")).ok();
    c.await_state(&job, "COMPLETED");
    c.sh("scontrol delete ReservationName=lic").ok();

    // It wants to run longer than the reservation lasts, and runs without it then.
    let short = "scontrol create reservation StartTime=now EndTime=now+15seconds Users=nobody ReservationName=short";
    c.sh(&format!("{short} NodeCnt=1 Flags=NO_HOLD_JOBS_AFTER")).ok();
    let job = c.sh("sbatch -n1 -t 10 --reservation=short --wrap true").ok().job();
    c.await_state(&job, "COMPLETED");
    c.await_that("the reservation is forgotten", || {
        c.sh("scontrol show reservation").ok().out == "No reservations in the system\n"
    });
}

#[test]
fn jobs_that_run_when_their_reservation_ends_are_ended_unless_they_may_stay() {
    let c = Cluster::up("resvover", &["--nodes", "2", "--cpus", "2", "--memory", "2000"]);
    let create = "scontrol create reservation StartTime=now Duration=60 Users=nobody NodeCnt=1 ReservationName=";
    let begun = |name: &str| {
        let job = c.shell(&format!("sbatch -n1 -t 30 --reservation={name} --wrap 'sleep 600'")).ok().job();
        c.await_state(&job, "RUNNING");
        job
    };
    let end = |name: &str| c.sh(&format!("scontrol update ReservationName={name} EndTime=now+4seconds")).ok();
    let is_over = || c.sh("scontrol show reservation").ok().out == "No reservations in the system\n";
    c.sh(&format!("{create}a")).ok();
    c.sh(&format!("{create}flex Flags=FLEX")).ok();
    let (job, stays) = (begun("a"), begun("flex"));
    end("a");
    end("flex");
    c.await_state(&job, "TIMEOUT");
    assert_eq!(c.job_field(&job, "Reason").as_deref(), Some("TimeLimit"));
    c.await_that("the reservations are forgotten", is_over);
    assert_eq!(c.job_field(&stays, "JobState").as_deref(), Some("RUNNING"));
}

#[test]
fn a_job_that_names_no_partition_goes_to_that_of_its_reservation() {
    let c = Cluster::up_with("resvpart", &["--nodes", "1", "--cpus", "4", "--memory", "2000"], |_| {
        "PartitionName=second Nodes=n1\n".to_owned()
    });
    let create = "scontrol create reservation StartTime=now Duration=60 Users=nobody ReservationName=";
    c.sh(&format!("{create}a PartitionName=second Nodes=ALL")).ok();
    let partition = |options: &str| {
        let job = c.sh(&format!("sbatch -n1 -t 1 {options} --wrap true")).ok().job();
        c.await_state(&job, "COMPLETED");
        c.job_field(&job, "Partition")
    };
    assert_eq!(partition("--reservation=a").as_deref(), Some("second"));
    let default = c.sh("scontrol -o show partition").ok().out;
    let default = default.lines().find(|line| line.contains(" Default=YES ")).map(str::to_owned).unwrap();
    assert_eq!(
        partition(&format!("--reservation=a -p {}", field_of(&default, "PartitionName").unwrap())),
        field_of(&default, "PartitionName")
    );
}

#[test]
fn reserved_cores_are_for_its_jobs_and_the_others_of_the_node_for_all() {
    let c = Cluster::up("resvcore", &["--nodes", "1", "--cpus", "4", "--memory", "2000"]);
    let create = "scontrol create reservation StartTime=now Duration=2:00:00 Users=nobody ReservationName=";
    let refused = |words: &str, says: &str| {
        let a = c.sh(&format!("{create}{words}"));
        assert_eq!((a.code, a.err), (1, format!("Error creating the reservation: {says}\n")), "{words}");
    };
    refused("class Nodes=n1 CoreCnt=1,1", "Core count for reservation node list is not consistent!");
    c.sh(&format!("{create}class Nodes=n1 CoreCnt=2")).ok();
    let record = c.sh("scontrol show reservation class").ok().out;
    let cores = "Nodes=n1 NodeCnt=1 CoreCnt=2 Features=(null) PartitionName=(null) Flags=SPEC_NODES\n     \
                 NodeName=n1 CoreIDs=0-1\n   TRES=cpu=2\n";
    assert!(record.contains(cores), "{record}");
    assert_eq!(node_state(&c).as_deref(), Some("IDLE"));

    let reason = |job: &str| c.sh(&format!("squeue -h -o %r -j {job}")).ok().out;
    let wide = c.sh("sbatch -n3 -t 10 --mem 100 --wrap true").ok().job();
    c.await_that("too wide a job waits", || reason(&wide) == "ReqNodeNotAvail, May be reserved for other job\n");
    let cpus = |job: &str| {
        let record = c.sh(&format!("scontrol -d show job {job}")).ok().out;
        record.split_whitespace().find_map(|word| word.strip_prefix("CPU_IDs=").map(str::to_owned))
    };
    let outside = c.shell("sbatch -n2 -t 10 --mem 100 --wrap 'sleep 600'").ok().job();
    c.await_state(&outside, "RUNNING");
    let inside = c.shell("sbatch -n2 -t 10 --mem 100 --reservation=class --wrap 'sleep 600'").ok().job();
    c.await_state(&inside, "RUNNING");
    assert_eq!((cpus(&outside).as_deref(), cpus(&inside).as_deref()), (Some("2-3"), Some("0-1")));
    refused("more NodeCnt=1 CoreCnt=1", "Requested nodes are busy");
    c.sh(&format!("scancel {outside}")).ok();
    c.await_state(&outside, "CANCELLED");
    c.await_that("another reservation of cores fits in", || {
        c.sh(&format!("{create}more TRES=cpu=1,node=1 Flags=FIRST_CORES")).code == 1
            && c.sh(&format!("{create}more TRES=cpu=1,node=1")).code == 0
    });
    assert!(c.sh("scontrol -o show reservation more").ok().out.contains(" NodeName=n1 CoreIDs=2 TRES=cpu=1 "));

    let controller = c.pid_of("controller", None);
    c.kill(controller);
    let command_line = format!("/proc/{controller}/cmdline");
    c.await_that("the controller is gone", || std::fs::read(&command_line).map_or(true, |line| line.is_empty()));
    c.sh("garrick up").ok();
    assert_eq!(field(&c, "CoreIDs").as_deref(), Some("0-1"));
    let late = c.sh("sbatch -n1 -t 10 --mem 100 --wrap true").ok().job();
    c.await_state(&late, "COMPLETED");
    assert_eq!(c.job_field(&wide, "JobState").as_deref(), Some("PENDING"));
    c.sh(&format!("scancel {inside}")).ok();
    c.await_state(&inside, "CANCELLED");
    c.sh("scontrol delete ReservationName=class").ok();
    c.sh("scontrol delete ReservationName=more").ok();
    c.await_state(&wide, "COMPLETED");

    // One that stays as far from now keeps long jobs off, and nobody goes in.
    c.sh(&format!("{create}float StartTime=now+60minutes Nodes=n1 Flags=TIME_FLOAT")).ok();
    let a = c.sh("sbatch -n1 --reservation=float --wrap true");
    assert!(a.code == 1 && a.err.contains("Requested reservation is invalid"), "{a:?}");
    let long = c.sh("sbatch -n1 -t 61 --mem 100 --wrap true").ok().job();
    c.await_that("a long job waits", || reason(&long) == "ReqNodeNotAvail, May be reserved for other job\n");
    let short = c.sh("sbatch -n1 -t 59 --mem 100 --wrap true").ok().job();
    c.await_state(&short, "COMPLETED");
    assert_eq!(c.job_field(&long, "JobState").as_deref(), Some("PENDING"));
}

#[test]
fn programs_run_once_when_a_reservation_begins_and_when_it_ends() {
    let c = Cluster::up_with("resv-programs", &ONE, |c| {
        let work = c.work.display();
        for moment in ["begin", "end"] {
            c.script(moment, &format!("#!/bin/sh\necho {moment} $# $1 >> {work}/told\n"));
        }
        format!("ResvProlog={work}/begin\nResvEpilog={work}/end")
    });
    let create = "scontrol create reservation StartTime=now Users=nobody Nodes=n1 Flags=OVERLAP ReservationName=";
    c.sh(&format!("{create}deleted Duration=60")).ok();
    let told = || std::fs::read_to_string(c.work.join("told")).unwrap_or_default();
    c.await_that("it begins", || told() == "begin 1 deleted\n");
    c.kill(c.pid_of("controller", None));
    c.sh("garrick up").ok();
    c.sh("scontrol delete reservation deleted").ok();
    c.sh(&format!("{create}short Duration=60")).ok();
    c.await_that("the short one begins", || told().ends_with("begin 1 short\n"));
    c.sh("scontrol update ReservationName=short EndTime=now+10seconds").ok();
    c.await_that("the short one ends", || told().contains("end"));
    assert_eq!(told(), "begin 1 deleted\nbegin 1 short\nend 1 short\n");
}
