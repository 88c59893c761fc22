//! What the frontend sees of others. It is looked at where the frontend decides, and never waited for.

use crate::{
    controller::shells::{entering::Entering, env::Boards},
    log::committed::Committed,
    messages::job::JobSite,
    roster::nodes::Roster,
    submission::{job_submit::JobSubmit, users::UserDirectory},
};
use garrick_events::records::node::SavedNode;
use garrick_model::{config::Config, ids::JobId, view::LicenseView};
use garrick_plan::rules::priority;
use jiff::tz::TimeZone;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// See the module.
pub trait Sight: Send + Sync {
    /// What owners show.
    fn boards(&self) -> &Boards;
    /// What is saved.
    fn committed(&self) -> &Committed;
    /// Jobs that are being saved.
    fn entering(&self) -> &Entering;
    /// Which nodes there are.
    fn roster(&self) -> Arc<Roster>;
    /// The configuration.
    fn config(&self) -> Arc<Config> {
        self.roster().config()
    }
    /// Licenses, as they are shown.
    fn license_views(&self) -> Vec<LicenseView>;
    /// How many there are, by name.
    fn license_totals(&self) -> BTreeMap<String, u32>;
    /// How priorities are calculated; `None`: that is not known yet, or they are not.
    fn priority_rules(&self) -> Option<Arc<priority::Rules>>;
    /// What holds for jobs.
    fn job_site(&self) -> Arc<JobSite>;
    /// What a node's owner has to save, as it has it.
    fn saved_node(&self, node: &str) -> Option<SavedNode>;
    /// Has a node an owner?
    fn has_owner(&self, node: &str) -> bool;
    /// The number of the open connection of a node's agent.
    fn link(&self, node: &str) -> Option<u64>;
    /// Users, as far as they are known.
    fn users(&self) -> &dyn UserDirectory;
    /// Users who may do everything.
    fn administrators(&self) -> Vec<u32>;
    /// The site's own word on requests.
    fn job_submit(&self) -> &dyn JobSubmit;
    /// Nothing new is to be begun, and may be after this.
    fn log_refuses(&self) -> Option<Duration>;
    /// The id that the next job would get.
    fn next_job(&self) -> JobId;
    /// A number for a question to agents, never used again: not by a later life of the frontend either, since agents may be late.
    fn next_query(&self) -> u64;
    /// This machine's time zone.
    fn zone(&self) -> TimeZone;
}
