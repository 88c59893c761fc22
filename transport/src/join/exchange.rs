//! The protocol of joining, as two pure state machines: messages in, messages out; nonces and the session's binding are
//! arguments. [`super::server`] and [`super::client`] transfer the messages.
//!
//! ```text
//! node                                   controller
//! Begin{way, role, name, nonce, csr} ->
//!                                     <- Challenge{nonce}
//! Prove{proof}                        ->
//!                                     <- Issued{identity, proof}   or Refused{reason}
//! ```
//!
//! At the door nothing has to be proved: `Begin` is answered by `Issued` or `Refused`. Over the network the node proves first, so
//! that a stranger gets nothing from the controller with which to guess the secret.

use super::JoinError;
use crate::identity::Role;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use sha2::Sha256;
use std::time::Duration;

/// Secret of a join: of a token, or derived from a shared key file.
pub type Secret = [u8; 32];
/// A value that only the two ends of one TLS session can compute (RFC 5705, RFC 9266).
pub type Binding = [u8; 32];
/// Random number of one conversation.
pub type Nonce = [u8; 32];

/// Label under which the binding is taken from the TLS session.
pub const BINDING_LABEL: &[u8] = b"EXPORTER-garrick-join-1";

/// How a node wants to prove that it may join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinWay {
    /// With a one-time token.
    Token {
        /// Which (not secret).
        id: String,
    },
    /// With the site's shared key file.
    SharedKey,
    /// By peer credentials, at the controller's door.
    Door,
}

/// From the node. Safe to repeat: the same request under the same token gets a certificate again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinRequest {
    /// First message.
    Begin {
        /// How.
        way: JoinWay,
        /// As what.
        role: Role,
        /// Under which name.
        name: String,
        /// 32 random bytes.
        nonce: ByteBuf,
        /// Certificate request (PKCS #10, DER).
        csr: ByteBuf,
    },
    /// Answer to `Challenge`.
    Prove {
        /// HMAC-SHA256.
        proof: ByteBuf,
    },
}

/// What a node gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedIdentity {
    /// Cluster.
    pub cluster: String,
    /// Its certificate, PEM.
    pub certificate: String,
    /// Authorities to trust, PEM.
    pub authorities: Vec<String>,
}

/// From the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinReply {
    /// Prove it.
    Challenge {
        /// 32 random bytes.
        nonce: ByteBuf,
    },
    /// Welcome. Last message.
    Issued {
        /// The new identity.
        identity: IssuedIdentity,
        /// HMAC-SHA256 over it and the conversation; empty at the door.
        #[serde(default)]
        proof: ByteBuf,
    },
    /// No. Last message.
    Refused {
        /// Why.
        reason: String,
    },
}

/// Everything that both sides prove to have seen alike.
struct Transcript {
    binding: Binding,
    way: JoinWay,
    role: Role,
    name: String,
    csr: Vec<u8>,
    node_nonce: Vec<u8>,
    controller_nonce: Vec<u8>,
}

impl Transcript {
    /// Each part with its length, so that no two conversations give the same bytes.
    fn mac(&self, secret: &Secret, side: &str, issued: Option<&IssuedIdentity>) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
        let mut add = |part: &[u8]| {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        };
        add(b"garrick join 1");
        add(side.as_bytes());
        add(&self.binding);
        add(match &self.way {
            JoinWay::Token { .. } => b"token",
            JoinWay::SharedKey => b"shared key",
            JoinWay::Door => b"door",
        });
        add(if let JoinWay::Token { id } = &self.way { id.as_bytes() } else { b"" });
        add(self.role.to_string().as_bytes());
        add(self.name.as_bytes());
        add(&self.csr);
        add(&self.node_nonce);
        add(&self.controller_nonce);
        if let Some(issued) = issued {
            add(issued.cluster.as_bytes());
            add(issued.certificate.as_bytes());
            for authority in &issued.authorities {
                add(authority.as_bytes());
            }
        }
        mac
    }

    fn prove(&self, secret: &Secret, side: &str, issued: Option<&IssuedIdentity>) -> ByteBuf {
        ByteBuf::from(self.mac(secret, side, issued).finalize().into_bytes().to_vec())
    }

    /// In constant time.
    fn holds(&self, secret: &Secret, side: &str, issued: Option<&IssuedIdentity>, proof: &[u8]) -> bool {
        self.mac(secret, side, issued).verify_slice(proof).is_ok()
    }
}

/// What a node asks for.
#[derive(Clone, Debug)]
pub struct Asking {
    /// How it will prove itself.
    pub way: JoinWay,
    /// As what.
    pub role: Role,
    /// Under which name.
    pub name: String,
    /// Certificate request (PKCS #10, DER).
    pub csr: Vec<u8>,
}

/// The node's side over the network.
pub struct NodeSide {
    transcript: Transcript,
    secret: Secret,
    peer: String,
}

/// What the node does next.
#[derive(Debug)]
pub enum NodeStep {
    /// Send this.
    Send(JoinRequest),
    /// It has joined.
    Done(IssuedIdentity),
}

impl NodeSide {
    /// Begins; send the message that comes with it.
    pub fn begin(asking: Asking, secret: Secret, binding: Binding, nonce: Nonce, peer: &str) -> (Self, JoinRequest) {
        let Asking { way, role, name, csr } = asking;
        let request = JoinRequest::Begin {
            way: way.clone(),
            role,
            name: name.clone(),
            nonce: ByteBuf::from(nonce),
            csr: ByteBuf::from(csr.clone()),
        };
        let transcript =
            Transcript { binding, way, role, name, csr, node_nonce: nonce.to_vec(), controller_nonce: Vec::new() };
        (Self { transcript, secret, peer: peer.to_owned() }, request)
    }

    /// Takes an answer.
    pub fn handle(&mut self, reply: JoinReply) -> Result<NodeStep, JoinError> {
        let peer = self.peer.clone();
        match reply {
            JoinReply::Challenge { nonce } if self.transcript.controller_nonce.is_empty() && nonce.len() == 32 => {
                self.transcript.controller_nonce = nonce.into_vec();
                Ok(NodeStep::Send(JoinRequest::Prove { proof: self.transcript.prove(&self.secret, "node", None) }))
            }
            JoinReply::Challenge { .. } => Err(JoinError::Unexpected { peer, what: "a second challenge".to_owned() }),
            JoinReply::Issued { identity, proof } => {
                let proven = !self.transcript.controller_nonce.is_empty()
                    && self.transcript.holds(&self.secret, "controller", Some(&identity), &proof);
                if proven { Ok(NodeStep::Done(identity)) } else { Err(JoinError::Impostor { peer }) }
            }
            JoinReply::Refused { reason } => Err(JoinError::Refused { peer, reason }),
        }
    }
}

/// Why nothing was issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotIssued {
    /// Nothing will be, for this reason.
    Refused(String),
    /// It can be asked for again after that time.
    Later(Duration),
}

impl From<String> for NotIssued {
    fn from(reason: String) -> Self {
        Self::Refused(reason)
    }
}

/// The same message can be handled again after that time: nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Later(pub Duration);

/// What the controller's side needs of the code that keeps tokens, keys and the CA. Refusals are messages for the node's
/// administrator.
pub trait Registrar {
    /// May a process join this way, with this role and name? Returns the secret to be proven; `None`: nothing to prove (door).
    fn admit(&mut self, way: &JoinWay, role: Role, name: &str) -> Result<Option<Secret>, String>;
    /// A proof was wrong.
    fn failed(&mut self, way: &JoinWay);
    /// It was right: issue, and use up what can be used once.
    fn issue(&mut self, way: &JoinWay, role: Role, name: &str, csr: &[u8]) -> Result<IssuedIdentity, NotIssued>;
}

/// The controller's side.
pub struct ControllerSide {
    binding: Binding,
    state: ControllerState,
}

enum ControllerState {
    Waiting,
    Challenged(Box<Transcript>, Secret),
    Over,
}

impl ControllerSide {
    /// Waits for a node. At the door the binding is not used.
    pub const fn new(binding: Binding) -> Self {
        Self { binding, state: ControllerState::Waiting }
    }

    /// Is the conversation over, after the last reply?
    pub const fn is_over(&self) -> bool {
        matches!(self.state, ControllerState::Over)
    }

    /// Takes a message; has an answer, or is to be given the same message again. `nonce` must be fresh.
    pub fn handle(
        &mut self,
        request: JoinRequest,
        nonce: Nonce,
        registrar: &mut dyn Registrar,
    ) -> Result<JoinReply, Later> {
        let state = std::mem::replace(&mut self.state, ControllerState::Over);
        let refused = |reason: &str| JoinReply::Refused { reason: reason.to_owned() };
        Ok(match (state, request) {
            (ControllerState::Waiting, JoinRequest::Begin { way, role, name, nonce: node_nonce, csr }) => {
                if node_nonce.len() != 32 || csr.len() > 16 << 10 || name.len() > 255 {
                    return Ok(refused("the request is malformed"));
                }
                match registrar.admit(&way, role, &name) {
                    Err(reason) => JoinReply::Refused { reason },
                    Ok(None) => match registrar.issue(&way, role, &name, &csr) {
                        Ok(identity) => JoinReply::Issued { identity, proof: ByteBuf::new() },
                        Err(NotIssued::Refused(reason)) => JoinReply::Refused { reason },
                        Err(NotIssued::Later(after)) => {
                            self.state = ControllerState::Waiting;
                            return Err(Later(after));
                        }
                    },
                    Ok(Some(secret)) => {
                        let transcript = Transcript {
                            binding: self.binding,
                            way,
                            role,
                            name,
                            csr: csr.into_vec(),
                            node_nonce: node_nonce.into_vec(),
                            controller_nonce: nonce.to_vec(),
                        };
                        self.state = ControllerState::Challenged(Box::new(transcript), secret);
                        JoinReply::Challenge { nonce: ByteBuf::from(nonce) }
                    }
                }
            }
            (ControllerState::Challenged(transcript, secret), JoinRequest::Prove { proof }) => {
                if !transcript.holds(&secret, "node", None, &proof) {
                    registrar.failed(&transcript.way);
                    return Ok(refused("the proof is wrong: another secret, or the connection is tampered with"));
                }
                match registrar.issue(&transcript.way, transcript.role, &transcript.name, &transcript.csr) {
                    Ok(identity) => {
                        let proof = transcript.prove(&secret, "controller", Some(&identity));
                        JoinReply::Issued { identity, proof }
                    }
                    Err(NotIssued::Refused(reason)) => JoinReply::Refused { reason },
                    Err(NotIssued::Later(after)) => {
                        self.state = ControllerState::Challenged(transcript, secret);
                        return Err(Later(after));
                    }
                }
            }
            _ => refused("the messages come in the wrong order"),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[derive(Default)]
    struct Book {
        secret: Option<Secret>,
        failed: usize,
        issued: usize,
        /// So often it is to be asked again.
        later: usize,
    }

    impl Registrar for Book {
        fn admit(&mut self, way: &JoinWay, _role: Role, name: &str) -> Result<Option<Secret>, String> {
            match way {
                JoinWay::Door => Ok(None),
                _ if name == "stranger" => Err("not a node of this cluster".into()),
                _ => Ok(self.secret),
            }
        }
        fn failed(&mut self, _way: &JoinWay) {
            self.failed += 1;
        }
        fn issue(&mut self, _way: &JoinWay, role: Role, name: &str, _csr: &[u8]) -> Result<IssuedIdentity, NotIssued> {
            if let Some(left) = self.later.checked_sub(1) {
                self.later = left;
                return Err(NotIssued::Later(Duration::from_secs(3)));
            }
            self.issued += 1;
            Ok(IssuedIdentity {
                cluster: "c1".into(),
                certificate: format!("certificate of {role} {name}"),
                authorities: vec!["ca".into()],
            })
        }
    }

    fn node(secret: Secret, binding: Binding, name: &str) -> (NodeSide, JoinRequest) {
        let asking = Asking { way: JoinWay::SharedKey, role: Role::Node, name: name.into(), csr: vec![1, 2] };
        NodeSide::begin(asking, secret, binding, [5; 32], "ctl")
    }

    /// Runs a conversation; `meddle` may change what travels to the node.
    fn run(
        node: (NodeSide, JoinRequest),
        controller_binding: Binding,
        book: &mut Book,
        meddle: impl Fn(&mut JoinReply),
    ) -> Result<IssuedIdentity, JoinError> {
        let (mut node, mut request) = node;
        let mut controller = ControllerSide::new(controller_binding);
        loop {
            let mut reply = loop {
                match controller.handle(request.clone(), [6; 32], book) {
                    Ok(reply) => break reply,
                    Err(Later(after)) => assert_eq!(after, Duration::from_secs(3)),
                }
            };
            meddle(&mut reply);
            match node.handle(reply)? {
                NodeStep::Send(next) => request = next,
                NodeStep::Done(identity) => return Ok(identity),
            }
        }
    }

    #[test]
    fn those_who_share_a_secret_and_a_session_agree() {
        let mut book = Book { secret: Some([7; 32]), ..Book::default() };
        let identity = run(node([7; 32], [1; 32], "n1"), [1; 32], &mut book, |_| {}).unwrap();
        assert_eq!(identity.certificate, "certificate of node n1");
        assert_eq!((book.issued, book.failed), (1, 0));
    }

    #[test]
    fn a_proof_that_cannot_be_answered_yet_is_one_still() {
        let mut book = Book { secret: Some([7; 32]), later: 2, ..Book::default() };
        let identity = run(node([7; 32], [1; 32], "n1"), [1; 32], &mut book, |_| {}).unwrap();
        assert_eq!(identity.certificate, "certificate of node n1");
        assert_eq!((book.issued, book.failed, book.later), (1, 0, 0));
    }

    #[test]
    fn another_secret_or_another_session_gets_nothing() {
        for (secret, binding) in [([8; 32], [1; 32]), ([7; 32], [2; 32])] {
            let mut book = Book { secret: Some([7; 32]), ..Book::default() };
            let error = run(node(secret, binding, "n1"), [1; 32], &mut book, |_| {}).unwrap_err();
            assert!(error.to_string().contains("the proof is wrong"), "{error}");
            assert_eq!((book.issued, book.failed), (0, 1));
        }
    }

    #[test]
    fn an_identity_that_was_changed_or_not_proven_is_not_believed() {
        type Meddle = fn(&mut JoinReply);
        let change: Meddle = |reply| {
            if let JoinReply::Issued { identity, .. } = reply {
                identity.authorities.push("evil".into());
            }
        };
        let skip: Meddle = |reply| {
            let identity = IssuedIdentity { cluster: "c1".into(), certificate: "x".into(), authorities: vec![] };
            *reply = JoinReply::Issued { identity, proof: ByteBuf::new() };
        };
        for meddle in [change, skip] {
            let mut book = Book { secret: Some([7; 32]), ..Book::default() };
            let error = run(node([7; 32], [1; 32], "n1"), [1; 32], &mut book, meddle).unwrap_err();
            assert!(matches!(error, JoinError::Impostor { .. }), "{error}");
        }
    }

    #[test]
    fn refusals_and_disorder_end_the_conversation() {
        let mut book = Book { secret: Some([7; 32]), ..Book::default() };
        let error = run(node([7; 32], [1; 32], "stranger"), [1; 32], &mut book, |_| {}).unwrap_err();
        assert!(error.to_string().contains("not a node of this cluster"), "{error}");
        let mut controller = ControllerSide::new([1; 32]);
        let reply = controller.handle(JoinRequest::Prove { proof: ByteBuf::new() }, [6; 32], &mut book);
        assert!(matches!(reply, Ok(JoinReply::Refused { .. })));
        assert!(controller.is_over());
        let (_, begin) = node([7; 32], [1; 32], "n1");
        assert!(matches!(controller.handle(begin, [6; 32], &mut book), Ok(JoinReply::Refused { .. })));
        assert_eq!(book.issued, 0);
    }

    #[test]
    fn saved_messages_of_version_one_still_read() {
        use crate::identity::authority::{hex, unhex};
        let begin = JoinRequest::Begin {
            way: JoinWay::Token { id: "0102".into() },
            role: Role::Node,
            name: "n1".into(),
            nonce: ByteBuf::from([1, 2]),
            csr: ByteBuf::from([3]),
        };
        let identity = IssuedIdentity { cluster: "c1".into(), certificate: "C".into(), authorities: vec!["A".into()] };
        let issued = JoinReply::Issued { identity, proof: ByteBuf::from([4]) };
        let saved = include_str!("../../samples/v1/join.hex").lines().collect::<Vec<_>>();
        assert_eq!(hex(&rmp_serde::to_vec_named(&begin).unwrap()), saved[0]);
        assert_eq!(hex(&rmp_serde::to_vec_named(&issued).unwrap()), saved[1]);
        let read = |line: &str| unhex(line).unwrap();
        assert_eq!(garrick_frame::decode_body::<JoinRequest>(&read(saved[0])).unwrap(), begin);
        assert_eq!(garrick_frame::decode_body::<JoinReply>(&read(saved[1])).unwrap(), issued);
    }

    #[test]
    fn at_the_door_one_message_suffices() {
        let mut book = Book::default();
        let mut controller = ControllerSide::new([0; 32]);
        let begin = JoinRequest::Begin {
            way: JoinWay::Door,
            role: Role::Node,
            name: "n1".into(),
            nonce: ByteBuf::from([0; 32]),
            csr: ByteBuf::new(),
        };
        assert!(matches!(controller.handle(begin, [6; 32], &mut book), Ok(JoinReply::Issued { .. })));
        assert!(controller.is_over());
    }
}
