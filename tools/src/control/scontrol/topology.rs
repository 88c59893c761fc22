//! `scontrol show topology [NAME] [unit=NAME] [node=NAME]` and `scontrol show topoconf`.

use super::Session;
use garrick_model::{
    messages::command::{CommandReply, CommandRequest},
    topology::NamedTopology,
};
use garrick_render::records::topology::{self as render, Asked};

/// Other words for `unit`.
const UNITS: [&str; 5] = ["unit", "switch", "block", "ring", "torus"];

/// Shows the named topology, or the default one.
pub fn show(session: &mut Session, words: &[String]) -> i32 {
    let mut asked = Asked::default();
    let mut named: Option<&str> = None;
    for word in words {
        match word.split_once('=') {
            Some((key, value)) if UNITS.iter().any(|unit| unit.eq_ignore_ascii_case(key)) => asked.unit = Some(value),
            Some((key, value)) if key.eq_ignore_ascii_case("node") => asked.node = Some(value),
            None if named.is_none() => named = Some(word),
            _ => return session.plain_error(format_args!("invalid option:{word} for show topology")),
        }
    }
    let topologies = match ask(session) {
        Ok(topologies) => topologies,
        Err(code) => return code,
    };
    if !topologies.is_empty() && session.manner.form.is_some() {
        return session.not_supported("scontrol show topology --json");
    }
    if topologies.is_empty() {
        return match words {
            // Nodes side by side: there is nothing to show.
            [] => 0,
            _ => session.plain_error("slurm_load_topo error: Requested topology configuration is not available"),
        };
    }
    let found = topologies.iter().find(|topology| named.is_none_or(|name| topology.name == name));
    let Some(topology) = found else {
        return session.plain_error(format_args!("Topology {} not found", named.unwrap_or_default()));
    };
    let lines = render::lines(topology, asked);
    if lines.is_empty() {
        let what = match asked {
            Asked { unit: Some(unit), .. } => format!("Unit {unit} not found in topology {}", topology.name),
            Asked { node: Some(node), .. } => format!("Node {node} not found in topology {}", topology.name),
            _ => format!("Topology {} has no units", topology.name),
        };
        return session.plain_error(what);
    }
    session.print(|out| lines.iter().try_for_each(|line| writeln!(out, "{line}")))
}

/// Shows all topologies as `topology.yaml` has them.
pub fn show_file(session: &mut Session) -> i32 {
    if session.manner.form.is_some() {
        return session.not_supported("scontrol show topoconf --json");
    }
    match ask(session) {
        Ok(topologies) if topologies.is_empty() => session.plain_error("No topology information available"),
        Ok(topologies) => session.print(|out| render::write_yaml(&topologies, out)),
        Err(code) => code,
    }
}

fn ask(session: &mut Session) -> Result<Vec<NamedTopology>, i32> {
    let answer = session.cluster().and_then(|c| match c.ask(&CommandRequest::ListTopologies)? {
        CommandReply::Topologies { topologies } => Ok(topologies),
        other => Err(c.unexpected(&other)),
    });
    answer.map_err(|error| session.failed("slurm_load_topo", &error))
}
