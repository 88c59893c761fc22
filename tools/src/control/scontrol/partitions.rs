//! `scontrol create PartitionName=` and `scontrol delete PartitionName=`.

use super::{NOT_THEIRS, Session, keys::Pair, update};
use garrick_model::{
    messages::command::{CommandReply, CommandRequest},
    refusal::Refusal,
};

/// Runs `create PartitionName=...`.
pub fn create(session: &mut Session, words: &[String]) -> i32 {
    let name = words.iter().find_map(|word| Pair::split(word, "").filter(|pair| pair.is(&["PartitionName"])));
    let Some(name) = name.map(|pair| pair.value).filter(|name| !name.is_empty()) else {
        session.console.error(format_args!("Invalid input: {}  Request aborted", words[0]));
        return 1;
    };
    let rest: Vec<Pair<'_>> = words.iter().filter_map(|word| Pair::split(word, "")).collect();
    let rest: Vec<Pair<'_>> = rest.into_iter().filter(|pair| !pair.is(&["PartitionName"])).collect();
    let fields = match update::partition_fields(&rest) {
        Ok(fields) => fields,
        Err(error) => return session.wrong(&error),
    };
    let _ = (fields, name);
    session.not_supported("scontrol create PartitionName=")
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
