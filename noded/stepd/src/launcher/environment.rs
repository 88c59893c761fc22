//! Environments kept under numbers, so that the thousands of variables of a step are sent once. One may be set over another; the
//! strings are shared.

use garrick_kernel::spawn::cstring;
use garrick_model::spec::EnvEntry;
use std::{
    borrow::Cow,
    collections::HashMap,
    ffi::{CStr, CString},
    io,
    rc::Rc,
};

/// A set of variables as `execve` wants them.
#[derive(Clone, Debug, Default)]
pub(super) struct Environment {
    entries: Vec<Rc<CStr>>,
    /// Where each name is.
    places: HashMap<Box<[u8]>, usize>,
}

fn name(entry: &CStr) -> &[u8] {
    let bytes = entry.to_bytes();
    bytes.split(|b| *b == b'=').next().unwrap_or(bytes)
}

fn terminated(entries: &[EnvEntry]) -> io::Result<Vec<CString>> {
    entries.iter().map(cstring).collect()
}

impl Environment {
    /// These entries, set over `base`. Of two with one name the later counts.
    pub(super) fn new(base: Option<&Self>, entries: &[EnvEntry]) -> io::Result<Self> {
        let mut environment = base.cloned().unwrap_or_default();
        for entry in terminated(entries)? {
            let entry: Rc<CStr> = entry.into();
            match environment.places.get(name(&entry)) {
                Some(place) => environment.entries[*place] = entry,
                None => {
                    environment.places.insert(name(&entry).into(), environment.entries.len());
                    environment.entries.push(entry);
                }
            }
        }
        Ok(environment)
    }

    /// With `extra` set over it.
    pub(super) fn with(&self, extra: &[EnvEntry]) -> io::Result<Vec<Cow<'_, CStr>>> {
        let mut all: Vec<Cow<'_, CStr>> = Vec::with_capacity(self.entries.len() + extra.len());
        all.extend(self.entries.iter().map(|e| Cow::Borrowed(&**e)));
        for entry in terminated(extra)? {
            let known = self.places.get(name(&entry)).copied();
            // The few that are new are looked through.
            let place = known.or_else(|| {
                let added = all[self.entries.len()..].iter().position(|e| name(e) == name(&entry));
                added.map(|at| self.entries.len() + at)
            });
            match place {
                Some(place) => all[place] = Cow::Owned(entry),
                None => all.push(Cow::Owned(entry)),
            }
        }
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

    fn text<'e>(all: &'e [Cow<'_, CStr>]) -> Vec<&'e str> {
        all.iter().map(|e| e.to_str().unwrap()).collect()
    }

    #[test]
    fn later_variables_replace_those_of_the_same_name_only() {
        let base = Environment::new(None, &entries(&["A=1", "AB=2", "PATH=/bin", "A=3"])).unwrap();
        let all = base.with(&entries(&["A=9", "C=x=y", "C=z"])).unwrap();
        assert_eq!(text(&all), ["A=9", "AB=2", "PATH=/bin", "C=z"]);
        assert_eq!(value(&all, b"PATH"), Some(&b"/bin"[..]));
        assert_eq!((value(&all, b"C"), value(&all, b"PAT")), (Some(&b"z"[..]), None));
    }

    #[test]
    fn one_environment_is_set_over_another_and_leaves_it_as_it_was() {
        let base = Environment::new(None, &entries(&["A=1", "B=1"])).unwrap();
        let over = Environment::new(Some(&base), &entries(&["B=2", "C=2"])).unwrap();
        assert_eq!(text(&over.with(&[]).unwrap()), ["A=1", "B=2", "C=2"]);
        assert_eq!(text(&base.with(&[]).unwrap()), ["A=1", "B=1"]);
    }

    #[test]
    fn zero_bytes_are_refused() {
        assert!(Environment::new(None, &entries(&["A=1\0"])).is_err());
        assert!(Environment::default().with(&entries(&["A=\0"])).is_err());
    }
}
