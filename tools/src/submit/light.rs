//! What the light `srun` had begun when it became this command (`execve`): a connection on which a step was asked for.

use crate::{cluster::ANSWER_TIMEOUT, output};
use garrick_frame::DoorClient;
use garrick_model::{
    env_vars::{GARRICK_LIGHT, GARRICK_STEPD_DOOR},
    ids::RequestId,
    messages::step::{CommandToStepMgr, LightReply, StepMgrToCommand},
};
use std::{
    env,
    os::fd::{FromRawFd as _, OwnedFd, RawFd},
    path::Path,
};

/// A request that was made.
#[derive(Debug)]
pub struct Begun {
    door: DoorClient,
    request: RequestId,
    /// The step manager knows already who goes on.
    told: bool,
}

/// How it stands.
#[derive(Debug)]
pub enum Standing {
    /// To go on with.
    GoesOn(DoorClient, RequestId),
    /// The step is over, and all went well.
    Over,
    /// The step manager leaves it to this command: nothing was begun.
    Anew,
}

/// What was begun, if something was. To be called while there is one thread; the variable that tells of it is gone then.
pub fn begun() -> Option<Begun> {
    let state = env::var(GARRICK_LIGHT).ok()?;
    // SAFETY: nothing else reads or changes the environment now: there is one thread.
    unsafe { env::remove_var(GARRICK_LIGHT) };
    let (fd, request, told) = read(&state)?;
    let flags = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC);
    // SAFETY: the descriptor was left open for this process by the program that it was; where it is not open, nothing is
    // made of it.
    let socket = unsafe {
        let borrowed = std::os::fd::BorrowedFd::borrow_raw(fd);
        nix::fcntl::fcntl(borrowed, flags).ok()?;
        OwnedFd::from_raw_fd(fd)
    };
    let path = env::var_os(GARRICK_STEPD_DOOR).unwrap_or_default();
    let door = DoorClient::go_on(socket, Path::new(&path), Some(ANSWER_TIMEOUT)).ok()?;
    Some(Begun { door, request, told })
}

/// Descriptor, request, and whether the step manager was told: numbers in hexadecimal, each with a dot behind it.
fn read(state: &str) -> Option<(RawFd, RequestId, bool)> {
    let numbers: Vec<u64> = state
        .strip_suffix('.')?
        .split('.')
        .map(|number| u64::from_str_radix(number, 16).ok())
        .collect::<Option<_>>()?;
    let [fd, high, low, told] = numbers.as_slice() else { return None };
    let fd = RawFd::try_from(*fd).ok().filter(|fd| *fd > 2)?;
    Some((fd, RequestId(*high, *low), *told != 0))
}

impl Begun {
    /// Tells the step manager that the whole command is here, and hears how the step stands. A connection that is lost is
    /// found so by whoever goes on with it.
    pub fn standing(mut self) -> Standing {
        if !self.told && self.door.send(&CommandToStepMgr::TakeOver).is_ok() {
            loop {
                match self.door.recv() {
                    Ok(StepMgrToCommand::Light(LightReply::Say(text))) => output::stderr(text.as_bytes()),
                    Ok(StepMgrToCommand::Light(LightReply::Done)) => return Standing::Over,
                    Ok(StepMgrToCommand::Light(LightReply::Whole)) => return Standing::Anew,
                    Ok(_) | Err(_) => break,
                }
            }
        }
        Standing::GoesOn(self.door, self.request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_begun_is_read_as_it_was_written() {
        assert_eq!(read("0000000000000004.00000000000000ff.0000000000000001.1."), Some((4, RequestId(255, 1), true)));
        assert_eq!(read("5.1.2.0."), Some((5, RequestId(1, 2), false)));
        for text in ["", "5.1.2.0", "2.1.2.0.", "5.1.2.", "5.1.2.0.0.", "x.1.2.0.", "ffffffffff.1.2.0."] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
