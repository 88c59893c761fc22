//! A key is one row: its name, what becomes of it, its default, how it is read and shown, and what it is for.

use super::kinds::NULL;
use crate::{
    config::syntax::{
        nearest::nearest,
        report::{SettingError, dropped, not_yet},
        values::Value,
    },
    time::Timestamp,
};
use jiff::tz::TimeZone;

/// What Garrick makes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Read and acted on.
    Honoured,
    /// Accepted in silence: Garrick does the same thing its own way, or the value only names a Slurm component.
    OwnWay,
    /// Slurm has it, Garrick does not act on it yet: one warning each.
    NotYet,
    /// Slurm itself has dropped it: one warning each.
    Dropped,
    /// Nothing that can be set: it is only shown among the keys.
    Fact,
}

/// What the configuration does not know and the controller does.
#[derive(Clone, Copy, Debug)]
pub struct ShowFacts<'a> {
    /// Start of the controller.
    pub boot_time: Timestamp,
    /// Id that the next job gets.
    pub next_job_id: u32,
    /// Number of `SlurmUser`, if there is such a user.
    pub slurm_uid: Option<u32>,
    /// Number of `SlurmdUser`.
    pub slurmd_uid: Option<u32>,
    /// Slurm's version that Garrick answers to, `26.05.3`.
    pub version: &'a str,
    /// Zone for times.
    pub zone: &'a TimeZone,
}

/// Takes a value. Inside, what there is to say about one that was accepted.
pub(in crate::config) type Read<S> = fn(&mut S, &str) -> Value<Option<SettingError>>;

/// How a key is shown.
#[derive(Clone, Copy)]
pub(in crate::config) enum Show<S> {
    /// Not at all.
    Hidden,
    /// As it was written, or its default, with the default's unit.
    AsWritten,
    /// As this says.
    Value(fn(&S) -> String),
    /// The same, of what only the controller knows too.
    With(fn(&S, &ShowFacts<'_>) -> String),
    /// Under names of its own, or under several.
    Lines(fn(&S) -> Vec<(String, String)>),
}

/// A key of settings `S`.
#[derive(Clone, Copy)]
pub struct Row<S: 'static> {
    /// The usual spelling, that of `slurm.conf(5)`.
    pub name: &'static str,
    /// What becomes of it.
    pub class: Class,
    /// What holds where it is not set: for a key that is read, as it would be written (empty: what its type has by itself),
    /// for others as it is shown.
    pub default: &'static str,
    /// What it does, in a few words; empty where it does nothing.
    pub what: &'static str,
    pub(in crate::config) read: Option<Read<S>>,
    pub(in crate::config) show: Show<S>,
    /// It is shown only where this holds.
    pub(in crate::config) shown_if: Option<fn(&S) -> bool>,
    /// There may be several lines of it.
    pub(in crate::config) repeated: bool,
    /// The key that it cannot stand beside.
    pub(in crate::config) excludes: Option<&'static str>,
    /// `scontrol update` does not take it.
    pub(in crate::config) file_only: bool,
    /// It is read and has no effect yet: whether what is set deserves a warning.
    pub(in crate::config) in_vain: Option<fn(&S) -> bool>,
}

impl<S> Row<S> {
    const fn new(class: Class, name: &'static str, default: &'static str, show: Show<S>) -> Self {
        let (what, read, shown_if, in_vain) = ("", None, None, None);
        let (repeated, file_only, excludes) = (false, false, None);
        Self { name, class, default, what, read, show, shown_if, in_vain, repeated, file_only, excludes }
    }
    /// A key that is read and acted on.
    pub(super) const fn honoured(name: &'static str, default: &'static str, read: Read<S>, what: &'static str) -> Self {
        let row = Self::new(Class::Honoured, name, default, Show::Hidden);
        Self { read: Some(read), what, ..row }
    }
    /// A key of which Slurm shows this where nothing is set.
    pub(super) const fn own_way(name: &'static str, default: &'static str) -> Self {
        Self::new(Class::OwnWay, name, default, Show::AsWritten)
    }
    /// The same, of one that has no effect yet.
    pub(super) const fn not_yet(name: &'static str, default: &'static str) -> Self {
        Self::new(Class::NotYet, name, default, Show::AsWritten)
    }
    pub(super) const fn dropped(name: &'static str) -> Self {
        Self::new(Class::Dropped, name, "", Show::Hidden)
    }
    pub(super) const fn fact(name: &'static str, show: Show<S>) -> Self {
        Self::new(Class::Fact, name, "", show)
    }
    /// The value is kept and has no effect yet. There is a warning where this holds of what is set.
    pub(super) const fn without_effect(self, said_if: fn(&S) -> bool) -> Self {
        Self { class: Class::NotYet, in_vain: Some(said_if), ..self }
    }
    pub(super) const fn shown(self, show: Show<S>) -> Self {
        Self { show, ..self }
    }
    pub(super) const fn shown_if(self, holds: fn(&S) -> bool) -> Self {
        Self { shown_if: Some(holds), ..self }
    }
    pub(super) const fn repeated(self) -> Self {
        Self { repeated: true, ..self }
    }
    pub(super) const fn file_only(self) -> Self {
        Self { file_only: true, ..self }
    }
    pub(super) const fn excludes(self, other: &'static str) -> Self {
        Self { excludes: Some(other), ..self }
    }
}

impl<S> Row<S> {
    /// Takes a value. Inside, what there is to say about it.
    pub(in crate::config) fn set(&self, settings: &mut S, text: &str) -> Value<Option<SettingError>> {
        let said = self.read.map_or(Ok(None), |read| read(settings, text))?;
        Ok(said.or_else(|| match self.class {
            Class::NotYet => self.in_vain.is_none_or(|holds| holds(settings)).then(|| not_yet(self.name)),
            Class::Dropped => Some(dropped(self.name)),
            Class::Honoured | Class::OwnWay | Class::Fact => None,
        }))
    }

    /// `Key=value` as `scontrol show` has it; `None`: there is nothing to show.
    pub(super) fn words(&self, settings: &S) -> Option<String> {
        if self.shown_if.is_some_and(|holds| !holds(settings)) {
            return None;
        }
        let pairs = match self.show {
            Show::Value(shown) => vec![(self.name.to_owned(), shown(settings))],
            Show::Lines(shown) => shown(settings),
            Show::Hidden | Show::AsWritten | Show::With(_) => return None,
        };
        Some(pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" "))
    }
}

/// A key that sets one field, and is shown as the field's kind shows it: name, default, field and kind, what it does. `Key` is
/// the type of the table's rows.
macro_rules! key {
    ($name:literal, $default:literal, $($field:ident).+: $kind:expr, $what:literal) => {
        Key::honoured(
            $name,
            $default,
            |settings, text| {
                settings.$($field).+ = $kind.read(text)?;
                Ok(None)
            },
            $what,
        )
        .shown(Show::Value(|settings| $kind.show(&settings.$($field).+)))
    };
}
pub(super) use key;

/// A type of settings whose defaults are those of a table: `blank()` has nothing in it.
macro_rules! settings_with_rows {
    ($(#[$about:meta])* pub struct $name:ident {
        $($(#[$field_about:meta])* $visible:vis $field:ident: $type:ty,)*
    }) => {
        $(#[$about])*
        pub struct $name {
            $($(#[$field_about])* $visible $field: $type,)*
        }

        impl $name {
            pub(super) fn blank() -> Self {
                Self { $($field: Default::default(),)* }
            }
        }
    };
}
pub(super) use settings_with_rows;

/// These settings with the defaults of all rows.
pub(super) fn with_defaults<S>(table: &[Row<S>], blank: S) -> S {
    table.iter().filter(|row| !matches!(row.default, "" | NULL)).fold(blank, |mut settings, row| {
        if let Some(read) = row.read {
            // A test reads each of them.
            let _ = read(&mut settings, row.default);
        }
        settings
    })
}

/// The key of a table, in any case.
pub(in crate::config) fn find<S>(table: &'static [Row<S>], name: &str) -> Option<&'static Row<S>> {
    keys(table).find(|row| row.name.eq_ignore_ascii_case(name))
}

/// All that can be set.
pub(in crate::config) fn keys<S>(table: &'static [Row<S>]) -> impl Iterator<Item = &'static Row<S>> {
    table.iter().filter(|row| row.class != Class::Fact)
}

/// The key of a table, or the word besides, that was probably meant.
fn meant<S>(table: &'static [Row<S>], besides: &[&'static str], name: &str) -> Option<&'static str> {
    let mut words: Vec<&'static str> = keys(table).map(|row| row.name).collect();
    words.sort_by_key(|word| word.to_ascii_lowercase());
    words.extend(besides);
    nearest(name, &words)
}

/// What is wrong with a key that the table does not have.
pub(in crate::config) fn unknown<S>(table: &'static [Row<S>], besides: &[&'static str], name: &str) -> SettingError {
    let wrong = SettingError::new(format!("unknown key {name}"));
    match meant(table, besides, name) {
        Some(meant) => wrong.suggest(format!("did you mean {meant}?")),
        None => wrong,
    }
}
