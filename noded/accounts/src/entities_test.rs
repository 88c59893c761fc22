#![allow(clippy::unwrap_used)]
use super::*;
use crate::testing::with_folder;
use garrick_accounts::messages::Inventory;

fn inventory(cpus: u64) -> Inventory {
    let tres = [("cpu", cpus), ("gres/gpu", 2)].map(|(name, count)| (name.to_owned(), count)).into();
    Inventory { control: Some(("ctl".to_owned(), 6817)), nodes: "n[1-3]".to_owned(), tres }
}

#[test]
fn entities_are_there_again_when_the_database_is_opened_anew() {
    with_folder(async |path| {
        let store = Store::open(&path).await.unwrap();
        let mut watch = store.watch_entities();
        assert!(watch.borrow_and_update().accounts.contains_key("root"));
        store.register("c", &inventory(8)).await.unwrap();
        let told = Arc::clone(&watch.borrow_and_update());
        assert_eq!(told.clusters["c"].tres["cpu"], 8);
        assert!(told.account_association("c", "root").is_some());
        // What is the same is not written again.
        store.register("c", &inventory(8)).await.unwrap();
        assert!(!watch.has_changed().unwrap());
        store.register("c", &inventory(4)).await.unwrap();
        let last = store.entities();
        assert_eq!((last.clusters["c"].tres["cpu"], last.version), (4, told.version + 1));
        drop(store);
        assert_eq!(Store::open(&path).await.unwrap().entities(), last);
    });
}

#[test]
fn an_entity_that_is_gone_is_deleted_from_the_database() {
    with_folder(async |path| {
        let store = Store::open(&path).await.unwrap();
        store.register("c", &inventory(8)).await.unwrap();
        let old = store.entities();
        let new = Entities { clusters: BTreeMap::new(), version: old.version + 1, ..Entities::clone(&old) };
        write(&mut store.writer.lock().await.connection, &old, &new, &[]).await.unwrap();
        drop(store);
        assert_eq!(*Store::open(&path).await.unwrap().entities(), new);
    });
}

#[test]
fn a_database_of_a_later_version_with_other_entities_is_refused() {
    with_folder(async |path| {
        let store = Store::open(&path).await.unwrap();
        sqlx::query("INSERT INTO entities (kind, name, form, body) VALUES (99, 'x', 1, x'c0')")
            .execute(&mut store.writer.lock().await.connection)
            .await
            .unwrap();
        drop(store);
        assert!(matches!(Store::open(&path).await, Err(StoreError::Row(_))));
    });
}
