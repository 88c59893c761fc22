//! Commands that go to the step manager in one request, and the line of each. Lines with the same options share their request.

use crate::{options::step_spec::base_name, step_lists::list_line::ListLine};
use garrick_model::{
    batch::{BatchMembers, CommandList, StepBatch},
    spec::{ArraySpec, EnvEntry, StepSpec},
};
use std::{
    collections::HashMap,
    ffi::OsString,
    os::unix::ffi::OsStringExt as _,
    time::{Duration, Instant},
};

/// Most commands in one request.
pub const MOST_LINES: usize = 10_000;
/// Bytes from which on a request takes no more commands.
pub const MOST_BYTES: usize = 1 << 20;
/// How long a command waits at most for others that go in the same request: long enough for a program that writes one
/// after the other, short enough to be no delay.
pub const LINGER: Duration = Duration::from_millis(100);
/// What a specification without texts comes to on its way, measured: names of fields, mostly.
pub const SPEC_BYTES: usize = 1200;

/// Name of the steps made of one specification.
#[derive(Debug)]
enum Name {
    /// `-J`
    Given,
    /// The program, the same in every line so far.
    Program(String),
    /// There are several programs: the list's own.
    OfList,
}

/// A request in the making.
#[derive(Debug, Default)]
pub struct Chunk {
    specs: Vec<StepSpec>,
    names: Vec<Name>,
    by_options: HashMap<Vec<u8>, u32>,
    commands: CommandList,
    lines: Vec<u64>,
    bytes: usize,
    /// When the first of its commands came.
    since: Option<Instant>,
    /// Its only command is the array of these tasks.
    array: Option<ArraySpec>,
}

impl Chunk {
    /// Adds a line that came at `now`. `make` gives what its options ask for, with the step's name if it is named; it is
    /// called once for equal options. A line that is an array is the only one of its request.
    pub fn push<E>(
        &mut self,
        now: Instant,
        number: u64,
        line: &ListLine<'_>,
        make: impl FnOnce() -> Result<(StepSpec, Option<String>, Option<ArraySpec>), E>,
    ) -> Result<(), E> {
        let program = || base_name(&OsString::from_vec(line.argv.first().cloned().unwrap_or_default()));
        let spec = match self.by_options.get(line.options_text.as_ref()) {
            Some(spec) => *spec,
            None => {
                let (spec, name, array) = make()?;
                self.array = array;
                self.bytes += SPEC_BYTES + line.options_text.len() + spec.submit_line.len();
                self.names.push(match name {
                    Some(_) => Name::Given,
                    None => Name::Program(program()),
                });
                self.specs.push(StepSpec { name: name.unwrap_or_default(), ..spec });
                let index = self.specs.len() as u32 - 1;
                self.by_options.insert(line.options_text.to_vec(), index);
                index
            }
        };
        if let name @ Name::Program(_) = &mut self.names[spec as usize]
            && !matches!(name, Name::Program(first) if *first == program())
        {
            *name = Name::OfList;
        }
        self.commands.push(&line.argv, spec);
        if let Some(line) = line.line {
            self.commands.set_line(line);
        }
        self.commands.set_values(&line.values);
        self.commands.set_name(&line.name);
        self.commands.set_environment(&line.environment);
        let texts = line.values.len() + line.name.len() + line.environment.len();
        self.bytes += line.argv.iter().map(|arg| arg.len() + 1).sum::<usize>() + texts + 8;
        self.lines.push(number);
        self.since.get_or_insert(now);
        Ok(())
    }

    /// The line of its first command.
    pub fn first_line(&self) -> Option<u64> {
        self.lines.first().copied()
    }

    /// How many commands are in it.
    pub const fn len(&self) -> usize {
        self.lines.len()
    }

    /// Nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// It is to be sent before more is added.
    pub fn is_full(&self) -> bool {
        self.array.is_some() || self.lines.len() >= MOST_LINES || self.bytes >= MOST_BYTES
    }

    /// How long it may still wait for more commands: zero when it is to be sent as it is. `None`: it is empty.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        self.since.map(|since| LINGER.saturating_sub(now.saturating_duration_since(since)))
    }

    /// The request, and the lines of its commands. `list` names steps of several programs. The environment, which all share,
    /// goes with the first specification.
    pub fn take(&mut self, list: &str, environment: &[EnvEntry]) -> (StepBatch, Vec<u64>) {
        let Self { mut specs, names, commands, lines, array, .. } = std::mem::take(self);
        for (spec, name) in specs.iter_mut().zip(names) {
            match name {
                Name::Given => {}
                Name::Program(program) => spec.name = program,
                Name::OfList => spec.name = list.to_owned(),
            }
        }
        if let Some(first) = specs.first_mut() {
            first.environment = environment.to_vec();
        }
        if let (Some(tasks), Some(spec)) = (array, specs.first_mut()) {
            spec.argv = commands.argv(0);
            for own in commands.environment(0) {
                let name = own.split_inclusive(|byte| *byte == b'=').next().unwrap_or_default();
                spec.environment.retain(|other| !other.starts_with(name));
                spec.environment.push(own);
            }
            if let Some(own) = commands.name(0) {
                own.clone_into(&mut spec.name);
            }
            return (StepBatch { specs, members: BatchMembers::Array(tasks) }, lines);
        }
        (StepBatch { specs, members: BatchMembers::Commands(commands) }, lines)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        options::table::{Command, options_of},
        step_lists::list_line,
    };
    use serde_bytes::ByteBuf;
    use std::convert::Infallible;

    fn push(chunk: &mut Chunk, number: u64, text: &str) {
        push_at(chunk, Instant::now(), number, text);
    }

    fn push_at(chunk: &mut Chunk, now: Instant, number: u64, text: &str) {
        let mut line = list_line::read(text.as_bytes(), &options_of(Command::Srun)).unwrap().unwrap();
        line.line = u32::try_from(number).ok();
        let value = |name: &str| line.options.iter().find(|o| o.def.long == name).and_then(|o| o.value.clone());
        let tasks = value("ntasks").map(|n| n.to_str().unwrap().parse().unwrap());
        let name = value("job-name").map(|n| n.into_string().unwrap());
        let array = value("array").map(|tasks| tasks.to_str().unwrap().parse().unwrap());
        let made = (StepSpec { tasks, ..StepSpec::default() }, name, array);
        chunk.push(now, number, &line, || Ok::<_, Infallible>(made)).unwrap();
    }

    fn taken(lines: &[&str]) -> (StepBatch, Vec<u64>) {
        let mut chunk = Chunk::default();
        (1..).zip(lines).for_each(|(number, line)| push(&mut chunk, number, line));
        let taken = chunk.take("cmds.txt", &[ByteBuf::from("A=1")]);
        assert!(chunk.is_empty());
        taken
    }

    #[test]
    fn lines_with_the_same_options_share_what_they_ask_for() {
        let (batch, lines) = taken(&["./a 1", "./a 2", "-n2 ./a 3", "./a 4", "-n2 ./a 5"]);
        assert_eq!((batch.specs.len(), lines), (2, vec![1, 2, 3, 4, 5]));
        let BatchMembers::Commands(list) = &batch.members else { panic!("a list") };
        assert_eq!(list.specs, [(2, 0), (1, 1), (1, 0), (1, 1)]);
        assert_eq!(list.argv(4), [ByteBuf::from("./a"), ByteBuf::from("5")]);
        assert_eq!((batch.specs[0].tasks, batch.specs[1].tasks), (None, Some(2)));
        assert_eq!(batch.specs[0].environment, [ByteBuf::from("A=1")]);
        assert!(batch.specs[1].environment.is_empty());
        assert_eq!(batch.check(1), Ok(()));
    }

    #[test]
    fn an_array_is_the_only_one_of_its_request() {
        let mut chunk = Chunk::default();
        push(&mut chunk, 3, "-n2 -a 1-9%4 -- ./a 1");
        assert!(chunk.is_full());
        let (batch, lines) = chunk.take("cmds.txt", &[ByteBuf::from("A=1")]);
        assert_eq!(batch.members, BatchMembers::Array("1-9%4".parse().unwrap()));
        assert_eq!((batch.specs.len(), lines), (1, vec![3]));
        let spec = &batch.specs[0];
        assert_eq!((spec.name.as_str(), spec.tasks), ("a", Some(2)));
        assert_eq!(spec.argv, [ByteBuf::from("./a"), ByteBuf::from("1")]);
        let line = ListLine {
            argv: vec![b"./a".to_vec()],
            name: "own".into(),
            environment: "A=2\0B=3\0".into(),
            ..ListLine::default()
        };
        let made = (StepSpec::default(), None, Some("0-1".parse().unwrap()));
        chunk.push(Instant::now(), 4, &line, || Ok::<_, Infallible>(made)).unwrap();
        let spec = &chunk.take("cmds.txt", &[ByteBuf::from("A=1"), ByteBuf::from("C=1")]).0.specs[0];
        assert_eq!(spec.environment, ["C=1", "A=2", "B=3"].map(ByteBuf::from));
        assert_eq!(spec.name, "own");
    }

    #[test]
    fn commands_know_their_lines_from_one_request_to_the_next() {
        let mut chunk = Chunk::default();
        let mut requests = Vec::new();
        for numbers in [&[2, 3, 7][..], &[8, 9]] {
            numbers.iter().for_each(|number| push(&mut chunk, *number, "./a"));
            let (batch, _) = chunk.take("cmds.txt", &[]);
            let BatchMembers::Commands(list) = batch.members else { panic!("a list") };
            requests.push((0..list.len()).map(|index| list.line(index)).collect::<Vec<_>>());
        }
        assert_eq!(requests, [vec![Some(2), Some(3), Some(7)], vec![Some(8), Some(9)]]);
    }

    #[test]
    fn steps_are_named_by_their_program_or_by_the_list() {
        let names = |lines: &[&str]| taken(lines).0.specs.into_iter().map(|s| s.name).collect::<Vec<_>>();
        assert_eq!(names(&["./a 1", "/x/a 2"]), ["a"]);
        assert_eq!(names(&["./a 1", "./b 2", "./a 3"]), ["cmds.txt"]);
        assert_eq!(names(&["-J own ./a", "-J own ./b", "./b"]), ["own", "b"]);
        assert_eq!(names(&["cd x; ./a"]), ["sh"]);
    }

    #[test]
    fn a_request_waits_from_its_first_command_on_however_many_follow() {
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        let mut chunk = Chunk::default();
        assert_eq!(chunk.left(at(0)), None);
        let line = list_line::read(b"-n2 x", &options_of(Command::Srun)).unwrap().unwrap();
        assert_eq!(chunk.push(at(0), 1, &line, || Err("refused")), Err("refused"));
        assert_eq!(chunk.left(at(10)), None);
        for (number, millis) in (2..).zip((10..110).step_by(4)) {
            push_at(&mut chunk, at(millis), number, "x");
            assert_eq!(chunk.left(at(millis)), Some(LINGER - Duration::from_millis(millis - 10)));
        }
        assert_eq!(chunk.left(at(110)), Some(Duration::ZERO));
        chunk.take("cmds.txt", &[]);
        assert_eq!(chunk.left(at(110)), None);
        push_at(&mut chunk, at(200), 30, "x");
        assert_eq!(chunk.left(at(200)), Some(LINGER));
    }

    #[test]
    fn a_request_is_full_by_count_or_by_size() {
        let mut chunk = Chunk::default();
        for number in 0..MOST_LINES as u64 {
            assert!(!chunk.is_full());
            push(&mut chunk, number, "x");
        }
        assert!(chunk.is_full());
        let mut chunk = Chunk::default();
        let long = format!("x {}", "y".repeat(100_000));
        (0..10).for_each(|number| push(&mut chunk, number, &long));
        assert!(!chunk.is_full());
        push(&mut chunk, 10, &long);
        assert!(chunk.is_full());
    }
}
