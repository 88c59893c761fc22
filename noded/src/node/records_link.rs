//! Conversations of commands that want records of steps, at this node's door and from other daemons.

use crate::{
    daemon::guests::Guests,
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
    Connection, DoorConn, Receiver, Sender, Sparing,
    identity::{PeerIdentity, Role},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{Semaphore, mpsc};

/// Files that are read at a time, for whomever: further ones wait.
const READERS: usize = 2;
/// Parts that are read ahead of a slow asker.
const AHEAD: usize = 2;
/// Questions of one user that are being answered at a time, and of all: each has a thread, which waits for its asker.
const OF_USER: usize = 4;
const OF_ALL: usize = 64;
/// One that takes nothing for so long is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the conversations share.
#[derive(Clone, Debug)]
pub struct RecordsWorld {
    spool: Spool,
    config: Arc<Config>,
    slurm_uid: Option<u32>,
    readers: Arc<Semaphore>,
    /// Whose questions are being answered.
    askers: Guests,
    threads: Arc<Semaphore>,
}

/// Who asks, and who speaks for him.
struct Asker {
    caller: Caller,
    peer: Option<PeerIdentity>,
}

impl RecordsWorld {
    /// Of this node.
    pub fn new(spool: Spool, config: Arc<Config>, slurm_uid: Option<u32>) -> Self {
        Self {
            spool,
            config,
            slurm_uid,
            readers: Arc::new(Semaphore::new(READERS)),
            askers: Guests::with_most(OF_USER),
            threads: Arc::new(Semaphore::new(OF_ALL)),
        }
    }

    /// May he see these? Their owner may, root and SlurmUser; of the latter a node speaks where the site says so, and of an
    /// unprivileged cluster its one user is the administrator.
    fn may_see(&self, asker: &Asker, found: &Found) -> bool {
        let uid = asker.caller.uid;
        let administrator = uid == 0 || Some(uid) == self.slurm_uid;
        let owner = uid == found.run.uid;
        match &asker.peer {
            Some(peer) if peer.role == Role::Node && administrator => {
                self.config.admin_host(&peer.name) || owner && found.run.nodes.contains(&peer.name)
            }
            Some(_) => administrator || owner,
            None => administrator || owner || uid == users::effective_uid(),
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
        let uid = asker.caller.uid;
        let (asks, thread) = (self.askers.enter(uid), self.threads.try_acquire());
        if asks.is_none() || thread.is_err() && uid != 0 {
            return refuse(replies, Refusal::RetryAfter { after: Duration::from_secs(2) }).await;
        }
        let Ok(turn) = self.readers.acquire().await else { return false };
        let mut turn = Some(turn);
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
            static DENIED: Sparing = Sparing::new();
            if let Some(left_out) = DENIED.due(Instant::now()) {
                tracing::warn!(uid, job_id = job.0, left_out, "records of somebody else's steps were asked for");
            }
            return refuse(replies, Refusal::AccessDenied).await;
        }
        let (parts, mut ready) = mpsc::channel(AHEAD);
        let reading = tokio::task::spawn_blocking(move || {
            records::read(&found, &wanted, |part| parts.blocking_send(part).is_ok());
        });
        while let Some(part) = ready.recv().await {
            // Others read while this one's asker takes it.
            drop(turn.take());
            match tokio::time::timeout(PATIENCE, replies.send(traced(part))).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return false,
            }
            turn = self.readers.acquire().await.ok();
        }
        drop(turn);
        reading.await.is_ok()
    }
}

async fn refuse(replies: &Sender<RecordsReply>, refusal: Refusal) -> bool {
    replies.send(traced(RecordsReply::Refused(refusal))).await.is_ok()
}
