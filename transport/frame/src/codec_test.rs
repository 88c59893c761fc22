#![allow(clippy::unwrap_used)]
use super::*;
use crate::hello::{Hello, HelloReply, LinkKind, Traced, TunnelTo, VersionRange};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Sample {
    Unit,
    Text(String),
    Fields { number: u64, list: Vec<u16>, inner: Option<Box<Sample>> },
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn saved_frames_of_version_one_still_read() {
    let hello = Hello::new(LinkKind::CommandToDaemon, "squeue 0.1.0");
    let tunnel = Hello {
        link: LinkKind::CommandToStepMgr,
        tunnel: Some(TunnelTo { address: "10.0.0.2:6818".into(), node: "n2".into(), job: 5609 }),
        ..Hello::new(LinkKind::CommandToStepMgr, "srun 0.1.0")
    };
    let welcome = HelloReply::Welcome { version: 1, program: "slurmctld 0.1.0".into() };
    let refused = HelloReply::Refused { reason: "busy".into(), versions: VersionRange { min: 1, max: 1 } };
    let traced = Traced { trace: 7, cause: 9, msg: Sample::Text("hi".into()) };
    let saved = [
        include_str!("../samples/v1/hello.hex"),
        include_str!("../samples/v1/hello_tunnel.hex"),
        include_str!("../samples/v1/welcome.hex"),
        include_str!("../samples/v1/refused.hex"),
        include_str!("../samples/v1/traced.hex"),
    ];
    let now = [
        encode(&hello, 4096).unwrap(),
        encode(&tunnel, 4096).unwrap(),
        encode(&welcome, 4096).unwrap(),
        encode(&refused, 4096).unwrap(),
        encode(&traced, 4096).unwrap(),
    ];
    for (saved, now) in saved.iter().zip(&now) {
        assert_eq!(
            saved.trim(),
            to_hex(now),
            "what is written today (a new field needs a new sample, not a new version)"
        );
    }
    let mut decoder = Decoder::new(4096);
    saved.iter().for_each(|text| decoder.feed(&hex(text)));
    assert_eq!(decoder.next::<Hello>().unwrap().unwrap(), hello);
    assert_eq!(decoder.next::<Hello>().unwrap().unwrap(), tunnel);
    assert_eq!(decoder.next::<HelloReply>().unwrap().unwrap(), welcome);
    assert_eq!(decoder.next::<HelloReply>().unwrap().unwrap(), refused);
    assert_eq!(decoder.next::<Traced<Sample>>().unwrap().unwrap(), traced);
    decoder.finish().unwrap();
}

#[test]
fn unknown_fields_are_skipped_and_missing_ones_defaulted() {
    #[derive(Serialize)]
    struct Newer {
        novelty: [u8; 3],
        msg: u8,
    }
    let frame = encode(&Newer { novelty: [1, 2, 3], msg: 4 }, 100).unwrap();
    let mut decoder = Decoder::new(100);
    decoder.feed(&frame);
    assert_eq!(decoder.next::<Traced<u8>>().unwrap(), Some(Traced::untraced(4)));
}

#[test]
fn frame_over_the_limit_is_refused_by_writer_and_reader() {
    let error = encode(&"x".repeat(200), 100).unwrap_err();
    assert!(matches!(error, FrameError::TooLarge { size: 202, limit: 100 }), "{error}");
    let mut decoder = Decoder::new(100);
    decoder.feed(&encode(&"x".repeat(200), 1000).unwrap());
    let error = decoder.next::<String>().unwrap_err();
    assert_eq!(error.to_string(), "frame of 202 bytes is over the limit of 100 bytes");
    assert_eq!(decoder.next::<String>().unwrap_err(), error, "it stays refused");
}

#[test]
fn lying_length_allocates_nothing() {
    let mut decoder = Decoder::new(usize::MAX);
    decoder.feed(&[0xff; 8]);
    assert_eq!(decoder.next::<String>().unwrap(), None);
    decoder.fill(|space| Ok::<_, ()>(space.len().min(1))).unwrap();
    assert!(decoder.buffer.capacity() < 1 << 20);
    assert!(matches!(decoder.finish(), Err(FrameError::Truncated { have: 9, .. })));
}

#[test]
fn truncated_frame_says_how_much_came() {
    let frame = encode(&"hello", 100).unwrap();
    let mut decoder = Decoder::new(100);
    decoder.feed(&frame[..3]);
    assert_eq!(decoder.finish(), Err(FrameError::Truncated { have: 3, want: 4 }));
    decoder.feed(&frame[3..frame.len() - 1]);
    assert_eq!(decoder.next::<String>(), Ok(None));
    assert_eq!(decoder.finish(), Err(FrameError::Truncated { have: frame.len() - 1, want: frame.len() }));
}

#[test]
fn malformed_frame_is_skipped_and_the_next_one_reads() {
    let mut decoder = Decoder::new(100);
    decoder.feed(&[0, 0, 0, 2, 0xc1, 0xc1]);
    decoder.feed(&encode(&7u8, 100).unwrap());
    assert!(matches!(decoder.next::<u8>(), Err(FrameError::Malformed { size: 2, .. })));
    assert_eq!(decoder.next::<u8>(), Ok(Some(7)));
}

#[test]
fn unknown_variant_is_an_error_that_names_it() {
    let frame = encode(&"Teleport", 100).unwrap();
    let error = decode_body::<Sample>(&frame[PREFIX..]).unwrap_err();
    assert!(error.to_string().contains("Teleport"), "{error}");
}

#[test]
fn bytes_left_over_in_a_frame_are_an_error() {
    let mut decoder = Decoder::new(100);
    decoder.feed(&[0, 0, 0, 2, 1, 2]);
    assert!(matches!(decoder.next::<u8>(), Err(FrameError::Malformed { size: 2, .. })));
    decoder.feed(&[0, 0, 0, 0]);
    assert!(matches!(decoder.next::<u8>(), Err(FrameError::Malformed { size: 0, .. })));
}

#[test]
fn deep_nesting_is_refused_not_followed() {
    let mut body = vec![0x91; 100_000];
    body.push(1);
    assert!(matches!(decode_body::<IgnoredAny>(&body), Err(FrameError::Malformed { .. })));
}

/// One frame of 16 MiB took 700 MiB of the controller, whoever sent it.
#[test]
fn a_stranger_may_send_so_many_values_and_no_more() {
    let names = |count: usize| encode(&vec![""; count], 16 << 20).unwrap();
    let mut decoder = Decoder::new(16 << 20);
    decoder.feed(&names(MOST_VALUES));
    assert_eq!(decoder.next::<Vec<String>>().unwrap().unwrap().len(), MOST_VALUES, "who is trusted may send more");
    decoder.distrust();
    // The list is a value too.
    decoder.feed(&names(MOST_VALUES - 1));
    assert_eq!(decoder.next::<Vec<String>>().unwrap().unwrap().len(), MOST_VALUES - 1);
    decoder.feed(&names(MOST_VALUES));
    let said = decoder.next::<Vec<String>>().unwrap_err().to_string();
    assert!(said.ends_with("it has more than 524288 values"), "{said}");
    decoder.feed(&names(3));
    assert_eq!(decoder.next::<Vec<String>>().unwrap().unwrap().len(), 3, "and the link goes on");
}

proptest! {
    #[test]
    fn values_are_counted_whatever_their_form(
        numbers in proptest::collection::vec(any::<i64>(), 0..40),
        texts in proptest::collection::vec("\\PC{0,70}", 0..40),
        long in 0..100_000usize,
        float in any::<f64>(),
    ) {
        // Three lists and what is in them, a text and a list of two.
        let count = 5 + numbers.len() + texts.len() + 2;
        let body = rmp_serde::to_vec(&(numbers, texts, "x".repeat(long), (float, None::<u8>))).unwrap();
        prop_assert!(!has_more_values_than(count, &body) && has_more_values_than(count - 1, &body));
    }

    #[test]
    fn counting_stands_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(!has_more_values_than(bytes.len(), &bytes));
    }
}

#[test]
fn memory_of_a_huge_frame_is_given_back() {
    let mut decoder = Decoder::new(8 << 20);
    decoder.feed(&encode(&"x".repeat(4 << 20), 8 << 20).unwrap());
    assert!(decoder.next::<String>().unwrap().is_some());
    decoder.feed(&encode(&1u8, 100).unwrap());
    assert!(decoder.buffer.capacity() <= READ_CHUNK + 4096, "{}", decoder.buffer.capacity());
    assert_eq!(decoder.next::<u8>(), Ok(Some(1)));
}

fn sample() -> impl Strategy<Value = Sample> {
    let leaf = prop_oneof![Just(Sample::Unit), "\\PC{0,40}".prop_map(Sample::Text)];
    leaf.prop_recursive(4, 16, 1, |inner| {
        (any::<u64>(), proptest::collection::vec(any::<u16>(), 0..50), proptest::option::of(inner))
            .prop_map(|(number, list, inner)| Sample::Fields { number, list, inner: inner.map(Box::new) })
    })
}

proptest! {
    #[test]
    fn random_bytes_never_panic_and_never_run_past_the_limit(bytes in proptest::collection::vec(any::<u8>(), 0..600), limit in 0usize..300) {
        let mut decoder = Decoder::new(limit);
        decoder.feed(&bytes);
        for _ in 0..bytes.len() + 1 {
            match decoder.next::<Traced<Sample>>() {
                Ok(None) | Err(FrameError::TooLarge { .. }) => break,
                Ok(Some(_)) | Err(_) => {}
            }
        }
        let _ = decoder.finish();
        let _ = decode_body::<Hello>(&bytes);
        let _ = decode_body::<HelloReply>(&bytes);
    }

    #[test]
    fn any_split_gives_the_same_messages(samples in proptest::collection::vec(sample(), 1..6), cuts in proptest::collection::vec(1usize..40, 1..60)) {
        let mut stream = Vec::new();
        for sample in &samples {
            encode_into(sample, 1 << 20, &mut stream).unwrap();
        }
        let mut decoder = Decoder::new(1 << 20);
        let mut seen = Vec::new();
        let mut rest = &stream[..];
        for cut in cuts.iter().cycle() {
            if rest.is_empty() { break }
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            let given = decoder.fill(|space| {
                let fits = piece.len().min(space.len());
                space[..fits].copy_from_slice(&piece[..fits]);
                Ok::<_, ()>(fits)
            }).unwrap();
            prop_assert_eq!(given, piece.len());
            rest = after;
            while let Some(msg) = decoder.next::<Sample>().unwrap() { seen.push(msg) }
        }
        prop_assert_eq!(seen, samples);
        prop_assert!(decoder.finish().is_ok());
    }

    #[test]
    fn a_flipped_byte_never_panics(sample in sample(), at in any::<proptest::sample::Index>(), flip in 1u8..) {
        let mut frame = encode(&sample, 1 << 20).unwrap();
        let at = at.index(frame.len());
        frame[at] ^= flip;
        let mut decoder = Decoder::new(1 << 20);
        decoder.feed(&frame);
        let _ = decoder.next::<Sample>();
        let _ = decoder.finish();
    }
}
