//! Commands about reservations, who may submit into one, and what of them nodes show.

use super::{admission::Submitter, env::deliver, front::ControllerActor, ports::ReplySink};
use crate::{job::messages::Authority, reservation::messages::ReservationMsg};
use garrick_model::{
    config::function,
    messages::command::CommandReply,
    refusal::Refusal,
    reservation::{Applicant, NodesWanted, ReservationChange, ReservationFlag},
    spec::JobSpec,
    time::Timestamp,
    view::NodeView,
};
use garrick_runtime::{Context, ReplyTo};
use std::{collections::BTreeSet, sync::Arc};

/// A reply of reservations' owner, told to whom the command came from.
type Tell = fn(String) -> CommandReply;

impl ControllerActor {
    pub(super) fn create_reservation(
        &mut self,
        cx: &mut Context<Self>,
        by: Authority,
        mut change: Box<ReservationChange>,
        mut replies: Box<dyn ReplySink>,
    ) {
        if let Err(refusal) = self.check_reservation(&mut change) {
            replies.send(CommandReply::Refused(refusal));
            return;
        }
        let by = self.user_name(by.uid);
        let message = |reply| ReservationMsg::Create { by, change, reply };
        self.ask_reservations(cx, message, CommandReply::ReservationCreated, replies);
    }

    pub(super) fn update_reservation(
        &mut self,
        cx: &mut Context<Self>,
        mut change: Box<ReservationChange>,
        mut replies: Box<dyn ReplySink>,
    ) {
        if let Err(refusal) = self.check_reservation(&mut change) {
            replies.send(CommandReply::Refused(refusal));
            return;
        }
        self.ask_reservations(cx, |reply| ReservationMsg::Update { change, reply }, |_| CommandReply::Done, replies);
    }

    pub(super) fn delete_reservation(&self, cx: &mut Context<Self>, name: String, replies: Box<dyn ReplySink>) {
        self.ask_reservations(cx, |reply| ReservationMsg::Delete { name, reply }, |_| CommandReply::Done, replies);
    }

    fn ask_reservations(
        &self,
        cx: &mut Context<Self>,
        message: impl FnOnce(ReplyTo<Result<String, Refusal>>) -> ReservationMsg,
        tell: Tell,
        mut replies: Box<dyn ReplySink>,
    ) {
        let Some(owner) = self.env.reservations_owner() else {
            let said = "the owner of reservations is not running; the controller's log says why".to_owned();
            replies.send(CommandReply::Refused(Refusal::Internal(said)));
            return;
        };
        let (reply, answer) = ReplyTo::channel();
        deliver(cx, &owner, message(reply));
        cx.spawn(async move {
            replies.send(match answer.await {
                Ok(Ok(name)) => tell(name),
                Ok(Err(refusal)) => CommandReply::Refused(refusal),
                Err(_) => CommandReply::Refused(Refusal::Internal("the change could not be saved".to_owned())),
            });
        });
    }

    /// What the owner cannot know: host list functions and features.
    fn check_reservation(&mut self, change: &mut ReservationChange) -> Result<(), Refusal> {
        if let Some(NodesWanted::Named(names)) = &mut change.nodes
            && names.iter().any(|name| function(name).is_some())
        {
            let config = self.env.config();
            let feasibility = self.feasibility();
            let with_feature = |feature: &str| feasibility.nodes_with_feature(feature);
            let found = config.with_functions(names, &with_feature);
            *names = found.map_err(|wrong| Refusal::InvalidNode(wrong.to_string()))?;
        }
        let features = change.features.as_deref().unwrap_or_default();
        if features.contains(['|', '[', '(', '*']) {
            return Err(Refusal::NotSupported(format!("Features={features} (only names joined by &)")));
        }
        let feasibility = self.feasibility();
        match features.split('&').find(|name| !name.is_empty() && !feasibility.knows_feature(name)) {
            Some(unknown) => Err(Refusal::InvalidFeature(unknown.to_owned())),
            None => Ok(()),
        }
    }

    /// May the job ask for the reservations that it names?
    pub(super) fn check_reservations(&self, by: &Submitter<'_>, spec: &JobSpec) -> Result<(), Refusal> {
        let user = by.user.as_ref().map_or_else(|| by.caller.uid.to_string(), |user| user.name.clone());
        for name in &spec.reservations {
            let known = self.env.boards.reservations.get(name);
            let reservation = known.ok_or_else(|| Refusal::InvalidReservation(name.clone()))?;
            if !reservation.admits(Applicant { admin: by.admin, user: &user, account: spec.account.as_deref() }) {
                return Err(Refusal::ReservationAccess(name.clone()));
            }
        }
        Ok(())
    }

    /// Nodes with what reservations say of them now.
    pub(super) fn nodes_shown(&self) -> Vec<Arc<NodeView>> {
        let now = Timestamp::now();
        let mut nodes = self.env.boards.nodes.list();
        let active = self.env.boards.reservations.list().into_iter().filter(|r| r.is_active(now));
        for reservation in active {
            let own: BTreeSet<&str> = reservation.nodes.iter().map(String::as_str).collect();
            for node in nodes.iter_mut().filter(|node| own.contains(node.name.as_str())) {
                let flags = &mut Arc::make_mut(node).flags;
                if reservation.has(ReservationFlag::Maint) {
                    flags.maint = true;
                } else {
                    flags.reserved = true;
                }
            }
        }
        nodes
    }
}
