//! Promises about paths and the registry.

use garrick_runtime::{ActorPath, Message, PathError, StartError};

use crate::puppet::*;

struct Other;

impl Message for Other {
    fn name(&self) -> &'static str {
        "Other"
    }
}

#[tokio::test(start_paused = true)]
async fn an_actor_is_found_by_its_path_and_message_type_from_start_to_end_also_between_lives() {
    stage(async |system, log, mut lines| {
        let a = system.start("/job/5609", Puppet::new("step/3", &log).spec());
        let path = ActorPath::new("/job/5609/step/3").unwrap();
        assert_eq!(a.path(), &path);
        settle(&system.find::<Act>(&path).unwrap()).await;
        assert!(system.find::<Other>(&path).is_none());
        assert!(system.find::<Act>(&path.child("more")).is_none());
        assert_eq!(system.paths("/job"), std::slice::from_ref(&path));

        a.try_send(panics()).unwrap();
        lines.until("step/3 up").await;
        a.try_send(say("waits for the next life")).unwrap();
        assert!(system.find::<Act>(&path).is_some());
        lines.until("waits for the next life").await;

        a.try_send(act("Stop", |_, cx| cx.stop())).unwrap();
        lines.until("step/3 stopped").await;
        assert!(system.find::<Act>(&path).is_none());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_path_belongs_to_one_actor_until_that_has_ended() {
    stage(async |system, log, mut lines| {
        let first = start(&system, "a", &log);
        let taken = StartError::PathTaken(first.path().clone());
        assert_eq!(system.try_start("/", Puppet::new("a", &log).spec()).unwrap_err(), taken);
        assert!(start(&system, "a", &log).is_closed());

        let parent = start(&system, "parent", &log);
        let (child, second) = ask(&parent, |puppet, cx| {
            let child = cx.start_child(Puppet::new("child", &puppet.log).spec());
            (child, cx.start_child(Puppet::new("child", &puppet.log).spec()))
        })
        .await
        .unwrap();
        assert!(second.is_closed() && !child.is_closed());
        let gave_up = "parent: gave up /parent/child: actor /parent/child is already running";
        lines.until(gave_up).await;

        let path = child.path().clone();
        ask(&parent, move |_, cx| cx.stop_child(&path)).await.unwrap();
        lines.until("parent: stopped /parent/child").await;
        let again = ask(&parent, |puppet, cx| cx.try_start_child(Puppet::new("child", &puppet.log).spec()).unwrap());
        settle(&again.await.unwrap()).await;
        settle(&first).await;
    })
    .await;
}

#[test]
fn a_path_travels_as_text_and_only_a_path_is_read_back() {
    let path = ActorPath::new("/job/5609/step/3").unwrap();
    let text = serde_json::to_string(&path).unwrap();
    assert_eq!(text, "\"/job/5609/step/3\"");
    assert_eq!(serde_json::from_str::<ActorPath>(&text).unwrap(), path);
    assert!(serde_json::from_str::<ActorPath>("\"job\"").is_err());
    assert_eq!(ActorPath::new("job"), Err(PathError::NotFromRoot("job".to_owned())));
}
