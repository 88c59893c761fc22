//! Bulk data: a bidirectional stream for each transfer or relayed conversation, with a window of its own and the lowest priority.
//! It is read and written as bytes, or as frames of its two message types.

use crate::{
    door::DoorConn,
    error::close_code,
    link::{Receiver, Sender, over_bulk},
};
use quinn::{RecvStream, SendStream, VarInt};
use std::{
    io::{self, Cursor},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader, ReadBuf, copy_buf};

/// Bytes moved at a time when relaying.
const RELAY_BUFFER: usize = 64 << 10;

/// A bulk stream. `AsyncWrite::shutdown` ends this direction in good order; dropping without it gives the stream up, which
/// the peer sees as an error.
#[derive(Debug)]
pub struct BulkStream {
    connection: quinn::Connection,
    peer: Arc<str>,
    /// Both taken only by the methods that consume the stream.
    halves: Option<(SendStream, RecvStream)>,
    ended: bool,
}

impl BulkStream {
    pub(crate) fn new(
        connection: quinn::Connection,
        peer: Arc<str>,
        sending: SendStream,
        receiving: RecvStream,
    ) -> Self {
        Self { connection, peer, halves: Some((sending, receiving)), ended: false }
    }

    fn halves(&mut self) -> &mut (SendStream, RecvStream) {
        self.halves.as_mut().expect("the halves leave only when the stream is consumed")
    }

    /// Ends this direction in good order; the other may go on.
    pub fn finish(&mut self) {
        let _ = self.halves().0.finish();
        self.ended = true;
    }

    /// Typed messages over this stream, as at a door: frames of at most `limit` bytes. This is how a relayed command is
    /// served.
    pub fn split<Out, In>(mut self, limit: usize) -> (Sender<Out>, Receiver<In>) {
        let (sending, receiving) = self.take_halves();
        over_bulk(self.connection.clone(), sending, receiving, Arc::clone(&self.peer), limit)
    }

    fn take_halves(&mut self) -> (SendStream, RecvStream) {
        self.halves.take().expect("the halves leave only when the stream is consumed")
    }
}

impl Drop for BulkStream {
    fn drop(&mut self) {
        // QUIC's own default would be a good end, and the peer would take half a file for a whole one.
        if let Some((sending, _)) = &mut self.halves
            && !self.ended
        {
            let _ = sending.reset(VarInt::from_u32(close_code::BAD_FRAME));
        }
    }
}

impl AsyncRead for BulkStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = &mut self.get_mut().halves().1;
        AsyncRead::poll_read(Pin::new(stream), cx, buf)
    }
}

impl AsyncWrite for BulkStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(&mut self.get_mut().halves().0), cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(Pin::new(&mut self.get_mut().halves().0), cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.ended = true;
        AsyncWrite::poll_shutdown(Pin::new(&mut this.halves().0), cx)
    }
}

/// Relays a door connection over a bulk stream, both ways, until both directions have ended; an end of one direction is
/// passed on as such. Returns the bytes that went to the bulk stream and to the door. When one side breaks, the other is
/// given up too.
pub async fn splice(door: DoorConn, mut bulk: BulkStream) -> io::Result<(u64, u64)> {
    let (stream, leading) = door.into_raw();
    let (from_door, mut to_door) = stream.into_split();
    let (mut to_bulk, from_bulk) = bulk.take_halves();
    let up = async {
        let mut from = BufReader::with_capacity(RELAY_BUFFER, Cursor::new(leading).chain(from_door));
        let moved = copy_buf(&mut from, &mut to_bulk).await;
        if moved.is_ok() {
            let _ = to_bulk.finish();
        } else {
            let _ = to_bulk.reset(VarInt::from_u32(close_code::BAD_FRAME));
        }
        moved
    };
    let down = async {
        let mut from = BufReader::with_capacity(RELAY_BUFFER, from_bulk);
        let moved = copy_buf(&mut from, &mut to_door).await?;
        to_door.shutdown().await?;
        Ok(moved)
    };
    tokio::try_join!(up, down)
}
