//! `srun` on its job's host hands its own descriptors to the tasks: nothing of what they read and write passes through a
//! daemon, and users see no difference but in speed.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Cluster, is_root};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A job that lives until its cluster ends, and its number.
fn with_job(name: &str, options: &str) -> (Cluster, String) {
    let c = Cluster::up(name, &["--cpus", "4"]);
    let started = c.fifo("job-started");
    c.script("hold.sh", "#!/bin/bash\necho up > job-started\nexec sleep 3600\n");
    let id = c.sh(&format!("sbatch -o hold.out {options} hold.sh")).ok().job();
    assert_eq!(fs::read_to_string(started).unwrap(), "up\n");
    (c, id)
}

fn srun(c: &Cluster, job: &str, args: &[&str]) -> Command {
    let mut command = c.command("srun");
    command.args(["--jobid", job, "--overlap"]).args(args);
    command
}

/// What a process has open, as links say.
fn open_in(pid: i32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|e| Some(fs::read_link(e.path()).ok()?.to_string_lossy().into_owned())).collect()
}

/// A named pipe that does not end while this is open, however many come and go at its other end.
fn both_ways(path: &Path) -> fs::File {
    fs::OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// The parent of a process.
fn parent(pid: i32) -> i32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap()
}

#[test]
fn tasks_have_the_very_files_of_their_srun() {
    let c = Cluster::up("files", &["--cpus", "4"]);
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -n2 -o job.out\n\
         printf 'a\\nb\\n' > in\n\
         srun -n1 sh -c 'readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2; echo oops >&2' < in > out 2> err\n\
         echo $?\n\
         srun -n2 sh -c 'readlink /proc/self/fd/0 | tr -d 0-9; cat; echo done' < in > both 2> /dev/null\n\
         srun -n2 sh -c 'readlink /proc/self/fd/1' > shared\n\
         srun -n1 -l sh -c 'readlink /proc/self/fd/1' > labelled\n\
         srun -n1 -o chosen sh -c 'readlink /proc/self/fd/1 /proc/self/fd/2'\n\
         while read -r word; do srun -n1 echo got $word; done < in\n\
         srun -n1 sh -c 'echo fails; exit 3'\n\
         echo $?\n",
    );
    c.sh("sbatch --wait job.sh").ok();
    let here = fs::canonicalize(&c.work).unwrap();
    let path = |name: &str| format!("{}\n", here.join(name).display());
    assert_eq!(c.read("out"), path("in") + &path("out") + &path("err"), "the tasks have what srun had");
    assert_eq!(c.read("err"), "oops\n");
    // Two tasks would share what they read, so each gets a copy of all of it.
    let mut both: Vec<_> = c.read("both").lines().map(str::to_owned).collect();
    both.sort_unstable();
    assert_eq!(both, ["a", "a", "b", "b", "done", "done", "pipe:[]", "pipe:[]"]);
    assert_eq!(c.read("shared"), path("shared").repeat(2));
    // What srun has to put labels on, or writes to a file of its choice, passes through it.
    assert!(c.read("labelled").starts_with("0: pipe:["), "{}", c.read("labelled"));
    assert!(c.read("chosen").lines().all(|line| line.starts_with("pipe:[")), "{}", c.read("chosen"));
    let said = c.read("job.out");
    assert!(said.starts_with("0\ngot a\ngot b\nfails\n") && said.ends_with("3\n"), "{said}");
    assert!(said.contains("task 0: Exited with exit code 3"), "{said}");
}

#[test]
fn a_reader_that_leaves_ends_a_task_as_it_ends_any_command() {
    let c = Cluster::up("sigpipe", &["--cpus", "4"]);
    c.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH -n2 -o job.out\n\
         yes | head -1; echo plain ${PIPESTATUS[0]}\n\
         srun -n1 yes 2> handed.err | head -1; echo handed ${PIPESTATUS[0]}\n\
         srun -n1 -l yes 2> relayed.err | head -1; echo relayed ${PIPESTATUS[0]}\n",
    );
    c.sh("sbatch --wait job.sh").ok();
    assert_eq!(c.read("job.out"), "y\nplain 141\ny\nhanded 141\n0: y\nrelayed 141\n");
    let said = |file: &str| c.read(file).lines().next().unwrap_or_default().to_owned();
    assert!(said("handed.err").ends_with("task 0: Broken pipe"), "{}", c.read("handed.err"));
    assert_eq!(said("handed.err"), said("relayed.err"));
}

#[test]
fn neither_stepd_nor_its_launcher_keeps_anything_of_a_handed_stream() {
    let (c, job) = with_job("keep", "-n2");
    let (running, go) = (c.fifo("running"), c.fifo("go"));
    let asked = srun(&c, &job, &["-n1", "sh", "-c", "echo $PPID"]).output().unwrap();
    let launcher: i32 = String::from_utf8(asked.stdout).unwrap().trim().parse().unwrap();
    let stepd = parent(launcher);
    let pipes_of = |pid: i32| open_in(pid).into_iter().filter(|link| link.starts_with("pipe:")).count();
    let before = pipes_of(stepd);
    let out = c.work.join("out");
    let line = format!("echo here; echo up > {}; read word < {}; echo there", running.display(), go.display());
    let mut child = srun(&c, &job, &["-n2", "sh", "-c", &line])
        .stdout(fs::File::create(&out).unwrap())
        .stdin(fs::File::open("/dev/null").unwrap())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(both_ways(&running));
    let mut word = String::new();
    told.read_line(&mut word).unwrap();
    told.read_line(&mut word).unwrap();
    assert_eq!(word, "up\nup\n");
    let out_name = fs::canonicalize(&out).unwrap().to_string_lossy().into_owned();
    for pid in [launcher, stepd] {
        // Closing is another thread's work, so it may be a moment late.
        c.await_that("the copies are closed", || !open_in(pid).contains(&out_name));
    }
    // Input of two tasks is relayed (one pipe each, closed at its end); of output there is none to relay.
    c.await_that("input is at its end", || pipes_of(stepd) <= before);
    let mut words = both_ways(&go);
    // Shells read a byte at a time: of two that read, each gets one line end, whatever the order.
    words.write_all(b"\n\n").unwrap();
    assert!(child.wait().unwrap().success());
    let mut lines: Vec<_> = fs::read_to_string(&out).unwrap().lines().map(str::to_owned).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["here", "here", "there", "there"]);
}

#[test]
fn a_pipe_ends_for_its_reader_with_the_tasks_and_with_a_withdrawn_step() {
    let (c, job) = with_job("ends", "-n1");
    // `output` reads until no process has the pipe open any more.
    let done = srun(&c, &job, &["-n1", "echo", "word"]).output().unwrap();
    assert_eq!((done.status.code(), done.stdout.as_slice()), (Some(0), &b"word\n"[..]));

    // One that waits for CPUs that another step has.
    let (running, go) = (c.fifo("running"), c.fifo("go"));
    let line = format!("echo up > {}; read word < {}", running.display(), go.display());
    let mut first = c.command("srun").args(["--jobid", &job, "-n1", "--exact", "sh", "-c", &line]).spawn().unwrap();
    assert_eq!(fs::read_to_string(&running).unwrap(), "up\n");
    let mut waiting = c
        .command("srun")
        .args(["--jobid", &job, "-n1", "--exact", "echo", "never"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(waiting.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("step creation temporarily disabled"), "{line}");
    kill(Pid::from_raw(waiting.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(waiting.wait().unwrap().code(), Some(1));
    let mut out = String::new();
    waiting.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!(out, "");
    fs::write(&go, "word\n").unwrap();
    assert!(first.wait().unwrap().success());
}

#[test]
fn interrupts_reach_commands_wherever_the_tests_were_started() {
    garrick_testing::interrupts::passes_in_the_background(
        "handed_streams::a_pipe_ends_for_its_reader_with_the_tasks_and_with_a_withdrawn_step",
    );
}

#[test]
fn roots_descriptors_do_not_go_to_another_users_tasks() {
    if !is_root() {
        return eprintln!("skipped: needs root");
    }
    let (c, job) = with_job("root", "-n1 --uid 65534");
    let out: PathBuf = c.work.join("out");
    let run = |args: &[&str]| {
        let file = fs::File::create(&out).unwrap();
        assert!(srun(&c, &job, args).stdout(file).status().unwrap().success());
        fs::read_to_string(&out).unwrap()
    };
    assert!(run(&["-n1", "readlink", "/proc/self/fd/1"]).starts_with("pipe:["));
    assert_eq!(run(&["-n1", "id", "-u"]), "65534\n");
}
