//! Leases: tenants that admins make over the network, with devices of their own and an end. What is leased is what the entries of tenants
//! say, so it is known again after any crash, and nothing but the entries can disagree.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use towline_wire::control::{
    EndLease, GiveLease, Lease, LeasedPart, RenewLease, Token, WHOLE_SHARE, limits,
};

use super::Shared;
use super::audit::Event;
use super::control::{Client, KILL_LIMIT};
use super::devices::{self, Leasable};
use super::tenant::{Tenant, TenantEntry, TenantLimits};

/// An entry stays so long when its time is over, so that its clients are told why.
const KEPT: SignedDuration = SignedDuration::from_hours(24);

/// Changes the entries of tenants, in a way that lasts.
pub trait LeaseStore: fmt::Debug + Send + Sync {
    /// Has `change` say what is to change while nobody else changes anything, and `take` take the entries that there are then.
    fn change(&self, change: &mut LeaseChooser<'_>, take: &dyn Fn(Entries)) -> Result<(), String>;
}

/// Says by the entries that there are what is to change of them; in the error, why nothing is.
pub type LeaseChooser<'a> = dyn FnMut(&Entries) -> Result<Vec<LeaseChange>, String> + 'a;

/// Tenants by their names.
type Entries = BTreeMap<String, TenantEntry>;

/// A change of the entries.
#[derive(Clone, Debug)]
pub enum LeaseChange {
    /// A new one. The store gives it its id.
    Add(String, Box<TenantEntry>),
    /// Another end.
    Renew(String, Option<Timestamp>),
    /// It goes.
    Remove(String),
}

/// Gives a lease; in the error, why not.
pub(super) fn give(
    request: &GiveLease,
    by: &Client,
    address: &str,
    shared: &Shared,
) -> Result<Lease, String> {
    let store = store(by, shared)?;
    let own = by.tenant.token().ok_or("this server asks for no token")?;
    let token = request.token(&own);
    let until = end_of(request.seconds)?;
    let is_wanted = |device: &Leasable| request.on.iter().any(|word| device.is_named(word));
    let devices = devices::leasable(shared).map(|mut devices| {
        devices.retain(|device| request.on.is_empty() || is_wanted(device));
        devices
    });
    let deadline = Instant::now() + KILL_LIMIT;
    let lease = loop {
        // Of devices whose time is over nothing is to be in use any more.
        shared.end_expired();
        let mut leaving = Vec::new();
        match give_now(
            (request, &token, until),
            &devices,
            &mut leaving,
            store,
            shared,
        ) {
            Ok(lease) => break lease,
            Err(reason) => {
                let left = deadline.saturating_duration_since(Instant::now());
                let Some(holder) = leaving.first() else {
                    return Err(reason);
                };
                if left.is_zero() {
                    log::warn!("tenant {}: a worker of it does not end", holder.name());
                    let name = holder.name();
                    return Err(format!(
                        "{reason}, without those of the tenant `{name}`, of which a worker has not ended yet"
                    ));
                }
                holder.wait_empty(left);
            }
        }
    };
    log::info!(
        "lease {}: {}, given by tenant {} from {address}",
        request.name,
        lease.devices.join(" "),
        by.tenant.name()
    );
    if let Some(audit) = &shared.audit {
        audit.tell(&Event::LeaseGiven {
            tenant: &request.name,
            devices: &lease.devices,
            device_memory: match request.part {
                LeasedPart::Whole(_) => None,
                LeasedPart::Memory(bytes) => Some(bytes),
            },
            share: request.time.percent,
            priority: request.time.priority.name(),
            until_s: Some(lease.until_s).filter(|until| *until > 0),
            by_tenant: by.tenant.name(),
            by_host: &by.hello.hostname,
            by_address: address,
        });
    }
    Ok(lease)
}

/// Gives a lease of what is free; in the error, why not. Where others would be free without tenants that are leaving, those are in
/// `leaving` then.
fn give_now(
    (request, token, until): (&GiveLease, &Token, Option<Timestamp>),
    devices: &Result<Vec<Leasable>, String>,
    leaving: &mut Vec<Arc<Tenant>>,
    store: &Arc<dyn LeaseStore>,
    shared: &Shared,
) -> Result<Lease, String> {
    let mut outcome = None;
    store.change(
        &mut |entries| {
            let now = Timestamp::now();
            let name = &request.name;
            let mut changes = over_long_ago(entries, now);
            // The entry of a tenant that is no lease stays when its time is over.
            let holds = |entry: &&TenantEntry| !entry.is_lease || !is_over(entry, now);
            match entries.get(name).filter(holds) {
                Some(entry) if entry.is_lease && entry.token.is(token.to_text().as_bytes()) => {
                    outcome = Some(lease_of(entry));
                    return Ok(Vec::new());
                }
                Some(_) => {
                    return Err(format!(
                        "there is a tenant `{name}` already; end it first, or take another name"
                    ));
                }
                None => {}
            }
            if shared.draining.load(Ordering::Acquire) {
                return Err("the server drains: it gives no devices any more".into());
            }
            let share = request.time.percent.unwrap_or(0);
            // An entry that is gone says nothing of its sessions: until they have ended, their devices are taken.
            let devices = devices.as_ref().map_err(String::clone)?;
            let (free, held) = without_leaving(devices, shared.config.tenants.leaving());
            let chosen = place(&free, entries, (request.part, share), now)
                .inspect_err(|_| *leaving = held)?;
            let entry = TenantEntry {
                limits: TenantLimits {
                    sessions: Some(request.sessions).filter(|sessions| *sessions > 0),
                    memory: match request.part {
                        LeasedPart::Whole(_) => None,
                        LeasedPart::Memory(bytes) => Some(bytes),
                    },
                    until,
                    time: request.time,
                    ..TenantLimits::default()
                },
                devices: chosen,
                is_lease: true,
                // The store gives the id.
                ..TenantEntry::new("", token.clone())
            };
            if entries.contains_key(name) {
                changes.push(LeaseChange::Remove(name.clone()));
            }
            outcome = Some(lease_of(&entry));
            changes.push(LeaseChange::Add(name.clone(), Box::new(entry)));
            Ok(changes)
        },
        &|entries| shared.set_tenants(entries),
    )?;
    outcome.ok_or_else(|| "the tenants were not looked at".into())
}

/// Devices without those of tenants whose workers have not ended, and these tenants.
fn without_leaving(
    devices: &[Leasable],
    mut leaving: Vec<Arc<Tenant>>,
) -> (Vec<Leasable>, Vec<Arc<Tenant>>) {
    let has = |tenant: &Arc<Tenant>, device: &Leasable| {
        let words = tenant.devices();
        words.iter().any(|word| device.is_named(word))
    };
    leaving.retain(|tenant| devices.iter().any(|device| has(tenant, device)));
    let mut free = devices.to_vec();
    free.retain(|device| !leaving.iter().any(|tenant| has(tenant, device)));
    (free, leaving)
}

/// Gives a lease another end.
pub(super) fn renew(request: &RenewLease, by: &Client, shared: &Shared) -> Result<(), String> {
    let until = end_of(request.seconds)?;
    store(by, shared)?.change(
        &mut |entries| {
            let now = Timestamp::now();
            known(entries, &request.name).and_then(|entry| match is_over(entry, now) {
                // Its devices may be another's by now.
                true => Err(format!(
                    "the time of the lease `{}` is over; give another",
                    request.name
                )),
                false => Ok(vec![LeaseChange::Renew(request.name.clone(), until)]),
            })
        },
        &|entries| shared.set_tenants(entries),
    )
}

/// Ends a lease, and returns when the workers of its sessions are gone.
pub(super) fn end(
    request: &EndLease,
    by: &Client,
    address: &str,
    shared: &Shared,
) -> Result<(), String> {
    let store = store(by, shared)?;
    let tenant = shared.config.tenants.get(&request.name);
    store.change(
        &mut |entries| {
            known(entries, &request.name)?;
            Ok(vec![LeaseChange::Remove(request.name.clone())])
        },
        &|entries| shared.set_tenants(entries),
    )?;
    if let Some(audit) = &shared.audit {
        audit.tell(&Event::LeaseEnded {
            tenant: &request.name,
            by_tenant: by.tenant.name(),
            by_host: &by.hello.hostname,
            by_address: address,
        });
    }
    match tenant.is_none_or(|tenant| tenant.wait_empty(KILL_LIMIT)) {
        true => Ok(()),
        false => Err(format!(
            "the lease `{}` is over, but a worker of its sessions has not ended within {} s: it hangs in the kernel",
            request.name,
            KILL_LIMIT.as_secs()
        )),
    }
}

fn store<'a>(by: &Client, shared: &'a Shared) -> Result<&'a Arc<dyn LeaseStore>, String> {
    let store = shared.config.leases.as_ref();
    let store = store.ok_or(
        "this server gives no leases: it was started without --tenants-file, which keeps them",
    )?;
    match by.tenant.is_admin() {
        true => Ok(store),
        false => Err("only tenants that are admins may give, renew and end leases".into()),
    }
}

fn known<'a>(entries: &'a Entries, name: &str) -> Result<&'a TenantEntry, String> {
    let entry = entries.get(name).filter(|entry| entry.is_lease);
    entry.ok_or_else(|| {
        format!("there is no lease `{name}`; `towline lease list` shows those that there are")
    })
}

/// The time so many seconds from now; none for 0.
fn end_of(seconds: u64) -> Result<Option<Timestamp>, String> {
    if seconds == 0 {
        return Ok(None);
    }
    let time = i64::try_from(seconds).map(SignedDuration::from_secs);
    let end = time
        .ok()
        .and_then(|time| Timestamp::now().checked_add(time).ok());
    end.map(Some)
        .ok_or_else(|| format!("{seconds} s are too long for a lease"))
}

fn is_over(entry: &TenantEntry, now: Timestamp) -> bool {
    entry.limits.until.is_some_and(|until| until <= now)
}

fn over_long_ago(entries: &Entries, now: Timestamp) -> Vec<LeaseChange> {
    let before = now.checked_sub(KEPT).unwrap_or(Timestamp::MIN);
    let over = entries
        .iter()
        .filter(|(_, entry)| entry.is_lease && is_over(entry, before));
    over.map(|(name, _)| LeaseChange::Remove(name.clone()))
        .collect()
}

fn lease_of(entry: &TenantEntry) -> Lease {
    let until = entry.limits.until.map(Timestamp::as_second);
    Lease {
        devices: entry.devices.clone(),
        until_s: until.map_or(0, |until| u64::try_from(until).unwrap_or(0)),
    }
}

/// The part that a tenant has of each of its devices; `None` where it has them whole.
fn part_of(entry: &TenantEntry) -> Option<u64> {
    entry.limits.memory.filter(|_| entry.devices.len() == 1)
}

/// Memory of a device that no tenant has which has devices of its own; 0 where one has it whole.
fn free_bytes(device: &Leasable, entries: &Entries, now: Timestamp) -> u64 {
    let is_named = |entry: &&TenantEntry| entry.devices.iter().any(|word| device.is_named(word));
    let holders = entries.values().filter(|entry| !is_over(entry, now));
    let mut free = device.bytes;
    for holder in holders.filter(is_named) {
        free = part_of(holder).map_or(0, |bytes| free.saturating_sub(bytes));
    }
    free
}

/// Time of a device, in percent, that is no tenant's share.
fn free_share(device: &Leasable, entries: &Entries, now: Timestamp) -> u8 {
    let is_named = |entry: &&TenantEntry| entry.devices.iter().any(|word| device.is_named(word));
    let holders = entries.values().filter(|entry| !is_over(entry, now));
    let shares = holders.filter(is_named);
    let shares = shares.filter_map(|entry| entry.limits.time.percent);
    shares.fold(WHOLE_SHARE, u8::saturating_sub)
}

/// Chooses devices that are free: the first whole ones, or for a part the device that has the least left of those that have enough, so that
/// others stay whole.
fn place(
    devices: &[Leasable],
    entries: &Entries,
    (part, share): (LeasedPart, u8),
    now: Timestamp,
) -> Result<Vec<String>, String> {
    let left = devices
        .iter()
        .map(|device| (device, free_bytes(device, entries, now)));
    match part {
        LeasedPart::Whole(0) | LeasedPart::Memory(0) => Err("a lease of nothing".into()),
        LeasedPart::Whole(count) => {
            let free = left.filter(|(device, free)| *free == device.bytes && *free > 0);
            let names: Vec<_> = free.map(|(device, _)| device.name()).collect();
            let count = count as usize;
            if count > limits::TENANT_DEVICES {
                return Err(format!(
                    "{count} devices for one lease; the most is {}",
                    limits::TENANT_DEVICES
                ));
            }
            names.get(..count).map(<[String]>::to_vec).ok_or_else(|| {
                format!(
                    "{count} whole devices are asked for, and {} of {} are free",
                    names.len(),
                    devices.len()
                )
            })
        }
        LeasedPart::Memory(bytes) => {
            let left: Vec<_> = left.collect();
            let time = |device: &Leasable| free_share(device, entries, now);
            let enough = left
                .iter()
                .filter(|(device, free)| *free >= bytes && time(device) >= share);
            let chosen = enough.min_by_key(|(_, free)| *free);
            chosen.map(|(device, _)| vec![device.name()]).ok_or_else(|| {
                let roomy = left.iter().filter(|(_, free)| *free >= bytes);
                if let Some(most) = roomy.map(|(device, _)| time(device)).max() {
                    return format!(
                        "{share} % of one device's time are asked for, and the most that is free is {most} %"
                    );
                }
                let most = left.iter().map(|(_, free)| *free).max().unwrap_or(0);
                format!("{bytes} bytes of one device are asked for, and the most that is free is {most}")
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tenant::TenantTable;
    use super::*;

    const GIB: u64 = 1 << 30;

    fn devices(count: usize) -> Vec<Leasable> {
        let device = |number| Leasable {
            number,
            uuid: format!("{number:08}-0000"),
            bytes: 80 * GIB,
        };
        (0..count).map(device).collect()
    }

    fn holder(words: &[&str], memory: Option<u64>, until: Option<Timestamp>) -> TenantEntry {
        let token = Token::from_bytes(b"the token of a tenant").unwrap();
        TenantEntry {
            limits: TenantLimits {
                memory,
                until,
                ..TenantLimits::default()
            },
            devices: words.iter().map(|word| (*word).to_owned()).collect(),
            is_lease: true,
            ..TenantEntry::new("", token)
        }
    }

    fn entries(holders: impl IntoIterator<Item = TenantEntry>) -> Entries {
        let named = holders.into_iter().enumerate();
        named
            .map(|(number, entry)| (number.to_string(), entry))
            .collect()
    }

    fn placed(entries: &Entries, part: LeasedPart) -> Result<Vec<String>, String> {
        place(&devices(3), entries, (part, 0), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn whole_devices_are_those_nobody_has_anything_of() {
        let taken = entries([
            holder(&["GPU-00000000"], None, None),
            holder(&["2"], Some(GIB), None),
            // A tenant with all devices has none to itself.
            holder(&[], Some(GIB), None),
        ]);
        let name = |number| format!("GPU-{number:08}-0000");
        assert_eq!(placed(&taken, LeasedPart::Whole(1)), Ok(vec![name(1)]));
        let refusal = placed(&taken, LeasedPart::Whole(2)).unwrap_err();
        assert!(refusal.contains("1 of 3 are free"), "{refusal}");
        let all = placed(&Entries::new(), LeasedPart::Whole(3));
        assert_eq!(all, Ok(vec![name(0), name(1), name(2)]));
    }

    #[test]
    fn part_goes_where_least_is_left() {
        let taken = entries([
            holder(&["0"], Some(30 * GIB), None),
            holder(&["0"], Some(40 * GIB), None),
            holder(&["1"], Some(10 * GIB), None),
        ]);
        let part = |gib| placed(&taken, LeasedPart::Memory(gib * GIB)).map(|names| names.concat());
        assert_eq!(part(10), Ok("GPU-00000000-0000".into()));
        assert_eq!(part(11), Ok("GPU-00000001-0000".into()));
        assert_eq!(part(71), Ok("GPU-00000002-0000".into()));
        assert!(part(81).unwrap_err().contains(&(80 * GIB).to_string()));
    }

    #[test]
    fn shares_of_a_device_are_a_hundred_percent() {
        let mut taken = entries([
            holder(&["0"], Some(GIB), None),
            holder(&["1", "2"], None, None),
        ]);
        for entry in taken.values_mut() {
            entry.limits.time.percent = Some(70);
        }
        let part = |share| {
            let part = (LeasedPart::Memory(GIB), share);
            place(&devices(3), &taken, part, Timestamp::UNIX_EPOCH)
        };
        assert!(part(30).is_ok());
        let refusal = part(31).unwrap_err();
        assert!(refusal.contains("that is free is 30 %"), "{refusal}");
    }

    #[test]
    fn several_devices_with_a_limit_are_whole() {
        let taken = entries([holder(&["0", "1"], Some(GIB), None)]);
        let part = placed(&taken, LeasedPart::Memory(GIB));
        assert_eq!(part, Ok(vec!["GPU-00000002-0000".into()]));
    }

    #[test]
    fn lease_that_is_over_holds_nothing() {
        let before = Timestamp::from_second(-1).unwrap();
        let taken = entries([holder(&["0", "1", "2"], None, Some(before))]);
        assert!(placed(&taken, LeasedPart::Whole(3)).is_ok());
        assert!(over_long_ago(&taken, Timestamp::UNIX_EPOCH).is_empty());
        let later = Timestamp::from_second(25 * 3600).unwrap();
        assert_eq!(over_long_ago(&taken, later).len(), 1);
    }

    #[test]
    fn device_is_taken_until_the_last_worker_ends() {
        let table = TenantTable::listed(entries([
            holder(&["0"], None, None),
            holder(&["1"], None, None),
        ]));
        let [first, second] = ["0", "1"].map(|name| table.get(name).unwrap());
        let (seat, other) = (first.admit().unwrap(), second.admit().unwrap());
        table.replace(Entries::new());
        drop(other);
        let (free, held) = without_leaving(&devices(3), table.leaving());
        assert!(held.len() == 1 && Arc::ptr_eq(&held[0], &first));
        assert_eq!(free, devices(3)[1..]);
        // Nobody waits for what is not wanted.
        let (free, held) = without_leaving(&devices(3)[1..], table.leaving());
        assert!(held.is_empty() && free.len() == 2);
        drop(seat);
        let (free, _) = without_leaving(&devices(3), table.leaving());
        assert_eq!(free.len(), 3);
    }

    #[test]
    fn lease_of_nothing_or_too_much_is_refused() {
        for part in [
            LeasedPart::Whole(0),
            LeasedPart::Memory(0),
            LeasedPart::Whole(65),
            LeasedPart::Whole(u32::MAX),
        ] {
            assert!(placed(&Entries::new(), part).is_err(), "{part:?}");
        }
        assert!(end_of(u64::MAX).is_err() && end_of(i64::MAX as u64).is_err());
        assert_eq!(end_of(0), Ok(None));
    }
}
