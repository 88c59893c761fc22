//! The run: jobs are submitted, faults happen, then all is repaired, the queue drains, the cluster ends, and the rules are
//! checked.

use super::{
    FaultsError, Setup,
    clients::Clients,
    daemon::Daemon,
    injury::{CompoundState, Injurer},
    leftovers, records,
    report::Report,
    site::{Plan, Site},
    verdict::{self, Case, Verdict, Violation, Wrong},
    witness::Witness,
    work::{JobPlan, Works},
};
use crate::minibatch::cluster::{fresh_home, run as run_command};
use garrick_simulator::random::Random;
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{Duration, Instant},
};

const TICK: Duration = Duration::from_millis(10);
/// Between two faults, milliseconds.
const BETWEEN_MS: (u32, u32) = (100, 900);
/// Submissions under way at a time.
const SUBMITTERS: usize = 3;
/// Jobs in the queue for each node.
const LIVE_PER_NODE: usize = 6;
/// How much kills may be ahead of jobs, or behind: hundredths of all.
const LEAD: u64 = 5;
/// The queue drains in the end; where nothing moves for so long, it never does.
const DRAIN_PATIENCE: Duration = Duration::from_secs(180);
const END_PATIENCE: Duration = Duration::from_secs(60);
/// A cancellation comes so long after the submission, milliseconds.
const CANCEL_AFTER_MS: (u32, u32) = (100, 4_000);
const PROGRESS_EVERY: Duration = Duration::from_secs(20);

/// A cluster with users, and what was found so far.
pub(super) struct Stage {
    pub(super) random: Random,
    pub(super) site: Site,
    pub(super) works: Works,
    pub(super) clients: Clients,
    pub(super) injurer: Injurer,
    pub(super) plans: BTreeMap<u32, JobPlan>,
    complaints: Vec<Violation>,
    mounts: Vec<Vec<String>>,
    key: String,
    began: Instant,
}

/// A kind of run.
pub(super) trait Play {
    /// What happens to the cluster.
    fn act(&mut self, stage: &mut Stage) -> Result<(), FaultsError>;

    /// The queue is empty, and all is repaired: what else has to come to rest before the cluster ends.
    fn settle(&mut self, _: &mut Stage) -> Result<(), FaultsError> {
        Ok(())
    }

    /// Rules beside those of every run, when the cluster has ended.
    fn judge(&mut self, _: &Site, _: &Case<'_>, _: &mut Verdict) -> Result<(), FaultsError> {
        Ok(())
    }
}

/// One of which nothing else is to be said.
struct Only<F>(Option<F>);

impl<F: FnOnce(&mut Stage) -> Result<(), FaultsError>> Play for Only<F> {
    fn act(&mut self, stage: &mut Stage) -> Result<(), FaultsError> {
        self.0.take().map_or(Ok(()), |act| act(stage))
    }
}

/// Carries it out.
pub fn run(setup: Setup) -> Result<Report, FaultsError> {
    Stage::perform(setup.seed, setup.nodes, |stage| stage.hurt(setup))
}

impl Stage {
    /// Makes a cluster, lets something happen to it, and judges what came of it.
    pub(super) fn perform(
        seed: u64,
        nodes: u32,
        act: impl FnOnce(&mut Self) -> Result<(), FaultsError>,
    ) -> Result<Report, FaultsError> {
        Self::play(seed, |_| Ok(Plan::of_root(nodes)), &mut Only(Some(act)))
    }

    /// The same on a cluster of that plan.
    pub(super) fn play(
        seed: u64,
        plan: impl FnOnce(&Path) -> Result<Plan, FaultsError>,
        play: &mut impl Play,
    ) -> Result<Report, FaultsError> {
        let mut stage = Self::up(seed, plan)?;
        let result = play.act(&mut stage).and_then(|()| stage.end(play));
        if !result.as_ref().is_ok_and(|r| r.verdict.violations.is_empty()) {
            stage.site.keep();
            let _ = stage.site.save_journal();
            eprintln!("garrick-faults: logs are kept in {}", stage.site.home.display());
        }
        result
    }

    fn up(seed: u64, plan: impl FnOnce(&Path) -> Result<Plan, FaultsError>) -> Result<Self, FaultsError> {
        let home = fresh_home("faults")?;
        let plan = plan(&home)?;
        let site = Site::up_with(home, plan)?;
        let works = Works::prepare(&site)?;
        let jobs = site.home.join("jobs");
        fs::create_dir(&jobs).map_err(|e| FaultsError::Other(format!("create {}: {e}", jobs.display())))?;
        let key = site.key().ok_or_else(|| FaultsError::Other("the controller has no door".to_owned()))?;
        Ok(Self {
            random: Random::new(seed),
            injurer: Injurer::new(&site, key.clone(), works.step.clone())?,
            works,
            clients: Clients::default(),
            plans: BTreeMap::new(),
            complaints: Vec::new(),
            mounts: site.hosts.iter().map(super::site::Host::mounts).collect(),
            key,
            began: Instant::now(),
            site,
        })
    }

    /// Since it was set up.
    pub(super) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn complain(&mut self, wrong: Wrong, text: String) {
        self.complaints.push(Violation { wrong, text });
    }

    /// Jobs and faults, until there were enough of both.
    fn hurt(&mut self, setup: Setup) -> Result<(), FaultsError> {
        let (mut next_fault, mut progress) = (Instant::now(), Instant::now());
        loop {
            let now = Instant::now();
            let (kills, compounds) = (self.injurer.book.kills(), self.injurer.book.compounds());
            let jobs = self.clients.acknowledged.len() as u32;
            if kills >= setup.kills && compounds >= setup.compounds && jobs >= setup.jobs {
                return Ok(());
            }
            let share = |done: u32, of: u32| (u64::from(done) * 100).checked_div(of.into()).unwrap_or(100);
            let (killed, compounded) = (share(kills, setup.kills), share(compounds, setup.compounds));
            let submitted = share(jobs, setup.jobs);
            // Compound faults need jobs, and these come as kills do: lacking ones hold neither up.
            if now >= next_fault && killed.min(compounded) <= submitted + LEAD {
                let under_way = self.clients.under_way();
                let compound = CompoundState { lag: compounded < killed, late: setup.late };
                self.injurer.strike(&mut self.site, &under_way, compound, &mut self.random)?;
                next_fault = now + millis(BETWEEN_MS, &mut self.random);
            }
            let room = self.clients.live + self.clients.under_way().len() < LIVE_PER_NODE * setup.nodes as usize;
            if room && self.clients.under_way().len() < SUBMITTERS && submitted <= killed + LEAD {
                self.submit_one(setup)?;
            }
            self.tick(now)?;
            if now - progress > PROGRESS_EVERY {
                progress = now;
                eprintln!(
                    "{:5.0} s: {jobs} jobs, {kills} kills, {compounds} compound faults, {} live",
                    self.began.elapsed().as_secs_f64(),
                    self.clients.live
                );
            }
        }
    }

    fn submit_one(&mut self, setup: Setup) -> Result<(), FaultsError> {
        let serial = self.plans.len() as u32 + 1;
        let plan = JobPlan::draw(serial, setup.steps_per_job, setup.late, &mut self.random);
        self.submit(plan)
    }

    /// Submits from any host.
    pub(super) fn submit(&mut self, plan: JobPlan) -> Result<(), FaultsError> {
        let host = self.random.between(0, self.site.hosts.len() as u32 - 1) as usize;
        self.clients.submit(&self.site, &self.works, &plan, host)?;
        self.plans.insert(plan.serial, plan);
        Ok(())
    }

    /// What goes on all the time.
    pub(super) fn tick(&mut self, now: Instant) -> Result<(), FaultsError> {
        self.injurer.undo_due(&self.site, now)?;
        self.injurer.go_on(&mut self.site, now);
        self.site.supervise(&mut self.random, now)?;
        for (serial, job) in self.clients.attend(&self.site, now)? {
            if self.plans.get(&serial).is_some_and(|p| p.cancel) {
                self.clients.cancel_at(now + millis(CANCEL_AFTER_MS, &mut self.random), serial, job);
            }
        }
        std::thread::sleep(TICK);
        Ok(())
    }

    /// All is repaired and started again, and the queue drains.
    fn drain(&mut self) -> Result<(), FaultsError> {
        self.injurer.undo_all(&self.site)?;
        self.site.daemons.iter_mut().chain(&mut self.site.service).for_each(Daemon::kill);
        let (mut before, mut moved) = (String::new(), Instant::now());
        let mut next = Instant::now();
        loop {
            self.tick(Instant::now())?;
            if Instant::now() < next {
                continue;
            }
            next = Instant::now() + Duration::from_secs(1);
            let Ok(queue) = run_command(self.site.command(0, "squeue").args(["-h", "-o", "%i %T %r"])) else {
                continue;
            };
            if queue.is_empty() && self.clients.idle() {
                return Ok(());
            }
            if queue != before {
                (before, moved) = (queue, Instant::now());
            } else if moved.elapsed() > DRAIN_PATIENCE {
                let nodes = run_command(self.site.command(0, "sinfo").args(["-N", "-o", "%N %T %E"]));
                self.complain(Wrong::Lost, format!("the queue does not drain:\n{before}{}", nodes.unwrap_or_default()));
                return Ok(());
            }
        }
    }

    /// The cluster ends by itself when it is told to.
    fn shut_down(&mut self) -> Result<(), FaultsError> {
        let nodes = self.site.daemons.len() - 1;
        let idle = format!("idle {nodes}");
        let (mut said, began) = (String::new(), Instant::now());
        while said.trim() != idle && began.elapsed() < END_PATIENCE {
            said = run_command(self.site.command(0, "sinfo").args(["-h", "-o", "%t %D"])).unwrap_or_default();
            self.tick(Instant::now())?;
        }
        if said.trim() != idle {
            let why = run_command(self.site.command(0, "sinfo").args(["-N", "-o", "%N %T %E"]));
            self.complain(Wrong::Leaked, format!("nodes are not idle in the end: {said}{}", why.unwrap_or_default()));
        }
        self.clients.leave();
        run_command(self.site.command(0, "scontrol").arg("shutdown"))?;
        let began = Instant::now();
        while !self.site.daemons.iter_mut().all(|d| d.has_ended() || d.pid().is_none()) {
            if began.elapsed() > END_PATIENCE {
                let left: Vec<String> =
                    self.site.daemons.iter().filter_map(|d| Some(super::population::called(d.pid()?))).collect();
                self.complain(Wrong::Leaked, format!("daemons that do not end: {left:?}"));
                break;
            }
            std::thread::sleep(TICK);
        }
        self.end_service();
        Ok(())
    }

    /// Nobody but the system tells the service of accounting to end.
    fn end_service(&mut self) {
        let Some(service) = &mut self.site.service else { return };
        let began = Instant::now();
        if let Some(pid) = service.pid() {
            super::population::signal(pid, nix::sys::signal::Signal::SIGTERM);
        }
        while !(service.has_ended() || service.pid().is_none()) {
            if began.elapsed() > END_PATIENCE {
                let left = service.pid().map(super::population::called);
                return self.complain(Wrong::Leaked, format!("a service that does not end: {left:?}"));
            }
            std::thread::sleep(TICK);
        }
    }

    fn end(&mut self, play: &mut impl Play) -> Result<Report, FaultsError> {
        let hurt_for = self.began.elapsed();
        self.drain()?;
        play.settle(self)?;
        self.shut_down()?;
        for text in leftovers::find(&self.site, &self.key, &self.mounts) {
            self.complain(Wrong::Leaked, text);
        }
        leftovers::remove_node_cgroups(&self.key);
        let journal = self.site.save_journal()?;
        self.judge(&journal, hurt_for, play)
    }

    fn judge(&mut self, journal: &Path, hurt_for: Duration, play: &mut impl Play) -> Result<Report, FaultsError> {
        let witness = Witness::read(&self.works.witness)?;
        let controller = records::of_controller(journal)?;
        let runs = records::of_runs(&self.site.kept())?;
        let case = Case {
            plans: &self.plans,
            acknowledged: &self.clients.acknowledged,
            cancelled: &self.clients.cancelled,
            book: &self.injurer.book,
            witness: &witness,
            controller: &controller,
            runs: &runs,
        };
        let mut verdict = verdict::judge(&case);
        play.judge(&self.site, &case, &mut verdict)?;
        verdict.violations.append(&mut self.complaints);
        verdict.violations.sort_by_key(|v| v.wrong);
        let text: String = verdict.violations.iter().map(|v| format!("{:?}: {}\n", v.wrong, v.text)).collect();
        let path = self.site.home.join("violations");
        fs::write(&path, text).map_err(|e| FaultsError::Other(format!("write {}: {e}", path.display())))?;
        Ok(Report {
            verdict,
            book: self.injurer.book.clone(),
            acknowledged: self.clients.acknowledged.len(),
            unacknowledged: self.clients.unacknowledged.len(),
            cancelled: self.clients.cancelled.len(),
            released: self.clients.released.len(),
            ended_by_themselves: self.site.daemons.iter().chain(&self.site.service).map(|d| d.ended_by_itself).sum(),
            hurt_for,
            took: self.began.elapsed(),
        })
    }
}

pub(super) fn millis((low, high): (u32, u32), random: &mut Random) -> Duration {
    Duration::from_millis(u64::from(random.between(low, high)))
}
