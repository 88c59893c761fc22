#![allow(clippy::unwrap_used)]
use super::*;
use crate::scheduler::fixtures::{hold, node};

const NOW: Timestamp = Timestamp::from_secs(1_000_000);

fn at(secs: u64) -> Timestamp {
    NOW.plus(Duration::from_secs(secs))
}

fn nodes(count: u32) -> Vec<Arc<NodeView>> {
    (0..count).map(|n| Arc::new(node(n, 4))).collect()
}

fn on<R>(nodes: &[Arc<NodeView>], act: impl FnOnce(&Site<'_>) -> R) -> R {
    act(&Site { nodes, partitions: &[], zone: &TimeZone::UTC, now: NOW })
}

fn wish(name: &str, nodes: &[&str], from: u64, secs: u64) -> ReservationChange {
    ReservationChange {
        name: Some(name.to_owned()),
        start: Some(at(from)),
        duration_secs: Some(secs),
        nodes: Some(NodesWanted::Named(nodes.iter().map(|n| (*n).to_owned()).collect())),
        users: AccessList::parse("alice"),
        ..ReservationChange::default()
    }
}

fn flagged(change: ReservationChange, flag: ReservationFlag) -> ReservationChange {
    ReservationChange { set: [flag].into(), ..change }
}

fn create(core: &mut ReservationsCore, change: &ReservationChange) -> Result<Reservation, Refusal> {
    on(&nodes(3), |site| core.create(site, "root", change)).map(|changed| changed.saved.unwrap())
}

#[test]
fn overlapping_ones_are_refused_unless_flags_allow_it() {
    let mut core = ReservationsCore::default();
    create(&mut core, &wish("a", &["n0", "n1"], 100, 100)).unwrap();
    assert_eq!(create(&mut core, &wish("b", &["n1"], 150, 100)), Err(Refusal::Busy));
    assert_eq!(create(&mut core, &wish("a", &["n2"], 0, 10)), Err(Refusal::ReservationExists("a".into())));
    create(&mut core, &wish("b", &["n1"], 200, 100)).unwrap();
    create(&mut core, &flagged(wish("c", &["n1"], 0, 900), ReservationFlag::Maint)).unwrap();
    create(&mut core, &flagged(wish("d", &["n1"], 0, 900), ReservationFlag::Overlap)).unwrap();
    // One that comes again meets others at a later time.
    let daily = flagged(wish("e", &["n0"], 86_400 + 1000, 100), ReservationFlag::Daily);
    create(&mut core, &daily).unwrap();
    assert_eq!(create(&mut core, &wish("f", &["n0"], 5 * 86_400 + 1050, 10)), Err(Refusal::Busy));
}

#[test]
fn nodes_with_jobs_are_busy_unless_they_are_ignored() {
    let mut busy = node(0, 4);
    busy.holds.push(hold(1, 0..2, 10, Some(1_000_500)));
    let nodes = vec![Arc::new(busy), Arc::new(node(1, 4))];
    let mut core = ReservationsCore::default();
    let mut ask = |change: &ReservationChange| on(&nodes, |site| core.create(site, "root", change));
    assert_eq!(ask(&wish("a", &["n0"], 400, 100)), Err(Refusal::Busy));
    ask(&wish("b", &["n0"], 500, 100)).unwrap();
    ask(&flagged(wish("c", &["n0"], 0, 100), ReservationFlag::IgnoreJobs)).unwrap();
    let one = ReservationChange { nodes: Some(NodesWanted::Count(1)), name: None, ..wish("", &[], 0, 50) };
    let saved = ask(&one).unwrap().saved.unwrap();
    assert_eq!((saved.name.as_str(), saved.nodes, saved.cpus), ("alice_1", vec!["n1".to_owned()], 8));
    assert_eq!(ask(&one), Err(Refusal::Busy));
    let three = ReservationChange { nodes: Some(NodesWanted::Count(3)), ..one };
    assert!(matches!(ask(&three), Err(Refusal::NodeConfigUnavailable { .. })));
}

#[test]
fn what_is_missing_or_wrong_is_said() {
    let mut core = ReservationsCore::default();
    let full = wish("a", &["n0"], 10, 100);
    let text = |core: &mut ReservationsCore, change| create(core, &change).unwrap_err().to_string();
    assert!(text(&mut core, ReservationChange { start: None, ..full.clone() }).contains("StartTime"));
    assert!(text(&mut core, ReservationChange { duration_secs: None, ..full.clone() }).contains("Duration="));
    assert!(text(&mut core, ReservationChange { users: None, ..full.clone() }).contains("Users and/or Accounts"));
    assert!(text(&mut core, ReservationChange { nodes: None, ..full.clone() }).contains("Nodes="));
    assert_eq!(text(&mut core, wish("a", &["n9"], 10, 100)), "Invalid node name specified");
    let past = ReservationChange { start: Some(Timestamp(0)), ..full };
    assert_eq!(create(&mut core, &past), Err(Refusal::InvalidTime));
    assert_eq!(create(&mut core, &wish("a", &["n0"], 10, 0)), Err(Refusal::InvalidTime));
    let long = flagged(wish("a", &["n0"], 10, 90_000), ReservationFlag::Daily);
    assert!(text(&mut core, long).contains("longer than"));
    assert_eq!(core.delete("a"), Err(Refusal::InvalidReservation("a".into())));
    assert_eq!(core.list().count(), 0);
}

#[test]
fn changes_are_checked_like_new_ones() {
    let mut core = ReservationsCore::default();
    create(&mut core, &wish("a", &["n0"], 100, 100)).unwrap();
    create(&mut core, &wish("b", &["n0"], 200, 100)).unwrap();
    let longer = ReservationChange { name: Some("a".into()), duration_secs: Some(150), ..ReservationChange::default() };
    assert_eq!(on(&nodes(3), |site| core.update(site, &longer)), Err(Refusal::Busy));
    let later = ReservationChange { name: Some("b".into()), start: Some(at(300)), ..ReservationChange::default() };
    let saved = on(&nodes(3), |site| core.update(site, &later)).unwrap().saved.unwrap();
    assert_eq!((saved.start, saved.end), (at(300), at(400)));
    on(&nodes(3), |site| core.update(site, &longer)).unwrap();
    let users =
        ReservationChange { name: Some("a".into()), users: AccessList::parse("bob"), ..ReservationChange::default() };
    let saved = on(&nodes(3), |site| core.update(site, &users)).unwrap().saved.unwrap();
    assert_eq!(saved.users.to_string(), "bob");
}

#[test]
fn ended_ones_go_and_recurring_ones_move_on() {
    let mut core = ReservationsCore::default();
    create(&mut core, &wish("a", &["n0"], 10, 100)).unwrap();
    create(&mut core, &flagged(wish("b", &["n1"], 10, 100), ReservationFlag::Daily)).unwrap();
    assert_eq!(core.next_change(NOW), Some(at(10)));
    assert!(core.tick(at(109), &TimeZone::UTC).is_empty());
    let changed = core.tick(at(110), &TimeZone::UTC);
    assert_eq!(changed[0], Changed { name: "a".into(), saved: None });
    assert_eq!(changed[1].saved.as_ref().unwrap().start, at(86_410));
    assert_eq!(core.next_change(at(110)), Some(at(86_410)));
}
