//! Promises about when and where messages are handled.

use std::thread::ThreadId;

use garrick_runtime::{Placement, System, SystemConfig};

use crate::puppet::*;

#[tokio::test(start_paused = true)]
async fn messages_wait_until_the_actor_has_started() {
    stage(async |system, log, mut lines| {
        let starting = log.clone();
        let a = Puppet::new("a", &log).at_start(move |cx| {
            cx.address().control(say("sent while starting")).unwrap();
            starting.write("started");
        });
        let a = system.start("/", a.spec());
        a.control(say("sent before")).unwrap();
        assert_eq!(lines.take(4).await, ["a up", "started", "sent before", "sent while starting"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_actor_does_not_starve_its_neighbours() {
    stage(async |system, log, mut lines| {
        // Sends itself the next message for ever.
        fn again() -> Act {
            act("Again", |_, cx| cx.address().try_send(again()).unwrap())
        }
        let busy = start(&system, "busy", &log);
        let calm = start(&system, "calm", &log);
        busy.try_send(again()).unwrap();
        calm.try_send(say("had its turn")).unwrap();
        lines.until("had its turn").await;
        settle(&calm).await;
        settle(&busy).await;
    })
    .await;
}

async fn thread_of(address: &garrick_runtime::Address<Act>) -> ThreadId {
    ask(address, |_, _| std::thread::current().id()).await.unwrap()
}

#[test]
fn an_actor_lives_on_the_thread_that_its_placement_names() {
    let config = SystemConfig { arbiters: 2, ..SystemConfig::default() };
    System::run(config, async |system: System| {
        let (log, _lines) = log();
        let place = |name: &str, placement| system.start("/", Puppet::new(name, &log).spec().placement(placement));
        let top = place("top", Placement::Parent);
        let [even, odd, same] = [2, 3, 4].map(|n| place(&format!("pool/{n}"), Placement::Hash(n)));
        let [journal, journal2] = [1, 2].map(|n| place(&format!("named/{n}"), Placement::Named("journal")));
        let child = ask(&odd, |puppet, cx| cx.start_child(Puppet::new("child", &puppet.log).spec())).await.unwrap();

        assert_eq!(thread_of(&top).await, std::thread::current().id());
        assert_eq!(thread_of(&even).await, thread_of(&same).await);
        assert_ne!(thread_of(&even).await, thread_of(&odd).await);
        assert_eq!(thread_of(&odd).await, thread_of(&child).await);
        assert_eq!(thread_of(&journal).await, thread_of(&journal2).await);
        for other in [&top, &even, &odd] {
            assert_ne!(thread_of(&journal).await, thread_of(other).await);
        }
        system.shutdown(PATIENCE).await;
    })
    .unwrap();
}
