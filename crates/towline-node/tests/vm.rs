//! What plans mean to libvirt, cloud-init, NCCL and OpenStack.

mod shape;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use shape::Shape;
use towline_node::vm::cloud::{self, Cluster, KeyPair};
use towline_node::vm::layout::layout;
use towline_node::vm::{Settings, domain, openstack, topology};
use towline_node::{Host, Plan, Request, Root, inspect, plan};

/// The plans that a host can do, of all kinds of hosts.
const PLANS: [&str; 9] = [
    "amd--one",
    "arm--one",
    "busy--taken",
    "drives--one",
    "dual-switches--two",
    "dual-switches--wide-preferred",
    "hgx--all",
    "hgx--four",
    "study--one",
];

fn planned(name: &str) -> (Host, Plan) {
    let shape = Shape::named(name.split_once("--").unwrap().0);
    let host = inspect(&Root::new(shape.folder()));
    let file = format!("{}/tests/plans/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let request = Request::parse(&fs::read_to_string(file).unwrap()).unwrap();
    let plan = plan(&host, &request);
    assert!(plan.obstacles.is_empty(), "{name}: {:?}", plan.obstacles);
    (host, plan)
}

fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("TOWLINE_BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    assert_eq!(fs::read_to_string(path).unwrap(), text, "{name}");
}

#[test]
fn every_domain_is_valid_by_libvirts_schema() {
    let folder = tempfile::tempdir().unwrap();
    for name in PLANS {
        let (host, plan) = planned(name);
        for vm in &plan.vms {
            let file = folder.path().join(format!("{name}-{}.xml", vm.name));
            fs::write(&file, domain(&host, vm, &Settings::default()).unwrap()).unwrap();
            let output = Command::new("virt-xml-validate")
                .arg(&file)
                .arg("domain")
                .output();
            let output = output
                .expect("virt-xml-validate is in Debian's libvirt-clients (scripts/setup test)");
            assert!(
                output.status.success(),
                "{name}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
}

#[test]
fn the_schema_check_can_fail() {
    let folder = tempfile::tempdir().unwrap();
    let (host, plan) = planned("dual-switches--two");
    let text = domain(&host, &plan.vms[0], &Settings::default())
        .unwrap()
        .replace("vcpupin", "vcpupins");
    let file = folder.path().join("domain.xml");
    fs::write(&file, text).unwrap();
    let output = Command::new("virt-xml-validate")
        .arg(&file)
        .arg("domain")
        .output()
        .unwrap();
    assert!(!output.status.success());
}

#[test]
fn libvirt_defines_every_domain_on_its_test_driver() {
    let folder = tempfile::tempdir().unwrap();
    for name in PLANS.iter().filter(|name| !name.starts_with("arm")) {
        let (host, plan) = planned(name);
        let vm = &plan.vms[0];
        let settings = Settings {
            uefi: false,
            ..Settings::default()
        };
        // The test driver is of another kind, knows no expander buses by node, and takes everything else.
        let text = domain(&host, vm, &settings)
            .unwrap()
            .replace("<domain type='kvm'", "<domain type='test'");
        let file = folder.path().join("domain.xml");
        fs::write(&file, &text).unwrap();
        let output = Command::new("virsh")
            .args(["-c", "test:///default", "define"])
            .arg(&file)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{name}: {}\n{text}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn domains_are_as_the_golden_files_have_them() {
    for name in [
        "dual-switches--two",
        "dual-switches--wide-preferred",
        "study--one",
    ] {
        let (host, plan) = planned(name);
        golden(
            &format!("{name}.xml"),
            &domain(&host, &plan.vms[0], &Settings::default()).unwrap(),
        );
        golden(
            &format!("{name}.nccl.xml"),
            &topology(&host, &plan.vms[0]).unwrap(),
        );
    }
}

#[test]
fn a_machines_tree_has_the_hosts_complexes_and_switches() {
    let (host, plan) = planned("hgx--all");
    let layout = layout(&host, &plan.vms[0]).unwrap();
    assert_eq!(layout.expanders.len(), 4);
    assert_eq!(
        layout
            .expanders
            .iter()
            .map(|expander| expander.cell)
            .collect::<Vec<_>>(),
        [Some(0), Some(0), Some(1), Some(1)]
    );
    assert_eq!(layout.slots().count(), 16);
    let mut buses: Vec<u8> = layout.slots().map(|(_, slot)| slot.bus).collect();
    buses.extend(layout.expanders.iter().map(|expander| expander.bus));
    let count = buses.len();
    buses.sort_unstable();
    buses.dedup();
    assert_eq!(buses.len(), count);
    assert_eq!(buses.last(), Some(&255));
}

#[test]
fn functions_of_one_gpu_stay_together() {
    let text = fs::read_to_string("tests/shapes/busy.host")
        .unwrap()
        .replace("boot-vga", "");
    let text: String = text
        .lines()
        .filter(|line| !line.starts_with("process"))
        .map(|line| format!("{line}\n"))
        .collect();
    let shape = Shape::of(&text);
    let host = inspect(&Root::new(shape.folder()));
    let plan = plan(
        &host,
        &Request::parse("vms = 1\ngpus = 1\ncores = 2\nmemory = \"4 GiB\"\n").unwrap(),
    );
    let vm = &plan.vms[0];
    assert_eq!((vm.gpus.len(), vm.companions.len()), (1, 1));
    let layout = layout(&host, vm).unwrap();
    let slots: Vec<_> = layout.slots().collect();
    assert_eq!(slots.len(), 1);
    assert_eq!(
        slots[0]
            .1
            .functions
            .iter()
            .map(|(number, _)| *number)
            .collect::<Vec<_>>(),
        [0, 1]
    );
    let xml = domain(&host, vm, &Settings::default()).unwrap();
    assert_eq!(xml.matches("multifunction='on'").count(), 1);
    assert_eq!(xml.matches("<hostdev ").count(), 2);
}

/// Each hostdev lies on a port, and each port has at most one.
#[test]
fn every_device_has_a_port_of_its_own() {
    for name in PLANS {
        let (host, plan) = planned(name);
        for vm in &plan.vms {
            let xml = domain(&host, vm, &Settings::default()).unwrap();
            let ports: Vec<&str> = xml
                .lines()
                .filter(|line| {
                    line.contains("model='pcie-root-port'")
                        || line.contains("model='pcie-switch-downstream-port'")
                })
                .map(|line| line.split('\'').nth(3).unwrap())
                .collect();
            let mut used: Vec<String> = xml
                .split("<hostdev ")
                .skip(1)
                .map(|part| {
                    part.split("<address type='pci' domain='0x0000' bus='0x")
                        .nth(1)
                        .unwrap()[..2]
                        .to_owned()
                })
                .collect();
            let count = used.len();
            used.sort();
            used.dedup();
            assert_eq!(used.len(), count, "{name}: a port has two devices");
            for bus in used {
                let index = u32::from_str_radix(&bus, 16).unwrap().to_string();
                assert!(
                    ports.contains(&index.as_str()),
                    "{name}: controller {index} is no port"
                );
            }
        }
    }
}

fn cluster() -> (Cluster, KeyPair) {
    let cluster = Cluster {
        user: "towline".to_owned(),
        ssh_keys: vec!["ssh-ed25519 AAAA admin".to_owned()],
        first_address: "10.77.0.10".parse().unwrap(),
        prefix: 24,
        gateway: Some("10.77.0.1".parse().unwrap()),
        name_servers: vec!["10.77.0.1".parse().unwrap()],
    };
    let keys = KeyPair {
        private: "-----BEGIN OPENSSH PRIVATE KEY-----\n".to_owned(),
        public: "ssh-ed25519 BBBB cluster\n".to_owned(),
    };
    (cluster, keys)
}

#[test]
fn machines_of_a_cluster_know_and_trust_each_other() {
    let (cluster, keys) = cluster();
    let hosts = [planned("dual-switches--two")];
    let members = cloud::members(&cluster, &hosts).unwrap();
    assert_eq!(cloud::hostfile(&members), "node0 slots=1\nnode1 slots=1\n");
    let seed = cloud::seed(&cluster, &members, &members[1], &keys).unwrap();
    let user: Value =
        serde_json::from_str(seed.user_data.strip_prefix("#cloud-config\n").unwrap()).unwrap();
    assert_eq!(user["hostname"], "node1");
    assert_eq!(
        user["users"][0]["ssh_authorized_keys"][1],
        "ssh-ed25519 BBBB cluster"
    );
    let file = |path: &str| {
        let files = user["write_files"].as_array().unwrap();
        let file = files
            .iter()
            .find(|file| file["path"] == path)
            .unwrap_or_else(|| panic!("no {path}"));
        file["content"].as_str().unwrap().to_owned()
    };
    assert!(file("/etc/towline/nccl-topology.xml").starts_with("<system version='1'>"));
    assert_eq!(
        file("/etc/modules-load.d/towline.conf"),
        "ib_ipoib\nib_umad\nnvidia_peermem\n"
    );
    assert_eq!(user["runcmd"][0][4], "10.77.0.10 node0\n10.77.0.11 node1\n");
    let network: Value = serde_json::from_str(&seed.network_config).unwrap();
    let interface = &network["ethernets"]["mgmt0"];
    assert_eq!(interface["addresses"][0], "10.77.0.11/24");
    let xml = domain(members[1].host, members[1].vm, &Settings::default()).unwrap();
    assert!(xml.contains(interface["match"]["macaddress"].as_str().unwrap()));
}

#[test]
fn clusters_that_cannot_be_are_refused() {
    let (mut cluster, _) = cluster();
    let hosts = [planned("dual-switches--two"), planned("amd--one")];
    assert!(
        cloud::members(&cluster, &hosts)
            .unwrap_err()
            .to_string()
            .contains("node0")
    );
    let hosts = [planned("dual-switches--two")];
    cluster.first_address = "10.77.0.254".parse().unwrap();
    assert!(
        cloud::members(&cluster, &hosts)
            .unwrap_err()
            .to_string()
            .contains("first_address")
    );
    cluster.prefix = 33;
    assert!(cloud::members(&cluster, &hosts).is_err());
}

/// By the fields that Nova's documentation of `[pci] alias` and `device_spec` allows.
#[test]
fn openstack_gets_what_its_documentation_allows() {
    for name in ["dual-switches--two", "amd--one", "hgx--four"] {
        let (host, plan) = planned(name);
        let openstack = openstack::openstack(&host, &plan, "fabric").unwrap();
        let mut names = Vec::new();
        for line in openstack.nova.lines() {
            if let Some(alias) = line.strip_prefix("alias = ") {
                let alias: Value = serde_json::from_str(alias).unwrap();
                for (key, value) in alias.as_object().unwrap() {
                    let value = value.as_str().unwrap();
                    let is_id =
                        value.len() == 4 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
                    let fits = match key.as_str() {
                        "name" => !value.is_empty(),
                        "vendor_id" | "product_id" => is_id,
                        "device_type" => ["type-PCI", "type-PF", "type-VF"].contains(&value),
                        "numa_policy" => {
                            ["required", "preferred", "legacy", "socket"].contains(&value)
                        }
                        _ => false,
                    };
                    assert!(fits, "{name}: {key} = {value}");
                }
                names.push(alias["name"].as_str().unwrap().to_owned());
            } else if let Some(spec) = line.strip_prefix("device_spec = ") {
                let spec: Value = serde_json::from_str(spec).unwrap();
                let spec = spec.as_object().unwrap();
                // Nova refuses an address beside a name.
                assert!(
                    spec.contains_key("address") != spec.contains_key("devname"),
                    "{name}"
                );
                assert!(
                    spec.keys()
                        .all(|key| ["address", "devname", "physical_network"]
                            .contains(&key.as_str()))
                );
            }
        }
        let wanted = openstack
            .commands
            .lines()
            .find(|line| line.contains("pci_passthrough:alias"))
            .unwrap();
        assert!(
            names
                .iter()
                .any(|name| wanted.contains(&format!("={name}:"))),
            "{wanted}"
        );
        assert!(openstack.commands.contains("hw:mem_page_size=1048576"));
        assert_eq!(
            openstack.commands.matches("--vnic-type direct").count(),
            plan.vms.iter().map(|vm| vm.vfs.len()).sum::<usize>()
        );
    }
}

/// The drives themselves stay the host's: neither address nor type of what Nova may give away is theirs.
#[test]
fn openstack_gets_the_functions_of_drives() {
    let (mut host, plan) = planned("drives--two");
    let files = openstack::openstack(&host, &plan, "fabric").unwrap();
    let lines: Vec<&str> = files.nova.lines().collect();
    let expected = [
        r#"device_spec = {"address":"0000:21:00.1"}"#,
        r#"device_spec = {"address":"0000:21:00.2"}"#,
        r#"alias = {"device_type":"type-VF","name":"drive-144d-a824","numa_policy":"required","product_id":"a824","vendor_id":"144d"}"#,
    ];
    assert_eq!(lines[1..4], expected);
    assert!(
        files
            .commands
            .contains("pci_passthrough:alias=drive-144d-a824:1\n"),
        "{}",
        files.commands
    );

    for device in &mut host.devices {
        if let Some(sriov) = &mut device.sriov {
            sriov.device = None;
        }
    }
    let error = openstack::openstack(&host, &plan, "fabric").unwrap_err();
    assert!(error.to_string().contains("0000:21:00.0"), "{error}");
}
