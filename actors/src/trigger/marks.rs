//! What happened to a node, from one view of it to the next.

use garrick_model::{state::NodeBase, trigger::TriggerEvent, view::NodeView};
use std::collections::BTreeSet;

fn is_down(node: &NodeView) -> bool {
    node.base == NodeBase::Down
}

const fn is_held_back(node: &NodeView) -> bool {
    node.flags.is_held_back()
}

const fn fails(node: &NodeView) -> bool {
    node.flags.fail
}

/// It drains and nothing is left on it, or something is.
fn drains(node: &NodeView, empty: bool) -> bool {
    node.flags.drain && node.holds.is_empty() == empty
}

/// It is in service, and nothing runs there. A machine that is off, silent or being rebooted is not.
pub fn is_idle(node: &NodeView) -> bool {
    let flags = node.flags;
    let serves = flags.power.is_on() && !flags.not_responding && !flags.reboot_issued && !flags.completing;
    node.base == NodeBase::Up && serves && !is_held_back(node) && node.holds.is_empty()
}

/// The events that lie between two views of a node.
pub fn between(before: &NodeView, after: &NodeView) -> BTreeSet<TriggerEvent> {
    let begins = |holds: fn(&NodeView) -> bool| holds(after) && !holds(before);
    let ends = |holds: fn(&NodeView) -> bool| holds(before) && !holds(after);
    let found = [
        (TriggerEvent::Down, begins(is_down)),
        (TriggerEvent::Up, ends(is_down)),
        (TriggerEvent::Drained, begins(|node| drains(node, true))),
        (TriggerEvent::Draining, begins(|node| drains(node, false))),
        (TriggerEvent::Fail, begins(fails)),
        (TriggerEvent::Resume, ends(is_held_back) && !is_down(after)),
    ];
    found.into_iter().filter(|(_, happened)| *happened).map(|(event, _)| event).collect()
}
