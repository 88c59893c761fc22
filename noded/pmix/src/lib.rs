//! PMIx for the tasks of a step (`srun --mpi=pmix`). The site's `libpmix` does the work; what is here connects it to the step.
//!
//! | module | what it does |
//! |---|---|
//! | `pmi` | how a task or the server speaks with its node: PMI, version 2, with a few messages more |
//! | `join` | what a task does before its program begins |
//! | `server` | the process of each node that the tasks there connect to |
//! | `modex` | how what the tasks of a node tell travels to the other nodes |
//! | `job` | the step as PMIx wants to have it described |
//! | `library` | `libpmix`, loaded at run time: the only unsafe code here |
//!
//! The first task of a node starts the server, as its user and in the step's cgroup. The server describes the step to `libpmix`,
//! tells each task its variables, and then serves the library: a fence goes over the node's shepherd to all nodes, and a task's
//! start and end of its MPI program are reported there. It ends when the shepherd closes its socket, at the end of the step.

mod job;
mod join;
mod library;
mod modex;
mod pmi;
mod server;

pub use join::join;
pub use server::main as serve;

/// Why a task cannot use PMIx.
#[derive(Debug, thiserror::Error)]
pub enum PmixError {
    /// The library is not there.
    #[error("{name} cannot be loaded: {why}; install it (Debian: libpmix2) on every node, or use --mpi=pmi2 or none")]
    NoLibrary {
        /// Its file.
        name: String,
        /// What the loader says.
        why: String,
    },
    /// A call of the library failed.
    #[error("{call}: {text} ({status})")]
    Call {
        /// Which.
        call: &'static str,
        /// The library's text.
        text: String,
        /// The library's number.
        status: i32,
    },
    /// The node does not answer, or refuses.
    #[error("the step's node: {0}")]
    Node(String),
    /// A variable of the step is missing or is no number.
    #[error("{0} is not as the step set it")]
    Variable(&'static str),
    /// The server.
    #[error("{0}")]
    Server(String),
    /// A system call.
    #[error("{call}: {cause}")]
    System {
        /// Which.
        call: &'static str,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
}

impl PmixError {
    fn system<E: Into<std::io::Error>>(call: &'static str) -> impl FnOnce(E) -> Self {
        move |cause| Self::System { call, cause: cause.into() }
    }
}

/// A variable of the task's environment that is a number.
fn number(name: &'static str) -> Result<u32, PmixError> {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).ok_or(PmixError::Variable(name))
}

/// The key under which the server tells the task of a rank its variables.
fn variables_key(rank: u32) -> String {
    format!("pmix-variables-{rank}")
}
