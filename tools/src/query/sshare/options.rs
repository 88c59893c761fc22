//! Options of `sshare`.

use crate::{
    options::table::Arg,
    query::{
        arguments::{Arguments, Table, option},
        choices::{self, FormError},
    },
};
use garrick_render::{
    field_table::Setting,
    json::Form,
    sshare::{self as fields, Choice, Column},
};

/// Options of `sshare`.
pub static TABLE: Table = Table {
    program: "sshare",
    purpose: "Show the shares of accounts and users, and what they have used of them.",
    operands: "",
    words: &[],
    options: &[
        option("all", Some('a'), Arg::None, "all users"),
        option("accounts", Some('A'), Arg::Required("account(s)"), "only these accounts"),
        option("helpformat", Some('e'), Arg::None, "list the fields"),
        option("json", None, Arg::Optional("data_parser"), "as JSON"),
        option("long", Some('l'), Arg::None, "all columns"),
        option("partition", Some('m'), Arg::None, "with the partitions of associations"),
        option("clusters", Some('M'), Arg::Required("cluster"), "the cluster, only the own one"),
        option("noheader", Some('n'), Arg::None, "no heading"),
        option("format", Some('o'), Arg::Required("fields"), "fields, %WIDTH behind a name; negative: to the left"),
        option("parsable", Some('p'), Arg::None, "with | behind each value"),
        option("parsable2", Some('P'), Arg::None, "with | between values"),
        option("users", Some('u'), Arg::Required("user(s)"), "only these users"),
        option("Users", Some('U'), Arg::None, "only users, without the accounts above them"),
        option("verbose", Some('v'), Arg::None, "more messages"),
        option("yaml", None, Arg::Optional("data_parser"), "as YAML"),
    ],
    misuse: 1,
};

/// Between values.
const DELIMITER: &str = "|";

/// What is to be done.
#[derive(Debug)]
pub struct Request {
    /// Which associations.
    pub choice: Choice,
    /// Columns that were asked for; `None`: the usual ones.
    pub columns: Option<Vec<Column>>,
    /// The usual ones are all of them.
    pub long: bool,
    /// They have the partition.
    pub partition: bool,
    /// How they are set.
    pub setting: Setting,
    /// The heading.
    pub heading: bool,
    /// A document.
    pub form: Option<Form>,
    /// Clusters were named: the heading says which it is.
    pub names_cluster: bool,
    /// What was asked for is said.
    pub verbose: bool,
}

/// Options that cannot be used, in the words that the user gets.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A field.
    #[error("Invalid field requested: \"{0}\"")]
    Field(String),
    /// A form of documents.
    #[error("there is no such form of documents")]
    Form(FormError),
    /// Something that is no option.
    #[error("Unrecognized option: {0}")]
    Operand(String),
}

/// Reads the options. `own`: name of the user who asks.
pub fn read(arguments: &Arguments, own: &dyn Fn() -> String) -> Result<Request, RequestError> {
    if let Some(word) = arguments.words().into_iter().next() {
        return Err(RequestError::Operand(word));
    }
    let list = |name| arguments.value(name).map(|text| choices::words(&text.to_ascii_lowercase()));
    let users = match (list("users"), arguments.has("all")) {
        (Some(users), _) => Some(users.into_iter().map(named).collect()),
        (None, true) => None,
        (None, false) => Some(vec![own()]),
    };
    // Slurm shows the first field where the list is empty.
    let format = arguments.value("format").map(|format| if format.is_empty() { "Account".to_owned() } else { format });
    let setting = match (arguments.has("parsable2"), arguments.has("parsable")) {
        (true, _) => Setting::Parsable2(DELIMITER.to_owned()),
        (false, true) => Setting::Parsable(DELIMITER.to_owned()),
        (false, false) => Setting::Columns,
    };
    Ok(Request {
        choice: Choice { accounts: list("accounts"), users, users_only: arguments.has("Users") },
        columns: format.map(|format| fields::columns(&format)).transpose().map_err(RequestError::Field)?,
        long: arguments.has("long"),
        partition: arguments.has("partition"),
        setting,
        heading: !arguments.has("noheader"),
        form: choices::form(arguments).map_err(RequestError::Form)?,
        names_cluster: arguments.value("clusters").is_some_and(|names| !names.is_empty()),
        verbose: arguments.has("verbose"),
    })
}

/// A user may be named by his number.
fn named(user: String) -> String {
    match user.parse::<u32>() {
        Ok(uid) => choices::user_name(uid),
        Err(_) => user,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::query::arguments;
    use std::ffi::OsString;

    fn request(words: &[&str]) -> Result<Request, RequestError> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        read(&arguments::parse(&TABLE, &words).unwrap(), &|| "alice".to_owned())
    }

    #[test]
    fn whose_shares_are_shown() {
        let users = |words: &[&str]| request(words).unwrap().choice.users;
        assert_eq!(users(&[]), Some(vec!["alice".to_owned()]));
        assert_eq!(users(&["-a"]), None);
        assert_eq!(users(&["-a", "-u", "Bob,carol"]), Some(vec!["bob".to_owned(), "carol".to_owned()]));
        assert!(request(&["-U"]).unwrap().choice.users_only);
        assert_eq!(request(&["-A", "a,b"]).unwrap().choice.accounts.unwrap(), ["a", "b"]);
    }

    #[test]
    fn what_cannot_be_used_is_told_in_slurms_words() {
        assert_eq!(request(&["-o", "bogus"]).unwrap_err().to_string(), "Invalid field requested: \"bogus\"");
        assert_eq!(request(&["-o", ""]).unwrap().columns.unwrap().len(), 1);
        assert_eq!(request(&["extra"]).unwrap_err(), RequestError::Operand("extra".to_owned()));
    }
}
