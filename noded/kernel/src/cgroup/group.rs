//! One cgroup: the same folder in each hierarchy in use.

use super::{
    CgroupError, Kind,
    device_filter::{self, Device, DeviceKind},
    files::{PROCS, THREADS, check_enabled, enable, gone, keyed, read, read_if_there, subtree, write},
};
use crate::{
    cpu_list::CpuList,
    signals::{Delivery, pidfd_open, send},
};
use cgroups_rs::fs::{Controller, cpuset::CpuSetController, freezer::FreezerController, memory::MemController};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

// Kernel documentation: admin-guide/cgroup-v2.rst and admin-guide/cgroup-v1/.
const KILL: &str = "cgroup.kill";
const EVENTS: &str = "cgroup.events";
const CPU_STAT: &str = "cpu.stat";
const DEVICES_DENY: &str = "devices.deny";

/// Swap beside a memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swap {
    /// As much as there is.
    Free,
    /// None: memory and swap together stay within the limit.
    Within,
}

/// A memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Bytes.
    pub bytes: u64,
    /// Swap.
    pub swap: Swap,
}

/// What a cgroup and those below it use. `None`: the kernel does not count it here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time, microseconds.
    pub cpu_us: Option<u64>,
    /// Memory in use, bytes.
    pub memory_bytes: Option<u64>,
    /// Most memory in use so far, bytes.
    pub memory_peak_bytes: Option<u64>,
    /// Processes.
    pub processes: u32,
}

/// A cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    kind: Kind,
    core: PathBuf,
    cpuset: Option<PathBuf>,
    memory: Option<PathBuf>,
    /// In version 2 that of `core`.
    devices: Option<PathBuf>,
}

/// Opened to start a process in a cgroup.
#[derive(Debug, Default)]
pub struct Entry {
    /// Its folder of version 2, for `CLONE_INTO_CGROUP`.
    pub folder: Option<OwnedFd>,
    /// Files of its other folders, to which the process, while it has one thread, writes `0`.
    pub files: Vec<OwnedFd>,
}

/// Before Linux 6.4 (commit 42a11bf5c543) a process that is born in a cgroup keeps the CPUs of its parent.
fn children_have_the_cpus_of_their_group() -> bool {
    nix::sys::utsname::uname().is_ok_and(|name| is_of_6_4(&name.release().to_string_lossy()))
}

pub(super) fn is_of_6_4(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(4))
}

/// Longest wait before looking again for processes that were started meanwhile.
const ROUND: Duration = Duration::from_millis(50);

impl From<Vec<OwnedFd>> for Entry {
    fn from(files: Vec<OwnedFd>) -> Self {
        Self { folder: None, files }
    }
}

impl Group {
    pub(super) fn new(
        kind: Kind,
        core: PathBuf,
        cpuset: Option<PathBuf>,
        memory: Option<PathBuf>,
        devices: Option<PathBuf>,
    ) -> Self {
        Self { kind, core, cpuset, memory, devices }
    }

    /// The cgroup `name` below this one.
    pub(super) fn child(&self, name: &str) -> Self {
        let at = |p: &PathBuf| p.join(name);
        Self {
            kind: self.kind,
            core: at(&self.core),
            cpuset: self.cpuset.as_ref().map(at),
            memory: self.memory.as_ref().map(at),
            devices: self.devices.as_ref().map(at),
        }
    }

    /// The cgroup of the tasks below this one. Version 1 has a file `tasks` in each folder, so there it is `user`.
    pub(super) fn tasks(&self) -> Self {
        let name = |legacy: bool| if legacy { "user" } else { "tasks" };
        let limits = |p: &PathBuf| p.join(name(self.kind != Kind::V2));
        Self {
            kind: self.kind,
            core: self.core.join(name(self.kind == Kind::V1)),
            cpuset: self.cpuset.as_ref().map(limits),
            memory: self.memory.as_ref().map(limits),
            devices: self.devices.as_ref().map(limits),
        }
    }

    /// The same in the hierarchy that tracks only, without limits.
    pub(super) fn without_limits(mut self) -> Self {
        self.cpuset = None;
        self.memory = None;
        self.devices = None;
        self
    }

    /// Its folder in the hierarchy that tracks.
    pub fn path(&self) -> &Path {
        &self.core
    }

    /// Its folders, each once.
    pub(super) fn folders(&self) -> Vec<&PathBuf> {
        let mut folders = vec![&self.core];
        for path in [&self.cpuset, &self.memory, &self.devices].into_iter().flatten() {
            if !folders.contains(&path) {
                folders.push(path);
            }
        }
        folders
    }

    fn v2(&self) -> bool {
        self.kind == Kind::V2
    }

    fn cpuset_controller(&self) -> Option<CpuSetController> {
        self.cpuset.as_ref().map(|p| CpuSetController::new(p.clone(), PathBuf::new(), self.v2()))
    }

    fn memory_controller(&self) -> Option<MemController> {
        self.memory.as_ref().map(|p| MemController::new(p.clone(), PathBuf::new(), self.v2()))
    }

    fn freezer(&self) -> FreezerController {
        FreezerController::new(self.core.clone(), PathBuf::new(), self.kind != Kind::V1)
    }

    /// Makes it. On version 1 it inherits the CPUs and memory nodes of the group above.
    pub(super) fn create(&self) -> Result<(), CgroupError> {
        fs::create_dir_all(&self.core).map_err(CgroupError::file("mkdir", &self.core))?;
        if let Some(memory) = self.memory_controller() {
            memory.create().map_err(|e| controller("mkdir", memory.path(), e))?;
        }
        if let Some(devices) = &self.devices {
            fs::create_dir_all(devices).map_err(CgroupError::file("mkdir", devices))?;
        }
        if let Some(cpuset) = self.cpuset_controller() {
            cpuset.create().map_err(|e| controller("mkdir", cpuset.path(), e))?;
            if !self.v2() {
                // cgroups-rs only logs when it cannot pass these on, and without them no process can enter.
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    if read(&cpuset.path().join(file))?.trim().is_empty() {
                        return Err(CgroupError::NotEnabled { controller: "cpuset", path: cpuset.path().to_owned() });
                    }
                }
            }
        }
        Ok(())
    }

    /// Version 2: lets the groups below have the controllers in use.
    pub(super) fn hand_on(&self) -> Result<(), CgroupError> {
        if self.v2() {
            for (name, used) in [("cpuset", &self.cpuset), ("memory", &self.memory)] {
                if used.is_some() {
                    enable(&self.core, name)?;
                }
            }
        }
        Ok(())
    }

    /// Version 2: the controllers in use have arrived.
    pub(super) fn check_controllers(&self) -> Result<(), CgroupError> {
        if self.v2() {
            for (name, used) in [("cpuset", &self.cpuset), ("memory", &self.memory)] {
                if used.is_some() {
                    check_enabled(&self.core, name)?;
                }
            }
        }
        Ok(())
    }

    /// It is there.
    pub fn exists(&self) -> bool {
        self.core.is_dir()
    }

    /// Holds its processes to these CPUs of the machine. Without the cpuset controller: nothing happens.
    pub fn set_cpus(&self, cpus: &CpuList) -> Result<(), CgroupError> {
        let Some(cpuset) = self.cpuset_controller() else { return Ok(()) };
        let text = cpus.to_string();
        cpuset.set_cpus(&text).map_err(|e| controller(&format!("cpuset.cpus = {text}"), cpuset.path(), e))
    }

    /// Holds its processes, all together, to this much memory. Without the memory controller: nothing happens.
    pub fn set_memory(&self, limit: MemoryLimit) -> Result<(), CgroupError> {
        let Some(memory) = self.memory_controller() else { return Ok(()) };
        let bytes = i64::try_from(limit.bytes).unwrap_or(i64::MAX);
        let failed = |file: &str, e| controller(&format!("{file} = {bytes}"), memory.path(), e);
        if self.v2() {
            memory.set_limit(bytes).map_err(|e| failed("memory.max", e))?;
            let swap = memory.path().join("memory.swap.max");
            // Absent in kernels without swap.
            if limit.swap == Swap::Within && swap.exists() {
                write(&swap, "0")?;
            }
            return Ok(());
        }
        // Memory must never be above memory and swap together, so the order depends on the direction.
        let both = limit.swap == Swap::Within && memory.path().join("memory.memsw.limit_in_bytes").exists();
        let set = |m: &MemController| m.set_limit(bytes).map_err(|e| failed("memory.limit_in_bytes", e));
        let set_both =
            |m: &MemController| m.set_memswap_limit(bytes).map_err(|e| failed("memory.memsw.limit_in_bytes", e));
        if !both {
            return set(&memory);
        }
        match set(&memory) {
            Ok(()) => set_both(&memory),
            Err(_) => set_both(&memory).and_then(|()| set(&memory)),
        }
    }

    /// Keeps its processes from device files. Without the devices controller: nothing happens. What is no device file, or
    /// not there, cannot be kept from anybody here, and is answered.
    pub fn deny_devices<'f>(&self, files: impl IntoIterator<Item = &'f Path>) -> Result<Vec<PathBuf>, CgroupError> {
        let Some(devices) = &self.devices else { return Ok(Vec::new()) };
        let (mut denied, mut left) = (Vec::new(), Vec::new());
        for file in files {
            match device_at(file) {
                Some(device) => denied.push(device),
                None => left.push(file.to_owned()),
            }
        }
        if self.kind == Kind::V2 && !denied.is_empty() {
            let folder = File::open(devices).map_err(CgroupError::file("open", devices))?;
            device_filter::deny(folder.as_fd(), &denied).map_err(CgroupError::file("bpf", devices))?;
        } else {
            denied.iter().try_for_each(|device| write(&devices.join(DEVICES_DENY), &rule(*device)))?;
        }
        Ok(left)
    }

    /// How a process that is started gets in without waiting for anybody. Only for a group that nothing was killed in yet
    /// ([`super::Cgroups::lets_be_born`]); for others there is [`Self::entries`].
    pub fn entry(&self) -> Result<Entry, CgroupError> {
        let is_born_there = match self.kind {
            Kind::V1 => false,
            Kind::Hybrid => true,
            Kind::V2 => self.cpuset.is_none() || children_have_the_cpus_of_their_group(),
        };
        let open = || File::open(&self.core).map_err(CgroupError::file("open", &self.core));
        let folder = is_born_there.then(open).transpose()?.map(OwnedFd::from);
        Ok(Entry { folder, files: self.open_to_enter(|dir| !is_born_there || self.is_legacy(dir))? })
    }

    /// Open files to enter it by: a process of one thread that writes `0` to each is in. May be passed to processes that
    /// have no right to open them, and so none to be started in the group.
    pub fn entries(&self) -> Result<Vec<OwnedFd>, CgroupError> {
        self.open_to_enter(|_| true)
    }

    fn open_to_enter(&self, wanted: impl Fn(&Path) -> bool) -> Result<Vec<OwnedFd>, CgroupError> {
        let open = |dir: &PathBuf| {
            let path = dir.join(if self.is_legacy(dir) { THREADS } else { PROCS });
            let file = OpenOptions::new().write(true).open(&path);
            file.map(OwnedFd::from).map_err(CgroupError::file("open", path))
        };
        self.folders().into_iter().filter(|dir| wanted(dir)).map(open).collect()
    }

    /// Whether a folder of its own is one of version 1.
    fn is_legacy(&self, folder: &Path) -> bool {
        self.kind == Kind::V1 || (self.kind != Kind::V2 && folder != self.core)
    }

    /// Moves a process into it.
    pub fn add(&self, pid: u32) -> Result<(), CgroupError> {
        for dir in self.folders() {
            write(&dir.join(PROCS), &pid.to_string())?;
        }
        Ok(())
    }

    /// Processes in it and in the groups below, in no order that means anything. A group that is gone holds none.
    pub fn pids(&self) -> Result<Vec<u32>, CgroupError> {
        let mut pids = BTreeSet::new();
        for dir in subtree(&self.core)? {
            // A group below may be removed while we read.
            let Some(text) = read_if_there(&dir.join(PROCS))? else { continue };
            pids.extend(text.lines().filter_map(|l| l.trim().parse::<u32>().ok()).filter(|p| *p != 0));
        }
        Ok(pids.into_iter().collect())
    }

    /// No process is in it or below it.
    pub fn is_empty(&self) -> Result<bool, CgroupError> {
        if self.kind != Kind::V1
            && let Some(text) = read_if_there(&self.core.join(EVENTS))?
        {
            return Ok(keyed(&text, "populated") == Some(0));
        }
        Ok(self.pids()?.is_empty())
    }

    /// A file that polls with `POLLPRI` when the group becomes empty or frozen; none on version 1.
    pub fn events(&self) -> Result<Option<File>, CgroupError> {
        if self.kind == Kind::V1 {
            return Ok(None);
        }
        let path = self.core.join(EVENTS);
        File::open(&path).map(Some).map_err(CgroupError::file("open", path))
    }

    /// Sends SIGKILL to every process in it and below it, also to those being started, once. They may take a while to go.
    pub fn kill(&self) -> Result<(), CgroupError> {
        if self.kind != Kind::V1 {
            let kill = self.core.join(KILL);
            // Since Linux 5.14.
            if kill.exists() {
                return match write(&kill, "1") {
                    Err(CgroupError::File { cause, .. }) if gone(&cause) => Ok(()),
                    other => other,
                };
            }
            return self.signal(libc::SIGKILL);
        }
        if !self.exists() {
            return Ok(());
        }
        // Frozen processes cannot start others. The kill takes effect when they thaw.
        self.freeze()?;
        let sent = self.signal(libc::SIGKILL);
        self.thaw()?;
        sent
    }

    /// Sends a signal to every process that is in it and below it now.
    pub fn signal(&self, signal: i32) -> Result<(), CgroupError> {
        let mut opened = Vec::new();
        for pid in self.pids()? {
            match pidfd_open(pid) {
                Ok(fd) => opened.push((pid, fd)),
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                Err(e) => return Err(CgroupError::file(format!("pidfd_open {pid} of"), &self.core)(e)),
            }
        }
        // A number that is still a member belongs to the process that was opened, or that one is gone and the descriptor
        // reaches nobody; either way no process outside is hit.
        let members: BTreeSet<u32> = self.pids()?.into_iter().collect();
        for (pid, fd) in opened.iter().filter(|(pid, _)| members.contains(pid)) {
            match send(fd.as_fd(), signal) {
                Ok(Delivery::Sent | Delivery::Gone) => {}
                Err(e) => return Err(CgroupError::file(format!("signal {signal} to {pid} of"), &self.core)(e)),
            }
        }
        Ok(())
    }

    /// Kills until nothing is left, or `limit` is over. Returns what is left then. Blocks.
    pub fn kill_until_empty(&self, limit: Duration) -> Result<Vec<u32>, CgroupError> {
        let end = Instant::now() + limit;
        let events = if self.exists() { self.events()? } else { None };
        loop {
            if self.is_empty()? {
                return Ok(Vec::new());
            }
            self.kill()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return self.pids();
            }
            if !self.is_empty()? {
                wait(events.as_ref(), left.min(ROUND)).map_err(CgroupError::file("poll", self.core.join(EVENTS)))?;
            }
        }
    }

    /// Asks the kernel to stop every process in it and below it; [`Self::is_frozen`] tells when that is so.
    pub fn freeze(&self) -> Result<(), CgroupError> {
        self.freezer().freeze().map_err(|e| controller("freeze", &self.core, e))
    }

    /// Lets them go on.
    pub fn thaw(&self) -> Result<(), CgroupError> {
        self.freezer().thaw().map_err(|e| controller("thaw", &self.core, e))
    }

    /// All of them are stopped.
    pub fn is_frozen(&self) -> Result<bool, CgroupError> {
        if self.kind == Kind::V1 {
            let state = self.freezer().state().map_err(|e| controller("freezer.state", &self.core, e))?;
            return Ok(matches!(state, cgroups_rs::FreezerState::Frozen));
        }
        Ok(keyed(&read(&self.core.join(EVENTS))?, "frozen") == Some(1))
    }

    /// Processes killed for want of memory in it and below it, so far. `None` without the memory controller.
    pub fn oom_kills(&self) -> Result<Option<u64>, CgroupError> {
        let Some(memory) = &self.memory else { return Ok(None) };
        if self.v2() {
            return Ok(keyed(&read(&memory.join("memory.events"))?, "oom_kill"));
        }
        // Version 1 counts in the group of the process that was killed, not above.
        let mut sum = 0;
        for dir in subtree(memory)? {
            if let Some(text) = read_if_there(&dir.join("memory.oom_control"))? {
                // Not counted before Linux 4.13.
                let Some(kills) = keyed(&text, "oom_kill") else { return Ok(None) };
                sum += kills;
            }
        }
        Ok(Some(sum))
    }

    /// The same of its own processes only: those of groups below it count there. On version 2 that is for groups with none
    /// below them.
    pub fn own_oom_kills(&self) -> Result<Option<u64>, CgroupError> {
        let Some(memory) = &self.memory else { return Ok(None) };
        let file = if self.v2() { "memory.events" } else { "memory.oom_control" };
        let text = read_if_there(&memory.join(file))?;
        Ok(text.and_then(|text| keyed(&text, "oom_kill")))
    }

    /// What it uses.
    pub fn usage(&self) -> Result<Usage, CgroupError> {
        let number = |dir: &Option<PathBuf>, v2: &str, v1: &str| -> Result<Option<u64>, CgroupError> {
            let Some(dir) = dir else { return Ok(None) };
            let text = read_if_there(&dir.join(if self.v2() { v2 } else { v1 }))?;
            Ok(text.and_then(|t| t.trim().parse().ok()))
        };
        let cpu = if self.kind == Kind::V1 { None } else { read_if_there(&self.core.join(CPU_STAT))? };
        Ok(Usage {
            cpu_us: cpu.and_then(|t| keyed(&t, "usage_usec")),
            memory_bytes: number(&self.memory, "memory.current", "memory.usage_in_bytes")?,
            memory_peak_bytes: number(&self.memory, "memory.peak", "memory.max_usage_in_bytes")?,
            processes: u32::try_from(self.pids()?.len()).unwrap_or(u32::MAX),
        })
    }

    /// Removes it and the groups below. [`CgroupError::Busy`] while processes are in it; zombies may keep it busy for a
    /// moment longer. One that is gone is no error.
    pub fn remove(&self) -> Result<(), CgroupError> {
        for folder in self.folders() {
            let mut below = subtree(folder)?;
            // Deepest first.
            below.reverse();
            for dir in below {
                match fs::remove_dir(&dir) {
                    Err(e) if gone(&e) => {}
                    Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                        return Err(CgroupError::Busy { path: dir, pids: self.pids()? });
                    }
                    other => other.map_err(CgroupError::file("rmdir", dir))?,
                }
            }
        }
        Ok(())
    }

    /// Removes it, trying again while it is busy, until `limit` is over. Blocks.
    pub fn remove_within(&self, limit: Duration) -> Result<(), CgroupError> {
        let end = Instant::now() + limit;
        loop {
            match self.remove() {
                Err(CgroupError::Busy { .. }) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
                other => return other,
            }
        }
    }
}

/// `None`: no device file is there.
fn device_at(file: &Path) -> Option<Device> {
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
    let about = fs::metadata(file).ok()?;
    let kind = if about.file_type().is_char_device() {
        DeviceKind::Character
    } else if about.file_type().is_block_device() {
        DeviceKind::Block
    } else {
        return None;
    };
    let number = about.rdev();
    let part = |number| u32::try_from(number).ok();
    Some(Device { kind, major: part(nix::sys::stat::major(number))?, minor: part(nix::sys::stat::minor(number))? })
}

/// `c 195:0 rwm`
fn rule(device: Device) -> String {
    let kind = match device.kind {
        DeviceKind::Block => 'b',
        DeviceKind::Character => 'c',
    };
    format!("{kind} {}:{} rwm", device.major, device.minor)
}

/// Waits for a change of `cgroup.events`, or for a while where there is none.
fn wait(events: Option<&File>, limit: Duration) -> io::Result<()> {
    let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
    let mut fds: Vec<PollFd<'_>> = events.iter().map(|e| PollFd::new(e.as_fd(), PollFlags::POLLPRI)).collect();
    match poll(&mut fds, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

fn controller(operation: &str, path: &Path, cause: cgroups_rs::fs::error::Error) -> CgroupError {
    CgroupError::Controller { operation: operation.to_owned(), path: path.to_owned(), cause }
}
