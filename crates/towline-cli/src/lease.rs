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
    TenantStatus, TimeShare, Token, printable,
};

use towline_wire::cuda;
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

    /// Fails where a server has a lease of that name.
    fn check_new(&self, name: &str) -> anyhow::Result<()> {
        match self.leases()?.iter().any(|lease| lease.name == name) {
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

    /// Gives all of the lease or nothing: on the first server that has all, else whole devices of several. What a server has given
    /// before, to the same token, counts.
    pub(crate) fn give(&self, request: &GiveLease) -> anyhow::Result<Vec<Given>> {
        let mut given: Vec<Given> = Vec::new();
        let mut reasons = Vec::new();
        let (count, is_whole) = match request.part {
            LeasedPart::Whole(count) => (count as usize, true),
            LeasedPart::Memory(_) => (1, false),
        };
        for server in &self.servers {
            let asked = self.connect(server);
            match asked.and_then(|mut server| server.give_lease(request.clone())) {
                Ok(Ok(lease)) => {
                    given.push(Given::new(server, lease));
                    break;
                }
                Ok(Err(reason)) => reasons.push(format!("{server}: {reason}")),
                Err(error) => reasons.push(format!("{server}: {error:#}")),
            }
        }
        let had = |given: &[Given]| given.iter().map(|given| given.devices.len()).sum::<usize>();
        for server in self.servers.iter().filter(|_| is_whole) {
            let left = count.saturating_sub(had(&given));
            let is_new = given.iter().all(|given| given.server != *server);
            if left > 0 && is_new {
                // It did not have all.
                given.extend(self.give_most(server, request, left.min(count - 1)));
            }
        }
        if had(&given) >= count {
            return Ok(given);
        }
        for Given { server, .. } in &given {
            let end = end_of(&request.name);
            let asked = self.connect(server);
            if let Err(error) = asked.and_then(|mut server| server.change_lease(&end)) {
                log::error!("{server}: the lease stays there: {error:#}");
            }
        }
        bail!(reasons.join("\n  "))
    }

    /// As many devices of a server as it gives, of so many.
    fn give_most(&self, address: &Address, request: &GiveLease, most: usize) -> Option<Given> {
        let mut server = self.connect(address).ok()?;
        let lease = (1..=most as u32).rev().find_map(|count| {
            let request = GiveLease {
                part: LeasedPart::Whole(count),
                ..request.clone()
            };
            server.give_lease(request).ok()?.ok()
        })?;
        Some(Given::new(address, lease))
    }

    /// Memory of each device that can be leased, if all servers answer.
    pub(crate) fn device_sizes(&self) -> anyhow::Result<Vec<u64>> {
        let sizes = ask::on_all(&self.servers, |address| {
            let mut server = self.connect(address)?;
            if let Ok(cuda) = server.cuda_devices()? {
                let cuda = cuda::snapshot::Snapshot::decode(&cuda)?;
                return Ok(cuda
                    .devices
                    .iter()
                    .map(|device| device.total_bytes)
                    .collect());
            }
            let opencl = Snapshot::decode(&server.snapshot)?;
            let sizes = opencl.devices.iter().map(Device::memory_bytes);
            Ok(sizes.collect::<Vec<_>>())
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
            let change = || {
                let mut server = self.connect(address)?;
                let tenants = server.status()?.tenants;
                let is_known = tenants
                    .iter()
                    .any(|tenant| tenant.is_lease && tenant.name == name);
                if is_known {
                    server.change_lease(request)?;
                }
                anyhow::Ok(is_known)
            };
            change().with_context(|| address.to_string())
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
        true => println!("{}", serde_json::to_string_pretty(&leases)?),
        false => print!("{}", render(&leases, table::terminal_columns())),
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
