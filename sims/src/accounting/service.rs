//! The service on the database of a run: the code of `slurmdbd` in a process of its own, with settings as sites have them and no
//! controller. It is asked at its door.

use crate::{
    database::{self, Database},
    minibatch::{
        cluster::{own_program, without_cluster},
        inside::Fallible,
        processes,
    },
};
use garrick_accounts::messages::{AccountsReply, AccountsRequest};
use garrick_frame::{DoorClient, LinkKind};
use garrick_model::{
    config::{self, storage::Storage},
    doors,
    time::Timestamp,
};
use garrick_noded::{daemon::options, serve};
use std::{
    fs::{self, File},
    net::UdpSocket,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

/// The word with which this program is told that it is the service.
pub const SERVE: &str = "--serve";
/// Longest until the service answers, and for a page of an answer.
const PATIENCE: Duration = Duration::from_secs(300);

/// Where the records of a run are.
#[derive(Debug)]
pub struct Place {
    /// `ClusterName`.
    pub cluster: String,
    /// The database.
    pub database: Database,
    /// As the service reads it.
    pub storage: Storage,
    folder: PathBuf,
}

impl Place {
    /// Writes the settings.
    pub fn make(folder: &Path, database: Database) -> Fallible<Self> {
        let (cluster, folder_text) = (format!("records{}", std::process::id()), folder.display());
        let (ctl, dbd) = (free_port()?, free_port()?);
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid())?.ok_or("this user has no name")?.name;
        let conf = format!(
            "ClusterName={cluster}\nSlurmctldHost=localhost\nSlurmctldPort={ctl}\nSlurmUser={user}\n\
             StateSaveLocation={folder_text}/state\nAccountingStorageType=accounting_storage/slurmdbd\n\
             NodeName=n[0-499] CPUs=4 RealMemory=16000 State=DOWN\n\
             PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        );
        fs::write(folder.join("slurm.conf"), conf)?;
        let settings = folder.join("slurmdbd.conf");
        let text = format!(
            "DbdHost=localhost\nDbdPort={dbd}\nSlurmUser={user}\nPidFile={folder_text}/dbd.pid\n{}",
            database.lines()
        );
        database::write_settings(&settings, &text)?;
        Ok(Self { cluster, database, storage: database::storage(&settings)?, folder: folder.to_owned() })
    }

    /// The folder of the run.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// `slurm.conf`.
    pub fn conf(&self) -> PathBuf {
        self.folder.join("slurm.conf")
    }

    /// The service's door.
    fn door(&self) -> Fallible<PathBuf> {
        let config = config::read_reporting(&self.conf()).0.ok_or("the configuration is not understood")?;
        Ok(config.run_dir(nix::unistd::geteuid().as_raw(), None).join(doors::ACCOUNTING))
    }
}

fn free_port() -> Fallible<u16> {
    Ok(UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// This program as the service.
pub fn serve(settings: &str) -> ExitCode {
    match options::parse("slurmdbd", ["-D", "-f", settings].map(Into::into)) {
        Ok(options) => serve::main("slurmdbd", options),
        Err(error) => {
            eprintln!("slurmdbd: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The service while it runs.
#[derive(Debug)]
pub struct Service {
    child: Child,
    /// Its door.
    pub door: PathBuf,
}

impl Service {
    /// Starts it, and waits until it answers.
    pub fn start(place: &Place) -> Fallible<Self> {
        let log = place.folder.join("slurmdbd.log");
        let file = File::options().create(true).append(true).open(&log)?;
        let mut command = Command::new(own_program()?);
        without_cluster(&mut command).arg(SERVE).arg(place.folder.join("slurmdbd.conf"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn()?;
        let mut service = Self { child, door: place.door()? };
        let began = Instant::now();
        while !service.answers() {
            if let Some(status) = service.child.try_wait()? {
                return Err(format!("the service ended: {status}\n{}", fs::read_to_string(&log)?).into());
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("the service does not answer\n{}", fs::read_to_string(&log)?).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(service)
    }

    fn answers(&self) -> bool {
        let ping = || -> Fallible<bool> {
            let mut client = asker(&self.door)?;
            // A question that needs the database.
            client.send(&AccountsRequest::Transactions { since: Some(Timestamp::now()), until: None })?;
            Ok(matches!(client.recv()?, AccountsReply::Transactions(_)))
        };
        ping().unwrap_or(false)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it takes most from now on is what [`Self::peak`] says (proc(5), `clear_refs`).
    pub fn forget_peak(&self) -> Fallible<()> {
        Ok(fs::write(format!("/proc/{}/clear_refs", self.pid()), "5")?)
    }

    /// Most memory that it had, bytes.
    pub fn peak(&self) -> Fallible<u64> {
        Ok(processes::memory(self.pid())?.peak)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.door.parent().map(fs::remove_dir_all);
    }
}

/// A connection to a service.
pub fn asker(door: &Path) -> Fallible<DoorClient> {
    Ok(DoorClient::connect(door, LinkKind::CommandToAccounts, "garrick-accounting", Some(PATIENCE))?)
}
