//! Values that belong to one thread, in closures whose type must be `Send`.

/// A value that stays on the thread that made it, in a closure that must be `Send` for its type's sake.
pub struct OnThread<T> {
    value: T,
    thread: std::thread::ThreadId,
}

// SAFETY: `get` checks that the value is only ever touched by the thread that made it; `drop` aborts elsewhere.
unsafe impl<T> Send for OnThread<T> {}

impl<T> OnThread<T> {
    /// Keeps a value on this thread.
    pub fn new(value: T) -> Self {
        Self { value, thread: std::thread::current().id() }
    }

    /// The value.
    ///
    /// # Panics
    /// On another thread.
    pub fn get(&self) -> &T {
        assert_eq!(self.thread, std::thread::current().id(), "a value was taken to another thread");
        &self.value
    }
}

impl<T> Drop for OnThread<T> {
    fn drop(&mut self) {
        if self.thread != std::thread::current().id() {
            std::process::abort();
        }
    }
}
