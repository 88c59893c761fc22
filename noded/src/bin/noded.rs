//! `noded`, also installed as `slurmctld` and `slurmd`.

use garrick_noded::{daemon::options, serve};
use std::{io::Write, path::Path, process::ExitCode};

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let own = args.next().unwrap_or_default();
    let program = Path::new(&own).file_name().map_or_else(|| "noded".into(), |n| n.to_string_lossy().into_owned());
    match options::parse(&program, args) {
        Ok(options) => serve::main(&program, options),
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "{program}: {e}\nTry \"{program} -h\" for more information");
            ExitCode::FAILURE
        }
    }
}
