//! How busy a job's CPUs were over time: a line of blocks in a terminal, or an SVG.

use super::summary::Usage;
use garrick_model::time::short_duration;
use std::fmt::Write as _;

/// Parts of the time in the SVG.
pub const PARTS: usize = 300;
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 120.0;
const LEFT: f64 = 48.0;
const TOP: f64 = 28.0;

/// A block for each part.
pub fn line(busy: &[f64]) -> String {
    let block = |share: &f64| BLOCKS[((share.clamp(0.0, 1.0) * 8.0).round() as usize).min(8)];
    busy.iter().map(block).collect()
}

/// The picture.
pub fn svg(usage: &Usage) -> String {
    let (whole_width, whole_height) = (LEFT + WIDTH + 16.0, TOP + HEIGHT + 28.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {whole_width} {whole_height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mean = usage.busy.iter().sum::<f64>() / usage.busy.len().max(1) as f64;
    let _ = writeln!(text, "<text x=\"{LEFT}\" y=\"18\">Use of {} CPUs: {:.0} %</text>", usage.cpus, 100.0 * mean);
    let bottom = TOP + HEIGHT;
    let mut points = format!("{LEFT},{bottom}");
    let part = WIDTH / usage.busy.len().max(1) as f64;
    for (at, share) in usage.busy.iter().enumerate() {
        let y = bottom - HEIGHT * share.clamp(0.0, 1.0);
        let x = LEFT + at as f64 * part;
        let _ = write!(points, " {x:.1},{y:.1} {:.1},{y:.1}", x + part);
    }
    let _ = write!(points, " {:.1},{bottom}", LEFT + WIDTH);
    let _ = writeln!(text, "<polygon points=\"{points}\" fill=\"#4a7fb5\"/>");
    for (share, label) in [(0.0, "0"), (0.5, "50 %"), (1.0, "100 %")] {
        let y = bottom - HEIGHT * share;
        let _ = writeln!(
            text,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y}\" y2=\"{y}\" stroke=\"#ccc\"/><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{label}</text>",
            LEFT + WIDTH,
            LEFT - 6.0,
            y + 4.0
        );
    }
    let end = short_duration(usage.ms.div_ceil(1000));
    let (y, right) = (bottom + 18.0, LEFT + WIDTH);
    let _ = writeln!(
        text,
        "<text x=\"{LEFT}\" y=\"{y}\">0:00</text><text x=\"{right}\" y=\"{y}\" text-anchor=\"end\">{end}</text>"
    );
    text.push_str("</svg>\n");
    text
}
