//! What programs see.

use std::process::Command;

use crate::support::{Client, Server};

/// Names that Towline answers itself, since it cannot be done remotely: fine-grained shared memory, native kernels, extensions that need the
/// host, and memory that is the host's.
const MASKED: [&str; 7] = [
    "CL_DEVICE_HOST_UNIFIED_MEMORY",
    "CL_DEVICE_SVM_CAPABILITIES",
    "CL_DEVICE_EXECUTION_CAPABILITIES",
    "CL_DEVICE_EXTENSIONS",
    "CL_DEVICE_EXTENSIONS_WITH_VERSION",
    "CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR",
    "CL_DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES_KHR",
];

/// The lines of `clinfo --raw` about one device: names and values.
fn fields<'a>(lines: impl Iterator<Item = &'a str>, device: &str) -> Vec<(String, String)> {
    let lines = lines.filter_map(|line| line.strip_prefix(device));
    let split = |line: &str| {
        let (name, value) = line.trim().split_once(' ')?;
        Some((name.to_owned(), value.trim().to_owned()))
    };
    lines
        .filter_map(split)
        .filter(|(name, _)| name.starts_with("CL_DEVICE_"))
        .collect()
}

#[test]
fn clinfo_lists_the_devices_of_all_servers_beside_the_local_platform() {
    let servers = Server::start_several(2, &[]);
    let lines = Client::new(&[&servers[0], &servers[1]], "clinfo")
        .args(&["-l"])
        .run()
        .lines_of_success();
    let towline = lines
        .iter()
        .position(|line| line.ends_with("Towline"))
        .expect("a platform Towline");
    let devices = lines[towline + 1..]
        .iter()
        .take_while(|line| line.contains("Device #"))
        .count();
    assert_eq!(devices, 2, "{lines:?}");
    assert!(
        lines
            .iter()
            .any(|line| line.ends_with("Portable Computing Language")),
        "{lines:?}"
    );
}

#[test]
fn device_tells_the_same_about_itself_natively_and_through_a_server() {
    let server = Server::start();
    let native = Command::new("clinfo")
        .arg("--raw")
        .env_remove("OCL_ICD_VENDORS")
        .output()
        .expect("clinfo is installed");
    let native = String::from_utf8_lossy(&native.stdout).into_owned();
    let native = fields(native.lines(), "[POCL/0]");
    let remote = Client::new(&[&server], "clinfo")
        .args(&["--raw"])
        .run()
        .lines_of_success();
    let remote = fields(remote.iter().map(String::as_str), "[towline/0]");
    let unmasked = |fields: &[(String, String)]| -> Vec<(String, String)> {
        let fields = fields
            .iter()
            .filter(|(name, _)| !MASKED.contains(&name.as_str()));
        // The machine's clock varies.
        fields
            .filter(|(name, _)| name != "CL_DEVICE_MAX_CLOCK_FREQUENCY")
            .cloned()
            .collect()
    };
    assert!(unmasked(&native).len() > 80, "{native:?}");
    assert_eq!(unmasked(&remote), unmasked(&native));
}

#[test]
fn clinfo_shows_everything_about_local_and_remote_devices_in_one_platform() {
    let server = Server::start();
    let finished =
        Client::with_options(&["--server", server.address(), "--with-local"], "clinfo").run();
    let lines = finished.lines_of_success();
    let devices = lines
        .iter()
        .filter(|line| line.trim_start().starts_with("Device Version"))
        .count();
    // PoCL beside Towline, PoCL in Towline, the server's PoCL.
    assert_eq!(devices, 3, "{lines:#?}");
}

#[test]
fn devices_of_every_server_are_counted_in_json() {
    let pocl = Server::start_with(&[], &[("POCL_DEVICES", "pthread pthread")]);
    let null = Server::start_null();
    let servers = format!("{},{}", pocl.address(), null.address());
    let output = Command::new(crate::support::towline())
        .args(["devices", "--json", "--server", &servers])
        .output();
    let output = output.expect("towline is a program");
    let devices: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(devices.as_array().map(Vec::len), Some(3), "{devices}");
}
