//! `scontrol show licenses`.

use super::Session;
use crate::query::choices;
use garrick_model::messages::command::{CommandReply, CommandRequest};
use garrick_render::{clock::Clock, json, records};

/// Shows all of them, or the named one.
pub fn show(session: &mut Session, name: Option<&str>) -> i32 {
    let answer = session.cluster().and_then(|c| match c.ask(&CommandRequest::ListLicenses)? {
        CommandReply::Licenses { licenses, at } => Ok((licenses, at)),
        other => Err(c.unexpected(&other)),
    });
    let (mut licenses, at) = match answer {
        Ok(answer) => answer,
        Err(error) => return session.failed("slurm_load_licenses", &error),
    };
    let any = !licenses.is_empty();
    licenses.retain(|license| name.is_none_or(|name| license.name == name));
    if let (Some(name), true, true, None) = (name, any, licenses.is_empty(), session.manner.form) {
        return session.plain_error(format_args!("License {name} not found"));
    }
    if let Some(form) = session.manner.form {
        let meta = choices::meta(&session.cluster_name(), form);
        return session.print(|out| form.write(out, json::licenses(&licenses, at, &meta)));
    }
    let (manner, clock) = (session.manner, Clock::system());
    session.print(|out| {
        if licenses.is_empty() && !manner.quiet {
            writeln!(out, "No licenses configured in Slurm.")?;
        }
        licenses.iter().try_for_each(|license| records::license::write(license, manner.lines, &clock, out))
    })
}
