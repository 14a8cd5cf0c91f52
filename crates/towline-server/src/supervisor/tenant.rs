//! Tenants: who may have sessions, what each may have, and what its sessions have now.
//!
//! A tenant lives as long as its entry. What is changed of an entry acts at once on new sessions and new allocations; a tenant whose entry
//! goes is revoked, and its sessions end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use towline_wire::control::{
    Reject, RejectCode, ServerHandshake, TenantStatus, Tenants, TimeShare, Token,
    limits::TENANT_BYTES,
};
use towline_worker::Reserved;

use super::ending::Cause;
use super::quota::Quota;
use super::refusal::Requests;
use super::session::Api;
use super::{lock, wait_for_place};
use crate::worker::process::Statistics;

/// The tenant of clients that name none.
pub const DEFAULT_TENANT: &str = "default";

/// An entry of a tenant.
#[derive(Clone, Debug)]
pub struct TenantEntry {
    /// Tells it from another entry that had the same name before.
    pub id: String,
    /// Secret of its clients.
    pub token: Token,
    /// Whether it sees the sessions of all tenants.
    pub admin: bool,
    /// Its limits.
    pub limits: TenantLimits,
    /// The devices that its sessions have: each a number or the beginning of a UUID. Empty: all.
    pub devices: Vec<String>,
    /// Whether it is a lease: given, renewed and ended by [`super::LeaseStore`].
    pub is_lease: bool,
}

impl TenantEntry {
    /// An entry without rights or limits, of a tenant that has all devices.
    pub fn new(id: impl Into<String>, token: Token) -> Self {
        Self {
            id: id.into(),
            token,
            admin: false,
            limits: TenantLimits::default(),
            devices: Vec::new(),
            is_lease: false,
        }
    }
}

/// Limits of a tenant. `None` limits nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TenantLimits {
    /// Most sessions at once.
    pub sessions: Option<u32>,
    /// Most device memory of all its sessions together.
    pub memory: Option<u64>,
    /// Time from which it has no sessions, by this machine's clock.
    pub until: Option<Timestamp>,
    /// Its part of its devices' time.
    pub time: TimeShare,
    /// Limits of each session.
    pub quota: QuotaChanges,
}

/// Limits of a tenant's sessions that replace those of the server's quota. `None` replaces nothing, and 0 limits nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct QuotaChanges {
    /// See [`Quota::device_memory_bytes`].
    pub device_memory_bytes: Option<u64>,
    /// See [`Quota::host_memory_bytes`].
    pub host_memory_bytes: Option<u64>,
    /// See [`Quota::processes`].
    pub processes: Option<u64>,
    /// See [`Quota::kernel_time_ms`].
    pub kernel_time_ms: Option<u64>,
    /// See [`Quota::code_bytes`].
    pub code_bytes: Option<u64>,
    /// See [`Quota::cpu_percent`].
    pub cpu_percent: Option<u64>,
}

impl QuotaChanges {
    fn over(&self, server: Quota) -> Quota {
        let or = |own: Option<u64>, server: u64| own.unwrap_or(server);
        Quota {
            device_memory_bytes: or(self.device_memory_bytes, server.device_memory_bytes),
            host_memory_bytes: or(self.host_memory_bytes, server.host_memory_bytes),
            // Workers wait for clients of any tenant with their temporary files made.
            temporary_bytes: server.temporary_bytes,
            processes: or(self.processes, server.processes),
            kernel_time_ms: or(self.kernel_time_ms, server.kernel_time_ms),
            code_bytes: or(self.code_bytes, server.code_bytes),
            cpu_percent: or(self.cpu_percent, server.cpu_percent),
            descriptors: server.descriptors,
        }
    }
}

/// The tenants of a server.
#[derive(Debug)]
pub struct TenantTable {
    /// Whether clients must prove themselves.
    asked: bool,
    /// Whether there are entries, instead of one tenant for all.
    listed: bool,
    tenants: Mutex<Vec<Arc<Tenant>>>,
    /// Revoked tenants whose sessions may not have ended. Locked after `tenants`.
    revoked: Mutex<Vec<Arc<Tenant>>>,
    /// How many tenants there have been.
    numbers: AtomicU64,
}

impl TenantTable {
    /// One tenant for all clients, which sees all; without a token nobody is asked.
    pub fn single(token: Option<Token>) -> Self {
        let asked = token.is_some();
        let only = Tenant {
            number: 0,
            name: DEFAULT_TENANT.to_owned(),
            id: String::new(),
            counts_memory: false,
            state: Mutex::new(State {
                token,
                admin: true,
                ..State::default()
            }),
            left: Condvar::new(),
            requests: Requests::default(),
        };
        Self {
            asked,
            listed: false,
            tenants: Mutex::new(vec![Arc::new(only)]),
            revoked: Mutex::default(),
            numbers: AtomicU64::new(1),
        }
    }

    /// Tenants by their names.
    pub fn listed(entries: BTreeMap<String, TenantEntry>) -> Self {
        let table = Self {
            asked: true,
            listed: true,
            tenants: Mutex::default(),
            revoked: Mutex::default(),
            numbers: AtomicU64::new(0),
        };
        table.replace(entries);
        table
    }

    /// Gives the one tenant for all another token; false if it has none, or is not the only one.
    pub(super) fn set_shared_token(&self, token: Token) -> bool {
        let tenants = lock(&self.tenants);
        match tenants.as_slice() {
            [only] if self.asked && !self.listed => {
                lock(&only.state).token = Some(token);
                true
            }
            _ => false,
        }
    }

    /// Whether each tenant has an entry of its own.
    pub(super) fn is_listed(&self) -> bool {
        self.listed
    }

    /// The tenant of a proven name, unless it was revoked since.
    pub(super) fn get(&self, name: &str) -> Option<Arc<Tenant>> {
        let name = shown_name(name);
        let tenants = lock(&self.tenants);
        tenants.iter().find(|tenant| tenant.name == name).cloned()
    }

    /// The tenant that a client has proven to be of. Another that has taken its name since has another token.
    pub(super) fn proven(&self, name: &str, by: &ServerHandshake) -> Option<Arc<Tenant>> {
        let tenant = self.get(name)?;
        by.has_proven(tenant.token().as_ref()).then_some(tenant)
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> Vec<Arc<Tenant>> {
        lock(&self.tenants).clone()
    }

    /// Takes new entries in the place of those before. Tenants without one are revoked, and given back.
    pub(super) fn replace(&self, entries: BTreeMap<String, TenantEntry>) -> Vec<Arc<Tenant>> {
        let mut tenants = lock(&self.tenants);
        let before = std::mem::take(&mut *tenants);
        for (name, entry) in entries {
            let known = before
                .iter()
                .find(|tenant| tenant.name == name && tenant.id == entry.id);
            let tenant = known.cloned().unwrap_or_else(|| {
                Arc::new(Tenant {
                    number: self.numbers.fetch_add(1, Ordering::Relaxed),
                    name,
                    id: entry.id,
                    counts_memory: true,
                    state: Mutex::default(),
                    left: Condvar::new(),
                    requests: Requests::default(),
                })
            });
            let mut state = lock(&tenant.state);
            state.token = Some(entry.token);
            state.admin = entry.admin;
            state.limits = entry.limits;
            state.devices = entry.devices.into();
            state.is_lease = entry.is_lease;
            state.over &= state.is_over();
            drop(state);
            tenants.push(tenant);
        }
        let is_kept = |tenant: &Arc<Tenant>| tenants.iter().any(|kept| Arc::ptr_eq(kept, tenant));
        let mut revoked = before;
        revoked.retain(|tenant| !is_kept(tenant));
        for tenant in &revoked {
            lock(&tenant.state).revoked = true;
        }
        lock(&self.revoked).extend(revoked.iter().cloned());
        revoked
    }

    /// Tenants that may have no sessions any more, and have some whose workers live.
    pub(super) fn leaving(&self) -> Vec<Arc<Tenant>> {
        let mut leaving = self.all();
        leaving.retain(|tenant| tenant.is_revoked());
        let mut revoked = lock(&self.revoked);
        revoked.retain(|tenant| tenant.usage().sessions > 0);
        leaving.extend(revoked.iter().cloned());
        leaving.retain(|tenant| tenant.usage().sessions > 0);
        leaving
    }

    /// Tenants whose time is over since the last call.
    pub(super) fn expired(&self) -> Vec<Arc<Tenant>> {
        let mut expired = self.all();
        expired.retain(|tenant| {
            let mut state = lock(&tenant.state);
            let is_over = state.is_over();
            is_over && !std::mem::replace(&mut state.over, true)
        });
        expired
    }
}

impl Tenants for TenantTable {
    fn are_asked(&self) -> bool {
        self.asked
    }

    /// Compares the name with that of every tenant, whole, so that the time says nothing about which names there are.
    fn token(&self, name: &str) -> Option<Token> {
        let asked = padded(shown_name(name));
        let tenants = lock(&self.tenants);
        let mut found = u32::MAX;
        for (index, tenant) in (0..).zip(tenants.iter()) {
            let same: Choice = padded(&tenant.name).ct_eq(&asked);
            found.conditional_assign(&index, same);
        }
        let tenant = tenants.get(found as usize)?;
        lock(&tenant.state).token.clone()
    }
}

fn shown_name(name: &str) -> &str {
    if name.is_empty() {
        DEFAULT_TENANT
    } else {
        name
    }
}

/// A name with its length, in as many bytes as any. Names on the wire are no longer.
fn padded(name: &str) -> [u8; TENANT_BYTES + 1] {
    let mut bytes = [0; TENANT_BYTES + 1];
    for (to, from) in bytes.iter_mut().zip(name.as_bytes()) {
        *to = *from;
    }
    bytes[TENANT_BYTES] = u8::try_from(name.len()).unwrap_or(u8::MAX);
    bytes
}

/// A tenant.
#[derive(Debug)]
pub(super) struct Tenant {
    /// No other tenant of this server ever has it.
    number: u64,
    name: String,
    id: String,
    /// Whether its sessions reserve device memory, so that a limit for all of them can be given at any time.
    counts_memory: bool,
    state: Mutex<State>,
    /// A place is free.
    left: Condvar,
    requests: Requests,
}

#[derive(Debug, Default)]
struct State {
    token: Option<Token>,
    admin: bool,
    limits: TenantLimits,
    devices: Arc<[String]>,
    is_lease: bool,
    revoked: bool,
    /// The end of its time has been told.
    over: bool,
    /// Sessions whose clients have left.
    leaving: u32,
    /// Clients that wait for a place.
    waiting: u32,
    usage: Usage,
}

impl State {
    /// Whether its time has come.
    fn is_over(&self) -> bool {
        let until = self.limits.until;
        until.is_some_and(|until| until <= Timestamp::now())
    }
}

/// Use by all sessions of a tenant.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Usage {
    /// Sessions now.
    pub(super) sessions: u32,
    /// Device memory that they have reserved.
    pub(super) memory: u64,
    /// Sessions since the start.
    pub(super) started: u64,
    /// How many of them crashed.
    pub(super) crashed: u64,
    /// Sessions that it was refused.
    pub(super) refused: u64,
    /// Sessions that got a worker, by [`Api`].
    pub(super) begun: [u64; Api::ALL.len()],
    /// Those that have ended, by [`Cause`].
    pub(super) ended: [u64; Cause::ALL.len()],
    /// Sums of what sessions have told so far, also of those that have ended: no sum ever goes down.
    pub(super) device_time_us: u64,
    pub(super) calls: u64,
    pub(super) launches: u64,
    pub(super) received_bytes: u64,
    pub(super) sent_bytes: u64,
    /// Time for which it has waited for turns on devices.
    pub(super) wait_us: u64,
}

impl Tenant {
    /// Requests of its clients, on their way to the log.
    pub(super) fn requests(&self) -> &Requests {
        &self.requests
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Tells it from another that had its name before.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn is_admin(&self) -> bool {
        lock(&self.state).admin
    }

    pub(super) fn limits(&self) -> TenantLimits {
        lock(&self.state).limits
    }

    /// The devices of new sessions, as its entry names them. Empty: all.
    pub(super) fn devices(&self) -> Arc<[String]> {
        Arc::clone(&lock(&self.state).devices)
    }

    /// The quota of a session, where the server's is `server`. It has no more device memory than all sessions of the tenant.
    pub(super) fn quota(&self, server: Quota) -> Quota {
        let limits = self.limits();
        let quota = limits.quota.over(server);
        let own = Some(quota.device_memory_bytes).filter(|limit| *limit > 0);
        let least = own.into_iter().chain(limits.memory).min();
        Quota {
            device_memory_bytes: least.unwrap_or(0),
            ..quota
        }
    }

    /// The secret of its clients now, if it has one.
    pub(super) fn token(&self) -> Option<Token> {
        lock(&self.state).token.clone()
    }

    /// Waits until it has no session whose worker lives; false where it has one for longer than `limit`.
    pub(super) fn wait_empty(&self, limit: Duration) -> bool {
        let has_sessions = |state: &mut State| state.usage.sessions > 0;
        let waited = self
            .left
            .wait_timeout_while(lock(&self.state), limit, has_sessions);
        waited
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .usage
            .sessions
            == 0
    }

    pub(super) fn usage(&self) -> Usage {
        lock(&self.state).usage
    }

    /// As `towline status` shows it.
    pub(super) fn status(&self) -> TenantStatus {
        let (usage, limits) = (self.usage(), self.limits());
        let is_lease = lock(&self.state).is_lease;
        TenantStatus {
            name: self.name.clone(),
            admin: self.is_admin(),
            sessions: usage.sessions,
            max_sessions: limits.sessions.unwrap_or(0),
            device_memory_bytes: usage.memory,
            device_memory_limit: limits.memory.unwrap_or(0),
            sessions_started: usage.started,
            sessions_crashed: usage.crashed,
            rejected: usage.refused,
            device_time_us: usage.device_time_us,
            until_s: limits.until.map_or(0, |until| {
                u64::try_from(until.as_second()).unwrap_or_default()
            }),
            is_lease,
            devices: self.devices().to_vec(),
            time: limits.time,
            wait_us: usage.wait_us,
        }
    }

    /// Whether its entry is gone, or its time is over.
    pub(super) fn is_revoked(&self) -> bool {
        let state = lock(&self.state);
        state.revoked || state.is_over()
    }

    /// The reason that its clients are told then.
    pub(super) fn revocation(&self) -> String {
        let (name, state) = (&self.name, lock(&self.state));
        match state.limits.until {
            Some(until) if !state.revoked => format!(
                "the tenant `{name}` had sessions on this server until {until}; ask the server's operator for more time"
            ),
            _ => format!("the server's operator has revoked the tenant `{name}`"),
        }
    }

    /// Takes a place for a session, or says why there is none. Waits for the places of clients that have left.
    pub(super) fn admit(self: &Arc<Self>) -> Result<Seat, Reject> {
        let is_full = |state: &State| {
            let limit = state.limits.sessions.unwrap_or(u32::MAX);
            state.usage.sessions >= limit && !state.revoked
        };
        let is_leaving = |state: &State| state.leaving > 0;
        let mut state = wait_for_place(
            &self.left,
            lock(&self.state),
            |state| &mut state.waiting,
            is_full,
            is_leaving,
        );
        let limit = state.limits.sessions.unwrap_or(u32::MAX);
        if state.usage.sessions >= limit {
            state.usage.refused += 1;
            let text = format!(
                "all {limit} sessions of the tenant `{}` are in use; wait for one to end, or ask the server's operator for more",
                self.name
            );
            return Err(RejectCode::TooManySessions.because(text));
        }
        state.usage.sessions += 1;
        state.usage.started += 1;
        drop(state);
        Ok(Seat {
            tenant: Arc::clone(self),
            leaving: false,
        })
    }

    /// A new session's account of the tenant's memory, of at most `limit` bytes unless that is 0; `None` if memory is not counted.
    pub(super) fn share_memory(self: &Arc<Self>, limit: u64) -> Option<MemoryShare> {
        self.counts_memory.then(|| MemoryShare {
            tenant: Arc::clone(self),
            limit: if limit == 0 { u64::MAX } else { limit },
            reserved: 0,
        })
    }

    /// A session tells what it has used so far; `before` is what it told last.
    pub(super) fn count_use(&self, before: &Statistics, now: &Statistics) {
        let usage = &mut lock(&self.state).usage;
        let count = |sum: &mut u64, before: u64, now: u64| {
            *sum = sum.saturating_add(now.saturating_sub(before));
        };
        count(
            &mut usage.device_time_us,
            before.device_time_us,
            now.device_time_us,
        );
        count(&mut usage.calls, before.calls, now.calls);
        count(&mut usage.launches, before.launches, now.launches);
        count(
            &mut usage.received_bytes,
            before.received_bytes,
            now.received_bytes,
        );
        count(&mut usage.sent_bytes, before.sent_bytes, now.sent_bytes);
    }

    /// It has got a turn on a device, and waited for it.
    pub(super) fn count_wait(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let usage = &mut lock(&self.state).usage;
        usage.wait_us = usage.wait_us.saturating_add(us);
    }

    /// A session got its worker.
    pub(super) fn count_begun(&self, api: Api) {
        lock(&self.state).usage.begun[api as usize] += 1;
    }

    /// One of those has ended.
    pub(super) fn count_ended(&self, cause: Cause) {
        let usage = &mut lock(&self.state).usage;
        usage.ended[cause as usize] += 1;
        usage.crashed += u64::from(cause == Cause::Crash);
    }
}

/// The place of a session among those of its tenant; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Seat {
    tenant: Arc<Tenant>,
    leaving: bool,
}

impl Seat {
    /// The client has left: who wants a place waits for this one.
    pub(super) fn leave(&mut self) {
        if !std::mem::replace(&mut self.leaving, true) {
            lock(&self.tenant.state).leaving += 1;
            self.tenant.left.notify_all();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = lock(&self.tenant.state);
        state.usage.sessions -= 1;
        state.leaving -= u32::from(self.leaving);
        drop(state);
        self.tenant.left.notify_all();
    }
}

/// The device memory that a session has reserved of its tenant's; dropping it gives all back.
#[derive(Debug)]
pub(super) struct MemoryShare {
    tenant: Arc<Tenant>,
    /// Most that it may reserve, as the server said at its start.
    limit: u64,
    reserved: u64,
}

impl MemoryShare {
    /// Reserves as much of `wanted` bytes as the limits of now leave, or nothing where that is less than `least`.
    pub(super) fn reserve(&mut self, wanted: u64, least: u64) -> Reserved {
        let mut state = lock(&self.tenant.state);
        let limits = &state.limits;
        let own = limits.quota.device_memory_bytes;
        let own = own.filter(|limit| *limit > 0).unwrap_or(u64::MAX);
        let own = own.min(self.limit).saturating_sub(self.reserved);
        let all = limits.memory.unwrap_or(u64::MAX);
        let left = all.saturating_sub(state.usage.memory).min(own);
        let granted = if left < least { 0 } else { left.min(wanted) };
        state.usage.memory += granted;
        self.reserved += granted;
        let left = left - granted;
        Reserved { granted, left }
    }

    /// Gives some back; whether it had as much.
    pub(super) fn give_back(&mut self, bytes: u64) -> bool {
        let Some(reserved) = self.reserved.checked_sub(bytes) else {
            return false;
        };
        self.reserved = reserved;
        lock(&self.tenant.state).usage.memory -= bytes;
        true
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        lock(&self.tenant.state).usage.memory -= self.reserved;
    }
}

#[cfg(test)]
mod tests {
    use towline_wire::control::{
        Channel, ClientHandshake, ClientProgress, Hello, NONCE_BYTES, Purpose, ServerIdentity,
        ServerProgress,
    };

    use super::*;

    fn token(text: &str) -> Token {
        Token::from_bytes(text.as_bytes()).unwrap()
    }

    fn entry(id: &str, secret: &str, limits: TenantLimits) -> TenantEntry {
        TenantEntry {
            limits,
            ..TenantEntry::new(id, token(secret))
        }
    }

    const FIRST: &str = "the first token of all";
    const SECOND: &str = "the second token of all";

    fn entries(list: &[(&str, &str, &str)]) -> BTreeMap<String, TenantEntry> {
        let entry = |(name, id, secret): &(&str, &str, &str)| {
            let limits = TenantLimits::default();
            ((*name).to_owned(), entry(id, secret, limits))
        };
        list.iter().map(entry).collect()
    }

    #[test]
    fn token_is_found_by_the_whole_name() {
        let table = TenantTable::listed(entries(&[("anna", "1", FIRST), ("default", "2", SECOND)]));
        assert_eq!(table.token("anna"), Some(token(FIRST)));
        assert_eq!(table.token(""), Some(token(SECOND)));
        for unknown in ["ann", "anna\0", "Anna", "bert"] {
            assert_eq!(table.token(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn single_token_belongs_to_the_default_tenant() {
        let table = TenantTable::single(Some(token(FIRST)));
        assert_eq!(table.token(""), Some(token(FIRST)));
        assert_eq!(table.token("default"), Some(token(FIRST)));
        assert_eq!(table.token("anna"), None);
        assert!(table.get("").unwrap().is_admin());
    }

    #[test]
    fn rotated_tenant_stays_and_removed_one_is_revoked() {
        let table = TenantTable::listed(entries(&[("anna", "1", FIRST), ("bert", "2", FIRST)]));
        let (anna, bert) = (table.get("anna").unwrap(), table.get("bert").unwrap());
        let revoked = table.replace(entries(&[("anna", "1", SECOND)]));
        assert!(Arc::ptr_eq(&revoked[0], &bert) && revoked.len() == 1);
        assert!(bert.is_revoked() && !anna.is_revoked());
        assert!(Arc::ptr_eq(&table.get("anna").unwrap(), &anna));
        assert_eq!(table.token("anna"), Some(token(SECOND)));
    }

    #[test]
    fn old_token_does_not_open_new_tenant() {
        let first = || entries(&[("anna", "1", FIRST)]);
        let prove = |then: Option<BTreeMap<String, TenantEntry>>| {
            let table = Arc::new(TenantTable::listed(first()));
            let identity = ServerIdentity::default();
            let tenants = Arc::clone(&table) as _;
            let mut server =
                ServerHandshake::new(identity, tenants, [1; NONCE_BYTES], Channel::Clear);
            let hello = Hello {
                tenant: "anna".into(),
                ..Hello::new(Purpose::Query, "test", 1, "host", [2; NONCE_BYTES])
            };
            let (mut client, frame) =
                ClientHandshake::start(hello, Some(token(FIRST)), Channel::Clear);
            let Ok(ServerProgress::Send(challenge)) = server.receive(&frame) else {
                panic!("it must be challenged");
            };
            let Ok(ClientProgress::Send(proof)) = client.receive(&challenge) else {
                panic!("it must prove itself");
            };
            then.map(|then| table.replace(then));
            let Ok(ServerProgress::Authenticated(hello)) = server.receive(&proof) else {
                panic!("the proof is right");
            };
            table.proven(&hello.tenant, &server).is_some()
        };
        assert!(prove(None));
        assert!(prove(Some(first())));
        assert!(!prove(Some(entries(&[("anna", "2", SECOND)]))));
        assert!(!prove(Some(entries(&[("anna", "1", SECOND)]))));
        assert!(!prove(Some(BTreeMap::new())));
    }

    #[test]
    fn tenant_whose_time_is_over_is_told_once_until_it_has_more() {
        let at = |seconds: i64| {
            let until = Timestamp::from_second(seconds).unwrap();
            let limits = TenantLimits {
                until: Some(until),
                ..TenantLimits::default()
            };
            [("anna".to_owned(), entry("1", FIRST, limits))].into()
        };
        let (past, future) = (1_000_000_000, 200_000_000_000);
        let table = TenantTable::listed(at(future));
        let anna = table.get("anna").unwrap();
        assert!(!anna.is_revoked() && table.expired().is_empty());
        table.replace(at(past));
        assert!(anna.is_revoked());
        let told = anna.revocation();
        assert!(told.contains("until 2001-09-09T01:46:40Z"), "{told}");
        assert_eq!(anna.status().until_s, 1_000_000_000);
        assert_eq!([table.expired().len(), table.expired().len()], [1, 0]);
        // Its token is still good, so that it can be told.
        assert_eq!(table.token("anna"), Some(token(FIRST)));
        table.replace(at(past + 1));
        assert!(table.expired().is_empty());
        table.replace(at(future));
        assert!(!anna.is_revoked());
        table.replace(at(past));
        assert_eq!(table.expired().len(), 1);
        table.replace(BTreeMap::new());
        assert!(anna.revocation().contains("revoked"));
    }

    #[test]
    fn revoked_tenant_is_leaving_until_its_sessions_end() {
        let table = TenantTable::listed(entries(&[("anna", "1", FIRST), ("bert", "2", FIRST)]));
        let seat = table.get("anna").unwrap().admit().unwrap();
        assert!(table.leaving().is_empty());
        table.replace(BTreeMap::new());
        table.replace(entries(&[("anna", "3", SECOND)]));
        let names = || {
            let leaving = table.leaving();
            leaving
                .iter()
                .map(|tenant| tenant.id().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(), ["1"]);
        drop(seat);
        assert_eq!(names(), [""; 0]);
    }

    #[test]
    fn tenant_added_anew_is_another() {
        let table = TenantTable::listed(entries(&[("anna", "1", FIRST)]));
        let before = table.get("anna").unwrap();
        table.replace(entries(&[("anna", "2", SECOND)]));
        assert!(before.is_revoked());
        assert!(!table.get("anna").unwrap().is_revoked());
    }

    #[test]
    fn sessions_are_limited_and_places_come_back() {
        let limits = TenantLimits {
            sessions: Some(1),
            ..TenantLimits::default()
        };
        let entry = entry("1", FIRST, limits);
        let table = TenantTable::listed([("anna".into(), entry)].into());
        let anna = table.get("anna").unwrap();
        let seat = anna.admit().unwrap();
        let refused = anna.admit().unwrap_err();
        assert_eq!(refused.code, RejectCode::TooManySessions);
        assert!(refused.text.contains("`anna`"), "{}", refused.text);
        drop(seat);
        assert!(anna.admit().is_ok());
    }

    fn tenant_with_memory(bytes: u64) -> (TenantTable, Arc<Tenant>) {
        let limits = TenantLimits {
            memory: Some(bytes),
            ..TenantLimits::default()
        };
        let table = TenantTable::listed([("anna".into(), entry("1", FIRST, limits))].into());
        let anna = table.get("anna").unwrap();
        (table, anna)
    }

    #[test]
    fn sessions_share_memory_exactly() {
        let (_table, anna) = tenant_with_memory(100);
        let share = || anna.share_memory(0).unwrap();
        let (mut one, mut other) = (share(), share());
        assert_eq!(one.reserve(60, 60).granted, 60);
        assert_eq!(other.reserve(50, 41).granted, 0);
        assert_eq!(other.reserve(50, 40).granted, 40);
        assert_eq!(one.reserve(0, 0).left, 0);
        assert!(one.give_back(10) && !one.give_back(51));
        assert_eq!(other.reserve(20, 1).granted, 10);
        drop(one);
        assert_eq!(anna.usage().memory, 50);
        assert_eq!(other.reserve(u64::MAX, 0).granted, 50);
        drop(other);
        assert_eq!(anna.usage().memory, 0);
    }

    #[test]
    fn lowered_limit_acts_on_the_next_reservation() {
        let (table, anna) = tenant_with_memory(100);
        let mut session = anna.share_memory(0).unwrap();
        assert_eq!(session.reserve(60, 60).granted, 60);
        let limits = TenantLimits {
            memory: Some(50),
            ..TenantLimits::default()
        };
        table.replace([("anna".into(), entry("1", FIRST, limits))].into());
        assert_eq!(session.reserve(1, 1), Reserved::default());
        assert!(session.give_back(20));
        assert_eq!(session.reserve(10, 10).granted, 10);
    }

    #[test]
    fn use_of_sessions_adds_up_and_never_goes_down() {
        let table = TenantTable::listed(entries(&[("anna", "1", FIRST)]));
        let anna = table.get("anna").unwrap();
        let told = |device_time_us, calls| Statistics {
            device_time_us,
            calls,
            ..Statistics::default()
        };
        let sums = || {
            let usage = anna.usage();
            (usage.device_time_us, usage.calls)
        };
        anna.count_use(&told(0, 0), &told(5, 1));
        anna.count_use(&told(5, 1), &told(7, 1));
        // Another session.
        anna.count_use(&told(0, 0), &told(1, 1));
        assert_eq!(sums(), (8, 2));
        // One that lies.
        anna.count_use(&told(7, 1), &told(0, u64::MAX));
        assert_eq!(sums(), (8, u64::MAX));
    }

    #[test]
    fn session_has_no_more_than_its_own_limit() {
        let (_table, anna) = tenant_with_memory(100);
        let mut session = anna.share_memory(30).unwrap();
        assert_eq!(session.reserve(31, 31).granted, 0);
        assert_eq!(session.reserve(31, 30).granted, 30);
        assert_eq!(anna.quota(Quota::default()).device_memory_bytes, 100);
    }
}
