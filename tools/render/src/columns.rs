//! Column layouts of the query commands, byte for byte as Slurm prints them: the short form of `-o` (`%.18i %9P|`) and the long
//! form of `-O` (`JobID:.10,State|`). The caller's table defines the fields; this module handles only widths, alignment, literal
//! text and truncation. Called by `squeue` and `sinfo`.

use garrick_model::visible::written_out;
use std::io::{self, Write};

/// Which side of its column a value keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Padding after the value.
    Left,
    /// Padding before the value (`%.10`).
    Right,
}

/// How wide a column is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// As long as each value (`%i`).
    Natural,
    /// Exactly this many characters, longer values cut (`%18i`).
    Fixed(usize),
    /// As the longest value, at least [`AUTO_MIN`] (`%#P`).
    Auto,
}

/// Least width of a `%#` column; what `sinfo` shows for a partition column of short names.
pub const AUTO_MIN: usize = 9;
/// Width of an `-O` column that names none, as documented.
const LONG_DEFAULT: usize = 20;

/// One column: a field and how it is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column<F> {
    /// What is shown.
    pub field: F,
    /// How wide.
    pub width: Width,
    /// Which side.
    pub align: Align,
    /// Literal text after it, up to the next column.
    pub suffix: String,
}

/// A whole line's layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout<F> {
    /// Literal text before the first column.
    pub prefix: String,
    /// Columns in order.
    pub columns: Vec<Column<F>>,
    /// Letters and names that are no field's: they are told of, and the others are shown.
    pub unknown: Vec<String>,
}

/// A format string with something in it that is no field.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("Invalid {kind} format specification: {given}")]
pub struct LayoutError {
    /// `job`, `job step` or `node`.
    pub kind: &'static str,
    /// What was written.
    pub given: String,
}

/// Letters of `-o`, eight in a line.
pub fn help_format(letters: &str, out: &mut dyn Write) -> io::Result<()> {
    let letters: Vec<char> = letters.chars().collect();
    for line in letters.chunks(8) {
        line.iter().try_for_each(|letter| write!(out, "{:<6}", format!("%{letter}")))?;
        writeln!(out)?;
    }
    Ok(())
}

impl<F> Layout<F> {
    /// That nothing in the format is unknown; `kind` names the table in the error.
    ///
    /// # Errors
    ///
    /// The first that is.
    pub fn known(self, kind: &'static str) -> Result<Self, LayoutError> {
        match self.unknown.first() {
            None => Ok(self),
            Some(given) => Err(LayoutError { kind, given: given.clone() }),
        }
    }

    /// Reads the short form, `%[#|[.|-]size]letter[text]`. `field` knows the letters; others stay as they are.
    pub fn short(format: &str, field: impl Fn(char) -> Option<F>) -> Self {
        let mut layout = Self { prefix: String::new(), columns: Vec::new(), unknown: Vec::new() };
        let mut chars = format.chars().peekable();
        while let Some(c) = chars.next() {
            if c != '%' {
                layout.literal().push(c);
                continue;
            }
            // A sign before another, and one at the end, are nothing (seen in Slurm 22.05 and 26.05).
            while chars.next_if_eq(&'%').is_some() {}
            let mut align = Align::Left;
            let mut width = Width::Natural;
            let mut digits = String::new();
            loop {
                match chars.peek() {
                    Some('.') => align = Align::Right,
                    Some('-') => align = Align::Left,
                    Some('#') => width = Width::Auto,
                    Some(d) if d.is_ascii_digit() => digits.push(*d),
                    _ => break,
                }
                chars.next();
            }
            if let Ok(n) = digits.parse::<usize>()
                && n > 0
            {
                width = Width::Fixed(n);
            }
            match chars.next() {
                Some('%') => layout.literal().push('%'),
                Some(letter) => match field(letter) {
                    Some(field) => layout.columns.push(Column { field, width, align, suffix: String::new() }),
                    None => {
                        layout.unknown.push(String::from(letter));
                        layout.literal().extend(['%', letter]);
                    }
                },
                None => {}
            }
        }
        layout
    }

    /// Reads the long form, `name[:[.][size][text]],...`. `field` knows the names, given in lower case; others are left out.
    pub fn long(format: &str, field: impl Fn(&str) -> Option<F>) -> Self {
        let mut layout = Self { prefix: String::new(), columns: Vec::new(), unknown: Vec::new() };
        for item in format.split(',').filter(|s| !s.trim().is_empty()) {
            let (name, rest) = item.split_once(':').map_or((item, None), |(name, rest)| (name, Some(rest)));
            let Some(field) = field(&name.trim().to_ascii_lowercase()) else {
                layout.unknown.push(name.trim().to_owned());
                continue;
            };
            let set = rest.unwrap_or_default();
            let (align, set) = set.strip_prefix('.').map_or((Align::Left, set), |r| (Align::Right, r));
            let digits = set.len() - set.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (size, suffix) = set.split_at(digits);
            let width = match size.parse::<usize>() {
                Ok(n) if n > 0 => Width::Fixed(n),
                _ if rest.is_none() => Width::Fixed(LONG_DEFAULT),
                _ => Width::Natural,
            };
            layout.columns.push(Column { field, width, align, suffix: suffix.to_owned() });
        }
        layout
    }

    fn literal(&mut self) -> &mut String {
        match self.columns.last_mut() {
            Some(column) => &mut column.suffix,
            None => &mut self.prefix,
        }
    }

    /// Writes the heading (unless `heading` is false) and one line per row.
    pub fn write<R>(
        &self,
        out: &mut dyn Write,
        heading: bool,
        rows: &[R],
        title: impl Fn(&F) -> String,
        cell: impl Fn(&R, &F) -> String,
    ) -> io::Result<()> {
        let cells = |row: &R| -> Vec<String> {
            self.columns.iter().map(|c| written_out(&cell(row, &c.field)).into_owned()).collect()
        };
        // Only columns as wide as their longest value need every value before the first line.
        let measured: Vec<Vec<String>> = match self.columns.iter().any(|c| c.width == Width::Auto) {
            true => rows.iter().map(cells).collect(),
            false => Vec::new(),
        };
        let widest = |i: usize| measured.iter().map(|row| row[i].chars().count()).max().unwrap_or(0).max(AUTO_MIN);
        let widths: Vec<Option<usize>> = self
            .columns
            .iter()
            .enumerate()
            .map(|(i, c)| match c.width {
                Width::Natural => None,
                Width::Fixed(n) => Some(n),
                Width::Auto => Some(widest(i)),
            })
            .collect();
        if heading {
            let titles: Vec<String> = self.columns.iter().map(|c| title(&c.field)).collect();
            self.line(out, &widths, &titles)?;
        }
        if measured.is_empty() {
            return rows.iter().try_for_each(|row| self.line(out, &widths, &cells(row)));
        }
        measured.iter().try_for_each(|row| self.line(out, &widths, row))
    }

    fn line(&self, out: &mut dyn Write, widths: &[Option<usize>], cells: &[String]) -> io::Result<()> {
        let mut line = self.prefix.clone();
        for ((column, width), cell) in self.columns.iter().zip(widths).zip(cells) {
            push_cell(&mut line, cell, *width, column.align);
            line.push_str(&column.suffix);
        }
        line.push('\n');
        out.write_all(line.as_bytes())
    }
}

/// Appends a value, cut or padded to its column.
fn push_cell(line: &mut String, value: &str, width: Option<usize>, align: Align) {
    let Some(width) = width else {
        line.push_str(value);
        return;
    };
    let length = value.chars().count();
    let padding = width.saturating_sub(length);
    if align == Align::Right {
        line.extend(std::iter::repeat_n(' ', padding));
    }
    line.extend(value.chars().take(width));
    if align == Align::Left {
        line.extend(std::iter::repeat_n(' ', padding));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn letter(c: char) -> Option<char> {
        c.is_ascii_lowercase().then_some(c)
    }

    fn show(layout: &Layout<char>, rows: &[&str]) -> String {
        let mut out = Vec::new();
        layout.write(&mut out, true, rows, |f| f.to_uppercase().to_string(), |r, f| format!("{r}{f}")).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn short_form_pads_cuts_and_keeps_literal_text() {
        let layout = Layout::short("<%.4a|%3b|%c>", letter);
        assert_eq!(show(&layout, &["x", "long"]), "<   A|B  |C>\n<  xa|xb |xc>\n<long|lon|longc>\n");
        let layout = Layout::short("%%a|%%%b%%", letter);
        assert_eq!(show(&layout, &["x"]), "A|B\nxa|xb\n", "as in scripts that double the sign");
    }

    #[test]
    fn minus_means_left_and_hash_means_as_wide_as_needed() {
        let layout = Layout::short("%-5a|%#b|", letter);
        assert_eq!(show(&layout, &["a-very-long-one"]), "A    |B               |\na-ver|a-very-long-oneb|\n");
        assert_eq!(show(&layout, &["s"]), "A    |B        |\nsa   |sb       |\n");
    }

    #[test]
    fn a_value_stays_in_its_line() {
        let layout = Layout::short("%a|", letter);
        assert_eq!(show(&layout, &["x\nroot\u{1b}[2J"]), "A|\nx\\nroot\\u{1b}[2Ja|\n");
    }

    #[test]
    fn unknown_fields_are_named_and_the_others_shown() {
        let layout = Layout::short("%i %!", letter);
        assert_eq!((show(&layout, &["x"]).as_str(), layout.unknown.len()), ("I %!\nxi %!\n", 1));
        assert_eq!(layout.known("job").unwrap_err().to_string(), "Invalid job format specification: !");
        let layout = Layout::long("Nosuch,b:2", |name| name.chars().next().filter(|_| name.len() == 1));
        assert_eq!((show(&layout, &["x"]).as_str(), layout.unknown), ("B \nxb\n", vec!["Nosuch".to_owned()]));
    }

    #[test]
    fn long_form_is_twenty_wide_unless_told_otherwise() {
        let name = |n: &str| n.chars().next();
        let layout = Layout::long("Jobid,State:.6,reason:5|,x:0;,y:|", name);
        let widths: Vec<_> = layout.columns.iter().map(|c| (c.width, c.align, c.suffix.as_str())).collect();
        assert_eq!(
            widths,
            [
                (Width::Fixed(20), Align::Left, ""),
                (Width::Fixed(6), Align::Right, ""),
                (Width::Fixed(5), Align::Left, "|"),
                (Width::Natural, Align::Left, ";"),
                (Width::Natural, Align::Left, "|")
            ]
        );
        assert!(Layout::long(" , ", name).columns.is_empty());
    }
}
