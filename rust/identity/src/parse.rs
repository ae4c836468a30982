//! Parsers of what the kernel prints. Pure, so that they are tested on captured text on every system.

/// What /proc/PID/stat tells that matters here. Source: proc_pid_stat(5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Field 3: one letter; Z is a zombie, X is dead.
    pub state: u8,
    /// Field 20: threads in the process, the exited leader included.
    pub num_threads: u64,
    /// Field 22: start time since boot in clock ticks, shifted by the *reader's* time namespace.
    pub start: u64,
}

impl Stat {
    /// Whether this thread has exited. Of a leader it does not say whether the process has.
    #[must_use]
    pub const fn exited(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// Reads one line of /proc/PID/stat.
#[must_use]
pub fn stat(line: &[u8]) -> Option<Stat> {
    // Counted from the last ")": comm, field 2, may hold blanks and ")". No later field can.
    let comm_ends = line.iter().rposition(|&byte| byte == b')')?;
    let mut fields = line[comm_ends + 1..].split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    let state = match fields.next()? {
        [letter] => *letter,
        _ => return None,
    };
    let num_threads = number(fields.nth(16)?)?;
    let start = number(fields.nth(1)?)?;
    Some(Stat { state, num_threads, start })
}

/// The process's number in each pid namespace from the reader's /proc inwards. Source: proc_pid_status(5), NSpid.
///
/// `None` where there is no such line (Linux before 4.1, gVisor).
#[must_use]
pub fn namespace_pids(status: &[u8]) -> Option<Vec<u64>> {
    status
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(b"NSpid:"))?
        .split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty())
        .map(number)
        .collect()
}

/// How far a time namespace shifts the start times that its members read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeOffset {
    /// Whole clock ticks (1/100 s), rounded down.
    pub ticks: i64,
    /// Whether something below a tick is left, which moves some start times by one.
    pub has_remainder: bool,
}

/// The boot-time offset in /proc/PID/timens_offsets. Source: time_namespaces(7).
#[must_use]
pub fn time_offset(text: &[u8]) -> Option<TimeOffset> {
    const NANOSECONDS_PER_TICK: i128 = 10_000_000;
    let text = std::str::from_utf8(text).ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        // Older kernels print the clock's number, 7, instead of its name.
        if !matches!(fields.next()?, "boottime" | "7") {
            return None;
        }
        let seconds: i64 = fields.next()?.parse().ok()?;
        let nanoseconds: i64 = fields.next()?.parse().ok()?;
        let total = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        Some(TimeOffset {
            ticks: i64::try_from(total.div_euclid(NANOSECONDS_PER_TICK)).ok()?,
            has_remainder: total.rem_euclid(NANOSECONDS_PER_TICK) != 0,
        })
    })
}

/// A boot id as the kernel prints it: a UUID in lower case. Source: proc_sys_kernel(5).
#[must_use]
pub fn boot_id(text: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(text).ok()?.trim_end_matches('\n');
    let well_formed = text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        });
    well_formed.then_some(text)
}

/// A machine id: 32 hex digits. Source: machine-id(5), which also names the two words that mean "none yet".
#[must_use]
pub fn machine_id(text: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(text).ok()?.trim_end_matches('\n');
    let well_formed = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    // All zeros is what an image carries that nobody has set up.
    (well_formed && text.bytes().any(|byte| byte != b'0')).then_some(text)
}

/// Decimal digits and nothing else: `str::parse` would let a "+" through.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDINARY: &[u8] = b"4242 (cat) R 4000 4242 4000 34816 4242 4194304 92 0 0 0 0 0 0 0 20 0 1 0 185840 5869568 \
        224 18446744073709551615 94 95 96 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 97 98 99 100 101 102 103 0\n";

    #[test]
    fn an_ordinary_line_is_read() {
        assert_eq!(stat(ORDINARY), Some(Stat { state: b'R', num_threads: 1, start: 185_840 }));
    }

    #[test]
    fn a_name_with_blanks_and_parentheses_shifts_nothing() {
        let odd = [b"4242 (a) S 1 (b c".as_slice(), &ORDINARY[9..]].concat();
        assert_eq!(stat(&odd), stat(ORDINARY));
    }

    #[test]
    fn a_name_may_hold_any_byte() {
        let odd = [b"4242 (\xff\n) ".as_slice(), &ORDINARY[9..]].concat();
        assert_eq!(stat(&odd), stat(ORDINARY));
    }

    #[test]
    fn every_torn_line_is_refused() {
        let start_field_ends = ORDINARY.windows(7).position(|window| window == b"185840 ").expect("in the sample") + 5;
        for length in 0..start_field_ends {
            let torn = stat(&ORDINARY[..length]);
            // A cut inside the last number needed leaves a shorter number; the kernel never prints a torn line, so
            // what matters is that nothing else than that number can be wrong.
            assert!(torn.is_none_or(|stat| stat.state == b'R' && stat.num_threads == 1), "at {length}");
        }
    }

    #[test]
    fn numbers_with_signs_or_overflow_are_refused() {
        for bad in [&b""[..], b"+1", b"-1", b" 1", b"1\n2", b"18446744073709551616", b"1e3"] {
            assert_eq!(number(bad), None, "{bad:?}");
        }
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
    }

    #[test]
    fn nested_pid_namespaces_are_listed_outermost_first() {
        let status = b"Name:\tsh\nGroups:\t0 \nNStgid:\t29729\t6\nNSpid:\t29729\t6\nNSpgid:\t0\n";
        assert_eq!(namespace_pids(status), Some(vec![29729, 6]));
        assert_eq!(namespace_pids(b"Name:\tsh\n"), None);
        assert_eq!(namespace_pids(b"NSpid:\tx\n"), None);
    }

    #[test]
    fn time_offsets_are_rounded_down_to_ticks() {
        let offset = |text: &[u8]| time_offset(text);
        assert_eq!(
            offset(b"monotonic           0         0\nboottime      1000000         0\n"),
            Some(TimeOffset { ticks: 100_000_000, has_remainder: false })
        );
        assert_eq!(
            offset(b"monotonic 0 0\nboottime 5000 7654321\n"),
            Some(TimeOffset { ticks: 500_000, has_remainder: true })
        );
        assert_eq!(offset(b"boottime -1 999999999\n"), Some(TimeOffset { ticks: -1, has_remainder: true }));
        assert_eq!(offset(b"monotonic 0 0\n"), None);
        assert_eq!(offset(b"boottime x 0\n"), None);
    }

    #[test]
    fn only_a_lower_case_uuid_is_a_boot_id() {
        assert_eq!(boot_id(b"3f9c1a52-0d7e-4b61-9a3c-6e2f8b4d7c10\n"), Some("3f9c1a52-0d7e-4b61-9a3c-6e2f8b4d7c10"));
        for bad in
            [&b""[..], b"3f9c1a52", b"3F9C1A52-0D7E-4B61-9A3C-6E2F8B4D7C10", b"../../../../../../../../../../../../"]
        {
            assert_eq!(boot_id(bad), None);
        }
    }

    #[test]
    fn a_machine_without_an_id_yet_has_none() {
        assert_eq!(machine_id(b"0123456789abcdef0123456789abcdef\n"), Some("0123456789abcdef0123456789abcdef"));
        for bad in [&b""[..], b"uninitialized\n", b"00000000000000000000000000000000\n", b"0123"] {
            assert_eq!(machine_id(bad), None);
        }
    }
}
