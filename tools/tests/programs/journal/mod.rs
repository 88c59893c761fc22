//! The real `garrick journal` on the saved samples and on damaged copies of them: whole standard output, standard error and
//! exit codes.

#![allow(clippy::unwrap_used)]

use garrick_events::event::ControllerEvent;
use garrick_events::steps::event::StepEvent;
use garrick_journal::Reader;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A folder with copies of the samples, gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("garrick-journal-command-{}-{n}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        for kind in ["controller", "steps"] {
            let sample = format!("../noded/journal/tests/data/version-1-{kind}.journal");
            fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join(sample), path.join(kind)).unwrap();
        }
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A changed copy of a sample.
    fn changed(&self, kind: &str, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = fs::read(self.file(kind)).unwrap();
        change(&mut bytes);
        fs::write(self.file("changed"), &bytes).unwrap();
        bytes
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_garrick"));
        command.arg("journal").args(words.split_whitespace()).current_dir(&self.0).stdin(Stdio::null());
        command.env_clear().env("TZ", "UTC");
        command
    }

    /// Standard output, standard error, exit code.
    fn journal(&self, words: &str) -> (String, String, i32) {
        let output = self.command(words).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr), output.status.code().unwrap())
    }

    fn offsets(&self, kind: &str) -> Vec<usize> {
        let mut reader = Reader::open(&self.file(kind)).unwrap();
        let mut offsets = Vec::new();
        while let Some(record) = reader.next_record().unwrap() {
            offsets.push(record.offset as usize);
        }
        offsets
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn show_says_a_line_for_each_record() {
    let folder = Folder::new();
    for (kind, expected) in [("controller", include_str!("controller.show")), ("steps", include_str!("steps.show"))] {
        let (out, err, code) = folder.journal(&format!("show {kind}"));
        assert_eq!((out.as_str(), err.as_str(), code), (expected, "", 0));
    }
}

#[test]
fn show_says_which_version_of_a_piece_beside_the_log_counts() {
    let folder = Folder::new();
    let sample = "../noded/journal/tests/data/version-2-beside.journal";
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join(sample), folder.file("beside")).unwrap();
    let (out, err, code) = folder.journal("show beside");
    assert_eq!((err.as_str(), code), ("", 0));
    let said: Vec<&str> = out.lines().filter_map(|line| Some(line.split_once("piece ")?.1)).collect();
    let version = |digit: &str, bytes: u32| format!("sha256={} bytes={bytes}", digit.repeat(64));
    let expected = [
        ("ca/ca.pem", version("a", 1024)),
        ("credential.key", version("0", 65)),
        ("ca/previous.pem", version("a", 1024)),
        ("ca/ca.pem", version("b", 1026)),
        ("ca/next.pem", "gone".to_owned()),
        ("ca/previous.pem", "gone".to_owned()),
    ];
    assert_eq!(said.len(), expected.len(), "{out}");
    for (said, (name, about)) in said.iter().zip(expected) {
        assert!(said.starts_with(name) && said.contains(" Beside ") && said.ends_with(&about), "{said}");
    }
}

#[test]
fn show_says_what_a_job_comes_to_that_was_changed_and_export_has_all_of_it() {
    let folder = Folder::new();
    let sample = "../noded/journal/tests/data/version-2-revised.journal";
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join(sample), folder.file("revised")).unwrap();
    let (out, err, code) = folder.journal("show revised");
    assert_eq!((err.as_str(), code), ("", 0));
    let lines: Vec<&str> = out.lines().filter(|line| line.contains(" Revised ")).collect();
    assert_eq!(lines.len(), 2, "{out}");
    let said = "priority=77 limit=UNLIMITED nodes=2-6 tasks=3 cpus=15 memory=PerCpu(MemoryMib(70))";
    assert!(lines[0].contains("job 71") && lines[0].contains(said) && lines[0].contains(" dependencies="), "{out}");
    assert!(lines[1].contains("job 72") && lines[1].ends_with(said) && lines[1].contains("name=\"task\""), "{out}");
    let (out, _, code) = folder.journal("export revised");
    let exported: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let saved = exported.iter().find_map(|line| line.pointer("/event/Job/event/Revised")).unwrap();
    assert_eq!((code, &saved["resolved"]["cpus"], &saved["terms"]["site"]), (0, &Value::from(15), &Value::from(-5)));
}

#[test]
fn show_takes_the_records_of_a_job_and_the_last_lines() {
    let folder = Folder::new();
    let whole = include_str!("controller.show");
    let last: String = whole.split_inclusive('\n').skip(37).collect();
    assert_eq!(folder.journal("show --lines 2 controller"), (last, String::new(), 0));
    let about: String =
        whole.split_inclusive('\n').filter(|l| l.contains(" job 13 ") || l.contains("job=13")).collect();
    assert_eq!(about.lines().count(), 4);
    assert_eq!(folder.journal("show --job 13 controller"), (about, String::new(), 0));
    let (out, err, code) = folder.journal("show --job 11 steps");
    assert_eq!((out.as_str(), code), ("", 2));
    assert!(err.contains("which is of one job"), "{err}");
}

#[test]
fn verify_says_what_it_is_and_that_it_is_whole() {
    let folder = Folder::new();
    let controller = "file: controller\nkind: controller\nversion: 1\nrecords: 38\nbytes: 14519\n\
                      first: 2026-11-21T10:00:51\nlast: 2026-11-21T10:01:41\nok\n";
    assert_eq!(folder.journal("verify controller"), (controller.to_owned(), String::new(), 0));
    let steps = "file: steps\nkind: steps\nversion: 1\nrecords: 28\nbytes: 5919\n\
                 first: 2026-11-21T10:00:51\nlast: 2026-11-21T10:01:22\nok\n";
    assert_eq!(folder.journal("verify steps"), (steps.to_owned(), String::new(), 0));
    fs::write(folder.file("empty"), b"").unwrap();
    let (out, err, code) = folder.journal("verify empty");
    assert_eq!((err.as_str(), code), ("", 0));
    assert!(out.contains("records: 0\nbytes: 0\ntorn: its creation was cut short"), "{out}");
}

/// What its earlier writer appended late: `show` leaves it out, `export` marks it.
#[test]
fn a_record_of_a_fenced_writer_is_told_by_all() {
    let folder = Folder::new();
    let sample = "../noded/journal/tests/data/version-2-controller.journal";
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join(sample), folder.file("epochs")).unwrap();
    let mut reader = Reader::open(&folder.file("epochs")).unwrap();
    while reader.next_record().unwrap().is_some() {}
    let late = reader.late().first.clone().unwrap();
    let said = format!(
        "the record at byte {} of epochs is of epoch 3, and 4 had begun: its writer was fenced, and it does not count",
        late.offset
    );
    let (out, err, code) = folder.journal("verify epochs");
    assert_eq!((err.as_str(), code), ("", 0));
    assert!(out.contains("version: 2\nrecords: 41\n"), "{out}");
    assert!(out.ends_with(&format!("\nepoch: 4\nfenced: 1: {said}\nok\n")), "{out}");
    let (out, err, code) = folder.journal("show epochs");
    assert_eq!((err, code), (format!("garrick journal: 1 left out: {said}\n"), 0));
    let essentials = |line: &str| line[12..].to_owned();
    let before: Vec<String> = include_str!("controller.show").lines().map(essentials).collect();
    let shown: Vec<String> = out.lines().map(essentials).collect();
    assert_eq!(shown[..before.len()], before[..]);
    assert_eq!(shown.len(), before.len() + 2, "{out}");
    assert!(!out.contains(&format!("{:>10}  ", late.offset)), "{out}");
    let (out, err, code) = folder.journal("export epochs");
    assert_eq!((err.as_str(), code, out.lines().count()), ("", 0, 41));
    for line in out.lines() {
        let exported: Value = serde_json::from_str(line).unwrap();
        let number = exported["record"].as_u64().unwrap();
        assert_eq!(exported["epoch"], Value::from(if number == 38 || number == 40 { 4 } else { 3 }));
        assert_eq!(exported.get("fenced"), (number == 39).then_some(&Value::Bool(true)));
        assert_eq!(exported["offset"] == late.offset, number == 39);
    }
}

#[test]
fn a_torn_end_is_told_by_all_and_left_as_it_is() {
    let folder = Folder::new();
    for kind in ["controller", "steps"] {
        let last = *folder.offsets(kind).last().unwrap();
        let bytes = folder.changed(kind, |bytes| bytes.truncate(last + 30));
        let (out, err, code) = folder.journal("verify changed");
        assert_eq!((err.as_str(), code), ("", 0));
        let torn = format!(
            "torn: the last record, at byte {last}, is not whole; its daemon is writing it now, or cuts 30 bytes off at its \
             next start\nok\n"
        );
        assert!(out.ends_with(&torn), "{out}");
        for action in ["show", "export"] {
            let (out, err, code) = folder.journal(&format!("{action} changed"));
            assert_eq!((out.lines().count() + 1, code), (folder.offsets(kind).len(), 0));
            assert!(err.contains(&format!("the last record, at byte {last}, is not whole: 30 bytes")), "{err}");
        }
        assert_eq!(fs::read(folder.file("changed")).unwrap(), bytes);
    }
}

#[test]
fn damage_is_told_with_its_place_and_the_ways_out() {
    let folder = Folder::new();
    for kind in ["controller", "steps"] {
        let offsets = folder.offsets(kind);
        let bytes = folder.changed(kind, |bytes| bytes[offsets[10] + 12] ^= 1);
        let (out, err, code) = folder.journal("verify changed");
        assert_eq!((err.as_str(), code), ("", 1));
        let (at, after) = (offsets[10], bytes.len() - offsets[11]);
        let damaged = format!(
            "damaged: record 10 at byte {at}, {after} bytes follow it: its checksum does not match\n\
             its daemon has to be down for either of these ways out:\n"
        );
        assert!(out.contains(&damaged), "{out}");
        assert!(out.contains(&format!("truncate --size={at} changed; ")) && !out.contains("\nok\n"), "{out}");
        for action in ["show", "export"] {
            let (out, err, code) = folder.journal(&format!("{action} changed"));
            assert_eq!((out.lines().count(), code), (10, 1));
            assert!(err.contains(&format!("damaged at byte {at} (record 10, {after} bytes follow)")), "{err}");
        }
        assert_eq!(fs::read(folder.file("changed")).unwrap(), bytes);
    }
}

#[test]
fn a_wrong_length_with_records_behind_it_is_not_taken_for_a_torn_end() {
    let folder = Folder::new();
    let offsets = folder.offsets("steps");
    folder.changed("steps", |bytes| bytes[offsets[10] + 1] = 1);
    let (out, err, code) = folder.journal("verify changed");
    assert_eq!((err.as_str(), code), ("", 1));
    let (at, behind) = (offsets[10], offsets[11]);
    assert!(out.contains(&format!("damaged: record 10 at byte {at}, ")), "{out}");
    assert!(out.contains(&format!("more than there are, and whole records follow at byte {behind}\n")), "{out}");
}

#[test]
fn other_files_newer_ones_and_wrong_arguments_are_refused() {
    let folder = Folder::new();
    folder.changed("steps", |bytes| bytes[8] = 3);
    for (words, said) in [
        ("verify changed", "its version is 3, this program's is 2"),
        ("show changed", "its version is 3"),
        ("export changed", "its version is 3"),
        ("verify .", "it is a folder"),
        ("verify gone", "cannot open journal gone"),
        ("repair steps", "none of show, verify, export"),
        ("verify", "one file"),
    ] {
        let (out, err, code) = folder.journal(words);
        assert_eq!((out.as_str(), code), ("", 2), "{words}");
        assert!(err.contains(said), "{words}: {err}");
    }
    fs::write(folder.file("other"), b"PK\x03\x04 something else entirely").unwrap();
    let (_, err, code) = folder.journal("verify other");
    assert_eq!(code, 2);
    assert!(err.contains(r#"it begins with "PK\x03\x04 som""#), "{err}");
}

#[test]
fn export_has_every_field_of_every_event() {
    fn events<T: DeserializeOwned + Serialize>(path: &Path) -> Vec<Value> {
        let mut reader = Reader::open(path).unwrap();
        let mut events = Vec::new();
        while let Some(record) = reader.next_record().unwrap() {
            events.push(serde_json::to_value(record.decode::<T>().unwrap()).unwrap());
        }
        events
    }
    /// Whether a field says nothing: what came after the samples were written is read so.
    fn says_nothing(value: &Value) -> bool {
        match value {
            Value::Array(list) => list.is_empty(),
            Value::Object(fields) => fields.values().all(says_nothing),
            Value::String(text) => text.is_empty(),
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::Bool(set) => !set,
            Value::Null => true,
        }
    }
    /// Equal but for bytes, which serde_json alone writes as lists of numbers.
    fn same(exported: &Value, event: &Value) -> bool {
        let bytes = |list: &[Value]| list.iter().map(|n| n.as_u64().unwrap() as u8).collect::<Vec<u8>>();
        match (exported, event) {
            (Value::String(text), Value::Array(list)) => text.as_bytes() == bytes(list),
            (Value::Object(hex), Value::Array(list)) => {
                hex["hex"] == bytes(list).iter().map(|b| format!("{b:02x}")).collect::<String>()
            }
            (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
            (Value::Object(a), Value::Object(b)) => {
                a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
                    && b.iter().all(|(name, b)| a.contains_key(name) || says_nothing(b))
            }
            _ => exported == event,
        }
    }
    let folder = Folder::new();
    for (kind, events) in [
        ("controller", events::<ControllerEvent>(&folder.file("controller"))),
        ("steps", events::<StepEvent>(&folder.file("steps"))),
    ] {
        let (out, err, code) = folder.journal(&format!("export {kind}"));
        assert_eq!((err.as_str(), code, out.lines().count()), ("", 0, events.len()));
        for (number, (line, event)) in out.lines().zip(&events).enumerate() {
            let exported: Value = serde_json::from_str(line).unwrap();
            assert_eq!((&exported["record"], &exported["journal"]), (&Value::from(number), &Value::from(kind)));
            assert_eq!(exported["offset"], Value::from(folder.offsets(kind)[number]));
            assert!(same(&exported["event"], event), "record {number}: {line}");
        }
    }
}

#[test]
fn a_reader_that_goes_away_is_a_normal_end() {
    let folder = Folder::new();
    garrick_journal::replace(&folder.file("long"), vec![StepEvent::Restarted; 20_000]).unwrap();
    for action in ["show", "export"] {
        let mut command = folder.command(&format!("{action} long"));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("Restarted"));
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((said.as_str(), child.wait().unwrap().code()), ("", Some(0)));
    }
}
