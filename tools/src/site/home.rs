//! Where an embedded cluster's files are: `GARRICK_HOME`, or a folder of the user.

use super::SiteError;
use std::{
    env, fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// The folder of an embedded cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    /// The one that is meant: `GARRICK_HOME`, else `$XDG_STATE_HOME/garrick`, else `~/.local/state/garrick`.
    pub fn from_env() -> Result<Self, SiteError> {
        let named = |variable: &str| env::var_os(variable).filter(|v| !v.is_empty()).map(PathBuf::from);
        let root = named(garrick_model::env_vars::GARRICK_HOME)
            .or_else(|| named("XDG_STATE_HOME").map(|d| d.join("garrick")))
            .or_else(|| named("HOME").map(|d| d.join(".local/state/garrick")))
            .ok_or_else(|| SiteError::Other("set GARRICK_HOME: there is no home folder".to_owned()))?;
        Self::at(&root)
    }

    /// In that folder. Relative paths are made absolute, since daemons leave their folder.
    pub fn at(root: &Path) -> Result<Self, SiteError> {
        Ok(Self { root: std::path::absolute(root).map_err(SiteError::file("cannot use", root))? })
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Its configuration.
    pub fn conf(&self) -> PathBuf {
        self.root.join("etc/slurm.conf")
    }

    /// Logs of its daemons.
    pub fn logs(&self) -> PathBuf {
        self.root.join("log")
    }

    /// Saved state of its controller.
    pub fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    /// Spool folders of its nodes.
    pub fn spool(&self) -> PathBuf {
        self.root.join("spool")
    }

    /// Doors and pid files.
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// The list of the processes that were started.
    pub fn process_list(&self) -> PathBuf {
        self.root.join("processes.json")
    }

    /// Makes every folder.
    pub fn create(&self) -> Result<(), SiteError> {
        self.check()?;
        // The state is the controller's alone: it is made by that.
        for folder in [self.root.join("etc"), self.logs(), self.spool(), self.run()] {
            fs::create_dir_all(&folder).map_err(SiteError::file("cannot create", &folder))?;
        }
        Ok(())
    }

    /// What somebody else prepared, a configuration with programs to be run for instance, is not taken over.
    pub fn check(&self) -> Result<(), SiteError> {
        let kept = [self.root.clone(), self.root.join("etc"), self.conf(), self.state(), self.spool()];
        kept.iter().try_for_each(|path| Self::check_owner(path))
    }

    fn check_owner(path: &Path) -> Result<(), SiteError> {
        let own = nix::unistd::geteuid().as_raw();
        match fs::symlink_metadata(path) {
            Ok(found) if found.uid() != own => Err(SiteError::Other(format!(
                "{} belongs to uid {}, not to uid {own}: a cluster is started by whoever its folder belongs to \
                 (set GARRICK_HOME to a folder of your own)",
                path.display(),
                found.uid()
            ))),
            // One that is not there is made; what cannot be looked at fails when it is used.
            _ => Ok(()),
        }
    }
}
