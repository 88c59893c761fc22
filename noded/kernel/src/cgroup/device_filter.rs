//! Denies devices to a version 2 cgroup. There is no file for that; instead the kernel runs a program of type
//! `BPF_PROG_TYPE_CGROUP_DEVICE` for the cgroup at each open of a device file (the kernel's `admin-guide/cgroup-v2.rst`, "Device
//! controller"; bpf(2)). It denies the devices that it was made for and allows all others; the programs of parent cgroups are
//! asked too.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

/// Block or character device, as `struct bpf_cgroup_dev_ctx` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// `b`
    Block = 1,
    /// `c`
    Character = 2,
}

/// A device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Which kind.
    pub kind: DeviceKind,
    /// Major number, of 12 bits.
    pub major: u32,
    /// Minor number, of 20 bits.
    pub minor: u32,
}

/// `struct bpf_insn` (linux/bpf.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u8,
    /// Destination in the lower half, source in the upper one.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn instruction(code: u8, destination: u8, source: u8, offset: i16, immediate: u32) -> Instruction {
    Instruction { code, registers: destination | source << 4, offset, immediate: immediate.cast_signed() }
}

/// `r(to) = *(u32 *)(r1 + at)`: the context is in register 1.
const fn load(to: u8, at: i16) -> Instruction {
    instruction(0x61, to, 1, at, 0)
}

/// If the register is another value, some instructions are passed over.
const fn unless(register: u8, value: u32, pass: i16) -> Instruction {
    instruction(0x55, register, 0, pass, value)
}

/// `return value`
const fn answer(value: u32) -> [Instruction; 2] {
    [instruction(0xb7, 0, 0, 0, value), instruction(0x95, 0, 0, 0, 0)]
}

/// The program. Its context is three words: access in the upper half and kind in the lower one, major, minor.
fn program(denied: &[Device]) -> Vec<Instruction> {
    let mut program = vec![load(2, 0), instruction(0x54, 2, 0, 0, 0xffff), load(3, 4), load(4, 8)];
    for device in denied {
        program.extend([unless(2, device.kind as u32, 4), unless(3, device.major, 3), unless(4, device.minor, 2)]);
        program.extend(answer(0));
    }
    program.extend(answer(1));
    program
}

/// What `BPF_PROG_LOAD` reads of `union bpf_attr`.
#[repr(C)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

/// What `BPF_PROG_ATTACH` reads of it.
#[repr(C)]
struct Attach {
    target: i32,
    program: i32,
    kind: u32,
    flags: u32,
}

/// What `BPF_PROG_QUERY` reads and writes of it.
#[repr(C)]
struct Query {
    target: i32,
    kind: u32,
    query_flags: u32,
    attach_flags: u32,
    programs: u64,
    count: u32,
    padding: u32,
}

const PROG_LOAD: i32 = 5;
const PROG_ATTACH: i32 = 8;
const PROG_QUERY: i32 = 16;
const PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const CGROUP_DEVICE: u32 = 6;
const ALLOW_MULTI: u32 = 2;

fn bpf<T>(command: i32, attributes: &mut T) -> io::Result<i32> {
    let size = u32::try_from(size_of::<T>()).unwrap_or(u32::MAX);
    // SAFETY: the attributes are those that this command reads, of that size; what they point to lives in the callers.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size) };
    i32::try_from(result).ok().filter(|result| *result >= 0).ok_or_else(io::Error::last_os_error)
}

fn loaded(denied: &[Device]) -> io::Result<OwnedFd> {
    let (program, license) = (program(denied), c"Apache-2.0");
    let mut attributes = Load {
        kind: PROG_TYPE_CGROUP_DEVICE,
        count: u32::try_from(program.len()).unwrap_or(u32::MAX),
        instructions: program.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
    };
    let fd = bpf(PROG_LOAD, &mut attributes)?;
    // SAFETY: the kernel has just made it for this caller.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// An error: this kernel has no such programs, or does not take them from this process.
pub fn check() -> io::Result<()> {
    loaded(&[]).map(drop)
}

/// Keeps the processes of a cgroup and of those below it from these devices, for as long as the cgroup is there. One that has such a
/// program already (of a process that was there before this one) stays as it is.
pub fn deny(cgroup: BorrowedFd<'_>, denied: &[Device]) -> io::Result<()> {
    let target = cgroup.as_raw_fd();
    let mut query =
        Query { target, kind: CGROUP_DEVICE, query_flags: 0, attach_flags: 0, programs: 0, count: 0, padding: 0 };
    bpf(PROG_QUERY, &mut query)?;
    if query.count > 0 {
        return Ok(());
    }
    let program = loaded(denied)?;
    let mut attach = Attach { target, program: program.as_raw_fd(), kind: CGROUP_DEVICE, flags: ALLOW_MULTI };
    bpf(PROG_ATTACH, &mut attach).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the program answers for an access to a device.
    fn run(program: &[Instruction], context: [u32; 3]) -> u32 {
        let (mut registers, mut at) = ([0_u32; 5], 0);
        loop {
            let Instruction { code, registers: pair, offset, immediate } = program[at];
            let (register, value) = (usize::from(pair & 15), immediate.cast_unsigned());
            at += 1;
            match code {
                0x61 => registers[register] = context[usize::try_from(offset / 4).unwrap_or(usize::MAX)],
                0x54 => registers[register] &= value,
                0x55 if registers[register] != value => at += usize::try_from(offset).unwrap_or(usize::MAX),
                0x55 => {}
                0xb7 => registers[register] = value,
                0x95 => return registers[0],
                other => panic!("{other:#x}"),
            }
        }
    }

    #[test]
    fn the_program_says_no_to_its_devices_only() {
        let device = |kind, major, minor| Device { kind, major, minor };
        let denied = [device(DeviceKind::Character, 195, 0), device(DeviceKind::Block, 8, 16)];
        let program = program(&denied);
        const READ_WRITE: u32 = 6 << 16;
        assert_eq!(run(&program, [READ_WRITE | 2, 195, 0]), 0);
        assert_eq!(run(&program, [READ_WRITE | 1, 8, 16]), 0);
        for other in
            [[READ_WRITE | 1, 195, 0], [READ_WRITE | 2, 195, 1], [READ_WRITE | 2, 8, 16], [READ_WRITE | 2, 1, 3]]
        {
            assert_eq!(run(&program, other), 1, "{other:?}");
        }
    }
}
