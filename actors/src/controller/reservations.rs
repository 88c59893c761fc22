//! Commands about reservations, who may submit into one, and what of them nodes show.

use super::{
    admission::Submitter,
    env::deliver,
    front::ControllerActor,
    ports::{ReplySink, User},
    selection::Named,
};
use crate::{
    job::messages::Authority,
    reservation::{owner::ReservationAsk, shell::ReservationMsg},
    scheduler::facts::AllocationUnit,
};
use garrick_model::{
    config::function,
    messages::command::{CommandReply, JobChange},
    refusal::Refusal,
    reservation::{Applicant, NodesWanted, Reservation, ReservationChange, ReservationFlag},
    spec::JobSpec,
    time::Timestamp,
    view::{NodeView, PartitionView},
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
        let ask = ReservationAsk::Create { by, change };
        self.ask_reservations(cx, ask, CommandReply::ReservationCreated, replies);
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
        self.ask_reservations(cx, ReservationAsk::Update(change), |_| CommandReply::Done, replies);
    }

    pub(super) fn delete_reservation(
        &self,
        cx: &mut Context<Self>,
        by: Authority,
        name: String,
        mut replies: Box<dyn ReplySink>,
    ) {
        if !by.admin && !self.may_delete(by.uid, &name) {
            replies.send(CommandReply::Refused(Refusal::AccessDenied));
            return;
        }
        self.ask_reservations(cx, ReservationAsk::Delete(name), |_| CommandReply::Done, replies);
    }

    /// May a user who is no administrator? Accounts and QOS are of jobs: where those are given, only administrators may.
    fn may_delete(&self, uid: u32, name: &str) -> bool {
        let user = self.env.ports.users.user(uid);
        let groups = group_names(user.as_ref());
        let known = self.env.boards.reservations.get(&name.to_owned());
        known.filter(|r| r.has(ReservationFlag::UserDelete)).zip(user.as_ref()).is_some_and(|(reservation, user)| {
            let (account, qos, partition) = (None, None, None);
            let by_user = !reservation.users.is_empty() || !reservation.groups.is_empty();
            let who = Applicant { admin: false, user: &user.name, account, qos, partition, groups: Some(&groups) };
            by_user && reservation.admits(who)
        })
    }

    fn ask_reservations(
        &self,
        cx: &mut Context<Self>,
        ask: ReservationAsk,
        tell: Tell,
        mut replies: Box<dyn ReplySink>,
    ) {
        let Some(owner) = self.env.reservations_owner() else {
            let said = "the owner of reservations is not running; the controller's log says why".to_owned();
            replies.send(CommandReply::Refused(Refusal::Internal(said)));
            return;
        };
        let (reply, answer) = ReplyTo::channel();
        deliver(cx, &owner, ReservationMsg::Ask { ask, reply });
        cx.spawn(async move {
            replies.send(match answer.await {
                Ok(Ok(name)) => tell(name),
                Ok(Err(refusal)) => CommandReply::Refused(refusal),
                Err(_) => CommandReply::Refused(Refusal::Internal("the change could not be saved".to_owned())),
            });
        });
    }

    /// What the owner cannot know: host list functions, features, users and groups.
    fn check_reservation(&mut self, change: &mut ReservationChange) -> Result<(), Refusal> {
        let users = &self.env.ports.users;
        for list in [&mut change.users, &mut change.users_more].into_iter().flatten() {
            for name in &mut list.names {
                *name = users.user_called(name).ok_or_else(|| Refusal::InvalidUser(name.clone()))?;
            }
        }
        // Those who are to be taken off it may be gone.
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

    /// A job that names no partition goes to that of its reservation, the first of those that have one.
    pub(super) fn follow_reservation(&self, spec: &mut JobSpec) {
        if spec.partitions.is_empty() {
            let known = spec.reservations.iter().filter_map(|name| self.env.boards.reservations.get(name));
            spec.partitions.extend(known.filter_map(|r| r.partition.clone()).next());
        }
    }

    /// May the job ask for the reservations that it names?
    pub(super) fn check_reservations(&self, by: &Submitter<'_>, spec: &JobSpec) -> Result<(), Refusal> {
        let user = by.user.as_ref().map_or_else(|| by.caller.uid.to_string(), |user| user.name.clone());
        let (account, qos) = (spec.account.as_deref(), spec.qos.as_deref());
        let groups = group_names(by.user.as_ref());
        let (partition, groups) = (None, Some(groups.as_slice()));
        let who = Applicant { admin: by.admin, user: &user, account, qos, partition, groups };
        self.check_named(&spec.reservations, &spec.partitions, who)
    }

    /// May jobs of these partitions use all of those reservations, each in one partition at least?
    fn check_named(&self, names: &[String], partitions: &[String], who: Applicant<'_>) -> Result<(), Refusal> {
        if names.is_empty() {
            return Ok(());
        }
        let all = self.env.boards.partitions.list();
        let default = all.iter().find(|p| p.config.default && partitions.is_empty()).map(|p| &p.config.name);
        for name in names {
            let known = self.env.boards.reservations.get(name);
            // Nobody runs in one that goes with the time.
            let usable = known.filter(|r| r.floating.is_none());
            let reservation = usable.ok_or_else(|| Refusal::InvalidReservation(name.clone()))?;
            let mut choices = partitions.iter().chain(default).map(|name| Some(name.as_str()));
            if !choices.any(|partition| reservation.admits(Applicant { partition, ..who })) {
                return Err(Refusal::ReservationAccess(name.clone()));
            }
        }
        Ok(())
    }

    /// The same for jobs whose reservations or partitions change, and whether their partitions need a reservation.
    pub(super) fn check_reservation_of(&self, jobs: &[Named], change: &JobChange) -> Result<(), Refusal> {
        if change.reservations.is_none() && change.partitions.is_none() {
            return Ok(());
        }
        let administrators = self.env.ports.host.administrators();
        let partitions = self.env.boards.partitions.list();
        for view in jobs.iter().flat_map(|(_, views)| views) {
            let reservations = change.reservations.as_ref().unwrap_or(&view.spec.reservations);
            let chosen = change.partitions.as_ref().unwrap_or(&view.partitions);
            let bound = |p: &Arc<PartitionView>| p.config.require_reservation && chosen.contains(&p.config.name);
            if reservations.is_empty() && partitions.iter().any(bound) {
                return Err(Refusal::AccessDenied);
            }
            let user = self.user_now(view.uid)?;
            let groups = group_names(user.as_ref());
            let who = Applicant {
                admin: administrators.contains(&view.uid),
                user: &view.user,
                account: change.account.as_deref().or(view.spec.account.as_deref()),
                qos: change.qos_of(&view.spec),
                partition: None,
                groups: Some(&groups),
            };
            // Those that it asks for already may be gone.
            if change.reservations.is_some() {
                self.check_named(reservations, chosen, who)?;
            }
        }
        Ok(())
    }

    /// Nodes with what reservations say of them now.
    pub(super) fn nodes_shown(&self) -> Vec<Arc<NodeView>> {
        let now = Timestamp::now();
        let mut nodes = self.env.boards.nodes.list();
        // A node of which a part is reserved is open to others.
        let whole = |r: &Arc<Reservation>| r.is_active(now) && r.core_ids.is_empty();
        let active = self.env.boards.reservations.list().into_iter().filter(whole);
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

fn group_names(user: Option<&User>) -> Vec<&str> {
    user.iter().flat_map(|user| &user.groups).map(|(_, name)| name.as_str()).collect()
}
