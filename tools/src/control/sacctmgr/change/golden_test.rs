//! What a real `sacctmgr` answered, one command after the other, against the rules of the service in memory.

#![allow(clippy::unwrap_used)]
use super::{
    Verb, in_world,
    world::{Changed, Key, World},
};
use garrick_accounts::change::{Actor, Change, apply, fresh, register_cluster};
use garrick_asking::accounting::AccountsError;
use garrick_model::{entities::Entities, time::Timestamp};
use std::{collections::VecDeque, io};

const NOW: Timestamp = Timestamp(1_000_000);

struct Memory {
    entities: Entities,
    actor: Actor,
    said: String,
    typed: VecDeque<u8>,
    end: Key,
    files: Vec<(String, String)>,
}

impl World for Memory {
    fn entities(&mut self) -> Result<Entities, AccountsError> {
        Ok(self.entities.clone())
    }

    fn change(&mut self, change: &Change, version: Option<u64>, only_try: bool) -> Result<Changed, AccountsError> {
        assert!(version.is_none_or(|version| version == self.entities.version));
        let mut next = self.entities.clone();
        let before = next.version;
        let applied = apply(&mut next, change, &self.actor, NOW);
        if applied.is_ok() && !only_try {
            self.entities = next;
        }
        Ok(applied.map(|applied| (applied, before)))
    }

    fn cluster(&self) -> String {
        "cluster".to_owned()
    }

    fn has_uid(&self, user: &str) -> bool {
        ["root", "alice", "bob", "carol", "dave"].contains(&user)
    }

    fn out(&mut self, text: &str) {
        self.said += text;
    }

    fn err(&mut self, text: &str) {
        self.said += text;
    }

    fn key(&mut self) -> Key {
        self.typed.pop_front().map_or_else(|| self.end.clone(), Key::Typed)
    }

    fn read(&mut self, path: &str) -> io::Result<String> {
        let found = self.files.iter().find(|(name, _)| name == path);
        found.map(|(_, text)| text.clone()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn begin() -> Memory {
    let mut entities = fresh(NOW);
    let tres = ["cpu", "mem", "node", "gres/gpu", "gres/gpumem", "gres/gpuutil", "license/matlab"];
    register_cluster(&mut entities, "cluster", NOW, &tres.into_iter().map(|name| (name.to_owned(), 1)).collect());
    Memory {
        entities,
        actor: Actor { name: "root".to_owned(), believed: true },
        said: String::new(),
        typed: VecDeque::new(),
        end: Key::Nothing,
        files: Vec::new(),
    }
}

/// Words of a command line, quotes taken off.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut some) = (Vec::new(), String::new(), false, false);
    for c in line.chars() {
        match c {
            '\'' => (quoted, some) = (!quoted, true),
            ' ' if !quoted => {
                if some || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                some = false;
            }
            c => word.push(c),
        }
    }
    if some || !word.is_empty() {
        words.push(word);
    }
    words
}

impl Memory {
    /// Runs a command line of the file. Gives what it said and its exit code.
    fn run(&mut self, line: &str) -> String {
        let (typed, line) = match line.split_once(" | ") {
            Some((typed, line)) => (Some(typed), line),
            None => (None, line),
        };
        self.end =
            if typed == Some("sleep") { Key::Nothing } else { Key::End("Inappropriate ioctl for device".to_owned()) };
        let typed = typed.and_then(|typed| typed.strip_prefix("printf ")).unwrap_or_default();
        self.typed = typed.trim_matches('\'').replace("\\n", "\n").bytes().collect();
        let (user, line) = match line.strip_prefix("sudo -u ") {
            Some(rest) => rest.split_once(' ').unwrap(),
            None => ("root", line),
        };
        self.actor = Actor { name: user.to_owned(), believed: user == "root" };
        let mut words: Vec<String> = split(line).into_iter().filter(|word| word != "--json").collect();
        assert_eq!(words.remove(0), "sacctmgr");
        let immediate = words[0] == "-i";
        words.drain(..usize::from(immediate));
        let verb = Verb::of(&words[0]).unwrap();
        self.said.clear();
        let code = in_world(verb, &words[1..], immediate, self).unwrap();
        format!("{}[exit {code}]\n", self.said)
    }
}

#[test]
fn answers_are_those_of_slurm() {
    let mut memory = begin();
    let mut lines = include_str!("expected/changes.txt").lines();
    let (mut commands, mut wrong) = (0, String::new());
    while let Some(line) = lines.next() {
        if let Some(line) = line.strip_prefix("! ") {
            let said = memory.run(line);
            assert!(said.ends_with("[exit 0]\n"), "{line}: {said}");
        }
        let Some(command) = line.strip_prefix("$ ") else { continue };
        let mut expected = String::new();
        for line in lines.by_ref() {
            expected += &format!("{line}\n");
            if line.starts_with("[exit ") {
                break;
            }
        }
        commands += 1;
        let said = memory.run(command);
        if said != expected {
            wrong += &format!("$ {command}\n--- Slurm\n{expected}--- ours\n{said}\n");
        }
    }
    assert!(commands > 200, "{commands}");
    assert!(wrong.is_empty(), "{wrong}");
}
