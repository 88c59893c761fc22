//! `garrick status`: the processes of the embedded cluster that run now.

use super::{SiteError, doors, down, home::Home};
use crate::{
    options::table::Arg,
    output::{self, Console},
    query::arguments::{self, Outcome, Table, option},
};
use garrick_asking::cluster::Cluster;
use garrick_model::messages::command::{CommandReply, CommandRequest, DaemonInfo};
use garrick_render::columns::Layout;
use serde_json::json;
use std::{ffi::OsString, io::Write, path::PathBuf};

pub(crate) static TABLE: Table = Table {
    program: "garrick status",
    purpose: "List the processes of the cluster under GARRICK_HOME.",
    operands: "",
    words: &[],
    options: &[option("json", None, Arg::None, "as a JSON array of objects: role, name, pid, address")],
    misuse: 1,
};

/// Runs `garrick status`. Exit code 0 also when nothing runs: that is an answer too.
pub fn main(args: &[OsString], console: &Console) -> Result<i32, SiteError> {
    let arguments = match arguments::read(&TABLE, args, console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return Ok(code),
    };
    if let Some(word) = arguments.words().first() {
        return Err(SiteError::Usage(format!("status takes no argument '{word}'")));
    }
    let home = Home::from_env()?;
    let list = running(&home)?;
    let written = output::stdout(|out| {
        if arguments.has("json") {
            render_json(&list, out)
        } else if list.is_empty() {
            writeln!(out, "nothing runs in {}", home.root().display())
        } else {
            render(&list, out)
        }
    });
    Ok(output::finish(console, written, 0))
}

/// The daemons that were started and live, then the step daemons.
fn running(home: &Home) -> Result<Vec<DaemonInfo>, SiteError> {
    let mut list: Vec<DaemonInfo> = Vec::new();
    for process in down::known(home)? {
        // One process may have both roles; found by its command line alone it is one entry with both words.
        for role in process.role.split(',') {
            list.push(DaemonInfo {
                role: role.to_owned(),
                name: process.name.clone(),
                pid: process.pid,
                address: process.address.clone(),
            });
        }
    }
    for told in told(home) {
        match list.iter_mut().find(|d| d.pid == told.pid && d.role == told.role) {
            Some(known) if told.role == "stepd" => *known = told,
            Some(_) => {}
            None => list.push(told),
        }
    }
    let doors = Cluster::find(Some(&home.conf())).map(|c| stepd_doors(&c, home)).unwrap_or_default();
    for stepd in list.iter_mut().filter(|d| d.role == "stepd" && d.address.is_empty()) {
        name_by_door(stepd, &doors);
    }
    let order = |role: &str| match role {
        "controller" => 0,
        "node" => 1,
        _ => 2,
    };
    list.sort_by(|a, b| (order(&a.role), &a.name, a.pid).cmp(&(order(&b.role), &b.name, b.pid)));
    Ok(list)
}

/// Doors of step daemons, `j5609-n1-4f2a.sock`, in the cluster's run folders.
fn stepd_doors(cluster: &Cluster, home: &Home) -> Vec<PathBuf> {
    let folders = cluster.run_dirs(home.root());
    let entries = folders.iter().filter_map(|f| std::fs::read_dir(f).ok()).flatten().flatten();
    entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "sock")).collect()
}

/// Gives a step daemon known by node and run the name `JOB/NODE` and the address of its door.
fn name_by_door(stepd: &mut DaemonInfo, doors: &[PathBuf]) {
    let Some((node, run)) = stepd.name.split_once('/') else { return };
    let middle = format!("-{node}-");
    for door in doors {
        let stem = door.file_stem().and_then(|s| s.to_str()).and_then(|s| s.strip_prefix('j'));
        // The door's name ends in the last digits of the run.
        if let Some((job, tail)) = stem.and_then(|s| s.split_once(&middle))
            && !tail.is_empty()
            && run.ends_with(tail)
        {
            stepd.name = format!("{job}/{node}");
            stepd.address = door.display().to_string();
            return;
        }
    }
}

/// What the daemons themselves say. One that does not answer says nothing.
fn told(home: &Home) -> Vec<DaemonInfo> {
    let Ok(cluster) = Cluster::find(Some(&home.conf())) else { return Vec::new() };
    let mut told = Vec::new();
    for door in cluster.doors() {
        if let Some((_, CommandReply::Daemons(list))) = doors::ask(&door, &CommandRequest::ListDaemons) {
            told.extend(list);
        }
    }
    told
}

fn render_json(list: &[DaemonInfo], out: &mut dyn Write) -> std::io::Result<()> {
    let objects: Vec<_> =
        list.iter().map(|d| json!({"role": d.role, "name": d.name, "pid": d.pid, "address": d.address})).collect();
    garrick_render::json::write(out, &json!(objects))
}

fn render(list: &[DaemonInfo], out: &mut dyn Write) -> std::io::Result<()> {
    let layout = Layout::short("%10r %#n %8p %a", Some);
    layout.write(
        out,
        true,
        list,
        |field| match field {
            'r' => "ROLE".to_owned(),
            'n' => "NAME".to_owned(),
            'p' => "PID".to_owned(),
            _ => "ADDRESS".to_owned(),
        },
        |d, field| match field {
            'r' => d.role.clone(),
            'n' => d.name.clone(),
            'p' => d.pid.to_string(),
            _ => d.address.clone(),
        },
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn list() -> Vec<DaemonInfo> {
        let info = |role: &str, name: &str, pid, address: &str| DaemonInfo {
            role: role.to_owned(),
            name: name.to_owned(),
            pid,
            address: address.to_owned(),
        };
        vec![info("controller", "controller", 70, "127.0.0.1:7"), info("stepd", "5/n1", 71, "/r/j5-n1-x.sock")]
    }

    #[test]
    fn text_has_a_line_for_each_process() {
        let mut out = Vec::new();
        render(&list(), &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "ROLE       NAME       PID      ADDRESS\n\
             controller controller 70       127.0.0.1:7\n\
             stepd      5/n1       71       /r/j5-n1-x.sock\n"
        );
    }

    #[test]
    fn a_step_daemon_is_named_by_the_job_that_its_door_names() {
        let door = PathBuf::from("/r/j5-n1-TC8Q00.sock");
        let mut stepd = DaemonInfo {
            role: "stepd".to_owned(),
            name: "n1/sFSNM7YRTC8Q00".to_owned(),
            pid: 71,
            address: String::new(),
        };
        name_by_door(&mut stepd, &[PathBuf::from("/r/n1.sock"), PathBuf::from("/r/j4-n1-TC8Q01.sock"), door.clone()]);
        assert_eq!((stepd.name.as_str(), stepd.address), ("5/n1", door.display().to_string()));
    }

    #[test]
    fn json_is_an_array_of_objects() {
        let mut out = Vec::new();
        render_json(&list(), &mut out).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value[0], json!({"role": "controller", "name": "controller", "pid": 70, "address": "127.0.0.1:7"}));
        assert_eq!(value.as_array().unwrap().len(), 2);
    }
}
