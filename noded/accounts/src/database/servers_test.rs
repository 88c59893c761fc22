//! Against PostgreSQL and MariaDB: servers that are killed, away, shared or unwilling.
#![allow(clippy::unwrap_used)]

use super::{Statement, connect::Watch, dialect::Dialect};
use crate::{
    pages::{Cursor, Question},
    store::{Store, StoreError},
    testing::{LOG, Place, ended, report, run, storage, submitted},
};
use garrick_accounts::{
    change::{Actor, Change},
    filter::JobFilter,
    messages::{Inventory, JobWithSteps},
};
use garrick_database_servers::{CERTIFIED, PASSWORD, Program, Server, USER};
use garrick_events::{event::ControllerEvent, progress::Position};
use garrick_model::{
    config::storage::{Password, ServerAddress, Storage},
    ids::StepKey,
    state::StepState,
    time::Timestamp,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

const BOTH: [Program; 2] = [Program::Postgres, Program::MariaDb];

/// Runs it with a server of its own of each kind, which may be killed.
fn with_own_servers(test: impl AsyncFn(&Place, &Arc<Server>)) {
    for program in BOTH {
        let Some(server) = Server::start(program).map(Arc::new) else { continue };
        let place = Place::on(Arc::clone(&server), program);
        run(test(&place, &server));
    }
}

/// Runs it with the shared server of each kind.
fn with_servers(test: impl AsyncFn(&Place, &Server)) {
    for program in BOTH {
        let Some(place) = Place::shared(program) else { continue };
        run(test(&place, place.server.as_ref().unwrap()));
    }
}

async fn all(store: &Store) -> Result<Vec<JobWithSteps>, StoreError> {
    let filter = JobFilter { duplicates: true, ..JobFilter::default() };
    let (mut jobs, mut cursor, mut after) = (Vec::new(), Cursor::default(), None);
    loop {
        let question = Question { filter: &filter, steps: true, after: after.as_ref(), only: None };
        let page = store.page(question, &mut cursor).await?;
        jobs.extend(page.jobs);
        after = page.next;
        if after.is_none() {
            return Ok(jobs);
        }
    }
}

/// What happens to the job of a batch.
fn batch(number: u64) -> Vec<ControllerEvent> {
    let job = u32::try_from(number + 1).unwrap();
    let steps = report(job, [StepKey::BATCH, StepKey::number(0)], StepState::Completed);
    vec![submitted(job), steps, ended(job, 5)]
}

/// A controller: it sends batches, and begins a new conversation after each failure.
async fn feed(store: &Store, batches: u64, stored: &AtomicU64) {
    loop {
        let session = async {
            let (of, at) = store.follow("c", LOG).await?;
            let mut at = match at {
                Some((at, _)) => at,
                None => {
                    store.begin(&of, Position(0)).await?;
                    Position(0)
                }
            };
            while at.0 < batches {
                store.keep(&of, at, at.next(), batch(at.0)).await?;
                at = at.next();
                stored.store(at.0, Ordering::Relaxed);
            }
            Ok::<(), StoreError>(())
        };
        match session.await {
            Ok(()) => return,
            Err(StoreError::Away(_)) => tokio::task::yield_now().await,
            // A commit that was not answered may have been done.
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_server_that_is_killed_while_it_is_written_to_loses_and_doubles_nothing() {
    const BATCHES: u64 = 400;
    const KILLS: u64 = 4;
    with_own_servers(async |place, server| {
        let store = place.open().await;
        let stored = Arc::new(AtomicU64::new(0));
        let killer = thread::spawn({
            let (server, stored) = (Arc::clone(server), Arc::clone(&stored));
            move || {
                for kill in 1..=KILLS {
                    while stored.load(Ordering::Relaxed) < kill * BATCHES / (KILLS + 1) {
                        thread::yield_now();
                    }
                    server.kill();
                    server.run();
                }
            }
        });
        feed(&store, BATCHES, &stored).await;
        killer.join().unwrap();
        store.ready().await.unwrap();
        let jobs = all(&store).await.unwrap();
        let told: Vec<_> = jobs.iter().map(|job| (job.row.job.0, job.row.end, job.steps.len())).collect();
        let wanted: Vec<_> = (1..=u32::try_from(BATCHES).unwrap()).map(|job| (job, Some(Timestamp(5)), 2)).collect();
        assert_eq!(told, wanted);
    });
}

#[test]
fn a_server_that_is_away_is_said_to_be_and_used_again_when_it_is_back() {
    with_own_servers(async |place, server| {
        let store = place.open().await;
        store.register("c", &Inventory::default()).await.unwrap();
        let mut told = store.watch_entities();
        told.mark_unchanged();
        let known = store.entities();
        server.kill();
        let port = server.port.to_string();
        let root = Actor { name: "root".to_owned(), believed: true };
        let is_clear = |error: StoreError| {
            let said = error.to_string();
            assert!(matches!(error, StoreError::Away(_)) && said.contains(&port), "{said}");
        };
        while store.ready().await.is_ok() {
            tokio::task::yield_now().await;
        }
        is_clear(store.follow("c", LOG).await.unwrap_err());
        is_clear(all(&store).await.unwrap_err());
        is_clear(store.transactions(None, None).await.unwrap_err());
        is_clear(store.change(&Change::default(), &root, None, false).await.unwrap_err());
        // A service may be started meanwhile.
        let other = Store::open(&place.storage).await.unwrap();
        is_clear(other.ready().await.unwrap_err());
        server.run();
        while store.ready().await.is_err() {
            tokio::task::yield_now().await;
        }
        store.follow("c", LOG).await.unwrap();
        assert_eq!(all(&store).await.unwrap(), []);
        assert_eq!(store.entities(), known);
        assert!(!told.has_changed().unwrap(), "nothing else was said of accounts");
    });
}

/// Its host hangs, say: nothing is closed, and nothing is answered.
#[test]
fn a_server_that_falls_silent_is_not_waited_for() {
    with_own_servers(async |place, server| {
        let short = Duration::from_millis(100);
        let store = place.open().await;
        store.follow("c", LOG).await.unwrap();
        let store = store.watched(Watch { every: short, patience: short });
        server.freeze(true);
        let said = store.follow("c", LOG).await.unwrap_err();
        assert!(matches!(said, StoreError::Away(_)), "{said}");
        server.freeze(false);
        while store.follow("c", LOG).await.is_err() {
            tokio::task::yield_now().await;
        }
    });
}

/// Passes on what comes to a server, but for connections of before it was muted: nothing is closed there, and nothing arrives.
struct Between {
    port: u16,
    muted: watch::Sender<u32>,
}

impl Between {
    async fn before(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, muted) = (listener.local_addr().unwrap().port(), watch::Sender::new(0));
        let told = muted.clone();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut told = told.subscribe();
                let made = *told.borrow_and_update();
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => return,
                        _ = told.wait_for(|now| *now > made) => {}
                    }
                    // Until it is muted again.
                    let _ = told.wait_for(|now| *now > made + 1).await;
                });
            }
        });
        Self { port, muted }
    }

    fn mute(&self) {
        self.muted.send_modify(|times| *times += 1);
    }
}

/// The network between forgot the connection, or the server was started anew and does not know it: it answers others.
#[test]
fn a_connection_of_which_the_server_knows_nothing_is_not_waited_for() {
    with_servers(async |place, server| {
        let between = Between::before(server.port).await;
        let lines = format!(
            "StorageType={}\nStorageHost=127.0.0.1\nStoragePort={}\nStorageUser={USER}\nStoragePass={PASSWORD}\nStorageLoc={}\n",
            place.storage.kind.text(),
            between.port,
            place.storage.database()
        );
        let store = Store::open(&storage(&lines)).await.unwrap();
        store.follow("c", LOG).await.unwrap();
        let watch = Watch { every: Duration::from_millis(50), patience: Duration::from_secs(10) };
        let store = store.watched(watch);
        let asked = store.read(async |reader| {
            // It is muted while the question is on its way.
            between.mute();
            Ok(reader.link().row(Statement::of("SELECT COUNT(*) FROM jobs")).await?)
        });
        assert!(matches!(asked.await, Err(StoreError::Away(_))));
        let said = store.follow("c", LOG).await.unwrap_err();
        assert!(matches!(said, StoreError::Away(_)), "{said}");
        // The server hears of the end of those connections, and with them of the lock.
        between.mute();
        while store.follow("c", LOG).await.is_err() {
            tokio::task::yield_now().await;
        }
        assert_eq!(all(&store).await.unwrap(), []);
    });
}

#[test]
fn a_server_that_works_on_an_answer_is_waited_for() {
    with_servers(async |place, _| {
        let store = place.open().await;
        let watch = Watch { every: Duration::from_millis(10), patience: Duration::from_secs(10) };
        let store = store.watched(watch);
        let long = |dialect| match dialect {
            Dialect::Postgres => "SELECT 1::BIGINT FROM pg_sleep(2)",
            _ => "SELECT CAST(1 + SLEEP(2) AS SIGNED)",
        };
        let read = store.read(async |reader| {
            let mut link = reader.link();
            Ok(link.row(Statement::of(long(link.dialect()))).await?.unwrap().number(0)?)
        });
        assert_eq!(read.await.unwrap(), 1);
        let write = store.write(async |writer| {
            let mut link = writer.connection()?.link();
            Ok(link.row(Statement::of(long(link.dialect()))).await?.unwrap().number(0)?)
        });
        assert_eq!(write.await.unwrap(), 1);
    });
}

#[test]
fn of_two_services_with_one_database_one_waits() {
    with_servers(async |place, _| {
        let first = place.open().await;
        let second = Store::open(&place.storage).await.unwrap();
        let waits = second.ready().await.unwrap_err().to_string();
        assert!(waits.contains("another slurmdbd works with this database"), "{waits}");
        assert!(matches!(second.follow("c", LOG).await, Err(StoreError::Away(_))));
        first.register("c", &Inventory::default()).await.unwrap();
        let known = first.entities();
        drop(first);
        while second.ready().await.is_err() {
            tokio::task::yield_now().await;
        }
        assert_eq!(second.entities(), known, "it knows what the first one did");
        second.follow("c", LOG).await.unwrap();
    });
}

#[test]
fn the_backup_is_used_where_the_first_host_does_not_answer() {
    with_servers(async |place, server| {
        let socket = ServerAddress::Socket(server.socket());
        let away = ServerAddress::Socket(server.socket().with_file_name("nobody"));
        let storage = Storage { host: away, backup: Some(socket), ..place.storage.clone() };
        let store = Store::open(&storage).await.unwrap();
        store.ready().await.unwrap();
        store.follow("c", LOG).await.unwrap();
        assert_eq!(all(&store).await.unwrap(), [], "questions go there too");
    });
}

async fn refusal(storage: &Storage) -> String {
    match Store::open(storage).await {
        Err(error @ StoreError::Refused { .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(store) => panic!("{:?}", store.ready().await),
    }
}

#[test]
fn a_wrong_password_user_or_database_is_said_at_the_start() {
    with_servers(async |place, _| {
        let of = &place.storage;
        let name = of.database().to_owned();
        let wrong = Storage { password: Some(Password::new("wrong")), ..of.clone() };
        assert!(refusal(&wrong).await.contains(USER));
        let wrong = Storage { user: Some("nosuch".to_owned()), ..of.clone() };
        assert!(refusal(&wrong).await.contains("nosuch"));
        let wrong = Storage { location: Some(format!("{name}_no")), ..of.clone() };
        assert!(refusal(&wrong).await.contains(&format!("{name}_no")));
    });
}

/// Is the connection that writes encrypted?
async fn is_encrypted(store: &Store) -> bool {
    store
        .write(async |writer| {
            let mut link = writer.connection()?.link();
            let asked = match link.dialect() {
                Dialect::Postgres => "SELECT 'ssl', version FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
                _ => "SHOW STATUS LIKE 'Ssl_version'",
            };
            let row = link.row(Statement::of(asked)).await?.expect(asked);
            Ok(row.text(1)?.starts_with("TLS"))
        })
        .await
        .unwrap()
}

#[test]
fn certificates_of_servers_are_checked_and_own_ones_shown() {
    with_servers(async |place, server| {
        let with = |host: &str, user: &str, parameters: &str| {
            let of = &place.storage;
            storage(&format!(
                "StorageType={}\nStorageHost={host}\nStoragePort={}\nStorageUser={user}\nStoragePass={PASSWORD}\n\
                 StorageLoc={}\nStorageParameters={parameters}\n",
                of.kind.text(),
                of.port(),
                of.database()
            ))
        };
        let file = |name: &str| server.file(name).display().to_string();
        let open = async |storage: &Storage| {
            let store = Store::open(storage).await?;
            store.ready().await.map(|()| store)
        };
        let right = with("localhost", USER, &format!("SSL_CA={}", file("ca.pem")));
        let store = open(&right).await.unwrap();
        assert!(is_encrypted(&store).await);
        drop(store);
        let wrong = with("localhost", USER, &format!("SSL_CA={}", file("other-ca.pem")));
        assert!(matches!(open(&wrong).await, Err(StoreError::Away(why)) if why.contains("certificate")));
        let missing = with("localhost", USER, "SSL_CA=/nosuch/ca.pem");
        assert!(matches!(open(&missing).await, Err(StoreError::Certificates { .. })));
        // A folder of them.
        let folder = place.folder.join("authorities");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::copy(server.file("other-ca.pem"), folder.join("a.pem")).unwrap();
        std::fs::copy(server.file("ca.pem"), folder.join("b.pem")).unwrap();
        let of_folder = format!("SSL_CAPATH={}", folder.display());
        let store = await_open(&with("localhost", USER, &of_folder)).await;
        assert!(is_encrypted(&store).await);
        drop(store);
        // Somebody who has to show a certificate.
        assert!(matches!(open(&with("127.0.0.1", CERTIFIED, &of_folder)).await, Err(StoreError::Refused { .. })));
        let own = format!("{of_folder},SSL_CERT={},SSL_KEY={}", file("client.pem"), file("client.key"));
        let store = await_open(&with("127.0.0.1", CERTIFIED, &own)).await;
        store.follow("c", LOG).await.unwrap();
    });
}

/// Opens it when the last one who had it is gone.
async fn await_open(storage: &Storage) -> Store {
    let store = Store::open(storage).await.unwrap();
    while let Err(error) = store.ready().await {
        assert!(error.to_string().contains("another slurmdbd"), "{error}");
        tokio::task::yield_now().await;
    }
    store
}

#[test]
fn tables_that_were_half_made_are_made_whole() {
    let Some(place) = Place::shared(Program::MariaDb) else { return };
    run(async {
        drop(place.open().await);
        let (server, name) = (place.server.as_ref().unwrap(), place.storage.database());
        server.sql(name, "UPDATE _sqlx_migrations SET success = FALSE; DROP TABLE works");
        let store = await_open(&place.storage).await;
        assert_eq!(all(&store).await.unwrap(), []);
        assert_eq!(server.sql(name, "SELECT COUNT(*) FROM works"), "0");
    });
}

#[test]
fn a_database_with_another_encoding_is_refused() {
    let Some(place) = Place::shared(Program::Postgres) else { return };
    run(async {
        let (server, name) = (place.server.as_ref().unwrap(), format!("{}_latin", place.storage.database()));
        let create = format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C' OWNER {USER}");
        server.sql("postgres", &create);
        let storage = Storage { location: Some(name), ..place.storage.clone() };
        assert!(matches!(Store::open(&storage).await, Err(StoreError::Encoding(_))));
    });
}
