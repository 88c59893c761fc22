#![allow(clippy::unwrap_used)]
use super::*;
use crate::{
    store::Batch,
    testing::{LOG, on_each},
};
use garrick_events::{
    event::ControllerEvent,
    progress::Position,
    records::node::{DownCause, SavedService},
};
use garrick_model::view::NodeReason;

fn at(secs: i64) -> Timestamp {
    Timestamp::from_secs(secs)
}

fn node(name: &str, out: bool, since: i64) -> ControllerEvent {
    let reason = out.then(|| NodeReason { text: "fans".to_owned(), uid: 0, user: "root".to_owned(), at: at(since) });
    let down = out.then_some(DownCause::Admin);
    let service = Some(SavedService { out, since: at(since) });
    ControllerEvent::Node {
        node: name.to_owned(),
        saved: Box::new(SavedNode { down, reason, service, ..SavedNode::default() }),
    }
}

fn reservation(secs: Option<(i64, i64)>, when: i64) -> ControllerEvent {
    let saved = secs.map(|(start, end)| {
        let nodes = vec!["n1".to_owned()];
        Box::new(Reservation {
            name: "class".to_owned(),
            start: at(start),
            end: at(end),
            nodes,
            cpus: 4,
            ..Reservation::default()
        })
    });
    ControllerEvent::Reservation { reservation: "class".to_owned(), saved, at: Some(at(when)) }
}

fn amounts(cpus: u64) -> Amounts {
    [("cpu".to_owned(), cpus)].into()
}

fn shown(rows: &[EventRow]) -> Vec<(Option<&str>, i64, Option<i64>)> {
    rows.iter().map(|row| (row.node.as_deref(), row.start.secs(), row.end.map(Timestamp::secs))).collect()
}

#[test]
fn outages_begin_and_end_with_their_batch_and_once() {
    on_each(async |place| {
        let store = place.open().await;
        let (of, _) = store.follow("c", LOG).await.unwrap();
        store.begin(&of, Position(0)).await.unwrap();
        let nodes = || [("n1".to_owned(), amounts(4))].into();
        let events = vec![node("n1", true, 10), node("n2", true, 20), node("n1", false, 30)];
        store.keep(&of, Position(0), Position(3), Batch { events, nodes: nodes(), ..Batch::default() }).await.unwrap();
        // A controller that starts anew says it again.
        store.keep(&of, Position(3), Position(3), vec![node("n2", true, 20)]).await.unwrap();
        let all = EventQuestion::default();
        let (rows, next) = store.events(&all, None).await.unwrap();
        assert_eq!(shown(&rows), [(Some("n1"), 10, Some(30)), (Some("n2"), 20, None)]);
        assert_eq!((next, &rows[0].tres, rows[1].tres.len()), (None, &amounts(4), 0));
        let open = EventQuestion { open: true, ..EventQuestion::default() };
        assert_eq!(store.events(&open, None).await.unwrap().0.len(), 1);
        let late = EventQuestion { start: Some(at(31)), ..EventQuestion::default() };
        assert_eq!(shown(&store.events(&late, None).await.unwrap().0), [(Some("n2"), 20, None)]);
        let told = async |question: EventQuestion| {
            let (rows, _) = store.events(&question, None).await.unwrap();
            rows.into_iter().map(|row| row.node.unwrap_or_default()).collect::<Vec<_>>()
        };
        let of = |clusters: &[&str], nodes: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
            EventQuestion { clusters: owned(clusters), nodes: owned(nodes), ..EventQuestion::default() }
        };
        assert_eq!(told(of(&["c", "d"], &["n2", "n7"])).await, ["n2"]);
        assert!(told(of(&["d"], &["n2"])).await.is_empty() && told(of(&["c"], &["n"])).await.is_empty());
        let many: Vec<String> = (0..500).map(|n| format!("n{n}")).collect();
        assert_eq!(told(EventQuestion { nodes: many, ..EventQuestion::default() }).await, ["n1", "n2"]);
        let early = EventQuestion { end: Some(at(20)), ..EventQuestion::default() };
        assert_eq!(store.events(&early, None).await.unwrap().0.len(), 1);
    });
}

#[test]
fn what_a_cluster_has_is_an_event_when_it_changes() {
    on_each(async |place| {
        let store = place.open().await;
        let (of, _) = store.follow("c", LOG).await.unwrap();
        store.begin(&of, Position(0)).await.unwrap();
        store.keep(&of, Position(0), Position(1), vec![node("n2", true, 5)]).await.unwrap();
        let inventory =
            |nodes: &str, cpus| Inventory { nodes: nodes.to_owned(), tres: amounts(cpus), ..Inventory::default() };
        for (cpus, nodes, when) in [(8, "n[1-2]", 10), (8, "n[1-2]", 20), (4, "n1", 30)] {
            store.note_inventory(&of, &inventory(nodes, cpus), at(when)).await.unwrap();
        }
        let of_clusters = EventQuestion { of_clusters: true, ..EventQuestion::default() };
        assert_eq!(shown(&store.events(&of_clusters, None).await.unwrap().0), [(None, 10, Some(30)), (None, 30, None)]);
        let of_nodes = EventQuestion { of_nodes: true, ..EventQuestion::default() };
        assert_eq!(shown(&store.events(&of_nodes, None).await.unwrap().0), [(Some("n2"), 5, Some(30))]);
        let (rows, _) = store.events(&EventQuestion::default(), None).await.unwrap();
        // The node went with the change.
        assert_eq!(shown(&rows), [(Some("n2"), 5, Some(30)), (None, 10, Some(30)), (None, 30, None)]);
        assert_eq!((&rows[1].tres, rows[2].nodes.as_str()), (&amounts(8), "n1"));
    });
}

#[test]
fn a_controller_that_is_away_is_an_event_until_it_comes() {
    on_each(async |place| {
        let store = place.open().await;
        let (of, _) = store.follow("c", LOG).await.unwrap();
        let inventory = Inventory { nodes: "n1".to_owned(), tres: amounts(4), ..Inventory::default() };
        store.note_back(&of, at(5)).await.unwrap();
        store.note_inventory(&of, &inventory, at(10)).await.unwrap();
        for when in [20, 25] {
            store.note_gone(&of, at(when)).await.unwrap();
        }
        store.note_back(&of, at(30)).await.unwrap();
        store.note_inventory(&of, &inventory, at(30)).await.unwrap();
        let (rows, _) = store.events(&EventQuestion::default(), None).await.unwrap();
        assert_eq!(shown(&rows), [(None, 10, None), (None, 20, Some(30))]);
        assert!(rows[1].is_disconnect() && rows[1].tres == amounts(4), "{:?}", rows[1]);
    });
}

#[test]
fn reservations_are_kept_as_they_were() {
    on_each(async |place| {
        let store = place.open().await;
        let (of, _) = store.follow("c", LOG).await.unwrap();
        store.begin(&of, Position(0)).await.unwrap();
        let events = vec![
            reservation(Some((10, 100)), 0),
            reservation(Some((20, 100)), 5),
            reservation(None, 50),
            reservation(Some((200, 300)), 150),
        ];
        store.keep(&of, Position(0), Position(4), events).await.unwrap();
        let (rows, next) = store.reservations(&ReservationQuestion::default(), None).await.unwrap();
        let told: Vec<_> = rows.iter().map(|row| (row.id, row.start.secs(), row.end.secs())).collect();
        assert_eq!((told.as_slice(), next), ([(1, 20, 50), (2, 200, 300)].as_slice(), None));
        let late = ReservationQuestion { start: Some(at(51)), ..ReservationQuestion::default() };
        assert_eq!(store.reservations(&late, None).await.unwrap().0.len(), 1);
    });
}

/// Their deletion was given up with other events: `MaxDBDMsgs`.
#[test]
fn reservations_that_are_not_there_after_a_gap_have_ended() {
    on_each(async |place| {
        let store = place.open().await;
        let (of, _) = store.follow("c", LOG).await.unwrap();
        store.begin(&of, Position(0)).await.unwrap();
        let now = Timestamp::now().secs();
        let named = |name: &str, (start, end)| match reservation(Some((start, end)), 0) {
            ControllerEvent::Reservation { saved, at, .. } => {
                let saved = saved.map(|saved| Box::new(Reservation { name: name.to_owned(), ..*saved }));
                ControllerEvent::Reservation { reservation: name.to_owned(), saved, at }
            }
            other => other,
        };
        let (far, holds) = (now + 900_000, (now - 900, now + 900_000));
        let windows = [("stays", holds), ("goes", holds), ("comes", (far, far + 1)), ("over", (10, 20))];
        let events = windows.map(|(name, window)| named(name, window)).to_vec();
        store.keep(&of, Position(0), Position(1), events).await.unwrap();
        let reservations = Some(vec!["stays".to_owned()]);
        let after_gap = Batch { reservations, ..Batch::default() };
        store.keep(&of, Position(1), Position(9), after_gap).await.unwrap();
        let (rows, _) = store.reservations(&ReservationQuestion::default(), None).await.unwrap();
        let told: BTreeMap<&str, _> = rows.iter().map(|row| (row.name.as_str(), (row.end.secs(), row.gone))).collect();
        assert_eq!((told["stays"], told["over"], told.len()), ((far, false), (20, false), 3));
        assert!(told["goes"].1 && told["goes"].0 >= now && told["goes"].0 < far, "{told:?}");
    });
}

#[test]
fn long_answers_come_in_parts() {
    on_each(async |place| {
        let store = place.open().await;
        let (of, _) = store.follow("c", LOG).await.unwrap();
        store.begin(&of, Position(0)).await.unwrap();
        let events: Vec<ControllerEvent> = (0..1200).map(|n| node(&format!("n{n}"), true, n)).collect();
        store.keep(&of, Position(0), Position(1200), events).await.unwrap();
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let (rows, next) = store.events(&EventQuestion::default(), after).await.unwrap();
            assert!(rows.len() <= 500);
            all.extend(rows.into_iter().filter_map(|row| row.node));
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(all, (0..1200).map(|n| format!("n{n}")).collect::<Vec<_>>());
    });
}
