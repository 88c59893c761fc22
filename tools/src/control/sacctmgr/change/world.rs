//! What `sacctmgr` needs of the world: the service, the one who types, and two ways out.

use crate::output;
use garrick_accounts::{
    change::{Applied, Change, ChangeRefusal},
    messages::{AccountsReply, AccountsRequest},
    records::{RecordsReply, RecordsRequest},
};
use garrick_asking::{
    accounting::{Accounts, AccountsError},
    accounts::User,
    cluster::ClusterError,
};
use garrick_model::entities::Entities;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr},
};
use std::{
    io::{self, Read as _},
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

/// How long a question waits (sacctmgr(1) says it where it asks).
const PATIENCE: Duration = Duration::from_secs(30);

/// What was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Typed(u8),
    /// Nothing in time.
    Nothing,
    /// There is nothing to read from, and why.
    End(String),
}

/// What a change came to.
pub type Changed = Result<(Applied, u64), ChangeRefusal>;

/// The service, the one who types, and two ways out.
pub trait World {
    /// All entities.
    fn entities(&mut self) -> Result<Entities, AccountsError>;
    /// Changes them, or says what would be done.
    fn change(&mut self, change: &Change, version: Option<u64>, only_try: bool) -> Result<Changed, AccountsError>;
    /// Changes records.
    fn records(&mut self, request: &RecordsRequest) -> Result<RecordsReply, AccountsError>;
    /// The cluster that is here.
    fn cluster(&self) -> String;
    /// The user's number on this host.
    fn uid(&self, user: &str) -> Option<u32>;
    /// To standard output.
    fn out(&mut self, text: &str);
    /// To standard error.
    fn err(&mut self, text: &str);
    /// One character.
    fn key(&mut self) -> Key;
    /// The text of a file.
    fn read(&mut self, path: &str) -> io::Result<String>;
}

/// The cluster that the command asks.
pub struct Live<'a> {
    accounts: &'a mut Accounts,
    written: io::Result<()>,
}

impl<'a> Live<'a> {
    /// Over a connection.
    pub const fn new(accounts: &'a mut Accounts) -> Self {
        Self { accounts, written: Ok(()) }
    }

    /// Whether everything could be written.
    pub fn written(self) -> io::Result<()> {
        self.written
    }
}

impl World for Live<'_> {
    fn entities(&mut self) -> Result<Entities, AccountsError> {
        self.accounts.entities()
    }

    fn change(&mut self, change: &Change, version: Option<u64>, only_try: bool) -> Result<Changed, AccountsError> {
        let request = AccountsRequest::Change { change: Box::new(change.clone()), version, only_try };
        match self.accounts.ask(&request)? {
            AccountsReply::Changed { applied, version } => Ok(Ok((applied, version))),
            AccountsReply::NotChanged(refusal) => Ok(Err(refusal)),
            _ => Err(ClusterError::Unexpected("accounts").into()),
        }
    }

    fn records(&mut self, request: &RecordsRequest) -> Result<RecordsReply, AccountsError> {
        match self.accounts.ask(&AccountsRequest::Records(request.clone()))? {
            AccountsReply::Records(reply) => Ok(reply),
            _ => Err(ClusterError::Unexpected("accounts").into()),
        }
    }

    fn cluster(&self) -> String {
        self.accounts.cluster().name().to_owned()
    }

    fn uid(&self, user: &str) -> Option<u32> {
        User::by_number_or_name(user).map(|user| user.uid)
    }

    fn out(&mut self, text: &str) {
        let written = output::stdout(|out| {
            out.write_all(text.as_bytes())?;
            out.flush()
        });
        if self.written.is_ok() {
            self.written = written;
        }
    }

    fn err(&mut self, text: &str) {
        output::stderr(text.as_bytes());
    }

    fn key(&mut self) -> Key {
        let stdin = io::stdin();
        let before = one_by_one(&stdin);
        let key = read_key(&stdin, before.as_ref().err().copied());
        if let Ok(before) = before {
            // The terminal was there a moment ago. If it is gone, nobody misses its settings.
            let _ = tcsetattr(&stdin, SetArg::TCSANOW, &before);
        }
        key
    }

    fn read(&mut self, path: &str) -> io::Result<String> {
        const LONGEST: u64 = 64 << 20;
        let mut text = String::new();
        std::fs::File::open(path)?.take(LONGEST + 1).read_to_string(&mut text)?;
        if text.len() as u64 > LONGEST { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
    }
}

/// A terminal gives characters as they are typed, not lines. Gives the settings that it had.
fn one_by_one(stdin: &io::Stdin) -> nix::Result<Termios> {
    let before = tcgetattr(stdin)?;
    let mut now = before.clone();
    now.local_flags.remove(LocalFlags::ICANON);
    tcsetattr(stdin, SetArg::TCSANOW, &now)?;
    Ok(before)
}

fn read_key(stdin: &io::Stdin, no_terminal: Option<Errno>) -> Key {
    let until = Instant::now() + PATIENCE;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
            Err(Errno::EINTR) => {}
            Ok(0) => return Key::Nothing,
            Err(errno) => return Key::End(errno.desc().to_owned()),
            Ok(_) => break,
        }
    }
    // Not through the buffer of the standard library: what is behind the character stays for who reads next.
    let mut byte = [0];
    match nix::unistd::read(stdin, &mut byte) {
        Ok(1) => Key::Typed(byte[0]),
        Ok(_) => Key::End(no_terminal.map_or("end of input", Errno::desc).to_owned()),
        Err(errno) => Key::End(errno.desc().to_owned()),
    }
}
