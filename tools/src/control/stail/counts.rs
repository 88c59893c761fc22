//! `stail --counts`: how many messages the actors of the controller's process have handled since it started.

use super::Form;
use crate::{
    output::{self, Console},
    telling::Tell as _,
};
use garrick_asking::contact::Contact;
use garrick_model::messages::command::{CommandReply, CommandRequest, MessageCount};
use std::io::{self, Write};

/// Asks and shows. Returns the exit code.
pub fn main(console: &Console, prefixes: Vec<String>, form: Form) -> i32 {
    let answer = Contact::open(console).and_then(|mut contact| {
        match contact.ask(&CommandRequest::CountMessages { prefixes })? {
            CommandReply::MessageCounts(counts) => Ok(counts),
            other => Err(contact.unexpected(&other)),
        }
    });
    match answer {
        Ok(counts) => output::finish(console, output::stdout(|out| render(&counts, form, out)), 0),
        Err(error) => error.tell_as(console),
    }
}

/// One line each: count, actor, message.
pub fn render(counts: &[MessageCount], form: Form, out: &mut dyn Write) -> io::Result<()> {
    for count in counts {
        match form {
            Form::Json => {
                serde_json::to_writer(&mut *out, count).map_err(io::Error::from)?;
                writeln!(out)?;
            }
            Form::Text => writeln!(out, "{:>9} {:<24} {}", count.handled, count.actor, count.message)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_line_has_count_actor_and_message() {
        let count = |handled, actor: &str, message: &str| MessageCount {
            actor: actor.to_owned(),
            message: message.to_owned(),
            handled,
        };
        let counts = [count(3, "/controller", "Heartbeat"), count(12_345, "/job/*", "StepReport")];
        let shown = |form| {
            let mut out = Vec::new();
            render(&counts, form, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            shown(Form::Text),
            "        3 /controller              Heartbeat\n    12345 /job/*                   StepReport\n"
        );
        assert_eq!(
            shown(Form::Json).lines().next(),
            Some(r#"{"actor":"/controller","message":"Heartbeat","handled":3}"#)
        );
    }
}
