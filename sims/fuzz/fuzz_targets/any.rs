//! The entry point for libFuzzer: `FUZZ_TARGET` names the target.

#![no_main]

use garrick_fuzz::{target, target::Target};
use std::sync::LazyLock;

static CHOSEN: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    target(&name).unwrap_or_else(|| panic!("FUZZ_TARGET={name}: no such target"))
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| CHOSEN.run(input));
