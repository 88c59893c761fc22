//! The real `garrick cat` on packs made on the spot: whole standard output, standard error and exit codes.

#![allow(clippy::unwrap_used)]

use garrick_model::{
    ids::{JobId, StepId, StepKey},
    state::ExitStatus,
    time::Timestamp,
    usage::TaskUsage,
};
use garrick_pack::{EndRecord, PackWriter, Stream, TaskRun, on_node};
use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Instant,
};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A folder that the commands run in, gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("garrick-cat-{}-{n}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_garrick"));
        command.arg("cat").args(words.split_whitespace()).current_dir(&self.0).env_clear().stdin(Stdio::null());
        command
    }

    /// Standard output, standard error, exit code.
    fn cat(&self, words: &str) -> (String, String, i32) {
        told(self.command(words).output().unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn told(output: Output) -> (String, String, i32) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code().unwrap())
}

fn run(text: &str) -> TaskRun {
    TaskRun { step: StepId::of(JobId(5609), text.parse::<StepKey>().unwrap()), attempt: 0, rank: 0 }
}

fn end(code: u8, signal: Option<u8>, elapsed_ms: i64) -> EndRecord {
    let started = Timestamp(1_795_255_201_000);
    EndRecord {
        status: ExitStatus { code, signal },
        started,
        ended: Timestamp(started.0 + elapsed_ms),
        usage: TaskUsage { user_us: 1500, system_us: 700, max_rss_kib: 3800, ..TaskUsage::default() },
    }
}

fn ok(expected: &str) -> (String, String, i32) {
    (expected.to_owned(), String::new(), 0)
}

/// Steps that got into each other's way: a single one, one of two ranks, two tasks of an array of which one was tried twice.
fn job(path: &Path) {
    let now = Instant::now();
    let mut pack = PackWriter::open(path).unwrap();
    let other_rank = TaskRun { rank: 1, ..run("2") };
    let again = TaskRun { attempt: 1, ..run("7_3") };
    let mut out = |task: &TaskRun, text: &str| pack.output(task, Stream::Stdout, text.as_bytes(), now).unwrap();
    out(&run("1"), "one, first\none, ");
    out(&run("2"), "rank 0\n");
    out(&other_rank, "rank 1\n");
    out(&run("1"), "second\n");
    pack.output(&run("7_3"), Stream::Stderr, b"no luck\n", now).unwrap();
    pack.end(&run("7_3"), &end(1, None, 90_061_007), now).unwrap();
    pack.end(&run("1"), &end(0, None, 12), now).unwrap();
    pack.flush(now).unwrap();
    pack.output(&run("7_12"), Stream::Stdout, b"twelve, no end of line", now).unwrap();
    pack.output(&again, Stream::Stderr, b"better\n", now).unwrap();
    pack.output(&again, Stream::Stdout, b"three\n", now).unwrap();
    pack.end(&run("7_12"), &end(0, Some(9), 1000), now).unwrap();
    pack.end(&again, &end(0, None, 0), now).unwrap();
    pack.end(&run("2"), &end(0, None, 250), now).unwrap();
    pack.close().unwrap();
}

#[test]
fn output_comes_in_the_order_in_which_it_was_written() {
    let folder = Folder::new();
    job(&folder.file("out.pack"));
    assert_eq!(folder.cat("out.pack"), ok("one, first\nrank 0\nrank 1\none, second\nthree\ntwelve, no end of line"),);
    assert_eq!(folder.cat("out.pack --stderr"), ok("no luck\nbetter\n"));
    assert_eq!(
        folder.cat("--all out.pack"),
        (
            "one, first\nrank 0\nrank 1\none, second\nthree\ntwelve, no end of line".to_owned(),
            "no luck\nbetter\n".to_owned(),
            0
        ),
    );
    assert_eq!(
        folder.cat("-l out.pack"),
        ok("5609.1: one, first\n5609.2: rank 0\n5609.2-1: rank 1\n5609.1: one, second\n5609.7_3#1: three\n\
            5609.7_12: twelve, no end of line\n"),
    );
}

#[test]
fn both_streams_into_one_file_keep_their_order() {
    let folder = Folder::new();
    job(&folder.file("out.pack"));
    let both = File::create(folder.file("both")).unwrap();
    let status = folder.command("out.pack --all --step=7").stdout(both.try_clone().unwrap()).stderr(both).status();
    assert!(status.unwrap().success());
    assert_eq!(fs::read_to_string(folder.file("both")).unwrap(), "no luck\nbetter\nthree\ntwelve, no end of line");
}

#[test]
fn steps_are_chosen_in_every_form() {
    let folder = Folder::new();
    job(&folder.file("out.pack"));
    let (one, two) = ("one, first\none, second\n", "rank 0\nrank 1\n");
    assert_eq!(folder.cat("out.pack --step 1"), ok(one));
    assert_eq!(folder.cat("out.pack --step=5609.2"), ok(two));
    assert_eq!(folder.cat("out.pack --step=7_3"), ok("three\n"));
    assert_eq!(folder.cat("out.pack --step=5609.7_[1-20]"), ok("three\ntwelve, no end of line"));
    assert_eq!(folder.cat("out.pack --step=2-6,7_3"), ok("rank 0\nrank 1\nthree\n"));
    assert_eq!(folder.cat("out.pack --step=2 --step=7_3"), ok("rank 0\nrank 1\nthree\n"));
    let none = ("garrick cat: error: no records of such steps\n".to_owned(), 1);
    for list in ["3-6", "7_4", "5610.1", "batch"] {
        let (out, err, code) = folder.cat(&format!("out.pack --step={list}"));
        assert_eq!((out.as_str(), (err, code)), ("", none.clone()), "{list}");
    }
}

#[test]
fn a_list_has_a_line_for_each_task() {
    let folder = Folder::new();
    job(&folder.file("out.pack"));
    let expected = "\
STEP      RANK ATTEMPT EXIT        ELAPSED MAXRSS STDOUT STDERR
5609.1       0       0  0:0   00:00:00.012  3800K     23      0
5609.2       0       0  0:0   00:00:00.250  3800K      7      0
5609.2       1       0    -              -      -      7      0
5609.7_3     0       0  1:0 1-01:01:01.007  3800K      0      8
5609.7_3     0       1  0:0   00:00:00.000  3800K      6      7
5609.7_12    0       0  0:9   00:00:01.000  3800K     22      0
";
    assert_eq!(folder.cat("out.pack --list"), ok(expected));
    // Elapsed times of less than a minute began with ` 0:0` once, so that every task was found.
    assert_eq!(expected.lines().filter(|line| line.contains(" 0:0")).count(), 3);
    let (out, _, code) = folder.cat("out.pack --list --step=7_12");
    assert_eq!((out.lines().count(), code), (2, 0));
}

#[test]
fn packs_of_several_nodes_are_read_by_their_common_name() {
    let folder = Folder::new();
    let now = Instant::now();
    for node in ["n2", "n10", "n1"] {
        let mut pack = PackWriter::open(&on_node(&folder.file("out.pack"), node)).unwrap();
        pack.output(&run("0"), Stream::Stdout, format!("on {node}\n").as_bytes(), now).unwrap();
        pack.close().unwrap();
    }
    fs::write(folder.file("out.pack.txt"), "notes").unwrap();
    assert_eq!(folder.cat("out.pack"), ok("on n1\non n2\non n10\n"));
    assert_eq!(folder.cat("out.pack.n10 out.pack.n1 --step=0"), ok("on n10\non n1\n"));
}

#[test]
fn damage_is_told_and_the_rest_is_read() {
    let folder = Folder::new();
    let path = folder.file("out.pack");
    let now = Instant::now();
    let mut pack = PackWriter::open(&path).unwrap();
    let mut begins = Vec::new();
    for step in 0..4 {
        begins.push(usize::try_from(path.metadata().unwrap().len()).unwrap());
        pack.output(&run(&step.to_string()), Stream::Stdout, format!("step {step}\n").as_bytes(), now).unwrap();
        pack.flush(now).unwrap();
    }
    drop(pack);
    let whole = fs::read(&path).unwrap();
    let mut bytes = whole.clone();
    bytes[begins[1] + 75] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error =
        format!("garrick cat: error: out.pack: damaged block at offset {}: its checksum does not fit\n", begins[1]);
    assert_eq!(folder.cat("out.pack"), ("step 0\nstep 2\nstep 3\n".to_owned(), error, 1));

    let (torn, at) = (whole.len() - begins[3] - 1, begins[3]);
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let error = format!(
        "garrick cat: error: out.pack: the last {torn} bytes are a block that was not finished, at offset {at}\n"
    );
    assert_eq!(folder.cat("out.pack"), ("step 0\nstep 1\nstep 2\n".to_owned(), error, 1));
}

#[test]
fn what_cannot_be_read_is_said() {
    let folder = Folder::new();
    job(&folder.file("out.pack"));
    fs::write(folder.file("script.sh"), "#!/bin/bash\nsrun hostname\n").unwrap();
    let mut later = fs::read(folder.file("out.pack")).unwrap();
    later[8] = 2;
    fs::write(folder.file("later.pack"), later).unwrap();
    let error = |text: &str| (String::new(), format!("garrick cat: error: {text}\n"), 1);
    assert_eq!(folder.cat("none.pack"), error("cannot open none.pack: No such file or directory"));
    assert_eq!(folder.cat("no/where.pack"), error("cannot open no/where.pack: No such file or directory"));
    assert_eq!(folder.cat("script.sh"), error("script.sh: not an output pack"));
    assert_eq!(folder.cat("."), error(".: not a plain file"));
    assert_eq!(
        folder.cat("later.pack"),
        error("later.pack: an output pack of version 2; this program knows version 1")
    );
    let (out, err, code) = folder.cat("script.sh out.pack --step=7_3");
    assert_eq!(
        (out.as_str(), err.as_str(), code),
        ("three\n", "garrick cat: error: script.sh: not an output pack\n", 1)
    );

    let hint = "Try \"garrick cat --help\" for more information\n";
    let misuse = |text: &str| (String::new(), format!("garrick cat: error: {text}\n{hint}"), 1);
    assert_eq!(folder.cat(""), misuse("which output pack?"));
    assert_eq!(folder.cat("out.pack --list -f"), misuse("--list and --follow do not go together"));
    assert_eq!(
        folder.cat("out.pack --step=seven"),
        misuse("--step=seven: step id \"seven\": \"seven\" is not a number")
    );
    let (_, err, code) = folder.cat("out.pack --folow");
    assert_eq!((err.as_str(), code), (&*format!("garrick cat: unrecognized option '--folow'\n{hint}"), 1));
}

#[test]
fn a_reader_that_goes_away_is_a_normal_end() {
    let folder = Folder::new();
    let now = Instant::now();
    let mut pack = PackWriter::open(&folder.file("out.pack")).unwrap();
    (0..40).for_each(|_| pack.output(&run("0"), Stream::Stdout, &b"many lines\n".repeat(5000), now).unwrap());
    pack.close().unwrap();
    let mut child = folder.command("out.pack").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 11];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!((first.as_slice(), told(child.wait_with_output().unwrap())), (b"many lines\n".as_slice(), ok("")));
}

/// A command that follows; ended with the test.
struct Follower {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Follower {
    fn new(folder: &Folder, words: &str) -> Self {
        let mut child = folder.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    /// What it said on standard error, and its exit code.
    fn ended(mut self) -> (String, i32) {
        assert_eq!(self.line(), "");
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (said, self.child.wait().unwrap().code().unwrap())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn packs_are_followed_from_before_they_are_made_until_they_are_closed() {
    let folder = Folder::new();
    let now = Instant::now();
    let mut all = Follower::new(&folder, "out.pack --follow --label");
    let mut said = [0; 9];
    all.child.stderr.as_mut().unwrap().read_exact(&mut said).unwrap();
    let mut pack = PackWriter::open(&folder.file("out.pack")).unwrap();
    let mut one = Follower::new(&folder, "out.pack -f --step=7_2 --stderr");
    for task in 0..4 {
        let task = run(&format!("7_{task}"));
        pack.output(&task, Stream::Stdout, b"out\nbegun", now).unwrap();
        pack.output(&task, Stream::Stderr, format!("err {}\n", task.step).as_bytes(), now).unwrap();
        pack.flush(now).unwrap();
        assert_eq!(all.line(), format!("{}: out\n", task.step));
        pack.end(&task, &end(0, None, 5), now).unwrap();
        pack.flush(now).unwrap();
        assert_eq!(all.line(), format!("{}: begun\n", task.step));
    }
    assert_eq!(one.line(), "err 5609.7_2\n");
    pack.close().unwrap();
    drop(pack);
    assert_eq!(one.ended(), (String::new(), 0));
    assert_eq!(all.ended(), ("at: waiting for the output pack to be made\n".to_owned(), 0));
}

#[test]
fn the_nodes_of_a_job_are_followed_together() {
    let folder = Folder::new();
    let now = Instant::now();
    let open = |node| PackWriter::open(&on_node(&folder.file("out.pack"), node)).unwrap();
    let write = |pack: &mut PackWriter, text: &str| {
        pack.output(&run("0"), Stream::Stdout, text.as_bytes(), now).unwrap();
        pack.flush(now).unwrap();
    };
    let mut first = open("n1");
    write(&mut first, "one\n");
    let mut follower = Follower::new(&folder, "out.pack -f");
    assert_eq!(follower.line(), "one\n");
    let mut second = open("n2");
    write(&mut second, "two\n");
    assert_eq!(follower.line(), "two\n");
    first.close().unwrap();
    drop(first);
    write(&mut second, "three\n");
    assert_eq!(follower.line(), "three\n");
    second.close().unwrap();
    drop(second);
    assert_eq!(follower.ended(), (String::new(), 0));
}

#[test]
fn a_writer_that_died_ends_the_wait() {
    let folder = Folder::new();
    let mut pack = PackWriter::open(&folder.file("out.pack")).unwrap();
    pack.output(&run("0"), Stream::Stdout, b"last words", Instant::now()).unwrap();
    pack.flush(Instant::now()).unwrap();
    let mut follower = Follower::new(&folder, "out.pack -f");
    // As the kernel does it when a process ends: the file is not closed with a mark.
    drop(pack);
    assert_eq!(follower.line(), "last words");
    let error = "garrick cat: error: out.pack: its writer ended without closing it\n";
    assert_eq!(follower.ended(), (error.to_owned(), 1));
}
