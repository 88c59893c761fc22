//! Command lines of the daemons: `noded`, and its other names `slurmctld`, `slurmd` and `slurmdbd` with their usual flags.

use garrick_actors::controller::setup::Recover;
use std::{ffi::OsString, path::PathBuf};

/// Which roles a process takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Roles {
    /// Controller only (`slurmctld`).
    Controller,
    /// Node agent only (`slurmd`).
    Node,
    /// The service of accounting only (`slurmdbd`).
    Accounting,
    /// Both in one process: the embedded single-machine cluster.
    Both,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Serve.
    Serve,
    /// Make configuration-independent state: the cluster's CA and identities (`noded init`).
    Init,
    /// Print the runs that job completion has recorded in a database (`noded completed`, for `sacct --completion`) and end.
    ShowCompleted,
    /// Print what the machine has (`-C`) and end.
    ShowHardware,
    /// Print the node's generic resources (`-G`) and end.
    ShowGres,
    /// Print versions and end.
    ShowVersion,
    /// Print help and end.
    ShowHelp,
}

/// A daemon's command line, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What to do.
    pub action: Action,
    /// Roles.
    pub roles: Roles,
    /// `-f`: configuration file.
    pub conf: Option<PathBuf>,
    /// `-N`: node name.
    pub node_name: Option<String>,
    /// `-D`: stay in the foreground.
    pub foreground: bool,
    /// `-c` of `slurmctld`: start empty, forgetting jobs and node states. `-c` of `slurmd`: end what earlier runs left behind.
    pub clean: bool,
    /// `-i` of `slurmctld`: go on although saved state cannot be read.
    pub ignore_errors: bool,
    /// `-r` (the default) or `-R` of `slurmctld`: what is taken from saved state.
    pub recover: Recover,
    /// `-v`, counted.
    pub verbose: u8,
    /// `-L`: log file.
    pub log_file: Option<PathBuf>,
    /// `--home`: an embedded cluster's folder; jobs end with the daemons.
    pub home: Option<PathBuf>,
    /// `--conf-server`-like settings are not here: every node reads its own file.
    pub token: Option<String>,
    /// `--token-file`: a file with the token, which process lists do not show.
    pub token_file: Option<PathBuf>,
    /// `-Z`: a node that `slurm.conf` does not have.
    pub dynamic: bool,
    /// `--conf` of `slurmd`: node parameters.
    pub parameters: Option<String>,
    /// `-b`: say that the machine was started anew.
    pub rebooted: bool,
}

/// A command line that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No such option.
    #[error("unrecognized option '{0}'")]
    Unknown(String),
    /// An option without its value.
    #[error("option '{0}' requires an argument")]
    MissingValue(String),
    /// A value that makes no sense.
    #[error("invalid value '{value}' for '{option}': {expected}")]
    BadValue {
        /// Option.
        option: String,
        /// Value given.
        value: String,
        /// What is allowed.
        expected: &'static str,
    },
    /// Options that do not go together.
    #[error("{0}")]
    Contradiction(&'static str),
    /// Not text.
    #[error("argument {0:?} is not valid UTF-8")]
    NotText(OsString),
}

/// Help text for one of the program's names.
pub fn help(program: &str) -> String {
    let roles = if program == "noded" {
        "  --role ROLES       controller, node, accounting, or controller,node (the default)\n  init               create the cluster's keys and identities, then end\n  completed          print the runs that JobCompType has recorded in a database, then end\n"
    } else {
        ""
    };
    format!(
        "Usage: {program} [OPTIONS]\n{roles}  \
           -f FILE            configuration file (default: SLURM_CONF, GARRICK_HOME, PREFIX/etc/slurm.conf, /etc/slurm/slurm.conf)\n  \
           -N NAME            node name (default: the node whose NodeHostname is this host)\n  \
           -D                 stay in the foreground, log to standard error\n  \
           -c                 controller: start without saved state; node: end what earlier runs have left\n  \
           -i                 controller: start although saved state cannot be read\n  \
           -r, -R             controller: use the partitions of slurm.conf (-r, the default), or keep their later changes (-R)\n  \
           -L FILE            log file\n  \
           -v                 more detailed log (repeat for more)\n  \
           -C                 print this machine's hardware as a NodeName= line\n  \
           -Z                 node: join as a node that is not in slurm.conf, named by -N or the host name\n  \
           --conf PARAMETERS  with -Z: parameters (\"CPUs=4 Feature=f1 Topology=topo1:s1\") in place of detected ones\n  \
           -b                 node: report that the machine was rebooted\n  \
           -G                 print the node's generic resources and their device files\n  \
           --token-file FILE  join the cluster with the one-time token in that file (garrick token)\n  \
           --token TOKEN      the same on the command line (visible in process lists)\n  \
           --home DIR         folder of an embedded cluster\n  \
           -V, -h             print versions, this help\n"
    )
}

/// Reads a command line; `program` is the name it was called by.
pub fn parse(program: &str, args: impl IntoIterator<Item = OsString>) -> Result<Options, OptionError> {
    let roles = match program {
        "slurmctld" => Roles::Controller,
        "slurmd" => Roles::Node,
        "slurmdbd" => Roles::Accounting,
        _ => Roles::Both,
    };
    let mut o = Options {
        action: Action::Serve,
        roles,
        conf: None,
        node_name: None,
        foreground: false,
        clean: false,
        ignore_errors: false,
        recover: Recover::Partial,
        verbose: 0,
        log_file: None,
        home: None,
        token: None,
        token_file: None,
        dynamic: false,
        parameters: None,
        rebooted: false,
    };
    let mut long_conf = None;
    let mut words = Vec::new();
    for a in args {
        words.push(a.into_string().map_err(OptionError::NotText)?);
    }
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if let Some(long) = word.strip_prefix("--") {
            let (name, mut value) = match long.split_once('=') {
                Some((n, v)) => (n, Some(v.to_owned())),
                None => (long, None),
            };
            let mut need = |name: &str| {
                value.take().or_else(|| words.next()).ok_or_else(|| OptionError::MissingValue(format!("--{name}")))
            };
            match name {
                "role" => o.roles = parse_roles(&need("role")?)?,
                "conf" => long_conf = Some(need("conf")?),
                "home" => o.home = Some(need("home")?.into()),
                "token" => o.token = Some(need("token")?),
                "token-file" => o.token_file = Some(PathBuf::from(need("token-file")?)),
                "help" => o.action = Action::ShowHelp,
                "version" => o.action = Action::ShowVersion,
                _ => return Err(OptionError::Unknown(word)),
            }
        } else if let Some(letters) = word.strip_prefix('-').filter(|l| !l.is_empty()) {
            let mut rest = letters.chars();
            while let Some(letter) = rest.next() {
                let mut need = || {
                    let tail: String = rest.by_ref().collect();
                    if tail.is_empty() { words.next() } else { Some(tail) }
                        .ok_or_else(|| OptionError::MissingValue(format!("-{letter}")))
                };
                match letter {
                    'f' => o.conf = Some(need()?.into()),
                    'N' => o.node_name = Some(need()?),
                    'L' => o.log_file = Some(need()?.into()),
                    'D' => o.foreground = true,
                    'c' => o.clean = true,
                    'i' => o.ignore_errors = true,
                    'v' => o.verbose += 1,
                    'Z' => o.dynamic = true,
                    'b' => o.rebooted = true,
                    'C' => o.action = Action::ShowHardware,
                    'G' => o.action = Action::ShowGres,
                    'V' => o.action = Action::ShowVersion,
                    'h' => o.action = Action::ShowHelp,
                    'r' => o.recover = Recover::Partial,
                    'R' => o.recover = Recover::Full,
                    // Priority, memory locking and working directory flags of unit files: what they ask for is what happens.
                    'n' => drop(need()?),
                    'M' | 's' => {}
                    _ => return Err(OptionError::Unknown(format!("-{letter}"))),
                }
            }
        } else if word == "init" {
            o.action = Action::Init;
        } else if word == "completed" {
            o.action = Action::ShowCompleted;
        } else {
            return Err(OptionError::Unknown(word));
        }
    }
    // What slurmd calls so are parameters of a node; elsewhere it is the long form of -f.
    if o.dynamic || program == "slurmd" {
        o.parameters = long_conf;
    } else if let Some(file) = long_conf {
        o.conf = Some(file.into());
    }
    if o.dynamic && o.roles != Roles::Node {
        return Err(OptionError::Contradiction("-Z is for nodes only: slurmd -Z, or noded --role node -Z"));
    }
    if o.parameters.is_some() && !o.dynamic {
        return Err(OptionError::Contradiction(
            "--conf without -Z is not supported yet: nodes of slurm.conf have their settings there",
        ));
    }
    Ok(o)
}

fn parse_roles(text: &str) -> Result<Roles, OptionError> {
    match text {
        "controller" => Ok(Roles::Controller),
        "node" => Ok(Roles::Node),
        "accounting" => Ok(Roles::Accounting),
        "controller,node" | "node,controller" => Ok(Roles::Both),
        _ => Err(OptionError::BadValue {
            option: "--role".into(),
            value: text.into(),
            expected: "controller, node, accounting, or controller,node",
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn a_unit_files_usual_flags_are_read() {
        let o = parse("slurmctld", words("-D -f /etc/slurm/slurm.conf -c -i -vvv")).unwrap();
        assert_eq!(o.recover, Recover::Partial);
        assert_eq!(parse("slurmctld", words("-DRi")).unwrap().recover, Recover::Full);
        assert_eq!(o.roles, Roles::Controller);
        assert!(o.foreground && o.clean && o.ignore_errors);
        assert_eq!((o.verbose, o.conf), (3, Some("/etc/slurm/slurm.conf".into())));
        let o = parse("slurmd", words("-Dvv -Nn1")).unwrap();
        assert_eq!((o.roles, o.node_name.as_deref(), o.verbose), (Roles::Node, Some("n1"), 2));
        let o = parse("slurmdbd", words("-D -vv -f /etc/slurm/slurmdbd.conf")).unwrap();
        assert_eq!((o.roles, o.foreground, o.conf), (Roles::Accounting, true, Some("/etc/slurm/slurmdbd.conf".into())));
    }

    #[test]
    fn a_node_that_comes_at_run_time_says_what_it_is() {
        let line = ["-Z", "-N", "d1", "--conf", "CPUs=4 Feature=f1", "-f", "/x"].map(OsString::from);
        let o = parse("slurmd", line).unwrap();
        assert_eq!((o.dynamic, o.parameters.as_deref(), o.conf), (true, Some("CPUs=4 Feature=f1"), Some("/x".into())));
        let o = parse("noded", words("--conf=/x")).unwrap();
        assert_eq!((o.parameters, o.conf), (None, Some("/x".into())));
        assert!(matches!(parse("slurmd", words("--conf CPUs=4")), Err(OptionError::Contradiction(_))));
        assert!(matches!(parse("slurmctld", words("-Z")), Err(OptionError::Contradiction(_))));
    }

    #[test]
    fn unknown_options_and_missing_values_are_errors() {
        assert_eq!(parse("slurmd", words("-Q")), Err(OptionError::Unknown("-Q".into())));
        assert_eq!(parse("noded", words("--nosuch")), Err(OptionError::Unknown("--nosuch".into())));
        assert_eq!(parse("slurmd", words("-N")), Err(OptionError::MissingValue("-N".into())));
        assert!(matches!(parse("noded", words("--role king")), Err(OptionError::BadValue { .. })));
    }
}
