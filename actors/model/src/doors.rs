//! Names of the doors (Unix sockets) of a cluster's daemons on a host, which all lie in one folder.
//!
//! | door | file |
//! |---|---|
//! | controller | `ctl.sock` |
//! | a node's agent | `n1.sock` |
//! | the service of accounting | `accounting.door`: no node can have that name |
//! | `stepd` of a run | `j5609-n1-q3bk7w.sock`: job, node, end of the SLUID |

use crate::ids::{JobId, Sluid};
use std::path::{Path, PathBuf};

/// File beside the doors with the path of the cluster's configuration: the folder's name depends on settings that may be edited
/// under running daemons.
pub const CONF: &str = "conf";
/// The controller's.
pub const CONTROLLER: &str = "ctl.sock";
/// That of the service of accounting.
pub const ACCOUNTING: &str = "accounting.door";
/// What a daemon says to a user of whom too many connections are open. He may come back.
pub const TOO_MANY: &str = "busy: too many connections of this user are open, try again";
/// Characters of the SLUID in a name: a path has 107 bytes at most, and a job's runs follow each other.
const SLUID_TAIL: usize = 6;

/// Door of a node's agent.
pub fn of_agent(folder: &Path, node: &str) -> PathBuf {
    folder.join(format!("{node}.sock"))
}

/// Door of a run's `stepd` on a node.
pub fn of_stepd(folder: &Path, job: JobId, node: &str, sluid: Sluid) -> PathBuf {
    let sluid = sluid.to_string();
    let tail = &sluid[sluid.len() - SLUID_TAIL..];
    folder.join(format!("j{job}-{node}-{tail}.sock"))
}

/// Door of the agent that looks after the `stepd` of that door. `None`: it is no `stepd`'s.
pub fn of_agent_beside(stepd: &Path) -> Option<PathBuf> {
    let stem = stepd.file_name()?.to_str()?.strip_suffix(".sock")?;
    let (node, _) = behind_job(stem)?.rsplit_once('-')?;
    Some(of_agent(stepd.parent()?, node))
}

/// True for the controller's door and for agents' doors, which take the requests of commands.
pub fn is_of_daemon(name: &str) -> bool {
    name.strip_suffix(".sock").is_some_and(|stem| behind_job(stem).is_none_or(|rest| !rest.contains('-')))
}

/// `n1-q3bk7w` of `j5609-n1-q3bk7w`.
fn behind_job(stem: &str) -> Option<&str> {
    let (job, rest) = stem.strip_prefix('j')?.split_once('-')?;
    (!job.is_empty() && job.bytes().all(|b| b.is_ascii_digit())).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_of_stepds_are_told_from_those_of_daemons() {
        for name in ["ctl.sock", "n1.sock", "j1.sock", "jay-7.sock", "j7-x.sock"] {
            assert!(is_of_daemon(name), "{name}");
        }
        for name in ["j5609-n1-4f2a.sock", "j1-a-b-c.sock", "n1.pid", "ctl", ACCOUNTING] {
            assert!(!is_of_daemon(name), "{name}");
        }
    }

    #[test]
    fn a_stepds_door_tells_its_agents() {
        let (folder, sluid) = (Path::new("/run/garrick"), Sluid(70));
        for node in ["n1", "rack-7-n1"] {
            let stepd = of_stepd(folder, JobId(7), node, sluid);
            assert_eq!(of_agent_beside(&stepd), Some(of_agent(folder, node)), "{}", stepd.display());
        }
        for other in ["/run/garrick/n1.sock", "/run/garrick/ctl.sock", "/run/garrick/j7-x.sock", "/run/garrick/j7-n1-x"]
        {
            assert_eq!(of_agent_beside(Path::new(other)), None, "{other}");
        }
    }
}
