//! `scontrol power`, `reboot` and `cancel_reboot`. Without programs of the site's for it there is nothing that could be done, and
//! that is told in Slurm's words.

use super::{NOT_THEIRS, Session, too_few, too_many};
use garrick_asking::contact;
use garrick_model::{
    hostlist,
    messages::command::{CommandRequest, NodeChange, NodeStateChange, RebootOrder},
    state::NodeBase,
    view::AfterReboot,
};
use std::collections::HashMap;

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

/// What `reboot` asks for.
struct RebootAsked<'w> {
    nodes: &'w str,
    order: RebootOrder,
    reason: Option<String>,
}

/// Reads `[asap] [force] [nextstate=resume|down] [reason=TEXT] [action=NAME] ALL|NODES`. The error is an exit code.
fn asked<'w>(session: &mut Session, words: &'w [String]) -> Result<RebootAsked<'w>, i32> {
    let (mut nodes, mut order, mut reason) = (None, RebootOrder::default(), None);
    for word in words {
        let pair = word.split_once('=').map(|(key, value)| (key.to_ascii_lowercase(), value));
        match pair.as_ref().map(|(key, value)| (key.as_str(), *value)) {
            Some(("nextstate", state)) => match state.to_ascii_lowercase().as_str() {
                "down" => order.next = Some(AfterReboot::Down),
                "resume" => order.next = Some(AfterReboot::Resume),
                _ => {
                    return Err(
                        session.plain_error(format_args!("Invalid state: {state}\n Valid states: DOWN, RESUME"))
                    );
                }
            },
            Some(("reason", text)) => reason = Some(text.to_owned()),
            Some(("action", _)) => return Err(session.not_supported("scontrol reboot action=")),
            Some(_) => return Err(session.plain_error(format_args!("Invalid option: {word}"))),
            None if word.eq_ignore_ascii_case("asap") => order.asap = true,
            None if word.eq_ignore_ascii_case("force") => return Err(session.not_supported("scontrol reboot FORCE")),
            None if nodes.is_none() => nodes = Some(word.as_str()),
            None => return Err(session.plain_error("Multiple node lists specified")),
        }
    }
    match nodes {
        Some(nodes) => Ok(RebootAsked { nodes, order, reason }),
        None => Err(session.unended_error("Missing node list. Specify ALL|<NodeList>")),
    }
}

/// `reboot [asap] [nextstate=resume|down] [reason=TEXT] ALL|NODES`
pub fn reboot(session: &mut Session, words: &[String]) -> i32 {
    const WHERE: &str = "scontrol_reboot_nodes error:";
    let RebootAsked { nodes, order, reason } = match asked(session, words) {
        Ok(asked) => asked,
        Err(code) => return code,
    };
    match session.setting("RebootProgram") {
        Ok(None) => {
            session.console.error("RebootProgram isn't defined");
            return session.plain_error(format_args!("{WHERE}Unspecified error"));
        }
        Ok(Some(_)) => {}
        Err(code) => return code,
    }
    if !session.is_admin() {
        return session.plain_error(format_args!("{WHERE}Permission denied"));
    }
    let known = session.cluster().and_then(contact::nodes);
    let known = match known {
        Ok(known) => known,
        Err(error) => return session.denied(WHERE, &error, "Permission denied"),
    };
    let names = if nodes.eq_ignore_ascii_case("all") {
        known.iter().map(|node| node.name.clone()).collect()
    } else {
        hostlist::expand(nodes).unwrap_or_default()
    };
    let by_name: HashMap<&str, _> = known.iter().map(|node| (node.name.as_str(), node)).collect();
    let named = |name: &String| by_name.get(name.as_str());
    if names.is_empty() || names.iter().any(|name| named(name).is_none()) {
        return session.plain_error(format_args!("{WHERE}Invalid node name specified"));
    }
    let rebooted = |name: &String| {
        named(name).is_some_and(|node| {
            let flags = node.flags;
            flags.reboot_requested || flags.reboot_issued || node.base == NodeBase::Future
        })
    };
    let (skipped, names): (Vec<String>, Vec<String>) = names.into_iter().partition(rebooted);
    if !skipped.is_empty() {
        let skipped = hostlist::fold(&skipped);
        session.console.error(format_args!("Skipping reboot of nodes {skipped} due to current node state."));
    }
    if names.is_empty() {
        return 0;
    }
    let change = NodeChange { reason, reboot: Some(order), ..NodeChange::default() };
    match session.cluster().and_then(|c| c.ask(&CommandRequest::UpdateNode { nodes: names, change })) {
        Ok(_) => 0,
        Err(error) => session.denied(WHERE, &error, "Permission denied"),
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
    let change = NodeChange { state: Some(NodeStateChange::CancelReboot), ..NodeChange::default() };
    let answer = session.cluster().and_then(|c| {
        let nodes = contact::named_nodes(c, &names)?;
        c.ask(&CommandRequest::UpdateNode { nodes, change })
    });
    match answer {
        Ok(_) => 0,
        Err(error) => session.denied("slurm_update error: ", &error, NOT_THEIRS),
    }
}
