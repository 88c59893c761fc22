//! Simulated clusters from seeds: rules are checked after every event. Worlds run on all cores; apart from times, the output does
//! not depend on the number of cores.
//!
//! ```text
//! garrick-sim --short                       more than a million events, always the same ones
//! garrick-sim --long                        hundreds of seeds
//! garrick-sim --seeds FROM TO               these; sizes may follow
//! garrick-sim --seed N                      one, as a violation tells it; sizes and --story may follow
//! garrick-sim --fresh COUNT --from SEED     worlds of mixed sizes; SEED may be a commit's id
//! garrick-sim --hunt SECONDS                fresh worlds of mixed sizes until the time is up; --from SEED may follow
//!
//! [--jobs J] [--nodes N] [--events E]       sizes, in place of the usual ones
//! --story job/N,node/N                      all that touched these in the world of --seed
//! --counts                                  what worlds held, and which kinds of jobs each fault met
//! ```

mod hunt;
mod options;
mod show;
mod tries;

use options::{Options, What};
use std::{error::Error, io::Write, io::stdout, panic, process::ExitCode, sync::Arc, sync::atomic::AtomicBool};

// A quarter of the time went into the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("garrick-sim: {error}\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("garrick-sim: {error}");
            ExitCode::from(2)
        }
    }
}

/// How many worlds broke a rule.
fn run(options: &Options) -> Result<u32, Box<dyn Error>> {
    // An assertion of a core is told as a broken rule, with the world that it belongs to.
    panic::set_hook(Box::new(|_| {}));
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second one ends it at once.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut out = stdout().lock();
    match &options.what {
        What::Help => {
            writeln!(out, "{}", options::USAGE)?;
            Ok(0)
        }
        What::These(setups) => tries::try_all(&mut out, setups, options.counts, &stop),
        What::Story(setup, about) => show::story(&mut out, *setup, about),
        What::Hunt { secs, from } => hunt::hunt(&mut out, *secs, *from, options.counts, &stop),
    }
}
