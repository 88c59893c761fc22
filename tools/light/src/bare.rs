//! The whole program, from the first instruction to the exit.

use crate::kernel::{self, Text, Texts, Written, piece};
use garrick_frame::light::{DONE, HELLO, LIMITS, MOST_TEXT, REQUEST_HEAD, REQUEST_TAIL, SAY, TAKE_OVER, WORDS, word};

// The stack as the kernel leaves it (System V ABI, AMD64, "Initial Stack"): number of arguments, arguments, environment.
core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "xor %ebp, %ebp",
    "mov %rsp, %rdi",
    "and $-16, %rsp",
    "call {begin}",
    begin = sym begin,
    options(att_syntax)
);

/// Room for a frame. Those for a light `srun` are short.
const FRAME: usize = 16 << 10;
/// Room for a path.
const PATH: usize = 4096;
/// Words that are looked for in `PATH`, at most: an option's value may be one.
const MOST_LOOKED_FOR: usize = 8;
/// Signals that a waiting command hears of, as bits.
const SIGNALS: u64 = bit(libc::SIGINT)
    | bit(libc::SIGQUIT)
    | bit(libc::SIGHUP)
    | bit(libc::SIGTERM)
    | bit(libc::SIGUSR1)
    | bit(libc::SIGUSR2)
    | bit(libc::SIGCONT)
    | bit(libc::SIGALRM)
    | bit(libc::SIGTSTP);

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// What this process was given.
#[derive(Clone, Copy)]
struct Given {
    args: Texts,
    environment: Texts,
}

/// A step that was asked for.
struct Asked {
    socket: usize,
    signals: usize,
    request: [u64; 2],
}

/// How it went on.
enum Next {
    Done,
    Whole,
    TakeOver { told: bool, welcomed: bool },
}

extern "C" fn begin(stack: *const usize) -> ! {
    // SAFETY: the kernel put the number there.
    let count = unsafe { stack.read() };
    let args = stack.wrapping_add(1).cast();
    let environment = stack.wrapping_add(count + 2).cast();
    let given = Given { args: Texts(args), environment: Texts(environment) };
    let Some((asked, mask)) = given.ask() else { given.become_whole(None) };
    match asked.wait() {
        Next::Done => kernel::exit(0),
        Next::Whole => {
            kernel::set_mask(mask);
            given.become_whole(None)
        }
        Next::TakeOver { told, welcomed } => given.become_whole(Some((asked, told, welcomed))),
    }
}

impl Given {
    /// Asks for the step. `None`: nothing was asked. The mask is that of before.
    fn ask(self) -> Option<(Asked, u64)> {
        let door = self.environment.variable(b"GARRICK_STEPD_DOOR=").filter(|door| door.byte(0) == b'/')?;
        let whole = self.environment.variable(b"GARRICK_SRUN=").and_then(|how| how.behind(b"whole\0"));
        let plain = (0..3).all(kernel::is_open_and_no_terminal);
        if whole.is_some() || !plain {
            return None;
        }
        let mut folder = Written::<PATH>::new();
        let folder_len = kernel::current_folder(&mut folder).ok().filter(|_| folder.byte(0) == b'/')?;
        // The kernel lays texts one behind the other, arguments first.
        let first = self.args.get(0)?.start();
        let border = self.environment.get(0)?.start();
        let last = self.environment.get(self.environment.count() - 1)?;
        let end = last.start().wrapping_add(last.len() + 1);
        let args_len = (border as usize).checked_sub(first as usize)?;
        let environment_len = (end as usize).checked_sub(border as usize)?;
        if folder_len + args_len + environment_len > MOST_TEXT {
            return None;
        }
        let request = kernel::random().ok()?;
        let mut words = core::mem::MaybeUninit::<[u64; WORDS]>::uninit();
        let to = words.as_mut_ptr().cast::<u64>();
        let set = |at: usize, value: u64| {
            if at < WORDS {
                // SAFETY: within the array.
                unsafe { to.wrapping_add(at).write_volatile(value.to_le()) };
            }
        };
        set(word::VERSION, garrick_frame::light::VERSION);
        set(word::REQUEST, request[0]);
        set(word::REQUEST + 1, request[1]);
        set(word::TERMINALS, 0);
        set(word::UMASK, kernel::umask() as u64);
        set(word::NICE, kernel::nice().cast_unsigned());
        set(word::SESSION, kernel::session() as u64);
        set(word::PID, kernel::process() as u64);
        set(word::DIRECTORY, folder_len as u64);
        set(word::ARGUMENTS, args_len as u64);
        set(word::ENVIRONMENT, environment_len as u64);
        set(word::FOUND, self.found() as u64);
        let mut resource = 0;
        while resource < LIMITS {
            set(word::LIMITS + resource, kernel::soft_limit(resource));
            resource += 1;
        }
        let body = WORDS * 8 + folder_len + args_len + environment_len;
        let frame = REQUEST_HEAD.len() + 1 + REQUEST_TAIL.len() + 4 + body;
        let (body_len, frame_len) = ((body as u32).to_be_bytes(), (frame as u32).to_be_bytes());

        let socket = kernel::connect(door).ok()?;
        let mask = kernel::block(SIGNALS).ok()?;
        let signals = kernel::signal_file(SIGNALS).ok();
        let sent = signals.is_some()
            && kernel::send(
                socket,
                &mut [
                    piece(HELLO.as_ptr(), HELLO.len()),
                    piece(frame_len.as_ptr(), 4),
                    piece(REQUEST_HEAD.as_ptr(), REQUEST_HEAD.len()),
                    piece(b"\x03".as_ptr(), 1),
                    piece(REQUEST_TAIL.as_ptr(), REQUEST_TAIL.len()),
                    piece(body_len.as_ptr(), 4),
                    piece(to.cast_const().cast(), WORDS * 8),
                    piece(folder.start(), folder_len),
                    piece(first, args_len),
                    piece(border, environment_len),
                ],
            )
            .is_ok();
        match signals.filter(|_| sent) {
            Some(signals) => Some((Asked { socket, signals, request }, mask)),
            None => {
                kernel::set_mask(mask);
                None
            }
        }
    }

    /// Which argument is the first word that is found in `PATH`; 0: none. The step manager, which is root, does not look into
    /// users' folders, and knows which word is the program.
    fn found(self) -> usize {
        let Some(path) = self.environment.variable(b"PATH=") else { return 0 };
        let (mut at, mut looked) = (1, 0);
        while let Some(word) = self.args.get(at) {
            // A word with a slash is the program, or an option's value.
            if word.byte(0) != b'-' && word.byte(0) != 0 && !word.has(b'/') {
                if is_in_path(path, word) {
                    return at;
                }
                looked += 1;
                if looked == MOST_LOOKED_FOR {
                    return 0;
                }
            }
            at += 1;
        }
        0
    }

    /// Becomes the whole command: from the start, or with a step that was asked for.
    fn become_whole(self, asked: Option<(Asked, bool, bool)>) -> ! {
        let mut program = Written::<PATH>::new();
        if kernel::read_link(c"/proc/self/exe", &mut program).is_ok() {
            program.cut(behind_last_slash(&program));
        }
        let named = program.len() > 0 && program.byte(0) == b'/' && program.push_all(b"garrick");
        let (args, environment) = (self.args, self.environment);
        let mut state = Written::<160>::new();
        let whole = match asked {
            None => environment.0,
            Some((asked, told, welcomed)) => {
                state.push_all(b"GARRICK_LIGHT=");
                let [high, low] = asked.request;
                for number in [asked.socket as u64, high, low, u64::from(told), u64::from(welcomed)] {
                    state.push_hex(number);
                    state.push(b'.');
                }
                match with(environment, state.start()) {
                    Some(whole) => {
                        kernel::keep_open(asked.socket);
                        whole
                    }
                    // Without memory for it, it begins anew: the connection goes, and with it what was begun.
                    None => environment.0,
                }
            }
        };
        if named {
            // Called by whatever name, it is `srun`.
            if args.get(0).is_some_and(|name| !is_srun(name)) {
                // SAFETY: there is a first argument, and its place is this process's own to change.
                unsafe { args.0.cast_mut().write_volatile(c"srun".as_ptr().cast()) };
            }
            kernel::execute(program.start(), args.0, whole);
        }
        kernel::write_error(b"srun: error: cannot start the program garrick, which belongs beside this one: it is in no folder that is known, or not there\n");
        kernel::exit(1)
    }
}

/// Is this a path of something of that name?
fn is_srun(path: Text) -> bool {
    let len = path.len();
    let name = if len < 4 { None } else { path.from(len - 4).behind(b"srun\0") };
    name.is_some() && (len == 4 || path.byte(len - 5) == b'/')
}

/// An environment and one entry more. `None`: there is no memory.
fn with(environment: Texts, entry: *const u8) -> Option<*const *const u8> {
    let count = environment.count();
    let list = kernel::pointers(count + 2).ok()?;
    let mut at = 0;
    // SAFETY: there is room for two more than the environment has.
    unsafe {
        while let Some(text) = environment.get(at) {
            list.wrapping_add(at).write_volatile(text.start());
            at += 1;
        }
        list.wrapping_add(at).write_volatile(entry);
        list.wrapping_add(at + 1).write_volatile(core::ptr::null());
    }
    Some(list.cast_const())
}

fn behind_last_slash<const N: usize>(path: &Written<N>) -> usize {
    let mut at = path.len();
    while at > 0 && path.byte(at - 1) != b'/' {
        at -= 1;
    }
    at
}

fn is_in_path(path: Text, program: Text) -> bool {
    let mut at = 0;
    loop {
        let mut file = Written::<PATH>::new();
        let mut fits = true;
        while path.byte(at) != b':' && path.byte(at) != 0 {
            fits &= file.push(path.byte(at));
            at += 1;
        }
        if file.len() == 0 {
            fits &= file.push(b'.');
        }
        fits &= file.push(b'/');
        let mut of_name = 0;
        while program.byte(of_name) != 0 {
            fits &= file.push(program.byte(of_name));
            of_name += 1;
        }
        if fits && kernel::is_program(file.start()) {
            return true;
        }
        if path.byte(at) == 0 {
            return false;
        }
        at += 1;
    }
}

impl Asked {
    fn wait(&self) -> Next {
        let mut room = core::mem::MaybeUninit::<[u8; FRAME]>::uninit();
        let frame = room.as_mut_ptr().cast::<u8>();
        let mut welcomed = false;
        loop {
            if kernel::wait(self.socket, self.signals) {
                return Next::TakeOver { told: false, welcomed };
            }
            let mut len = [0; 4];
            if !kernel::receive(self.socket, len.as_mut_ptr(), 4) {
                // The step manager is gone: the whole command looks for it.
                return Next::TakeOver { told: true, welcomed };
            }
            let len = u32::from_be_bytes(len) as usize;
            if len > FRAME || !kernel::receive(self.socket, frame, len) {
                return Next::TakeOver { told: true, welcomed };
            }
            // SAFETY: so many bytes were read.
            let body = unsafe { core::slice::from_raw_parts(frame.cast_const(), len) };
            if !welcomed {
                welcomed = true;
                if place(body, b"Welcome").is_none() {
                    return Next::Whole;
                }
            } else if ends(body, DONE) {
                return Next::Done;
            } else if ends(body, TAKE_OVER) {
                return Next::TakeOver { told: true, welcomed };
            } else if let Some(text) = place(body, SAY).and_then(|at| text(body.get(at + SAY.len()..)?)) {
                kernel::write_error(text);
            } else {
                return Next::Whole;
            }
        }
    }
}

fn ends(body: &[u8], with: &[u8]) -> bool {
    let from = body.len().checked_sub(with.len());
    from.and_then(|from| body.get(from..)).is_some_and(|end| same(end, with))
}

fn place(body: &[u8], what: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(part) = body.get(at..at + what.len()) {
        if same(part, what) {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// Of the same length. Not `==`, which is a call of a C library.
fn same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while let (Some(a), Some(b)) = (one.get(at), other.get(at)) {
        // SAFETY: both are references.
        if unsafe { core::ptr::from_ref(a).read_volatile() != core::ptr::from_ref(b).read_volatile() } {
            return false;
        }
        at += 1;
    }
    true
}

/// A text as MessagePack has it: its length, in one of three forms, and its bytes.
fn text(encoded: &[u8]) -> Option<&[u8]> {
    match (*encoded.first()?, encoded.get(1), encoded.get(2)) {
        (short @ 0xa0..=0xbf, ..) => encoded.get(1..1 + usize::from(short & 31)),
        (0xd9, Some(len), _) => encoded.get(2..2 + usize::from(*len)),
        (0xda, Some(high), Some(low)) => encoded.get(3..3 + (usize::from(*high) << 8 | usize::from(*low))),
        _ => None,
    }
}
