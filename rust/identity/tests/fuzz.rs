//! Whatever a stranger writes: no panic, no number out of range, no "gone" out of nothing.

use proptest::prelude::*;
use tenure_identity::fuzzing::{boot_id, machine_id, namespace_pids, stat, time_offset};
use tenure_identity::{Capabilities, Identity, Observer, Verdict, judge};

/// JSON that is nearly a record: right names, often wrong values.
fn nearly_a_record() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("1".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| format!("{number:?}")),
        any::<u64>().prop_map(|number| format!("\"{number}\"")),
        "\"[ -~]{0,40}\"".prop_map(|text| text),
        Just("\"linux\"".to_owned()),
        Just("[]".to_owned()),
        Just("{}".to_owned()),
    ];
    let name = prop::sample::select(vec![
        "v", "os", "host", "host_by", "boot", "ns", "ns_id", "pid", "start", "uniq", "nonce", "later",
    ]);
    prop::collection::vec((name, value), 0..14).prop_map(|fields| {
        let fields: Vec<String> = fields.into_iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}", fields.join(","))
    })
}

proptest! {
    #[test]
    fn any_bytes_are_a_record_or_a_reason(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        if let Err(error) = Identity::from_json(&bytes) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn what_is_read_is_in_range_and_reads_the_same_again(text in nearly_a_record()) {
        if let Ok(identity) = Identity::from_json(text.as_bytes()) {
            prop_assert!((1..=i32::MAX.unsigned_abs()).contains(&identity.pid));
            prop_assert_eq!(Identity::from_json(identity.to_json().as_bytes()), Ok(identity));
        }
    }

    #[test]
    fn nobody_is_called_gone_on_the_strength_of_another_boot(text in nearly_a_record()) {
        // A made-up boot id never equals ours, and no operator vouches for anything here.
        if let Ok(identity) = Identity::from_json(text.as_bytes()) {
            let me = Observer::new(None, None, Capabilities::default()).expect("this process can be identified");
            prop_assert_eq!(judge(&identity, &me).verdict, Verdict::Unknown);
        }
    }

    #[test]
    fn the_kernels_texts_may_hold_anything(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = (stat(&bytes), namespace_pids(&bytes), time_offset(&bytes), machine_id(&bytes));
        if let Some(id) = boot_id(&bytes) {
            prop_assert!(id.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit()));
        }
    }

    #[test]
    fn a_process_may_call_itself_anything(comm in prop::collection::vec(1u8.., 0..64), start in any::<u64>()) {
        let tail = format!(" S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 7 18 {start} 20 21\n");
        let line = [b"42 (".as_slice(), &comm, b")", tail.as_bytes()].concat();
        let read = stat(&line).expect("a whole line");
        prop_assert_eq!((read.state, read.num_threads, read.start), (b'S', 7, start));
    }
}
