//! `towline node` as people and scripts meet it, on laid-out machines.

#[path = "../../towline-node/tests/shape/mod.rs"]
mod shape;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use shape::Shape;

/// A machine whose steps are all plain files: vfio is loaded, and no command has to run.
const PLAIN: &str = r#"
machine name=plain cpu=intel kernel=6.1.0 cmdline="ro intel_iommu=on" iommu=1 irq=IR kvm loader=grub cpus=8
node 0 cpus=0-7 memory=64 free=60 page1g=0/0
bridge 0000:00:01.0 group=1 acs=5f:1d node=0
gpu 0000:01:00.0 under=0000:00:01.0 id=10de:20b5 driver=nvidia minor=0 group=10 node=0 bars=16M,80G
irq 50 0-7
file /sys/module/vfio_pci/initstate live
file /sys/module/vfio_iommu_type1/initstate live
file /sys/bus/pci/drivers/vfio-pci/bind -
"#;

fn node(shape: &Shape, arguments: &[&str]) -> Output {
    let (verb, rest) = arguments.split_first().unwrap();
    Command::new(env!("CARGO_BIN_EXE_towline"))
        .args(["node", verb, "--root"])
        .arg(shape.folder())
        .args(rest)
        .output()
        .unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn request(shape: &Shape, text: &str) -> PathBuf {
    shape.write("/request.toml", text);
    shape.path("/request.toml")
}

#[test]
fn inspect_prints_a_tree_a_table_and_json() {
    let shape = Shape::named("dual-switches");
    let tree = out(&node(&shape, &["inspect"]));
    assert!(
        tree.contains("      │  └─ 0000:19:00.0 GPU 10de:2330"),
        "{tree}"
    );
    let table = out(&node(&shape, &["inspect", "--table"]));
    assert!(
        table.lines().next().unwrap().starts_with("ADDRESS")
            && table.contains("0000:17:00.0  nvidia"),
        "{table}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&out(&node(&shape, &["inspect", "--json"]))).unwrap();
    assert_eq!(json["devices"][0]["address"], "0000:00:1c.0");
}

#[test]
fn a_plan_for_another_host_is_made_of_its_json() {
    let shape = Shape::named("dual-switches");
    shape.write("/host.json", &out(&node(&shape, &["inspect", "--json"])));
    let request = request(
        &shape,
        "vms = 2\ngpus = 1\nvfs = 1\ncores = 8\nmemory = \"20 GiB\"\n",
    );
    let here = node(&shape, &["plan", request.to_str().unwrap()]);
    let there = Command::new(env!("CARGO_BIN_EXE_towline"))
        .args(["node", "plan", "--host"])
        .args([shape.path("/host.json"), request])
        .output()
        .unwrap();
    assert!(
        here.status.success() && out(&here).contains("share a switch"),
        "{}",
        err(&here)
    );
    assert_eq!(out(&here), out(&there));
}

#[test]
fn what_the_host_cannot_do_ends_with_a_failure_that_says_what_would_help() {
    let shape = Shape::named("no-acs");
    let request = request(&shape, "vms = 1\ngpus = 1\ncores = 2\nmemory = \"4 GiB\"\n");
    let output = node(&shape, &["plan", request.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(125));
    assert!(out(&output).contains("has no ACS"), "{}", out(&output));
    let output = node(&shape, &["apply", request.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(125));
    assert!(err(&output).contains("has no ACS"), "{}", err(&output));
}

#[test]
fn apply_changes_files_and_undo_takes_it_back() {
    let shape = Shape::of(PLAIN);
    let request = request(&shape, "vms = 1\ncores = 2\nmemory = \"4 GiB\"\n");
    let pages =
        shape.path("/sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages");
    let output = node(&shape, &["apply", request.to_str().unwrap()]);
    assert!(
        output.status.success() && out(&output).ends_with("The host is as planned.\n"),
        "{}",
        err(&output)
    );
    assert_eq!(fs::read_to_string(&pages).unwrap(), "4\n");
    assert_eq!(
        fs::read_to_string(shape.path("/proc/irq/50/smp_affinity_list")).unwrap(),
        "0,3-7\n"
    );
    let output = node(&shape, &["undo"]);
    assert!(
        output.status.success() && out(&output).ends_with("The host is as it was.\n"),
        "{}",
        err(&output)
    );
    assert_eq!(fs::read_to_string(&pages).unwrap(), "0\n");
    assert_eq!(
        fs::read_to_string(shape.path("/proc/irq/50/smp_affinity_list")).unwrap(),
        "0-7\n"
    );
}

#[test]
fn a_change_goes_on_whose_output_nobody_reads() {
    let shape = Shape::of(PLAIN);
    let request = request(&shape, "vms = 1\ncores = 2\nmemory = \"4 GiB\"\n");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = Command::new(env!("CARGO_BIN_EXE_towline"))
        .args(["node", "apply", "--root"])
        .args([shape.folder(), &request])
        .stdout(writer)
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    let irq = fs::read_to_string(shape.path("/proc/irq/50/smp_affinity_list")).unwrap();
    assert_eq!(irq, "0,3-7\n");
}

#[test]
fn a_change_whose_output_is_lost_is_made_and_fails() {
    let shape = Shape::of(PLAIN);
    let request = request(&shape, "vms = 1\ncores = 2\nmemory = \"4 GiB\"\n");
    let status = Command::new(env!("CARGO_BIN_EXE_towline"))
        .args(["node", "apply", "--root"])
        .args([shape.folder(), &request])
        .stdout(fs::File::create("/dev/full").unwrap())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(125));
    let irq = fs::read_to_string(shape.path("/proc/irq/50/smp_affinity_list")).unwrap();
    assert_eq!(irq, "0,3-7\n");
}

fn json(output: &Output) -> serde_json::Value {
    let text = out(output);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{}", err(output)))
}

#[test]
fn apply_and_undo_tell_their_changes_as_json() {
    let shape = Shape::of(PLAIN);
    let request = request(&shape, "vms = 1\ncores = 2\nmemory = \"4 GiB\"\n");
    let applied = node(&shape, &["apply", "--json", request.to_str().unwrap()]);
    let report = json(&applied);
    assert_eq!(report["restart_needed"], false);
    let changes = report["changes"].as_array().unwrap();
    let lines: Vec<&str> = changes.iter().map(|line| line.as_str().unwrap()).collect();
    assert!(
        lines.iter().any(|line| line.contains("nr_hugepages")),
        "{lines:?}"
    );
    assert_eq!(err(&applied), lines.join("\n") + "\n");
    // A change that somebody else has moved stays, and is told.
    shape.write("/proc/irq/50/smp_affinity_list", "1\n");
    let undone = node(&shape, &["undo", "--json"]);
    let report = json(&undone);
    let [left] = report["left"].as_array().unwrap().as_slice() else {
        panic!("{report}")
    };
    assert!(left.as_str().unwrap().contains("left as it is"), "{left}");
    assert!(!report["changes"].as_array().unwrap().is_empty());
}

/// A proof of one benchmark, whose nodes are reached by the program REACH.
const PROOF: &str = r#"
runs = 2
[native]
reach = [["REACH", "native"]]
hosts = ["localhost"]
[vm]
reach = [["REACH", "vm"]]
hosts = ["localhost"]
[[benchmark]]
kind = "lj"
"#;

/// A node that answers as both sides do: twice as much natively.
const REACH: &str = "#!/bin/sh\ncase \"$2\" in *uname*) echo kernel=6.1.0;; 'command -v'*|test*) ;; *)\n\
    [ $1 = native ] && rate=2 || rate=1\necho '{\"matom_steps_per_s\": '$rate', \"check\": \"pass\"}';;\nesac\n";

#[test]
fn prove_prints_its_report_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("reach"), REACH).unwrap();
    fs::set_permissions(path("reach"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(path("spec.toml"), PROOF.replace("REACH", &path("reach"))).unwrap();
    let arguments = [
        "node",
        "prove",
        "--json",
        &path("spec.toml"),
        "--out",
        &path("out"),
    ];
    let output = Command::new(env!("CARGO_BIN_EXE_towline"))
        .args(arguments)
        .output()
        .unwrap();
    let report = json(&output);
    assert_eq!(output.status.code(), Some(1), "half is short of the goal");
    assert_eq!(report["cases"][0]["efficiency"]["mean"], 0.5, "{report}");
    assert_eq!(report["cases"][0]["native"]["count"], 2);
    assert_eq!(
        fs::read_to_string(path("out/report.json")).unwrap() + "\n",
        out(&output)
    );
    assert!(err(&output).lines().count() >= 4, "a line for each run");
}

#[test]
fn a_plan_on_paper_is_applied_as_it_is() {
    let shape = Shape::of(PLAIN);
    let request = request(&shape, "vms = 1\ncores = 2\nmemory = \"4 GiB\"\n");
    shape.write(
        "/plan.json",
        &out(&node(
            &shape,
            &["plan", "--json", request.to_str().unwrap()],
        )),
    );
    let plan = shape.path("/plan.json");
    let output = node(&shape, &["apply", "--plan", plan.to_str().unwrap()]);
    assert!(output.status.success(), "{}", err(&output));
    assert!(node(&shape, &["undo"]).status.success());
}

#[test]
fn a_write_that_hangs_is_given_up_and_told() {
    let shape = Shape::of(PLAIN);
    let request = request(&shape, "vms = 1\ngpus = 1\ncores = 2\nmemory = \"4 GiB\"\n");
    // Whoever opens a pipe for writing waits for a reader.
    let unbind = shape.path("/sys/bus/pci/drivers/nvidia/unbind");
    fs::remove_file(&unbind).unwrap();
    let made = Command::new("mkfifo").arg(&unbind).status().unwrap();
    assert!(made.success());
    let output = node(
        &shape,
        &["apply", "--limit", "1", request.to_str().unwrap()],
    );
    assert_eq!(output.status.code(), Some(125));
    assert!(
        err(&output).contains("has not answered after 1 s"),
        "{}",
        err(&output)
    );
    assert!(
        err(&output).contains("nobody is seen to have 0000:01:00.0"),
        "{}",
        err(&output)
    );
    // The one that waits goes on, and away, when somebody reads.
    drop(fs::File::open(&unbind).unwrap());
    let output = node(&shape, &["undo"]);
    assert!(output.status.success(), "{}", err(&output));
}

#[test]
fn commands_are_not_run_for_a_tree_that_is_not_this_host() {
    let shape = Shape::named("single-intel");
    let request = request(&shape, "vms = 1\ngpus = 1\ncores = 2\nmemory = \"4 GiB\"\n");
    let output = node(&shape, &["apply", request.to_str().unwrap()]);
    assert!(
        err(&output).contains("`modprobe vfio_iommu_type1` can only be run on the host itself"),
        "{}",
        err(&output)
    );
    assert!(node(&shape, &["undo"]).status.success());
}

#[test]
fn a_wrong_request_is_told_with_its_file() {
    let shape = Shape::of(PLAIN);
    let request = request(&shape, "vms = 1\ncores = 2\nmemory = \"4 GB\"\n");
    let output = node(&shape, &["plan", request.to_str().unwrap()]);
    assert!(
        err(&output).contains("request.toml") && err(&output).contains("20 GiB"),
        "{}",
        err(&output)
    );
}

#[test]
fn machines_of_several_hosts_become_a_cluster() {
    let shape = Shape::named("dual-switches");
    shape.write("/facts.json", &out(&node(&shape, &["inspect", "--json"])));
    for name in ["a", "b"] {
        let text = format!(
            "name = \"{name}\"\nvms = 2\ngpus = 1\nvfs = 1\ncores = 8\nmemory = \"20 GiB\"\n"
        );
        shape.write(&format!("/{name}.toml"), &text);
    }
    shape.write("/id/id_ed25519", "PRIVATE");
    shape.write("/id/id_ed25519.pub", "ssh-ed25519 PUBLIC");
    let cluster = "[cluster]\nssh_keys = [\"ssh-ed25519 ADMIN\"]\nfirst_address = \"10.77.0.10\"\n\
                   [[host]]\nfacts = \"facts.json\"\nrequest = \"a.toml\"\n\
                   [[host]]\nfacts = \"facts.json\"\nrequest = \"b.toml\"\n";
    shape.write("/cluster.toml", cluster);
    let output = Command::new(env!("CARGO_BIN_EXE_towline"))
        .args(["vm", "cluster", "--json", "--out"])
        .args([shape.path("/id"), shape.path("/cluster.toml")])
        .output()
        .unwrap();
    let report = json(&output);
    let files = report["files"].as_array().unwrap();
    let hostfile = shape.path("/id/hostfile");
    assert_eq!(files[0].as_str(), hostfile.to_str());
    assert!(files.len() > 4 * 5, "{files:?}");
    let hosts = fs::read_to_string(shape.path("/id/hostfile")).unwrap();
    assert_eq!(hosts, "a0 slots=1\na1 slots=1\nb0 slots=1\nb1 slots=1\n");
    let user = fs::read_to_string(shape.path("/id/b1/user-data")).unwrap();
    assert!(
        user.contains("10.77.0.13 b1") && user.contains("ssh-ed25519 PUBLIC"),
        "{user}"
    );
    assert!(
        fs::read_to_string(shape.path("/id/b1/domain.xml"))
            .unwrap()
            .contains("<name>b1</name>")
    );
}

#[test]
fn domains_print_and_are_defined_by_virsh() {
    let shape = Shape::named("study");
    let request = request(
        &shape,
        "vms = 1\ngpus = 1\ncores = 7\nmemory = \"20 GiB\"\n",
    );
    let vm = |words: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_towline"))
            .args(["vm"])
            .args(words)
            .arg("--root")
            .arg(shape.folder())
            .arg(&request)
            .output()
            .unwrap()
    };
    let output = vm(&["xml"]);
    assert!(
        out(&output).starts_with("<domain type='kvm'"),
        "{}",
        err(&output)
    );
    let output = vm(&["xml", "--only", "node7"]);
    assert!(err(&output).contains("it has node0"), "{}", err(&output));
    let output = vm(&["xml", "--json"]);
    let domains = json(&output);
    assert_eq!(domains[0]["name"], "node0");
    assert!(
        domains[0]["xml"]
            .as_str()
            .is_some_and(|xml| xml.starts_with("<domain type='kvm'"))
    );
    // libvirt's test driver takes what the schema allows, and forgets it with the connection.
    let output = vm(&["define", "--connect", "test:///default"]);
    assert_eq!(out(&output), "node0 is defined\n", "{}", err(&output));
    let output = vm(&["define", "--json", "--connect", "test:///default"]);
    assert_eq!(
        json(&output),
        serde_json::json!({ "action": "define", "machines": ["node0"] })
    );
    let output = Command::new(env!("CARGO_BIN_EXE_towline"))
        .args(["vm", "start", "--json", "--connect", "test:///default"])
        .arg("nobody")
        .output()
        .unwrap();
    assert!(out(&output).is_empty() && !output.status.success());
    let output = Command::new(env!("CARGO_BIN_EXE_towline"))
        .args(["vm", "stop", "--connect", "test:///default", "nobody"])
        .output()
        .unwrap();
    assert!(
        err(&output).contains("cannot shutdown nobody"),
        "{}",
        err(&output)
    );
}

#[test]
fn openstack_gets_its_files() {
    let shape = Shape::named("dual-switches");
    let request = request(
        &shape,
        "vms = 2\ngpus = 1\nvfs = 1\ncores = 8\nmemory = \"20 GiB\"\n",
    );
    let output = Command::new(env!("CARGO_BIN_EXE_towline"))
        .args(["vm", "openstack", "--json", "--root"])
        .arg(shape.folder())
        .arg("--out")
        .args([shape.path("/out"), request])
        .output()
        .unwrap();
    let files = ["nova.conf", "sriov_agent.ini", "commands.sh"];
    let files = files.map(|name| shape.path("/out").join(name));
    assert_eq!(json(&output), serde_json::json!({ "files": files }));
    assert!(
        fs::read_to_string(shape.path("/out/nova.conf"))
            .unwrap()
            .contains("\"gpu-10de-2330\"")
    );
    assert!(
        fs::read_to_string(shape.path("/out/commands.sh"))
            .unwrap()
            .contains("openstack port create node1-0")
    );
}
