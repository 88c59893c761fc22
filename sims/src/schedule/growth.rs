//! How the cost of a plan grows: with nodes, with waiting jobs, with running jobs. A table, and a snapshot of it.

use super::{
    measure,
    workload::{ENDS, Mix, cluster_with},
};
use crate::minibatch::figures::Findings;
use garrick_replay::cluster::Choice;
use plotters::prelude::{
    ChartBuilder, Circle, IntoDrawingArea as _, IntoLogRange as _, LineSeries, PathElement, RGBColor, SVGBackend,
    SeriesLabelPosition, WHITE,
};
use std::{error::Error, time::Duration};

/// Nodes, waiting jobs and running jobs of the plan that the others differ from in one of them.
const NODES: u32 = 15_000;
const WAITING: u32 = 10_000;

/// Seconds of plans, by what grows.
#[derive(Debug, Default)]
pub struct Growth(Vec<(String, Vec<(u32, f64)>)>);

/// Measures plans of growing size.
pub fn growth() -> Growth {
    let one = |nodes: u32, waiting: u32, running: u32, mix: Mix| {
        let mut view = cluster_with(nodes, waiting, mix, Choice::Conservative, running);
        view.policy.resolution = Duration::from_secs(60);
        view.policy.backfill_window = Duration::from_secs(86_400);
        measure(&view).0
    };
    let mut lines = Vec::new();
    for mix in [Mix::Nodes, Mix::Cores] {
        let line = |what: &str, points: Vec<(u32, f64)>| (format!("{what}, {}", mix.name()), points);
        lines
            .push(line("nodes", [500, 1_500, 5_000, 15_000, 50_000].map(|n| (n, one(n, WAITING, ENDS, mix))).to_vec()));
        lines.push(line("waiting jobs", [100, 1_000, 10_000, 100_000].map(|n| (n, one(NODES, n, ENDS, mix))).to_vec()));
        lines.push(line("running jobs", [10, 190, 1_900, 15_000].map(|n| (n, one(NODES, WAITING, n, mix))).to_vec()));
    }
    Growth(lines)
}

impl Growth {
    /// As a table.
    pub fn findings(&self) -> Findings {
        let mut found = Findings::default();
        let mut rows = Vec::new();
        for (what, points) in &self.0 {
            let cells = points.iter().map(|(n, seconds)| format!("{n}: {seconds:.3}"));
            rows.push(vec![what.clone(), cells.collect::<Vec<_>>().join("   ")]);
        }
        let title =
            format!("Seconds of a first plan as one of {NODES} nodes, {WAITING} waiting and {ENDS} running jobs grows");
        found.table(title, &["what grows", "how many: seconds"], rows);
        found
    }

    /// As a snapshot (SVG) with logarithmic axes.
    pub fn svg(&self) -> Result<String, Box<dyn Error>> {
        const COLOURS: [RGBColor; 6] = [
            RGBColor(0, 90, 180),
            RGBColor(200, 80, 0),
            RGBColor(0, 130, 60),
            RGBColor(90, 160, 230),
            RGBColor(240, 160, 60),
            RGBColor(90, 200, 130),
        ];
        let mut text = String::new();
        {
            let root = SVGBackend::with_string(&mut text, (900, 560)).into_drawing_area();
            root.fill(&WHITE)?;
            let seconds = self.0.iter().flat_map(|(_, points)| points.iter().map(|(_, s)| *s));
            let (low, high) = seconds.fold((f64::MAX, f64::MIN), |(low, high), s| (low.min(s), high.max(s)));
            let mut chart = ChartBuilder::on(&root)
                .caption("A first plan: seconds by what grows", ("sans-serif", 20))
                .margin(12)
                .x_label_area_size(40)
                .y_label_area_size(60)
                .build_cartesian_2d((8f64..150_000f64).log_scale(), (low * 0.7..high * 1.5).log_scale())?;
            chart
                .configure_mesh()
                .x_desc("how many")
                .y_desc("seconds")
                .x_label_formatter(&|n| format!("{n:.0}"))
                .draw()?;
            for ((what, points), colour) in self.0.iter().zip(COLOURS) {
                let at = || points.iter().map(|(n, seconds)| (f64::from(*n), *seconds));
                chart
                    .draw_series(LineSeries::new(at(), colour))?
                    .label(what.clone())
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
                chart.draw_series(at().map(|point| Circle::new(point, 3, colour)))?;
            }
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .background_style(WHITE)
                .border_style(RGBColor(160, 160, 160))
                .draw()?;
            root.present()?;
        }
        Ok(text)
    }
}
