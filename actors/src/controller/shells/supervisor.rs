//! Supervisors of owners of one kind. A supervisor starts an owner when an object exists, and again when the owner failed; it
//! lets an owner that replaces another begin only after the other has ended; and it tells others when an owner was rebuilt. Kinds
//! differ in a few functions ([`Kind`]).
//!
//! An owner that fails too often is started again after a pause: its state is saved, and other owners go on.

use super::{
    actor::{Early, OwnerActor, OwnerMsg, Shell},
    env::{Env, deliver},
};
use crate::{messages::letter::Letter, owner::Owner};
use garrick_model::ids::JobId;
use garrick_runtime::{
    Actor, ActorPath, Address, ChildEvent, ChildSpec, Context, Message, Placement, Restart, RestartLimits, WhenExceeded,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Pause before an owner that failed too often is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// An input of an owner of that kind.
pub type InputOf<K> = <<K as Kind>::Owner as Owner>::Input;

/// Identity of an owner within its kind.
pub trait OwnerKey: Clone + Ord + Send + 'static {
    /// The last part of its path.
    fn name(&self) -> String;
    /// The key for that part.
    fn of_name(name: &str) -> Option<Self>;
}

impl OwnerKey for String {
    fn name(&self) -> String {
        self.clone()
    }

    fn of_name(name: &str) -> Option<Self> {
        Some(name.to_owned())
    }
}

impl OwnerKey for JobId {
    fn name(&self) -> String {
        self.0.to_string()
    }

    fn of_name(name: &str) -> Option<Self> {
        name.parse().ok().map(Self)
    }
}

/// A kind of owner.
pub trait Kind: Sized + 'static {
    /// Their core.
    type Owner: Shell<Hands: Default>;
    /// Its identity.
    type Key: OwnerKey;
    /// What comes with the message that starts one.
    type Seed: Send + 'static;

    /// Their name in logs, and the supervisor's below the root.
    const NAME: &'static str;
    /// How many messages may wait for one of them.
    const MAILBOX: usize;

    /// All objects of the kind.
    fn all(env: &Env) -> Vec<Self::Key>;
    /// Does the object exist?
    fn is_there(env: &Env, key: &Self::Key) -> bool;
    /// The core, from the committed state. `None`: the object no longer exists.
    fn make(env: &Env, key: &Self::Key) -> Option<Self::Owner>;
    /// May another actor have been its owner before?
    fn had_another(env: &Env, key: &Self::Key) -> bool;
    /// The thread of an owner's actor.
    fn placement(_: &Env, _: &Self::Key) -> Placement {
        Placement::Parent
    }
    /// Called before an owner is started, if it is not running: keeps what it needs. Returns its first input.
    fn begin(env: &Env, key: &Self::Key, seed: Self::Seed, lives: bool) -> Option<InputOf<Self>>;
    /// Is a message that came through the supervisor still valid?
    fn counts(_: &Env, _: &Self::Key, _: &OwnerMsg<Self::Owner>) -> bool {
        true
    }
    /// Letters in place of an owner that is not running. A question that is dropped is answered by that.
    fn missing(_: &Env, _: &Self::Key, _: OwnerMsg<Self::Owner>) -> Vec<Letter> {
        Vec::new()
    }
    /// Letters to others when an owner was rebuilt and may have forgotten what it was doing.
    fn built_anew(_: &Env, _: &Self::Key) -> Vec<Letter> {
        Vec::new()
    }
    /// Letters to others when an owner is to end.
    fn ends(_: &Env, _: &Self::Key) -> Vec<Letter> {
        Vec::new()
    }
    /// The object no longer exists: removes what is kept and published of it.
    fn forget(env: &Env, key: &Self::Key);
}

/// Messages of a supervisor, from the frontend and from other actors of the controller.
pub enum SupervisorMsg<K: Kind> {
    /// Start this owner.
    Start {
        /// Which.
        key: K::Key,
        /// With that.
        seed: K::Seed,
    },
    /// From itself: start an owner that failed too often again.
    Again(K::Key),
    /// For an owner that was not found, or may still be starting.
    Deliver {
        /// Which.
        key: K::Key,
        /// What.
        message: Box<OwnerMsg<K::Owner>>,
    },
    /// For all that are running.
    TellAll(Box<dyn Fn() -> InputOf<K> + Send>),
    /// Exactly these are to run.
    Only(Vec<(K::Key, K::Seed)>),
    /// This owner is to end.
    Stop(K::Key),
    /// From an owner whose core was rebuilt in its actor.
    BuiltAnew(K::Key),
}

impl<K: Kind> SupervisorMsg<K> {
    /// An input for an owner that was not found.
    pub fn tell(key: K::Key, input: InputOf<K>) -> Self {
        Self::Deliver { key, message: Box::new(OwnerMsg::Input(input)) }
    }
}

impl<K: Kind> Message for SupervisorMsg<K> {
    fn name(&self) -> &'static str {
        match self {
            Self::Start { .. } => "Start",
            Self::Again(_) => "Again",
            Self::Deliver { .. } => "Deliver",
            Self::TellAll(_) => "TellAll",
            Self::Only(_) => "Only",
            Self::Stop(_) => "Stop",
            Self::BuiltAnew(_) => "BuiltAnew",
        }
    }
}

/// The supervisor of one kind.
pub struct Supervisor<K: Kind> {
    env: Arc<Env>,
    /// Owners whose actor is ending, and messages for the next one: first its start.
    ending: BTreeMap<K::Key, Vec<SupervisorMsg<K>>>,
}

/// The timer of an owner that failed too often.
fn retry<K: Kind>(key: &K::Key) -> String {
    format!("retry {}", key.name())
}

fn key_of<K: Kind>(path: &ActorPath) -> Option<K::Key> {
    path.as_str().rsplit('/').next().and_then(K::Key::of_name)
}

impl<K: Kind> Supervisor<K> {
    /// A supervisor.
    pub const fn new(env: Arc<Env>) -> Self {
        Self { env, ending: BTreeMap::new() }
    }

    fn living(cx: &Context<Self>, key: &K::Key) -> Option<Address<OwnerMsg<K::Owner>>> {
        cx.system().find(&cx.path().child(&key.name()))
    }

    fn post(&self, cx: &mut Context<Self>, letters: Vec<Letter>) {
        letters.into_iter().for_each(|letter| self.env.post(cx, letter));
    }

    fn start(&self, cx: &mut Context<Self>, key: &K::Key) {
        if Self::living(cx, key).is_some() {
            return;
        }
        if !K::is_there(&self.env, key) {
            return K::forget(&self.env, key);
        }
        let (env, own, early, supervisor) = (Arc::clone(&self.env), key.clone(), Early::default(), cx.address());
        let factory = move || {
            let (made, anew, supervisor) = (own.clone(), own.clone(), supervisor.clone());
            let make = move |env: &Env| K::make(env, &made);
            OwnerActor::new(make, Default::default(), Arc::clone(&env))
                .behind_all_appended(K::had_another(&env, &own))
                .with_early(early.clone())
                .telling_when_built_anew(move |cx| deliver(cx, &supervisor, SupervisorMsg::BuiltAnew(anew.clone())))
        };
        let limits = RestartLimits { then: WhenExceeded::Stop, ..RestartLimits::default() };
        let spec = ChildSpec::new(key.name(), factory)
            .restart(Restart::OnPanic(limits))
            .placement(K::placement(&self.env, key))
            .mailbox(K::MAILBOX);
        cx.start_child(spec);
    }

    /// The address of an owner. If it was just committed and published it is started here, ahead of its start message; one that
    /// failed too often is not.
    fn owner(&self, cx: &mut Context<Self>, key: &K::Key) -> Option<Address<OwnerMsg<K::Owner>>> {
        self.start_missing(cx, key);
        Self::living(cx, key)
    }

    fn start_missing(&self, cx: &mut Context<Self>, key: &K::Key) {
        if K::is_there(&self.env, key) && !self.ending.contains_key(key) && !cx.has_timer(retry::<K>(key)) {
            self.start(cx, key);
        }
    }

    /// An owner was rebuilt: others are told, and owners that it should have started are started.
    fn built_anew(&self, cx: &mut Context<Self>, key: &K::Key) {
        self.post(cx, K::built_anew(&self.env, key));
        for key in K::all(&self.env) {
            self.start_missing(cx, &key);
        }
    }

    /// Its actor has ended: what waited for that follows.
    fn ended(&mut self, cx: &mut Context<Self>, key: &K::Key) {
        K::forget(&self.env, key);
        for next in self.ending.remove(key).unwrap_or_default() {
            self.handle(cx, next);
        }
    }

    fn begin(&mut self, cx: &mut Context<Self>, key: K::Key, seed: K::Seed) {
        if let Some(next) = self.ending.get_mut(&key) {
            next.retain(|message| !matches!(message, SupervisorMsg::Start { .. }));
            next.insert(0, SupervisorMsg::Start { key, seed });
            return;
        }
        cx.clear_timer(retry::<K>(&key));
        let lives = Self::living(cx, &key).is_some();
        let first = K::begin(&self.env, &key, seed, lives);
        self.start(cx, &key);
        if let (Some(first), Some(owner)) = (first, Self::living(cx, &key)) {
            deliver(cx, &owner, OwnerMsg::Input(first));
        }
    }

    fn deliver(&mut self, cx: &mut Context<Self>, key: K::Key, message: Box<OwnerMsg<K::Owner>>) {
        if let Some(next) = self.ending.get_mut(&key) {
            return next.push(SupervisorMsg::Deliver { key, message });
        }
        if !K::counts(&self.env, &key, &message) {
            return;
        }
        match self.owner(cx, &key) {
            Some(owner) => deliver(cx, &owner, *message),
            None => self.post(cx, K::missing(&self.env, &key, *message)),
        }
    }

    fn stop(&mut self, cx: &mut Context<Self>, key: K::Key) {
        if let Some(next) = self.ending.get_mut(&key) {
            return next.clear();
        }
        cx.clear_timer(retry::<K>(&key));
        self.post(cx, K::ends(&self.env, &key));
        // The end of an owner that was given up is not reported.
        if Self::living(cx, &key).is_none() {
            return K::forget(&self.env, &key);
        }
        let path = cx.path().child(&key.name());
        cx.stop_child(&path);
        self.ending.insert(key, Vec::new());
    }
}

impl<K: Kind> Actor for Supervisor<K> {
    type Msg = SupervisorMsg<K>;

    fn started(&mut self, cx: &mut Context<Self>) {
        // Recovered objects, or those that the last life of this supervisor left.
        for key in K::all(&self.env) {
            self.start(cx, &key);
        }
    }

    fn handle(&mut self, cx: &mut Context<Self>, message: SupervisorMsg<K>) {
        match message {
            SupervisorMsg::Start { key, seed } => self.begin(cx, key, seed),
            SupervisorMsg::Again(key) => {
                self.start(cx, &key);
                self.built_anew(cx, &key);
            }
            SupervisorMsg::Deliver { key, message } => self.deliver(cx, key, message),
            SupervisorMsg::TellAll(input) => {
                for path in cx.children() {
                    if let Some(owner) = cx.system().find::<OwnerMsg<K::Owner>>(&path) {
                        deliver(cx, &owner, OwnerMsg::Input(input()));
                    }
                }
            }
            SupervisorMsg::Only(seeds) => {
                let gone = cx.children().iter().filter_map(key_of::<K>).collect::<Vec<_>>();
                for key in gone.into_iter().filter(|key| seeds.iter().all(|(kept, _)| kept != key)) {
                    self.stop(cx, key);
                }
                for (key, seed) in seeds {
                    self.begin(cx, key, seed);
                }
            }
            SupervisorMsg::Stop(key) => self.stop(cx, key),
            SupervisorMsg::BuiltAnew(key) => self.built_anew(cx, &key),
        }
    }

    fn child_event(&mut self, cx: &mut Context<Self>, event: ChildEvent) {
        match event {
            ChildEvent::Restarted { path, panic, restarts } => {
                tracing::error!(%path, panic, restarts, "{}.actor_restarted", K::NAME);
                if let Some(key) = key_of::<K>(&path) {
                    self.built_anew(cx, &key);
                }
            }
            ChildEvent::Stopped { path } => {
                tracing::debug!(%path, "{}.actor_stopped", K::NAME);
                if let Some(key) = key_of::<K>(&path) {
                    self.ended(cx, &key);
                }
            }
            ChildEvent::GaveUp { path, reason } => {
                tracing::error!(%path, reason, "{}.actor_gave_up", K::NAME);
                match key_of::<K>(&path) {
                    Some(key) if self.ending.contains_key(&key) => self.ended(cx, &key),
                    Some(key) => cx.set_timer(retry::<K>(&key), RETRY_AFTER, SupervisorMsg::Again(key)),
                    None => {}
                }
            }
        }
    }
}
