//! Queue and utilisation over time, as a picture and as lines for a terminal.

use crate::{
    engine::{Moment, Replay},
    shares::Course,
};
use garrick_model::time::Timestamp;
use plotters::prelude::{
    AreaSeries, BLACK, BLUE, ChartBuilder, Color as _, IntoDrawingArea as _, LineSeries, PathElement, RED, RGBColor,
    SVGBackend, WHITE,
};
use std::{collections::BTreeMap, fmt::Write as _};

/// Points of a curve.
const BINS: usize = 800;
/// Width of a line for terminals.
const COLUMNS: usize = 64;
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One curve: a name and a replay.
pub type Named<'r> = (&'r str, &'r Replay);

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw: {0}")]
pub struct DrawError(String);

/// How things stood on average in equal pieces of time: days since the start, share in use, jobs waiting.
pub fn curve(replay: &Replay, bins: usize) -> Vec<(f64, f64, f64)> {
    let (Some(first), Some(last)) = (replay.moments.first(), replay.moments.last()) else { return Vec::new() };
    let (begin, whole) = (first.at, last.at.since(first.at).as_secs_f64().max(1.0));
    let width = whole / bins as f64;
    let mut sums = vec![(0.0, 0.0); bins];
    let mut add = |moment: &Moment, from: f64, until: f64| {
        let mut at = from;
        while at < until {
            let bin = ((at / width) as usize).min(bins - 1);
            let edge = if bin + 1 == bins { until } else { ((bin + 1) as f64 * width).min(until) };
            let edge = if edge <= at { until } else { edge };
            sums[bin].0 += moment.busy as f64 * (edge - at);
            sums[bin].1 += moment.waiting as f64 * (edge - at);
            at = edge;
        }
    };
    let since = |at: Timestamp| at.since(begin).as_secs_f64();
    for pair in replay.moments.windows(2) {
        add(&pair[0], since(pair[0].at), since(pair[1].at));
    }
    let cpus = (replay.cpus as f64).max(1.0);
    sums.iter()
        .enumerate()
        .map(|(bin, (busy, waiting))| (bin as f64 * width / 86_400.0, busy / width / cpus, waiting / width))
        .collect()
}

/// Two lines of blocks for each replay.
pub fn lines(replays: &[Named<'_>]) -> String {
    let mut text = String::new();
    let curves: Vec<_> = replays.iter().map(|(name, replay)| (name, curve(replay, COLUMNS))).collect();
    let longest = curves.iter().flat_map(|(_, c)| c.iter().map(|p| p.2)).fold(1.0, f64::max);
    for (name, curve) in curves {
        let days = curve.last().map_or(0.0, |p| p.0) * COLUMNS as f64 / (COLUMNS - 1) as f64;
        let busy: String = curve.iter().map(|p| level(p.1)).collect();
        let queue: String = curve.iter().map(|p| level(p.2 / longest)).collect();
        let _ = writeln!(text, "{name}: {days:.1} days");
        let _ = writeln!(text, "  in use  |{busy}| 0 to 100 %");
        let _ = writeln!(text, "  waiting |{queue}| 0 to {longest:.0} jobs");
    }
    text
}

fn level(part: f64) -> char {
    let top = LEVELS.len() - 1;
    LEVELS[((part * top as f64).ceil() as usize).min(top)]
}

/// Users whose shares are drawn: those who used most.
const DRAWN: usize = 6;
/// The highest part of its share that is drawn.
const MOST_OF_SHARE: f64 = 3.0;
const COLOURS: [RGBColor; DRAWN] = [
    RGBColor(0, 90, 180),
    RGBColor(200, 80, 0),
    RGBColor(0, 130, 60),
    RGBColor(150, 80, 0),
    RGBColor(120, 0, 140),
    RGBColor(0, 150, 160),
];

/// What users had, over what they may have, over time: days since the start and that quotient, for each of those who used most.
pub fn quotients(course: &Course) -> Vec<(u32, Vec<(f64, f64)>)> {
    let Some((begin, _)) = course.used.first() else { return Vec::new() };
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    for (user, used) in course.used.iter().flat_map(|(_, used)| used) {
        *sums.entry(*user).or_default() += u64::from(*used);
    }
    let mut most: Vec<(u64, u32)> = sums.into_iter().map(|(user, sum)| (sum, user)).collect();
    most.sort_unstable_by(|a, b| b.cmp(a));
    let of = |user: u32| {
        let entitled = f64::from(course.entitled.get(&user).copied().unwrap_or(0).max(1));
        let point = |(at, used): &(Timestamp, BTreeMap<u32, u32>)| {
            let used = f64::from(used.get(&user).copied().unwrap_or(0));
            (at.since(*begin).as_secs_f64() / 86_400.0, used / entitled)
        };
        (user, course.used.iter().map(point).collect())
    };
    most.into_iter().take(DRAWN).map(|(_, user)| of(user)).collect()
}

/// Draws how the shares of users went, a chart for each replay that has shares, into one SVG document.
pub fn shares_svg(replays: &[Named<'_>]) -> Result<String, DrawError> {
    let mut text = String::new();
    draw_shares(replays, &mut text).map_err(|error| DrawError(error.to_string()))?;
    Ok(text)
}

fn draw_shares(replays: &[Named<'_>], text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let shared: Vec<_> = replays.iter().filter_map(|(name, replay)| Some((*name, replay.shares.as_ref()?))).collect();
    let height = 300 * u32::try_from(shared.len().max(1))?;
    let area = SVGBackend::with_string(text, (1000, height)).into_drawing_area();
    area.fill(&WHITE)?;
    for ((name, course), area) in shared.iter().zip(area.split_evenly((shared.len().max(1), 1))) {
        let lines = quotients(course);
        let days = lines.iter().filter_map(|(_, line)| line.last()).map(|point| point.0).fold(0.01, f64::max);
        let mut chart = ChartBuilder::on(&area)
            .caption(format!("{name}: used / entitled"), ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(30)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..days, 0.0..MOST_OF_SHARE)?;
        chart.configure_mesh().x_desc("days").y_desc("part of the share").draw()?;
        chart.draw_series(LineSeries::new([(0.0, 1.0), (days, 1.0)], BLACK.stroke_width(2)))?;
        for ((user, line), colour) in lines.into_iter().zip(COLOURS) {
            let points = line.into_iter().map(|(day, part)| (day, part.min(MOST_OF_SHARE)));
            let drawn = chart.draw_series(LineSeries::new(points, colour))?;
            let key = move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour);
            drawn.label(format!("user {user}")).legend(key);
        }
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
    }
    area.present()?;
    Ok(())
}

/// Draws the curves of all replays into one SVG document.
pub fn svg(replays: &[Named<'_>]) -> Result<String, DrawError> {
    let mut text = String::new();
    draw(replays, &mut text).map_err(|error| DrawError(error.to_string()))?;
    Ok(text)
}

fn draw(replays: &[Named<'_>], text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let colours = [BLUE, RED, RGBColor(0, 130, 60), RGBColor(150, 80, 0), RGBColor(120, 0, 140)];
    let curves: Vec<_> = replays.iter().map(|(name, replay)| (*name, curve(replay, BINS))).collect();
    let days = curves.iter().filter_map(|(_, c)| c.last()).map(|p| p.0).fold(0.01, f64::max);
    let longest = curves.iter().flat_map(|(_, c)| c.iter().map(|p| p.2)).fold(1.0, f64::max);
    let area = SVGBackend::with_string(text, (1000, 640)).into_drawing_area();
    area.fill(&WHITE)?;
    let (upper, lower) = area.split_vertically(320);
    let mut chart = ChartBuilder::on(&upper)
        .caption("CPUs in use", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..days, 0.0..1.0)?;
    chart.configure_mesh().x_desc("days").y_desc("share").draw()?;
    for ((name, curve), colour) in curves.iter().zip(colours.iter().cycle()) {
        let points = curve.iter().map(|p| (p.0, p.1));
        let series = AreaSeries::new(points, 0.0, colour.mix(0.12)).border_style(*colour);
        let colour = *colour;
        chart.draw_series(series)?.label(*name).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLUE.mix(0.3)).draw()?;
    let mut chart = ChartBuilder::on(&lower)
        .caption("Jobs waiting", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..days, 0.0..longest * 1.05)?;
    chart.configure_mesh().x_desc("days").y_desc("jobs").draw()?;
    for ((_, curve), colour) in curves.iter().zip(colours.iter().cycle()) {
        chart.draw_series(LineSeries::new(curve.iter().map(|p| (p.0, p.2)), *colour))?;
    }
    area.present()?;
    Ok(())
}
