//! `slurmdbd.conf`, the configuration of the service of accounting (slurmdbd.conf(5)). Keys that Slurm has and Garrick does not
//! honour yet are warned of, unknown ones are errors, as in `slurm.conf`.

use super::{
    PrivateData,
    purge::{Age, PurgeSettings},
    settings::config::ACCOUNTING_PORT,
    storage::Storage,
    syntax::{
        nearest::nearest,
        report::{ConfigReport, Place, SettingError, not_yet},
        text::{self, Pair, ReadFile},
        values::{self, LogLevel, Value},
    },
};
use crate::time::TimeLimit;
use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

/// What it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DbdConfig {
    /// The file.
    pub path: PathBuf,
    /// `DbdHost`: the host of the service.
    pub host: String,
    /// `DbdAddr`: the name or address under which it is reached; `None`: that of the host.
    pub address: Option<String>,
    /// `DbdBackupHost`: the host that serves while the other does not.
    pub backup: Option<String>,
    /// `DbdPort`: where controllers of other hosts reach it.
    pub port: u16,
    /// `Storage*`: where the records are.
    pub storage: Storage,
    /// `SlurmUser`: the user that it runs as; `None`: that of `slurm.conf`.
    pub slurm_user: Option<String>,
    /// `LogFile`; `None`: the system's log.
    pub log_file: Option<PathBuf>,
    /// `DebugLevel`.
    pub debug_level: LogLevel,
    /// `DebugLevelSyslog`.
    pub debug_level_syslog: Option<LogLevel>,
    /// `PidFile`.
    pub pid_file: PathBuf,
    /// `PrivateData`; with `jobs` ordinary users see their own rows only.
    pub private: PrivateData,
    /// What is purged and archived.
    pub purge: PurgeSettings,
    /// `TrackSlurmctldDown`: what is idle while a cluster's controller is away is reported as down.
    pub track_down: bool,
    /// `ArchiveScript`: the program that archives what is old; `None`: files are written.
    pub archive_script: Option<PathBuf>,
    /// `AllResourcesAbsolute`: what clusters are allowed of a new resource is a number, not a percentage.
    pub resources_absolute: bool,
    /// `DefaultQOS`: the QOS of a cluster that is added without any.
    pub default_qos: Option<String>,
    /// `DisableArchiveCommands`: nobody purges or loads archives by `sacctmgr archive`.
    pub no_archive_commands: bool,
    /// `DisableCoordDBD`: coordinators change nothing.
    pub no_coordinators: bool,
    /// `MaxQueryTimeRange`: the longest window of a question of who is no operator; `None`: any.
    pub longest_window: Option<Duration>,
    /// `MessageTimeout`: a database's server that takes longer to answer a look is not there.
    pub message_timeout: Duration,
    /// `AllowNoDefAcct`: users may be without a default account.
    pub no_default_account: bool,
    /// `DebugFlags=AuditRPCs`: each question is logged, with who asks it.
    pub audit: bool,
}

/// Name of the file that controllers and services of accounting prove themselves with to each other.
pub const KEY_FILE: &str = "slurmdbd.key";
/// The folder for keys where the database is no file.
const KEYS: &str = "/var/lib/garrick/accounting";

/// `MessageTimeout`, seconds (slurmdbd.conf(5)).
const MESSAGE_TIMEOUT: u64 = 10;
/// Most of it.
const LONGEST_MESSAGE_TIMEOUT: u64 = 600;

/// Rows that are purged in one transaction at most.
const MOST_AT_A_TIME: u32 = 1_000_000;

type Set = fn(&mut DbdConfig, &str) -> Value<Option<SettingError>>;

/// Keys that are honoured.
const HONOURED: &[(&str, Set)] = &[
    ("AllResourcesAbsolute", |c, text| values::yes_no(text).map(|yes| c.resources_absolute = yes).said()),
    ("AllowNoDefAcct", |c, text| values::yes_no(text).map(|yes| c.no_default_account = yes).said()),
    ("ArchiveDir", |c, text| absolute(text).map(|path| c.purge.folder = Some(path)).said()),
    ("ArchiveEvents", |c, text| values::yes_no(text).map(|yes| c.purge.archive_events = yes).said()),
    ("ArchiveJobEnv", |c, text| values::yes_no(text).map(|yes| c.purge.archive_environments = yes).said()),
    ("ArchiveJobScript", |c, text| values::yes_no(text).map(|yes| c.purge.archive_scripts = yes).said()),
    ("ArchiveJobs", |c, text| values::yes_no(text).map(|yes| c.purge.archive_jobs = yes).said()),
    ("ArchiveResvs", |c, text| values::yes_no(text).map(|yes| c.purge.archive_reservations = yes).said()),
    ("ArchiveScript", |c, text| program(text, &mut c.archive_script)),
    ("ArchiveSteps", |c, text| values::yes_no(text).map(|yes| c.purge.archive_steps = yes).said()),
    // Suspensions are kept with their jobs, and usage is not rolled up: both go with the jobs.
    ("ArchiveSuspend", |_, text| values::yes_no(text).map(drop).said()),
    ("ArchiveTXN", |c, text| values::yes_no(text).map(|yes| c.purge.archive_transactions = yes).said()),
    ("ArchiveUsage", |_, text| values::yes_no(text).map(drop).said()),
    // Each batch of a controller is one transaction, and the controller keeps it until it is stored.
    ("CommitDelay", |_, text| values::number(text, 0, u32::MAX).map(drop).said()),
    ("DbdAddr", |c, text| {
        c.address = values::optional(text);
        Ok(None)
    }),
    ("DbdBackupHost", |c, text| {
        c.backup = values::optional(text);
        Ok(None)
    }),
    ("DbdHost", |c, text| {
        text.clone_into(&mut c.host);
        Ok(None)
    }),
    ("DbdPort", |c, text| values::number(text, 1, u16::MAX).map(|port| c.port = port).said()),
    ("DebugFlags", debug_flags),
    ("DebugLevel", |c, text| LogLevel::parse(text).map(|level| c.debug_level = level).said()),
    ("DebugLevelSyslog", |c, text| LogLevel::parse(text).map(|level| c.debug_level_syslog = Some(level)).said()),
    ("DefaultQOS", |c, text| {
        c.default_qos = values::optional(text);
        Ok(None)
    }),
    ("DisableArchiveCommands", |c, text| values::yes_no(text).map(|yes| c.no_archive_commands = yes).said()),
    ("DisableCoordDBD", |c, text| values::yes_no(text).map(|yes| c.no_coordinators = yes).said()),
    // Usage is summed up from the rows of jobs when it is asked for: nothing is rolled up.
    ("DisableRollups", |_, text| values::yes_no(text).map(drop).said()),
    ("LogFile", |c, text| {
        c.log_file = values::optional(text).map(PathBuf::from);
        Ok(None)
    }),
    ("MaxPurgeLimit", |c, text| values::number(text, 1, MOST_AT_A_TIME).map(|n| c.purge.at_a_time = n).said()),
    ("MaxQueryTimeRange", |c, text| {
        c.longest_window = match values::time_limit(text)? {
            TimeLimit::Secs(secs) => Some(Duration::from_secs(secs)),
            TimeLimit::Unlimited => None,
        };
        Ok(None)
    }),
    ("MessageTimeout", |c, text| {
        let secs = values::number(text, 1, LONGEST_MESSAGE_TIMEOUT);
        secs.map(|secs| c.message_timeout = Duration::from_secs(secs)).said()
    }),
    ("PidFile", |c, text| absolute(text).map(|path| c.pid_file = path).said()),
    ("PrivateData", private_data),
    ("PurgeEventAfter", |c, text| age(text, &mut c.purge.events)),
    ("PurgeJobAfter", |c, text| age(text, &mut c.purge.jobs)),
    ("PurgeJobEnvAfter", |c, text| age(text, &mut c.purge.environments)),
    ("PurgeJobScriptAfter", |c, text| age(text, &mut c.purge.scripts)),
    ("PurgeResvAfter", |c, text| age(text, &mut c.purge.reservations)),
    ("PurgeStepAfter", |c, text| age(text, &mut c.purge.steps)),
    ("PurgeSuspendAfter", |_, text| Age::parse(text).map(drop).said()),
    ("PurgeTXNAfter", |c, text| age(text, &mut c.purge.transactions)),
    ("PurgeUsageAfter", |_, text| Age::parse(text).map(drop).said()),
    ("SlurmUser", |c, text| {
        c.slurm_user = values::optional(text);
        Ok(None)
    }),
    ("StorageBackupHost", |c, text| c.storage.set_backup(text).said()),
    ("StorageHost", |c, text| c.storage.set_host(text).said()),
    ("StorageLoc", |c, text| {
        c.storage.location = (!text.is_empty()).then(|| text.to_owned());
        Ok(None)
    }),
    ("StorageParameters", |c, text| c.storage.set_parameters(text)),
    ("StoragePass", |c, text| {
        c.storage.set_password(text);
        Ok(None)
    }),
    ("StoragePassScript", |c, text| c.storage.set_password_script(text).said()),
    ("StoragePort", |c, text| c.storage.set_port(text).said()),
    ("StorageType", |c, text| c.storage.set_kind(text).said()),
    ("StorageUser", |c, text| {
        c.storage.user = values::optional(text);
        Ok(None)
    }),
    // The service's own links are QUIC and Unix sockets; those to a database's server go by `MessageTimeout`.
    ("TCPTimeout", |_, text| values::number(text, 0, u16::MAX).map(drop).said()),
    ("TrackSlurmctldDown", |c, text| values::yes_no(text).map(|yes| c.track_down = yes).said()),
    // What is used of a WCKey is summed up from the rows of jobs, which always have theirs.
    ("TrackWCKey", |_, text| values::yes_no(text).map(drop).said()),
];

/// Keys of slurmdbd.conf(5) that have no effect yet.
const NOT_YET: &[&str] =
    &["AuditRPCs", "AuthAltTypes", "AuthAltParameters", "Parameters", "PreserveCaseResource", "PreserveCaseUser"];

/// Keys of parts that Garrick does its own way: its links are always encrypted and authenticated, its logs have one form of time.
const OWN_WAY: &[&str] = &[
    "AuthInfo",
    "AuthType",
    "CommunicationParameters",
    "HashPlugin",
    "LogTimeFormat",
    "PluginDir",
    "TLSParameters",
    "TLSType",
];

/// Topics of `DebugFlags` in slurmdbd.conf(5) that the service's log does not have: `DebugLevel=debug` is all of them.
const NO_TOPICS: &[&str] = &[
    "DB_ARCHIVE",
    "DB_ASSOC",
    "DB_EVENT",
    "DB_JOB",
    "DB_QOS",
    "DB_QUERY",
    "DB_RESERVATION",
    "DB_RESOURCE",
    "DB_STEP",
    "DB_TRES",
    "DB_USAGE",
    "DB_WCKEY",
    "FEDERATION",
    "NET",
    "NETRAW",
    "TLS",
];

/// The topic that each question is logged under.
const AUDIT: &str = "AuditRPCs";

fn debug_flags(config: &mut DbdConfig, text: &str) -> Value<Option<SettingError>> {
    let mut without_effect = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        if word.eq_ignore_ascii_case(AUDIT) {
            config.audit = true;
        } else if let Some(topic) = NO_TOPICS.iter().find(|topic| topic.eq_ignore_ascii_case(word)) {
            without_effect.push(*topic);
        } else {
            let known: Vec<&str> = NO_TOPICS.iter().copied().chain([AUDIT]).collect();
            let wrong = SettingError::new(format!("\"{word}\" is not one of {}", known.join(", ")));
            return Err(match nearest(word, &known) {
                Some(topic) => wrong.suggest(format!("did you mean {topic}?")),
                None => wrong,
            });
        }
    }
    let note = || SettingError::new(format!("{} has no effect: use DebugLevel=debug", without_effect.join(",")));
    Ok((!without_effect.is_empty()).then(note))
}

/// A value that was set without anything to say of it.
trait Said {
    fn said(self) -> Value<Option<SettingError>>;
}

impl Said for Value<()> {
    fn said(self) -> Value<Option<SettingError>> {
        self.map(|()| None)
    }
}

fn absolute(text: &str) -> Value<PathBuf> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err(SettingError::new(format!("\"{text}\" is not an absolute path"))) }
}

/// A program of the site.
fn program(text: &str, to: &mut Option<PathBuf>) -> Value<Option<SettingError>> {
    *to = values::optional(text).map(|text| absolute(&text)).transpose()?;
    Ok(None)
}

fn age(text: &str, to: &mut Option<Age>) -> Value<Option<SettingError>> {
    *to = Some(Age::parse(text)?);
    Ok(None)
}

fn private_data(config: &mut DbdConfig, text: &str) -> Value<Option<SettingError>> {
    config.private = PrivateData::parse(text)?;
    let others = config.private.without_effect_on_records();
    let note = || SettingError::new(format!("{others} has no effect in slurmdbd.conf: it is of slurm.conf"));
    Ok((!others.is_empty()).then(note))
}

fn whole(file: &Path) -> Place {
    Place { file: file.into(), line: 0 }
}

/// Files with a password are for their owner, and for a group to read at most (slurmdbd.conf(5): 600 or 640).
fn keep_secret(report: &mut ConfigReport) {
    for file in report.files.clone() {
        let wrong = match fs::metadata(&file) {
            Ok(found) if found.mode() & 0o137 == 0 => continue,
            Ok(found) => format!("a password is in it, and its mode is {:o}", found.mode() & 0o7777),
            Err(e) => format!("its mode cannot be seen: {e}"),
        };
        report.error(
            &whole(&file),
            "StoragePass",
            SettingError::new(wrong).suggest("chmod 600, and let SlurmUser own it"),
        );
    }
}

impl DbdConfig {
    /// What holds where nothing is written.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            host: "localhost".to_owned(),
            address: None,
            backup: None,
            port: ACCOUNTING_PORT,
            storage: Storage::default(),
            slurm_user: None,
            log_file: None,
            debug_level: LogLevel::INFO,
            debug_level_syslog: None,
            pid_file: "/var/run/slurmdbd.pid".into(),
            private: PrivateData::default(),
            purge: PurgeSettings::default(),
            track_down: false,
            archive_script: None,
            resources_absolute: false,
            default_qos: None,
            no_archive_commands: false,
            no_coordinators: false,
            longest_window: None,
            message_timeout: Duration::from_secs(MESSAGE_TIMEOUT),
            no_default_account: false,
            audit: false,
        }
    }

    /// The key file of the site's controllers and services of accounting, beside this file.
    pub fn key_file(&self) -> PathBuf {
        self.path.with_file_name(KEY_FILE)
    }

    /// Where its keys and certificates are: beside the database file.
    pub fn keys_folder(&self) -> PathBuf {
        let beside = self.storage.file().and_then(Path::parent).filter(|folder| folder.is_absolute());
        beside.unwrap_or_else(|| Path::new(KEYS)).join("network")
    }

    /// Reads a file, and says everything that there is to say about it; no configuration where there are errors.
    pub fn read(path: &Path) -> (Option<Self>, ConfigReport) {
        let (config, mut report) =
            Self::read_with(path, &|path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()));
        if config.as_ref().is_some_and(|config| config.storage.password.is_some()) {
            keep_secret(&mut report);
        }
        (config.filter(|_| !report.has_errors()), report)
    }

    fn read_with(path: &Path, read_file: &ReadFile<'_>) -> (Option<Self>, ConfigReport) {
        let (mut config, mut report) = (Self::at(path), ConfigReport::default());
        for pair in text::lines(path, read_file, &mut report).iter().flatten() {
            config.set(pair, &mut report);
        }
        if let Some((key, wrong)) = config.storage.wrong() {
            report.error(&whole(path), key, wrong);
        }
        let config = (!report.has_errors()).then_some(config);
        (config, report)
    }

    fn set(&mut self, pair: &Pair, report: &mut ConfigReport) {
        // Passwords are not repeated, nor URLs, which may have one.
        let is_secret = pair.key.to_ascii_lowercase().contains("pass") || pair.value.contains("://");
        let what = if is_secret { pair.key.clone() } else { pair.what() };
        if let Some((_, set)) = HONOURED.iter().find(|(key, _)| pair.is(key)) {
            match set(self, &pair.value) {
                Ok(None) => {}
                Ok(Some(note)) => report.warning(&pair.place, what, note),
                Err(wrong) => report.error(&pair.place, what, wrong),
            }
        } else if let Some(key) = NOT_YET.iter().find(|key| pair.is(key)) {
            report.warning(&pair.place, what, not_yet(key));
        } else if !OWN_WAY.iter().any(|key| pair.is(key)) {
            let known: Vec<&str> = HONOURED.iter().map(|(key, _)| *key).chain([NOT_YET, OWN_WAY].concat()).collect();
            let wrong = SettingError::new(format!("{} is not a key of slurmdbd.conf", pair.key));
            let meant = nearest(&pair.key, &known);
            let wrong = match meant {
                Some(key) => wrong.suggest(format!("did you mean {key}?")),
                None => wrong,
            };
            report.error(&pair.place, what, wrong);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::{PrivateKind, storage::StorageKind};

    fn read(text: &str) -> (Option<DbdConfig>, Vec<String>) {
        let (config, report) = DbdConfig::read_with(Path::new("/etc/slurm/slurmdbd.conf"), &|_| Ok(text.to_owned()));
        (config, report.problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_file_says_where_the_database_is_and_who_sees_what() {
        let text = "# of this site\nDbdHost=db1\nDbdAddr=10.0.0.9\nDbdBackupHost=db2\nDbdPort=7031\nStorageType=accounting_storage/sqlite\nStorageLoc=/srv/acct/jobs.db\n\
                    LogFile=/var/log/slurmdbd.log\nDebugLevel=debug\nPidFile=/run/slurmdbd.pid\nPrivateData=jobs\nSlurmUser=slurm\n\
                    AuthType=auth/munge\nPurgeJobAfter=12months\nPurgeStepAfter=30days\nArchiveJobs=yes\nArchiveDir=/srv/old\n";
        let (config, said) = read(text);
        assert_eq!(said, Vec::<String>::new());
        let config = config.unwrap();
        assert_eq!((config.host.as_str(), config.storage.file()), ("db1", Some(Path::new("/srv/acct/jobs.db"))));
        assert_eq!((config.address.as_deref(), config.backup.as_deref()), (Some("10.0.0.9"), Some("db2")));
        assert_eq!((config.port, DbdConfig::at(Path::new("/etc/slurmdbd.conf")).port), (7031, 6819));
        assert_eq!(config.keys_folder().to_str(), Some("/srv/acct/network"));
        assert_eq!(config.key_file().to_str(), Some("/etc/slurm/slurmdbd.key"));
        assert_eq!((config.private.has(PrivateKind::Jobs), config.slurm_user.as_deref()), (true, Some("slurm")));
        assert_eq!(config.debug_level, LogLevel::of("debug").unwrap());
        assert_eq!(config.pid_file.to_str(), Some("/run/slurmdbd.pid"));
        let purge = &config.purge;
        assert_eq!((purge.jobs, purge.steps), (Age::parse("12").ok(), Age::parse("30days").ok()));
        assert_eq!(
            (purge.archive_jobs, purge.archive_steps, purge.folder.as_deref()),
            (true, false, Some(Path::new("/srv/old")))
        );
        assert!(read("PurgeJobAfter=soon\n").0.is_none());
    }

    #[test]
    fn what_has_no_effect_is_said_and_what_is_unknown_is_an_error() {
        let (config, said) = read("PreserveCaseUser=yes\nAuthAltTypes=auth/jwt\nPrivateData=jobs,nodes\n");
        assert!(config.is_some_and(|config| config.private.has(PrivateKind::Jobs)));
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].starts_with("/etc/slurm/slurmdbd.conf:1: warning: PreserveCaseUser"), "{said:?}");
        assert!(said[2].contains("nodes has no effect in slurmdbd.conf"), "{said:?}");
        assert_eq!(read("PrivateData=jobs,events,reservations\nLogTimeFormat=short\n").1, Vec::<String>::new());
        let (config, said) = read("DbdHost=a\nStorgeLoc=/x\n");
        assert_eq!(config, None);
        assert!(
            said[0].starts_with("/etc/slurm/slurmdbd.conf:2: ") && said[0].contains("did you mean StorageLoc?"),
            "{said:?}"
        );
    }

    #[test]
    fn what_is_kept_with_jobs_is_purged_and_archived_with_them() {
        let (config, said) = read(
            "PurgeSuspendAfter=1month\nPurgeUsageAfter=12months\nArchiveSuspend=yes\nArchiveUsage=no\nArchiveJobScript=yes\n\
             TrackSlurmctldDown=yes\n",
        );
        let config = config.unwrap();
        assert_eq!(said, Vec::<String>::new());
        assert!(config.purge.archive_scripts && !config.purge.archive_environments && config.track_down);
        assert_eq!(config.purge, PurgeSettings { archive_scripts: true, ..PurgeSettings::default() });
        for wrong in ["PurgeSuspendAfter=soon\n", "ArchiveUsage=perhaps\n"] {
            assert_eq!(read(wrong).0, None, "{wrong}");
        }
    }

    #[test]
    fn what_users_may_and_what_is_old_is_for_the_site_to_say() {
        let (config, said) = read(
            "ArchiveScript=/usr/sbin/archive\nAllResourcesAbsolute=yes\nDefaultQOS=high\nDisableArchiveCommands=yes\n\
             DisableCoordDBD=yes\nMaxQueryTimeRange=60-00:00:00\nMessageTimeout=30\nStoragePassScript=/usr/sbin/password\n",
        );
        assert_eq!(said, Vec::<String>::new());
        let config = config.unwrap();
        assert_eq!(config.archive_script.as_deref(), Some(Path::new("/usr/sbin/archive")));
        assert_eq!(config.storage.password_script.as_deref(), Some(Path::new("/usr/sbin/password")));
        assert!(config.resources_absolute && config.no_archive_commands && config.no_coordinators);
        assert_eq!(config.default_qos.as_deref(), Some("high"));
        assert_eq!(config.longest_window, Some(Duration::from_secs(60 * 24 * 3600)));
        assert_eq!(config.message_timeout, Duration::from_secs(30));
        assert_eq!(read("MaxQueryTimeRange=INFINITE\n").0.unwrap().longest_window, None);
        for wrong in
            ["ArchiveScript=archive\n", "MaxQueryTimeRange=soon\n", "MessageTimeout=0\n", "DisableCoordDBD=2\n"]
        {
            assert_eq!(read(wrong).0, None, "{wrong}");
        }
    }

    #[test]
    fn keys_without_an_object_here_are_taken_and_checked() {
        let (config, said) = read(
            "CommitDelay=1\nTCPTimeout=2\nDisableRollups=yes\nTrackWCKey=yes\nDebugFlags=auditrpcs\nAllowNoDefAcct=yes\n",
        );
        assert_eq!(said, Vec::<String>::new());
        assert!(config.is_some_and(|config| config.audit && config.no_default_account));
        for wrong in ["CommitDelay=soon\n", "TCPTimeout=-1\n", "TrackWCKey=perhaps\n", "DebugFlags=AuditRPC\n"] {
            assert_eq!(read(wrong).0, None, "{wrong}");
        }
        let (config, said) = read("DebugFlags=DB_JOB,db_query\n");
        assert!(config.is_some_and(|config| !config.audit));
        assert!(said[0].contains("DB_JOB,DB_QUERY has no effect"), "{said:?}");
    }

    /// As in slurmdbd.conf(5).
    const OF_A_SITE: &str = "DbdHost=db1\nStorageType=accounting_storage/mysql\nStorageHost=db2\nStorageBackupHost=unix:/run/b.sock\n\
         StoragePort=3307\nStorageUser=database_mgr\nStoragePass=sec=ret\nStorageLoc=acct\nStorageParameters=SSL_CERT=/c,SSL_KEY=/k,SSL_CA=/a\n";

    #[test]
    fn a_database_server_is_named_as_in_slurm() {
        let (config, said) = read(OF_A_SITE);
        assert_eq!(said, Vec::<String>::new());
        let storage = config.unwrap().storage;
        assert_eq!((storage.kind, storage.file()), (StorageKind::MySql, None));
        assert_eq!((storage.host.to_string(), storage.port()), ("db2".to_owned(), 3307));
        assert_eq!(storage.backup.map(|host| host.to_string()).as_deref(), Some("unix:/run/b.sock"));
        assert_eq!((storage.user.as_deref(), storage.password.unwrap().reveal()), (Some("database_mgr"), "sec=ret"));
        assert_eq!((storage.location.as_deref(), storage.tls.authority), (Some("acct"), Some("/a".into())));
        let (config, said) = read("StorageType=postgresql://a:secret@h:x/b\n");
        assert!(config.is_none() && said.len() == 1 && !said[0].contains("secret"), "{said:?}");
        let (config, said) = read("StorageType=accounting_storage/oracle\n");
        assert!(config.is_none() && said[0].contains("accounting_storage/oracle is not known"), "{said:?}");
    }

    #[test]
    fn a_file_with_a_password_is_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let file = std::env::temp_dir().join(format!("garrick-slurmdbd-{}.conf", std::process::id()));
        let with = |text: &str, mode: u32| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            DbdConfig::read(&file)
        };
        for mode in [0o600, 0o640, 0o400] {
            assert!(with(OF_A_SITE, mode).0.is_some(), "{mode:o}");
        }
        for mode in [0o644, 0o660, 0o604, 0o700] {
            let (config, report) = with(OF_A_SITE, mode);
            let said = report.to_string();
            assert!(config.is_none() && said.contains(&format!("its mode is {mode:o}")), "{said}");
        }
        assert!(with("DbdHost=db1\n", 0o644).0.is_some(), "nothing is secret");
        fs::remove_file(&file).unwrap();
    }
}
