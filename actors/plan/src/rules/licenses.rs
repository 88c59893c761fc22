//! Licenses: a job that requests more than exist waits for them, whatever is free.

use crate::{
    room::licenses::LicensePlan,
    snapshot::{
        changes::{Fact, Reads},
        licenses::reason,
        request::Request,
    },
};
use garrick_model::state::Reason;

/// What the rule reads.
pub(crate) const READS: Reads =
    Reads::only(
        "licenses",
        |minds| {
            if minds.licenses { &[Fact::Licenses, Fact::LicensesHeld] } else { &[Fact::Licenses] }
        },
    );

/// Could the job get its licenses if no job held any?
pub(crate) fn gate(licenses: &mut LicensePlan, request: &Request) -> Result<(), Reason> {
    if licenses.is_possible(request.licenses.as_deref()) { Ok(()) } else { Err(reason()) }
}
