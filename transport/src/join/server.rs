//! The controller's side of joining: stores the tokens (in the CA's folder, across restarts), knows the shared key, and issues
//! identities. It answers at the endpoint (as [`crate::EndpointOptions::join`]) and at the controller's door.

use super::{
    JoinError,
    client::read_shared_key,
    exchange::{
        BINDING_LABEL, Binding, ControllerSide, IssuedIdentity, JoinReply, JoinRequest, JoinWay, Later, NotIssued,
        Registrar, Secret,
    },
    token::{Token, TokenBook},
};
use crate::{
    class::Class,
    door::DoorConn,
    error::LinkError,
    identity::{
        CertAuthority, Change, IdentityError, KeepError, Role, authority::key_of_request, files, invalid,
        signing::random,
    },
    link::{Receiver, Sender, over_classes},
    quic::{
        endpoint::{AnswerJoins, Answered},
        greeting::Greeted,
    },
    sparing::Sparing,
};
use garrick_frame::Traced;
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};
use tokio::{sync::watch, time::timeout};

/// The book of tokens, in the CA's folder.
const TOKENS_FILE: &str = "join-tokens";
/// Time for one node to join.
const JOIN_TIME: Duration = Duration::from_secs(10);

/// Nothing is tried again later than this, so that the answer comes in that time.
const LAST_TRY: Duration = Duration::from_secs(8);

type NameRule = dyn Fn(&str) -> Result<(), String> + Send + Sync;
type KeyRule = dyn Fn(&str, &[u8; 32]) -> Result<(), String> + Send + Sync;

/// Lets nodes join.
pub struct JoinServer {
    authority: Arc<CertAuthority>,
    tokens_file: PathBuf,
    tokens: Mutex<TokenBook>,
    shared_key: Option<PathBuf>,
    cluster_uid: u32,
    role: Role,
    names: Box<NameRule>,
    keys: Box<KeyRule>,
    /// Turns true once nodes can be served.
    ready: Option<watch::Receiver<bool>>,
}

impl std::fmt::Debug for JoinServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinServer").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl JoinServer {
    /// For the cluster of `authority`. At the door, root and this process's own user may join; see the other settings.
    pub fn new(authority: Arc<CertAuthority>) -> Result<Self, IdentityError> {
        let tokens_file = authority.folder().join(TOKENS_FILE);
        let tokens = match files::read_secret(&tokens_file, 16 << 20) {
            Ok(bytes) => {
                garrick_frame::decode_body(&bytes).map_err(|e| invalid(tokens_file.display().to_string(), e))?
            }
            Err(IdentityError::Absent { .. }) => TokenBook::default(),
            Err(error) => return Err(error),
        };
        Ok(Self {
            authority,
            tokens_file,
            tokens: Mutex::new(tokens),
            shared_key: None,
            cluster_uid: nix::unistd::geteuid().as_raw(),
            role: Role::Node,
            names: Box::new(|_| Ok(())),
            keys: Box::new(|_, _| Ok(())),
            ready: None,
        })
    }

    /// Nodes that have this file may join. It is read when one asks, so it may come or change later.
    #[must_use]
    pub fn with_shared_key(mut self, path: &Path) -> Self {
        self.shared_key = Some(path.to_owned());
        self
    }

    /// The cluster's user (SlurmUser): besides root, its processes may join at the door.
    #[must_use]
    pub const fn with_cluster_uid(mut self, uid: u32) -> Self {
        self.cluster_uid = uid;
        self
    }

    /// Only names for which `rule` holds (the configuration's nodes) may join; its error is told to the node.
    #[must_use]
    pub fn with_names(mut self, rule: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.names = Box::new(rule);
        self
    }

    /// Only processes of that role may join, where they are not nodes.
    #[must_use]
    pub const fn with_role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// A name may be had with that key (SHA-256 of its public half) only if `rule` holds, which is asked when the secret was proven;
    /// its error is told.
    #[must_use]
    pub fn with_keys(mut self, rule: impl Fn(&str, &[u8; 32]) -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.keys = Box::new(rule);
        self
    }

    /// Nodes that come before `ready` is true wait until it is: a controller that is still starting refuses no node.
    #[must_use]
    pub fn once(mut self, ready: watch::Receiver<bool>) -> Self {
        self.ready = Some(ready);
        self
    }

    async fn is_ready(&self) {
        if let Some(ready) = &self.ready {
            // The sender is gone with the whole controller.
            let _ = ready.clone().wait_for(|ready| *ready).await;
        }
    }

    /// Creates a one-time token, for one node only if it is named: the text to take to it. Blocks until the token is saved.
    pub fn create_token(&self, lifetime: Duration, only: Option<&str>) -> Result<String, IdentityError> {
        let token = Token::new(random()?, random()?, self.authority.fingerprint());
        self.change_tokens(|book| book.add(&token, only, lifetime, SystemTime::now()))?
            .map_err(|e| invalid("join token", e))?;
        Ok(token.text())
    }

    /// Changes the book and keeps it, or changes nothing. The file is short and written seldom: at most once per join.
    fn change_tokens<T>(&self, change: impl FnOnce(&mut TokenBook) -> T) -> Result<T, IdentityError> {
        let mut book = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = book.clone();
        let result = change(&mut changed);
        let bytes = rmp_serde::to_vec_named(&changed).map_err(|e| invalid("join tokens", e))?;
        self.authority.keep(vec![Change::private(self.tokens_file.clone(), bytes)])?;
        *book = changed;
        Ok(result)
    }

    /// Serves a connection of kind `Join` at the controller's door; the kernel identifies the client.
    pub async fn serve_door(self: &Arc<Self>, conn: DoorConn) -> Result<(), JoinError> {
        let peer = format!("uid {} (pid {})", conn.peer.uid, conn.peer.pid);
        let uid = conn.peer.uid;
        let (sender, receiver) = conn.split();
        self.serve(sender, receiver, [0; 32], Some(uid), peer).await
    }

    /// Serves a QUIC connection of kind `Join`.
    async fn serve_connection(
        self: &Arc<Self>,
        connection: quinn::Connection,
        greeted: Greeted,
        peer: &str,
    ) -> Result<(), LinkError> {
        let mut binding = [0; 32];
        connection
            .export_keying_material(&mut binding, BINDING_LABEL, b"")
            .map_err(|_| LinkError::lost(peer, "the TLS session gives no binding"))?;
        let (sender, receiver) = over_classes(connection.clone(), greeted.sending, greeted.lanes, peer.into());
        let served = self.serve(sender, receiver, binding, None, peer.to_owned()).await;
        // The node closes when it has read the answer; closing first could lose it.
        let _ = timeout(JOIN_TIME, connection.closed()).await;
        match served {
            Ok(()) => Ok(()),
            Err(JoinError::Link(error)) => Err(error),
            Err(error) => Err(LinkError::Refused { peer: peer.to_owned(), reason: format!("not joined: {error}") }),
        }
    }

    async fn serve(
        self: &Arc<Self>,
        sender: Sender<JoinReply>,
        mut receiver: Receiver<JoinRequest>,
        binding: Binding,
        door_uid: Option<u32>,
        peer: String,
    ) -> Result<(), JoinError> {
        self.is_ready().await;
        let mut conversation = ControllerSide::new(binding);
        let until = Instant::now() + LAST_TRY;
        let talk = async {
            while !conversation.is_over() {
                let Some(request) = receiver.recv().await? else { return Ok(()) };
                let reply = loop {
                    let (nonce, server, request) = (random()?, Arc::clone(self), request.msg.clone());
                    // Not on a thread that serves others: what is issued is kept first.
                    let handling = tokio::task::spawn_blocking(move || {
                        let mut desk = Desk { server: &server, door_uid };
                        let reply = conversation.handle(request, nonce, &mut desk);
                        (conversation, reply)
                    });
                    let answer;
                    (conversation, answer) = handling.await.map_err(|e| invalid("join", e))?;
                    match answer {
                        Ok(reply) => break reply,
                        // The node waits as long.
                        Err(Later(after)) if Instant::now() + after < until => tokio::time::sleep(after).await,
                        Err(Later(after)) => {
                            let later = KeepError::Later { after };
                            break JoinReply::Refused {
                                reason: format!("the certificate could not be issued: {later}"),
                            };
                        }
                    }
                };
                let refused = if let JoinReply::Refused { reason } = &reply { Some(reason.clone()) } else { None };
                if let JoinReply::Issued { identity, .. } = &reply {
                    tracing::info!(%peer, cluster = %identity.cluster, "node.joined");
                }
                sender.send_on(Class::Request, Traced::untraced(reply)).await?;
                if let Some(reason) = refused {
                    static REFUSED: Sparing = Sparing::new();
                    if let Some(left_out) = REFUSED.due(Instant::now()) {
                        tracing::warn!(%peer, %reason, left_out, "node.join refused");
                    }
                    return Err(JoinError::Refused { peer: peer.clone(), reason });
                }
            }
            Ok(())
        };
        match timeout(JOIN_TIME, talk).await {
            Ok(result) => result,
            Err(_) => Err(LinkError::NoGreeting { peer: peer.clone(), after: JOIN_TIME }.into()),
        }
    }
}

impl AnswerJoins for JoinServer {
    fn answer(self: Arc<Self>, connection: quinn::Connection, greeted: Greeted, peer: String) -> Answered {
        Box::pin(async move { self.serve_connection(connection, greeted, &peer).await })
    }
}

/// One conversation's view of the server.
pub(super) struct Desk<'a> {
    pub(super) server: &'a JoinServer,
    /// At the door: the user of the client.
    pub(super) door_uid: Option<u32>,
}

impl Registrar for Desk<'_> {
    fn admit(&mut self, way: &JoinWay, role: Role, name: &str) -> Result<Option<Secret>, String> {
        match self.server.role {
            admitted if admitted == role => {}
            Role::Node => return Err(format!("only nodes join; a {role} gets its identity on the controller's host")),
            admitted => return Err(format!("a {admitted} joins here, not a {role}")),
        }
        (self.server.names)(name)?;
        let vouched = matches!(way, JoinWay::Token { .. });
        if !vouched && self.server.authority.is_barred(role, name) {
            return Err(format!(
                "the certificate of {name} was revoked: it joins again with a token only (garrick token)"
            ));
        }
        match (way, self.door_uid) {
            (JoinWay::Door, Some(uid)) if uid == 0 || uid == self.server.cluster_uid => Ok(None),
            (JoinWay::Door, Some(uid)) => {
                Err(format!("only root and the cluster's user may join at the door, not uid {uid}"))
            }
            (JoinWay::Door, None) => Err("joining by peer credentials works at the controller's door only".to_owned()),
            (_, Some(_)) => Err("tokens and shared keys work over the network only".to_owned()),
            (JoinWay::Token { id }, None) => {
                let book = self.server.tokens.lock().unwrap_or_else(PoisonError::into_inner);
                book.secret(id, SystemTime::now()).map(Some)
            }
            (JoinWay::SharedKey, None) => {
                let path = self.server.shared_key.as_ref().ok_or("this controller has no shared key file")?;
                read_shared_key(path).map(Some).map_err(|e| {
                    tracing::error!(error = %e, "node.join shared key");
                    "the controller cannot use its shared key file (see its log)".to_owned()
                })
            }
        }
    }

    fn failed(&mut self, way: &JoinWay) {
        if let JoinWay::Token { id } = way
            && let Err(error) = self.server.change_tokens(|book| book.failed(id))
        {
            tracing::error!(%error, "node.join tokens");
        }
    }

    fn issue(&mut self, way: &JoinWay, role: Role, name: &str, csr: &[u8]) -> Result<IssuedIdentity, NotIssued> {
        let failed = |error: IdentityError| {
            if let IdentityError::Keep(KeepError::Later { after }) = error {
                return NotIssued::Later(after);
            }
            tracing::error!(%error, name, "node.join issue");
            NotIssued::Refused(format!("the certificate could not be issued: {error}"))
        };
        let authority = &self.server.authority;
        // The key, not the request: a signature of one request made twice differs.
        let key = key_of_request(csr).map_err(failed)?;
        (self.server.keys)(name, &key)?;
        if let JoinWay::Token { id } = way {
            // Before anything is issued: a certificate on record counts as valid, even if it was never received.
            let book = self.server.tokens.lock().unwrap_or_else(PoisonError::into_inner);
            book.admits(id, name, &key, authority.is_barred(role, name))?;
        }
        // The certificate before the token is used up: a request that cannot be answered must not do that.
        let certificate = authority.issue(role, name, csr).map_err(failed)?;
        if let JoinWay::Token { id } = way {
            self.server.change_tokens(|book| book.spend(id, name, &key)).map_err(failed)??;
        }
        Ok(IssuedIdentity {
            cluster: authority.cluster().to_owned(),
            certificate,
            authorities: authority.trusted_pem(),
        })
    }
}
