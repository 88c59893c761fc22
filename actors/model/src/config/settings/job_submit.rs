//! The site's own checks of jobs (slurm.conf(5), `JobSubmitPlugins`).

use super::kinds::or_null;
use crate::config::{
    SettingError,
    syntax::{
        report::not_yet,
        values::{Value, list},
    },
};
use std::{fmt, path::PathBuf};

/// A check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobSubmitPlugin {
    /// `lua`: `job_submit.lua` beside `slurm.conf`.
    Lua,
    /// `require_timelimit`: jobs without a time limit are refused.
    RequireTimeLimit,
    /// `all_partitions`: jobs that name no partition may start in all.
    AllPartitions,
    /// `partition`: jobs that name no partition start in one whose memory is enough.
    Partition,
    /// `throttle`: each user may submit so many jobs in an hour (`SchedulerParameters=jobs_per_user_per_hour`).
    Throttle,
    /// `logging`: requests are logged.
    Logging,
    /// `unix:PATH`: a program of the site behind this socket.
    Socket(PathBuf),
}

/// Plugins of Slurm that do not exist here.
const NOT_YET: [&str; 2] = ["defaults", "pbs"];

impl JobSubmitPlugin {
    pub(super) fn parse(text: &str) -> Value<Vec<Self>> {
        list(text).iter().map(|word| Self::of(word)).collect()
    }

    fn of(word: &str) -> Value<Self> {
        let name = word.strip_prefix("job_submit/").unwrap_or(word);
        match name {
            "lua" => Ok(Self::Lua),
            "require_timelimit" => Ok(Self::RequireTimeLimit),
            "all_partitions" => Ok(Self::AllPartitions),
            "partition" => Ok(Self::Partition),
            "throttle" => Ok(Self::Throttle),
            "logging" => Ok(Self::Logging),
            name if NOT_YET.contains(&name) => Err(not_yet(name)),
            name => match name.strip_prefix("unix:").filter(|path| path.starts_with('/')) {
                Some(path) => Ok(Self::Socket(path.into())),
                None => Err(SettingError::new(format!("\"{word}\" is no check of jobs")).suggest(
                    "lua, require_timelimit, all_partitions, partition, throttle, logging or unix:/PATH/OF/SOCKET",
                )),
            },
        }
    }
}

impl fmt::Display for JobSubmitPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lua => f.write_str("lua"),
            Self::RequireTimeLimit => f.write_str("require_timelimit"),
            Self::AllPartitions => f.write_str("all_partitions"),
            Self::Partition => f.write_str("partition"),
            Self::Throttle => f.write_str("throttle"),
            Self::Logging => f.write_str("logging"),
            Self::Socket(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// As it is shown.
pub(super) fn shown(plugins: &[JobSubmitPlugin]) -> String {
    or_null(&plugins.iter().map(ToString::to_string).collect::<Vec<String>>().join(","))
}
