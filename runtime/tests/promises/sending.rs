//! Promises about sends: order, lanes, bounds.

use std::sync::{Arc, Mutex};

use garrick_runtime::{ActorPath, Address, Forward, Lane, SendError, TraceContext};

use crate::puppet::*;

#[tokio::test(start_paused = true)]
async fn messages_of_one_sender_are_handled_in_the_order_sent() {
    stage(async |system, log, mut lines| {
        let a = start(&system, "a", &log);
        for n in 0..100 {
            a.try_send(say(n.to_string())).unwrap();
        }
        assert_eq!(lines.next().await, "a up");
        let expected: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        assert_eq!(lines.take(100).await, expected);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn each_of_several_senders_keeps_its_own_order() {
    stage(async |system, log, mut lines| {
        let a = system.start("/", Puppet::new("a", &log).spec().mailbox(3));
        let senders: Vec<_> = ["x", "y", "z"]
            .into_iter()
            .map(|sender| {
                let a = a.clone();
                tokio::task::spawn_local(async move {
                    for n in 0..50 {
                        a.send(say(format!("{sender}{n:02}"))).await.unwrap();
                    }
                })
            })
            .collect();
        for sender in senders {
            sender.await.unwrap();
        }
        settle(&a).await;
        let all = lines.rest();
        for sender in ["x", "y", "z"] {
            let mine: Vec<&String> = all.iter().filter(|line| line.starts_with(sender)).collect();
            assert_eq!(mine.len(), 50);
            assert!(mine.is_sorted(), "{mine:?}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn control_messages_overtake_all_waiting_normal_ones() {
    stage(async |system, log, mut lines| {
        let a = start(&system, "a", &log);
        settle(&a).await;
        for n in 0..3 {
            a.try_send(say(format!("normal {n}"))).unwrap();
        }
        a.control(say("control 0")).unwrap();
        a.control(say("control 1")).unwrap();
        settle(&a).await;
        assert_eq!(lines.rest(), ["a up", "control 0", "control 1", "normal 0", "normal 1", "normal 2"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn try_send_refuses_at_the_bound_and_hands_the_message_back() {
    stage(async |system, log, mut lines| {
        let a = system.start("/", Puppet::new("a", &log).spec().mailbox(4));
        // Every message through a clone of its own: the bound is the mailbox's, not the sender's.
        for n in 0..4 {
            a.clone().try_send(say(n.to_string())).unwrap();
        }
        let Err(SendError::Full(back)) = a.clone().try_send(say("fifth")) else { panic!("took a fifth") };
        assert_eq!((a.waiting(), a.capacity()), (4, Some(4)));
        lines.until("3").await;
        a.try_send(back).unwrap();
        assert_eq!(lines.next().await, "fifth");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn send_waits_for_room_and_waiting_senders_go_in_the_order_in_which_they_came() {
    stage(async |system, log, mut lines| {
        let a = system.start("/", Puppet::new("a", &log).spec().mailbox(1));
        a.try_send(say("first")).unwrap();
        let waiting: Vec<_> = (0..5)
            .map(|n| {
                let a = a.clone();
                tokio::task::spawn_local(async move { a.send(say(n.to_string())).await })
            })
            .collect();
        for sender in waiting {
            sender.await.unwrap().unwrap();
        }
        lines.until("first").await;
        assert_eq!(lines.take(5).await, ["0", "1", "2", "3", "4"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_send_dropped_while_it_waits_sends_nothing() {
    stage(async |system, log, mut lines| {
        let a = system.start("/", Puppet::new("a", &log).spec().mailbox(1));
        a.try_send(say("first")).unwrap();
        {
            let mut waiting = std::pin::pin!(a.send(say("withdrawn")));
            let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(waiting.as_mut().poll(cx))).await;
            assert!(polled.is_pending());
        }
        lines.until("first").await;
        a.try_send(say("second")).unwrap();
        assert_eq!(lines.next().await, "second");
        settle(&a).await;
        assert!(lines.rest().is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_control_lane_has_a_bound_of_its_own() {
    stage(async |system, log, mut lines| {
        let a = system.start("/", Puppet::new("a", &log).spec().mailbox(1).control(2));
        a.try_send(say("normal")).unwrap();
        assert!(matches!(a.try_send(say("too many")), Err(SendError::Full(_))));
        a.control(say("control 0")).unwrap();
        a.control(say("control 1")).unwrap();
        assert!(matches!(a.control(say("too many")), Err(SendError::Full(_))));
        assert_eq!(lines.take(4).await, ["a up", "control 0", "control 1", "normal"]);
        a.control(say("control 2")).unwrap();
        assert_eq!(lines.next().await, "control 2");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn sends_to_an_ended_actor_fail_as_closed_also_those_that_wait() {
    stage(async |system, log, mut lines| {
        let a = system.start("/", Puppet::new("a", &log).spec().mailbox(1));
        a.try_send(act("Stop", |_, cx| cx.stop())).unwrap();
        let waiting = {
            let a = a.clone();
            // Gets the place that the stop message frees, or is refused: never hangs.
            tokio::task::spawn_local(async move {
                let mut sent = Vec::new();
                for _ in 0..2 {
                    sent.push(a.send(say("late")).await);
                }
                sent
            })
        };
        let sent = waiting.await.unwrap();
        assert!(matches!(sent.last(), Some(Err(SendError::Closed(_)))));
        lines.until("a stopped").await;
        assert!(a.is_closed());
        assert!(matches!(a.try_send(say("late")), Err(SendError::Closed(_))));
        assert!(matches!(a.control(say("late")), Err(SendError::Closed(_))));
        assert!(lines.rest().is_empty());
    })
    .await;
}

type Forwarded = (String, Lane, TraceContext, &'static str);

/// A link that notes what it is given, up to one message, and can be down.
#[derive(Default)]
struct Link {
    down: bool,
    notes: Mutex<Vec<Forwarded>>,
}

impl Forward<Act> for Link {
    fn forward(&self, to: &ActorPath, lane: Lane, cx: TraceContext, msg: Act) -> Result<(), SendError<Act>> {
        if self.down {
            return Err(SendError::LinkDown(msg));
        }
        self.notes.lock().unwrap().push((to.to_string(), lane, cx, msg.0));
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_far_address_hands_path_lane_and_trace_to_its_link() {
    stage(async |system, log, _lines| {
        let link = Arc::new(Link::default());
        let far = Address::far(ActorPath::new("/job/5609/step/3").unwrap(), link.clone());
        let a = start(&system, "a", &log);
        let cx = ask(&a, {
            let far = far.clone();
            move |_, _| {
                far.try_send(say("x")).unwrap();
                far.control(panics()).unwrap();
                TraceContext::current()
            }
        })
        .await
        .unwrap();
        let path = "/job/5609/step/3".to_owned();
        let expected = vec![(path.clone(), Lane::Normal, cx, "Say"), (path, Lane::Control, cx, "Panic")];
        assert_eq!(*link.notes.lock().unwrap(), expected);

        let down: Address<Act> = Address::far(far.path().clone(), Arc::new(Link { down: true, ..Link::default() }));
        assert!(matches!(down.try_send(say("x")), Err(SendError::LinkDown(_))));
        assert!(matches!(down.send(say("x")).await, Err(SendError::LinkDown(_))));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_far_send_waits_while_its_link_is_full() {
    let (address, mut receiver) = Address::channel(ActorPath::new("/far").unwrap(), 1);
    address.try_send(say("first")).unwrap();
    assert!(matches!(address.try_send(say("x")), Err(SendError::Full(_))));
    let received = async {
        let first = receiver.recv().await.unwrap();
        (first.0, receiver.recv_delivered().await.unwrap())
    };
    let (sent, (first, second)) = tokio::join!(address.send(panics()), received);
    sent.unwrap();
    assert_eq!((first, second.lane, second.msg.0), ("Say", Lane::Normal, "Panic"));
}
