//! The daemons `noded` and `stepd`: wiring actors to a machine.
//!
//! | module | what it is |
//! |---|---|
//! | [`kernel`] | every kernel call and every `unsafe` block of the daemons |
//! | [`launcher`] | the keyless process that runs as the job's user, spawns its tasks and reaps them |

pub mod kernel;
pub mod launcher;
