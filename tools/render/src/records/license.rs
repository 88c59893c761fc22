//! A license of `scontrol show licenses`.

use super::Lines;
use garrick_model::view::LicenseView;
use std::io::{self, Write};

/// Writes it. No empty line follows, unlike other records. A layer of a hierarchical resource also says its nodes, by the
/// field's name in Slurm's REST schema.
pub fn write(license: &LicenseView, lines: Lines, out: &mut dyn Write) -> io::Result<()> {
    let LicenseView { name, total, used, reserved, layer } = license;
    let between = match lines {
        Lines::Many => "\n    ",
        Lines::One => " ",
    };
    let free = total.saturating_sub(*used);
    let (total, free) = match layer {
        Some(layer) if layer.endless => ("INFINITE".to_owned(), "INFINITE".to_owned()),
        _ => (total.to_string(), free.to_string()),
    };
    write!(out, "LicenseName={name}{between}Total={total} Used={used} Free={free} Reserved={reserved} Remote=no")?;
    if let Some(layer) = layer {
        write!(out, " Nodes={}", layer.nodes)?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::view::LayerView;

    #[test]
    fn a_license_has_two_lines_or_one() {
        let license = LicenseView { name: "ansys".to_owned(), total: 100, used: 2, reserved: 1, layer: None };
        let text = |lines| {
            let mut out = Vec::new();
            write(&license, lines, &mut out).unwrap();
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
            let license =
                LicenseView { name: "power".to_owned(), total: 100, used: 2, reserved: 0, layer: layer(endless) };
            write(&license, Lines::One, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(false), "LicenseName=power Total=100 Used=2 Free=98 Reserved=0 Remote=no Nodes=n[1-2]\n");
        assert!(text(true).starts_with("LicenseName=power Total=INFINITE Used=2 Free=INFINITE "));
    }
}
