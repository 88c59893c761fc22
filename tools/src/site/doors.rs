//! Asks one daemon at its own door: commands use any door of the cluster, but starting, listing and ending daemons needs the
//! answer of a particular one.

use garrick_asking::cluster::{self, Cluster};
use garrick_frame::{DoorClient, LinkKind};
use garrick_model::messages::command::{CommandReply, CommandRequest};
use std::path::Path;

/// Asks the daemon at that door. `None` when no trusted daemon answers. With the answer comes the daemon's pid.
pub fn ask(door: &Path, request: &CommandRequest) -> Option<(u32, CommandReply)> {
    let mut client = connect(door)?;
    client.send(request).ok()?;
    Some((u32::try_from(client.peer().pid).ok()?, client.recv().ok()?))
}

fn connect(door: &Path) -> Option<DoorClient> {
    let own = nix::unistd::geteuid().as_raw();
    let greeting = cluster::greeting("garrick");
    let client = DoorClient::connect(door, LinkKind::CommandToDaemon, &greeting, Some(cluster::ANSWER_TIMEOUT)).ok()?;
    let trusted = [0, own].contains(&client.peer().uid);
    trusted.then_some(client)
}

/// Pid of the daemon that serves at a door of this file name, if one does. It is only greeted, not asked anything: a node
/// whose controller is away could not answer at once, but it serves.
pub fn serving(cluster: &Cluster, name: &str) -> Option<u32> {
    cluster
        .doors()
        .iter()
        .filter(|path| path.file_name().is_some_and(|n| n == name))
        .find_map(|path| connect(path).and_then(|mut client| client.greet_only().ok().map(|()| client)))
        .and_then(|client| u32::try_from(client.peer().pid).ok())
}
