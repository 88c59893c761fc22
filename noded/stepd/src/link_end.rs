//! One end of the link between a step manager and a shepherd on different hosts. Messages sent while there is no connection are
//! kept, and messages that a broken connection lost are sent again on the next ([`Session`]). One writer per connection sends in
//! order and waits while the connection is full; small frames that are queued together are written together (by the transport).

use super::session::{Met, Session};
use garrick_daemon::links::traced;
use garrick_frame::Traced;
use garrick_model::{ids::RequestId, messages::shepherd_link::LinkFrame};
use garrick_transport::{Class, LinkError, Sender};
use serde::Serialize;
use std::{cell::RefCell, rc::Rc, time::Duration};
use tokio::{sync::Notify, task::JoinHandle};

/// The other side is told what was seen after this time at the latest.
const SEEN_AFTER: Duration = Duration::from_millis(50);

/// A message of this link.
pub trait LinkMessage: Serialize + Clone + 'static {
    /// What one connection remembers of what it carried.
    type Wire: Default;

    /// It must not wait behind others.
    fn is_urgent(&self) -> bool;

    /// Memory that it takes while it is kept, about.
    fn bytes(&self) -> usize;

    /// How it goes over a connection.
    fn on_wire(&self, wire: &mut Self::Wire) -> OnWire<Self>;
}

/// A message as it goes over a connection.
#[derive(Debug)]
pub struct OnWire<M> {
    /// Said before it, for itself.
    pub before: Option<M>,
    /// Said in its place.
    pub instead: Option<M>,
}

impl<M> OnWire<M> {
    /// As it is.
    pub const AS_IT_IS: Self = Self { before: None, instead: None };
}

type Kept<M> = Rc<Traced<LinkFrame<M>>>;
type Unsendable<M> = Box<dyn Fn(&M, LinkError)>;

struct Connected<M> {
    sender: Sender<LinkFrame<M>>,
    writer: JoinHandle<()>,
}

struct State<M: LinkMessage> {
    session: Session<Kept<M>>,
    connected: Option<Connected<M>>,
    /// Number of the next message to write on the connection.
    next: u64,
}

struct Shared<M: LinkMessage> {
    state: RefCell<State<M>>,
    more: Notify,
    given_up: Notify,
    unsendable: Unsendable<M>,
}

/// The end. Clones share it. Lives on one thread.
pub struct LinkEnd<M: LinkMessage>(Rc<Shared<M>>);

impl<M: LinkMessage> Clone for LinkEnd<M> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

/// Names a session. Never 0, which says "none".
fn name() -> u64 {
    RequestId::random().0 | 1
}

impl<M: LinkMessage> LinkEnd<M> {
    /// Not connected. `unsendable` is told of messages that are too large for a frame.
    pub fn new(unsendable: impl Fn(&M, LinkError) + 'static) -> Self {
        let state = State { session: Session::new(name()), connected: None, next: 1 };
        Self(Rc::new(Shared {
            state: RefCell::new(state),
            more: Notify::new(),
            given_up: Notify::new(),
            unsendable: Box::new(unsendable),
        }))
    }

    /// Says a message, on this connection or a later one.
    pub fn send(&self, message: M) {
        let mut state = self.0.state.borrow_mut();
        let (bytes, urgent) = (message.bytes(), message.is_urgent().then(|| message.clone()));
        let Ok(number) = state.session.keep(bytes, Rc::new(traced(LinkFrame::Say(message)))) else {
            tracing::error!("the other side of a link between hosts does not take its messages; starting over with it");
            state.session.give_up(name());
            if state.connected.is_some() {
                self.0.given_up.notify_one();
            }
            return;
        };
        if let (Some(message), Some(connected)) = (urgent, &state.connected) {
            // If there is no space, it follows later.
            let _ = connected.sender.try_send_on(Class::Control, &traced(LinkFrame::Ahead { number, message }));
        }
        drop(state);
        self.0.more.notify_one();
    }

    /// Resolves when the connection is to be given up: the session is.
    pub async fn given_up(&self) {
        self.0.given_up.notified().await;
    }

    /// What the other side said makes no sense: the two start over on the next connection.
    pub fn start_over(&self) {
        self.0.state.borrow_mut().session.give_up(name());
    }

    /// How to begin on a new connection.
    pub fn begin(&self) -> LinkFrame<M> {
        self.0.state.borrow().session.begin()
    }

    /// The other side began on a connection, after this side's own `begin` was made: what is kept goes there from now on.
    pub fn connected(&self, sender: Sender<LinkFrame<M>>, session: u64, known: u64, seen: u64) -> Met {
        self.disconnected();
        let mut state = self.0.state.borrow_mut();
        let met = state.session.meet(session, known, seen);
        state.next = state.session.first();
        let writer = actix_rt::spawn(write(self.clone(), sender.clone()));
        state.connected = Some(Connected { sender, writer });
        met
    }

    /// The connection is gone.
    pub fn disconnected(&self) {
        if let Some(connected) = self.0.state.borrow_mut().connected.take() {
            connected.writer.abort();
        }
    }

    /// Takes a frame of the other side; gives the message, if it is news.
    pub fn hear<In>(&self, frame: LinkFrame<In>) -> Option<In> {
        let mut state = self.0.state.borrow_mut();
        let news = match frame {
            LinkFrame::Say(message) => state.session.said().then_some(message),
            LinkFrame::Nothing => {
                state.session.said();
                None
            }
            LinkFrame::Ahead { number, message } => state.session.said_ahead(number).then_some(message),
            LinkFrame::Seen { upto } => {
                state.session.seen_by_peer(upto);
                None
            }
            LinkFrame::Aside(message) => Some(message),
            LinkFrame::Begin { .. } => None,
        };
        if state.session.owes_much() {
            state.tell_seen();
        }
        news
    }

    /// Resolves when the other side has waited long enough for word of what was seen; then call [`LinkEnd::tell_seen`].
    pub async fn owes(&self) {
        if !self.0.state.borrow().session.owes() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(SEEN_AFTER).await;
    }

    /// Tells the other side what was seen.
    pub fn tell_seen(&self) {
        self.0.state.borrow_mut().tell_seen();
    }

    fn next(&self) -> Option<(u64, Kept<M>)> {
        let mut state = self.0.state.borrow_mut();
        state.next = state.next.max(state.session.first());
        state.session.get(state.next).map(|kept| (state.next, Rc::clone(kept)))
    }
}

impl<M: LinkMessage> State<M> {
    fn tell_seen(&mut self) {
        let upto = self.session.seen();
        if let Some(connected) = &self.connected
            && connected.sender.try_send_on(Class::Control, &Traced::untraced(LinkFrame::Seen { upto })).is_ok()
        {
            self.session.told();
        }
    }
}

/// Writes what is kept to one connection, in order, until that is gone.
async fn write<M: LinkMessage>(end: LinkEnd<M>, sender: Sender<LinkFrame<M>>) {
    let mut wire = M::Wire::default();
    loop {
        while let Some((number, kept)) = end.next() {
            if let Err(e) = write_one(&end, &sender, &mut wire, &kept).await {
                // The reader reports the end.
                tracing::debug!(error = %e, "a link between hosts takes no more");
                return;
            }
            end.0.state.borrow_mut().next = number + 1;
        }
        end.0.more.notified().await;
    }
}

async fn write_one<M: LinkMessage>(
    end: &LinkEnd<M>,
    sender: &Sender<LinkFrame<M>>,
    wire: &mut M::Wire,
    kept: &Kept<M>,
) -> Result<(), LinkError> {
    let LinkFrame::Say(message) = &kept.msg else { return Ok(()) };
    let framed = |msg| Traced { trace: kept.trace, cause: kept.cause, msg };
    let OnWire { before, instead } = message.on_wire(wire);
    let sent = async {
        if let Some(before) = before {
            sender.send(framed(LinkFrame::Aside(before))).await?;
        }
        match instead {
            Some(instead) => sender.send(framed(LinkFrame::Say(instead))).await,
            None => sender.send(&**kept).await,
        }
    };
    match sent.await {
        Err(e) if matches!(e, LinkError::Frame { .. }) => {
            (end.0.unsendable)(message, e);
            // What was to be remembered of it did not arrive.
            *wire = M::Wire::default();
            sender.send(framed(LinkFrame::Nothing)).await
        }
        other => other,
    }
}
