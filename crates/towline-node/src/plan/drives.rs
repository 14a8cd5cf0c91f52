//! Virtual functions of NVMe drives: how many, and what of the drive each has.

use std::collections::BTreeMap;

use super::{Draft, Vf, Vm, network};
use crate::address::PciAddress;
use crate::host::Host;
use crate::step::{Action, Class, DriveShare, Step};

pub(super) fn steps(host: &Host, vms: &[Vm], draft: &mut Draft) {
    let mut drives: BTreeMap<PciAddress, Vec<&Vf>> = BTreeMap::new();
    for function in vms.iter().flat_map(|vm| &vm.drives) {
        drives.entry(function.physical).or_default().push(function);
    }
    for (address, functions) in drives {
        let Some(drive) = host.device(address) else {
            continue;
        };
        let (Some(controller), Some(sriov)) = (&drive.nvme, &drive.sriov) else {
            continue;
        };
        let among = network::missing(drive, &functions).unwrap_or(sriov.count);
        let share = |function: Option<u32>, share: DriveShare| Action::DriveShare {
            device: address,
            controller: controller.clone(),
            function,
            share,
            among,
        };
        let mut actions = vec![
            share(None, DriveShare::Queues),
            share(None, DriveShare::Interrupts),
        ];
        draft.steps.push(Step {
            title: format!("have drive {address} give queues and interrupts away"),
            reason: "what the controllers of a drive share is the host's at first; it gives up what the functions get, and is reset, which programs see as a short pause".to_owned(),
            class: Class::Runtime,
            actions: std::mem::take(&mut actions),
        });
        if let Some(actions) = network::create(host, drive, &functions, draft) {
            draft.steps.push(Step {
                title: format!("make virtual functions of drive {address}"),
                reason: "a machine gets a function of the drive for itself; the host's driver is kept off".to_owned(),
                class: Class::Runtime,
                actions,
            });
        }
        for function in &functions {
            let index = Some(function.index);
            actions.extend([
                share(index, DriveShare::Queues),
                share(index, DriveShare::Interrupts),
                share(index, DriveShare::Online),
            ]);
        }
        draft.steps.push(Step {
            title: format!("put the virtual functions of drive {address} in service"),
            reason: "a drive's functions come without queues and interrupts, and out of service"
                .to_owned(),
            class: Class::Runtime,
            actions,
        });
        draft.notes.push(format!(
            "functions of drive {address} see the name spaces that are attached to their controllers: a shared one is seen by all, \
             and kept apart by whoever uses it; give each its own with `nvme attach-ns`"
        ));
    }
}
