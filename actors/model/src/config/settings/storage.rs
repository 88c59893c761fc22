//! Where accounting is stored (`Storage*` of slurmdbd.conf(5)): a file of SQLite, or a database on a server.

use crate::config::syntax::{
    report::{SettingError, not_yet},
    values::{self, Value},
};
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// Where Slurm has no default, since its database is no file.
const FILE: &str = "/var/lib/garrick/accounting/accounting.db";
/// `StorageLoc` on a server (slurmdbd.conf(5)).
const DATABASE: &str = "slurm_acct_db";

/// Which database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StorageKind {
    /// SQLite, in a file.
    #[default]
    File,
    /// PostgreSQL.
    Postgres,
    /// MySQL or MariaDB.
    MySql,
}

impl StorageKind {
    /// `StorageType` as it is shown.
    pub const fn text(self) -> &'static str {
        match self {
            Self::File => "accounting_storage/sqlite",
            Self::Postgres => "accounting_storage/postgresql",
            Self::MySql => "accounting_storage/mysql",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let lower = text.to_ascii_lowercase();
        match lower.strip_prefix("accounting_storage/").unwrap_or(&lower) {
            "sqlite" => Some(Self::File),
            "postgresql" | "postgres" | "pgsql" => Some(Self::Postgres),
            "mysql" | "mariadb" => Some(Self::MySql),
            _ => None,
        }
    }
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// A host's name or address.
    Host(String),
    /// A socket of this host; of PostgreSQL, the folder that it is in.
    Socket(PathBuf),
}

impl ServerAddress {
    fn parse(text: &str) -> Value<Self> {
        match text.strip_prefix("unix:") {
            Some(path) if Path::new(path).is_absolute() => Ok(Self::Socket(path.into())),
            Some(path) => Err(SettingError::new(format!("\"{path}\" is not an absolute path"))),
            None if text.is_empty() => Err(SettingError::new("no host is named")),
            None => Ok(Self::Host(text.to_owned())),
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => f.write_str(host),
            Self::Socket(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// It is shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// As it is written.
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// For the server.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// Files for TLS with a server, as `StorageParameters` names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageTls {
    /// `SSL_CERT`: the service's certificate.
    pub certificate: Option<PathBuf>,
    /// `SSL_KEY`: its key.
    pub key: Option<PathBuf>,
    /// `SSL_CA`: who signs servers' certificates. A server without a certificate for its host's name is not spoken with.
    pub authority: Option<PathBuf>,
    /// `SSL_CAPATH`: a folder with files of such.
    pub authorities: Option<PathBuf>,
}

/// What is written of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// `StorageType`.
    pub kind: StorageKind,
    /// `StorageHost`.
    pub host: ServerAddress,
    /// `StorageBackupHost`: tried where the first one does not answer.
    pub backup: Option<ServerAddress>,
    /// `StoragePort`; `None`: the database's own (PostgreSQL 5432, MySQL 3306).
    pub port: Option<u16>,
    /// `StorageUser`; `None`: the user that the service runs as.
    pub user: Option<String>,
    /// `StoragePass`.
    pub password: Option<Password>,
    /// `JobCompPassScript`: a program that prints the password. It runs for each connection, and holds before one that is written.
    pub password_script: Option<PathBuf>,
    /// `StorageLoc`.
    pub location: Option<String>,
    /// `StorageParameters`, as it was written.
    pub parameters: Option<String>,
    /// And what it names.
    pub tls: StorageTls,
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            kind: StorageKind::File,
            host: ServerAddress::Host("localhost".to_owned()),
            backup: None,
            port: None,
            user: None,
            password: None,
            password_script: None,
            location: None,
            parameters: None,
            tls: StorageTls::default(),
        }
    }
}

impl Storage {
    /// A file of SQLite.
    pub fn in_file(path: &Path) -> Self {
        Self { location: Some(path.to_string_lossy().into_owned()), ..Self::default() }
    }

    /// The file, where it is one.
    pub fn file(&self) -> Option<&Path> {
        (self.kind == StorageKind::File).then(|| Path::new(self.location.as_deref().unwrap_or(FILE)))
    }

    /// The name of the database on a server.
    pub fn database(&self) -> &str {
        self.location.as_deref().unwrap_or(DATABASE)
    }

    /// The port of a server.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(match self.kind {
            StorageKind::Postgres => 5432,
            StorageKind::File | StorageKind::MySql => 3306,
        })
    }

    /// The folder for archives where `ArchiveDir` names none: beside the file.
    pub fn archive(&self) -> PathBuf {
        self.file().unwrap_or_else(|| Path::new(FILE)).with_file_name("archive")
    }

    /// `StorageType`: a kind, or a URL with most of the other keys in it.
    pub(in crate::config) fn set_kind(&mut self, text: &str) -> Value<()> {
        match (StorageKind::parse(text), text.split_once("://")) {
            (Some(kind), _) => {
                self.kind = kind;
                Ok(())
            }
            (None, Some((scheme, rest))) => self.set_url(scheme, rest),
            (None, None) => Err(SettingError::new(format!("{text} is not known")).suggest(
                "accounting_storage/sqlite, accounting_storage/mysql, accounting_storage/postgresql or a URL",
            )),
        }
    }

    /// `postgresql://user:password@host:port/database?ssl_ca=/etc/ca.pem`, and `mysql://` likewise; `sqlite:///the/file`.
    fn set_url(&mut self, scheme: &str, rest: &str) -> Value<()> {
        let Some(kind) = StorageKind::parse(scheme) else {
            return Err(SettingError::new(format!("{scheme}:// is not known"))
                .suggest("sqlite://, postgresql:// and mysql:// are"));
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        self.kind = kind;
        if kind == StorageKind::File {
            self.location = Some(format!("/{}", decoded(path)?));
            return if authority.is_empty() && query.is_empty() {
                Ok(())
            } else {
                Err(SettingError::new("a URL of SQLite has a file and nothing else: sqlite:///the/file"))
            };
        }
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        if !user.is_empty() {
            let (name, password) = user.split_once(':').map_or((user, None), |(user, word)| (user, Some(word)));
            self.user = Some(decoded(name)?);
            self.password = password.map(decoded).transpose()?.map(Password);
        }
        let (host, port) = split_port(host);
        if !host.is_empty() {
            self.host = ServerAddress::Host(host.to_owned());
        }
        if let Some(port) = port {
            self.set_port(port)?;
        }
        if !path.is_empty() {
            self.location = Some(decoded(path)?);
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if key.eq_ignore_ascii_case("socket") || key.eq_ignore_ascii_case("host") {
                self.host = ServerAddress::parse(&format!("unix:{}", decoded(value)?))?;
            } else if let Some(note) = self.set_parameter(key, &decoded(value)?)? {
                return Err(note);
            }
        }
        Ok(())
    }

    pub(in crate::config) fn set_host(&mut self, text: &str) -> Value<()> {
        self.host = ServerAddress::parse(text)?;
        Ok(())
    }

    pub(in crate::config) fn set_backup(&mut self, text: &str) -> Value<()> {
        self.backup = Some(ServerAddress::parse(text)?);
        Ok(())
    }

    pub(in crate::config) fn set_port(&mut self, text: &str) -> Value<()> {
        let port = values::number(text, 1, u32::from(u16::MAX))?;
        self.port = u16::try_from(port).ok();
        Ok(())
    }

    pub(in crate::config) fn set_password(&mut self, text: &str) {
        self.password = (!text.is_empty()).then(|| Password::new(text));
    }

    pub(in crate::config) fn set_password_script(&mut self, text: &str) -> Value<()> {
        let script = values::optional(text).map(PathBuf::from);
        if script.as_deref().is_some_and(|script| !script.is_absolute()) {
            return Err(SettingError::new(format!("\"{text}\" is not an absolute path"))
                .suggest("the path of a program that prints the password"));
        }
        self.password_script = script;
        Ok(())
    }

    /// `StorageParameters`: what of it has no effect yet comes back.
    pub(in crate::config) fn set_parameters(&mut self, text: &str) -> Value<Option<SettingError>> {
        self.parameters = Some(text.to_owned());
        let mut note = None;
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(SettingError::new(format!("\"{pair}\" has no value")));
            };
            note = self.set_parameter(key.trim(), value.trim())?.or(note);
        }
        Ok(note)
    }

    fn set_parameter(&mut self, key: &str, value: &str) -> Value<Option<SettingError>> {
        let place = match key.to_ascii_uppercase().as_str() {
            "SSL_CERT" => &mut self.tls.certificate,
            "SSL_KEY" => &mut self.tls.key,
            "SSL_CA" => &mut self.tls.authority,
            "SSL_CAPATH" => &mut self.tls.authorities,
            // Which ciphers are good is the TLS library's business, and a token comes from a script that is not run.
            "SSL_CIPHER" | "TOKEN_DURATION" => return Ok(Some(not_yet(key))),
            _ => {
                return Err(SettingError::new(format!("{key} is not known"))
                    .suggest("SSL_CERT, SSL_KEY, SSL_CA and SSL_CAPATH are"));
            }
        };
        *place = Some(value.into());
        Ok(None)
    }

    /// What does not go together: the key, and what is wrong.
    pub(in crate::config) fn wrong(&self) -> Option<(&'static str, SettingError)> {
        if self.file().is_some_and(|file| !file.is_absolute()) {
            let wrong = SettingError::new(format!("\"{}\" is not an absolute path", self.database()));
            return Some((
                "StorageLoc",
                wrong.suggest("a file for accounting_storage/sqlite; or name another StorageType"),
            ));
        }
        if self.kind != StorageKind::File && (self.database().is_empty() || self.database().contains('/')) {
            let wrong = SettingError::new(format!("\"{}\" is not the name of a database", self.database()));
            return Some(("StorageLoc", wrong));
        }
        (self.tls.certificate.is_some() != self.tls.key.is_some())
            .then(|| ("StorageParameters", SettingError::new("SSL_CERT and SSL_KEY go together")))
    }
}

/// A host and what follows its colon; addresses with colons are in brackets.
fn split_port(text: &str) -> (&str, Option<&str>) {
    if let Some((host, rest)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        return (host, rest.strip_prefix(':'));
    }
    text.rsplit_once(':').map_or((text, None), |(host, port)| (host, Some(port)))
}

/// `%40` stands for `@` in a URL (RFC 3986).
fn decoded(text: &str) -> Value<String> {
    let wrong = || SettingError::new("a % in a URL is followed by two digits of base 16");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16)).ok_or_else(wrong);
        let value = digit(rest.next())? * 16 + digit(rest.next())?;
        bytes.push(u8::try_from(value).map_err(|_| wrong())?);
    }
    String::from_utf8(bytes).map_err(|_| SettingError::new("what a URL says is not UTF-8"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(kind: &str) -> Value<Storage> {
        let mut storage = Storage::default();
        storage.set_kind(kind).map(|()| storage)
    }

    #[test]
    fn a_url_has_all_in_one() {
        let storage = of("postgresql://slurm:p%40ss@db1:5433/acct?ssl_ca=/etc/ca.pem").unwrap();
        assert_eq!(
            (storage.kind, storage.host.to_string(), storage.port()),
            (StorageKind::Postgres, "db1".into(), 5433)
        );
        assert_eq!((storage.user.as_deref(), storage.database()), (Some("slurm"), "acct"));
        assert_eq!(storage.password.as_ref().map(Password::reveal), Some("p@ss"));
        assert_eq!(storage.tls.authority.as_deref(), Some(Path::new("/etc/ca.pem")));
        let storage = of("mysql://[::1]/x?socket=/run/mysqld/mysqld.sock").unwrap();
        assert_eq!(storage.host, ServerAddress::Socket("/run/mysqld/mysqld.sock".into()));
        assert_eq!((storage.port(), storage.user.as_deref(), storage.database()), (3306, None, "x"));
        assert_eq!(of("sqlite:///srv/a.db").unwrap().file(), Some(Path::new("/srv/a.db")));
        for wrong in ["oracle://x", "mysql://h:port/x", "mysql://h/x?nosuch=1", "postgresql://%zz@h/x", "sqlite://h/x"]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_password_is_not_told() {
        let mut storage = of("accounting_storage/mysql").unwrap();
        storage.set_password("secret");
        assert!(!format!("{storage:?}").contains("secret"));
    }

    #[test]
    fn what_does_not_go_together_is_an_error() {
        assert_eq!(of("accounting_storage/mysql").unwrap().wrong(), None);
        assert_eq!(of("accounting_storage/mysql").unwrap().database(), "slurm_acct_db");
        let with = |kind: &str, location: &str| Storage { location: Some(location.to_owned()), ..of(kind).unwrap() };
        assert_eq!(with("accounting_storage/mysql", "/srv/a.db").wrong().unwrap().0, "StorageLoc");
        assert_eq!(with("accounting_storage/sqlite", "slurm_acct_db").wrong().unwrap().0, "StorageLoc");
        let mut storage = of("accounting_storage/postgresql").unwrap();
        assert_eq!(storage.set_parameters("SSL_CERT=/c.pem,SSL_CA=/ca.pem").unwrap(), None);
        assert_eq!(storage.wrong().unwrap().0, "StorageParameters");
        assert_eq!(storage.set_parameters("SSL_KEY=/k.pem").unwrap(), None);
        assert_eq!(storage.wrong(), None);
        assert!(storage.set_parameters("SSL_CIPHER=AES").unwrap().is_some());
        assert!(storage.set_parameters("SSL_NOSUCH=1").is_err());
    }
}
