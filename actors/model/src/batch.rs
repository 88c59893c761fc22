//! What minibatch hands over: many steps in one message, what they wait for, and when they are tried again. Arrays are
//! ranges and lists are one block of text, so that a queued step costs a few bytes until it starts.

use crate::{
    bounded,
    ids::{RequestId, StepKey},
    spec::{ArraySpec, EnvEntry, StepSpec},
    step_selector::WhichSteps,
};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Most specifications in a batch. Lists are handed over in parts of at most half as many lines.
const MOST_SPECS: usize = 20_000;

/// Steps handed over together, in the order in which they get their numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepBatch {
    /// What is asked for. At least one.
    #[serde(deserialize_with = "bounded::list::<_, _, MOST_SPECS>")]
    pub specs: Vec<StepSpec>,
    /// Which steps are made of them.
    pub members: BatchMembers,
}

/// The steps of a batch.
#[allow(clippy::large_enum_variant, reason = "there is one to a request of thousands of steps")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BatchMembers {
    /// Each spec is one step.
    Each,
    /// All are tasks of one step array, made of the only spec: one number, ids `5609.7_123`.
    Array(ArraySpec),
    /// Each command is one step; the spec gives all but its program and arguments.
    Commands(CommandList),
}

/// Commands, packed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandList {
    /// Program and arguments of every command, one after the other, each closed by a zero byte.
    pub text: ByteBuf,
    /// Where each command ends in `text`.
    pub ends: Vec<u32>,
    /// Which spec the commands have, run by run: so many commands, index of the spec. Adds up to the number of commands.
    pub specs: Vec<(u32, u32)>,
    /// Lines of the list's file, run by run: from this command on, lines from this number on; 0: of no line. Nothing: none has
    /// one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<(u32, u32)>,
    /// What each was made of, as it is shown: `seed=1 size=small`.
    #[serde(default, skip_serializing_if = "CommandTexts::is_empty")]
    pub values: CommandTexts,
    /// Names of their own.
    #[serde(default, skip_serializing_if = "CommandTexts::is_empty")]
    pub names: CommandTexts,
    /// Variables of their own, `NAME=value`, each closed by a zero byte.
    #[serde(default, skip_serializing_if = "CommandTexts::is_empty")]
    pub environments: CommandTexts,
}

/// A text for some of the commands of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandTexts {
    /// All of them, one after the other.
    text: String,
    /// Where that of each command ends in `text`. Commands behind the last of them have none.
    ends: Vec<u32>,
}

impl CommandTexts {
    /// No command has one.
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// That of a command, if it has one.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)? as usize;
        let begin = index.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |e| *e as usize);
        self.text.get(begin..end).filter(|text| !text.is_empty())
    }

    /// Gives one to a command. Commands come in order; those that are left out have none.
    fn set(&mut self, index: usize, text: &str) {
        if !text.is_empty() && index >= self.ends.len() {
            self.ends.resize(index, self.text.len() as u32);
            self.text.push_str(text);
            self.ends.push(self.text.len() as u32);
        }
    }

    fn is_sound(&self, commands: usize) -> bool {
        self.ends.len() <= commands
            && self.ends.is_sorted()
            && self.ends.iter().all(|end| self.text.is_char_boundary(*end as usize))
            && self.ends.last().map_or(0, |end| *end as usize) == self.text.len()
    }
}

/// A batch that does not hold together. Nothing of it is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Nothing in it.
    #[error("no step is in the request")]
    Empty,
    /// An array or list with the wrong number of specs, or a spec that is not there.
    #[error("the request names a step specification that it does not hold")]
    Specs,
    /// Ends that do not ascend, text that is not closed, or lines and texts of commands that are not there.
    #[error("the commands of the request are damaged")]
    Text,
    /// Array indices that are out of order or too large.
    #[error("invalid step array specification")]
    Array,
}

impl CommandList {
    /// Appends a command made of the spec with this index.
    pub fn push<A: AsRef<[u8]>>(&mut self, argv: impl IntoIterator<Item = A>, spec: u32) {
        for arg in argv {
            self.text.extend_from_slice(arg.as_ref());
            self.text.push(0);
        }
        self.ends.push(self.text.len() as u32);
        match self.specs.last_mut() {
            Some((count, last)) if *last == spec => *count += 1,
            _ => self.specs.push((1, spec)),
        }
    }

    /// Appends a command of another list, with all that is known of it, made of the spec with this index.
    pub fn push_from(&mut self, other: &Self, index: usize, spec: u32) {
        self.push(other.argv(index), spec);
        if let Some(line) = other.line(index) {
            self.set_line(line);
        }
        self.set_values(other.values(index).unwrap_or_default());
        self.set_name(other.name(index).unwrap_or_default());
        self.set_environment(other.environments.get(index).unwrap_or_default());
    }

    /// The command that was appended last comes from this line of the list's file, counted from 1.
    pub fn set_line(&mut self, line: u32) {
        let Some(last) = self.len().checked_sub(1) else { return };
        if self.line(last) == Some(line) {
            return;
        }
        // Those before it count on by themselves; if they have no line, that is said.
        if self.lines.is_empty() && last > 0 {
            self.lines.push((0, 0));
        }
        self.lines.push((last as u32, line));
    }

    /// What the command that was appended last was made of.
    pub fn set_values(&mut self, values: &str) {
        self.values.set(self.len().saturating_sub(1), values);
    }

    /// The name of the command that was appended last.
    pub fn set_name(&mut self, name: &str) {
        self.names.set(self.len().saturating_sub(1), name);
    }

    /// Variables of the command that was appended last, `NAME=value`, each closed by a zero byte.
    pub fn set_environment(&mut self, variables: &str) {
        self.environments.set(self.len().saturating_sub(1), variables);
    }

    /// The line of the list's file that a command comes from, counted from 1.
    pub fn line(&self, index: usize) -> Option<u32> {
        let index = u32::try_from(index).ok().filter(|_| index < self.len())?;
        let run = self.lines.partition_point(|(from, _)| *from <= index).checked_sub(1)?;
        let (from, line) = self.lines[run];
        if line == 0 { None } else { line.checked_add(index - from) }
    }

    /// What a command was made of, as it is shown.
    pub fn values(&self, index: usize) -> Option<&str> {
        self.values.get(index)
    }

    /// The name of its own that a command has.
    pub fn name(&self, index: usize) -> Option<&str> {
        self.names.get(index)
    }

    /// Variables that a command has beside those of its spec.
    pub fn environment(&self, index: usize) -> impl Iterator<Item = EnvEntry> + '_ {
        let text = self.environments.get(index).unwrap_or_default();
        text.split_terminator('\0').map(|entry| EnvEntry::from(entry.as_bytes().to_vec()))
    }

    /// Bytes of all texts in it.
    pub fn bytes(&self) -> usize {
        let texts = [&self.values, &self.names, &self.environments];
        self.text.len() + texts.iter().map(|texts| texts.text.len()).sum::<usize>()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Program and arguments of a command.
    pub fn argv(&self, index: usize) -> Vec<ByteBuf> {
        let end = self.ends.get(index).map_or(0, |e| *e as usize);
        let begin = index.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |e| *e as usize);
        let text = self.text.get(begin..end).unwrap_or_default();
        let text = text.strip_suffix(&[0]).unwrap_or(text);
        text.split(|b| *b == 0).map(|arg| ByteBuf::from(arg.to_vec())).collect()
    }

    fn check(&self, specs: usize) -> Result<(), BatchError> {
        let ascending = self.ends.first().is_some_and(|e| *e > 0) && self.ends.windows(2).all(|w| w[0] < w[1]);
        let closed = self.ends.last().is_some_and(|e| *e as usize == self.text.len())
            && self.ends.iter().all(|e| self.text.get(*e as usize - 1) == Some(&0));
        let lines = self.lines.windows(2).all(|w| w[0].0 < w[1].0)
            && self.lines.last().is_none_or(|(from, _)| (*from as usize) < self.ends.len());
        let texts = [&self.values, &self.names, &self.environments].iter().all(|t| t.is_sound(self.ends.len()));
        if !ascending || !closed || !lines || !texts {
            return Err(BatchError::Text);
        }
        let counted = self.specs.iter().try_fold(0u64, |sum, (count, spec)| {
            ((*spec as usize) < specs && *count > 0).then_some(sum + u64::from(*count))
        });
        if counted == Some(self.ends.len() as u64) { Ok(()) } else { Err(BatchError::Specs) }
    }
}

impl StepBatch {
    /// One step.
    pub fn one(spec: StepSpec) -> Self {
        Self { specs: vec![spec], members: BatchMembers::Each }
    }

    /// How many steps, array tasks counted one by one.
    pub fn len(&self) -> u32 {
        match &self.members {
            BatchMembers::Each => self.specs.len() as u32,
            BatchMembers::Array(tasks) => tasks.count(),
            BatchMembers::Commands(list) => list.len() as u32,
        }
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many step numbers it takes: an array takes one.
    pub fn numbers(&self) -> u32 {
        match self.members {
            BatchMembers::Array(_) => 1,
            _ => self.len(),
        }
    }

    /// For what came from elsewhere; the other methods take this for granted. `most`: array indices are below it.
    pub fn check(&self, most: u32) -> Result<(), BatchError> {
        if self.is_empty() || self.specs.is_empty() {
            return Err(BatchError::Empty);
        }
        match &self.members {
            BatchMembers::Each => Ok(()),
            BatchMembers::Array(_) if self.specs.len() != 1 => Err(BatchError::Specs),
            BatchMembers::Array(tasks) if !tasks.is_sound(most) => Err(BatchError::Array),
            BatchMembers::Array(_) => Ok(()),
            BatchMembers::Commands(list) => list.check(self.specs.len()),
        }
    }
}

/// What a step waits for in its own job, `--dependency`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepDependencies {
    /// One of them is enough (`?`), instead of all (`,`).
    pub any: bool,
    /// At least one.
    pub on: Vec<StepDependency>,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepDependency {
    /// What must have become of them.
    pub kind: StepDependencyKind,
    /// Of which steps: all of them.
    pub steps: WhichSteps,
}

/// As of jobs in sbatch(1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepDependencyKind {
    /// `after`: began, or ended without.
    After,
    /// `afterany`: over.
    AfterAny,
    /// `afterok`: over with 0.
    AfterOk,
    /// `afternotok`: over, one of them at least with other than 0.
    AfterNotOk,
    /// `aftercorr`: the task with the same index of that array is over with 0.
    AfterCorr,
}

/// When a batch is given up because too many of its steps fail, `--max-fails`. Batches of one group count together: a list
/// is handed over in several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailLimit {
    /// The batches that belong together.
    pub group: RequestId,
    /// When it is reached.
    pub most: FailBound,
    /// Steps that run are ended too.
    #[serde(default)]
    pub kill: bool,
}

/// So many failures are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailBound {
    /// Steps.
    Steps(u32),
    /// Per cent of the steps that ended.
    Percent(u8),
}

impl FailBound {
    /// A share says nothing before so many steps ended.
    pub const LEAST_ENDED: u64 = 20;

    /// Are `failed` of `ended` steps too many?
    pub const fn is_reached(self, failed: u64, ended: u64) -> bool {
        match self {
            Self::Steps(most) => failed >= most as u64,
            Self::Percent(most) => ended >= Self::LEAST_ENDED && failed * 100 >= ended * most as u64,
        }
    }
}

/// When a step that ended is tried again, `--retries`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// At most so often.
    pub count: u32,
    /// Seconds between an end and the next try.
    #[serde(default)]
    pub delay_secs: u32,
    /// After which ends; empty: after every end but 0 and a cancellation.
    #[serde(default)]
    pub on: Vec<RetryOn>,
}

/// An end after which a step is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetryOn {
    /// An exit code in this inclusive range.
    Codes(u8, u8),
    /// A signal.
    Signal(u8),
    /// Its node was lost, or how it ended is not known.
    NodeFail,
    /// Its time limit.
    Timeout,
    /// Out of memory.
    OutOfMemory,
}

/// Whether a step gets a cgroup of its own, `--step-cgroup`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StepCgroup {
    /// Where it asks for binding or limits that the job's cgroup does not give.
    #[default]
    Auto,
    /// In any case.
    Always,
}

/// Numbers given to an accepted batch: consecutive numbers, or the tasks of one array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenNumbers {
    /// The first number.
    pub first: u32,
    /// How many steps, array tasks counted one by one.
    pub count: u32,
    /// It is an array: all have the first number.
    pub array: bool,
}

impl GivenNumbers {
    /// The key of the n-th step, of an array with these tasks.
    pub fn key(&self, index: u32, tasks: Option<&ArraySpec>) -> Option<StepKey> {
        match (self.array, tasks) {
            (false, _) => Some(StepKey::number(self.first + index)),
            (true, Some(tasks)) => tasks.indices().nth(index as usize).map(|task| StepKey::task(self.first, task)),
            (true, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn commands_come_back_as_they_went_in() {
        let mut list = CommandList::default();
        list.push(["a", "", "b c"], 0);
        list.push(["x"], 0);
        list.push([""], 1);
        let text = |i: usize| list.argv(i).iter().map(|a| String::from_utf8_lossy(a).into_owned()).collect::<Vec<_>>();
        assert_eq!(text(0), ["a", "", "b c"]);
        assert_eq!((text(1), text(2)), (vec!["x".to_owned()], vec![String::new()]));
        assert_eq!(list.specs, [(2, 0), (1, 1)]);
        assert_eq!((list.check(2), list.check(1)), (Ok(()), Err(BatchError::Specs)));
    }

    #[test]
    fn commands_keep_their_lines_values_and_names() {
        let mut list = CommandList::default();
        let lines = [None, Some(3), Some(4), Some(9), Some(10), Some(12)];
        let texts = ["", "seed=1", "", "", "größe=2", ""];
        for (line, text) in lines.into_iter().zip(texts) {
            list.push(["a"], 0);
            line.into_iter().for_each(|line| list.set_line(line));
            list.set_values(text);
        }
        list.set_name("last");
        list.set_environment("A=b c\0E=\0");
        assert_eq!(list.check(1), Ok(()));
        let variables: Vec<EnvEntry> = list.environment(5).collect();
        assert_eq!(variables, [EnvEntry::from("A=b c"), EnvEntry::from("E=")]);
        assert_eq!(list.environment(4).count(), 0);
        let mut copy = CommandList::default();
        (0..6).for_each(|index| copy.push_from(&list, index, 0));
        assert_eq!(copy, list);
        assert_eq!((0..6).map(|index| list.line(index)).collect::<Vec<_>>(), lines);
        assert_eq!((0..6).map(|index| list.values(index).unwrap_or_default()).collect::<Vec<_>>(), texts);
        assert_eq!((list.name(4), list.name(5), list.name(6)), (None, Some("last"), None));
        assert_eq!((list.line(6), list.values(6)), (None, None));
        assert_eq!(list.lines, [(0, 0), (1, 3), (3, 9), (5, 12)]);
    }

    #[test]
    fn what_no_command_has_costs_nothing_and_may_be_missing() {
        let mut list = CommandList::default();
        list.push(["a"], 0);
        let text = serde_json::to_string(&list).unwrap();
        assert!(["lines", "values", "names", "environments"].iter().all(|field| !text.contains(field)), "{text}");
        assert_eq!(serde_json::from_str::<CommandList>(&text).unwrap(), list);
        list.set_line(7);
        list.set_values("x=1");
        let text = serde_json::to_string(&list).unwrap();
        assert_eq!(serde_json::from_str::<CommandList>(&text).unwrap(), list);
    }

    #[test]
    fn a_list_of_any_length_is_one_run_of_lines() {
        let mut list = CommandList::default();
        for line in 10_001..=20_000 {
            list.push(["a"], 0);
            list.set_line(line);
        }
        assert_eq!((list.lines.as_slice(), list.line(9_999)), ([(0, 10_001)].as_slice(), Some(20_000)));
    }

    #[test]
    fn a_share_of_failures_counts_from_twenty_ends_on() {
        let percent = FailBound::Percent(10);
        assert!(!percent.is_reached(19, 19) && percent.is_reached(2, 20));
        assert!(!percent.is_reached(2, 21) && percent.is_reached(3, 30));
        assert!(!FailBound::Steps(3).is_reached(2, 2) && FailBound::Steps(3).is_reached(3, 1_000_000));
    }

    #[test]
    fn damaged_lists_are_found() {
        let mut list = CommandList::default();
        list.push(["a"], 0);
        list.push(["b"], 0);
        list.set_values("ä");
        for change in [
            (|l: &mut CommandList| l.ends.swap(0, 1)) as fn(&mut CommandList),
            |l| l.ends[1] = 3,
            |l| {
                l.text.pop();
            },
            |l| l.ends[0] = 1,
            |l| l.lines = vec![(2, 1)],
            |l| l.lines = vec![(0, 1), (0, 2)],
            |l| l.values.ends[0] = 1,
            |l| l.values.ends[1] = 3,
            |l| l.names = CommandTexts { text: String::new(), ends: vec![0, 0, 0] },
        ] {
            let mut damaged = list.clone();
            change(&mut damaged);
            assert_eq!(damaged.check(1), Err(BatchError::Text), "{damaged:?}");
        }
        list.specs[0].0 = 3;
        assert_eq!(list.check(1), Err(BatchError::Specs));
    }
}
