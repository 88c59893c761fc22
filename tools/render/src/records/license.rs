//! A license of `scontrol show licenses`.

use super::Lines;
use crate::clock::Clock;
use garrick_model::view::{LicenseView, RemoteView};
use std::io::{self, Write};

/// Writes it. No empty line follows, unlike other records. A layer of a hierarchical resource also says its nodes, by the
/// field's name in Slurm's REST schema.
pub fn write(license: &LicenseView, lines: Lines, clock: &Clock, out: &mut dyn Write) -> io::Result<()> {
    let LicenseView { name, total, used, reserved, layer, remote } = license;
    let between = match lines {
        Lines::Many => "\n    ",
        Lines::One => " ",
    };
    let free = total.saturating_sub(*used).saturating_sub(remote.map_or(0, |remote| remote.last_deficit));
    let (total, free) = match layer {
        Some(layer) if layer.endless => ("INFINITE".to_owned(), "INFINITE".to_owned()),
        _ => (total.to_string(), free.to_string()),
    };
    let is_remote = if remote.is_some() { "yes" } else { "no" };
    write!(
        out,
        "LicenseName={name}{between}Total={total} Used={used} Free={free} Reserved={reserved} Remote={is_remote}"
    )?;
    if let Some(RemoteView { last_consumed, last_deficit, changed }) = remote {
        let at = clock.at(*changed);
        write!(out, "{between}LastConsumed={last_consumed} LastDeficit={last_deficit} LastUpdate={at}")?;
    }
    if let Some(layer) = layer {
        write!(out, " Nodes={}", layer.nodes)?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::{time::Timestamp, view::LayerView};
    use jiff::tz::TimeZone;

    fn clock() -> Clock {
        Clock { zone: TimeZone::UTC, now: Timestamp(0), format: None }
    }

    /// As Slurm's guide to licenses has it.
    #[test]
    fn a_license_of_a_server_says_what_is_kept_back() {
        let remote =
            Some(RemoteView { last_consumed: 30, last_deficit: 10, changed: Timestamp::from_secs(1_677_602_367) });
        let name = "foobar@slurmdb".to_owned();
        let license = LicenseView { name, total: 80, used: 0, reserved: 0, layer: None, remote };
        let mut out = Vec::new();
        write(&license, Lines::Many, &clock(), &mut out).unwrap();
        let expected = "LicenseName=foobar@slurmdb\n    Total=80 Used=0 Free=70 Reserved=0 Remote=yes\n    \
                        LastConsumed=30 LastDeficit=10 LastUpdate=2023-02-28T16:39:27\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_license_has_two_lines_or_one() {
        let license =
            LicenseView { name: "ansys".to_owned(), total: 100, used: 2, reserved: 1, layer: None, remote: None };
        let text = |lines| {
            let mut out = Vec::new();
            write(&license, lines, &clock(), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let many = "LicenseName=ansys\n    Total=100 Used=2 Free=98 Reserved=1 Remote=no\n";
        assert_eq!(text(Lines::Many), many);
        assert_eq!(text(Lines::One), "LicenseName=ansys Total=100 Used=2 Free=98 Reserved=1 Remote=no\n");
    }

    #[test]
    fn a_layer_says_its_nodes() {
        let layer = |endless| Some(LayerView { nodes: "n[1-2]".to_owned(), endless });
        let text = |endless| {
            let mut out = Vec::new();
            let license = LicenseView {
                name: "power".to_owned(),
                total: 100,
                used: 2,
                reserved: 0,
                layer: layer(endless),
                remote: None,
            };
            write(&license, Lines::One, &clock(), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(false), "LicenseName=power Total=100 Used=2 Free=98 Reserved=0 Remote=no Nodes=n[1-2]\n");
        assert!(text(true).starts_with("LicenseName=power Total=INFINITE Used=2 Free=INFINITE "));
    }
}
