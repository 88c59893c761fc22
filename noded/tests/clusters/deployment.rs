//! Garrick as sites deploy it: a controller that runs as SlurmUser, node daemons of root, commands of anybody. And a cluster of
//! one ordinary user, which is nobody else's.
#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{Answer, answer, built, is_dead, is_root, open_to_all, scratch};
use garrick_accounts::{filter::JobFilter, messages::JobWithSteps};
use garrick_daemon::journal::Form;
use garrick_events::event::ControllerEvent;
use garrick_model::{messages::command::Caller, state::JobState};
use std::{
    io::Write as _,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Accounts that Debian's base system has: SlurmUser, a user, another user.
pub(crate) const SLURM: (&str, u32) = ("daemon", 1);
pub(crate) const ALICE: (&str, u32) = ("games", 5);
const BOB: (&str, u32) = ("nobody", 65534);
pub(crate) const ROOT: (&str, u32) = ("root", 0);

const COMMANDS: [&str; 8] = ["sbatch", "salloc", "sbcast", "sinfo", "squeue", "scontrol", "scancel", "sattach"];

/// The programs under their names. Copies: the folder in which they were built may be closed to other users.
fn copy_programs(built: &Path, to: &Path) {
    for program in crate::support::PROGRAMS {
        crate::support::copy_program(&built.join(program), &to.join(program));
    }
    for command in COMMANDS {
        std::os::unix::fs::symlink("garrick", to.join(command)).unwrap();
    }
}

pub(crate) struct Site {
    slurm: (&'static str, u32),
    pub(crate) work: PathBuf,
    pub(crate) conf: PathBuf,
    nodes: Vec<&'static str>,
}

impl Site {
    /// Files of a site with so many nodes; nothing is started. `None`, with a message, where that cannot be.
    pub(crate) fn new(name: &str, nodes: &[&'static str]) -> Option<Self> {
        Self::with_slurm_user(SLURM, name, nodes)
    }

    pub(crate) fn with_slurm_user(slurm: (&'static str, u32), name: &str, nodes: &[&'static str]) -> Option<Self> {
        if !is_root() {
            eprintln!("skipped: needs root");
            return None;
        }
        let (work, bin) = (scratch(name), built());
        copy_programs(&bin, &work);
        for daemon in ["slurmctld", "slurmd", "slurmdbd"] {
            std::fs::hard_link(work.join("noded"), work.join(daemon)).unwrap();
        }
        let hostname = nix::unistd::gethostname().unwrap().into_string().unwrap();
        let ports = crate::support::free_ports(1 + nodes.len());
        let w = work.display();
        let mut text = format!(
            "ClusterName=site\nSlurmctldHost={hostname}(127.0.0.1)\nSlurmctldPort={}\nSlurmUser={}\n\
             SelectType=select/cons_tres\nSlurmdParameters=config_overrides\n\
             StateSaveLocation={w}/state\nSlurmdSpoolDir={w}/spool-%n\n\
             SlurmctldPidFile={w}/run/slurmctld.pid\nSlurmdPidFile={w}/run/slurmd-%n.pid\n\
             SlurmctldLogFile={w}/log/slurmctld.log\nSlurmdLogFile={w}/log/slurmd-%n.log\n",
            ports[0], slurm.0
        );
        for (node, port) in nodes.iter().zip(&ports[1..]) {
            text.push_str(&format!(
                "NodeName={node} NodeAddr=127.0.0.1 NodeHostname={hostname} Port={port} CPUs=4 RealMemory=1000\n"
            ));
        }
        text.push_str("PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n");
        let conf = work.join("slurm.conf");
        std::fs::write(&conf, text).unwrap();
        Some(Self { slurm, work, conf, nodes: nodes.to_vec() })
    }

    /// A program of the site as somebody.
    pub(crate) fn as_user(&self, (_, uid): (&str, u32), program: &str, args: &[&str]) -> Answer {
        let mut command = Command::new(self.work.join(program));
        command.args(args).env_clear().env("PATH", "/usr/bin:/bin").env("SLURM_CONF", &self.conf).env("TZ", "UTC");
        answer(command.uid(uid).gid(uid).current_dir("/tmp").stdin(Stdio::null()))
    }

    /// A daemon, which goes to the background when it serves.
    #[track_caller]
    pub(crate) fn daemon(&self, user: (&str, u32), program: &str, args: &[&str]) {
        let mut all = vec!["-f", self.conf.to_str().unwrap()];
        all.extend(args);
        let started = self.as_user(user, program, &all);
        assert_eq!(started.code, 0, "{started:?}\n{}", self.logs());
    }

    /// The service of accounting, which goes to the background when it serves.
    #[track_caller]
    pub(crate) fn start_accounting(&self) {
        let conf = self.work.join("slurmdbd.conf");
        let started = self.as_user(ROOT, "slurmdbd", &["-f", conf.to_str().unwrap()]);
        assert_eq!(started.code, 0, "{started:?}\n{}", self.logs());
    }

    /// The door of accounting.
    fn door_of_accounting(&self) -> PathBuf {
        let config = garrick_model::config::read(&self.conf).unwrap();
        let doors =
            config.run_dirs(0, Some(self.slurm.1), None).into_iter().map(|folder| folder.join("accounting.door"));
        doors.into_iter().find(|door| door.exists()).unwrap_or_default()
    }

    /// Rows that accounting shows to a user.
    fn accounted(&self, (_, uid): (&str, u32)) -> Option<Vec<JobWithSteps>> {
        let caller = Caller { uid, gid: uid, pid: 1, host: "here".into() };
        let filter = JobFilter { duplicates: true, ..JobFilter::default() };
        crate::accounting::ask_for(&self.door_of_accounting(), &filter, Some(caller))
    }

    pub(crate) fn kill_daemon(&self, daemon: &str) {
        let pid = std::fs::read_to_string(self.work.join(format!("run/{daemon}.pid"))).unwrap().trim().parse().unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
        self.await_that("it is dead", || is_dead(pid));
    }

    #[track_caller]
    pub(crate) fn start_nodes(&self) {
        for node in &self.nodes {
            self.daemon(ROOT, "slurmd", &["-N", node]);
        }
        let all = format!("idle {}", self.nodes.len());
        self.await_that("the nodes are idle", || self.as_user(ROOT, "sinfo", &["-h", "-o", "%t %D"]).out.trim() == all);
    }

    fn logs(&self) -> String {
        let read = |entry: std::fs::DirEntry| {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            let lines: Vec<&str> = text.lines().rev().take(30).collect();
            format!("== {}\n{}\n", entry.path().display(), lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
        };
        std::fs::read_dir(self.work.join("log")).into_iter().flatten().flatten().map(read).collect()
    }

    #[track_caller]
    pub(crate) fn await_that(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let began = std::time::Instant::now();
        while !holds() {
            assert!(began.elapsed().as_secs() < 90, "still waiting: {what}\n{}", self.logs());
            std::thread::yield_now();
        }
    }

    /// Command lines of this site's processes.
    fn processes(&self) -> Vec<String> {
        let needle = self.work.to_string_lossy();
        crate::support::command_lines().into_iter().filter(|line| line.contains(&*needle)).collect()
    }

    fn stop(&self) {
        self.as_user(ROOT, "scontrol", &["shutdown"]);
        self.await_that("the daemons are gone", || self.processes().is_empty());
    }

    fn pid_of_controller(&self) -> u32 {
        std::fs::read_to_string(self.work.join("run/slurmctld.pid")).unwrap().trim().parse().unwrap()
    }

    pub(crate) fn end(self) {
        self.await_that("no run is left", || !self.processes().iter().any(|line| line.starts_with("stepd ")));
        self.stop();
        let _ = std::fs::remove_dir_all(&self.work);
    }

    /// Each of the four does what a user does, and not what another may not.
    #[track_caller]
    fn serves_everybody(&self) {
        for user in [ROOT, self.slurm, ALICE, BOB] {
            let ran = self.as_user(user, "srun", &["-n2", "id", "-u"]);
            assert_eq!(
                (ran.code, ran.out),
                (0, format!("{0}\n{0}\n", user.1)),
                "{user:?}: {}\n{}",
                ran.err,
                self.logs()
            );
            let allocated =
                self.as_user(user, "salloc", &["-n1", "-Q", self.work.join("srun").to_str().unwrap(), "id", "-un"]);
            assert_eq!((allocated.code, allocated.out.trim()), (0, user.0), "{user:?}: {}", allocated.err);
        }
        let job = self.as_user(ALICE, "sbatch", &["-o", "/dev/null", "--wrap", "exec sleep 600"]).ok().job();
        let state = || self.as_user(ALICE, "squeue", &["-h", "-o", "%T", "-j", &job]).out;
        self.await_that("her job runs", || state().trim() == "RUNNING");
        let refused = self.as_user(BOB, "scancel", &[&job]);
        assert!(refused.code != 0 && refused.err.contains("Access/permission denied"), "{refused:?}");
        let refused = self.as_user(BOB, "srun", &["--jobid", &job, "--overlap", "id"]);
        assert!(refused.code != 0 && refused.out.is_empty(), "{refused:?}");
        assert_eq!(state().trim(), "RUNNING");
        for user in [ROOT, self.slurm, ALICE] {
            let steps = self.as_user(user, "scontrol", &["liststeps"]).ok().out;
            let of_job = |line: &&str| line.split_whitespace().eq([job.as_str(), "batch"]);
            assert_eq!(steps.lines().filter(of_job).count(), 1, "{user:?}: {steps}");
        }
        self.as_user(self.slurm, "scancel", &[&job]).ok();
        self.await_that("SlurmUser ended it", || !state().contains("RUNNING") && !state().contains("COMPLETING"));
        let kept = || std::fs::read_to_string(self.work.join("state/audit.log")).unwrap();
        let has = |uid: u32, outcome: &str| {
            let whole = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
            let of_cancel = |line: &serde_json::Value| line["what"] == "Cancel" && line["uid"] == uid;
            kept().lines().map(whole).any(|line| of_cancel(&line) && line["outcome"] == outcome)
        };
        self.await_that("what was refused and done is kept", || {
            has(BOB.1, "Access/permission denied") && has(self.slurm.1, "done")
        });
    }
}

impl Drop for Site {
    /// A test that failed leaves nothing.
    fn drop(&mut self) {
        let needle = self.work.to_string_lossy().into_owned();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            if pid.unsigned_abs() != std::process::id() && String::from_utf8_lossy(&line).contains(&needle) {
                let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
            }
        }
    }
}

/// Of a process that may be gone, or not dumpable.
fn uid_of_status(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next()?.parse().ok())
}

fn uid_of(pid: u32) -> u32 {
    std::fs::metadata(format!("/proc/{pid}")).unwrap().uid()
}

/// The files below a folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    // Some go while others are looked at.
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files.extend(files_below(&entry.path()));
        } else {
            files.push(entry.path());
        }
    }
    files
}

#[test]
fn a_controller_that_root_starts_runs_as_slurm_user_and_serves_everybody() {
    let Some(site) = Site::new("slurmuser", &["n1", "n2"]) else { return };
    site.daemon(ROOT, "slurmctld", &[]);
    let pid = site.pid_of_controller();
    assert_eq!(uid_of(pid), SLURM.1, "slurmctld stepped down");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = |key: &str| status.lines().find(|line| line.starts_with(key)).unwrap().to_owned();
    assert_eq!(line("Uid:").split_whitespace().skip(1).collect::<Vec<_>>(), ["1"; 4], "no way back");
    assert_eq!(line("CapEff:").split_whitespace().nth(1).unwrap().trim_start_matches('0'), "");
    site.start_nodes();
    site.serves_everybody();
    // An edited port does not hide the daemons that it is about.
    let text = std::fs::read_to_string(&site.conf).unwrap();
    let port = text.lines().find(|line| line.starts_with("SlurmctldPort=")).unwrap();
    std::fs::write(&site.conf, text.replace(port, "SlurmctldPort=1")).unwrap();
    site.as_user(ROOT, "scontrol", &["reconfigure"]).ok();
    site.await_that("it says so", || site.logs().contains("keeps its port until it is started again"));
    site.as_user(ALICE, "srun", &["true"]).ok();
    std::fs::write(&site.conf, &text).unwrap();
    // Its folder in /run is made by root alone, and goes with the machine's next boot.
    site.end();
}

/// The controller keeps the newest thousand ends of a job; the records of the run have all.
#[test]
fn slurm_user_sees_every_step_of_others_and_others_what_the_controller_remembers() {
    let Some(site) = Site::new("slurmuser-steps", &["n1"]) else { return };
    site.daemon(ROOT, "slurmctld", &[]);
    site.start_nodes();
    let w = site.work.display();
    let script = format!(
        "{w}/srun --async --array=0-1499 --mem=10 -o /dev/null bash -c '(( SLURM_STEP_ARRAY_TASK_ID % 500 != 7 ))'; \
         {w}/garrick swait"
    );
    let job = site.as_user(ALICE, "sbatch", &["--wait", "-n4", "-o", "/dev/null", "--wrap", &script]).ok().job();
    let seen = |user, more: &[&str]| {
        let mut args = vec!["-h", "-s", "-t", "F", "-o", "%i"];
        args.extend(more);
        let answer = site.as_user(user, "squeue", &args);
        let mut lines: Vec<String> = answer.out.lines().map(|line| line.trim().to_owned()).collect();
        lines.sort();
        (lines, answer.code, answer.err)
    };
    let all = ["0_1007", "0_507", "0_7"].map(|step| format!("{job}.{step}")).to_vec();
    for user in [ROOT, SLURM, ALICE] {
        assert_eq!(seen(user, &[]), (all.clone(), 0, String::new()), "{user:?}");
    }
    let (lines, code, err) = seen(BOB, &[]);
    assert_eq!((lines.contains(&all[2]), code, err.as_str()), (false, 0, ""), "{lines:?}");
    // What he names is not whole for him, and he is told.
    let (lines, code, err) = seen(BOB, &["-j", &job]);
    assert!(!lines.contains(&all[2]) && code == 1 && err.contains("Access/permission denied"), "{lines:?} {err}");
    site.end();
}

#[test]
fn a_controller_that_slurm_user_starts_serves_everybody_and_takes_over_what_root_left() {
    let Some(site) = Site::new("slurmuser2", &["n1"]) else { return };
    // A first start as root makes the folders, as an installation would.
    site.daemon(ROOT, "slurmctld", &[]);
    site.stop();
    // What a controller of an older version left: root's, and open to all.
    for file in files_below(&site.work.join("state")) {
        std::os::unix::fs::chown(&file, Some(0), Some(0)).unwrap();
    }
    let journal = site.work.join("state/journal");
    std::fs::set_permissions(&journal, std::fs::Permissions::from_mode(0o644)).unwrap();
    site.daemon(ROOT, "slurmctld", &[]);
    let found = std::fs::metadata(&journal).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o777), (SLURM.1, 0o600), "{}", site.logs());
    site.stop();
    site.daemon(SLURM, "slurmctld", &[]);
    assert_eq!(uid_of(site.pid_of_controller()), SLURM.1);
    site.start_nodes();
    site.serves_everybody();
    site.stop();
    // Nobody else starts one.
    let refused = site.as_user(BOB, "slurmctld", &["-f", site.conf.to_str().unwrap()]);
    assert!(refused.code != 0 && refused.err.contains("SlurmUser=daemon"), "{refused:?}");
    site.end();
}

#[test]
fn a_controller_needs_nothing_of_roots_making() {
    let slurm = ("bin", 2);
    let Some(site) = Site::with_slurm_user(slurm, "slurmuser3", &["n1"]) else { return };
    assert!(!Path::new("/run/garrick-bin").exists(), "no start as root made it");
    for folder in ["state", "run", "log"] {
        let folder = site.work.join(folder);
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::chown(&folder, Some(slurm.1), Some(slurm.1)).unwrap();
    }
    site.daemon(slurm, "slurmctld", &[]);
    site.start_nodes();
    site.serves_everybody();
    site.end();
}

#[test]
fn nobody_reads_what_is_not_theirs_in_any_file_of_the_daemons() {
    let Some(site) = Site::new("secrets", &["n1"]) else { return };
    site.daemon(ROOT, "slurmctld", &[]);
    site.start_nodes();
    let script = site.work.join("job.sh");
    std::fs::write(&script, "#!/bin/bash\n# written-secret\nread -r < ").unwrap();
    let gate = site.work.join("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
    std::fs::set_permissions(&gate, std::fs::Permissions::from_mode(0o666)).unwrap();
    let text = format!("#!/bin/bash\n# whispered-secret\nread -r < {}\n", gate.display());
    std::fs::write(&script, text).unwrap();
    let arguments = ["--export=ALL,TOLD=exported-secret", "-o", "/dev/null", script.to_str().unwrap()];
    let job = site.as_user(ALICE, "sbatch", &arguments).ok().job();
    site.await_that("it runs", || {
        site.as_user(ALICE, "squeue", &["-h", "-o", "%T", "-j", &job]).out.trim() == "RUNNING"
    });
    // The launcher, which has sockets of root's making and a copy of its stepd's memory, is none that its user can trace.
    let launcher = crate::support::pids().into_iter().find(|pid| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.starts_with(b"stepd\0launcher\0") && uid_of_status(*pid) == Some(ALICE.1)
    });
    let launcher = launcher.expect("her job has a launcher");
    for secret in ["environ", "maps", "mem", "exe"] {
        let mut look = Command::new(if secret == "exe" { "readlink" } else { "cat" });
        look.arg(format!("/proc/{launcher}/{secret}")).env_clear().stdin(Stdio::null());
        let seen = answer(look.uid(ALICE.1).gid(ALICE.1));
        assert!(seen.code != 0 && seen.out.is_empty(), "{secret}: {seen:?}");
    }
    let folders = ["state", "spool-n1"].map(|name| site.work.join(name));
    let has = |text: &str| {
        let found = folders.iter().flat_map(|folder| files_below(folder));
        found.filter(|file| String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).contains(text)).count()
    };
    assert!(has("whispered-secret") > 0 && has("exported-secret") > 0, "there is something to be read");
    let mut search = Command::new("grep");
    search.args(["-rlE", "secret"]).args(&folders).arg(site.work.join("log")).env_clear().stdin(Stdio::null());
    let found = answer(search.uid(BOB.1).gid(BOB.1));
    assert_eq!(found.out, "", "{}", found.err);
    // The authority's certificate is for everybody.
    let public = |file: &PathBuf| file.ends_with("ca/ca.crt");
    for file in folders.iter().flat_map(|folder| files_below(folder)).filter(|file| !public(file)) {
        let Ok(found) = std::fs::symlink_metadata(&file) else { continue };
        let mode = found.mode();
        assert_eq!(mode & 0o077, 0, "{} has mode {:o}", file.display(), mode & 0o7777);
    }
    std::fs::write(&gate, "\n").unwrap();
    site.end();
}

#[test]
fn a_state_folder_has_one_controller() {
    let Some(site) = Site::new("two", &["n1"]) else { return };
    site.daemon(ROOT, "slurmctld", &[]);
    let pid = site.pid_of_controller();
    let other = site.work.join("other.conf");
    let port = crate::support::free_ports(1)[0];
    let text: String =
        std::fs::read_to_string(&site.conf)
            .unwrap()
            .lines()
            .map(|line| {
                if line.starts_with("SlurmctldPort=") { format!("SlurmctldPort={port}\n") } else { format!("{line}\n") }
            })
            .collect();
    std::fs::write(&other, text.replace("/run/slurmctld.pid", "/run/other.pid")).unwrap();
    let second = site.as_user(ROOT, "slurmctld", &["-f", other.to_str().unwrap()]);
    let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
    assert_ne!(second.code, 0, "{second:?}");
    for told in [format!("pid {pid}"), format!("host {host}"), "since 20".to_owned()] {
        assert!(second.err.contains(&told), "{told}: {second:?}");
    }
    site.start_nodes();
    let job = site.as_user(ALICE, "sbatch", &["-o", "/dev/null", "--hold", "--wrap", "true"]).ok().job();
    // As a controller on another host would, that mounts the folder where locks do not reach.
    let taken = r#"{"host":"elsewhere","pid":7,"since":1790000000000,"token":"another"}"#;
    std::fs::write(site.work.join("state/writer.new"), taken).unwrap();
    std::fs::rename(site.work.join("state/writer.new"), site.work.join("state/writer")).unwrap();
    let late = site.as_user(ALICE, "sbatch", &["-o", "/dev/null", "--wrap", "true"]);
    assert_ne!(late.code, 0, "what it says now does not hold: {late:?}");
    site.await_that("the first has ended", || !Path::new(&format!("/proc/{pid}/exe")).exists());
    assert!(site.logs().contains("host elsewhere"), "{}", site.logs());
    // The next one begins where others may still write, and has what was acknowledged.
    site.daemon(ROOT, "slurmctld", &[]);
    let jobs = site.as_user(ROOT, "squeue", &["-h", "-o", "%i"]).out;
    assert_eq!(jobs.trim(), job, "{}", site.logs());
    // Nor does one answer that cannot see the other's name, but finds what that one has written.
    let pid = site.pid_of_controller();
    let journal = site.work.join("state/journal");
    let mut begun = Vec::new();
    Form::Epoch(100).frame(&journal, &ControllerEvent::Started { epoch: 100 }, &mut begun).unwrap();
    std::fs::OpenOptions::new().append(true).open(&journal).unwrap().write_all(&begun).unwrap();
    let late = site.as_user(ALICE, "sbatch", &["-o", "/dev/null", "--wrap", "true"]);
    assert_ne!(late.code, 0, "what it says now does not hold: {late:?}");
    site.await_that("it has ended", || !Path::new(&format!("/proc/{pid}/exe")).exists());
    assert!(site.logs().contains("a writer of epoch 100 is at it"), "{}", site.logs());
    site.daemon(ROOT, "slurmctld", &[]);
    let jobs = site.as_user(ROOT, "squeue", &["-h", "-o", "%i"]).out;
    assert_eq!(jobs.trim(), job, "{}", site.logs());
    let writer = std::fs::read_to_string(site.work.join("state/writer")).unwrap();
    assert!(writer.contains(r#""epoch":101"#), "{writer}");
    let ran = site.as_user(ALICE, "srun", &["id", "-u"]);
    assert_eq!((ran.code, ran.out.trim()), (0, "5"), "{}\n{}", ran.err, site.logs());
    site.end();
}

#[test]
fn a_cluster_of_one_user_runs_nobody_elses_jobs() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let (work, bin) = (scratch("own"), built());
    open_to_all(&work);
    copy_programs(&bin, &work);
    let home = work.join("home");
    let run = |(_, uid): (&str, u32), program: &str, args: &[&str]| {
        let mut command = Command::new(work.join(program));
        command.args(args).env_clear().env("PATH", "/usr/bin:/bin").env("GARRICK_HOME", &home);
        answer(command.uid(uid).gid(uid).current_dir(&work).stdin(Stdio::null()))
    };
    std::fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(ALICE.1), Some(ALICE.1)).unwrap();
    let refused = run(ROOT, "garrick", &["up"]);
    assert!(refused.code != 0 && refused.err.contains("belongs to uid 5"), "root takes over nothing: {refused:?}");
    run(ALICE, "garrick", &["up"]).ok();
    let ran = run(ALICE, "srun", &["id", "-u"]);
    assert_eq!((ran.code, ran.out.trim()), (0, "5"), "{}", ran.err);
    for stranger in [BOB, ROOT] {
        for (program, args) in
            [("srun", &["id", "-u"][..]), ("sbatch", &["--wrap", "id"]), ("salloc", &["-n1", "id", "-u"])]
        {
            let refused = run(stranger, program, args);
            assert!(refused.code != 0 && refused.out.is_empty(), "{stranger:?} {program}: {refused:?}");
            assert!(refused.err.contains("Invalid user id") || refused.err.contains("not trusted"), "{refused:?}");
        }
    }
    let jobs = run(ALICE, "squeue", &["-h", "-t", "all", "-o", "%i %u"]);
    assert_eq!(jobs.out.trim(), "1 games", "{}", jobs.err);
    let job = run(ALICE, "sbatch", &["-o", "/dev/null", "--wrap", "exec sleep 600"]).ok().job();
    let attached = run(BOB, "srun", &["--jobid", &job, "--overlap", "id"]);
    assert!(attached.code != 0 && attached.out.is_empty(), "{attached:?}");
    run(ALICE, "garrick", &["down"]).ok();
    let needle = work.to_string_lossy().into_owned();
    let left: Vec<String> = crate::support::command_lines().into_iter().filter(|line| line.contains(&needle)).collect();
    assert_eq!(left, Vec::<String>::new());
    let _ = std::fs::remove_dir_all(&work);
}

#[test]
fn a_file_on_a_node_is_the_jobs_users_and_made_with_no_other_rights() {
    let Some(site) = Site::new("sbcast", &["n1", "n2"]) else { return };
    site.daemon(ROOT, "slurmctld", &[]);
    site.start_nodes();
    let w = site.work.display();
    let (open, closed) = (site.work.join("open"), site.work.join("closed"));
    for (folder, mode) in [(&open, 0o1777), (&closed, 0o755)] {
        std::fs::create_dir(folder).unwrap();
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let sent = |user, words: &str| {
        let words = format!("-Q -N2 {w}/sbcast {words}");
        site.as_user(user, "salloc", &words.split(' ').collect::<Vec<_>>())
    };
    sent(ALICE, &format!("-f -p /etc/hostname {w}/open/f")).ok();
    let found = std::fs::symlink_metadata(open.join("f")).unwrap();
    assert_eq!(
        (found.uid(), found.gid(), found.mtime()),
        (ALICE.1, ALICE.1, std::fs::metadata("/etc/hostname").unwrap().mtime())
    );
    let refused = sent(ALICE, &format!("-f /etc/hostname {w}/closed/f"));
    assert_eq!(refused.code, libc::EACCES, "{refused:?}");
    assert!(refused.err.contains("sbcast: error: REQUEST_FILE_BCAST(n2): Permission denied\n"), "{refused:?}");
    // Not by way of a link either.
    std::os::unix::fs::symlink(closed.join("g"), open.join("g")).unwrap();
    std::os::unix::fs::lchown(open.join("g"), Some(ALICE.1), Some(ALICE.1)).unwrap();
    sent(ALICE, &format!("-f /etc/hostname {w}/open/g")).ok();
    assert!(std::fs::symlink_metadata(open.join("g")).unwrap().is_file());
    assert_eq!(std::fs::read_dir(&closed).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(&open).unwrap().count(), 2);
    let job = site.as_user(ALICE, "sbatch", &["-N1", "-o", "/dev/null", "--wrap", "sleep 1000"]).ok().job();
    site.await_that("it runs", || site.as_user(ALICE, "squeue", &["-h", "-o", "%t"]).out.trim() == "R");
    let words = ["-j", &job, "/etc/hostname", "/tmp/never"];
    let other = site.as_user(BOB, "sbcast", &words);
    let said = format!("sbcast: error: Slurm job {job} lookup error: Invalid user id\n");
    assert_eq!((other.code, other.err), (255, said));
    site.as_user(ALICE, "scancel", &[&job]).ok();
    site.end();
}

#[test]
fn accounting_of_a_site_loses_and_doubles_nothing_and_shows_users_their_own() {
    const ROUNDS: usize = 4;
    const TASKS: usize = 8;
    let Some(site) = Site::new("accounting", &["n1"]) else { return };
    let w = site.work.display();
    let text = std::fs::read_to_string(&site.conf).unwrap();
    std::fs::write(&site.conf, format!("AccountingStorageType=accounting_storage/slurmdbd\n{text}")).unwrap();
    let settings = format!(
        "DbdHost=localhost\nSlurmUser={}\nStorageType=accounting_storage/sqlite\nStorageLoc={w}/acct/accounting.db\n\
         LogFile={w}/log/slurmdbd.log\nPidFile={w}/run/slurmdbd.pid\nPrivateData=jobs\n",
        SLURM.0
    );
    std::fs::write(site.work.join("slurmdbd.conf"), settings).unwrap();
    site.daemon(ROOT, "slurmctld", &[]);
    site.start_nodes();
    // Nobody waits for a service that is not there yet.
    site.as_user(BOB, "srun", &["-n1", "true"]).ok();
    site.start_accounting();
    let pid = std::fs::read_to_string(site.work.join("run/slurmdbd.pid")).unwrap().trim().parse().unwrap();
    assert_eq!(uid_of_status(pid), Some(SLURM.1));
    let tasks = format!("1-{TASKS}");
    for round in 0..ROUNDS {
        let steps = format!("for n in 1 2 3; do {w}/srun -n1 true; done");
        site.as_user(ALICE, "sbatch", &["-a", &tasks, "-n1", "--mem=10", "-o", "/dev/null", "--wrap", &steps]).ok();
        let some = || site.accounted(ALICE).is_some_and(|jobs| jobs.iter().any(|job| job.row.is_over()));
        site.await_that("some are over", some);
        site.kill_daemon("slurmdbd");
        if round % 2 == 1 {
            site.kill_daemon("slurmctld");
            site.daemon(ROOT, "slurmctld", &[]);
        }
        site.start_accounting();
    }
    let ended = |job: &JobWithSteps| job.row.state == JobState::Completed && job.steps.len() == 4;
    let all = || site.accounted(ALICE).unwrap_or_default();
    let complete = || all().iter().filter(|job| ended(job)).count() == ROUNDS * TASKS;
    site.await_that("all rows are there", complete);
    assert_eq!(all().len(), ROUNDS * TASKS, "none is there twice");
    assert_eq!(site.accounted(BOB).unwrap().len(), 1, "each user sees his own");
    assert_eq!(site.accounted(ROOT).unwrap().len(), ROUNDS * TASKS + 1);
    let mode = |path: &str| std::fs::metadata(site.work.join(path)).unwrap();
    assert_eq!((mode("acct").mode() & 0o777, mode("acct/accounting.db").mode() & 0o777), (0o700, 0o600));
    assert_eq!(mode("acct/accounting.db").uid(), SLURM.1);
    site.kill_daemon("slurmdbd");
    site.end();
}
