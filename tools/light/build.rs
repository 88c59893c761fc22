//! Links `srun` without start files and without a C library, on the machines for which it has an entry point of its own. The
//! libraries that the compiler names for every program are empty archives here.

use std::{env, fs, io, path::Path};

/// Libraries that the compiler names for programs on this system.
const NAMED: [&str; 8] = ["c", "m", "rt", "pthread", "util", "dl", "gcc_s", "gcc"];

/// The standard library's own start would keep all of it, which nobody calls.
const WITHOUT: &str = "SECTIONS { /DISCARD/ : { *(.init_array .init_array.*) } } INSERT AFTER .text;\n";

/// What of the standard library is left has nothing below it, and is not called.
const UNRESOLVED: &str = "-Wl,--unresolved-symbols=ignore-all";

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|v| v == value);
    let gnu = is("CARGO_CFG_TARGET_ENV", "gnu");
    if !is("CARGO_CFG_TARGET_OS", "linux") || !is("CARGO_CFG_TARGET_ARCH", "x86_64") || !gnu {
        return Ok(());
    }
    let Some(out) = env::var_os("OUT_DIR") else { return Ok(()) };
    let folder = Path::new(&out).join("archives");
    fs::create_dir_all(&folder)?;
    for name in NAMED {
        fs::write(folder.join(format!("lib{name}.a")), b"!<arch>\n")?;
    }
    let script = folder.join("without.ld");
    fs::write(&script, WITHOUT)?;
    let script = format!("-Wl,-T,{}", script.display());
    for argument in ["-nostartfiles", "-static", "-no-pie", &format!("-L{}", folder.display()), &script, UNRESOLVED] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    Ok(())
}
