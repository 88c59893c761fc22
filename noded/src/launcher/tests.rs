#![allow(clippy::unwrap_used)]
use super::*;
use crate::kernel::{
    reap::wait_timeout,
    scratch::{ENTRY, Scratch, root_or_skip},
    spawn::{Identity, cstring},
};
use garrick_model::messages::launcher::{FdSource, FileMode, FromLauncher, SpawnTask, ToLauncher};
use std::{
    io::Read,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    os::unix::fs::{MetadataExt, PermissionsExt},
    time::Duration,
};

/// A launcher process: this test program again, which becomes one before its own main.
fn started(user: Option<Identity>) -> LauncherHandle {
    let mut spec = LauncherSpec::new(user);
    spec.env = vec![cstring(format!("{ENTRY}=launcher")).unwrap()];
    start(spec).unwrap()
}

struct Rig {
    launcher: LauncherHandle,
}

impl Rig {
    fn new(user: Option<Identity>) -> Self {
        let mut rig = Self { launcher: started(user) };
        let entries = ["PATH=/usr/bin:/bin", "A=1"].map(|e| e.as_bytes().to_vec().into()).into();
        rig.order(&ToLauncher::SetEnvironment { id: 1, entries }, &[]);
        rig
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

    fn ended(&self, code: u8) {
        let status = wait_timeout(self.launcher.pidfd.as_fd(), Duration::from_secs(600)).unwrap().unwrap();
        assert_eq!((status.code, status.signal), (code, None));
        reap::reap(self.launcher.pidfd.as_fd()).unwrap();
    }
}

fn task(token: u64, script: &str) -> SpawnTask {
    SpawnTask {
        token,
        argv: ["sh", "-c", script].map(|a| a.as_bytes().to_vec().into()).into(),
        environment: 1,
        extra_env: Vec::new(),
        work_dir: "/tmp".to_owned(),
        stdio: [FdSource::Null, FdSource::Passed(0), FdSource::SameAsStdout],
        pty: false,
        umask: 0o022,
        rlimits: Vec::new(),
        affinity: Vec::new(),
        cgroups: None,
    }
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
    one.umask = 0o077;
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
            stage: "open stdout".to_owned(),
            subject: "/etc/garrick-launcher-test".to_owned(),
            errno: libc::EACCES
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
    t.argv = vec![b"no-such-program".to_vec().into()];
    cases.push((t, "execve", "no-such-program", libc::ENOENT));
    let mut t = task(2, "");
    t.work_dir = "/no/such/folder".to_owned();
    cases.push((t, "chdir", "/no/such/folder", libc::ENOENT));
    let mut t = task(3, "");
    t.environment = 99;
    cases.push((t, "environment", "99", libc::ENOENT));
    let mut t = task(4, "");
    t.stdio[0] = FdSource::Passed(5);
    cases.push((t, "descriptor of stdin", "5", libc::EBADF));
    let mut t = task(5, "");
    t.stdio[0] = FdSource::File { path: "/no/such/input".to_owned(), mode: FileMode::Read };
    cases.push((t, "open stdin", "/no/such/input", libc::ENOENT));
    let mut t = task(6, "");
    t.argv.clear();
    cases.push((t, "execve", "empty command", libc::ENOENT));
    let mut t = task(7, "");
    t.cgroups = Some(9);
    cases.push((t, "descriptor of cgroup", "9", libc::EBADF));
    for (task, stage, subject, errno) in cases {
        let token = task.token;
        rig.spawn(task, &[write.as_fd()]);
        let expected = FromLauncher::SpawnFailed { token, stage: stage.to_owned(), subject: subject.to_owned(), errno };
        assert_eq!(rig.answer(), expected);
    }
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
    let Rig { launcher: LauncherHandle { channel, pid, pidfd } } = rig;
    drop(channel);
    assert_eq!(read.read(&mut up).unwrap(), 0, "the pipe has no writer left");
    let spare = FdChannel::pair(limits::LAUNCHER).unwrap().0;
    Rig { launcher: LauncherHandle { channel: spare, pid, pidfd } }.ended(1);
}

#[test]
fn tasks_on_a_terminal_have_it_under_control() {
    let pty = crate::kernel::pty::open(crate::kernel::pty::WindowSize { rows: 24, cols: 80 }, None).unwrap();
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
