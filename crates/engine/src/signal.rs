//! The names of signals.

/// Names by number, from 1 (signal(7), the numbers of x86 and ARM).
const NAMES: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// Asks a program to end.
pub(crate) const SIGTERM: i32 = 15;

/// The first and the last real-time signal that C libraries leave to programs.
const REAL_TIME: (i32, i32) = (34, 64);

/// The name of a Linux signal number, such as `SIGSEGV`.
pub fn signal_name(signal: i32) -> Option<&'static str> {
    let index = usize::try_from(signal).ok()?.checked_sub(1)?;
    NAMES.get(index).copied()
}

/// The number of a signal that is written as Docker takes it: a number, or a name in any case, with or
/// without `SIG`, real-time signals as `SIGRTMIN+3`.
pub(crate) fn signal_number(text: &str) -> Option<i32> {
    let (first, last) = REAL_TIME;
    if let Ok(number) = text.parse() {
        return (1..=last).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let distance =
        |rest: &str, sign| if rest.is_empty() { Some(0) } else { rest.strip_prefix(sign)?.parse().ok() };
    let real_time = if let Some(rest) = name.strip_prefix("RTMIN") {
        first.checked_add(distance(rest, '+')?)
    } else if let Some(rest) = name.strip_prefix("RTMAX") {
        last.checked_sub(distance(rest, '-')?)
    } else {
        let index = NAMES.iter().position(|known| &known[3..] == name)?;
        return i32::try_from(index + 1).ok();
    };
    real_time.filter(|number| (first..=last).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_as_docker_reads_them() {
        let table = [
            ("SIGTERM", Some(15)),
            ("term", Some(15)),
            ("SigInt", Some(2)),
            ("SYS", Some(31)),
            ("15", Some(15)),
            ("64", Some(64)),
            ("SIGRTMIN", Some(34)),
            ("SIGRTMIN+3", Some(37)),
            ("RTMAX-14", Some(50)),
            ("SIGRTMIN+31", None),
            ("SIGRTMIN-1", None),
            ("SIGRTMIN+99999999999", None),
            ("SIGRTMAX-2147483647", None),
            ("0", None),
            ("65", None),
            ("-9", None),
            ("SIG", None),
            ("", None),
            ("SIGWHAT", None),
        ];
        for (text, expected) in table {
            assert_eq!(signal_number(text), expected, "{text:?}");
        }
        for number in 1..=31 {
            assert_eq!(signal_number(signal_name(number).unwrap()), Some(number));
        }
    }
}
