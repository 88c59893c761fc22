//! Promises about boards.

use std::{
    cmp::Ordering,
    sync::{Arc, Mutex, mpsc},
};

use garrick_runtime::{Board, BoardMap};

#[test]
fn a_board_shows_the_newest_snapshot_and_its_generation() {
    let board = Board::new("before");
    assert_eq!((board.read().generation, board.read().value), (0, "before"));
    let kept = board.read();
    assert_eq!(board.publish("after"), 1);
    assert_eq!((board.clone().read().generation, board.read().value), (1, "after"));
    assert_eq!((kept.generation, kept.value), (0, "before"), "what a reader holds never changes");
}

/// A value whose drop waits, which holds up the publisher that replaces it.
struct HoldsUp(mpsc::Sender<()>, mpsc::Receiver<()>);

impl Drop for HoldsUp {
    fn drop(&mut self) {
        self.0.send(()).unwrap();
        self.1.recv().unwrap();
    }
}

#[test]
fn readers_of_a_board_do_not_wait_for_its_publisher() {
    let (in_publish, publishing) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let board = Board::new(Some(Mutex::new(HoldsUp(in_publish, released))));
    let publisher = std::thread::spawn({
        let board = board.clone();
        move || board.publish(None)
    });
    publishing.recv().unwrap();
    assert!(board.read().value.is_none(), "read in the middle of a publication");
    release.send(()).unwrap();
    assert_eq!(publisher.join().unwrap(), 1);
}

#[tokio::test]
async fn a_waiter_for_change_gets_the_newest_and_passes_over_what_came_between() {
    let board = Board::new(0);
    assert_eq!(*board.changed(board.publish(1) - 1).await.as_ref(), board.read().as_ref().clone());
    let (changed, ()) = tokio::join!(board.changed(1), async {
        tokio::task::yield_now().await;
        board.publish(2);
        board.publish(3);
    });
    assert_eq!((changed.generation, changed.value), (3, 3));
}

#[test]
fn a_board_map_lists_the_newest_of_each_key_sorted_by_key() {
    let map: BoardMap<u32, String> = BoardMap::new();
    for key in [30, 1, 200, 7] {
        map.publish(key, Arc::new(format!("first {key}")));
    }
    map.publish(7, Arc::new("second 7".to_owned()));
    let generation = map.generation();
    assert_eq!(generation, 5);
    assert!(map.remove(&30));
    assert!(!map.remove(&30));
    assert_eq!(map.generation(), generation + 1);
    let list: Vec<String> = map.list().iter().map(|value| value.to_string()).collect();
    assert_eq!(list, ["first 1", "second 7", "first 200"]);
    assert_eq!(map.entries().iter().map(|(key, _)| *key).collect::<Vec<_>>(), [1, 7, 200]);
    assert_eq!((map.len(), map.get(&7).unwrap().as_str(), map.get(&30)), (3, "second 7", None));
}

/// A key that a publisher is compared with and waits there, in the middle of adding its own.
struct Key(u32, Option<Arc<Mutex<Option<Gate>>>>);

struct Gate {
    reached: mpsc::Sender<()>,
    open: mpsc::Receiver<()>,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    /// Whoever compares with a key that has a gate waits there, once.
    fn cmp(&self, other: &Self) -> Ordering {
        if let Some(gate) = self.1.iter().chain(&other.1).find_map(|gate| gate.lock().unwrap().take()) {
            gate.reached.send(()).unwrap();
            gate.open.recv().unwrap();
        }
        self.0.cmp(&other.0)
    }
}

impl Clone for Key {
    fn clone(&self) -> Self {
        Self(self.0, self.1.clone())
    }
}

#[test]
fn readers_of_a_board_map_do_not_wait_for_its_publishers() {
    let (in_publish, publishing) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let map: BoardMap<Key, u32> = BoardMap::new();
    let held = Gate { reached: in_publish, open: released };
    let gate = Arc::new(Mutex::new(None));
    map.publish(Key(1, Some(Arc::clone(&gate))), Arc::new(1));
    *gate.lock().unwrap() = Some(held);
    let publisher = std::thread::spawn({
        let map = map.clone();
        move || map.publish(Key(2, None), Arc::new(2))
    });
    publishing.recv().unwrap();
    assert_eq!(map.list(), [Arc::new(1)], "listed in the middle of a publication");
    assert_eq!(map.get(&Key(2, None)), None);
    release.send(()).unwrap();
    publisher.join().unwrap();
    assert_eq!(map.list().len(), 2);
}

#[tokio::test]
async fn a_waiter_for_change_of_a_board_map_misses_none() {
    let map: BoardMap<u32, u32> = BoardMap::new();
    let seen = map.generation();
    map.publish(1, Arc::new(1));
    assert_eq!(map.changed(seen).await, 1, "a change after the look is seen, though nobody waited yet");
    let (generation, ()) = tokio::join!(map.changed(1), async {
        tokio::task::yield_now().await;
        map.remove(&1);
    });
    assert_eq!(generation, 2);
}
