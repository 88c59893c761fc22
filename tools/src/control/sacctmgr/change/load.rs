//! `load`: what a file of `dump` has comes to the cluster that it names. What is there already is changed where it differs; nothing is
//! removed, unless with `clean`.

use super::{
    asking,
    flat_file::{self, Misformatted},
    load_plan::{Plan, PlanError},
    load_tables,
    session::Code,
    told,
    words::{Word, unquoted},
    world::World,
};
use garrick_accounts::change::Change;
use std::time::Instant;

const FLUSH: &str = "You requested to flush the cluster before adding it again.\n\
                     It is advised to not have your slurmctld running while doing this operation.\n\
                     If you have jobs running on this cluster this operation will abort.\n\
                     Are you sure you want to continue?";
const NOTHING: &str = " Nothing new added.\n";

/// What was typed.
#[derive(Debug, Default)]
struct Asked<'w> {
    /// As it was typed, and the name of the file.
    file: Option<(&'w str, &'w str)>,
    cluster: Option<String>,
    clean: bool,
}

fn read<'w>(words: &'w [String]) -> Result<Asked<'w>, &'w str> {
    let mut asked = Asked::default();
    for whole in words {
        let word = Word::of(whole);
        match word.key.map(str::to_ascii_lowercase).as_deref() {
            None if whole.eq_ignore_ascii_case("clean") => asked.clean = true,
            None | Some("file") => asked.file = Some((whole, unquoted(word.value))),
            Some("cluster" | "name") => asked.cluster = Some(word.value.to_lowercase()),
            Some(_) => return Err(whole),
        }
    }
    Ok(asked)
}

/// Runs `load`.
pub fn run(words: &[String], immediate: bool, world: &mut dyn World) -> Code {
    let asked = match read(words) {
        Ok(asked) => asked,
        Err(word) if word.to_ascii_lowercase().starts_with("clean=") => {
            world.err(&format!("sacctmgr: error: {word}: not supported yet\n"));
            return Ok(1);
        }
        Err(word) => {
            world.err(&format!(" Unknown option: {word}\n"));
            return Ok(1);
        }
    };
    let Some((typed, file)) = asked.file else {
        world.err(" No filename specified.\n");
        return Ok(1);
    };
    let text = match world.read(file) {
        Ok(text) => text,
        Err(error) => {
            let why = told::plain(&error);
            world.err(&format!(" Unable to read \"{typed}\": {why}\n"));
            return Ok(1);
        }
    };
    carry_out(&asked, &text, immediate, world)
}

fn carry_out(asked: &Asked<'_>, text: &str, immediate: bool, world: &mut dyn World) -> Code {
    let begun = Instant::now();
    let entities = world.entities()?;
    let version = entities.version;
    // What comes before a line that is wrong tells which cluster is meant.
    let (lines, wrong) = match flat_file::read(text) {
        Ok(lines) => (lines, None),
        Err(Misformatted(number, line)) => {
            let before: String = text.lines().take(number - 1).map(|line| format!("{line}\n")).collect();
            (flat_file::read(&before).unwrap_or_default(), Some((number, line)))
        }
    };
    if asked.clean && !immediate && !asking::is_sure(world, FLUSH) {
        world.out("Aborted\n");
        world.out(NOTHING);
        return Ok(0);
    }
    let mut plan = Plan::new(entities, asked.cluster.clone(), asked.clean);
    let made = plan.take(&lines);
    let cluster = plan.cluster().map(|name| format!("For cluster {name}\n")).unwrap_or_default();
    if let Some((number, line)) = wrong {
        world.err(&format!(" Misformatted line({number}): {line}\n\n Problem with requests: Unspecified error\n"));
        world.out(&cluster);
        return Ok(1);
    }
    if let Err(error) = made {
        tell(world, &error, &cluster);
        return Ok(1);
    }
    world.out(&cluster);
    if plan.actions.is_empty() {
        world.out(NOTHING);
        return Ok(0);
    }
    world.out(&load_tables::text(&plan));
    let change = Change { actions: plan.actions };
    finish(&change, version, begun, immediate, world)
}

fn finish(change: &Change, version: u64, begun: Instant, immediate: bool, world: &mut dyn World) -> Code {
    // Whoever may not is told so before he is asked.
    if let Err(refusal) = world.change(change, Some(version), !immediate)? {
        world.err(&format!(" Problem with requests: {}\n", told::sentence(&refusal)));
        return Ok(1);
    }
    world.err(&format!("sacctmgr: Done adding cluster in usec={}\n", begun.elapsed().as_micros()));
    if immediate || !asking::commits(world) {
        return Ok(0);
    }
    if let Err(refusal) = world.change(change, Some(version), false)? {
        world.err(&format!(" Problem with requests: {}\n", told::sentence(&refusal)));
        return Ok(1);
    }
    Ok(0)
}

fn tell(world: &mut dyn World, error: &PlanError, cluster: &str) {
    match error {
        PlanError::NoCluster => {
            world.err(" You need to specify a cluster name first with 'Cluster - $NAME' in your file\n");
            world.out(NOTHING);
        }
        PlanError::NoParent(number, name) => {
            world.err(&format!(
                " line({number}) You need to add this parent ({name}) as a child before you can add children to it.\n"
            ));
            world.out(cluster);
            world.out(NOTHING);
        }
        PlanError::Word(number, whole, error) => {
            told::library(world, error);
            world.err(&format!(
                " Unknown option: {whole}\n Problem with line({number})\n Problem with requests: Unspecified error\n"
            ));
            world.out(cluster);
        }
        PlanError::Refused(number, refusal) => {
            let why = told::sentence(refusal);
            world.err(&format!(" Problem with line({number}): {why}\n Problem with requests: Unspecified error\n"));
            world.out(cluster);
        }
    }
}
