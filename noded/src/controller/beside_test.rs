#![allow(clippy::unwrap_used)]
//! What is beside the log, killed between any two of its steps.

use super::beside::{Beside, BesideError};
use crate::daemon::reset_key;
use garrick_actors::log::{Log, memory::MemoryLog};
use garrick_events::event::ControllerEvent;
use garrick_kernel::scratch::Scratch;
use garrick_transport::{
    CertAuthority, IdentityError, JoinServer, Role,
    identity::{Change, Keep, KeepError, Rotation, request_for},
};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

fn open(state: &Scratch, log: &MemoryLog) -> Result<Arc<Beside>, BesideError> {
    Beside::open(state.path(), Arc::new(log.clone()), false).map(Arc::new)
}

/// An authority that is kept beside that log, as a controller starts it.
fn authority(state: &Scratch, log: &MemoryLog) -> CertAuthority {
    let beside = open(state, log).unwrap();
    let made = CertAuthority::open_or_create(&state.join("ca"), "c1").unwrap();
    beside.record().unwrap();
    made.kept_by(beside)
}

fn issue(authority: &CertAuthority, node: &str) -> Result<String, IdentityError> {
    let key = rcgen::KeyPair::generate().unwrap();
    authority.issue(Role::Node, node, &request_for(&key).unwrap())
}

fn put(path: PathBuf, bytes: &[u8]) {
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// All files of the state folder, but for what is under way.
fn files_of(state: &Scratch) -> Vec<(PathBuf, Vec<u8>)> {
    let folders = [state.path().to_owned(), state.join("ca")];
    let paths = folders.iter().flat_map(|folder| names(folder).into_iter().map(|name| folder.join(name)));
    paths.filter(|path| path.is_file()).map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn copy(from: &Scratch, to: &Scratch, folder: &str) {
    let _ = fs::remove_dir_all(to.join(folder));
    fs::create_dir_all(to.join(folder)).unwrap();
    for name in names(&from.join(folder)) {
        fs::copy(from.join(folder).join(&name), to.join(folder).join(&name)).unwrap();
    }
}

#[test]
fn every_change_of_an_authority_is_in_the_log_and_no_secret_is() {
    let (state, log) = (Scratch::new("beside"), MemoryLog::default());
    let authority = Arc::new(authority(&state, &log));
    let named = |log: &MemoryLog| log.value().beside().into_keys().collect::<Vec<_>>();
    assert_eq!(named(&log), ["ca/ca.crt", "ca/ca.pem"]);
    issue(&authority, "n1").unwrap();
    assert_eq!(named(&log), ["ca/ca.crt", "ca/ca.pem", "ca/issued"]);
    let before = log.value().beside();
    authority.revoke(Role::Node, "n1").unwrap();
    assert_ne!(log.value().beside()["ca/issued"], before["ca/issued"]);
    let join = JoinServer::new(Arc::clone(&authority)).unwrap();
    join.create_token(Duration::from_secs(60), None).unwrap();
    for (step, names) in [
        (Some(Rotation::Introduced), vec!["ca/ca.crt", "ca/ca.pem", "ca/issued", "ca/join-tokens", "ca/next.pem"]),
        (Some(Rotation::Issuing), vec!["ca/ca.crt", "ca/ca.pem", "ca/issued", "ca/join-tokens", "ca/previous.pem"]),
        (None, vec!["ca/ca.crt", "ca/ca.pem", "ca/issued", "ca/join-tokens"]),
    ] {
        assert_eq!(authority.rotate().unwrap(), step);
        assert_eq!(named(&log), names);
    }
    // A copy of the log and of these files, wherever, is the same authority.
    let beside = open(&state, &log).unwrap();
    let other = Scratch::new("beside-copy");
    fs::create_dir(other.join("ca")).unwrap();
    for name in named(&log) {
        put(other.join(&name), &beside.read(&name).unwrap().unwrap());
    }
    let again = CertAuthority::open(&other.join("ca")).unwrap();
    assert_eq!((again.trusted(), again.issued()), (authority.trusted(), authority.issued()));
    let said = format!("{:?}", log.events());
    for (path, bytes) in files_of(&state) {
        let text = String::from_utf8_lossy(&bytes);
        for line in text.lines().filter(|line| line.len() > 30 && !line.starts_with("-----")) {
            assert!(!said.contains(line), "of {}: {line}", path.display());
        }
        let private = path.file_name().unwrap() != "ca.crt";
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, if private { 0o600 } else { 0o644 });
    }
    assert_eq!(fs::metadata(state.join("beside")).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(names(&state.join("beside")).is_empty());
}

#[test]
fn who_asks_the_authority_what_it_has_does_not_wait_for_what_it_is_about_to_have() {
    let (state, log) = (Scratch::new("beside-asked"), MemoryLog::default());
    let work = authority(&state, &log);
    issue(&work, "n1").unwrap();
    type Change = fn(&CertAuthority) -> Result<(), IdentityError>;
    let changes: [Change; 2] = [|work| work.revoke(Role::Node, "n1").map(drop), |work| work.rotate().map(drop)];
    for change in changes {
        log.hold(true);
        std::thread::scope(|scope| {
            let changing = scope.spawn(|| change(&work));
            while log.waiting() == 0 {
                std::thread::yield_now();
            }
            let known = (work.rotation(), work.trusted().len(), work.issued().len());
            assert_eq!((known, work.revocation_list().is_ok()), ((None, 1, 1), true));
            log.hold(false);
            changing.join().unwrap().unwrap();
        });
    }
    assert_eq!((work.is_barred(Role::Node, "n1"), work.rotation()), (true, Some(Rotation::Introduced)));
}

/// The log holds a change up, so that the kill comes before its event is committed or after; what the log says decides, whatever was
/// in its place by then.
#[test]
fn a_controller_that_is_killed_between_a_piece_and_its_event_or_after_that_goes_on_by_the_log() {
    for step in 0..4 {
        for committed in [false, true] {
            let (state, log) = (Scratch::new("beside-kill"), MemoryLog::default());
            let work = Arc::new(authority(&state, &log));
            issue(&work, "n1").unwrap();
            for _ in 1..step {
                work.rotate().unwrap();
            }
            let (before, was) = (files_of(&state), log.value().beside());
            log.hold(true);
            let changing = {
                let work = Arc::clone(&work);
                std::thread::spawn(move || match step {
                    0 => work.revoke(Role::Node, "n1").map(drop),
                    _ => work.rotate().map(drop),
                })
            };
            while log.waiting() == 0 {
                std::thread::yield_now();
            }
            assert_eq!(files_of(&state), before, "nothing is in its place yet");
            assert!(!names(&state.join("beside")).is_empty());
            // What the disk has at this moment, with the log as the next process finds it.
            let disk = Scratch::new("beside-killed");
            copy(&state, &disk, "ca");
            copy(&state, &disk, "beside");
            let now = log.crash(usize::from(committed));
            assert!(changing.join().unwrap().is_err(), "nobody was answered");
            let named = now.value().beside();
            assert_eq!(named != was, committed, "step {step}");
            let next = authority(&disk, &now);
            assert_eq!(now.value().beside(), named, "the start itself changes nothing");
            assert!(names(&disk.join("beside")).is_empty());
            match step {
                0 => assert_eq!(next.is_barred(Role::Node, "n1"), committed),
                _ => {
                    let after = [None, Some(Rotation::Introduced), Some(Rotation::Issuing), None];
                    assert_eq!(next.rotation(), after[if committed { step } else { step - 1 }]);
                }
            }
            // As one that was killed later: some are in their places already.
            if committed {
                let later = Scratch::new("beside-killed-later");
                copy(&state, &later, "ca");
                copy(&state, &later, "beside");
                for name in named.keys().filter(|name| was.get(*name) != named.get(*name)).take(1) {
                    fs::rename(later.join("beside").join(&named[name].digest), later.join(name)).unwrap();
                }
                let next_again = authority(&later, &now);
                assert_eq!((next_again.rotation(), next_again.issued()), (next.rotation(), next.issued()));
            }
            // It goes on.
            issue(&next, "n2").unwrap();
            drop(authority(&disk, &now));
        }
    }
}

#[test]
fn what_is_not_as_the_log_says_keeps_a_start_from_going_on_and_says_what_to_do() {
    let (state, log) = (Scratch::new("beside-wrong"), MemoryLog::default());
    let work = authority(&state, &log);
    issue(&work, "n1").unwrap();
    let old = fs::read(state.join("ca/issued")).unwrap();
    work.revoke(Role::Node, "n1").unwrap();
    let right = fs::read(state.join("ca/issued")).unwrap();
    let said = || open(&state, &log).err().unwrap().to_string();
    // An older register, put back by hand: the node would not be revoked any more.
    put(state.join("ca/issued"), &old);
    let text = said();
    for part in ["ca/issued: it is not the version that the log names", "put back what the log names", "-i"] {
        assert!(text.contains(part), "{text}");
    }
    fs::remove_file(state.join("ca/issued")).unwrap();
    assert!(said().contains("ca/issued: it is missing"));
    put(state.join("ca/issued"), &right);
    fs::copy(state.join("ca/ca.pem"), state.join("ca/previous.pem")).unwrap();
    assert!(said().contains("ca/previous.pem: it is there"));
    fs::remove_file(state.join("ca/previous.pem")).unwrap();
    drop(open(&state, &log).unwrap());
    // Told to go by what is there, it does, and the log knows.
    put(state.join("ca/issued"), &old);
    drop(Beside::open(state.path(), Arc::new(log.clone()), true).unwrap());
    assert!(!authority(&state, &log).is_barred(Role::Node, "n1"));
    // Also where the authority was taken away, to be made anew.
    let before = log.value().beside();
    fs::remove_dir_all(state.join("ca")).unwrap();
    assert!(said().contains("ca/ca.pem: it is missing"));
    drop(Beside::open(state.path(), Arc::new(log.clone()), true).unwrap());
    assert!(log.value().beside().is_empty());
    let made = authority(&state, &log);
    assert_ne!((made.fingerprint(), log.value().beside()), (work.fingerprint(), before));
}

/// Some of it was lost, and what was left of it was not enough for the authority: a start with `-i` made a new one.
#[test]
fn what_a_start_that_goes_by_what_is_there_makes_anew_is_what_the_log_names_from_then_on() {
    for killed_between in [false, true] {
        let (state, log) = (Scratch::new("beside-anew"), MemoryLog::default());
        let first = reset_key::kept(state.path()).unwrap();
        let work = authority(&state, &log);
        issue(&work, "n1").unwrap();
        fs::remove_file(state.join("ca/ca.pem")).unwrap();
        put(state.join("reset.key"), b"short");
        assert!(open(&state, &log).is_err());
        let by_what_is_there = || Beside::open(state.path(), Arc::new(log.clone()), true).unwrap();
        let mut beside = by_what_is_there();
        if killed_between {
            // The next one need not be told.
            beside = Arc::into_inner(open(&state, &log).unwrap()).unwrap();
        }
        let key = reset_key::kept(state.path()).unwrap();
        assert_ne!(key, first);
        let made = CertAuthority::open_or_create(&state.join("ca"), "c1").unwrap();
        assert_ne!(made.fingerprint(), work.fingerprint());
        beside.record().unwrap();
        // An ordinary start.
        let next = authority(&state, &log);
        assert_eq!((next.fingerprint(), reset_key::kept(state.path())), (made.fingerprint(), Some(key)));
        assert_eq!(next.issued(), work.issued());
        issue(&next, "n2").unwrap();
    }
}

#[test]
fn what_an_earlier_version_left_is_taken_over_once() {
    let (state, log) = (Scratch::new("beside-earlier"), MemoryLog::default());
    let earlier = CertAuthority::create(&state.join("ca"), "c1").unwrap();
    issue(&earlier, "n1").unwrap();
    state.put("credential.key", "a key");
    let work = authority(&state, &log);
    let names = |log: &MemoryLog| log.value().beside().into_keys().collect::<Vec<_>>();
    assert_eq!(names(&log), ["ca/ca.crt", "ca/ca.pem", "ca/issued", "credential.key"]);
    assert_eq!(work.issued(), earlier.issued());
    let events = log.events().len();
    drop(authority(&state, &log));
    assert_eq!(log.events().len(), events);
    // A new piece later: one that this version did not have, for instance.
    state.put("reset.key", "another");
    drop(authority(&state, &log));
    assert!(names(&log).contains(&"reset.key".to_owned()));
    assert!(
        matches!(log.events().last(), Some(ControllerEvent::Beside { name, piece: Some(_) }) if name == "reset.key")
    );
}

#[test]
fn what_the_log_refuses_changes_nothing_and_is_to_be_asked_for_again() {
    let (state, log) = (Scratch::new("beside-busy"), MemoryLog::default());
    let work = authority(&state, &log);
    issue(&work, "n1").unwrap();
    let before = (files_of(&state), log.events(), work.issued());
    log.busy(Some(Duration::from_secs(3)));
    let error = issue(&work, "n2").unwrap_err();
    assert!(matches!(error, IdentityError::Keep(KeepError::Later { after }) if after == Duration::from_secs(3)));
    assert_eq!((files_of(&state), log.events(), work.issued()), before);
    assert!(names(&state.join("beside")).is_empty());
    log.lose(Some("host2".to_owned()), 0);
    assert!(matches!(work.rotate(), Err(IdentityError::Keep(KeepError::Later { .. }))));
    assert!(names(&state.join("beside")).is_empty());
    log.lead();
    issue(&work, "n2").unwrap();
    assert_eq!(work.issued().len(), 2);
}

/// The log commits it after all, or does not, when whoever asked for it has been told that nobody knows.
#[test]
fn a_change_whose_answer_was_too_late_is_in_its_place_once_it_is_asked_for_again() {
    for committed in [false, true] {
        for other_between in [false, true] {
            let (state, log) = (Scratch::new("beside-late"), MemoryLog::default());
            let work = Arc::new(authority(&state, &log));
            assert_eq!(work.rotate().unwrap(), Some(Rotation::Introduced));
            log.hold(true);
            let changing = {
                let work = Arc::clone(&work);
                std::thread::spawn(move || work.rotate().map(drop))
            };
            while log.waiting() == 0 {
                std::thread::yield_now();
            }
            log.lose(None, usize::from(committed));
            assert!(matches!(changing.join().unwrap(), Err(IdentityError::Keep(KeepError::Failed(_)))));
            log.hold(false);
            log.lead();
            if other_between {
                issue(&work, "n1").unwrap();
            }
            assert_eq!(work.rotate().unwrap(), Some(Rotation::Issuing));
            let mut files = vec!["ca/ca.crt", "ca/ca.pem", "ca/issued", "ca/previous.pem"];
            files.retain(|name| other_between || *name != "ca/issued");
            let named = log.value().beside();
            assert_eq!(named.keys().collect::<Vec<_>>(), files);
            assert_eq!(files_of(&state).len(), named.len(), "committed {committed}, other {other_between}");
            assert!(names(&state.join("beside")).is_empty());
            let next = authority(&state, &log);
            assert_eq!((next.trusted(), next.issued()), (work.trusted(), work.issued()));
            assert_eq!(next.rotate().unwrap(), None);
        }
    }
}

/// A folder elsewhere, as a mount or behind a link.
#[test]
fn an_authority_in_another_file_system_is_kept_as_one_in_the_state_folder() {
    use std::os::unix::fs::{MetadataExt as _, symlink};
    let (state, log) = (Scratch::new("beside-elsewhere"), MemoryLog::default());
    let elsewhere = PathBuf::from(format!("/dev/shm/garrick-beside-{}", std::process::id()));
    let _ = fs::remove_dir_all(&elsewhere);
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, state.join("ca")).unwrap();
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    let another = device(&elsewhere) != device(state.path());
    let work = authority(&state, &log);
    let kept = issue(&work, "n1").and_then(|_| work.rotate()).and_then(|_| work.rotate());
    let next = authority(&state, &log);
    let same = (next.trusted(), next.issued()) == (work.trusted(), work.issued());
    fs::remove_dir_all(&elsewhere).unwrap();
    assert_eq!(kept.unwrap(), Some(Rotation::Issuing), "another file system: {another}");
    assert!(same && names(&state.join("beside")).is_empty());
}

/// A version that may yet be named stays, whatever else is changed meanwhile or refused.
#[test]
fn a_change_of_which_nobody_knows_keeps_its_version_until_the_log_has_decided() {
    let (state, log) = (Scratch::new("beside-doubt"), MemoryLog::default());
    let beside = open(&state, &log).unwrap();
    let keep = |name: &str, bytes: &[u8]| beside.keep(vec![Change::private(state.join(name), bytes.to_vec())]);
    keep("reset.key", b"one").unwrap();
    log.hold(true);
    std::thread::scope(|scope| {
        let changing = scope.spawn(|| keep("reset.key", b"two"));
        while log.waiting() == 0 {
            std::thread::yield_now();
        }
        log.lose(None, 0);
        assert!(changing.join().unwrap().is_err());
    });
    log.hold(false);
    log.busy(Some(Duration::from_secs(1)));
    assert!(matches!(keep("reset.key", b"two"), Err(IdentityError::Keep(KeepError::Later { .. }))));
    log.busy(None);
    keep("credential.key", b"another").unwrap();
    assert_eq!(names(&state.join("beside")).len(), 1, "it may be committed yet");
    assert_eq!(fs::read(state.join("reset.key")).unwrap(), b"one");
    keep("reset.key", b"two").unwrap();
    assert_eq!(fs::read(state.join("reset.key")).unwrap(), b"two");
    assert!(names(&state.join("beside")).is_empty());
}

#[test]
fn a_file_that_is_no_piece_is_not_kept_beside_the_log() {
    let (state, log) = (Scratch::new("beside-unknown"), MemoryLog::default());
    let beside = open(&state, &log).unwrap();
    for name in ["ca/else", "ca/../../ca.pem", "journal"] {
        let refused = beside.keep(vec![Change::private(state.join(name), b"x".to_vec())]).unwrap_err();
        assert!(refused.to_string().contains("no piece"), "{refused}");
    }
    assert!(log.events().is_empty());
}

#[test]
#[ignore = "prints times: of a certificate, with the register in its folder alone, as before, and beside a log in files"]
fn certificates_per_second() {
    use std::time::Instant;
    const REGISTERED: usize = 5000;
    let entry = |n: usize| {
        let issued = 1_790_000_000;
        format!(
            "{{\"serial\":\"{n:032x}\",\"role\":\"node\",\"name\":\"n{n}\",\"issued\":{issued},\"expires\":{}}}\n",
            issued + 63_158_400
        )
    };
    let register: String = (0..REGISTERED).map(entry).collect();
    let made = |folder: &Scratch| {
        drop(CertAuthority::create(&folder.join("ca"), "c1").unwrap());
        put(folder.join("ca/issued"), register.as_bytes());
        CertAuthority::open(&folder.join("ca")).unwrap()
    };
    let (before, now) = (Scratch::new("issue-before"), Scratch::new("issue-now"));
    let alone = made(&before);
    let (log, thread) = super::log_test::in_files(now.path());
    let made = made(&now);
    let beside = Arc::new(Beside::open(now.path(), Arc::clone(&log) as _, false).unwrap());
    beside.record().unwrap();
    let kept = made.kept_by(Arc::clone(&beside) as _);
    for round in 0..5 {
        let [alone, kept] = [&alone, &kept].map(|authority| {
            let began = Instant::now();
            (0..20).for_each(|n| drop(issue(authority, &format!("x{n}")).unwrap()));
            began.elapsed() / 20
        });
        println!(
            "round {round}: {REGISTERED} certificates, {} bytes: {alone:?} each before, {kept:?} now",
            register.len()
        );
    }
    assert_eq!(alone.issued().len(), kept.issued().len());
    drop((kept, beside, log));
    thread.join().unwrap();
}
