//! Lists of partitions and nodes against what Slurm printed (`src/query/expected`, copied from its output).

#![allow(clippy::unwrap_used)]

use super::options;
use crate::query::arguments;
use garrick_model::{
    config::PartitionConfig,
    state::{NodeBase, NodeFlags},
    view::{NodeView, PartitionView},
};
use garrick_render::testing as views;
use std::{ffi::OsString, sync::Arc};

fn request(words: &[&str]) -> Result<options::Request, options::RequestError> {
    let args: Vec<OsString> = words.iter().map(OsString::from).collect();
    options::read(&arguments::parse(&options::TABLE, &args).unwrap(), |_| None)
}

fn shown_of(words: &[&str], partitions: Vec<PartitionView>, nodes: Vec<NodeView>) -> String {
    let partitions: Vec<_> = partitions.into_iter().map(Arc::new).collect();
    let nodes: Vec<_> = nodes.into_iter().map(Arc::new).collect();
    let mut out = Vec::new();
    request(words).unwrap().listing.write(&partitions, &nodes, &views::clock(0), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn shown(words: &[&str], nodes: Vec<NodeView>) -> String {
    let count = u32::try_from(nodes.len()).unwrap();
    shown_of(words, vec![views::partition("debug", count)], nodes)
}

fn two() -> Vec<NodeView> {
    vec![views::node(0), views::node(1)]
}

fn one_drained() -> Vec<NodeView> {
    vec![views::node(0), views::drained(views::node(1), "bad fan")]
}

#[test]
fn nodes_of_one_state_share_a_line() {
    assert_eq!(shown(&[], two()), include_str!("../expected/sinfo.txt"));
    assert_eq!(shown(&[], one_drained()), include_str!("../expected/sinfo_drained.txt"));
}

#[test]
fn node_list_has_a_line_for_each_node() {
    assert_eq!(shown(&["-N", "-l"], two()), include_str!("../expected/sinfo_N_l.txt"));
}

#[test]
fn format_decides_what_shares_a_line() {
    assert_eq!(shown(&["-a", "-o", "%P %G %l %p %c %m"], two()), include_str!("../expected/sinfo_format.txt"));
    assert_eq!(shown(&["-h", "-o", "%N"], one_drained()), "n[1-2]\n");
    assert_eq!(shown(&["-h", "-o", "%t %D %N"], one_drained()), "drain 1 n2\nidle 1 n1\n");
}

#[test]
fn reasons_are_listed_with_who_and_when() {
    // The transcripts' user had a name of four letters, replaced without regard to columns.
    let mut nodes = one_drained();
    nodes[1].reason.as_mut().unwrap().user = "root".to_owned();
    assert_eq!(shown(&["-R"], nodes), include_str!("../expected/sinfo_R.txt").replace("alice", "root"));
    assert_eq!(shown(&["-R", "-h"], two()), "");
}

#[test]
fn summary_counts_nodes_by_use() {
    let mut nodes = one_drained();
    nodes.push(NodeView { holds: vec![views::hold(0..16)], ..views::node(2) });
    assert_eq!(
        shown(&["-s"], nodes.clone()),
        "PARTITION AVAIL  TIMELIMIT   NODES(A/I/O/T) NODELIST\ndebug*       up   infinite          1/1/1/3 n[1-3]\n"
    );
    assert_eq!(shown(&["-h", "-o", "%C"], nodes), "16/16/16/48\n");
}

#[test]
fn long_list_has_the_partitions_rules() {
    let text = shown(&["-l"], two());
    assert_eq!(
        text,
        "Sat Nov 21 10:00:51 2026\n\
         PARTITION AVAIL  TIMELIMIT   JOB_SIZE ROOT OVERSUBS     GROUPS  NODES       STATE RESERVATION NODELIST\n\
         debug*       up   infinite 1-infinite   no       NO        all      2        idle             n[1-2]\n"
    );
}

#[test]
fn numbers_that_differ_are_the_least_and_a_plus_unless_exact() {
    let mut nodes = two();
    nodes[1].shape.cpus = 32;
    assert_eq!(shown(&["-h", "-o", "%c %N"], nodes.clone()), "16+ n[1-2]\n");
    assert_eq!(shown(&["-h", "-e", "-o", "%c %N"], nodes), "16 n1\n32 n2\n");
}

#[test]
fn states_have_marks_and_words() {
    let flags = |flags| NodeView { flags, ..views::node(0) };
    let state = |node: NodeView| shown(&["-h", "-o", "%t %T"], vec![node]);
    let busy = |node: NodeView, cpus| NodeView { holds: vec![views::hold(0..cpus)], ..node };
    assert_eq!(state(busy(views::node(0), 16)), "alloc allocated\n");
    assert_eq!(state(busy(views::node(0), 5)), "mix mixed\n");
    assert_eq!(state(busy(views::drained(views::node(0), "x"), 5)), "drng draining\n");
    assert_eq!(state(flags(NodeFlags { completing: true, ..NodeFlags::default() })), "comp completing\n");
    let away = NodeFlags { not_responding: true, ..NodeFlags::default() };
    assert_eq!(state(NodeView { base: NodeBase::Down, ..flags(away) }), "down* down*\n");
    assert_eq!(state(NodeView { base: NodeBase::Unknown, ..flags(away) }), "unk* unknown*\n");
}

#[test]
fn partitions_are_in_configuration_order_and_empty_ones_are_shown() {
    let other = PartitionView {
        config: Arc::new(PartitionConfig::named("aaa")),
        nodes: Vec::new(),
        ..views::partition("aaa", 0)
    };
    let partitions = vec![views::partition("debug", 2), other];
    assert_eq!(
        shown_of(&["-h"], partitions.clone(), two()),
        "debug*       up   infinite      2   idle n[1-2]\naaa          up   infinite      0    n/a \n"
    );
    assert_eq!(
        shown_of(&["-h", "-p", "debug", "-t", "down"], partitions, two()),
        "debug*       up   infinite      0    n/a \n"
    );
}

#[test]
fn long_names_widen_the_partition_column() {
    let partitions = vec![views::partition("a-long-partition", 2)];
    assert_eq!(
        shown_of(&[], partitions, two()),
        "PARTITION         AVAIL  TIMELIMIT  NODES  STATE NODELIST\n\
         a-long-partition*    up   infinite      2   idle n[1-2]\n"
    );
}

#[test]
fn wrong_options_say_what_is_wrong() {
    let said = |words: &[&str]| request(words).unwrap_err().to_string();
    assert!(said(&["-t", "nosuch"]).starts_with("Bad state string: \"nosuch\"\nvalid states: unknown,down,idle,"));
    assert!(said(&["-t", "idle+nosuch"]).starts_with("Bad state string: \"idle+nosuch\""));
    assert_eq!(said(&["-i", "0"]), "Error: invalid entry for --iterate=0");
    assert_eq!(request(&["-O", "nosuch,nodes"]).unwrap().listing.layout.unknown, ["nosuch"]);
    assert_eq!(said(&["--json=v0.0.40"]), "there is no such form of documents");
}

#[test]
fn json_has_an_object_for_each_line() {
    let partitions = vec![Arc::new(views::partition("debug", 2))];
    let nodes: Vec<_> = one_drained().into_iter().map(Arc::new).collect();
    let request = request(&["--json"]).unwrap();
    let clock = views::clock(0);
    let groups = request.listing.groups(&partitions, &nodes, &clock);
    let document = garrick_render::sinfo::json::sinfo(&groups, &nodes, &views::meta());
    assert_eq!(document["sinfo"].as_array().unwrap().len(), 2);
    assert_eq!(document["sinfo"][0]["node"]["state"], serde_json::json!(["IDLE", "DRAIN"]));
    assert_eq!(document["sinfo"][0]["reason"]["description"], "bad fan");
    assert_eq!(document["sinfo"][1]["nodes"]["nodes"], serde_json::json!(["n1"]));
    assert_eq!(document["sinfo"][1]["partition"]["name"], "debug");
    assert_eq!(document["meta"]["slurm"]["cluster"], "peer");
}
