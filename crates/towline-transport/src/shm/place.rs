//! Where sockets lie: paths in addresses, and where this host's own server is found.

use std::ffi::OsStr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::process::{Gid, geteuid};

use crate::{Address, TransportError};

/// The address of this host's own server.
pub(super) const LOCAL: &str = "local";
/// Where the server of the whole host is found.
const HOST_FOLDER: &str = "/run/towline";
/// Below a user's own folders.
const OWN_FOLDER: &str = "towline";
const SOCKET: &str = "local.sock";
/// Bytes of a path that the kernel takes.
const PATH_BYTES: usize = 107;

/// What an address says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// `None` is this host's own server, wherever that is.
    path: Option<PathBuf>,
    /// Who may connect, where it is listened.
    pub(super) access: Access,
}

/// Who may connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Access {
    mode: Option<u32>,
    group: Option<u32>,
}

impl Access {
    /// The mode of the socket. A server of root is there for everybody on the host, as over loopback; another user's is that user's.
    pub(super) fn mode(self) -> Mode {
        let everybody = geteuid().is_root() && self.group.is_none();
        let usual = match (everybody, self.group) {
            (true, _) => 0o666,
            (false, Some(_)) => 0o660,
            (false, None) => 0o600,
        };
        Mode::from_raw_mode(self.mode.unwrap_or(usual))
    }

    pub(super) fn group(self) -> Option<Gid> {
        self.group.map(Gid::from_raw)
    }
}

impl Place {
    pub(super) fn of(address: &Address) -> Result<Self, TransportError> {
        let invalid = |advice: String| TransportError::InvalidAddress {
            text: address.to_string(),
            advice,
        };
        let usage = "the shm transport takes shm:///PATH/OF/A/SOCKET, or `local`";
        if address.scheme() != "shm" {
            return Err(invalid(usage.into()));
        }
        let (path, options) = match address.rest().split_once('?') {
            None => (address.rest(), ""),
            Some((path, options)) => (path, options),
        };
        let mut access = Access::default();
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("mode", mode)) => {
                    let mode = u32::from_str_radix(mode, 8)
                        .ok()
                        .filter(|mode| mode & !0o666 == 0);
                    access.mode = Some(mode.ok_or_else(|| {
                        invalid(
                            "`mode` is three octal digits of reading and writing, 660 for example"
                                .into(),
                        )
                    })?);
                }
                Some(("group", name)) => {
                    let group = group_number(name)
                        .ok_or_else(|| invalid(format!("there is no group `{name}`")))?;
                    access.group = Some(group);
                }
                _ => {
                    return Err(invalid(format!(
                        "`{option}` is no option: write mode=660 or group=NAME"
                    )));
                }
            }
        }
        let path = match path {
            LOCAL => None,
            path if !path.starts_with('/') => return Err(invalid(usage.into())),
            path if path.len() > PATH_BYTES => {
                return Err(invalid(format!(
                    "a socket's path has at most {PATH_BYTES} bytes: choose a shorter one"
                )));
            }
            path => Some(PathBuf::from(path)),
        };
        Ok(Self { path, access })
    }

    /// The socket to make, in a folder that is there.
    pub(super) fn to_listen(&self) -> Result<PathBuf, TransportError> {
        if let Some(path) = &self.path {
            return Ok(path.clone());
        }
        let (folder, mode) = match own_folders().into_iter().next() {
            Some(folder) if !geteuid().is_root() => (folder, 0o700),
            _ => (PathBuf::from(HOST_FOLDER), 0o755),
        };
        make_folder(&folder, mode).map_err(|source| TransportError::Io {
            action: format!(
                "make the folder {} for this host's clients",
                folder.display()
            ),
            source,
        })?;
        Ok(folder.join(SOCKET))
    }

    /// The sockets to try, in this order.
    pub(super) fn to_connect(&self) -> Vec<PathBuf> {
        match &self.path {
            Some(path) => vec![path.clone()],
            None => own_folders()
                .into_iter()
                // What lies in a folder that others can write to may be anybody's.
                .filter(|folder| is_own(folder))
                .chain([PathBuf::from(HOST_FOLDER)])
                .map(|folder| folder.join(SOCKET))
                .collect(),
        }
    }
}

/// Folders that are this user's own, if they exist.
fn own_folders() -> Vec<PathBuf> {
    own_folders_in(
        std::env::var_os("XDG_RUNTIME_DIR").as_deref(),
        &std::env::temp_dir(),
    )
}

fn own_folders_in(runtime: Option<&OsStr>, temporary: &Path) -> Vec<PathBuf> {
    let runtime = runtime
        .map(PathBuf::from)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(OWN_FOLDER));
    let temporary = temporary.join(format!("towline-{}", geteuid().as_raw()));
    runtime.into_iter().chain([temporary]).collect()
}

/// Whether a folder is this user's, and nobody else can put something there.
fn is_own(folder: &Path) -> bool {
    folder.symlink_metadata().is_ok_and(|found| {
        found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0
    })
}

fn make_folder(folder: &Path, mode: u32) -> std::io::Result<()> {
    match std::fs::DirBuilder::new().mode(mode).create(folder) {
        // Whatever the mask of the process was.
        Ok(()) => std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode))?,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    match is_own(folder) {
        true => Ok(()),
        false => Err(std::io::Error::other(
            "it is there, and others can write to it: remove it",
        )),
    }
}

/// Whether a socket lies there, or something that nobody may take away.
pub(super) fn is_socket(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|found| found.file_type().is_socket())
}

fn group_number(name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let groups = std::fs::read_to_string("/etc/group").ok()?;
    let mut lines = groups.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Result<Place, String> {
        Place::of(&text.parse().unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn an_address_names_a_path_and_who_may_connect() {
        let plain = place("shm:///run/x.sock").unwrap();
        assert_eq!(plain.to_connect(), [Path::new("/run/x.sock")]);
        let open = place("shm:///run/x.sock?mode=640&group=root").unwrap();
        assert_eq!(open.access.mode().as_raw_mode(), 0o640);
        assert_eq!(open.access.group().map(|group| group.as_raw()), Some(0));
        let group = place("shm:///run/x.sock?group=7").unwrap();
        assert_eq!(group.access.mode().as_raw_mode(), 0o660);
    }

    #[test]
    fn errors_say_what_to_write() {
        let error = |text: &str| place(text).unwrap_err();
        assert!(error("shm://x.sock").contains("shm:///PATH"));
        assert!(error("shm:///x?mode=rw").contains("660 for example"));
        assert!(error("shm:///x?mode=777").contains("660 for example"));
        assert!(error("shm:///x?group=no-such-group").contains("no group `no-such-group`"));
        assert!(error("shm:///x?size=1").contains("`size=1` is no option"));
        assert!(error(&format!("shm:///{}", "x".repeat(107))).contains("a shorter one"));
        assert!(error("tcp://127.0.0.1:1").contains("the shm transport takes"));
    }

    #[test]
    fn local_is_found_in_the_users_own_folder_and_then_the_hosts() {
        let runtime = tempfile::tempdir().unwrap();
        let folders = own_folders_in(Some(runtime.path().as_os_str()), Path::new("/tmp"));
        assert_eq!(folders[0], runtime.path().join("towline"));
        assert_eq!(
            own_folders_in(Some(OsStr::new("")), Path::new("/tmp")).len(),
            1
        );
        let sockets = place("shm://local").unwrap().to_connect();
        assert_eq!(
            sockets.last().unwrap(),
            Path::new("/run/towline/local.sock")
        );
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_not_used() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("towline");
        make_folder(&folder, 0o700).unwrap();
        make_folder(&folder, 0o700).unwrap();
        assert!(is_own(&folder));
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(make_folder(&folder, 0o700).is_err());
        assert!(!is_own(&folder));
    }
}
