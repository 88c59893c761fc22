//! The pages of docs as topics of `garrick help`, and as files of an installation.

use super::find::Entry;

/// Every page, by its file's name.
pub const PAGES: [(&str, &str); 43] = [
    ("accounting", include_str!("../../../docs/accounting.md")),
    ("attacks", include_str!("../../../docs/attacks.md")),
    ("cli-filter", include_str!("../../../docs/cli-filter.md")),
    ("crontabs", include_str!("../../../docs/crontabs.md")),
    ("dynamic-nodes", include_str!("../../../docs/dynamic-nodes.md")),
    ("failures", include_str!("../../../docs/failures.md")),
    ("fair-share", include_str!("../../../docs/fair-share.md")),
    ("files", include_str!("../../../docs/files.md")),
    ("fuzzing", include_str!("../../../docs/fuzzing.md")),
    ("glossary", include_str!("../../../docs/glossary.md")),
    ("graphs", include_str!("../../../docs/graphs.md")),
    ("gres", include_str!("../../../docs/gres.md")),
    ("heterogeneous", include_str!("../../../docs/heterogeneous.md")),
    ("hierarchical-resources", include_str!("../../../docs/hierarchical-resources.md")),
    ("job-completion", include_str!("../../../docs/job-completion.md")),
    ("job-submit", include_str!("../../../docs/job-submit.md")),
    ("journal", include_str!("../../../docs/journal.md")),
    ("licenses", include_str!("../../../docs/licenses.md")),
    ("limits", include_str!("../../../docs/limits.md")),
    ("log", include_str!("../../../docs/log.md")),
    ("logs", include_str!("../../../docs/logs.md")),
    ("metrics", include_str!("../../../docs/metrics.md")),
    ("minibatch", include_str!("../../../docs/minibatch.md")),
    ("mpi", include_str!("../../../docs/mpi.md")),
    ("options", include_str!("../../../docs/options.md")),
    ("output-pack", include_str!("../../../docs/output-pack.md")),
    ("power-saving", include_str!("../../../docs/power-saving.md")),
    ("preemption", include_str!("../../../docs/preemption.md")),
    ("priority", include_str!("../../../docs/priority.md")),
    ("requests", include_str!("../../../docs/requests.md")),
    ("requeue", include_str!("../../../docs/requeue.md")),
    ("reservations", include_str!("../../../docs/reservations.md")),
    ("runtime", include_str!("../../../docs/runtime.md")),
    ("scheduling", include_str!("../../../docs/scheduling.md")),
    ("security", include_str!("../../../docs/security.md")),
    ("settings", include_str!("../../../docs/settings.md")),
    ("simulation", include_str!("../../../docs/simulation.md")),
    ("site-programs", include_str!("../../../docs/site-programs.md")),
    ("steps", include_str!("../../../docs/steps.md")),
    ("time-series", include_str!("../../../docs/time-series.md")),
    ("topology", include_str!("../../../docs/topology.md")),
    ("transport", include_str!("../../../docs/transport.md")),
    ("workflows", include_str!("../../../docs/workflows.md")),
];

/// An entry for each page: its title, what it begins with, its headings.
pub fn entries() -> Vec<Entry> {
    PAGES.iter().map(|(name, page)| Entry::topic(name, title(page), text(name, page))).collect()
}

fn title(page: &str) -> &str {
    page.lines().next().unwrap_or_default().trim_start_matches("# ")
}

fn text(name: &str, page: &str) -> Vec<String> {
    let plain = |text: &str| text.replace(['`', '*'], "");
    let mut text: Vec<String> = first_paragraph(page).map(|paragraph| plain(&paragraph)).into_iter().collect();
    let headings: Vec<String> = page.lines().filter_map(|line| line.strip_prefix("## ")).map(plain).collect();
    if !headings.is_empty() {
        text.push(format!("It is about: {}.", headings.join("; ")));
    }
    text.push(format!("The page: docs/{name}.md, installed as share/doc/garrick/{name}.md"));
    text
}

/// The first text that is no heading, list, table or code.
fn first_paragraph(page: &str) -> Option<String> {
    let mut in_code = false;
    let blocks = page.split("\n\n").filter(|block| {
        let marks = block.matches("```").count();
        let code = in_code || marks > 0;
        in_code ^= marks % 2 == 1;
        !code && block.starts_with(|first: char| first.is_alphabetic() || first == '`')
    });
    blocks.map(|block| block.split_whitespace().collect::<Vec<_>>().join(" ")).next()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::{collections::BTreeSet, fs, path::Path};

    #[test]
    fn every_page_of_docs_is_a_topic() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        let files: BTreeSet<String> = fs::read_dir(docs)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter_map(|name| name.strip_suffix(".md").map(str::to_owned))
            .collect();
        assert_eq!(files, PAGES.iter().map(|(name, _)| (*name).to_owned()).collect());
    }

    #[test]
    fn every_page_has_a_title_and_begins_with_a_text() {
        for (name, page) in PAGES {
            assert!(page.starts_with("# ") && first_paragraph(page).is_some(), "{name}");
        }
    }
}
