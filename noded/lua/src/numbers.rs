//! Numbers that stand for something, as Slurm's Lua interface has them.

/// Nothing is set, of 16 bits.
pub const NO_VAL16: u32 = 0xfffe;
/// Nothing is set.
pub const NO_VAL: u32 = 0xffff_fffe;
/// Without limit.
pub const INFINITE: u32 = 0xffff_ffff;
/// Nothing is set, of 64 bits.
pub const NO_VAL64: f64 = 18_446_744_073_709_551_614.0;
/// In `pn_min_memory`: of each CPU.
pub const MEM_PER_CPU: f64 = 9_223_372_036_854_775_808.0;
/// `nice` is this and the value.
pub const NICE_OFFSET: i64 = 0x8000_0000;
