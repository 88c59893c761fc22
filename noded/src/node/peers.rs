//! QUIC connections to this node: step managers of other nodes that start a shepherd here, and relays of commands from other
//! hosts to the step managers here.

use super::{membership::Membership, records_link::RecordsWorld, runs::RunWorld};
use crate::{
    node::conversations::{Conversations, tell_agent},
    relay,
};
use garrick_agent::{
    AgentInput, AgentMsg, RunKey, StartOrder,
    belief::{is_from_batch_host, is_valid},
};
use garrick_daemon::{
    links::{RelayHeader, traced},
    run::orders::StepdOrders,
};
use garrick_frame::{LinkKind, decode_body};
use garrick_model::{
    config::Config,
    messages::{
        command::Caller,
        node::{AgentToStepMgr, JobCredential, SignedCredential, StepMgrToAgent},
    },
    time::Timestamp,
};
use garrick_runtime::{Address, TraceContext};
use garrick_transport::{
    Connection, Endpoint, Sparing,
    identity::{PeerIdentity, Role, VerifyKey},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

/// What the tasks share.
#[derive(Clone)]
pub struct PeerWorld {
    /// Where inputs go.
    pub agent: Address<AgentMsg>,
    /// Open connections.
    pub conversations: Arc<Conversations>,
    /// Runs here.
    pub world: Arc<RunWorld>,
    /// The key that credentials are checked with.
    pub trust: Arc<Mutex<Option<VerifyKey>>>,
    /// This node's certificate.
    pub membership: Membership,
    /// The cluster's configuration.
    pub config: Arc<Config>,
    /// `SlurmUser`; `None`: there is no such user here.
    pub slurm_uid: Option<u32>,
    /// Records of steps.
    pub records: RecordsWorld,
}

impl PeerWorld {
    /// The controller of this link says with which key it signs. It counts at once: an order may follow before the agent has
    /// taken the welcome in. The agent keeps it on disk.
    pub fn trust_key(&self, key: &[u8]) {
        if let Ok(key) = VerifyKey::from_bytes(key) {
            *self.trust.lock().unwrap_or_else(PoisonError::into_inner) = Some(key);
        }
    }

    /// A credential's content, if it is to be believed: signed by this cluster's controller, for this cluster, not expired.
    pub fn check(&self, signed: &SignedCredential) -> Result<Box<JobCredential>, String> {
        let trust = self.trust.lock().unwrap_or_else(PoisonError::into_inner);
        let key = trust
            .as_ref()
            .ok_or("no credential key is known yet: the controller was not reached since this node joined")?;
        content(signed, key, &self.config.cluster_name, Timestamp::now())
    }

    /// The caller that is accepted: a node may speak for root and SlurmUser only if the site allows it, or about their own job on
    /// that node.
    fn believed(&self, peer: &PeerIdentity, caller: Caller, of: &JobCredential) -> Caller {
        let administrator = caller.uid == 0 || Some(caller.uid) == self.slurm_uid;
        let own_job = of.uid == caller.uid && of.nodes.iter().any(|node| node.name == peer.name);
        let caller = Caller { host: peer.name.clone(), ..caller };
        if !administrator || own_job || peer.role != Role::Node || self.config.admin_host(&peer.name) {
            return caller;
        }
        tracing::warn!(%peer, uid = caller.uid, job_id = of.job.0, "a node spoke for somebody for whom it may not");
        // Every step manager refuses this caller.
        caller.as_nobody()
    }

    /// The same for a run that is here already, which was believed when it came: the proof is the same, and that it would not
    /// be good for a new start any more does not matter.
    fn check_again(&self, signed: &SignedCredential) -> Option<Box<JobCredential>> {
        let credential: JobCredential = decode_body(&signed.payload).ok()?;
        let run = RunKey { job: credential.job, sluid: credential.sluid };
        let orders = StepdOrders::load(&self.world.spool.run(run)).ok()?;
        (orders.launch.credential.payload == signed.payload).then(|| Box::new(credential))
    }
}

fn content(
    signed: &SignedCredential,
    key: &VerifyKey,
    cluster: &str,
    now: Timestamp,
) -> Result<Box<JobCredential>, String> {
    if !key.verify_strict(&signed.payload, &signed.signature) {
        return Err(format!("its signature does not match (signed with key {}, known is {})", signed.key_id, key.id()));
    }
    let credential: JobCredential = decode_body(&signed.payload).map_err(|e| e.to_string())?;
    is_valid(&credential, cluster, now)?;
    Ok(Box::new(credential))
}

/// Serves until the endpoint is closed.
pub async fn serve(endpoint: Arc<Endpoint>, world: PeerWorld) {
    while let Some(arrived) = endpoint.accept().await {
        match arrived {
            Ok(connection) => {
                let world = world.clone();
                actix_rt::spawn(async move { converse(connection, world).await });
            }
            Err(e) => {
                static TURNED_AWAY: Sparing = Sparing::new();
                if let Some(left_out) = TURNED_AWAY.due(Instant::now()) {
                    tracing::warn!(error = %e, left_out, "a peer was turned away");
                }
            }
        }
    }
}

async fn converse(connection: Connection, world: PeerWorld) {
    match (connection.link, connection.peer.role) {
        (LinkKind::StepMgrAgent, Role::Node) => step_manager(connection, world).await,
        (LinkKind::CommandToStepMgr, Role::Node | Role::Controller) => relays(connection, world).await,
        (LinkKind::CommandToRecords, Role::Node | Role::Controller) => world.records.from_peer(connection).await,
        (link, role) => {
            tracing::warn!(peer = %connection.peer, ?link, "a peer wanted what a {role:?} may not have here");
            connection.close("a node agent does not serve this link to you");
        }
    }
}

async fn step_manager(mut connection: Connection, world: PeerWorld) {
    let handle = connection.handle();
    let (answers, mut requests) = connection.split::<AgentToStepMgr, StepMgrToAgent>();
    while let Ok(Some(request)) = requests.recv().await {
        let (launch, manager, again) = match request.msg {
            StepMgrToAgent::StartShepherd { launch, manager, again } => (launch, manager, again),
            StepMgrToAgent::AskController => {
                let connected = world.conversations.has_controller();
                if answers.try_send(&traced(AgentToStepMgr::Controller { connected })).is_err() {
                    break;
                }
                continue;
            }
        };
        let query = world.conversations.number();
        world.conversations.asker_up(query, answers.clone());
        let believed = match world.check_again(&launch.credential) {
            Some(credential) => Ok(credential),
            None => world.check(&launch.credential),
        };
        let credential = believed.and_then(|c| is_from_batch_host(&c, &connection.peer.name).map(|()| c));
        let cx = TraceContext { trace: request.trace, cause: request.cause };
        let order = StartOrder { launch, credential };
        tell_agent(&world.agent, cx, AgentInput::StartShepherd { query, order, manager, again });
    }
    handle.close("done");
}

async fn relays(connection: Connection, world: PeerWorld) {
    while let Ok(Some((mut header, bulk))) = connection.accept_bulk::<RelayHeader>().await {
        let found = world.world.spool.runs().map(|(runs, _)| runs).unwrap_or_default();
        let Some((run, orders)) = found.into_iter().find(|(run, _)| run.run.job == header.job && run.batch_host) else {
            tracing::warn!(job_id = header.job.0, "a relay for a job whose step manager is not here");
            continue;
        };
        header.caller = world.believed(&connection.peer, header.caller, &orders.credential);
        actix_rt::spawn(async move {
            let door = std::path::PathBuf::from(run.door);
            if let Err(e) = relay::inward(bulk, header, &door).await {
                tracing::debug!(error = %e, "a relayed conversation broke off");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::controller::ports::Signer;
    use garrick_actors::controller::shells::ports::CredentialSigner;
    use garrick_model::ids::{JobId, Sluid};
    use garrick_transport::identity::SigningKey;

    #[test]
    fn a_credential_starts_nothing_after_its_time_nor_with_another_time_written_in() {
        let folder = std::env::temp_dir().join(format!("garrick-credential-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let key = SigningKey::open_or_create(&folder.join("key")).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let (known, signer) = (key.verify_key(), Signer::new(key));
        let credential = JobCredential {
            cluster: "c".into(),
            job: JobId(7),
            sluid: Sluid(70),
            uid: 1001,
            gid: 1001,
            groups: Vec::new(),
            user: "alice".into(),
            nodes: Vec::new(),
            addresses: Vec::new(),
            partition: "p".into(),
            epoch: 1,
            expires: Timestamp(5000),
        };
        let signed = signer.sign(&credential);
        let at = |signed: &SignedCredential, now| content(signed, &known, "c", Timestamp(now));
        assert_eq!(at(&signed, 5000).as_deref(), Ok(&credential));
        assert_eq!(at(&signed, 5001), Err("it expired (job 7)".to_owned()));
        // Its holder gives it more time.
        let later = signer.sign(&JobCredential { expires: Timestamp(9000), ..credential });
        let forged = SignedCredential { signature: signed.signature.clone(), ..later };
        assert!(at(&forged, 5001).unwrap_err().contains("its signature does not match"));
        assert!(content(&signed, &known, "other", Timestamp(5000)).unwrap_err().contains("it is for cluster c"));
    }
}
