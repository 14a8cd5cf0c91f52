//! What has to be there from the start of the host on: the IOMMU, kernel arguments, bindings, parameters of modules.

use std::collections::BTreeSet;

use super::{Draft, Obstacle, Vm};
use crate::address::PciAddress;
use crate::host::{BootLoader, Host, Initramfs};
use crate::paths;
use crate::request::Request;
use crate::root::list;
use crate::step::{Action, Class, Step};

/// What no step can change.
pub(super) fn basics(host: &Host, draft: &mut Draft) {
    let firmware = |name: &str| format!("switch on {name} in the firmware's setup (BIOS)");
    let is_arm = host.system.architecture == "aarch64";
    let (vt, vtd) = match host.cpus.vendor.as_str() {
        "AuthenticAMD" => ("SVM", "IOMMU (AMD-Vi)"),
        "GenuineIntel" => ("VT-x", "VT-d"),
        _ => ("virtualization", "the IOMMU (SMMU)"),
    };
    if host.cpus.virtualizes == Some(false) {
        let remedy = match host.system.is_guest {
            true => "this is a virtual machine: its own host has to pass virtualization on (CPU model host-passthrough, nested=1)".to_owned(),
            false => firmware(vt),
        };
        draft.obstacles.push(Obstacle::new(
            "the processors do not offer virtualization",
            remedy,
        ));
    } else if !host.system.has_kvm {
        let module = match host.cpus.vendor.as_str() {
            "AuthenticAMD" => "modprobe kvm_amd",
            "GenuineIntel" => "modprobe kvm_intel",
            _ => "start a kernel with KVM, at exception level 2",
        };
        draft
            .obstacles
            .push(Obstacle::new("there is no /dev/kvm", module));
    }
    if host.iommu.units.is_empty() && host.iommu.in_firmware == Some(false) {
        let remedy = match host.system.is_guest {
            true => "this is a virtual machine: its own host has to give it one (libvirt: <iommu model='intel'>)".to_owned(),
            false => firmware(vtd),
        };
        draft
            .obstacles
            .push(Obstacle::new("the firmware tells of no IOMMU", remedy));
    }
    let off = [
        "intel_iommu=off",
        "amd_iommu=off",
        "iommu=off",
        "intremap=off",
        "nointremap",
    ];
    for argument in host
        .system
        .command_line
        .iter()
        .filter(|argument| off.contains(&argument.as_str()))
    {
        draft.obstacles.push(Obstacle::new(
            format!("the kernel was started with {argument}"),
            "take it out of the boot loader's configuration and restart",
        ));
    }
    if !host.iommu.units.is_empty() && host.iommu.remaps_interrupts == Some(false) && !is_arm {
        draft.obstacles.push(Obstacle::new(
            "the IOMMU does not remap interrupts, so that a guest could forge them",
            "switch on interrupt remapping (often with x2APIC) in the firmware's setup",
        ));
    }
}

/// Kernel arguments, module parameters and bindings for the next start.
pub(super) fn steps(host: &Host, request: &Request, vms: &[Vm], draft: &mut Draft) {
    arguments(host, request, vms, draft);
    let mut lines = mlx4(host, vms, draft);
    let mut rules = String::new();
    if request.persist {
        lines.extend(bindings(host, vms));
        rules = udev(vms);
    }
    if lines.is_empty() {
        return;
    }
    let mut actions = vec![file(host, paths::MODPROBE, &lines.join("\n"))];
    if !rules.is_empty() {
        actions.push(file(host, paths::UDEV, &rules));
    }
    let refresh = initramfs(host, request, &mut actions);
    actions.retain(
        |action| !matches!(action, Action::File { from: Some(from), to, .. } if from == to),
    );
    if actions.is_empty() {
        return;
    }
    if refresh.is_empty() {
        draft.notes.push(
            "nothing that makes an initramfs was found: if there is one, make it again after apply"
                .to_owned(),
        );
    }
    draft.steps.push(Step {
        title: "set devices aside at each start".to_owned(),
        reason: "drivers take devices while the host starts; what vfio-pci is to have must not be taken before".to_owned(),
        class: Class::NeedsReboot,
        actions: between(&refresh, actions),
    });
}

/// The changes, with a command after them and, when undone, after that.
fn between(refresh: &[String], changes: Vec<Action>) -> Vec<Action> {
    if refresh.is_empty() {
        return changes;
    }
    let command = Some(refresh.to_vec());
    let mut actions = vec![Action::Run {
        forward: None,
        backward: command.clone(),
    }];
    actions.extend(changes);
    actions.push(Action::Run {
        forward: command,
        backward: None,
    });
    actions
}

fn arguments(host: &Host, request: &Request, vms: &[Vm], draft: &mut Draft) {
    let mut wanted: Vec<String> = Vec::new();
    let needs_iommu = vms.iter().any(Vm::has_devices);
    if needs_iommu && host.iommu.units.is_empty() {
        // Passthrough mode spares the host's own devices the translation.
        match host.cpus.vendor.as_str() {
            "GenuineIntel" => wanted.extend(["intel_iommu=on".to_owned(), "iommu=pt".to_owned()]),
            "AuthenticAMD" => wanted.push("iommu=pt".to_owned()),
            _ => wanted.push("iommu.passthrough=1".to_owned()),
        }
    }
    let cells = || vms.iter().flat_map(|vm| &vm.cells);
    if request.isolate {
        let cpus: BTreeSet<u32> = cells().flat_map(|cell| cell.cpus.iter().copied()).collect();
        let cpus = list(&cpus.into_iter().collect::<Vec<_>>());
        wanted.extend([
            format!("isolcpus=managed_irq,domain,{cpus}"),
            format!("nohz_full={cpus}"),
            format!("rcu_nocbs={cpus}"),
        ]);
    }
    if request.persist {
        wanted.extend(huge_pages(host, vms));
    }
    let is_missing = |argument: &String| !host.system.command_line.contains(argument);
    if !wanted.iter().any(is_missing) {
        return;
    }
    // What an earlier plan wrote stays in the file that is written anew.
    let written = contents(host, paths::GRUB).unwrap_or_default();
    wanted.retain(|argument| is_missing(argument) || written.contains(argument.as_str()));
    let joined = wanted.join(" ");
    let actions = match host.system.boot_loader {
        BootLoader::GrubFolder => {
            let line =
                format!("GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT {joined}\"");
            match file(host, paths::GRUB, &line) {
                // Written, and the host not yet started again.
                Action::File {
                    from: Some(from),
                    to,
                    ..
                } if from == to => Vec::new(),
                action => between(&["update-grub".to_owned()], vec![action]),
            }
        }
        BootLoader::Grubby => {
            let grubby = |option: &str| {
                Some(vec![
                    "grubby".to_owned(),
                    "--update-kernel=ALL".to_owned(),
                    format!("{option}={joined}"),
                ])
            };
            vec![Action::Run {
                forward: grubby("--args"),
                backward: grubby("--remove-args"),
            }]
        }
        BootLoader::Unknown => {
            draft.obstacles.push(Obstacle::new(
                format!("the kernel needs the arguments {joined}, and this host's boot loader is not one that is known here"),
                "add them by hand, restart, and plan again",
            ));
            return;
        }
    };
    draft.steps.push(Step {
        title: format!("start the kernel with {joined}"),
        reason:
            "the IOMMU, isolated processors and reserved pages are set up while the kernel starts"
                .to_owned(),
        class: Class::NeedsReboot,
        actions,
    });
}

/// Pages of 1 GiB are certain only while memory is not yet in pieces. Kernels before 5.16 know no node here.
fn huge_pages(host: &Host, vms: &[Vm]) -> Vec<String> {
    const GIB_KIB: u64 = 1 << 20;
    let counts: Vec<String> = host
        .nodes
        .iter()
        .filter_map(|node| {
            let pages: u64 = vms
                .iter()
                .filter(|vm| vm.page_kib == GIB_KIB)
                .flat_map(|vm| &vm.cells)
                .filter(|cell| cell.node == node.id)
                .map(|cell| cell.memory_kib / GIB_KIB)
                .sum();
            (pages > 0).then(|| format!("{}:{pages}", node.id))
        })
        .collect();
    match counts.is_empty() {
        true => Vec::new(),
        false => vec![
            "hugepagesz=1G".to_owned(),
            format!("hugepages={}", counts.join(",")),
        ],
    }
}

/// ConnectX-3 and older: virtual functions come from parameters of the module and not from sysfs.
fn mlx4(host: &Host, vms: &[Vm], draft: &mut Draft) -> Vec<String> {
    let mut wanted = 0;
    for function in vms.iter().flat_map(|vm| &vm.vfs) {
        let Some(physical) = host.device(function.physical) else {
            continue;
        };
        let count = physical.sriov.as_ref().map_or(0, |sriov| sriov.count);
        if physical.driver.as_deref() == Some("mlx4_core") && function.index >= count {
            wanted = wanted.max(function.index.saturating_add(1));
        }
    }
    if wanted == 0 {
        return Vec::new();
    }
    draft.notes.push(
        "mlx4_core makes virtual functions while it is loaded: they are there after the next start. Its firmware has to \
         allow them (mstflint -d ADDRESS q: num_pfs, total_vfs, sriov_en)"
            .to_owned(),
    );
    // Port type 1 is InfiniBand; no function is for the host itself.
    vec![format!(
        "options mlx4_core num_vfs={wanted} probe_vf=0 port_type_array=1,1"
    )]
}

fn bindings(host: &Host, vms: &[Vm]) -> Vec<String> {
    let set_aside: BTreeSet<PciAddress> = vms
        .iter()
        .flat_map(|vm| vm.gpus.iter().chain(&vm.companions).copied())
        .collect();
    let drivers: BTreeSet<&str> = set_aside
        .iter()
        .filter_map(|&address| host.device(address)?.driver.as_deref())
        .filter(|driver| !matches!(*driver, "vfio-pci" | "pci-stub"))
        .collect();
    let mut lines: Vec<String> = drivers
        .into_iter()
        .map(|driver| format!("softdep {driver} pre: vfio-pci"))
        .collect();
    // By number only where that takes no other device: an id stands for all devices of its kind.
    let ids: BTreeSet<String> = set_aside
        .iter()
        .filter_map(|&address| Some(host.device(address)?.id()))
        .collect();
    let ids: Vec<String> = ids
        .into_iter()
        .filter(|id| {
            host.devices
                .iter()
                .all(|device| device.id() != *id || set_aside.contains(&device.address))
        })
        .collect();
    if !ids.is_empty() {
        lines.push(format!("options vfio-pci ids={}", ids.join(",")));
    }
    lines
}

/// By address, before the rule that loads modules.
fn udev(vms: &[Vm]) -> String {
    let rules: Vec<String> = vms
        .iter()
        .flat_map(|vm| vm.gpus.iter().chain(&vm.companions))
        .map(|address| format!("ACTION==\"add\", SUBSYSTEM==\"pci\", KERNEL==\"{address}\", ATTR{{driver_override}}=\"vfio-pci\""))
        .collect();
    rules.join("\n")
}

/// Adds what the initramfs needs, and answers the command that makes it.
fn initramfs(host: &Host, request: &Request, actions: &mut Vec<Action>) -> Vec<String> {
    const MODULES: [&str; 2] = ["vfio-pci", "vfio_iommu_type1"];
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    match host.system.initramfs {
        Some(Initramfs::InitramfsTools) => {
            if request.persist {
                let before = contents(host, paths::INITRAMFS_MODULES).unwrap_or_default();
                let missing: Vec<&str> = MODULES
                    .into_iter()
                    .filter(|module| before.lines().all(|line| line.trim() != *module))
                    .collect();
                if !missing.is_empty() {
                    let whole = format!("{}\n{}", before.trim_end(), missing.join("\n"));
                    actions.push(file(host, paths::INITRAMFS_MODULES, &whole));
                }
            }
            words(&["update-initramfs", "-u"])
        }
        Some(Initramfs::Dracut) => {
            if request.persist {
                actions.push(file(
                    host,
                    paths::DRACUT,
                    "force_drivers+=\" vfio-pci vfio_iommu_type1 \"",
                ));
            }
            words(&["dracut", "--force"])
        }
        None => Vec::new(),
    }
}

fn file(host: &Host, path: &str, text: &str) -> Action {
    Action::File {
        path: path.to_owned(),
        from: contents(host, path),
        to: format!("{text}\n"),
    }
}

fn contents(host: &Host, path: &str) -> Option<String> {
    let found = host.system.files.iter().find(|file| file.path == path)?;
    Some(found.contents.clone())
}
