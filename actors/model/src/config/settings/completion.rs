//! Job completion: the keys `JobComp*` of slurm.conf(5).

use super::{
    kinds::NULL,
    storage::{Password, Storage, StorageKind},
};
use crate::config::syntax::{
    report::SettingError,
    values::{self, Value},
};
use std::fmt;

/// Where runs of jobs that are over are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompletionType {
    /// `jobcomp/none`: nowhere.
    #[default]
    None,
    /// `jobcomp/filetxt`: a line of a text file each.
    FileText,
    /// `jobcomp/script`: a program is run for each.
    Script,
    /// `jobcomp/elasticsearch`: a JSON document each, posted over HTTP.
    Elasticsearch,
    /// `jobcomp/kafka`: a JSON message each, to a topic of Kafka.
    Kafka,
    /// `jobcomp/lua`: a function of `jobcomp.lua` is called for each.
    Lua,
    /// `jobcomp/mysql`, and `jobcomp/postgresql`: a row of a table each.
    Database,
}

impl CompletionType {
    /// Of a name without `jobcomp/`, in small letters; of a database, which one.
    fn of(name: &str) -> Option<(Self, StorageKind)> {
        let kind = match name {
            "none" | "(null)" => Self::None,
            "filetxt" => Self::FileText,
            "script" => Self::Script,
            "elasticsearch" => Self::Elasticsearch,
            "kafka" => Self::Kafka,
            "lua" => Self::Lua,
            "mysql" | "mariadb" => return Some((Self::Database, StorageKind::MySql)),
            "postgresql" | "postgres" | "pgsql" => return Some((Self::Database, StorageKind::Postgres)),
            _ => return None,
        };
        Some((kind, StorageKind::File))
    }
}

/// Where a text file is if `JobCompLoc` does not say it (slurm.conf(5)).
const DEFAULT_FILE: &str = "/var/log/slurm_jobcomp.log";
/// The database, likewise.
const DEFAULT_DATABASE: &str = "slurm_jobcomp_db";
/// Most programs at a time. More would hardly be meant.
const MOST_SCRIPTS: u32 = 1000;

/// `JobCompParams` for Kafka. What is documented as lost by default is not lost here: messages are produced again until the broker
/// has them, as with `requeue_on_msg_timeout`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaSettings {
    /// `enable_job_start`: a message when a run starts, too.
    pub job_start: bool,
    /// `flush_timeout`, milliseconds: how long the controller's end waits for messages that are on their way. `None`: for ever (-1).
    pub flush_timeout_ms: Option<u32>,
    /// `poll_interval`, seconds: how often the library's events are looked for while there is nothing to send.
    pub poll_interval_secs: u32,
    /// `topic`; `None`: `ClusterName`.
    pub topic: Option<String>,
    /// `topic_job_start`; `None`: `ClusterName` and `-job-start`.
    pub topic_job_start: Option<String>,
}

impl Default for KafkaSettings {
    /// As in slurm.conf(5).
    fn default() -> Self {
        Self {
            job_start: false,
            flush_timeout_ms: Some(500),
            poll_interval_secs: 2,
            topic: None,
            topic_job_start: None,
        }
    }
}

/// `JobCompParams` for `jobcomp/script`: words of Garrick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptSettings {
    /// `script_timeout`, seconds: a program that runs longer is killed.
    pub timeout_secs: u32,
    /// `script_concurrency`: programs at a time.
    pub concurrency: u32,
}

impl Default for ScriptSettings {
    /// Time enough for a program that copies data; as many as do not weigh on a small controller.
    fn default() -> Self {
        Self { timeout_secs: 300, concurrency: 4 }
    }
}

/// What is recorded where.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CompletionSettings {
    /// `JobCompType`.
    pub kind: CompletionType,
    /// `JobCompLoc`: path of the file or program, URL of the server, path of the file with properties for Kafka, name or URL of the
    /// database. Set for every type but [`CompletionType::None`] and [`CompletionType::Lua`].
    pub location: Option<String>,
    /// The server of the database: `JobCompHost`, `JobCompPort`, `JobCompUser`, `JobCompPass`, `JobCompPassScript`, and what
    /// `JobCompLoc` says.
    pub storage: Storage,
    /// `JobCompParams=send_comment`.
    pub send_comment: bool,
    /// `JobCompParams=send_script`.
    pub send_script: bool,
    /// Of `JobCompParams`, what is for Kafka.
    pub kafka: KafkaSettings,
    /// Of `JobCompParams`, what is for programs.
    pub script: ScriptSettings,
}

impl fmt::Debug for CompletionSettings {
    /// A URL without the password in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, location, storage, send_comment, send_script, kafka, script } = self;
        f.debug_struct("CompletionSettings")
            .field("kind", kind)
            .field("location", &location.as_ref().map(|_| self.shown_location()))
            .field("storage", storage)
            .field("send_comment", send_comment)
            .field("send_script", send_script)
            .field("kafka", kafka)
            .field("script", script)
            .finish()
    }
}

impl CompletionSettings {
    /// Takes `JobCompType`.
    pub(super) fn set_type(&mut self, text: &str) -> Value<()> {
        let lower = text.to_ascii_lowercase();
        let known = CompletionType::of(lower.strip_prefix("jobcomp/").unwrap_or(&lower));
        let (kind, database) = known.ok_or_else(|| {
            SettingError::new(format!("{text} is not known"))
                .suggest("none, filetxt, script, elasticsearch, kafka, lua, mysql or postgresql, after jobcomp/")
        })?;
        self.kind = kind;
        self.storage.kind = database;
        Ok(())
    }

    /// Takes `JobCompHost`.
    pub(super) fn set_host(&mut self, text: &str) -> Value<()> {
        self.storage.set_host(text)
    }

    /// Takes `JobCompPort`; 0: the database's own.
    pub(super) fn set_port(&mut self, text: &str) -> Value<()> {
        let port = values::number(text, 0, u32::from(u16::MAX))?;
        self.storage.port = u16::try_from(port).ok().filter(|port| *port > 0);
        Ok(())
    }

    /// Takes `JobCompUser`.
    pub(super) fn set_user(&mut self, text: &str) {
        self.storage.user = values::optional(text);
    }

    /// Takes `JobCompPass`.
    pub(super) fn set_password(&mut self, text: &str) {
        self.storage.password = values::optional(text).map(|text| Password::new(&text));
    }

    /// Takes `JobCompPassScript`.
    pub(super) fn set_password_script(&mut self, text: &str) -> Value<()> {
        self.storage.set_password_script(text)
    }

    /// Takes `JobCompParams`. Returns a note about words that have no effect.
    pub(super) fn set_parameters(&mut self, text: &str) -> Value<Option<SettingError>> {
        let mut unknown = Vec::new();
        for word in values::list_or_none(text) {
            if !self.set_parameter(&word)? {
                unknown.push(word);
            }
        }
        let without = || SettingError::new(format!("{} is not supported yet", unknown.join(",")));
        Ok((!unknown.is_empty()).then(without))
    }

    /// `false`: it is not known.
    fn set_parameter(&mut self, word: &str) -> Value<bool> {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        match (name.to_ascii_lowercase().as_str(), value) {
            ("send_comment", None) => self.send_comment = true,
            ("send_script", None) => self.send_script = true,
            ("enable_job_start", None) => self.kafka.job_start = true,
            // It is always so.
            ("requeue_on_msg_timeout", None) => {}
            ("flush_timeout", Some("-1")) => self.kafka.flush_timeout_ms = None,
            ("flush_timeout", Some(value)) => {
                self.kafka.flush_timeout_ms = Some(values::number(value, 0, i32::MAX.unsigned_abs())?);
            }
            ("poll_interval", Some(value)) => self.kafka.poll_interval_secs = values::number(value, 0, u32::MAX)?,
            ("topic", Some(value)) => self.kafka.topic = Some(topic(value)?),
            ("topic_job_start", Some(value)) => self.kafka.topic_job_start = Some(topic(value)?),
            ("script_timeout", Some(value)) => self.script.timeout_secs = values::number(value, 1, u32::MAX)?,
            ("script_concurrency", Some(value)) => self.script.concurrency = values::number(value, 1, MOST_SCRIPTS)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `JobCompLoc` as everybody may see it: a URL without the password in it, though it may have no scheme.
    pub fn shown_location(&self) -> String {
        let location = self.location.as_deref().unwrap_or(NULL);
        if location.starts_with('/') {
            return location.to_owned();
        }
        let (scheme, rest) = location.find("://").map_or(("", location), |at| location.split_at(at + "://".len()));
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        match authority.rsplit_once('@') {
            Some((user, host)) => {
                let user = user.split_once(':').map_or(user, |(user, _)| user);
                format!("{scheme}{user}@{host}{path}")
            }
            None => location.to_owned(),
        }
    }

    /// Checks that the location fits the type, and sets the default one.
    pub(in crate::config) fn settle(&mut self) -> Value<()> {
        match self.kind {
            CompletionType::FileText => {
                self.location.get_or_insert_with(|| DEFAULT_FILE.to_owned());
            }
            CompletionType::Database => return self.settle_database(),
            _ => {}
        }
        let location = self.location.as_deref().unwrap_or_default();
        let instead = match self.kind {
            CompletionType::FileText | CompletionType::Script if !location.starts_with('/') => "an absolute path",
            CompletionType::Kafka if !location.starts_with('/') => {
                "the absolute path of a file with properties of librdkafka, such as bootstrap.servers=HOST:9092"
            }
            CompletionType::Elasticsearch if location.is_empty() => "HOST:PORT/INDEX/_doc",
            _ => return Ok(()),
        };
        Err(SettingError::new("does not fit JobCompType").suggest(instead))
    }

    /// The name of the database, or a URL with all in it.
    fn settle_database(&mut self) -> Value<()> {
        let location = self.location.get_or_insert_with(|| DEFAULT_DATABASE.to_owned()).clone();
        if location.contains("://") {
            // A URL that names no database means the same one.
            self.storage.location = Some(DEFAULT_DATABASE.to_owned());
            self.storage.set_kind(&location)?;
        } else {
            self.storage.location = Some(location);
        }
        if self.storage.kind == StorageKind::File {
            return Err(SettingError::new("is no database server").suggest("postgresql:// or mysql://"));
        }
        self.storage.wrong().map_or(Ok(()), |(_, wrong)| Err(wrong))
    }
}

/// A topic's name, as Kafka takes it.
fn topic(text: &str) -> Value<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if text.is_empty() || text.len() > 249 || !text.bytes().all(fits) {
        return Err(SettingError::new(format!("\"{text}\" is no topic: letters, digits, . _ and -, at most 249")));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(kind: &str, location: Option<&str>) -> Value<CompletionSettings> {
        let mut settings = CompletionSettings { location: location.map(str::to_owned), ..Default::default() };
        settings.set_type(kind)?;
        settings.settle().map(|()| settings)
    }

    #[test]
    fn types_have_two_names_and_what_fits_them() {
        for (name, location, kind) in [
            ("none", None, CompletionType::None),
            ("filetxt", None, CompletionType::FileText),
            ("script", Some("/bin/true"), CompletionType::Script),
            ("elasticsearch", Some("h:9200/jobs/_doc"), CompletionType::Elasticsearch),
            ("kafka", Some("/etc/slurm/kafka.conf"), CompletionType::Kafka),
            ("lua", None, CompletionType::Lua),
            ("mysql", None, CompletionType::Database),
            ("PostgreSQL", None, CompletionType::Database),
        ] {
            assert_eq!(of(name, location).unwrap().kind, kind, "{name}");
            assert_eq!(of(&format!("jobcomp/{name}"), location).unwrap().kind, kind, "{name}");
        }
        let unknown = of("jobcomp/slurmdbd", None).unwrap_err().to_string();
        assert!(unknown.contains("jobcomp/slurmdbd is not known"), "{unknown}");
        for (name, location) in [("script", None), ("kafka", Some("kafka.conf")), ("elasticsearch", None)] {
            assert!(of(name, location).is_err(), "{name}");
        }
    }

    #[test]
    fn a_database_is_named_or_a_url_with_all_in_it() {
        let mut settings = of("jobcomp/mysql", None).unwrap();
        assert_eq!((settings.storage.database(), settings.storage.port()), ("slurm_jobcomp_db", 3306));
        settings.set_port("3307").unwrap();
        settings.set_host("db1").unwrap();
        settings.set_user("slurm");
        settings.set_password("secret");
        assert_eq!((settings.storage.port(), settings.storage.user.as_deref()), (3307, Some("slurm")));
        assert!(!format!("{settings:?}").contains("secret"));
        let by_url = of("jobcomp/mysql", Some("postgresql://slurm:se%40cret@db1:5433/jobs")).unwrap();
        let debugged = format!("{by_url:?}");
        assert!(!debugged.contains("cret") && debugged.contains("postgresql://slurm@db1:5433/jobs"), "{debugged}");
        assert_eq!((by_url.storage.kind, by_url.storage.database()), (StorageKind::Postgres, "jobs"));
        assert_eq!(by_url.storage.password.as_ref().map(Password::reveal), Some("se@cret"));
        assert_eq!(by_url.shown_location(), "postgresql://slurm@db1:5433/jobs");
        for (location, shown) in [
            ("elastic:secret@es1:9200/jobs/_doc", "elastic@es1:9200/jobs/_doc"),
            ("http://elastic:se@cret@es1/jobs", "http://elastic@es1/jobs"),
            ("es1:9200/jobs/a@b", "es1:9200/jobs/a@b"),
        ] {
            let settings = of("jobcomp/elasticsearch", Some(location)).unwrap();
            assert_eq!(settings.shown_location(), shown);
            assert!(!format!("{settings:?}").contains("cret"), "{settings:?}");
        }
        assert_eq!(of("jobcomp/filetxt", Some("/log/a:b@c")).unwrap().shown_location(), "/log/a:b@c");
        for wrong in ["sqlite:///srv/jobs.db", "oracle://h/x", "a/b"] {
            assert!(of("jobcomp/mysql", Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn parameters_are_those_of_every_type() {
        let mut settings = CompletionSettings::default();
        let text = "enable_job_start,flush_timeout=-1,poll_interval=3,requeue_on_msg_timeout,topic=a.b,topic_job_start=c,\
                    send_comment,script_timeout=5,script_concurrency=2";
        assert_eq!(settings.set_parameters(text).unwrap(), None);
        let (topic, topic_job_start) = (Some("a.b".to_owned()), Some("c".to_owned()));
        let kafka =
            KafkaSettings { job_start: true, flush_timeout_ms: None, poll_interval_secs: 3, topic, topic_job_start };
        assert_eq!(settings.kafka, kafka);
        assert_eq!(settings.script, ScriptSettings { timeout_secs: 5, concurrency: 2 });
        assert!(settings.send_comment && !settings.send_script);
        assert!(settings.set_parameters("flush_timeout=200").unwrap().is_none());
        assert_eq!(settings.kafka.flush_timeout_ms, Some(200));
        let note = settings.set_parameters("token_duration=3,send_script").unwrap().unwrap().to_string();
        assert!(note.contains("token_duration=3 is not supported yet") && settings.send_script, "{note}");
        for wrong in ["topic=a b", "topic=", "flush_timeout=-2", "script_concurrency=0", "poll_interval=x"] {
            assert!(settings.set_parameters(wrong).is_err(), "{wrong}");
        }
    }
}
