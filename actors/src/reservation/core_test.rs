#![allow(clippy::unwrap_used)]
use super::*;
use crate::{
    controller::{fixtures::config_of, shells::reservation::over_run},
    job::fixtures::CountingIds,
    owner::{Effect, Owner},
    reservation::owner::{ReservationErrand, ReservationInput, Snapshot},
};
use garrick_events::event::ControllerEvent;
use garrick_model::{
    config::PartitionConfig,
    ids::NodeIndex,
    reservation::CoresWanted,
    site_program::Moment,
    state::{NodeBase, PartitionState},
    testing::{hold, node},
};
use std::path::{Path, PathBuf};

const NOW: Timestamp = Timestamp::from_secs(1_000_000);

fn at(secs: u64) -> Timestamp {
    NOW.plus(Duration::from_secs(secs))
}

fn nodes(count: u32) -> Vec<Arc<NodeView>> {
    (0..count).map(|n| Arc::new(node(n, 4))).collect()
}

fn on<R>(nodes: &[Arc<NodeView>], act: impl FnOnce(&Site<'_>) -> R) -> R {
    seen(nodes, [&[], &[]], NOW, act)
}

/// With reservations in which jobs are, and those that jobs wait for.
fn seen<R>(
    nodes: &[Arc<NodeView>],
    [in_use, awaited]: [&[&str]; 2],
    now: Timestamp,
    act: impl FnOnce(&Site<'_>) -> R,
) -> R {
    let names = |list: &[&str]| -> BTreeSet<String> { list.iter().map(|n| (*n).to_owned()).collect() };
    let licenses = BTreeMap::from([("abc".to_owned(), 10)]);
    let (in_use, awaited) = (&names(in_use), &names(awaited));
    let zone = &TimeZone::UTC;
    let (unaware, over_run) = (in_use, Some(Duration::from_secs(600)));
    act(&Site { nodes, partitions: &[], licenses: &licenses, in_use, awaited, unaware, over_run, zone, now })
}

fn tick(core: &mut ReservationsCore, at: Timestamp) -> Vec<Changed> {
    seen(&nodes(3), [&[], &[]], at, |site| core.tick(site))
}

fn counted(name: &str, count: u32, flags: &[ReservationFlag]) -> ReservationChange {
    let nodes = Some(NodesWanted::Count(count));
    ReservationChange { nodes, set: flags.iter().copied().collect(), ..wish(name, &[], 0, 1000) }
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

fn delete(core: &mut ReservationsCore, name: &str) -> Result<Changed, Refusal> {
    on(&nodes(3), |site| core.delete(site, name))
}

#[test]
fn one_with_jobs_is_not_deleted() {
    let mut core = ReservationsCore::default();
    create(&mut core, &wish("a", &["n0"], 0, 100)).unwrap();
    let names: &[&str] = &["a"];
    for jobs in [[names, &[]], [&[], names]] {
        let answer = seen(&nodes(3), jobs, NOW, |site| core.delete(site, "a"));
        assert_eq!(answer, Err(Refusal::ReservationBusy("a".into())));
        let unknown = seen(&nodes(3), jobs, NOW, |site| core.delete(site, "b"));
        assert_eq!(unknown, Err(Refusal::InvalidReservation("b".into())));
    }
    assert_eq!(delete(&mut core, "a").unwrap().saved, None);
}

/// Programs that the owner runs when it looks.
fn programs_run(core: &mut ReservationsCore, now: Timestamp, ask: Option<ReservationAsk>) -> Vec<(Moment, String)> {
    let program = |name: &str| Some(PathBuf::from(name));
    let snapshot = Snapshot {
        nodes: nodes(3),
        partitions: Vec::new(),
        licenses: BTreeMap::new(),
        jobs: Vec::new(),
        over_run: None,
        prolog: program("/begin"),
        epilog: program("/end"),
        zone: TimeZone::UTC,
    };
    let (mut ids, mut out) = (CountingIds { job: 0, sluid: 0 }, Vec::new());
    core.asked.extend(ask.map(|ask| (1, ask)));
    core.handle(now, &mut ids, ReservationInput::Seen(Box::new(snapshot)), &mut out);
    let mut saved = None;
    let mut programs = Vec::new();
    for effect in out {
        match effect {
            Effect::Save(ControllerEvent::Reservation { reservation, .. }) => saved = Some(reservation),
            Effect::Do(ReservationErrand::Run { moment, program, name }) => {
                let begins = program == Path::new("/begin");
                assert_eq!(begins, moment == Moment::ReservationProlog);
                assert_eq!(saved.as_ref(), Some(&name), "what it runs for is noted before");
                programs.push((moment, name));
            }
            _ => {}
        }
    }
    programs
}

#[test]
fn programs_run_once_for_each_time_of_a_reservation() {
    use Moment::{ReservationEpilog as End, ReservationProlog as Begin};
    let mut core = ReservationsCore::default();
    create(&mut core, &wish("once", &["n0"], 10, 100)).unwrap();
    create(&mut core, &flagged(wish("daily", &["n1"], 10, 100), ReservationFlag::Daily)).unwrap();
    create(&mut core, &wish("gone", &["n2"], 10, 1000)).unwrap();
    let ran = |list: &[(Moment, &str)]| -> Vec<(Moment, String)> {
        list.iter().map(|(moment, name)| (*moment, (*name).to_owned())).collect()
    };
    assert_eq!(programs_run(&mut core, at(9), None), []);
    assert_eq!(programs_run(&mut core, at(10), None), ran(&[(Begin, "daily"), (Begin, "gone"), (Begin, "once")]));
    // The same after a restart of the controller.
    let mut core = ReservationsCore::new(core.known);
    assert_eq!(programs_run(&mut core, at(50), None), []);
    // One that runs and is deleted has no end (slurm.conf(5), `ResvEpilog`).
    assert_eq!(programs_run(&mut core, at(60), Some(ReservationAsk::Delete("gone".to_owned()))), []);
    assert_eq!(programs_run(&mut core, at(110), None), ran(&[(End, "daily"), (End, "once")]));
    assert_eq!(programs_run(&mut core, at(86_410), None), ran(&[(Begin, "daily")]));
    // One that is put off begins again.
    let later = ReservationChange { start: Some(at(86_500)), ..ReservationChange::default() };
    let later = ReservationChange { name: Some("daily".to_owned()), ..later };
    assert_eq!(programs_run(&mut core, at(86_420), Some(ReservationAsk::Update(Box::new(later)))), []);
    assert_eq!(programs_run(&mut core, at(86_500), None), ran(&[(Begin, "daily")]));
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
    assert!(
        text(&mut core, ReservationChange { users: None, ..full.clone() }).contains("Users/Groups and/or Accounts")
    );
    assert!(text(&mut core, ReservationChange { nodes: None, ..full.clone() }).contains("Nodes="));
    assert_eq!(text(&mut core, wish("a", &["n9"], 10, 100)), "Invalid node name specified");
    let past = ReservationChange { start: Some(Timestamp(0)), ..full };
    assert_eq!(create(&mut core, &past), Err(Refusal::InvalidTime));
    assert_eq!(create(&mut core, &wish("a", &["n0"], 10, 0)), Err(Refusal::InvalidTime));
    let long = flagged(wish("a", &["n0"], 10, 90_000), ReservationFlag::Daily);
    assert!(text(&mut core, long).contains("longer than"));
    assert_eq!(delete(&mut core, "a"), Err(Refusal::InvalidReservation("a".into())));
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
    assert!(tick(&mut core, at(109)).is_empty());
    let changed = tick(&mut core, at(110));
    assert_eq!(changed[0], Changed { name: "a".into(), saved: None });
    assert_eq!(changed[1].saved.as_ref().unwrap().start, at(86_410));
    assert_eq!(core.next_change(at(110)), Some(at(86_410)));
}

#[test]
fn nodes_out_of_service_are_replaced_unless_they_are_to_stay() {
    let mut core = ReservationsCore::default();
    let four = nodes(4);
    for (name, flags) in [("a", &[][..]), ("b", &[ReservationFlag::Static])] {
        on(&four, |site| core.create(site, "root", &counted(name, 1, flags))).unwrap();
    }
    // One that has not registered yet may be on its way.
    let mut down = nodes(4);
    Arc::make_mut(&mut down[0]).base = NodeBase::Unknown;
    assert_eq!(on(&down, |site| core.tick(site)), []);
    let mut down = nodes(4);
    for place in [0, 1] {
        Arc::make_mut(&mut down[place]).flags.drain = true;
    }
    let changed = on(&down, |site| core.tick(site));
    assert_eq!(changed.len(), 1, "{changed:?}");
    let a = changed[0].saved.as_ref().unwrap();
    assert_eq!((a.name.as_str(), a.nodes.as_slice(), a.cores), ("a", &["n2".to_owned()][..], 4));
    // Nothing is left for it: it keeps what it has.
    for node in &mut down {
        Arc::make_mut(node).flags.drain = true;
    }
    assert_eq!(on(&down, |site| core.tick(site)), []);
    // What is named stays.
    let mut core = ReservationsCore::default();
    create(&mut core, &wish("c", &["n0"], 0, 100)).unwrap();
    assert_eq!(on(&down, |site| core.tick(site)), []);
    assert!(!core.watches());
}

#[test]
fn with_replace_nodes_that_jobs_have_make_way_for_idle_ones() {
    let mut core = ReservationsCore::default();
    let replace = [ReservationFlag::Replace];
    on(&nodes(3), |site| core.create(site, "root", &counted("a", 2, &replace))).unwrap();
    let busy = || {
        let mut nodes = nodes(3);
        for place in [0, 1] {
            Arc::make_mut(&mut nodes[place]).holds.push(hold(1, 0..2, 10, Some(1_000_500)));
        }
        nodes
    };
    let changed = on(&busy(), |site| core.tick(site));
    assert_eq!(changed[0].saved.as_ref().unwrap().nodes, ["n1", "n2"], "one is idle, so one is replaced");
    assert_eq!(on(&busy(), |site| core.tick(site)), []);
    let named = ReservationChange { set: replace.into(), ..wish("b", &["n0"], 5000, 10) };
    assert!(create(&mut core, &named).unwrap_err().to_string().contains("NodeCnt="));
    let both = counted("b", 1, &[ReservationFlag::Replace, ReservationFlag::ReplaceDown]);
    assert!(create(&mut core, &both).is_err());
}

#[test]
fn idle_ones_are_purged_and_recurring_ones_skip_a_time() {
    use ReservationFlag::{Daily, PurgeComp};
    let mut core = ReservationsCore::default();
    let purged = |name: &str, node: &str, flags: &[ReservationFlag], secs| ReservationChange {
        set: flags.iter().copied().collect(),
        purge_secs: secs,
        ..wish(name, &[node], 0, 2000)
    };
    let made = create(&mut core, &purged("a", "n0", &[PurgeComp], None)).unwrap();
    assert_eq!(made.flag_words(), ["SPEC_NODES", "PURGE_COMP=00:05:00"]);
    create(&mut core, &purged("b", "n1", &[PurgeComp, Daily], Some(60))).unwrap();
    assert_eq!(tick(&mut core, NOW), []);
    assert_eq!(core.next_change(NOW), Some(at(60)));
    let changed = tick(&mut core, at(60));
    assert_eq!((changed[0].name.as_str(), changed[0].saved.as_ref().unwrap().start), ("b", at(86_400)));
    // A job runs in the other: its time begins anew when that is over.
    assert_eq!(seen(&nodes(3), [&["a"], &[]], at(200), |site| core.tick(site)), []);
    assert_eq!(tick(&mut core, at(400)), []);
    assert_eq!(tick(&mut core, at(699)), []);
    assert_eq!(tick(&mut core, at(700)), [Changed { name: "a".into(), saved: None }]);
}

#[test]
fn who_waits_for_one_that_ends_may_be_released() {
    let mut core = ReservationsCore::default();
    create(&mut core, &flagged(wish("a", &["n0"], 0, 100), ReservationFlag::NoHoldJobsAfter)).unwrap();
    let awaited = |core: &mut ReservationsCore, at| {
        seen(&nodes(3), [&[], &["a"]], at, |site| (core.tick(site), core.released(site)))
    };
    assert_eq!(awaited(&mut core, at(99)), (vec![], BTreeSet::new()));
    assert_eq!(awaited(&mut core, at(100)), (vec![], ["a".to_owned()].into()));
    assert_eq!(tick(&mut core, at(101)), [Changed { name: "a".into(), saved: None }]);
}

#[test]
fn one_that_is_over_stays_until_jobs_in_it_know_by_when_they_leave() {
    let mut core = ReservationsCore::default();
    create(&mut core, &wish("a", &["n0"], 0, 100)).unwrap();
    create(&mut core, &flagged(wish("b", &["n1"], 0, 100), ReservationFlag::Flex)).unwrap();
    let jobs: &[&str] = &["a", "b"];
    let mut look = |jobs, at| seen(&nodes(3), [jobs, &[]], at, |site| (core.tick(site).len(), core.dismissed(site)));
    assert_eq!(look(jobs, at(99)), (0, BTreeMap::new()));
    // Jobs of one with FLEX may end after it.
    assert_eq!(look(jobs, at(100)), (1, BTreeMap::from([("a".to_owned(), at(700))])));
    assert_eq!(look(&[], at(101)), (1, BTreeMap::new()));
}

#[test]
fn jobs_leave_a_reservation_that_is_over_when_the_site_says() {
    for (line, by) in [("", Some(100)), ("ResvOverRun=5\n", Some(400)), ("ResvOverRun=UNLIMITED\n", None)] {
        let text = format!("{line}ClusterName=c\nSlurmctldHost=h\nNodeName=n0\nPartitionName=p Nodes=n0\n");
        let over_run = over_run(&config_of(&text));
        let mut core = ReservationsCore::default();
        create(&mut core, &wish("a", &["n0"], 0, 100)).unwrap();
        let dismissed = |site: &Site<'_>| core.dismissed(&Site { over_run, ..*site });
        let told = seen(&nodes(3), [&["a"], &[]], at(100), dismissed);
        assert_eq!(told.get("a").copied(), by.map(at), "{line}");
    }
}

#[test]
fn where_jobs_may_stay_for_ever_they_are_told_nothing() {
    let mut core = ReservationsCore::default();
    create(&mut core, &wish("a", &["n0"], 0, 100)).unwrap();
    let look = |site: &Site<'_>| {
        let site = Site { over_run: None, ..*site };
        (core.dismissed(&site), core.tick(&site).len())
    };
    assert_eq!(seen(&nodes(3), [&["a"], &[]], at(100), look), (BTreeMap::new(), 1));
}

#[test]
fn all_nodes_of_a_partition_are_those_that_it_has_now() {
    let partition = |members: &[u32]| PartitionView {
        generation: 1,
        config: Arc::new(PartitionConfig { name: "debug".into(), ..PartitionConfig::default() }),
        state: PartitionState::Up,
        nodes: members.iter().copied().map(NodeIndex).collect(),
    };
    let nodes = nodes(3);
    let mut core = ReservationsCore::default();
    let act = |core: &mut ReservationsCore, members: &[u32], create: Option<&ReservationChange>| {
        let partitions = [Arc::new(partition(members))];
        on(&nodes, |site| {
            let site = Site { partitions: &partitions, nodes: site.nodes, zone: site.zone, ..*site };
            match create {
                Some(change) => core.create(&site, "root", change).map(|changed| vec![changed]),
                None => Ok(core.tick(&site)),
            }
        })
    };
    let all = ReservationChange {
        nodes: Some(NodesWanted::All),
        partition: Some("debug".into()),
        ..flagged(wish("a", &[], 0, 100), ReservationFlag::PartNodes)
    };
    let made = act(&mut core, &[0, 1], Some(&all)).unwrap();
    assert_eq!(made[0].saved.as_ref().unwrap().nodes, ["n0", "n1"]);
    assert_eq!(act(&mut core, &[0, 1], None), Ok(vec![]));
    let changed = act(&mut core, &[1, 2], None).unwrap();
    assert_eq!(changed[0].saved.as_ref().unwrap().nodes, ["n1", "n2"]);
    let some = flagged(wish("b", &["n0"], 500, 100), ReservationFlag::PartNodes);
    assert!(act(&mut core, &[0], Some(&some)).unwrap_err().to_string().contains("PART_NODES requires"));
}

#[test]
fn nodes_that_are_not_named_come_from_a_partition_that_is_told() {
    let partition = |name: &str, default, members: &[u32]| {
        Arc::new(PartitionView {
            generation: 1,
            config: Arc::new(PartitionConfig { name: name.into(), default, ..PartitionConfig::default() }),
            state: PartitionState::Up,
            nodes: members.iter().copied().map(NodeIndex).collect(),
        })
    };
    let partitions = [partition("debug", true, &[0, 1]), partition("other", false, &[1, 2])];
    let nodes = nodes(3);
    let act = |core: &mut ReservationsCore, change: &ReservationChange| {
        let changed = on(&nodes, |site| {
            let site = Site { partitions: &partitions, nodes: site.nodes, zone: site.zone, ..*site };
            let known = core.list().any(|known| Some(&known.name) == change.name.as_ref());
            if known { core.update(&site, change) } else { core.create(&site, "root", change) }
        });
        changed.map(|changed| changed.saved.map(|made| (made.partition.unwrap_or_default(), made.nodes)).unwrap())
    };
    let told = |partition: &str, nodes: &[&str]| {
        Ok((partition.to_owned(), nodes.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()))
    };
    let mut core = ReservationsCore::default();
    assert_eq!(act(&mut core, &counted("a", 1, &[])), told("debug", &["n0"]));
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let change = |nodes| ReservationChange { name: Some("a".into()), nodes: Some(nodes), ..Default::default() };
    assert_eq!(act(&mut core, &change(NodesWanted::More(1))), told("debug", &["n0", "n1"]));
    assert!(act(&mut core, &change(NodesWanted::More(1))).is_err());
    assert_eq!(act(&mut core, &change(NodesWanted::With(names(&["n2"])))), told("debug", &["n0", "n1", "n2"]));
    assert_eq!(act(&mut core, &wish("b", &["n0"], 5000, 10)), told("", &["n0"]));
    let allowed = ReservationChange { partitions: AccessList::parse("other,debug"), ..wish("c", &["n0"], 6000, 10) };
    assert_eq!(act(&mut core, &allowed), told("other", &["n0"]));
    let allowed = ReservationChange { partitions: AccessList::parse("other"), ..counted("d", 1, &[]) };
    let later = ReservationChange { start: Some(at(7000)), ..allowed };
    assert_eq!(act(&mut core, &later), told("other", &["n1"]));
    // A partition alone stands for all of its nodes.
    let whole = ReservationChange { nodes: None, partition: Some("other".into()), ..wish("e", &[], 9000, 10) };
    assert_eq!(act(&mut core, &whole), told("other", &["n1", "n2"]));
}

#[test]
fn licenses_are_reserved_once() {
    let mut core = ReservationsCore::default();
    let any = |name: &str, licenses: &str, from| ReservationChange {
        nodes: None,
        licenses: Some(licenses.parse().unwrap()),
        ..flagged(wish(name, &[], from, 100), ReservationFlag::AnyNodes)
    };
    create(&mut core, &any("a", "abc:6", 0)).unwrap();
    create(&mut core, &any("b", "abc:4", 50)).unwrap();
    assert!(create(&mut core, &any("c", "abc:1", 60)).unwrap_err().to_string().contains("reserved already"));
    create(&mut core, &any("c", "abc:6", 100)).unwrap();
    assert_eq!(create(&mut core, &any("d", "abc:11", 900)), Err(Refusal::InvalidLicense("abc:11".into())));
    assert!(matches!(create(&mut core, &any("d", "xyz", 900)), Err(Refusal::InvalidLicense(_))));
    let nodes_too = ReservationChange { nodes: Some(NodesWanted::All), ..any("d", "abc", 900) };
    assert!(create(&mut core, &nodes_too).unwrap_err().to_string().contains("ANY_NODES"));
    let nothing = ReservationChange { licenses: None, ..any("d", "abc", 900) };
    assert!(create(&mut core, &nothing).unwrap_err().to_string().contains("Licenses="));
}

#[test]
fn changes_may_add_and_take_away() {
    let mut core = ReservationsCore::default();
    create(&mut core, &counted("a", 2, &[])).unwrap();
    let mut change = |change: ReservationChange| {
        let change = ReservationChange { name: Some("a".into()), ..change };
        on(&nodes(3), |site| core.update(site, &change)).map(|changed| changed.saved.unwrap())
    };
    let with = |nodes| ReservationChange { nodes: Some(nodes), ..ReservationChange::default() };
    let people = |text| AccessList::parse(text);
    let more = change(ReservationChange { users_more: people("bob"), ..ReservationChange::default() }).unwrap();
    assert_eq!(more.users.to_string(), "alice,bob");
    let less = change(ReservationChange { users_less: people("alice"), ..ReservationChange::default() }).unwrap();
    assert_eq!(less.users.to_string(), "bob");
    assert!(change(ReservationChange { users_less: people("eve"), ..ReservationChange::default() }).is_err());
    assert!(change(ReservationChange { users_less: people("bob"), ..ReservationChange::default() }).is_err());
    assert_eq!(change(with(NodesWanted::More(1))).unwrap().nodes, ["n0", "n1", "n2"]);
    let fewer = change(with(NodesWanted::Fewer(2))).unwrap();
    assert_eq!((fewer.nodes.len(), fewer.has(ReservationFlag::SpecNodes)), (1, false));
    assert_eq!(change(with(NodesWanted::Fewer(4))), Err(Refusal::BadNodeCount));
    assert!(matches!(change(with(NodesWanted::Without(vec!["n2".into()]))), Err(Refusal::InvalidNode(_))));
    assert_eq!(change(with(NodesWanted::With(vec!["n2".into()]))).unwrap().nodes, ["n0", "n2"]);
    let longer = change(ReservationChange { duration_delta_secs: Some(-400), ..ReservationChange::default() }).unwrap();
    assert_eq!((longer.start, longer.end), (NOW, at(600)));
    let groups = ReservationChange { groups: Some(vec!["staff".into()]), ..ReservationChange::default() };
    assert!(change(groups.clone()).unwrap_err().to_string().contains("mutually exclusive"));
    assert_eq!(change(ReservationChange { users: people(""), ..groups }).unwrap().groups, ["staff"]);
    assert!(change(ReservationChange { skip: true, ..ReservationChange::default() }).is_err());
}

fn with_cores(change: ReservationChange, counts: &[u32]) -> ReservationChange {
    ReservationChange { cores: Some(CoresWanted::Cores(counts.to_vec())), ..change }
}

/// Cores of its nodes, as text.
fn core_ids(saved: &Reservation) -> Vec<String> {
    assert!(saved.nodes.iter().eq(saved.core_ids.keys()), "{saved:?}");
    saved.core_ids.iter().map(|(node, cores)| format!("{node}:{cores}")).collect()
}

#[test]
fn cores_are_divided_among_nodes() {
    let mut core = ReservationsCore::default();
    let total = create(&mut core, &with_cores(counted("a", 3, &[]), &[7])).unwrap();
    assert_eq!(core_ids(&total), ["n0:0-2", "n1:0-1", "n2:0-1"]);
    assert_eq!((total.cores, total.cpus), (7, 14));
    assert_eq!(delete(&mut core, "a").unwrap().saved, None);
    let each = create(&mut core, &with_cores(wish("b", &["n1", "n2"], 0, 100), &[1, 4])).unwrap();
    assert_eq!(core_ids(&each), ["n1:0", "n2:0-3"]);
    assert!(each.has(ReservationFlag::SpecNodes));
    // As CPUs, two of which are a core; on as few nodes as will do.
    let cpus = ReservationChange { nodes: None, cores: Some(CoresWanted::Cpus(vec![11])), ..wish("c", &[], 0, 100) };
    let cpus = create(&mut core, &cpus).unwrap();
    assert_eq!((core_ids(&cpus), cpus.cores), (vec!["n0:0-3".to_owned(), "n1:1-2".to_owned()], 6));
    let text = |core: &mut ReservationsCore, change| create(core, &change).unwrap_err().to_string();
    let uneven = "Core count for reservation node list is not consistent!";
    assert_eq!(text(&mut core, with_cores(wish("d", &["n0", "n1", "n2"], 0, 10), &[1, 1])), uneven);
    assert_eq!(text(&mut core, with_cores(wish("d", &["n0", "n1"], 0, 10), &[1])), uneven);
    assert!(text(&mut core, with_cores(counted("d", 1, &[]), &[5])).contains("node configuration"));
    assert!(text(&mut core, flagged(wish("d", &["n0"], 300, 1), ReservationFlag::FirstCores)).contains("CoreCnt="));
}

#[test]
fn reservations_share_nodes_and_not_cores() {
    let mut core = ReservationsCore::default();
    let on_n0 = |name, from| wish(name, &["n0"], from, 100);
    assert_eq!(core_ids(&create(&mut core, &with_cores(on_n0("a", 0), &[2])).unwrap()), ["n0:0-1"]);
    assert_eq!(core_ids(&create(&mut core, &with_cores(on_n0("b", 50), &[1])).unwrap()), ["n0:2"]);
    assert_eq!(create(&mut core, &with_cores(on_n0("c", 50), &[2])), Err(Refusal::Busy));
    assert_eq!(create(&mut core, &on_n0("c", 50)), Err(Refusal::Busy), "the whole node");
    let lowest = flagged(with_cores(on_n0("c", 100), &[2]), ReservationFlag::FirstCores);
    assert_eq!(core_ids(&create(&mut core, &lowest).unwrap()), ["n0:0-1"]);
    let shared = flagged(with_cores(on_n0("d", 0), &[3]), ReservationFlag::Overlap);
    assert_eq!(core_ids(&create(&mut core, &shared).unwrap()), ["n0:0-2"]);
    // Moved to where its cores are somebody else's.
    let later = ReservationChange { name: Some("a".into()), start: Some(at(90)), ..ReservationChange::default() };
    assert_eq!(on(&nodes(3), |site| core.update(site, &later)), Err(Refusal::Busy));
    let more = with_cores(ReservationChange { name: Some("b".into()), ..ReservationChange::default() }, &[2]);
    let more = on(&nodes(3), |site| core.update(site, &more)).unwrap().saved.unwrap();
    assert_eq!(core_ids(&more), ["n0:2-3"], "it keeps what it has");
}

#[test]
fn cores_with_jobs_are_busy_and_others_of_the_node_are_not() {
    let mut busy = node(0, 4);
    busy.holds.push(hold(1, 0..3, 10, Some(1_000_500)));
    let nodes = vec![Arc::new(busy)];
    let mut core = ReservationsCore::default();
    let mut ask = |change: &ReservationChange| on(&nodes, |site| core.create(site, "root", change));
    let saved = ask(&with_cores(wish("a", &["n0"], 0, 100), &[2])).unwrap().saved.unwrap();
    assert_eq!(core_ids(&saved), ["n0:2-3"]);
    assert_eq!(ask(&with_cores(wish("b", &["n0"], 0, 100), &[1])), Err(Refusal::Busy));
    let lowest = |from| flagged(with_cores(wish("b", &["n0"], from, 100), &[1]), ReservationFlag::FirstCores);
    assert_eq!(ask(&lowest(400)), Err(Refusal::Busy));
    assert_eq!(core_ids(&ask(&lowest(500)).unwrap().saved.unwrap()), ["n0:0"]);
}

#[test]
fn a_node_that_replaces_another_gives_as_many_cores() {
    let mut core = ReservationsCore::default();
    create(&mut core, &with_cores(counted("a", 2, &[]), &[3, 1])).unwrap();
    let mut there = nodes(3);
    Arc::make_mut(&mut there[0]).base = NodeBase::Down;
    let changed = seen(&there, [&[], &[]], NOW, |site| core.tick(site));
    let [Changed { saved: Some(saved), .. }] = changed.as_slice() else { panic!("{changed:?}") };
    assert_eq!((core_ids(saved), saved.cores), (vec!["n1:0".to_owned(), "n2:0-2".to_owned()], 4));
}

#[test]
fn floating_ones_stay_as_far_from_now_and_end_when_they_are_to() {
    use ReservationFlag::{Daily, TimeFloat};
    let mut core = ReservationsCore::default();
    let saved = create(&mut core, &flagged(wish("a", &["n0"], 3600, 6000), TimeFloat)).unwrap();
    assert_eq!((saved.start, saved.end), (at(3600), at(9600)));
    let times = |r: &Reservation, now: u64| r.times(at(now), 3, &TimeZone::UTC);
    assert_eq!(times(&saved, 5000), [(at(8600), at(14_600))]);
    let end = ReservationChange { duration_secs: None, end: Some(at(8000)), ..wish("b", &["n1"], 3600, 0) };
    let fixed = create(&mut core, &flagged(end, TimeFloat)).unwrap();
    assert_eq!(times(&fixed, 1000), [(at(4600), at(8000))]);
    assert_eq!(times(&fixed, 7000), [(at(8000), at(8000))]);
    assert!(!saved.is_active(at(4000)) && !fixed.is_active(at(4000)));
    assert_eq!(tick(&mut core, at(7999)), []);
    assert_eq!(tick(&mut core, at(20_000)), [Changed { name: "b".into(), saved: None }]);
    // Longer, and from when it is changed on.
    let later = ReservationChange { name: Some("a".into()), duration_secs: Some(60), ..ReservationChange::default() };
    let later = seen(&nodes(3), [&[], &[]], at(20_000), |site| core.update(site, &later)).unwrap().saved.unwrap();
    assert_eq!(times(&later, 20_000), [(at(23_600), at(23_660))]);
    let name = ReservationChange { name: Some("a".into()), ..ReservationChange::default() };
    let without = ReservationChange { clear: [TimeFloat].into(), ..name };
    assert!(on(&nodes(3), |site| core.update(site, &without)).unwrap_err().to_string().contains("TIME_FLOAT"));
    let daily = ReservationChange { set: [TimeFloat, Daily].into(), ..wish("c", &["n2"], 60, 60) };
    assert!(create(&mut core, &daily).unwrap_err().to_string().contains("cannot come again"));
}

#[test]
fn one_that_comes_again_may_have_begun_where_that_is_said() {
    use ReservationFlag::{Daily, ForceStart};
    let mut core = ReservationsCore::default();
    let begun = |flags: &[ReservationFlag]| ReservationChange {
        start: Some(Timestamp::from_secs(NOW.secs() - 3600)),
        set: flags.iter().copied().collect(),
        ..wish("a", &["n0"], 0, 7200)
    };
    assert_eq!(create(&mut core, &begun(&[Daily])), Err(Refusal::InvalidTime));
    assert!(create(&mut core, &begun(&[ForceStart])).unwrap_err().to_string().contains("FORCE_START"));
    let saved = create(&mut core, &begun(&[Daily, ForceStart])).unwrap();
    assert!(saved.is_active(NOW) && !saved.is_active(at(3600)));
}
