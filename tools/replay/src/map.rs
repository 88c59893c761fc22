//! Places jobs on an empty cluster with the scheduler itself, and draws the topology with them.

use crate::{
    TraceJob,
    cluster::{self, Choice},
    engine::{Estimates, job_view},
};
use garrick_model::{
    config::Config,
    hostlist::HostList,
    ids::JobId,
    spec::{JobSpec, Sharing},
    state::Reason,
    time::Timestamp,
    topology::{Layout, NamedTopology},
    view::JobView,
};
use garrick_plan::plan::plan;
use plotters::prelude::{Circle, Color as _, IntoDrawingArea as _, RGBColor, Rectangle, SVGBackend, Text, WHITE};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// Where a job goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Seconds from now at which it starts; `None`: it does not, see [`Placed::reason`].
    pub after_secs: Option<u64>,
    /// Nodes in the order of the allocation.
    pub nodes: Vec<String>,
    /// Why it does not start now.
    pub reason: Reason,
}

/// Puts the jobs onto the configuration's nodes, all idle, in their order. They take whole nodes unless they say otherwise.
pub fn place(config: &Config, jobs: Vec<JobSpec>) -> Vec<Placed> {
    let mut view = cluster::configured(config, Choice::Default);
    let now = Timestamp::from_secs(0);
    let count = u32::try_from(jobs.len()).unwrap_or(u32::MAX);
    for (spec, number) in jobs.into_iter().zip(1..) {
        view.pending.push(Arc::new(job(&view, spec, number, count)));
    }
    let made = plan(&view, now);
    let name = |place: usize| view.nodes[place].name.clone();
    let placed = |number: u32| {
        let job = JobId(number);
        if let Some(start) = made.starts.iter().find(|s| s.job == job) {
            let nodes = start.nodes.iter().map(|n| n.name.clone()).collect();
            return Placed { after_secs: Some(0), nodes, reason: Reason::None };
        }
        let reason = made.reasons.iter().find(|(id, _)| *id == job).map_or(Reason::None, |(_, r)| r.clone());
        let kept = made.reservations.iter().find(|r| r.job == job);
        let mut places: Vec<usize> = kept.iter().flat_map(|r| &r.nodes).map(|(place, _)| *place).collect();
        places.sort_unstable();
        Placed {
            after_secs: kept.map(|r| r.from.since(now).as_secs()),
            nodes: places.into_iter().map(name).collect(),
            reason,
        }
    };
    (1..=count).map(placed).collect()
}

fn job(view: &garrick_plan::snapshot::facts::ClusterView, spec: JobSpec, number: u32, count: u32) -> JobView {
    let least = spec.nodes.map_or(1, |n| n.min);
    let tasks = spec.tasks.unwrap_or(least * spec.tasks_per_node.unwrap_or(1));
    let most = spec.nodes.map_or(tasks, |n| n.max.unwrap_or(n.min)).max(least);
    let trace = TraceJob {
        id: JobId(number),
        submit: Timestamp::from_secs(0),
        run: 3600,
        size: tasks,
        requested: None,
        memory: None,
        user: 1,
        queue: None,
    };
    let base = job_view(view, &trace, Estimates::Requested);
    let sharing = if spec.sharing == Sharing::Default { Sharing::Exclusive } else { spec.sharing };
    let cpus_per_task = spec.cpus_per_task.unwrap_or(1);
    JobView {
        priority: count + 1 - number,
        partitions: if spec.partitions.is_empty() { base.partitions.clone() } else { spec.partitions.clone() },
        min_nodes: least,
        max_nodes: most,
        cpus_per_task,
        cpus: tasks * cpus_per_task,
        time_limit: spec.time_limit.unwrap_or(base.time_limit),
        sharing,
        spec: Arc::new(JobSpec {
            sharing,
            time_limit: spec.time_limit.or(base.spec.time_limit),
            memory: base.memory,
            ..spec
        }),
        ..base
    }
}

/// Units of the topology that the nodes are in, by name.
pub fn units_of(topology: &NamedTopology, nodes: &[String]) -> String {
    let holders = topology.layout.holders();
    let unit_of: HashMap<String, &str> =
        holders.iter().flat_map(|(name, nodes)| nodes.iter().map(move |node| (node, *name))).collect();
    let mut seen = BTreeSet::new();
    let units: HostList = nodes.iter().filter_map(|n| unit_of.get(n).copied()).filter(|u| seen.insert(*u)).collect();
    units.to_string()
}

/// Width and height of a node, and from one to the next, pixels.
const NODE: i32 = 14;
const STEP: i32 = 17;
/// Room for names on the left.
const LABEL: i32 = 190;
const COLOURS: [RGBColor; 8] = [
    RGBColor(31, 119, 180),
    RGBColor(255, 127, 14),
    RGBColor(44, 160, 44),
    RGBColor(214, 39, 40),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(227, 119, 194),
    RGBColor(188, 189, 34),
];
const FREE: RGBColor = RGBColor(225, 225, 225);

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw: {0}")]
pub struct DrawError(String);

/// A row of nodes with its name; `None` is a place without a node.
struct Row {
    label: String,
    nodes: Vec<Option<String>>,
    /// A gap above it.
    apart: bool,
}

/// A row for each unit (for each row of a torus' cells), nodes in the colour of their job, and the jobs' names below.
pub fn svg(topology: &NamedTopology, jobs: &[(String, Vec<String>)]) -> Result<String, DrawError> {
    let mut text = String::new();
    draw(&rows(&topology.layout), topology, jobs, &mut text).map_err(|error| DrawError(error.to_string()))?;
    Ok(text)
}

fn rows(layout: &Layout) -> Vec<Row> {
    let all = |nodes: &HostList| nodes.iter().map(Some).collect::<Vec<_>>();
    match layout {
        Layout::Flat { .. } => Vec::new(),
        Layout::Tree { switches } => {
            let above = |name: &str| switches.iter().find(|s| s.children.iter().any(|child| child == name));
            let path = |leaf: &str| {
                let mut names = vec![leaf.to_owned()];
                while let Some(parent) = names.last().and_then(|name| above(name)) {
                    names.push(parent.name.clone());
                }
                names.reverse();
                names
            };
            let mut last: Option<String> = None;
            let leaves = switches.iter().filter(|s| s.children.is_empty());
            let row = |leaf: &garrick_model::topology::Switch| {
                let path = path(&leaf.name);
                let parent = path.len().checked_sub(2).map(|at| path[at].clone());
                let apart = last.is_some() && last != parent;
                last = parent;
                Row { label: path.join("."), nodes: all(&leaf.nodes), apart }
            };
            leaves.map(row).collect()
        }
        Layout::Block { sizes, blocks } => {
            let base = sizes.first().copied().unwrap_or(1).max(1);
            let group = sizes.get(1).map_or(1, |size| (size / base).max(1) as usize);
            let row = |(number, block): (usize, &garrick_model::topology::Unit)| Row {
                label: block.name.clone(),
                nodes: all(&block.nodes),
                apart: group > 1 && number > 0 && number % group == 0,
            };
            blocks.iter().enumerate().map(row).collect()
        }
        Layout::Ring { rings } => {
            rings.iter().map(|r| Row { label: r.name.clone(), nodes: all(&r.nodes), apart: false }).collect()
        }
        Layout::Torus3d { toruses } => toruses.iter().flat_map(torus_rows).collect(),
    }
}

/// Planes of a torus below each other, y downwards, x to the right.
fn torus_rows(torus: &garrick_model::topology::Torus) -> Vec<Row> {
    let mut cells: HashMap<(u32, u32, u32), String> = HashMap::new();
    for region in &torus.regions {
        let (a, d) = (region.anchor, region.dims);
        let offsets = (0..d.z).flat_map(|z| (0..d.y).flat_map(move |y| (0..d.x).map(move |x| (x, y, z))));
        cells.extend(offsets.zip(region.nodes.iter()).map(|((x, y, z), node)| ((a.x + x, a.y + y, a.z + z), node)));
    }
    let row = |z: u32, y: u32| Row {
        label: if y == 0 { format!("{} z={z}", torus.name) } else { String::new() },
        nodes: (0..torus.dims.x).map(|x| cells.get(&(x, y, z)).cloned()).collect(),
        apart: y == 0 && z > 0,
    };
    (0..torus.dims.z).flat_map(|z| (0..torus.dims.y).map(move |y| (z, y))).map(|(z, y)| row(z, y)).collect()
}

fn draw(
    rows: &[Row],
    topology: &NamedTopology,
    jobs: &[(String, Vec<String>)],
    text: &mut String,
) -> Result<(), Box<dyn std::error::Error>> {
    let job_of: HashMap<&str, usize> =
        jobs.iter().enumerate().flat_map(|(job, (_, nodes))| nodes.iter().map(move |n| (n.as_str(), job))).collect();
    let widest = rows.iter().map(|row| row.nodes.len()).max().unwrap_or(0).max(20);
    let gaps = rows.iter().filter(|row| row.apart).count();
    let pixels = |n: usize| i32::try_from(n).unwrap_or(i32::MAX / 64);
    let height = 40 + STEP * pixels(rows.len()) + 8 * pixels(gaps) + 20 * pixels(jobs.len()) + 10;
    let width = LABEL + STEP * pixels(widest) + 20;
    let size = (u32::try_from(width)?, u32::try_from(height)?);
    let area = SVGBackend::with_string(text, size).into_drawing_area();
    area.fill(&WHITE)?;
    let title = format!("{} (topology/{})", topology.name, topology.layout.plugin());
    area.draw(&Text::new(title, (10, 8), ("sans-serif", 16)))?;
    let mut y = 36;
    for row in rows {
        y += if row.apart { 8 } else { 0 };
        area.draw(&Text::new(row.label.clone(), (10, y), ("sans-serif", 12)))?;
        for (at, node) in row.nodes.iter().enumerate() {
            let x = LABEL + STEP * pixels(at);
            let Some(node) = node else { continue };
            let colour = job_of.get(node.as_str()).map_or(FREE, |job| COLOURS[job % COLOURS.len()]);
            area.draw(&Rectangle::new([(x, y), (x + NODE, y + NODE)], colour.filled()))?;
        }
        y += STEP;
    }
    y += 10;
    for (job, (name, _)) in jobs.iter().enumerate() {
        area.draw(&Circle::new((18, y + 6), 6, COLOURS[job % COLOURS.len()].filled()))?;
        area.draw(&Text::new(name.clone(), (32, y), ("sans-serif", 13)))?;
        y += 20;
    }
    area.present()?;
    Ok(())
}
