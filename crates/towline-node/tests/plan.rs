//! Plans for hosts that no golden file has.

mod shape;

use shape::Shape;
use towline_node::step::Action;
use towline_node::{Plan, Request, Root, inspect, plan};

fn planned(host: &str, request: &str) -> Plan {
    let shape = Shape::of(host);
    plan(
        &inspect(&Root::new(shape.folder())),
        &Request::parse(request).unwrap(),
    )
}

const MACHINE: &str = r#"
machine name=host cpu=intel kernel=6.1.0-25-amd64 cmdline="ro intel_iommu=on" iommu=1 irq=IR kvm loader=grub initramfs=tools cpus=8
node 0 cpus=0-7 memory=96 free=90 page1g=0/0 page2m=0/0
"#;

#[test]
fn gpus_of_one_group_are_not_shared_out() {
    let host = format!(
        "{MACHINE}
bridge 0000:16:01.0 group=1 acs=5f:1d node=0
gpu 0000:17:00.0 under=0000:16:01.0 id=10de:1db4 group=2 node=0 bars=16M,16G,-,32M
gpu 0000:17:01.0 under=0000:16:01.0 id=10de:1db4 group=2 node=0 bars=16M,16G,-,32M
"
    );
    let request =
        |vms, gpus| format!("vms = {vms}\ngpus = {gpus}\ncores = 2\nmemory = \"8 GiB\"\n");
    let two = planned(&host, &request(2, 1));
    assert_eq!((two.vms.len(), two.obstacles.is_empty()), (1, false));
    let one = planned(&host, &request(1, 2));
    assert_eq!((one.vms.len(), one.obstacles.as_slice()), (1, &[][..]));
}

#[test]
fn access_control_above_the_shared_switch_stays() {
    let host = format!(
        "{MACHINE}
bridge 0000:16:01.0 group=1 acs=5f:1d node=0
bridge 0000:17:00.0 under=0000:16:01.0 port=up id=10b5:8747 group=2 node=0
bridge 0000:18:08.0 under=0000:17:00.0 port=down id=10b5:8747 acs=5f:1d group=3 node=0
bridge 0000:19:00.0 under=0000:18:08.0 port=up id=10b5:8747 group=4 node=0
bridge 0000:1a:08.0 under=0000:19:00.0 port=down id=10b5:8747 acs=5f:1d group=5 node=0
bridge 0000:1a:10.0 under=0000:19:00.0 port=down id=10b5:8747 acs=5f:1d group=6 node=0
gpu 0000:1b:00.0 under=0000:1a:08.0 id=10de:1db4 group=7 node=0 bars=16M,16G,-,32M ats=on
net 0000:1c:00.0 under=0000:1a:10.0 id=15b3:1017 driver=mlx5_core group=8 node=0 bars=32M vfs=8 offset=2 stride=1 vfid=15b3:1018 if=ens2 ats=on
"
    );
    let plan = planned(
        &host,
        "vms = 1\ngpus = 1\nvfs = 1\ncores = 2\nmemory = \"8 GiB\"\n",
    );
    let changed: Vec<String> = plan
        .steps
        .iter()
        .flat_map(|step| &step.actions)
        .filter_map(|action| match action {
            Action::Register { device, .. } => Some(device.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(changed, ["0000:1a:08.0", "0000:1a:10.0"], "{}", plan.text());
}
