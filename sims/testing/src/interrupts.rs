//! Tests that interrupt what they start, even if the tests were started with signals ignored. Shared by the tests of commands.

use std::process::Command;

/// Interrupts reach what is started here. Where the tests run in the background of a shell without job control (`nohup`, many
/// CI systems) they are started with SIGINT and SIGQUIT ignored, and so would be all that they start.
pub fn interruptible(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;
    // SAFETY: signal(2) may be called between fork and exec, and nothing else is.
    unsafe {
        command.pre_exec(|| {
            for number in [libc::SIGINT, libc::SIGQUIT] {
                if libc::signal(number, libc::SIG_DFL) == libc::SIG_ERR {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
}

/// Runs a test of this program again, as a shell starts what it puts in the background.
pub fn passes_in_the_background(test: &str) {
    // `timeout` lets go what it was started to ignore, so it comes first.
    let ignoring = "trap '' INT QUIT; exec \"$0\" --exact \"$1\"";
    let exe = std::env::current_exe().expect("a test runs from a file");
    let mut run = Command::new("timeout");
    run.args(["-k", "5", "300", "sh", "-c", ignoring]).arg(exe).arg(test);
    let run = run.output().expect("timeout and sh can be started");
    let out = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && out.contains("1 passed"), "{out}\n{}", String::from_utf8_lossy(&run.stderr));
}
