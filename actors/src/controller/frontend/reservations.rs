//! Commands about reservations, and the permission to submit into one.

use super::{
    core::{FrontendCore, Reply, Then, Turn},
    messages::Ask,
};
use crate::{messages::job::Authority, reservation::owner::ReservationAsk, submission::users::group_names};
use garrick_model::{
    config::function,
    messages::command::CommandReply,
    refusal::Refusal,
    reservation::{Applicant, NodesWanted, ReservationChange, ReservationFlag},
};
use garrick_plan::snapshot::facts::AllocationUnit;

impl FrontendCore {
    pub(super) fn create_reservation(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        by: Authority,
        mut change: Box<ReservationChange>,
    ) -> Reply {
        self.check_reservation(&mut change)?;
        let asks = vec![Ask::Reservations(ReservationAsk::Create { by: self.user_name(by.uid), change })];
        self.ask(turn, request, asks, Then::Reservation(CommandReply::ReservationCreated));
        Ok(None)
    }

    pub(super) fn update_reservation(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        mut change: Box<ReservationChange>,
    ) -> Reply {
        self.check_reservation(&mut change)?;
        let asks = vec![Ask::Reservations(ReservationAsk::Update(change))];
        self.ask(turn, request, asks, Then::Reservation(|_| CommandReply::Done));
        Ok(None)
    }

    pub(super) fn delete_reservation(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        by: Authority,
        name: String,
    ) -> Reply {
        if !by.admin && !self.may_delete(by.uid, &name) {
            return Err(Refusal::AccessDenied);
        }
        let asks = vec![Ask::Reservations(ReservationAsk::Delete(name))];
        self.ask(turn, request, asks, Then::Reservation(|_| CommandReply::Done));
        Ok(None)
    }

    /// May a user who is no administrator delete it? If accounts or QOS are given, which are properties of jobs, only
    /// administrators may.
    fn may_delete(&self, uid: u32, name: &str) -> bool {
        let user = self.sight.users().user(uid);
        let groups = group_names(user.as_ref());
        let known = self.sight.boards().reservations.get(&name.to_owned());
        known.filter(|r| r.has(ReservationFlag::UserDelete)).zip(user.as_ref()).is_some_and(|(reservation, user)| {
            let (account, qos, partition) = (None, None, None);
            let by_user = !reservation.users.is_empty() || !reservation.groups.is_empty();
            let who = Applicant { admin: false, user: &user.name, account, qos, partition, groups: Some(&groups) };
            by_user && reservation.admits(who)
        })
    }

    /// Checks what the owner cannot know: host list functions, features, users and groups.
    fn check_reservation(&mut self, change: &mut ReservationChange) -> Result<(), Refusal> {
        let users = self.sight.users();
        for list in [&mut change.users, &mut change.users_more].into_iter().flatten() {
            for name in &mut list.names {
                *name = users.user_called(name).ok_or_else(|| Refusal::InvalidUser(name.clone()))?;
            }
        }
        // Users who are to be removed from it may no longer exist.
        for name in change.users_less.iter_mut().flat_map(|list| &mut list.names) {
            if let Some(called) = users.user_called(name) {
                *name = called;
            }
        }
        for name in change.groups.iter_mut().flatten() {
            *name = users.group_called(name).ok_or_else(|| Refusal::InvalidGroup(name.clone()))?;
        }
        if let Some(NodesWanted::Named(names)) = &mut change.nodes
            && names.iter().any(|name| function(name).is_some())
        {
            *names = self.nodes_named(std::mem::take(names))?;
        }
        let features = change.features.as_deref().unwrap_or_default();
        if features.contains(['|', '[', '(', '*']) {
            return Err(Refusal::NotSupported(format!("Features={features} (only names joined by &)")));
        }
        let feasibility = self.feasibility();
        if change.cores.is_some() && feasibility.view().policy.unit == AllocationUnit::Node {
            let said = "CoreCnt= of a reservation (SelectType=select/linear gives whole nodes: name nodes only)";
            return Err(Refusal::NotSupported(said.to_owned()));
        }
        match features.split('&').find(|name| !name.is_empty() && !feasibility.knows_feature(name)) {
            Some(unknown) => Err(Refusal::InvalidFeature(unknown.to_owned())),
            None => Ok(()),
        }
    }
}
