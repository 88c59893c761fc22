#![allow(clippy::unwrap_used)]
use super::*;
use crate::{
    reap,
    scratch::{Scratch, put_program, root_or_skip},
};
use garrick_model::state::ExitStatus;
use std::{
    borrow::Cow,
    ffi::{CStr, CString},
    fs::File,
    io::{Read, Write},
    os::{fd::AsFd, unix::fs::PermissionsExt},
};

const METHODS: [Method; 2] = [Method::Clone3, Method::Fork];

fn arg(text: &str) -> Cow<'static, CStr> {
    Cow::Owned(cstring(text).unwrap())
}

fn shell(script: &str) -> SpawnSpec<'static> {
    SpawnSpec {
        programs: vec![c"/bin/sh".to_owned()],
        argv: vec![arg("sh"), arg("-c"), arg(script)],
        env: vec![arg("PATH=/usr/bin:/bin")],
        ..SpawnSpec::default()
    }
}

fn start(method: Method, spec: &SpawnSpec<'_>) -> Result<Spawned, SpawnError> {
    Spawner::new().unwrap().with_method(method).spawn(spec)
}

/// Runs to the end with output into a pipe.
fn output(method: Method, spec: SpawnSpec<'_>) -> (String, ExitStatus) {
    let (mut read, write) = io::pipe().unwrap();
    let write = OwnedFd::from(write);
    let child = {
        // A new binding, which may borrow for less long.
        let mut spec: SpawnSpec<'_> = spec;
        spec.stdio[1] = Some(write.as_fd());
        start(method, &spec).unwrap()
    };
    drop(write);
    let mut text = String::new();
    read.read_to_string(&mut text).unwrap();
    (text, reap::reap(child.pidfd.as_fd()).unwrap().status)
}

#[test]
fn environment_folder_mask_and_arguments_reach_the_program() {
    let dir = Scratch::new("spawn");
    for method in METHODS {
        let mut spec = shell("pwd; umask; echo $A $1; test $0 = zero; echo $?");
        spec.argv.extend([arg("zero"), arg("one")]);
        spec.env.push(arg("A=b c"));
        spec.work_dir = Some(cstring(dir.path().to_str().unwrap()).unwrap());
        spec.umask = Some(0o027);
        let (text, status) = output(method, spec);
        assert_eq!(text, format!("{}\n0027\nb c one\n0\n", dir.path().display()));
        assert!(status.success());
    }
}

#[test]
fn sessions_and_groups_are_the_childs_own() {
    for method in METHODS {
        for (session, same_group, same_session) in
            [(Session::Inherit, false, false), (Session::OwnGroup, true, false), (Session::OwnSession, true, true)]
        {
            let mut spec = shell("read x < /proc/self/stat; set -- $x; echo $1 $5 $6");
            spec.session = session;
            // `read` is a builtin: /proc/self is the shell.
            let (text, _) = output(method, spec);
            let ids: Vec<u32> = text.split_whitespace().map(|n| n.parse().unwrap()).collect();
            assert_eq!((ids[1] == ids[0], ids[2] == ids[0]), (same_group, same_session), "{method:?} {session:?}");
        }
    }
}

#[test]
fn soft_limits_are_set_and_cut_to_the_hard_ones() {
    let (_, hard) = crate::rlimits::get(libc::RLIMIT_NOFILE).unwrap();
    for method in METHODS {
        let mut spec = shell("ulimit -Sn; ulimit -Sc; ulimit -Hn");
        spec.rlimits = vec![(libc::RLIMIT_NOFILE, Some(77)), (libc::RLIMIT_CORE, Some(0))];
        let (text, _) = output(method, spec);
        let hard = hard.map_or_else(|| "unlimited".to_owned(), |h| h.to_string());
        assert_eq!(text, format!("77\n0\n{hard}\n"));
        let mut spec = shell("ulimit -Sn");
        spec.rlimits = vec![(libc::RLIMIT_NOFILE, None)];
        assert_eq!(output(method, spec).0.trim(), hard);
    }
}

#[test]
fn affinity_is_set() {
    let allowed = crate::topology::allowed_cpus(std::path::Path::new("/")).unwrap();
    let last = allowed.iter().last().unwrap();
    for method in METHODS {
        let mut spec = shell("grep Cpus_allowed_list /proc/self/status");
        spec.affinity = vec![last];
        assert_eq!(output(method, spec).0, format!("Cpus_allowed_list:\t{last}\n"));
        let mut spec = shell("true");
        spec.affinity = vec![4000];
        let e = start(method, &spec).unwrap_err();
        assert_eq!((e.stage, e.subject.as_str(), e.errno()), (Stage::Affinity, "CPUs 4000", libc::EINVAL));
    }
}

#[test]
fn what_is_said_comes_before_the_program_with_its_process_id() {
    for method in METHODS {
        let mut spec = shell("echo $$");
        let (stderr, into) = io::pipe().unwrap();
        spec.says = Some([Cow::Borrowed(b"task [".as_slice()), Cow::Borrowed(b"]: set\n".as_slice())]);
        spec.stdio[2] = Some(into.as_fd());
        let (pid, _) = output(method, spec);
        drop(into);
        assert_eq!(io::read_to_string(stderr).unwrap(), format!("task [{}]: set\n", pid.trim()));
    }
}

#[test]
fn a_variable_has_the_childs_process_id() {
    for method in METHODS {
        let mut spawner = Spawner::new().unwrap().with_method(method);
        // A plan is used again: nothing is left of longer numbers.
        for _ in 0..2 {
            let (mut read, write) = io::pipe().unwrap();
            let write = OwnedFd::from(write);
            let mut spec = shell("echo $$ $OWN_PID; env | grep -c OWN_PID; exit 0");
            spec.pid_variable = Some(c"OWN_PID");
            spec.stdio[1] = Some(write.as_fd());
            let child = spawner.spawn(&spec).unwrap();
            drop(spec);
            drop(write);
            let mut text = String::new();
            read.read_to_string(&mut text).unwrap();
            reap::reap(child.pidfd.as_fd()).unwrap();
            let words: Vec<&str> = text.split_whitespace().collect();
            assert_eq!((words[0], words[2]), (words[1], "1"), "{text}");
        }
    }
}

/// Whoever starts the tasks of a job waits with each of them.
#[test]
fn what_finds_no_room_or_no_reader_is_left_unsaid() {
    let says = || Some([Cow::Borrowed(b"task [".as_slice()), Cow::Borrowed(b"]: set\n".as_slice())]);
    for method in METHODS {
        let (mut stderr, mut into) = io::pipe().unwrap();
        let size = nix::fcntl::fcntl(&into, nix::fcntl::FcntlArg::F_GETPIPE_SZ).unwrap();
        into.write_all(&vec![b'x'; usize::try_from(size).unwrap()]).unwrap();
        let mut spec = shell("echo runs");
        spec.says = says();
        spec.stdio[2] = Some(into.as_fd());
        assert_eq!(output(method, spec).0, "runs\n", "{method:?}");
        drop(into);
        let mut text = String::new();
        stderr.read_to_string(&mut text).unwrap();
        assert!(!text.contains("task"));

        let (stderr, into) = io::pipe().unwrap();
        drop(stderr);
        let mut spec = shell("echo runs");
        spec.says = says();
        spec.stdio[2] = Some(into.as_fd());
        assert_eq!(output(method, spec).0, "runs\n", "{method:?}");
    }
}

#[test]
fn failures_come_back_with_stage_subject_and_number() {
    let dir = Scratch::new("spawn");
    dir.put("plain", "not a program");
    std::fs::set_permissions(dir.join("plain"), std::fs::Permissions::from_mode(0o644)).unwrap();
    put_program(&dir.join("text"), "neither\n");
    let plain = |name: &str| SpawnSpec {
        programs: vec![cstring(dir.join(name).to_str().unwrap()).unwrap()],
        argv: vec![arg(name)],
        ..SpawnSpec::default()
    };
    for method in METHODS {
        for (name, errno) in [("missing", libc::ENOENT), ("plain", libc::EACCES), ("text", libc::ENOEXEC)] {
            let e = start(method, &plain(name)).unwrap_err();
            assert_eq!((e.stage, e.subject.as_str(), e.errno()), (Stage::Exec, name, errno), "{method:?}");
        }
        let mut spec = shell("true");
        let nowhere = dir.join("nowhere");
        spec.work_dir = Some(cstring(nowhere.to_str().unwrap()).unwrap());
        let e = start(method, &spec).unwrap_err();
        assert_eq!((e.stage, e.errno()), (Stage::Chdir, libc::ENOENT));
        assert_eq!(e.to_string(), format!("chdir {}: No such file or directory (os error 2)", nowhere.display()));
    }
    let e = start(Method::Clone3, &SpawnSpec::default()).unwrap_err();
    assert_eq!(e.stage, Stage::Prepare);
}

#[test]
fn failed_children_are_reaped() {
    let mut spawner = Spawner::new().unwrap();
    let spec = SpawnSpec { programs: vec![c"/nonexistent".to_owned()], argv: vec![arg("x")], ..SpawnSpec::default() };
    for _ in 0..3 {
        spawner.spawn(&spec).unwrap_err();
    }
    let me = std::process::id();
    let table = crate::proc_tree::ProcessTable::scan(std::path::Path::new("/proc")).unwrap();
    // Named after this program until they exec.
    let mine = table.get(me).unwrap();
    assert!(!table.descendants(me).iter().any(|p| p.is_dead() && p.pgrp == mine.pgrp && named_like_me(p.pid)));
}

fn named_like_me(pid: u32) -> bool {
    let name = |p: &str| std::fs::read_to_string(format!("/proc/{p}/comm")).ok();
    name(&pid.to_string()) == name("self")
}

#[test]
fn bare_names_are_looked_up_as_execvp_does() {
    let dir = Scratch::new("spawn");
    dir.put("first/tool", "");
    std::fs::set_permissions(dir.join("first/tool"), std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::create_dir(dir.join("second")).unwrap();
    put_program(&dir.join("second/tool"), "#!/bin/sh\necho second\n");
    let path = format!("{0}/none:{0}/first:{0}/second", dir.path().display());
    let find = |path: &str| SpawnSpec {
        programs: path_candidates(b"tool", Some(path.as_bytes())).unwrap(),
        argv: vec![arg("tool")],
        ..SpawnSpec::default()
    };
    assert_eq!(output(Method::Clone3, find(&path)).0, "second\n");
    // Something was there that may not be executed: that is the reason given.
    let e = start(Method::Clone3, &find(&format!("{0}/none:{0}/first", dir.path().display()))).unwrap_err();
    assert_eq!(e.errno(), libc::EACCES);
    assert_eq!(path_candidates(b"./x", Some(b"/bin")).unwrap(), [c"./x".to_owned()]);
    assert_eq!(path_candidates(b"x", Some(b"/a::/b")).unwrap(), [c"/a/x", c"./x", c"/b/x"].map(CStr::to_owned));
    assert!(path_candidates(b"a\0b", None).is_err());
}

#[test]
fn descriptors_do_not_leak_and_passed_ones_arrive_in_order() {
    let null = File::open("/dev/null").unwrap();
    // Without close-on-exec, as a careless library would.
    // SAFETY: a plain duplicate, closed below.
    let leaky = unsafe { libc::dup(null.as_raw_fd()) };
    assert!(leaky > 2);
    for method in METHODS {
        let (_a, b) = io::pipe().unwrap();
        let b = OwnedFd::from(b);
        // The last descriptor is the folder that ls reads.
        let mut spec = shell("ls /proc/self/fd; readlink /proc/$$/fd/3 /proc/$$/fd/4; exit 0");
        spec.stdio = [Some(null.as_fd()), None, Some(null.as_fd())];
        spec.passed = vec![b.as_fd(), null.as_fd()];
        let (text, _) = output(method, spec);
        let rest = text.strip_prefix("0\n1\n2\n3\n4\n5\n").unwrap();
        assert!(rest.starts_with("pipe:") && rest.ends_with("]\n/dev/null\n"), "{text}");
    }
    // SAFETY: ours, from above.
    unsafe { libc::close(leaky) };
}

#[test]
fn descriptors_may_change_places() {
    // Sources among the targets: stdout and stderr swapped.
    // SAFETY: borrowed for the spawn only; descriptors 1 and 2 of a test program are open.
    let (out, err) = unsafe { (std::os::fd::BorrowedFd::borrow_raw(1), std::os::fd::BorrowedFd::borrow_raw(2)) };
    for method in METHODS {
        let (read, write) = io::pipe().unwrap();
        let write = OwnedFd::from(write);
        // The shell redirects its own descriptor 1 while readlink runs.
        let mut spec = shell("exec 4>&1; readlink /proc/$$/fd/4 /proc/$$/fd/2 >&3");
        spec.stdio = [None, Some(err), Some(out)];
        spec.passed = vec![write.as_fd()];
        let child = start(method, &spec).unwrap();
        drop(spec);
        drop(write);
        let text = io::read_to_string(read).unwrap();
        reap::reap(child.pidfd.as_fd()).unwrap();
        let link = |n: u32| std::fs::read_link(format!("/proc/self/fd/{n}")).unwrap();
        assert_eq!(text, format!("{}\n{}\n", link(2).display(), link(1).display()));
    }
}

#[test]
fn signals_are_default_and_unblocked_in_the_child() {
    // Rust programs ignore SIGPIPE; this thread blocks one more.
    let mut blocked = nix::sys::signal::SigSet::empty();
    blocked.add(nix::sys::signal::Signal::SIGUSR1);
    blocked.thread_block().unwrap();
    for method in METHODS {
        let spec = SpawnSpec {
            programs: vec![c"/bin/cat".to_owned()],
            argv: vec![arg("cat"), arg("/proc/self/status")],
            ..SpawnSpec::default()
        };
        let zeros = "0".repeat(16);
        let (text, _) = output(method, spec);
        assert!(text.contains(&format!("SigBlk:\t{zeros}\nSigIgn:\t{zeros}\nSigCgt:\t{zeros}\n")), "{text}");
    }
    let now = nix::sys::signal::SigSet::thread_get_mask().unwrap();
    assert!(now.contains(nix::sys::signal::Signal::SIGUSR1), "the parent's mask comes back");
    assert!(!now.contains(nix::sys::signal::Signal::SIGTERM));
}

#[test]
fn a_parent_with_much_memory_launches_all_the_same() {
    let mut ballast = vec![0_u8; 512 << 20];
    for page in ballast.chunks_mut(4096) {
        page[0] = 1;
    }
    let mut spawner = Spawner::new().unwrap();
    for _ in 0..20 {
        let child = spawner.spawn(&shell("exit 5")).unwrap();
        assert_eq!(reap::reap(child.pidfd.as_fd()).unwrap().status.code, 5);
    }
    assert_eq!(spawner.method(), Method::Clone3);
    assert!(ballast.iter().step_by(4096).all(|b| *b == 1), "the child left the parent's memory alone");
}

#[test]
fn threads_launch_side_by_side() {
    std::thread::scope(|scope| {
        for t in 0..4_u8 {
            scope.spawn(move || {
                let mut spawner = Spawner::new().unwrap();
                for _ in 0..25 {
                    let child = spawner.spawn(&shell(&format!("exit {t}"))).unwrap();
                    assert_eq!(reap::reap(child.pidfd.as_fd()).unwrap().status.code, t);
                }
            });
        }
    });
}

#[test]
fn refusals_of_clone3_are_told_from_failures() {
    for errno in [libc::ENOSYS, libc::EPERM] {
        assert!(clone::refused(&io::Error::from_raw_os_error(errno)));
    }
    for errno in [libc::EAGAIN, libc::ENOMEM, libc::EACCES, libc::EBUSY] {
        assert!(!clone::refused(&io::Error::from_raw_os_error(errno)));
    }
}

#[test]
fn root_takes_on_another_users_ids() {
    if !root_or_skip("a user switch") {
        return;
    }
    for method in METHODS {
        let mut spec = shell(
            "id -u; id -g; id -G; grep -E '^(Uid|Gid)' /proc/self/status; touch /etc/garrick-no 2>/dev/null || echo refused",
        );
        spec.user = Some(Identity { uid: 65534, gid: 65533, groups: vec![65533, 65531] });
        spec.session = Session::OwnSession;
        let (text, status) = output(method, spec);
        let four = |n: u32| format!("{n}\t{n}\t{n}\t{n}");
        let expected = format!("65534\n65533\n65533 65531\nUid:\t{}\nGid:\t{}\nrefused\n", four(65534), four(65533));
        assert_eq!((text, status.success()), (expected, true), "{method:?}");
        assert!(nix::unistd::getuid().is_root(), "no other thread changed its ids");
    }
}

#[test]
fn a_user_gets_neither_the_daemons_keys_nor_its_protection_from_kills_for_memory() {
    if !root_or_skip("a user switch") {
        return;
    }
    std::fs::write("/proc/self/oom_score_adj", "7").unwrap();
    // add_key(2), into this thread's session keyring (-3).
    let (kind, name) = (c"user".as_ptr(), c"garrick-test-of-daemon".as_ptr());
    // SAFETY: two strings, and one byte of a payload.
    let key = unsafe { libc::syscall(libc::SYS_add_key, kind, name, c"x".as_ptr(), 1_usize, -3) };
    for method in METHODS {
        let mut spec = shell("cat /proc/self/oom_score_adj; grep -c garrick-test-of-daemon /proc/keys");
        spec.user = Some(Identity { uid: 65534, gid: 65534, groups: vec![] });
        let (text, _) = output(method, spec);
        assert!(text.starts_with("0\n"), "{method:?}: {text}");
        if key < 0 {
            eprintln!("keys were not tried: this kernel gives none");
        } else {
            assert_eq!(text, "0\n0\n", "{method:?}");
        }
    }
    std::fs::write("/proc/self/oom_score_adj", "0").unwrap();
}

#[test]
fn a_copy_that_is_killed_before_it_begins_is_an_error_and_reaped() {
    let child = start(Method::Clone3, &shell("exit 0")).unwrap();
    let pid = child.pid;
    // Nobody ever wrote to it.
    let (arranged, _) = io::pipe().unwrap();
    let room = Room::new(&[]).unwrap();
    room.report().clear(false);
    let e = Divided { child, arranged, room, name: "copy".to_owned() }.arranged().unwrap_err();
    assert_eq!((e.subject.as_str(), e.errno()), ("copy", libc::ESRCH));
    assert_eq!(reap::reap_pid(pid).unwrap_err().raw_os_error(), Some(libc::ECHILD));
}

#[test]
fn folders_are_entered_with_the_users_rights() {
    if !root_or_skip("a user switch") {
        return;
    }
    let dir = Scratch::new("spawn");
    std::fs::create_dir(dir.join("closed")).unwrap();
    std::fs::set_permissions(dir.join("closed"), std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut spec = shell("true");
    spec.user = Some(Identity { uid: 65534, gid: 65534, groups: vec![] });
    spec.work_dir = Some(CString::new(dir.join("closed").to_str().unwrap()).unwrap());
    let e = start(Method::Clone3, &spec).unwrap_err();
    assert_eq!((e.stage, e.errno()), (Stage::Chdir, libc::EACCES));
}

#[test]
fn a_child_can_be_killed_through_its_descriptor() {
    let child = KillOnDrop::new(start(Method::Clone3, &shell("exec sleep 1000")).unwrap());
    let pid = child.child().unwrap().pid;
    drop(child);
    let gone = nix::sys::signal::kill(nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap()), None);
    assert!(gone.is_err());
}

#[test]
fn children_not_waited_for_run_with_what_was_theirs() {
    let mut spawner = Spawner::new().unwrap();
    let (read, write) = io::pipe().unwrap();
    let write = OwnedFd::from(write);
    let count = 4 * MOST_AHEAD;
    let mut pids = Vec::new();
    for n in 0..count {
        let mut spec = shell("echo $A $1; exit $2");
        spec.argv.extend([arg("zero"), arg(&format!("one-{n}")), arg(&(n % 100).to_string())]);
        spec.env.push(arg(&format!("A={n}")));
        spec.stdio[1] = Some(write.as_fd());
        pids.push(spawner.spawn_ahead(&spec).unwrap());
    }
    drop(write);
    let text = io::read_to_string(read).unwrap();
    let lines: std::collections::HashSet<&str> = text.lines().collect();
    assert_eq!(lines, (0..count).map(|n| format!("{n} one-{n}")).collect::<Vec<_>>().iter().map(|s| &**s).collect());
    for (n, pid) in pids.into_iter().enumerate() {
        assert_eq!(usize::from(reap::reap_pid(pid).unwrap().status.code), n % 100);
        assert!(!spawner.failed_ahead(pid));
    }
}

#[test]
fn children_not_waited_for_tell_once_that_they_fell_short() {
    for method in METHODS {
        let mut spawner = Spawner::new().unwrap().with_method(method);
        let mut short = shell("true");
        short.programs = vec![c"/no/such/program".to_owned()];
        let good = shell("exit 0");
        let mut made = Vec::new();
        for n in 0..3 * MOST_AHEAD {
            let falls_short = n % 3 > 0;
            match spawner.spawn_ahead(if falls_short { &short } else { &good }) {
                Ok(pid) => made.push((pid, falls_short)),
                // Of those that there was no room for, and were waited for.
                Err(e) => {
                    assert!(falls_short, "{e}");
                    assert_eq!((e.stage, e.errno()), (Stage::Exec, libc::ENOENT));
                }
            }
        }
        assert_eq!(made.iter().any(|(_, falls_short)| *falls_short), method == Method::Clone3);
        for (pid, falls_short) in made {
            let code = if falls_short { 127 } else { 0 };
            assert_eq!(reap::reap_pid(pid).unwrap().status.code, code);
            assert_eq!(spawner.failed_ahead(pid), falls_short);
            assert!(!spawner.failed_ahead(pid), "told twice");
        }
    }
}
