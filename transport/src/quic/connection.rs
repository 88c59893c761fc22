//! A connection between two authenticated processes.

use super::{
    bulk::BulkStream,
    greeting::{Greeted, shown_certificates},
};
use crate::{
    Whose,
    error::{LinkError, close_code, from_connection},
    identity::{IdentityError, PeerIdentity, key_of_certificate},
    link::{Lane, Receiver, Sender, over_classes},
};
use garrick_frame::{FrameError, LinkKind, codec::PREFIX, decode_body, encode, limits};
use quinn::{RecvStream, SendStream, VarInt};
use serde::{Serialize, de::DeserializeOwned};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{sync::Mutex, time::timeout};

/// How long to wait for the peer to allow one more bulk stream, and for the header of one that it opened.
const BULK_TIME: Duration = Duration::from_secs(10);

/// A mutually authenticated connection, after its greeting. It lives until one side closes it or all of its handles and
/// ends are dropped.
#[derive(Debug)]
pub struct Connection {
    /// The process at the other end, according to its certificate.
    pub peer: PeerIdentity,
    /// What the connection is for.
    pub link: LinkKind,
    /// Version that both speak.
    pub version: u16,
    /// The other side's program, name and version.
    pub program: String,
    /// Where the peer is.
    pub remote: SocketAddr,
    handle: LinkHandle,
    streams: Option<([SendStream; 3], Vec<Lane>)>,
}

impl Connection {
    pub(crate) fn new(connection: quinn::Connection, peer: PeerIdentity, greeted: Greeted) -> Self {
        let remote = connection.remote_address();
        let name: Arc<str> = format!("{} {} at {remote}", peer.role, peer.name).into();
        Self {
            peer,
            link: greeted.link,
            version: greeted.version,
            program: greeted.program,
            remote,
            handle: LinkHandle { connection, name, opening: Arc::new(Mutex::new(None)) },
            streams: Some((greeted.sending, greeted.lanes)),
        }
    }

    /// The two ends for the link's enums. Everything that the peer sends waits for the receiver, class by class.
    ///
    /// # Panics
    /// When called a second time: there is one pair of ends.
    pub fn split<Out, In>(&mut self) -> (Sender<Out>, Receiver<In>) {
        let (sending, lanes) = self.streams.take().expect("split is called once for a connection");
        over_classes(self.handle.connection.clone(), sending, lanes, Arc::clone(&self.handle.name))
    }

    /// SHA-256 of the public key in the peer's certificate: the one that a [`JoinServer`](crate::JoinServer) was asked about when
    /// it was made.
    ///
    /// # Errors
    /// The certificate cannot be read.
    pub fn peer_key(&self) -> Result<[u8; 32], LinkError> {
        let peer = || self.handle.name.to_string();
        let shown =
            shown_certificates(&self.handle.connection).ok_or_else(|| LinkError::NoCertificate { peer: peer() })?;
        let bad =
            |e: IdentityError| LinkError::BadCertificate { peer: peer(), whose: Whose::Peers, cause: e.to_string() };
        key_of_certificate(&shown[0]).map_err(bad)
    }

    /// For bulk streams and closing, wherever the ends have gone.
    pub fn handle(&self) -> LinkHandle {
        self.handle.clone()
    }

    /// See [`LinkHandle::open_bulk`].
    pub async fn open_bulk<H: Serialize>(&self, header: &H) -> Result<BulkStream, LinkError> {
        self.handle.open_bulk(header).await
    }

    /// See [`LinkHandle::accept_bulk`].
    pub async fn accept_bulk<H: DeserializeOwned>(&self) -> Result<Option<(H, BulkStream)>, LinkError> {
        self.handle.accept_bulk().await
    }

    /// See [`LinkHandle::close`].
    pub fn close(&self, reason: &str) {
        self.handle.close(reason);
    }
}

/// A clonable handle of a connection.
#[derive(Clone, Debug)]
pub struct LinkHandle {
    pub(crate) connection: quinn::Connection,
    name: Arc<str>,
    /// A bulk stream whose header is being read: kept here, so that a dropped `accept_bulk` loses nothing.
    opening: Arc<Mutex<Option<Opening>>>,
}

#[derive(Debug)]
struct Opening {
    sending: SendStream,
    receiving: RecvStream,
    frame: Vec<u8>,
}

impl LinkHandle {
    /// Opens a bulk stream; `header` tells the peer what it is for (at most [`limits::BULK`] bytes). Waits a while when
    /// too many are open.
    pub async fn open_bulk<H: Serialize>(&self, header: &H) -> Result<BulkStream, LinkError> {
        let frame = encode(header, limits::BULK).map_err(|e| LinkError::frame(&*self.name, "bulk header", e))?;
        let opening = async {
            let (mut sending, receiving) = self.connection.open_bi().await.map_err(|e| self.lost(e))?;
            sending.write_all(&frame).await.map_err(|e| self.write_failed(e))?;
            Ok(self.bulk(sending, receiving))
        };
        match timeout(BULK_TIME, opening).await {
            Ok(opened) => opened,
            Err(_) => {
                let what = format!("no room for one more bulk stream within {} s", BULK_TIME.as_secs());
                Err(LinkError::Busy { peer: self.name.to_string(), what })
            }
        }
    }

    /// The next bulk stream that the peer opens, with its header; `None` when the connection was closed in good order. May
    /// be dropped and called again. After an error about a frame the next one can be asked for (the faulty stream is given
    /// up); after any other the connection is over.
    pub async fn accept_bulk<H: DeserializeOwned>(&self) -> Result<Option<(H, BulkStream)>, LinkError> {
        let mut slot = self.opening.lock().await;
        if slot.is_none() {
            match self.connection.accept_bi().await {
                Ok((sending, receiving)) => *slot = Some(Opening { sending, receiving, frame: Vec::new() }),
                Err(quinn::ConnectionError::ApplicationClosed(close))
                    if close.error_code == VarInt::from_u32(close_code::NORMAL) =>
                {
                    return Ok(None);
                }
                Err(quinn::ConnectionError::LocallyClosed) => return Ok(None),
                Err(e) => return Err(self.lost(e)),
            }
        }
        let Some(opening) = slot.as_mut() else { return Ok(None) };
        let header = match timeout(BULK_TIME, self.read_header(opening)).await {
            Ok(header) => header,
            Err(_) => Err(LinkError::NoGreeting { peer: format!("bulk stream of {}", self.name), after: BULK_TIME }),
        };
        let Some(mut opening) = slot.take() else { return Ok(None) };
        drop(slot);
        match header.and_then(|()| {
            decode_body(&opening.frame[PREFIX..]).map_err(|e| LinkError::frame(&*self.name, "bulk header", e))
        }) {
            Ok(header) => Ok(Some((header, self.bulk(opening.sending, opening.receiving)))),
            Err(error) => {
                let _ = opening.sending.reset(VarInt::from_u32(close_code::BAD_FRAME));
                let _ = opening.receiving.stop(VarInt::from_u32(close_code::BAD_FRAME));
                Err(error)
            }
        }
    }

    /// Reads exactly the header frame: what follows is the stream's own.
    async fn read_header(&self, opening: &mut Opening) -> Result<(), LinkError> {
        let bad = |e| LinkError::frame(&*self.name, "bulk header", e);
        let mut piece = vec![0; 4096];
        loop {
            let want = match opening.frame.first_chunk::<PREFIX>() {
                None => PREFIX,
                Some(prefix) => {
                    let size = u32::from_be_bytes(*prefix) as usize;
                    if size > limits::BULK {
                        return Err(bad(FrameError::TooLarge { size, limit: limits::BULK }));
                    }
                    PREFIX + size
                }
            };
            let have = opening.frame.len();
            if have == want && want > PREFIX {
                return Ok(());
            }
            if have >= want {
                return Err(bad(FrameError::Malformed { size: 0, cause: "empty header".to_owned() }));
            }
            let room = piece.len().min(want - have);
            match opening.receiving.read(&mut piece[..room]).await {
                Ok(Some(count)) => opening.frame.extend_from_slice(&piece[..count]),
                Ok(None) => return Err(bad(FrameError::Truncated { have, want })),
                Err(quinn::ReadError::ConnectionLost(e)) => return Err(self.lost(e)),
                Err(_) => return Err(bad(FrameError::Truncated { have, want })),
            }
        }
    }

    fn bulk(&self, sending: SendStream, receiving: RecvStream) -> BulkStream {
        BulkStream::new(self.connection.clone(), Arc::clone(&self.name), sending, receiving)
    }

    /// Closes the connection at once, with words for the other side. What was not sent yet is lost: for an orderly end
    /// drop the sender, and close when the peer has ended its direction too.
    pub fn close(&self, reason: &str) {
        self.connection.close(VarInt::from_u32(close_code::NORMAL), reason.as_bytes());
    }

    /// Closes the connection at once, since the peer is not, or no more, the one that it should be. It learns the reason as
    /// [`LinkError::Refused`].
    pub fn turn_away(&self, reason: &str) {
        self.connection.close(VarInt::from_u32(close_code::WRONG_PEER), reason.as_bytes());
    }

    /// Waits until the connection is over, and says why.
    pub async fn closed(&self) -> LinkError {
        let error = self.connection.closed().await;
        self.lost(error)
    }

    /// Where its packets come from. A peer's own endpoint takes connections there.
    pub fn remote_address(&self) -> SocketAddr {
        self.connection.remote_address()
    }

    /// Is it over?
    pub fn is_closed(&self) -> bool {
        self.connection.close_reason().is_some()
    }

    /// Estimate of the round trip time.
    pub fn round_trip(&self) -> Duration {
        self.connection.rtt()
    }

    /// Peer and address, for messages to people.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn lost(&self, error: quinn::ConnectionError) -> LinkError {
        from_connection(error, &self.name, Duration::ZERO)
    }

    fn write_failed(&self, error: quinn::WriteError) -> LinkError {
        match error {
            quinn::WriteError::ConnectionLost(e) => self.lost(e),
            e => LinkError::lost(&*self.name, e),
        }
    }
}
