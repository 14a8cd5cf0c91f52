//! Which servers to use, and the secret they share.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use towline_client::access::{Access, KnownServers, usual_known_servers};
use towline_client::config::{self, Settings};
use towline_node::vm::{CHASSIS_TAG, PORT_NAME};
use towline_transport::tls::{Authority, Identity, MAX_KEY_BYTES};
use towline_transport::{Address, ConnectOptions, DEFAULT_PORT, Registry, read_secret};
use towline_wire::control::Token;

use crate::cli::{ServerOptions, ServersCommand, ServersOptions};

/// The variable that lists servers.
pub(crate) const SERVERS_VARIABLE: &str = "TOWLINE_SERVERS";

/// The servers to use, and how to be let in.
pub(crate) struct Chosen {
    pub(crate) servers: Vec<Address>,
    pub(crate) settings: Settings,
    pub(crate) profile: Option<String>,
    /// The option, variable or file that names the servers.
    pub(crate) origin: String,
}

/// The servers that options, environment or files name.
pub(crate) fn choose(options: &ServerOptions) -> anyhow::Result<Chosen> {
    let chosen = choose_any(options)?;
    if chosen.servers.is_empty() {
        bail!(
            "no server given: name one with --server HOST, or --server local for this machine's own, in {SERVERS_VARIABLE}, or for good \
             with `towline login HOST`"
        );
    }
    Ok(chosen)
}

/// The one server that is meant, and how to be let in, for what means something there alone: `what`, of which of several is asked.
pub(crate) fn choose_one(options: &ServerOptions, what: &str) -> anyhow::Result<(Address, Access)> {
    let chosen = choose(options)?;
    let access = access(&chosen.settings)?;
    match <[Address; 1]>::try_from(chosen.servers) {
        Ok([server]) => Ok((server, access)),
        Err(several) => bail!(
            "{what} of which of {} servers ({})? name one with --server",
            several.len(),
            chosen.origin
        ),
    }
}

/// The servers that options name, if any: neither variables nor files.
pub(crate) fn named(options: &ServerOptions) -> anyhow::Result<Vec<Address>> {
    match options.profile {
        Some(_) => Ok(choose(options)?.servers),
        None => Ok(settings(options)?.servers.unwrap_or_default()),
    }
}

/// The same where there may be none.
pub(crate) fn choose_any(options: &ServerOptions) -> anyhow::Result<Chosen> {
    let given = settings(options)?;
    let places = config::Places::of_process(true);
    let variable = |name: &str| std::env::var_os(name);
    let resolved = config::resolve(&given, options.profile.as_deref(), variable, &places)?;
    let mut settings = resolved.settings;
    let (servers, origin) = match settings.servers.take() {
        Some(servers) => (servers, resolved.origin.unwrap_or_default()),
        None => {
            let host = host_of_machine(Path::new("/"), answers);
            (Vec::from_iter(host), "this machine's host".to_owned())
        }
    };
    Ok(Chosen {
        servers,
        settings,
        profile: resolved.profile,
        origin,
    })
}

/// The settings by the options alone.
pub(crate) fn settings(options: &ServerOptions) -> anyhow::Result<Settings> {
    let servers = match &options.server_file {
        Some(file) => {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("could not read the server file {}", file.display()))?;
            config::parse_lines(&text, &file.display().to_string())?
        }
        None => config::parse_list(&options.servers.join(","), "--server")?,
    };
    let access = options.access.clone();
    Ok(Settings {
        servers: Some(servers).filter(|servers| !servers.is_empty()),
        token_file: access.token_file,
        tenant: access.tenant,
        no_encryption: access.no_encryption.then_some(true),
        ca: access.ca,
        certificate: access.certificate,
        key: access.key,
        known_servers: access.known_servers,
        ..Settings::default()
    })
}

/// An address as people write it: without what is so unless said otherwise.
pub(crate) fn short(address: &Address) -> String {
    match address.to_string().as_str() {
        "shm://local" => "local".to_owned(),
        text => {
            let text = text.strip_prefix("tcp://").unwrap_or(text);
            let port = format!(":{DEFAULT_PORT}");
            text.strip_suffix(&port).unwrap_or(text).to_owned()
        }
    }
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

/// Access by the settings.
pub(crate) fn access(settings: &Settings) -> anyhow::Result<Access> {
    let authority = settings.ca.as_deref().map(read_file_of_certificates);
    let identity = match (&settings.certificate, &settings.key) {
        (Some(certificate), Some(key)) => Some(identity(certificate, key)?),
        _ => None,
    };
    Ok(Access {
        job: String::new(),
        token: settings.token_file.as_deref().map(read_token).transpose()?,
        tenant: settings.tenant.clone().unwrap_or_default(),
        no_encryption: settings.no_encryption.unwrap_or(false),
        authority: authority.transpose()?,
        identity,
        known_servers: settings.known_servers.clone(),
        only_known: false,
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

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
    fn short_address_leaves_out_the_usual() {
        for (long, short_form) in [
            ("tcp://gpu1:7140", "gpu1"),
            ("gpu1:7141", "gpu1:7141"),
            ("[::1]", "[::1]"),
            ("local", "local"),
            ("shm:///run/x", "shm:///run/x"),
        ] {
            assert_eq!(short(&Address::parse(long).unwrap()), short_form);
        }
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
