//! Promises about ends.

use std::time::Duration;

use garrick_runtime::{AskError, Placement, System, SystemConfig};

use crate::puppet::*;

#[tokio::test(start_paused = true)]
async fn a_stop_comes_after_the_message_in_hand_and_drops_those_that_wait() {
    stage(async |system, log, mut lines| {
        let a = start(&system, "a", &log);
        a.try_send(act("Stop", |puppet, cx| {
            cx.stop();
            puppet.log.write("still at it");
        }))
        .unwrap();
        assert_eq!(ask(&a, |_, _| ()).await, Err(AskError::Dropped));
        assert_eq!(lines.take(3).await, ["a up", "still at it", "a stopped"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn children_end_before_their_parent_in_reverse_start_order() {
    stage(async |system, log, mut lines| {
        let parent = start(&system, "parent", &log);
        ask(&parent, |puppet, cx| {
            for name in ["first", "second"] {
                let grandchild = Puppet::new(&format!("under-{name}"), &puppet.log);
                let child = Puppet::new(name, &puppet.log).at_start(move |cx| {
                    cx.start_child(grandchild.clone().spec());
                });
                cx.start_child(child.spec());
            }
        })
        .await
        .unwrap();
        lines.until("under-second up").await;
        parent.try_send(act("Stop", |_, cx| cx.stop())).unwrap();
        let expected =
            ["under-second stopped", "second stopped", "under-first stopped", "first stopped", "parent stopped"];
        assert_eq!(lines.take(5).await, expected);
        assert!(system.paths("/parent").is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_parent_learns_of_a_childs_end_once_its_path_is_free() {
    stage(async |system, log, mut lines| {
        let parent = start(&system, "parent", &log);
        let child = ask(&parent, |puppet, cx| cx.start_child(Puppet::new("child", &puppet.log).spec())).await.unwrap();
        child.try_send(act("Stop", |_, cx| cx.stop())).unwrap();
        lines.until("child stopped").await;
        assert_eq!(lines.next().await, "parent: stopped /parent/child");
        assert!(system.find::<Act>(child.path()).is_none());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_life_that_ends_by_a_panic_is_not_told_stopped() {
    stage(async |system, log, mut lines| {
        let a = start(&system, "a", &log);
        a.try_send(panics()).unwrap();
        assert_eq!(lines.take(2).await, ["a up", "a up"]);
        settle(&a).await;
        assert!(lines.rest().is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_obeyed_while_a_restart_is_pending() {
    stage(async |system, log, mut lines| {
        let a = start(&system, "a", &log);
        lines.until("a up").await;
        a.try_send(panics()).unwrap();
        tokio::task::yield_now().await;
        assert!(system.stop(a.path()));
        assert_eq!(ask(&a, |_, _| ()).await, Err(AskError::Dropped));
        assert!(lines.rest().is_empty());
    })
    .await;
}

#[test]
fn a_shutdown_ends_everything_in_reverse_start_order_on_all_threads() {
    let (log, mut lines) = log();
    let config = SystemConfig { arbiters: 2, ..SystemConfig::default() };
    System::run(config, async |system: System| {
        for n in 0..4 {
            let a = system.start("/", Puppet::new(&format!("a{n}"), &log).spec().placement(Placement::Hash(n)));
            settle(&a).await;
        }
        system.shutdown(PATIENCE).await;
        assert!(system.paths("/").is_empty());
        assert!(system.try_start("/", Puppet::new("late", &log).spec()).is_err());
    })
    .unwrap();
    let stopped: Vec<String> = lines.rest().into_iter().filter(|line| line.ends_with("stopped")).collect();
    assert_eq!(stopped, ["a3 stopped", "a2 stopped", "a1 stopped", "a0 stopped"]);
}

#[test]
fn a_shutdown_does_not_wait_beyond_its_deadline() {
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let config = SystemConfig { arbiters: 1, ..SystemConfig::default() };
    System::run(config, async |system: System| {
        let (log, mut lines) = log();
        let stuck = system.start("/", Puppet::new("stuck", &log).spec().placement(Placement::Named("stuck")));
        stuck
            .try_send(act("Block", move |puppet, _| {
                puppet.log.write("blocks its thread");
                assert!(blocked.recv().is_err(), "released by dropping the sender");
            }))
            .unwrap();
        lines.until("blocks its thread").await;
        system.shutdown(Duration::from_millis(1)).await;
    })
    .unwrap();
    drop(release);
}
