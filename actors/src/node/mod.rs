//! The controller's record of one node and the owner of its free resources.
//!
//! | file | what it is |
//! |---|---|
//! | [`account`] | who holds what |
//! | [`core`] | decides: reservations, reports, links |
//! | [`settings`] | its settings, from the configuration |
//! | `service` | registration, silence, administrators |
//! | [`effects`] | what it causes |
//! | [`view`] | what others see |

pub mod account;
pub mod core;
pub mod effects;
mod service;
pub mod settings;
pub mod view;

#[cfg(test)]
pub(crate) mod core_test;
