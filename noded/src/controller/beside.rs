//! What the controller keeps beside its log: the authority's keys and register, keys of credentials, join tokens. They are files
//! in the state folder and not in the log because they are secret. An event ([`ControllerEvent::Beside`]) names the valid version
//! of each; docs/log.md says how another controller would use that.
//!
//! | | on disk | in the log |
//! |---|---|---|
//! | 1 | the new version, as `beside/DIGEST`; for a deletion, `beside/gone.NAME` | the old one |
//! | 2 | | the new one |
//! | 3 | the new version in its place, `beside` empty | |
//!
//! After a crash before 2, the next start removes the new version, about which nobody was told. After a crash after 2, the next
//! start finishes the change. Any other difference was made by hand: the start reports it and ends.

use garrick_actors::log::{AppendError, Log};
use garrick_events::{
    beside::{self, Piece, Pieces},
    event::ControllerEvent,
};
use garrick_kernel::files::{self, FileError};
use garrick_runtime::ReplyTo;
use garrick_transport::{
    IdentityError,
    identity::{Change, Keep, KeepError, fingerprint, hex},
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, mpsc::channel},
    time::Duration,
};

/// New versions, until they are in their places.
const FOLDER: &str = "beside";

/// All pieces, and their permission bits.
const PIECES: [(&str, u32); 8] = [
    ("ca/ca.pem", 0o600),
    ("ca/next.pem", 0o600),
    ("ca/previous.pem", 0o600),
    ("ca/ca.crt", 0o644),
    ("ca/issued", 0o600),
    ("ca/join-tokens", 0o600),
    ("credential.key", 0o600),
    ("reset.key", 0o600),
];

/// The log answers within this, or nobody knows what came of a change.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is beside the log is not as the log says, or could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum BesideError {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The log.
    #[error("what is kept beside the log: {0}")]
    Log(#[from] AppendError),
    /// The log did not answer.
    #[error("what is kept beside the log: the log did not answer within {} s", PATIENCE.as_secs())]
    Unanswered,
    /// A file that no piece is.
    #[error("{} is no piece beside the log", .0.display())]
    Unknown(PathBuf),
    /// Pieces are not as the log says.
    #[error(
        "{said}; put back what the log names (StateSaveLocation as a whole, from one copy), or start once with -i to go by what is there"
    )]
    Differs {
        /// Which, and how.
        said: String,
    },
}

/// See the module.
pub struct Beside {
    state: PathBuf,
    log: Arc<dyn Log>,
    one_at_a_time: Mutex<()>,
}

fn digest_of(bytes: &[u8]) -> String {
    hex(&fingerprint(bytes))
}

fn piece_of(bytes: &[u8]) -> Piece {
    Piece { digest: digest_of(bytes), bytes: bytes.len() as u64 }
}

fn event(name: &str, piece: Option<Piece>) -> ControllerEvent {
    ControllerEvent::Beside { name: name.to_owned(), piece }
}

/// One that is not there is no error.
fn remove(path: &Path) -> Result<(), BesideError> {
    match fs::remove_file(path) {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
            Err(FileError { operation: "remove", path: path.to_owned(), cause }.into())
        }
        _ => Ok(()),
    }
}

fn mode_of(name: &str) -> Option<u32> {
    PIECES.iter().find(|(known, _)| *known == name).map(|(_, mode)| *mode)
}

impl Beside {
    /// Finishes what a crash interrupted, and compares what is there with what the log names. What differs is an error, unless `by_what_is_there`:
    /// then the log is told of that.
    pub fn open(state: &Path, log: Arc<dyn Log>, by_what_is_there: bool) -> Result<Self, BesideError> {
        let opened = Self { state: state.to_owned(), log, one_at_a_time: Mutex::default() };
        opened.finish()?;
        let (named, found) = (opened.named(), opened.found()?);
        let wrong = beside::compare(&named, &found).wrong;
        if wrong.is_empty() {
            return Ok(opened);
        }
        let said = wrong.iter().map(|(name, wrong)| format!("{}: {wrong}", state.join(name).display()));
        let said = said.collect::<Vec<_>>().join("; ");
        if !by_what_is_there {
            return Err(BesideError::Differs { said });
        }
        tracing::error!("started with -i, the log goes by what is there: {said}");
        let told = beside::as_found(&named, &found);
        opened.append(told.into_iter().map(|(name, piece)| event(&name, piece)).collect())?;
        Ok(opened)
    }

    /// Tells the log of what it does not know yet: what an earlier version left, and what this start has made, also in the place of
    /// what the log named. To be called before anything else is changed: [`Self::open`] has seen that all the rest is as the log says.
    pub fn record(&self) -> Result<(), BesideError> {
        let mut new = beside::as_found(&self.named(), &self.found()?);
        // Nothing that a start does takes a piece away: the next one is to say so.
        new.retain(|_, piece| piece.is_some());
        if new.is_empty() {
            return Ok(());
        }
        tracing::info!(pieces = ?new.keys().collect::<Vec<_>>(), "the log names from now on what is kept beside it");
        self.append(new.into_iter().map(|(name, piece)| event(&name, piece)).collect())
    }

    /// What the log names.
    pub fn named(&self) -> Pieces {
        self.log.value().beside()
    }

    /// What is in a piece, if that is the version that the log names.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, BesideError> {
        let Some(named) = self.named().remove(name) else { return Ok(None) };
        let bytes = files::read_if_there(&self.state.join(name))?;
        Ok(bytes.filter(|bytes| piece_of(bytes) == named))
    }

    fn found(&self) -> Result<Pieces, BesideError> {
        let mut found = Pieces::new();
        for (name, _) in PIECES {
            if let Some(bytes) = files::read_if_there(&self.state.join(name))? {
                found.insert(name.to_owned(), piece_of(&bytes));
            }
        }
        Ok(found)
    }

    fn version(&self, digest: &str) -> PathBuf {
        self.state.join(FOLDER).join(digest)
    }

    /// Files of changes that are under way.
    fn under_way(&self) -> Result<Vec<PathBuf>, BesideError> {
        let folder = self.state.join(FOLDER);
        let failed = |cause| FileError { operation: "list", path: folder.clone(), cause };
        if !folder.exists() {
            return Ok(Vec::new());
        }
        let entries = fs::read_dir(&folder).map_err(failed)?;
        Ok(entries.map(|entry| Ok(entry.map_err(failed)?.path())).collect::<Result<_, FileError>>()?)
    }

    /// What the log names and is not in its place yet is put there.
    fn complete(&self) -> Result<(), BesideError> {
        let (named, found) = (self.named(), self.found()?);
        for (name, piece) in named.iter().filter(|(name, piece)| found.get(*name) != Some(piece)) {
            if files::read_if_there(&self.version(&piece.digest))?.is_some_and(|bytes| piece_of(&bytes) == *piece) {
                tracing::warn!(name, "a change of what is beside the log was interrupted, and is finished");
                self.place(name, &piece.digest)?;
            }
        }
        for (name, _) in PIECES.iter().filter(|(name, _)| !named.contains_key(*name)) {
            if self.mark_of(name).exists() {
                self.take_away(name)?;
            }
        }
        Ok(())
    }

    /// For a start: what the log does not name after all that it holds was never told to anybody.
    fn finish(&self) -> Result<(), BesideError> {
        if self.under_way()?.is_empty() {
            return Ok(());
        }
        self.complete()?;
        for path in self.under_way()? {
            tracing::warn!(file = %path.display(), "a change of what is beside the log of which nobody was told is given up");
            remove(&path)?;
        }
        Ok(())
    }

    fn place(&self, name: &str, digest: &str) -> Result<(), BesideError> {
        // Whichever of the two names it has after a crash, the next start finds it.
        Ok(files::move_to(&self.version(digest), &self.state.join(name), mode_of(name).unwrap_or(0o600))?)
    }

    /// Stands while a piece that is to go may still be there.
    fn mark_of(&self, name: &str) -> PathBuf {
        self.version(&format!("gone.{}", name.replace('/', ".")))
    }

    fn take_away(&self, name: &str) -> Result<(), BesideError> {
        let path = self.state.join(name);
        remove(&path)?;
        files::sync_folder(path.parent().unwrap_or(&self.state))?;
        remove(&self.mark_of(name))
    }

    fn append(&self, events: Vec<ControllerEvent>) -> Result<(), BesideError> {
        let (tell, told) = channel();
        // Nobody listens any more once it took too long.
        self.log.offer(events, ReplyTo::calling(move |answer| drop(tell.send(answer))));
        match told.recv_timeout(PATIENCE) {
            Ok(Ok(answer)) => Ok(answer.map(drop)?),
            Ok(Err(error)) => Err(AppendError::Failed(error.to_string()).into()),
            Err(_) => Err(BesideError::Unanswered),
        }
    }

    fn change(&self, changes: &BTreeMap<String, Option<Vec<u8>>>) -> Result<(), BesideError> {
        let _one_at_a_time = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        files::keep_folder(&self.state.join(FOLDER), 0o700)?;
        let under_way = self.under_way()?;
        if !under_way.is_empty() {
            // One whose answer came too late, or that could not be put in its place. What the log does not name of them it may yet.
            self.complete()?;
        }
        let named = self.named();
        let (mut events, mut to_place, mut to_take_away) = (Vec::new(), Vec::new(), Vec::new());
        for (name, bytes) in changes {
            let piece = bytes.as_deref().map(piece_of);
            if named.get(name) == piece.as_ref() {
                continue;
            }
            match (&piece, bytes) {
                (Some(piece), Some(bytes)) => {
                    let mode = mode_of(name).unwrap_or(0o600);
                    files::write_atomically(&self.version(&piece.digest), bytes, mode)?;
                    to_place.push((name, piece.digest.clone()));
                }
                _ => {
                    files::write_atomically(&self.mark_of(name), b"", 0o600)?;
                    to_take_away.push(name);
                }
            }
            events.push(event(name, piece));
        }
        if events.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.append(events) {
            // Where nobody knows what came of it, the next start does.
            if matches!(&error, BesideError::Log(why) if why.retry_after().is_some()) {
                let marks = to_take_away.iter().map(|name| self.mark_of(name));
                let versions = to_place.iter().map(|(_, digest)| self.version(digest));
                // Left there, the next start does that.
                let _ =
                    versions.chain(marks).filter(|path| !under_way.contains(path)).try_for_each(|path| remove(&path));
            }
            return Err(error);
        }
        for name in to_take_away {
            self.take_away(name)?;
        }
        to_place.into_iter().try_for_each(|(name, digest)| self.place(name, &digest))
    }
}

impl Keep for Beside {
    fn keep(&self, changes: Vec<Change>) -> Result<(), IdentityError> {
        let mut by_name = BTreeMap::new();
        for Change { path, bytes, .. } in changes {
            let name =
                path.strip_prefix(&self.state).ok().and_then(Path::to_str).filter(|name| mode_of(name).is_some());
            let Some(name) = name else {
                return Err(KeepError::Failed(BesideError::Unknown(path).to_string()).into());
            };
            by_name.insert(name.to_owned(), bytes);
        }
        self.change(&by_name).map_err(|error| {
            let later = match &error {
                BesideError::Log(why) => why.retry_after(),
                _ => None,
            };
            later.map_or_else(|| KeepError::Failed(error.to_string()), |after| KeepError::Later { after }).into()
        })
    }
}
