//! `srun --async --each`: a step for every combination of values. All names are checked before the first step is submitted.

use super::{
    list_line::ListLine,
    parameters::{ParameterError, Parameters},
    template::{Template, Unknown},
};
use crate::options::{
    getopt,
    table::OptionDef,
    typed::{OptionError, Typed},
};
use std::{
    borrow::Cow,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
};

/// A command with places for values.
#[derive(Clone, Debug)]
pub struct Each {
    parameters: Parameters,
    words: Vec<Template>,
    /// Options whose values have places too, by name.
    options: Vec<(&'static str, Template)>,
    /// Parameters that there is a place for.
    used: Vec<bool>,
    /// The combination that is next.
    next: u64,
}

fn wrong(error: ParameterError) -> OptionError {
    match error {
        ParameterError::Read { file, cause } => {
            OptionError::File { what: "Unable to read", path: file, cause: cause.to_string() }
        }
        other => OptionError::Text(other.to_string()),
    }
}

impl Each {
    /// Reads and checks. Options of `typed` that have places for values are taken out of it: they are each step's own.
    pub fn new(typed: &mut Typed, command: &[OsString]) -> Result<Self, OptionError> {
        let parameters = Parameters::new(&typed.each, typed.zip).map_err(wrong)?;
        let unknown = |error: Unknown| OptionError::Text(error.to_string());
        let template = |word: &[u8]| Template::parse(word, parameters.names()).map_err(unknown);
        let words = command.iter().map(|word| template(word.as_bytes())).collect::<Result<Vec<_>, _>>()?;
        let mut options = Vec::new();
        for (name, text) in [
            ("job-name", &mut typed.job_name),
            ("output", &mut typed.output),
            ("error", &mut typed.error),
            ("input", &mut typed.input),
        ] {
            let Some(parsed) = text.as_ref().map(|text| template(text.as_bytes())).transpose()? else { continue };
            if parsed.parameters().next().is_some() {
                options.push((name, parsed));
                *text = None;
            } else {
                *text = Some(String::from_utf8_lossy(&parsed.fill(|_| "")).into_owned());
            }
        }
        let mut used = vec![false; parameters.names().len()];
        let places = words.iter().chain(options.iter().map(|(_, template)| template));
        places.flat_map(Template::parameters).for_each(|parameter| used[parameter] = true);
        if let Some(idle) = (0..used.len()).find(|at| !parameters.is_any_used(*at, &used)) {
            let name = parameters.names().shown(idle);
            return Err(OptionError::Text(format!(
                "{{{name}}} is nowhere in the command: its steps would be the same for every value"
            )));
        }
        Ok(Self { parameters, words, options, used, next: 0 })
    }

    /// How many steps there are.
    pub const fn count(&self) -> u64 {
        self.parameters.count()
    }

    /// The number of the combination that was given last, from 1.
    pub const fn number(&self) -> u64 {
        self.next
    }

    /// The next combination, and its number from 1. `options` are those of `srun`.
    pub fn next(&mut self, options: &[&'static OptionDef]) -> Option<(u64, ListLine<'static>)> {
        if self.next >= self.count() {
            return None;
        }
        let made = self.line(self.next, options);
        self.next += 1;
        Some((self.next, made))
    }

    /// The step of a combination, counted from 0.
    pub fn line(&self, number: u64, options: &[&'static OptionDef]) -> ListLine<'static> {
        let values = self.parameters.values(number);
        let fill = |template: &Template| template.fill(|at| values.get(at).map_or(&b""[..], AsRef::as_ref));
        let mut own = Vec::new();
        for (name, template) in &self.options {
            let value = OsString::from_vec(fill(template));
            own.extend(
                options.iter().find(|def| def.long == *name).map(|def| getopt::Occurrence { def, value: Some(value) }),
            );
        }
        let text: Vec<&[u8]> = own.iter().filter_map(|o| o.value.as_deref()).map(OsStr::as_bytes).collect();
        ListLine {
            options_text: Cow::Owned(text.join(&0)),
            options: own.clone(),
            argv: self.words.iter().map(fill).collect(),
            line: self.parameters.line(number),
            values: self.shown(&values),
            ..ListLine::default()
        }
    }

    /// Another text with places for the values.
    pub fn template(&self, text: &[u8]) -> Result<Template, Unknown> {
        Template::parse(text, self.parameters.names())
    }

    /// That text with the values of a combination, counted from 0.
    pub fn filled(&self, template: &Template, number: u64) -> Vec<u8> {
        let values = self.parameters.values(number);
        template.fill(|at| values.get(at).map_or(&b""[..], AsRef::as_ref))
    }

    /// Combinations, by their numbers from 1, as messages name them.
    pub fn at(&self, first: u64, last: u64) -> String {
        let values = |number: u64| self.shown(&self.parameters.values(number.saturating_sub(1)));
        match first == last {
            true => format!("combination {first} ({})", values(first)),
            false => format!("combinations {first} ({}) to {last} ({})", values(first), values(last)),
        }
    }

    /// `seed=1 size=small`: values that are used, on one line.
    fn shown(&self, values: &[Cow<'_, [u8]>]) -> String {
        let mut shown = String::new();
        for (at, value) in values.iter().enumerate().filter(|(at, _)| self.used[*at]) {
            let value = String::from_utf8_lossy(value);
            if !shown.is_empty() {
                shown.push(' ');
            }
            shown.push_str(&self.parameters.names().shown(at));
            shown.push('=');
            shown.extend(value.chars().map(|c| if c.is_control() { ' ' } else { c }));
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::options::{
        minibatch::EachOption,
        table::{Command, options_of},
    };

    fn each(each: &[&str], typed: Typed, command: &[&str]) -> Result<Each, String> {
        let mut typed =
            Typed { each: each.iter().map(|text| EachOption::Values((*text).to_owned())).collect(), ..typed };
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        Each::new(&mut typed, &command).map_err(|e| e.to_string())
    }

    fn all(mut each: Each) -> Vec<(u64, ListLine<'static>)> {
        let options = options_of(Command::Srun);
        std::iter::from_fn(|| each.next(&options)).collect()
    }

    fn words(line: &ListLine<'_>) -> String {
        let words: Vec<String> = line.argv.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        words.join("|")
    }

    #[test]
    fn every_combination_is_a_command_with_its_values_in_whole_words() {
        let command = ["./simulate", "--seed", "{seed}", "--size={size}", "{{seed}}"];
        let made = each(&["seed=1..2", "size=small,very large;$X"], Typed::default(), &command).unwrap();
        assert_eq!((made.count(), made.at(2, 2).as_str()), (4, "combination 2 (seed=1 size=very large;$X)"));
        let made = all(made);
        let shown: Vec<String> = made.iter().map(|(_, line)| words(line)).collect();
        let of = |seed, size| format!("./simulate|--seed|{seed}|--size={size}|{{seed}}");
        assert_eq!(shown, [of(1, "small"), of(1, "very large;$X"), of(2, "small"), of(2, "very large;$X")]);
        assert_eq!(made.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!((made[2].1.values.as_str(), made[2].1.line), ("seed=2 size=small", None));
        assert_eq!(made[2].1.options_text.as_ref(), b"");
    }

    #[test]
    fn names_and_files_of_steps_may_have_places_too() {
        let text = |text: &str| Some(text.to_owned());
        let typed = Typed { output: text("{1}.out"), error: text("{{e}}"), job_name: text("all"), ..Typed::default() };
        let made = all(each(&["a,b"], typed, &["./x"]).unwrap());
        let options = |line: &ListLine<'_>| {
            let value = |o: &getopt::Occurrence| o.value.clone().unwrap().into_string().unwrap();
            line.options.iter().map(|o| format!("{}={}", o.def.long, value(o))).collect::<Vec<_>>()
        };
        assert_eq!(
            made.iter().map(|(_, line)| options(line)).collect::<Vec<_>>(),
            [["output=a.out"], ["output=b.out"]]
        );
        assert!(made[0].1.options_text != made[1].1.options_text);
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        for (given, command, want) in [
            (
                &["seed=1..3"] as &[&str],
                &["./x", "{sede}"] as &[&str],
                "{sede} is none of the parameters ({seed}); {{sede}} stands for itself",
            ),
            (
                &["seed=1..3", "size=1,2"],
                &["./x", "{seed}"],
                "{size} is nowhere in the command: its steps would be the same for every value",
            ),
            (&["1..3"], &["./x"], "{1} is nowhere in the command: its steps would be the same for every value"),
        ] {
            assert_eq!(each(given, Typed::default(), command).unwrap_err(), want);
        }
    }
}
