//! The first minutes of a user: settings in a file, `towline doctor`, and the page for developers without a GPU.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

use crate::support::{
    PATIENCE, Server, forget_surroundings, holds_within, opencl_program, towline,
};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A user with a home of their own.
struct User {
    home: TempDir,
}

impl User {
    fn new(config: &str) -> Self {
        let home = tempfile::tempdir().expect("room for a folder");
        for folder in ["config/towline", "run", "tmp"] {
            std::fs::create_dir_all(home.path().join(folder)).expect("room for a folder");
        }
        std::fs::write(home.path().join("config/towline/config.toml"), config)
            .expect("room for a file");
        Self { home }
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        forget_surroundings(&mut command);
        let home = self.home.path();
        command
            .env("HOME", home)
            .env("XDG_CONFIG_HOME", home.join("config"));
        command
            .env("XDG_STATE_HOME", home.join("state"))
            .env("XDG_RUNTIME_DIR", home.join("run"));
        command.env("TMPDIR", home.join("tmp")).current_dir(home);
        command.stdin(Stdio::null());
        command
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn library(name: &str) -> PathBuf {
    towline().with_file_name(name)
}

fn servers(server: &Server) -> String {
    format!("servers = [\"{}\"]\n", server.address())
}

#[test]
fn library_alone_finds_servers_of_the_config_file() {
    let server = Server::start_with(&["--backend", "null", "--cuda", "null"], &[]);
    let list = |user: &User| {
        let mut command = user.command(opencl_program("list"));
        command.env("OCL_ICD_VENDORS", library("libtowline_opencl.so"));
        command.output().expect("it runs")
    };
    let found = list(&User::new(&servers(&server)));
    assert_eq!(
        text(&found.stdout),
        "status 0, 1 devices\n",
        "{}",
        text(&found.stderr)
    );
    // Without servers it is quiet, and says what is wrong with a file that has an error.
    let none = list(&User::new(""));
    assert_eq!(
        (text(&none.stdout).as_str(), text(&none.stderr).as_str()),
        ("status -1, 0 devices\n", "")
    );
    let wrong = text(&list(&User::new("sever = 1\n")).stderr);
    assert!(
        wrong.contains("config.toml: unknown key `sever`") && wrong.lines().count() == 1,
        "{wrong}"
    );
}

#[test]
fn cuda_library_alone_finds_servers_of_the_config_file() {
    let server = Server::start_with(&["--backend", "null", "--cuda", "null"], &[]);
    let user = User::new(&servers(&server));
    let folder = user.home.path().join("lib");
    std::fs::create_dir(&folder).expect("room for a folder");
    std::os::unix::fs::symlink(library("libtowline_cuda.so"), folder.join("libcuda.so.1"))
        .expect("room for a link");
    let mut command = user.command(opencl_program("cuda_add"));
    let output = command
        .env("LD_LIBRARY_PATH", &folder)
        .output()
        .expect("it runs");
    assert!(
        text(&output.stdout).starts_with("1 device\n"),
        "{}",
        text(&output.stderr)
    );
}

fn doctor(user: &User, arguments: &[&str]) -> Output {
    let mut command = user.command(towline());
    command
        .arg("doctor")
        .args(arguments)
        .output()
        .expect("it runs")
}

#[test]
fn doctor_finds_a_software_device_well() {
    let server = Server::start_with(&["--backend", "off", "--cuda", "soft"], &[]);
    let user = User::new(&servers(&server));
    let output = doctor(&user, &[]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for part in [
        "port",
        "protocol",
        "compute capability 7.5",
        "towline run --cudart",
        "round trip",
        "began in",
        "/s to the device",
        "0 errors",
    ] {
        assert!(said.contains(part), "no `{part}` in:\n{said}");
    }
    assert!(!said.contains('\x1b'), "{said}");
    let json = doctor(&user, &["--json"]);
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).expect("it is JSON");
    assert_ne!(report["state"], "error");
    assert_eq!(report["sections"].as_array().map(Vec::len), Some(2));
}

#[test]
fn doctor_names_the_driver_that_is_missing() {
    let server = Server::start_with(&["--backend", "null", "--cuda", "/etc/passwd"], &[]);
    let output = doctor(&User::new(""), &[server.address()]);
    let said = text(&output.stdout);
    // OpenCL programs run all the same.
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("note     CUDA"), "{said}");
    assert!(
        said.contains(
            "-> install NVIDIA's driver there, or start it with `towline serve --cuda soft`"
        ),
        "{said}"
    );
}

#[test]
fn doctor_gives_up_a_silent_port_soon() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("ports");
    let address = listener.local_addr().expect("it listens").to_string();
    let start = std::time::Instant::now();
    let output = doctor(&User::new(""), &[&address]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(said.contains("no Towline server"), "{said}");
    assert!(
        start.elapsed() < std::time::Duration::from_secs(9),
        "{:?}",
        start.elapsed()
    );
}

/// A process that ends with the test.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Blocks of a page between lines of three backquotes: what stands behind the first ones, and the text.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut parts = page.split("\n```");
    parts.next();
    let mut found = Vec::new();
    while let (Some(block), _) = (parts.next(), parts.next()) {
        let (kind, body) = block.split_once('\n').unwrap_or((block, ""));
        found.push((kind.to_owned(), body.to_owned()));
    }
    found
}

fn nvcc() -> Option<PathBuf> {
    let versions = std::fs::read_dir(Path::new(ROOT).join("build/cuda-toolkit/lib")).ok()?;
    let nvcc = |entry: std::fs::DirEntry| entry.path().join("site-packages/nvidia/cu13/bin/nvcc");
    versions.flatten().map(nvcc).find(|path| path.exists())
}

#[test]
fn page_for_machines_without_gpu_runs_word_for_word() {
    let Some(nvcc) = nvcc() else {
        eprintln!(
            "there is no nvcc: scripts/setup test installs one, unless TOWLINE_NVCC=no says not to"
        );
        return;
    };
    let page = std::fs::read_to_string(Path::new(ROOT).join("docs/cuda-without-a-gpu.md"))
        .expect("the page is there");
    let user = User::new("");
    let programs = towline().parent().expect("it lies in a folder").to_owned();
    let path =
        std::env::join_paths([programs, "/usr/bin".into(), "/bin".into()]).expect("plain names");
    let shell = |script: &str| {
        let mut command = user.command("bash");
        command
            .args(["-euc", script])
            .env("PATH", &path)
            .env("NVCC", &nvcc);
        command
    };
    // A server of root listens in /run, where others may be; clients look in the user's folder first.
    let own = user.home.path().join("run/towline");
    let listen = match rustix::process::geteuid().is_root() {
        true => format!("--listen shm://{}/local.sock", own.display()),
        false => "--listen local".to_owned(),
    };
    let mut private = std::fs::DirBuilder::new();
    private.mode(0o700).create(&own).expect("room for a folder");
    let (mut said, mut server, mut ran) = (String::new(), None, 0);
    for (kind, body) in blocks(&page) {
        match kind.as_str() {
            "sh" => {
                let output = shell(&body).output().expect("bash runs");
                assert!(output.status.success(), "{body}\n{}", text(&output.stderr));
                said = text(&output.stdout);
                ran += 1;
            }
            "sh server" => {
                let child = shell(&format!("exec {}", body.replace("--listen local", &listen)))
                    .stderr(Stdio::null())
                    .spawn();
                server = Some(Background(child.expect("bash runs")));
                let ready = holds_within(PATIENCE, || {
                    shell("towline devices --server local")
                        .output()
                        .is_ok_and(|output| output.status.success())
                });
                assert!(ready, "the server of the page does not start");
            }
            "text" => assert_eq!(said.trim_end(), body.trim_end()),
            _ => {}
        }
    }
    assert!(ran >= 4 && server.is_some());
}
