//! Tables of named fields, as the commands about usage and accounting print them (`sacct`, `sstat`): a list of names with widths,
//! `jobid%30,state%-10`, a heading with a line below it, a blank behind each column, or values with a delimiter.

use garrick_model::visible::written_out;
use std::{
    fmt,
    io::{self, Write},
};

/// What becomes of a value that is longer than its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is cut, and ends in `+`.
    Text,
    /// It is written whole: amounts and times that something took.
    Number,
    /// The column is filled with `#`: half of a date would be another.
    Date,
}

/// A field; `V` gives its value.
pub struct Field<V> {
    /// Its name, and heading.
    pub name: &'static str,
    /// Characters.
    pub width: usize,
    /// Values stand at the left unless a width is asked for.
    pub left: bool,
    /// What becomes of long values.
    pub kind: Kind,
    /// Its value.
    pub value: V,
}

/// A field whose long values are cut.
pub const fn text<V>(name: &'static str, width: usize, value: V) -> Field<V> {
    Field { name, width, left: false, kind: Kind::Text, value }
}

impl<V> fmt::Debug for Field<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A column.
pub struct Column<V: 'static> {
    /// Field.
    pub field: &'static Field<V>,
    width: usize,
    left: bool,
}

impl<V> Clone for Column<V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Column<V> {}

impl<V> fmt::Debug for Column<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}%{}{}", self.field, if self.left { "-" } else { "" }, self.width)
    }
}

/// Reads a list of fields: the beginning of a name will do, and the first field that has it is meant; `all`, or no name before the
/// width, stands for every field. A width that is no number is 0. The error is the name that no field has.
pub fn columns<V>(fields: &'static [Field<V>], format: &str) -> Result<Vec<Column<V>>, String> {
    let mut columns = Vec::new();
    for word in format.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (name, width) = word.split_once('%').map_or((word, None), |(name, width)| (name, Some(signed(width))));
        let begins = |field: &&Field<V>| begins(field.name, name);
        if begins_all(name) {
            columns.extend(fields.iter().map(|field| column(field, width)));
        } else {
            let field = fields.iter().find(begins).ok_or_else(|| word.to_owned())?;
            columns.push(column(field, width));
        }
    }
    Ok(columns)
}

/// Reads a list of fields as `sacctmgr` and `sreport` do: `find` knows the names, and a width that is no number, or 0, is that of the
/// field. The error is the name that it does not know.
pub fn chosen<V>(format: &str, find: impl Fn(&str) -> Option<&'static Field<V>>) -> Result<Vec<Column<V>>, String> {
    let word = |word: &str| {
        let (name, width) = word.split_once('%').map_or((word, None), |(name, width)| (name, Some(signed(width))));
        let field = find(name).ok_or_else(|| name.to_owned())?;
        Ok(column(field, width.filter(|width| *width != 0)))
    };
    format.split(',').map(str::trim).filter(|word| !word.is_empty()).map(word).collect()
}

fn begins(name: &str, beginning: &str) -> bool {
    name.get(..beginning.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(beginning))
}

/// The beginning of `all` stands for all fields too, whatever other fields begin so (seen in Slurm 26.05).
fn begins_all(name: &str) -> bool {
    begins("all", name)
}

/// The number at the beginning of a text, 0 if there is none.
fn signed(text: &str) -> i64 {
    let (sign, figures) = text.strip_prefix('-').map_or((1, text), |figures| (-1, figures));
    let count = figures.bytes().take_while(u8::is_ascii_digit).count();
    sign * figures[..count].parse::<u16>().map_or(0, i64::from)
}

fn column<V>(field: &'static Field<V>, width: Option<i64>) -> Column<V> {
    match width {
        None => Column { field, width: field.width, left: field.left },
        Some(width) => Column { field, width: usize::try_from(width.unsigned_abs()).unwrap_or(0), left: width < 0 },
    }
}

/// How a table is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Columns, with a blank behind each.
    Columns,
    /// This behind each value.
    Parsable(String),
    /// This between values.
    Parsable2(String),
}

impl Setting {
    fn line<V>(
        &self,
        out: &mut dyn Write,
        columns: &[Column<V>],
        value: impl Fn(&Column<V>) -> String,
    ) -> io::Result<()> {
        let value = |column: &Column<V>| {
            let value = value(column);
            written_out(&value).into_owned()
        };
        match self {
            Self::Columns => columns.iter().try_for_each(|column| write!(out, "{} ", column.set(&value(column))))?,
            Self::Parsable(mark) => columns.iter().try_for_each(|column| write!(out, "{}{mark}", value(column)))?,
            Self::Parsable2(mark) => {
                write!(out, "{}", columns.iter().map(value).collect::<Vec<_>>().join(mark))?;
            }
        }
        writeln!(out)
    }

    /// The heading.
    pub fn heading<V>(&self, out: &mut dyn Write, columns: &[Column<V>]) -> io::Result<()> {
        match self {
            Self::Columns => {
                let cut = |column: &Column<V>| column.field.name.chars().take(column.width).collect::<String>();
                for column in columns {
                    write!(out, "{} ", column.padded(&cut(column)))?;
                }
                writeln!(out)?;
                for column in columns {
                    write!(out, "{} ", "-".repeat(column.width))?;
                }
                writeln!(out)
            }
            _ => self.line(out, columns, |column| column.field.name.to_owned()),
        }
    }

    /// A row; `value` gives what stands in a field.
    pub fn row<V>(&self, out: &mut dyn Write, columns: &[Column<V>], value: impl Fn(&V) -> String) -> io::Result<()> {
        self.line(out, columns, |column| value(&column.field.value))
    }
}

impl<V> Column<V> {
    /// At the left, of that width, unless a width was asked for.
    #[must_use]
    pub fn left_if_usual(self, width: usize) -> Self {
        let usual = self.width == self.field.width && self.left == self.field.left;
        if usual { Self { width, left: true, ..self } } else { self }
    }

    fn padded(&self, value: &str) -> String {
        let width = self.width;
        if self.left { format!("{value:<width$}") } else { format!("{value:>width$}") }
    }

    /// In its width.
    fn set(&self, value: &str) -> String {
        let width = self.width;
        match self.field.kind {
            _ if value.chars().count() <= width => self.padded(value),
            Kind::Number => value.to_owned(),
            Kind::Date => "#".repeat(width),
            Kind::Text if width == 0 => String::new(),
            Kind::Text => value.chars().take(width - 1).chain(['+']).collect(),
        }
    }
}

/// The names of all fields, four in a line.
pub fn help_format<V>(out: &mut dyn Write, fields: &[Field<V>]) -> io::Result<()> {
    let width = fields.iter().map(|field| field.name.len()).max().unwrap_or(0);
    for line in fields.chunks(4) {
        let names: Vec<String> = line.iter().map(|field| format!("{:<width$}", field.name)).collect();
        writeln!(out, "{}", names.join(" "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const fn field(
        name: &'static str,
        width: usize,
        left: bool,
        kind: Kind,
        value: &'static str,
    ) -> Field<&'static str> {
        Field { name, width, left, kind, value }
    }

    static FIELDS: [Field<&str>; 6] = [
        field("JobID", 12, true, Kind::Text, "12.batch"),
        field("JobName", 10, false, Kind::Text, "steps"),
        field("Start", 19, false, Kind::Date, "2026-11-23T08:45:38"),
        field("State", 10, false, Kind::Text, "CANCELLED by 3001"),
        field("Elapsed", 10, false, Kind::Number, "00:00:08"),
        field("User", 9, false, Kind::Text, "alice"),
    ];

    fn shown(format: &str, setting: &Setting) -> String {
        let columns = columns(&FIELDS, format).unwrap();
        let mut out = Vec::new();
        setting.heading(&mut out, &columns).unwrap();
        setting.row(&mut out, &columns, |value| (*value).to_owned()).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// As sacct of Slurm 26.05.3 set them.
    #[test]
    fn widths_and_sides_are_slurms() {
        let set = |format| shown(format, &Setting::Columns);
        assert_eq!(
            set("jobid,state,elapsed"),
            "JobID             State    Elapsed \n------------ ---------- ---------- \n12.batch     CANCELLED+   00:00:08 \n"
        );
        assert_eq!(
            set("jobid%5,jobname%-12,state%3,user%0,jobname%"),
            "JobID JobName      Sta   \n----- ------------ ---   \n12.b+ steps        CA+   \n"
        );
        assert_eq!(set("start%4,elapsed%3"), "Star Ela \n---- --- \n#### 00:00:08 \n");
        assert_eq!(set("jobid%3x"), "Job \n--- \n12+ \n");
        assert_eq!(set(""), "\n\n\n");
    }

    #[test]
    fn names_may_be_begun() {
        let names = |format: &str| columns(&FIELDS, format).map(|c| c.iter().map(|c| c.field.name).collect::<Vec<_>>());
        assert_eq!(names("job, ST,stat,el").unwrap(), ["JobID", "Start", "State", "Elapsed"]);
        assert_eq!(names("jobid,").unwrap(), ["JobID"]);
        for all in ["all", "AL%3", "%12", "a"] {
            assert_eq!(names(all).unwrap().len(), FIELDS.len(), "{all}");
        }
        assert_eq!(names("jobid,bogus").unwrap_err(), "bogus");
        assert_eq!(names("+state").unwrap_err(), "+state");
    }

    #[test]
    fn parsable_values_are_whole() {
        assert_eq!(
            shown("jobid%3,state", &Setting::Parsable("|".into())),
            "JobID|State|\n12.batch|CANCELLED by 3001|\n"
        );
        assert_eq!(
            shown("jobid,state", &Setting::Parsable2("XX".into())),
            "JobIDXXState\n12.batchXXCANCELLED by 3001\n"
        );
    }

    #[test]
    fn a_value_stays_in_its_line() {
        let columns = columns(&FIELDS, "user").unwrap();
        let mut out = Vec::new();
        Setting::Parsable2("|".into()).row(&mut out, &columns, |_| "a\nb".to_owned()).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a\\nb\n");
    }
}
