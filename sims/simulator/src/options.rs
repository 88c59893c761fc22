//! Command line options.

use garrick_simulator::{Setup, story::Subjects};
use std::{error::Error, str::FromStr, time::SystemTime};

pub const USAGE: &str = "usage: garrick-sim --short | --long | --seeds FROM TO | --seed N [--story job/N,node/N] | --fresh COUNT --from SEED | --hunt SECONDS [--from SEED]
       [--jobs J] [--nodes N] [--events E] [--counts]";
/// Seeds of `--short`.
const SHORT: u64 = 14;
/// Seeds of `--long`.
const LONG: u64 = 400;

/// See the module.
#[derive(Debug)]
pub struct Options {
    pub what: What,
    /// Tables of what worlds held.
    pub counts: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum What {
    These(Vec<Setup>),
    Story(Setup, Subjects),
    Hunt { secs: u64, from: u64 },
    Help,
}

#[derive(Default)]
struct Said {
    seeds: Option<(u64, u64)>,
    fresh: Option<u64>,
    hunt: Option<u64>,
    from: Option<u64>,
    story: Option<Subjects>,
    jobs: Option<u32>,
    nodes: Option<u32>,
    events: Option<u64>,
    counts: bool,
}

impl Options {
    pub fn parse(args: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let (mut said, mut args) = (Said::default(), args);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--short" => said.seeds = Some((1, SHORT)),
                "--long" => said.seeds = Some((1, LONG)),
                "--seeds" => said.seeds = Some((number(&arg, &value()?)?, number(&arg, &value()?)?)),
                "--seed" => said.seeds = Some(number(&arg, &value()?).map(|seed| (seed, seed))?),
                "--fresh" => said.fresh = Some(number(&arg, &value()?)?),
                "--hunt" => said.hunt = Some(number(&arg, &value()?)?),
                "--from" => said.from = Some(seed_of(&value()?)?),
                "--story" => said.story = Some(value()?.parse()?),
                "--jobs" => said.jobs = Some(number(&arg, &value()?)?),
                "--nodes" => said.nodes = Some(number(&arg, &value()?)?),
                "--events" => said.events = Some(number(&arg, &value()?)?),
                "--counts" => said.counts = true,
                "-h" | "--help" => return Ok(Self { what: What::Help, counts: false }),
                _ => return Err(format!("unknown option {arg}").into()),
            }
        }
        Ok(Self { counts: said.counts, what: said.what()? })
    }
}

impl Said {
    fn what(self) -> Result<What, Box<dyn Error>> {
        let sized = |setup: Setup| Setup {
            jobs: self.jobs.unwrap_or(setup.jobs).max(1),
            nodes: self.nodes.unwrap_or(setup.nodes).max(2),
            events: self.events.unwrap_or(setup.events),
            ..setup
        };
        match (self.seeds, self.fresh, self.hunt) {
            (Some((from, to)), None, None) if from <= to => match self.story {
                Some(about) if from == to => Ok(What::Story(sized(Setup::of_seed(from)), about)),
                Some(_) => Err("--story needs one --seed".into()),
                None => Ok(What::These((from..=to).map(Setup::of_seed).map(sized).collect())),
            },
            (Some((from, to)), None, None) => Err(format!("no seeds from {from} to {to}").into()),
            (None, Some(count), None) => {
                let from = self.from.ok_or("--fresh needs --from SEED")?;
                Ok(What::These((0..count).map(|n| sized(Setup::fresh_and_quick(from.wrapping_add(n)))).collect()))
            }
            (None, None, Some(secs)) => Ok(What::Hunt { secs, from: self.from.unwrap_or_else(now) }),
            _ => Err("one of --short, --long, --seeds, --seed, --fresh and --hunt is needed".into()),
        }
    }
}

fn number<T: FromStr>(option: &str, text: &str) -> Result<T, Box<dyn Error>> {
    text.parse().map_err(|_| format!("{option}: {text:?} is not a number").into())
}

/// A number, or the id of a commit: its first 12 hexadecimal digits are one.
fn seed_of(text: &str) -> Result<u64, Box<dyn Error>> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let digits = text.get(..12).unwrap_or(text);
    u64::from_str_radix(digits, 16)
        .map_err(|_| format!("--from: {text:?} is neither a number nor a commit's id").into())
}

/// A new seed.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<What, String> {
        let options = Options::parse(line.split_whitespace().map(str::to_owned));
        options.map(|options| options.what).map_err(|error| error.to_string())
    }

    #[test]
    fn seeds_take_sizes() {
        let small = |seed| Setup { seed, jobs: 60, nodes: 8, events: 4_000 };
        let asked = parse("--seeds 3 4 --jobs 60 --nodes 8 --events 4000");
        assert_eq!(asked, Ok(What::These(vec![small(3), small(4)])));
        assert_eq!(parse("--seed 7"), Ok(What::These(vec![Setup::of_seed(7)])));
    }

    #[test]
    fn a_commit_names_fresh_worlds() {
        let asked = parse("--fresh 2 --from 5747f7c6f21a9d6cbff7476f1d5a249ebf2fe224");
        let first = 0x5747_f7c6_f21a;
        assert_eq!(asked, Ok(What::These(vec![Setup::fresh_and_quick(first), Setup::fresh_and_quick(first + 1)])));
    }

    #[test]
    fn help_is_no_mistake() {
        for line in ["--help", "-h", "--short --help"] {
            assert_eq!(parse(line), Ok(What::Help), "{line}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(parse("--seed x"), Err("--seed: \"x\" is not a number".to_owned()));
        assert_eq!(parse("--seeds 3"), Err("--seeds needs a value".to_owned()));
        assert_eq!(parse("--seeds 3 1"), Err("no seeds from 3 to 1".to_owned()));
        assert_eq!(parse("--fresh 3"), Err("--fresh needs --from SEED".to_owned()));
        assert!(parse("--from 3").is_err() && parse("--long --hunt 3").is_err() && parse("--nonsense").is_err());
    }
}
