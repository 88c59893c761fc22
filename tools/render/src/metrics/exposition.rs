//! The text format in which Prometheus and others read metrics: for each family a line of help, one of its type, and a line for
//! each sample (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::fmt::{Display, Write as _};

/// What a metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// It may fall. Slurm calls all of its metrics so.
    Gauge,
    /// It grows until the process ends.
    Counter,
}

/// Metrics as text.
#[derive(Clone, Debug, Default)]
pub struct Exposition(String);

/// A label's value: a backslash, a quotation mark and the end of a line are escaped.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

impl Exposition {
    /// A family: its name, what it means in one line, and its samples, each with labels and a value. A label without a value is left
    /// out.
    pub fn family<'a, L: AsRef<[(&'a str, &'a str)]>>(
        &mut self,
        kind: Type,
        name: impl Display,
        help: &str,
        samples: impl IntoIterator<Item = (L, impl Display)>,
    ) {
        let kind = match kind {
            Type::Gauge => "gauge",
            Type::Counter => "counter",
        };
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _ = write!(self.0, "{name}");
            let mut open = '{';
            for (label, value) in labels.as_ref().iter().filter(|(_, value)| !value.is_empty()) {
                let _ = write!(self.0, "{open}{label}=\"{}\"", Escaped(value));
                open = ',';
            }
            let _ = writeln!(self.0, "{} {value}", if open == ',' { "}" } else { "" });
        }
    }

    /// A family of one sample without labels.
    pub fn value(&mut self, kind: Type, name: impl Display, help: &str, value: impl Display) {
        self.family(kind, name, help, [([("", ""); 0], value)]);
    }

    /// The text.
    pub fn text(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_left_out_where_they_are_empty() {
        let mut text = Exposition::default();
        text.value(Type::Counter, "garrick_starts", "Starts", 3);
        let samples = [("a\"b\\c\nd", 1), ("", 2)];
        text.family(Type::Gauge, "jobs", "Jobs", samples.map(|(name, count)| ([("account", name), ("x", "")], count)));
        let expected = "# HELP garrick_starts Starts\n# TYPE garrick_starts counter\ngarrick_starts 3\n\
            # HELP jobs Jobs\n# TYPE jobs gauge\njobs{account=\"a\\\"b\\\\c\\nd\"} 1\njobs 2\n";
        assert_eq!(text.text(), expected);
    }
}
