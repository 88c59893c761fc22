//! A graph as a picture: levels from left to right, a box for each description, ordered so that lines stay short.

use super::{check::Graph, plan::Share, written::Step};
use garrick_model::batch::StepDependencyKind;
use std::fmt::Write as _;

/// Most boxes that are drawn: a picture of more cannot be read.
const MOST_BOXES: usize = 2_000;
/// Most places that lines take: at their ends, and on their way through levels.
const MOST_PLACES: usize = 40_000;
/// How often levels are put in order by their neighbours, there and back.
const SWEEPS: usize = 6;
const WIDTH: f64 = 150.0;
const HEIGHT: f64 = 34.0;
const BETWEEN_LEVELS: f64 = 70.0;
const BETWEEN_BOXES: f64 = 14.0;
/// What a line takes where it passes a level.
const LINE: f64 = 8.0;
const MARGIN: f64 = 16.0;
/// Letters of a label that fit.
const LETTERS: usize = 19;

/// A picture that is not drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "too large to be drawn: {boxes} descriptions and {lines} places of lines (at most {MOST_BOXES} and {MOST_PLACES})"
)]
pub struct TooLarge {
    boxes: usize,
    lines: usize,
}

/// Something in a level.
#[derive(Clone, Copy, Debug)]
struct Place {
    level: usize,
    /// The step, unless a line passes.
    step: Option<usize>,
    /// Middle, from the top.
    y: f64,
}

/// A line through its places.
struct Way {
    kind: StepDependencyKind,
    places: Vec<usize>,
}

struct Drawing {
    places: Vec<Place>,
    /// By level: its places from the top.
    levels: Vec<Vec<usize>>,
    ways: Vec<Way>,
    /// By place: its neighbours in the level before, and in the next.
    before: Vec<Vec<usize>>,
    behind: Vec<Vec<usize>>,
}

impl Drawing {
    fn of(graph: &Graph) -> Result<Self, TooLarge> {
        let level: Vec<usize> = graph.levels().iter().map(|level| level.unwrap_or(0) as usize).collect();
        let count = level.iter().max().map_or(0, |last| last + 1);
        // Each has an end, and passes the levels between.
        let taken = |at: usize, on: usize| level[at].saturating_sub(level[on]).max(1);
        let lines = graph.waits.iter().enumerate().flat_map(|(at, all)| all.iter().map(move |w| taken(at, w.on))).sum();
        if graph.steps.len() > MOST_BOXES || lines > MOST_PLACES {
            return Err(TooLarge { boxes: graph.steps.len(), lines });
        }
        let mut places: Vec<Place> =
            (0..graph.steps.len()).map(|at| Place { level: level[at], step: Some(at), y: 0.0 }).collect();
        let mut ways = Vec::new();
        for (at, all) in graph.waits.iter().enumerate() {
            for wait in all {
                let mut through = vec![wait.on];
                for level in level[wait.on] + 1..level[at] {
                    places.push(Place { level, step: None, y: 0.0 });
                    through.push(places.len() - 1);
                }
                through.push(at);
                ways.push(Way { kind: wait.kind, places: through });
            }
        }
        let mut levels = vec![Vec::new(); count];
        places.iter().enumerate().for_each(|(at, place)| levels[place.level].push(at));
        let (mut before, mut behind) = (vec![Vec::new(); places.len()], vec![Vec::new(); places.len()]);
        for pair in ways.iter().flat_map(|way| way.places.windows(2)) {
            behind[pair[0]].push(pair[1]);
            before[pair[1]].push(pair[0]);
        }
        Ok(Self { places, levels, ways, before, behind })
    }

    /// Each level by the mean place of its neighbours, forwards and backwards in turn.
    fn order(&mut self) {
        self.set();
        for sweep in 0..2 * SWEEPS {
            let forwards = sweep % 2 == 0;
            for step in 0..self.levels.len() {
                let level = if forwards { step } else { self.levels.len() - 1 - step };
                let neighbours = if forwards { &self.before } else { &self.behind };
                let mean = |at: &usize| {
                    let all = &neighbours[*at];
                    let sum: f64 = all.iter().map(|other| self.places[*other].y).sum();
                    if all.is_empty() { self.places[*at].y } else { sum / all.len() as f64 }
                };
                let mut keyed: Vec<(f64, usize)> = self.levels[level].iter().map(|at| (mean(at), *at)).collect();
                keyed.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                self.levels[level] = keyed.into_iter().map(|(_, at)| at).collect();
                self.set_level(level);
            }
        }
        self.set();
    }

    fn size(&self, at: usize) -> f64 {
        if self.places[at].step.is_some() { HEIGHT + BETWEEN_BOXES } else { LINE }
    }

    fn set_level(&mut self, level: usize) {
        let own = self.levels[level].clone();
        let mut y = -own.iter().map(|at| self.size(*at)).sum::<f64>() / 2.0;
        for at in own {
            let size = self.size(at);
            self.places[at].y = y + size / 2.0;
            y += size;
        }
    }

    fn set(&mut self) {
        (0..self.levels.len()).for_each(|level| self.set_level(level));
    }
}

/// What a kind of line looks like.
const fn style(kind: StepDependencyKind) -> &'static str {
    match kind {
        StepDependencyKind::AfterOk => "stroke=\"#555\"",
        StepDependencyKind::AfterCorr => "stroke=\"#2a6fb0\" stroke-width=\"2\"",
        StepDependencyKind::AfterAny => "stroke=\"#888\" stroke-dasharray=\"6 3\"",
        StepDependencyKind::AfterNotOk => "stroke=\"#c0392b\" stroke-dasharray=\"6 3\"",
        StepDependencyKind::After => "stroke=\"#888\" stroke-dasharray=\"2 3\"",
    }
}

fn left(level: usize) -> f64 {
    MARGIN + level as f64 * (WIDTH + BETWEEN_LEVELS)
}

fn shortened(label: &str) -> String {
    match label.char_indices().nth(LETTERS) {
        Some(_) => label.chars().take(LETTERS - 1).chain(['…']).collect(),
        None => label.to_owned(),
    }
}

/// Draws it. `shares`: how much of each step is left; what is not is pale.
pub fn svg(graph: &Graph, shares: &[Share]) -> Result<String, TooLarge> {
    let mut drawing = Drawing::of(graph)?;
    drawing.order();
    let tall = drawing.levels.iter().map(|level| level.iter().map(|at| drawing.size(*at)).sum::<f64>());
    let tall = tall.fold(HEIGHT, f64::max);
    let middle = MARGIN + tall / 2.0;
    let width = left(drawing.levels.len().max(1)) - BETWEEN_LEVELS + MARGIN;
    let height = tall + 2.0 * MARGIN + 20.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<g fill=\"none\">\n"
    );
    for way in &drawing.ways {
        let _ = writeln!(text, "<path d=\"{}\" {}/>", drawing.path(way, middle), style(way.kind));
    }
    text.push_str("</g>\n");
    for place in &drawing.places {
        if let Some(at) = place.step {
            step_box(&mut text, &graph.steps[at], shares.get(at), left(place.level), middle + place.y);
        }
    }
    let _ = writeln!(
        text,
        "<text x=\"{MARGIN}\" y=\"{:.1}\" font-size=\"10\" fill=\"#777\">grey: afterok; thick: task by task; dashed: however it \
         ends, red if it fails; dotted: once it began</text>",
        height - 8.0
    );
    text.push_str("</svg>\n");
    Ok(text)
}

/// A step as a box around that height; a pile of boxes stands for several.
fn step_box(text: &mut String, step: &Step, left: Option<&Share>, x: f64, middle: f64) {
    let fill = if left == Some(&Share::Nothing) { "#f2f2f2" } else { "#dce9f5" };
    let y = middle - HEIGHT / 2.0;
    let count = step.count();
    if count > 1 {
        let _ = writeln!(
            text,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"5\" fill=\"{fill}\" stroke=\"#4a7fb5\"/>",
            x + 4.0,
            y + 4.0
        );
    }
    let _ = writeln!(
        text,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"5\" fill=\"{fill}\" stroke=\"#4a7fb5\"/>"
    );
    let many = if count > 1 { format!(" ×{count}") } else { String::new() };
    // A label has letters, digits, _ and -.
    let _ = writeln!(
        text,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\"><title>{}{many}</title>{}<tspan fill=\"#777\">{many}</tspan></text>",
        x + WIDTH / 2.0,
        y + HEIGHT / 2.0 + 4.0,
        step.label,
        shortened(&step.label)
    );
}

impl Drawing {
    /// From step to step, as the `d` of an SVG path.
    fn path(&self, way: &Way, middle: f64) -> String {
        let mut path = String::new();
        for (n, at) in way.places.iter().enumerate() {
            let place = self.places[*at];
            let (x, y) = (left(place.level), middle + place.y);
            let out = x + WIDTH;
            match n {
                0 => write!(path, "M{out:.1} {y:.1}"),
                _ => {
                    let from = x - BETWEEN_LEVELS;
                    let bend = BETWEEN_LEVELS / 2.0;
                    let before = middle + self.places[way.places[n - 1]].y;
                    let end = if n + 1 < way.places.len() { format!("L{out:.1} {y:.1}") } else { String::new() };
                    write!(path, "C{:.1} {before:.1} {:.1} {y:.1} {x:.1} {y:.1}{end}", from + bend, x - bend)
                }
            }
            .unwrap_or_default();
        }
        path
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::graph;
    use std::path::Path;

    fn parsed(text: &str) -> Graph {
        graph::parse(text.as_bytes(), Path::new("/w"), &|_| false).unwrap()
    }

    fn step(label: &str, after: &str) -> String {
        format!("[[step]]\nlabel = '{label}'\ncommand = 'x'\nafter = [{after}]\n")
    }

    #[test]
    fn every_step_has_a_box_and_every_dependency_a_line() {
        let text = [step("a", ""), step("b", "'a'"), step("c", "'b', 'afternotok:a'")].concat();
        let array = text.replacen("command = 'x'", "command = 'x'\narray = '0-9'", 1);
        let svg = svg(&parsed(&array), &[Share::Nothing]).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        let count = |what: &str| svg.matches(what).count();
        assert_eq!((count("<path "), count("rx=\"5\""), count("#f2f2f2"), count("#c0392b")), (3, 4, 2, 1), "{svg}");
        assert!(svg.contains(">a<tspan fill=\"#777\"> ×10</tspan>"), "{svg}");
    }

    #[test]
    fn lines_of_parallel_chains_do_not_cross() {
        // Written so that each level is the other way round.
        let mut text = String::new();
        for n in 0..6 {
            text += &step(&format!("a{n}"), "");
        }
        for n in (0..6).rev() {
            text += &step(&format!("b{n}"), &format!("'a{n}'"));
        }
        for n in [3, 1, 5, 0, 2, 4] {
            text += &step(&format!("c{n}"), &format!("'b{n}'"));
        }
        let mut drawing = Drawing::of(&parsed(&text)).unwrap();
        drawing.order();
        for way in &drawing.ways {
            assert_eq!(drawing.places[way.places[0]].y, drawing.places[way.places[1]].y);
        }
    }

    #[test]
    fn what_is_too_large_is_not_drawn() {
        let text: String = (0..MOST_BOXES + 1).map(|n| step(&format!("s{n}"), "")).collect();
        let error = svg(&parsed(&text), &[]).unwrap_err();
        assert!(error.to_string().starts_with("too large to be drawn: 2001 descriptions"), "{error}");
        // Each of 300 waits for each of 300.
        let all: Vec<String> = (0..300).map(|n| format!("'s{n}'")).collect();
        let behind = (0..300).map(|n| step(&format!("t{n}"), &all.join(", ")));
        let text: String = (0..300).map(|n| step(&format!("s{n}"), "")).chain(behind).collect();
        let error = svg(&parsed(&text), &[]).unwrap_err();
        assert!(error.to_string().contains("90000 places of lines"), "{error}");
    }
}
