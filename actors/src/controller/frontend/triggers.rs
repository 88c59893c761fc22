//! Triggers: who may set and clear them (strigger(1)). Their programs run as who set them: SlurmUser, or any user of a cluster
//! whose SlurmUser is root and whose site allows it (`SlurmctldParameters=allow_user_triggers`).

use super::{
    core::{FrontendCore, Reply, Then, Turn},
    messages::Ask,
};
use crate::{messages::job::Authority, trigger::core::TriggerAsk};
use garrick_model::{
    messages::command::CommandReply,
    refusal::Refusal,
    trigger::{MOST, MOST_OF_PROGRAM, MOST_OF_USER, TriggerAbout, TriggerRequest, TriggerSelector},
};

/// The user who may do everything, but sets no trigger: its program would not run as that user.
const ROOT: u32 = 0;

impl FrontendCore {
    /// `strigger --get`.
    pub(super) fn list_triggers(&self) -> CommandReply {
        CommandReply::Triggers(self.sight.committed().triggers().0.into_values().collect())
    }

    /// `strigger --set`.
    pub(super) fn set_trigger(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        by: Authority,
        trigger: TriggerRequest,
    ) -> Reply {
        let config = self.sight.config();
        let is_slurm_user = by.admin && (by.uid != ROOT || self.user_name(by.uid) == config.slurm_user);
        let of_root = config.slurm_user == "root" || config.slurm_user == ROOT.to_string();
        let any_user = of_root && config.slurmctld_parameters.has("allow_user_triggers");
        if !is_slurm_user && (by.uid == ROOT || !any_user) {
            return Err(Refusal::AccessDenied);
        }
        self.check_trigger(&trigger, by)?;
        let most = if is_slurm_user { MOST } else { MOST_OF_USER };
        let ask = TriggerAsk::Set { uid: by.uid, most, request: trigger };
        self.ask(turn, request, vec![Ask::Trigger(ask)], saved());
        Ok(None)
    }

    fn check_trigger(&mut self, trigger: &TriggerRequest, by: Authority) -> Result<(), Refusal> {
        let TriggerRequest { events, about, program, .. } = trigger;
        let size = program.len();
        if size > MOST_OF_PROGRAM {
            let what = format!("the program has {size} bytes, and {MOST_OF_PROGRAM} are taken: make it shorter");
            return Err(Refusal::TooLarge(what));
        }
        let path = program.split_ascii_whitespace().next().unwrap_or_default();
        // Patterns would stand for other programs.
        if !path.starts_with('/') || program.contains('\0') || path.contains(['*', '?', '[']) {
            return Err(Refusal::InvalidUpdate("the program of a trigger is an absolute path".to_owned()));
        }
        let fits = match about {
            TriggerAbout::Job(_) => events.iter().all(|event| event.is_of_job() || event.is_of_node()),
            TriggerAbout::Nodes(_) => events.iter().all(|event| !event.is_of_job()),
            TriggerAbout::Controller => events.iter().all(|event| !event.is_of_job() && !event.is_of_node()),
        };
        if events.is_empty() || !fits {
            return Err(Refusal::InvalidUpdate("events of a trigger that do not fit what it is about".to_owned()));
        }
        match about {
            TriggerAbout::Nodes(nodes) => {
                let unknown = nodes.iter().find(|node| !self.feasibility().knows_node(node));
                unknown.map_or(Ok(()), |node| Err(Refusal::InvalidNode(node.clone())))
            }
            TriggerAbout::Job(job) => {
                let view = self.sight.boards().jobs.get(job).ok_or(Refusal::InvalidJobId)?;
                if !by.admin && view.uid != by.uid {
                    return Err(Refusal::AccessDenied);
                }
                if view.state.waits() || view.state.works() { Ok(()) } else { Err(Refusal::AlreadyDone) }
            }
            TriggerAbout::Controller => Ok(()),
        }
    }

    /// `strigger --clear`.
    pub(super) fn clear_triggers(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        by: Authority,
        which: TriggerSelector,
    ) -> Reply {
        let ask = TriggerAsk::Clear { uid: by.uid, admin: by.admin, which };
        self.ask(turn, request, vec![Ask::Trigger(ask)], saved());
        Ok(None)
    }
}

/// Triggers are set or removed when that is on disk.
const fn saved() -> Then {
    Then::Saved { what: "the trigger", reply: CommandReply::Done }
}
