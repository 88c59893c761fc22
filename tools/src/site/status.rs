//! `garrick status`: the processes of the embedded cluster that run now.

use super::{SiteError, doors, down, home::Home};
use crate::{
    cluster::Cluster,
    options::table::Arg,
    output::{self, Console},
    query::arguments::{self, Outcome, Table, option},
    render::columns::Layout,
};
use garrick_model::messages::command::{CommandReply, CommandRequest, DaemonInfo};
use serde_json::json;
use std::{ffi::OsString, io::Write};

static TABLE: Table = Table {
    program: "garrick status",
    purpose: "List the processes of the cluster under GARRICK_HOME.",
    operands: "",
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
    let order = |role: &str| match role {
        "controller" => 0,
        "node" => 1,
        _ => 2,
    };
    list.sort_by(|a, b| (order(&a.role), &a.name, a.pid).cmp(&(order(&b.role), &b.name, b.pid)));
    Ok(list)
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
    crate::render::json::write(out, &json!(objects))
}

fn render(list: &[DaemonInfo], out: &mut dyn Write) -> std::io::Result<()> {
    let layout = Layout::short("%10r %#n %8p %a", "process", Some).expect("every letter is a field");
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
    fn json_is_an_array_of_objects() {
        let mut out = Vec::new();
        render_json(&list(), &mut out).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value[0], json!({"role": "controller", "name": "controller", "pid": 70, "address": "127.0.0.1:7"}));
        assert_eq!(value.as_array().unwrap().len(), 2);
    }
}
