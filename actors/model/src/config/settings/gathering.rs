//! How it is measured what tasks and nodes use: `JobAcctGatherFrequency`, `AcctGather...Type` and `AcctGatherNodeFreq` of
//! slurm.conf(5), and `acct_gather.conf`, which stands beside it, with the keys of acct_gather.conf(5). That file is read where one of
//! these types has keys in it, and by daemons alone: there may be a password in it.

use crate::{
    config::syntax::{
        nearest::nearest,
        report::{ConfigReport, Place, SettingError, not_yet},
        text::{self, Pair, ReadFile},
        values::{self, Value},
    },
    profile::{InfluxServer, ProfileSettings, ProfileTo, Series, SeriesSet},
    sampling::Periods,
};
use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// Name of the file.
const FILE: &str = "acct_gather.conf";

/// Where the energy of a node is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EnergySource {
    /// Nowhere.
    #[default]
    None,
    /// `acct_gather_energy/rapl`: counters of the processor, as the kernel shows them below `/sys/class/powercap`.
    Rapl,
    /// `acct_gather_energy/ipmi`: the power that the kernel shows below `/sys/class/hwmon`, added up over time.
    Ipmi,
}

/// Where time series go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProfileType {
    /// Nowhere.
    #[default]
    None,
    /// `acct_gather_profile/hdf5`: files, of Influx's line protocol.
    Files,
    /// `acct_gather_profile/influxdb`.
    Influx,
}

/// What is measured, and how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatheringSettings {
    /// `JobAcctGatherFrequency`: seconds between looks at running tasks; 0: never. Unless steps say otherwise.
    pub task_secs: u32,
    /// `JobAcctGatherFrequency` of what is recorded in time series.
    pub periods: Periods,
    /// `AcctGatherNodeFreq`: seconds between looks at the energy of nodes; 0: never.
    pub node_secs: u32,
    /// `AcctGatherEnergyType`.
    pub energy: EnergySource,
    /// `AcctGatherProfileType`.
    pub profile: ProfileType,
    /// `AcctGatherInterconnectType=acct_gather_interconnect/sysfs`: what network interfaces count can be recorded.
    pub network: bool,
    /// `AcctGatherFilesystemType=acct_gather_filesystem/lustre`: what Lustre counts can be recorded.
    pub lustre: bool,
    /// `acct_gather.conf`.
    pub details: GatherDetails,
}

/// What `acct_gather.conf` says.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct GatherDetails {
    /// `ProfileHDF5Dir`
    folder: Option<PathBuf>,
    /// `ProfileHDF5Default`
    usual_in_files: SeriesSet,
    /// `ProfileInfluxDBHost`, as a URL.
    url: Option<String>,
    /// `ProfileInfluxDBDatabase`
    database: Option<String>,
    /// `ProfileInfluxDBDefault`
    usual_of_influx: SeriesSet,
    /// `ProfileInfluxDBRTPolicy`
    policy: Option<String>,
    /// `ProfileInfluxDBUser`
    user: Option<String>,
    /// `ProfileInfluxDBPass`
    password: Option<String>,
    /// `ProfileInfluxDBFrequency`
    every_secs: Option<u32>,
    /// `ProfileInfluxDBTimeout`
    timeout_secs: Option<u32>,
    /// `SysfsInterfaces`
    interfaces: Vec<String>,
}

/// Without the password.
impl std::fmt::Debug for GatherDetails {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GatherDetails").field("folder", &self.folder).field("url", &self.url).finish_non_exhaustive()
    }
}

type Set = fn(&mut GatherDetails, &str) -> Value<()>;

/// Keys of `acct_gather.conf` that are honoured.
const HONOURED: &[(&str, Set)] = &[
    ("ProfileHDF5Default", |c, text| series(text).map(|usual| c.usual_in_files = usual)),
    ("ProfileHDF5Dir", |c, text| {
        let path = PathBuf::from(text);
        if !path.is_absolute() {
            let wrong = SettingError::new(format!("\"{text}\" is not an absolute path"));
            return Err(wrong.suggest("begin it with a slash"));
        }
        c.folder = Some(path);
        Ok(())
    }),
    ("ProfileInfluxDBDatabase", |c, text| {
        c.database = values::optional(text);
        Ok(())
    }),
    ("ProfileInfluxDBDefault", |c, text| series(text).map(|usual| c.usual_of_influx = usual)),
    ("ProfileInfluxDBFrequency", |c, text| values::number(text, 1, 86_400).map(|secs| c.every_secs = Some(secs))),
    ("ProfileInfluxDBHost", |c, text| url(text).map(|url| c.url = Some(url))),
    ("ProfileInfluxDBPass", |c, text| {
        c.password = Some(text.to_owned());
        Ok(())
    }),
    ("ProfileInfluxDBRTPolicy", |c, text| {
        c.policy = values::optional(text);
        Ok(())
    }),
    ("ProfileInfluxDBTimeout", |c, text| values::number(text, 1, 3600).map(|secs| c.timeout_secs = Some(secs))),
    ("ProfileInfluxDBUser", |c, text| {
        c.user = values::optional(text);
        Ok(())
    }),
    ("SysfsInterfaces", |c, text| {
        c.interfaces = values::list(text);
        Ok(())
    }),
];

/// Keys of acct_gather.conf(5) that have no effect yet: the power is read from the kernel, which knows its sensors itself.
const NOT_YET: &[&str] = &[
    "EnergyIPMIAuthenticationType",
    "EnergyIPMICalcAdjustment",
    "EnergyIPMICipherSuiteId",
    "EnergyIPMIDriverAddress",
    "EnergyIPMIDriverDevice",
    "EnergyIPMIDriverType",
    "EnergyIPMIFrequency",
    "EnergyIPMIPassword",
    "EnergyIPMIPowerSensors",
    "EnergyIPMIPrivilegeLevel",
    "EnergyIPMIProtocolVersion",
    "EnergyIPMIRegisterSpacing",
    "EnergyIPMIRetransmissionTimeout",
    "EnergyIPMISessionTimeout",
    "EnergyIPMITimeout",
    "EnergyIPMIUsername",
    "EnergyIPMIVariable",
    "EnergyIPMIWorkaroundFlags",
    "InfinibandOFEDPort",
    "ProfileInfluxDBExtraTags",
];

fn series(text: &str) -> Value<SeriesSet> {
    let wrong = || SettingError::new(format!("\"{text}\" is not a list of data types"));
    SeriesSet::parse(text).ok_or_else(|| wrong().suggest("All, None, or some of Energy, Filesystem, Network, Task"))
}

/// `HOST:PORT`, with or without `http://` or `https://` before it.
fn url(text: &str) -> Value<String> {
    let (scheme, place) = text.split_once("://").unwrap_or(("http", text));
    let place = place.strip_suffix('/').unwrap_or(place);
    let known = matches!(scheme, "http" | "https");
    let plain = !place.is_empty() && !place.contains(['/', '?', '#', '@', ' ']);
    if known && plain {
        return Ok(format!("{scheme}://{place}"));
    }
    Err(SettingError::new("this is not HOST:PORT").suggest("ProfileInfluxDBHost=myinfluxhost:8086"))
}

/// Of a plugin's type, in any case, with or without what it begins with.
fn plugin(text: &str, kind: &str) -> String {
    let lower = text.to_ascii_lowercase();
    lower.strip_prefix(kind).map_or_else(|| lower.clone(), str::to_owned)
}

fn is_none(name: &str) -> bool {
    matches!(name, "none" | "(null)" | "")
}

fn not_there(text: &str, instead: &str) -> Option<SettingError> {
    Some(SettingError::new(format!("{text} is not supported yet")).suggest(instead))
}

impl GatheringSettings {
    /// Seconds between looks where a list does not name tasks (slurm.conf(5)).
    const USUAL_SECS: u32 = 30;
    /// How long a request to a server may take, seconds (acct_gather.conf(5)).
    const TIMEOUT_SECS: u32 = 10;
    /// Seconds between requests to a server: a sample of each of the usual looks at tasks.
    const EVERY_SECS: u32 = 30;

    /// Takes `JobAcctGatherFrequency`.
    pub(super) fn set_periods(&mut self, text: &str) -> Value<Option<SettingError>> {
        let periods = Periods::parse(text);
        let periods = periods.map_err(|part| {
            SettingError::new(format!("{part} is not a number of seconds for tasks, energy, network or filesystem"))
        })?;
        self.task_secs = periods.task.unwrap_or(Self::USUAL_SECS);
        self.periods = periods;
        Ok(None)
    }

    /// Takes `AcctGatherEnergyType`; with a type that is not supported nothing is measured.
    pub(super) fn set_energy(&mut self, text: &str) -> Option<SettingError> {
        self.energy = match plugin(text, "acct_gather_energy/").as_str() {
            "rapl" => EnergySource::Rapl,
            "ipmi" => EnergySource::Ipmi,
            _ => EnergySource::None,
        };
        if self.energy != EnergySource::None || is_none(&plugin(text, "acct_gather_energy/")) {
            return None;
        }
        not_there(text, "no energy is measured; acct_gather_energy/rapl and ipmi are there")
    }

    /// Takes `AcctGatherProfileType`; with a type that is not supported nothing is recorded.
    pub(super) fn set_profile(&mut self, text: &str) -> Option<SettingError> {
        self.profile = ProfileType::None;
        match plugin(text, "acct_gather_profile/").as_str() {
            "influxdb" => self.profile = ProfileType::Influx,
            "hdf5" => {
                self.profile = ProfileType::Files;
                let said = SettingError::new("files are not HDF5 but Influx's line protocol (JOB_STEP_NODE.lp)");
                return Some(said.suggest("\"garrick profile JOB\" joins those of a job, also as CSV"));
            }
            none if is_none(none) => {}
            _ => {
                return not_there(text, "no time series are recorded; acct_gather_profile/influxdb and hdf5 are there");
            }
        }
        None
    }

    /// Takes `AcctGatherInterconnectType`.
    pub(super) fn set_interconnect(&mut self, text: &str) -> Option<SettingError> {
        let name = plugin(text, "acct_gather_interconnect/");
        self.network = name == "sysfs";
        let known = self.network || is_none(&name);
        if known { None } else { not_there(text, "no networks are measured; acct_gather_interconnect/sysfs is there") }
    }

    /// Takes `AcctGatherFilesystemType`.
    pub(super) fn set_filesystem(&mut self, text: &str) -> Option<SettingError> {
        let name = plugin(text, "acct_gather_filesystem/");
        self.lustre = name == "lustre";
        let known = self.lustre || is_none(&name);
        if known {
            None
        } else {
            not_there(text, "no file systems are measured; acct_gather_filesystem/lustre is there")
        }
    }

    /// Reads `acct_gather.conf`, where there are keys in it of what is measured.
    pub(in crate::config) fn read(&mut self, slurm_conf: &Path, read_file: &ReadFile<'_>, report: &mut ConfigReport) {
        let has_keys = self.profile != ProfileType::None || self.network || self.energy == EnergySource::Ipmi;
        let path = slurm_conf.with_file_name(FILE);
        let place = Place { file: path.as_path().into(), line: 0 };
        match read_file(&path) {
            _ if !has_keys => {}
            // It may be on other hosts only, and for others only: of nodes' daemons that is worth a look.
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
                if self.profile != ProfileType::None {
                    let wrong = SettingError::new(format!("cannot be read, so no time series are recorded here: {e}"));
                    report.warning(&place, FILE, wrong);
                }
                return;
            }
            _ => {
                for pair in text::lines(&path, read_file, report).iter().flatten() {
                    self.details.set(pair, report);
                }
            }
        }
        let missing = match self.profile {
            ProfileType::Files if self.details.folder.is_none() => Some("ProfileHDF5Dir"),
            ProfileType::Influx if self.details.url.is_none() => Some("ProfileInfluxDBHost"),
            ProfileType::Influx if self.details.database.is_none() => Some("ProfileInfluxDBDatabase"),
            _ => None,
        };
        if let Some(key) = missing {
            let wrong = SettingError::new("is missing, and AcctGatherProfileType needs it");
            report.error(&place, key, wrong.suggest(format!("put it into {}", path.display())));
        }
        let open_to_all = |found: fs::Metadata| found.mode() & 0o077 != 0;
        if self.details.password.is_some() && fs::metadata(&path).is_ok_and(open_to_all) {
            let wrong = SettingError::new("a password is in this file, and others than its owner can read it");
            report.warning(&place, "ProfileInfluxDBPass", wrong.suggest("chmod 600, and let SlurmUser own it"));
        }
    }

    /// How time series are collected; `None`: none are, or it is not known how (see the module).
    pub fn profile(&self) -> Option<ProfileSettings> {
        let details = self.details.clone();
        let (to, usual) = match self.profile {
            ProfileType::None => return None,
            ProfileType::Files => (ProfileTo::Files(details.folder?), details.usual_in_files),
            ProfileType::Influx => {
                let server = InfluxServer {
                    url: details.url?,
                    database: details.database?,
                    policy: details.policy,
                    user: details.user,
                    password: details.password,
                    every_secs: details.every_secs.unwrap_or(Self::EVERY_SECS),
                    timeout_secs: details.timeout_secs.unwrap_or(Self::TIMEOUT_SECS),
                };
                (ProfileTo::Influx(server), details.usual_of_influx)
            }
        };
        let there = |series: &Series| match series {
            Series::Energy => self.energy != EnergySource::None,
            Series::Filesystem => self.lustre,
            Series::Network => self.network,
            Series::Task => true,
        };
        let there = Series::ALL.into_iter().filter(there).collect::<Vec<_>>().into();
        Some(ProfileSettings { to, usual, there, periods: self.periods, interfaces: details.interfaces })
    }
}

impl GatherDetails {
    fn set(&mut self, pair: &Pair, report: &mut ConfigReport) {
        // Passwords are not repeated.
        let is_secret = pair.key.to_ascii_lowercase().contains("pass");
        let what = if is_secret { pair.key.clone() } else { pair.what() };
        if let Some((_, set)) = HONOURED.iter().find(|(key, _)| pair.is(key)) {
            if let Err(wrong) = set(self, &pair.value) {
                report.error(&pair.place, what, wrong);
            }
        } else if let Some(key) = NOT_YET.iter().find(|key| pair.is(key)) {
            report.warning(&pair.place, what, not_yet(key));
        } else {
            let known: Vec<&str> = HONOURED.iter().map(|(key, _)| *key).chain(NOT_YET.iter().copied()).collect();
            let wrong = SettingError::new(format!("{} is not a key of {FILE}", pair.key));
            let wrong = match nearest(&pair.key, &known) {
                Some(key) => wrong.suggest(format!("did you mean {key}?")),
                None => wrong,
            };
            report.error(&pair.place, what, wrong);
        }
    }
}

/// Takes `JobAcctGatherType`: there is one way, and a warning where another one is named.
pub(super) fn kind(text: &str) -> Option<SettingError> {
    let lower = text.to_ascii_lowercase();
    let advice = match lower.strip_prefix("jobacct_gather/").unwrap_or(&lower) {
        "linux" | "(null)" | "" => return None,
        "none" => {
            "running tasks are looked at all the same; JobAcctGatherFrequency=0 has them looked at at their ends only"
        }
        _ => "what tasks use is found in /proc, as with jobacct_gather/linux",
    };
    Some(SettingError::new(format!("{text} is not supported yet and has no effect")).suggest(advice))
}

/// Takes `JobAcctGatherParams`: a warning for each word that has no effect.
pub(super) fn parameters(text: &str) -> Option<SettingError> {
    let has_none = |word: &&str| !matches!(word.to_ascii_lowercase().as_str(), "" | "(null)" | "noovermemorykill");
    let words: Vec<&str> = text.split(',').map(str::trim).filter(has_none).collect();
    (!words.is_empty())
        .then(|| SettingError::new(format!("{} is not supported yet and has no effect", words.join(","))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::{Config, read_files};

    #[test]
    fn what_has_no_effect_is_told() {
        for text in ["jobacct_gather/linux", "linux", "(null)"] {
            assert_eq!(kind(text), None, "{text}");
        }
        for text in ["jobacct_gather/cgroup", "jobacct_gather/none", "other"] {
            assert!(kind(text).is_some(), "{text}");
        }
        assert_eq!((parameters("NoOverMemoryKill"), parameters("")), (None, None));
        let told = parameters("UsePss,NoOverMemoryKill,DisableGPUAcct").map(|warning| warning.to_string());
        assert_eq!(told.as_deref(), Some("UsePss,DisableGPUAcct is not supported yet and has no effect"));
    }

    #[test]
    fn energy_is_that_of_the_processor_or_of_the_machine_or_is_not_measured() {
        let mut settings = GatheringSettings::default();
        for (text, source) in [
            ("acct_gather_energy/rapl", EnergySource::Rapl),
            ("Acct_Gather_Energy/IPMI", EnergySource::Ipmi),
            ("rapl", EnergySource::Rapl),
            ("acct_gather_energy/none", EnergySource::None),
        ] {
            assert_eq!(settings.set_energy(text), None);
            assert_eq!(settings.energy, source);
        }
        assert!(settings.set_energy("acct_gather_energy/xcc").is_some());
        assert_eq!(settings.energy, EnergySource::None);
    }

    #[test]
    fn tasks_are_looked_at_every_half_minute_where_a_list_does_not_say_it() {
        let mut settings = GatheringSettings::default();
        for (text, secs) in [("energy=5", 30), ("task=0", 0), ("7", 7)] {
            assert_eq!(settings.set_periods(text), Ok(None));
            assert_eq!(settings.task_secs, secs);
        }
        assert!(settings.set_periods("often").is_err());
    }

    /// With these lines in both files, what is read and what is said of it.
    fn site(lines: &str, gather: Option<&str>) -> (Option<Config>, Vec<String>) {
        let slurm = format!("ClusterName=c\nSlurmctldHost=h\nNodeName=n1 CPUs=4\nPartitionName=p Nodes=n1\n{lines}\n");
        let mut files = vec![("/x/slurm.conf", slurm.as_str())];
        files.extend(gather.map(|text| ("/x/acct_gather.conf", text)));
        let (config, report) = read_files(Path::new("/x/slurm.conf"), &files);
        (config, report.problems.iter().map(ToString::to_string).collect())
    }

    const INFLUX: &str = "AcctGatherProfileType=acct_gather_profile/influxdb\n\
                          AcctGatherInterconnectType=acct_gather_interconnect/sysfs\nJobAcctGatherFrequency=task=1,network=5";

    #[test]
    fn a_server_gets_what_the_file_says() {
        let text = "# of this site\nProfileInfluxDBHost=db1:8086\nProfileInfluxDBDatabase=slurm\nprofileinfluxdbdefault=Task,Network\n\
                    ProfileInfluxDBUser=writer\nProfileInfluxDBPass=secret\nProfileInfluxDBRTPolicy=weeks\n\
                    ProfileInfluxDBTimeout=3\nProfileInfluxDBFrequency=7\nSysfsInterfaces=eth0,ib0\n";
        let (config, said) = site(INFLUX, Some(text));
        assert_eq!(said, Vec::<String>::new());
        let settings = config.unwrap().gathering.profile().unwrap();
        let server = InfluxServer {
            url: "http://db1:8086".to_owned(),
            database: "slurm".to_owned(),
            policy: Some("weeks".to_owned()),
            user: Some("writer".to_owned()),
            password: Some("secret".to_owned()),
            every_secs: 7,
            timeout_secs: 3,
        };
        assert!(!format!("{settings:?}").contains("secret"));
        assert_eq!(settings.to, ProfileTo::Influx(server));
        assert_eq!(
            (settings.usual.to_string(), settings.there.to_string()),
            ("Network,Task".into(), "Network,Task".into())
        );
        assert_eq!(
            (settings.periods.network, settings.interfaces),
            (Some(5), vec!["eth0".to_owned(), "ib0".to_owned()])
        );
    }

    #[test]
    fn files_need_a_folder_and_are_told_to_be_no_hdf5() {
        let hdf5 = "AcctGatherProfileType=acct_gather_profile/hdf5\nAcctGatherEnergyType=acct_gather_energy/rapl";
        let (config, said) = site(hdf5, Some("ProfileHDF5Dir=/srv/profiles\nProfileHDF5Default=All\n"));
        assert!(
            matches!(&said[..], [one] if one.contains("slurm.conf:5: warning") && one.contains("line protocol")),
            "{said:?}"
        );
        let settings = config.unwrap().gathering.profile().unwrap();
        assert_eq!(settings.to, ProfileTo::Files("/srv/profiles".into()));
        assert_eq!((settings.usual.to_string(), settings.there.to_string()), ("All".into(), "Energy,Task".into()));
        let (config, said) = site(hdf5, None);
        assert_eq!(config.unwrap().gathering.profile(), None);
        assert!(
            said.iter().any(|line| line.starts_with("/x/acct_gather.conf: warning: acct_gather.conf: cannot be read")),
            "{said:?}"
        );
        for (text, wrong) in [
            ("# nothing\n", "/x/acct_gather.conf: error: ProfileHDF5Dir: is missing"),
            ("ProfileHDF5Dir=profiles\n", "/x/acct_gather.conf:1: error: ProfileHDF5Dir=profiles"),
            ("\nProfileHDF5Dri=/srv\n", "/x/acct_gather.conf:2: error: ProfileHDF5Dri=/srv"),
        ] {
            let (config, said) = site(hdf5, Some(text));
            assert!(config.is_none() && said.iter().any(|line| line.starts_with(wrong)), "{said:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_without_passwords() {
        let lines = "ProfileInfluxDBHost=db1:8086\nProfileInfluxDBDatabase=d\n";
        for (line, wrong) in [
            ("ProfileInfluxDBHost=ftp://db1", "acct_gather.conf:3: error: ProfileInfluxDBHost=ftp://db1"),
            ("ProfileInfluxDBDefault=all,task", "acct_gather.conf:3: error: ProfileInfluxDBDefault=all,task"),
            ("ProfileInfluxDBTimeout=0", "acct_gather.conf:3: error: ProfileInfluxDBTimeout=0"),
            ("ProfileInfluxDBPassword=secret", "acct_gather.conf:3: error: ProfileInfluxDBPassword"),
            ("InfinibandOFEDPort=1", "acct_gather.conf:3: warning: InfinibandOFEDPort=1"),
        ] {
            let (_, said) = site(INFLUX, Some(&format!("{lines}{line}\n")));
            assert!(matches!(&said[..], [one] if one.contains(wrong) && !one.contains("secret")), "{line}: {said:?}");
        }
        let (config, said) = site(INFLUX, Some("ProfileInfluxDBHost=db1:8086\n"));
        assert!(config.is_none() && said[0].contains("ProfileInfluxDBDatabase"), "{said:?}");
        // Nothing that is measured has keys there.
        assert_eq!(site("AcctGatherEnergyType=rapl", Some("Nonsense=1\n")).1, Vec::<String>::new());
        for (lines, word) in [
            ("AcctGatherInterconnectType=acct_gather_interconnect/ofed", "sysfs is there"),
            ("AcctGatherFilesystemType=acct_gather_filesystem/gpfs", "lustre is there"),
            ("AcctGatherProfileType=acct_gather_profile/csv", "influxdb and hdf5 are there"),
        ] {
            let (config, said) = site(lines, None);
            assert!(config.unwrap().gathering.profile().is_none() && said[0].contains(word), "{said:?}");
        }
    }
}
