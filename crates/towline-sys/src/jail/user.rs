//! Becoming nobody in particular.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};
use serde::{Deserialize, Serialize};

use crate::{Context, SysError};

/// First and last of the user numbers that systemd sets aside for `DynamicUser=`: no account has them.
const DYNAMIC_USERS: std::ops::RangeInclusive<u32> = 61184..=65519;

/// Who a worker becomes.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct UnprivilegedUser {
    /// User number.
    pub uid: u32,
    /// Group number.
    pub gid: u32,
    /// Further groups: those that may use the devices.
    pub groups: Vec<u32>,
}

impl UnprivilegedUser {
    /// One of the users that exist nowhere else, by any number; [`dynamic_count`](Self::dynamic_count) in a row differ.
    pub fn dynamic(number: u64) -> Self {
        let offset = u32::try_from(number % Self::dynamic_count()).expect("smaller than the span");
        let id = DYNAMIC_USERS.start() + offset;
        Self {
            uid: id,
            gid: id,
            groups: device_groups(),
        }
    }

    /// How many such users there are.
    pub fn dynamic_count() -> u64 {
        u64::from(DYNAMIC_USERS.end() - DYNAMIC_USERS.start() + 1)
    }

    /// Whether this system, or container, has them.
    pub(crate) fn dynamic_exist() -> bool {
        let Ok(map) = std::fs::read_to_string("/proc/self/uid_map") else {
            return false;
        };
        map.lines().any(|line| {
            let mut numbers = line.split_whitespace().map(str::parse::<u64>);
            let (Some(Ok(first)), Some(Ok(_)), Some(Ok(count))) =
                (numbers.next(), numbers.next(), numbers.next())
            else {
                return false;
            };
            first <= u64::from(*DYNAMIC_USERS.start())
                && first.saturating_add(count) > u64::from(*DYNAMIC_USERS.end())
        })
    }

    /// The account `name` (or number), from /etc/passwd.
    pub fn named(name: &str) -> Result<Self, SysError> {
        let action = || format!("find the user `{name}` in /etc/passwd");
        let accounts = std::fs::read_to_string("/etc/passwd").while_trying_to(action())?;
        let account = accounts.lines().find_map(|line| {
            let mut fields = line.split(':');
            let account = fields.next()?;
            let uid: u32 = fields.nth(1)?.parse().ok()?;
            let gid: u32 = fields.next()?.parse().ok()?;
            (account == name || name.parse() == Ok(uid)).then_some((uid, gid))
        });
        match account {
            Some((uid, gid)) => Ok(Self {
                uid,
                gid,
                groups: device_groups(),
            }),
            None => Err(SysError::new(action(), std::io::ErrorKind::NotFound)),
        }
    }
}

/// The groups, other than root's, that own device nodes of GPUs.
pub fn device_groups() -> Vec<u32> {
    let folders = ["/dev/dri", "/dev"];
    let nodes = folders
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .flatten();
    let groups: BTreeSet<u32> = nodes
        .filter(|node| {
            let name = node.file_name();
            let name = name.to_string_lossy();
            ["renderD", "kfd", "nvidia", "accel", "mali"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
        })
        .filter_map(|node| Some(node.metadata().ok()?.gid()))
        .filter(|gid| *gid != 0)
        .collect();
    groups.into_iter().collect()
}

/// Becomes `user` for good: real, effective and saved numbers, and so loses every capability.
pub(super) fn become_user(user: &UnprivilegedUser) -> Result<(), SysError> {
    let action = || format!("become user {}", user.uid);
    if user.uid == 0 {
        return Err(SysError::new(
            action(),
            std::io::Error::other("a worker must not run as root"),
        ));
    }
    let groups: Vec<Gid> = user.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    rustix::thread::set_thread_groups(&groups).while_trying_to(action())?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).while_trying_to(action())?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).while_trying_to(action())?;
    // Trust, but look: a worker that stayed root would undo all the rest.
    let still_root = rustix::process::getuid().is_root() || rustix::process::geteuid().is_root();
    let capable = !rustix::thread::capabilities(None)
        .while_trying_to(action())?
        .effective
        .is_empty();
    match still_root || capable {
        true => Err(SysError::new(
            action(),
            std::io::Error::other("the kernel left it privileged"),
        )),
        false => Ok(()),
    }
}

/// Whether users are counted here as by the whole system.
pub(super) fn in_first_namespace() -> bool {
    std::fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}

/// A user namespace in which we keep our own number, and may make the other namespaces.
pub(super) fn enter_user_namespace() -> Result<(), SysError> {
    let action = "make a user namespace";
    let (uid, gid) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    // SAFETY: NEWUSER touches no descriptor.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }.while_trying_to(action)?;
    keep_numbers(uid, gid)
}

/// Keeps our own numbers in the user namespace that is ours since we were started, or since just now.
pub(super) fn keep_numbers(uid: u32, gid: u32) -> Result<(), SysError> {
    let action = "set the numbers of a user namespace";
    // The kernel wants setgroups given up before an unprivileged process may map its group.
    std::fs::write("/proc/self/setgroups", "deny").while_trying_to(action)?;
    std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).while_trying_to(action)?;
    std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).while_trying_to(action)
}

/// Gives up the capabilities that a user namespace brought.
pub(super) fn drop_capabilities() -> Result<(), SysError> {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).while_trying_to("drop capabilities")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dynamic_users_differ_and_stay_in_their_range() {
        let first = UnprivilegedUser::dynamic(0);
        let second = UnprivilegedUser::dynamic(1);
        assert_ne!(first.uid, second.uid);
        assert!(DYNAMIC_USERS.contains(&UnprivilegedUser::dynamic(u64::MAX).uid));
    }

    #[test]
    fn accounts_are_found_by_name_and_number() {
        let nobody = UnprivilegedUser::named("nobody").unwrap();
        assert_eq!(
            UnprivilegedUser::named(&nobody.uid.to_string()).unwrap(),
            nobody
        );
        let error = UnprivilegedUser::named("no such user").unwrap_err();
        assert!(error.to_string().contains("`no such user`"), "{error}");
    }

    #[test]
    fn root_is_no_unprivileged_user() {
        let root = UnprivilegedUser {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
        };
        assert!(become_user(&root).is_err());
    }
}
