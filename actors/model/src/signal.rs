//! Signals by name and number, as Linux has them on x86-64 and arm64 (`signal(7)`), and what the C library calls them
//! when a process ends by one.

/// Linux's number of the signal that nothing outlives, which is also the kernel's for lack of memory.
pub const SIGKILL: i32 = 9;
/// Linux's number of the signal that asks to end.
pub const SIGTERM: i32 = 15;
/// Linux's number of the signal that ends a stop.
pub const SIGCONT: i32 = 18;
/// Linux's number of the signal that always stops a process.
pub const SIGSTOP: i32 = 19;
/// SIGTSTP
pub const SIGTSTP: i32 = 20;

/// Number, name without `SIG`, description.
const SIGNALS: &[(i32, &str, &str)] = &[
    (1, "HUP", "Hangup"),
    (2, "INT", "Interrupt"),
    (3, "QUIT", "Quit"),
    (4, "ILL", "Illegal instruction"),
    (5, "TRAP", "Trace/breakpoint trap"),
    (6, "ABRT", "Aborted"),
    (7, "BUS", "Bus error"),
    (8, "FPE", "Floating point exception"),
    (9, "KILL", "Killed"),
    (10, "USR1", "User defined signal 1"),
    (11, "SEGV", "Segmentation fault"),
    (12, "USR2", "User defined signal 2"),
    (13, "PIPE", "Broken pipe"),
    (14, "ALRM", "Alarm clock"),
    (15, "TERM", "Terminated"),
    (16, "STKFLT", "Stack fault"),
    (17, "CHLD", "Child exited"),
    (18, "CONT", "Continued"),
    (19, "STOP", "Stopped (signal)"),
    (20, "TSTP", "Stopped"),
    (21, "TTIN", "Stopped (tty input)"),
    (22, "TTOU", "Stopped (tty output)"),
    (23, "URG", "Urgent I/O condition"),
    (24, "XCPU", "CPU time limit exceeded"),
    (25, "XFSZ", "File size limit exceeded"),
    (26, "VTALRM", "Virtual timer expired"),
    (27, "PROF", "Profiling timer expired"),
    (28, "WINCH", "Window changed"),
    (29, "IO", "I/O possible"),
    (30, "PWR", "Power failure"),
    (31, "SYS", "Bad system call"),
];

/// Other names of the same signals.
const ALIASES: &[(&str, i32)] = &[("IOT", 6), ("POLL", 29), ("CLD", 17)];

/// First and last real-time signal that the C library leaves to programs.
pub(crate) const REAL_TIME: (i32, i32) = (34, 64);

/// Greatest signal number.
pub const MAX_SIGNAL: i32 = REAL_TIME.1;

/// Names of signals, without `SIG`.
pub fn names() -> impl Iterator<Item = &'static str> {
    SIGNALS.iter().map(|(_, name, _)| *name)
}

/// A signal's number from `USR1`, `SIGUSR1`, `usr1`, `RTMIN+3` or `10`. There is no signal 0 here.
pub fn signal_number(text: &str) -> Option<i32> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok().filter(|n| (1..=MAX_SIGNAL).contains(n));
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let of_name = SIGNALS.iter().find(|(_, n, _)| *n == name).map(|&(n, _, _)| n);
    of_name.or_else(|| ALIASES.iter().find(|(n, _)| *n == name).map(|&(_, n)| n)).or_else(|| real_time(name))
}

fn real_time(name: &str) -> Option<i32> {
    let (first, last) = REAL_TIME;
    let n = if let Some(rest) = name.strip_prefix("RTMIN") {
        first.checked_add(offset(rest, '+')?)?
    } else {
        last.checked_sub(offset(name.strip_prefix("RTMAX")?, '-')?)?
    };
    (first..=last).contains(&n).then_some(n)
}

fn offset(rest: &str, sign: char) -> Option<i32> {
    if rest.is_empty() {
        return Some(0);
    }
    let digits = rest.strip_prefix(sign)?;
    if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// The name without `SIG`; `None` for numbers without one.
pub fn signal_name(number: i32) -> Option<&'static str> {
    SIGNALS.iter().find(|(n, _, _)| *n == number).map(|&(_, name, _)| name)
}

/// The name without `SIG`, or the number.
pub fn signal_text(number: i32) -> String {
    signal_name(number).map_or_else(|| number.to_string(), str::to_owned)
}

/// What the C library says of a process ended by it: `Killed`, `Segmentation fault`.
pub fn signal_description(number: i32) -> String {
    let known = SIGNALS.iter().find(|(n, _, _)| *n == number).map(|&(_, _, text)| text.to_owned());
    known.unwrap_or_else(|| match number {
        n if (REAL_TIME.0..=REAL_TIME.1).contains(&n) => format!("Real-time signal {}", n - REAL_TIME.0),
        n => format!("Unknown signal {n}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_read_in_every_form() {
        for (text, number) in [
            ("USR1", 10),
            ("SIGUSR1", 10),
            ("usr1", 10),
            ("10", 10),
            ("sigterm", 15),
            ("POLL", 29),
            ("RTMIN", 34),
            ("SIGRTMIN+3", 37),
            ("RTMAX-1", 63),
            ("64", 64),
        ] {
            assert_eq!(signal_number(text), Some(number), "{text}");
        }
        for text in ["", "0", "65", "SIG", "FOO", "-9", "+9", "RTMIN-1", "RTMIN+31", "RTMIN+99999999999", "9 "] {
            assert_eq!(signal_number(text), None, "{text}");
        }
    }

    #[test]
    fn every_name_reads_back() {
        for n in 1..=MAX_SIGNAL {
            assert_eq!(signal_number(&signal_text(n)), Some(n));
        }
        assert_eq!(signal_description(9), "Killed");
        assert_eq!(signal_description(40), "Real-time signal 6");
        assert_eq!(signal_description(33), "Unknown signal 33");
    }
}
