//! The request to run a step, with descriptors that the tasks may have.

use garrick_frame::{DoorClient, DoorError};
use garrick_model::{ids::RequestId, messages::step::CommandToStepMgr, spec::StepSpec};
use std::{io, os::fd::AsFd as _};

/// Sends it, with those of descriptors 0, 1 and 2 that are named. What gets lost on the way (a relay passes none on) comes
/// back as not handed over; when they cannot be sent at all (too many of the user's are under way), the request goes without.
pub fn send(door: &mut DoorClient, spec: StepSpec, descriptors: [bool; 3]) -> Result<(), DoorError> {
    let (request, spec) = (RequestId::random(), Box::new(spec));
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let own = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    let fds: Vec<_> = own.into_iter().zip(descriptors).filter_map(|(fd, named)| named.then_some(fd)).collect();
    let launch = CommandToStepMgr::Launch { request, spec, descriptors };
    match (door.send_with_fds(&launch, &fds), launch) {
        (Err(DoorError::Descriptors { .. }), CommandToStepMgr::Launch { request, spec, .. }) => {
            door.send(&CommandToStepMgr::Launch { request, spec, descriptors: [false; 3] })
        }
        (result, _) => result,
    }
}
