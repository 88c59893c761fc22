//! Agents' connections and the routing of their messages.

use super::{
    core::{FrontendCore, Turn},
    members::RosterAsked,
    messages::{AgentErrand, FrontendErrand},
    vouching::vouched,
};
use crate::{
    messages::{
        letter::Letter,
        node::{NodeInput, Registration},
        steps::StepsInput,
    },
    roster::core::RosterAsk,
};
use garrick_model::{
    ids::{JobId, Sluid},
    messages::{
        encoded_bytes,
        node::{AgentReport, Joining, NodeToController},
    },
    refusal::Refusal,
};

impl FrontendCore {
    /// An agent of a node in `slurm.conf` connected.
    pub(super) fn connected(&mut self, turn: &mut Turn<'_>, node: String, registration: Box<Registration>) {
        let conn = registration.conn;
        if !self.sight.has_owner(&node) {
            let refusal = Refusal::InvalidNode(node.clone());
            let lost = self.lost_runs(&node, &registration);
            return self.decline(turn, node, conn, refusal, lost);
        }
        turn.run(FrontendErrand::Agent(AgentErrand::OpenLink { node: node.clone(), conn }));
        turn.run(FrontendErrand::Agent(AgentErrand::Welcome { node, registration, starting: false }));
    }

    /// An agent of a dynamic node connected.
    pub(super) fn joins(
        &mut self,
        turn: &mut Turn<'_>,
        node: String,
        joining: Box<Joining>,
        address: String,
        registration: Box<Registration>,
    ) {
        let conn = registration.conn;
        // A node that may not join does not replace the connection of the one that has the name.
        if let Err(refusal) = self.sight.roster().may_join(&node, &joining) {
            return self.decline(turn, node, conn, refusal, Vec::new());
        }
        // Its messages meanwhile are accepted, and its disconnection is noticed.
        turn.run(FrontendErrand::Agent(AgentErrand::OpenLink { node: node.clone(), conn }));
        let hostname = registration.facts.hostname.clone();
        let ask = RosterAsk::Join { node: node.clone(), joining, hostname, address };
        self.ask_roster(turn, 0, ask, RosterAsked::Join { node, registration });
    }

    /// The agent logs why, and tries again. It ends the runs that are lost.
    pub(super) fn decline(
        &mut self,
        turn: &mut Turn<'_>,
        node: String,
        conn: u64,
        refusal: Refusal,
        lost: Vec<(JobId, Sluid)>,
    ) {
        // Logged once, however often it tries.
        if self.declined.get(&node) != Some(&refusal) {
            tracing::error!(node, "node.declined: {refusal}");
        }
        turn.run(FrontendErrand::Agent(AgentErrand::Decline {
            node: node.clone(),
            conn,
            refusal: refusal.clone(),
            lost,
        }));
        self.declined.insert(node, refusal);
    }

    /// Runs of a node that was removed under its jobs: they count as lost there and may have been started elsewhere. The message
    /// that ends them may have been discarded with the connection.
    fn lost_runs(&self, node: &str, registration: &Registration) -> Vec<(JobId, Sluid)> {
        let committed = self.sight.committed();
        let works = |job, sluid| committed.look(job, |record| record.works_on(node, sluid)).unwrap_or(false);
        let runs = registration.runs.iter().map(|run| (run.job, run.sluid));
        runs.filter(|(job, sluid)| !works(*job, *sluid)).collect()
    }

    pub(super) fn agent_said(&mut self, turn: &mut Turn<'_>, node: String, conn: u64, message: NodeToController) {
        if self.sight.link(&node) != Some(conn) {
            return;
        }
        match message {
            NodeToController::Command { query, caller, request: command } => {
                let request = self.number();
                let administrator = self.authority(&caller).admin;
                turn.run(FrontendErrand::Agent(AgentErrand::Door { request, node: node.clone(), query }));
                match vouched(&self.sight.config(), &node, caller, administrator, &command) {
                    Ok(caller) => {
                        let bytes = encoded_bytes(&*command);
                        self.arrived(turn, request, caller, command, bytes);
                    }
                    Err(caller) => {
                        tracing::warn!(node, uid = caller.uid, "command.host_not_trusted");
                        turn.run(FrontendErrand::Audit { request, caller, command });
                        turn.refuse(request, Refusal::HostNotTrusted { host: node });
                    }
                }
            }
            NodeToController::CommandGone { query } => {
                turn.run(FrontendErrand::Agent(AgentErrand::DoorLeft { node, query }))
            }
            NodeToController::Steps { query, steps, missing, left_out } => {
                turn.tell(Letter::Steps(StepsInput::Listed { query, node, steps, missing, left_out }));
            }
            NodeToController::Records { query, runs } => {
                let address = self.address_of(&node);
                turn.tell(Letter::Steps(StepsInput::Found { query, node, address, runs }));
            }
            NodeToController::Trace { query, records, last } => {
                turn.run(FrontendErrand::Traced { query, node, records, last });
            }
            NodeToController::Register { .. } => tracing::warn!(node, "node.registered_twice"),
            // The owner of the connection answers these, with the authority.
            NodeToController::Renew { .. } | NodeToController::Holds { .. } => {}
            frame @ (NodeToController::Heartbeat { .. } | NodeToController::Report { .. }) => {
                if let NodeToController::Report { report: AgentReport::Steps { job, sluid, steps }, .. } = &frame {
                    let (job, sluid) = (*job, *sluid);
                    let committed = self.sight.committed();
                    if committed.look(job, |record| record.steps_run_from(&node, sluid)) == Some(true) {
                        turn.tell(Letter::Steps(StepsInput::Reported { job, sluid, steps: steps.clone() }));
                    } else {
                        tracing::warn!(node, job_id = job.0, "report.not_its_job");
                    }
                }
                turn.tell(Letter::Node(node, NodeInput::Frame { conn, frame: Box::new(frame) }));
            }
        }
    }

    pub(super) fn agent_gone(&self, turn: &mut Turn<'_>, node: String, conn: u64) {
        if self.sight.link(&node) == Some(conn) {
            turn.run(FrontendErrand::Agent(AgentErrand::CloseLink { node: node.clone(), conn }));
            turn.tell(Letter::Steps(StepsInput::NodeGone(node.clone())));
        }
        turn.tell(Letter::Node(node, NodeInput::LinkGone { conn }));
    }
}
