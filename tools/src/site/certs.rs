//! `garrick certs`: the certificates of a cluster's processes, for administrators.

use super::SiteError;
use crate::{
    options::table::Arg,
    output::{self, Console},
    query::arguments::{self, Outcome, Table, option},
};
use garrick_asking::cluster::Cluster;
use garrick_model::{
    hostlist,
    messages::command::{CertView, CommandReply, CommandRequest, RotationView},
    time::{Timestamp, system_zone},
};
use garrick_render::columns::Layout;
use std::{ffi::OsString, io::Write};

pub(crate) static TABLE: Table = Table {
    program: "garrick certs",
    purpose: "list: all certificates and their expiry. revoke NODES: exclude nodes. renew [NODES]: make new certificates now.\n\
              rotate: replace the certificate authority, step by step; list shows the progress.",
    operands: "list | revoke NODES | renew [NODES] | rotate",
    words: &[],
    options: &[option(
        "leave-behind",
        None,
        Arg::None,
        "rotate: take the next step although nodes are missing; they have to join again",
    )],
    misuse: 1,
};

/// Runs `garrick certs`. Only root, SlurmUser and the controller's own user are answered.
pub fn main(args: &[OsString], console: &Console) -> Result<i32, SiteError> {
    let arguments = match arguments::read(&TABLE, args, console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return Ok(code),
    };
    let words: Vec<&str> = arguments.operands.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    let names = |text: &str| hostlist::expand(text).map_err(|e| SiteError::Usage(format!("nodes {text}: {e}")));
    let request = match words[..] {
        ["list"] | [] => CommandRequest::ListCerts,
        ["revoke", nodes] => CommandRequest::RevokeCerts { nodes: names(nodes)? },
        ["renew"] => CommandRequest::RenewCerts { nodes: Vec::new() },
        ["renew", nodes] => CommandRequest::RenewCerts { nodes: names(nodes)? },
        ["rotate"] => CommandRequest::RotateAuthority { leave_behind: arguments.has("leave-behind") },
        ["revoke"] => return Err(SiteError::Usage("certs revoke needs the nodes: certs revoke n[1-2]".to_owned())),
        _ => return Err(SiteError::Usage(format!("certs takes {}", TABLE.operands))),
    };
    match Cluster::find(None)?.ask("garrick", &request)? {
        CommandReply::Certs { certs, authority, rotation } => {
            Ok(output::finish(console, output::stdout(|out| render(&certs, authority, rotation.as_ref(), out)), 0))
        }
        CommandReply::Done => Ok(0),
        other => Err(SiteError::Cluster(format!("unexpected answer: {other:?}"))),
    }
}

fn render(
    certs: &[CertView],
    authority: Timestamp,
    rotation: Option<&RotationView>,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let zone = system_zone();
    let layout = Layout::short("%10r %#n %32s %19i %19e %a", Some);
    let head = |field: &char| match field {
        'r' => "ROLE".to_owned(),
        'n' => "NAME".to_owned(),
        's' => "SERIAL".to_owned(),
        'i' => "ISSUED".to_owned(),
        'e' => "EXPIRES".to_owned(),
        _ => "STATE".to_owned(),
    };
    let now = Timestamp::now();
    layout.write(out, true, certs, head, |one, field| match field {
        'r' => one.role.clone(),
        'n' => one.name.clone(),
        's' => one.serial.clone(),
        'i' => one.issued.text(&zone),
        'e' => one.expires.text(&zone),
        _ => match one.revoked {
            Some(at) => format!("revoked {}", at.text(&zone)),
            None if one.expires < now => "expired".to_owned(),
            None => "valid".to_owned(),
        },
    })?;
    writeln!(out, "The authority's own certificate ends {}", authority.text(&zone))?;
    let Some(RotationView { issuing, missing }) = rotation else { return Ok(()) };
    let step = if *issuing { "it issues, and the old one is still trusted" } else { "it is made known" };
    writeln!(
        out,
        "A new authority takes its place: {step}; {} nodes are missing: {}",
        missing.len(),
        hostlist::fold(missing)
    )
}
