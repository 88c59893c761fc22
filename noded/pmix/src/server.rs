//! The process of each node that the tasks there connect to.

use crate::{
    PmixError,
    job::{Job, Meeting},
    join::{BETWEEN, ERROR},
    library::{FenceError, Library, Upcall},
    modex,
    pmi::Pmi,
    variables_key,
};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    unistd::{ForkResult, dup2_stdout, fork, getgid, getuid, mkdtemp},
};
use std::{
    fs::File,
    io::Write as _,
    os::fd::{AsFd as _, OwnedFd},
    path::PathBuf,
    sync::mpsc::{Receiver, channel},
};

/// The server of a node, until the step ends there. Its first output is what the node's first task is to know.
///
/// # Errors
/// Nothing can be served. The step is told to end.
pub fn main() -> Result<(), PmixError> {
    // SAFETY: this process has one thread.
    match unsafe { fork() }.map_err(PmixError::system("fork"))? {
        ForkResult::Parent { .. } => return Ok(()),
        ForkResult::Child => {}
    }
    let mut node = Pmi::begin()?;
    match started(&mut node) {
        Ok(server) => server.run(node),
        Err(why) => {
            let text = why.to_string();
            // First, since the task ends with what it is told.
            let _ = node.tell("abort", &[("msg", &text)]);
            print_and_leave(&format!("{ERROR}{text}"))?;
            Err(why)
        }
    }
}

/// What serves.
struct Server {
    job: Job,
    upcalls: Receiver<Upcall>,
    fences: u32,
}

/// A folder for the library's files, gone with this process.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, PmixError> {
        let within = |folder: PathBuf| mkdtemp(&folder.join("garrick-pmix-XXXXXX"));
        // `TMPDIR` may be that of the host from which the job was submitted.
        let made = within(std::env::temp_dir()).or_else(|_| within(PathBuf::from("/tmp")));
        made.map(Self).map_err(PmixError::system("mkdtemp"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn started(node: &mut Pmi) -> Result<Server, PmixError> {
    settle_environment();
    let job = Job::of_step(node)?;
    let library = Library::load()?;
    let (sender, upcalls) = channel();
    // With what is set above, the library keeps everything in memory once it has begun.
    let folder = Folder::new()?;
    library.begin(&job, &folder.0.to_string_lossy(), sender)?;
    library.register(&job, getuid().as_raw(), getgid().as_raw())?;
    for (at, rank) in job.own_ranks().iter().enumerate() {
        let text = library.variables(&job, *rank)?.join(&BETWEEN.to_string());
        if at == 0 {
            print_and_leave(&text)?;
        } else {
            node.ask("info-putnodeattr", &[("key", &variables_key(*rank)), ("value", &text)])?;
        }
    }
    Ok(Server { job, upcalls, fences: 0 })
}

/// Nothing of a PMIx around this one, and forms that pass as text and need no shared files.
fn settle_environment() {
    let foreign = |name: &str| name.starts_with("PMIX_") && !name.starts_with("PMIX_MCA_");
    let names: Vec<String> = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    for name in names.iter().filter(|name| foreign(name)) {
        // SAFETY: this process has one thread before the library is loaded.
        unsafe { std::env::remove_var(name) };
    }
    for (name, value) in [("PMIX_MCA_gds", "hash"), ("PMIX_MCA_preg", "^compress")] {
        // SAFETY: as above.
        unsafe { std::env::set_var(name, value) };
    }
}

/// Says what the first task is to know, which ends its wait.
fn print_and_leave(text: &str) -> Result<(), PmixError> {
    let mut output = std::io::stdout();
    let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    let nowhere = File::options().write(true).open("/dev/null").map_err(PmixError::system("/dev/null"))?;
    dup2_stdout(&nowhere).map_err(PmixError::system("dup2"))
}

impl Server {
    fn run(mut self, mut node: Pmi) -> Result<(), PmixError> {
        let watched = node.as_fd().try_clone_to_owned().map_err(PmixError::system("dup"))?;
        std::thread::spawn(move || leave_with(&watched));
        while let Ok(upcall) = self.upcalls.recv() {
            self.serve(upcall, &mut node);
        }
        Ok(())
    }

    fn serve(&mut self, upcall: Upcall, node: &mut Pmi) {
        let said = |node: &mut Pmi, command: &str, rank: u32| node.ask(command, &[("rank", &rank.to_string())]).is_ok();
        match upcall {
            Upcall::Began { rank, done } => done.finish(said(node, "begin", rank)),
            Upcall::Finished { rank, done } => done.finish(said(node, "finalize", rank)),
            Upcall::Aborted { rank, text } => {
                let _ = node.tell("abort", &[("rank", &rank.to_string()), ("msg", &text)]);
            }
            Upcall::Fence { ranks, told, done } => done.finish(self.fence(&ranks, told, node)),
        }
    }

    fn fence(&mut self, ranks: &[Option<u32>], told: Vec<u8>, node: &mut Pmi) -> Result<Vec<u8>, FenceError> {
        match self.job.meeting(ranks) {
            Some(Meeting::OfNode) => Ok(told),
            Some(Meeting::All) => {
                let (fence, nodes) = (self.fences, self.job.nodes.len() as u32);
                self.fences += 1;
                modex::exchange(node, fence, self.job.here as u32, nodes, &told).map_err(|_| FenceError::Failed)
            }
            None => Err(FenceError::NotSupported),
        }
    }
}

/// Ends this process when the node closes its socket: the step is over here.
fn leave_with(node: &OwnedFd) {
    loop {
        let mut watched = [PollFd::new(node.as_fd(), PollFlags::empty())];
        match poll(&mut watched, PollTimeout::NONE) {
            Err(nix::errno::Errno::EINTR) => {}
            _ => std::process::exit(0),
        }
    }
}
