//! Valid requests with hostile values at the door of a real controller, as root and as an ordinary user: it answers each, and
//! none takes more than [`MOST_CPU`] of its time or [`MOST_BYTES`] of memory beyond the request's own size.

#![allow(clippy::unwrap_used)]

use garrick_fuzz::{forms, target::MOST_CPU};
use nix::{
    sys::signal::{Signal, kill},
    time::{clock_getcpuclockid, clock_gettime},
    unistd::Pid,
};
use proptest::{
    collection::vec,
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

/// Requests of each user: `GARRICK_FUZZ_CASES`, for a longer run by hand.
const CASES: usize = 400;
/// Beyond a request's own size.
const MOST_BYTES: u64 = 64 << 20;
const NOBODY: u32 = 65534;
/// Place of `SubmitJob` among the requests; the test fails if none of them submits a job.
const SUBMIT_JOB: u8 = 1;

/// A cluster of a controller alone: its node is killed, so that nothing of a hostile job is ever started.
struct Cluster {
    work: PathBuf,
    garrick: PathBuf,
    controller: Pid,
    door: PathBuf,
}

impl Cluster {
    fn up(garrick: &Path) -> Self {
        let work = std::env::temp_dir().join(format!("garrick-hostile-{}", std::process::id()));
        fs::create_dir(&work).unwrap();
        fs::set_permissions(&work, fs::Permissions::from_mode(0o755)).unwrap();
        let mut cluster =
            Self { work, garrick: garrick.to_owned(), controller: Pid::from_raw(0), door: PathBuf::new() };
        cluster.garrick(&["up", "--nodes", "1", "--cpus", "4", "--memory", "4000"]);
        let status: serde_json::Value = serde_json::from_str(&cluster.garrick(&["status", "--json"])).unwrap();
        let pid_of = |role: &str| {
            let process = status.as_array().unwrap().iter().find(|process| process["role"] == role).unwrap();
            Pid::from_raw(i32::try_from(process["pid"].as_i64().unwrap()).unwrap())
        };
        cluster.controller = pid_of("controller");
        kill(pid_of("node"), Signal::SIGKILL).unwrap();
        cluster.door = door_of(cluster.controller);
        cluster
    }

    fn garrick(&self, args: &[&str]) -> String {
        let mut command = Command::new(&self.garrick);
        for (name, _) in std::env::vars() {
            if ["SLURM", "SBATCH_", "GARRICK_"].iter().any(|prefix| name.starts_with(prefix)) {
                command.env_remove(name);
            }
        }
        let command = command.args(args).env("GARRICK_HOME", self.work.join("home")).stdin(Stdio::null());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "garrick {args:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// CPU time of the controller.
    fn cpu(&self) -> Duration {
        clock_gettime(clock_getcpuclockid(self.controller).unwrap()).unwrap().into()
    }

    /// A number of KiB in the controller's status, in bytes.
    fn memory(&self, what: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.controller)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':')).unwrap();
        line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
    }

    /// From now on its greatest memory is counted anew (`clear_refs` in proc_pid(5)).
    fn forget_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.controller), "5").unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.garrick(&["down"]);
        let _ = fs::remove_dir_all(&self.work);
    }
}

/// The Unix socket that the controller listens on.
fn door_of(controller: Pid) -> PathBuf {
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    let open = fs::read_dir(format!("/proc/{controller}/fd")).unwrap().flatten();
    let own: Vec<String> =
        open.filter_map(|fd| Some(fs::read_link(fd.path()).ok()?.to_string_lossy().into_owned())).collect();
    let listens = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let inode = format!("socket:[{}]", words.get(6)?);
        let path = PathBuf::from(words.get(7)?);
        (words[3] == "00010000" && own.contains(&inode) && path.ends_with("ctl.sock")).then_some(path)
    };
    sockets.lines().find_map(listens).unwrap()
}

/// A process that sends requests as some user.
struct Sender {
    child: Child,
    lines: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Sender {
    fn start(program: &Path, door: &Path, uid: u32) -> Self {
        let mut command = Command::new(program);
        command.arg("send").arg(door).stdin(Stdio::piped()).stdout(Stdio::piped()).current_dir("/");
        if uid != 0 {
            command.uid(uid).gid(uid);
        }
        let mut child = command.spawn().unwrap();
        let (lines, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, lines, answers }
    }

    /// What came back, and how many bytes the request had.
    fn send(&mut self, choices: &[u8]) -> (String, u64) {
        let digits: String = choices.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.lines, "{digits}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        match line.trim_end().rsplit_once(' ') {
            Some((kind, bytes)) if !kind.starts_with("ERROR") => (kind.to_owned(), bytes.parse().unwrap()),
            _ => (line.trim_end().to_owned(), 0),
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Mostly the plainest of everything, and a few other choices in between.
fn choices(variants: u8) -> impl Strategy<Value = Vec<u8>> {
    let other = prop_oneof![1 => 1..forms::HOSTILE, 3 => forms::HOSTILE..=255];
    // What is not plain is often a list or an option that has something in it in its turn.
    let edits = vec((0..160usize, vec(other, 1..5)), 0..8);
    // Nothing has more fields than a job.
    let variant = prop_oneof![3 => 0..variants, 1 => Just(SUBMIT_JOB)];
    (variant, edits).prop_map(|(variant, edits)| {
        let mut choices = vec![0; 170];
        for (at, bytes) in edits {
            choices[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        choices[0] = variant;
        choices
    })
}

/// What was wrong with a request, if something was.
fn wrong(answer: &str, cpu: Duration, grown: u64, bytes: u64) -> Option<String> {
    if answer.is_empty() || answer.starts_with("ERROR") {
        return Some(format!("no answer: {answer}"));
    }
    // What the door says when an actor panicked.
    if answer.contains("the controller failed") {
        return Some(answer.to_owned());
    }
    if cpu > MOST_CPU {
        return Some(format!("{cpu:?} of CPU time ({answer})"));
    }
    (grown > MOST_BYTES + bytes).then(|| format!("{} MiB of memory for {bytes} bytes ({answer})", grown >> 20))
}

#[test]
fn no_request_stops_the_controller_or_fills_its_memory() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root, to ask as several users");
        return;
    }
    let sender = Path::new(env!("CARGO_BIN_EXE_garrick-fuzz"));
    for program in ["garrick", "noded", "stepd"] {
        if !sender.with_file_name(program).exists() {
            eprintln!("skipped: {program} is not built: cargo build --workspace");
            return;
        }
    }
    let cluster = Cluster::up(&sender.with_file_name("garrick"));
    // Where it was built may be closed to others.
    let everyones = cluster.work.join("send");
    fs::copy(sender, &everyones).unwrap();
    let cases = std::env::var("GARRICK_FUZZ_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(CASES);
    let variants = u8::try_from(forms::of("CommandRequest").unwrap().variants()).unwrap();
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let (mut found, mut answers) = (Vec::new(), BTreeMap::<String, usize>::new());
    for uid in [NOBODY, 0] {
        let mut sender = Sender::start(&everyones, &cluster.door, uid);
        for _ in 0..cases {
            let choices = choices(variants).new_tree(&mut runner).unwrap().current();
            cluster.forget_peak();
            let (cpu, memory) = (cluster.cpu(), cluster.memory("VmRSS"));
            let (answer, bytes) = sender.send(&choices);
            let (cpu, grown) = (cluster.cpu() - cpu, cluster.memory("VmHWM").saturating_sub(memory));
            if let Some(wrong) = wrong(&answer, cpu, grown, bytes) {
                let end = choices.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
                found.push(format!("uid {uid}, {:?}: {wrong}", &choices[..end]));
                if found.len() > 20 {
                    break;
                }
            }
            *answers.entry(answer).or_default() += 1;
        }
    }
    println!("{answers:?}");
    assert!(found.is_empty(), "{}", found.join("\n"));
    let made: usize = answers.iter().filter(|(kind, _)| *kind != "none").map(|(_, count)| count).sum();
    assert!(made > cases, "of {} only {made} were requests: {answers:?}", 2 * cases);
    assert!(answers.contains_key("Submitted"), "no job was accepted: {answers:?}");
}
