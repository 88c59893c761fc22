//! What to start, and how: filled in by callers, converted to kernel arguments before the clone.

use super::Stage;
use std::{
    borrow::Cow,
    ffi::{CStr, CString, OsStr},
    io,
    os::{fd::BorrowedFd, unix::ffi::OsStrExt},
    path::Path,
};

/// Process group and session of the child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Session {
    /// Those of the parent.
    #[default]
    Inherit,
    /// The parent's session, a process group of its own.
    OwnGroup,
    /// A session of its own.
    OwnSession,
    /// A session of its own, with descriptor 0 as its controlling terminal.
    OwnTerminal,
}

/// Ids to take on. Needs root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Real, effective and saved user id.
    pub uid: u32,
    /// Real, effective and saved group id.
    pub gid: u32,
    /// All supplementary groups.
    pub groups: Vec<u32>,
}

/// A program to start. `SpawnSpec::default()` with `programs`, `argv` and `env` filled in is a plain start.
#[derive(Debug, Default)]
pub struct SpawnSpec<'a> {
    /// Paths to try in order, as `execvp` would ([`path_candidates`]). The first that is there counts.
    pub programs: Vec<CString>,
    /// Arguments, the program's name first.
    pub argv: Vec<Cow<'a, CStr>>,
    /// Environment, `NAME=value`.
    pub env: Vec<Cow<'a, CStr>>,
    /// Working directory, entered under the child's ids.
    pub work_dir: Option<CString>,
    /// Descriptors 0, 1, 2; `None`: the parent's.
    pub stdio: [Option<BorrowedFd<'a>>; 3],
    /// Become descriptors 3, 4, ... Everything above is closed.
    pub passed: Vec<BorrowedFd<'a>>,
    /// Session and process group.
    pub session: Session,
    /// Ids; `None`: the parent's.
    pub user: Option<Identity>,
    /// File mode creation mask; `None`: the parent's.
    pub umask: Option<u32>,
    /// Nice value; `None`: the parent's.
    pub nice: Option<i32>,
    /// Soft limits by `RLIMIT_*` number, `None` for infinity. Cut to the parent's hard limits.
    pub rlimits: Vec<(u32, Option<u64>)>,
    /// CPU numbers of the machine; empty: as the parent.
    pub affinity: Vec<u32>,
    /// A variable that has the child's process id, beside the environment.
    pub pid_variable: Option<&'static CStr>,
    /// Written to descriptor 2 before the program runs, with the child's process id between the two.
    pub says: Option<[Cow<'a, [u8]>; 2]>,
    /// Open `cgroup.procs` files, or `tasks` ones of version 1, to enter before ids change.
    pub cgroup_procs: Vec<BorrowedFd<'a>>,
    /// Open folder of a version 2 cgroup to be born in. Needs write access to it by the parent's ids; costs less than
    /// moving there.
    pub into_cgroup: Option<BorrowedFd<'a>>,
}

impl SpawnSpec<'_> {
    /// The program, for messages.
    pub(super) fn name(&self) -> String {
        let arg = self.argv.first().map(|a| a.to_string_lossy().into_owned());
        arg.or_else(|| self.programs.first().map(|p| p.to_string_lossy().into_owned())).unwrap_or_default()
    }

    /// Lowest descriptor that no descriptor of the child is put on.
    pub(super) fn descriptor_floor(&self) -> i32 {
        3 + i32::try_from(self.passed.len()).unwrap_or(i32::MAX - 3)
    }

    /// On what a stage failed.
    pub(super) fn subject(&self, stage: Stage, index: usize) -> String {
        let id = |f: fn(&Identity) -> u32| self.user.as_ref().map(|u| f(u).to_string()).unwrap_or_default();
        match stage {
            Stage::Prepare | Stage::Clone | Stage::SetSid | Stage::SetPgid | Stage::Exec => self.name(),
            Stage::Cgroup => format!("cgroup {index} of {}", self.cgroup_procs.len()),
            Stage::SetGroups | Stage::SetResUid | Stage::Capabilities => format!("user {}", id(|u| u.uid)),
            Stage::SetResGid => format!("group {}", id(|u| u.gid)),
            Stage::Affinity => format!("CPUs {}", crate::cpu_list::CpuList::from_iter(self.affinity.clone())),
            Stage::Descriptors => match index {
                0 => "stdin".to_owned(),
                1 => "stdout".to_owned(),
                2 => "stderr".to_owned(),
                n => format!("descriptor {n}"),
            },
            Stage::Terminal => "stdin".to_owned(),
            Stage::Chdir => self.work_dir.as_ref().map(|d| d.to_string_lossy().into_owned()).unwrap_or_default(),
            Stage::Nice => self.nice.unwrap_or_default().to_string(),
            Stage::Rlimit => {
                let resource = self.rlimits.get(index).map_or(u32::MAX, |(r, _)| *r);
                crate::rlimits::name(resource).map_or_else(|| resource.to_string(), str::to_owned)
            }
        }
    }
}

/// Bytes as the kernel wants them; an error if they hold a zero byte.
pub fn cstring(bytes: impl AsRef<[u8]>) -> io::Result<CString> {
    CString::new(bytes.as_ref()).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))
}

/// Where a program may be: itself when it names a folder, else in each folder of `path` in order (an empty folder is the
/// working directory, as in `execvp`).
pub fn path_candidates(program: &[u8], path: Option<&[u8]>) -> io::Result<Vec<CString>> {
    if program.contains(&b'/') {
        return Ok(vec![cstring(program)?]);
    }
    // What `execvp` of glibc uses where PATH is not set.
    let path = path.unwrap_or(b"/bin:/usr/bin");
    path.split(|b| *b == b':')
        .map(|dir| {
            let dir = if dir.is_empty() { b"." } else { dir };
            cstring(Path::new(OsStr::from_bytes(dir)).join(OsStr::from_bytes(program)).as_os_str().as_bytes())
        })
        .collect()
}
