//! Attacks on a real cluster, one after the other, as `docs/attacks.md` lists them. Needs root and network namespaces.
//!
//! ```text
//! garrick-attacks              all of them, a line each
//! garrick-attacks 3 7          those with these numbers
//! garrick-attacks --short      all but those that need a flood or a cable
//! garrick-attacks --list       what they are
//! garrick-attacks --siege      64 clients of one user at full speed: what another user's commands take, against the quiet cluster
//! ```
//!
//! The exit code is 0 when all were held, 1 when one was broken, and 2 when one could not be carried out, so that nothing is known.

use garrick_sims::attacks::{self, Tally, attacker, scene::Scene, siege};
use std::{error::Error, io::stdout, process::ExitCode};

const USAGE: &str = "usage: garrick-attacks [NUMBER...] | --short | --list | --siege";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match act(&words) {
        Ok(Tally { broken: 0, unclear: 0, .. }) => ExitCode::SUCCESS,
        Ok(Tally { broken: 0, .. }) => ExitCode::from(2),
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("garrick-attacks: {error}");
            ExitCode::from(2)
        }
    }
}

fn act(words: &[&str]) -> Result<Tally, Box<dyn Error>> {
    // What is made for the site is what others may see of it, wherever this is run.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    match words {
        [word, rest @ ..] if *word == attacker::WORD => {
            attacker::act(rest)?;
            return Ok(Tally::default());
        }
        ["-h" | "--help"] => {
            println!("{USAGE}");
            return Ok(Tally::default());
        }
        ["--list"] => {
            for (number, attack) in (1..).zip(attacks::all()) {
                println!("{number:>2} {:?}: {}", attack.who, attack.tries);
            }
            return Ok(Tally::default());
        }
        ["--siege"] => {
            let mut scene = Scene::up()?;
            let held = siege::run(&scene, &mut stdout().lock())?;
            if !held {
                scene.site.keep();
                println!("logs are kept in {}", scene.site.home.display());
            }
            return Ok(Tally { held: u32::from(held), broken: u32::from(!held), unclear: 0 });
        }
        _ => {}
    }
    let numbers = match words {
        ["--short"] => attacks::short(),
        words => words.iter().map(|word| word.parse()).collect::<Result<_, _>>().map_err(|_| USAGE)?,
    };
    let mut scene = Scene::up()?;
    let tally = attacks::run(&mut scene, &numbers, &mut stdout().lock())?;
    let Tally { held, broken, unclear } = tally;
    println!("{held} held, {broken} broken, {unclear} unclear");
    if broken + unclear > 0 {
        scene.site.keep();
        println!("logs are kept in {}", scene.site.home.display());
    }
    Ok(tally)
}
