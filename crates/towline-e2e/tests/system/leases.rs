//! Leases: who gives them, what each has, and that nothing of them is lost or given twice.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output};

use serde_json::{Value, json};

use crate::support::{Client, PATIENCE, Server, holds_within, opencl_program, towline};
use crate::tenants::Tenants;

/// Servers with an admin, `operators`, and the leases that it gives.
pub(crate) struct Pool {
    tenants: Vec<Tenants>,
    servers: Vec<Server>,
}

impl Pool {
    /// Servers with so many devices each.
    pub(crate) fn new(devices: &[u32]) -> Self {
        let tenants: Vec<_> = devices.iter().map(|_| Tenants::new()).collect();
        tenants[0].add("operators", &["--admin"]);
        for other in &tenants[1..] {
            std::fs::copy(tenants[0].file(), other.file()).expect("room for a file");
        }
        let served = tenants.iter().zip(devices);
        let servers = served.map(|(tenants, count)| serve(tenants, *count));
        Self {
            servers: servers.collect(),
            tenants,
        }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.tenants[0].path(name)
    }

    pub(crate) fn addresses(&self) -> String {
        let addresses = self.servers.iter().map(Server::address);
        addresses.collect::<Vec<_>>().join(",")
    }

    /// `towline` with these arguments, by a tenant.
    fn ask(&self, tenant: &str, arguments: &[&str]) -> Output {
        Command::new(towline())
            .args(arguments)
            .args(["--server", &self.addresses(), "--tenant", tenant])
            .args(["--token-file", &self.path(tenant)])
            .output()
            .expect("towline is a program")
    }

    pub(crate) fn lease(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.ask("operators", &[&["lease"], arguments].concat());
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    }

    /// Gives a lease, whose token is kept under its name.
    fn give(&self, name: &str, arguments: &[&str]) -> Result<String, String> {
        let token = self.path(name);
        self.lease(&[&["give", name, "--token-out", &token], arguments].concat())
    }

    /// Names of the devices of a lease, over all servers.
    pub(crate) fn devices_of(&self, name: &str) -> Vec<String> {
        let leases = self.lease(&["list", "--json"]).expect("it lists");
        let leases: Value = serde_json::from_str(&leases).expect("it is JSON");
        let own = leases.as_array().expect("a list").iter();
        let own = own.filter(|lease| lease["name"] == name);
        let devices = own.flat_map(|lease| lease["devices"].as_array().expect("a list"));
        devices
            .map(|name| name.as_str().expect("a text").to_owned())
            .collect()
    }

    /// UUIDs of the devices that a tenant is told of.
    fn seen_by(&self, tenant: &str) -> Vec<String> {
        let output = self.ask(tenant, &["devices", "--json"]);
        let devices: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
        let devices = devices.as_array().expect("a list").iter();
        devices
            .map(|device| device["uuid"].as_str().expect("a text").to_owned())
            .collect()
    }

    /// The audit logs of all servers.
    pub(crate) fn audits(&self) -> Vec<String> {
        self.tenants.iter().map(|own| own.path("audit")).collect()
    }

    /// Kills a server, and starts it anew at its address.
    pub(crate) fn restart(&mut self, index: usize, devices: u32) {
        let server = &mut self.servers[index];
        server.kill();
        let address = server.address().to_owned();
        *server = serve_at(&address, &self.tenants[index], devices);
    }

    fn program(&self, tenant: &str, arguments: &[&str]) -> Client {
        let (servers, token) = (self.addresses(), self.path(tenant));
        let options = [
            "--server",
            &servers,
            "--tenant",
            tenant,
            "--token-file",
            &token,
        ];
        Client::with_options(&options, opencl_program("cuda_takes")).args(arguments)
    }
}

fn serve(tenants: &Tenants, devices: u32) -> Server {
    serve_at("127.0.0.1:0", tenants, devices)
}

fn serve_at(address: &str, tenants: &Tenants, devices: u32) -> Server {
    let devices = format!("soft:{devices}");
    let options = [
        "--backend",
        "off",
        "--cuda",
        &devices,
        "--soft-memory",
        "64M",
    ];
    let (file, audit) = (tenants.file(), tenants.path("audit"));
    let own = ["--tenants-file", &file, "--audit-log", &audit];
    Server::start_at(address, &[&own[..], &options].concat())
}

#[test]
fn whole_devices_are_of_one_lease_alone() {
    let pool = Pool::new(&[3]);
    pool.give("one", &["--devices", "2", "--for", "1h"])
        .unwrap();
    pool.give("two", &["--devices", "1"]).unwrap();
    let [one, two] = ["one", "two"].map(|name| pool.devices_of(name));
    assert_eq!((one.len(), two.len()), (2, 1));
    assert!(!one.contains(&two[0]));
    assert_eq!(
        [&one, &two],
        ["one", "two"].map(|name| pool.seen_by(name)).each_ref()
    );
    let refusal = pool.give("three", &["--devices", "1"]).unwrap_err();
    assert!(refusal.contains("0 of 3 are free"), "{refusal}");
    assert!(!std::path::Path::new(&pool.path("three")).exists());
    let mut program = pool.program("two", &["1"]).start();
    assert_eq!(program.wait_for_word("has"), "1 of 64, free 63");
    pool.lease(&["end", "two"]).unwrap();
    // Its device is free as soon as that returns.
    pool.give("three", &["--devices", "1"]).unwrap();
    program.go_on();
    let errors = program.finish().errors;
    assert!(errors.contains("revoked the tenant `two`"), "{errors}");
    assert_eq!(pool.devices_of("three"), two);
}

#[test]
fn parts_of_a_device_have_their_memory_exactly() {
    let pool = Pool::new(&[1]);
    pool.give("small", &["--memory", "16M"]).unwrap();
    pool.give("large", &["--memory", "48M"]).unwrap();
    let refusal = pool.give("more", &["--memory", "1M"]).unwrap_err();
    assert!(refusal.contains("the most that is free is 0"), "{refusal}");
    let mut small = pool.program("small", &["64"]).start();
    let mut large = pool.program("large", &["64"]).start();
    assert_eq!(small.wait_for_word("has"), "16 of 16, free 0");
    assert_eq!(large.wait_for_word("has"), "48 of 48, free 0");
}

#[test]
fn lease_outlives_a_killed_server() {
    let mut pool = Pool::new(&[2]);
    pool.give("one", &["--devices", "1"]).unwrap();
    let before = pool.devices_of("one");
    pool.restart(0, 2);
    assert_eq!(pool.devices_of("one"), before);
    assert_eq!(pool.seen_by("one"), before);
    pool.give("two", &["--devices", "1"]).unwrap();
    assert_ne!(pool.devices_of("two"), before);
}

#[test]
fn lease_ends_at_its_time_unless_it_is_renewed() {
    let pool = Pool::new(&[2]);
    pool.give("short", &["--devices", "1", "--for", "4s"])
        .unwrap();
    pool.give("long", &["--devices", "1", "--for", "4s"])
        .unwrap();
    pool.lease(&["renew", "long", "--for", "1h"]).unwrap();
    let mut program = pool.program("short", &["1"]).start();
    program.wait_for_word("has");
    let free = holds_within(PATIENCE, || pool.give("next", &["--devices", "1"]).is_ok());
    assert!(free, "the device stays leased");
    program.go_on();
    let errors = program.finish().errors;
    assert!(
        errors.contains("had sessions on this server until"),
        "{errors}"
    );
    let late = pool.lease(&["renew", "short", "--for", "1h"]).unwrap_err();
    assert!(late.contains("is over"), "{late}");
    assert_eq!(pool.devices_of("long").len(), 1);
}

#[test]
fn draining_server_gives_no_leases() {
    let pool = Pool::new(&[2]);
    pool.give("one", &["--devices", "1"]).unwrap();
    pool.give("two", &["--memory", "1M"]).unwrap();
    // The server lasts as long as this session.
    let mut program = pool.program("one", &["1"]).start();
    program.wait_for_word("has");
    let mut drain = Command::new(towline())
        .args(["drain", "--server", &pool.addresses()])
        .args(["--tenant", "operators"])
        .args(["--token-file", &pool.path("operators")])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("towline is a program");
    let mut number = 0;
    let is_refused = holds_within(PATIENCE, || {
        number += 1;
        let given = pool.give(&format!("new{number}"), &["--memory", "1M"]);
        given.is_err_and(|refusal| refusal.contains("the server drains"))
    });
    assert!(is_refused, "it gives leases");
    pool.lease(&["renew", "one", "--for", "1h"]).unwrap();
    pool.lease(&["end", "two"]).unwrap();
    program.go_on();
    program.finish();
    let _ = drain.kill();
    let _ = drain.wait();
}

#[test]
fn lease_may_be_of_several_servers() {
    let pool = Pool::new(&[1, 2]);
    pool.give("one", &["--devices", "2"]).unwrap();
    assert_eq!(pool.devices_of("one").len(), 2);
    pool.lease(&["end", "one"]).unwrap();
    pool.give("all", &["--devices", "3"]).unwrap();
    assert_eq!(pool.devices_of("all").len(), 3);
    let mut program = pool.program("all", &["1"]).start();
    program.wait_for_word("has");
    pool.lease(&["end", "all"]).unwrap();
    // Nothing of what could not be given whole stays.
    let refusal = pool.give("more", &["--devices", "4"]).unwrap_err();
    assert!(
        refusal.contains("4 whole devices are asked for"),
        "{refusal}"
    );
    assert_eq!(pool.lease(&["list"]).unwrap(), "no leases\n");
}

#[test]
fn wrong_wishes_for_leases_say_why() {
    let pool = Pool::new(&[1]);
    pool.tenants[0].add("anna", &[]);
    pool.give("one", &["--memory", "1M"]).unwrap();
    for (arguments, part) in [
        (
            &["give", "one", "--memory", "1M"][..],
            "a lease `one` already",
        ),
        (
            &["give", "operators", "--memory", "1M"],
            "a tenant `operators` already",
        ),
        (
            &["give", "an na", "--memory", "1M"],
            "is no name for a tenant",
        ),
        (&["end", "operators"], "there is no lease `operators`"),
        (&["end", "two"], "there is no lease `two`"),
        (&["renew", "two", "--for", "1h"], "there is no lease `two`"),
        (&["give", "two"], "--devices"),
        (
            &["give", "two", "--devices", "1", "--memory", "1M"],
            "cannot be used",
        ),
    ] {
        let error = pool.lease(arguments).unwrap_err();
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
    let arguments = ["lease", "give", "two", "--memory", "1M"];
    for tenant in ["anna", "one"] {
        let heard = holds_within(PATIENCE, || {
            let output = pool.ask(tenant, &arguments);
            assert!(!output.status.success());
            String::from_utf8_lossy(&output.stderr).contains("admins may give")
        });
        assert!(heard, "{tenant}");
    }
    assert_eq!(pool.devices_of("two"), [""; 0]);
    let alone = Server::start_null();
    let output = Command::new(towline())
        .args(["lease", "list", "--server", alone.address()])
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .output()
        .expect("towline is a program");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("--token-file"), "{errors}");
}

#[test]
fn lease_may_be_of_named_devices() {
    let pool = Pool::new(&[2]);
    let all = pool.seen_by("operators");
    pool.give("one", &["--devices", "1", "--on", &all[1]])
        .unwrap();
    assert_eq!(pool.devices_of("one"), all[1..]);
    let refusal = pool
        .give("two", &["--devices", "1", "--on", &all[1]])
        .unwrap_err();
    assert!(refusal.contains("0 of 1 are free"), "{refusal}");
    pool.give("two", &["--memory", "1M", "--on", "0,1"])
        .unwrap();
    assert_eq!(pool.devices_of("two"), all[..1]);
}

/// `towline lease serve`, and a connection to it.
struct Giver {
    process: Child,
    connection: BufReader<UnixStream>,
}

impl Giver {
    fn start(pool: &Pool) -> Self {
        let socket = pool.path("leases.sock");
        let process = Command::new(towline())
            .args(["lease", "serve", "--socket", &socket])
            .args(["--server", &pool.addresses(), "--tenant", "operators"])
            .args(["--token-file", &pool.path("operators")])
            .spawn()
            .expect("towline is a program");
        let mut connection = None;
        let is_there = holds_within(PATIENCE, || {
            connection = UnixStream::connect(&socket).ok();
            connection.is_some()
        });
        assert!(is_there, "nobody listens");
        let connection = BufReader::new(connection.expect("it is there"));
        Self {
            process,
            connection,
        }
    }

    fn ask(&mut self, request: &Value) -> Value {
        let line = format!("{request}\n");
        let mut to = self.connection.get_ref();
        to.write_all(line.as_bytes()).expect("it listens");
        let mut answer = String::new();
        self.connection.read_line(&mut answer).expect("it answers");
        serde_json::from_str(&answer).expect("it is JSON")
    }
}

impl Drop for Giver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn program_gives_leases_by_a_socket() {
    let pool = Pool::new(&[2]);
    let mut giver = Giver::start(&pool);
    let request = |command: &str, more: Value| {
        let mut request = json!({ "version": 1, "id": "x", "command": command });
        let more = more.as_object().expect("an object").clone();
        request.as_object_mut().expect("an object").extend(more);
        request
    };
    let devices = giver.ask(&request("devices", json!({})));
    let uuid = devices["devices"][1]["uuid"].clone();
    let token = pool.path("claim");
    let give = json!({ "name": "claim", "devices": 1, "on": [uuid], "seconds": 3600, "token_file": token });
    let given = giver.ask(&request("give", give.clone()));
    assert_eq!(
        given["lease"]["servers"][0]["devices"],
        json!([uuid]),
        "{given}"
    );
    assert!(given["lease"]["token"].is_null() && given["id"] == "x");
    let edits = &given["lease"]["cdi"]["devices"][0]["containerEdits"];
    let mounted = edits["mounts"].as_array().expect("a list").iter();
    let has_driver = mounted
        .clone()
        .any(|mount| mount["containerPath"] == "/opt/towline/lib/libcuda.so.1");
    assert!(has_driver, "{edits}");
    for mount in mounted {
        let path = mount["hostPath"].as_str().expect("a text");
        assert!(std::path::Path::new(path).exists(), "{path}");
    }
    assert_eq!(pool.seen_by("claim"), [uuid.as_str().expect("a text")]);
    let again = giver.ask(&request("give", give));
    assert!(
        again["error"]
            .as_str()
            .is_some_and(|why| why.contains("already")),
        "{again}"
    );
    let renewed = giver.ask(&request("renew", json!({ "name": "claim", "seconds": 0 })));
    assert_eq!(renewed["found"], true, "{renewed}");
    let listed = giver.ask(&request("list", json!({})));
    assert!(listed["leases"][0]["until"].is_null(), "{listed}");
    // A lease that cannot be handed over is not given.
    let taken = giver.ask(&request(
        "give",
        json!({ "name": "other", "devices": 1, "token_file": token }),
    ));
    assert!(
        taken["error"].is_string() && pool.devices_of("other").is_empty(),
        "{taken}"
    );
    assert_eq!(
        giver.ask(&request("end", json!({ "name": "claim" })))["found"],
        true
    );
    assert_eq!(
        giver.ask(&request("end", json!({ "name": "claim" })))["found"],
        false
    );
    for wrong in [
        json!({ "version": 2, "command": "list" }),
        json!(7),
        json!({}),
    ] {
        assert!(giver.ask(&wrong)["error"].is_string(), "{wrong}");
    }
}

#[test]
fn share_of_time_is_leased_once() {
    let pool = Pool::new(&[1]);
    let part = ["--memory", "16M", "--share", "70"];
    let first = [&part[..], &["--priority", "latency-critical"]].concat();
    pool.give("one", &first).unwrap();
    let refusal = pool.give("two", &part).unwrap_err();
    assert!(refusal.contains("that is free is 30 %"), "{refusal}");
    pool.give("two", &["--memory", "16M", "--share", "30"])
        .unwrap();
    let leases = pool.lease(&["list", "--json"]).expect("it lists");
    let leases: Value = serde_json::from_str(&leases).expect("it is JSON");
    assert_eq!(leases[0]["share"], 70);
    assert_eq!(leases[0]["priority"], "latency-critical");
    assert_eq!(leases[1]["priority"], "normal");
    let audit = std::fs::read_to_string(&pool.audits()[0]).expect("there is an audit log");
    let given = audit.lines().find(|line| line.contains("lease_given"));
    let given: Value = serde_json::from_str(given.expect("a line")).expect("JSON");
    assert_eq!(given["share"], 70);
    assert_eq!(given["priority"], "latency-critical");
}
