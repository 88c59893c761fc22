//! `scontrol create PartitionName=` and `scontrol delete PartitionName=`.

use super::{NOT_THEIRS, Session, keys::Pair, update};
use garrick_model::messages::command::CommandRequest;

/// Runs `create PartitionName=...`: its name may stand anywhere among the words.
pub fn create(session: &mut Session, words: &[String]) -> i32 {
    let is_name = |pair: &Pair<'_>| pair.is(&["PartitionName", "Partition"]);
    let mut pairs = Vec::with_capacity(words.len());
    for word in words {
        let Some(pair) = Pair::split(word, "") else {
            session.console.error(format_args!("Invalid input: {word}  Request aborted"));
            return 1;
        };
        pairs.push(pair);
    }
    let (named, rest): (Vec<Pair<'_>>, Vec<Pair<'_>>) = pairs.into_iter().partition(is_name);
    let name = named.last().map_or("", |pair| pair.value);
    if name.eq_ignore_ascii_case("default") {
        session.console.error("PartitionName cannot be \"DEFAULT\".");
        return 1;
    }
    let fields = match update::partition_fields(&rest) {
        Ok(fields) => fields,
        Err(error) => return session.wrong(&error),
    };
    let request = CommandRequest::CreatePartition { partition: name.to_owned(), fields };
    match session.cluster().and_then(|c| c.ask(&request)) {
        Ok(_) => 0,
        Err(error) => session.denied("Error creating the partition: ", &error, NOT_THEIRS),
    }
}

/// Runs `delete PartitionName=...`; `word` is how it was asked for.
pub fn delete(session: &mut Session, word: &str, name: &str) -> i32 {
    let request = CommandRequest::DeletePartition { partition: name.to_owned() };
    match session.cluster().and_then(|c| c.ask(&request)) {
        Ok(_) => 0,
        Err(error) => session.denied(&format!("delete_partition {word}: "), &error, NOT_THEIRS),
    }
}
