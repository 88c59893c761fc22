//! Files on their way to the nodes of a job (`sbcast`, `srun --bcast`).
//!
//! The command's parts come to the batch host's `stepd`. That one, and every other one that the file is for, hands them to a writer
//! of its own, and to a few `stepd`s below it in the tree; each of these does the same. No part is taken in before the last has gone
//! out to all of them, so that a slow node slows down the command and fills no memory. Nodes connect to each other for this: the
//! links to the step manager carry nothing of it.
//!
//! A writer is a process of the job's user, in the job's cgroup: which files may be written is for the kernel to say.
//!
//! | module | what it is |
//! |---|---|
//! | [`tree`] | who sends to whom |
//! | [`spread`] | one `stepd`'s part of it |
//! | [`branch`] | the way to another `stepd`, and what comes from one |
//! | [`writing`] | a writer as its `stepd` sees it |
//! | [`writer`] | the writer, `stepd write-file` |

pub mod branch;
pub mod spread;
pub mod tree;
pub mod writer;
pub mod writing;
