//! Environments kept by number, so that the thousands of variables of a step travel once.

use crate::kernel::spawn::cstring;
use garrick_model::spec::EnvEntry;
use std::{
    borrow::Cow,
    ffi::{CStr, CString},
    io,
};

/// A set of variables as `execve` wants them.
#[derive(Debug, Default)]
pub(super) struct Environment(Vec<CString>);

fn name(entry: &CStr) -> &[u8] {
    let bytes = entry.to_bytes();
    bytes.split(|b| *b == b'=').next().unwrap_or(bytes)
}

fn terminated(entries: &[EnvEntry]) -> io::Result<Vec<CString>> {
    entries.iter().map(cstring).collect()
}

impl Environment {
    pub(super) fn new(entries: &[EnvEntry]) -> io::Result<Self> {
        Ok(Self(terminated(entries)?))
    }

    /// With `extra` set over it.
    pub(super) fn with(&self, extra: &[EnvEntry]) -> io::Result<Vec<Cow<'_, CStr>>> {
        let extra = terminated(extra)?;
        let mut replaced: Vec<&[u8]> = extra.iter().map(|e| name(e)).collect();
        replaced.sort_unstable();
        let kept = self.0.iter().filter(|e| replaced.binary_search(&name(e)).is_err());
        let mut all: Vec<Cow<'_, CStr>> = kept.map(|e| Cow::Borrowed(e.as_c_str())).collect();
        all.extend(extra.into_iter().map(Cow::Owned));
        Ok(all)
    }
}

/// Value of a variable.
pub(super) fn value<'e>(entries: &'e [Cow<'_, CStr>], wanted: &[u8]) -> Option<&'e [u8]> {
    entries.iter().find_map(|e| e.to_bytes().strip_prefix(wanted)?.strip_prefix(b"="))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn entries(list: &[&str]) -> Vec<EnvEntry> {
        list.iter().map(|e| EnvEntry::from(e.as_bytes())).collect()
    }

    #[test]
    fn extra_variables_replace_those_of_the_same_name_only() {
        let base = Environment::new(&entries(&["A=1", "AB=2", "PATH=/bin"])).unwrap();
        let all = base.with(&entries(&["A=9", "C=x=y"])).unwrap();
        let text: Vec<&str> = all.iter().map(|e| e.to_str().unwrap()).collect();
        assert_eq!(text, ["AB=2", "PATH=/bin", "A=9", "C=x=y"]);
        assert_eq!(value(&all, b"PATH"), Some(&b"/bin"[..]));
        assert_eq!((value(&all, b"C"), value(&all, b"PAT")), (Some(&b"x=y"[..]), None));
    }

    #[test]
    fn zero_bytes_are_refused() {
        assert!(Environment::new(&entries(&["A=1\0"])).is_err());
        assert!(Environment::default().with(&entries(&["A=\0"])).is_err());
    }
}
