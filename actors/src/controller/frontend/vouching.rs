//! For which users a node may speak. The frontend checks this before it serves a request that a node's daemon passes on.

use garrick_model::{
    config::Config,
    messages::command::{Caller, CommandRequest, NodeChange, NodeStateChange},
};

/// The caller for whom a node's request is served. The node says which user asks; the node's certificate says where that user is.
/// `administrator`: the named caller is one.
///
/// # Errors
///
/// The node may not speak for administrators (`SlurmctldParameters=admin_hosts=`), and the request changes something. The caller
/// is returned for the audit log.
pub fn vouched(
    config: &Config,
    node: &str,
    mut caller: Caller,
    administrator: bool,
    request: &CommandRequest,
) -> Result<Caller, Caller> {
    node.clone_into(&mut caller.host);
    if !administrator || takes_itself_out(request, node) || config.admin_host(node) {
        Ok(caller)
    } else if request.only_asks() {
        // Such a request is answered like that of an unprivileged user.
        Ok(caller.as_nobody())
    } else {
        Err(caller)
    }
}

/// Does a node ask to be drained, as health checks do?
pub fn takes_itself_out(request: &CommandRequest, node: &str) -> bool {
    use NodeStateChange::{Down, Drain, Fail};
    let CommandRequest::UpdateNode { nodes, change } = request else { return false };
    let only = NodeChange { state: change.state, reason: change.reason.clone(), ..NodeChange::default() };
    matches!(change.state, Some(Down | Drain | Fail)) && *change == only && matches!(&nodes[..], [one] if one == node)
}
