//! Right after the handshake: the class streams are opened and announced, greetings are exchanged on the control stream,
//! and the peer's certificate is read. Each class stream begins with one byte that names its class, which also makes it
//! known to the other side (QUIC shows a stream only once it carries data).

use crate::{
    class::Class,
    error::{LinkError, close_code, from_connection},
    identity::PeerIdentity,
    link::Lane,
};
use garrick_frame::{Decoder, Hello, HelloReply, LinkKind, PROTOCOL, encode, limits};
use quinn::{Connection, RecvStream, SendStream, VarInt};
use rustls::pki_types::CertificateDer;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Longest reason in characters: the closing frame has to fit into one packet.
const MOST_REASON: usize = 250;

/// What a greeted connection is made of.
#[derive(Debug)]
pub struct Greeted {
    pub(crate) link: LinkKind,
    pub(crate) version: u16,
    /// The other side's program, name and version.
    pub(crate) program: String,
    pub(crate) sending: [SendStream; 3],
    pub(crate) lanes: Vec<Lane>,
}

/// The certificates that the peer showed, its own first; `None` when it showed none.
pub(crate) fn shown_certificates(connection: &Connection) -> Option<Vec<CertificateDer<'static>>> {
    let shown = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    (!shown.is_empty()).then_some(*shown)
}

/// The identity of the peer, from its verified certificate.
pub(crate) fn peer_identity(connection: &Connection, peer: &str) -> Result<PeerIdentity, LinkError> {
    let shown = shown_certificates(connection).ok_or_else(|| LinkError::NoCertificate { peer: peer.to_owned() })?;
    PeerIdentity::of_certificate(&shown[0]).map_err(|e| LinkError::BadCertificate {
        peer: peer.to_owned(),
        whose: crate::Whose::Peers,
        cause: e.to_string(),
    })
}

/// The connecting side: all its messages are sent in one flight.
pub(crate) async fn as_client(
    connection: &Connection,
    link: LinkKind,
    program: &str,
    peer: &str,
) -> Result<Greeted, LinkError> {
    let hello = encode(&Hello::new(link, program), limits::HELLO).map_err(|e| LinkError::frame(peer, "greeting", e))?;
    let sending = open_classes(connection, &hello, peer).await?;
    let mut lanes = accept_classes(connection, Vec::new(), peer).await?;
    match read_first(&mut lanes[Class::Control.index()], peer).await? {
        HelloReply::Welcome { version, program } => Ok(Greeted { link, version, program, sending, lanes }),
        HelloReply::Refused { reason, versions } => {
            Err(crate::error::refused(peer.to_owned(), reason, versions, PROTOCOL))
        }
    }
}

/// The accepting side, first half: the peer's greeting. Nothing was sent to the peer yet.
pub(crate) struct Asked {
    pub hello: Hello,
    pub reply: HelloReply,
    control: Lane,
}

/// Reads the greeting; one that asks for what there is none of is refused here.
pub(crate) async fn read_hello(connection: &Connection, program: &str, peer: &str) -> Result<Asked, LinkError> {
    let mut control = accept_class(connection, peer).await?;
    if control.class != Some(Class::Control) {
        return Err(refuse(connection, "the greeting has to come on the control stream", peer));
    }
    loop {
        let body = control.decoder.next_body().map_err(|e| LinkError::frame(peer, "greeting", e))?;
        let Some(body) = body else {
            read_more(&mut control, peer).await?;
            continue;
        };
        let (hello, reply) =
            crate::door::read_hello(body, program).map_err(|e| LinkError::frame(peer, "greeting", e))?;
        return match (hello, reply) {
            (Some(hello), reply @ HelloReply::Welcome { .. }) => {
                control.decoder.set_limit(Class::Control.frame_limit());
                Ok(Asked { hello, reply, control })
            }
            (_, reply) => Err(refuse_with(connection, &reply, peer)),
        };
    }
}

impl Asked {
    /// The accepting side, second half: says welcome and completes the streams.
    pub async fn welcome(self, connection: &Connection, peer: &str) -> Result<Greeted, LinkError> {
        let version = match &self.reply {
            HelloReply::Welcome { version, .. } => *version,
            HelloReply::Refused { .. } => return Err(refuse_with(connection, &self.reply, peer)),
        };
        let reply =
            encode(&self.reply, limits::HELLO).map_err(|e| LinkError::frame(peer, "answer to the greeting", e))?;
        let sending = open_classes(connection, &reply, peer).await?;
        let lanes = accept_classes(connection, vec![self.control], peer).await?;
        Ok(Greeted { link: self.hello.link, version, program: self.hello.program, sending, lanes })
    }
}

/// Refuses a connection in words for people. They travel in the closing frame, which needs no further patience.
pub(crate) fn refuse(connection: &Connection, reason: &str, peer: &str) -> LinkError {
    let reason = reason.chars().take(MOST_REASON).collect();
    refuse_with(connection, &HelloReply::Refused { reason, versions: PROTOCOL }, peer)
}

fn refuse_with(connection: &Connection, reply: &HelloReply, peer: &str) -> LinkError {
    let body = rmp_serde::to_vec_named(reply).unwrap_or_default();
    connection.close(VarInt::from_u32(close_code::REFUSED), &body);
    let reason = match reply {
        HelloReply::Refused { reason, .. } => reason.clone(),
        HelloReply::Welcome { .. } => String::new(),
    };
    LinkError::Closed { peer: peer.to_owned(), reason: format!("refused by this process: {reason}") }
}

fn lost(error: quinn::ConnectionError, peer: &str) -> LinkError {
    from_connection(error, peer, Duration::ZERO)
}

async fn open_classes(connection: &Connection, on_control: &[u8], peer: &str) -> Result<[SendStream; 3], LinkError> {
    let mut streams = Vec::with_capacity(Class::ALL.len());
    for class in Class::ALL {
        let mut stream = connection.open_uni().await.map_err(|e| lost(e, peer))?;
        let _ = stream.set_priority(class.priority());
        let mut first = vec![class.index() as u8];
        if class == Class::Control {
            first.extend_from_slice(on_control);
        }
        stream.write_all(&first).await.map_err(|e| match e {
            quinn::WriteError::ConnectionLost(e) => lost(e, peer),
            e => LinkError::lost(peer, e),
        })?;
        streams.push(stream);
    }
    streams.try_into().map_err(|_| LinkError::lost(peer, "class streams are missing"))
}

async fn accept_classes(connection: &Connection, mut lanes: Vec<Lane>, peer: &str) -> Result<Vec<Lane>, LinkError> {
    while lanes.len() < Class::ALL.len() {
        let lane = accept_class(connection, peer).await?;
        if lane.class != Some(Class::ALL[lanes.len()]) {
            return Err(refuse(connection, "class streams have to come in their order", peer));
        }
        lanes.push(lane);
    }
    Ok(lanes)
}

async fn accept_class(connection: &Connection, peer: &str) -> Result<Lane, LinkError> {
    let mut stream = connection.accept_uni().await.map_err(|e| lost(e, peer))?;
    let mut tag = [0];
    stream.read_exact(&mut tag).await.map_err(|e| match e {
        quinn::ReadExactError::ReadError(quinn::ReadError::ConnectionLost(e)) => lost(e, peer),
        e => LinkError::lost(peer, e),
    })?;
    let class = Class::ALL.get(usize::from(tag[0])).copied();
    let Some(class) = class else {
        return Err(refuse(connection, &format!("unknown class of stream {}", tag[0]), peer));
    };
    let limit = if class == Class::Control { limits::HELLO } else { class.frame_limit() };
    Ok(Lane::new(Some(class), stream, Decoder::new(limit)))
}

async fn read_first<T: DeserializeOwned>(lane: &mut Lane, peer: &str) -> Result<T, LinkError> {
    loop {
        if let Some(msg) = lane.decoder.next().map_err(|e| LinkError::frame(peer, "answer to the greeting", e))? {
            lane.decoder.set_limit(Class::Control.frame_limit());
            return Ok(msg);
        }
        read_more(lane, peer).await?;
    }
}

async fn read_more(lane: &mut Lane, peer: &str) -> Result<(), LinkError> {
    match read_chunk(&mut lane.stream).await {
        Ok(Some(bytes)) => {
            lane.decoder.feed(&bytes);
            Ok(())
        }
        Ok(None) => {
            lane.decoder.finish().map_err(|e| LinkError::frame(peer, "greeting", e))?;
            Err(LinkError::lost(peer, "it ended its control stream"))
        }
        Err(quinn::ReadError::ConnectionLost(e)) => Err(lost(e, peer)),
        Err(e) => Err(LinkError::lost(peer, e)),
    }
}

async fn read_chunk(stream: &mut RecvStream) -> Result<Option<Vec<u8>>, quinn::ReadError> {
    let mut buffer = vec![0; limits::HELLO];
    let count = stream.read(&mut buffer).await?;
    Ok(count.map(|count| {
        buffer.truncate(count);
        buffer
    }))
}
