//! `scontrol show assoc_mgr`: what the controller knows of users, associations and QOS.

use super::Session;
use crate::query::choices;
use garrick_model::messages::command::{CommandReply, CommandRequest};
use garrick_render::records::assoc_mgr::{self, Choice};

/// Shows what was chosen.
pub fn show(session: &mut Session, words: &[String]) -> i32 {
    let choice = match choice(words) {
        Ok(choice) => choice,
        Err(said) => return session.print(|out| writeln!(out, "{said}")),
    };
    let answer = session.cluster().and_then(|c| match c.ask(&CommandRequest::ShowAssociations)? {
        CommandReply::Shares(board) => Ok(board),
        other => Err(c.unexpected(&other)),
    });
    let board = match answer {
        Ok(board) => board,
        Err(error) => return session.failed("slurm_load_assoc_mgr_info", &error),
    };
    let uid = |name: &str| choices::user(name).ok();
    session.print(|out| assoc_mgr::write(out, &board, &choice, &uid))
}

/// Reads `users=`, `accounts=`, `qos=` and `flags=`. The error is what Slurm says, without an exit code.
fn choice(words: &[String]) -> Result<Choice, String> {
    let mut choice = Choice::default();
    for word in words {
        let lower = word.to_ascii_lowercase();
        let (key, value) = lower.split_once('=').ok_or_else(|| format!("No value given for option {word}"))?;
        let list = choices::words(value);
        match key {
            "users" | "user" => choice.users = Some(list),
            "accounts" | "account" => choice.accounts = Some(list),
            "qos" => choice.qos = Some(list),
            "flags" | "flag" => {
                for flag in list {
                    let begins = |name: &str| !flag.is_empty() && name.starts_with(&flag);
                    match () {
                        () if begins("users") => choice.show_users = true,
                        () if begins("assoc") || flag == "associations" => choice.show_associations = true,
                        () if begins("qos") => choice.show_qos = true,
                        () => {
                            return Err(format!("invalid flag '{flag}', valid options are 'Assoc, QOS, and/or Users'"));
                        }
                    }
                }
            }
            _ => return Err(format!("invalid option: {word}")),
        }
    }
    Ok(choice)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(words: &[&str]) -> Result<Choice, String> {
        choice(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_shown_is_chosen_by_words() {
        let both = read(&["Users=alice,bob", "accounts=chem", "flags=assoc,QOS"]).unwrap();
        assert_eq!((both.users.unwrap().len(), both.accounts.unwrap()), (2, vec!["chem".to_owned()]));
        assert!(both.show_associations && both.show_qos && !both.show_users);
        assert_eq!(read(&["users"]).unwrap_err(), "No value given for option users");
        assert_eq!(
            read(&["flags=bad"]).unwrap_err(),
            "invalid flag 'bad', valid options are 'Assoc, QOS, and/or Users'"
        );
    }
}
