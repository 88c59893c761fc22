//! Links the commands without shared libraries, if the C library is available as an archive. A step is an `srun`, and finding,
//! mapping and binding libraries is half of the cost of starting one (measured with `srun --version`: 740 µs and 123 page faults
//! with them, 350 µs and 56 page faults without).
//!
//! The switch that the compiler has for this (`crt-static`) cannot be given to one program alone: with it in force, the
//! compiler's own plugins, which are shared libraries, are not built. So it is the linker that is told, and the names of
//! libraries that the compiler passes to it have archives behind them. Addresses are fixed too (no `-pie`), which saves
//! their relocation at each start; the commands hold no privileges that guessing an address could win.
//!
//! Where there are no archives, with another C library or when building for another machine, or with
//! `GARRICK_LINK=shared` in the environment, the commands are linked as usual.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

/// Libraries that the compiler names for programs on this system.
const NAMED: [&str; 6] = ["c", "m", "rt", "pthread", "util", "dl"];

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=GARRICK_LINK");
    if !wanted() {
        return Ok(());
    }
    let Some(out) = env::var_os("OUT_DIR") else { return Ok(()) };
    let folder = Path::new(&out).join("archives");
    fs::create_dir_all(&folder)?;
    let (Some(unwinder), Some(compiler)) = (found("libgcc_eh.a"), found("libgcc.a")) else { return Ok(()) };
    let mut archives = Vec::new();
    for name in NAMED {
        let Some(archive) = found(&format!("lib{name}.a")) else { return Ok(()) };
        archives.push((name, archive));
    }
    // Before glibc 2.34 threads were a library of their own, with weak references that archives do not satisfy.
    if found("libpthread.so").is_some() {
        return Ok(());
    }
    group(&folder.join("libgcc_s.so"), &[&unwinder, &compiler])?;
    for (name, archive) in &archives {
        group(&folder.join(format!("lib{name}.so")), &[archive, &unwinder, &compiler])?;
    }
    for argument in ["-static", "-no-pie", &format!("-L{}", folder.display())] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    Ok(())
}

fn wanted() -> bool {
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|v| v == value);
    is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && env::var_os("TARGET") == env::var_os("HOST")
        && !is("GARRICK_LINK", "shared")
        && !env::var("CARGO_CFG_TARGET_FEATURE").is_ok_and(|features| features.contains("crt-static"))
}

/// Where the linker's driver has a file.
fn found(file: &str) -> Option<PathBuf> {
    let driver = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let output = Command::new(driver).arg(format!("-print-file-name={file}")).output().ok()?;
    // A file that is not there is answered with its bare name.
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.is_absolute().then_some(path)
}

/// A linker script in the place of a shared library.
fn group(path: &Path, archives: &[&Path]) -> io::Result<()> {
    let names: Vec<String> = archives.iter().map(|archive| format!("\"{}\"", archive.display())).collect();
    fs::write(path, format!("GROUP({})\n", names.join(" ")))
}
