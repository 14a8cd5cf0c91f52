//! The control messages and their encoding.

use super::attach::{TICKET_BYTES, Ticket};
use super::codec::{ControlError, Reader, Writer};
use super::frame;
use super::handshake::ServerIdentity;
use super::lease::{EndLease, GiveLease, LeaseChanged, LeaseGiven, RenewLease};
use super::question::{NvmlAnswers, NvmlQuestions};
use super::{Reject, SUPPORTED_VERSIONS, TimeShare, limits};

/// Length of a [`Nonce`].
pub const NONCE_BYTES: usize = 32;
/// Length of a proof.
pub const PROOF_BYTES: usize = 32;

/// Random bytes that make one handshake unlike every other. The caller draws them; this crate has no entropy.
pub type Nonce = [u8; NONCE_BYTES];

/// An inclusive range of protocol versions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct VersionRange {
    /// Oldest.
    pub min: u16,
    /// Newest.
    pub max: u16,
}

impl VersionRange {
    /// The newest version in both ranges.
    pub fn newest_common(self, other: Self) -> Option<u16> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }

    pub(super) fn write(self, writer: &mut Writer) {
        writer.u16(self.min);
        writer.u16(self.max);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, ControlError> {
        Ok(Self {
            min: reader.u16("oldest version")?,
            max: reader.u16("newest version")?,
        })
    }

    /// The range at the front of a `Hello` body, which has this place in every version of the protocol.
    pub(super) fn peek(hello_body: &[u8]) -> Result<Self, ControlError> {
        Self::read(&mut Reader::new(hello_body))
    }
}

/// What a client wants from a server.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Purpose {
    /// Only to ask for status and devices. Takes no worker.
    Query,
    /// A session for OpenCL: a worker of its own, and a ticket for lanes to it.
    #[default]
    Session,
    /// The same for CUDA.
    CudaSession,
    /// To ask what NVML tells of the devices. Takes no worker of its own: one serves all who ask.
    Nvml,
    /// To go on with a session whose control connection was cut: [`ResumeSession`] follows.
    Resume,
}

impl Purpose {
    fn write(self, writer: &mut Writer) {
        writer.u8(match self {
            Self::Query => 0,
            Self::Session => 1,
            Self::CudaSession => 2,
            Self::Nvml => 3,
            Self::Resume => 4,
        });
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, ControlError> {
        Ok(match reader.u8("purpose")? {
            0 => Self::Query,
            1 => Self::Session,
            2 => Self::CudaSession,
            3 => Self::Nvml,
            4 => Self::Resume,
            value => {
                return Err(ControlError::InvalidValue {
                    field: "purpose",
                    value: value.into(),
                });
            }
        })
    }
}

/// Client to server, first message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hello {
    /// The versions that the client speaks. First on the wire in every version.
    pub versions: VersionRange,
    /// What the client wants.
    pub purpose: Purpose,
    /// The program's name, shown by `towline status`.
    pub program: String,
    /// The client's process id, on its own host.
    pub pid: u32,
    /// The client's host name, shown by `towline status`.
    pub hostname: String,
    /// The tenant that the client's token belongs to; empty where the server has one token for all.
    pub tenant: String,
    /// The job whose sessions are to reach each other for collectives; empty for a session that asks for none.
    pub job: String,
    /// Fresh random bytes.
    pub nonce: Nonce,
}

impl Hello {
    /// A `Hello` for the versions that this build speaks.
    pub fn new(
        purpose: Purpose,
        program: impl Into<String>,
        pid: u32,
        hostname: impl Into<String>,
        nonce: Nonce,
    ) -> Self {
        Self {
            versions: SUPPORTED_VERSIONS,
            purpose,
            program: program.into(),
            pid,
            hostname: hostname.into(),
            tenant: String::new(),
            job: String::new(),
            nonce,
        }
    }

    /// The same, of a job.
    #[must_use]
    pub fn of_job(self, name: impl Into<String>) -> Self {
        Self {
            job: name.into(),
            ..self
        }
    }

    /// The same, of a tenant.
    #[must_use]
    pub fn of_tenant(self, name: impl Into<String>) -> Self {
        Self {
            tenant: name.into(),
            ..self
        }
    }

    fn write(&self, writer: &mut Writer) {
        self.versions.write(writer);
        self.purpose.write(writer);
        writer.u32(self.pid);
        writer.raw(&self.nonce);
        writer.text(&self.program, limits::NAME_BYTES);
        writer.text(&self.hostname, limits::NAME_BYTES);
        writer.text(&self.tenant, limits::TENANT_BYTES);
        writer.text(&self.job, limits::JOB_BYTES);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, ControlError> {
        Ok(Self {
            versions: VersionRange::read(reader)?,
            purpose: Purpose::read(reader)?,
            pid: reader.u32("client process id")?,
            nonce: reader.array("client nonce")?,
            program: reader.text("program name", limits::NAME_BYTES)?,
            hostname: reader.text("host name", limits::NAME_BYTES)?,
            tenant: reader.text("tenant name", limits::TENANT_BYTES)?,
            job: reader.text("job name", limits::JOB_BYTES)?,
        })
    }
}

/// Server to client: prove that you know the token. Only sent by servers that have one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Challenge {
    /// The version that the rest of the exchange uses.
    pub version: u16,
    /// Fresh random bytes.
    pub nonce: Nonce,
}

/// Client to server: the answer to a [`Challenge`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Proof {
    /// HMAC-SHA256 with the token, over a role label, what the connection exports and the hashes of `Hello` and `Challenge`.
    pub proof: [u8; PROOF_BYTES],
}

/// What a session may use, and how the server would like it to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SessionLimits {
    /// Most lanes that the server takes, the command lane included.
    pub max_lanes: u16,
    /// How many payload lanes the server suggests.
    pub payload_lanes: u16,
    /// Size of one buffer of the server's payload pool.
    pub chunk_bytes: u64,
    /// Number of buffers in the server's payload pool.
    pub chunk_count: u32,
}

/// What a client needs to use its session.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SessionGrant {
    /// Number of the session on this server, as `towline status` shows it.
    pub session_id: u64,
    /// For the [`super::AttachPreamble`] of each lane.
    pub ticket: Ticket,
    /// What the session may use.
    pub limits: SessionLimits,
    /// How long the session outlives a cut of its connections. 0: not at all, and its lanes are plain streams.
    pub grace_ms: u64,
    /// Whether its worker reaches those of its job, as the client has asked.
    pub collectives: bool,
    /// Addresses of the servers that this one lists as its peers.
    pub peers: Vec<String>,
}

/// Server to client: the handshake is done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Welcome {
    /// HMAC-SHA256 with the token over every other byte of the handshake and what the connection exports; zeros when the server has no token.
    pub proof: [u8; PROOF_BYTES],
    /// The version that the rest of the connection uses.
    pub version: u16,
    /// Who the server is.
    pub server: ServerIdentity,
    /// The session, when the client asked for one.
    pub session: Option<SessionGrant>,
    /// Devices of the server, in the encoding of the API layer: opaque here.
    pub snapshot: Vec<u8>,
}

impl Welcome {
    fn write(&self, writer: &mut Writer) {
        writer.raw(&self.proof);
        writer.u16(self.version);
        self.server.write(writer);
        writer.bool(self.session.is_some());
        if let Some(session) = &self.session {
            writer.u64(session.session_id);
            writer.raw(session.ticket.bytes());
            writer.u16(session.limits.max_lanes);
            writer.u16(session.limits.payload_lanes);
            writer.u64(session.limits.chunk_bytes);
            writer.u32(session.limits.chunk_count);
            writer.u64(session.grace_ms);
            writer.bool(session.collectives);
            let peers = &session.peers[..session.peers.len().min(limits::PEERS)];
            writer.u32(u32::try_from(peers.len()).expect("the limit fits 32 bits"));
            for peer in peers {
                writer.text(peer, limits::NAME_BYTES);
            }
        }
        writer.blob(&self.snapshot, limits::SNAPSHOT_BYTES);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, ControlError> {
        let proof = reader.array("server proof")?;
        let version = reader.u16("protocol version")?;
        let server = ServerIdentity::read(reader)?;
        let session = if reader.bool("session presence")? {
            Some(SessionGrant {
                session_id: reader.u64("session id")?,
                ticket: Ticket::from_random(reader.array::<TICKET_BYTES>("ticket")?),
                limits: SessionLimits {
                    max_lanes: reader.u16("lane limit")?,
                    payload_lanes: reader.u16("payload lanes")?,
                    chunk_bytes: reader.u64("chunk size")?,
                    chunk_count: reader.u32("chunk count")?,
                },
                grace_ms: reader.u64("grace time")?,
                collectives: reader.bool("whether collectives are granted")?,
                peers: (0..reader.len("peer count", limits::PEERS)?)
                    .map(|_| reader.text("peer's address", limits::NAME_BYTES))
                    .collect::<Result<_, _>>()?,
            })
        } else {
            None
        };
        let snapshot = reader.blob("device snapshot", limits::SNAPSHOT_BYTES)?;
        Ok(Self {
            proof,
            version,
            server,
            session,
            snapshot,
        })
    }
}

/// One line of `towline status`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SessionStatus {
    /// Number of the session.
    pub session_id: u64,
    /// Which API it is for.
    pub purpose: Purpose,
    /// The client's program.
    pub program: String,
    /// The client's host name, as the client gave it.
    pub hostname: String,
    /// The client's process id on its host.
    pub client_pid: u32,
    /// The client's address, as the server sees it.
    pub peer: String,
    /// The worker's process id.
    pub worker_pid: u32,
    /// How long the session has lived.
    pub age_ms: u64,
    /// How long its client has been cut off; 0 while it is there.
    pub away_ms: u64,
    /// Lanes attached so far.
    pub lanes: u16,
    /// Peer lanes made so far.
    pub peer_lanes: u16,
    /// Device memory that the session holds.
    pub device_memory_bytes: u64,
    /// Device memory that it had and has given up for others, until it goes on.
    pub swapped_bytes: u64,
    /// The most device memory that it held at once.
    pub device_memory_peak: u64,
    /// The most device memory that it may hold; 0 where nothing limits it.
    pub device_memory_limit: u64,
    /// Bytes from the client.
    pub received_bytes: u64,
    /// Bytes to the client.
    pub sent_bytes: u64,
    /// API calls executed.
    pub calls: u64,
    /// Kernel launches among them.
    pub launches: u64,
    /// How long it kept devices busy, added up over devices.
    pub device_time_us: u64,
    /// The tenant that it belongs to.
    pub tenant: String,
    /// Its limits, in the order of [`LIMITS`].
    pub limits: [LimitStatus; LIMITS.len()],
}

/// The limits of a session, by name and unit.
pub const LIMITS: [&str; 10] = [
    "device_memory_bytes",
    "host_memory_bytes",
    "temporary_bytes",
    "processes",
    "kernel_time_ms",
    "code_bytes",
    "cpu_percent",
    "offers",
    "log_lines",
    "descriptors",
];

/// One limit of a session.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LimitStatus {
    /// The limit; 0 where there is none.
    pub value: u64,
    /// How much of it is used, where that is known.
    pub used: Option<u64>,
    /// The mechanism that holds the session to it.
    pub enforcement: Enforcement,
}

/// The mechanism that holds a session to a limit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Enforcement {
    /// Nothing.
    #[default]
    None,
    /// The worker, which the session may have taken over.
    Worker,
    /// A limit that the kernel keeps for the process.
    Rlimit,
    /// A control group.
    Cgroup,
    /// The size of a file system.
    Mount,
    /// The server, which no session can take over.
    Server,
}

impl Enforcement {
    const ALL: [Self; 6] = [
        Self::None,
        Self::Worker,
        Self::Rlimit,
        Self::Cgroup,
        Self::Mount,
        Self::Server,
    ];

    /// Its name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Worker => "worker",
            Self::Rlimit => "rlimit",
            Self::Cgroup => "cgroup",
            Self::Mount => "mount",
            Self::Server => "server",
        }
    }
}

impl LimitStatus {
    fn write(&self, writer: &mut Writer) {
        writer.u64(self.value);
        writer.bool(self.used.is_some());
        if let Some(used) = self.used {
            writer.u64(used);
        }
        writer.u16(self.enforcement as u16);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, ControlError> {
        let value = reader.u64("limit")?;
        let used = match reader.bool("whether its use is known")? {
            true => Some(reader.u64("use of a limit")?),
            false => None,
        };
        let enforcement = reader.u16("enforcement of a limit")?;
        let known = Enforcement::ALL.get(usize::from(enforcement));
        Ok(Self {
            value,
            used,
            enforcement: *known.ok_or(ControlError::InvalidValue {
                field: "enforcement of a limit",
                value: enforcement.into(),
            })?,
        })
    }
}

impl SessionStatus {
    fn write(&self, writer: &mut Writer) {
        writer.u64(self.session_id);
        self.purpose.write(writer);
        writer.text(&self.program, limits::NAME_BYTES);
        writer.text(&self.hostname, limits::NAME_BYTES);
        writer.u32(self.client_pid);
        writer.text(&self.peer, limits::NAME_BYTES);
        writer.u32(self.worker_pid);
        writer.u64(self.age_ms);
        writer.u64(self.away_ms);
        writer.u16(self.lanes);
        writer.u16(self.peer_lanes);
        writer.u64(self.device_memory_bytes);
        writer.u64(self.swapped_bytes);
        writer.u64(self.device_memory_peak);
        writer.u64(self.device_memory_limit);
        writer.u64(self.received_bytes);
        writer.u64(self.sent_bytes);
        writer.u64(self.calls);
        writer.u64(self.launches);
        writer.u64(self.device_time_us);
        writer.text(&self.tenant, limits::TENANT_BYTES);
        self.limits.iter().for_each(|limit| limit.write(writer));
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, ControlError> {
        Ok(Self {
            session_id: reader.u64("session id")?,
            purpose: Purpose::read(reader)?,
            program: reader.text("program name", limits::NAME_BYTES)?,
            hostname: reader.text("host name", limits::NAME_BYTES)?,
            client_pid: reader.u32("client process id")?,
            peer: reader.text("peer address", limits::NAME_BYTES)?,
            worker_pid: reader.u32("worker process id")?,
            age_ms: reader.u64("session age")?,
            away_ms: reader.u64("time cut off")?,
            lanes: reader.u16("lanes")?,
            peer_lanes: reader.u16("peer lanes")?,
            device_memory_bytes: reader.u64("device memory")?,
            swapped_bytes: reader.u64("swapped memory")?,
            device_memory_peak: reader.u64("peak of device memory")?,
            device_memory_limit: reader.u64("limit of device memory")?,
            received_bytes: reader.u64("received bytes")?,
            sent_bytes: reader.u64("sent bytes")?,
            calls: reader.u64("calls")?,
            launches: reader.u64("launches")?,
            device_time_us: reader.u64("device time")?,
            tenant: reader.text("tenant name", limits::TENANT_BYTES)?,
            limits: {
                let mut limits = [LimitStatus::default(); LIMITS.len()];
                for limit in &mut limits {
                    *limit = LimitStatus::read(reader)?;
                }
                limits
            },
        })
    }
}

/// Use and limits of a tenant, as `towline status` shows them. A limit of 0 is none.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TenantStatus {
    /// Its name.
    pub name: String,
    /// Whether it sees the sessions of all tenants.
    pub admin: bool,
    /// Sessions of now.
    pub sessions: u32,
    /// Most sessions at once.
    pub max_sessions: u32,
    /// Device memory that its sessions have reserved.
    pub device_memory_bytes: u64,
    /// Most device memory of all its sessions.
    pub device_memory_limit: u64,
    /// Sessions since the start.
    pub sessions_started: u64,
    /// Sessions that ended by a crash of their worker.
    pub sessions_crashed: u64,
    /// Sessions that it was refused, because it had as many as it may have.
    pub rejected: u64,
    /// How long its sessions have kept devices busy since the start, those that have ended too.
    pub device_time_us: u64,
    /// Time from which it has no sessions, in seconds since 1970 (UTC).
    pub until_s: u64,
    /// Whether it is a lease: a scheduler gave it, and ends it.
    pub is_lease: bool,
    /// The devices that it has, at most [`limits::TENANT_DEVICES`], as the server's operator or its lease names them. Empty: all.
    pub devices: Vec<String>,
    /// Of its devices' time.
    pub time: TimeShare,
    /// Time for which it has waited for turns on devices that others use too, since the start.
    pub wait_us: u64,
}

impl TenantStatus {
    fn write(&self, writer: &mut Writer) {
        writer.text(&self.name, limits::TENANT_BYTES);
        writer.bool(self.admin);
        writer.u32(self.sessions);
        writer.u32(self.max_sessions);
        writer.u64(self.device_memory_bytes);
        writer.u64(self.device_memory_limit);
        writer.u64(self.sessions_started);
        writer.u64(self.sessions_crashed);
        writer.u64(self.rejected);
        writer.u64(self.device_time_us);
        writer.u64(self.until_s);
        writer.bool(self.is_lease);
        writer.texts(
            &self.devices,
            limits::TENANT_DEVICES,
            limits::DEVICE_NAME_BYTES,
        );
        self.time.write(writer);
        writer.u64(self.wait_us);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, ControlError> {
        Ok(Self {
            name: reader.text("tenant name", limits::TENANT_BYTES)?,
            admin: reader.bool("whether a tenant is an admin")?,
            sessions: reader.u32("sessions of a tenant")?,
            max_sessions: reader.u32("session limit of a tenant")?,
            device_memory_bytes: reader.u64("device memory of a tenant")?,
            device_memory_limit: reader.u64("memory limit of a tenant")?,
            sessions_started: reader.u64("sessions of a tenant started")?,
            sessions_crashed: reader.u64("sessions of a tenant crashed")?,
            rejected: reader.u64("sessions of a tenant rejected")?,
            device_time_us: reader.u64("device time of a tenant")?,
            until_s: reader.u64("end of a tenant's time")?,
            is_lease: reader.bool("whether a tenant is a lease")?,
            devices: reader.texts(
                "devices of a tenant",
                limits::TENANT_DEVICES,
                limits::DEVICE_NAME_BYTES,
            )?,
            time: TimeShare::read(reader)?,
            wait_us: reader.u64("wait of a tenant")?,
        })
    }
}

/// A limit of what all clients have of a server together, or of how long each may take.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ServerLimit {
    /// Its name and unit.
    pub name: String,
    /// The limit; 0 where there is none.
    pub value: u64,
    /// How much of it is used, where that is known and the client may see it.
    pub used: Option<u64>,
}

impl ServerLimit {
    fn write(&self, writer: &mut Writer) {
        writer.text(&self.name, limits::NAME_BYTES);
        writer.u64(self.value);
        writer.bool(self.used.is_some());
        if let Some(used) = self.used {
            writer.u64(used);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, ControlError> {
        Ok(Self {
            name: reader.text("name of a limit", limits::NAME_BYTES)?,
            value: reader.u64("limit")?,
            used: match reader.bool("whether its use is known")? {
                true => Some(reader.u64("use of a limit")?),
                false => None,
            },
        })
    }
}

/// Server to client: the answer to a `StatusRequest`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Status {
    /// How long the server has run.
    pub uptime_ms: u64,
    /// Most sessions at once.
    pub max_sessions: u32,
    /// Whether the server is shutting down.
    pub draining: bool,
    /// Sessions since the start.
    pub sessions_started: u64,
    /// Sessions that ended by a crash of their worker.
    pub sessions_crashed: u64,
    /// Clients turned away.
    pub rejected: u64,
    /// The sessions of now that the client may see, oldest first.
    pub sessions: Vec<SessionStatus>,
    /// The tenants that the client may see; empty where the server has one token for all, or none.
    pub tenants: Vec<TenantStatus>,
    /// Limits of the server.
    pub limits: Vec<ServerLimit>,
}

impl Status {
    fn write(&self, writer: &mut Writer) {
        writer.u64(self.uptime_ms);
        writer.u32(self.max_sessions);
        writer.bool(self.draining);
        writer.u64(self.sessions_started);
        writer.u64(self.sessions_crashed);
        writer.u64(self.rejected);
        let sessions = &self.sessions[..self.sessions.len().min(limits::STATUS_SESSIONS)];
        writer.u32(u32::try_from(sessions.len()).expect("the limit fits 32 bits"));
        for session in sessions {
            session.write(writer);
        }
        let tenants = &self.tenants[..self.tenants.len().min(limits::STATUS_TENANTS)];
        writer.u32(u32::try_from(tenants.len()).expect("the limit fits 32 bits"));
        for tenant in tenants {
            tenant.write(writer);
        }
        let limits = &self.limits[..self.limits.len().min(limits::STATUS_LIMITS)];
        writer.u32(u32::try_from(limits.len()).expect("the limit fits 32 bits"));
        for limit in limits {
            limit.write(writer);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, ControlError> {
        let mut status = Self {
            uptime_ms: reader.u64("uptime")?,
            max_sessions: reader.u32("session limit")?,
            draining: reader.bool("draining")?,
            sessions_started: reader.u64("sessions started")?,
            sessions_crashed: reader.u64("sessions crashed")?,
            rejected: reader.u64("clients rejected")?,
            sessions: Vec::new(),
            tenants: Vec::new(),
            limits: Vec::new(),
        };
        // Not reserved by the claimed count: the list grows only as entries are really there.
        for _ in 0..reader.len("session count", limits::STATUS_SESSIONS)? {
            status.sessions.push(SessionStatus::read(reader)?);
        }
        for _ in 0..reader.len("tenant count", limits::STATUS_TENANTS)? {
            status.tenants.push(TenantStatus::read(reader)?);
        }
        for _ in 0..reader.len("count of limits", limits::STATUS_LIMITS)? {
            status.limits.push(ServerLimit::read(reader)?);
        }
        Ok(status)
    }
}

/// Server to client: the answer to a `DevicesRequest`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Devices {
    /// As in [`Welcome::snapshot`].
    pub snapshot: Vec<u8>,
}

/// Server to client: the answer to a `CudaDevicesRequest`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CudaDevices {
    /// The devices in their encoding; or why there are none.
    pub snapshot: Result<Vec<u8>, String>,
}

/// Server to client: the session is over, and not because the client closed it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SessionEnded {
    /// What happened, for a person: the signal or exit code of the worker, or the error it reported.
    pub reason: String,
}

/// Client to server: another server is going to connect to this session's worker; give a ticket for it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PeerOffer {
    /// What the client calls the lane. Comes back in the answer.
    pub lane: u64,
    /// The other server, as this one lists it.
    pub address: String,
}

/// Server to client: the answer to a [`PeerOffer`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PeerTicket {
    /// Of the offer.
    pub lane: u64,
    /// The ticket, good once and for seconds; or why there is none.
    pub ticket: Result<Ticket, String>,
}

/// Client to server: connect this session's worker to that of another server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PeerConnect {
    /// What the client calls the lane. Comes back in the answer.
    pub lane: u64,
    /// The other server, as this one lists it.
    pub address: String,
    /// What the other server gave.
    pub ticket: Ticket,
}

/// Server to client: the answer to a [`PeerConnect`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PeerConnected {
    /// Of the request.
    pub lane: u64,
    /// Whether the workers are connected; or why not.
    pub outcome: Result<(), String>,
}

/// Client to server, on a connection without a session: end a session of the client's tenant, or any one for an admin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KillSession {
    /// Its number, as [`SessionStatus::session_id`].
    pub session_id: u64,
}

/// Server to client: the answer to a [`KillSession`], once the session's worker is gone.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SessionKilled {
    /// Whether the session is gone; or why not.
    pub outcome: Result<(), String>,
}

/// Client to server, on a connection for that purpose: go on with a session, of which this is the control connection from now on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ResumeSession {
    /// Its number, from the grant.
    pub session_id: u64,
    /// The ticket from the grant.
    pub ticket: Ticket,
}

/// Server to client: the answer to a [`ResumeSession`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SessionResumed {
    /// Whether the session goes on; or why it is over.
    pub outcome: Result<(), String>,
}

/// Client to server, on a connection without a session: move a session of the client's tenant, or any one for an admin, to another server.
/// Server to client, in that session: move it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MigrateSession {
    /// Its number, as [`SessionStatus::session_id`].
    pub session_id: u64,
    /// Address of the other server, as the session's client reaches it.
    pub to: String,
}

/// The answer to a [`MigrateSession`], on the same way back. Where it went well, the session's client has the other server by then, and
/// waits for [`SessionEnded`] here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SessionMigrated {
    /// Of the request.
    pub session_id: u64,
    /// Whether the session is there; or why it is where it was.
    pub outcome: Result<(), String>,
}

/// Client to server, on a connection without a session: have a session of the client's tenant, or any one for an admin, write a checkpoint and
/// leave. Server to client, in that session: do so.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CheckpointSession {
    /// Its number, as [`SessionStatus::session_id`].
    pub session_id: u64,
    /// The folder on the machine of the session's client.
    pub folder: String,
}

/// The answer to a [`CheckpointSession`], on the same way back. Where it went well, the checkpoint is complete by then, and the session's client
/// waits for [`SessionEnded`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SessionCheckpointed {
    /// Of the request.
    pub session_id: u64,
    /// Whether the session has left; or the reason why it goes on.
    pub outcome: Result<(), String>,
}

/// Server to client: the answer to [`Message::DrainServer`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerDrains {
    /// Whether the server takes no more sessions; or why it goes on.
    pub outcome: Result<(), String>,
}

/// Every message of the control protocol.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Message {
    /// Client to server, first.
    Hello(Hello),
    /// Server to client, after `Hello`, when a token is needed.
    Challenge(Challenge),
    /// Client to server, after `Challenge`.
    Proof(Proof),
    /// Server to client: the handshake is done.
    Welcome(Box<Welcome>),
    /// Server to client: the connection ends here.
    Reject(Reject),
    /// Client to server, any time after `Welcome`.
    StatusRequest,
    /// Server to client.
    Status(Status),
    /// Client to server, any time after `Welcome`.
    DevicesRequest,
    /// Server to client.
    Devices(Devices),
    /// Server to client, unasked: the last message of a session that failed.
    SessionEnded(SessionEnded),
    /// Client to server, in a session.
    PeerOffer(PeerOffer),
    /// Server to client.
    PeerTicket(PeerTicket),
    /// Client to server, in a session.
    PeerConnect(PeerConnect),
    /// Server to client.
    PeerConnected(PeerConnected),
    /// Client to server, on a connection for NVML.
    NvmlQuestions(NvmlQuestions),
    /// Server to client.
    NvmlAnswers(NvmlAnswers),
    /// Client to server, any time after `Welcome`.
    CudaDevicesRequest,
    /// Server to client.
    CudaDevices(CudaDevices),
    /// Client to server, in a session: are you there?
    Ping,
    /// Server to client: the answer to a `Ping`; and, unasked, once a second while a session waits for its worker.
    Alive,
    /// Client to server, on a connection without a session.
    KillSession(KillSession),
    /// Server to client.
    SessionKilled(SessionKilled),
    /// Client to server, on a connection for that purpose.
    ResumeSession(ResumeSession),
    /// Server to client.
    SessionResumed(SessionResumed),
    /// Client to server, on a connection without a session; server to client, in a session.
    MigrateSession(MigrateSession),
    /// The way back.
    SessionMigrated(SessionMigrated),
    /// Client to server, on a connection without a session; server to client, in a session.
    CheckpointSession(CheckpointSession),
    /// The way back.
    SessionCheckpointed(SessionCheckpointed),
    /// Client to server, on a connection without a session: take no more sessions, and end when there are none.
    DrainServer,
    /// Server to client.
    ServerDrains(ServerDrains),
    /// Client to server, on a connection without a session.
    GiveLease(GiveLease),
    /// Server to client.
    LeaseGiven(LeaseGiven),
    /// Client to server, on a connection without a session.
    RenewLease(RenewLease),
    /// Client to server, on a connection without a session.
    EndLease(EndLease),
    /// Server to client.
    LeaseChanged(LeaseChanged),
}

impl Message {
    /// The message as one frame, header included.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Writer::default();
        match self {
            Self::Hello(hello) => hello.write(&mut body),
            Self::Challenge(challenge) => {
                body.u16(challenge.version);
                body.raw(&challenge.nonce);
            }
            Self::Proof(proof) => body.raw(&proof.proof),
            Self::Welcome(welcome) => welcome.write(&mut body),
            Self::Reject(reject) => reject.write(&mut body),
            Self::StatusRequest
            | Self::DevicesRequest
            | Self::CudaDevicesRequest
            | Self::Ping
            | Self::Alive
            | Self::DrainServer => {}
            Self::Status(status) => status.write(&mut body),
            Self::Devices(devices) => body.blob(&devices.snapshot, limits::SNAPSHOT_BYTES),
            Self::SessionEnded(ended) => body.text(&ended.reason, limits::TEXT_BYTES),
            Self::PeerOffer(offer) => {
                body.u64(offer.lane);
                body.text(&offer.address, limits::NAME_BYTES);
            }
            Self::PeerTicket(answer) => {
                body.u64(answer.lane);
                body.bool(answer.ticket.is_ok());
                match &answer.ticket {
                    Ok(ticket) => body.raw(ticket.bytes()),
                    Err(reason) => body.text(reason, limits::TEXT_BYTES),
                }
            }
            Self::PeerConnect(connect) => {
                body.u64(connect.lane);
                body.text(&connect.address, limits::NAME_BYTES);
                body.raw(connect.ticket.bytes());
            }
            Self::PeerConnected(answer) => {
                body.u64(answer.lane);
                write_outcome(&answer.outcome, &mut body);
            }
            Self::KillSession(kill) => body.u64(kill.session_id),
            Self::ResumeSession(resume) => {
                body.u64(resume.session_id);
                body.raw(resume.ticket.bytes());
            }
            Self::SessionKilled(SessionKilled { outcome })
            | Self::SessionResumed(SessionResumed { outcome })
            | Self::ServerDrains(ServerDrains { outcome }) => write_outcome(outcome, &mut body),
            Self::MigrateSession(request) => {
                body.u64(request.session_id);
                body.text(&request.to, limits::NAME_BYTES);
            }
            Self::SessionMigrated(answer) => {
                body.u64(answer.session_id);
                write_outcome(&answer.outcome, &mut body);
            }
            Self::CheckpointSession(request) => {
                body.u64(request.session_id);
                body.text(&request.folder, limits::PATH_BYTES);
            }
            Self::SessionCheckpointed(answer) => {
                body.u64(answer.session_id);
                write_outcome(&answer.outcome, &mut body);
            }
            Self::GiveLease(request) => request.write(&mut body),
            Self::LeaseGiven(answer) => answer.write(&mut body),
            Self::RenewLease(request) => request.write(&mut body),
            Self::EndLease(request) => body.text(&request.name, limits::TENANT_BYTES),
            Self::LeaseChanged(answer) => write_outcome(&answer.outcome, &mut body),
            Self::NvmlQuestions(questions) => questions.write(&mut body),
            Self::NvmlAnswers(answers) => answers.write(&mut body),
            Self::CudaDevices(devices) => {
                body.bool(devices.snapshot.is_ok());
                match &devices.snapshot {
                    Ok(snapshot) => body.blob(snapshot, limits::SNAPSHOT_BYTES),
                    Err(reason) => body.text(reason, limits::TEXT_BYTES),
                }
            }
        }
        frame::join(self.kind(), &body.into_bytes())
    }

    /// Parses one whole frame, as [`super::MessageBuffer::next_frame`] gives it.
    pub fn decode(bytes: &[u8]) -> Result<Self, ControlError> {
        let (kind, body) = frame::split(bytes)?;
        let mut reader = Reader::new(body);
        let message = match kind {
            1 => Self::Hello(Hello::read(&mut reader)?),
            2 => Self::Challenge(Challenge {
                version: reader.u16("protocol version")?,
                nonce: reader.array("server nonce")?,
            }),
            3 => Self::Proof(Proof {
                proof: reader.array("client proof")?,
            }),
            4 => Self::Welcome(Box::new(Welcome::read(&mut reader)?)),
            5 => Self::Reject(Reject::read(&mut reader)?),
            6 => Self::StatusRequest,
            7 => Self::Status(Status::read(&mut reader)?),
            8 => Self::DevicesRequest,
            9 => Self::Devices(Devices {
                snapshot: reader.blob("device snapshot", limits::SNAPSHOT_BYTES)?,
            }),
            10 => Self::SessionEnded(SessionEnded {
                reason: reader.text("reason", limits::TEXT_BYTES)?,
            }),
            11 => Self::PeerOffer(PeerOffer {
                lane: reader.u64("peer lane")?,
                address: reader.text("peer's address", limits::NAME_BYTES)?,
            }),
            12 => Self::PeerTicket(PeerTicket {
                lane: reader.u64("peer lane")?,
                ticket: match reader.bool("whether there is a ticket")? {
                    true => Ok(Ticket::from_random(reader.array::<TICKET_BYTES>("ticket")?)),
                    false => Err(reader.text("reason", limits::TEXT_BYTES)?),
                },
            }),
            13 => Self::PeerConnect(PeerConnect {
                lane: reader.u64("peer lane")?,
                address: reader.text("peer's address", limits::NAME_BYTES)?,
                ticket: Ticket::from_random(reader.array::<TICKET_BYTES>("ticket")?),
            }),
            14 => Self::PeerConnected(PeerConnected {
                lane: reader.u64("peer lane")?,
                outcome: read_outcome("whether it is connected", &mut reader)?,
            }),
            15 => Self::NvmlQuestions(NvmlQuestions::read(&mut reader)?),
            16 => Self::NvmlAnswers(NvmlAnswers::read(&mut reader)?),
            17 => Self::CudaDevicesRequest,
            18 => Self::CudaDevices(CudaDevices {
                snapshot: match reader.bool("whether there are devices")? {
                    true => Ok(reader.blob("device snapshot", limits::SNAPSHOT_BYTES)?),
                    false => Err(reader.text("reason", limits::TEXT_BYTES)?),
                },
            }),
            19 => Self::Ping,
            20 => Self::Alive,
            21 => Self::KillSession(KillSession {
                session_id: reader.u64("session id")?,
            }),
            22 => Self::SessionKilled(SessionKilled {
                outcome: read_outcome("whether the session is gone", &mut reader)?,
            }),
            23 => Self::ResumeSession(ResumeSession {
                session_id: reader.u64("session id")?,
                ticket: Ticket::from_random(reader.array::<TICKET_BYTES>("ticket")?),
            }),
            24 => Self::SessionResumed(SessionResumed {
                outcome: read_outcome("whether the session goes on", &mut reader)?,
            }),
            25 => Self::MigrateSession(MigrateSession {
                session_id: reader.u64("session id")?,
                to: reader.text("server's address", limits::NAME_BYTES)?,
            }),
            26 => Self::SessionMigrated(SessionMigrated {
                session_id: reader.u64("session id")?,
                outcome: read_outcome("whether the session has moved", &mut reader)?,
            }),
            27 => Self::DrainServer,
            28 => Self::ServerDrains(ServerDrains {
                outcome: read_outcome("whether the server drains", &mut reader)?,
            }),
            29 => Self::GiveLease(GiveLease::read(&mut reader)?),
            30 => Self::LeaseGiven(LeaseGiven::read(&mut reader)?),
            31 => Self::RenewLease(RenewLease::read(&mut reader)?),
            32 => Self::EndLease(EndLease {
                name: reader.text("name of a lease", limits::TENANT_BYTES)?,
            }),
            33 => Self::LeaseChanged(LeaseChanged {
                outcome: read_outcome("whether the lease is changed", &mut reader)?,
            }),
            34 => Self::CheckpointSession(CheckpointSession {
                session_id: reader.u64("session id")?,
                folder: reader.text("folder", limits::PATH_BYTES)?,
            }),
            35 => Self::SessionCheckpointed(SessionCheckpointed {
                session_id: reader.u64("session id")?,
                outcome: read_outcome("whether the session has a checkpoint", &mut reader)?,
            }),
            value => {
                return Err(ControlError::InvalidValue {
                    field: "message kind",
                    value: value.into(),
                });
            }
        };
        reader.finish()?;
        Ok(message)
    }

    /// Name for logs and errors.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => "Hello",
            Self::Challenge(_) => "Challenge",
            Self::Proof(_) => "Proof",
            Self::Welcome(_) => "Welcome",
            Self::Reject(_) => "Reject",
            Self::StatusRequest => "StatusRequest",
            Self::Status(_) => "Status",
            Self::DevicesRequest => "DevicesRequest",
            Self::Devices(_) => "Devices",
            Self::SessionEnded(_) => "SessionEnded",
            Self::PeerOffer(_) => "PeerOffer",
            Self::PeerTicket(_) => "PeerTicket",
            Self::PeerConnect(_) => "PeerConnect",
            Self::PeerConnected(_) => "PeerConnected",
            Self::NvmlQuestions(_) => "NvmlQuestions",
            Self::NvmlAnswers(_) => "NvmlAnswers",
            Self::CudaDevicesRequest => "CudaDevicesRequest",
            Self::CudaDevices(_) => "CudaDevices",
            Self::Ping => "Ping",
            Self::Alive => "Alive",
            Self::KillSession(_) => "KillSession",
            Self::SessionKilled(_) => "SessionKilled",
            Self::ResumeSession(_) => "ResumeSession",
            Self::SessionResumed(_) => "SessionResumed",
            Self::MigrateSession(_) => "MigrateSession",
            Self::SessionMigrated(_) => "SessionMigrated",
            Self::CheckpointSession(_) => "CheckpointSession",
            Self::SessionCheckpointed(_) => "SessionCheckpointed",
            Self::DrainServer => "DrainServer",
            Self::ServerDrains(_) => "ServerDrains",
            Self::GiveLease(_) => "GiveLease",
            Self::LeaseGiven(_) => "LeaseGiven",
            Self::RenewLease(_) => "RenewLease",
            Self::EndLease(_) => "EndLease",
            Self::LeaseChanged(_) => "LeaseChanged",
        }
    }

    fn kind(&self) -> u16 {
        match self {
            Self::Hello(_) => HELLO_KIND,
            Self::Challenge(_) => 2,
            Self::Proof(_) => 3,
            Self::Welcome(_) => 4,
            Self::Reject(_) => 5,
            Self::StatusRequest => 6,
            Self::Status(_) => 7,
            Self::DevicesRequest => 8,
            Self::Devices(_) => 9,
            Self::SessionEnded(_) => 10,
            Self::PeerOffer(_) => 11,
            Self::PeerTicket(_) => 12,
            Self::PeerConnect(_) => 13,
            Self::PeerConnected(_) => 14,
            Self::NvmlQuestions(_) => 15,
            Self::NvmlAnswers(_) => 16,
            Self::CudaDevicesRequest => 17,
            Self::CudaDevices(_) => 18,
            Self::Ping => 19,
            Self::Alive => 20,
            Self::KillSession(_) => 21,
            Self::SessionKilled(_) => 22,
            Self::ResumeSession(_) => 23,
            Self::SessionResumed(_) => 24,
            Self::MigrateSession(_) => 25,
            Self::SessionMigrated(_) => 26,
            Self::DrainServer => 27,
            Self::ServerDrains(_) => 28,
            Self::GiveLease(_) => 29,
            Self::LeaseGiven(_) => 30,
            Self::RenewLease(_) => 31,
            Self::EndLease(_) => 32,
            Self::LeaseChanged(_) => 33,
            Self::CheckpointSession(_) => 34,
            Self::SessionCheckpointed(_) => 35,
        }
    }
}

/// Whether something was done; or why not.
pub(super) fn write_outcome(outcome: &Result<(), String>, body: &mut Writer) {
    body.bool(outcome.is_ok());
    if let Err(reason) = outcome {
        body.text(reason, limits::TEXT_BYTES);
    }
}

pub(super) fn read_outcome(
    field: &'static str,
    reader: &mut Reader<'_>,
) -> Result<Result<(), String>, ControlError> {
    Ok(match reader.bool(field)? {
        true => Ok(()),
        false => Err(reader.text("reason", limits::TEXT_BYTES)?),
    })
}

pub(super) const HELLO_KIND: u16 = 1;
