//! What the frontend reads of others' state when it decides, without waiting.

use crate::{
    controller::shells::{entering::Entering, env::Boards},
    log::committed::Committed,
    messages::job::JobSite,
    roster::nodes::Roster,
    submission::users::UserDirectory,
};
use garrick_events::records::node::SavedNode;
use garrick_model::{config::Config, entities::Entities, ids::JobId, view::LicenseView};
use garrick_plan::{rules::priority, snapshot::accounting::Accounting};
use jiff::tz::TimeZone;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// What the frontend reads of others' state.
pub trait Sight: Send + Sync {
    /// Owners' views.
    fn boards(&self) -> &Boards;
    /// Saved state.
    fn committed(&self) -> &Committed;
    /// Jobs that are being saved.
    fn entering(&self) -> &Entering;
    /// The nodes that exist.
    fn roster(&self) -> Arc<Roster>;
    /// The configuration.
    fn config(&self) -> Arc<Config> {
        self.roster().config()
    }
    /// Licenses for display.
    fn license_views(&self) -> Vec<LicenseView>;
    /// How many there are, by name.
    fn license_totals(&self) -> BTreeMap<String, u32>;
    /// How priorities are calculated; `None`: not known yet, or not calculated.
    fn priority_rules(&self) -> Option<Arc<priority::Rules>>;
    /// What binds jobs of what accounting knows.
    fn accounting(&self) -> Accounting {
        Accounting::default()
    }
    /// Accounts, users and associations, as accounting knows them.
    fn entities(&self) -> Arc<Entities>;
    /// Settings for jobs.
    fn job_site(&self) -> Arc<JobSite>;
    /// The saved part of a node's state, as its owner has it.
    fn saved_node(&self, node: &str) -> Option<SavedNode>;
    /// Has a node an owner?
    fn has_owner(&self, node: &str) -> bool;
    /// The number of the open connection of a node's agent.
    fn link(&self, node: &str) -> Option<u64>;
    /// Users, as far as they are known.
    fn users(&self) -> &dyn UserDirectory;
    /// Users with all rights.
    fn administrators(&self) -> Vec<u32>;
    /// Does the site check requests about jobs itself?
    fn has_site_checks(&self) -> bool;
    /// Set if the log accepts nothing new: when to try again.
    fn log_refuses(&self) -> Option<Duration>;
    /// The id that the next job would get.
    fn next_job(&self) -> JobId;
    /// A number for a question to agents, never reused, not even by a later life of the frontend, since agents may answer late.
    fn next_query(&self) -> u64;
    /// This machine's time zone.
    fn zone(&self) -> TimeZone;
}
