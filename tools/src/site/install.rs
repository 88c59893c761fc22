//! `garrick install`: the files of an installation, named as Slurm names them. Commands are one program under many names;
//! each daemon name is an executable file of its own, so that `/proc/PID/exe` and process lists tell them apart.

use super::SiteError;
use crate::{
    options::table::Arg,
    output::{self, Console},
    programs,
    query::arguments::{self, Outcome, Table, option},
};
use std::{
    env,
    ffi::OsString,
    fs, io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

pub(crate) static TABLE: Table = Table {
    program: "garrick install",
    purpose: "Create bin/, sbin/, etc/ and share/: all programs under all their names, man pages, completions.",
    operands: "",
    words: &[],
    options: &[option("prefix", None, Arg::Required("DIR"), "folder to install in")],
    misuse: 1,
};

/// Names of commands.
pub const COMMANDS: [&str; 23] = [
    "garrick", "sbatch", "srun", "sattach", "sbcast", "sgather", "salloc", "squeue", "sinfo", "sprio", "sdiag",
    "sacct", "sacctmgr", "scancel", "scontrol", "scrontab", "seff", "sreport", "sshare", "sstat", "stail", "strigger",
    "swait",
];

/// Names of daemons, with the program that each is.
const DAEMONS: [(&str, &str); 5] =
    [("noded", "noded"), ("slurmctld", "noded"), ("slurmd", "noded"), ("slurmdbd", "noded"), ("stepd", "stepd")];

const EXAMPLE: &str = include_str!("slurm.conf.example");

/// Runs `garrick install`. `shared`: paths of files below `share/`, and what is in them.
pub fn main(args: &[OsString], shared: &[(String, String)], console: &Console) -> Result<i32, SiteError> {
    let arguments = match arguments::read(&TABLE, args, console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return Ok(code),
    };
    let Some(prefix) = arguments.value("prefix").filter(|_| arguments.operands.is_empty()) else {
        return Err(SiteError::Usage("install needs --prefix DIR".to_owned()));
    };
    let own = env::current_exe().map_err(|e| SiteError::Other(format!("cannot find this program: {e}")))?;
    let found = [programs::PLANNING, "noded", "stepd"].map(programs::find);
    let [planning, noded, stepd] = found;
    let done = install(Path::new(&prefix), &own, [&planning?, &noded?, &stepd?], shared)?;
    let written = output::stdout(|out| done.iter().try_for_each(|line| writeln!(out, "{line}")));
    Ok(output::finish(console, written, 0))
}

/// Installs this program and those, and those files; returns what was done, line by line.
fn install(
    prefix: &Path,
    own: &Path,
    [planning, noded, stepd]: [&Path; 3],
    shared: &[(String, String)],
) -> Result<Vec<String>, SiteError> {
    let mut done = Vec::new();
    let [bin, sbin, etc] = ["bin", "sbin", "etc"].map(|name| prefix.join(name));
    for folder in [&bin, &sbin, &etc] {
        fs::create_dir_all(folder).map_err(SiteError::file("cannot create", folder))?;
    }
    // The program itself is copied, and its other names are links to the copy: a build folder may go away.
    let program = bin.join("garrick");
    copy(own, &program)?;
    for name in COMMANDS.iter().filter(|n| **n != "garrick") {
        match light(own, name) {
            Some(light) => copy(&light, &bin.join(name))?,
            None => link(&program, &bin.join(name))?,
        }
    }
    copy(planning, &bin.join(programs::PLANNING))?;
    done.push(format!("{}: {}", bin.display(), COMMANDS.join(" ")));
    for (name, program) in DAEMONS {
        copy(if program == "stepd" { stepd } else { noded }, &sbin.join(name))?;
    }
    done.push(format!("{}: {}", sbin.display(), DAEMONS.map(|d| d.0).join(" ")));
    let share = prefix.join("share");
    shared.iter().try_for_each(|(path, text)| write(&share.join(path), text))?;
    done.push(format!("{}: man pages, pages of docs, completion for bash, zsh and fish", share.display()));
    let conf = etc.join("slurm.conf");
    if conf.exists() {
        done.push(format!("{}: left as it is", conf.display()));
    } else {
        let example = etc.join("slurm.conf.example");
        write(&example, EXAMPLE)?;
        done.push(format!("{}: an example; save it as slurm.conf once it fits your site", example.display()));
    }
    Ok(done)
}

/// Writes a file, with the folders above it.
fn write(path: &Path, text: &str) -> Result<(), SiteError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(SiteError::file("cannot create", folder))?;
    }
    fs::write(path, text).map_err(SiteError::file("cannot write", path))
}

/// The program beside this one that is a command's light form.
fn light(own: &Path, name: &str) -> Option<PathBuf> {
    // Where it was not built, or this program was given its name, the whole command is all of it.
    let light = own.with_file_name(name);
    (name == "srun" && light.is_file() && !same_file(&light, own)).then_some(light)
}

/// Puts a copy in place of what is there: a running program's file cannot be written, but it can be replaced.
fn copy(from: &Path, to: &Path) -> Result<(), SiteError> {
    if same_file(from, to) {
        return Ok(());
    }
    let new = beside(to);
    fs::copy(from, &new)
        .and_then(|_| fs::set_permissions(&new, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&new, to))
        .map_err(SiteError::file("cannot install", to))
}

/// Makes `folder` hold every command under its name, as links to this program: for clusters that are not installed.
pub fn link_commands(own: &Path, folder: &Path) -> Result<(), SiteError> {
    fs::create_dir_all(folder).map_err(SiteError::file("cannot create", folder))?;
    for name in COMMANDS {
        let path = folder.join(name);
        let light = light(own, name);
        let own = light.as_deref().unwrap_or(own);
        if fs::read_link(&path).is_ok_and(|to| to == own) {
            continue;
        }
        let new = beside(&path);
        drop(fs::remove_file(&new));
        std::os::unix::fs::symlink(own, &new).map_err(SiteError::file("cannot link", &new))?;
        fs::rename(&new, &path).map_err(SiteError::file("cannot link", &path))?;
    }
    Ok(())
}

fn link(from: &Path, to: &Path) -> Result<(), SiteError> {
    if same_file(from, to) {
        return Ok(());
    }
    let new = beside(to);
    drop(fs::remove_file(&new));
    match fs::hard_link(from, &new) {
        Ok(()) => fs::rename(&new, to).map_err(SiteError::file("cannot install", to)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(SiteError::file("cannot install", to)(error)),
        // File systems without hard links.
        Err(_) => copy(from, to),
    }
}

fn beside(to: &Path) -> PathBuf {
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    to.with_file_name(name)
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (a.metadata(), b.metadata()) {
        (Ok(a), Ok(b)) => a.ino() == b.ino() && a.dev() == b.dev(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_name_is_laid_out_and_daemons_are_files_of_their_own() {
        let root = env::temp_dir().join(format!("garrick-install-{}", std::process::id()));
        drop(fs::remove_dir_all(&root));
        fs::create_dir_all(&root).unwrap();
        let source = |name: &str| {
            let path = root.join(name);
            fs::write(&path, name).unwrap();
            path
        };
        let (own, planning, noded, stepd) = (source("g"), source("p.planning"), source("n"), source("s"));
        let prefix = root.join("p");
        let shared = [("man/man1/x.1".to_owned(), "page".to_owned())];
        install(&prefix, &own, [&planning, &noded, &stepd], &shared).unwrap();
        let inode = |name: &str| prefix.join(name).metadata().unwrap().ino();
        assert_eq!(inode("bin/squeue"), inode("bin/garrick"));
        assert_eq!(COMMANDS.len() + 1, fs::read_dir(prefix.join("bin")).unwrap().count());
        let mut daemons = DAEMONS.map(|d| inode(&format!("sbin/{}", d.0))).to_vec();
        daemons.sort_unstable();
        daemons.dedup();
        assert_eq!(daemons.len(), DAEMONS.len());
        assert_eq!(prefix.join("sbin/slurmd").metadata().unwrap().permissions().mode() & 0o777, 0o755);
        assert!(prefix.join("etc/slurm.conf.example").exists());
        assert_eq!(fs::read(prefix.join("share/man/man1/x.1")).unwrap(), b"page");

        fs::write(prefix.join("etc/slurm.conf"), "x").unwrap();
        let again = install(&prefix, &own, [&planning, &noded, &stepd], &shared).unwrap();
        assert!(again.last().unwrap().ends_with("etc/slurm.conf: left as it is"));
        assert_eq!(fs::read(prefix.join("etc/slurm.conf")).unwrap(), b"x");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_program_that_is_not_installed_gets_links_under_every_name() {
        let root = env::temp_dir().join(format!("garrick-links-{}", std::process::id()));
        drop(fs::remove_dir_all(&root));
        fs::create_dir_all(&root).unwrap();
        let own = root.join("garrick");
        fs::write(&own, "g").unwrap();
        for _ in 0..2 {
            link_commands(&own, &root.join("bin")).unwrap();
            assert_eq!(fs::read_link(root.join("bin/srun")).unwrap(), own);
            assert_eq!(fs::read_dir(root.join("bin")).unwrap().count(), COMMANDS.len());
        }
        fs::remove_dir_all(&root).unwrap();
    }
}
