//! `--export`: which of the user's variables are passed to a job or step, and which the user sets for it.
//!
//! | `--export` | what travels |
//! |---|---|
//! | not given, `ALL` | everything |
//! | `NONE` | `SLURM_*` and what names the cluster, and for a job a login's bare necessities |
//! | `NIL` | `SLURM_*` and what names the cluster |
//! | `NAME,NAME=value,...` | as `NIL`, and these |
//! | `ALL,NAME=value,...` | everything, and these over it |
//!
//! A job never inherits the identity of the job or step from which it was submitted. A user's token (`SLURM_JWT`) never travels: it
//! would be kept with the job, and commands in the job would fail once it has run out.

use super::typed::OptionError;
use garrick_model::{env_vars, spec::EnvEntry};
use std::{collections::BTreeMap, ffi::OsString, os::unix::ffi::OsStringExt};

/// Whose environment is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// A new job: what describes the surrounding allocation stays behind.
    Job,
    /// A step: its job's variables are its own.
    Step,
}

/// Variables that describe an allocation, a step or a task; the new job gets its own. Input variables of `srun` that users
/// export for later use (`SLURM_CPU_BIND`, `SLURM_EXPORT_ENV`, ...) are not among them.
const OF_THE_SURROUNDING_JOB: &[&str] = &[
    env_vars::GARRICK_STEPD_DOOR,
    env_vars::GARRICK_STEPD_JOB,
    env_vars::GARRICK_STEPMGR_ADDRESS,
    "SLURMD_NODENAME",
    "SLURM_CPUS_ON_NODE",
    "SLURM_CPUS_PER_TASK",
    "SLURM_GTIDS",
    "SLURM_JOBID",
    "SLURM_LAUNCH_NODE_IPADDR",
    "SLURM_LOCALID",
    "SLURM_NNODES",
    "SLURM_NODEID",
    "SLURM_NODELIST",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_CORE",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_NTASKS_PER_SOCKET",
    "SLURM_PRIO_PROCESS",
    "SLURM_PROCID",
    "SLURM_RESTART_COUNT",
    "SLURM_TASKS_PER_NODE",
    "SLURM_TASK_PID",
    "SLURM_TRES_PER_TASK",
    "SLURM_UMASK",
    "SRUN_CPUS_PER_TASK",
];

/// Beginnings of such names.
const OF_THE_SURROUNDING_JOB_FROM: &[&str] = &[
    "SLURM_ARRAY_",
    "SLURM_CPU_BIND_",
    "SLURM_JOB_",
    "SLURM_MEM_PER_",
    "SLURM_PTY_",
    "SLURM_SRUN_COMM_",
    "SLURM_STEP",
    "SLURM_TOPOLOGY_",
];

/// What a login would set at least, for `--export=NONE`.
const LOGIN: &[&str] = &["HOME", "LOGNAME", "SHELL", "USER"];
/// `PATH` of such a login (what Debian and Red Hat give to users).
pub const LOGIN_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// What tasks of the surrounding job are bound to, which users cannot ask for.
fn binds_tasks(name: &[u8], value: &[u8]) -> bool {
    name == env_vars::SLURM_CPU_BIND.as_bytes() && value.windows(9).any(|part| part == b"mask_cpu:")
}

/// The variables that travel, as `NAME=value`.
pub fn environment(
    export: Option<&str>,
    variables: impl Iterator<Item = (OsString, OsString)>,
    whose: For,
) -> Result<Vec<EnvEntry>, OptionError> {
    let all: BTreeMap<Vec<u8>, Vec<u8>> = variables
        .map(|(name, value)| (name.into_vec(), value.into_vec()))
        .filter(|(name, value)| whose == For::Step || !of_the_surrounding_job(name, value))
        .collect();
    // What most steps send, with nothing copied.
    let Some(export) = export.filter(|export| !export.eq_ignore_ascii_case("ALL")) else { return Ok(entries(all)) };
    let words = words(export)?;
    let has = |word: &str| words.iter().any(|w| w.value.is_none() && w.name.eq_ignore_ascii_case(word));
    let mut kept: BTreeMap<Vec<u8>, Vec<u8>> = if has("ALL") {
        all.clone()
    } else {
        all.iter().filter(|(name, _)| always_travels(name)).map(|(n, v)| (n.clone(), v.clone())).collect()
    };
    if has("NONE") && whose == For::Job {
        let login = all.iter().filter(|(name, _)| LOGIN.iter().any(|l| l.as_bytes() == name.as_slice()));
        kept.extend(login.map(|(n, v)| (n.clone(), v.clone())));
        kept.insert(b"PATH".to_vec(), LOGIN_PATH.into());
    }
    for word in &words {
        match &word.value {
            Some(value) => {
                kept.insert(word.name.clone().into_bytes(), value.clone().into_bytes());
            }
            None => {
                if let Some(value) = all.get(word.name.as_bytes()) {
                    kept.insert(word.name.clone().into_bytes(), value.clone());
                }
            }
        }
    }
    if whose == For::Job {
        // Steps of the job go by the same rule unless told otherwise, as in Slurm.
        kept.entry(b"SLURM_EXPORT_ENV".to_vec()).or_insert_with(|| export.into());
    }
    Ok(entries(kept))
}

/// Variables from the text of an `--export-file`: `NAME=value` entries ended by NUL.
pub fn from_file(text: &[u8]) -> Result<Vec<EnvEntry>, OptionError> {
    let mut kept = BTreeMap::new();
    for entry in text.split(|b| *b == 0).filter(|e| !e.is_empty()) {
        let at = entry.iter().position(|b| *b == b'=').filter(|at| *at > 0).ok_or_else(|| {
            OptionError::Text(format!("--export-file: \"{}\" is not NAME=value", String::from_utf8_lossy(entry)))
        })?;
        kept.insert(entry[..at].to_vec(), entry[at + 1..].to_vec());
    }
    Ok(entries(kept))
}

fn entries(variables: BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<EnvEntry> {
    variables
        .into_iter()
        .filter(|(name, _)| name.as_slice() != env_vars::SLURM_JWT.as_bytes())
        .map(|(mut entry, value)| {
            entry.reserve_exact(1 + value.len());
            entry.push(b'=');
            entry.extend(value);
            EnvEntry::from(entry)
        })
        .collect()
}

/// True for variables that describe an allocation, a step or a task: whoever makes a new allocation takes them away.
pub fn of_the_surrounding_job(name: &[u8], value: &[u8]) -> bool {
    binds_tasks(name, value)
        || OF_THE_SURROUNDING_JOB.iter().any(|known| known.as_bytes() == name)
        || OF_THE_SURROUNDING_JOB_FROM.iter().any(|beginning| name.starts_with(beginning.as_bytes()))
}

/// What travels whatever is asked for: otherwise commands in the job would not find their cluster.
fn always_travels(name: &[u8]) -> bool {
    name.starts_with(b"SLURM_") || name.starts_with(b"GARRICK_") || name.starts_with(b"SPANK_")
}

struct Word {
    name: String,
    value: Option<String>,
}

/// Words between commas; quotes keep commas together and go away.
fn words(text: &str) -> Result<Vec<Word>, OptionError> {
    let mut words = Vec::new();
    let (mut word, mut quote) = (String::new(), None);
    for c in text.chars().chain([',']) {
        match (quote, c) {
            (None, ',') => {
                if !word.is_empty() {
                    let (name, value) = match word.split_once('=') {
                        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                        None => (std::mem::take(&mut word), None),
                    };
                    if name.is_empty() {
                        return Err(OptionError::Invalid { name: "export" });
                    }
                    words.push(Word { name, value });
                }
                word.clear();
            }
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            _ => word.push(c),
        }
    }
    if quote.is_some() { Err(OptionError::Invalid { name: "export" }) } else { Ok(words) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const USER: &[(&str, &str)] = &[
        ("EDITOR", "vi"),
        ("GARRICK_HOME", "/home/alice/g"),
        ("GARRICK_STEPD_DOOR", "/run/x"),
        ("HOME", "/home/alice"),
        ("PATH", "/opt/bin"),
        ("SLURM_CONF", "/etc/slurm.conf"),
        ("SLURM_JOB_ID", "7"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_CPU_BIND", "none"),
    ];

    fn made(export: Option<&str>, whose: For) -> Vec<String> {
        let variables = USER.iter().map(|(n, v)| (OsString::from(n), OsString::from(v)));
        environment(export, variables, whose)
            .unwrap()
            .into_iter()
            .map(|e| String::from_utf8(e.into_vec()).unwrap())
            .collect()
    }

    #[test]
    fn everything_but_the_surrounding_jobs_identity_travels_by_default() {
        let expected = [
            "EDITOR=vi",
            "GARRICK_HOME=/home/alice/g",
            "HOME=/home/alice",
            "PATH=/opt/bin",
            "SLURM_CONF=/etc/slurm.conf",
            "SLURM_CPU_BIND=none",
        ];
        assert_eq!(made(None, For::Job), expected);
        assert_eq!(made(Some("ALL"), For::Job), expected);
    }

    #[test]
    fn a_new_job_is_not_bound_as_the_task_that_submits_it() {
        let bound = [("SLURM_CPU_BIND", "quiet,mask_cpu:0x1"), ("SLURM_CPU_BIND_LIST", "0x1"), ("A", "b")];
        let variables = || bound.iter().map(|(n, v)| (OsString::from(n), OsString::from(v)));
        assert_eq!(environment(None, variables(), For::Job).unwrap(), [EnvEntry::from(b"A=b".to_vec())]);
        assert_eq!(environment(None, variables(), For::Step).unwrap().len(), bound.len());
    }

    #[test]
    fn a_step_keeps_its_jobs_variables() {
        assert_eq!(made(None, For::Step).len(), USER.len());
    }

    #[test]
    fn a_token_never_travels() {
        let variables =
            || [("A", "b"), ("SLURM_JWT", "x.y.z")].map(|(n, v)| (OsString::from(n), OsString::from(v))).into_iter();
        let has_token = |entries: Vec<EnvEntry>| entries.into_iter().any(|e| e.into_vec().starts_with(b"SLURM_JWT="));
        for whose in [For::Job, For::Step] {
            for export in [None, Some("ALL"), Some("NONE"), Some("NIL"), Some("SLURM_JWT"), Some("A,SLURM_JWT=x")] {
                assert!(!has_token(environment(export, variables(), whose).unwrap()), "{export:?} {whose:?}");
            }
        }
        assert!(!has_token(from_file(b"A=1\0SLURM_JWT=x.y.z\0").unwrap()));
    }

    #[test]
    fn none_keeps_slurms_own_and_a_bare_login() {
        assert_eq!(
            made(Some("NONE"), For::Job),
            [
                "GARRICK_HOME=/home/alice/g",
                "HOME=/home/alice",
                "PATH=/usr/local/bin:/usr/bin:/bin",
                "SLURM_CONF=/etc/slurm.conf",
                "SLURM_CPU_BIND=none",
                "SLURM_EXPORT_ENV=NONE",
            ]
        );
    }

    #[test]
    fn nil_keeps_slurms_own_only() {
        assert_eq!(
            made(Some("NIL"), For::Job),
            ["GARRICK_HOME=/home/alice/g", "SLURM_CONF=/etc/slurm.conf", "SLURM_CPU_BIND=none", "SLURM_EXPORT_ENV=NIL"]
        );
    }

    #[test]
    fn a_list_names_what_travels_and_sets_new_values() {
        let made = made(Some("EDITOR,NOSUCH,NEW=1"), For::Job);
        assert!(made.contains(&"EDITOR=vi".to_owned()) && made.contains(&"NEW=1".to_owned()));
        assert!(!made.iter().any(|e| e.starts_with("PATH=") || e.starts_with("NOSUCH")));
    }

    #[test]
    fn all_with_settings_overrides() {
        let made = made(Some("ALL,EDITOR=/bin/emacs,LIST='a,b'"), For::Job);
        assert!(made.contains(&"EDITOR=/bin/emacs".to_owned()) && made.contains(&"LIST=a,b".to_owned()));
        assert!(made.contains(&"PATH=/opt/bin".to_owned()));
    }

    #[test]
    fn malformed_lists_are_refused() {
        assert!(environment(Some("=x"), std::iter::empty(), For::Job).is_err());
        assert!(environment(Some("A='x"), std::iter::empty(), For::Job).is_err());
    }

    #[test]
    fn a_file_holds_nul_ended_entries() {
        let entries = from_file(b"A=1\0B=x=y\0\0").unwrap();
        assert_eq!(entries, [EnvEntry::from(b"A=1".to_vec()), EnvEntry::from(b"B=x=y".to_vec())]);
        assert!(from_file(b"nonsense\0").is_err());
    }
}
