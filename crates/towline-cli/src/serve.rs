//! `towline serve`: offer this machine's devices.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::ValueEnum;
use sha2::{Digest, Sha256};
use towline_server::supervisor::{
    CollectivesConfig, ImageConfig, JailConfig, KernelConfig, MetricsConfig, MostAhead, Reach,
    Supervisor, SupervisorConfig, TenantTable,
};
use towline_sys::cpus;
use towline_sys::jail::{UnprivilegedUser, WorkerKind};
use towline_sys::process::{
    WorkerProgram, exit_now, forbid_inspection, given_sockets, raise_descriptor_limit,
};
use towline_sys::signals::{BlockedSignals, is_hangup, signal_name};
use towline_transport::tls::{Identity, MAX_KEY_BYTES, ServerTls};
use towline_transport::{Address, PLUGINS_VARIABLE, Registry, read_secret};
use towline_wire::control::{ServerIdentity, SessionLimits, limits};

use crate::FAILURE;
use crate::cli::{BackendKind, BackendOptions, CollectivesReach, DEFAULT_LISTEN, ServeOptions};
use crate::run::NVML_LIBRARY;
use crate::table::counted;
use crate::tenants::{Follower, folder_of};
use crate::{config, notify, servers};

/// Variables that a worker inherits: those that device runtimes, loaders and our logs read. All others stay outside,
/// because a client that takes a worker over reads its environment, and secrets are often kept there.
const INHERITED: [&str; 9] = [
    "LANG",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PATH",
    "RUST_BACKTRACE",
    "TOWLINE_LOG",
    "TOWLINE_LOG_STYLE",
    "TOWLINE_SPIN_US",
    "TZ",
];
const INHERITED_PREFIXES: [&str; 21] = [
    "AMD_",
    "ASAN_",
    "CL_",
    "CUDA_",
    "CU_",
    "GPU_",
    "HIP_",
    "HSA_",
    "IGC_",
    "INTEL_",
    "LC_",
    "MESA_",
    "NEO_",
    "NV_",
    "NVIDIA_",
    "OCLGRIND_",
    "OCL_",
    "OPENCL_",
    "POCL_",
    "ROCR_",
    "RUSTICL_",
];

/// Most bytes of a tenant's compiled kernels, where nothing else is said.
const KERNEL_CACHE_BYTES: u64 = 256 << 20;

/// Variables of NCCL, which workers of jobs inherit too.
const NCCL_PREFIX: &str = "NCCL_";
/// Where other servers reach the collectives of devices in software.
const SOFT_ADDRESS: &str = "TOWLINE_SOFT_NCCL_ADDRESS";
/// Those of them that workers of jobs have where the server has none: multicast of NVLink is not for several tenants of a host, and a
/// call that connects to other ranks would keep its lane waiting for them.
const NCCL_DEFAULTS: [(&str, &str); 2] = [("NCCL_NVLS_ENABLE", "0"), ("NCCL_RUNTIME_CONNECT", "0")];

/// Variables that name folders of compiled kernels, outside the jail.
const CACHES: [&str; 5] = [
    "AMD_COMGR_CACHE_DIR",
    "CUDA_CACHE_PATH",
    "MESA_SHADER_CACHE_DIR",
    "NEO_CACHE_DIR",
    "POCL_CACHE_DIR",
];

/// In which order CUDA counts devices.
const CUDA_ORDER: &str = "CUDA_DEVICE_ORDER";

/// Payload lanes that a session may have at least, whatever the server suggests.
const MIN_MAX_PAYLOAD_LANES: u16 = 16;

/// How often the tenants file is looked at: what has changed acts after two looks.
const LOOK_PERIOD: Duration = Duration::from_millis(250);

/// Certificates that end within this time are warned of.
const CERTIFICATE_NOTICE: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// The time that a server has to end after its last session.
const END_LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn run(mut options: ServeOptions, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    // First, so that every thread has them blocked.
    let reloads = options.config.is_some();
    let signals = Signals::watch(BlockedSignals::of_server(reloads)?, reloads)?;
    // Before anything opens descriptors.
    let given = given_sockets();
    // The token is in our memory, and unjailed workers are of our user.
    forbid_inspection()?;
    raise_descriptor_limit()?;
    bind_cpus(&options)?;
    let given: Vec<_> = given
        .into_iter()
        .map(|socket| Registry::global().listen_on(socket))
        .collect::<Result<_, _>>()?;
    let file = options.config.clone();
    let mut entries = file.as_deref().map(config::entries).transpose()?;
    for listener in &given {
        let address = listener.local_address();
        if !options.listen.contains(&address) {
            options.listen.push(address);
        }
    }
    if options.listen.is_empty() {
        options.listen.push(DEFAULT_LISTEN.parse()?);
    }
    let (tenants, table) = tenants(&options)?;
    let config = supervisor_config(&options, table, tenants.clone())?;
    let supervisor = match Supervisor::start_unless(config, given, &signals.ending) {
        Err(_) if signals.ending.load(Ordering::Acquire) => return Ok(ExitCode::SUCCESS),
        result => result.context("could not serve")?,
    };
    let addresses: Vec<String> = supervisor
        .addresses()
        .iter()
        .map(Address::to_string)
        .collect();
    let ready = options
        .ready_file
        .as_deref()
        .map(|file| ReadyFile::write(file, &addresses))
        .transpose()?;
    let mut out = std::io::stdout().lock();
    for address in &addresses {
        // Whoever started us may have closed the pipe after reading one line.
        let _ = writeln!(out, "towline: serving on {address}");
    }
    let _ = out.flush();
    drop(out);
    notify::ready();
    let mut drain_time = options.drain_time();
    loop {
        match signals.next_within(LOOK_PERIOD)? {
            Some(Wish::End) => break,
            Some(Wish::Reload) => {
                notify::reloading();
                if let Some(entries) = &mut entries {
                    match reload(arguments, entries, &supervisor) {
                        Ok(limit) => drain_time = limit,
                        Err(error) => log::error!("{error:#}; the configuration stays as it was"),
                    }
                }
                notify::ready();
            }
            None if supervisor.is_drained() => break,
            None => {}
        }
        if let Some(tenants) = &tenants {
            tenants.look(&supervisor);
        }
    }
    drop(ready);
    notify::stopping(drain_time + END_LIMIT);
    drain(drain_time, options.drain_to.as_ref(), &supervisor, tenants);
    supervisor.stop();
    Ok(ExitCode::SUCCESS)
}

/// Has what can change in a running server follow its configuration; gives how long sessions may go on at its end.
fn reload(
    arguments: &[OsString],
    entries: &mut toml::Table,
    supervisor: &Supervisor,
) -> anyhow::Result<Duration> {
    let options = config::serve_options(arguments)?;
    let token = options.token_file.as_deref().map(servers::read_token);
    if token
        .transpose()?
        .is_some_and(|token| !supervisor.set_token(token))
    {
        bail!("clients were not asked for a secret so far; start the server anew");
    }
    supervisor.set_limits(options.max_sessions, options.quota.quota());
    let file = options.config.as_deref().context("there is no file")?;
    let before = std::mem::replace(entries, config::entries(file)?);
    let late = config::changed_for_restart(&before, entries);
    if !late.is_empty() {
        log::warn!(
            "{}: changes of these act at the next start",
            late.join(", ")
        );
    }
    log::info!("read {} again", file.display());
    Ok(options.drain_time())
}

/// Lets sessions go on, or move to another server, for some time, and no new ones begin.
fn drain(
    limit: Duration,
    to: Option<&Address>,
    supervisor: &Supervisor,
    tenants: Option<Arc<Follower>>,
) {
    if limit.is_zero() {
        return;
    }
    supervisor.drain();
    let sessions = supervisor.sessions();
    if sessions > 0 {
        log::info!(
            "waiting for {} to end, at most {} s",
            counted(sessions, "session"),
            limit.as_secs()
        );
    }
    if let Some(to) = to {
        supervisor.migrate_all(to);
    }
    let deadline = Instant::now() + limit;
    while supervisor.sessions() > 0 {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let left = supervisor.sessions();
            let have = if left == 1 { "has" } else { "have" };
            log::warn!("{} {have} not ended in time", counted(left, "session"));
            return;
        }
        std::thread::sleep(LOOK_PERIOD.min(left));
        if let Some(tenants) = &tenants {
            tenants.look(supervisor);
        }
    }
}

/// A signal's request.
enum Wish {
    End,
    Reload,
}

/// Signals, from start-up on.
struct Signals {
    /// The end was asked for.
    ending: Arc<AtomicBool>,
    wishes: Receiver<Wish>,
}

impl Signals {
    /// Has a thread wait for them. The first of termination asks for an orderly end; the second ends this process as it is. SIGHUP is one of
    /// termination where there is no file to read again.
    fn watch(signals: BlockedSignals, reloads: bool) -> anyhow::Result<Self> {
        let ending = Arc::new(AtomicBool::new(false));
        let (sender, wishes) = mpsc::channel();
        let flag = Arc::clone(&ending);
        let watch = move || {
            while let Ok(signal) = signals.wait() {
                // The receiver is gone when nothing runs any more.
                if is_hangup(signal) && reloads {
                    let _ = sender.send(Wish::Reload);
                    continue;
                }
                // The shell and the system both tell of a terminal that closes.
                if is_hangup(signal) && flag.load(Ordering::Acquire) {
                    continue;
                }
                if flag.swap(true, Ordering::AcqRel) {
                    log::error!("{} again: leaving at once", signal_name(signal));
                    // Workers die with us; the next server removes their folders.
                    exit_now(FAILURE.into());
                }
                log::info!("{}: shutting down", signal_name(signal));
                let _ = sender.send(Wish::End);
            }
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(watch)
            .context("could not start a thread")?;
        Ok(Self { ending, wishes })
    }

    fn next_within(&self, limit: Duration) -> anyhow::Result<Option<Wish>> {
        match self.wishes.recv_timeout(limit) {
            Ok(wish) => Ok(Some(wish)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("could not wait for signals"),
        }
    }
}

/// Binds this process, and so every worker.
fn bind_cpus(options: &ServeOptions) -> anyhow::Result<()> {
    if let Some(list) = &options.cpus {
        let numbers =
            cpus::parse_list(list).map_err(|reason| anyhow::anyhow!("--cpus: {reason}"))?;
        cpus::bind(&numbers).with_context(|| match cpus::online() {
            Some(online) => format!("--cpus {list}: this machine has CPUs {online}"),
            None => format!("--cpus {list}"),
        })?;
    }
    if let Some(node) = options.numa {
        cpus::bind(&cpus::of_numa_node(node)?)?;
        cpus::prefer_memory_of(node)?;
    }
    Ok(())
}

/// The tenants of this server, and the follower of their file, if there is one.
fn tenants(options: &ServeOptions) -> anyhow::Result<(Option<Arc<Follower>>, TenantTable)> {
    let Some(file) = &options.tenants_file else {
        let token = options.token_file.as_deref();
        let token = token.map(servers::read_token).transpose()?;
        return Ok((None, TenantTable::single(token)));
    };
    let (follower, entries) = Follower::start(&std::path::absolute(file)?)?;
    Ok((Some(Arc::new(follower)), TenantTable::listed(entries)))
}

fn supervisor_config(
    options: &ServeOptions,
    tenants: TenantTable,
    leases: Option<Arc<Follower>>,
) -> anyhow::Result<SupervisorConfig> {
    let kernels = kernels(options)?;
    let peer_token = options
        .peer_token_file
        .as_deref()
        .map(servers::read_token)
        .transpose()?;
    let (identity, key_lasts) = identity(options)?;
    let authority = options.ca.as_deref();
    let tls = ServerTls {
        identity,
        authority: authority
            .map(servers::read_file_of_certificates)
            .transpose()?,
    };
    let user = options
        .user
        .as_deref()
        .map(UnprivilegedUser::named)
        .transpose()?;
    if [BackendKind::Cuda, BackendKind::Nvml].contains(&options.backend.backend) {
        bail!("--backend: CUDA devices are offered beside the others; see --cuda and --nvml");
    }
    if options.backend.backend == BackendKind::Off && options.cuda == "off" {
        bail!("--backend off and --cuda off: that leaves no device to offer");
    }
    if options.peers.len() > limits::PEERS {
        bail!("--peer: a server has at most {} peers", limits::PEERS);
    }
    if user.as_ref().is_some_and(|user| user.uid == 0) {
        bail!("--user: workers must not run as root");
    }
    let payload_lanes = options.payload_lanes.unwrap_or_else(|| {
        // One connection moves 4 to 7 GB/s over loopback (H200 machine of 16 cores): four have 15, eight 24 to 30.
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        if cores >= 16 { 8 } else { 4 }
    });
    Ok(SupervisorConfig {
        listen: options.listen.clone(),
        tenants: Arc::new(tenants),
        leases: leases.map(|leases| leases as _),
        tls,
        no_encryption: options.no_encryption,
        insecure: options.insecure,
        peer_token,
        peers: options.peers.clone(),
        max_sessions: options.max_sessions,
        audit_log: options
            .audit_log
            .as_deref()
            .map(std::path::absolute)
            .transpose()?,
        metrics: metrics(options)?,
        quota: options.quota.quota(),
        bounds: options.limits.limits(),
        limits: SessionLimits {
            max_lanes: 1 + payload_lanes.max(MIN_MAX_PAYLOAD_LANES),
            payload_lanes,
            chunk_bytes: options.chunk_bytes,
            chunk_count: options.chunk_count,
        },
        worker: opencl_worker(options)?,
        cuda_worker: cuda_worker(options)?,
        cuda_is_expected: options.cuda != "auto",
        collectives: collectives(options)?,
        most_ahead: most_ahead(options)?,
        nvml_worker: nvml_worker(options)?,
        images: ImageConfig {
            memory_bytes: options.image_cache_memory,
            folder: options
                .image_cache
                .clone()
                .map(|folder| (folder, options.image_cache_size)),
        },
        jail: JailConfig {
            disabled: options.no_jail,
            user,
            keep_readable: keep_readable(options)?,
            hide: hide(options, kernels.as_ref()),
            shared_user: options.shared_user,
        },
        kernels,
        identity: ServerIdentity {
            name: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            software: concat!("towline ", env!("CARGO_PKG_VERSION")).to_owned(),
            key_lasts,
            // The supervisor knows.
            collectives: false,
        },
    })
}

/// The way in which CUDA sessions of a job reach each other.
fn collectives(options: &ServeOptions) -> anyhow::Result<Option<CollectivesConfig>> {
    let Some(reach) = options.collectives else {
        return Ok(None);
    };
    if options.cuda == "off" {
        bail!("--collectives: they are between CUDA devices, and --cuda off offers none");
    }
    // A bare name is the loader's to look up; workers run in /.
    let path = Path::new(&options.nccl);
    let (library, keep_readable) = match path.components().count() {
        1 => (options.nccl.clone(), Vec::new()),
        _ => {
            let path = path
                .canonicalize()
                .with_context(|| format!("could not find {} (--nccl)", path.display()))?;
            let name = path
                .to_str()
                .with_context(|| format!("{} is no UTF-8 (--nccl)", path.display()))?;
            (name.to_owned(), vec![path])
        }
    };
    let ours = std::env::vars_os();
    let ours = ours.filter(|(name, _)| {
        let name = name.to_str();
        name.is_some_and(|name| name.starts_with(NCCL_PREFIX) || name == SOFT_ADDRESS)
    });
    let mut environment: Vec<(OsString, OsString)> = ours.collect();
    for (name, value) in NCCL_DEFAULTS {
        if std::env::var_os(name).is_none() {
            environment.push((name.into(), value.into()));
        }
    }
    Ok(Some(CollectivesConfig {
        reach: match reach {
            CollectivesReach::Local => Reach::Local,
            CollectivesReach::Network => Reach::Network,
        },
        library,
        environment,
        keep_readable,
    }))
}

/// The place of the metrics, and their secret.
fn metrics(options: &ServeOptions) -> anyhow::Result<Option<MetricsConfig>> {
    let token = options.metrics_token_file.as_deref();
    let token = token.map(servers::read_token).transpose()?;
    let listen = options.metrics_listen.clone();
    Ok(listen.map(|listen| MetricsConfig { listen, token }))
}

/// How compiled kernels are kept; the folder is made.
fn kernels(options: &ServeOptions) -> anyhow::Result<Option<KernelConfig>> {
    // Its clients, and a server of the same user with others, have nothing of each other's.
    let scope = match (&options.tenants_file, &options.token_file) {
        (Some(file), _) => format!("tenants {}", std::path::absolute(file)?.display()),
        (None, Some(file)) => {
            let token = read_secret(file, MAX_KEY_BYTES);
            let token = token.with_context(|| format!("could not read {}", file.display()))?;
            let digest = Sha256::digest(token.trim_ascii());
            let digest = digest.iter().map(|byte| format!("{byte:02x}"));
            format!("token {}", digest.collect::<String>())
        }
        (None, None) => "everybody".to_owned(),
    };
    let is_asked = options.tenants_file.is_some() || options.token_file.is_some();
    let usual = if is_asked { KERNEL_CACHE_BYTES } else { 0 };
    let bytes = options.kernel_cache.unwrap_or(usual);
    if bytes == 0 {
        return Ok(None);
    }
    let usual = match rustix::process::geteuid().is_root() {
        true => Some(PathBuf::from("/var/lib/towline/kernels")),
        false => towline_client::access::usual_known_servers()
            .map(|known| known.with_file_name("kernels")),
    };
    let Some(folder) = options.kernel_cache_folder.clone().or(usual) else {
        log::warn!(
            "compiled kernels are not kept: there is no home folder; give --kernel-cache-folder"
        );
        return Ok(None);
    };
    let mut made = DirBuilder::new();
    let made = made.recursive(true).mode(0o700).create(&folder);
    match made.and_then(|()| folder.canonicalize()) {
        Ok(folder) => Ok(Some(KernelConfig {
            folder,
            bytes,
            scope,
        })),
        Err(error) if options.kernel_cache_folder.is_none() => {
            log::warn!(
                "compiled kernels are not kept: cannot make {}: {error}; give --kernel-cache-folder",
                folder.display()
            );
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| {
            format!(
                "could not make {} (--kernel-cache-folder)",
                folder.display()
            )
        }),
    }
}

/// A worker that waits costs a software device a few MiB of memory, and a driver some hundred MiB of each device's.
fn most_ahead(options: &ServeOptions) -> anyhow::Result<MostAhead> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let several = (2 * processors).min(16);
    let cuda_in_software = options.cuda == "null" || soft_devices(&options.cuda)?.is_some();
    Ok(MostAhead {
        opencl: match options.backend.backend {
            BackendKind::Null => several,
            _ => 2,
        },
        cuda: if cuda_in_software { several } else { 1 },
    })
}

/// The key that clients recognise this server by, and whether it is the same at the next start.
fn identity(options: &ServeOptions) -> anyhow::Result<(Identity, bool)> {
    if let (Some(certificate), Some(key)) = (&options.certificate, &options.key) {
        let identity = servers::identity(certificate, key)?;
        if let Some(warning) = warning_of_end(identity.end(), jiff::Timestamp::now()) {
            log::warn!("{}: {warning}", certificate.display());
        }
        return Ok((identity, true));
    }
    if let Some(file) = &options.key_file {
        return Ok((kept_key(file)?, true));
    }
    // Clients keep no key of loopback addresses.
    let reached = |address: &Address| {
        let transport = Registry::global().get(address.scheme());
        transport.is_ok_and(|transport| transport.capabilities().over_network)
            && !address.is_loopback()
    };
    if !options.listen.iter().any(reached) {
        return Ok((Identity::generate()?.0, false));
    }
    match usual_key_file().map(|file| kept_key(&file)) {
        Some(Ok(identity)) => Ok((identity, true)),
        unusable => {
            let why = match unusable {
                Some(Err(error)) => format!("{error:#}"),
                _ => "there is no home folder".into(),
            };
            log::warn!(
                "clients cannot recognise this server when it starts anew: {why}; give --key-file"
            );
            Ok((Identity::generate()?.0, false))
        }
    }
}

/// The warning of a certificate that ends at a second since 1970, where one is due.
fn warning_of_end(end: Option<u64>, now: jiff::Timestamp) -> Option<String> {
    let end = jiff::Timestamp::from_second(i64::try_from(end?).ok()?).ok()?;
    let day = end.strftime("%F");
    if end < now {
        return Some(format!(
            "the certificate ended on {day}: clients with --ca refuse this server; have it renewed"
        ));
    }
    let is_soon = end.duration_since(now).as_secs() < CERTIFICATE_NOTICE.as_secs() as i64;
    is_soon.then(|| {
        format!("the certificate ends on {day}: have it renewed, and start the server anew")
    })
}

fn usual_key_file() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some("/var/lib/towline/server.key".into());
    }
    let known = towline_client::access::usual_known_servers()?;
    Some(known.with_file_name("server.key"))
}

/// The key in a file, which is made where there is none.
fn kept_key(file: &Path) -> anyhow::Result<Identity> {
    let action = || format!("could not use the key in {}", file.display());
    if !file.exists() {
        let folder = file.parent().unwrap_or(Path::new("."));
        let mut made = DirBuilder::new();
        made.recursive(true)
            .mode(0o700)
            .create(folder)
            .with_context(action)?;
        // Under its name only when it is whole; of two servers that start at once the second takes the key of the first.
        let mut new = tempfile::NamedTempFile::new_in(folder).with_context(action)?;
        new.write_all(&Identity::generate()?.1)
            .with_context(action)?;
        match new.persist_noclobber(file) {
            Err(error) if error.error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(error.error).with_context(action);
            }
            _ => {}
        }
    }
    let key = read_secret(file, MAX_KEY_BYTES).with_context(action)?;
    Identity::from_key(&key).with_context(action)
}

/// How to start a worker for OpenCL.
fn opencl_worker(options: &ServeOptions) -> anyhow::Result<Option<WorkerProgram>> {
    if options.backend.backend == BackendKind::Off {
        return Ok(None);
    }
    Ok(Some(WorkerProgram {
        path: WorkerProgram::this_program(),
        arguments: worker_arguments(&options.backend)?,
        environment: worker_environment(options),
        kind: WorkerKind::OpenCl,
    }))
}

/// How to start a worker for CUDA.
fn cuda_worker(options: &ServeOptions) -> anyhow::Result<Option<WorkerProgram>> {
    if options.cuda == "off" {
        return Ok(None);
    }
    let mut arguments: Vec<OsString> = ["worker", "--backend", "cuda", "--cuda"]
        .map(OsString::from)
        .into();
    arguments.push(match library_path("--cuda", &options.cuda)? {
        Some(path) => path.into(),
        None => options.cuda.clone().into(),
    });
    arguments.extend(options.soft.arguments());
    arguments.extend([
        "--ready-contexts".into(),
        options.ready_contexts.to_string().into(),
    ]);
    for device in &options.backend.devices {
        arguments.extend(["--device".into(), device.into()]);
    }
    let mut environment = worker_environment(options);
    if !options.backend.devices.is_empty() && std::env::var_os(CUDA_ORDER).is_none() {
        // NVML counts devices by their places; so a number means the same device to both.
        environment.push((CUDA_ORDER.into(), "PCI_BUS_ID".into()));
    }
    let native = soft_devices(&options.cuda)?.is_none() && options.cuda != "null";
    Ok(Some(WorkerProgram {
        path: WorkerProgram::this_program(),
        arguments,
        environment,
        kind: if native {
            WorkerKind::Cuda
        } else {
            WorkerKind::SoftCuda
        },
    }))
}

/// How to start the worker that asks NVML: of the devices that CUDA offers, and so not without CUDA.
fn nvml_worker(options: &ServeOptions) -> anyhow::Result<Option<WorkerProgram>> {
    let soft = soft_devices(&options.cuda)?.is_some();
    let library = match (options.cuda.as_str(), options.nvml.as_str()) {
        ("off", _) | (_, "off") => return Ok(None),
        // This machine's library knows nothing of devices in software.
        (_, "auto") if soft => return Ok(None),
        ("null", "auto") => "null".into(),
        (_, named) => match library_path("--nvml", named)? {
            // It does not load in a worker, which has no driver library of Towline's.
            Some(path) if path.file_name() == Some(NVML_LIBRARY.as_ref()) => bail!(
                "--nvml: {} is Towline's own library, for clients; name the driver's, usually libnvidia-ml.so.1 beside libcuda.so.1, or leave \
                 the option out",
                path.display()
            ),
            Some(path) => path.into_os_string(),
            None => named.into(),
        },
    };
    let mut arguments: Vec<OsString> = ["worker", "--backend", "nvml", "--nvml"]
        .map(OsString::from)
        .into();
    arguments.push(library);
    for device in &options.backend.devices {
        arguments.extend(["--device".into(), device.into()]);
    }
    Ok(Some(WorkerProgram {
        path: WorkerProgram::this_program(),
        arguments,
        environment: worker_environment(options),
        kind: WorkerKind::Nvml,
    }))
}

/// How many software devices `soft` or `soft:N` asks for; `None` where it is neither.
pub(crate) fn soft_devices(cuda: &str) -> anyhow::Result<Option<usize>> {
    let count = match cuda.strip_prefix("soft") {
        Some("") => Some(1),
        Some(rest) => match rest.strip_prefix(':') {
            Some(count) => count.parse().ok(),
            None => return Ok(None),
        },
        None => return Ok(None),
    };
    match count {
        Some(count @ 1..=64) => Ok(Some(count)),
        _ => bail!("--cuda {cuda}: software devices are soft or soft:N, with N from 1 to 64"),
    }
}

/// The library that an option names, by absolute path: workers run in /.
fn library_path(option: &str, named: &str) -> anyhow::Result<Option<PathBuf>> {
    if ["auto", "off", "null"].contains(&named) || soft_devices(named)?.is_some() {
        return Ok(None);
    }
    let path = Path::new(named);
    let path = path
        .canonicalize()
        .with_context(|| format!("could not find {} ({option})", path.display()))?;
    Ok(Some(path))
}

fn worker_arguments(backend: &BackendOptions) -> anyhow::Result<Vec<OsString>> {
    let kind = backend
        .backend
        .to_possible_value()
        .context("every backend has a name")?;
    let mut arguments: Vec<OsString> =
        vec!["worker".into(), "--backend".into(), kind.get_name().into()];
    for icd in &backend.icd {
        arguments.extend(["--icd".into(), found(icd)?.into()]);
    }
    for device in &backend.devices {
        arguments.extend(["--device".into(), device.into()]);
    }
    Ok(arguments)
}

/// A vendor as workers, which run in /, find it: by absolute path, or a library's bare name for the system's loader to look up.
fn found(icd: &Path) -> anyhow::Result<PathBuf> {
    let bare = icd.components().count() == 1
        && icd.to_str().is_some_and(|name| {
            name.ends_with(".so") || (name.contains(".so.") && !name.starts_with('.'))
        });
    if bare && !icd.exists() {
        return Ok(icd.to_owned());
    }
    icd.canonicalize()
        .with_context(|| format!("could not find {} (--icd)", icd.display()))
}

fn worker_environment(options: &ServeOptions) -> Vec<(OsString, OsString)> {
    let inherited = |name: &str| {
        INHERITED.contains(&name)
            || INHERITED_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix))
    };
    let mut environment: Vec<(OsString, OsString)> = std::env::vars_os()
        .filter(|(name, _)| name.to_str().is_some_and(inherited))
        // Kernel caches belong into the worker's own home, or its tenant's store.
        .filter(|(name, _)| !CACHES.iter().any(|cache| name == cache))
        .collect();
    // Lanes arrive over every transport that we listen with; workers run in /.
    let plugins = std::env::var_os(PLUGINS_VARIABLE).unwrap_or_default();
    let absolute =
        std::env::split_paths(&plugins).filter_map(|path| std::path::absolute(path).ok());
    if let Ok(plugins) = std::env::join_paths(absolute)
        && !plugins.is_empty()
    {
        environment.push((PLUGINS_VARIABLE.into(), plugins));
    }
    // PoCL counts the CPUs of the machine, not those it may run on.
    let bound = options.cpus.is_some() || options.numa.is_some();
    if bound
        && std::env::var_os("POCL_MAX_PTHREAD_COUNT").is_none()
        && let Ok(count) = std::thread::available_parallelism()
    {
        environment.push(("POCL_MAX_PTHREAD_COUNT".into(), count.to_string().into()));
    }
    environment
}

/// What the worker's own user must be able to read: vendor libraries that do not lie in a system folder.
fn keep_readable(options: &ServeOptions) -> anyhow::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    if options.backend.backend == BackendKind::Opencl {
        for icd in &options.backend.icd {
            // The loader knows where the others lie, and they are for everybody to read there.
            paths.extend(Some(found(icd)?).filter(|path| path.is_absolute()));
        }
        if options.backend.icd.is_empty() {
            let named = ["OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH"]
                .iter()
                .find_map(std::env::var_os);
            paths.extend(named.map(PathBuf::from).filter(|folder| folder.exists()));
        }
        let vendors = paths
            .iter()
            .map(PathBuf::as_path)
            .chain([Path::new("/etc/OpenCL/vendors")]);
        let libraries: Vec<PathBuf> = vendors.flat_map(libraries_of).collect();
        let folders = libraries
            .iter()
            .filter_map(|library| library.parent())
            .filter(|folder| folder.exists());
        paths.extend(folders.map(Path::to_owned).collect::<Vec<_>>());
        let search = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        paths.extend(
            std::env::split_paths(&search).filter(|folder| folder.is_absolute() && folder.is_dir()),
        );
    }
    paths.extend(library_path("--cuda", &options.cuda)?);
    paths.extend(library_path("--nvml", &options.nvml)?);
    for path in &options.readable {
        paths.push(
            path.canonicalize()
                .with_context(|| format!("could not find {} (--readable)", path.display()))?,
        );
    }
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// What a worker must not see even when it has our own user: our secret, and our home, wherever that is.
fn hide(options: &ServeOptions, kernels: Option<&KernelConfig>) -> Vec<PathBuf> {
    let key_file = options.key_file.clone().or_else(usual_key_file);
    // A file that takes the place of the tenants file is hidden with its folder only.
    let tenants_file = options.tenants_file.as_deref();
    let tenants_file = tenants_file.map(|file| match folder_of(file).metadata() {
        Ok(folder) if folder.mode() & 0o077 == 0 => folder_of(file).to_owned(),
        _ => file.to_owned(),
    });
    let secrets = [
        options.token_file.as_ref(),
        tenants_file.as_ref(),
        options.peer_token_file.as_ref(),
        options.metrics_token_file.as_ref(),
        options.key.as_ref(),
        key_file.as_ref(),
    ];
    let secrets = secrets.into_iter().flatten();
    let secrets = secrets.filter_map(|file| file.canonicalize().ok());
    let home = std::env::var_os("HOME").and_then(|home| PathBuf::from(home).canonicalize().ok());
    // Accounts of services have homes like / and /usr/sbin.
    let system = [
        "/bin", "/dev", "/etc", "/lib", "/lib64", "/nix", "/opt", "/proc", "/sbin", "/sys", "/usr",
    ];
    let home = home.filter(|home| {
        home.parent().is_some() && !system.iter().any(|folder| home.starts_with(folder))
    });
    let images = options.image_cache.as_ref();
    let images = images.and_then(|folder| folder.canonicalize().ok());
    let kernels = kernels.map(|kernels| kernels.folder.clone());
    secrets.chain(home).chain(images).chain(kernels).collect()
}

/// The libraries, by absolute path, that a library, a `.icd` file or a folder of them names.
fn libraries_of(icd: &Path) -> Vec<PathBuf> {
    if icd.is_dir() {
        let entries = std::fs::read_dir(icd)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        let files =
            entries.filter(|path| path.extension().is_some_and(|extension| extension == "icd"));
        return files.flat_map(|file| libraries_of(&file)).collect();
    }
    if icd.extension().is_none_or(|extension| extension != "icd") {
        return vec![icd.to_owned()];
    }
    let named = std::fs::read_to_string(icd)
        .ok()
        .and_then(|text| Some(PathBuf::from(text.lines().next()?.trim())));
    named
        .filter(|library| library.is_absolute())
        .into_iter()
        .collect()
}

/// The file that says where we listen; gone when we do not any more.
struct ReadyFile {
    path: PathBuf,
}

impl ReadyFile {
    fn write(path: &Path, addresses: &[String]) -> anyhow::Result<Self> {
        let action = || format!("could not write the ready file {}", path.display());
        // Moved into place whole: whoever waits for it never reads half of it.
        let mut draft = path.as_os_str().to_owned();
        draft.push(".new");
        std::fs::write(&draft, addresses.join("\n") + "\n").with_context(action)?;
        std::fs::rename(&draft, path).with_context(action)?;
        Ok(Self {
            path: path.to_owned(),
        })
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            log::debug!("{}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_file_comes_and_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ready");
        let file = ReadyFile::write(
            &path,
            &["tcp://127.0.0.1:7140".into(), "tcp://[::1]:7140".into()],
        )
        .unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "tcp://127.0.0.1:7140\ntcp://[::1]:7140\n"
        );
        drop(file);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn ends_of_certificates_are_told_in_time() {
        let now: jiff::Timestamp = "2026-11-28T12:00:00Z".parse().unwrap();
        let warning = |end: &str| {
            let end: jiff::Timestamp = end.parse().unwrap();
            warning_of_end(u64::try_from(end.as_second()).ok(), now)
        };
        assert_eq!(warning("2026-12-20T00:00:00Z"), None);
        let soon = warning("2026-12-10T00:00:00Z").unwrap();
        assert!(soon.contains("ends on 2026-12-10"), "{soon}");
        let past = warning("2026-11-27T00:00:00Z").unwrap();
        assert!(past.contains("ended on 2026-11-27"), "{past}");
        assert_eq!(warning_of_end(None, now), None);
    }

    #[test]
    fn own_nvml_library_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(NVML_LIBRARY);
        std::fs::write(&file, "").unwrap();
        let given = options(&["--cuda", "null", "--nvml", file.to_str().unwrap()]);
        let error = nvml_worker(&given).unwrap_err().to_string();
        assert!(error.contains("Towline's own library"), "{error}");
    }

    fn options(arguments: &[&str]) -> ServeOptions {
        let all = ["towline", "serve"].iter().chain(arguments);
        let all: Vec<OsString> = all.map(OsString::from).collect();
        config::serve_options(&all).unwrap()
    }

    #[test]
    fn collectives_are_off_unless_asked_for() {
        assert!(collectives(&options(&[])).unwrap().is_none());
        let error = collectives(&options(&["--collectives", "--cuda", "off"]));
        assert!(error.unwrap_err().to_string().contains("--cuda off"));
    }

    #[test]
    fn workers_of_jobs_have_the_defaults_of_nccl() {
        let given = collectives(&options(&["--collectives"])).unwrap().unwrap();
        assert_eq!(given.reach, Reach::Local);
        assert_eq!(given.library, "libnccl.so.2");
        assert!(given.keep_readable.is_empty());
        for (name, value) in NCCL_DEFAULTS {
            let of_name = |(known, _): &&(OsString, OsString)| known == name;
            let found: Vec<_> = given.environment.iter().filter(of_name).collect();
            assert_eq!(found.len(), 1, "{name}");
            let ours = std::env::var_os(name).unwrap_or_else(|| value.into());
            assert_eq!(found[0].1, ours);
        }
    }

    #[test]
    fn library_of_collectives_stays_readable() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libnccl.so.2");
        let path = file.to_str().unwrap();
        let network = ["--collectives", "network", "--nccl", path];
        let missing = collectives(&options(&network)).unwrap_err();
        assert!(missing.to_string().contains("(--nccl)"), "{missing}");
        std::fs::write(&file, "").unwrap();
        let given = collectives(&options(&network)).unwrap().unwrap();
        assert_eq!(given.reach, Reach::Network);
        let real = file.canonicalize().unwrap();
        assert_eq!(Path::new(&given.library), real);
        assert_eq!(given.keep_readable, [real]);
    }

    #[test]
    fn vendor_libraries_are_found_through_their_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.icd"), "/opt/vendor/lib/liba.so\n").unwrap();
        std::fs::write(folder.path().join("b.icd"), "libb.so.1\n").unwrap();
        std::fs::write(folder.path().join("notes.txt"), "/opt/other\n").unwrap();
        assert_eq!(
            libraries_of(folder.path()),
            [PathBuf::from("/opt/vendor/lib/liba.so")]
        );
        assert_eq!(
            libraries_of(Path::new("/opt/libc.so")),
            [PathBuf::from("/opt/libc.so")]
        );
    }

    #[test]
    fn a_bare_library_name_is_left_to_the_loader_and_a_path_must_exist() {
        let name = Path::new("libsome_vendor.so.2");
        assert_eq!(found(name).unwrap(), name);
        assert!(found(Path::new("./libsome_vendor.so.2")).is_err());
        assert!(found(Path::new("some_vendor.icd")).is_err());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libvendor.so");
        std::fs::write(&file, "").unwrap();
        assert_eq!(found(&file).unwrap(), file.canonicalize().unwrap());
    }
}
