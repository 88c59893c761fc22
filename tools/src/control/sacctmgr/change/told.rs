//! What `sacctmgr` tells of changes and refusals, in Slurm's words.

use super::{
    words::{Word, WordError},
    world::World,
};
use garrick_accounts::change::{Affected, AssocName, ChangeRefusal, active::ActiveJob};

pub const DENIED: &str = "Your user doesn't have privilege to perform this action";
const NOT_EVEN_COORDINATOR: &str = "Only admins/operators/coordinators can add accounts";
const FLAGS: &str = "DenyOnLimit,EnforceUsageThreshold,PartitionMinNodes,PartitionMaxNodes,PartitionTimeLimit,\
                     RequiresReservation,OverPartQOS,NoReserve,NoDecay,Relative,UsageFactorSafe";

/// An association that came or was changed. `parent`: of an account that was changed itself, the one above.
pub fn association(name: &AssocName, parent: Option<&str>) -> String {
    let AssocName { cluster, account, user, partition } = name;
    match (user, parent) {
        (None, Some("")) => format!("  C = {cluster:<10} A = {account}\n"),
        (None, Some(parent)) => format!("  C = {cluster:<10} A = {account} of {parent}\n"),
        (None, None) => format!("  C = {cluster:<10} A = {account:<20}\n"),
        (Some(user), _) => {
            let partition = partition.as_ref().map(|name| format!(" P = {name}")).unwrap_or_default();
            format!("  C = {cluster:<10} A = {account:<20} U = {user:<9}{partition}\n")
        }
    }
}

/// An association that is deleted, or stays a default.
pub fn narrow_association(name: &AssocName, cluster_width: usize) -> String {
    let AssocName { cluster, account, user, partition } = name;
    let user = user.as_ref().map(|user| format!(" U = {user:<9}")).unwrap_or_default();
    let partition = partition.as_ref().map(|name| format!(" P = {name}")).unwrap_or_default();
    format!("  C = {cluster:<cluster_width$} A = {account:<10}{user}{partition}\n")
}

/// All associations that were affected.
pub fn associations(affected: &[Affected]) -> String {
    let line = |one: &Affected| match one {
        Affected::Association { name, parent } => Some(association(name, parent.as_deref())),
        _ => None,
    };
    affected.iter().filter_map(line).collect()
}

/// Names of what was affected itself, a line each.
pub fn names(affected: &[Affected], of: fn(&Affected) -> Option<&String>) -> Vec<&str> {
    affected.iter().filter_map(of).map(String::as_str).collect()
}

/// Names, a line each.
pub fn lines(names: &[&str]) -> String {
    names.iter().map(|name| format!("  {name}\n")).collect()
}

pub fn user(one: &Affected) -> Option<&String> {
    if let Affected::User(name) = one { Some(name) } else { None }
}

pub fn account(one: &Affected) -> Option<&String> {
    if let Affected::Account(name) = one { Some(name) } else { None }
}

pub fn cluster(one: &Affected) -> Option<&String> {
    if let Affected::Cluster(name) = one { Some(name) } else { None }
}

pub fn federation(one: &Affected) -> Option<&String> {
    if let Affected::Federation(name) = one { Some(name) } else { None }
}

pub fn qos(one: &Affected) -> Option<&String> {
    if let Affected::Qos(name) = one { Some(name) } else { None }
}

/// Clusters on which past use was set to 0.
pub fn resets(affected: &[Affected]) -> Vec<&str> {
    affected
        .iter()
        .filter_map(|one| if let Affected::UsageReset { cluster } = one { Some(cluster.as_str()) } else { None })
        .collect()
}

/// `sacctmgr: error: ...`
pub fn library_error(world: &mut dyn World, text: &str) {
    world.err(&format!("sacctmgr: error: {text}\n"));
}

/// What the system says of an error, without its number.
pub fn plain(error: &std::io::Error) -> String {
    bare(&error.to_string())
}

/// The same of its text.
pub fn bare(text: &str) -> String {
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// A word that is not understood. `add qos` stops at errors of numbers instead of calling the word unknown.
pub fn word_error(world: &mut dyn World, word: &Word<'_>, error: &WordError) {
    let whole = word.whole;
    let unknown = |world: &mut dyn World| {
        world.err(&format!(" Unknown option: {whole}\n Use keyword 'where' to modify condition\n"));
    };
    match error {
        WordError::Unknown => unknown(world),
        WordError::Time(what) => world.err(&format!(" Bad {what} time format: {whole}\n")),
        WordError::Operator => {
            let sign = if whole.contains("+=") { "+=" } else { "-=" };
            world.err(&format!(" Invalid operator '{sign}' in {whole}\n"));
        }
        WordError::Flag(name) => {
            world.err(&format!(" Unknown QOS flag used in:\n  '{name}'\n Valid QOS flags are\n  '{FLAGS}'\n"));
        }
        WordError::PreemptMode => world.err(&format!(" Bad Preempt Mode given: {whole}\n")),
        WordError::NotYet => world.err(&format!("sacctmgr: error: {whole}: not supported yet\n")),
        WordError::RawUsage => library(world, error),
        _ => {
            library(world, error);
            unknown(world);
        }
    }
}

/// The part of an error that the library tells.
pub fn library(world: &mut dyn World, error: &WordError) {
    let text = match error {
        WordError::Number(what, value) => format!("Invalid value for {what} ({value})"),
        WordError::Factor(what, value) => format!("{what} value ({value}) is not a valid number"),
        WordError::Tres(text) => format!("slurmdb_format_tres_str: {text}"),
        WordError::Unit(unit) => format!("Invalid unit type '{unit}'. Possible options are 'KMGTP'"),
        WordError::Qos(name, there) => format!("You gave a bad qos '{name}'. Valid QOS's are {there}"),
        WordError::RawUsage => "Raw usage can only be set to 0 (zero)".to_owned(),
        _ => return,
    };
    library_error(world, &text);
}

/// A condition that there is not.
pub fn unknown_condition(world: &mut dyn World, word: &Word<'_>) {
    world.err(&format!(" Unknown condition: {}\n Use keyword 'set' to modify value\n", word.whole));
}

/// Why accounts or users were not added, in a line.
pub fn why_not_added(refusal: &ChangeRefusal) -> String {
    match refusal {
        ChangeRefusal::NotEvenCoordinator => NOT_EVEN_COORDINATOR.to_owned(),
        ChangeRefusal::Denied => DENIED.to_owned(),
        ChangeRefusal::NoParent { parent, cluster } => format!("No parent account '{parent}' on cluster '{cluster}'"),
        ChangeRefusal::NoCluster(name) => {
            format!("Cluster '{name}' has not been added yet, please contact your admin before adding accounts to it")
        }
        other => sentence(other),
    }
}

/// Refusals that `modify` and `delete` meet alike. `heading`: what was told before.
pub fn refused(world: &mut dyn World, refusal: &ChangeRefusal, heading: &str) {
    match refusal {
        ChangeRefusal::DefaultQos(which) => {
            library_error(world, "");
            let mut text = " These associations don't have access to their default qos.\n \
                            Please give them access before they the default can be set to this.\n"
                .to_owned();
            for (name, qos) in which {
                text += &format!("  DefQOS = {qos:<10} {}", association(name, None).trim_start());
            }
            let sentence = sentence(refusal);
            world.err(&format!("{text}\n Error with request: {sentence}\n"));
            world.out(heading);
        }
        ChangeRefusal::NotInAccount { account, users } => {
            world.out(heading);
            let what = format!("account '{account}'");
            world.out(&not_associated(&what, users));
        }
        ChangeRefusal::NotInWcKey { wckey, users, denied } => {
            world.out(heading);
            if *denied {
                library_error(world, DENIED);
            }
            world.out(&not_associated(&format!("wckey '{wckey}'"), users));
        }
        ChangeRefusal::Loop { .. } => {
            world.out(heading);
            world.out(&format!("  {}\n", sentence(refusal)));
        }
        ChangeRefusal::JobsActive(jobs) => world.err(&active(jobs, "  ")),
        refusal => {
            let (library, sentence) = (library_text(refusal), sentence(refusal));
            library_error(world, &library);
            world.err(&format!(" Error with request: {sentence}\n"));
            world.out(heading);
        }
    }
}

/// Jobs that keep something from being removed.
pub fn active(jobs: &[ActiveJob], indent: &str) -> String {
    let mut text = " Error with request: Job(s) active, cancel job(s) before remove\n".to_owned();
    for ActiveJob { job, cluster, account, user, qos, wckey } in jobs {
        text += &format!(
            "{indent}JobID = {job:<10} C = {cluster:<10} A = {account:<10} U = {user:<9} Q = {qos:<9} W = {wckey:<9}\n"
        );
    }
    text
}

fn not_associated(what: &str, users: &[(String, String)]) -> String {
    let mut text = format!(" Can't modify because these users aren't associated with new default {what}...\n");
    for (user, cluster) in users {
        text += &format!("  U = {user} C = {cluster}\n");
    }
    text
}

/// What the library says before the command does.
fn library_text(refusal: &ChangeRefusal) -> String {
    match refusal {
        ChangeRefusal::Denied | ChangeRefusal::NotEvenCoordinator => DENIED.to_owned(),
        ChangeRefusal::AdminLevel => "You must be a super user to modify a users admin level".to_owned(),
        other => sentence(other),
    }
}

/// A refusal in a sentence.
pub fn sentence(refusal: &ChangeRefusal) -> String {
    let denied = "Access/permission denied".to_owned();
    match refusal {
        ChangeRefusal::Denied | ChangeRefusal::AdminLevel => denied,
        ChangeRefusal::NotEvenCoordinator => NOT_EVEN_COORDINATOR.to_owned(),
        ChangeRefusal::BeyondParent => "Coordinators can not increase job limits beyond the parent ones".to_owned(),
        ChangeRefusal::Outdated => "Something else was changed meanwhile, please try again".to_owned(),
        ChangeRefusal::DefaultQos(_) => {
            "This request would make it so some associations would not have access to their default qos.".to_owned()
        }
        ChangeRefusal::PreemptLoop => "QOS Preemption loop detected".to_owned(),
        ChangeRefusal::Loop { parent, account, cluster } => format!(
            "Requested parent account {parent} is a child of {account} on cluster {cluster}. Please re-parent {parent} \
             before using it as a parent."
        ),
        ChangeRefusal::NoParent { parent, cluster } => format!("No parent account '{parent}' on cluster '{cluster}'"),
        ChangeRefusal::NoCluster(name) => format!("No cluster '{name}'"),
        ChangeRefusal::NoFederation(name) => format!("No federation '{name}'"),
        ChangeRefusal::InFederation { cluster, federation } => {
            format!("Cluster '{cluster}' is in federation '{federation}', and can only be in one")
        }
        ChangeRefusal::NoClusters => "There are no clusters yet".to_owned(),
        ChangeRefusal::NoAccount(name) => format!("You specified a non-existent account '{name}'."),
        ChangeRefusal::NoUser(name) => format!("You specified a non-existent user '{name}'."),
        ChangeRefusal::NoQos(name) => format!("There is no QOS '{name}'"),
        ChangeRefusal::NoTres(name) => format!("There is no TRES '{name}'"),
        ChangeRefusal::RootAccount => "The root account stays where it is".to_owned(),
        ChangeRefusal::OverAllocated(name) => format!("Clusters would be allowed more than all of resource {name}"),
        ChangeRefusal::NotInAccount { account, users } => not_associated(&format!("account '{account}'"), users),
        ChangeRefusal::NotInWcKey { wckey, users, .. } => not_associated(&format!("wckey '{wckey}'"), users),
        ChangeRefusal::JobsActive(_) => "Job(s) active, cancel job(s) before remove".to_owned(),
        ChangeRefusal::Invalid(what) => format!("Invalid name or value '{what}'"),
        ChangeRefusal::NothingAdded { .. }
        | ChangeRefusal::NothingModified
        | ChangeRefusal::NothingDeleted
        | ChangeRefusal::AccountsExist(_)
        | ChangeRefusal::ClusterExists(_)
        | ChangeRefusal::NoCount(_)
        | ChangeRefusal::DefaultAccount(_) => "Nothing was changed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As sacctmgr of Slurm 26.05.3 told it.
    #[test]
    fn jobs_that_keep_something_are_told() {
        let job = |job: u32, account: &str, user: &str, qos: &str, wckey: &str| ActiveJob {
            job,
            cluster: "cluster".to_owned(),
            account: account.to_owned(),
            user: user.to_owned(),
            qos: qos.to_owned(),
            wckey: wckey.to_owned(),
        };
        let heading = " Error with request: Job(s) active, cancel job(s) before remove\n";
        let of_qos = " JobID = 232        C = cluster    A = physics    U = alice     Q = long      W = *proj1   \n";
        assert_eq!(active(&[job(232, "physics", "alice", "long", "*proj1")], " "), format!("{heading}{of_qos}"));
        let of_user = "  JobID = 138        C = cluster    A = chem       U = carol     Q = normal    W = *        \n";
        assert_eq!(active(&[job(138, "chem", "carol", "normal", "*")], "  "), format!("{heading}{of_user}"));
    }
}
