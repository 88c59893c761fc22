//! A controller without nodes, in a folder of its own.

use super::{Fallible, client};
use crate::minibatch::cluster::{ClusterError, beside, fresh_home, run, without_cluster};
use garrick_events::{event::ControllerEvent, records::job_event::JobEvent};
use garrick_frame::DoorClient;
use garrick_model::{
    config,
    job_query::JobQuery,
    messages::command::{CommandReply, CommandRequest},
    spec::JobSpec,
    view::JobView,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

/// Jobs asked for at a time.
const PAGE: u32 = 4_000;
/// Longest until it answers.
const PATIENCE: Duration = Duration::from_secs(300);

/// It runs until it is taken down.
pub struct Controller {
    home: PathBuf,
    state: PathBuf,
    door: PathBuf,
    process: Child,
    spec: Option<JobSpec>,
    ended: bool,
}

impl Controller {
    /// Starts one whose state is in `disk`, else beside the rest, and submits a first job to it with `sbatch`.
    pub fn up(disk: Option<&Path>) -> Fallible<Self> {
        Self::up_with(disk, "")
    }

    /// The same with more lines in `slurm.conf`.
    pub fn up_with(disk: Option<&Path>, lines: &str) -> Fallible<Self> {
        let home = fresh_home("records")?;
        let name = home.file_name().unwrap_or_default().to_owned();
        let state = disk.map_or_else(|| home.join("state"), |disk| disk.join(name));
        let port = free_port()?;
        let text = format!(
            "ClusterName=records{port}\nSlurmctldHost=localhost\nSlurmctldPort={port}\nSlurmUser=root\n\
             StateSaveLocation={}\nSlurmctldPidFile={}/ctld.pid\nMaxJobCount=1000000\n\
             NodeName=n[1-100] CPUs=64 RealMemory=256000 State=DOWN\n\
             PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n{lines}",
            state.display(),
            home.display()
        );
        let conf = home.join("slurm.conf");
        fs::write(&conf, text)?;
        let read = config::read_reporting(&conf).0.ok_or("the configuration is not understood")?;
        let door = read.run_dir(nix::unistd::geteuid().as_raw(), None).join("ctl.sock");
        let process = spawn(&home)?;
        let mut controller = Self { home, state, door, process, spec: None, ended: false };
        controller.wait_until_it_answers()?;
        controller.submit_first()?;
        Ok(controller)
    }

    /// Its folder, on a disk.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Where its journal is.
    pub fn state(&self) -> PathBuf {
        self.state.clone()
    }

    /// Its door.
    pub fn door(&self) -> &Path {
        &self.door
    }

    /// One of Garrick's commands for this controller, or another program by its path.
    pub fn command(&self, program: &str) -> Fallible<Command> {
        if program.starts_with('/') {
            return Ok(Command::new(program));
        }
        let link = self.home.join(program);
        if !link.exists() {
            symlink(beside("garrick")?, &link)?;
        }
        let mut command = Command::new(link);
        without_cluster(&mut command).env("SLURM_CONF", self.home.join("slurm.conf"));
        Ok(command)
    }

    /// The job that `sbatch` submitted.
    pub fn spec(&self) -> &JobSpec {
        self.spec.as_ref().expect("the first job was submitted when it came up")
    }

    fn submit_first(&mut self) -> Fallible<()> {
        let script = self.home.join("job.sh");
        fs::write(&script, "#!/bin/sh\n#SBATCH -n1 --mem=100 -t 10\nsrun hostname\n")?;
        run(self.command("sbatch")?.arg(&script))?;
        let mut reader = garrick_journal::Reader::open(&self.state.join("journal"))?;
        while let Some(record) = reader.next_record()? {
            if let ControllerEvent::Job { event, .. } = record.decode()?
                && let JobEvent::Submitted(record) = *event
            {
                self.spec = Some((*record.spec).clone());
                break;
            }
        }
        if self.spec.is_some() { Ok(()) } else { Err("the journal does not have the first job".into()) }
    }

    /// What a job takes in the journal.
    pub fn record_bytes(&self) -> Fallible<u64> {
        let mut reader = garrick_journal::Reader::open(&self.state.join("journal"))?;
        let mut longest = 0;
        while let Some(record) = reader.next_record()? {
            longest = longest.max(record.bytes());
        }
        Ok(longest)
    }

    /// Kills it.
    pub fn kill(&mut self) -> Fallible<()> {
        kill(Pid::from_raw(i32::try_from(self.process.id())?), Signal::SIGKILL)?;
        self.process.wait()?;
        Ok(())
    }

    /// Starts it again and waits until it answers.
    pub fn start(&mut self) -> Fallible<()> {
        self.process = spawn(&self.home)?;
        self.wait_until_it_answers()
    }

    fn wait_until_it_answers(&mut self) -> Fallible<()> {
        let began = Instant::now();
        loop {
            if self.ask(&CommandRequest::Ping).is_ok_and(|reply| matches!(reply, CommandReply::Pong { .. })) {
                return Ok(());
            }
            if let Some(status) = self.process.try_wait()? {
                return Err(format!("the controller ended: {status}\n{}", self.log()).into());
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("the controller does not answer\n{}", self.log()).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.home.join("log")).unwrap_or_default()
    }

    fn ask(&self, request: &CommandRequest) -> Fallible<CommandReply> {
        let mut client = client(&self.door)?;
        client.send(request)?;
        Ok(client.recv()?)
    }

    /// Jobs that it lists.
    pub fn count_jobs(&self) -> Fallible<usize> {
        let mut count = 0;
        self.each_page(&JobQuery::default(), |_, jobs| {
            count += jobs.len();
            Ok(())
        })?;
        Ok(count)
    }

    /// Jobs that are such, so many at a time, with the connection on which they were asked for.
    pub fn each_page(
        &self,
        which: &JobQuery,
        mut page: impl FnMut(&mut DoorClient, &[Arc<JobView>]) -> Fallible<()>,
    ) -> Fallible<()> {
        let mut client = client(&self.door)?;
        let (mut after, mut more) = (None, true);
        while more {
            let (jobs, which) = (Vec::new(), which.clone());
            client.send(&CommandRequest::ListJobs { jobs, which, after, most: Some(PAGE), hide: false })?;
            let jobs = match client.recv()? {
                CommandReply::Jobs { jobs, more: others, .. } => {
                    more = others;
                    jobs
                }
                other => return Err(format!("asked for jobs: {other:?}").into()),
            };
            after = jobs.last().map(|view| view.id);
            page(&mut client, &jobs)?;
        }
        Ok(())
    }

    fn status(&self, field: &str) -> Fallible<f64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix(field)).ok_or("no such field")?;
        let kib: f64 = line.trim_start_matches(':').trim().trim_end_matches(" kB").parse()?;
        Ok(kib / 1024.0)
    }

    /// Resident now.
    pub fn memory_mib(&self) -> Fallible<f64> {
        self.status("VmRSS")
    }

    /// Resident at most, since it was started.
    pub fn peak_memory_mib(&self) -> Fallible<f64> {
        self.status("VmHWM")
    }

    /// Ends it and removes all that is of it.
    pub fn down(mut self) -> Fallible<()> {
        self.end();
        Ok(())
    }

    fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        // What is gone already is as good.
        let _ = self.kill();
        let _ = fs::remove_dir_all(&self.home);
        let _ = fs::remove_dir_all(&self.state);
        let _ = self.door.parent().map(fs::remove_dir_all);
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.end();
    }
}

fn spawn(home: &Path) -> Result<Child, ClusterError> {
    let (program, log) = (beside("noded")?, home.join("log"));
    let file = File::options().create(true).append(true).open(&log);
    let file = file.map_err(|cause| ClusterError::File { operation: "open", path: log.clone(), cause })?;
    let mut command = Command::new(&program);
    without_cluster(&mut command).args(["--role", "controller", "-D", "-f"]).arg(home.join("slurm.conf"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    command.spawn().map_err(|cause| ClusterError::Run { program: program.display().to_string(), cause })
}

fn free_port() -> Fallible<u16> {
    Ok(std::net::UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port())
}
