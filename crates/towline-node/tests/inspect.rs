//! Described machines, as `inspect` sees them.

mod shape;

use shape::Shape;
use towline_node::host::{Host, Kind, Locality, Use};
use towline_node::{PciAddress, Root};

fn inspect(name: &str) -> Host {
    let shape = Shape::named(name);
    towline_node::inspect(&Root::new(shape.folder()))
}

fn address(text: &str) -> PciAddress {
    text.parse().unwrap()
}

fn uses(host: &Host, at: &str) -> Vec<String> {
    host.device(address(at))
        .unwrap()
        .uses
        .iter()
        .map(Use::to_string)
        .collect()
}

#[test]
fn what_the_machine_needs_is_found_through_layers() {
    let host = inspect("dual-switches");
    assert_eq!(uses(&host, "0000:02:00.0"), ["root file system", "swap"]);
    assert_eq!(uses(&host, "0000:01:00.0"), ["default route (eno1)"]);
    let host = inspect("amd");
    assert_eq!(uses(&host, "0000:e1:00.1"), ["default route (eno2)"]);
    let host = inspect("busy");
    assert_eq!(
        uses(&host, "0000:01:00.0"),
        ["console", "python3 (4242) has /dev/nvidia0 open"]
    );
}

#[test]
fn switches_complexes_and_nodes_order_the_distance_of_devices() {
    let host = inspect("dual-switches");
    let near = |a: &str, b: &str| {
        host.locality(
            host.device(address(a)).unwrap(),
            host.device(address(b)).unwrap(),
        )
    };
    assert_eq!(near("0000:19:00.0", "0000:1a:00.0"), Locality::Switch);
    assert_eq!(near("0000:39:00.0", "0000:1a:00.0"), Locality::Node);
    assert_eq!(near("0000:99:00.0", "0000:1a:00.0"), Locality::Host);
    let host = inspect("amd");
    let near = |a: &str, b: &str| {
        host.locality(
            host.device(address(a)).unwrap(),
            host.device(address(b)).unwrap(),
        )
    };
    assert_eq!(near("0000:21:00.0", "0000:22:00.0"), Locality::RootComplex);
}

#[test]
fn a_switch_is_found_where_configuration_spaces_cannot_be_read() {
    let text = std::fs::read_to_string("tests/shapes/dual-switches.host").unwrap();
    let text: String = text
        .lines()
        .map(|line| match line.starts_with("bridge") {
            true => format!("{line} seen=64\n"),
            false => format!("{line}\n"),
        })
        .collect();
    let shape = Shape::of(&text);
    let host = towline_node::inspect(&Root::new(shape.folder()));
    let gpu = host.device(address("0000:19:00.0")).unwrap();
    assert_eq!(host.switch(gpu), Some(address("0000:17:00.0")));
    let gpu = host.device(address("0000:39:00.0")).unwrap();
    assert_eq!(host.switch(gpu), None);
}

#[test]
fn the_iommu_is_told_apart_from_its_table() {
    let host = inspect("no-iommu");
    assert_eq!(host.iommu.in_firmware, Some(true));
    assert!(host.iommu.units.is_empty() && host.iommu.groups.is_empty());
    assert_eq!(host.iommu.remaps_interrupts, Some(false));
    let host = inspect("arm");
    assert_eq!(
        (host.iommu.units.len(), host.iommu.remaps_interrupts),
        (4, Some(true))
    );
}

#[test]
fn virtual_functions_are_found_with_their_physical_one() {
    let host = inspect("ib-sriov");
    let sriov = host
        .device(address("0000:3b:00.0"))
        .unwrap()
        .sriov
        .clone()
        .unwrap();
    assert_eq!((sriov.total, sriov.count, sriov.functions.len()), (8, 4, 4));
    let function = host.device(sriov.functions[1]).unwrap();
    assert_eq!(function.physical_function, Some(address("0000:3b:00.0")));
    assert_eq!(function.driver.as_deref(), Some("vfio-pci"));
    let port = &host.rdma[0].ports[0];
    assert_eq!(
        (port.state.as_str(), port.guid.as_str(), port.subnet_manager),
        ("ACTIVE", "b859:9f03:0000:1001", 1)
    );
    assert_eq!(port.partition_keys, ["0x8001", "0xffff"]);
}

#[test]
fn gpus_are_told_from_consoles_and_threads_from_cores() {
    let host = inspect("single-intel");
    let kind = |at: &str| host.device(address(at)).unwrap().kind;
    assert_eq!(kind("0000:01:00.0"), Kind::Gpu);
    assert_eq!(kind("0000:04:00.0"), Kind::Display);
    assert_eq!(host.cpus.cores.len(), 8);
    assert_eq!(host.cpus.cores[1].threads, [1, 9]);
    assert_eq!(host.system.services, ["nvidia-persistenced"]);
    let gpu = host.device(address("0000:01:00.0")).unwrap();
    assert_eq!(
        gpu.bars
            .iter()
            .map(|bar| bar.bytes >> 20)
            .collect::<Vec<_>>(),
        [16, 80 << 10, 32]
    );
    assert_eq!(gpu.link.as_ref().unwrap().width, 16);
}

#[test]
fn what_is_found_survives_json() {
    for name in shape::names() {
        let host = inspect(&name);
        let text = serde_json::to_string(&host).unwrap();
        assert_eq!(serde_json::from_str::<Host>(&text).unwrap(), host, "{name}");
    }
}

#[test]
fn an_empty_tree_is_a_host_of_which_nothing_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let host = towline_node::inspect(&Root::new(folder.path()));
    assert!(host.devices.is_empty() && host.nodes.is_empty() && host.iommu.in_firmware.is_none());
}
