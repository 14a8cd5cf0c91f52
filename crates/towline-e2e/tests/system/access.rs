//! Who gets in, and what those are told who do not.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use towline_wire::control::{Message, Reject, RejectCode, VersionRange};

use crate::support::{A_SECOND_AND_SLACK, Client, Finished, Server, opencl_program, towline};

/// How long a program may be kept from learning that there is no server, with time to start it on a busy machine.
const QUICKLY: Duration = Duration::from_secs(2).saturating_add(A_SECOND_AND_SLACK);

struct TokenFile {
    _folder: TempDir,
    path: String,
}

impl TokenFile {
    fn new(token: &str) -> Self {
        let folder = tempfile::tempdir().expect("room for temporary files");
        let path = folder.path().join("token");
        std::fs::write(&path, token).expect("room for a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
            .expect("the file is ours");
        Self {
            path: path.to_str().expect("plain letters").to_owned(),
            _folder: folder,
        }
    }
}

/// What a program is told that finds no device.
fn only_line_of_errors(finished: &Finished) -> &str {
    assert!(
        finished.status.success(),
        "{}: {}",
        finished.status,
        finished.errors
    );
    assert_eq!(
        finished.lines,
        ["status -1, 0 devices"],
        "{}",
        finished.errors
    );
    assert_eq!(finished.errors.lines().count(), 1, "{}", finished.errors);
    finished.errors.trim_end()
}

#[test]
fn program_without_any_server_finds_no_device_at_once_and_is_told_why() {
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("ports")
        .port();
    let client = Client::with_options(
        &["--server", &format!("127.0.0.1:{port}")],
        opencl_program("list"),
    );
    let start = Instant::now();
    let finished = client.run();
    assert!(start.elapsed() < QUICKLY, "{:?}", start.elapsed());
    let errors = only_line_of_errors(&finished);
    assert!(
        errors.contains(&port.to_string()) && errors.contains("towline serve"),
        "{errors}"
    );
}

#[test]
fn program_uses_the_servers_that_there_are_and_is_told_of_the_one_that_is_not() {
    let server = Server::start_null();
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("ports")
        .port();
    let servers = format!("127.0.0.1:{port},{}", server.address());
    let finished = Client::with_options(&["--server", &servers], opencl_program("list")).run();
    assert_eq!(finished.lines, ["status 0, 1 devices"]);
    assert!(
        finished.errors.contains(&port.to_string()),
        "{}",
        finished.errors
    );
}

#[test]
fn token_opens_the_server_and_nothing_else_does() {
    let token = TokenFile::new("the server's and the client's secret\n");
    let other = TokenFile::new("another secret of enough bytes\n");
    let server = Server::start_with(&["--token-file", &token.path], &[]);
    let run = |options: &[&str], program: &str| {
        let options: Vec<&str> = ["--server", server.address()]
            .iter()
            .chain(options)
            .copied()
            .collect();
        Client::with_options(&options, opencl_program(program)).run()
    };
    run(&["--token-file", &token.path], "steady").lines_of_success();

    let wrong = run(&["--token-file", &other.path], "list");
    let errors = only_line_of_errors(&wrong);
    assert!(
        errors.contains(server.address()) && errors.contains("token"),
        "{errors}"
    );

    let without = run(&[], "list");
    let errors = only_line_of_errors(&without);
    assert!(
        errors.contains("requires a token") && errors.contains("--token-file"),
        "{errors}"
    );
    // Neither cost the server a session.
    assert_eq!(
        server.log().matches(": list (pid").count(),
        0,
        "{}",
        server.log()
    );
}

#[test]
fn server_that_needs_no_token_is_not_trusted_by_a_client_that_has_one() {
    let token = TokenFile::new("a secret that only the client has\n");
    let server = Server::start_null();
    let options = ["--server", server.address(), "--token-file", &token.path];
    let finished = Client::with_options(&options, opencl_program("list")).run();
    let errors = only_line_of_errors(&finished);
    assert!(errors.contains("does not ask for a token"), "{errors}");
}

/// Answers the first connection with these bytes as soon as it has sent something.
fn answer_once(bytes: Vec<u8>) -> (String, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener
        .local_addr()
        .expect("it has an address")
        .to_string();
    let serve = move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut start = [0; 16];
        stream
            .read_exact(&mut start)
            .expect("the client speaks first");
        stream.write_all(&bytes).expect("the client listens");
        // Until the client hangs up, or gives up on us.
        let _ = stream.read_to_end(&mut Vec::new());
    };
    (address, std::thread::spawn(serve))
}

#[test]
fn server_of_another_version_is_named_with_both_versions_and_what_to_do() {
    let reject = Reject {
        code: RejectCode::VersionMismatch,
        text: RejectCode::VersionMismatch.advice().to_owned(),
        versions: VersionRange { min: 99, max: 99 },
    };
    let (address, server) = answer_once(Message::Reject(reject).encode());
    let finished = Client::with_options(&["--server", &address], opencl_program("list")).run();
    server.join().expect("the server does its part");
    let errors = only_line_of_errors(&finished);
    assert!(
        errors.contains(&address) && errors.contains("99"),
        "{errors}"
    );
    assert!(
        errors.contains("install the same towline release on both"),
        "{errors}"
    );
}

#[test]
fn server_of_something_else_is_recognised() {
    let (address, server) = answer_once(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec());
    let finished = Client::with_options(&["--server", &address], opencl_program("list")).run();
    server.join().expect("the server does its part");
    let errors = only_line_of_errors(&finished);
    assert!(
        errors.contains(&address) && errors.contains("is the port right?"),
        "{errors}"
    );
}

#[test]
fn nobody_listens_to_other_machines_without_a_token() {
    let output = Command::new(towline())
        .args(["serve", "--backend", "null", "--listen", "0.0.0.0:0"])
        .output();
    let output = output.expect("towline is a program");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{errors}");
    assert!(
        errors.contains("--token-file") && errors.contains("--insecure"),
        "{errors}"
    );
}

/// An authority, and certificates that it has signed, as files.
struct Site {
    folder: TempDir,
    issuer: rcgen::CertifiedIssuer<'static, rcgen::KeyPair>,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("room for temporary files");
        let mut parameters = rcgen::CertificateParams::default();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().expect("random bytes");
        let issuer = rcgen::CertifiedIssuer::self_signed(parameters, key).expect("a valid one");
        let site = Self { folder, issuer };
        site.write("ca", &site.issuer.pem());
        site
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).expect("room for a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
            .expect("the file is ours");
        path.to_str().expect("plain letters").to_owned()
    }

    fn authority(&self) -> [String; 2] {
        let path = self.folder.path().join("ca");
        ["--ca", path.to_str().expect("plain letters")].map(str::to_owned)
    }

    /// Options with a certificate for a name, and its key.
    fn certificate(&self, name: &str) -> [String; 4] {
        let key = rcgen::KeyPair::generate().expect("random bytes");
        let certificate = rcgen::CertificateParams::new(vec![name.to_owned()])
            .and_then(|parameters| parameters.signed_by(&key, &self.issuer))
            .expect("a valid one");
        [
            "--certificate".to_owned(),
            self.write(&format!("{name}.pem"), &certificate.pem()),
            "--key".to_owned(),
            self.write(&format!("{name}.key"), &key.serialize_pem()),
        ]
    }
}

#[test]
fn certificates_of_the_sites_authority_admit_both_sides() {
    let token = TokenFile::new("the server's and the client's secret\n");
    let with_token = ["--token-file".to_owned(), token.path.clone()];
    let (site, stranger) = (Site::new(), Site::new());
    let join = |parts: &[&[String]]| parts.concat();
    let server = join(&[
        &with_token,
        &site.authority(),
        &site.certificate("127.0.0.1"),
        &["--backend".to_owned(), "null".to_owned()],
    ]);
    let server: Vec<&str> = server.iter().map(String::as_str).collect();
    let server = Server::start_with(&server, &[]);
    let run = |options: &[&[String]], program: &str| {
        let options = join(options);
        let options = ["--server", server.address()]
            .into_iter()
            .chain(options.iter().map(String::as_str))
            .collect::<Vec<_>>();
        Client::with_options(&options, opencl_program(program)).run()
    };
    let ours = site.certificate("client");
    let known = run(&[&with_token, &site.authority(), &ours], "list");
    assert_eq!(known.lines, ["status 0, 1 devices"], "{}", known.errors);

    // A client of another authority, one without a certificate, and one that trusts another authority.
    for options in [
        &[
            &with_token[..],
            &site.authority(),
            &stranger.certificate("client"),
        ][..],
        &[&with_token, &site.authority()],
        &[&with_token, &stranger.authority(), &ours],
    ] {
        let errors = run(options, "list");
        assert!(
            only_line_of_errors(&errors).contains("certificate"),
            "{}",
            errors.errors
        );
    }
}
