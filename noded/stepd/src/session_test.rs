use super::*;

/// A side with what it has heard in order, and what is on its way to the other on the connection that is up.
struct Side {
    session: Session<u32>,
    said: u32,
    written: u64,
    heard: Vec<u32>,
}

impl Side {
    fn new(own: u64) -> Self {
        Self { session: Session::new(own), said: 0, written: 1, heard: Vec::new() }
    }

    fn say(&mut self) {
        self.said += 1;
        assert!(self.session.keep(1, self.said).is_ok());
    }
}

/// Both begin on a new connection. `told`: the answer of the second gets through.
fn meet(a: &mut Side, b: &mut Side, told: bool) -> (Met, Option<Met>) {
    let LinkFrame::<u32>::Begin { session, known, seen } = a.session.begin() else { unreachable!() };
    let before: LinkFrame<u32> = b.session.begin();
    let of_b = b.session.meet(session, known, seen);
    b.written = b.session.first();
    let LinkFrame::Begin { session, known, seen } = before else { unreachable!() };
    let of_a = told.then(|| a.session.meet(session, known, seen));
    a.written = a.session.first();
    (of_b, of_a)
}

/// So many messages of `from` get through, and the other side's word that it saw them, if `told`.
fn carry(from: &mut Side, to: &mut Side, most: usize, told: bool) {
    for _ in 0..most {
        let Some(message) = from.session.get(from.written) else { break };
        from.written += 1;
        if to.session.said() {
            to.heard.push(*message);
        }
    }
    if told && to.session.owes() {
        from.session.seen_by_peer(to.session.seen());
        to.session.told();
    }
}

#[test]
fn nothing_is_lost_or_doubled_however_often_the_link_breaks() {
    let (mut a, mut b) = (Side::new(7), Side::new(8));
    // Pseudo-random, the same every time.
    let mut state = 1u32;
    let mut dice = |sides: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % sides
    };
    assert_eq!(meet(&mut a, &mut b, true), (Met::Anew, Some(Met::Anew)));
    for _ in 0..20_000 {
        match dice(6) {
            0 | 1 => a.say(),
            2 => b.say(),
            3 => carry(&mut a, &mut b, dice(5) as usize, dice(2) == 0),
            4 => carry(&mut b, &mut a, dice(5) as usize, dice(2) == 0),
            _ if dice(10) == 0 => {
                let told = dice(3) > 0;
                let (of_b, of_a) = meet(&mut a, &mut b, told);
                assert_eq!(of_b, Met::Again);
                assert_eq!(of_a, told.then_some(Met::Again));
                if !told {
                    meet(&mut a, &mut b, true);
                }
            }
            _ => {}
        }
    }
    carry(&mut a, &mut b, usize::MAX, true);
    carry(&mut b, &mut a, usize::MAX, true);
    assert_eq!(b.heard, (1..=a.said).collect::<Vec<_>>());
    assert_eq!(a.heard, (1..=b.said).collect::<Vec<_>>());
    assert_eq!((a.session.kept_bytes, b.session.kept_bytes), (0, 0));
}

#[test]
fn what_was_said_before_the_first_meeting_is_heard() {
    let (mut a, mut b) = (Side::new(7), Side::new(8));
    a.say();
    meet(&mut a, &mut b, true);
    carry(&mut a, &mut b, 9, true);
    assert_eq!(b.heard, [1]);
}

#[test]
fn a_new_process_hears_nothing_that_was_meant_for_the_one_before() {
    let (mut shepherd, mut first) = (Side::new(7), Side::new(8));
    meet(&mut shepherd, &mut first, true);
    shepherd.say();
    let mut second = Side::new(9);
    second.say();
    assert_eq!(meet(&mut shepherd, &mut second, true), (Met::Anew, Some(Met::Anew)));
    shepherd.say();
    carry(&mut shepherd, &mut second, 9, true);
    carry(&mut second, &mut shepherd, 9, true);
    assert_eq!((second.heard, shepherd.heard), (vec![2], vec![1]));
}

#[test]
fn a_session_that_one_side_gave_up_is_over_for_both() {
    let (mut a, mut b) = (Side::new(7), Side::new(8));
    meet(&mut a, &mut b, true);
    a.say();
    b.session.give_up(80);
    // The answer is lost once: neither side may take the next meeting for one of acquaintances.
    assert_eq!(meet(&mut a, &mut b, false), (Met::Anew, None));
    assert_eq!(meet(&mut a, &mut b, true), (Met::Anew, Some(Met::Anew)));
    b.say();
    carry(&mut b, &mut a, 9, true);
    assert_eq!(a.heard, [1]);
}

#[test]
fn a_message_ahead_of_its_turn_is_news_once() {
    let mut s = Session::<u32>::new(1);
    assert!(s.said());
    assert!(s.said_ahead(3));
    assert!(!s.said_ahead(3));
    assert!(s.said());
    assert!(!s.said(), "the third was heard already");
    assert!(!s.said_ahead(3), "overtaken by its own turn");
    assert!(s.said());
}

#[test]
fn what_is_kept_is_bounded() {
    let mut s = Session::new(1);
    for n in 0..MOST_KEPT {
        assert_eq!(s.keep(1, n), Ok(n as u64 + 1));
    }
    assert_eq!(s.keep(1, 0), Err(TooMuchKept));
    s.seen_by_peer(1);
    assert!(s.keep(MOST_KEPT_BYTES, 0).is_err());
    assert!(s.keep(1, 0).is_ok());
}
