//! The record: read from strangers, written about oneself.

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Map, Value};
use sha2::Sha256;
use std::fmt;

use crate::parse;

/// The schema that this version writes and understands.
const SCHEMA: u64 = 1;
/// Larger than any record we write by an order of magnitude; what is longer is not one.
const MAX_BYTES: usize = 4096;
/// Linux allows 4,194,304, macOS 99,999, Windows more; all keep within the positive half of an `i32`.
const MAX_PID: u64 = i32::MAX as u64;
const MAX_TEXT: usize = 255;

/// Which machine, as far as anybody can say.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    /// The operator's word, or 32 hex digits derived from the machine id.
    pub id: String,
    /// Whether an operator set it. Ids of the two kinds are never equal: one is a promise, the other a guess.
    pub set_by_operator: bool,
}

impl Host {
    /// An id that an operator chose: 1 to 255 bytes.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn operator(id: &str) -> Result<Self, crate::Error> {
        if id.is_empty() || id.len() > MAX_TEXT {
            return Err(crate::Error::BadHost(format!("it must have 1 to {MAX_TEXT} bytes, not {}", id.len())));
        }
        Ok(Self { id: id.to_owned(), set_by_operator: true })
    }

    /// An id derived from a machine id. machine-id(5) asks that the id itself is not given out, but a keyed hash of it.
    #[must_use]
    pub fn machine(machine_id: &str) -> Self {
        let mut mac = Hmac::<Sha256>::new_from_slice(machine_id.as_bytes()).expect("HMAC takes a key of any length");
        mac.update(b"tenure host id 1");
        Self { id: hex(&mac.finalize().into_bytes()[..16]), set_by_operator: false }
    }
}

/// Who a process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The operating system's name.
    pub os: String,
    /// Absent: no evidence either way.
    pub host: Option<Host>,
    /// Names one boot of one kernel.
    pub boot: Option<String>,
    /// The pid namespace in which `pid` was given out.
    pub ns: Option<String>,
    /// The namespace's never-reused id.
    pub ns_id: Option<u64>,
    /// 1 to 2^31 - 1.
    pub pid: u32,
    /// Start time in the unit of the system, comparable on the same boot only.
    pub start: Option<u64>,
    /// An id that the kernel never reuses within a boot.
    pub uniq: Option<u64>,
    /// Drawn by the process about itself; for "is this record mine" only.
    pub nonce: Option<[u8; 16]>,
    /// Fields of a later writer, kept.
    pub unknown: Map<String, Value>,
}

/// Why a text is no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The schema number is another one.
    Version(Value),
    /// Anything else; says what and where.
    Damaged(String),
}

impl Malformed {
    /// The schema number, where it is a newer one that this version does not know yet.
    #[must_use]
    pub fn newer_schema(&self) -> Option<u64> {
        match self {
            Self::Version(schema) => schema.as_u64().filter(|&schema| schema > SCHEMA),
            Self::Damaged(_) => None,
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(schema) => write!(f, "v: schema {schema} is not known, {SCHEMA} is"),
            Self::Damaged(what) => f.write_str(what),
        }
    }
}

impl Identity {
    /// The highest schema that `from_json` reads.
    pub const SCHEMA: u64 = SCHEMA;

    /// Reads a record.
    ///
    /// # Errors
    /// Says which field is wrong and why.
    pub fn from_json(text: &[u8]) -> Result<Self, Malformed> {
        if text.len() > MAX_BYTES {
            return Err(damaged(format!("the record has {} bytes, more than {MAX_BYTES}", text.len())));
        }
        let value: Value = serde_json::from_slice(text).map_err(|error| damaged(format!("not JSON: {error}")))?;
        let Value::Object(fields) = value else {
            return Err(damaged("not a JSON object"));
        };
        let mut fields = Fields(fields);
        match fields.0.shift_remove("v") {
            Some(Value::Number(schema)) if schema.as_u64() == Some(SCHEMA) => {}
            Some(Value::Number(schema)) if schema.is_i64() || schema.is_u64() => {
                return Err(Malformed::Version(Value::Number(schema)));
            }
            other => return Err(wrong("v", "an integer", other.as_ref())),
        }
        let os = fields.text("os")?.ok_or_else(|| wrong("os", "a string", None))?;
        let operator = match fields.text("host_by")?.as_deref() {
            None => false,
            Some("operator") => true,
            Some(other) => return Err(damaged(format!("host_by: expected \"operator\" or nothing, found {other:?}"))),
        };
        let host = fields.text("host")?.map(|id| Host { id, set_by_operator: operator });
        Ok(Self {
            os,
            host,
            boot: fields.text("boot")?,
            ns: fields.text("ns")?,
            ns_id: fields.id("ns_id")?,
            pid: fields.pid()?,
            start: fields.id("start")?,
            uniq: fields.id("uniq")?,
            nonce: fields.nonce()?,
            unknown: fields.0,
        })
    }

    /// One line of JSON, schema number first, unknown fields last.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                fields.insert(name.to_owned(), value);
            }
        };
        let text = |value: &str| Value::String(value.to_owned());
        let id = |value: u64| Value::String(value.to_string());
        put("v", Some(Value::from(SCHEMA)));
        put("os", Some(text(&self.os)));
        put("host", self.host.as_ref().map(|host| text(&host.id)));
        put("host_by", self.host.as_ref().filter(|host| host.set_by_operator).map(|_| text("operator")));
        put("boot", self.boot.as_deref().map(text));
        put("ns", self.ns.as_deref().map(text));
        put("ns_id", self.ns_id.map(id));
        put("pid", Some(Value::from(self.pid)));
        put("start", self.start.map(id));
        put("uniq", self.uniq.map(id));
        put("nonce", self.nonce.map(|nonce| Value::String(hex(&nonce))));
        for (name, value) in &self.unknown {
            put(name, Some(value.clone()));
        }
        Value::Object(fields).to_string()
    }
}

/// The fields of a record that have not been looked at yet.
struct Fields(Map<String, Value>);

impl Fields {
    /// An optional non-empty string.
    fn text(&mut self, name: &str) -> Result<Option<String>, Malformed> {
        match self.0.shift_remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.is_empty() || text.len() > MAX_TEXT => {
                Err(damaged(format!("{name}: expected 1 to {MAX_TEXT} bytes, found {}", text.len())))
            }
            Some(Value::String(text)) => Ok(Some(text)),
            other => Err(wrong(name, "a string", other.as_ref())),
        }
    }

    /// An optional 64-bit number, written as decimal digits.
    fn id(&mut self, name: &str) -> Result<Option<u64>, Malformed> {
        match self.0.shift_remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(digits)) if parse::number(digits.as_bytes()).is_some() => {
                Ok(parse::number(digits.as_bytes()))
            }
            other => Err(wrong(name, "an unsigned 64-bit number in a string", other.as_ref())),
        }
    }

    fn pid(&mut self) -> Result<u32, Malformed> {
        match self.0.shift_remove("pid") {
            Some(Value::Number(pid)) if pid.as_u64().is_some_and(|pid| (1..=MAX_PID).contains(&pid)) => {
                Ok(u32::try_from(pid.as_u64().unwrap_or_default()).expect("in range by the guard"))
            }
            other => Err(wrong("pid", "an integer from 1 to 2147483647", other.as_ref())),
        }
    }

    fn nonce(&mut self) -> Result<Option<[u8; 16]>, Malformed> {
        match self.0.shift_remove("nonce") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(digits)) if unhex(&digits).is_some() => Ok(unhex(&digits)),
            other => Err(wrong("nonce", "32 lower-case hex digits", other.as_ref())),
        }
    }
}

fn damaged(what: impl Into<String>) -> Malformed {
    Malformed::Damaged(what.into())
}

fn wrong(name: &str, expected: &str, found: Option<&Value>) -> Malformed {
    let found = match found {
        None => "nothing".to_owned(),
        // Cut, because the message may reach a log and the value is a stranger's.
        Some(value) => value.to_string().chars().take(60).collect(),
    };
    damaged(format!("{name}: expected {expected}, found {found}"))
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]])
        .map(char::from)
        .collect()
}

fn unhex(digits: &str) -> Option<[u8; 16]> {
    let digits = digits.as_bytes();
    if digits.len() != 32 {
        return None;
    }
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"{"v":1,"os":"linux","host":"h","host_by":"operator","boot":"b","ns":"4026531836","ns_id":"6","pid":12041,"start":"59800","uniq":"18446744073709551615","nonce":"00112233445566778899aabbccddeeff","later":{"x":[1]}}"#;

    #[test]
    fn a_record_survives_a_round_trip_with_what_a_later_writer_added() {
        let identity = Identity::from_json(WHOLE.as_bytes()).expect("well formed");
        assert_eq!(identity.to_json(), WHOLE);
        assert_eq!(identity.uniq, Some(u64::MAX));
    }

    #[test]
    fn only_os_and_pid_are_required() {
        let identity = Identity::from_json(br#"{"v":1,"os":"linux","pid":1}"#).expect("well formed");
        assert_eq!((identity.boot, identity.start, identity.nonce), (None, None, None));
    }

    #[test]
    fn a_newer_schema_is_told_from_damage() {
        let newer = Identity::from_json(br#"{"v":2,"pid":"what it means then"}"#).expect_err("not ours");
        assert_eq!(newer.newer_schema(), Some(2));
        let older = Identity::from_json(br#"{"v":0}"#).expect_err("never was");
        assert_eq!((matches!(older, Malformed::Version(_)), older.newer_schema()), (true, None));
    }

    #[test]
    fn what_is_wrong_is_said_with_the_field() {
        for (bad, says) in [
            ("", "not JSON"),
            ("[]", "not a JSON object"),
            (r#"{"v":"1"}"#, "v: expected an integer"),
            (r#"{"v":1.0,"os":"linux","pid":1}"#, "v: expected an integer"),
            (r#"{"v":1,"pid":1}"#, "os: expected a string, found nothing"),
            (r#"{"v":1,"os":"linux"}"#, "pid: expected an integer from 1 to 2147483647, found nothing"),
            (r#"{"v":1,"os":"linux","pid":0}"#, "found 0"),
            (r#"{"v":1,"os":"linux","pid":-1}"#, "found -1"),
            (r#"{"v":1,"os":"linux","pid":2147483648}"#, "found 2147483648"),
            (r#"{"v":1,"os":"linux","pid":"1\n2"}"#, r#"found "1\n2""#),
            (r#"{"v":1,"os":"linux","pid":true}"#, "found true"),
            (r#"{"v":1,"os":"linux","pid":NaN}"#, "not JSON"),
            (r#"{"v":1,"os":"linux","pid":1,"start":59800}"#, "start: expected an unsigned"),
            (r#"{"v":1,"os":"linux","pid":1,"uniq":"+1"}"#, "uniq: expected an unsigned"),
            (r#"{"v":1,"os":"linux","pid":1,"uniq":"18446744073709551616"}"#, "uniq: expected an unsigned"),
            (r#"{"v":1,"os":"linux","pid":1,"nonce":"../../etc/passwd"}"#, "nonce: expected 32"),
            (r#"{"v":1,"os":"linux","pid":1,"host":""}"#, "host: expected 1 to 255 bytes"),
            (r#"{"v":1,"os":"linux","pid":1,"host":"h","host_by":"me"}"#, "host_by: expected"),
        ] {
            let error = Identity::from_json(bad.as_bytes()).expect_err(bad).to_string();
            assert!(error.contains(says), "{bad}: {error}");
        }
    }

    #[test]
    fn a_huge_record_is_refused_by_its_size_alone() {
        let error = Identity::from_json(&vec![b'['; 10 << 20]).expect_err("too long").to_string();
        assert_eq!(error, "the record has 10485760 bytes, more than 4096");
    }

    #[test]
    fn the_machine_id_itself_is_not_given_out() {
        let host = Host::machine("0123456789abcdef0123456789abcdef");
        assert_eq!(host.id.len(), 32);
        assert_ne!(host.id, "0123456789abcdef0123456789abcdef");
        assert_eq!(host, Host::machine("0123456789abcdef0123456789abcdef"));
    }
}
