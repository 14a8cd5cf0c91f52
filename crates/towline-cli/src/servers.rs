//! Which servers to use, and the secret they share.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use towline_client::access::{Access, KnownServers, usual_known_servers};
use towline_node::vm::{CHASSIS_TAG, PORT_NAME};
use towline_transport::tls::{Authority, Identity, MAX_KEY_BYTES};
use towline_transport::{Address, ConnectOptions, Registry, read_secret};
use towline_wire::control::Token;

use crate::cli::{AccessOptions, ServerOptions, ServersCommand, ServersOptions};

/// The variable that lists servers.
pub(crate) const SERVERS_VARIABLE: &str = "TOWLINE_SERVERS";

/// The servers that the options, the environment or a file name.
pub(crate) fn choose(options: &ServerOptions) -> anyhow::Result<Vec<Address>> {
    let variable = std::env::var(SERVERS_VARIABLE)
        .ok()
        .filter(|value| !value.trim().is_empty());
    let servers = if !options.servers.is_empty() {
        parse_list(&options.servers.join(",")).context("--server")?
    } else if let Some(file) = &options.server_file {
        read_file(file)?
    } else if let Some(list) = variable {
        parse_list(&list).context(SERVERS_VARIABLE)?
    } else if let Some(file) = usual_files().into_iter().find(|file| file.exists()) {
        read_file(&file)?
    } else {
        host_of_machine(Path::new("/"), answers)
            .into_iter()
            .collect()
    };
    if servers.is_empty() {
        bail!(
            "no server given: name them with --server HOST:PORT, or --server local for this machine's own, in {SERVERS_VARIABLE}, or in ~/.config/towline/servers"
        );
    }
    Ok(servers)
}

/// The server of the host that this virtual machine runs on, where `towline vm` gave it a way there.
///
/// Over vsock if the host's server is there (`answers`), for it serves as many processes as there are; else over ports.
fn host_of_machine(root: &Path, answers: impl FnOnce(&Address) -> bool) -> Option<Address> {
    match (by_vsock(root), by_ports(root)) {
        (Some(vsock), Some(ports)) => Some(if answers(&vsock) { vsock } else { ports }),
        (Some(only), None) | (None, Some(only)) => Some(only),
        (None, None) => None,
    }
}

/// Over vsock, where the machine's chassis says so. Nothing is guessed of the device itself: any cloud's machine has one, and whoever is
/// behind it is not to be bothered.
fn by_vsock(root: &Path) -> Option<Address> {
    let tag = std::fs::read_to_string(root.join("sys/class/dmi/id/chassis_asset_tag")).ok()?;
    let address = Address::parse(tag.trim().strip_prefix(CHASSIS_TAG)?).ok()?;
    // The tag is to lead to the host and nowhere else.
    let is_host = address.scheme() == "vsock" && address.rest().starts_with("host:");
    is_host.then_some(address)
}

/// By a port of that name, which machines have only for this.
fn by_ports(root: &Path) -> Option<Address> {
    let prefix = format!("{PORT_NAME}.");
    let mut ports = std::fs::read_dir(root.join("dev/virtio-ports")).ok()?;
    let is_there = ports
        .any(|port| port.is_ok_and(|port| port.file_name().to_string_lossy().starts_with(&prefix)));
    let address = || Address::parse(&format!("virtio-serial:/dev/virtio-ports/{PORT_NAME}")).ok();
    is_there.then(address).flatten()
}

/// Whether somebody listens there.
fn answers(address: &Address) -> bool {
    /// The host is near; it answers at once or not at all.
    const TIMEOUT: Duration = Duration::from_secs(2);
    let options = ConnectOptions {
        timeout: TIMEOUT,
        ..ConnectOptions::control()
    };
    Registry::global().connect(address, &options).is_ok()
}

/// How to be let in, as the options say.
pub(crate) fn access(options: &AccessOptions) -> anyhow::Result<Access> {
    let authority = options.ca.as_deref().map(read_file_of_certificates);
    let identity = match (&options.certificate, &options.key) {
        (Some(certificate), Some(key)) => Some(identity(certificate, key)?),
        _ => None,
    };
    Ok(Access {
        token: options.token_file.as_deref().map(read_token).transpose()?,
        tenant: options.tenant.clone().unwrap_or_default(),
        no_encryption: options.no_encryption,
        authority: authority.transpose()?,
        identity,
        known_servers: options.known_servers.clone().or_else(usual_known_servers),
    })
}

/// The certificates of an authority.
pub(crate) fn read_file_of_certificates(file: &Path) -> anyhow::Result<Authority> {
    let action = || format!("could not use the certificates in {}", file.display());
    let pem = std::fs::read(file).with_context(action)?;
    Authority::from_pem(&pem).with_context(action)
}

/// A certificate with its key.
pub(crate) fn identity(certificate: &Path, key: &Path) -> anyhow::Result<Identity> {
    let shown = std::fs::read(certificate)
        .with_context(|| format!("could not read {}", certificate.display()))?;
    let secret = read_secret(key, MAX_KEY_BYTES)
        .with_context(|| format!("could not use the key in {}", key.display()))?;
    Identity::from_pem(&shown, &secret).with_context(|| {
        format!(
            "could not use {} with {}",
            certificate.display(),
            key.display()
        )
    })
}

/// `towline servers`.
pub(crate) fn run(options: &ServersOptions) -> anyhow::Result<ExitCode> {
    let ServersCommand::Forget {
        address,
        known_servers,
    } = &options.command;
    let file = known_servers.clone().or_else(usual_known_servers);
    let file = file.context("no home folder: say which file with --known-servers")?;
    let known = KnownServers { file: &file };
    let found = known
        .forget(address)
        .with_context(|| format!("could not change {}", file.display()))?;
    if !found {
        bail!("no key of {address} is kept in {}", file.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a token file.
pub(crate) fn read_token(file: &Path) -> anyhow::Result<Token> {
    let action = || format!("could not use the token file {}", file.display());
    // More than any token has, so that a wrong file is noticed without reading all of it.
    let bytes = read_secret(file, Token::MAX_BYTES + 64).with_context(action)?;
    Token::from_bytes(&bytes).with_context(action)
}

fn usual_files() -> Vec<PathBuf> {
    let variable = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let personal = variable("XDG_CONFIG_HOME").or_else(|| Some(variable("HOME")?.join(".config")));
    personal
        .into_iter()
        .chain([PathBuf::from("/etc")])
        .map(|folder| folder.join("towline/servers"))
        .collect()
}

fn read_file(file: &Path) -> anyhow::Result<Vec<Address>> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("could not read the server file {}", file.display()))?;
    parse_file(&text).with_context(|| file.display().to_string())
}

/// Parses a list separated by commas.
fn parse_list(list: &str) -> anyhow::Result<Vec<Address>> {
    list.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| Ok(Address::parse(part)?))
        .collect()
}

/// Parses one server per line; `#` starts a comment.
fn parse_file(text: &str) -> anyhow::Result<Vec<Address>> {
    let mut servers = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            servers.push(Address::parse(line).with_context(|| format!("line {}", index + 1))?);
        }
    }
    Ok(servers)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn texts(servers: anyhow::Result<Vec<Address>>) -> Vec<String> {
        servers.unwrap().iter().map(Address::to_string).collect()
    }

    const TAG: &str = "sys/class/dmi/id/chassis_asset_tag";

    fn write(root: &tempfile::TempDir, path: &str, text: &str) {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn found_below(
        root: &tempfile::TempDir,
        answers: impl FnOnce(&Address) -> bool,
    ) -> Option<String> {
        host_of_machine(root.path(), answers).map(|address| address.to_string())
    }

    #[test]
    fn a_machine_finds_the_server_of_its_host() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(found_below(&root, |_| true), None);
        // A vsock device says nothing about a server.
        let driver = "sys/bus/virtio/drivers/vmw_vsock_virtio_transport/virtio4";
        write(&root, &format!("{driver}/device"), "0x0013");
        write(&root, "dev/virtio-ports/org.qemu.guest_agent.0", "");
        assert_eq!(found_below(&root, |_| true), None);
        write(&root, "dev/virtio-ports/org.towline.0", "");
        assert_eq!(
            found_below(&root, |_| panic!("nothing is to be asked")).as_deref(),
            Some("virtio-serial:///dev/virtio-ports/org.towline")
        );
    }

    #[test]
    fn a_machine_whose_chassis_says_so_finds_the_server_over_vsock() {
        let root = tempfile::tempdir().unwrap();
        write(&root, TAG, "org.towline=vsock:host:7140\n");
        assert_eq!(
            found_below(&root, |_| panic!("there is no other way")).as_deref(),
            Some("vsock://host:7140")
        );
        // With both ways vsock is the better one, if the server is there.
        write(&root, "dev/virtio-ports/org.towline.0", "");
        let is_vsock = |address: &Address| address.to_string() == "vsock://host:7140";
        assert_eq!(
            found_below(&root, is_vsock).as_deref(),
            Some("vsock://host:7140")
        );
        assert_eq!(
            found_below(&root, |_| false).as_deref(),
            Some("virtio-serial:///dev/virtio-ports/org.towline")
        );
    }

    #[test]
    fn a_chassis_leads_to_its_host_and_nowhere_else() {
        let root = tempfile::tempdir().unwrap();
        for tag in [
            "",
            "7783-7084-3265-9085-8269-3286-77",
            "org.towline=",
            "org.towline=gpu1:7140",
            "org.towline=vsock:3:7140",
            "org.towline=tcp://host:7140",
            "org.towline=shm:/host:7140",
        ] {
            write(&root, TAG, tag);
            assert_eq!(found_below(&root, |_| true), None, "{tag}");
        }
    }

    #[test]
    fn nobody_answers_where_nobody_listens() {
        let registry = Registry::global();
        let address = Address::parse("tcp://127.0.0.1:0").unwrap();
        let listener = registry.listen(&address).unwrap();
        assert!(answers(&listener.local_address()));
        let address = listener.local_address();
        drop(listener);
        assert!(!answers(&address));
    }

    #[test]
    fn list_is_separated_by_commas() {
        assert_eq!(
            texts(parse_list("gpu1:7000, gpu2:7001,")),
            ["tcp://gpu1:7000", "tcp://gpu2:7001"]
        );
    }

    #[test]
    fn file_has_comments_and_empty_lines() {
        let text = "# rack 1\ngpu1:7000\n\n  tcp://gpu2:7001  # spare\n";
        assert_eq!(
            texts(parse_file(text)),
            ["tcp://gpu1:7000", "tcp://gpu2:7001"]
        );
    }

    #[test]
    fn wrong_line_is_named() {
        let error = parse_file("gpu1:7000\ngpu2\n").unwrap_err();
        assert!(
            format!("{error:#}").starts_with("line 2: `gpu2` is not an address"),
            "{error:#}"
        );
    }

    #[test]
    fn token_is_read_without_its_line_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "0123456789abcdef\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(
            read_token(file.path()).unwrap(),
            Token::from_bytes(b"0123456789abcdef").unwrap()
        );
    }

    #[test]
    fn key_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("cert"), folder.path().join("key"));
        std::fs::write(&certificate, "").unwrap();
        std::fs::write(&key, "").unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = format!("{:#}", identity(&certificate, &key).unwrap_err());
        assert!(error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn file_that_is_no_token_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, vec![b'x'; 1 << 20]).unwrap();
        let error = format!("{:#}", read_token(file.path()).unwrap_err());
        assert!(error.contains("not a token file"), "{error}");
    }
}
