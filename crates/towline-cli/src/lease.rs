//! `towline lease`: devices of servers, given away for a time.

mod cdi;
mod socket;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use towline_client::access::Access;
use towline_transport::Address;
use towline_wire::control::{
    EndLease, GiveLease, Lease, LeasedPart, Message, NONCE_BYTES, Nonce, RenewLease, SHOWN_NAME,
    SHOWN_TEXT, TenantStatus, TimeShare, Token, limits, printable,
};
use towline_wire::cuda;
use towline_wire::cuda::snapshot::uuid_text;
use towline_wire::snapshot::{Device, Snapshot};

use crate::FAILURE;
use crate::ask::{self, Server};
use crate::cli::{DeviceWords, LeaseCommand, LeaseOptions, Limit, PartOptions, ServerOptions};
use crate::devices;
use crate::servers::{self, Chosen};
use crate::status::moment;
use crate::table::{self, Table};
use crate::tenants::Issued;

/// A lease on one server.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) server: Address,
    pub(crate) devices: Vec<String>,
    until: Option<Timestamp>,
}

pub(crate) fn run(options: &LeaseOptions) -> anyhow::Result<ExitCode> {
    match &options.command {
        LeaseCommand::Give {
            name,
            part,
            on,
            time,
            sessions,
            share,
            priority,
            token_out,
            servers,
        } => {
            let pool = Pool::of(servers)?;
            pool.check_new(name)?;
            let request = GiveLease {
                name: name.clone(),
                nonce: new_nonce()?,
                part: part.part(),
                on: on.clone().map_or_else(Vec::new, |DeviceWords(words)| words),
                seconds: seconds(*time),
                sessions: sessions.unwrap_or(0),
                time: TimeShare {
                    percent: *share,
                    priority: *priority,
                },
            };
            let issued = Issued::prepare(pool.token_of(&request).to_text(), token_out, false)?;
            let given = pool
                .give(&request)
                .with_context(|| format!("could not give the lease {name}"))?;
            let handed = issued.hand_out(describe(name, &given));
            if handed.is_err() {
                // Nobody could use it.
                let _ = pool.end(name);
            }
            handed?;
        }
        LeaseCommand::End { name, servers } => {
            let pool = Pool::of(servers)?;
            let ended = pool.end(name);
            found(
                name,
                ended.with_context(|| format!("could not end the lease {name}"))?,
            )?;
        }
        LeaseCommand::Renew {
            name,
            time: Limit(time),
            servers,
        } => {
            let renewed = Pool::of(servers)?.renew(name, seconds(*time));
            found(
                name,
                renewed.with_context(|| format!("could not renew the lease {name}"))?,
            )?;
        }
        LeaseCommand::List { json, servers } => return list(servers, *json),
        LeaseCommand::Serve { socket, servers } => socket::serve(socket, &Pool::of(servers)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn new_nonce() -> anyhow::Result<Nonce> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).context("the system gives no random numbers")?;
    Ok(nonce)
}

/// Fails where no server had the lease.
fn found(name: &str, is_known: bool) -> anyhow::Result<()> {
    match is_known {
        true => Ok(()),
        false => {
            bail!("there is no lease `{name}`; `towline lease list` shows those that there are")
        }
    }
}

/// 0 for no end.
fn seconds(time: Option<SignedDuration>) -> u64 {
    time.map_or(0, |time| time.unsigned_abs().as_secs())
}

/// A new lease as `--json` shows it.
fn describe(name: &str, given: &[Given]) -> serde_json::Value {
    let servers = given.iter().map(|given| {
        serde_json::json!({
            "server": given.server.to_string(),
            "devices": given.devices,
        })
    });
    serde_json::json!({
        "name": name,
        "servers": servers.collect::<Vec<_>>(),
        "until": given.iter().find_map(|given| given.until).map(|until| until.to_string()),
    })
}

impl PartOptions {
    fn part(self) -> LeasedPart {
        match (self.devices, self.memory) {
            (None, Some(bytes)) => LeasedPart::Memory(bytes),
            (devices, _) => LeasedPart::Whole(devices.unwrap_or(1)),
        }
    }
}

/// Servers whose devices are given away, and the right to.
pub(crate) struct Pool {
    servers: Vec<Address>,
    access: Access,
    token: Token,
}

impl Pool {
    /// The pool, with the keys of its servers in a file of the caller's.
    pub(crate) fn with_known_servers(options: &ServerOptions, file: &Path) -> anyhow::Result<Self> {
        let mut pool = Self::of(options)?;
        pool.access.known_servers = Some(file.to_owned());
        Ok(pool)
    }

    pub(crate) fn of(options: &ServerOptions) -> anyhow::Result<Self> {
        let Chosen {
            servers, settings, ..
        } = servers::choose(options)?;
        let access = servers::access(&settings)?;
        let token = access.token.clone().context(
            "leases are given with the token of a tenant that has --admin: name both with --tenant and --token-file",
        )?;
        Ok(Self {
            servers,
            access,
            token,
        })
    }

    /// The token that a lease has on all servers.
    pub(crate) fn token_of(&self, request: &GiveLease) -> Token {
        request.token(&self.token)
    }

    fn connect(&self, server: &Address) -> anyhow::Result<Server> {
        Server::connect(server, &self.access)
    }

    /// All leases of servers that answer, and why others do not.
    fn look(&self) -> (Vec<Listed>, Vec<String>) {
        self.of_all(|address| {
            let tenants = self.connect(address)?.status()?.tenants;
            let leases = tenants.into_iter().filter(|tenant| tenant.is_lease);
            Ok(leases.map(|lease| Listed::new(address, lease)).collect())
        })
    }

    fn of_all<T: Send>(
        &self,
        list: impl Fn(&Address) -> anyhow::Result<Vec<T>> + Sync,
    ) -> (Vec<T>, Vec<String>) {
        let results = ask::on_all(&self.servers, list);
        let (mut all, mut reasons) = (Vec::new(), Vec::new());
        for (server, result) in self.servers.iter().zip(results) {
            match result {
                Ok(found) => all.extend(found),
                Err(error) => reasons.push(format!("{server}: {error:#}")),
            }
        }
        (all, reasons)
    }

    /// Fails where a server has a lease of that name whose time is not over.
    fn check_new(&self, name: &str) -> anyhow::Result<()> {
        let now = Timestamp::now();
        let holds = |lease: &Listed| lease.name == name && lease.ends().is_none_or(|end| end > now);
        match self.leases()?.iter().any(holds) {
            true => bail!("there is a lease `{name}` already; end it first, or take another name"),
            false => Ok(()),
        }
    }

    /// The devices of all servers that answer, and why others do not.
    fn devices(&self) -> (Vec<devices::Device>, Vec<String>) {
        self.of_all(|address| devices::of(address, &self.access))
    }

    /// The leases, if any server answers.
    pub(crate) fn leases(&self) -> anyhow::Result<Vec<Listed>> {
        let (leases, reasons) = self.look();
        match reasons.len() < self.servers.len() {
            true => Ok(leases),
            false => bail!(reasons.join("\n  ")),
        }
    }

    /// Gives all of the lease or nothing: on the first server that has all, else whole devices of several. What servers have given
    /// before, to the same token, counts first, so that all nodes of a job end up with the same.
    pub(crate) fn give(&self, request: &GiveLease) -> anyhow::Result<Vec<Given>> {
        let (count, is_whole) = match request.part {
            LeasedPart::Whole(count) => (count as usize, true),
            LeasedPart::Memory(_) => (1, false),
        };
        let before = self.holders(&request.name);
        let had_before = |server: &Address| before.iter().any(|holder| holder.server == *server);
        let (first, others): (Vec<_>, Vec<_>) =
            self.servers.iter().partition(|server| had_before(server));
        let mut given = Vec::new();
        let mut reasons = Vec::new();
        let mut silent: Vec<Address> = Vec::new();
        // Servers that may have given it without an answer that says so.
        let mut unsure = Vec::new();
        let mut ask = |server: &Address, part, reasons: &mut Vec<String>| {
            if silent.contains(server) {
                return None;
            }
            let request = GiveLease {
                part,
                ..request.clone()
            };
            let asked = self
                .connect(server)
                .map(|mut server| server.give_lease(request));
            if let Ok(Err(_)) = &asked {
                unsure.push(server.clone());
            }
            let reason = match asked.flatten() {
                Ok(Ok(lease)) => return Some(Given::new(server, lease)),
                Ok(Err(reason)) => reason,
                Err(error) => {
                    silent.push(server.clone());
                    format!("{error:#}")
                }
            };
            reasons.push(format!("{server}: {reason}"));
            None
        };
        for server in &first {
            given.extend(ask(server, request.part, &mut reasons));
        }
        if given.is_empty() {
            let mut rest = others.iter();
            given.extend(rest.find_map(|server| ask(server, request.part, &mut reasons)));
        }
        for server in others.iter().filter(|_| is_whole) {
            let left = count.saturating_sub(devices_of(&given));
            let is_new = given.iter().all(|given: &Given| given.server != **server);
            if left > 0 && is_new {
                // It did not have all.
                let most = left.min(count - 1).min(limits::TENANT_DEVICES) as u32;
                let fewer = |count| ask(server, LeasedPart::Whole(count), &mut Vec::new());
                given.extend((1..=most).rev().find_map(fewer));
            }
        }
        let is_all = devices_of(&given) >= count;
        if self.servers.len() > 1 && is_all {
            // Another node may have asked meanwhile, and found another server first.
            let mut told = self.holders(&request.name);
            // A lease that was there and does not know this token is another's.
            let is_own = |server: &Address| given.iter().any(|given| given.server == *server);
            told.retain(|holder| !had_before(&holder.server) || is_own(&holder.server));
            let all = union(&self.servers, given, told);
            let (kept, excess) = keep(all, count);
            self.end_on(excess.iter().map(|given| &given.server), &request.name);
            given = kept;
        }
        let is_given = |server: &Address| given.iter().any(|given| given.server == *server);
        let unsure = unsure.iter().filter(|server| !is_given(server));
        let unsure: Vec<_> = unsure.filter(|server| !had_before(server)).collect();
        self.end_on(unsure.into_iter(), &request.name);
        if is_all {
            return Ok(given);
        }
        let new = given.iter().map(|given| &given.server);
        self.end_on(new.filter(|server| !had_before(server)), &request.name);
        bail!(reasons.join("\n  "))
    }

    /// Servers that have a lease of this name whose time is not over, and what they have given.
    fn holders(&self, name: &str) -> Vec<Given> {
        let now = Timestamp::now();
        let (holders, _) = self.of_all(|address| {
            let tenants = self.connect(address)?.status()?.tenants.into_iter();
            let leases = tenants.filter(|tenant| tenant.is_lease && tenant.name == name);
            let given = leases.map(|lease| Given {
                server: address.clone(),
                devices: lease.devices.iter().map(|name| shown(name)).collect(),
                until: moment(lease.until_s),
            });
            let given = given.filter(|given| given.until.is_none_or(|until| until > now));
            Ok(given.collect())
        });
        holders
    }

    /// Ends a lease on servers that may have it.
    fn end_on<'a>(&self, servers: impl Iterator<Item = &'a Address>, name: &str) {
        for server in servers {
            if let Err(error) = self.change_on(server, name, &end_of(name)) {
                log::error!("{server}: the lease {name} may stay there: {error:#}");
            }
        }
    }

    /// Memory of each device that can be leased and is no tenant's own, if all servers answer.
    pub(crate) fn device_sizes(&self) -> anyhow::Result<Vec<u64>> {
        let sizes = ask::on_all(&self.servers, |address| {
            let mut server = self.connect(address)?;
            let devices = sizes(&mut server).with_context(|| address.to_string())?;
            let tenants = server.status()?.tenants.into_iter();
            let fixed = tenants.filter(|tenant| !tenant.is_lease);
            let words: Vec<_> = fixed.flat_map(|tenant| tenant.devices).collect();
            Ok(without_named(devices, &words))
        });
        let sizes: anyhow::Result<Vec<_>> = sizes.into_iter().collect();
        Ok(sizes?.concat())
    }

    /// Renews a lease wherever it is, for so many seconds, 0 for no end; whether it was anywhere.
    pub(crate) fn renew(&self, name: &str, seconds: u64) -> anyhow::Result<bool> {
        let name = name.to_owned();
        let renew = Message::RenewLease(RenewLease {
            name: name.clone(),
            seconds,
        });
        self.change(&name, &renew)
    }

    /// Ends a lease wherever it is; whether it was anywhere.
    pub(crate) fn end(&self, name: &str) -> anyhow::Result<bool> {
        self.change(name, &end_of(name))
    }

    /// Changes a lease wherever it is; whether it was anywhere. One server that fails does not keep the others from it.
    fn change(&self, name: &str, request: &Message) -> anyhow::Result<bool> {
        let results = ask::on_all(&self.servers, |address| {
            let changed = self.change_on(address, name, request);
            changed.with_context(|| address.to_string())
        });
        let (changed, failed): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        let is_known = changed.into_iter().flatten().any(|is_known| is_known);
        let reasons = failed.into_iter().filter_map(Result::err);
        let reasons: Vec<_> = reasons.map(|error| format!("{error:#}")).collect();
        match reasons.is_empty() {
            true => Ok(is_known),
            false => bail!(reasons.join("\n  ")),
        }
    }

    /// Changes a lease of a server; whether it is there.
    fn change_on(&self, server: &Address, name: &str, request: &Message) -> anyhow::Result<bool> {
        let mut server = self.connect(server)?;
        let tenants = server.status()?.tenants;
        let mut leases = tenants.iter().filter(|tenant| tenant.is_lease);
        let is_known = leases.any(|lease| lease.name == name);
        if is_known {
            server.change_lease(request)?;
        }
        Ok(is_known)
    }
}

fn devices_of(given: &[Given]) -> usize {
    given.iter().map(|given| given.devices.len()).sum()
}

/// Leases that were given, and those that servers tell of, in the order of the servers.
fn union(servers: &[Address], given: Vec<Given>, told: Vec<Given>) -> Vec<Given> {
    let mut all: Vec<_> = given.into_iter().chain(told).collect();
    let place = |given: &Given| servers.iter().position(|server| *server == given.server);
    all.sort_by_key(place);
    all.dedup_by(|later, first| later.server == first.server);
    all
}

/// So much of the lease as was asked for, the same on all nodes, and what is too much.
fn keep(all: Vec<Given>, count: usize) -> (Vec<Given>, Vec<Given>) {
    let mut had = 0;
    all.into_iter().partition(|given| {
        let is_kept = had < count;
        had += given.devices.len();
        is_kept
    })
}

/// Devices that a server can lease: number, UUID and memory of each. Those for OpenCL only where it serves no CUDA.
fn sizes(server: &mut Server) -> anyhow::Result<Vec<(usize, String, u64)>> {
    match server.cuda_devices()? {
        Ok(cuda) => {
            let cuda = cuda::snapshot::Snapshot::decode(&cuda)?;
            let devices = cuda.devices.iter().enumerate();
            let size = |(number, device): (usize, &cuda::snapshot::Device)| {
                (number, uuid_text(&device.uuid), device.total_bytes)
            };
            Ok(devices.map(size).collect())
        }
        Err(reason) if serves_no_cuda(&reason) => {
            let opencl = Snapshot::decode(&server.snapshot)?;
            let size = |(number, device): (usize, &Device)| {
                let uuid = device.uuid().map(|uuid| uuid_text(&uuid));
                (number, uuid.unwrap_or_default(), device.memory_bytes())
            };
            Ok(opencl.devices.iter().enumerate().map(size).collect())
        }
        Err(reason) => bail!(
            "its CUDA devices are not known: {}",
            printable(&reason, SHOWN_TEXT)
        ),
    }
}

/// Whether a server's reason means that it will have no devices for CUDA; any other failure may pass.
fn serves_no_cuda(reason: &str) -> bool {
    let mut reasons = [
        "this server gives no CUDA devices",
        "cannot load the CUDA driver library",
        "is Towline's own library",
    ]
    .iter();
    reasons.any(|none| reason.contains(none))
}

/// Memory of the devices that no word means: a number of at most three digits, or the beginning of a UUID.
fn without_named(devices: Vec<(usize, String, u64)>, words: &[String]) -> Vec<u64> {
    let is_named = |number: usize, uuid: &str| {
        words.iter().any(|word| {
            let is_number = word.len() <= 3 && word.bytes().all(|byte| byte.is_ascii_digit());
            let prefixes = ["GPU-", "MIG-"];
            let mut bare = prefixes
                .iter()
                .filter_map(|prefix| word.strip_prefix(prefix));
            let bare = bare.next().unwrap_or(word).to_ascii_lowercase();
            match is_number {
                true => word.parse() == Ok(number),
                false => !bare.is_empty() && uuid.starts_with(&bare),
            }
        })
    };
    let free = devices.into_iter();
    let free = free.filter(|(number, uuid, _)| !is_named(*number, uuid));
    free.map(|(_, _, bytes)| bytes).collect()
}

impl Given {
    fn new(server: &Address, lease: Lease) -> Self {
        Self {
            server: server.clone(),
            devices: lease.devices.iter().map(|name| shown(name)).collect(),
            until: moment(lease.until_s),
        }
    }
}

fn end_of(name: &str) -> Message {
    Message::EndLease(EndLease {
        name: name.to_owned(),
    })
}

/// A name that a server gives.
fn shown(name: &str) -> String {
    printable(name, SHOWN_NAME)
}

/// A lease as `--json` shows it.
#[derive(Debug, Serialize)]
pub(crate) struct Listed {
    pub(crate) name: String,
    server: String,
    devices: Vec<String>,
    /// Of the device, where it has a part of one.
    memory_bytes: Option<u64>,
    /// Reserved by its sessions.
    memory_used_bytes: u64,
    sessions: u32,
    /// As RFC 3339 has it; null if it has no end.
    until: Option<String>,
    /// Since the server's start.
    device_time_ms: u64,
    /// Of the device's time, in percent.
    share: Option<u8>,
    priority: &'static str,
    /// For turns on the device, since the server's start.
    wait_ms: u64,
}

impl Listed {
    /// None where it has no end.
    pub(crate) fn ends(&self) -> Option<Timestamp> {
        self.until.as_deref().and_then(|until| until.parse().ok())
    }

    fn new(server: &Address, lease: TenantStatus) -> Self {
        Self {
            name: shown(&lease.name),
            server: server.to_string(),
            devices: lease.devices.iter().map(|name| shown(name)).collect(),
            memory_bytes: Some(lease.device_memory_limit).filter(|bytes| *bytes > 0),
            memory_used_bytes: lease.device_memory_bytes,
            sessions: lease.sessions,
            until: moment(lease.until_s).map(|until| until.to_string()),
            device_time_ms: lease.device_time_us / 1000,
            share: lease.time.percent,
            priority: lease.time.priority.name(),
            wait_ms: lease.wait_us / 1000,
        }
    }
}

fn list(options: &ServerOptions, json: bool) -> anyhow::Result<ExitCode> {
    let (leases, reasons) = Pool::of(options)?.look();
    for reason in &reasons {
        eprintln!("towline: could not list the leases of {reason}");
    }
    match json {
        true => say!("{}", serde_json::to_string_pretty(&leases)?),
        false => say!("{}", render(&leases, table::terminal_columns()).trim_end()),
    }
    Ok(ExitCode::from(if reasons.is_empty() { 0 } else { FAILURE }))
}

fn render(leases: &[Listed], columns: Option<usize>) -> String {
    if leases.is_empty() {
        return "no leases\n".to_owned();
    }
    let mut table = Table::new([
        "LEASE",
        "SERVER",
        "DEVICES",
        ">MEMORY",
        ">USED",
        ">SESSIONS",
        ">SHARE",
        ">BUSY",
        "UNTIL",
    ]);
    for lease in leases {
        // The beginning tells devices of a server apart.
        let short = |name: &String| name.chars().take(12).collect::<String>();
        table.add(vec![
            lease.name.clone(),
            lease.server.clone(),
            lease
                .devices
                .iter()
                .map(short)
                .collect::<Vec<_>>()
                .join(" "),
            lease.memory_bytes.map_or("whole".to_owned(), table::bytes),
            table::bytes(lease.memory_used_bytes),
            lease.sessions.to_string(),
            lease
                .share
                .map_or("-".to_owned(), |share| format!("{share}%")),
            table::duration(lease.device_time_ms),
            lease.until.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table.render_within(columns, &["BUSY", "USED", "SESSIONS"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(server: &str, devices: usize) -> Given {
        Given {
            server: server.parse().unwrap(),
            devices: vec!["GPU-1".to_owned(); devices],
            until: None,
        }
    }

    fn names(given: &[Given]) -> Vec<String> {
        given.iter().map(|given| given.server.to_string()).collect()
    }

    #[test]
    fn nodes_that_gave_differently_keep_the_same() {
        let texts = ["tcp://a:1", "tcp://b:1", "tcp://c:1"];
        let servers = texts.map(|text| text.parse::<Address>().unwrap());
        // Each node knows what it was given, and what all servers have.
        for own in [&texts[1..2], &texts[..1], &texts[2..]] {
            let own = own.iter().map(|server| given(server, 2)).collect();
            let told = texts.iter().map(|server| given(server, 2)).collect();
            let (kept, excess) = keep(union(&servers, own, told), 2);
            assert_eq!(names(&kept), texts[..1]);
            assert_eq!(names(&excess), texts[1..]);
        }
        let parts = vec![given(texts[0], 1), given(texts[1], 1)];
        let (kept, excess) = keep(union(&servers, parts, Vec::new()), 2);
        assert!(kept.len() == 2 && excess.is_empty());
    }

    #[test]
    fn devices_of_fixed_tenants_are_not_counted() {
        let devices = || {
            let device = |number: usize| (number, format!("{number:08}-0000"), number as u64 + 1);
            (0..3).map(device).collect()
        };
        let words = |words: &[&str]| {
            words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(without_named(devices(), &words(&[])), [1, 2, 3]);
        assert_eq!(
            without_named(devices(), &words(&["1", "GPU-00000002"])),
            [1]
        );
        assert_eq!(without_named(devices(), &words(&["GPU-", "7"])), [1, 2, 3]);
    }

    #[test]
    fn failing_driver_is_no_lack_of_cuda() {
        assert!(serves_no_cuda("this server gives no CUDA devices"));
        assert!(!serves_no_cuda("cuInit: CUDA_ERROR_UNKNOWN"));
    }
}
