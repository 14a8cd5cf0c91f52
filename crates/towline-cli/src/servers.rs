//! Which servers to use, and the secret they share.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use towline_node::vm::PORT_NAME;
use towline_transport::Address;
use towline_wire::control::Token;

use crate::cli::ServerOptions;

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
    } else if let Some(address) = host_of_machine(Path::new("/")) {
        vec![Address::parse(&address)?]
    } else {
        Vec::new()
    };
    if servers.is_empty() {
        bail!(
            "no server given: name them with --server HOST:PORT, or --server local for this machine's own, in {SERVERS_VARIABLE}, or in ~/.config/towline/servers"
        );
    }
    Ok(servers)
}

/// The server of the host that this virtual machine runs on, where `towline vm` gave it a way there.
fn host_of_machine(root: &Path) -> Option<String> {
    let has = |folder: &str, prefix: &str| {
        let entries = std::fs::read_dir(root.join(folder)).ok()?;
        let mut names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.find(|name| name.starts_with(prefix))
    };
    // By a port of that name, which machines have only for this. Nothing is guessed of a vsock device: any cloud's machine has one, and
    // whoever is behind it is not to be bothered.
    let port = format!("{PORT_NAME}.");
    has("dev/virtio-ports", &port)?;
    Some(format!("virtio-serial:/dev/virtio-ports/{PORT_NAME}"))
}

/// Reads a token file, and warns when others can read it too.
pub(crate) fn read_token(file: &Path) -> anyhow::Result<Token> {
    let action = || format!("could not use the token file {}", file.display());
    let opened = File::open(file).with_context(action)?;
    let mode = opened.metadata().with_context(action)?.mode();
    if mode & 0o077 != 0 {
        log::warn!(
            "{0} can be read by others; protect it: chmod 600 {0}",
            file.display()
        );
    }
    let mut bytes = Vec::new();
    // One more than any token has, so that a wrong file is noticed without reading all of it.
    opened
        .take(Token::MAX_BYTES as u64 + 64)
        .read_to_end(&mut bytes)
        .with_context(action)?;
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

    #[test]
    fn a_machine_finds_the_server_of_its_host() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(host_of_machine(root.path()), None);
        // A vsock device says nothing about a server.
        let driver = "sys/bus/virtio/drivers/vmw_vsock_virtio_transport/virtio4";
        std::fs::create_dir_all(root.path().join(driver)).unwrap();
        let ports = root.path().join("dev/virtio-ports");
        std::fs::create_dir_all(&ports).unwrap();
        std::fs::write(ports.join("org.qemu.guest_agent.0"), "").unwrap();
        assert_eq!(host_of_machine(root.path()), None);
        std::fs::write(ports.join("org.towline.0"), "").unwrap();
        assert_eq!(
            host_of_machine(root.path()).as_deref(),
            Some("virtio-serial:/dev/virtio-ports/org.towline")
        );
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
    fn file_that_is_no_token_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, vec![b'x'; 1 << 20]).unwrap();
        let error = format!("{:#}", read_token(file.path()).unwrap_err());
        assert!(error.contains("not a token file"), "{error}");
    }
}
