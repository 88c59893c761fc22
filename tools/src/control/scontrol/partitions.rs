//! `scontrol create PartitionName=` and `scontrol delete PartitionName=`.

use super::{NOT_THEIRS, Session, keys::Pair, update};
use garrick_model::{
    messages::command::{CommandReply, CommandRequest},
    refusal::Refusal,
};

/// Runs `create PartitionName=...`: what is written is checked, but partitions come from `slurm.conf` alone yet.
pub fn create(session: &mut Session, words: &[String]) -> i32 {
    let is_name = |pair: &Pair<'_>| pair.is(&["PartitionName"]);
    let (named, rest): (Vec<Pair<'_>>, Vec<Pair<'_>>) =
        words.iter().filter_map(|word| Pair::split(word, "")).partition(is_name);
    if named.iter().all(|pair| pair.value.is_empty()) {
        session.console.error(format_args!("Invalid input: {}  Request aborted", words[0]));
        return 1;
    }
    match update::partition_fields(&rest) {
        Ok(_) => session.not_supported("scontrol create PartitionName="),
        Err(error) => session.wrong(&error),
    }
}

/// Runs `delete PartitionName=...`; `word` is how it was asked for.
pub fn delete(session: &mut Session, word: &str, name: &str) -> i32 {
    let known = session.cluster().and_then(|c| match c.ask(&CommandRequest::ListPartitions)? {
        CommandReply::Partitions { partitions, .. } => {
            Ok(partitions.iter().any(|partition| partition.config.name == name))
        }
        other => Err(c.unexpected(&other)),
    });
    match known {
        Ok(true) => session.not_supported("scontrol delete PartitionName="),
        Ok(false) => {
            session.plain_error(format_args!("delete_partition {word}: {}", Refusal::InvalidPartition(name.to_owned())))
        }
        Err(error) => session.denied(&format!("delete_partition {word}: "), &error, NOT_THEIRS),
    }
}
