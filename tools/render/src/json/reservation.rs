//! `scontrol show reservation --json`.

use super::{Meta, document, optional, time};
use crate::records::reservation::tres;
use garrick_model::{
    hostlist,
    reservation::{RECURRING, Reservation, ReservationFlag},
    time::Timestamp,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// The document of reservations as of `at`.
pub fn reservations(list: &[Arc<Reservation>], at: Timestamp, meta: &Meta) -> Value {
    document("reservations", list.iter().map(|r| reservation(r)).collect(), Some(at), meta)
}

fn reservation(reservation: &Reservation) -> Value {
    let Reservation { name, start, end, nodes, partition, features, users, accounts, cores, .. } = reservation;
    json!({
        "accounts": accounts.to_string(),
        "burst_buffer": "",
        "core_count": cores,
        "core_specializations": reservation.parts().map(|(node, cores)| json!({"node": node, "core": cores})).collect::<Vec<_>>(),
        "end_time": time(Some(*end)),
        "features": features.as_deref().unwrap_or_default(),
        "flags": flags(reservation),
        "groups": reservation.groups.join(","),
        "licenses": reservation.licenses.to_string(),
        "max_start_delay": reservation.max_start_delay_secs.unwrap_or(0),
        "name": name,
        "node_count": nodes.len(),
        "node_list": hostlist::fold(nodes),
        "partition": partition.as_deref().unwrap_or_default(),
        "purge_completed": {"time": optional(reservation.purge_secs)},
        "start_time": time(Some(*start)),
        "tres": tres(reservation),
        "users": users.to_string(),
    })
}

fn flags(reservation: &Reservation) -> Vec<String> {
    let word = |flag: &ReservationFlag| flag.to_string();
    let again = RECURRING.iter().any(|flag| reservation.has(*flag));
    reservation.flags.iter().map(word).chain(again.then(|| "REOCCURRING".to_owned())).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::reservation::AccessList;

    #[test]
    fn a_reservation_has_the_shape_of_slurms() {
        let one = Reservation {
            name: "class".into(),
            start: Timestamp::from_secs(1000),
            end: Timestamp::from_secs(4600),
            nodes: vec!["n1".into(), "n2".into()],
            users: AccessList::parse("alice,bob").unwrap(),
            licenses: "abc:2".parse().unwrap(),
            flags: [ReservationFlag::Daily, ReservationFlag::Static, ReservationFlag::PurgeComp].into(),
            purge_secs: Some(300),
            max_start_delay_secs: Some(120),
            core_ids: [("n1".to_owned(), "0-3".parse().unwrap()), ("n2".to_owned(), "4-7".parse().unwrap())].into(),
            cores: 8,
            cpus: 16,
            ..Reservation::default()
        };
        let want = json!({
            "accounts": "", "burst_buffer": "", "core_count": 8,
            "core_specializations": [{"node": "n1", "core": "0-3"}, {"node": "n2", "core": "4-7"}],
            "end_time": {"set": true, "infinite": false, "number": 4600}, "features": "",
            "flags": ["DAILY", "STATIC", "PURGE_COMP", "REOCCURRING"], "groups": "", "licenses": "abc:2",
            "max_start_delay": 120, "name": "class", "node_count": 2, "node_list": "n[1-2]", "partition": "",
            "purge_completed": {"time": {"set": true, "infinite": false, "number": 300}},
            "start_time": {"set": true, "infinite": false, "number": 1000},
            "tres": "cpu=16,license/abc=2", "users": "alice,bob",
        });
        assert_eq!(reservation(&one), want);
    }
}
