//! Every target on the stable toolchain: what is kept, and some thousands of changes of it, the same ones in every run.

#![allow(clippy::unwrap_used)]

use garrick_fuzz::{target::Target, targets};
use proptest::{
    collection::vec,
    prelude::*,
    sample::Index,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner},
};

/// Changed inputs for each target.
const CASES: u32 = 300;
/// Longest that an input grows to.
const MOST_BYTES: usize = 8 << 10;

/// One change of an input.
#[derive(Clone, Debug)]
enum Edit {
    Flip(Index, u8),
    Set(Index, u8),
    Number(Index, Vec<u8>),
    Insert(Index, Vec<u8>),
    Remove(Index, u8),
    Repeat(Index, u8, u8),
    /// From there on, another input.
    Splice(Index, Index),
}

/// Numbers at the ends of their types, as digits and in the forms that MessagePack, journals and packs have.
fn numbers() -> Vec<Vec<u8>> {
    let texts = [
        "0",
        "-1",
        "1",
        "4294967295",
        "4294967296",
        "18446744073709551615",
        "9223372036854775808",
        "65535",
        "1e309",
        "NaN",
    ];
    let mut numbers: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    for n in [0, 1, u64::from(u32::MAX), u64::MAX, 1 << 31, 1 << 63] {
        numbers.push(n.to_be_bytes().to_vec());
        numbers.push(n.to_le_bytes().to_vec());
        numbers.push(u32::try_from(n).unwrap_or(u32::MAX).to_be_bytes().to_vec());
    }
    for head in [0xdc, 0xdd, 0xde, 0xdf, 0xc6, 0xdb] {
        numbers.push(vec![head, 0xff, 0xff, 0xff, 0xff]);
    }
    numbers
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let at = any::<Index>;
    let words = [
        ",", "-", "[", "]", ":", "*", "=", "(", ")", "&", "|", "!", "%", "@", "\n", "\0", "\"", "\\", ".", "_", "+",
        "{", "\u{e9}",
    ];
    let word = prop::sample::select(words.map(|word| word.as_bytes().to_vec()).to_vec());
    let edit = prop_oneof![
        (at(), 0..8u8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        (at(), any::<u8>()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        (at(), prop::sample::select(numbers())).prop_map(|(at, number)| Edit::Number(at, number)),
        (at(), vec(any::<u8>(), 1..6)).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (at(), word).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (at(), 1..20u8).prop_map(|(at, count)| Edit::Remove(at, count)),
        (at(), 1..20u8, 1..=255u8).prop_map(|(at, count, times)| Edit::Repeat(at, count, times)),
        (at(), at()).prop_map(|(at, other)| Edit::Splice(at, other)),
    ];
    vec(edit, 1..6)
}

fn edited(inputs: &[Vec<u8>], first: &Index, edits: &[Edit]) -> Vec<u8> {
    let mut input = first.get(inputs).clone();
    for edit in edits {
        let place = |at: &Index, input: &[u8]| at.index(input.len() + 1);
        let end = |from: usize, count: u8, input: &[u8]| (from + usize::from(count)).min(input.len());
        match edit {
            Edit::Flip(at, bit) if !input.is_empty() => *at.get_mut(&mut input) ^= 1 << bit,
            Edit::Set(at, byte) if !input.is_empty() => *at.get_mut(&mut input) = *byte,
            Edit::Flip(..) | Edit::Set(..) => {}
            Edit::Number(at, bytes) => {
                let from = place(at, &input);
                let to = end(from, u8::try_from(bytes.len()).unwrap(), &input);
                input.splice(from..to, bytes.iter().copied());
            }
            Edit::Insert(at, bytes) => {
                let from = place(at, &input);
                input.splice(from..from, bytes.iter().copied());
            }
            Edit::Remove(at, count) => {
                let from = place(at, &input);
                let to = end(from, *count, &input);
                input.drain(from..to);
            }
            Edit::Repeat(at, count, times) => {
                let from = place(at, &input);
                let to = end(from, *count, &input);
                let more = input[from..to].repeat(usize::from(*times));
                input.splice(to..to, more);
            }
            Edit::Splice(at, other) => {
                let from = place(at, &input);
                let other = other.get(inputs);
                input.truncate(from);
                input.extend(&other[from.min(other.len())..]);
            }
        }
        input.truncate(MOST_BYTES);
    }
    input
}

/// How many inputs of each target are tried: `GARRICK_FUZZ_CASES`, for a longer run by hand.
fn cases() -> u32 {
    std::env::var("GARRICK_FUZZ_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(CASES)
}

/// Tries a target; what it says of a shortest bad input, if there is one.
fn tried(target: &'static Target) -> Option<String> {
    let inputs = target.inputs();
    assert!(!inputs.is_empty(), "{} has nothing to begin with", target.name);
    for input in &inputs {
        if let Err(panic) = std::panic::catch_unwind(|| target.run(input)) {
            return Some(format!("{}: \"{}\": {}", target.name, input.escape_ascii(), words(panic.as_ref())));
        }
    }
    let config = Config { cases: cases(), failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome = runner.run(&(any::<Index>(), edits()), |(first, edits)| {
        let input = edited(&inputs, &first, &edits);
        std::panic::catch_unwind(|| target.run(&input))
            .map_err(|panic| TestCaseError::fail(format!("\"{}\": {}", input.escape_ascii(), words(panic.as_ref()))))
    });
    outcome.err().map(|error| match error {
        TestError::Fail(reason, _) => format!("{}: {reason}", target.name),
        abort @ TestError::Abort(_) => format!("{}: {abort}", target.name),
    })
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

#[test]
fn no_input_breaks_a_reader() {
    let only = std::env::var("FUZZ_TARGET").ok();
    let chosen = targets::ALL.iter().filter(|target| only.as_deref().is_none_or(|name| name == target.name));
    // What is found is said once, at the end.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found: Vec<String> = chosen.filter_map(tried).collect();
    std::panic::set_hook(hook);
    assert!(found.is_empty(), "{} targets:\n{}", found.len(), found.join("\n\n"));
}
