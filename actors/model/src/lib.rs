//! The words of the field, shared by every Garrick process: ids, host lists, resources, configuration, what users ask
//! for, what owners show, and the messages between processes. No actors, no sockets, no clock.
//!
//! | module | what it is |
//! |---|---|
//! | [`ids`] | job, step, array and run identities |
//! | [`time`] | timestamps and durations as they travel |
//! | [`date`] | points in time as users write them: `--begin` |
//! | [`hostlist`] | `lx[0003-8000]`, both directions |
//! | [`resources`] | CPUs, memory and their bitmaps, as integers |
//! | [`node_shape`] | what a node has to give, and what of it a job or step holds |
//! | [`cpu_freq`], [`gpu_freq`] | frequencies and governors of CPUs; frequencies of GPUs |
//! | [`usage`] | what tasks used |
//! | [`reservation`] | advance reservations |
//! | [`trigger`] | triggers: programs that run when something happens |
//! | [`cron`], [`crontab`] | crontabs: when entries are due; the crontab of a user |
//! | [`gres`] | generic resources such as GPUs: what nodes have, what is asked for and held |
//! | [`spec`] | what a user asked for: jobs and steps |
//! | [`batch`] | many steps handed over at once, their dependencies and retries |
//! | [`spec_text`], [`selector`], [`step_selector`], [`patterns`], [`signal`] | text forms of requests: arrays, dependencies, `12_[1-4]`, `%j`, `USR1` |
//! | [`sampling`] | how often it is looked at what runs |
//! | [`profile`] | time series of what tasks and nodes use |
//! | [`site_program`] | programs of the site that daemons run |
//! | [`mail`] | when users are told about a job |
//! | [`state`] | job, step and node states and reasons, in Slurm's words |
//! | [`view`] | what owners publish about themselves |
//! | [`outlook`] | what keeps a job waiting |
//! | [`packed_steps`], [`step_listing`] | steps in reports, and in answers of bounded size |
//! | [`topology`] | switches, blocks, rings and tori as configured |
//! | [`refusal`] | why something was declined, as data |
//! | [`slurm_error`] | Slurm's error numbers |
//! | [`config`] | `slurm.conf`, read and checked |
//! | [`env_vars`] | every environment variable read or written |
//! | `testing` | specs and views with good defaults, with the feature of that name |
//! | [`messages`] | one enum per direction of each link |

pub mod batch;
mod bounded;
pub mod config;
pub mod cpu_freq;
pub mod cron;
pub mod crontab;
pub mod date;
pub mod doors;
pub mod entities;
pub mod env_vars;
pub mod gpu_freq;
pub mod gres;
pub mod hostlist;
pub mod ids;
pub mod job_query;
pub mod mail;
pub mod messages;
pub mod node_shape;
pub mod node_sizes;
pub mod outlook;
pub mod packed_steps;
pub mod patterns;
pub mod profile;
pub mod refusal;
pub mod reservation;
pub mod resources;
pub mod sampling;
pub mod selector;
pub mod sharing;
pub mod signal;
pub mod site_program;
pub mod slurm_error;
pub mod spec;
pub mod spec_text;
pub mod state;
pub mod step_listing;
pub mod step_selector;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod time;
pub mod topology;
pub mod trigger;
pub mod usage;
pub mod view;
pub mod visible;
