//! A writer of a file as its `stepd` sees it: a process of the job's user, at the other end of two pipes.

use crate::{
    launcher,
    shepherd_port::ShepherdPlace,
    streams::{self, Watched},
};
use garrick_frame::{Decoder, codec::PREFIX, encode, limits};
use garrick_kernel::{
    cgroup::Entry,
    reap,
    spawn::{self, KillOnDrop, Session, SpawnSpec, Spawned, cstring},
};
use garrick_model::messages::files::{FileOrder, WriterSays};
use serde::Serialize;
use std::{
    borrow::Cow,
    fs::File,
    io,
    os::fd::{AsFd as _, OwnedFd},
    rc::Rc,
    time::Duration,
};

/// For a writer whose input ended to take away what it wrote.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Most bytes of what a writer says.
const MOST_SAID: usize = PREFIX + limits::CONTROL;

/// Why a writer cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum WritingError {
    /// Its cgroup.
    #[error("its cgroup: {0}")]
    Cgroup(#[from] garrick_kernel::cgroup::CgroupError),
    /// Its pipes, or its arguments.
    #[error("its pipes: {0}")]
    Pipes(#[from] io::Error),
    /// Its process.
    #[error(transparent)]
    Spawn(#[from] spawn::SpawnError),
    /// What it is told.
    #[error(transparent)]
    Frame(#[from] garrick_frame::FrameError),
}

impl WritingError {
    /// The system's error number, or 0.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Pipes(e) => e.raw_os_error().unwrap_or(0),
            Self::Spawn(e) => e.errno(),
            Self::Cgroup(_) | Self::Frame(_) => 0,
        }
    }
}

/// A writer.
pub struct Writing {
    /// `None`: its input has ended.
    input: Option<Watched>,
    output: Watched,
    said: Decoder,
    process: Option<KillOnDrop>,
}

impl Writing {
    /// Starts one and tells it what file it is.
    pub async fn start(place: &ShepherdPlace, file: &FileOrder) -> Result<Self, WritingError> {
        let (its_input, input) = streams::pipe()?;
        let (output, its_output) = streams::pipe()?;
        let process = spawn_writer(place, &its_input, &its_output)?;
        let writing = Self {
            input: Some(streams::watched(input)?),
            output: streams::watched(output)?,
            said: Decoder::new(limits::CONTROL),
            process: Some(KillOnDrop::new(process)),
        };
        writing.put(file).await?;
        Ok(writing)
    }

    /// Hands it a message. One that it does not take any more, it says why.
    pub async fn put<T: Serialize>(&self, message: &T) -> Result<(), WritingError> {
        let frame = encode(message, limits::BULK)?;
        if let Some(input) = &self.input {
            streams::write_all(Rc::clone(input), &frame).await;
        }
        Ok(())
    }

    /// What it says next; that it failed where it says nothing any more.
    pub async fn says(&mut self) -> WriterSays {
        let silent = || WriterSays::Failed { operation: "its writer was killed".into(), errno: 0 };
        let mut taken = 0;
        loop {
            match self.said.next() {
                Ok(Some(says)) => return says,
                Ok(None) if taken <= MOST_SAID => {}
                Ok(None) | Err(_) => return silent(),
            }
            let bytes = streams::read_later(Rc::clone(&self.output)).await;
            if bytes.is_empty() {
                return silent();
            }
            taken += bytes.len();
            self.said.feed(&bytes);
        }
    }
}

impl Drop for Writing {
    /// It takes away what it wrote, unless it is done.
    fn drop(&mut self) {
        self.input = None;
        let Some(process) = self.process.take() else { return };
        actix_rt::spawn(async move {
            let ended = process.child().and_then(|child| child.pidfd.try_clone().ok()).map(reap::ended);
            if let Some(ended) = ended {
                // Whatever its end was, it has said it; one that does not end is killed.
                let _ = tokio::time::timeout(END_LIMIT, ended).await;
            }
            drop(process);
        });
    }
}

/// `/proc/self/exe` as `stepd write-file`. It is executed as root and takes the user's ids itself, see [`spawn`].
fn spawn_writer(place: &ShepherdPlace, input: &OwnedFd, output: &OwnedFd) -> Result<Spawned, WritingError> {
    let entry = match &place.cgroup {
        Some(cgroup) => Entry::from(cgroup.main().entries()?),
        None => Entry::default(),
    };
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let mut argv = vec![Cow::Borrowed(c"stepd"), Cow::Borrowed(c"write-file")];
    if let Some(user) = &place.user {
        argv.extend([Cow::Borrowed(c"--as"), Cow::Owned(cstring(launcher::identity_text(user))?)]);
    }
    let env: io::Result<Vec<_>> = place.marks.iter().map(|mark| cstring(mark).map(Cow::Owned)).collect();
    Ok(spawn::spawn(&SpawnSpec {
        programs: vec![c"/proc/self/exe".to_owned()],
        argv,
        env: env?,
        work_dir: Some(c"/".to_owned()),
        stdio: [Some(input.as_fd()), Some(output.as_fd()), Some(null.as_fd())],
        session: Session::OwnSession,
        umask: Some(0o022),
        cgroup_procs: entry.files.iter().map(OwnedFd::as_fd).collect(),
        ..SpawnSpec::default()
    })?)
}
