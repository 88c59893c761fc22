//! The door of a `stepd`: commands of the job's user. On the batch host they talk to the step manager, and may hand over
//! descriptors with a step; elsewhere the bytes are relayed to it over the shepherd's link, without descriptors.

use super::{
    light::Kept,
    manager_port::{Clients, tell_manager},
};
use garrick_daemon::links::{RelayHeader, caller_of};
use garrick_frame::LinkKind;
use garrick_model::{
    ids::JobId,
    messages::{
        command::Caller,
        step::{CommandToStepMgr, StepMgrToCommand},
    },
};
use garrick_options::light::Asked;
use garrick_run::stepmgr::{StepMgrInput, StepMgrMsg};
use garrick_runtime::{Address, TraceContext};
use garrick_transport::{DoorConn, DoorListener, LinkHandle, Receiver, Sender};
use std::{cell::RefCell, rc::Rc};

/// Serves the step manager's door.
pub async fn serve_manager(
    mut listener: DoorListener,
    manager: Address<StepMgrMsg>,
    clients: Rc<Clients>,
    node: String,
) {
    loop {
        match listener.accept().await {
            Ok(conn) if conn.hello.link == LinkKind::CommandToStepMgr => {
                let caller = caller_of(&conn, &node);
                let (sender, receiver) = conn.split::<StepMgrToCommand, CommandToStepMgr>();
                let (manager, clients) = (manager.clone(), Rc::clone(&clients));
                actix_rt::spawn(converse(sender, receiver, caller, manager, clients));
            }
            Ok(conn) => {
                let other = conn.hello.link;
                conn.refuse(&format!("a step manager's door does not serve {other:?}"));
            }
            Err(e) => {
                tracing::error!(error = %e, "the door is broken");
                return;
            }
        }
    }
}

/// One conversation with the step manager, whatever it comes over.
pub async fn converse(
    sender: Sender<StepMgrToCommand>,
    mut receiver: Receiver<CommandToStepMgr>,
    caller: Caller,
    manager: Address<StepMgrMsg>,
    clients: Rc<Clients>,
) {
    let client = clients.open(sender);
    let uid = caller.uid;
    tell_manager(&manager, TraceContext::root(), StepMgrInput::ClientOpened { client, caller });
    loop {
        match receiver.recv().await {
            Ok(Some(message)) => {
                let cx = TraceContext { trace: message.trace, cause: message.cause };
                let cx = if cx.trace == 0 { TraceContext::root() } else { cx };
                let came = receiver.take_descriptors();
                let mut request = match message.msg {
                    CommandToStepMgr::FilePart(part) => {
                        clients.file_part(client, part).await;
                        continue;
                    }
                    other => other,
                };
                match &request {
                    CommandToStepMgr::LaunchLight(body) => match clients.asks.read(body, uid, came.len()) {
                        Some(Asked { request: id, spec, descriptors, quiet, warnings }) => {
                            clients.attend_lightly(client, Kept::new(clients.asks.job, quiet), &warnings);
                            request = CommandToStepMgr::Launch { request: id, spec: Box::new(spec), descriptors };
                        }
                        None => {
                            clients.needs_whole(client);
                            continue;
                        }
                    },
                    CommandToStepMgr::TakeOver => {
                        clients.take_over(client);
                        continue;
                    }
                    _ => {}
                }
                if let CommandToStepMgr::Launch { descriptors, .. } = &mut request {
                    clients.handed.keep(client, descriptors, came);
                }
                tell_manager(&manager, cx, StepMgrInput::Client { client, message: request });
            }
            Ok(None) => break,
            Err(e) => {
                tracing::debug!(error = %e, "a conversation with a command broke off");
                break;
            }
        }
    }
    clients.forget(client);
    tell_manager(&manager, TraceContext::root(), StepMgrInput::ClientClosed { client });
}

/// Serves the door of a `stepd` that hosts no step manager: each conversation becomes a bulk stream of the manager link.
pub async fn serve_relay(mut listener: DoorListener, link: Rc<RefCell<Option<LinkHandle>>>, job: JobId, node: String) {
    loop {
        match listener.accept().await {
            Ok(conn) if conn.hello.link == LinkKind::CommandToStepMgr => {
                let handle = link.borrow().clone();
                let header = RelayHeader { job, caller: caller_of(&conn, &node) };
                actix_rt::spawn(async move {
                    match handle {
                        Some(handle) => relay(conn, &handle, header).await,
                        None => conn.refuse("the job's step manager cannot be reached"),
                    }
                });
            }
            Ok(conn) => {
                let other = conn.hello.link;
                conn.refuse(&format!("a shepherd's door does not serve {other:?}"));
            }
            Err(e) => {
                tracing::error!(error = %e, "the door is broken");
                return;
            }
        }
    }
}

async fn relay(conn: DoorConn, link: &LinkHandle, header: RelayHeader) {
    match link.open_bulk(&header).await {
        Ok(bulk) => {
            if let Err(e) = garrick_transport::splice(conn, bulk).await {
                tracing::debug!(error = %e, "a relayed conversation broke off");
            }
        }
        Err(e) => conn.refuse(&format!("the job's step manager cannot be reached: {e}")),
    }
}
