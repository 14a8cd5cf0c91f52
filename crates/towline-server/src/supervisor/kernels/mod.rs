//! Compiled kernels of a tenant's sessions, kept for its later sessions: a store per tenant and kind of worker.
//!
//! While a tenant has sessions, its store is a file system in memory ([`SharedFiles`]) that all its workers write to, as compilers of one
//! user do natively; the kernel holds it to the limit of a session's temporary files. From there a thread copies to disk what is new,
//! within `--kernel-cache`, and from disk comes what a store begins with. So workers never have a folder on disk, and whatever they
//! leave there, this process follows no link ([`tree`]) and keeps plain files with plain names ([`disk`]).
//!
//! A session may write anything into its tenant's store: others of the tenant then run it. No other tenant ever sees it.

mod disk;
mod tree;

use std::collections::{BTreeMap, HashMap};
use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use sha2::{Digest, Sha256};
use towline_sys::SysError;
use towline_sys::jail::WorkerKind;
use towline_sys::shared_files::{SharedFiles, Sharers};

use self::disk::{Disk, Kept};
use self::tree::{Found, Stamp, Usage};
use super::tenant::Tenant;
use super::worker::Worker;
use super::{SupervisorConfig, SupervisorError, lock, spawn};

/// Most files of a store on disk: some thousand programs.
const FILES: usize = 16384;
/// Most files and folders of a store in memory.
const INODES: u64 = 65536;
/// How often stores in use are looked at.
const LOOK_PERIOD: Duration = Duration::from_secs(2);
/// How long a file stays as it is before it counts as finished while its session lives.
const SETTLED: Duration = Duration::from_secs(2);
/// How exactly the last use of a file is noted on disk.
const USE_PERIOD: Duration = Duration::from_secs(60);
/// In which time a store may copy as many bytes to disk as it may have there: a session could change its files without end.
const COPY_PERIOD: Duration = Duration::from_secs(60);
/// How long a session waits for its tenant's store to come from disk: it then begins with what has come.
const LOAD_LIMIT: Duration = Duration::from_millis(250);
/// How many stores come from disk when the server starts: those used last.
const LOADED_AHEAD: usize = 16;
/// How long a store stays in memory without a session.
const IDLE_LIMIT: Duration = Duration::from_secs(600);

/// How compiled kernels are kept for later sessions of a tenant.
#[derive(Clone, Debug)]
pub struct KernelConfig {
    /// Where they outlive the server: a folder of this user alone.
    pub folder: PathBuf,
    /// Most bytes of a tenant, for each kind of worker.
    pub bytes: u64,
    /// Tells the tenants of this server from those of another that has the same folder and the same names.
    pub scope: String,
}

/// The stores of all tenants.
pub(super) struct KernelStores {
    config: KernelConfig,
    /// Most bytes of a store while it has sessions; 0 limits nothing.
    live_bytes: u64,
    sharers: Sharers,
    state: Mutex<State>,
    /// For the thread that saves.
    changed: Condvar,
    saver: Mutex<Option<JoinHandle<()>>>,
    /// Whether it was logged why there is none.
    told: AtomicBool,
}

#[derive(Default)]
struct State {
    stores: BTreeMap<String, Arc<Store>>,
    stopping: bool,
}

/// One store.
struct Store {
    tenant: u64,
    files: SharedFiles,
    disk: Disk,
    limit: u64,
    sessions: Mutex<Sessions>,
    /// Once all is there that was on disk.
    loaded: Condvar,
    saved: Mutex<Saved>,
    /// Bytes on disk.
    bytes: AtomicU64,
}

struct Sessions {
    /// When each began.
    began: HashMap<u64, SystemTime>,
    left: Instant,
    loaded: bool,
    /// There may be something to save.
    changed: bool,
}

/// What disk has.
#[derive(Default)]
struct Saved {
    files: HashMap<PathBuf, (Stamp, SystemTime)>,
    /// At the last look.
    in_use: Usage,
    /// Bytes copied to disk since then.
    copied: Option<(Instant, u64)>,
    /// The tenant is gone, and what it had.
    removed: bool,
}

/// A session's part in its tenant's store, until its worker is gone.
pub(super) struct Membership {
    stores: Arc<KernelStores>,
    store: Arc<Store>,
    session: u64,
}

impl KernelStores {
    /// Starts the thread that saves; `None` where nothing is to be kept.
    pub(super) fn start(config: &SupervisorConfig) -> Result<Option<Arc<Self>>, SupervisorError> {
        // Without a jail, each session reaches the stores of all tenants.
        let wanted = |kernels: &KernelConfig| kernels.bytes > 0 && !config.jail.disabled;
        let Some(kernels) = config.kernels.clone().filter(wanted) else {
            return Ok(None);
        };
        let failed = |source| SupervisorError::KernelFolder {
            folder: kernels.folder.clone(),
            source,
        };
        let mut folder = DirBuilder::new();
        let made = folder.recursive(true).mode(0o700).create(&kernels.folder);
        made.map_err(failed)?;
        if !tree::is_private(&kernels.folder).map_err(failed)? {
            let open = "others can use it, or it is another user's";
            return Err(failed(std::io::Error::other(open)));
        }
        let root = rustix::process::geteuid().is_root();
        let ours = Sharers::OneUser(
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        let sharers = match &config.jail.user {
            _ if !root => ours,
            Some(user) => Sharers::OneUser(user.uid, user.gid),
            None if towline_sys::process::can_change_user() => Sharers::OwnUsers,
            None => ours,
        };
        let stores = Arc::new(Self {
            config: kernels,
            live_bytes: config.quota.temporary_bytes,
            sharers,
            state: Mutex::default(),
            changed: Condvar::new(),
            saver: Mutex::new(None),
            told: AtomicBool::new(false),
        });
        let (loading, tenants) = (Arc::clone(&stores), config.tenants.all());
        spawn("kernel-load", move || loading.load_ahead(&tenants))?;
        let body = Arc::clone(&stores);
        *lock(&stores.saver) = Some(spawn("kernels", move || body.save_changed())?);
        Ok(Some(stores))
    }

    /// Makes a session part of its tenant's store, and gives the folder for its worker. `None` where the worker keeps nothing, or this
    /// system lets workers share nothing.
    pub(super) fn join(
        self: &Arc<Self>,
        session: u64,
        tenant: &Tenant,
        worker: &Worker,
        kind: WorkerKind,
    ) -> Option<(Membership, OwnedFd)> {
        let name = self.store_name(tenant, kind)?;
        match self.try_join(session, tenant, worker, name) {
            Ok(joined) => Some(joined),
            Err(error) => {
                if !self.told.swap(true, Ordering::Relaxed) {
                    log::warn!(
                        "compiled kernels are not kept (--kernel-cache), because this system does not permit it: {error}: {}",
                        error.source
                    );
                }
                None
            }
        }
    }

    fn try_join(
        self: &Arc<Self>,
        session: u64,
        tenant: &Tenant,
        worker: &Worker,
        name: String,
    ) -> Result<(Membership, OwnedFd), SysError> {
        let mut state = lock(&self.state);
        // Sessions that have filled theirs keep it to themselves.
        let before = state.stores.get(&name);
        let (store, is_new) = match before.filter(|store| !store.is_crowded()) {
            Some(store) => (Arc::clone(store), false),
            None => {
                let store = self.make_store(tenant, &name)?;
                // A new store is no way to copy more.
                lock(&store.saved).copied = before.and_then(|before| before.copied());
                let store = Arc::new(store);
                state.stores.insert(name, Arc::clone(&store));
                self.changed.notify_all();
                (store, true)
            }
        };
        // While no store goes.
        let began = SystemTime::now();
        lock(&store.sessions).began.insert(session, began);
        drop(state);
        let membership = Membership {
            stores: Arc::clone(self),
            store: Arc::clone(&store),
            session,
        };
        if is_new {
            let loading = Arc::clone(&store);
            if spawn("kernel-load", move || loading.load()).is_err() {
                store.load();
            }
        }
        store.wait_loaded();
        let (uid, gid) = worker.user().unwrap_or(store.files.owner());
        let folder = store.files.for_worker(uid, gid)?;
        Ok((membership, folder))
    }

    fn make_store(&self, tenant: &Tenant, name: &str) -> Result<Store, SysError> {
        Ok(Store {
            tenant: tenant.number(),
            files: SharedFiles::make(self.live_bytes, INODES, self.sharers)?,
            disk: Disk::new(self.config.folder.join(name), self.config.bytes),
            limit: self.config.bytes,
            sessions: Mutex::new(Sessions {
                began: HashMap::new(),
                left: Instant::now(),
                loaded: false,
                changed: false,
            }),
            loaded: Condvar::new(),
            saved: Mutex::default(),
            bytes: AtomicU64::new(0),
        })
    }

    /// Loads stores that are likely to be wanted.
    fn load_ahead(&self, tenants: &[Arc<Tenant>]) {
        let mut known = Vec::new();
        for tenant in tenants {
            for kind in [WorkerKind::OpenCl, WorkerKind::Cuda] {
                let name = self.store_name(tenant, kind).expect("these keep kernels");
                let data = self.config.folder.join(&name).metadata();
                if let Ok(changed) = data.and_then(|data| data.modified()) {
                    known.push((changed, name, tenant));
                }
            }
        }
        known.sort_by_key(|(changed, ..)| std::cmp::Reverse(*changed));
        for (_, name, tenant) in known.into_iter().take(LOADED_AHEAD) {
            let mut state = lock(&self.state);
            if state.stopping {
                return;
            }
            if state.stores.contains_key(&name) || tenant.is_revoked() {
                continue;
            }
            // The first session is told why there is none.
            let Ok(store) = self.make_store(tenant, &name) else {
                return;
            };
            let store = Arc::new(store);
            state.stores.insert(name, Arc::clone(&store));
            drop(state);
            self.changed.notify_all();
            store.load();
        }
    }

    /// Name of a store and its folder; `None` where workers keep nothing.
    fn store_name(&self, tenant: &Tenant, kind: WorkerKind) -> Option<String> {
        let kind = match kind {
            WorkerKind::OpenCl => "opencl",
            WorkerKind::Cuda => "cuda",
            WorkerKind::SoftCuda | WorkerKind::Nvml => return None,
        };
        Some(format!("{}-{kind}", self.name(tenant)))
    }

    /// Name of a tenant's folders. A tenant that has the name of one before has another.
    fn name(&self, tenant: &Tenant) -> String {
        let parts = [tenant.name(), "\0", tenant.id()].concat();
        let digest = hex(&Sha256::digest(parts)[..16]);
        format!("{}-{digest}", self.scope())
    }

    fn scope(&self) -> String {
        hex(&Sha256::digest(&self.config.scope)[..8])
    }

    /// Removes what tenants have kept that are none of these.
    pub(super) fn keep_only(&self, tenants: &[Arc<Tenant>]) {
        let names: Vec<_> = tenants.iter().map(|tenant| self.name(tenant)).collect();
        let is_kept = |folder: &str| names.iter().any(|name| folder.starts_with(name.as_str()));
        let mut state = lock(&self.state);
        let gone: Vec<_> = state
            .stores
            .keys()
            .filter(|name| !is_kept(name))
            .cloned()
            .collect();
        let gone: Vec<_> = gone
            .iter()
            .filter_map(|name| state.stores.remove(name))
            .collect();
        drop(state);
        for store in gone {
            lock(&store.saved).removed = true;
        }
        let scope = format!("{}-", self.scope());
        let entries = std::fs::read_dir(&self.config.folder);
        for entry in entries.into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&scope)
                && !is_kept(&name)
                && let Err(error) = std::fs::remove_dir_all(entry.path())
            {
                log::warn!("cannot remove {}: {error}", entry.path().display());
            }
        }
    }

    /// Bytes that are kept of a tenant, or of all, as far as their stores are in memory; and the limit of one store.
    pub(super) fn in_use(&self, of: Option<&Tenant>) -> (u64, u64) {
        let state = lock(&self.state);
        let stores = state.stores.values();
        let own = stores.filter(|store| of.is_none_or(|tenant| tenant.number() == store.tenant));
        let bytes = own.map(|store| store.bytes.load(Ordering::Relaxed)).sum();
        (bytes, self.config.bytes)
    }

    /// Saves what is not saved yet. Only when all sessions have ended.
    pub(super) fn stop(&self) {
        lock(&self.state).stopping = true;
        self.changed.notify_all();
        let saver = lock(&self.saver).take();
        if saver.is_some_and(|saver| saver.join().is_err()) {
            log::error!("the thread that keeps kernels panicked");
        }
    }

    /// Body of the thread that saves.
    fn save_changed(&self) {
        loop {
            let state = lock(&self.state);
            let stores: Vec<_> = state.stores.values().cloned().collect();
            let stopping = state.stopping;
            drop(state);
            let is_dirty = |store: &Arc<Store>| store.take_changed();
            stores
                .iter()
                .filter(|one| is_dirty(one))
                .for_each(|store| store.save(stopping));
            drop(stores);
            if stopping {
                return;
            }
            let mut state = lock(&self.state);
            state.stores.retain(|_, store| !store.is_done());
            if state.stopping || state.stores.values().any(|store| store.is_waiting()) {
                continue;
            }
            // Nobody tells of stores in use and of those that become idle.
            match state.stores.is_empty() {
                true => drop(self.changed.wait(state)),
                false => drop(self.changed.wait_timeout(state, LOOK_PERIOD)),
            }
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut sessions = lock(&self.store.sessions);
        sessions.began.remove(&self.session);
        sessions.left = Instant::now();
        sessions.changed = true;
        drop(sessions);
        // The thread looks before it waits, with this locked.
        drop(lock(&self.stores.state));
        self.stores.changed.notify_all();
    }
}

impl Store {
    fn load(&self) {
        let owner = self.files.owner();
        let mut saved = lock(&self.saved);
        self.disk.load(|kept, used| {
            let Kept { path, mode, bytes } = kept;
            match tree::write(self.files.root(), &path, (mode, &bytes), owner, used) {
                Ok(stamp) => {
                    saved.files.insert(path, (stamp, used));
                }
                // A session has made it meanwhile, or has filled the store.
                Err(error) => log::debug!("{}: {error}", path.display()),
            }
        });
        saved.in_use = tree::in_use(self.files.root());
        drop(saved);
        lock(&self.sessions).loaded = true;
        self.loaded.notify_all();
    }

    fn wait_loaded(&self) {
        let sessions = lock(&self.sessions);
        let waited = self
            .loaded
            .wait_timeout_while(sessions, LOAD_LIMIT, |sessions| !sessions.loaded);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether something may have changed since the last time.
    fn take_changed(&self) -> bool {
        let mut sessions = lock(&self.sessions);
        if !sessions.loaded {
            return false;
        }
        let told = std::mem::take(&mut sessions.changed);
        drop(sessions);
        let used = tree::in_use(self.files.root());
        let differs = std::mem::replace(&mut lock(&self.saved).in_use, used) != used;
        told || differs
    }

    /// Whether a session has ended since the last time.
    fn is_waiting(&self) -> bool {
        let sessions = lock(&self.sessions);
        sessions.changed && sessions.loaded
    }

    /// Whether compilers may soon find no room.
    fn is_crowded(&self) -> bool {
        let used = tree::in_use(self.files.root());
        used.bytes > used.most_bytes / 4 * 3 || used.inodes > used.most_inodes / 4 * 3
    }

    /// Files that it has copied to disk and since when. One that is copying just now counts as having copied all it may.
    fn copied(&self) -> Option<(Instant, u64)> {
        match self.saved.try_lock() {
            Ok(saved) => saved.copied,
            Err(_) => Some((Instant::now(), self.limit)),
        }
    }

    /// Whether it need not stay in memory. What runs over with things that are not kept goes as well.
    fn is_done(&self) -> bool {
        let sessions = lock(&self.sessions);
        if !sessions.began.is_empty() || sessions.changed || !sessions.loaded {
            return false;
        }
        let used = tree::in_use(self.files.root());
        let overfull = used.bytes > self.limit || used.inodes > used.most_inodes / 2;
        let idle = sessions.left.elapsed();
        idle > IDLE_LIMIT || (overfull && idle > COPY_PERIOD)
    }

    /// Copies to disk what is new and finished, all of it at the `last` time, and removes here what was used longest ago.
    fn save(&self, last: bool) {
        let oldest = lock(&self.sessions).began.values().min().copied();
        let mut saved = lock(&self.saved);
        if saved.removed {
            return;
        }
        let root = self.files.root();
        let mut found = tree::walk(root);
        found.sort_by_key(|file| std::cmp::Reverse(file.used));
        let copied = saved
            .copied
            .filter(|(since, _)| since.elapsed() < COPY_PERIOD);
        let (since, mut copied) = copied.unwrap_or((Instant::now(), 0));
        let mut left = self.limit;
        let mut unfinished = false;
        for file in found.iter().take(FILES) {
            let bytes = file.stamp.bytes;
            // Locks and marks; and what would leave no room for others.
            if bytes == 0 || bytes > self.limit / 2 {
                continue;
            }
            let Some(less) = left.checked_sub(bytes) else {
                break;
            };
            left = less;
            let age = file.stamp.modified.elapsed().unwrap_or_default();
            // At the last time no worker runs any more, though who served a session may not have left it yet.
            if oldest.is_some() && age < SETTLED && !last {
                unfinished = true;
                continue;
            }
            let is_new = saved
                .files
                .get(&file.path)
                .is_none_or(|(stamp, _)| *stamp != file.stamp);
            if is_new && !last && copied.saturating_add(bytes) > self.limit {
                unfinished = true;
                continue;
            }
            copied += if is_new { bytes } else { 0 };
            if let Err(error) = self.save_one(file, &mut saved) {
                log::debug!("{}: {error}", file.path.display());
            }
        }
        saved.copied = Some((since, copied));
        self.evict(&found, oldest, &mut saved);
        self.bytes.store(self.disk.trim(), Ordering::Relaxed);
        if unfinished {
            // Differs from every look.
            saved.in_use = Usage::default();
        }
    }

    fn save_one(&self, file: &Found, saved: &mut Saved) -> std::io::Result<()> {
        if let Some((stamp, used)) = saved.files.get_mut(&file.path)
            && *stamp == file.stamp
        {
            let later = file.used.duration_since(*used).unwrap_or_default();
            if later > USE_PERIOD {
                *used = file.used;
                self.disk
                    .touch(&file.path, file.used.min(SystemTime::now()));
            }
            return Ok(());
        }
        let (mode, bytes) = tree::read(self.files.root(), &file.path, file.stamp)?;
        let kept = Kept {
            path: file.path.clone(),
            mode,
            bytes,
        };
        self.disk.keep(&kept, file.used.min(SystemTime::now()))?;
        saved.files.insert(kept.path, (file.stamp, file.used));
        Ok(())
    }

    /// Removes what was used longest ago until the rest is within the limit, but nothing that a session may rely on: `oldest` is when the
    /// one began that has run longest. `found` is in the order of use.
    fn evict(&self, found: &[Found], oldest: Option<SystemTime>, saved: &mut Saved) {
        let mut bytes: u64 = found.iter().map(|file| file.stamp.bytes).sum();
        let mut count = found.len();
        for file in found.iter().rev() {
            let fits = bytes <= self.limit && count <= FILES;
            if fits || oldest.is_some_and(|oldest| file.used >= oldest) {
                return;
            }
            tree::remove(self.files.root(), &file.path);
            saved.files.remove(&file.path);
            bytes -= file.stamp.bytes;
            count -= 1;
        }
    }
}

/// Bytes as text.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::UNIX_EPOCH;

    use super::*;

    fn store(folder: &Path, limit: u64) -> Store {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let sharers = Sharers::OneUser(uid.as_raw(), gid.as_raw());
        Store {
            tenant: 1,
            files: SharedFiles::make(1 << 20, 1000, sharers).unwrap(),
            disk: Disk::new(folder.to_owned(), limit),
            limit,
            sessions: Mutex::new(Sessions {
                began: HashMap::new(),
                left: Instant::now(),
                loaded: true,
                changed: false,
            }),
            loaded: Condvar::new(),
            saved: Mutex::default(),
            bytes: AtomicU64::new(0),
        }
    }

    /// Puts a file of 2000 bytes there, as it was used then.
    fn put(store: &Store, path: &str, used: SystemTime) {
        let (root, owner) = (store.files.root(), store.files.owner());
        tree::write(root, Path::new(path), (0o600, &[1; 2000]), owner, used).unwrap();
    }

    fn paths(store: &Store) -> Vec<String> {
        let found = tree::walk(store.files.root());
        let paths = found
            .iter()
            .map(|file| file.path.to_str().unwrap().to_owned());
        let mut paths: Vec<_> = paths.collect();
        paths.sort();
        paths
    }

    fn kept(store: &Store) -> Vec<String> {
        let mut kept = Vec::new();
        let keep = |file: Kept, _| kept.push(file.path.to_str().unwrap().to_owned());
        store.disk.load(keep);
        kept
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn file_used_longest_ago_is_evicted() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 5000);
        for (path, used) in [("a/new", 30), ("a/old", 10), ("b/middle", 20)] {
            put(&store, path, at(used));
        }
        store.save(false);
        assert_eq!(paths(&store), ["a/new", "b/middle"]);
        assert_eq!(kept(&store), ["a/new", "b/middle"]);
    }

    #[test]
    fn file_that_a_running_session_used_stays() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 5000);
        lock(&store.sessions).began.insert(1, at(15));
        for (path, used) in [("d", 40), ("c", 30), ("b", 20), ("a", 10)] {
            put(&store, path, at(used));
        }
        store.save(false);
        assert_eq!(paths(&store), ["b", "c", "d"]);
        assert_eq!(kept(&store), ["d", "c"]);
    }

    #[test]
    fn file_is_kept_once_it_has_settled_or_its_session_ended() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 5000);
        lock(&store.sessions).began.insert(1, at(10));
        put(&store, "growing", SystemTime::now());
        assert!(store.take_changed());
        store.save(false);
        assert!(kept(&store).is_empty());
        assert!(store.take_changed(), "it is not looked at again");
        lock(&store.sessions).began.clear();
        store.save(false);
        assert_eq!(kept(&store), ["growing"]);
        assert!(!store.take_changed());
    }

    #[test]
    fn last_save_keeps_files_of_sessions_that_are_leaving() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 5000);
        lock(&store.sessions).began.insert(1, at(10));
        put(&store, "young", SystemTime::now());
        store.save(true);
        assert_eq!(kept(&store), ["young"]);
    }

    #[test]
    fn file_that_changes_without_end_is_copied_up_to_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 5000);
        let copies = (1..10).filter(|round| {
            tree::remove(store.files.root(), Path::new("restless"));
            put(&store, "restless", at(*round));
            store.save(false);
            let (stamp, _) = lock(&store.saved).files[Path::new("restless")];
            stamp.modified == at(*round)
        });
        assert_eq!(copies.count(), 2);
        assert!(store.take_changed(), "it is not looked at again");
        store.save(true);
        let (stamp, _) = lock(&store.saved).files[Path::new("restless")];
        assert_eq!(stamp.modified, at(9));
    }

    #[test]
    fn store_begins_with_what_the_last_one_kept() {
        let folder = tempfile::tempdir().unwrap();
        let first = store(folder.path(), 5000);
        put(&first, "program/kernel.so", at(10));
        first.save(false);
        let second = store(folder.path(), 5000);
        second.load();
        assert_eq!(paths(&second), ["program/kernel.so"]);
        let written = |store: &Store| {
            let found = tree::walk(store.files.root());
            tree::read(store.files.root(), &found[0].path, found[0].stamp).unwrap()
        };
        assert_eq!(written(&second), (0o600, vec![1; 2000]));
        lock(&second.saved).removed = true;
        put(&second, "after-revocation", at(20));
        second.save(false);
        assert_eq!(kept(&second), ["program/kernel.so"]);
    }
}
