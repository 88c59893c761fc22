//! The owner of one node's state and of its free resources.
//!
//! | file | what it is |
//! |---|---|
//! | [`account`] | which jobs hold what |
//! | [`core`] | decides: reservations, reports, connections |
//! | `power` | whether its machine is on |
//! | [`settings`] | its settings, from the configuration |
//! | `service` | registration, silence, administrators |
//! | `reboot` | reboots that administrators ask for |
//! | [`effects`] | effects |
//! | [`view`] | views |

pub mod account;
pub mod core;
pub mod effects;
mod power;
mod reboot;
mod service;
pub mod settings;
pub mod view;

#[cfg(test)]
pub(crate) mod core_test;
#[cfg(test)]
mod power_test;
#[cfg(test)]
mod reboot_test;
