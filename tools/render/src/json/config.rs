//! `scontrol show config --json` and `scontrol ping --json`.

use super::{Meta, document, number, optional, skeleton};
use crate::{clock::Clock, words::SLURM_VERSION};
use garrick_model::time::Timestamp;
use jiff::civil::DateTime;
use serde_json::{Map, Value, json};

/// A controller that was asked whether it is there.
#[derive(Clone, Debug)]
pub struct Ping {
    /// Its host.
    pub host: String,
    /// Whether it answered.
    pub is_up: bool,
    /// How long that took, or how long it was waited for, in microseconds.
    pub latency_us: u64,
}

/// The document of these controllers, the primary one first.
pub fn pings(pings: &[Ping], meta: &Meta) -> Value {
    let one = |(place, ping): (usize, &Ping)| {
        let status = if ping.is_up { "No error" } else { "Unable to contact slurm controller (connect failure)" };
        json!({
            "hostname": ping.host,
            "responding": ping.is_up,
            "latency": ping.latency_us,
            "primary": place == 0,
            "status": status,
        })
    };
    document("pings", pings.iter().enumerate().map(one).collect(), None, meta)
}

/// The document of a configuration, from the lines that are shown as text.
pub fn config(pairs: &[(String, String)], at: Timestamp, meta: &Meta, clock: &Clock) -> Value {
    let text = |key: &str| {
        let found = pairs.iter().find(|(name, _)| name.eq_ignore_ascii_case(key));
        found.map(|(_, value)| value.as_str()).filter(|value| *value != "(null)").unwrap_or_default()
    };
    let shape = skeleton(include_str!("skeleton/config.json"));
    let mut settings = Map::new();
    for (key, kind) in shape.as_object().into_iter().flatten() {
        settings.insert(key.clone(), of_kind(text(key), kind));
    }
    settings.insert("controllers".to_owned(), controllers(pairs));
    for user in ["SlurmUser", "SlurmdUser"] {
        let (name, uid) = text(user).strip_suffix(')').and_then(|both| both.split_once('(')).unwrap_or_default();
        settings.insert(user.to_owned(), json!(name));
        settings.insert(format!("{user}Id"), json!(uid.parse::<u32>().unwrap_or_default()));
    }
    let booted = text("BOOT_TIME").parse::<DateTime>().and_then(|time| time.to_zoned(clock.zone.clone())).ok();
    let mut document = document("slurm_conf", Vec::new(), None, meta);
    document["slurm_conf"] = Value::Object(settings);
    document["slurm_conf_meta"] = json!({
        "LastUpdate": at.secs(),
        "BOOT_TIME": booted.map_or(0, |zoned| zoned.timestamp().as_second()),
        "ClusterId": number(0_u32),
        // Of files as Slurm reads them; here there is none.
        "HashValue": 0,
        "NEXT_JOB_ID": optional(text("NEXT_JOB_ID").parse().ok()),
        "SLURM_CONF": text("SLURM_CONF"),
        "SLURM_VERSION": SLURM_VERSION.trim_start_matches("slurm "),
    });
    document
}

/// A value as its property has it: text, a number without its unit, yes or no, a list, a number that may not be there, or a range.
fn of_kind(text: &str, kind: &Value) -> Value {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    let first = digits.parse::<u64>();
    match kind {
        Value::Array(_) => {
            let words = text.split([',', ';']).map(str::trim);
            json!(words.filter(|word| !matches!(*word, "" | "none" | "N/A")).collect::<Vec<_>>())
        }
        Value::Object(parts) if parts.contains_key("minimum") => {
            let (least, most) = text.split_once('-').unwrap_or_default();
            let bound = |text: &str| text.parse::<u32>().unwrap_or_default();
            json!({"minimum": bound(least), "maximum": bound(most), "set": !most.is_empty()})
        }
        Value::Object(_) => {
            let endless = ["UNLIMITED", "INFINITE"].contains(&text);
            if endless { json!({"set": false, "infinite": true, "number": 0}) } else { optional(first.ok()) }
        }
        Value::String(kind) if kind == "integer" => json!(first.unwrap_or_default()),
        Value::String(kind) if kind == "boolean" => json!(first.map_or(text.eq_ignore_ascii_case("yes"), |n| n > 0)),
        _ => json!(text),
    }
}

/// `SlurmctldHost[0]`, each with its address behind it where it has one.
fn controllers(pairs: &[(String, String)]) -> Value {
    let hosts = pairs.iter().filter(|(key, _)| key.starts_with("SlurmctldHost["));
    let one = |(_, value): &(String, String)| {
        let both = value.strip_suffix(')').and_then(|both| both.split_once('('));
        let (name, address) = both.unwrap_or((value, value));
        json!({ "machine": name, "address": address })
    };
    Value::Array(hosts.map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn settings_have_the_types_of_their_properties() {
        let pairs = [
            ("ClusterName", "peer"),
            ("SlurmUser", "slurm(64030)"),
            ("SlurmctldHost[0]", "head(10.0.0.1)"),
            ("SlurmctldHost[1]", "spare"),
            ("MessageTimeout", "10 sec"),
            ("AccountingStorageEnforce", "none"),
            ("SelectTypeParameters", "CR_CORE_MEMORY"),
            ("DefMemPerCPU", "(null)"),
            ("SrunPortRange", "60001-63000"),
            ("GroupUpdateForce", "1"),
            ("SuspendTime", "INFINITE"),
            ("Prolog", "(null)"),
            ("NEXT_JOB_ID", "17"),
            ("BOOT_TIME", "2026-11-21T10:00:51"),
        ];
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let document = config(&pairs, Timestamp::from_secs(5), &testing::meta(), &testing::clock(0));
        let settings = &document["slurm_conf"];
        assert_eq!(settings["ClusterName"], "peer");
        assert_eq!((&settings["SlurmUser"], &settings["SlurmUserId"]), (&json!("slurm"), &json!(64030)));
        let hosts = json!([{"machine": "head", "address": "10.0.0.1"}, {"machine": "spare", "address": "spare"}]);
        assert_eq!(settings["controllers"], hosts);
        assert_eq!(settings["MessageTimeout"], 10);
        assert_eq!((&settings["AccountingStorageEnforce"], &settings["Prolog"]), (&json!([]), &json!([])));
        assert_eq!(settings["SelectTypeParameters"], json!(["CR_CORE_MEMORY"]));
        assert_eq!(settings["DefMemPerCPU"], optional(None));
        assert_eq!(settings["SrunPortRange"], json!({"minimum": 60001, "maximum": 63000, "set": true}));
        assert_eq!(settings["GroupUpdateForce"], true);
        assert_eq!(settings["SuspendTime"]["infinite"], true);
        assert_eq!(document["slurm_conf_meta"]["NEXT_JOB_ID"], number(17_u32));
        assert_eq!(document["slurm_conf_meta"]["BOOT_TIME"], testing::START);
    }
}
