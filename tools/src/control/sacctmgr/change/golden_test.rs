//! What a real `sacctmgr` answered, one command after the other, against the rules of the service in memory.

#![allow(clippy::unwrap_used)]
use super::{
    Verb, in_world,
    world::{Changed, Key, World},
};
use garrick_accounts::{
    change::{Actor, Change, apply, fresh, register_cluster},
    records::{RecordsReply, RecordsRequest},
};
use garrick_asking::accounting::AccountsError;
use garrick_model::{
    entities::{Entities, qos::QosPreemptMode},
    time::Timestamp,
};
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

    fn records(&mut self, request: &RecordsRequest) -> Result<RecordsReply, AccountsError> {
        panic!("{request:?} is about no entities")
    }

    fn uid(&self, user: &str) -> Option<u32> {
        let found = ["root", "alice", "bob", "carol", "dave"].iter().position(|known| *known == user)?;
        u32::try_from(found).ok()
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

#[test]
fn past_use_is_reset_beside_whatever_else_is_set() {
    let mut memory = dumped();
    let account = |memory: &Memory, name: &str| memory.entities.account_association("cluster", name).unwrap().clone();
    let physics = account(&memory, "physics");
    let said = memory.run("sacctmgr -i modify account chem set rawusage=0 parent=physics description=moved");
    assert!(said.contains("  C = cluster    A = chem of root\n") && said.ends_with("[exit 0]\n"), "{said}");
    let chem = account(&memory, "chem");
    assert_eq!((chem.parent, chem.usage_reset), (Some(physics.id), Some(NOW)));
    assert_eq!(memory.entities.accounts["chem"].description, "moved");
    // Nothing but that.
    let said = memory.run("sacctmgr -i modify account astro set rawusage=0");
    assert_eq!(said, "No cluster specified, resetting on local cluster cluster\n[exit 0]\n");
    assert_eq!(account(&memory, "astro").usage_reset, Some(NOW));
    // Of all that is on a cluster.
    let said = memory.run("sacctmgr -i modify cluster cluster set rawusage=0");
    assert!(said.ends_with("[exit 0]\n"), "{said}");
    assert_eq!(account(&memory, "root").usage_reset, Some(NOW));
    let said = memory.run("sacctmgr -i modify cluster cluster set rawusage=5");
    assert!(said.contains("Raw usage can only be set to 0 (zero)") && said.ends_with("[exit 1]\n"), "{said}");
}

#[test]
fn a_qos_may_be_preempted_by_priority() {
    let mut memory = dumped();
    let said = memory.run("sacctmgr -i modify qos low set preemptmode=cancel,priority");
    assert!(said.ends_with("[exit 0]\n"), "{said}");
    assert_eq!(memory.entities.qos["low"].preempt_mode, [QosPreemptMode::Cancel, QosPreemptMode::Priority].into());
}

/// Not recorded of Slurm but for what is in the file: what sacctmgr(1) says.
#[test]
fn clusters_join_and_leave_federations() {
    let mut memory = begin();
    for line in ["add cluster second,third", "add federation fed1 clusters=second", "add federation fed2"] {
        let said = memory.run(&format!("sacctmgr -i {line}"));
        assert!(said.ends_with("[exit 0]\n"), "{said}");
    }
    let members = |memory: &Memory, name: &str| -> Vec<(String, u32)> {
        let members = memory.entities.in_federation(name).into_iter();
        members.map(|cluster| (cluster.name.clone(), cluster.fed_index)).collect()
    };
    let member = |name: &str, index| (name.to_owned(), index);
    for cluster in ["cluster", "third"] {
        let said = memory.run(&format!("sacctmgr -i modify federation fed1 set clusters+={cluster}"));
        assert!(said.ends_with(" Modified federation...\n  fed1\n[exit 0]\n"), "{said}");
    }
    memory.run("sacctmgr -i modify federation fed1 set clusters-=cluster");
    assert_eq!(members(&memory, "fed1"), [member("second", 1), member("third", 3)]);
    // The least number that is free; and a cluster is only in one of them.
    memory.run("sacctmgr -i modify cluster cluster set federation=fed1 fedstate=drain");
    assert_eq!(members(&memory, "fed1"), [member("second", 1), member("cluster", 2), member("third", 3)]);
    assert_eq!(memory.entities.clusters["cluster"].fed_state.word(), "DRAIN");
    let said = memory.run("sacctmgr -i modify federation fed2 set clusters=third");
    assert!(said.contains("is in federation 'fed1'") && said.ends_with("[exit 1]\n"), "{said}");
    memory.run("sacctmgr -i modify cluster third set federation=fed2");
    assert_eq!(members(&memory, "fed2"), [member("third", 1)]);
    let said = memory.run("sacctmgr -i modify cluster third set federation=fed9");
    assert!(said.contains("No federation 'fed9'") && said.ends_with("[exit 1]\n"), "{said}");
    for line in ["modify cluster third set federation=", "delete federation fed1"] {
        memory.run(&format!("sacctmgr -i {line}"));
    }
    assert!(members(&memory, "fed1").is_empty() && members(&memory, "fed2").is_empty());
    assert_eq!(memory.run("sacctmgr -i delete federation fed1"), " Nothing deleted\n[exit 1]\n");
    assert_eq!(memory.run("sacctmgr -i add federation fed2"), " Nothing new added.\n[exit 1]\n");
    let said = memory.run("sudo -u alice sacctmgr -i add federation fed3");
    assert!(said.ends_with("[exit 1]\n"), "{said}");
}

/// Takes a load apart: numbers of microseconds are no one's.
fn loaded(memory: &mut Memory, line: &str, file: &str) -> String {
    memory.files = vec![("f.cfg".to_owned(), file.to_owned())];
    let said = memory.run(line);
    let without = said.lines().map(|line| line.split("usec=").next().unwrap().to_owned() + "\n");
    without.collect()
}

/// As the recorded cluster was when it was dumped.
fn dumped() -> Memory {
    let mut memory = begin();
    for line in [
        "add qos high,long,low",
        "add account chem fairshare=7 description='chemistry dept' organization=newsci",
        "add account physics qos=high,long,low,normal description='physics dept' organization=science",
        "add account astro,quantum parent=physics",
        "add user alice account=physics,chem",
        "add user bob account=astro,chem qos=high,normal",
    ] {
        let said = memory.run(&format!("sacctmgr -i {line}"));
        assert!(said.ends_with("[exit 0]\n"), "{said}");
    }
    memory
}

const COPY: &str = "# a comment
QOS - 'normal':Description='Normal QOS default'
QOS - 'first':Description='first':Preempt='second':Priority=100
QOS - 'second':Description='second'
Cluster - 'copy':Classification='Capacity':Fairshare=1:QOS='normal'
Parent - 'root'
User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1
Account - 'chem':Description='chemistry dept':Organization='newsci':Fairshare=7
Account - 'physics':Description='physics dept':Organization='science':Fairshare=1:QOS='high,long,low,normal'
Parent - 'chem'
User - 'alice':DefaultAccount='physics':DefaultWCKey='proj1':WCKeys='proj1,proj2':Fairshare=1
User - 'bob':DefaultAccount='astro':Fairshare=1:QOS='high,normal'
Parent - 'physics'
User - 'alice':DefaultAccount='physics':Fairshare=10
Account - 'astro':Description='astro':Organization='physics':Fairshare=1
Account - 'newacct':Description='loaded':Organization='o':Fairshare=4:GrpTRES=cpu=3
Parent - 'astro'
User - 'bob':Fairshare=1:QOS='high,normal'
Parent - 'newacct'
User - 'bob':Fairshare=2:MaxJobs=3
";

#[test]
fn a_file_is_loaded_once() {
    let mut memory = dumped();
    let first = loaded(&mut memory, "printf 'y\\n' | sacctmgr load file=f.cfg", COPY);
    for part in include_str!("expected/load.txt").split("...\n") {
        assert!(first.contains(part), "{part}\n--- in ---\n{first}");
    }
    let of = |memory: &Memory, user: &str| memory.entities.default_account("copy", user).map(str::to_owned);
    assert_eq!(of(&memory, "alice").as_deref(), Some("physics"));
    assert_eq!(of(&memory, "bob").as_deref(), Some("astro"));
    assert!(memory.entities.qos["first"].preempt.contains("second"));
    let again = loaded(&mut memory, "sacctmgr load f.cfg", COPY);
    assert_eq!(again, "For cluster copy\n Nothing new added.\n[exit 0]\n");
    let other = COPY.replace("DefaultAccount='astro'", "DefaultAccount='newacct'");
    let changed = loaded(&mut memory, "sacctmgr -i load f.cfg", &other);
    let expected = "For cluster copy
 Changed Default Account       for User    bob           astro -> newacct
sacctmgr: Done adding cluster in \n[exit 0]\n";
    assert_eq!(changed, expected);
    assert_eq!(of(&memory, "bob").as_deref(), Some("newacct"));
}

#[test]
fn what_is_wrong_in_a_file_is_told() {
    let mut memory = dumped();
    let mut said = |file: &str| loaded(&mut memory, "sacctmgr -i load file=f.cfg", file);
    assert_eq!(
        said("Cluster - copy\nParent - root\nBogus - x\n"),
        " Misformatted line(3): Bogus - x\n\n Problem with requests: Unspecified error\nFor cluster copy\n[exit 1]\n"
    );
    assert_eq!(
        said("Parent - root\nAccount - x1\n"),
        " You need to specify a cluster name first with 'Cluster - $NAME' in your file\n Nothing new added.\n[exit 1]\n"
    );
    assert_eq!(
        said("Cluster - copy\nParent - nosuch\nUser - bob\n"),
        " line(2) You need to add this parent (nosuch) as a child before you can add children to it.\n\
         For cluster copy\n Nothing new added.\n[exit 1]\n"
    );
    assert_eq!(
        said("Cluster - copy\nParent - root\nAccount - x2:Bogus=3\n"),
        " Unknown option: Bogus=3\n Problem with line(3)\n Problem with requests: Unspecified error\n\
         For cluster copy\n[exit 1]\n"
    );
    let none = memory.run("sacctmgr load file=/nosuch");
    assert!(none.starts_with(" Unable to read \"file=/nosuch\": "), "{none}");
}

#[test]
fn clean_is_asked_about_and_begins_anew() {
    let mut memory = dumped();
    loaded(&mut memory, "sacctmgr -i load f.cfg", COPY);
    let refused = loaded(&mut memory, "printf 'n\\n' | sacctmgr load file=f.cfg clean", COPY);
    let expected = "You requested to flush the cluster before adding it again.
It is advised to not have your slurmctld running while doing this operation.
If you have jobs running on this cluster this operation will abort.
Are you sure you want to continue? (You have 30 seconds to decide)
(N/y): \nAborted\n Nothing new added.\n[exit 0]\n";
    assert_eq!(refused, expected);
    let less = "Cluster - copy\nParent - root\nAccount - chem:Fairshare=2\n";
    let mut unasked = dumped();
    loaded(&mut unasked, "sacctmgr -i load f.cfg", COPY);
    let said = loaded(&mut unasked, "sacctmgr -i load clean file=f.cfg", less);
    assert!(!said.contains("Are you sure") && said.ends_with("[exit 0]\n"), "{said}");
    assert_eq!(unasked.entities.living("copy").count(), 3);
    memory.typed.clear();
    let said = loaded(&mut memory, "printf 'yy' | sacctmgr load f.cfg clean", less);
    assert!(said.ends_with("[exit 0]\n"), "{said}");
    let left: Vec<&str> = memory.entities.living("copy").map(|a| a.account.as_str()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn who_may_not_load_is_told_before_he_is_asked() {
    let mut memory = dumped();
    let said = loaded(&mut memory, "sudo -u alice sacctmgr load f.cfg", COPY);
    assert!(said.contains(" Problem with requests: Access/permission denied\n[exit 1]\n"), "{said}");
}
