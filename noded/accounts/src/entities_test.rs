#![allow(clippy::unwrap_used)]
use super::*;
use crate::{
    store::{Batch, Followed},
    testing::{LOG, ended, job, on_each},
};
use garrick_accounts::{
    change::{Action, AddAccounts, AddUsers, edit::AssocFilter},
    messages::Inventory,
};
use garrick_events::{
    progress::Position,
    records::job_event::JobEvent,
    testing::{record, run},
};
use garrick_model::{config::slurmdbd::DbdConfig, spec::JobSpec, view::Allocation};

fn inventory(cpus: u64) -> Inventory {
    let tres = [("cpu", cpus), ("gres/gpu", 2)].map(|(name, count)| (name.to_owned(), count)).into();
    Inventory { control: Some(("ctl".to_owned(), 6817)), nodes: "n[1-3]".to_owned(), tres }
}

#[test]
fn entities_are_there_again_when_the_database_is_opened_anew() {
    on_each(async |place| {
        let store = place.open().await;
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
        assert_eq!(place.open().await.entities(), last);
    });
}

#[test]
fn an_entity_that_is_gone_is_deleted_from_the_database() {
    on_each(async |place| {
        let store = place.open().await;
        store.register("c", &inventory(8)).await.unwrap();
        let old = store.entities();
        let new = Entities { clusters: BTreeMap::new(), version: old.version + 1, ..Entities::clone(&old) };
        store.write(async |writer| write(writer.connection()?, &old, &new, &[]).await).await.unwrap();
        drop(store);
        assert_eq!(*place.open().await.entities(), new);
    });
}

#[test]
fn a_database_of_a_later_version_with_other_entities_is_refused() {
    on_each(async |place| {
        let store = place.open().await;
        let row =
            Statement::of("INSERT INTO entities (kind, name, form, body) VALUES (99, 'x', 1, ?)").with(vec![0xc0]);
        store.write(async |writer| Ok(writer.connection()?.link().execute(row).await?)).await.unwrap();
        drop(store);
        let refused = loop {
            // The last one who had it may not be gone yet.
            match Store::open(&place.storage).await {
                Ok(store) => match store.ready().await {
                    Err(StoreError::Away(_)) => tokio::task::yield_now().await,
                    other => break other,
                },
                Err(error) => break Err(error),
            }
        };
        assert!(matches!(refused, Err(StoreError::Row(_))), "{refused:?}");
    });
}

#[test]
fn a_service_goes_by_the_rules_of_its_settings() {
    crate::testing::in_file(async |place| {
        let settings = DbdConfig {
            storage: place.storage.clone(),
            default_qos: Some("high".to_owned()),
            no_coordinators: true,
            ..DbdConfig::at(&place.folder.join("slurmdbd.conf"))
        };
        let store = Store::of(&settings).await.unwrap();
        let root = Actor { name: "root".to_owned(), believed: true };
        let high = Action::AddQos { names: vec!["high".to_owned()], edit: change::edit::QosEdit::default() };
        store.change(&high.into(), &root, None, false).await.unwrap().unwrap();
        store.register("c", &inventory(8)).await.unwrap();
        let entities = store.entities();
        let qos = &entities.account_association("c", "root").unwrap().qos;
        assert_eq!(qos.own, Some(["high".to_owned()].into()));
        assert!(store.rules.no_coordinators && !store.rules.resources_absolute);
    });
}

#[test]
fn what_jobs_use_is_not_removed() {
    on_each(async |place| {
        let store = place.open().await;
        store.register("c", &inventory(8)).await.unwrap();
        let root = Actor { name: "root".to_owned(), believed: true };
        let change = async |action: Action| store.change(&action.into(), &root, None, false).await.unwrap();
        let names = |name: &str| vec![name.to_owned()];
        for name in ["physics", "chem"] {
            change(Action::AddAccounts(AddAccounts { names: names(name), ..Default::default() })).await.unwrap();
        }
        change(Action::AddQos { names: names("long"), edit: Default::default() }).await.unwrap();
        let alice = || AddUsers { names: names("alice"), accounts: names("physics"), ..Default::default() };
        change(Action::AddUsers(alice())).await.unwrap();
        let whole = || Action::DeleteUsers(AssocFilter { users: names("alice"), ..Default::default() });
        let account = |name: &str| AssocFilter { accounts: names(name), ..Default::default() };
        let narrow = || Action::DeleteUsers(AssocFilter { users: names("alice"), ..account("physics") });

        let (of, _) = store.follow("c", LOG).await.unwrap();
        store.begin(&of, Position(0)).await.unwrap();
        let keep = async |of: &Followed, at: u64, batch: Batch| {
            store.keep(of, Position(at), Position(at + 1), batch).await.unwrap();
        };
        let spec = JobSpec { account: Some("physics".into()), qos: Some("long".into()), ..JobSpec::default() };
        let waits = JobEvent::Submitted(Box::new(record(9, spec)));
        keep(&of, 0, vec![job(9, waits)].into()).await;
        let active = |changed: Changed| -> Vec<(u32, String, String)> {
            match changed {
                Err(ChangeRefusal::JobsActive(jobs)) => {
                    jobs.into_iter().map(|one| (one.job, one.account, one.qos)).collect()
                }
                other => panic!("{other:?}"),
            }
        };
        let told: Vec<(u32, String, String)> = vec![(9, "physics".into(), "long".into())];
        assert_eq!(active(change(whole()).await), told);
        assert_eq!(active(change(Action::DeleteQos(names("long"))).await), told);
        assert_eq!(active(change(Action::DeleteAccounts(account("physics"))).await), told);
        // Others may go, and a single association of a user with jobs that wait, as in Slurm 26.05.3.
        change(Action::DeleteAccounts(account("chem"))).await.unwrap();
        change(narrow()).await.unwrap();
        change(Action::AddUsers(alice())).await.unwrap();
        let allocation = Allocation { partition: "debug".into(), ..Allocation::default() };
        let runs = JobEvent::Allocated(Box::new(run(allocation, Timestamp(3))));
        keep(&of, 1, vec![job(9, runs)].into()).await;
        assert_eq!(active(change(narrow()).await), told);
        keep(&of, 2, vec![ended(9, 5)].into()).await;
        change(whole()).await.unwrap();
        change(Action::DeleteQos(names("long"))).await.unwrap();
        change(Action::DeleteAccounts(account("physics"))).await.unwrap();
    });
}
