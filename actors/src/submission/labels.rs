//! MCS labels of jobs: a job's label is decided when it is submitted, and again when its label or its account is changed. Part of
//! admission.

use super::admission::{Purpose, Submitter};
use garrick_model::{
    config::{Config, Labelled, McsPlugin},
    refusal::Refusal,
    spec::JobSpec,
};

/// The label of a job that is judged, and how it shares its nodes because of it. Whoever changes the label: the job's owner must
/// be allowed to have it.
pub fn give(config: &Config, by: &Submitter<'_>, spec: &mut JobSpec, purpose: &Purpose<'_>) -> Result<(), Refusal> {
    let named = purpose.asks(spec, |spec| &spec.mcs_label);
    let by_account = config.mcs.plugin == McsPlugin::Account && purpose.asks(spec, |spec| &spec.account);
    if !named && !by_account {
        return Ok(());
    }
    let account = spec.account.as_deref().filter(|name| !name.is_empty());
    let asked = match &spec.mcs_label {
        // The label follows the account.
        Some(_) if !named => account,
        label => label.as_deref(),
    };
    let known = by.user.as_ref();
    let number = by.caller.uid.to_string();
    let others = known.iter().flat_map(|user| &user.groups).map(|(_, name)| name);
    let mut groups: Vec<String> = by.group.iter().cloned().collect();
    groups.extend(others.filter(|name| by.group.as_ref() != Some(name)).cloned());
    let of = Labelled { user: known.map_or(&number, |user| &user.name), groups: &groups, account };
    let label = config.mcs.label(asked, of).ok_or_else(|| Refusal::InvalidMcsLabel(asked.map(str::to_owned)))?;
    spec.sharing = config.mcs.sharing(spec.sharing, label.is_some());
    spec.mcs_label = label;
    Ok(())
}
