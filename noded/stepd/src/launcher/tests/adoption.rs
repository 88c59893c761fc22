//! A launcher outlives its `stepd`.

use super::*;
use garrick_kernel::{signals, sockets};

impl Rig {
    /// Another `stepd` connects, and is told what there is.
    fn adopted(self, path: &Path) -> (Self, Vec<TaskHeld>, Vec<TaskOver>) {
        let uid = nix::unistd::geteuid().as_raw();
        self.adopted_of(path, uid)
    }

    fn adopted_of(self, path: &Path, uid: u32) -> (Self, Vec<TaskHeld>, Vec<TaskOver>) {
        let LauncherHandle { channel, pid, pidfd: _ } = adopt(path, uid).unwrap();
        assert_eq!(pid, self.launcher.pid);
        let mut rig = self;
        rig.launcher.channel = channel;
        rig.order(&ToLauncher::Adopt, &[]);
        let (mut tasks, mut ended) = (Vec::new(), Vec::new());
        loop {
            match rig.answer() {
                FromLauncher::Held { tasks: t, ended: e, first, more } => {
                    assert!(first);
                    tasks.extend(t);
                    ended.extend(e);
                    if !more {
                        return (rig, tasks, ended);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A folder that a launcher under another user can look into, with a place for its socket.
fn place() -> (Scratch, PathBuf) {
    let dir = Scratch::new("adoption");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = dir.join("door.launcher");
    (dir, path)
}

fn codes(ended: &[TaskOver]) -> Vec<(u64, u8)> {
    ended.iter().map(|over| (over.token, over.status.code)).collect()
}

#[test]
fn another_stepd_finds_what_runs_and_how_the_rest_ended() {
    let (dir, path) = place();
    let mut rig = Rig::with(started(None, Some(&path)));
    let (_read, write) = pipe();
    rig.spawn(task(1, "exit 3"), &[write.as_fd()]);
    rig.spawned();
    assert_eq!(rig.exited(), (1, 3, None));
    let mut missing = task(2, "");
    missing.argv = arguments(&["/no/such/program"]);
    rig.spawn(missing, &[write.as_fd()]);
    assert!(matches!(rig.answer(), FromLauncher::SpawnFailed { .. }));
    // One that ends while nobody is there, and one that lasts.
    let (held, mut go) = std::io::pipe().unwrap();
    let held = OwnedFd::from(held);
    let mut short = task(3, "read x; exit 5");
    short.stdio = [FdSource::Passed(0), FdSource::Null, FdSource::Null];
    rig.spawn(short, &[held.as_fd()]);
    let short_pid = rig.spawned();
    let error_file = dir.join("err").to_str().unwrap().to_owned();
    let mut long = task(4, "sleep 1000");
    long.label.own_cgroup = true;
    long.stdio[1] = FdSource::File { path: error_file.clone(), mode: FileMode::Append };
    rig.spawn(long, &[]);
    let pid = rig.spawned();
    let short_process = signals::pidfd_open(short_pid).unwrap();
    let rig = rig.left();
    Write::write_all(&mut go, b"go\n").unwrap();
    // Gone, and not a zombie: the launcher reaped it.
    let mut gone = nix::poll::PollFd::new(short_process.as_fd(), nix::poll::PollFlags::POLLIN);
    nix::poll::poll(std::slice::from_mut(&mut gone), nix::poll::PollTimeout::NONE).unwrap();
    let (rig, tasks, ended) = rig.adopted(&path);
    let label = TaskLabel { own_cgroup: true, ..label(4) };
    let mut expected = vec![TaskHeld { token: 4, pid, label, error_path: Some(error_file) }];
    let mut over = vec![(1, 3), (2, 2), (3, 5)];
    // It may have ended and not be reaped yet: then its end follows.
    let mut rig = rig;
    if tasks.len() == 2 {
        assert_eq!(rig.exited(), (3, 5, None));
        expected.insert(0, tasks[0].clone());
        over.pop();
    }
    assert_eq!((tasks, codes(&ended)), (expected, over));
    // The new stepd's word counts, and numbers of the former one mean nothing.
    let mut stale = task(5, "true");
    stale.setting = 1;
    rig.spawn(stale, &[write.as_fd()]);
    let failure = LaunchFailure::new("setting", "1", libc::ENOENT);
    assert_eq!(rig.answer(), FromLauncher::SpawnFailed { token: 5, failure });
    rig.order(&ToLauncher::Signal { token: 4, signal: libc::SIGTERM, group: true }, &[]);
    assert_eq!(rig.exited(), (4, 0, Some(15)));
    let mut again = Rig::with(rig.launcher);
    again.spawn(task(6, "exit 1"), &[write.as_fd()]);
    again.spawned();
    assert_eq!(again.exited(), (6, 1, None));
    again.finish();
}

#[test]
fn a_launcher_is_taken_over_again_and_again() {
    let (_dir, path) = place();
    let mut rig = Rig::with(started(None, Some(&path)));
    let (_read, write) = pipe();
    rig.spawn(task(9, "sleep 1000"), &[write.as_fd()]);
    rig.spawned();
    for _ in 0..3 {
        let (next, tasks, ended) = rig.left().adopted(&path);
        assert_eq!((tasks.len(), ended.len()), (1, 0));
        rig = next;
    }
    rig.order(&ToLauncher::Signal { token: 9, signal: libc::SIGKILL, group: true }, &[]);
    assert_eq!(rig.exited(), (9, 0, Some(9)));
    rig.finish();
}

#[test]
fn thousands_of_ends_are_told_in_pieces() {
    let (_dir, path) = place();
    let mut rig = Rig::with(started(None, Some(&path)));
    let mut missing = task(0, "");
    missing.argv = arguments(&["/no/such/program"]);
    missing.stdio = [FdSource::Null, FdSource::Null, FdSource::Null];
    for token in 0..1500 {
        missing.token = token;
        rig.spawn(missing.clone(), &[]);
        assert!(matches!(rig.answer(), FromLauncher::SpawnFailed { .. }));
    }
    let (rig, tasks, ended) = rig.left().adopted(&path);
    assert!(tasks.is_empty());
    assert!(ended.iter().map(|over| over.token).eq(0..1500));
    rig.finish();
}

#[test]
fn a_launcher_whose_file_is_gone_kills_what_it_has_and_ends() {
    let (_dir, path) = place();
    let mut rig = Rig::with(started(None, Some(&path)));
    let (mut read, write) = pipe();
    rig.spawn(task(1, "setsid sleep 1000 & echo up; wait"), &[write.as_fd()]);
    drop(write);
    rig.spawned();
    read.read_exact(&mut [0; 3]).unwrap();
    let rig = rig.left();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(read.read(&mut [0]).unwrap(), 0, "the pipe has no writer left");
    rig.ended(1);
}

#[test]
fn a_launcher_that_was_to_finish_waits_for_nobody() {
    let (_dir, path) = place();
    let mut rig = Rig::with(started(None, Some(&path)));
    let (mut read, write) = pipe();
    rig.spawn(task(1, "sleep 1000"), &[write.as_fd()]);
    drop(write);
    rig.spawned();
    rig.order(&ToLauncher::Finish, &[]);
    let rig = rig.left();
    assert_eq!(read.read(&mut [0]).unwrap(), 0, "the pipe has no writer left");
    rig.ended(1);
}

#[test]
fn nobody_gets_in_while_a_stepd_is_there() {
    let (_dir, path) = place();
    let mut rig = Rig::with(started(None, Some(&path)));
    let (_read, write) = pipe();
    let mut once = |token| {
        rig.spawn(task(token, "exit 4"), &[write.as_fd()]);
        rig.spawned();
        assert_eq!(rig.exited(), (token, 4, None));
    };
    // It serves, and so it listens.
    once(1);
    let second = sockets::connect(&path).unwrap();
    let mut second = FdChannel::new(second, limits::LAUNCHER);
    second.send(&ToLauncher::Finish, &[]).unwrap();
    // The first is served, and the second has not been heard.
    once(2);
    assert!(second.try_recv::<FromLauncher>().unwrap().is_none());
    rig.finish();
}

#[test]
fn only_the_user_that_started_a_launcher_may_take_it_over() {
    if !root_or_skip("another user's launcher") {
        return;
    }
    let (_dir, path) = place();
    let mut rig = Rig::with(started(Some(nobody()), Some(&path)));
    let (_read, write) = pipe();
    // The user's own tasks cannot reach the socket.
    let script = format!("test -S {0} && ! test -w {0}", path.display());
    rig.spawn(task(1, &script), &[write.as_fd()]);
    rig.spawned();
    assert_eq!(rig.exited(), (1, 0, None));
    rig.spawn(task(2, "sleep 1000"), &[write.as_fd()]);
    rig.spawned();
    let rig = rig.left();
    // Somebody let everybody in: the launcher looks at who comes.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let stranger = spawn::spawn(&spawn::SpawnSpec {
        programs: vec![c"/usr/bin/python3".to_owned()],
        argv: ["python3", "-c", CONNECT, path.to_str().unwrap()]
            .map(|a| std::borrow::Cow::Owned(cstring(a).unwrap()))
            .into(),
        user: Some(nobody()),
        ..Default::default()
    })
    .unwrap();
    let status = reap::reap(stranger.pidfd.as_fd()).unwrap().status;
    if status.code == 127 {
        eprintln!("skipped: a stranger that connects needs python3");
    } else {
        assert_eq!(status.code, 0, "hung up on");
    }
    // And stepd looks at whom it found.
    assert!(matches!(adopt(&path, 0), Err(LauncherError::Connect { .. })));
    let (mut rig, tasks, _) = rig.adopted_of(&path, 65534);
    assert_eq!(tasks.len(), 1);
    rig.order(&ToLauncher::Signal { token: 2, signal: libc::SIGKILL, group: true }, &[]);
    assert_eq!(rig.exited(), (2, 0, Some(9)));
    rig.finish();
}

/// Connects and reads: ends well at the end of the stream.
const CONNECT: &str = "
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
try:
    sys.exit(len(s.recv(1)))
except ConnectionResetError:
    sys.exit(0)
";
