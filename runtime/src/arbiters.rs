//! The thread on which an actor lives.
//!
//! The main thread, a pool, and dedicated threads by name, each an actix arbiter with a runtime of its own. Work is passed to a
//! thread as a closure and stays there.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use actix_rt::{Arbiter, ArbiterHandle};
use tokio::sync::mpsc;

use crate::spec::Placement;

type Work = Box<dyn FnOnce() + Send>;

pub(crate) struct Arbiters {
    /// To the thread on which the system was made.
    main: mpsc::UnboundedSender<Work>,
    pool: Vec<ArbiterHandle>,
    named: Arc<Mutex<Named>>,
    /// Everything on the main thread.
    single: bool,
}

#[derive(Default)]
struct Named {
    handles: HashMap<&'static str, ArbiterHandle>,
    /// All arbiters made here, pool and named, until they are joined.
    owned: Vec<Arbiter>,
    /// Set at the end: no more arbiters.
    stopped: bool,
}

fn lock(named: &Mutex<Named>) -> MutexGuard<'_, Named> {
    named.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Arbiters {
    /// Must be called within a `LocalSet`; with `pool` above 0 within an actix system. Starts `pool` threads.
    pub(crate) fn new(pool: usize) -> Self {
        let (main, mut work) = mpsc::unbounded_channel::<Work>();
        tokio::task::spawn_local(async move {
            while let Some(work) = work.recv().await {
                work();
            }
        });
        let owned: Vec<Arbiter> = (0..pool).map(|_| Arbiter::new()).collect();
        Self {
            main,
            pool: owned.iter().map(Arbiter::handle).collect(),
            named: Arc::new(Mutex::new(Named { owned, ..Named::default() })),
            single: pool == 0,
        }
    }

    /// Runs `work` on the thread meant by `placement`; the parent's is the main one here.
    pub(crate) fn run(&self, placement: Placement, work: impl FnOnce() + Send + 'static) {
        let delivered = match placement {
            Placement::Hash(number) if !self.single => {
                let len = u64::try_from(self.pool.len()).unwrap_or(1).max(1);
                let index = usize::try_from(number % len).unwrap_or(0);
                match self.pool.get(index) {
                    Some(arbiter) => arbiter.spawn_fn(work),
                    None => false,
                }
            }
            Placement::Named(name) if !self.single => {
                // Arbiters can only be made where the actix system is known, which the main thread is for certain.
                let named = Arc::clone(&self.named);
                self.main.send(Box::new(move || run_on_named(&named, name, work))).is_ok()
            }
            Placement::Parent | Placement::Hash(_) | Placement::Named(_) => self.main.send(Box::new(work)).is_ok(),
        };
        if !delivered {
            tracing::warn!(?placement, "arbiter has ended; what was to start there is dropped");
        }
    }

    /// Tells all threads to end: what still runs on them is dropped.
    pub(crate) fn stop(&self) {
        let mut named = lock(&self.named);
        named.stopped = true;
        for arbiter in &named.owned {
            arbiter.stop();
        }
    }

    /// Waits for the threads to end. Blocks.
    pub(crate) fn join(&self) {
        let owned = std::mem::take(&mut lock(&self.named).owned);
        for arbiter in owned {
            if arbiter.join().is_err() {
                tracing::error!("an arbiter's thread panicked");
            }
        }
    }
}

fn run_on_named(named: &Mutex<Named>, name: &'static str, work: impl FnOnce() + Send + 'static) {
    let mut named = lock(named);
    if named.stopped {
        return;
    }
    let handle = match named.handles.get(name) {
        Some(handle) => handle.clone(),
        None => {
            let arbiter = Arbiter::new();
            let handle = arbiter.handle();
            named.handles.insert(name, handle.clone());
            named.owned.push(arbiter);
            handle
        }
    };
    drop(named);
    handle.spawn_fn(work);
}
