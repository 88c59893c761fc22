//! What is passed from the submitting process to a job or step besides its environment: soft resource limits and the file mode
//! creation mask.

use super::typed::OptionError;
use garrick_model::{config::PropagateLimits, spec::ResourceLimit};
use nix::sys::{
    resource::{RLIM_INFINITY, Resource, getrlimit},
    stat::{Mode, umask},
};

/// Limits that can travel, by the names of `--propagate` and `PropagateResourceLimits`.
const TRAVELLING: [(&str, Resource); 10] = [
    ("AS", Resource::RLIMIT_AS),
    ("CORE", Resource::RLIMIT_CORE),
    ("CPU", Resource::RLIMIT_CPU),
    ("DATA", Resource::RLIMIT_DATA),
    ("FSIZE", Resource::RLIMIT_FSIZE),
    ("MEMLOCK", Resource::RLIMIT_MEMLOCK),
    ("NOFILE", Resource::RLIMIT_NOFILE),
    ("NPROC", Resource::RLIMIT_NPROC),
    ("RSS", Resource::RLIMIT_RSS),
    ("STACK", Resource::RLIMIT_STACK),
];

/// `--propagate`: a list of names, `ALL` (also when empty) or `NONE`.
pub fn asked(text: &str) -> Result<PropagateLimits, OptionError> {
    let names: Vec<String> = text
        .split(',')
        .map(|word| word.trim().to_ascii_uppercase())
        .filter(|word| !word.is_empty())
        .map(|word| word.strip_prefix("RLIMIT_").map_or(word.clone(), str::to_owned))
        .collect();
    match names.as_slice() {
        [] => Ok(PropagateLimits::All),
        [one] if one == "ALL" => Ok(PropagateLimits::All),
        [one] if one == "NONE" => Ok(PropagateLimits::None),
        names => match names.iter().position(|n| !TRAVELLING.iter().any(|(known, _)| known == n)) {
            None => Ok(PropagateLimits::Only(names.to_vec())),
            Some(at) => {
                let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
                let word = words.clone().nth(at).unwrap_or_default();
                let error = OptionError::Declined(format!("--propagate={text} is not valid."));
                Err(error.after(format!("Bad rlimit name: {word}")))
            }
        },
    }
}

/// Of a process's soft limits those that travel. `soft` gives them; `None`: that one cannot be asked.
pub fn travelling(travel: &PropagateLimits, soft: impl Fn(Resource) -> Option<u64>) -> Vec<ResourceLimit> {
    let names = TRAVELLING.into_iter().filter(|(name, _)| travel.includes(name));
    names
        .filter_map(|(_, resource)| {
            let soft = soft(resource)?;
            Some(ResourceLimit { resource: resource as u32, soft: (soft != RLIM_INFINITY).then_some(soft) })
        })
        .collect()
}

/// This process's own.
pub fn soft(resource: Resource) -> Option<u64> {
    getrlimit(resource).ok().map(|(soft, _)| soft)
}

/// This process's file mode creation mask. The kernel tells it only by setting another, so it is set for a moment: to be
/// called while there is one thread.
pub fn file_mode_mask() -> u32 {
    let mask = umask(Mode::from_bits_truncate(0o077));
    umask(mask);
    mask.bits()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_taken_in_any_form() {
        assert_eq!(asked("").unwrap(), PropagateLimits::All);
        assert_eq!(asked("all").unwrap(), PropagateLimits::All);
        assert_eq!(asked("NONE").unwrap(), PropagateLimits::None);
        let only = PropagateLimits::Only(vec!["STACK".to_owned(), "CORE".to_owned()]);
        assert_eq!(asked("stack,RLIMIT_CORE").unwrap(), only);
        assert!(asked("STACK,BOGUS").is_err());
    }

    #[test]
    fn limits_carry_linux_numbers() {
        let limits = travelling(&PropagateLimits::Only(vec!["NOFILE".to_owned()]), soft);
        assert_eq!(limits.len(), 1);
        assert_eq!(limits[0].resource, libc::RLIMIT_NOFILE);
        assert!(travelling(&PropagateLimits::None, soft).is_empty());
    }

    #[test]
    fn the_sites_exceptions_stay_behind() {
        let limits = travelling(&PropagateLimits::Except(vec!["MEMLOCK".to_owned()]), soft);
        assert!(limits.iter().all(|l| l.resource != libc::RLIMIT_MEMLOCK));
        assert_eq!(limits.len(), TRAVELLING.len() - 1);
    }
}
