//! What this test program does instead, as a process of its own with one thread, where [`ENTRY`] says so.

use garrick_kernel::scratch::ENTRY;

/// Runs before the test harness does, and so before there are threads.
// SAFETY: the C library calls what is listed there with its own set-up done; the environment and standard streams work.
#[unsafe(link_section = ".init_array")]
#[used]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    match std::env::var(ENTRY).as_deref() {
        Ok("launcher") => {
            // After the program's name and `launcher`.
            let words: Vec<_> = std::env::args_os().skip(2).collect();
            let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
            let arguments = crate::launcher::Arguments::parse(&words).expect("as the launcher's starter has it");
            crate::launcher::main(&arguments)
        }
        Ok("ahead") => crate::launcher::ahead_entry(),
        _ => {}
    }
}
