//! Scheduling: reads what owners publish, plans as a pure function, and proposes starts to the jobs' owners.
//!
//! | file | what it is |
//! |---|---|
//! | [`facts`] | the picture a plan is made from |
//! | [`request`] | what a job asks of a partition, in numbers |
//! | [`constraint`] | `-C` and `--prefer` expressions |
//! | [`extra`] | `--extra` requests |
//! | `sizes` | one of several numbers of nodes |
//! | `mixed` | nodes for an expression that is about nodes together |
//! | `binding` | which CPUs of a node go with which GPUs |
//! | [`caps`] | the most CPUs of a node that jobs of a partition have together |
//! | [`layout`] | what is asked of sockets, cores and threads |
//! | [`sockets`] | which CPUs of a node's sockets a job gets |
//! | [`free`] | what is free on a node, in amounts, and what fits into it |
//! | [`machine`] | free room now, to the single CPU |
//! | [`horizon`] | free room from now on, in amounts |
//! | [`select`] | which nodes, how many tasks on each |
//! | [`plan`] | who starts, and why the others do not |
//! | `kept`, `ledger` | a plan that is kept, and repaired when something changes |
//! | [`bounds`] | bounds of a plan that few sites set |
//! | [`obstacle`] | what stands in the way of those who wait |
//! | [`preempt`] | which running jobs give way to one that waits |
//! | [`resume`] | which runs that were suspended for others go on |
//! | [`turns`] | which of the jobs that share CPUs run, and which wait for their turn |
//! | [`qos`] | what is known of qualities of service |
//! | [`licenses`] | licenses from now on |
//! | [`reservations`] | advance reservations from now on |
//! | [`picture`] | a plan's picture, put together from what owners show |
//! | [`priority`] | priorities of several factors |
//! | [`topology`] | which nodes where there is a network topology |
//! | [`core`] | when plans are made, and who is told what |
//! | [`planning`] | the making of a plan, as the core has it done |
//! | [`messages`] | what the core is told and has done |
//! | [`shell`] | what that comes to in the controller |
//! | [`probe`] | could it ever run, when would it start |

mod binding;
pub mod bounds;
#[cfg(test)]
mod bounds_test;
pub mod caps;
#[cfg(test)]
mod caps_test;
pub mod constraint;
pub mod core;
#[cfg(test)]
mod core_reservations_test;
#[cfg(test)]
mod core_spec_test;
pub mod extra;
pub mod facts;
pub mod free;
pub mod horizon;
pub mod hres;
pub mod kept;
pub mod layout;
mod ledger;
pub mod licenses;
pub mod machine;
pub mod messages;
mod mixed;
pub mod obstacle;
pub mod picture;
pub mod plan;
pub mod planning;
pub mod preempt;
pub mod priority;
pub mod probe;
pub mod qos;
pub mod request;
pub mod reservations;
pub mod resume;
pub mod select;
pub mod shell;
mod sizes;
pub mod sockets;
pub mod topology;
pub mod turns;

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod gres_test;
#[cfg(test)]
mod het_test;
#[cfg(test)]
mod hres_test;
#[cfg(test)]
mod kept_test;
#[cfg(test)]
mod layout_test;
#[cfg(test)]
mod licenses_test;
#[cfg(test)]
mod memory_test;
#[cfg(test)]
mod mixed_test;
#[cfg(test)]
mod passes_test;
#[cfg(test)]
mod plan_test;
#[cfg(test)]
mod preempt_test;
#[cfg(test)]
mod priority_test;
#[cfg(test)]
mod reservations_test;
#[cfg(test)]
mod restricted_test;
#[cfg(test)]
mod resume_test;
#[cfg(test)]
mod site_test;
#[cfg(test)]
mod sizes_test;
#[cfg(test)]
mod time_min_test;
#[cfg(test)]
mod topology_test;
#[cfg(test)]
mod turns_test;
#[cfg(test)]
mod whole_test;
