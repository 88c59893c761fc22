//! One `stepd`'s part in sending a file to nodes: it writes it, if it is for this node, and sends it to those below.

use super::{
    branch::{Below, Station},
    tree,
    writing::Writing,
};
use garrick_daemon::links::traced;
use garrick_frame::Traced;
use garrick_model::messages::files::{
    FileFailure, FileOrder, FilePart, FileReport, FileStop, WriterSays, named_by_node,
};
use tokio::sync::mpsc;

/// What is to be done with a file.
#[derive(Clone, Debug)]
pub struct Spread {
    /// The file.
    pub file: FileOrder,
    /// It is for this node too.
    pub here: bool,
    /// Other nodes that get it from here.
    pub below: Vec<FileStop>,
    /// As in [`garrick_model::messages::files::FileRequest`].
    pub width: u16,
}

/// Somebody who takes parts.
enum Taker {
    Here(Writing),
    Below(Box<Below>),
}

impl Taker {
    /// `None`: it is ready.
    async fn unready(&mut self, station: &Station) -> Option<Vec<FileFailure>> {
        match self {
            Self::Here(writing) => match writing.says().await {
                WriterSays::Ready => None,
                other => Some(failures_here(station, other)),
            },
            Self::Below(below) => match below.report().await {
                FileReport::Ready => None,
                FileReport::Done(failures) => Some(failures),
            },
        }
    }

    async fn part(&mut self, part: &Traced<FilePart>) {
        match self {
            Self::Here(writing) => {
                if let Err(e) = writing.put(&part.msg).await {
                    tracing::warn!(error = %e, "a part of a file");
                }
            }
            Self::Below(below) => below.part(part).await,
        }
    }

    /// Once it has the last part.
    async fn outcome(&mut self, station: &Station) -> Vec<FileFailure> {
        match self {
            Self::Here(writing) => failures_here(station, writing.says().await),
            Self::Below(below) => match below.report().await {
                FileReport::Done(failures) => failures,
                // It was ready before.
                FileReport::Ready => Vec::new(),
            },
        }
    }
}

fn failures_here(station: &Station, says: WriterSays) -> Vec<FileFailure> {
    match says {
        WriterSays::Failed { operation, errno } => vec![FileFailure { node: station.node.clone(), operation, errno }],
        WriterSays::Ready | WriterSays::Done => Vec::new(),
    }
}

/// Does it. `ready` is called once all nodes can take the file; if one cannot, none gets it, and the parts are not asked for. Returns
/// the nodes that did not get it. A file whose parts end without [`FilePart::End`] is given up everywhere.
pub async fn spread(
    station: &Station,
    what: Spread,
    mut parts: mpsc::Receiver<FilePart>,
    ready: impl AsyncFnOnce(),
) -> Vec<FileFailure> {
    let (mut takers, mut failures) = takers(station, what).await;
    for taker in &mut takers {
        failures.extend(taker.unready(station).await.into_iter().flatten());
    }
    if !failures.is_empty() {
        return failures;
    }
    ready().await;
    loop {
        let Some(part) = parts.recv().await.map(traced) else { return given_up(station) };
        for taker in &mut takers {
            taker.part(&part).await;
        }
        if matches!(part.msg, FilePart::End { .. }) {
            break;
        }
    }
    for taker in &mut takers {
        failures.extend(taker.outcome(station).await);
    }
    failures
}

/// Whoever sent it is gone, and hears nothing of this.
fn given_up(station: &Station) -> Vec<FileFailure> {
    vec![FileFailure { node: station.node.clone(), operation: "it was given up".into(), errno: 0 }]
}

/// All at once: a node that is far away holds up no other.
async fn takers(station: &Station, what: Spread) -> (Vec<Taker>, Vec<FileFailure>) {
    let Spread { file, here, below, width } = what;
    let (mut takers, mut failures) = (Vec::new(), Vec::new());
    if here {
        match Writing::start(&station.place, &file_here(&file, &station.node)).await {
            Ok(writing) => takers.push(Taker::Here(writing)),
            Err(e) => {
                failures.push(FileFailure { node: station.node.clone(), operation: e.to_string(), errno: e.errno() })
            }
        }
    }
    let branches = tree::branches(below, width);
    let opening = branches.into_iter().map(|branch| Below::open(station, branch, &file, width));
    for opened in join_all(opening).await {
        match opened {
            Ok(below) => takers.push(Taker::Below(Box::new(below))),
            Err(unreached) => failures.extend(unreached),
        }
    }
    (takers, failures)
}

/// The file as this node is to have it.
fn file_here(file: &FileOrder, node: &str) -> FileOrder {
    let mut own = file.clone();
    if file.named_by_node {
        own.path = named_by_node(&file.path, node);
    }
    own
}

/// Waits for all of them together. The results are in their order.
async fn join_all<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut waiting: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(move |cx| {
        let mut all = true;
        for (future, result) in &mut waiting {
            if result.is_none() {
                match future.as_mut().poll(cx) {
                    std::task::Poll::Ready(value) => *result = Some(value),
                    std::task::Poll::Pending => all = false,
                }
            }
        }
        match all {
            true => std::task::Poll::Ready(waiting.drain(..).filter_map(|(_, result)| result).collect()),
            false => std::task::Poll::Pending,
        }
    })
    .await
}
