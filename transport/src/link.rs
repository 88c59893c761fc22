//! Typed messages over a link, the same for a door and for a QUIC connection: [`Sender`] encodes into bounded queues,
//! [`Receiver`] merges the classes with control first. Order is kept within a class; a more urgent class may overtake.

use crate::{
    class::Class,
    error::{LinkError, close_code, from_connection},
    handed::{Arrivals, HandedFd},
    outbox::{Outbox, Wait},
};
use garrick_frame::{Accompanied, Decoder, FrameError, Traced, codec::encode_into, limits};
use nix::{errno::Errno, sys::socket};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    borrow::Borrow,
    future::poll_fn,
    io,
    marker::PhantomData,
    os::fd::AsRawFd,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{io::Interest, net::UnixStream};

/// Sends one direction's messages. Clones share the queues; when the last is dropped, what is queued is still written,
/// and then the direction ends.
#[derive(Debug)]
pub struct Sender<Out> {
    core: Arc<SenderCore>,
    out: PhantomData<fn(Out)>,
}

impl<Out> Clone for Sender<Out> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core), out: PhantomData }
    }
}

#[derive(Debug)]
struct SenderCore {
    peer: Arc<str>,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// One queue; control in front. Written directly while the socket takes it.
    Door { outbox: Arc<Outbox>, stream: Arc<UnixStream> },
    /// A queue per class, each with its stream.
    Classes([Arc<Outbox>; 3]),
    /// One queue, whatever the class.
    Single(Arc<Outbox>, usize),
}

impl Drop for SenderCore {
    fn drop(&mut self) {
        match &self.way {
            Way::Door { outbox, .. } | Way::Single(outbox, _) => outbox.finish(),
            Way::Classes(outboxes) => outboxes.iter().for_each(|outbox| outbox.finish()),
        }
    }
}

impl<Out: Serialize> Sender<Out> {
    /// Sends a request, reply or report; waits while the queue is full. When the future is dropped before it is done, the
    /// message is not sent. `Ok` means queued: only an answer says that it arrived.
    pub async fn send(&self, msg: impl Borrow<Traced<Out>>) -> Result<(), LinkError> {
        self.send_on(Class::Request, msg).await
    }

    /// Sends in a class.
    pub async fn send_on(&self, class: Class, msg: impl Borrow<Traced<Out>>) -> Result<(), LinkError> {
        let frame = self.encode(class, msg.borrow())?;
        drop(msg);
        self.outbox(class).push(class, frame).await?;
        self.write_now(class);
        Ok(())
    }

    /// Sends without waiting; [`LinkError::Busy`] when the queue is full.
    pub fn try_send(&self, msg: &Traced<Out>) -> Result<(), LinkError> {
        self.try_send_on(Class::Request, msg)
    }

    /// Sends in a class without waiting.
    pub fn try_send_on(&self, class: Class, msg: &Traced<Out>) -> Result<(), LinkError> {
        let frame = self.encode(class, msg)?;
        if !self.outbox(class).try_push(class, frame)? {
            return Err(LinkError::full(&*self.core.peer, class));
        }
        self.write_now(class);
        Ok(())
    }

    /// Like [`Sender::try_send`], but written once the tasks that are ready now have run: messages that are posted one after
    /// the other leave together and wake their reader once.
    pub fn try_post(&self, msg: &Traced<Out>) -> Result<(), LinkError> {
        let class = Class::Request;
        let frame = self.encode(class, msg)?;
        if !self.outbox(class).try_push(class, frame)? {
            return Err(LinkError::full(&*self.core.peer, class));
        }
        self.outbox(class).wake();
        Ok(())
    }

    fn encode(&self, class: Class, msg: &Traced<Out>) -> Result<Vec<u8>, LinkError> {
        let limit = match &self.core.way {
            Way::Door { .. } | Way::Classes(_) => class.frame_limit(),
            Way::Single(_, limit) => *limit,
        };
        let mut frame = Vec::with_capacity(256);
        encode_into(msg, limit, &mut frame)
            .map_err(|e| LinkError::frame(&*self.core.peer, format!("{class} messages"), e))?;
        Ok(frame)
    }

    fn outbox(&self, class: Class) -> &Outbox {
        match &self.core.way {
            Way::Door { outbox, .. } | Way::Single(outbox, _) => outbox,
            Way::Classes(outboxes) => &outboxes[class.index()],
        }
    }

    /// At a door an answer usually fits into the socket: written here, it spares waking the writer's task.
    fn write_now(&self, class: Class) {
        let Way::Door { outbox, stream } = &self.core.way else { return self.outbox(class).wake() };
        match outbox.drain(|bytes| send_now(stream, bytes)) {
            Ok(true) => {}
            Ok(false) => outbox.wake(),
            Err(errno) => outbox.fail(door_error(&self.core.peer, errno)),
        }
    }
}

/// One `send` without waiting; `None` when the socket is full.
pub(crate) fn send_now(stream: &UnixStream, bytes: &[u8]) -> Result<Option<usize>, Errno> {
    use socket::MsgFlags;
    loop {
        return match socket::send(stream.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
            Ok(count) => Ok(Some(count)),
            Err(Errno::EINTR) => continue,
            Err(Errno::EAGAIN) => Ok(None),
            Err(errno) => Err(errno),
        };
    }
}

/// Waits for more bytes; 0 at the end.
pub(crate) async fn recv_more(
    stream: &UnixStream,
    decoder: &mut Decoder,
    arrivals: &mut Arrivals,
) -> Result<usize, Errno> {
    // Straight to the kernel first: on a fresh connection the bytes are often there before the reactor has heard of it.
    if let Some(count) = arrivals.recv(stream, decoder)? {
        return Ok(count);
    }
    loop {
        stream.readable().await.map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(0)))?;
        let mut result = Ok(None);
        let _ = stream.try_io(Interest::READABLE, || {
            result = arrivals.recv(stream, decoder);
            match &result {
                // Clears the readiness that turned out to be none.
                Ok(None) => Err(io::ErrorKind::WouldBlock.into()),
                _ => Ok(()),
            }
        });
        if let Some(count) = result? {
            return Ok(count);
        }
    }
}

pub(crate) fn door_error(peer: &str, errno: Errno) -> LinkError {
    match errno {
        Errno::EPIPE | Errno::ECONNRESET => {
            LinkError::Closed { peer: peer.to_owned(), reason: "by the other process".to_owned() }
        }
        errno => LinkError::io(peer, "Unix socket", errno),
    }
}

/// Makes the two ends of a door connection. `held` leaves with the first message.
pub(crate) fn over_door<Out, In>(
    stream: UnixStream,
    decoder: Decoder,
    arrivals: Arrivals,
    peer: Arc<str>,
    held: Vec<u8>,
) -> (Sender<Out>, Receiver<In>) {
    let stream = Arc::new(stream);
    let outbox = Arc::new(Outbox::new(&[Class::Control, Class::Request]));
    outbox.hold(held);
    tokio::spawn(write_door(Arc::clone(&outbox), Arc::clone(&stream), Arc::clone(&peer)));
    let way = Way::Door { outbox, stream: Arc::clone(&stream) };
    let source = Source::Door { stream, decoder, arrivals };
    let receiver = Receiver { peer: Arc::clone(&peer), source, of: PhantomData };
    (Sender { core: Arc::new(SenderCore { peer, way }), out: PhantomData }, receiver)
}

async fn write_door(outbox: Arc<Outbox>, stream: Arc<UnixStream>, peer: Arc<str>) {
    let write = async {
        loop {
            match outbox.wait().await {
                Wait::Finish | Wait::Failed => return Ok(()),
                Wait::Frames => {}
            }
            if outbox.drain(|bytes| send_now(&stream, bytes))? {
                continue;
            }
            if stream.writable().await.is_err() {
                return Err(Errno::EPIPE);
            }
            // Clears the readiness when the socket turns out to be still full.
            let _ = stream.try_io(Interest::WRITABLE, || match outbox.drain(|bytes| send_now(&stream, bytes)) {
                Ok(false) => Err(io::ErrorKind::WouldBlock.into()),
                Ok(true) => Ok(()),
                Err(errno) => Err(errno.into()),
            });
        }
    };
    let result = tokio::select! {
        result = write => result,
        () = outbox.lingered() => Err(Errno::ETIMEDOUT),
    };
    if let Err(errno) = result {
        outbox.fail(door_error(&peer, errno));
    }
    let _ = socket::shutdown(stream.as_raw_fd(), socket::Shutdown::Write);
}

/// One class's incoming stream.
#[derive(Debug)]
pub(crate) struct Lane {
    pub class: Option<Class>,
    pub stream: quinn::RecvStream,
    pub decoder: Decoder,
    pub ended: bool,
}

impl Lane {
    pub fn new(class: Option<Class>, stream: quinn::RecvStream, decoder: Decoder) -> Self {
        Self { class, stream, decoder, ended: false }
    }

    fn name(&self) -> String {
        self.class.map_or_else(|| "bulk stream".to_owned(), |class| format!("{class} messages"))
    }
}

/// Makes the two ends of a QUIC connection from its class streams.
pub(crate) fn over_classes<Out, In>(
    connection: quinn::Connection,
    sending: [quinn::SendStream; 3],
    lanes: Vec<Lane>,
    peer: Arc<str>,
) -> (Sender<Out>, Receiver<In>) {
    let outboxes = Class::ALL.map(|class| Arc::new(Outbox::new(&[class])));
    for (outbox, stream) in outboxes.iter().zip(sending) {
        tokio::spawn(write_stream(Arc::clone(outbox), stream, connection.clone(), Arc::clone(&peer)));
    }
    let source = Source::Streams { lanes, connection: Some(connection), lost: None };
    let core = Arc::new(SenderCore { peer: Arc::clone(&peer), way: Way::Classes(outboxes) });
    (Sender { core, out: PhantomData }, Receiver { peer, source, of: PhantomData })
}

/// Makes the two ends of a framed bulk stream.
pub(crate) fn over_bulk<Out, In>(
    connection: quinn::Connection,
    sending: quinn::SendStream,
    receiving: quinn::RecvStream,
    peer: Arc<str>,
    limit: usize,
) -> (Sender<Out>, Receiver<In>) {
    let outbox = Arc::new(Outbox::new(&[Class::Request]));
    tokio::spawn(write_stream(Arc::clone(&outbox), sending, connection, Arc::clone(&peer)));
    let mut decoder = Decoder::new(limit);
    // A command's words, relayed as they came.
    decoder.distrust();
    let lanes = vec![Lane::new(None, receiving, decoder)];
    let core = Arc::new(SenderCore { peer: Arc::clone(&peer), way: Way::Single(outbox, limit) });
    let source = Source::Streams { lanes, connection: None, lost: None };
    (Sender { core, out: PhantomData }, Receiver { peer, source, of: PhantomData })
}

async fn write_stream(
    outbox: Arc<Outbox>,
    mut stream: quinn::SendStream,
    connection: quinn::Connection,
    peer: Arc<str>,
) {
    let write = async {
        loop {
            match outbox.wait().await {
                Wait::Finish | Wait::Failed => break,
                Wait::Frames => {}
            }
            while let Some(batch) = outbox.take_batch() {
                stream.write_chunk(batch.into()).await?;
                outbox.batch_done();
            }
        }
        let _ = stream.finish();
        Ok::<(), quinn::WriteError>(())
    };
    let error = tokio::select! {
        biased;
        result = write => match result {
            Ok(()) => return,
            Err(quinn::WriteError::ConnectionLost(e)) => from_connection(e, &peer, Duration::ZERO),
            Err(quinn::WriteError::Stopped(_)) => {
                LinkError::Closed { peer: peer.to_string(), reason: "the peer reads no more".to_owned() }
            }
            Err(e) => LinkError::lost(&*peer, e),
        },
        // An idle sender learns of the end too.
        error = connection.closed() => from_connection(error, &peer, Duration::ZERO),
        () = outbox.lingered() => LinkError::lost(&*peer, "the peer does not read"),
    };
    outbox.fail(error);
}

/// Receives one direction's messages.
#[derive(Debug)]
pub struct Receiver<In> {
    peer: Arc<str>,
    source: Source,
    of: PhantomData<fn() -> In>,
}

#[derive(Debug)]
enum Source {
    Door { stream: Arc<UnixStream>, decoder: Decoder, arrivals: Arrivals },
    Streams { lanes: Vec<Lane>, connection: Option<quinn::Connection>, lost: Option<LinkError> },
}

impl<In: DeserializeOwned> Receiver<In> {
    /// The next message; `None` when the peer has ended its direction in good order. May be dropped and called again
    /// without losing anything. After an error for which [`LinkError::is_malformed_message`] holds, the next message can
    /// be asked for; after any other the link is over.
    pub async fn recv(&mut self) -> Result<Option<Traced<In>>, LinkError> {
        match &mut self.source {
            Source::Door { stream, decoder, arrivals } => loop {
                let link_error = |e| LinkError::frame(&*self.peer, "door", e);
                let next = decoder.next::<Accompanied<In>>().inspect_err(|_| arrivals.lost_track());
                if let Some(Accompanied { trace, cause, fds, msg }) = next.map_err(link_error)? {
                    arrivals.delivered(fds);
                    return Ok(Some(Traced { trace, cause, msg }));
                }
                if recv_more(stream, decoder, arrivals).await.map_err(|e| door_error(&self.peer, e))? == 0 {
                    return decoder.finish().map(|()| None).map_err(link_error);
                }
            },
            Source::Streams { lanes, connection, lost } => {
                let result = poll_fn(|cx| poll_lanes(lanes, lost, cx, &self.peer)).await;
                // The sender of a frame that cannot be read past is told so; anyone else's streams go on.
                if let (Err(error @ LinkError::Frame { source: FrameError::TooLarge { .. }, .. }), Some(connection)) =
                    (&result, connection)
                {
                    connection.close(quinn::VarInt::from_u32(close_code::BAD_FRAME), error.to_string().as_bytes());
                }
                result
            }
        }
    }
}

impl<In> Receiver<In> {
    /// The descriptors of the message that [`Receiver::recv`] returned last: as many as it announced, or none if they are not
    /// accepted. Those that are not taken before the next message are closed.
    pub fn take_descriptors(&mut self) -> Vec<HandedFd> {
        match &mut self.source {
            Source::Door { arrivals, .. } => arrivals.take(),
            Source::Streams { .. } => Vec::new(),
        }
    }
}

fn poll_lanes<In: DeserializeOwned>(
    lanes: &mut [Lane],
    lost: &mut Option<LinkError>,
    cx: &mut Context<'_>,
    peer: &str,
) -> Poll<Result<Option<Traced<In>>, LinkError>> {
    // In order of urgency; a less urgent lane is looked at only when the ones before it have nothing at this moment.
    for lane in lanes.iter_mut() {
        loop {
            match lane.decoder.next() {
                Ok(Some(msg)) => return Poll::Ready(Ok(Some(msg))),
                Ok(None) => {}
                Err(e) => return Poll::Ready(Err(LinkError::frame(peer, lane.name(), e))),
            }
            if lane.ended {
                break;
            }
            let Lane { stream, decoder, .. } = lane;
            let read = decoder.fill(|space| match stream.poll_read(cx, space) {
                Poll::Ready(Ok(count)) => Ok(count),
                Poll::Ready(Err(e)) => Err(Some(e)),
                Poll::Pending => Err(None),
            });
            match read {
                Ok(0) => {
                    lane.ended = true;
                    if let Err(e) = lane.decoder.finish() {
                        return Poll::Ready(Err(LinkError::frame(peer, lane.name(), e)));
                    }
                }
                Ok(_) => {}
                Err(None) => break,
                Err(Some(e)) => {
                    // What has arrived on the others is still read before the loss is told.
                    lane.ended = true;
                    if let Some(error) = read_failed(e, lane, peer) {
                        lost.get_or_insert(error);
                    }
                }
            }
        }
    }
    if !lanes.iter().all(|lane| lane.ended) {
        return Poll::Pending;
    }
    Poll::Ready(lost.clone().map_or(Ok(None), Err))
}

/// Why a stream cannot be read on; `None` when the peer closed in good order.
fn read_failed(error: quinn::ReadError, lane: &Lane, peer: &str) -> Option<LinkError> {
    match error {
        quinn::ReadError::ConnectionLost(quinn::ConnectionError::ApplicationClosed(close))
            if close.error_code == quinn::VarInt::from_u32(close_code::NORMAL) =>
        {
            lane.decoder.finish().err().map(|e| LinkError::frame(peer, lane.name(), e))
        }
        quinn::ReadError::ConnectionLost(e) => Some(from_connection(e, peer, Duration::ZERO)),
        quinn::ReadError::Reset(_) => Some(LinkError::lost(peer, format!("the peer gave up its {}", lane.name()))),
        e => Some(LinkError::lost(peer, e)),
    }
}

/// Largest frame at a door.
pub(crate) const DOOR_LIMIT: usize = limits::DOOR;
