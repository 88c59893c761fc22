//! Which part handles a request, and who may make it.

use super::{
    core::{FrontendCore, Reply, Then, Turn},
    members::RosterAsked,
    messages::{AgentErrand, Ask, FrontendErrand, HostAsk},
    site_checks::Checked,
};
use crate::{messages::job::Authority, roster::core::RosterAsk, submission::core::Submission};
use garrick_model::{
    config::LogChange,
    messages::command::{Caller, CommandReply, CommandRequest},
    refusal::Refusal,
    spec::JobSpec,
};
use std::time::Duration;

/// Longest life of a token that an ordinary user gets by way of a node, unless the site says another: a node says itself who asks,
/// and the token still holds when the node's certificate is revoked. A choice of this project.
const MOST_BY_NODE_SECS: u32 = 24 * 3600;

impl FrontendCore {
    /// Handles a request whose turn has come.
    pub(super) fn command(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        caller: &Caller,
        command: CommandRequest,
    ) -> Reply {
        let by = self.authority(caller);
        match self.checked_first(turn, request, caller, by, command) {
            Some(command) => self.route(turn, request, caller, command, Checked::default()),
            None => Ok(None),
        }
    }

    /// Handles a request that the site's own checks let pass.
    pub(super) fn route(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        caller: &Caller,
        command: CommandRequest,
        checked: Checked,
    ) -> Reply {
        let by = self.authority(caller);
        self.may_ask(by, &command)?;
        let now = turn.now;
        let submission = |mut specs: Vec<JobSpec>, heterogeneous, said| {
            // Only crontabs have jobs that recur.
            specs.iter_mut().for_each(|spec| spec.cron = None);
            let caller = caller.clone();
            Box::new(Submission { caller, by, specs, heterogeneous, said })
        };
        let mut host = |ask| {
            turn.run(FrontendErrand::Host(request, ask));
            Ok(None)
        };
        match command {
            CommandRequest::Ping => host(HostAsk::Identity),
            CommandRequest::SubmitJob { request: id, spec } => {
                self.submit(turn, request, id, submission(vec![*spec], false, checked.said))
            }
            CommandRequest::SubmitHetJob { request: id, specs } => {
                self.submit(turn, request, id, submission(specs, true, checked.said))
            }
            CommandRequest::TestJob { spec } => self.test(turn, request, caller, by, *spec, checked),
            CommandRequest::TestHetJob { specs } => self.test_het(turn, request, caller, by, specs, checked),
            CommandRequest::WaitJob { job, until } => {
                self.wait(turn, request, job, until, 0);
                Ok(None)
            }
            CommandRequest::Watch { job } => {
                turn.run(FrontendErrand::Watch { request, job, by });
                Ok(None)
            }
            CommandRequest::ListJobs { jobs, which, after, most, hide } => {
                self.list_jobs(by, now, &jobs, &which, (after, most), hide)
            }
            CommandRequest::ListNodes => Ok(Some(CommandReply::Nodes { nodes: self.nodes_for(by, now), at: now })),
            CommandRequest::ListPartitions => Ok(Some(self.list_partitions(by, now))),
            CommandRequest::ListLicenses => Ok(Some(self.list_licenses(now))),
            CommandRequest::NameNodes(names) => {
                self.nodes_named(names).map(|named| Some(CommandReply::NodesNamed(named)))
            }
            CommandRequest::Explain { job } => self.explain(turn, request, by, job),
            CommandRequest::ListReservations => Ok(Some(self.list_reservations(by, now))),
            CommandRequest::ListTopologies => Ok(Some(self.list_topologies())),
            CommandRequest::ListSteps { job, ended } => self.list_steps(turn, request, by, (job, ended)),
            CommandRequest::CountMessages { prefixes } => match self.may_trace(by, &prefixes) {
                true => host(HostAsk::CountMessages(prefixes)),
                false => Err(Refusal::AccessDenied),
            },
            CommandRequest::ListPriorities => Ok(Some(self.list_priorities(by))),
            CommandRequest::ListShares => self.list_shares(turn, request, by, false),
            CommandRequest::ShowAssociations => self.list_shares(turn, request, by, true),
            CommandRequest::ShowStatistics => {
                turn.run(FrontendErrand::ShowStatistics(request));
                Ok(None)
            }
            CommandRequest::ShowConfig => host(HostAsk::ShowConfig),
            CommandRequest::ShowScript { job } => self.script(turn, request, by, job),
            CommandRequest::ListTriggers => Ok(Some(self.list_triggers())),
            CommandRequest::SetTrigger(trigger) => self.set_trigger(turn, request, by, *trigger),
            CommandRequest::ClearTriggers(which) => self.clear_triggers(turn, request, by, which),
            CommandRequest::ShowCrontab { uid } => self.show_crontab(by, uid),
            CommandRequest::InstallCrontab(change) => self.install_crontab(turn, request, caller, by, *change, checked),
            CommandRequest::LocateStepManager { job } => self.locate(turn, request, by, job),
            CommandRequest::FindRecords { job, run, task } => self.find_records(turn, request, by, (job, run, task)),
            // The agent answers this itself: it is about its own node.
            CommandRequest::AskRun { .. } => {
                Err(Refusal::NotSupported("asking the controller for a run on a node".to_owned()))
            }
            CommandRequest::MakeUserToken { user, lifespan_secs } => {
                let user = self.may_have_token(caller, by, user, lifespan_secs)?;
                host(HostAsk::UserToken { user, lifespan: Duration::from_secs(lifespan_secs.into()) })
            }
            // One that holds was taken off before. With a token no other is made, so that a stolen one runs out.
            CommandRequest::WithToken { request, .. } => Err(match *request {
                CommandRequest::MakeUserToken { .. } => Refusal::AccessDenied,
                _ => Refusal::NotAuthenticated,
            }),
            CommandRequest::Cancel(cancel) => self.cancel(turn, request, by, cancel),
            CommandRequest::ControlJob { jobs, action } => self.control(turn, request, by, jobs, action),
            CommandRequest::UpdateJob { jobs, change } => self.update_job(turn, request, by, jobs, *change, checked),
            CommandRequest::OrderSteps { job, order } => self.order_steps(turn, by, &job, &order),
            CommandRequest::FinishAllocation { job, exit } => self.finish_allocation(turn, request, by, job, exit),
            CommandRequest::Trace { prefixes, follow } => self.trace(turn, request, by, prefixes, follow),
            CommandRequest::ListDaemons => host(HostAsk::Daemons),
            CommandRequest::DeleteReservation { name } => self.delete_reservation(turn, request, by, name),
            other if by.admin => self.administer(turn, request, by, other),
            _ => Err(Refusal::AccessDenied),
        }
    }

    /// The user for whom a token may be made (slurm.conf(5), `AuthAltParameters`).
    fn may_have_token(
        &mut self,
        caller: &Caller,
        by: Authority,
        user: Option<String>,
        lifespan_secs: u32,
    ) -> Result<String, Refusal> {
        let config = self.sight.config();
        if !config.auth.jwt {
            return Err(Refusal::NoTokens);
        }
        let own = self.user_now(by.uid)?.map(|user| user.name);
        if by.admin {
            return user.or(own).ok_or(Refusal::AccessDenied);
        }
        if config.auth.only_admins_make_tokens || (user.is_some() && user != own) {
            return Err(Refusal::AccessDenied);
        }
        let by_node = !config.admin_host(&caller.host) && self.feasibility().knows_node(&caller.host);
        let most = config.auth.max_lifespan_secs.or_else(|| by_node.then_some(MOST_BY_NODE_SECS));
        if most.is_some_and(|most| lifespan_secs > most) {
            return Err(Refusal::InvalidTimeLimit);
        }
        own.ok_or(Refusal::AccessDenied)
    }

    /// Handles a request that only administrators may make.
    fn administer(&mut self, turn: &mut Turn<'_>, request: u64, by: Authority, command: CommandRequest) -> Reply {
        let mut host = |ask| {
            turn.run(FrontendErrand::Host(request, ask));
            Ok(None)
        };
        match command {
            CommandRequest::UpdateNode { nodes, change } => self.update_nodes(turn, request, by, nodes, change),
            CommandRequest::CreateNodes { names, line } => {
                self.ask_roster(turn, request, RosterAsk::Create { names, line }, RosterAsked::Answer);
                Ok(None)
            }
            CommandRequest::DeleteNodes { nodes } => self.delete_nodes(turn, request, nodes),
            CommandRequest::UpdatePartition { partition, fields } => {
                self.update_partition(turn, request, partition, fields)
            }
            CommandRequest::CreatePartition { partition, fields } => {
                self.create_partition(turn, request, partition, fields)
            }
            CommandRequest::DeletePartition { partition } => self.delete_partition(turn, request, partition),
            CommandRequest::CreateReservation(change) => self.create_reservation(turn, request, by, change),
            CommandRequest::UpdateReservation(change) => self.update_reservation(turn, request, change),
            CommandRequest::Reconfigure => host(HostAsk::Reconfigure),
            CommandRequest::ResetStatistics => {
                turn.run(FrontendErrand::ResetStatistics(request));
                Ok(None)
            }
            CommandRequest::SetLogLevel(level) => {
                turn.run(FrontendErrand::ChangeLog(LogChange::Level(level)));
                Ok(Some(CommandReply::Done))
            }
            CommandRequest::ChangeLog { change, nodes } => self.change_log(turn, request, change, nodes),
            CommandRequest::Shutdown { controller_only } => {
                if !controller_only {
                    turn.run(FrontendErrand::Agent(AgentErrand::ShutAgentsDown));
                }
                turn.run(FrontendErrand::Host(request, HostAsk::Shutdown));
                Ok(None)
            }
            CommandRequest::ListCerts => host(HostAsk::Certs),
            CommandRequest::RevokeCerts { nodes } => {
                let nodes = self.nodes_named(nodes)?;
                self.ask(turn, request, vec![Ask::Revoke(nodes.clone())], Then::Revoked { nodes, by });
                Ok(None)
            }
            CommandRequest::RenewCerts { nodes } => {
                let nodes = if nodes.is_empty() { nodes } else { self.nodes_named(nodes)? };
                host(HostAsk::RenewCerts(nodes))
            }
            CommandRequest::RotateAuthority { leave_behind } => {
                tracing::warn!(leave_behind, uid = by.uid, "certs.rotate");
                host(HostAsk::RotateAuthority { leave_behind })
            }
            CommandRequest::CreateJoinToken { lifetime_secs, node } => {
                host(HostAsk::JoinToken { lifetime: Duration::from_secs(lifetime_secs), node })
            }
            _ => Err(Refusal::NotSupported("this request".to_owned())),
        }
    }

    /// Of this process, or of nodes' daemons.
    fn change_log(&mut self, turn: &mut Turn<'_>, request: u64, change: LogChange, nodes: Vec<String>) -> Reply {
        if nodes.is_empty() {
            turn.run(FrontendErrand::ChangeLog(change));
            return Ok(Some(CommandReply::Done));
        }
        let nodes = self.nodes_named(nodes)?;
        if let Some(unknown) = nodes.iter().find(|node| !self.feasibility().knows_node(node)) {
            return Err(Refusal::InvalidNode(unknown.clone()));
        }
        let told = |node: &String| Ask::ChangeLog { node: node.clone(), change: change.clone() };
        let asks = nodes.iter().map(told).collect();
        self.ask(turn, request, asks, Then::LogChanged(nodes));
        Ok(None)
    }
}
