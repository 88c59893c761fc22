#![allow(clippy::unwrap_used)]
use super::*;
use crate::{
    proc_tree::Process,
    reap::{peek, reap, try_reap},
    scratch::Scratch,
    spawn::{KillOnDrop, Method, Session, SpawnSpec, Spawned, Spawner, cstring, spawn},
};
use std::{
    borrow::Cow,
    fs,
    io::Read,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
    time::Duration,
};

const BOTH: Constraints = Constraints { cores: true, memory: true, devices: false };
const LONG: Duration = Duration::from_secs(600);

/// A folder that looks like a version 2 mount, with the files that the kernel would make.
fn unified(dir: &Scratch, controllers: &str, groups: &[&str]) -> Mounts {
    for group in [&[""], groups].concat() {
        for (file, text) in [
            ("cgroup.procs", ""),
            ("cgroup.controllers", controllers),
            ("cgroup.subtree_control", ""),
            ("cgroup.events", "populated 0\nfrozen 0\n"),
            ("cgroup.kill", ""),
            ("cgroup.freeze", "0\n"),
            ("cpuset.cpus", ""),
            ("memory.max", "max\n"),
            ("memory.swap.max", "max\n"),
            ("memory.oom.group", "0\n"),
            ("memory.events", "low 0\nmax 4\noom 2\noom_kill 3\noom_group_kill 1\n"),
            ("memory.current", "4096\n"),
            ("memory.peak", "8192\n"),
            ("cpu.stat", "usage_usec 77\nuser_usec 50\n"),
        ] {
            dir.put(format!("{group}/{file}").trim_start_matches('/'), text);
        }
    }
    Mounts { unified: Some(Mount { point: dir.path().to_owned(), root: "/".into() }), ..Mounts::default() }
}

const JOB: &str = "garrick/c1/n1/job_5.s1";

fn v2_groups() -> Vec<String> {
    let mut groups: Vec<String> = ["garrick", "garrick/c1", "garrick/c1/n1", JOB].map(str::to_owned).into();
    groups.extend(["mgr", "tasks", "tasks/main", "tasks/step_0"].map(|g| format!("{JOB}/{g}")));
    groups
}

fn v2(dir: &Scratch, controllers: &str) -> Result<Cgroups, CgroupError> {
    let groups = v2_groups();
    let mounts = unified(dir, controllers, &groups.iter().map(String::as_str).collect::<Vec<_>>());
    Cgroups::open(&mounts, "0::/\n", "c1", "n1", BOTH)
}

#[test]
fn version_2_writes_what_the_kernel_expects_where_it_expects_it() {
    let dir = Scratch::new("cgroup");
    let cgroups = v2(&dir, "cpuset cpu io memory pids\n").unwrap();
    assert_eq!((cgroups.kind(), cgroups.missing().len()), (Kind::V2, 0));
    let job = cgroups.create_job(5, "s1").unwrap();
    let read = |file: &str| fs::read_to_string(dir.join(&format!("{JOB}/{file}"))).unwrap();
    let top = |file: &str| fs::read_to_string(dir.join(file)).unwrap();
    // The last of two writes, each of one controller.
    for above in ["", "garrick/", "garrick/c1/", "garrick/c1/n1/"] {
        assert_eq!(top(&format!("{above}cgroup.subtree_control")), "+memory");
    }
    assert_eq!(read("tasks/cgroup.subtree_control"), "+memory");
    assert_eq!(read("mgr/cgroup.subtree_control"), "", "processes live there");
    job.limit(Some(&"1,3".parse().unwrap()), Some(MemoryLimit { bytes: 1 << 20, swap: Swap::Within })).unwrap();
    assert_eq!((read("tasks/cpuset.cpus"), read("tasks/memory.max")), ("1,3".into(), "1048576".into()));
    assert_eq!(read("tasks/memory.swap.max"), "0");
    // The launcher lives below and has to tell how the others ended.
    assert_eq!(read("tasks/memory.oom.group"), "0\n");
    assert_eq!(read("mgr/memory.max"), "max\n");
    let step = job.create_step("0").unwrap();
    step.set_cpus(&"1".parse().unwrap()).unwrap();
    assert_eq!(read("tasks/step_0/cpuset.cpus"), "1");
    let tasks = job.tasks();
    assert_eq!(tasks.oom_kills().unwrap(), Some(3));
    fs::write(dir.join(&format!("{JOB}/tasks/main/memory.events")), "max 9\noom 2\noom_kill 1\n").unwrap();
    assert_eq!(job.main().own_oom_kills().unwrap(), Some(1), "those of steps with a group of their own count there");
    let usage = job.usage().unwrap();
    assert_eq!((usage.cpu_us, usage.memory_bytes, usage.memory_peak_bytes), (Some(77), Some(4096), Some(8192)));
    tasks.kill().unwrap();
    tasks.freeze().unwrap();
    assert_eq!((read("tasks/cgroup.kill"), read("tasks/cgroup.freeze")), ("1".into(), "1".into()));
    tasks.thaw().unwrap();
    assert_eq!(read("tasks/cgroup.freeze"), "0");
    assert!(tasks.is_empty().unwrap() && !tasks.is_frozen().unwrap());
    job.main().add(77).unwrap();
    assert_eq!((read("tasks/main/cgroup.procs"), job.main().pids().unwrap()), ("77".into(), vec![77]));
    let entry = job.mgr().entry().unwrap();
    assert!(entry.folder.is_some() && entry.files.is_empty() && job.main().entries().unwrap().len() == 1);
    // It has CPUs of its own: whoever is born there may not have them.
    let entry = job.main().entry().unwrap();
    assert_eq!((entry.folder.is_some(), entry.files.len()), if new_kernel() { (true, 0) } else { (false, 1) });
    assert_eq!(cgroups.jobs().unwrap(), [job]);
}

#[test]
fn controllers_that_did_not_come_are_named_and_not_used() {
    let dir = Scratch::new("cgroup");
    // Writes to subtree_control are taken, but memory never arrives.
    let cgroups = v2(&dir, "cpuset cpu\n").unwrap();
    assert!(cgroups.limits_cores() && !cgroups.limits_memory());
    let [missing] = cgroups.missing() else { panic!() };
    assert!(missing.starts_with("memory (the memory controller is not available in"), "{missing}");
    let tracking = Tracking::Cgroups(cgroups.clone());
    assert!(tracking.notice().unwrap().contains("cgroup/v2, without: memory"));
    let job = cgroups.create_job(5, "s1").unwrap();
    job.limit(None, Some(MemoryLimit { bytes: 1, swap: Swap::Free })).unwrap();
    assert_eq!(fs::read_to_string(dir.join(&format!("{JOB}/tasks/memory.max"))).unwrap(), "max\n");
    assert_eq!(job.tasks().oom_kills().unwrap(), None);
}

#[test]
fn a_refused_write_is_an_error_with_its_path() {
    let dir = Scratch::new("cgroup");
    let groups = v2_groups();
    let mounts = unified(&dir, "cpuset memory\n", &groups.iter().map(String::as_str).collect::<Vec<_>>());
    fs::remove_file(dir.join("cgroup.subtree_control")).unwrap();
    fs::create_dir(dir.join("cgroup.subtree_control")).unwrap();
    let cgroups = Cgroups::open(&mounts, "0::/\n", "c1", "n1", BOTH).unwrap();
    assert_eq!(cgroups.missing().len(), 2);
    assert!(cgroups.missing()[0].contains("write '+cpuset' to"), "{:?}", cgroups.missing());
}

#[test]
fn without_hierarchies_processes_are_tracked_by_group() {
    let e = Cgroups::open(&Mounts::default(), "", "c1", "n1", BOTH).unwrap_err();
    let tracking = Tracking::ProcessGroups { why: e.to_string() };
    assert_eq!(tracking.name(), "process groups");
    assert!(tracking.notice().unwrap().contains("no cgroup hierarchy is mounted"));
    assert!(tracking.cgroups().is_none());
}

#[test]
fn names_never_lead_out_of_our_folder() {
    let dir = Scratch::new("cgroup");
    let mounts = unified(&dir, "", &[]);
    for (cluster, node) in [("..", "n"), ("c", "../x"), ("", "n"), ("c", "a/b"), ("c", ".")] {
        assert!(matches!(Cgroups::open(&mounts, "", cluster, node, BOTH), Err(CgroupError::Name(_))));
    }
    let cgroups = v2(&dir, "").unwrap();
    assert!(matches!(cgroups.job(1, "../../x"), Err(CgroupError::Name(_))));
    let job = cgroups.job(1, "s1").unwrap();
    assert!(matches!(job.step("../../../x"), Err(CgroupError::Name(_))));
}

/// The machine's own hierarchies, under a name of this test's own.
fn real(test: &str) -> Option<Cgroups> {
    let cluster = format!("test-{}-{test}", std::process::id());
    match Tracking::detect(&cluster, "n1", BOTH) {
        Tracking::Cgroups(cgroups) => Some(cgroups),
        Tracking::ProcessGroups { why } => {
            #[allow(clippy::print_stderr)]
            {
                eprintln!("skipped: no cgroups: {why}");
            }
            None
        }
    }
}

/// As `real`, and once more as on a host without version 2.
fn real_kinds(test: &str) -> Vec<Cleaned> {
    let Some(detected) = real(test) else { return Vec::new() };
    let mut kinds = vec![Cleaned(detected)];
    let legacy = Mounts { unified: None, ..Mounts::of_this_process().unwrap() };
    let cluster = format!("test-{}-{test}-v1", std::process::id());
    match Cgroups::open(&legacy, "", &cluster, "n1", BOTH) {
        Ok(cgroups) => {
            assert_eq!(cgroups.kind(), Kind::V1);
            kinds.push(Cleaned(cgroups));
        }
        Err(e) => {
            #[allow(clippy::print_stderr)]
            {
                eprintln!("version 2 only: {e}");
            }
        }
    }
    kinds
}

struct Cleaned(Cgroups);

impl Drop for Cleaned {
    fn drop(&mut self) {
        for job in self.0.jobs().unwrap_or_default() {
            let _ = job.clean_up(LONG);
        }
        self.0.remove().unwrap();
    }
}

fn shell(script: &str, group: &Group, out: &OwnedFd) -> Spawned {
    let arg = |s: &str| Cow::Owned(cstring(s).unwrap());
    let entries = group.entries().unwrap();
    let spec = SpawnSpec {
        programs: vec![c"/bin/sh".to_owned()],
        argv: vec![arg("sh"), arg("-c"), arg(script)],
        env: vec![arg("PATH=/usr/bin:/bin")],
        stdio: [None, Some(out.as_fd()), None],
        session: Session::OwnSession,
        cgroup_procs: entries.iter().map(AsFd::as_fd).collect(),
        ..SpawnSpec::default()
    };
    spawn(&spec).unwrap()
}

/// Starts a script that says `up` once it is set up.
fn up(script: &str, group: &Group) -> Spawned {
    let (mut read, write) = io::pipe().unwrap();
    let child = shell(script, group, &write.into());
    let mut said = [0; 3];
    read.read_exact(&mut said).unwrap();
    child
}

#[test]
fn nothing_of_a_job_outlives_its_kill_and_the_manager_does() {
    for cleaned in real_kinds("kill") {
        nothing_outlives(&cleaned);
    }
}

fn nothing_outlives(cleaned: &Cleaned) {
    let job = cleaned.0.create_job(1, "s1").unwrap();
    let manager = KillOnDrop::new(up("echo up; exec sleep 1000", &job.mgr()));
    // One leaves its session and its parent; one ignores what can be ignored; one keeps starting others.
    let script = "trap '' TERM HUP; (setsid sleep 1000 &); (while :; do sleep 0.01 & done) & echo up; exec sleep 1000";
    let task = up(script, &job.main());
    assert!(job.tasks().pids().unwrap().len() >= 3);
    assert_eq!(job.tasks().kill_until_empty(LONG).unwrap(), [0_u32; 0]);
    assert_eq!(reap(task.pidfd.as_fd()).unwrap().status.signal, Some(9));
    let pidfd = manager.child().unwrap().pidfd.as_fd();
    assert_eq!(peek(pidfd).unwrap(), None, "the manager lives");
    match job.all().remove() {
        Err(CgroupError::Busy { pids, .. }) => assert_eq!(pids, [manager.child().unwrap().pid]),
        other => panic!("{other:?}"),
    }
    drop(manager);
    job.all().remove_within(LONG).unwrap();
    assert!(!job.all().exists() && cleaned.0.jobs().unwrap().is_empty());
    job.all().remove().unwrap();
}

fn new_kernel() -> bool {
    group::is_of_6_4(nix::sys::utsname::uname().unwrap().release().to_str().unwrap())
}

#[test]
fn whoever_enters_a_group_lives_there_though_others_were_killed_in_it() {
    for cleaned in real_kinds("killed") {
        let births = cleaned.0.lets_be_born();
        assert!(!births || cleaned.0.kind() != Kind::V1);
        assert!(cleaned.0.jobs().unwrap().is_empty(), "it leaves nothing");
        let job = cleaned.0.create_job(5, "s1").unwrap();
        assert_eq!(job.tasks().kill_until_empty(LONG).unwrap(), [0_u32; 0]);
        let (mut read, write) = io::pipe().unwrap();
        let child = shell("echo lives", &job.main(), &write.into());
        let mut text = [0; 6];
        read.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"lives\n");
        assert!(reap(child.pidfd.as_fd()).unwrap().status.success());
    }
}

#[test]
fn kernels_are_told_apart_by_their_numbers() {
    for (release, new) in [
        ("6.4.0", true),
        ("6.18.44-fc", true),
        ("7.0", true),
        ("6.1.0-18-amd64", false),
        ("5.14.0-427.el9", false),
        ("", false),
    ] {
        assert_eq!(group::is_of_6_4(release), new, "{release}");
    }
}

#[test]
fn who_is_started_in_a_group_and_who_enters_it_are_in_all_its_hierarchies() {
    for cleaned in real_kinds("enter") {
        let job = cleaned.0.create_job(4, "s1").unwrap();
        let group = job.main();
        let within = |entry: &Entry| {
            let arg = |s: &str| Cow::Owned(cstring(s).unwrap());
            let (read, write) = io::pipe().unwrap();
            let write = OwnedFd::from(write);
            let spec = SpawnSpec {
                programs: vec![c"/bin/cat".to_owned()],
                argv: vec![arg("cat"), arg("/proc/self/cgroup")],
                stdio: [None, Some(write.as_fd()), None],
                into_cgroup: entry.folder.as_ref().map(AsFd::as_fd),
                cgroup_procs: entry.files.iter().map(AsFd::as_fd).collect(),
                ..SpawnSpec::default()
            };
            let child = spawn(&spec).unwrap();
            drop(spec);
            drop(write);
            let text = io::read_to_string(read).unwrap();
            assert!(reap(child.pidfd.as_fd()).unwrap().status.success());
            text.lines().filter(|line| line.contains("/job_4.s1/")).count()
        };
        let folders = group.folders().len();
        let started = group.entry().unwrap();
        assert_eq!(started.files.len() + usize::from(started.folder.is_some()), folders);
        assert_eq!(within(&started), folders);
        let entered = Entry { folder: None, files: group.entries().unwrap() };
        assert_eq!(within(&entered), folders);
        // What version 1 has for threads does not wait for all forks of the machine.
        for file in started.files.iter().filter(|_| cleaned.0.kind() != Kind::V2) {
            let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
            assert!(path.ends_with("tasks"), "{}", path.display());
        }
    }
}

#[test]
fn frozen_jobs_stand_still_and_can_be_killed() {
    for cleaned in real_kinds("freeze") {
        stand_still(&cleaned);
    }
}

fn stand_still(cleaned: &Cleaned) {
    let job = cleaned.0.create_job(2, "s1").unwrap();
    let (mut read, write) = io::pipe().unwrap();
    let write = OwnedFd::from(write);
    let task = shell("while :; do echo x; done", &job.main(), &write);
    drop(write);
    let mut byte = [0; 1];
    read.read_exact(&mut byte).unwrap();
    let tasks = job.tasks();
    tasks.freeze().unwrap();
    while !tasks.is_frozen().unwrap() {
        std::thread::yield_now();
    }
    tasks.thaw().unwrap();
    while tasks.is_frozen().unwrap() {
        std::thread::yield_now();
    }
    // It goes on writing: more than a pipe holds.
    let mut more = vec![0; 1 << 17];
    read.read_exact(&mut more).unwrap();
    tasks.freeze().unwrap();
    assert_eq!(tasks.kill_until_empty(LONG).unwrap(), [0_u32; 0]);
    assert_eq!(reap(task.pidfd.as_fd()).unwrap().status.signal, Some(9));
    assert_eq!(try_reap(task.pidfd.as_fd()).ok(), None);
}

#[test]
fn jobs_are_held_to_their_cpus_and_steps_within_them() {
    let Some(cgroups) = real("cpus") else { return };
    let cleaned = Cleaned(cgroups);
    if !cleaned.0.limits_cores() {
        return;
    }
    let allowed = crate::topology::allowed_cpus(Path::new("/")).unwrap();
    let last = crate::cpu_list::CpuList::from_iter(allowed.iter().last());
    let job = cleaned.0.create_job(3, "s1").unwrap();
    let list = |group: &Group| {
        let (read, write) = io::pipe().unwrap();
        let child = shell("grep Cpus_allowed_list /proc/self/status", group, &write.into());
        let text = io::read_to_string(read).unwrap();
        assert!(reap(child.pidfd.as_fd()).unwrap().status.success());
        text.rsplit('\t').next().unwrap().trim().to_owned()
    };
    assert_eq!(list(&job.main()), allowed.to_string(), "without a limit: as the node");
    let step = job.create_step("7").unwrap();
    step.set_cpus(&last).unwrap();
    assert_eq!(list(&step), last.to_string());
    step.remove_within(LONG).unwrap();
    job.limit(Some(&last), None).unwrap();
    assert_eq!(list(&job.main()), last.to_string());
    // No CPU of that number.
    assert!(job.limit(Some(&"4000".parse().unwrap()), None).is_err());
}

#[test]
fn too_much_memory_is_killed_and_counted() {
    let Some(cgroups) = real("memory") else { return };
    let cleaned = Cleaned(cgroups);
    if !cleaned.0.limits_memory() {
        return;
    }
    let job = cleaned.0.create_job(4, "s1").unwrap();
    let limit = |mib: u64| Some(MemoryLimit { bytes: mib << 20, swap: Swap::Within });
    job.limit(None, limit(64)).unwrap();
    // Up and down again.
    job.limit(None, limit(128)).unwrap();
    job.limit(None, limit(32)).unwrap();
    let before = job.tasks().oom_kills().unwrap();
    let (_read, write) = io::pipe().unwrap();
    // tail keeps what has no line end.
    let child = shell("exec tail /dev/zero 2>/dev/null", &job.main(), &write.into());
    assert_eq!(reap(child.pidfd.as_fd()).unwrap().status.signal, Some(9));
    assert_eq!(before.zip(job.tasks().oom_kills().unwrap()), Some((0, 1)));
    assert!(job.usage().unwrap().memory_peak_bytes.unwrap() > 16 << 20);
    // A step's own limit counts for the job too.
    let step = job.create_step("0").unwrap();
    step.set_memory(MemoryLimit { bytes: 8 << 20, swap: Swap::Within }).unwrap();
    let (_read, write) = io::pipe().unwrap();
    let child = shell("exec tail /dev/zero 2>/dev/null", &step, &write.into());
    assert_eq!(reap(child.pidfd.as_fd()).unwrap().status.signal, Some(9));
    assert_eq!((step.oom_kills().unwrap(), job.tasks().oom_kills().unwrap()), (Some(1), Some(2)));
    assert_eq!(job.main().own_oom_kills().unwrap(), Some(1));
}

#[test]
fn stale_runs_are_found_and_cleaned_up() {
    for cleaned in real_kinds("stale") {
        clean_up_stale(&cleaned);
    }
}

fn clean_up_stale(cleaned: &Cleaned) {
    let job = cleaned.0.create_job(9, "sOLD").unwrap();
    let child = up("echo up; exec sleep 1000", &job.main());
    let found = cleaned.0.jobs().unwrap();
    assert_eq!(found.iter().map(|j| (j.job(), j.run())).collect::<Vec<_>>(), [(9, "sOLD")]);
    found[0].clean_up(LONG).unwrap();
    assert!(Process::read(Path::new("/proc"), child.pid).is_none_or(|p| p.is_dead()));
    reap(child.pidfd.as_fd()).unwrap();
    assert!(cleaned.0.jobs().unwrap().is_empty());
}

#[test]
fn children_can_be_born_in_a_version_2_group() {
    let Some(cgroups) = real("born") else { return };
    let cleaned = Cleaned(cgroups);
    if cleaned.0.kind() == Kind::V1 {
        return;
    }
    let job = cleaned.0.create_job(6, "s1").unwrap();
    let group = job.mgr();
    let folder = group.entry().unwrap().folder.unwrap();
    let arg = |s: &str| Cow::Owned(cstring(s).unwrap());
    for method in [Method::Clone3, Method::Fork] {
        let (read, write) = io::pipe().unwrap();
        let write = OwnedFd::from(write);
        let spec = SpawnSpec {
            programs: vec![c"/bin/grep".to_owned()],
            argv: vec![arg("grep"), arg("^0::"), arg("/proc/self/cgroup")],
            stdio: [None, Some(write.as_fd()), None],
            into_cgroup: Some(folder.as_fd()),
            ..SpawnSpec::default()
        };
        let mut spawner = Spawner::new().unwrap().with_method(method);
        let child = spawner.spawn(&spec).unwrap();
        assert_eq!(spawner.method(), method);
        drop(spec);
        drop(write);
        let text = io::read_to_string(read).unwrap();
        assert!(text.trim_end().ends_with("/n1/job_6.s1/mgr"), "{text}");
        assert!(reap(child.pidfd.as_fd()).unwrap().status.success());
    }
}

#[test]
fn a_group_of_version_2_is_kept_from_the_devices_that_it_is_not_given() {
    let mounts = Mounts::of_this_process().unwrap();
    let alone = Mounts { unified: mounts.unified, ..Mounts::default() };
    let cluster = format!("test-{}-devices", std::process::id());
    let constraints = Constraints { cores: false, memory: false, devices: true };
    let cgroups = match Cgroups::open(&alone, "", &cluster, "n1", constraints) {
        Ok(cgroups) if cgroups.missing().is_empty() => Cleaned(cgroups),
        other => {
            #[allow(clippy::print_stderr)]
            {
                eprintln!("skipped: no programs for cgroups of version 2: {other:?}");
            }
            return;
        }
    };
    assert!(cgroups.0.limits_devices());
    let job = cgroups.0.create_job(1, "s1").unwrap();
    // The second time is that of a process that takes over from another.
    for _ in 0..2 {
        let left = job.tasks().deny_devices([Path::new("/dev/full"), Path::new("/etc/hostname")]).unwrap();
        assert_eq!(left, [Path::new("/etc/hostname")]);
    }
    let step = job.create_step("0").unwrap();
    for (group, full) in [(job.mgr(), "open"), (job.main(), "closed"), (step, "closed")] {
        let (mut read, write) = io::pipe().unwrap();
        let script = "(: </dev/full) 2>/dev/null && echo open || echo closed; : </dev/zero && echo others";
        let child = shell(script, &group, &write.into());
        let mut said = String::new();
        read.read_to_string(&mut said).unwrap();
        assert_eq!(said, format!("{full}\nothers\n"));
        reap(child.pidfd.as_fd()).unwrap();
    }
}
