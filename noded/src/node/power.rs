//! The power of the node (`AcctGatherNodeFreq`): its energy meter is looked at from time to time, and heartbeats tell the controller
//! what it showed.

use garrick_kernel::energy::{EnergyMeter, EnergyPlace};
use garrick_model::{time::Timestamp, view::PowerReading};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// What the meter showed at the last look; `None`: nothing was looked at yet.
#[derive(Clone, Debug, Default)]
pub struct ShownPower(Arc<Mutex<Option<PowerReading>>>);

impl ShownPower {
    /// What it showed.
    pub fn get(&self) -> Option<PowerReading> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, power: PowerReading) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(power);
    }
}

/// Two looks, as they are added up.
#[derive(Clone, Copy, Debug)]
struct Looks {
    began: Timestamp,
    at: Timestamp,
    /// Microjoules since it was begun.
    total: u64,
}

/// Mean power, watts.
fn mean(microjoules: u64, time: Duration) -> u32 {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    u32::try_from((microjoules / 1000).checked_div(millis).unwrap_or(0)).unwrap_or(u32::MAX)
}

impl Looks {
    const fn begin(now: Timestamp) -> Self {
        Self { began: now, at: now, total: 0 }
    }

    /// The meter shows so many microjoules since it was begun; a power supply also what the power is.
    fn look(&mut self, now: Timestamp, total: u64, watts: Option<u32>) -> PowerReading {
        let since = mean(total.saturating_sub(self.total), now.since(self.at));
        let power = PowerReading {
            watts: watts.unwrap_or(since),
            mean_watts: mean(total, now.since(self.began)),
            joules: total / 1_000_000,
            joules_before: self.total / 1_000_000,
            at: now,
        };
        (self.at, self.total) = (now, total);
        power
    }
}

/// Looks at the meter for the life of the process.
pub async fn serve(place: EnergyPlace, every: Duration, shown: ShownPower) {
    // The kernel may have to ask the BMC, which takes its time.
    let found = tokio::task::spawn_blocking(move || EnergyMeter::find(&place)).await;
    let mut meter = match found {
        Ok(Ok(meter)) => meter,
        Ok(Err(error)) => return tracing::warn!(%error, "the power of this node is not known"),
        Err(error) => return tracing::error!(%error, "the power of this node is not known"),
    };
    let mut looks = Looks::begin(Timestamp::now());
    loop {
        tokio::time::sleep(every).await;
        let read = tokio::task::spawn_blocking(move || {
            let total = meter.read();
            (meter, total)
        });
        let Ok((same, total)) = read.await else { return };
        meter = same;
        shown.set(looks.look(Timestamp::now(), total, meter.watts()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_is_what_energy_grew_by_or_what_the_supply_says() {
        let at = |secs: i64| Timestamp::from_secs(1_795_868_431 + secs);
        let mut looks = Looks::begin(at(0));
        let first = looks.look(at(10), 1_000_000_000, None);
        assert_eq!(first, PowerReading { watts: 100, mean_watts: 100, joules: 1000, joules_before: 0, at: at(10) });
        let second = looks.look(at(20), 4_000_000_000, None);
        let wanted = PowerReading { watts: 300, mean_watts: 200, joules: 4000, joules_before: 1000, at: at(20) };
        assert_eq!(second, wanted);
        assert_eq!(looks.look(at(30), 4_000_000_000, Some(95)).watts, 95);
        // Twice in the same moment.
        assert_eq!(looks.look(at(30), 4_000_000_000, None).watts, 0);
    }
}
