//! Requests of commands under the names and numbers that Slurm has for them, and the orders in which they are listed.

use garrick_model::messages::statistics::Statistics;
use std::{cmp::Reverse, collections::BTreeMap};

/// In which order requests and users are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Order {
    /// The most frequent first.
    #[default]
    Count,
    /// By number.
    Id,
    /// The one that took most time first.
    Time,
    /// The one that took most time each first.
    MeanTime,
}

/// Requests of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rpc {
    /// Slurm's number.
    pub id: u32,
    /// Slurm's name; of what Slurm does not have, one in its style.
    pub name: String,
    /// How many.
    pub count: u64,
    /// How long, all together.
    pub micros: u64,
}

/// Requests of one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// User.
    pub uid: u32,
    /// How many.
    pub count: u64,
    /// How long, all together.
    pub micros: u64,
}

/// Requests that Slurm has too, as `sdiag` of 26.05 shows them. Several of ours may be one of Slurm's.
const OF_SLURM: &[(&str, u32, &str)] = &[
    ("Ping", 1008, "REQUEST_PING"),
    ("ChangeLog", 1010, "REQUEST_SET_DEBUG_LEVEL"),
    ("SetLogLevel", 1010, "REQUEST_SET_DEBUG_LEVEL"),
    ("ListLicenses", 1021, "REQUEST_LICENSE_INFO"),
    ("ShowConfig", 2001, "REQUEST_BUILD_INFO"),
    ("ListJobs", 2003, "REQUEST_JOB_INFO"),
    ("ListSteps", 2005, "REQUEST_JOB_STEP_INFO"),
    ("ListNodes", 2007, "REQUEST_NODE_INFO"),
    ("ListPartitions", 2009, "REQUEST_PARTITION_INFO"),
    ("ListReservations", 2024, "REQUEST_RESERVATION_INFO"),
    ("ListPriorities", 2026, "REQUEST_PRIORITY_FACTORS"),
    ("ListTopologies", 2028, "REQUEST_TOPO_INFO"),
    ("ShowStatistics", 2035, "REQUEST_STATS_INFO"),
    ("ResetStatistics", 2035, "REQUEST_STATS_INFO"),
    ("ShowScript", 2051, "REQUEST_BATCH_SCRIPT"),
    ("UpdateJob", 3001, "REQUEST_UPDATE_JOB"),
    ("UpdateNode", 3002, "REQUEST_UPDATE_NODE"),
    ("CreatePartition", 3003, "REQUEST_CREATE_PARTITION"),
    ("DeletePartition", 3004, "REQUEST_DELETE_PARTITION"),
    ("UpdatePartition", 3005, "REQUEST_UPDATE_PARTITION"),
    ("CreateReservation", 3006, "REQUEST_CREATE_RESERVATION"),
    ("DeleteReservation", 3008, "REQUEST_DELETE_RESERVATION"),
    ("UpdateReservation", 3009, "REQUEST_UPDATE_RESERVATION"),
    ("SubmitJob", 4003, "REQUEST_SUBMIT_BATCH_JOB"),
    ("TestJob", 4012, "REQUEST_JOB_WILL_RUN"),
    ("TestHetJob", 4012, "REQUEST_JOB_WILL_RUN"),
    ("WaitJob", 4019, "REQUEST_JOB_READY"),
    ("SuspendJob", 5014, "REQUEST_SUSPEND"),
    ("FinishAllocation", 5017, "REQUEST_COMPLETE_JOB_ALLOCATION"),
    ("RequeueJob", 5023, "REQUEST_JOB_REQUEUE"),
    ("Cancel", 5032, "REQUEST_KILL_JOB"),
    ("TopJob", 5038, "REQUEST_TOP_JOB"),
];

/// Where the numbers of requests begin that Slurm does not have: above all of its own.
const OTHERS: u32 = 30_000;

/// `ListDaemons` as `REQUEST_LIST_DAEMONS`.
fn styled(name: &str) -> String {
    let mut text = "REQUEST".to_owned();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}

/// Requests by kind.
pub fn rpcs(statistics: &Statistics, order: Order) -> Vec<Rpc> {
    let mut found: BTreeMap<(u32, String), (u64, u64)> = BTreeMap::new();
    let mut others = OTHERS;
    for request in &statistics.requests {
        let of_slurm = OF_SLURM.iter().find(|(name, ..)| *name == request.request);
        let key = match of_slurm {
            Some((_, id, name)) => (*id, (*name).to_owned()),
            None => {
                others += 1;
                (others, styled(&request.request))
            }
        };
        let (count, micros) = found.entry(key).or_default();
        *count += request.count;
        *micros += request.micros;
    }
    let mut rpcs: Vec<Rpc> =
        found.into_iter().map(|((id, name), (count, micros))| Rpc { id, name, count, micros }).collect();
    rpcs.sort_by_key(|rpc| rank(order, rpc.id, rpc.count, rpc.micros));
    rpcs
}

/// Requests by user.
pub fn users(statistics: &Statistics, order: Order) -> Vec<User> {
    let user =
        |of: &garrick_model::messages::statistics::UserCount| User { uid: of.uid, count: of.count, micros: of.micros };
    let mut users: Vec<User> = statistics.users.iter().map(user).collect();
    users.sort_by_key(|user| rank(order, user.uid, user.count, user.micros));
    users
}

fn rank(order: Order, id: u32, count: u64, micros: u64) -> (Reverse<u64>, u32) {
    let first = match order {
        Order::Count => count,
        Order::Id => 0,
        Order::Time => micros,
        Order::MeanTime => micros / count.max(1),
    };
    (Reverse(first), id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use garrick_model::messages::statistics::RequestCount;

    fn counted() -> Statistics {
        let of = |(name, count, micros): (&str, u64, u64)| RequestCount { request: name.to_owned(), count, micros };
        let requests =
            [("Ping", 9, 90), ("ListJobs", 1, 60), ("ListDaemons", 2, 100), ("ChangeLog", 1, 5), ("SetLogLevel", 1, 5)];
        Statistics { requests: requests.map(of).to_vec(), ..Statistics::default() }
    }

    #[test]
    fn each_order_has_its_first() {
        let first = |order| rpcs(&counted(), order).first().map(|rpc| rpc.name.clone()).unwrap_or_default();
        assert_eq!(first(Order::Count), "REQUEST_PING");
        assert_eq!(first(Order::Id), "REQUEST_PING");
        assert_eq!(first(Order::Time), "REQUEST_LIST_DAEMONS");
        assert_eq!(first(Order::MeanTime), "REQUEST_JOB_INFO");
    }

    #[test]
    fn what_is_one_request_of_slurms_is_added_up() {
        let found = rpcs(&counted(), Order::Id);
        let levels: Vec<_> = found.iter().filter(|rpc| rpc.id == 1010).map(|rpc| (rpc.count, rpc.micros)).collect();
        assert_eq!(levels, [(2, 10)]);
        assert!(found.iter().any(|rpc| rpc.id > OTHERS && rpc.name == "REQUEST_LIST_DAEMONS"));
    }
}
