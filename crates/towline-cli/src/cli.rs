//! Every option of every subcommand, declared once.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};
use towline_server::supervisor::{Quota, ServerLimits, WHOLE_DEVICES};
use towline_server::worker::cuda::SoftOptions;
use towline_transport::Address;
use towline_wire::control::{Priority, WHOLE_SHARE};

/// Where a server listens when not told otherwise.
pub(crate) const DEFAULT_LISTEN: &str = "tcp://127.0.0.1:7140";

/// Time for sessions to move in after a signal, where --drain-time says nothing.
const MOVE_TIME: Duration = Duration::from_secs(600);

/// Use GPUs and other OpenCL devices of other machines as if they were this one's
#[derive(Debug, Parser)]
#[command(
    name = "towline",
    version,
    propagate_version = true,
    disable_help_subcommand = true
)]
#[command(
    after_help = "Exit status: 2 for wrong usage, 125 when towline itself fails. `towline run` and `towline trace` otherwise \
                        give the program's own, 126 when it cannot be executed, 127 when it is not found."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one of it")]
pub(crate) enum Command {
    /// Measure networks, and OpenCL native against Towline
    Bench(towline_bench::Options),
    /// Measure what a socket of this machine is worth to several copies of a program
    Calibrate(towline_place::command::calibrate::Options),
    /// Write what a session's devices hold into a folder, free its place, and hold the program
    ///
    /// The program's own process writes into the folder, leaves the server, and waits: `towline run --restore DIR` has it go on with this server
    /// or another, with the same memory at the same addresses. While it is held it has no connection, so that CRIU can dump it. A session that
    /// cannot move cannot be held, and is refused by name before anything changes; a failure leaves the session as it was. CUDA only. A
    /// tenant holds its own sessions; a tenant with --admin, and a client of a server with one token for all, holds any.
    Checkpoint(CheckpointOptions),
    /// Print a completion script for a shell
    Completions(CompletionsOptions),
    /// List the devices of servers
    Devices(DevicesOptions),
    /// Find out what stands between programs and the devices of servers
    ///
    /// Looks at this machine and at the servers. Each finding is ok, a note, a warning or an error, with the thing to do. Copies 64 MiB
    /// to a CUDA device and back. Exit status: 1 where there is an error, else 0.
    Doctor(DoctorOptions),
    /// Have a server take no more sessions, and end after its last
    ///
    /// With --to its sessions move to another server, as with `towline migrate`. Those that cannot move go on, each is told of, and the exit
    /// status is 125. For tenants with --admin, and clients of servers with one token for all.
    Drain(DrainOptions),
    /// End a session of a server
    ///
    /// The program's calls return errors from then on, and the server's log and audit log tell who ended it. A tenant ends its own
    /// sessions; a tenant with --admin, and a client of a server with one token for all, ends any.
    Kill(KillOptions),
    /// Give devices of servers away for a time, each time to a tenant of its own
    ///
    /// For tenants with --admin, of servers with --tenants-file. A lease is a tenant with devices or with a part of one, a token and an end.
    /// Whole devices are for one lease alone, and no more memory of a device is given away than it has. Schedulers call this for their jobs.
    Lease(LeaseOptions),
    /// Keep the token of a server for this user, and the server in the user's config.toml
    ///
    /// The token is a line of standard input, which a terminal does not show, unless --token-file names a file to copy. It is checked
    /// with the server and kept, for this user alone, beside the known servers. Other options are kept in config.toml.
    Login(LoginOptions),
    /// Take a server, and a token that no server uses any more, out of the user's config.toml
    Logout(LogoutOptions),
    /// Write the manual pages into a folder
    Man(ManOptions),
    /// Move a session to another server
    ///
    /// The program notices a pause, and goes on there. Its machine has to reach the other server, be let in there with the token that it has,
    /// and know that server's key. What cannot move is refused by name before anything changes; whatever fails leaves the session where it is.
    /// Sessions move between devices that are alike. A tenant moves its own sessions; a tenant with --admin, and a client of a server
    /// with one token for all, moves any.
    Migrate(MigrateOptions),
    /// Turn this host into a virtualized GPU node, and back
    Node(crate::node::NodeOptions),
    /// Run nvcc so that what it builds can run with `towline run --cudart`
    ///
    /// Takes nvcc's arguments and becomes nvcc: the one that NVCC names, in PATH, in the virtual environment or among the packages of
    /// python3. Adds `-cudart shared` unless -cudart is given, and a folder with libcudart.so and libcuda.so, which are Towline's.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Nvcc(NvccOptions),
    /// Say where the tasks of an MPI program should go, and write the files that put them there
    Place(towline_place::command::place::Options),
    /// Run a program with the devices of servers
    Run(RunOptions),
    /// Offer this machine's devices to others
    Serve(ServeOptions),
    /// Forget keys of servers
    Servers(ServersOptions),
    /// Play programs and job mixes on a simulated cluster
    Simulate(towline_place::command::simulate::Options),
    /// Use the GPUs of a job of Slurm from all of its nodes
    Slurm(SlurmOptions),
    /// Show the sessions of servers
    Status(StatusOptions),
    /// Add, change and revoke tenants of a server
    Tenant(TenantOptions),
    /// Watch sessions, devices and tenants of servers in a terminal
    ///
    /// Press ? for the keys. Scripts use `towline status` and `towline kill`. NO_COLOR=1 takes the colours away.
    Top(TopOptions),
    /// Run an MPI program and record who talks to whom
    Trace(TraceOptions),
    /// Run the virtual machines of a plan by libvirt, OpenStack or as a cluster
    Vm(crate::vm::VmOptions),
    /// Watch a program; started by `towline run --report`
    #[command(hide = true)]
    Watch(WatchOptions),
    /// Serve one session; started by `towline serve`
    #[command(hide = true)]
    Worker(WorkerOptions),
}

impl Command {
    /// What is logged when TOWLINE_LOG does not say.
    pub(crate) fn default_log_level(&self) -> &'static str {
        match self {
            // The compiler of devices in software would log the text of every kernel.
            Self::Serve(_) | Self::Worker(_) => "info,cranelift=warn",
            _ => "warn",
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct CompletionsOptions {
    /// For which shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
pub(crate) struct ManOptions {
    /// Where to write them; made if missing
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct DevicesOptions {
    #[command(flatten)]
    pub(crate) servers: ServerOptions,
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct KillOptions {
    /// Number of the session on its server, as `towline status` shows it
    pub(crate) session: u64,
    #[command(flatten)]
    pub(crate) servers: ServerOptions,
}

#[derive(Args, Debug)]
pub(crate) struct CheckpointOptions {
    /// Number of the session on its server, as `towline status` shows it
    pub(crate) session: u64,
    /// Folder on the program's machine to write into
    ///
    /// It is the program's user's alone. On that machine it is made, with the file `invitation` that allows one checkpoint; from another
    /// machine, make both there first: install -d -m 700 DIR; touch DIR/invitation. Over an earlier checkpoint only changes are written.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Encrypt the folder, by a key that only the program has
    ///
    /// From another machine, write the word into the invitation in place of touch: echo encrypt > DIR/invitation
    #[arg(long)]
    pub(crate) encrypt: bool,
    #[command(flatten)]
    pub(crate) servers: ServerOptions,
}

#[derive(Args, Debug)]
pub(crate) struct MigrateOptions {
    /// Number of the session on its server, as `towline status` shows it
    pub(crate) session: u64,
    /// Server to move it to, as the program's machine reaches it
    #[arg(long, value_name = "ADDR")]
    pub(crate) to: Address,
    #[command(flatten)]
    pub(crate) servers: ServerOptions,
}

#[derive(Args, Debug)]
pub(crate) struct DrainOptions {
    /// Server to move its sessions to, as their programs' machines reach it
    #[arg(long, value_name = "ADDR")]
    pub(crate) to: Option<Address>,
    #[command(flatten)]
    pub(crate) servers: ServerOptions,
    /// Print JSON instead of lines, once no more session moves
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct TopOptions {
    #[command(flatten)]
    pub(crate) servers: ServerOptions,
    /// Ask the servers every so many seconds
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) interval: u64,
}

#[derive(Args, Debug)]
pub(crate) struct StatusOptions {
    #[command(flatten)]
    pub(crate) servers: ServerOptions,
    /// Print JSON instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Print again every second until interrupted
    #[arg(long)]
    pub(crate) watch: bool,
}

/// Which servers to use.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ServerOptions {
    /// Servers, separated by commas: HOST, HOST:PORT or SCHEME://... [env: TOWLINE_SERVERS]
    ///
    /// The port is 7140 unless given. `local` is this machine's own server, if it listens there. Without this option servers come
    /// from --server-file, the profile of --profile, TOWLINE_SERVERS, else from ~/.config/towline/config.toml or
    /// /etc/towline/config.toml, or a file `servers` beside it. A virtual machine that `towline vm` gave ports or vsock to its host
    /// finds that one's server by itself.
    #[arg(long = "server", value_name = "ADDR", value_delimiter = ',')]
    pub(crate) servers: Vec<String>,
    /// File with one server per line; # starts a comment
    #[arg(long, value_name = "FILE", conflicts_with = "servers")]
    pub(crate) server_file: Option<PathBuf>,
    /// Profile of config.toml to use [env: TOWLINE_PROFILE]
    ///
    /// Given here, what it says comes before variables.
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    #[command(flatten)]
    pub(crate) access: AccessOptions,
}

/// Access to servers: token, tenant, certificates, known keys. Variables and files that say the same are read in `towline_client::config`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct AccessOptions {
    /// File with the secret that the servers share [env: TOWLINE_TOKEN_FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Tenant that the token belongs to, where the servers have one for each [env: TOWLINE_TENANT]
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// Do not encrypt connections, with servers that were told the same [env: TOWLINE_NO_ENCRYPTION]
    ///
    /// The network can then read and change every byte.
    #[arg(long)]
    pub(crate) no_encryption: bool,
    /// File with the keys of servers that were seen before [env: TOWLINE_KNOWN_SERVERS] [default: towline/known_servers below ~/.local/state]
    #[arg(long, value_name = "FILE")]
    pub(crate) known_servers: Option<PathBuf>,
    /// Certificates of the authority that must have signed the servers', as PEM, in place of known servers [env: TOWLINE_CA]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Certificate to show to servers that ask for one, as PEM [env: TOWLINE_CERTIFICATE]
    #[arg(long, value_name = "FILE")]
    pub(crate) certificate: Option<PathBuf>,
    /// Its key, as PEM [env: TOWLINE_KEY]
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
}

/// Arguments of nvcc.
#[derive(Args, Debug)]
pub(crate) struct NvccOptions {
    /// Arguments of nvcc
    #[arg(
        value_name = "ARG",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) arguments: Vec<OsString>,
}

/// The servers to look at.
#[derive(Args, Debug)]
pub(crate) struct DoctorOptions {
    /// Servers, as --server takes them [default: those that programs use]
    #[arg(value_name = "HOST", conflicts_with_all = ["servers", "server_file"])]
    pub(crate) hosts: Vec<String>,
    #[command(flatten)]
    pub(crate) servers: ServerOptions,
    /// Print JSON instead of lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// Being let in from now on.
#[derive(Args, Debug)]
pub(crate) struct LoginOptions {
    /// The server: HOST, HOST:PORT, local or SCHEME://...
    #[arg(value_name = "HOST")]
    pub(crate) host: Address,
    /// Profile of config.toml that names the server then; made if missing [env: TOWLINE_PROFILE]
    ///
    /// All servers of a profile share one token.
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    #[command(flatten)]
    pub(crate) access: AccessOptions,
}

/// No longer being let in.
#[derive(Args, Debug)]
pub(crate) struct LogoutOptions {
    /// The server: HOST, HOST:PORT, local or SCHEME://...
    #[arg(value_name = "HOST")]
    pub(crate) host: Address,
    /// Profile of config.toml that names the server [env: TOWLINE_PROFILE]
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
}

/// The keys of servers that are kept.
#[derive(Args, Debug)]
pub(crate) struct ServersOptions {
    #[command(subcommand)]
    pub(crate) command: ServersCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServersCommand {
    /// Forget the key of a server that was set up anew
    Forget {
        /// The server: HOST:PORT or SCHEME://...
        #[arg(value_name = "ADDR")]
        address: Address,
        /// File with the keys of servers that were seen before [default: towline/known_servers below ~/.local/state]
        #[arg(long, value_name = "FILE", env = "TOWLINE_KNOWN_SERVERS")]
        known_servers: Option<PathBuf>,
    },
}

/// Leases of servers.
#[derive(Args, Debug)]
pub(crate) struct LeaseOptions {
    #[command(subcommand)]
    pub(crate) command: LeaseCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LeaseCommand {
    /// End a lease on all servers that it is of; its sessions end, and its devices are free when this returns
    End {
        /// The lease
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        servers: ServerOptions,
    },
    /// Give a lease and print its token
    ///
    /// The devices are of one server where one has them all, else of several. They all know the same token.
    Give {
        /// Name of the new tenant: letters, digits and -_.
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        part: PartOptions,
        /// Only these devices: numbers or UUIDs, separated by commas, as `towline tenant --devices` takes them
        #[arg(long, value_name = "LIST", value_parser = device_words)]
        on: Option<DeviceWords>,
        /// Time from now until its end, such as 90m, 2h30m or 7d [default: until `towline lease end`]
        #[arg(long = "for", value_name = "DURATION", value_parser = length_of_time)]
        time: Option<SignedDuration>,
        /// Most sessions of it at once on each server
        #[arg(long, value_name = "N", value_parser = session_count)]
        sessions: Option<u32>,
        /// Its part of the device's time, in percent [default: a part of what others' shares leave]
        #[arg(long, value_name = "PERCENT", requires = "memory", value_parser = share)]
        share: Option<u8>,
        /// Whether its launches go first on a device that others use too
        #[arg(long, requires = "memory", default_value = "normal", value_parser = priorities())]
        priority: Priority,
        #[command(flatten)]
        token_out: TokenOut,
        #[command(flatten)]
        servers: ServerOptions,
    },
    /// List the leases that there are
    List {
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        servers: ServerOptions,
    },
    /// Give and end leases for a program that asks on a socket, such as a driver of Kubernetes
    ///
    /// One request a line and one answer a line, in JSON; docs/leases-by-socket.md describes them. Only this user may connect.
    Serve {
        /// The socket, which is made
        #[arg(long, value_name = "FILE")]
        socket: PathBuf,
        #[command(flatten)]
        servers: ServerOptions,
    },
    /// Give a lease another end
    Renew {
        /// The lease
        #[arg(value_name = "NAME")]
        name: String,
        /// Time from now until its end, or none: until `towline lease end`
        #[arg(long = "for", value_name = "DURATION", value_parser = |text: &str| limit(text, length_of_time))]
        time: Limit<SignedDuration>,
        #[command(flatten)]
        servers: ServerOptions,
    },
}

/// Devices, or a part of one.
#[derive(Args, Clone, Copy, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct PartOptions {
    /// So many whole devices
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) devices: Option<u32>,
    /// So much memory of one device, with K, M or G behind
    #[arg(long, value_name = "BYTES", value_parser = memory_bytes)]
    pub(crate) memory: Option<u64>,
}

/// The tenants of a server.
#[derive(Args, Debug)]
pub(crate) struct TenantOptions {
    /// File with the tenants of a server, as `towline serve --tenants-file` takes it
    #[arg(long, value_name = "FILE", env = "TOWLINE_TENANTS_FILE")]
    pub(crate) tenants_file: PathBuf,
    #[command(subcommand)]
    pub(crate) command: TenantCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Add a tenant and print its token
    Add {
        /// Letters, digits and -_.
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        changes: TenantChanges,
        #[command(flatten)]
        token_out: TokenOut,
    },
    /// List the tenants with their limits
    List {
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Remove a tenant, or all whose time is over; their sessions end
    Revoke {
        #[arg(value_name = "NAME", required_unless_present = "expired")]
        name: Option<String>,
        /// Remove all tenants whose time is over
        #[arg(long, conflicts_with = "name")]
        expired: bool,
    },
    /// Give a tenant another token and print it; sessions that have begun go on
    Rotate {
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        token_out: TokenOut,
    },
    /// Change what a tenant may have
    Set {
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        changes: TenantChanges,
    },
}

/// Where a new token goes.
#[derive(Args, Debug)]
pub(crate) struct TokenOut {
    /// Write the token to this file, for its owner alone, and print nothing
    #[arg(long, value_name = "FILE")]
    pub(crate) token_out: Option<PathBuf>,
    /// Print tenant and token as JSON
    #[arg(long, conflicts_with = "token_out")]
    pub(crate) json: bool,
}

/// Limits and rights of a tenant; options that are not given change nothing.
#[derive(Args, Debug)]
pub(crate) struct TenantChanges {
    /// Let it see the sessions of all tenants; --admin=false does not
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) admin: Option<bool>,
    /// Most sessions at once, or none
    #[arg(long, value_name = "N", value_parser = |text: &str| limit(text, session_count))]
    pub(crate) sessions: Option<Limit<u32>>,
    /// Most device memory of all its sessions together, or none
    #[arg(long, value_name = "BYTES", value_parser = |text: &str| limit(text, memory_bytes))]
    pub(crate) memory: Option<Limit<u64>>,
    /// Time from which it has no sessions, such as 2030-01-31T18:00:00Z, or none
    #[arg(long, value_name = "TIME", value_parser = |text: &str| limit(text, end_of_time))]
    pub(crate) until: Option<Limit<Timestamp>>,
    /// Time from now for which it has sessions, such as 90m, 2h30m or 7d
    #[arg(long = "for", value_name = "DURATION", conflicts_with = "until", value_parser = time_from_now)]
    pub(crate) time: Option<Timestamp>,
    /// Devices that it has: numbers or UUIDs, separated by commas, or all
    ///
    /// A number is a place in the list of each API (`towline devices`), a UUID or its beginning the same device in all of them.
    #[arg(long, value_name = "LIST", value_parser = device_words)]
    pub(crate) devices: Option<DeviceWords>,
    /// Its part of the time of devices that others use too, in percent, or none
    #[arg(long, value_name = "PERCENT", value_parser = |text: &str| limit(text, share))]
    pub(crate) share: Option<Limit<u8>>,
    /// Whether its launches go first on such devices
    #[arg(long, value_parser = priorities())]
    pub(crate) priority: Option<Priority>,
    /// Its --session-memory, in place of the server's; none for the server's, here and below
    #[arg(long, value_name = "BYTES", value_parser = |text: &str| limit(text, memory_bytes_or_none))]
    pub(crate) session_memory: Option<Limit<u64>>,
    /// Its --session-host-memory
    #[arg(long, value_name = "BYTES", value_parser = |text: &str| limit(text, memory_bytes_or_none))]
    pub(crate) session_host_memory: Option<Limit<u64>>,
    /// Its --session-processes
    #[arg(long, value_name = "N", value_parser = |text: &str| limit(text, processes))]
    pub(crate) session_processes: Option<Limit<u64>>,
    /// Its --kernel-time-limit
    #[arg(long, value_name = "SECONDS", value_parser = |text: &str| limit(text, seconds))]
    pub(crate) kernel_time_limit: Option<Limit<u64>>,
    /// Its --session-code
    #[arg(long, value_name = "BYTES", value_parser = |text: &str| limit(text, memory_bytes_or_none))]
    pub(crate) session_code: Option<Limit<u64>>,
    /// Its --session-cpus
    #[arg(long, value_name = "N", value_parser = |text: &str| limit(text, cpu_percent))]
    pub(crate) session_cpus: Option<Limit<u64>>,
}

/// Words that name devices; none: all.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct DeviceWords(pub(crate) Vec<String>);

/// A list of devices on the command line.
fn device_words(text: &str) -> Result<DeviceWords, String> {
    if text == "all" {
        return Ok(DeviceWords(Vec::new()));
    }
    let words = text.split(',').map(|word| device_word(word.trim()));
    words.collect::<Result<_, _>>().map(DeviceWords)
}

/// A number of up to three digits, or at least four characters of a UUID.
pub(crate) fn device_word(word: &str) -> Result<String, String> {
    let bare = ["GPU-", "MIG-"]
        .iter()
        .find_map(|prefix| word.strip_prefix(prefix))
        .unwrap_or(word);
    let is_number = (1..=3).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_digit());
    let is_uuid = (4..=36).contains(&bare.len())
        && bare
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    match is_number || is_uuid {
        true => Ok(word.to_owned()),
        false => Err(format!(
            "`{}` is no device: a number, or at least four digits of a UUID, such as 0 or GPU-8f2c01d4",
            word.escape_debug()
        )),
    }
}

/// A limit, or that there is none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Limit<T>(pub(crate) Option<T>);

fn limit<T>(text: &str, parse: fn(&str) -> Result<T, String>) -> Result<Limit<T>, String> {
    match text {
        "none" => Ok(Limit(None)),
        text => parse(text)
            .map(|limit| Limit(Some(limit)))
            .map_err(|why| format!("{why}, nor none")),
    }
}

fn session_count(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(count @ 1..=4096) => Ok(count),
        _ => Err("no number from 1 to 4096".into()),
    }
}

/// A time to come, as RFC 3339 has it.
fn end_of_time(text: &str) -> Result<Timestamp, String> {
    let until: Timestamp = text
        .parse()
        .map_err(|_| "no time such as 2030-01-31T18:00:00Z or 2030-01-31T18:00:00+01:00")?;
    match until > Timestamp::now() {
        true => whole_second(until),
        false => Err("a time that has passed".into()),
    }
}

/// The end of a span of time that begins now.
fn time_from_now(text: &str) -> Result<Timestamp, String> {
    let until = Timestamp::now().checked_add(length_of_time(text)?);
    until
        .map_err(|_| format!("{WRONG_LENGTH}, or too long"))
        .and_then(whole_second)
}

const WRONG_LENGTH: &str = "no duration such as 90m, 2h30m or 7d";

/// A span of time of at least a second. A day has 24 hours.
fn length_of_time(text: &str) -> Result<SignedDuration, String> {
    let span: Span = text.parse().map_err(|_| WRONG_LENGTH)?;
    let length = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok();
    let length = length.filter(|length| length.as_secs() >= 1);
    length.ok_or_else(|| WRONG_LENGTH.to_owned())
}

fn whole_second(time: Timestamp) -> Result<Timestamp, String> {
    Timestamp::from_second(time.as_second()).map_err(|error| error.to_string())
}

pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(seconds @ 0..=86400) => Ok(seconds),
        _ => Err("no number from 0 to 86400".into()),
    }
}

#[derive(Args, Debug)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub(crate) servers: ServerOptions,
    /// Put this machine's own devices into the platform too, before the servers' ones
    ///
    /// One context can then span local and remote devices. Local devices are called directly. Without this option local
    /// platforms stay visible beside the Towline platform.
    #[arg(long)]
    pub(crate) with_local: bool,
    /// Print at exit where the time went, or that the program went past Towline
    #[arg(long)]
    pub(crate) report: bool,
    /// File to write a trace to: what the program called, waited for and moved, and when its kernels ran
    ///
    /// Open it with Perfetto (ui.perfetto.dev reads it in the browser and sends nothing) or chrome://tracing. Processes that the program starts
    /// add to the same file. Calls cost more while they are traced.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Do not answer the CUDA runtime library when it asks the driver to identify itself
    ///
    /// It is only ever answered for devices that NVIDIA's own driver serves. Without the answer, programs that use the
    /// runtime library stop at its start; programs that use only the driver API run.
    #[arg(long)]
    pub(crate) no_cudart_handshake: bool,
    /// Leave the program its own NCCL
    ///
    /// Otherwise NCCL's calls run on the servers, beside the devices, if all of them offer collectives, so that several ranks work together.
    #[arg(long)]
    pub(crate) no_collectives: bool,
    /// Have the program use Towline's own CUDA runtime library
    ///
    /// It takes the place of libcudart.so.12 and libcudart.so.13, and so serves programs that are linked with `-cudart
    /// shared`, which nvcc does when asked. It does not ask the driver to identify itself: with it they run on software
    /// devices, and on GPUs with --no-cudart-handshake. Not done unasked: a program keeps the library that it came with.
    #[arg(long)]
    pub(crate) cudart: bool,
    /// Start the program even if no server answers or none has a device
    ///
    /// Without this option `towline run` then ends with 125.
    #[arg(long)]
    pub(crate) allow_none: bool,
    /// Folder for links to the libraries, in place of one of this machine alone
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) links: Option<PathBuf>,
    /// Resume the program that is held for this checkpoint, instead of starting one; see `towline checkpoint`
    ///
    /// The program is held on this machine, or PROGRAM brings it back first, such as `criu restore`. The session goes to the first server of
    /// --server that takes it, without that option to the one that it left. If none does, the reason is told and the program stays held.
    /// Exit status: that of PROGRAM, or 0; 125 if the program is still held.
    #[arg(long, value_name = "DIR")]
    pub(crate) restore: Option<PathBuf>,
    /// The program and its arguments
    #[arg(
        value_name = "PROGRAM",
        required_unless_present = "restore",
        trailing_var_arg = true
    )]
    pub(crate) program: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct SlurmOptions {
    #[command(subcommand)]
    pub(crate) command: SlurmCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SlurmCommand {
    /// Say what jobs used of a pool's servers, from their audit logs
    Account(SlurmAccountOptions),
    /// Hold Slurm's configuration to what the pool needs; exit status 1 where it lacks something
    Check(SlurmPoolOptions),
    /// End a job's lease; Slurm's Epilog
    Epilog(SlurmPoolOptions),
    /// Give a job the lease that its licences ask for; Slurm's Prolog
    Prolog(SlurmPoolOptions),
    /// Run a program with all GPUs that its job has, on whichever of the job's nodes they are
    ///
    /// Call it in a batch script or in the shell of salloc. It starts a server on each node that has the job's GPUs, with a secret of the
    /// job's own, runs the program with the devices of these servers, and ends them after it. What the program starts by srun, on other
    /// nodes too, has the same devices. In a heterogeneous job (`sbatch -p cpu -n 4 : -p gpu --gres=gpu:2`) the servers are on the nodes of
    /// the last component, else on all nodes of the job. Slurm counts, limits and accounts the devices as those of any job. Exit status:
    /// the program's.
    Run(SlurmRunOptions),
    /// Serve a job's devices on a node; started by `towline slurm run`
    #[command(hide = true)]
    Serve(SlurmServeOptions),
    /// Write the scripts and the lines of slurm.conf with which jobs get devices of standing servers by licences
    Setup(SlurmSetupOptions),
    /// End leases of jobs that are over, and renew those of jobs that may run longer; Slurm's EpilogSlurmctld, or from time to time
    Sweep(SlurmPoolOptions),
    /// Print the variables by which a task finds its job's devices; Slurm's TaskProlog
    TaskProlog(SlurmFolderOptions),
}

/// Standing servers whose devices Slurm gives to jobs.
#[derive(Args, Clone, Debug)]
pub(crate) struct SlurmPoolOptions {
    #[command(flatten)]
    pub(crate) servers: ServerOptions,
    #[command(flatten)]
    pub(crate) folder: SlurmFolderOptions,
    /// Licence of which one stands for a whole device
    #[arg(long, value_name = "NAME", default_value = "rgpu", value_parser = license_name)]
    pub(crate) license: String,
    /// Licence of which one stands for 1 GiB of memory of one device
    #[arg(long, value_name = "NAME", default_value = "rgpu_gib", value_parser = license_name)]
    pub(crate) memory_license: String,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct SlurmFolderOptions {
    /// Folder of each node for what jobs have to know; its parents are root's
    #[arg(long, value_name = "DIR", default_value = "/run/towline-jobs")]
    pub(crate) folder: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct SlurmSetupOptions {
    #[command(flatten)]
    pub(crate) pool: SlurmPoolOptions,
    /// Folder to write into, the same on all nodes
    #[arg(long, value_name = "DIR", default_value = "/etc/slurm/towline")]
    pub(crate) out: PathBuf,
    /// Remove what was written there
    #[arg(long)]
    pub(crate) undo: bool,
}

#[derive(Args, Debug)]
pub(crate) struct SlurmAccountOptions {
    /// Audit log of a server of the pool, as `towline serve --audit-log` wrote it
    #[arg(value_name = "FILE", required = true)]
    pub(crate) logs: Vec<PathBuf>,
    /// This job alone
    #[arg(long, value_name = "ID")]
    pub(crate) job: Option<u64>,
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// As Slurm takes them.
fn license_name(text: &str) -> Result<String, String> {
    let is_good = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    match !text.is_empty() && text.chars().all(is_good) {
        true => Ok(text.to_owned()),
        false => Err("a licence's name has letters, digits and _".into()),
    }
}

#[derive(Args, Debug)]
pub(crate) struct SlurmRunOptions {
    /// Component of a heterogeneous job whose nodes have the GPUs, counted from 0
    #[arg(long, value_name = "N")]
    pub(crate) het_group: Option<u32>,
    /// Option or value for `towline serve`, such as --serve=--session-memory=20G; may be given several times
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub(crate) serve: Vec<OsString>,
    /// Folder that all nodes of the job see, to make the job's own folder in [default: towline/jobs below ~/.local/state]
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Longest time in seconds that the servers may take to start
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub(crate) start_time: u64,
    /// Keep the job's use of devices as its comment, which `sacct` shows where the site stores comments
    #[arg(long)]
    pub(crate) comment: bool,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub(crate) program: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct SlurmServeOptions {
    /// Options for `towline serve`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) serve: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct ServeOptions {
    /// File with options, in TOML: keys are the long options without the --
    ///
    /// Options on the command line and variables come before it. SIGHUP has it read again: limits of sessions, --max-sessions,
    /// --drain-time and the secret in --token-file then hold for new sessions; all else needs a restart, and is said to.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where to listen; may be given several times [default: tcp://127.0.0.1:7140]
    ///
    /// In place of the default the server takes the sockets that systemd passes, and with addresses beside them.
    /// HOST:PORT, where port 0 takes a free one. `local` is for programs of this machine, through shared memory: the
    /// socket /run/towline/local.sock, or of a server that is not root towline/local.sock below XDG_RUNTIME_DIR. A socket
    /// elsewhere is shm:///PATH; ?mode=660&group=NAME behind it says who may use it, by default everybody on this machine
    /// where the server is root, and its own user otherwise.
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Vec<Address>,
    /// File with a secret that clients must know
    ///
    /// Needed to listen beyond this machine. Make one with: head -c 32 /dev/urandom | base64
    #[arg(long, value_name = "FILE", env = "TOWLINE_TOKEN_FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// File with tenants, their tokens and limits, in place of one token for all; `towline tenant` makes it
    ///
    /// Changes of the file act within a second. Clients name their tenant with --tenant.
    #[arg(
        long,
        value_name = "FILE",
        env = "TOWLINE_TENANTS_FILE",
        conflicts_with = "token_file"
    )]
    pub(crate) tenants_file: Option<PathBuf>,
    /// Listen beyond this machine although there is no token
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Let clients that were told the same leave encryption out
    ///
    /// The network can then read and change every byte.
    #[arg(long)]
    pub(crate) no_encryption: bool,
    /// File with the key that clients recognise this server by; made if missing
    ///
    /// By default server.key in /var/lib/towline, or for a server that is not root in ~/.local/state/towline.
    #[arg(long, value_name = "FILE", conflicts_with = "certificate")]
    pub(crate) key_file: Option<PathBuf>,
    /// Certificate of a site's authority to show to clients, in place of that key, as PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) certificate: Option<PathBuf>,
    /// Its key, as PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,
    /// Certificates of the authority that must have signed clients' certificates, as PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Another server, to pass buffers to and from without the client; may be given several times
    ///
    /// Its address as this machine reaches it. Both servers must list each other, and share --peer-token-file.
    /// Programs that use both then have them pass buffers directly, over one connection that either may open.
    #[arg(long = "peer", value_name = "ADDR", value_delimiter = ',')]
    pub(crate) peers: Vec<Address>,
    /// File with a secret that this server shares with its peers, and with no client
    ///
    /// Needed for peers beyond this machine.
    #[arg(long, value_name = "FILE")]
    pub(crate) peer_token_file: Option<PathBuf>,
    /// Longest time in seconds that sessions may go on after SIGTERM or SIGINT, while new ones are refused; a second signal ends all
    ///
    /// Without --config the same goes for SIGHUP, which a closed terminal sends, unless `nohup` has it ignored.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=604800))]
    drain_time: u64,
    /// Server that sessions move to after SIGTERM or SIGINT, as their programs' machines reach it; see `towline migrate`
    ///
    /// They have --drain-time to do so, or 600 s where that says nothing.
    #[arg(long, value_name = "ADDR")]
    pub(crate) drain_to: Option<Address>,
    /// Most sessions at once
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) max_sessions: u32,
    /// File to append a line of JSON to for each session that begins and ends, and for refused connections
    ///
    /// It is made for its owner alone, and opened anew when it has been renamed.
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_log: Option<PathBuf>,
    /// Address that tells metrics to a monitoring system such as Prometheus, over HTTP at /metrics: HOST:PORT or unix:/PATH
    ///
    /// Beyond this machine it needs --metrics-token-file, and is not encrypted. ?mode=660&group=NAME behind a path says who may read
    /// there, by default everybody on this machine where the server is root, and its own user otherwise.
    #[arg(long, value_name = "ADDR", value_parser = metrics_address)]
    pub(crate) metrics_listen: Option<Address>,
    /// File with a secret that the monitoring system must bring as its bearer token
    #[arg(long, value_name = "FILE", requires = "metrics_listen")]
    pub(crate) metrics_token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) quota: QuotaOptions,
    #[command(flatten)]
    pub(crate) limits: ServerLimitOptions,
    #[command(flatten)]
    pub(crate) backend: BackendOptions,
    /// Offer CUDA devices too: auto, off, soft, soft:N, or the path of the driver library
    ///
    /// With auto the driver is libcuda.so.1 as this system finds it, and is loaded when the first CUDA program comes.
    /// With soft it is a device in software, which needs no GPU and runs programs that bring PTX; soft:N offers N of them.
    #[arg(long, value_name = "DRIVER", default_value = "auto")]
    pub(crate) cuda: String,
    /// Tell what NVML says of the CUDA devices: auto, off, or the path of the library
    ///
    /// Programs then find temperature, power, utilisation and the like through NVML, as nvidia-smi and PyTorch do. With auto the
    /// library is libnvidia-ml.so.1 as this system finds it, and is loaded when the first program asks.
    #[arg(long, value_name = "LIBRARY", default_value = "auto")]
    pub(crate) nvml: String,
    /// Let CUDA sessions of a job reach each other, for collectives such as NCCL's next to the devices: local, or network
    ///
    /// A session asks for it, and names its job, by TOWLINE_COLLECTIVES=1 in the program's environment. With local, as without a value,
    /// workers of one job and one tenant share a network namespace and /dev/shm, and reach nothing else. With network they stay in this
    /// machine's network, for jobs that span servers: they can connect to all that this machine can, and InfiniBand is theirs too.
    /// NCCL_* variables of the server hold for them. See docs/collectives.md.
    #[arg(
        long,
        value_enum,
        value_name = "REACH",
        num_args = 0..=1,
        default_missing_value = "local"
    )]
    pub(crate) collectives: Option<CollectivesReach>,
    /// Library that they take for that, by name or path
    #[arg(
        long,
        value_name = "FILE",
        default_value = "libnccl.so.2",
        requires = "collectives"
    )]
    pub(crate) nccl: String,
    /// Make the contexts of so many CUDA devices before a client has come; 0 makes none
    ///
    /// A program then starts in less time than natively. From the first CUDA program on, one worker waits with them for the next one,
    /// and holds some hundred MiB of each device's memory. Devices in an exclusive compute mode are left alone.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) ready_contexts: usize,
    /// Keep the device code of CUDA programs in this folder too, so that it need not come again after the server was started anew
    ///
    /// It must be the server's own; what lies there is checked before it is used.
    #[arg(long, value_name = "DIR")]
    pub(crate) image_cache: Option<PathBuf>,
    /// Most bytes in that folder, or with K, M or G behind; what was used longest ago goes
    #[arg(long, value_name = "BYTES", default_value = "4G", value_parser = memory_bytes, requires = "image_cache")]
    pub(crate) image_cache_size: u64,
    /// Most memory for device code of CUDA programs, so that it need not come again over the network; 0 keeps nothing
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = memory_bytes_or_none)]
    pub(crate) image_cache_memory: u64,
    /// Most bytes of compiled kernels that are kept for later sessions of a tenant, for OpenCL and for CUDA each; 0 keeps none
    /// [default: 256M where clients prove themselves, else 0]
    ///
    /// Without a token, or a file of tenants, all clients count as one tenant: a size lets each run code that another has left there.
    #[arg(long, value_name = "BYTES", value_parser = memory_bytes_or_none)]
    pub(crate) kernel_cache: Option<u64>,
    /// Keep them in this folder, which must be for the server's user alone [default: /var/lib/towline/kernels for root, else
    /// kernels/ beside known_servers]
    #[arg(long, value_name = "DIR")]
    pub(crate) kernel_cache_folder: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) soft: SoftDeviceOptions,
    /// Run workers on these CPUs, as in 0-3,8
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<String>,
    /// Run workers on the CPUs of this NUMA node, with its memory
    #[arg(long, value_name = "N", conflicts_with = "cpus")]
    pub(crate) numa: Option<u32>,
    /// Payload connections that clients are told to open per session: 4, or 8 on machines with 16 cores and more
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=32))]
    pub(crate) payload_lanes: Option<u16>,
    /// Size of one buffer of a session's payload pool
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20,
          value_parser = clap::value_parser!(u64).range(4096..=1 << 30))]
    pub(crate) chunk_bytes: u64,
    /// Number of buffers of a session's payload pool
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=4096))]
    pub(crate) chunk_count: u32,
    /// Do not jail workers: for debugging only
    #[arg(long)]
    pub(crate) no_jail: bool,
    /// Account that workers run as when the server is root [default: a number of its own for each]
    #[arg(long, value_name = "USER", conflicts_with = "no_jail")]
    pub(crate) user: Option<String>,
    /// Serve other users and machines although workers share a user that this system does not keep apart
    ///
    /// Without root, or with --user or --no-jail, workers have one user number. Where the system has no namespaces for them, sessions
    /// can then read and change each other's files, and slow each other down; docs/threat-model.md lists it.
    #[arg(long)]
    pub(crate) shared_user: bool,
    /// File or folder that workers must be able to read although it lies below /tmp or a private folder
    #[arg(long, value_name = "PATH")]
    pub(crate) readable: Vec<PathBuf>,
    /// File to write the addresses to when clients can connect; removed at the end
    #[arg(long, value_name = "PATH")]
    pub(crate) ready_file: Option<PathBuf>,
}

/// The reach of a job's workers.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum CollectivesReach {
    /// Each other, on this machine
    Local,
    /// All that this machine reaches
    Network,
}

impl ServeOptions {
    pub(crate) fn drain_time(&self) -> Duration {
        match (self.drain_time, &self.drain_to) {
            (0, Some(_)) => MOVE_TIME,
            (seconds, _) => Duration::from_secs(seconds),
        }
    }
}

/// A Unix socket becomes an address of the transport that knows who may connect to one.
fn metrics_address(text: &str) -> Result<Address, String> {
    let usage = "write HOST:PORT, 127.0.0.1:9140 for example, or unix:/PATH";
    let address = match text.strip_prefix("unix:") {
        Some(path) if path.starts_with('/') && !path.starts_with("//") => {
            format!("shm://{path}")
        }
        Some(_) => return Err(usage.into()),
        None => format!("tcp://{text}"),
    };
    let parsed: Address = address.parse().map_err(|_| usage.to_owned())?;
    // Without a port it has got that of the server.
    match parsed.to_string() == address {
        true => Ok(parsed),
        false => Err(usage.into()),
    }
}

#[derive(Args, Debug)]
pub(crate) struct TraceOptions {
    /// Folder for the trace: new, or empty; all ranks must be able to write there
    #[arg(long, value_name = "DIR", default_value = "towline-trace")]
    pub(crate) out: PathBuf,
    /// Which MPI the program uses [default: what it is linked with, else what its launcher says]
    #[arg(long, value_enum, value_name = "FAMILY")]
    pub(crate) mpi: Option<MpiFamily>,
    /// What the time between calls is measured with
    #[arg(long, value_enum, value_name = "CLOCK", default_value_t = TraceClock::Auto)]
    pub(crate) clock: TraceClock,
    /// Most bytes of events that a rank writes; beyond that the matrix goes on without them
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub(crate) events_limit: u64,
    /// Record the matrix only
    #[arg(long)]
    pub(crate) no_replay: bool,
    /// Compute amounts in the replay are processor seconds times this
    #[arg(long, value_name = "N", default_value_t = 1_000_000_000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000_000))]
    pub(crate) flops_per_second: u64,
    /// Print the summary as JSON, as in trace.json, on standard output behind the program's own
    #[arg(long)]
    pub(crate) json: bool,
    /// Run nothing: make the files anew from the raw ones in this folder
    #[arg(long, value_name = "DIR", conflicts_with = "program")]
    pub(crate) collect: Option<PathBuf>,
    /// The launcher and its arguments, as in: mpirun -np 16 ./program
    #[arg(
        value_name = "COMMAND",
        required_unless_present = "collect",
        trailing_var_arg = true
    )]
    pub(crate) program: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum MpiFamily {
    /// Open MPI 4 and 5
    Openmpi,
    /// MPICH, Intel MPI, MVAPICH
    Mpich,
}

impl MpiFamily {
    /// As in the names of the tracing libraries.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Openmpi => "openmpi",
            Self::Mpich => "mpich",
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum TraceClock {
    /// The wall clock, but processor time where a node has more ranks than processors
    Auto,
    /// Processor time of the calling thread: right also when ranks share processors
    Cpu,
    /// The wall clock: cheaper, and right for ranks that compute with several threads on processors of their own
    Wall,
}

/// What a worker runs calls on; the same for `serve` and `worker`.
#[derive(Args, Clone, Debug)]
pub(crate) struct BackendOptions {
    /// What to run calls on
    #[arg(long, value_enum, default_value_t = BackendKind::Opencl)]
    pub(crate) backend: BackendKind,
    /// Vendor to load: a .icd file, a library by path or name, or a folder of .icd files [default: /etc/OpenCL/vendors]
    #[arg(long, value_name = "PATH")]
    pub(crate) icd: Vec<PathBuf>,
    /// Device to offer: its number in the list, or a part of its name [default: all]
    #[arg(long = "device", value_name = "SELECTOR")]
    pub(crate) devices: Vec<String>,
}

/// The word for all memory of the devices.
const WHOLE: &str = "devices";

fn session_memory(text: &str) -> Result<u64, String> {
    match text {
        WHOLE => Ok(WHOLE_DEVICES),
        text => memory_bytes_or_none(text).map_err(|why| format!("{why}, nor {WHOLE}")),
    }
}

/// The limits of one session.
#[derive(Args, Clone, Debug)]
pub(crate) struct QuotaOptions {
    /// Most device memory of a session, over all devices, or with K, M or G behind; devices: what they have; 0 limits nothing
    ///
    /// Programs are told of no more memory than this.
    #[arg(long, value_name = "BYTES", default_value = WHOLE, value_parser = session_memory)]
    session_memory: u64,
    /// Most memory of the host that a session's worker holds, or with K, M or G behind; 0 limits nothing
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = memory_bytes_or_none)]
    session_host_memory: u64,
    /// Most bytes in a session's temporary files, which lie in memory, or with K, M or G behind; 0 limits nothing
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = memory_bytes_or_none)]
    session_temporary_storage: u64,
    /// Most processes and threads of a session's worker; 0 limits nothing
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = processes)]
    session_processes: u64,
    /// Longest time in seconds that a kernel or graph of a session may run; 0 limits nothing
    ///
    /// By the clock: what other sessions take of the device counts too. One that takes longer ends its session; programs get
    /// CUDA_ERROR_LAUNCH_TIMEOUT or CL_OUT_OF_RESOURCES.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=86400))]
    kernel_time_limit: u64,
    /// Most bytes of a session's device code: modules, programs, and graphs; with K, M or G behind; 0 limits nothing
    #[arg(long, value_name = "BYTES", default_value = "4G", value_parser = memory_bytes_or_none)]
    session_code: u64,
    /// Most processors' time of the host that a session's worker takes, as in 1.5; 0 limits nothing
    #[arg(long, value_name = "N", default_value = "0", value_parser = cpu_percent)]
    session_cpus: u64,
    /// Most open files of a session's worker
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(64..=4096))]
    session_descriptors: u64,
}

impl QuotaOptions {
    pub(crate) fn quota(&self) -> Quota {
        Quota {
            device_memory_bytes: self.session_memory,
            host_memory_bytes: self.session_host_memory,
            temporary_bytes: self.session_temporary_storage,
            processes: self.session_processes,
            kernel_time_ms: self.kernel_time_limit * 1000,
            code_bytes: self.session_code,
            cpu_percent: self.session_cpus,
            descriptors: self.session_descriptors,
        }
    }
}

/// The limits of what clients take besides sessions.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServerLimitOptions {
    /// Most connections at once that only ask; one more ends the one that has been silent longest
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65536))]
    max_queries: u32,
    /// Longest time in seconds that a connection that only asks may be silent
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86400))]
    query_timeout: u64,
    /// Longest time in seconds that a client may take to open the lanes of its session, which ends then
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    lane_timeout: u64,
    /// Longest time in seconds that a session over TCP outlives a cut of its connections; 0 ends it with them
    ///
    /// The client dials again meanwhile, and the program waits. A session whose client is cut off keeps its devices' memory; it ends when
    /// another one needs its place, and at once when its client is a process of this host that has ended.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(..=86400))]
    grace: u64,
    /// Most events and allocations that a session offers to other processes at once
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    session_offers: u32,
    /// Most lines of a session's worker in the server's log in ten seconds; others are counted
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    session_log_lines: u32,
    /// Most images of device code in memory
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=65536))]
    image_cache_count: u32,
    /// Part of a device's time of each tenant that has no share of its own, in percent [default: what the shares of others leave, divided]
    #[arg(long, value_name = "PERCENT", value_parser = share)]
    default_share: Option<u8>,
    /// Host memory in which CUDA sessions keep what they had on a device that others need, or with K, M or G behind; 0: no session gives way
    ///
    /// Sessions may then have more device memory together than there is. Whole sessions take turns of two seconds and more, and programs are
    /// told of all of a device's memory as free but for their own.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = memory_bytes_or_none)]
    swap: u64,
}

impl ServerLimitOptions {
    pub(crate) fn limits(&self) -> ServerLimits {
        ServerLimits {
            queries: self.max_queries as usize,
            query_silence: Duration::from_secs(self.query_timeout),
            lanes: Duration::from_secs(self.lane_timeout),
            grace: Duration::from_secs(self.grace),
            session_offers: self.session_offers as usize,
            log_lines: self.session_log_lines,
            images: self.image_cache_count as usize,
            default_share: self.default_share,
            swap_bytes: self.swap,
        }
    }
}

/// What CUDA devices in software are like; the same for `serve` and `worker`.
#[derive(Args, Clone, Debug)]
pub(crate) struct SoftDeviceOptions {
    /// Memory of each software device, in bytes or with K, M or G behind; the host's is used as programs need it
    #[arg(long, value_name = "BYTES", default_value = "4G", value_parser = memory_bytes)]
    pub(crate) soft_memory: u64,
    /// Compute capability that software devices report, 7.5 to 9.0
    #[arg(long, value_name = "X.Y", default_value = "7.5", value_parser = capability)]
    pub(crate) soft_capability: (u32, u32),
    /// Most memory of the host that a launch on a software device may take for registers, stacks and shared memory
    #[arg(long, value_name = "BYTES", default_value = "4G", value_parser = memory_bytes)]
    pub(crate) soft_launch_memory: u64,
    /// How software devices carry kernels out
    #[arg(long, value_enum, value_name = "TIER", default_value_t = TierChoice::Auto)]
    pub(crate) soft_tier: TierChoice,
}

/// How software devices carry kernels out.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum TierChoice {
    /// Compile kernels that have enough to do, and interpret the others
    Auto,
    /// Interpret all: the reference, and the most exact reports of faults
    Interpreter,
    /// Compile all that can be compiled, at their first launch
    Jit,
}

impl SoftDeviceOptions {
    /// The arguments that say the same to a worker.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let (major, minor) = self.soft_capability;
        let mut arguments: Vec<OsString> = vec![
            "--soft-memory".into(),
            self.soft_memory.to_string().into(),
            "--soft-capability".into(),
            format!("{major}.{minor}").into(),
            "--soft-launch-memory".into(),
            self.soft_launch_memory.to_string().into(),
        ];
        if let Some(tier) = self.soft_tier.to_possible_value() {
            arguments.extend(["--soft-tier".into(), tier.get_name().into()]);
        }
        arguments
    }
}

/// Memory of a software device, or for a launch: at least what a small program needs, at most what addresses allow.
pub(crate) fn memory_bytes_or_none(text: &str) -> Result<u64, String> {
    match text {
        "0" => Ok(0),
        text => memory_bytes(text),
    }
}

pub(crate) fn memory_bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let bytes = digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit));
    match bytes {
        Some(bytes @ 0x10_0000..=0x100_0000_0000) => Ok(bytes),
        Some(_) => Err("not between 1M and 1024G".into()),
        None => Err("no number of bytes, such as 512M".into()),
    }
}

/// A worker and its driver need some dozen threads.
pub(crate) fn processes(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(count @ (0 | 64..=4_194_304)) => Ok(count),
        _ => Err("neither 0 nor a number from 64 to 4194304".into()),
    }
}

/// A share of time in percent.
pub(crate) fn share(text: &str) -> Result<u8, String> {
    match text.parse() {
        Ok(percent @ 1..=WHOLE_SHARE) => Ok(percent),
        _ => Err("no percentage from 1 to 100".into()),
    }
}

fn priorities() -> impl TypedValueParser<Value = Priority> {
    let names = Priority::ALL.map(Priority::name);
    PossibleValuesParser::new(names).map(|name| Priority::from_name(&name).unwrap_or_default())
}

/// Processors with two decimals, in hundredths.
pub(crate) fn cpu_percent(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        Ok(0.0) => Ok(0),
        Ok(cpus @ 0.01..=4096.0) => Ok((cpus * 100.0).round() as u64),
        _ => Err("neither 0 nor a number of processors from 0.01 to 4096".into()),
    }
}

fn capability(text: &str) -> Result<(u32, u32), String> {
    let found = SoftOptions::CAPABILITIES
        .into_iter()
        .find(|(major, minor)| format!("{major}.{minor}") == text);
    found.ok_or_else(|| "none of 7.5, 8.0, 8.6, 8.7, 8.9, 9.0".into())
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum BackendKind {
    /// This machine's OpenCL devices
    Opencl,
    /// A device without hardware that computes nothing: for tests and measurements
    Null,
    /// No OpenCL devices: for a server of CUDA devices
    Off,
    /// A CUDA driver: `serve` has a worker of its own kind for it
    #[value(hide = true)]
    Cuda,
    /// NVML: `serve` has one worker that asks it
    #[value(hide = true)]
    Nvml,
}

#[derive(Args, Debug)]
pub(crate) struct WatchOptions {
    /// The program's process
    pub(crate) process: u32,
    /// The file that a library makes when it starts
    pub(crate) mark: PathBuf,
    /// This is the process that watches, not the one that starts it
    #[arg(long)]
    pub(crate) detached: bool,
}

#[derive(Args, Debug)]
pub(crate) struct WorkerOptions {
    /// The CUDA driver library, `auto` for the system's, `soft:N` for devices in software, `null` for a device in host memory
    #[arg(long, value_name = "DRIVER", default_value = "auto")]
    pub(crate) cuda: String,
    /// The NVML library, `auto` for the system's, `null` for the device in host memory
    #[arg(long, value_name = "LIBRARY", default_value = "auto")]
    pub(crate) nvml: String,
    /// How many devices get a context before a client has come
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) ready_contexts: usize,
    #[command(flatten)]
    pub(crate) soft: SoftDeviceOptions,
    #[command(flatten)]
    pub(crate) backend: BackendOptions,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn declaration_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn program_keeps_its_own_options() {
        let cli = Cli::try_parse_from([
            "towline", "run", "--server", "a:1,b:2", "--", "prog", "--server", "x",
        ])
        .unwrap();
        let Command::Run(options) = cli.command else {
            panic!("not run")
        };
        assert_eq!(options.servers.servers, ["a:1", "b:2"]);
        assert_eq!(options.program, ["prog", "--server", "x"]);
    }

    #[test]
    fn several_listening_addresses_are_taken() {
        let serve = |arguments: &[&str]| match Cli::try_parse_from(arguments).unwrap().command {
            Command::Serve(options) => options
                .listen
                .iter()
                .map(Address::to_string)
                .collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        // The default is chosen once it is known that systemd passes no socket.
        assert!(serve(&["towline", "serve"]).is_empty());
        assert_eq!(
            serve(&[
                "towline",
                "serve",
                "--listen",
                "0.0.0.0:1",
                "--listen",
                "[::1]:2"
            ]),
            ["tcp://0.0.0.0:1", "tcp://[::1]:2"]
        );
    }

    #[test]
    fn metrics_address_is_a_port_or_a_socket() {
        let parsed = |text| metrics_address(text).map(|address| address.to_string());
        assert_eq!(parsed("[::1]:9140").unwrap(), "tcp://[::1]:9140");
        assert_eq!(parsed("unix:/x?mode=660").unwrap(), "shm:///x?mode=660");
        for wrong in ["127.0.0.1", "unix:x", "unix:///x", "tcp://a:1", "shm:///x"] {
            let error = parsed(wrong).unwrap_err();
            assert!(error.contains("unix:/PATH"), "{wrong}: {error}");
        }
    }

    #[test]
    fn wrong_address_says_what_to_write() {
        let error = Cli::try_parse_from(["towline", "serve", "--listen", "here:x"]).unwrap_err();
        assert!(
            error.to_string().contains("`x` is no port: write a number"),
            "{error}"
        );
        assert_eq!(error.exit_code(), 2);
    }
}
