//! Messages to systemd about a server (`sd_notify`), where it asked: services of `Type=notify` have NOTIFY_SOCKET.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Clients can connect.
pub(crate) fn ready() {
    tell("READY=1");
}

/// The configuration is read again, until [`ready`].
pub(crate) fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
}

/// The server ends, within this time.
pub(crate) fn stopping(within: Duration) {
    let microseconds = within.as_micros();
    tell(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={microseconds}"));
}

fn tell(state: &str) {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(error) = send(&socket, state)
    {
        log::warn!("could not tell systemd {state}: {error}");
    }
}

fn send(socket: &OsStr, state: &str) -> std::io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    sender.connect_addr(&address)?;
    sender.send(state.as_bytes()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_with_path_or_abstract_name_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("towline-test-{}", std::process::id());
        let addresses = [
            SocketAddr::from_pathname(&path).unwrap(),
            SocketAddr::from_abstract_name(&name).unwrap(),
        ];
        for (address, text) in addresses
            .iter()
            .zip([path.into_os_string(), format!("@{name}").into()])
        {
            let receiver = UnixDatagram::bind_addr(address).unwrap();
            send(&text, "READY=1").unwrap();
            let mut buffer = [0; 16];
            let len = receiver.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..len], b"READY=1");
        }
    }
}
