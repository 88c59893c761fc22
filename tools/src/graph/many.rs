//! How many steps one description stands for: the keys `array`, `each`, `each-csv` and `zip`.

use super::{
    tree::{Entry, Value},
    written::{Many, Reader, Setting, Step},
};
use crate::{
    options::{minibatch::EachOption, typed::Typed},
    step_lists::{each::Each, template::is_name},
};
use std::{ffi::OsString, os::unix::ffi::OsStringExt as _, path::PathBuf};

impl Reader<'_> {
    /// How many steps it is, and the command of each. False: that makes no sense.
    pub(super) fn many(&mut self, step: &mut Step, entries: &[Entry], command: Vec<Vec<u8>>) -> bool {
        let find = |key: &str| entries.iter().find(|entry| entry.key == key);
        let each: Vec<EachOption> = self.each(find("each"), find("each-csv"));
        let (array, given) = (find("array"), find("each").or_else(|| find("each-csv")));
        let good = match (array, given, find("zip")) {
            (Some(array), Some(each), _) => {
                self.say(array.line.max(each.line), "\"array\" and \"each\" do not go together");
                false
            }
            (_, None, Some(zip)) => {
                self.say(zip.line, "\"zip\" needs \"each\"");
                false
            }
            (Some(array), None, None) => match self.text(array).map(|text| text.parse()) {
                Some(Ok(tasks)) => {
                    step.many = Many::Array(tasks);
                    true
                }
                Some(Err(error)) => {
                    self.say(array.line, format!("\"array\": {error}"));
                    false
                }
                None => false,
            },
            (None, Some(given), zip) if !each.is_empty() && !command.is_empty() => {
                let zip = match zip.map(|entry| (entry.line, &entry.node.value)) {
                    None => false,
                    Some((_, Value::Truth(zip))) => *zip,
                    Some((line, other)) => {
                        self.say(line, format!("\"zip\" is true or false, not {}", other.kind()));
                        return false;
                    }
                };
                return self.combinations(step, given.line, Typed { each, zip, ..Typed::default() }, command);
            }
            (None, Some(_), _) => false,
            (None, None, None) => true,
        };
        step.argv = command;
        good
    }

    /// A step for every combination. Options with places for values are each step's own.
    fn combinations(&mut self, step: &mut Step, line: u32, mut typed: Typed, command: Vec<Vec<u8>>) -> bool {
        let text = |name: &str| step.option(name).map(|value| value.to_string_lossy().into_owned());
        (typed.output, typed.error, typed.input) = (text("output"), text("error"), text("input"));
        let words: Vec<OsString> = command.into_iter().map(OsString::from_vec).collect();
        match Each::new(&mut typed, &words) {
            Ok(each) => step.many = Many::Each(Box::new(each)),
            Err(error) => {
                self.say(line, error.to_string());
                return false;
            }
        }
        for (name, text) in [("output", typed.output), ("error", typed.error), ("input", typed.input)] {
            match text {
                None => step.settings.retain(|setting| setting.option.def.long != name),
                Some(text) => {
                    let of = |setting: &&mut Setting| setting.option.def.long == name;
                    step.settings.iter_mut().filter(of).for_each(|s| s.option.value = Some(OsString::from(&text)));
                }
            }
        }
        true
    }

    fn each(&mut self, each: Option<&Entry>, csv: Option<&Entry>) -> Vec<EachOption> {
        let mut all = Vec::new();
        if let Some(entry) = each {
            let Value::Table(parameters) = &entry.node.value else {
                let what = entry.node.value.kind();
                self.say(entry.line, format!("\"each\" is a table of names with their values, not {what}"));
                return all;
            };
            if parameters.is_empty() {
                self.say(entry.line, "\"each\" has no parameter");
            }
            for parameter in parameters {
                let words = self.texts(parameter);
                if let (Value::List(_), Some((line, word))) =
                    (&parameter.node.value, words.iter().find(|(_, word)| word.contains(',')))
                {
                    self.say(*line, format!("\"{word}\": a value with a comma in it comes from a file (\"@FILE\")"));
                }
                if !is_name(&parameter.key) {
                    let what = "is no name for a parameter (letters, digits, _ and -, a letter first)";
                    self.say(parameter.line, format!("\"{}\" {what}", parameter.key));
                    return Vec::new();
                }
                let words: Vec<String> = words.into_iter().map(|(_, word)| word).collect();
                let mut text = words.join(",");
                if let Some(file) = text.strip_prefix('@').filter(|file| !file.is_empty()) {
                    let Some(file) = self.value_file(parameter, file) else { return Vec::new() };
                    text = format!("@{}", file.display());
                }
                all.push(EachOption::Values(format!("{}={text}", parameter.key)));
            }
        }
        if let Some(entry) = csv {
            let Some(file) = self.text(entry) else { return Vec::new() };
            let Some(file) = self.value_file(entry, &file) else { return Vec::new() };
            all.push(EachOption::Csv(file.into_os_string()));
        }
        all
    }

    /// A file with values.
    fn value_file(&mut self, entry: &Entry, file: &str) -> Option<PathBuf> {
        if file == "-" {
            self.say(entry.line, "values come from a file, and not from standard input (-)");
            return None;
        }
        Some(self.dir.join(file))
    }
}
