//! Views of a node.

use super::core::NodeCore;
use garrick_model::view::NodeView;

/// The view of a node.
pub(super) fn of(core: &NodeCore) -> NodeView {
    let settings = &core.settings;
    NodeView {
        name: settings.name.clone(),
        index: settings.index,
        generation: core.generation,
        base: core.base(),
        flags: core.flags(),
        reason: core.retired.clone().or_else(|| core.saved.reason.clone()),
        shape: settings.shape.clone(),
        holds: core.account.holds().cloned().collect(),
        features: core.saved.features.clone().unwrap_or_else(|| settings.features.clone()),
        weight: core.saved.weight.unwrap_or(settings.weight),
        address: core.saved.address.clone().unwrap_or_else(|| settings.address.clone()),
        hostname: core.saved.hostname.clone().unwrap_or_else(|| settings.hostname.clone()),
        port: settings.port,
        registration: core.facts.clone(),
        load: core.load,
        last_busy: core.last_busy,
        suspend_time_secs: core.suspend_time_secs(),
        power_since: core.saved.power.filter(|_| !core.power().state.is_on()).map(|power| power.since),
        idle_since: core.idle_since(),
        comment: core.saved.comment.clone(),
        extra: core.saved.extra.clone(),
        resume_at: core.saved.resume_at,
        instance_id: core.saved.instance_id.clone(),
        instance_type: core.saved.instance_type.clone(),
        after_reboot: core.saved.reboot.and_then(|reboot| reboot.next),
    }
}
