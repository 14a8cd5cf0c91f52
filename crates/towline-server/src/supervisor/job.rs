//! Jobs: sessions of one tenant whose workers reach each other, for collectives next to the devices.
//!
//! A session that names a job joins it before its worker is started, in the job's namespaces. All of a job is gone with its last member:
//! nothing of it lies on a disk, and descriptors of this process and its workers are all that holds it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use towline_sys::jail::{Network, UnprivilegedUser};
use towline_sys::pin::can_pin;
use towline_sys::process::{JobNamespaces, can_change_user, can_have_network};
use towline_transport::Registry;
use towline_wire::control::{Reject, RejectCode, SHOWN_NAME, printable};

use towline_worker::Bond;

use super::folder::UserLease;
use super::{SupervisorConfig, SupervisorError, lock};
use crate::worker::process::{CollectivesGrant, describe};

/// Most jobs at once: each holds namespaces, and an account where workers have some.
const JOBS: usize = 64;
/// Most of one tenant, so that others find room.
const JOBS_OF_TENANT: usize = 32;
/// The files in a job's /dev/shm may have as much room as the temporary files of so many sessions.
const MEMORY_SHARE: u64 = 4;

/// The way in which sessions of a job reach each other.
#[derive(Clone, Debug)]
pub struct CollectivesConfig {
    /// The other workers that a worker of a job reaches.
    pub reach: Reach,
    /// The library that CUDA workers load, by name or path.
    pub library: String,
    /// Variables of the environment that workers of jobs have besides.
    pub environment: Vec<(OsString, OsString)>,
    /// Paths that they must be able to read besides, wherever they lie.
    pub keep_readable: Vec<PathBuf>,
}

/// The network of a job's workers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reach {
    /// One of the job's own, with loopback alone.
    Local,
    /// The server's.
    Network,
}

/// The jobs of a supervisor.
pub(super) struct Jobs {
    config: CollectivesConfig,
    /// Whether this system has namespaces for them.
    has_namespaces: bool,
    memory_bytes: u64,
    jobs: Mutex<HashMap<Key, Weak<Job>>>,
}

/// A tenant's number, and its name for the job.
type Key = (u64, String);

/// The account of a worker, and what keeps its number from others.
pub(super) type Account = (Option<UnprivilegedUser>, Option<Arc<UserLease>>);

/// A job that has members. Each holds it until its worker is gone.
pub(super) struct Job {
    /// As it can be shown.
    name: String,
    config: CollectivesConfig,
    namespaces: Option<Arc<JobNamespaces>>,
    account: Account,
    bonds: Arc<Bonds>,
}

/// Most bonds of a session, and most of a job that are lost.
const BONDS: usize = 4096;

/// Bonds between sessions of a job: where one of them ends that was bound, the others of the bond are told.
#[derive(Default)]
pub(super) struct Bonds(Mutex<HashMap<Bond, Bound>>);

/// A session that can be bound.
pub(super) trait Fellow: Send + Sync {
    /// Tells it that another session of a bond is gone. Does not wait.
    fn lose(&self, bond: Bond);
}

/// Sessions of one bond, by the numbers of their workers.
#[derive(Default)]
struct Bound {
    members: HashMap<u64, Weak<dyn Fellow>>,
    /// One has ended.
    lost: bool,
}

impl Bonds {
    /// The session of a worker of this number is bound.
    pub(super) fn bind(
        &self,
        worker: u64,
        session: &Arc<impl Fellow + 'static>,
        bond: Bond,
    ) -> Result<(), String> {
        let mut bonds = lock(&self.0);
        let own = |bound: &&Bound| bound.members.contains_key(&worker);
        if bonds.values().filter(own).count() >= BONDS {
            return Err(format!("it has more than {BONDS} bonds"));
        }
        let bound = bonds.entry(bond).or_default();
        let weak = Arc::downgrade(session);
        bound.members.insert(worker, weak);
        if bound.lost {
            session.lose(bond);
        }
        Ok(())
    }

    /// A session is bound no more.
    pub(super) fn part(&self, worker: u64, bond: &Bond) {
        let mut bonds = lock(&self.0);
        if let Some(bound) = bonds.get_mut(bond) {
            bound.members.remove(&worker);
            if bound.members.is_empty() {
                bonds.remove(bond);
            }
        }
    }

    /// A worker has ended.
    pub(super) fn end(&self, worker: u64) {
        let mut bonds = lock(&self.0);
        for (bond, bound) in bonds.iter_mut() {
            if bound.members.remove(&worker).is_none() {
                continue;
            }
            bound.lost = true;
            for other in bound.members.values().filter_map(Weak::upgrade) {
                other.lose(*bond);
            }
        }
        // Some may come late to what is lost; not to so much.
        let forgotten = |bound: &&Bound| bound.members.is_empty();
        if bonds.values().filter(forgotten).count() > BONDS {
            bonds.retain(|_, bound| !bound.members.is_empty());
        }
    }
}

impl Jobs {
    /// Finds out whether this system has namespaces for jobs; in the error, why a server must not offer collectives.
    pub(super) fn new(
        config: &CollectivesConfig,
        supervisor: &SupervisorConfig,
    ) -> Result<Self, SupervisorError> {
        let local = config.reach == Reach::Local;
        let memory_bytes = supervisor
            .quota
            .temporary_bytes
            .saturating_mul(MEMORY_SHARE);
        let own_users = rustix::process::geteuid().is_root()
            && supervisor.jail.user.is_none()
            && can_change_user();
        if !own_users {
            log::warn!(
                "workers of jobs see the processes of the account that they share, and can change their scheduling"
            );
        }
        let has_namespaces = match supervisor.jail.disabled {
            true => {
                log::warn!("workers of jobs share the network of this host (--no-jail)");
                false
            }
            false => match JobNamespaces::make(local, memory_bytes) {
                // Lanes are sockets of the host's network, which workers of a job could have lead elsewhere.
                Ok(_) if local && listens_on_network(supervisor)? => {
                    can_pin().map_err(|error| SupervisorError::Collectives {
                        reason: describe(&error),
                    })?;
                    true
                }
                Ok(_) => true,
                Err(error) if local && can_have_network().is_ok() => {
                    let reason = describe(&error);
                    return Err(SupervisorError::Collectives { reason });
                }
                Err(error) => {
                    log::warn!(
                        "workers of jobs share the network of this host, and its /dev/shm where they can: {}",
                        describe(&error)
                    );
                    false
                }
            },
        };
        Ok(Self {
            config: config.clone(),
            has_namespaces,
            memory_bytes,
            jobs: Mutex::default(),
        })
    }

    /// Whether jobs have networks of their own.
    pub(super) fn have_network(&self) -> bool {
        self.has_namespaces && self.config.reach == Reach::Local
    }

    /// The job of that name, which is made if it has no members yet, with an account; or why there is none.
    pub(super) fn join(
        &self,
        tenant: u64,
        name: &str,
        account: impl FnOnce() -> Result<Account, String>,
    ) -> Result<Arc<Job>, Reject> {
        let mut jobs = lock(&self.jobs);
        jobs.retain(|_, job| job.strong_count() > 0);
        let key = (tenant, name.to_owned());
        if let Some(job) = jobs.get(&key).and_then(Weak::upgrade) {
            return Ok(job);
        }
        let own = jobs.keys().filter(|(of, _)| *of == tenant).count();
        let (whose, most) = match () {
            () if jobs.len() >= JOBS => ("the server has", JOBS),
            () if own >= JOBS_OF_TENANT => ("the tenant has", JOBS_OF_TENANT),
            () => ("", 0),
        };
        if most > 0 {
            let text = format!(
                "{whose} {most} jobs that use collectives, and no more; wait for one to end, or start the program without \
                 TOWLINE_COLLECTIVES"
            );
            return Err(RejectCode::TooManySessions.because(text));
        }
        let failed = |reason: String| {
            let text = format!("no job for its collectives: {reason}");
            RejectCode::WorkerFailed.because(text)
        };
        let own_network = self.have_network();
        let namespaces = self.has_namespaces.then(|| {
            let made = JobNamespaces::make(own_network, self.memory_bytes);
            made.map(Arc::new)
        });
        let namespaces = namespaces
            .transpose()
            .map_err(|error| failed(describe(&error)))?;
        let job = Arc::new(Job {
            name: printable(name, SHOWN_NAME),
            config: self.config.clone(),
            namespaces,
            account: account().map_err(failed)?,
            bonds: Arc::default(),
        });
        jobs.insert(key, Arc::downgrade(&job));
        Ok(job)
    }
}

/// Whether clients come over a network, which may be this host's own.
fn listens_on_network(supervisor: &SupervisorConfig) -> Result<bool, SupervisorError> {
    for address in &supervisor.listen {
        let transport = Registry::global().get(address.scheme())?;
        if transport.capabilities().over_network {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Job {
    /// Its name, as it can be shown.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn config(&self) -> &CollectivesConfig {
        &self.config
    }

    pub(super) fn namespaces(&self) -> Option<&Arc<JobNamespaces>> {
        self.namespaces.as_ref()
    }

    /// The bonds of its sessions.
    pub(super) fn bonds(&self) -> Arc<Bonds> {
        Arc::clone(&self.bonds)
    }

    /// The account that its workers share.
    pub(super) fn account(&self) -> Account {
        self.account.clone()
    }

    /// The network of its workers.
    pub(super) fn network(&self) -> Network {
        let namespaces = self.namespaces.as_ref();
        match namespaces.is_some_and(|namespaces| namespaces.has_network()) {
            true => Network::Job,
            false => Network::Host,
        }
    }

    /// The grant for a session of it.
    pub(super) fn grant(&self) -> CollectivesGrant {
        CollectivesGrant {
            library: self.config.library.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs() -> Jobs {
        Jobs {
            config: CollectivesConfig {
                reach: Reach::Local,
                library: "libnccl.so.2".into(),
                environment: Vec::new(),
                keep_readable: Vec::new(),
            },
            has_namespaces: false,
            memory_bytes: 0,
            jobs: Mutex::default(),
        }
    }

    fn join(jobs: &Jobs, tenant: u64, name: &str) -> Result<Arc<Job>, Reject> {
        jobs.join(tenant, name, || Ok((None, None)))
    }

    #[test]
    fn job_is_of_tenant_and_name() {
        let jobs = jobs();
        let first = join(&jobs, 1, "train").unwrap();
        assert!(Arc::ptr_eq(&first, &join(&jobs, 1, "train").unwrap()));
        assert!(!Arc::ptr_eq(&first, &join(&jobs, 1, "test").unwrap()));
        assert!(!Arc::ptr_eq(&first, &join(&jobs, 2, "train").unwrap()));
    }

    #[derive(Default)]
    struct Told(Mutex<Vec<Bond>>);

    impl Fellow for Told {
        fn lose(&self, bond: Bond) {
            lock(&self.0).push(bond);
        }
    }

    #[test]
    fn end_of_session_is_told_to_those_bound_to_it() {
        let bonds = Bonds::default();
        let [first, second, third] = [(); 3].map(|()| Arc::new(Told::default()));
        let [all, two, other] = [1, 2, 3].map(|name| [name; 16]);
        for bond in [all, two] {
            bonds.bind(1, &first, bond).unwrap();
            bonds.bind(2, &second, bond).unwrap();
        }
        bonds.bind(3, &third, all).unwrap();
        bonds.bind(3, &third, other).unwrap();
        bonds.part(2, &two);
        bonds.end(1);
        let told = |of: &Told| lock(&of.0).clone();
        assert_eq!((told(&first), told(&second)), (vec![], vec![all]));
        assert_eq!(told(&third), [all]);
        // Late, and anew where nobody is gone.
        bonds.bind(4, &first, all).unwrap();
        bonds.bind(4, &first, other).unwrap();
        assert_eq!(told(&first), [all]);
    }

    #[test]
    fn bonds_of_session_are_limited() {
        let (bonds, session) = (Bonds::default(), Arc::new(Told::default()));
        let name = |number: usize| (number as u128).to_le_bytes();
        for number in 0..BONDS {
            bonds.bind(1, &session, name(number)).unwrap();
        }
        assert!(bonds.bind(1, &session, name(BONDS)).is_err());
        bonds.bind(2, &session, name(BONDS)).unwrap();
        // Lost ones without members are dropped before there are twice as many.
        bonds.end(2);
        bonds.end(1);
        assert_eq!(lock(&bonds.0).len(), 0);
    }

    #[test]
    fn job_without_members_is_made_anew() {
        let jobs = jobs();
        let made = std::cell::Cell::new(0);
        let join = || {
            jobs.join(1, "train", || {
                made.set(made.get() + 1);
                Ok((None, None))
            })
        };
        let [first, second] = [join().unwrap(), join().unwrap()];
        drop(first);
        drop(join().unwrap());
        assert_eq!(made.get(), 1);
        drop(second);
        drop(join().unwrap());
        assert_eq!(made.get(), 2);
    }

    #[test]
    fn jobs_beyond_the_limit_are_refused() {
        let jobs = jobs();
        let fill = |tenant: u64| -> Vec<_> {
            let names = 0..JOBS_OF_TENANT;
            let held = names.map(|number| join(&jobs, tenant, &number.to_string()).unwrap());
            held.collect()
        };
        let refuses = |tenant, why: &str| {
            let refused = join(&jobs, tenant, "one more").err().unwrap();
            assert_eq!(refused.code, RejectCode::TooManySessions);
            assert!(refused.text.contains(why), "{}", refused.text);
        };
        let first = fill(1);
        refuses(1, "the tenant has 32 jobs");
        let second = fill(2);
        refuses(3, "the server has 64 jobs");
        // A member more is no job more.
        assert!(join(&jobs, 1, "0").is_ok());
        drop((first, second));
        assert!(join(&jobs, 3, "one more").is_ok());
    }

    #[test]
    fn job_without_account_is_refused() {
        let jobs = jobs();
        let refused = jobs.join(1, "train", || Err("no user for it".into()));
        let refused = refused.err().unwrap();
        assert_eq!(refused.code, RejectCode::WorkerFailed);
        assert!(refused.text.contains("no user for it"), "{}", refused.text);
    }
}
