#![allow(clippy::unwrap_used)]
use super::*;
use garrick_kernel::{
    reap::wait_timeout,
    scratch::{ENTRY, Scratch, put_program, root_or_skip},
    spawn::{Identity, cstring},
};
use garrick_model::{
    ids::{JobId, StepId, StepNum},
    messages::{
        launch_failure::LaunchFailure,
        launcher::{
            FdSource, FileMode, FromLauncher, SpawnTask, TaskHeld, TaskLabel, TaskOver, TaskSetting, ToLauncher,
        },
    },
};
use std::{
    io::Read,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    sync::Arc,
    time::Duration,
};

mod adoption;
pub(crate) mod ahead;
mod packs;
mod unasked;

/// A launcher process: this test program again, which becomes one before its own main.
fn started(user: Option<Identity>, listen_at: Option<&Path>) -> LauncherHandle {
    let mut spec = LauncherSpec::new(user);
    spec.listen_at = listen_at;
    spec.env = vec![cstring(format!("{ENTRY}=launcher")).unwrap()];
    start(spec).unwrap()
}

/// Of a process of user and group 65534 that cannot do more than others.
const NOBODYS: &str = "65534 65534 65534 65534, 65534 65534 65534 65534, [65530 65534], 0, 0, 0, 0";

/// Ids of user, group and groups of a process; its inheritable, permitted, effective and ambient capabilities.
fn ids_and_capabilities(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let words = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let capabilities = ["CapInh", "CapPrm", "CapEff", "CapAmb"].map(|name| {
        let set = u64::from_str_radix(&words(name), 16).unwrap();
        format!("{set:x}")
    });
    format!("{}, {}, [{}], {}", words("Uid"), words("Gid"), words("Groups"), capabilities.join(", "))
}

#[test]
fn a_launcher_reads_the_words_that_it_is_started_with() {
    let user = Some(Identity { uid: 1, gid: 2, groups: vec![3, 4] });
    let listen = Some((4, Path::new("/a b").to_owned()));
    for arguments in [
        Arguments { fd: 3, ..Arguments::default() },
        Arguments { fd: 3, listen, successor: true, user },
        Arguments { fd: 3, user: Some(Identity { uid: 1, gid: 2, groups: Vec::new() }), ..Arguments::default() },
    ] {
        let words = arguments.words();
        assert_eq!(Arguments::parse(&words.iter().map(|word| word.as_os_str()).collect::<Vec<_>>()), Some(arguments));
    }
    for wrong in ["1", "1:2", "1:x:", "1:2:3,y"] {
        assert_eq!(Arguments::parse(&["--fd", "3", "--as", wrong].map(OsStr::new)), None, "{wrong}");
    }
}

#[test]
fn a_launcher_that_is_executed_changes_its_ids_itself() {
    if !root_or_skip("a_launcher_that_is_executed_changes_its_ids_itself") {
        return;
    }
    let mut rig = Rig::new(Some(nobody()));
    let (_read, write) = pipe();
    rig.spawn(task(1, "exit 7"), &[write.as_fd()]);
    rig.spawned();
    assert_eq!(rig.exited(), (1, 7, None));
    assert_eq!(ids_and_capabilities(rig.launcher.pid), NOBODYS);
    // proc_pid(5): what cannot be dumped is root's.
    let owner = std::fs::metadata(format!("/proc/{}/environ", rig.launcher.pid)).unwrap().uid();
    assert_eq!(owner, 0);
    rig.finish();
}

struct Rig {
    launcher: LauncherHandle,
}

impl Rig {
    fn new(user: Option<Identity>) -> Self {
        Self::with(started(user, None))
    }

    fn with(launcher: LauncherHandle) -> Self {
        let mut rig = Self { launcher };
        let entries = |list: &[&str]| Arc::new(list.iter().map(|e| e.as_bytes().to_vec().into()).collect());
        let base = entries(&["PATH=/usr/bin:/bin", "A=0"]);
        rig.order(&ToLauncher::SetEnvironment { id: 1, over: None, entries: base }, &[]);
        rig.order(&ToLauncher::SetEnvironment { id: 2, over: Some(1), entries: entries(&["A=1"]) }, &[]);
        // Settings keep what they were made with.
        rig.set(1, setting(2));
        rig.order(&ToLauncher::DropEnvironment { id: 2 }, &[]);
        rig
    }

    fn set(&mut self, id: u32, setting: TaskSetting) {
        self.order(&ToLauncher::SetSetting { id, setting }, &[]);
    }

    fn order(&mut self, order: &ToLauncher, fds: &[BorrowedFd<'_>]) {
        self.launcher.channel.send(order, fds).unwrap();
    }

    fn answer(&mut self) -> FromLauncher {
        self.launcher.channel.recv().unwrap().0
    }

    fn spawn(&mut self, task: SpawnTask, fds: &[BorrowedFd<'_>]) {
        self.order(&ToLauncher::Spawn(Box::new(task)), fds);
    }

    fn spawned(&mut self) -> u32 {
        match self.answer() {
            FromLauncher::Spawned { pid, .. } => pid,
            other => panic!("{other:?}"),
        }
    }

    fn exited(&mut self) -> (u64, u8, Option<u8>) {
        match self.answer() {
            FromLauncher::Exited { token, status, .. } => (token, status.code, status.signal),
            other => panic!("{other:?}"),
        }
    }

    /// Told to finish, it ends well.
    fn finish(mut self) {
        self.order(&ToLauncher::Finish, &[]);
        self.ended(0);
    }

    /// Its `stepd` is gone.
    fn left(mut self) -> Self {
        self.launcher.channel = FdChannel::pair(limits::LAUNCHER).unwrap().0;
        self
    }

    fn ended(&self, code: u8) {
        let status = wait_timeout(self.launcher.pidfd.as_fd(), Duration::from_secs(600)).unwrap().unwrap();
        assert_eq!((status.code, status.signal), (code, None));
        reap::reap(self.launcher.pidfd.as_fd()).unwrap();
    }
}

fn setting(environment: u32) -> TaskSetting {
    TaskSetting { environment, work_dir: "/tmp".to_owned(), umask: 0o022, nice: None, rlimits: Vec::new() }
}

fn label(token: u64) -> TaskLabel {
    let step = StepId { array: Some(token as u32), ..StepId::new(JobId(5609), StepNum::Number(7)) };
    TaskLabel { step, attempt: 0, rank: 0, own_cgroup: false, epilog: false, profiling: Default::default() }
}

fn task(token: u64, script: &str) -> SpawnTask {
    SpawnTask {
        stdio: [FdSource::Null, FdSource::Passed(0), FdSource::SameAsStdout],
        ..SpawnTask::bare(token, label(token), arguments(&["sh", "-c", script]), 1)
    }
}

fn arguments(words: &[&str]) -> Arc<Vec<serde_bytes::ByteBuf>> {
    Arc::new(words.iter().map(|a| a.as_bytes().to_vec().into()).collect())
}

fn pipe() -> (std::io::PipeReader, OwnedFd) {
    let (read, write) = std::io::pipe().unwrap();
    (read, write.into())
}

fn nobody() -> Identity {
    Identity { uid: 65534, gid: 65534, groups: vec![65534, 65530] }
}

#[test]
fn tasks_run_and_report_their_end() {
    let mut rig = Rig::new(None);
    let (read, write) = pipe();
    let mut one = task(7, "echo $A $B; echo problem >&2; exit 9");
    one.extra_env = vec![b"B=2".to_vec().into()];
    rig.spawn(one, &[write.as_fd()]);
    drop(write);
    assert!(rig.spawned() > 0);
    assert_eq!(std::io::read_to_string(read).unwrap(), "1 2\nproblem\n");
    assert_eq!(rig.exited(), (7, 9, None));
    rig.finish();
}

#[test]
fn root_runs_tasks_as_their_user() {
    if !root_or_skip("a user switch") {
        return;
    }
    let dir = Scratch::new("launcher");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let out = dir.join("out");
    let mut rig = Rig::new(Some(nobody()));
    let mut one = task(1, "id -u; id -g; id -G; ls -l /proc/self/fd | grep -c ' -> '; umask");
    one.stdio[1] = FdSource::File { path: out.to_str().unwrap().to_owned(), mode: FileMode::Truncate };
    rig.set(2, TaskSetting { umask: 0o077, ..setting(1) });
    one.setting = 2;
    rig.spawn(one, &[]);
    rig.spawned();
    assert_eq!(rig.exited(), (1, 0, None));
    // Descriptors: 0 to 2, and the folder that `ls` reads.
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "65534\n65534\n65534 65530\n4\n0077\n");
    let file = std::fs::metadata(&out).unwrap();
    assert_eq!((file.uid(), file.gid(), file.permissions().mode() & 0o777), (65534, 65534, 0o600));
    // A folder that only root may write.
    let mut two = task(2, "true");
    two.stdio[1] = FdSource::File { path: "/etc/garrick-launcher-test".to_owned(), mode: FileMode::Append };
    rig.spawn(two, &[]);
    assert_eq!(
        rig.answer(),
        FromLauncher::SpawnFailed {
            token: 2,
            failure: LaunchFailure::new("open stdout", "/etc/garrick-launcher-test", libc::EACCES)
        }
    );
    // Nobody else of that user may look into the launcher.
    let mut three = task(3, &format!("cat /proc/{}/environ; readlink /proc/{0}/fd/3", rig.launcher.pid));
    three.stdio[1] = FdSource::Null;
    rig.spawn(three, &[]);
    rig.spawned();
    assert_eq!(rig.exited(), (3, 1, None));
    rig.finish();
}

#[test]
fn failures_name_stage_subject_and_number() {
    let mut rig = Rig::new(None);
    let (_read, write) = pipe();
    let mut cases = Vec::new();
    let mut t = task(1, "");
    t.argv = arguments(&["no-such-program"]);
    cases.push((t, "execve", "no-such-program", libc::ENOENT));
    rig.set(2, setting(99));
    let mut t = task(2, "");
    t.setting = 2;
    cases.push((t, "environment", "99", libc::ENOENT));
    let mut t = task(3, "");
    t.setting = 99;
    cases.push((t, "setting", "99", libc::ENOENT));
    let mut t = task(4, "");
    t.stdio[0] = FdSource::Passed(5);
    cases.push((t, "descriptor of stdin", "5", libc::EBADF));
    let mut t = task(5, "");
    t.stdio[0] = FdSource::File { path: "/no/such/input".to_owned(), mode: FileMode::Read };
    cases.push((t, "open stdin", "/no/such/input", libc::ENOENT));
    let mut t = task(6, "");
    t.argv = arguments(&[]);
    cases.push((t, "execve", "empty command", libc::ENOENT));
    let mut t = task(7, "");
    t.cgroups = Some(9);
    cases.push((t, "descriptor of cgroup", "9", libc::EBADF));
    for (task, stage, subject, errno) in cases {
        let token = task.token;
        rig.spawn(task, &[write.as_fd()]);
        let failure = LaunchFailure::new(stage, subject, errno);
        assert_eq!(rig.answer(), FromLauncher::SpawnFailed { token, failure });
    }
    rig.finish();
}

#[test]
fn a_working_directory_out_of_reach_is_replaced_and_the_task_says_so() {
    let mut rig = Rig::new(None);
    let (read, write) = pipe();
    rig.set(2, TaskSetting { work_dir: "/no/such/folder".to_owned(), ..setting(1) });
    let mut one = task(1, "pwd");
    one.setting = 2;
    rig.spawn(one, &[write.as_fd()]);
    drop(write);
    rig.spawned();
    let text =
        "slurmstepd: error: couldn't chdir to `/no/such/folder': No such file or directory: going to /tmp instead";
    assert_eq!(std::io::read_to_string(read).unwrap(), format!("{text}\n/tmp\n"));
    assert_eq!(rig.exited(), (1, 0, None));
    rig.finish();
}

/// What `sh -c` does, and promises of a list's lines rest on.
#[test]
fn a_script_without_an_interpreter_is_run_by_the_shell_where_the_task_says_so() {
    let dir = Scratch::new("launcher");
    let folder = dir.join("-bin");
    std::fs::create_dir(&folder).unwrap();
    let script = folder.join("greet");
    put_program(&script, "echo $0 says $1 in $A\nexit 4\n");
    let mut rig = Rig::new(None);
    rig.set(2, TaskSetting { work_dir: dir.join("").to_str().unwrap().to_owned(), ..setting(1) });
    let greet = |token, program: &str, quiet| SpawnTask {
        setting: 2,
        argv: arguments(&[program, "hello"]),
        extra_env: vec![b"PATH=/no/such:-bin:/bin".to_vec().into()],
        quiet,
        or_shell: true,
        ..task(token, "")
    };
    let whole = script.to_str().unwrap();
    for (token, program, path) in [(1, whole, whole), (2, "greet", "./-bin/greet"), (3, "-bin/greet", "./-bin/greet")] {
        let (read, write) = pipe();
        rig.spawn(greet(token, program, false), &[write.as_fd()]);
        drop(write);
        rig.spawned();
        assert_eq!(std::io::read_to_string(read).unwrap(), format!("{path} says hello in 0\n"));
        assert_eq!(rig.exited(), (token, 4, None));
    }
    // One that is not waited for until its program runs, with its output in a file.
    let path = dir.join("out").to_str().unwrap().to_owned();
    let stdout = FdSource::File { path, mode: FileMode::Truncate };
    rig.spawn(SpawnTask { stdio: [FdSource::Null, stdout, FdSource::SameAsStdout], ..greet(5, whole, true) }, &[]);
    assert_eq!(rig.exited(), (5, 4, None));
    assert_eq!(std::fs::read_to_string(dir.join("out")).unwrap(), format!("{whole} says hello in 0\n"));
    let (_read, write) = pipe();
    rig.spawn(SpawnTask { or_shell: false, ..greet(6, whole, false) }, &[write.as_fd()]);
    let failure = LaunchFailure::new("execve", whole, libc::ENOEXEC);
    assert_eq!(rig.answer(), FromLauncher::SpawnFailed { token: 6, failure });
    rig.finish();
}

#[test]
fn of_a_quiet_task_only_the_end_is_told() {
    let mut rig = Rig::new(None);
    let (_read, write) = pipe();
    let mut one = task(1, "exit 3");
    one.quiet = true;
    rig.spawn(one, &[write.as_fd()]);
    assert_eq!(rig.exited(), (1, 3, None));
    rig.finish();
}

#[test]
fn failures_of_quiet_tasks_are_told_all_the_same() {
    let dir = Scratch::new("launcher");
    let mut rig = Rig::new(None);
    rig.set(2, TaskSetting { work_dir: "/no/such/folder".to_owned(), ..setting(1) });
    let quiet = |token: u64, setting: u32, words: &[&str]| {
        let path = dir.join(&format!("{token}.out")).to_str().unwrap().to_owned();
        let stdout = FdSource::File { path, mode: FileMode::Truncate };
        let stdio = [FdSource::Null, stdout, FdSource::SameAsStdout];
        SpawnTask { quiet: true, setting, argv: arguments(words), stdio, ..task(token, "") }
    };
    rig.spawn(quiet(1, 1, &["no-such-program"]), &[]);
    let failure = LaunchFailure::new("execve", "no-such-program", libc::ENOENT);
    assert_eq!(rig.answer(), FromLauncher::SpawnFailed { token: 1, failure });
    rig.spawn(quiet(2, 2, &["sh", "-c", "pwd; exit 5"]), &[]);
    assert_eq!(rig.exited(), (2, 5, None));
    let text = std::fs::read_to_string(dir.join("2.out")).unwrap();
    assert!(text.contains("couldn't chdir to `/no/such/folder'") && text.ends_with("\n/tmp\n"), "{text}");
    rig.finish();
}

/// A quiet task behind another, which appends its token to a file.
fn lined_up(token: u64, after: u64, file: &Path, script: &str) -> SpawnTask {
    let words = ["sh", "-c", &format!("{script}echo {token} >> {}", file.display())];
    SpawnTask { quiet: true, after: Some(after), argv: arguments(&words), stdio: NULL, ..task(token, "") }
}

const NULL: [FdSource; 3] = [FdSource::Null, FdSource::Null, FdSource::SameAsStdout];

#[test]
fn tasks_in_a_line_run_one_after_the_other() {
    let dir = Scratch::new("launcher");
    let file = dir.join("order");
    let mut rig = Rig::new(None);
    let hold = dir.join("hold");
    nix::unistd::mkfifo(&hold, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // The first of them waits for the end of its input; all others are there by then.
    let wait = format!("cat {} >/dev/null; ", hold.display());
    rig.spawn(lined_up(1, 99, &file, &wait), &[]);
    for token in 2..6 {
        rig.spawn(lined_up(token, token - 1, &file, ""), &[]);
    }
    let mut short = lined_up(6, 5, &file, "");
    short.argv = arguments(&["/no/such/program"]);
    rig.spawn(short, &[]);
    rig.spawn(lined_up(7, 6, &file, ""), &[]);
    // One that is asked to end does not start; the one behind it does.
    rig.order(&ToLauncher::Signal { token: 3, signal: 15, group: true }, &[]);
    assert_eq!(rig.answer(), FromLauncher::NotStarted { token: 3 });
    drop(std::fs::File::options().write(true).open(&hold).unwrap());
    for token in [1, 2, 4, 5] {
        assert_eq!(rig.exited(), (token, 0, None));
    }
    assert!(matches!(rig.answer(), FromLauncher::SpawnFailed { token: 6, .. }));
    assert_eq!(rig.exited(), (7, 0, None));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "1\n2\n4\n5\n7\n");
    rig.finish();
}

#[test]
fn tasks_beyond_the_users_limits_are_refused_and_the_launcher_goes_on() {
    if !root_or_skip("a user with few processes") {
        return;
    }
    // A user of this test's own: the limit counts all of a user's processes.
    let mut rig = Rig::new(Some(Identity { uid: 64_999, gid: 64_999, groups: vec![] }));
    let (_read, write) = pipe();
    // A task of the user may lower the launcher's limits.
    let limit = |rig: &mut Rig, token, what: &str| {
        rig.spawn(task(token, &format!("exec prlimit --pid $PPID {what}")), &[write.as_fd()]);
        rig.spawned();
        assert_eq!(rig.exited(), (token, 0, None));
    };
    limit(&mut rig, 1, "--nproc=2:");
    rig.spawn(task(2, "exec sleep 1000"), &[write.as_fd()]);
    rig.spawned();
    rig.spawn(task(3, "true"), &[write.as_fd()]);
    let failure = LaunchFailure::new("clone", "sh", libc::EAGAIN);
    assert_eq!(rig.answer(), FromLauncher::SpawnFailed { token: 3, failure });
    rig.order(&ToLauncher::Signal { token: 2, signal: libc::SIGKILL, group: false }, &[]);
    assert_eq!(rig.exited(), (2, 0, Some(9)));
    // Room for what comes with a message, and for no file beside it.
    let open = std::fs::read_dir(format!("/proc/{}/fd", rig.launcher.pid)).unwrap().count();
    limit(&mut rig, 4, &format!("--nofile={}:", open + 1));
    let mut five = task(5, "true");
    five.stdio[0] = FdSource::File { path: "/dev/zero".to_owned(), mode: FileMode::Read };
    rig.spawn(five, &[write.as_fd()]);
    let failure = LaunchFailure::new("open stdin", "/dev/zero", libc::EMFILE);
    assert_eq!(rig.answer(), FromLauncher::SpawnFailed { token: 5, failure });
    rig.spawn(task(6, "true"), &[write.as_fd()]);
    rig.spawned();
    assert_eq!(rig.exited(), (6, 0, None));
    rig.finish();
}

#[test]
fn what_a_task_leaves_in_its_group_is_killed_with_it() {
    let mut rig = Rig::new(None);
    let (mut read, write) = pipe();
    rig.spawn(task(1, "sleep 1000 & exit 0"), &[write.as_fd()]);
    drop(write);
    rig.spawned();
    assert_eq!(rig.exited(), (1, 0, None));
    assert_eq!(read.read(&mut [0]).unwrap(), 0, "the sleep let go of the pipe");
    rig.finish();
}

#[test]
fn descriptors_do_not_pile_up() {
    let mut rig = Rig::new(None);
    let open = |rig: &Rig| std::fs::read_dir(format!("/proc/{}/fd", rig.launcher.pid)).unwrap().count();
    let once = |rig: &mut Rig, token| {
        let (_read, write) = pipe();
        rig.spawn(task(token, "true"), &[write.as_fd()]);
        rig.spawned();
        rig.exited();
        let mut missing = task(token, "true");
        missing.argv = arguments(&["/no/such/program"]);
        rig.spawn(missing, &[write.as_fd()]);
        assert!(matches!(rig.answer(), FromLauncher::SpawnFailed { .. }));
    };
    once(&mut rig, 1);
    let before = open(&rig);
    for token in 2..20 {
        once(&mut rig, token);
    }
    assert_eq!(open(&rig), before);
    rig.finish();
}

#[test]
fn signals_reach_the_task_or_its_whole_group() {
    let mut rig = Rig::new(None);
    let (mut read, write) = pipe();
    rig.spawn(task(1, "trap 'exit 3' TERM; echo up; while :; do sleep 1000 & wait $!; done"), &[write.as_fd()]);
    drop(write);
    rig.spawned();
    let mut up = [0; 3];
    read.read_exact(&mut up).unwrap();
    rig.order(&ToLauncher::Signal { token: 99, signal: libc::SIGKILL, group: true }, &[]);
    rig.order(&ToLauncher::Signal { token: 1, signal: libc::SIGTERM, group: false }, &[]);
    assert_eq!(rig.exited(), (1, 3, None));
    // The sleep in the background went with its group, and let go of the pipe.
    assert_eq!(read.read(&mut up).unwrap(), 0);
    let (_read, write) = pipe();
    rig.spawn(task(2, "sleep 1000"), &[write.as_fd()]);
    rig.spawned();
    rig.order(&ToLauncher::Signal { token: 2, signal: libc::SIGKILL, group: true }, &[]);
    assert_eq!(rig.exited(), (2, 0, Some(9)));
    rig.finish();
}

#[test]
fn many_tasks_in_one_burst_all_report() {
    const TASKS: u64 = 200;
    let mut rig = Rig::new(None);
    let (_read, write) = pipe();
    for token in 0..TASKS {
        rig.spawn(task(token, &format!("exit {}", token % 7)), &[write.as_fd()]);
    }
    let mut ended = std::collections::BTreeMap::new();
    while ended.len() < TASKS as usize {
        if let FromLauncher::Exited { token, status, .. } = rig.answer() {
            assert_eq!(ended.insert(token, status.code), None);
        }
    }
    assert!(ended.iter().all(|(t, code)| u64::from(*code) == t % 7));
    rig.finish();
}

#[test]
fn texts_are_appended_to_files() {
    let dir = Scratch::new("launcher");
    let mut rig = Rig::new(None);
    for (name, text) in [("out", "one\n"), ("no/such/folder", "lost\n"), ("out", "two\n")] {
        let path = dir.join(name).to_str().unwrap().to_owned();
        rig.order(&ToLauncher::AppendText { path, text: text.as_bytes().to_vec().into() }, &[]);
    }
    rig.finish();
    assert_eq!(std::fs::read_to_string(dir.join("out")).unwrap(), "one\ntwo\n");
}

#[test]
fn a_finishing_launcher_waits_for_its_tasks() {
    let mut rig = Rig::new(None);
    let (read, mut write) = std::io::pipe().unwrap();
    let input = OwnedFd::from(read);
    let mut waiting = task(1, "read x; exit 4");
    waiting.stdio = [FdSource::Passed(0), FdSource::Null, FdSource::Null];
    rig.spawn(waiting, &[input.as_fd()]);
    rig.spawned();
    rig.order(&ToLauncher::Finish, &[]);
    Write::write_all(&mut write, b"go\n").unwrap();
    assert_eq!(rig.exited(), (1, 4, None));
    rig.ended(0);
}

#[test]
fn a_launcher_whose_stepd_is_gone_kills_all_it_started() {
    let mut rig = Rig::new(None);
    let (mut read, write) = pipe();
    // One in its group, one that left session and parent; both hold the pipe.
    rig.spawn(task(1, "setsid sleep 1000 & sleep 1000 & echo up; wait"), &[write.as_fd()]);
    drop(write);
    rig.spawned();
    let mut up = [0; 3];
    read.read_exact(&mut up).unwrap();
    let rig = rig.left();
    assert_eq!(read.read(&mut up).unwrap(), 0, "the pipe has no writer left");
    rig.ended(1);
}

#[test]
fn tasks_on_a_terminal_have_it_under_control() {
    let pty = garrick_kernel::pty::open(garrick_kernel::pty::WindowSize { rows: 24, cols: 80 }, None).unwrap();
    let mut rig = Rig::new(None);
    let mut one = task(1, "stty size < /dev/tty");
    one.pty = true;
    one.stdio = [FdSource::Passed(0), FdSource::Passed(0), FdSource::SameAsStdout];
    rig.spawn(one, &[pty.terminal.as_fd()]);
    drop(pty.terminal);
    rig.spawned();
    let mut text = Vec::new();
    // Ends with EIO when the terminal has no holder left.
    let _ = std::fs::File::from(pty.master).read_to_end(&mut text);
    assert_eq!(text, b"24 80\r\n");
    assert_eq!(rig.exited(), (1, 0, None));
    rig.finish();
}
