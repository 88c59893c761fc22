//! Requests of commands with hostile values, sent to a real daemon: [`make`] generates one from bytes, and [`answer`] sends it to
//! a door. `garrick-fuzz send DOOR` does both for the given lines, as the user that runs it.

use crate::forms;
use garrick_frame::{DoorClient, DoorError, LinkKind, decode_body, limits};
use garrick_model::{
    ids::RequestId,
    messages::command::{CommandReply, CommandRequest},
    refusal::Refusal,
};
use std::{path::Path, time::Duration};

/// Longest that an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request as bytes choose it, the variant first; `None` when a text in it is not what its field takes, when it is longer
/// than a frame, or when it would end the daemon or change what its log says.
pub fn make(choices: &[u8]) -> Option<CommandRequest> {
    let mut body = Vec::new();
    rmpv::encode::write_value(&mut body, &forms::of("CommandRequest")?.make(choices)).ok()?;
    if body.len() >= limits::DOOR {
        return None;
    }
    let mut request: CommandRequest = decode_body(&body).ok()?;
    match &mut request {
        CommandRequest::Shutdown { .. } | CommandRequest::SetLogLevel(_) | CommandRequest::ChangeLog { .. } => {
            return None;
        }
        // A repeated one would be answered with the first answer.
        CommandRequest::SubmitJob { request, .. } | CommandRequest::SubmitHetJob { request, .. } => {
            *request = RequestId::random();
        }
        _ => {}
    }
    Some(request)
}

/// Asks, and waits for the first answer where there is one at once. Returns its kind and the request's size.
///
/// # Errors
/// When the daemon does not answer, or not with an answer.
pub fn answer(door: &Path, request: &CommandRequest) -> Result<(String, usize), DoorError> {
    let bytes = rmp_serde::to_vec_named(request).map_or(0, |bytes| bytes.len());
    let mut client = DoorClient::connect(door, LinkKind::CommandToDaemon, "garrick-fuzz", Some(PATIENCE))?;
    client.send(request)?;
    match request {
        CommandRequest::WaitJob { .. } | CommandRequest::Watch { .. } | CommandRequest::Trace { .. } => {
            // What is asked later on the same connection is read later.
            let mut other = DoorClient::connect(door, LinkKind::CommandToDaemon, "garrick-fuzz", Some(PATIENCE))?;
            other.send(&CommandRequest::Ping)?;
            other.recv::<CommandReply>()?;
            Ok(("-".to_owned(), bytes))
        }
        _ => {
            let reply = client.recv::<CommandReply>()?;
            if let CommandReply::Refused(Refusal::Internal(said)) = &reply {
                return Ok((format!("Internal {said:.200}").replace('\n', " "), bytes));
            }
            let reply = format!("{reply:?}");
            let kind = reply.split([' ', '(', '{']).next().unwrap_or_default().to_owned();
            let refusal = reply.strip_prefix("Refused(").map(|rest| rest.split([' ', '(', '{', ')']).next());
            Ok((refusal.flatten().map_or(kind, ToOwned::to_owned), bytes))
        }
    }
}
