//! Resource limits by the names that `PropagateResourceLimits` uses, and this process's own; its nice value.

use std::io;

/// Name without `RLIMIT_`, number.
const NAMES: [(&str, u32); 16] = [
    ("CPU", 0),
    ("FSIZE", 1),
    ("DATA", 2),
    ("STACK", 3),
    ("CORE", 4),
    ("RSS", 5),
    ("NPROC", 6),
    ("NOFILE", 7),
    ("MEMLOCK", 8),
    ("AS", 9),
    ("LOCKS", 10),
    ("SIGPENDING", 11),
    ("MSGQUEUE", 12),
    ("NICE", 13),
    ("RTPRIO", 14),
    ("RTTIME", 15),
];

/// `RLIMIT_*` number (of Linux on all architectures we build for) to its name without `RLIMIT_`.
pub fn name(resource: u32) -> Option<&'static str> {
    NAMES.iter().find(|(_, n)| *n == resource).map(|(name, _)| *name)
}

/// Name, with or without `RLIMIT_`, in any case, to its number.
pub fn number(name: &str) -> Option<u32> {
    let name = name.to_ascii_uppercase();
    let name = name.strip_prefix("RLIMIT_").unwrap_or(&name);
    NAMES.iter().find(|(n, _)| *n == name).map(|(_, number)| *number)
}

/// Soft and hard limit of this process; `None` for infinity.
pub fn get(resource: u32) -> io::Result<(Option<u64>, Option<u64>)> {
    let mut value = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let unchanged = std::ptr::null::<libc::rlimit64>();
    // SAFETY: pid 0 is this process; the old value goes to a valid place.
    let rc = unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, unchanged, &mut value) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    let finite = |v: u64| (v != libc::RLIM64_INFINITY).then_some(v);
    Ok((finite(value.rlim_cur), finite(value.rlim_max)))
}

/// The nice value of this process.
pub fn own_nice() -> i32 {
    rustix::process::getpriority_process(None).unwrap_or_default()
}

/// Raises the soft limit of open files to the hard one: a daemon holds several descriptors for each task.
pub fn raise_open_files() -> io::Result<u64> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_and_numbers_agree_with_libc() {
        for (text, resource) in
            [("NOFILE", libc::RLIMIT_NOFILE), ("AS", libc::RLIMIT_AS), ("MEMLOCK", libc::RLIMIT_MEMLOCK)]
        {
            assert_eq!(number(text), Some(resource));
            assert_eq!(number(&format!("rlimit_{}", text.to_lowercase())), Some(resource));
            assert_eq!(name(resource), Some(text));
        }
        assert_eq!(number("ALL"), None);
    }

    #[test]
    fn own_limits_can_be_read() {
        let (soft, hard) = get(libc::RLIMIT_NOFILE).unwrap();
        assert!(hard.is_none() || soft <= hard);
        assert!(get(99).is_err());
    }
}
