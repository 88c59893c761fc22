//! The request to run a step, with descriptors for the tasks.

use garrick_frame::{DoorClient, DoorError};
use garrick_model::{ids::RequestId, messages::step::CommandToStepMgr, spec::StepSpec};
use std::{io, os::fd::AsFd as _};

/// A request that may be repeated.
#[derive(Debug)]
pub struct Launch {
    message: CommandToStepMgr,
    descriptors: [bool; 3],
}

impl Launch {
    /// To run this, with those of descriptors 0, 1 and 2 that are named.
    pub fn new(spec: StepSpec, descriptors: [bool; 3]) -> Self {
        Self::again(RequestId::random(), spec, descriptors)
    }

    /// One that was made before.
    pub fn again(request: RequestId, spec: StepSpec, descriptors: [bool; 3]) -> Self {
        let spec = Box::new(spec);
        Self { message: CommandToStepMgr::Launch { request, spec, descriptors }, descriptors }
    }

    /// Name of the step.
    pub fn name(&self) -> &str {
        match &self.message {
            CommandToStepMgr::Launch { spec, .. } => &spec.name,
            _ => "",
        }
    }

    /// Sends it. What gets lost on the way (a relay passes none on) comes back as not handed over; when descriptors cannot be
    /// sent at all (too many of the user's are under way), the request goes without.
    pub fn send(&self, door: &mut DoorClient) -> Result<(), DoorError> {
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        let own = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
        let named = own.into_iter().zip(self.descriptors);
        let fds: Vec<_> = named.filter_map(|(fd, named)| named.then_some(fd)).collect();
        match (door.send_with_fds(&self.message, &fds), &self.message) {
            (Err(DoorError::Descriptors { .. }), CommandToStepMgr::Launch { request, spec, .. }) => {
                let (request, spec) = (*request, spec.clone());
                door.send(&CommandToStepMgr::Launch { request, spec, descriptors: [false; 3] })
            }
            (result, _) => result,
        }
    }
}
