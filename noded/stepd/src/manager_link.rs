//! The link of a shepherd on another node to its step manager. When it breaks, the tasks go on, messages are kept, and the link
//! is tried again for [`MANAGER_AWAY_LIMIT`], at the address in the run's orders at that moment (the agent updates it there).
//! After that the run ends here, since nobody could learn the results of its tasks any more.

use super::{
    launches::{KeptLaunches, UnknownLaunch},
    link_end::LinkEnd,
};
use garrick_daemon::run::orders::{OrdersError, StepdOrders};
use garrick_frame::{LinkKind, Traced};
use garrick_model::messages::{
    shepherd::{ShepherdToStepMgr, StepMgrToShepherd},
    shepherd_link::LinkFrame,
};
use garrick_run::{
    shepherd::{ShepherdInput, ShepherdMsg},
    step::messages::shepherd_message_name,
};
use garrick_runtime::{Address, Lane, TraceContext};
use garrick_transport::{
    Backoff, Endpoint, LinkError, LinkHandle, Receiver,
    identity::{ExpectPeer, Role},
};
use std::{cell::RefCell, collections::VecDeque, path::PathBuf, rc::Rc, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout};

/// If a step manager is not heard from for this long, it is given up, and the run ends on this node. Long enough for a `stepd`
/// that its agent restarts three times, and for a switch that restarts; unreachable tasks go on for at most this long.
pub const MANAGER_AWAY_LIMIT: Duration = Duration::from_secs(60);
/// Pauses between two attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// For the step manager's answer to the registration.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Why there is no connection, or no more.
#[derive(Debug, thiserror::Error)]
pub enum ManagerLinkError {
    /// The address is not to be had.
    #[error(transparent)]
    Orders(#[from] OrdersError),
    /// The connection.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The step manager closed it in good order.
    #[error("it closed the connection")]
    Closed,
    /// It said something else than what a connection begins with, or nothing in time.
    #[error("it did not answer the registration")]
    NoAnswer,
    /// It named something that it had not sent.
    #[error(transparent)]
    Launch(#[from] UnknownLaunch),
    /// It does not accept messages.
    #[error("too much waits for it")]
    GivenUp,
}

/// The link. Clones share it.
#[derive(Clone)]
pub struct ManagerLink {
    end: LinkEnd<ShepherdToStepMgr>,
    /// For relays of this node's door, while there is a connection.
    pub handle: Rc<RefCell<Option<LinkHandle>>>,
}

/// What it needs to find its step manager.
pub struct ManagerPlace {
    /// This process's endpoint.
    pub endpoint: Arc<Endpoint>,
    /// The run's folder.
    pub folder: PathBuf,
    /// Node that the step manager is on.
    pub batch_host: String,
    /// The identity of this shepherd.
    pub register: ShepherdToStepMgr,
    /// Where its messages go.
    pub shepherd: Address<ShepherdMsg>,
}

type Frame = Traced<LinkFrame<StepMgrToShepherd>>;

/// A connection whose other end answered.
struct Connected {
    frames: Receiver<LinkFrame<StepMgrToShepherd>>,
    /// What came before the answer, on a more urgent stream.
    early: VecDeque<Frame>,
    handle: LinkHandle,
}

impl Default for ManagerLink {
    fn default() -> Self {
        let unsendable = |message: &ShepherdToStepMgr, e| {
            let name = shepherd_message_name(message);
            tracing::error!(name, error = %e, "a message to the step manager cannot be sent");
        };
        Self { end: LinkEnd::new(unsendable), handle: Rc::default() }
    }
}

impl ManagerLink {
    /// Says a message, now or when there is a connection.
    pub fn send(&self, message: ShepherdToStepMgr) {
        self.end.send(message);
    }

    /// Keeps the link up until the step manager was away for [`MANAGER_AWAY_LIMIT`]; the shepherd is told so then.
    pub async fn keep(self, place: ManagerPlace) {
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        let mut heard = Instant::now();
        let mut said = String::new();
        while let Some(left) = MANAGER_AWAY_LIMIT.checked_sub(heard.elapsed()) {
            let gone = match timeout(left, self.connect(&place)).await {
                Ok(Ok(connected)) => {
                    tracing::info!("the step manager is there");
                    backoff.reset();
                    said.clear();
                    let handle = connected.handle.clone();
                    let gone = self.converse(connected, &place.shepherd).await;
                    handle.close("reconnecting");
                    heard = Instant::now();
                    gone
                }
                Ok(Err(e)) => e,
                Err(_) => ManagerLinkError::NoAnswer,
            };
            self.end.disconnected();
            *self.handle.borrow_mut() = None;
            // One line for a cause, however often it is tried.
            let text = gone.to_string();
            if text != said {
                tracing::warn!("no step manager: {text}; its tasks go on, trying again");
                said = text;
            }
            let random = garrick_model::ids::RequestId::random().0 as u32;
            tokio::time::sleep(backoff.next(random)).await;
        }
        tracing::error!("the step manager was away for {} s: the run ends here", MANAGER_AWAY_LIMIT.as_secs());
        tell_shepherd(&place.shepherd, TraceContext::root(), ShepherdInput::ManagerLost);
    }

    async fn connect(&self, place: &ManagerPlace) -> Result<Connected, ManagerLinkError> {
        let address = StepdOrders::load(&place.folder)?.manager.unwrap_or_default();
        let expect = ExpectPeer { role: Role::Node, name: Some(place.batch_host.clone()) };
        let program = concat!("garrick ", env!("CARGO_PKG_VERSION"));
        let mut connection = place.endpoint.connect(&address, LinkKind::StepMgrShepherd, program, &expect).await?;
        let handle = connection.handle();
        let (sender, mut frames) = connection.split::<LinkFrame<ShepherdToStepMgr>, LinkFrame<StepMgrToShepherd>>();
        sender.send(Traced::untraced(self.end.begin())).await?;
        sender.send(Traced::untraced(LinkFrame::Aside(place.register.clone()))).await?;
        let mut early = VecDeque::new();
        let answer = async {
            loop {
                match frames.recv().await? {
                    Some(Traced { msg: LinkFrame::Begin { session, known, seen }, .. }) => {
                        return Ok((session, known, seen));
                    }
                    Some(other) => early.push_back(other),
                    None => return Err(ManagerLinkError::Closed),
                }
            }
        };
        let (session, known, seen) = timeout(ANSWER_LIMIT, answer).await.map_err(|_| ManagerLinkError::NoAnswer)??;
        self.end.connected(sender, session, known, seen);
        *self.handle.borrow_mut() = Some(handle.clone());
        Ok(Connected { frames, early, handle })
    }

    /// Hands the step manager's messages to the shepherd until the connection is gone.
    async fn converse(&self, connected: Connected, shepherd: &Address<ShepherdMsg>) -> ManagerLinkError {
        let Connected { mut frames, mut early, .. } = connected;
        let mut launches = KeptLaunches::default();
        loop {
            let frame = tokio::select! {
                biased;
                () = std::future::ready(()), if !early.is_empty() => Ok(early.pop_front()),
                frame = frames.recv() => frame,
                () = self.end.owes() => {
                    self.end.tell_seen();
                    continue;
                }
                () = self.end.given_up() => return ManagerLinkError::GivenUp,
            };
            let Traced { trace, cause, msg } = match frame {
                Ok(Some(frame)) => frame,
                Ok(None) => return ManagerLinkError::Closed,
                Err(e) => {
                    if e.is_malformed_message() {
                        self.end.start_over();
                    }
                    return e.into();
                }
            };
            let Some(message) = self.end.hear(msg) else { continue };
            match launches.restore(message) {
                Ok(Some(message)) => {
                    tell_shepherd(shepherd, TraceContext { trace, cause }, ShepherdInput::Manager(message));
                }
                Ok(None) => {}
                Err(e) => {
                    self.end.start_over();
                    return e.into();
                }
            }
        }
    }
}

/// Hands an input to the shepherd.
pub fn tell_shepherd(shepherd: &Address<ShepherdMsg>, cx: TraceContext, input: ShepherdInput) {
    if let Err(e) = shepherd.deliver(cx, Lane::Control, ShepherdMsg(input)) {
        tracing::error!(error = %e, "the shepherd does not take messages");
    }
}
