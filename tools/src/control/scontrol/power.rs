//! `scontrol power`, `reboot` and `cancel_reboot`. Without programs of the site's for it there is nothing that could be done, and
//! that is told in Slurm's words; with one for reboots: not supported yet.

use super::{NOT_THEIRS, Session, too_few, too_many};
use garrick_asking::contact;
use garrick_model::{
    hostlist,
    messages::command::{CommandRequest, NodeChange, NodeStateChange},
    refusal::Refusal,
};

/// `power up|down [asap|force] NODES [reason=TEXT]`
pub fn run(session: &mut Session, words: &[String]) -> i32 {
    let (way, rest) = match words.split_first() {
        Some((way, rest)) if !rest.is_empty() => (way.to_ascii_lowercase(), rest),
        _ => return too_few(session, "power"),
    };
    if way != "up" && way != "down" {
        return session.plain_error(format_args!("invalid power option: {way} (up or down)"));
    }
    let named = rest.iter().filter(|word| !word.contains('=') && !is_manner(word)).count();
    if named != 1 {
        return if named == 0 { too_few(session, "power") } else { too_many(session, "power") };
    }
    let asked = match read(&way, rest) {
        Ok(asked) => asked,
        Err(said) => return session.plain_error(said),
    };
    if !session.is_admin() {
        return session.plain_error(format_args!("scontrol_power_nodes error:{NOT_THEIRS}"));
    }
    match session.setting(if way == "up" { "ResumeProgram" } else { "SuspendProgram" }) {
        Ok(None) => session.plain_error("scontrol_power_nodes error:Invalid power action"),
        Ok(Some(_)) => switch(session, asked),
        Err(code) => code,
    }
}

/// What `power` is to do.
struct Asked {
    nodes: String,
    change: NodeChange,
}

/// Reads its words. The error is what is said of them.
fn read(way: &str, words: &[String]) -> Result<Asked, String> {
    let (mut nodes, mut reason) = (String::new(), None);
    let mut state = if way == "up" { NodeStateChange::PowerUp } else { NodeStateChange::PowerDown };
    for word in words {
        match word.split_once('=') {
            Some((key, value)) if key.eq_ignore_ascii_case("reason") => reason = Some(value.to_owned()),
            // Not supported yet: as if there were no action of that name.
            Some((key, _)) if key.eq_ignore_ascii_case("action") => {
                return Err("scontrol_power_nodes error:Invalid power action".to_owned());
            }
            Some(_) => return Err(format!("Invalid option: {word}")),
            None if word.eq_ignore_ascii_case("asap") && way == "up" => {
                return Err("The 'asap' argument is not valid for power up requests".to_owned());
            }
            None if is_manner(word) && way == "up" => {}
            None if word.eq_ignore_ascii_case("asap") => state = NodeStateChange::PowerDownAsap,
            None if word.eq_ignore_ascii_case("force") => state = NodeStateChange::PowerDownForce,
            None => nodes.clone_from(word),
        }
    }
    if reason.is_some() && way == "up" {
        return Err("Reason only allowed for scontrol power down operation".to_owned());
    }
    Ok(Asked { nodes, change: NodeChange { state: Some(state), reason, ..NodeChange::default() } })
}

/// Has the nodes powered up or down.
fn switch(session: &mut Session, Asked { nodes, change }: Asked) -> i32 {
    let names = match hostlist::expand(&nodes) {
        Ok(names) => names,
        Err(error) => return session.plain_error(format_args!("unable to parse node list {nodes} ({error})")),
    };
    let done = super::update::all_or_named(session, names).and_then(|nodes| {
        let request = CommandRequest::UpdateNode { nodes, change };
        session.cluster().and_then(|c| c.ask(&request))
    });
    match done {
        Ok(_) => 0,
        Err(error) => session.denied("scontrol_power_nodes error:", &error, NOT_THEIRS),
    }
}

fn is_manner(word: &str) -> bool {
    word.eq_ignore_ascii_case("asap") || word.eq_ignore_ascii_case("force")
}

/// `reboot [asap] [force] [nextstate=resume|down] [reason=TEXT] [action=NAME] ALL|NODES`
pub fn reboot(session: &mut Session, words: &[String]) -> i32 {
    let mut nodes = None;
    for word in words {
        match word.split_once('=') {
            Some((key, state)) if key.eq_ignore_ascii_case("nextstate") => {
                if !["down", "resume"].contains(&state.to_ascii_lowercase().as_str()) {
                    return session.plain_error(format_args!("Invalid state: {state}\n Valid states: DOWN, RESUME"));
                }
            }
            Some((key, _)) if ["reason", "action"].contains(&key.to_ascii_lowercase().as_str()) => {}
            None if is_manner(word) => {}
            None if nodes.is_none() => nodes = Some(word),
            None => return session.plain_error("Multiple node lists specified"),
            Some(_) => return session.plain_error(format_args!("Invalid option: {word}")),
        }
    }
    if nodes.is_none() {
        return session.unended_error("Missing node list. Specify ALL|<NodeList>");
    }
    match session.setting("RebootProgram") {
        Ok(None) => {
            session.console.error("RebootProgram isn't defined");
            session.plain_error("scontrol_reboot_nodes error:Unspecified error")
        }
        Ok(Some(_)) => session.not_supported("scontrol reboot"),
        Err(code) => code,
    }
}

/// `cancel_reboot NODES`: of nodes that are to be rebooted, and none is.
pub fn cancel_reboot(session: &mut Session, words: &[String]) -> i32 {
    let list = match words {
        [] => return session.plain_error("missing argument for keyword:cancel_reboot"),
        [list] => list,
        _ => return too_many(session, "cancel_reboot"),
    };
    if !session.is_admin() {
        return session.plain_error(format_args!("slurm_update error: {NOT_THEIRS}"));
    }
    let names = match hostlist::expand(list) {
        Ok(names) => names,
        Err(error) => return session.plain_error(format_args!("unable to parse node list {list} ({error})")),
    };
    let answer = session.cluster().and_then(|c| {
        let names = contact::named_nodes(c, &names)?;
        let nodes = contact::nodes(c)?;
        Ok(names.iter().all(|name| nodes.iter().any(|node| node.name == *name)))
    });
    match answer {
        Ok(true) => session.plain_error("slurm_update error: Invalid node state transition"),
        Ok(false) => session.plain_error(format_args!("slurm_update error: {}", Refusal::InvalidNode(String::new()))),
        Err(error) => session.denied("slurm_update error: ", &error, NOT_THEIRS),
    }
}
