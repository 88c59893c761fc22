//! The actor of an owner in the controller, the same for all cores. It turns messages into inputs, has events saved, carries out
//! effects once the events before them are on disk, and keeps timers and replies. It decides nothing.
//!
//! An actor that panics is rebuilt by its supervisor from the committed state. Events that its earlier life appended may not be
//! committed yet: the new life begins when they are, and messages that come until then wait.

use super::env::Env;
use crate::{
    log::{AppendError, Saved, log_outcome},
    messages::letter::Letter,
    owner::{EffectOf, Out, Owner, Stage, Turn, outbox::Outbox, perform},
};
use garrick_events::event::ControllerEvent;
use garrick_model::time::Timestamp;
use garrick_runtime::{Actor, Context, Message, ReplyTo, TimerKey, TraceContext};
use std::{
    collections::{BTreeMap, VecDeque},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Timers are set at most this far ahead; cores set them again.
const LONGEST_TIMER: Duration = Duration::from_secs(30 * 24 * 3600);

/// The immediate result of an errand.
pub enum Came<I> {
    /// No input for the owner.
    Nothing,
    /// The owner's next input.
    Input(I),
    /// A letter to another owner.
    Letter(Letter),
    /// The result comes later, from a future beside the actor: the owner's next input, if any. It is lost if the actor's life
    /// ends.
    Later(Pin<Box<dyn Future<Output = Option<I>>>>),
    /// As `Later`, but handled before messages that are not urgent: a requester waits for it.
    Soon(Pin<Box<dyn Future<Output = Option<I>>>>),
    /// The result, in a trace of its own.
    In(TraceContext, Box<Self>),
}

/// Inputs that follow from effects, some of them in a trace of their own.
type Again<O> = VecDeque<(Option<TraceContext>, <O as Owner>::Input)>;

/// Runs `body` in that trace, or in the current one.
fn within<T>(trace: Option<TraceContext>, body: impl FnOnce() -> T) -> T {
    match trace {
        Some(trace) => trace.enter(body),
        None => body(),
    }
}

/// How the effects of an owner are carried out in the controller: where its views are published, its errands, and the state that
/// is kept for a later life.
pub trait Shell: Owner {
    /// Questions to it, each with an answer.
    type Ask: Send + 'static;
    /// Inputs that only the shell handles, such as connections to others.
    type Gift: Send + 'static;
    /// The shell's state.
    type Hands: 'static;

    /// Whether it ever saves. An owner that does not is rebuilt at once, since no earlier life can have appended anything.
    const SAVES: bool = true;

    /// Name of an input, for traces.
    fn name(input: &Self::Input) -> &'static str;
    /// Name of a question, for traces.
    fn ask_name(ask: &Self::Ask) -> &'static str;
    /// Name of a timer.
    fn key(timer: Self::Timer) -> TimerKey;
    /// The input for a question.
    fn asked(request: u64, ask: Self::Ask) -> Self::Input;
    /// The first turn of a life.
    fn begin(&mut self, hands: &mut Self::Hands, env: &Env, now: Timestamp, out: &mut Out<Self>);
    /// Keeps unsaved state that a later life needs. Called after every turn, before its effects are carried out.
    fn keep(&self, _: &Env) {}
    /// Takes an input that only the shell handles.
    fn hand(&self, hands: &mut Self::Hands, gift: Self::Gift);
    /// Carries out an errand.
    fn run(&self, hands: &mut Self::Hands, env: &Env, errand: Self::Errand) -> Came<Self::Input>;
    /// Publishes a view.
    fn publish(&self, hands: &mut Self::Hands, env: &Env, shown: Self::Shown);
    /// Answers a request that only the shell knows.
    fn answer(&self, _: &mut Self::Hands, _: u64, _: Self::Answer) {}
    /// It stopped for good: removes its views and kept state.
    fn forget(&self, _: &Env) {}
    /// Its actor ends.
    fn ended(&self, _: &mut Self::Hands) {}
    /// The answer to any question if this controller is not the leader.
    fn try_again(after: Duration) -> Self::Answer;
    /// This controller is not the leader: requesters that only the shell knows are told to try again.
    fn turn_all_away(_: &mut Self::Hands, _: Duration) {}
    /// The same for an input that comes then. `Some`: it waits.
    fn turn_away(gift: Self::Gift, _: Duration) -> Option<Self::Gift> {
        Some(gift)
    }
    /// Its name, for logs.
    fn label(&self) -> String;
}

/// Messages of an owner.
pub enum OwnerMsg<O: Shell> {
    /// Plain inputs: from other owners, the frontend and timers.
    Input(O::Input),
    /// A question. The answer is sent when what it promises is on disk.
    Ask {
        /// What.
        ask: O::Ask,
        /// Answer.
        reply: ReplyTo<O::Answer>,
    },
    /// An input that only the shell handles, and an input for its core.
    Hand {
        /// What.
        gift: O::Gift,
        /// For the core.
        input: Option<O::Input>,
    },
    /// The journal's answer for the batch with this number.
    Journaled {
        /// Batch.
        batch: u64,
        /// Outcome.
        result: Saved,
    },
    /// From itself: check whether all that was appended is committed.
    Behind,
    /// From itself: an errand of the core with that number has ended.
    Came {
        /// The number of the core, among those that this actor had.
        core: u64,
        /// Its result.
        input: Option<O::Input>,
    },
    /// A handler that fails.
    #[cfg(test)]
    PanicForTests(ReplyTo<()>),
}

impl<O: Shell> Message for OwnerMsg<O> {
    fn name(&self) -> &'static str {
        match self {
            Self::Input(input) | Self::Hand { input: Some(input), .. } | Self::Came { input: Some(input), .. } => {
                O::name(input)
            }
            Self::Ask { ask, .. } => O::ask_name(ask),
            Self::Hand { input: None, .. } => "Watch",
            Self::Journaled { .. } => "Journaled",
            Self::Behind => "Behind",
            Self::Came { input: None, .. } => "Came",
            #[cfg(test)]
            Self::PanicForTests(_) => "PanicForTests",
        }
    }
}

/// Makes an owner's core from the committed state. `None`: the object no longer exists.
type Make<O> = Box<dyn Fn(&Env) -> Option<O>>;

/// Tells others about it.
type Tell<O> = Box<dyn Fn(&mut Context<OwnerActor<O>>)>;

/// The actor of one owner.
pub struct OwnerActor<O: Shell> {
    core: Option<O>,
    make: Make<O>,
    /// An earlier life may have appended events that are not committed yet.
    behind: bool,
    early: Early<O>,
    /// This controller was not the leader at the last append, and may be again after this time.
    leaderless: Option<Duration>,
    /// Tells others that the core was rebuilt without a restart of the actor, which the supervisor would have seen.
    tells: Tell<O>,
    env: Arc<Env>,
    hands: O::Hands,
    outbox: Outbox<EffectOf<O>>,
    requests: u64,
    answers: BTreeMap<u64, ReplyTo<O::Answer>>,
    /// At this number of open requests, those that nobody waits for are removed.
    most_answers: usize,
    /// Number of cores so far.
    cores: u64,
}

/// Below this number, open requests are not checked.
const FEW_ANSWERS: usize = 64;

/// Messages that came before there was a core. They survive a restart of the actor.
pub struct Early<O: Shell>(Arc<Mutex<VecDeque<OwnerMsg<O>>>>);

impl<O: Shell> Clone for Early<O> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<O: Shell> Default for Early<O> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// Most messages that wait for a core, as in the longest mailbox of an owner.
const MOST_EARLY: usize = 65_536;

/// When a requester beyond that is to try again.
const CROWDED: Duration = Duration::from_secs(1);

impl<O: Shell> Early<O> {
    fn push(&self, message: OwnerMsg<O>) -> Result<(), OwnerMsg<O>> {
        let mut early = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if early.len() >= MOST_EARLY {
            return Err(message);
        }
        early.push_back(message);
        Ok(())
    }

    fn pop(&self) -> Option<OwnerMsg<O>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// The batch that a new life waits for: all that was appended before it. Batches of its own turns begin with 1.
const ALL_BEFORE: u64 = 0;

/// The verbs of an owner whose actor handles a message.
struct Live<'a, O: Shell> {
    core: &'a O,
    env: &'a Env,
    hands: &'a mut O::Hands,
    answers: &'a mut BTreeMap<u64, ReplyTo<O::Answer>>,
    cx: &'a mut Context<OwnerActor<O>>,
    again: &'a mut Again<O>,
    cores: u64,
}

impl<O: Shell> Live<'_, O> {
    fn came(&mut self, came: Came<O::Input>, trace: Option<TraceContext>) {
        match came {
            Came::Nothing => {}
            Came::Input(input) => self.again.push_back((trace, input)),
            Came::Letter(letter) => self.tell(letter),
            Came::Later(input) => {
                let core = self.cores;
                self.cx.pipe(input, move |input| OwnerMsg::Came { core, input });
            }
            Came::Soon(input) => {
                let core = self.cores;
                self.cx.pipe_ahead(input, move |input| OwnerMsg::Came { core, input });
            }
            Came::In(trace, came) => trace.enter(|| self.came(*came, Some(trace))),
        }
    }
}

impl<O: Shell> Stage<O> for Live<'_, O> {
    fn tell(&mut self, letter: Letter) {
        self.env.post(self.cx, letter);
    }

    fn run(&mut self, errand: O::Errand) {
        let came = self.core.run(self.hands, self.env, errand);
        self.came(came, None);
    }

    fn set_timer(&mut self, timer: O::Timer, at: Timestamp) {
        let after = at.since(Timestamp::now()).min(LONGEST_TIMER);
        self.cx.set_timer(O::key(timer), after, OwnerMsg::Input(O::timer(timer)));
    }

    fn clear_timer(&mut self, timer: O::Timer) {
        self.cx.clear_timer(O::key(timer));
    }

    fn publish(&mut self, shown: O::Shown) {
        self.core.publish(self.hands, self.env, shown);
    }

    fn answer(&mut self, request: u64, answer: O::Answer) {
        match self.answers.remove(&request) {
            Some(reply) => reply.reply(answer),
            None => self.core.answer(self.hands, request, answer),
        }
    }

    fn stop(&mut self) {
        self.core.forget(self.env);
        self.cx.stop();
    }
}

impl<O: Shell> OwnerActor<O> {
    /// An owner's actor. Its core is made when it starts.
    pub fn new(make: impl Fn(&Env) -> Option<O> + 'static, hands: O::Hands, env: Arc<Env>) -> Self {
        let (outbox, answers) = (Outbox::default(), BTreeMap::new());
        let make = Box::new(make);
        Self {
            core: None,
            make,
            behind: false,
            early: Early::default(),
            leaderless: None,
            tells: Box::new(|_| {}),
            env,
            hands,
            outbox,
            requests: 0,
            answers,
            most_answers: FEW_ANSWERS,
            cores: 0,
        }
    }

    /// If another actor was the owner before, the core is made once all that was appended is committed. After a panic that is
    /// always so.
    #[must_use]
    pub fn behind_all_appended(mut self, behind: bool) -> Self {
        self.behind = behind;
        self
    }

    /// Where messages that wait for a core are kept, so that the next life gets those that this one did not handle.
    #[must_use]
    pub fn with_early(mut self, early: Early<O>) -> Self {
        self.early = early;
        self
    }

    /// Called when the core was rebuilt although its actor did not fail.
    #[must_use]
    pub fn telling_when_built_anew(mut self, tells: impl Fn(&mut Context<Self>) + 'static) -> Self {
        self.tells = Box::new(tells);
        self
    }

    fn begin(&mut self, cx: &mut Context<Self>) {
        self.core = (self.make)(&self.env);
        self.cores += 1;
        let Some(core) = &mut self.core else { return cx.stop() };
        let mut out = Vec::new();
        core.begin(&mut self.hands, &self.env, Timestamp::now(), &mut out);
        let mut again = VecDeque::new();
        self.take(cx, out, &mut again);
        self.go_on(cx, again);
        // One at a time: if this life fails over one, the next life handles those behind it.
        while let Some(message) = self.early.pop() {
            self.handle(cx, message);
        }
    }

    /// Handles a message while there is no core.
    fn wait(&mut self, cx: &mut Context<Self>, message: OwnerMsg<O>) {
        match (message, self.leaderless) {
            (OwnerMsg::Journaled { batch: ALL_BEFORE, result: Ok(_) }, _) => {
                let leads_again = self.leaderless.take().is_some();
                self.begin(cx);
                if leads_again {
                    (self.tells)(cx);
                }
            }
            (OwnerMsg::Journaled { batch: ALL_BEFORE, result: Err(error) }, _) => {
                tracing::warn!(path = %cx.path(), %error, "owner.not_built_anew");
                self.leaderless = error.retry_after();
                // Without a time to try again, the process is about to end.
                if let Some(after) = self.leaderless {
                    cx.set_timer("behind", after, OwnerMsg::Behind);
                }
            }
            // These belong to an earlier core.
            (OwnerMsg::Journaled { .. } | OwnerMsg::Came { .. }, _) => {}
            (OwnerMsg::Behind, _) => self.append(cx, ALL_BEFORE, Vec::new()),
            (OwnerMsg::Ask { reply, .. }, Some(after)) => reply.reply(O::try_again(after)),
            (OwnerMsg::Hand { gift, input }, Some(after)) => {
                if let Some(gift) = O::turn_away(gift, after) {
                    self.wait_for_core(cx, OwnerMsg::Hand { gift, input });
                }
            }
            (early, _) => self.wait_for_core(cx, early),
        }
    }

    fn wait_for_core(&self, cx: &Context<Self>, early: OwnerMsg<O>) {
        if let Err(too_many) = self.early.push(early) {
            tracing::warn!(path = %cx.path(), message = too_many.name(), "mailbox.full");
            if let OwnerMsg::Ask { reply, .. } = too_many {
                reply.reply(O::try_again(CROWDED));
            }
        }
    }

    /// What it decided was not saved, nor what it decided since. If another controller is the leader, the core is rebuilt from
    /// the committed state when this controller leads again, and requesters are told to ask then.
    fn not_saved(&mut self, cx: &mut Context<Self>, batch: u64, error: &AppendError) {
        self.outbox.lost(batch);
        // Without a time to try again, the process is about to end; until then nothing unsaved is promised.
        let Some(after) = error.retry_after() else { return };
        std::mem::take(&mut self.answers).into_values().for_each(|reply| reply.reply(O::try_again(after)));
        O::turn_all_away(&mut self.hands, after);
        self.outbox.lose_all();
        (self.core, self.leaderless) = (None, Some(after));
        cx.set_timer("behind", after, OwnerMsg::Behind);
    }

    fn run(&mut self, cx: &mut Context<Self>, input: O::Input) {
        let mut again = Again::<O>::from([(None, input)]);
        while let Some((trace, input)) = again.pop_front() {
            let before = again.len();
            within(trace, || {
                let Some(core) = &mut self.core else { return };
                let mut out = Vec::new();
                core.handle(Timestamp::now(), &mut self.env.ids.clone(), input, &mut out);
                self.take(cx, out, &mut again);
            });
            // Inputs that follow belong to the same trace.
            again.iter_mut().skip(before).for_each(|(of, _)| *of = of.or(trace));
        }
    }

    /// Has a turn's events saved, and queues its other effects behind them.
    fn take(&mut self, cx: &mut Context<Self>, out: Out<O>, again: &mut Again<O>) {
        let turn = Turn::<O>::of(out);
        if let Some(core) = &self.core {
            core.keep(&self.env);
        }
        if let Some((batch, events)) = turn.queue(&mut self.outbox) {
            self.append(cx, batch, events);
        }
        self.flush(cx, again);
    }

    fn append(&self, cx: &mut Context<Self>, batch: u64, events: Vec<ControllerEvent>) {
        let done = self.env.append(events);
        cx.pipe(done, move |answer| OwnerMsg::Journaled { batch, result: log_outcome(answer) });
    }

    fn flush(&mut self, cx: &mut Context<Self>, again: &mut Again<O>) {
        let Self { core: Some(core), env, hands, outbox, answers, cores, .. } = self else { return };
        let mut live = Live { core, env, hands, answers, cx, again, cores: *cores };
        while let Some(effects) = outbox.take_ready() {
            perform(effects, &mut live);
        }
    }

    fn go_on(&mut self, cx: &mut Context<Self>, again: Again<O>) {
        for (trace, input) in again {
            within(trace, || self.run(cx, input));
        }
    }
}

impl<O: Shell> Actor for OwnerActor<O> {
    type Msg = OwnerMsg<O>;

    fn started(&mut self, cx: &mut Context<Self>) {
        if O::SAVES && (self.behind || cx.incarnation() > 1) {
            self.append(cx, ALL_BEFORE, Vec::new());
        } else {
            self.begin(cx);
        }
    }

    fn handle(&mut self, cx: &mut Context<Self>, message: OwnerMsg<O>) {
        let Some(core) = &self.core else { return self.wait(cx, message) };
        match message {
            OwnerMsg::Input(input) => self.run(cx, input),
            OwnerMsg::Ask { ask, reply } => {
                // 0 is for requests without a requester.
                self.requests += 1;
                // When the number of open requests has doubled since the last check, those without a requester are removed.
                if self.answers.len() >= self.most_answers {
                    self.answers.retain(|_, reply| !reply.is_abandoned());
                    self.most_answers = (2 * self.answers.len()).max(FEW_ANSWERS);
                }
                self.answers.insert(self.requests, reply);
                self.run(cx, O::asked(self.requests, ask));
            }
            OwnerMsg::Hand { gift, input } => {
                core.hand(&mut self.hands, gift);
                if let Some(input) = input {
                    self.run(cx, input);
                }
            }
            OwnerMsg::Journaled { batch, result } => {
                match result {
                    Ok(_) => self.outbox.saved(batch),
                    Err(error) => {
                        tracing::error!(owner = core.label(), %error, "owner.not_saved");
                        return self.not_saved(cx, batch, &error);
                    }
                }
                let mut again = VecDeque::new();
                self.flush(cx, &mut again);
                self.go_on(cx, again);
            }
            // It belongs to an earlier core.
            OwnerMsg::Came { core, .. } if core != self.cores => {}
            OwnerMsg::Came { input, .. } => {
                if let Some(input) = input {
                    self.run(cx, input);
                }
            }
            OwnerMsg::Behind => {}
            #[cfg(test)]
            OwnerMsg::PanicForTests(_) => panic!("a handler that fails"),
        }
    }

    fn stopped(&mut self) {
        if let Some(core) = &self.core {
            core.ended(&mut self.hands);
        }
    }
}
