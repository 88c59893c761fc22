//! `garrick init`: writes a configuration and creates the cluster's keys. The daemon program, which has the cryptography, creates
//! the keys; this module only writes the file and calls that program.

use super::{SiteError, conf, home::Home, up};
use crate::{
    options::table::Arg,
    output::{self, Console},
    programs,
    query::arguments::{self, Outcome, Table, option},
};
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

pub(crate) static TABLE: Table = Table {
    program: "garrick init",
    purpose: "Write a configuration, if there is none, and create the cluster's keys and identities.",
    operands: "[DIR]",
    words: &[],
    options: &[option("home", None, Arg::None, "for the embedded cluster under GARRICK_HOME (also without DIR)")],
    misuse: 1,
};

/// Runs `garrick init`.
pub fn main(args: &[OsString], console: &Console) -> Result<i32, SiteError> {
    let arguments = match arguments::read(&TABLE, args, console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return Ok(code),
    };
    let home = match (arguments.operands.as_slice(), arguments.has("home")) {
        ([], _) => Home::from_env()?,
        ([folder], false) => Home::at(Path::new(folder))?,
        _ => return Err(SiteError::Usage("init takes one folder, or --home".to_owned())),
    };
    let noded = programs::find("noded")?;
    let conf = prepare(&home, &noded)?;
    let status = Command::new(&noded)
        .arg("init")
        .arg("-f")
        .arg(&conf)
        .arg("--home")
        .arg(home.root())
        .status()
        .map_err(SiteError::file("cannot run", &noded))?;
    if !status.success() {
        return Err(SiteError::Other(format!("{} init: {status}", noded.display())));
    }
    Ok(output::finish(console, output::print_line(format_args!("{} is ready", conf.display())), 0))
}

/// The configuration, written if there is none.
fn prepare(home: &Home, noded: &Path) -> Result<PathBuf, SiteError> {
    home.create()?;
    let path = home.conf();
    if path.exists() {
        return Ok(path);
    }
    let shape = conf::Shape::default();
    let ports = conf::free_ports(2).map_err(SiteError::file("cannot bind ports for", &path))?;
    let text = conf::text(&shape, home.root(), &up::machine(noded)?, &ports);
    fs::write(&path, text).map_err(SiteError::file("cannot write", &path))?;
    Ok(path)
}
