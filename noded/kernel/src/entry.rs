//! What this test program does instead, as a process of its own with one thread, where [`ENTRY`] says so.

use crate::scratch::ENTRY;

/// Runs before the test harness does, and so before there are threads.
// SAFETY: the C library calls what is listed there with its own set-up done; the environment and standard streams work.
#[unsafe(link_section = ".init_array")]
#[used]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    match std::env::var(ENTRY).as_deref() {
        Ok("background") => crate::daemonise::background_entry(),
        Ok("children") => crate::children::tests::entry(),
        _ => {}
    }
}
