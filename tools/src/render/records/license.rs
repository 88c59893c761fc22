//! A license of `scontrol show licenses`.

use super::Lines;
use garrick_model::view::LicenseView;
use std::io::{self, Write};

/// Writes it. No empty line follows, unlike other records.
pub fn write(license: &LicenseView, lines: Lines, out: &mut dyn Write) -> io::Result<()> {
    let LicenseView { name, total, used } = license;
    let between = match lines {
        Lines::Many => "\n    ",
        Lines::One => " ",
    };
    let free = total.saturating_sub(*used);
    writeln!(out, "LicenseName={name}{between}Total={total} Used={used} Free={free} Reserved=0 Remote=no")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_license_has_two_lines_or_one() {
        let license = LicenseView { name: "ansys".to_owned(), total: 100, used: 2 };
        let text = |lines| {
            let mut out = Vec::new();
            write(&license, lines, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let many = "LicenseName=ansys\n    Total=100 Used=2 Free=98 Reserved=0 Remote=no\n";
        assert_eq!(text(Lines::Many), many);
        assert_eq!(text(Lines::One), "LicenseName=ansys Total=100 Used=2 Free=98 Reserved=0 Remote=no\n");
    }
}
