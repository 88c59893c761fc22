//! `topology.conf`: lines of switches, blocks or rings.

use crate::{
    config::syntax::{
        nearest::nearest,
        report::{ConfigReport, Place, SettingError},
        text::{self, Pair, ReadFile},
        values,
    },
    hostlist::HostList,
    topology::{Layout, Switch, Unit},
};
use std::path::Path;

const KEYS: &[&str] = &["SwitchName", "BlockName", "RingName", "Switches", "Nodes", "LinkSpeed", "BlockSizes"];

/// Reads the file as the plugin's. `None`: it cannot be read.
pub(super) fn read(path: &Path, plugin: &str, read_file: &ReadFile<'_>, report: &mut ConfigReport) -> Option<Layout> {
    let before = report.files.len();
    let lines = text::lines(path, read_file, report);
    if report.files.len() == before {
        return None;
    }
    let mut file = File { plugin, ..File::default() };
    for pairs in &lines {
        file.line(pairs, report);
    }
    Some(match plugin {
        "tree" => Layout::Tree { switches: file.switches },
        "block" => Layout::Block { sizes: file.sizes, blocks: file.units },
        _ => Layout::Ring { rings: file.units },
    })
}

#[derive(Default)]
struct File<'p> {
    plugin: &'p str,
    switches: Vec<Switch>,
    units: Vec<Unit>,
    sizes: Vec<u32>,
    /// Where they are.
    sizes_line: Option<u32>,
}

impl File<'_> {
    /// What its lines begin with.
    fn own(&self) -> &'static str {
        match self.plugin {
            "tree" => "SwitchName",
            "block" => "BlockName",
            _ => "RingName",
        }
    }

    /// A key that means nothing where it is.
    fn unknown(&self, pair: &Pair, report: &mut ConfigReport) {
        let own = self.own();
        let wrong = if pair.is(own) || (pair.is("BlockSizes") && self.plugin == "block") {
            SettingError::new(format!("{} begins a line", pair.key)).suggest("put it first on a line of its own")
        } else if pair.is("Nodes")
            || (["Switches", "LinkSpeed"].iter().any(|key| pair.is(key)) && self.plugin == "tree")
        {
            SettingError::new(format!("{} comes after {own} on its line", pair.key))
                .suggest(format!("for example {own}=NAME {}={}", pair.key, pair.value))
        } else if KEYS.iter().any(|key| pair.is(key)) {
            SettingError::new(format!("does not belong to topology/{}", self.plugin))
                .suggest("TopologyPlugin says which kind it is")
        } else {
            let wrong = SettingError::new("unknown key in topology.conf");
            match nearest(&pair.key, KEYS) {
                Some(name) => wrong.suggest(format!("did you mean {name}?")),
                None => wrong,
            }
        };
        report.error(&pair.place, pair.what(), wrong);
    }

    fn line(&mut self, pairs: &[Pair], report: &mut ConfigReport) {
        let Some((head, rest)) = pairs.split_first() else { return };
        let own = self.own();
        if head.is("BlockSizes") && self.plugin == "block" {
            if let Some(line) = self.sizes_line.replace(head.place.line) {
                let wrong = SettingError::new(format!("BlockSizes is on line {line} already; this one counts"));
                report.warning(&head.place, head.what(), wrong.suggest("keep one of them"));
            }
            match sizes(&head.value) {
                Ok(sizes) => self.sizes = sizes,
                Err(wrong) => report.error(&head.place, head.what(), wrong),
            }
            rest.iter().for_each(|pair| self.unknown(pair, report));
            return;
        }
        if !head.is(own) {
            return self.unknown(head, report);
        }
        if head.value.contains('[') {
            let wrong = SettingError::new("is the name of a single unit, brackets and all");
            report.warning(&head.place, head.what(), wrong.suggest(format!("write a line with {own} for each")));
        }
        repeated(rest, report);
        let mut switch = Switch { name: head.value.clone(), line: head.place.line, ..Switch::default() };
        for pair in rest {
            if pair.is("Nodes") {
                list(pair, &mut switch.nodes, report);
            } else if pair.is("Switches") && self.plugin == "tree" {
                list(pair, &mut switch.children, report);
            } else if !(pair.is("LinkSpeed") && self.plugin == "tree") {
                self.unknown(pair, report);
            }
        }
        if self.plugin == "tree" {
            self.switches.push(switch);
        } else {
            self.units.push(Unit { name: switch.name, nodes: switch.nodes, line: switch.line });
        }
    }
}

/// A key that a line has twice: as in Slurm, the last counts.
fn repeated(pairs: &[Pair], report: &mut ConfigReport) {
    for (at, pair) in pairs.iter().enumerate() {
        if pairs[..at].iter().any(|other| other.is(&pair.key)) {
            let wrong = SettingError::new(format!("this line has {} already; the last counts", pair.key));
            report.warning(&pair.place, pair.what(), wrong.suggest("write one list, with commas"));
        }
    }
}

fn list(pair: &Pair, into: &mut HostList, report: &mut ConfigReport) {
    match pair.value.parse::<HostList>() {
        Ok(names) => *into = names,
        Err(e) => report.error(&pair.place, pair.what(), SettingError::new(e.to_string())),
    }
}

fn sizes(text: &str) -> Result<Vec<u32>, SettingError> {
    values::list(text).iter().map(|word| values::number(word, 1, u32::MAX)).collect()
}

/// The line of a place in the same file.
pub(super) fn at(place: &Place, line: u32) -> Place {
    Place { file: place.file.clone(), line }
}
