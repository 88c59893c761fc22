//! The site's own look at options of `sbatch`, `salloc` and `srun` (slurm.conf(5), `CliFilterPlugins` and `CliFilterParameters`).

use crate::config::{
    SettingError,
    syntax::values::{Value, list},
};
use std::path::PathBuf;

/// A filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CliFilter {
    /// `lua`: `cli_filter.lua` beside `slurm.conf`, or where `cli_filter_lua_path` says.
    Lua,
    /// `user_defaults`: each user's `~/.slurm/defaults`.
    UserDefaults,
    /// `syslog`: each job and step is told to the system's log.
    Syslog,
    /// `unix:PATH`: a program of the site behind this socket.
    Socket(PathBuf),
}

/// `CliFilterPlugins`, in order; `none` is no filter.
pub(super) fn plugins(text: &str) -> Value<Vec<CliFilter>> {
    let known = list(text).into_iter().filter(|word| name(word) != "none").map(|word| of(&word).ok_or(word));
    known.collect::<Result<_, _>>().map_err(|word| {
        SettingError::new(format!("\"{word}\" is no filter of options"))
            .suggest("lua, user_defaults, syslog, none or unix:/PATH/OF/SOCKET")
    })
}

fn name(word: &str) -> &str {
    word.strip_prefix("cli_filter/").unwrap_or(word)
}

fn of(word: &str) -> Option<CliFilter> {
    Some(match name(word) {
        "lua" => CliFilter::Lua,
        "user_defaults" => CliFilter::UserDefaults,
        "syslog" => CliFilter::Syslog,
        name => CliFilter::Socket(name.strip_prefix("unix:").filter(|path| path.starts_with('/'))?.into()),
    })
}

/// The script of `CliFilterParameters=cli_filter_lua_path=PATH`.
pub(super) fn lua_path(text: &str) -> Value<Option<PathBuf>> {
    let mut path = None;
    for word in list(text) {
        match word.split_once('=') {
            Some(("cli_filter_lua_path", file)) if file.starts_with('/') => path = Some(PathBuf::from(file)),
            _ => {
                return Err(SettingError::new(format!("\"{word}\" is no parameter of filters"))
                    .suggest("cli_filter_lua_path=/PATH/OF/SCRIPT"));
            }
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn filters_are_named_with_and_without_their_kind() {
        let filters = plugins("cli_filter/lua,user_defaults,none,syslog,unix:/run/x").unwrap();
        let socket = CliFilter::Socket("/run/x".into());
        assert_eq!(filters, [CliFilter::Lua, CliFilter::UserDefaults, CliFilter::Syslog, socket]);
        for wrong in ["perl", "unix:x", "unix:"] {
            assert!(plugins(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_script_may_be_elsewhere() {
        assert_eq!(lua_path("cli_filter_lua_path=/x/y.lua").unwrap(), Some("/x/y.lua".into()));
        assert_eq!(lua_path("").unwrap(), None);
        assert!(lua_path("cli_filter_lua_path=y.lua").is_err());
        assert!(lua_path("other=1").is_err());
    }
}
