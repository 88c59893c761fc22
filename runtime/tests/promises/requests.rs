//! Promises about outstanding requests and kept answers.

use std::time::{Duration, Instant};

use garrick_runtime::{Answered, AskError, BeginError, ReplyTo, Requests};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn an_outstanding_request_ends_exactly_once_by_answer_or_deadline() {
    let t0 = Instant::now();
    let mut requests: Requests<u32, &str> = Requests::new(8);
    let begin = |requests: &mut Requests<u32, &'static str>, key, after| {
        let (reply, pending) = ReplyTo::channel();
        requests.begin(key, t0 + after, reply).unwrap();
        pending
    };
    let mut late = begin(&mut requests, 1, 2 * SECOND);
    let mut early = begin(&mut requests, 2, SECOND);
    let mut answered = begin(&mut requests, 3, SECOND);
    assert_eq!(requests.next_deadline(), Some(t0 + SECOND));
    assert!(requests.finish(&3, "answer"));
    assert!(!requests.finish(&3, "second answer"));
    assert_eq!(answered.try_take(), Some(Ok("answer")));

    assert_eq!(requests.expire(t0), [] as [u32; 0]);
    assert_eq!(requests.expire(t0 + 3 * SECOND), [2, 1]);
    assert_eq!(early.try_take(), Some(Err(AskError::Timeout)));
    assert_eq!(late.try_take(), Some(Err(AskError::Timeout)));
    assert!(!requests.finish(&1, "too late"));
    assert!(requests.is_empty() && requests.next_deadline().is_none());
}

#[test]
fn outstanding_requests_are_bounded_and_distinct_and_a_refused_reply_comes_back() {
    let t0 = Instant::now();
    let mut requests: Requests<u32, &str> = Requests::new(1);
    requests.begin(1, t0, ReplyTo::channel().0).unwrap();
    let (reply, mut pending) = ReplyTo::channel();
    let Err(BeginError::Duplicate(reply)) = requests.begin(1, t0, reply) else { panic!("took a duplicate") };
    let Err(BeginError::Full(reply)) = requests.begin(2, t0, reply) else { panic!("took one too many") };
    reply.reply("busy");
    assert_eq!(pending.try_take(), Some(Ok("busy")));
    assert_eq!(requests.fail_all(AskError::LinkDown), 1);
    assert_eq!(requests.len(), 0);
}

#[test]
fn a_repeat_gets_the_first_answer_as_long_as_it_is_kept() {
    let t0 = 5 * SECOND;
    let mut answered: Answered<u32, &str> = Answered::new(2, 10 * SECOND);
    answered.put(1, "first", t0);
    answered.put(1, "other", t0);
    assert_eq!(answered.get(&1), Some(&"first"));
    answered.put(2, "second", t0 + SECOND);
    answered.put(3, "third", t0 + 2 * SECOND);
    assert_eq!((answered.get(&1), answered.len()), (None, 2), "bounded by number, the oldest goes first");
    answered.put(4, "fourth", t0 + 12 * SECOND);
    assert_eq!((answered.get(&2), answered.get(&3), answered.get(&4)), (None, None, Some(&"fourth")));
}
