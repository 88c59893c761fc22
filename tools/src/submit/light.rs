//! Continues what the light `srun` had begun when it became this command (`execve`): a connection on which a step was requested.

use garrick_asking::cluster::ANSWER_TIMEOUT;
use garrick_frame::DoorClient;
use garrick_model::{
    env_vars::{GARRICK_LIGHT, GARRICK_STEPD_DOOR},
    ids::RequestId,
    messages::step::CommandToStepMgr,
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

/// What was begun, if something was. To be called while there is one thread; the variable that tells of it is gone then.
pub fn begun() -> Option<Begun> {
    let state = env::var(GARRICK_LIGHT).ok()?;
    // SAFETY: nothing else reads or changes the environment now: there is one thread.
    unsafe { env::remove_var(GARRICK_LIGHT) };
    let State { fd, request, told, welcomed } = read(&state)?;
    let flags = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC);
    // SAFETY: the descriptor was left open for this process by the program that it was; where it is not open, nothing is
    // made of it.
    let socket = unsafe {
        let borrowed = std::os::fd::BorrowedFd::borrow_raw(fd);
        nix::fcntl::fcntl(borrowed, flags).ok()?;
        OwnedFd::from_raw_fd(fd)
    };
    let path = env::var_os(GARRICK_STEPD_DOOR).unwrap_or_default();
    let door = DoorClient::go_on(socket, Path::new(&path), welcomed, Some(ANSWER_TIMEOUT)).ok()?;
    Some(Begun { door, request, told })
}

/// What the light form writes down.
#[derive(Debug, PartialEq, Eq)]
struct State {
    fd: RawFd,
    request: RequestId,
    /// The step manager knows already who goes on.
    told: bool,
    /// It has answered the greeting.
    welcomed: bool,
}

/// Numbers in hexadecimal, each with a dot behind it.
fn read(state: &str) -> Option<State> {
    let numbers: Vec<u64> = state
        .strip_suffix('.')?
        .split('.')
        .map(|number| u64::from_str_radix(number, 16).ok())
        .collect::<Option<_>>()?;
    let [fd, high, low, told, welcomed] = numbers.as_slice() else { return None };
    let fd = RawFd::try_from(*fd).ok().filter(|fd| *fd > 2)?;
    Some(State { fd, request: RequestId(*high, *low), told: *told != 0, welcomed: *welcomed != 0 })
}

impl Begun {
    /// Tells the step manager that the whole command is here. A connection that is lost is found so by whoever goes on with it.
    pub fn go_on(mut self) -> (DoorClient, RequestId) {
        if !self.told {
            let _ = self.door.send(&CommandToStepMgr::TakeOver);
        }
        (self.door, self.request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_begun_is_read_as_it_was_written() {
        let state = |fd, request, told, welcomed| Some(State { fd, request, told, welcomed });
        let written = "0000000000000004.00000000000000ff.0000000000000001.0000000000000001.0000000000000000.";
        assert_eq!(read(written), state(4, RequestId(255, 1), true, false));
        assert_eq!(read("5.1.2.0.1."), state(5, RequestId(1, 2), false, true));
        for text in ["", "5.1.2.0.0", "2.1.2.0.0.", "5.1.2.0.", "5.1.2.0.0.0.", "x.1.2.0.0.", "ffffffffff.1.2.0.0."] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
