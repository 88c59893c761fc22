//! The site's filters of options (`CliFilterPlugins`): they set defaults before options are read, look at what was asked for and
//! may change or refuse it, and are told which job or step came of it. All of this happens in the user's own process: filters
//! help users, and keep nobody from anything.
//!
//! | module | what it is |
//! |---|---|
//! | [`lua`] | `cli_filter.lua` |
//! | [`user_defaults`] | `~/.slurm/defaults` |
//! | [`socket`] | a program of the site behind a Unix socket |
//! | [`syslog`] | lines for the system's log |
//! | [`text`] | options and environment as JSON in one line |

mod lua;
mod socket;
mod syslog;
mod text;
mod user_defaults;

use crate::{
    options::{
        filtered::Filtered,
        getopt::Occurrence,
        sources::GivenOptions,
        table::Command,
        typed::{OptionError, Typed},
    },
    output::Console,
};
use garrick_model::{
    config::{CliFilter, Config},
    ids::JobId,
    time::Timestamp,
};
use std::{cell::RefCell, collections::BTreeMap, mem, path::PathBuf, rc::Rc};

/// `NO_VAL`: there is no step.
const NO_STEP: u32 = u32::MAX - 1;

/// Why a command ends before it asks the cluster for anything.
#[derive(Debug)]
pub enum Refused {
    /// A filter does not want it, and has said why.
    ByFilter,
    /// A filter set an option to what it cannot be.
    Option(OptionError),
}

/// What became of options: one component of a job, or a step.
#[derive(Clone, Debug, Default)]
pub struct Decided {
    /// Defaults: everything that the user says goes over them.
    pub defaults: Vec<Occurrence>,
    /// Options that go over everything.
    pub set: Vec<Occurrence>,
}

/// Options while a filter looks at them, and what it did wrong.
#[derive(Debug)]
struct Looked {
    options: Filtered,
    /// What is run, with its arguments.
    argv: Vec<String>,
    wrong: Option<OptionError>,
}

impl Looked {
    /// Sets an option; the first error is kept, and ends the command.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        self.options.set(name, value).map_err(|error| {
            let text = error.to_string();
            self.wrong.get_or_insert(error);
            text
        })
    }
}

type Shared = Rc<RefCell<Looked>>;

/// A filter.
enum Filter {
    Lua(lua::Script),
    UserDefaults,
    Syslog,
    Socket(PathBuf),
}

/// All filters of a site, in order.
pub struct Filters {
    command: Command,
    cluster: String,
    console: Console,
    filters: Vec<Filter>,
    /// The options of each component as JSON, for who is told of the job.
    told: RefCell<BTreeMap<u32, String>>,
}

impl std::fmt::Debug for Filters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filters").field("command", &self.command).finish_non_exhaustive()
    }
}

impl Filters {
    /// Loads them. What is wrong with one is said, and the command cannot go on: who may not use it, would else.
    pub fn load(command: Command, config: &Config, console: &Console) -> Result<Self, ()> {
        let mut filters = Vec::new();
        for filter in &config.cli_filters {
            filters.push(match filter {
                CliFilter::Lua => {
                    let beside = || config.path.with_file_name(lua::SCRIPT);
                    let path = config.cli_filter_lua.clone().unwrap_or_else(beside);
                    Filter::Lua(lua::Script::load(&path, &config.cluster_name, console)?)
                }
                CliFilter::UserDefaults => Filter::UserDefaults,
                CliFilter::Syslog => Filter::Syslog,
                CliFilter::Socket(path) => Filter::Socket(path.clone()),
            });
        }
        Ok(Self {
            command,
            cluster: config.cluster_name.clone(),
            console: console.clone(),
            filters,
            told: RefCell::default(),
        })
    }

    /// Defaults of a component, before its options are read.
    pub fn defaults(&self, now: Timestamp) -> Result<Vec<Occurrence>, Refused> {
        let options = Filtered::new(self.command, GivenOptions::new(), Typed::default(), now);
        let looked = Rc::new(RefCell::new(Looked { options, argv: Vec::new(), wrong: None }));
        for filter in &self.filters {
            match filter {
                Filter::Lua(script) => accepted(script.setup(&looked), &looked)?,
                Filter::UserDefaults => {
                    user_defaults::apply(&looked, self.command, &self.cluster, &self.console);
                    accepted(0, &looked)?;
                }
                Filter::Socket(path) => {
                    accepted(socket::ask(path, socket::Call::Setup, &looked, &self.console), &looked)?;
                }
                Filter::Syslog => {}
            }
        }
        Ok(into_set(looked))
    }

    /// What is asked for, before the cluster is asked. Returns the options that filters set.
    pub fn before(&self, offset: u32, options: Filtered, argv: Vec<String>) -> Result<Vec<Occurrence>, Refused> {
        let looked = Rc::new(RefCell::new(Looked { options, argv, wrong: None }));
        for filter in &self.filters {
            match filter {
                Filter::Lua(script) => accepted(script.before(offset, &looked), &looked)?,
                Filter::Socket(path) => {
                    accepted(socket::ask(path, socket::Call::Before(offset), &looked, &self.console), &looked)?;
                }
                Filter::UserDefaults | Filter::Syslog => {}
            }
        }
        self.told.borrow_mut().insert(offset, text::options(&looked.borrow()));
        Ok(into_set(looked))
    }

    /// The job is there, with a step where there is one. Each component is told of once. `console` speaks as loudly as the user
    /// asked for by now.
    pub fn after(&self, job: JobId, step: Option<u32>, console: &Console) {
        let step = step.unwrap_or(NO_STEP);
        for (offset, options) in self.told.take() {
            for filter in &self.filters {
                match filter {
                    Filter::Lua(script) => script.after(offset, job, step, console),
                    Filter::Syslog => syslog::tell(job, step, &options),
                    Filter::Socket(path) => socket::tell(path, offset, (job, step), &options, console),
                    Filter::UserDefaults => {}
                }
            }
        }
    }
}

/// The options that filters set. Scripts may keep a table of options, but no filter looks at them any more.
fn into_set(looked: Shared) -> Vec<Occurrence> {
    let nothing = Filtered::new(
        looked.borrow().options.command(),
        GivenOptions::new(),
        Typed::default(),
        Timestamp::from_secs(0),
    );
    mem::replace(&mut looked.borrow_mut().options, nothing).into_set()
}

/// Whether a filter accepts: it returned 0, and set no option to what it cannot be.
fn accepted(code: i32, looked: &Shared) -> Result<(), Refused> {
    if let Some(error) = looked.borrow_mut().wrong.take() {
        return Err(Refused::Option(error));
    }
    if code == 0 { Ok(()) } else { Err(Refused::ByFilter) }
}
