//! Conversations of commands that want records of steps, at this node's door and from other daemons.

use crate::{
    kernel::users,
    node::{
        conversations::traced,
        records::{self, Found},
        relay::RelayHeader,
        spool::Spool,
    },
};
use garrick_frame::limits;
use garrick_model::{
    config::Config,
    messages::{
        command::Caller,
        records::{RecordsReply, RecordsRequest},
    },
    refusal::Refusal,
};
use garrick_transport::{
    Connection, DoorConn, Receiver, Sender,
    identity::{PeerIdentity, Role},
};
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};

/// Files that are read at a time, for whomever: further ones wait.
const READERS: usize = 2;
/// Parts that are read ahead of a slow asker.
const AHEAD: usize = 2;

/// What the conversations share.
#[derive(Clone, Debug)]
pub struct RecordsWorld {
    spool: Spool,
    config: Arc<Config>,
    slurm_uid: Option<u32>,
    readers: Arc<Semaphore>,
}

/// Who asks, and who speaks for him.
struct Asker {
    caller: Caller,
    peer: Option<PeerIdentity>,
}

impl RecordsWorld {
    /// Of this node.
    pub fn new(spool: Spool, config: Arc<Config>, slurm_uid: Option<u32>) -> Self {
        Self { spool, config, slurm_uid, readers: Arc::new(Semaphore::new(READERS)) }
    }

    /// May he see these? Their owner may, root and SlurmUser; of the latter a node speaks where the site says so, and of an
    /// unprivileged cluster its one user is the administrator.
    fn may_see(&self, asker: &Asker, found: &Found) -> bool {
        let uid = asker.caller.uid;
        let administrator = uid == 0 || Some(uid) == self.slurm_uid || uid == users::effective_uid();
        let owner = uid == found.run.uid;
        match &asker.peer {
            Some(peer) if peer.role == Role::Node && administrator => {
                self.config.admin_host(&peer.name) || owner && found.run.nodes.contains(&peer.name)
            }
            _ => administrator || owner,
        }
    }

    /// A command at this node's door.
    pub async fn at_door(&self, conn: DoorConn, caller: Caller) {
        let (replies, requests) = conn.split::<RecordsReply, RecordsRequest>();
        self.converse(replies, requests, Asker { caller, peer: None }).await;
    }

    /// Commands that a daemon of another host speaks for.
    pub async fn from_peer(&self, connection: Connection) {
        while let Ok(Some((header, bulk))) = connection.accept_bulk::<RelayHeader>().await {
            let caller = Caller { host: connection.peer.name.clone(), ..header.caller };
            let asker = Asker { caller, peer: Some(connection.peer.clone()) };
            let (replies, requests) = bulk.split::<RecordsReply, RecordsRequest>(limits::DOOR);
            let world = self.clone();
            actix_rt::spawn(async move { world.converse(replies, requests, asker).await });
        }
    }

    async fn converse(&self, replies: Sender<RecordsReply>, mut requests: Receiver<RecordsRequest>, asker: Asker) {
        while let Ok(Some(request)) = requests.recv().await {
            if !self.answer(&replies, request.msg, &asker).await {
                break;
            }
        }
    }

    /// False: the asker is gone.
    async fn answer(&self, replies: &Sender<RecordsReply>, request: RecordsRequest, asker: &Asker) -> bool {
        let Ok(_turn) = self.readers.acquire().await else { return false };
        let RecordsRequest::Read { job, run, wanted } = request;
        if !wanted.is_bounded() {
            return refuse(replies, Refusal::InvalidStep("too many of them are named".to_owned())).await;
        }
        let spool = self.spool.clone();
        let found = tokio::task::spawn_blocking(move || spool.records_of(job, run)).await;
        let found = match found {
            Ok(Ok(found)) => found.into_iter().next(),
            Ok(Err(e)) => return refuse(replies, Refusal::Internal(e.to_string())).await,
            Err(e) => return refuse(replies, Refusal::Internal(e.to_string())).await,
        };
        let Some(found) = found else { return refuse(replies, Refusal::InvalidJobId).await };
        if !self.may_see(asker, &found) {
            tracing::warn!(uid = asker.caller.uid, job_id = job.0, "records of somebody else's steps were asked for");
            return refuse(replies, Refusal::AccessDenied).await;
        }
        let (parts, mut ready) = mpsc::channel(AHEAD);
        let reading = tokio::task::spawn_blocking(move || {
            records::read(&found, &wanted, |part| parts.blocking_send(part).is_ok());
        });
        while let Some(part) = ready.recv().await {
            if replies.send(traced(part)).await.is_err() {
                return false;
            }
        }
        reading.await.is_ok()
    }
}

async fn refuse(replies: &Sender<RecordsReply>, refusal: Refusal) -> bool {
    replies.send(traced(RecordsReply::Refused(refusal))).await.is_ok()
}
