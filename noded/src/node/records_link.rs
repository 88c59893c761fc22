//! Conversations of commands that request records of steps, at this node's door and from other daemons.

use super::{
    records::{self, Following, Found, Sought},
    spool::Spool,
};
use crate::guests::{Guest, Guests};
use garrick_daemon::links::{RelayHeader, traced};
use garrick_frame::limits;
use garrick_kernel::users;
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
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

/// Files that are read at a time, for whomever: further ones wait.
const READERS: usize = 2;
/// Parts that are read ahead of a slow asker.
const AHEAD: usize = 2;
/// Questions of one user that are being answered at a time, and of all: each has a thread, which waits for its asker.
const OF_USER: usize = 4;
const OF_ALL: usize = 64;
/// Runs that one user follows at a time. What waits and runs of each is held in memory meanwhile.
const FOLLOWED: usize = 4;
/// Those on top may come back after this.
const COME_BACK: Duration = Duration::from_secs(2);
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
    /// Connections that follow records.
    followers: Guests,
    threads: Arc<Semaphore>,
}

/// The requester, and the node that speaks for him.
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
            followers: Guests::with_most(FOLLOWED),
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
        let mut followed: Option<(Following, Guest)> = None;
        while let Ok(Some(request)) = requests.recv().await {
            let answered = match request.msg {
                RecordsRequest::Read { job, run, task, wanted } => {
                    let bounded = wanted.is_bounded();
                    let read = |found: Found| move |pass: Pass<'_>| records::read(found, &wanted, pass);
                    self.answer(&replies, Wanted { sought: Sought { job, run, task }, bounded }, &asker, read).await
                }
                RecordsRequest::Follow { job, run, task, wanted } => {
                    let Some(guest) = self.followers.enter(asker.caller.uid) else {
                        if refuse(&replies, Refusal::RetryAfter { after: COME_BACK }).await {
                            continue;
                        }
                        break;
                    };
                    let bounded = wanted.is_bounded();
                    let read = |found: Found| {
                        move |pass: Pass<'_>| {
                            let mut following = Following::new(found, &wanted);
                            following.more(pass);
                            following
                        }
                    };
                    let begun = self
                        .answer(&replies, Wanted { sought: Sought { job, run, task }, bounded }, &asker, read)
                        .await;
                    begun
                        .map(|begun| followed = begun.map(|following| (following, guest)).or(followed.take()))
                        .map(Some)
                }
                RecordsRequest::More => match followed.take() {
                    None => refused(&replies, Refusal::Internal("nothing is followed".to_owned())).await,
                    Some((mut following, guest)) => match self.thread_for(&asker) {
                        // It reads on from where it was when he asks again.
                        Err(refusal) => {
                            followed = Some((following, guest));
                            refused(&replies, refusal).await
                        }
                        Ok(_thread) => {
                            let Ok(turn) = self.readers.acquire().await else { break };
                            let read = move |pass: Pass<'_>| {
                                following.more(pass);
                                following
                            };
                            let read_on = self.pass_on(&replies, turn, read).await;
                            read_on.map(|following| followed = Some((following, guest))).map(Some)
                        }
                    },
                },
            };
            if answered.is_none() {
                break;
            }
        }
    }

    /// One of the threads; root goes on without, where there is none left.
    fn thread_for(&self, asker: &Asker) -> Result<Option<SemaphorePermit<'_>>, Refusal> {
        match self.threads.try_acquire() {
            Ok(thread) => Ok(Some(thread)),
            Err(_) if asker.caller.uid == 0 => Ok(None),
            Err(_) => Err(Refusal::RetryAfter { after: COME_BACK }),
        }
    }

    /// Reads what is wanted, if the asker may see it. `None`: the asker is gone; `Some(None)`: he was refused.
    async fn answer<T, R, M>(
        &self,
        replies: &Sender<RecordsReply>,
        wanted: Wanted,
        asker: &Asker,
        read: M,
    ) -> Option<Option<T>>
    where
        T: Send + 'static,
        R: FnOnce(Pass<'_>) -> T + Send + 'static,
        M: FnOnce(Found) -> R,
    {
        let Wanted { sought, bounded } = wanted;
        let uid = asker.caller.uid;
        let (asks, thread) = (self.askers.enter(uid), self.thread_for(asker));
        if asks.is_none() || thread.is_err() {
            return refused(replies, Refusal::RetryAfter { after: COME_BACK }).await;
        }
        let Ok(turn) = self.readers.acquire().await else { return None };
        if !bounded {
            return refused(replies, Refusal::InvalidStep("too many of them are named".to_owned())).await;
        }
        let spool = self.spool.clone();
        let found = tokio::task::spawn_blocking(move || spool.records_of(sought)).await;
        let found = match found {
            Ok(Ok(found)) => found.into_iter().next(),
            Ok(Err(e)) => return refused(replies, Refusal::Internal(e.to_string())).await,
            Err(e) => return refused(replies, Refusal::Internal(e.to_string())).await,
        };
        let Some(found) = found else { return refused(replies, Refusal::InvalidJobId).await };
        if !self.may_see(asker, &found) {
            static DENIED: Sparing = Sparing::new();
            if let Some(left_out) = DENIED.due(Instant::now()) {
                tracing::warn!(
                    uid,
                    job_id = found.run.job.0,
                    left_out,
                    "records of somebody else's steps were asked for"
                );
            }
            return refused(replies, Refusal::AccessDenied).await;
        }
        self.pass_on(replies, turn, read(found)).await.map(Some)
    }

    /// Has records read on a thread and sends what comes of them. `None`: the asker is gone.
    async fn pass_on<T: Send + 'static>(
        &self,
        replies: &Sender<RecordsReply>,
        turn: SemaphorePermit<'_>,
        read: impl FnOnce(Pass<'_>) -> T + Send + 'static,
    ) -> Option<T> {
        let mut turn = Some(turn);
        let (parts, mut ready) = mpsc::channel(AHEAD);
        let reading = tokio::task::spawn_blocking(move || read(&mut |part| parts.blocking_send(part).is_ok()));
        while let Some(part) = ready.recv().await {
            // Others read while this one's asker takes it.
            drop(turn.take());
            match tokio::time::timeout(PATIENCE, replies.send(traced(part))).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return None,
            }
            turn = self.readers.acquire().await.ok();
        }
        drop(turn);
        reading.await.ok()
    }
}

/// Receives parts of records; returns false when no more are needed.
type Pass<'a> = &'a mut dyn FnMut(RecordsReply) -> bool;

/// Whose records are wanted.
struct Wanted {
    sought: Sought,
    bounded: bool,
}

/// Refuses, and goes on with the conversation; `None`: the asker is gone.
async fn refused<T>(replies: &Sender<RecordsReply>, refusal: Refusal) -> Option<Option<T>> {
    refuse(replies, refusal).await.then_some(None)
}

async fn refuse(replies: &Sender<RecordsReply>, refusal: Refusal) -> bool {
    replies.send(traced(RecordsReply::Refused(refusal))).await.is_ok()
}
