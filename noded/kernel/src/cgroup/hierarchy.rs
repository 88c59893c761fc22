//! The hierarchies in use on this node, and the node's own folder in each.

use super::{
    CgroupError, JobCgroup, device_filter,
    files::{PROCS, check_enabled, enable, list_folders},
    group::Group,
    mounts::{Mount, Mounts, own_unified},
};
use crate::{
    reap::reap,
    spawn::{SpawnSpec, spawn},
};
use serde::{Deserialize, Serialize};
use std::{
    borrow::Cow,
    fs, io,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

/// Which versions are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Version 2 for everything.
    V2,
    /// Version 1 for everything; the freezer hierarchy tracks.
    V1,
    /// Version 2 tracks, kills and freezes; version 1 limits.
    Hybrid,
}

impl Kind {
    /// As shown to operators.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V2 => "cgroup/v2",
            Self::V1 => "cgroup/v1",
            Self::Hybrid => "cgroup/v1+v2",
        }
    }
}

/// What jobs shall be held to (`ConstrainCores`, `ConstrainRAMSpace`, `ConstrainDevices` of `cgroup.conf`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constraints {
    /// To their CPUs.
    pub cores: bool,
    /// To their memory.
    pub memory: bool,
    /// To their devices.
    pub devices: bool,
}

/// This node's folders. Cheap to clone. The agent hands them to each `stepd` with its orders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroups {
    kind: Kind,
    /// `garrick/<cluster>/<node>` in the hierarchy that tracks.
    core: PathBuf,
    cpuset: Option<PathBuf>,
    memory: Option<PathBuf>,
    devices: Option<PathBuf>,
    missing: Vec<String>,
}

/// Top folder in every hierarchy.
const TOP: &str = "garrick";

impl Cgroups {
    /// Makes this node's folders below the given mounts. `own` is the text of `/proc/self/cgroup`. Fails when no hierarchy
    /// can track processes; a limit that cannot be had is only noted ([`Self::missing`]).
    pub fn open(
        mounts: &Mounts,
        own: &str,
        cluster: &str,
        node: &str,
        constraints: Constraints,
    ) -> Result<Self, CgroupError> {
        let below = Path::new(TOP).join(folder_name(cluster)?).join(folder_name(node)?);
        let legacy = mounts.cpuset.is_some() || mounts.memory.is_some() || mounts.freezer.is_some();
        match (&mounts.unified, legacy) {
            (Some(unified), false) => Self::open_v2(unified, own, &below, constraints),
            (Some(unified), true) => Self::open_v1(Kind::Hybrid, &unified.point, mounts, &below, constraints)
                // Version 2 may be mounted for others, and closed to us.
                .or_else(|e| match &mounts.freezer {
                    Some(freezer) => Self::open_v1(Kind::V1, &freezer.point, mounts, &below, constraints),
                    None => Err(e),
                }),
            (None, true) => match &mounts.freezer {
                Some(freezer) => Self::open_v1(Kind::V1, &freezer.point, mounts, &below, constraints),
                None => Err(CgroupError::Unavailable("no freezer hierarchy is mounted".to_owned())),
            },
            (None, false) => Err(CgroupError::Unavailable("no cgroup hierarchy is mounted".to_owned())),
        }
    }

    fn open_v1(
        kind: Kind,
        core: &Path,
        mounts: &Mounts,
        below: &Path,
        constraints: Constraints,
    ) -> Result<Self, CgroupError> {
        let core = core.join(below);
        make_base(&core)?;
        let mut missing = Vec::new();
        let mut limit = |wanted: bool, mount: &Option<Mount>, name: &str| {
            if !wanted {
                return None;
            }
            let Some(mount) = mount else {
                missing.push(format!("{name} (not mounted)"));
                return None;
            };
            let path = mount.point.join(below);
            match make_base(&path) {
                Ok(()) => Some(path),
                Err(e) => {
                    missing.push(format!("{name} ({e})"));
                    None
                }
            }
        };
        let cpuset = limit(constraints.cores, &mounts.cpuset, "cpuset");
        if let Some(cpuset) = &cpuset {
            // New cgroups have the CPUs and memory of that above them from the beginning, which costs the kernel less than to be
            // told. Where it cannot be had they are told.
            let _ = fs::write(cpuset.join("cgroup.clone_children"), "1");
        }
        let memory = limit(constraints.memory, &mounts.memory, "memory");
        let devices = limit(constraints.devices, &mounts.devices, "devices");
        Ok(Self { kind, core, cpuset, memory, devices, missing })
    }

    fn open_v2(unified: &Mount, own: &str, below: &Path, constraints: Constraints) -> Result<Self, CgroupError> {
        // At the top as root; below our own cgroup where that was delegated to us.
        let delegated = own_unified(own, unified).filter(|p| !p.as_os_str().is_empty());
        let mut roots = std::iter::once(unified.point.clone()).chain(delegated.map(|p| unified.point.join(p)));
        let mut last = CgroupError::Unavailable("no version 2 cgroup may be written".to_owned());
        let (root, core) = loop {
            let Some(root) = roots.next() else { return Err(last) };
            let core = root.join(below);
            match make_base(&core) {
                Ok(()) => break (root, core),
                Err(e) => last = e,
            }
        };
        let mut missing = Vec::new();
        let mut limit = |wanted: bool, controller: &'static str| {
            if !wanted {
                return None;
            }
            match hand_down(&root, below, controller) {
                Ok(()) => Some(core.clone()),
                Err(e) => {
                    missing.push(format!("{controller} ({e})"));
                    None
                }
            }
        };
        let cpuset = limit(constraints.cores, "cpuset");
        let memory = limit(constraints.memory, "memory");
        let devices = match constraints.devices.then(device_filter::check) {
            None => None,
            Some(Ok(())) => Some(core.clone()),
            Some(Err(e)) => {
                missing.push(format!("devices (bpf: {e})"));
                None
            }
        };
        Ok(Self { kind: Kind::V2, core, cpuset, memory, devices, missing })
    }

    /// Without the hierarchies of what nobody shall be held to.
    pub fn only(self, constraints: Constraints) -> Self {
        Self {
            cpuset: self.cpuset.filter(|_| constraints.cores),
            memory: self.memory.filter(|_| constraints.memory),
            devices: self.devices.filter(|_| constraints.devices),
            ..self
        }
    }

    /// Versions in use.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Limits that were asked for and cannot be had, with the reason.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Jobs can be held to their CPUs.
    pub fn limits_cores(&self) -> bool {
        self.cpuset.is_some()
    }

    /// Jobs can be held to their memory.
    pub fn limits_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Jobs can be held to their devices.
    pub fn limits_devices(&self) -> bool {
        self.devices.is_some()
    }

    /// Whether processes that this one starts in a new cgroup live there, asked by starting one. Linux (6.18 is one) kills them if
    /// `cgroup.kill` was ever written for the one's cgroup and not for the other's.
    pub fn lets_be_born(&self) -> bool {
        let folder = self.core.join("birth");
        let lives = || {
            fs::create_dir(&folder).ok()?;
            let opened = fs::File::open(&folder).ok()?;
            let spec = SpawnSpec {
                programs: vec![c"/bin/true".to_owned()],
                argv: vec![Cow::Borrowed(c"true")],
                into_cgroup: Some(opened.as_fd()),
                ..SpawnSpec::default()
            };
            let child = spawn(&spec).ok()?;
            reap(child.pidfd.as_fd()).ok().map(|ended| ended.status.success())
        };
        let lives = self.kind != Kind::V1 && lives().unwrap_or(false);
        let _ = fs::remove_dir(&folder);
        lives
    }

    /// Makes the cgroup of a run: `job` is its id, `run` its SLUID. Making one that is there is no error.
    pub fn create_job(&self, job: u32, run: &str) -> Result<JobCgroup, CgroupError> {
        let cgroup = self.job(job, run)?;
        cgroup.create()?;
        Ok(cgroup)
    }

    /// The cgroup of a run, made earlier (perhaps by a process that is gone).
    pub fn job(&self, job: u32, run: &str) -> Result<JobCgroup, CgroupError> {
        let name = format!("job_{job}.{}", folder_name(run)?);
        Ok(JobCgroup::new(self.kind, self.group(Path::new(&name)), job, run.to_owned()))
    }

    /// Cgroups of runs that are there, in any hierarchy: at the daemon's start, those that no living `stepd` claims
    /// are killed and removed.
    pub fn jobs(&self) -> Result<Vec<JobCgroup>, CgroupError> {
        let mut names = std::collections::BTreeSet::new();
        for base in self.group(Path::new("")).folders() {
            for path in list_folders(base)? {
                let name = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_prefix("job_"));
                if let Some((job, run)) = name.and_then(|n| n.split_once('.'))
                    && let Ok(job) = job.parse::<u32>()
                {
                    names.insert((job, run.to_owned()));
                }
            }
        }
        names.into_iter().map(|(job, run)| self.job(job, &run)).collect()
    }

    /// Removes this node's folders, and those above it that hold nothing else. For `garrick down`.
    pub fn remove(&self) -> Result<(), CgroupError> {
        for base in self.group(Path::new("")).folders() {
            remove_if_there(base)?;
            // Others may live beside us: what is not empty stays.
            for above in base.ancestors().skip(1).take(2) {
                if fs::remove_dir(above).is_err() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn group(&self, below: &Path) -> Group {
        let at = |base: &PathBuf| if below.as_os_str().is_empty() { base.clone() } else { base.join(below) };
        let [cpuset, memory, devices] = [&self.cpuset, &self.memory, &self.devices].map(|base| base.as_ref().map(at));
        Group::new(self.kind, at(&self.core), cpuset, memory, devices)
    }
}

fn remove_if_there(path: &Path) -> Result<(), CgroupError> {
    match fs::remove_dir(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(CgroupError::file("rmdir", path)(e)),
        _ => Ok(()),
    }
}

/// Makes the folder, and makes sure that processes may be put below it.
fn make_base(path: &Path) -> Result<(), CgroupError> {
    let mut tries = 3;
    while let Err(e) = fs::create_dir_all(path) {
        tries -= 1;
        // Another node's daemon on this host may be removing folders above at the same time.
        if tries == 0 || e.kind() != io::ErrorKind::NotFound {
            return Err(CgroupError::file("mkdir", path)(e));
        }
    }
    let procs = path.join(PROCS);
    fs::OpenOptions::new().write(true).open(&procs).map(drop).map_err(CgroupError::file("open", procs))
}

/// Makes a controller available in `root/below`, from the top down, and checks that it is.
fn hand_down(root: &Path, below: &Path, controller: &'static str) -> Result<(), CgroupError> {
    let mut at = root.to_owned();
    for part in below {
        enable(&at, controller)?;
        at.push(part);
        check_enabled(&at, controller)?;
    }
    // For the jobs.
    enable(&at, controller)
}

/// Names become one folder each, so that nothing leads out of ours.
fn folder_name(name: &str) -> Result<&str, CgroupError> {
    let plain = !name.is_empty()
        && !name.starts_with('.')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if plain { Ok(name) } else { Err(CgroupError::Name(name.to_owned())) }
}
