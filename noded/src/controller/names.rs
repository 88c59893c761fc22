//! Users and groups, as this host's name service knows them. The service may be remote and slow (LDAP), so only threads of its
//! own ask it, and their answers are cached. Doors request what a command will need before they pass it on, and wait a short time
//! for it; later look-ups use the cache only.
//!
//! A cached answer that is used and is older than [`FRESH`] is looked up again. It stays valid until there is a newer one: so no
//! user becomes unknown because the name service is unreachable.

use garrick_actors::submission::users::{User, UserDirectory};
use garrick_kernel::users::{self, UserError};
use garrick_model::{
    messages::command::{Caller, CommandRequest},
    reservation::ReservationChange,
};
use garrick_transport::Sparing;
use std::{
    collections::{HashMap, HashSet, VecDeque},
    pin::pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// An answer that is older is asked for again when it is used.
const FRESH: Duration = Duration::from_secs(60);
/// How long a door waits for the answers that a request needs.
const PATIENCE: Duration = Duration::from_secs(3);
/// Threads that ask: one silent answer does not hold up the next user's.
const THREADS: usize = 4;
/// Questions that wait, at most; more are not asked.
const MOST_OPEN: usize = 10_000;
/// Answers that are kept; beyond that the older half goes.
const MOST_KEPT: usize = 50_000;
/// Names in a request that are asked for before it is handed over.
const MOST_OF_REQUEST: usize = 100;

/// A question to the name service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    /// Who is that?
    User(u32),
    /// What is that group called?
    Group(u32),
    /// Which user is called so, or has that id in digits?
    UserCalled(String),
    /// Which group is called so, or has that id in digits?
    GroupCalled(String),
}

/// What it said; `None` inside: there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Question::User`].
    User(Option<User>),
    /// To [`Question::UserCalled`]: id and name.
    Account(Option<(u32, String)>),
    /// To [`Question::Group`] and [`Question::GroupCalled`]: the name.
    Group(Option<String>),
}

/// Asks the name service, however long that takes. An error: it could not say.
type Ask = dyn Fn(&Question) -> Result<Answer, UserError> + Send + Sync;

#[derive(Default)]
struct State {
    known: HashMap<Question, (Instant, Answer)>,
    waiting: VecDeque<Question>,
    /// Those that wait and those that are being asked.
    open: HashSet<Question>,
    closed: bool,
}

struct Shared {
    state: Mutex<State>,
    more: Condvar,
    answered: Notify,
    ask: Box<Ask>,
}

/// The names of users and groups. Clones are the same.
#[derive(Clone)]
pub struct Names(Arc<Handle>);

/// Ends the threads when the last clone goes.
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.more.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is one of them still to be answered?
    fn are_open(&self, questions: &[Question]) -> bool {
        let state = self.lock();
        questions.iter().any(|question| state.open.contains(question))
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if state.closed {
                return;
            }
            let Some(question) = state.waiting.pop_front() else {
                state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let answer = (self.ask)(&question);
            state = self.lock();
            match answer {
                Ok(answer) => state.keep(question.clone(), answer),
                Err(error) => {
                    static SILENT: Sparing = Sparing::new();
                    if let Some(left_out) = SILENT.due(Instant::now()) {
                        tracing::warn!(?question, %error, left_out, "the name service did not answer");
                    }
                }
            }
            state.open.remove(&question);
            self.answered.notify_waiters();
        }
    }
}

impl State {
    fn keep(&mut self, question: Question, answer: Answer) {
        if self.known.len() >= MOST_KEPT {
            let mut ages: Vec<Instant> = self.known.values().map(|(at, _)| *at).collect();
            let middle = ages.len() / 2;
            let (_, middle, _) = ages.select_nth_unstable(middle);
            let middle = *middle;
            self.known.retain(|_, (at, _)| *at > middle);
        }
        self.known.insert(question, (Instant::now(), answer));
    }

    fn is_fresh(&self, question: &Question) -> bool {
        self.known.get(question).is_some_and(|(at, _)| at.elapsed() < FRESH)
    }

    /// True when it is asked anew.
    fn ask(&mut self, question: &Question) -> bool {
        let ask = !self.is_fresh(question) && self.open.len() < MOST_OPEN && self.open.insert(question.clone());
        if ask {
            self.waiting.push_back(question.clone());
        }
        ask
    }
}

impl Names {
    /// Of this host's name service.
    pub fn of_this_host() -> std::io::Result<Self> {
        Self::asking(Box::new(look_up))
    }

    fn asking(ask: Box<Ask>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { state: Mutex::default(), more: Condvar::new(), answered: Notify::new(), ask });
        for _ in 0..THREADS {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name("names".into()).spawn(move || shared.work())?;
        }
        Ok(Self(Arc::new(Handle(shared))))
    }

    fn shared(&self) -> &Shared {
        &self.0.0
    }

    /// Has these asked, and waits for nothing.
    pub fn ask(&self, questions: impl IntoIterator<Item = Question>) {
        let mut state = self.shared().lock();
        for question in questions {
            if state.ask(&question) {
                self.shared().more.notify_one();
            }
        }
    }

    /// Are there answers to all of them that need not be asked for again?
    pub fn are_fresh(&self, questions: &[Question]) -> bool {
        let state = self.shared().lock();
        questions.iter().all(|question| state.is_fresh(question))
    }

    /// Waits until these were asked and answered, for [`PATIENCE`] at most.
    pub async fn prepare(&self, questions: &[Question]) {
        if self.are_fresh(questions) {
            return;
        }
        let shared = self.shared();
        let answered = async {
            // Those that the name service could not say are not asked again.
            self.ask(questions.iter().cloned());
            loop {
                let mut next = pin!(shared.answered.notified());
                // Before the look, so that no answer falls between the two.
                next.as_mut().enable();
                if !shared.are_open(questions) {
                    return;
                }
                next.await;
            }
        };
        if tokio::time::timeout(PATIENCE, answered).await.is_err() {
            tracing::debug!(?questions, "the name service takes its time");
        }
    }

    fn known(&self, question: &Question) -> Option<Answer> {
        let mut state = self.shared().lock();
        if state.ask(question) {
            self.shared().more.notify_one();
        }
        state.known.get(question).map(|(_, answer)| answer.clone())
    }

    /// Id of a user who is told by name or by id in digits, if that is known.
    pub fn uid_called(&self, text: &str) -> Option<u32> {
        match self.known(&Question::UserCalled(text.to_owned())) {
            Some(Answer::Account(account)) => account.map(|(uid, _)| uid),
            _ => None,
        }
    }
}

/// What whoever serves a request will want to know.
pub fn questions_of(caller: &Caller, request: &CommandRequest) -> Vec<Question> {
    let mut questions = vec![Question::User(caller.uid), Question::Group(caller.gid)];
    if let CommandRequest::CreateReservation(change) | CommandRequest::UpdateReservation(change) = request {
        questions.extend(names_of(change).take(MOST_OF_REQUEST));
    }
    questions
}

fn names_of(change: &ReservationChange) -> impl Iterator<Item = Question> {
    let users = [&change.users, &change.users_more, &change.users_less];
    let users = users.into_iter().flatten().flat_map(|list| &list.names).cloned().map(Question::UserCalled);
    users.chain(change.groups.iter().flatten().cloned().map(Question::GroupCalled))
}

impl UserDirectory for Names {
    fn user(&self, uid: u32) -> Option<User> {
        match self.known(&Question::User(uid)) {
            Some(Answer::User(user)) => user,
            _ => None,
        }
    }

    fn is_known(&self, uid: u32) -> bool {
        self.known(&Question::User(uid)).is_some()
    }

    fn group_name(&self, gid: u32) -> Option<String> {
        match self.known(&Question::Group(gid)) {
            Some(Answer::Group(Some(name))) => Some(name),
            _ => Some(gid.to_string()),
        }
    }

    fn user_called(&self, text: &str) -> Option<String> {
        match self.known(&Question::UserCalled(text.to_owned())) {
            Some(Answer::Account(account)) => account.map(|(_, name)| name),
            _ => Some(text.to_owned()),
        }
    }

    fn group_called(&self, text: &str) -> Option<String> {
        match self.known(&Question::GroupCalled(text.to_owned())) {
            Some(Answer::Group(name)) => name,
            _ => Some(text.to_owned()),
        }
    }
}

fn look_up(question: &Question) -> Result<Answer, UserError> {
    Ok(match question {
        Question::User(uid) => Answer::User(match users::by_uid(*uid) {
            Ok(account) => {
                let groups = users::groups(account.uid, account.gid)?;
                let groups = groups.into_iter().map(|gid| (gid, users::group_name(gid))).collect();
                Some(User { uid: *uid, name: account.name, gid: account.gid, groups })
            }
            Err(UserError::UnknownUid(_) | UserError::UnknownName(_)) => None,
            Err(e) => return Err(e),
        }),
        Question::Group(gid) => Answer::Group(Some(users::group_name(*gid))),
        Question::UserCalled(text) => Answer::Account(match users::by_name_or_uid(text) {
            Ok(account) => Some((account.uid, account.name)),
            Err(UserError::UnknownUid(_) | UserError::UnknownName(_)) => None,
            Err(e) => return Err(e),
        }),
        Question::GroupCalled(text) => Answer::Group(users::group_by_name_or_gid(text)?),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    fn alice() -> Answer {
        Answer::User(Some(User { uid: 7, name: "alice".into(), gid: 7, groups: vec![(7, "alice".into())] }))
    }

    /// A name service that answers a question about a user when it is let.
    fn slow() -> (Names, std::sync::mpsc::Sender<()>, Receiver<Question>) {
        let ((go, may_go), (tell, asked)) = (channel(), channel());
        let (may_go, tell) = (Mutex::new(may_go), Mutex::new(tell));
        let ask = move |question: &Question| {
            tell.lock().unwrap().send(question.clone()).unwrap();
            match may_go.lock().unwrap().recv() {
                Ok(()) => Ok(alice()),
                Err(_) => Err(UserError::UnknownName("nobody answers".into())),
            }
        };
        (Names::asking(Box::new(ask)).unwrap(), go, asked)
    }

    #[tokio::test]
    async fn nobody_waits_for_the_name_service_but_who_prepares() {
        let (names, go, asked) = slow();
        // It is silent, and the actor goes on: it knows that it does not know.
        assert_eq!((names.user(7), names.is_known(7)), (None, false));
        assert_eq!(asked.recv().unwrap(), Question::User(7));
        assert!(asked.try_recv().is_err(), "it is asked once");
        let questions = [Question::User(7)];
        let mut prepared = pin!(names.prepare(&questions));
        let soon = tokio::select! {
            biased;
            () = &mut prepared => true,
            () = std::future::ready(()) => false,
        };
        assert!(!soon);
        go.send(()).unwrap();
        prepared.await;
        assert_eq!(names.user(7).unwrap().name, "alice");
        assert!(names.is_known(7) && names.are_fresh(&questions));
    }

    #[tokio::test]
    async fn one_that_cannot_say_is_not_asked_for_ever_and_what_was_known_stays() {
        let (names, go, asked) = slow();
        go.send(()).unwrap();
        names.prepare(&[Question::User(7)]).await;
        asked.recv().unwrap();
        let old = Instant::now().checked_sub(2 * FRESH).unwrap();
        names.shared().lock().known.get_mut(&Question::User(7)).unwrap().0 = old;
        drop(go);
        names.prepare(&[Question::User(7), Question::User(8)]).await;
        assert_eq!(names.user(7).unwrap().name, "alice");
        assert!(!names.is_known(8));
    }

    #[tokio::test]
    async fn root_is_known_once_prepared() {
        let names = Names::of_this_host().unwrap();
        let called = [Question::UserCalled("root".into()), Question::UserCalled("no-such-user".into())];
        let questions =
            [called.as_slice(), &[Question::User(0), Question::Group(0), Question::User(4_000_000_001)]].concat();
        names.prepare(&questions).await;
        assert_eq!(names.user(0).unwrap().name, "root");
        assert!(names.user(0).unwrap().groups.iter().any(|(gid, name)| *gid == 0 && name == "root"));
        assert_eq!(names.group_name(0).as_deref(), Some("root"));
        assert_eq!((names.uid_called("root"), names.user_called("no-such-user")), (Some(0), None));
        assert!(names.is_known(4_000_000_001) && names.user(4_000_000_001).is_none());
    }
}
