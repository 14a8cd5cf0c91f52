//! The kernel, how it was started, and what will start it next.

use crate::host::{BootLoader, ConfigFile, Initramfs, System};
use crate::paths;
use crate::root::Root;

/// The modules that steps ask for or that hold devices.
const MODULES: [&str; 12] = [
    "amdgpu",
    "kvm",
    "kvm_amd",
    "kvm_intel",
    "mlx4_core",
    "mlx5_core",
    "nouveau",
    "nvidia",
    "nvidia_peermem",
    "pci_stub",
    "vfio_iommu_type1",
    "vfio_pci",
];

/// The services that hold GPUs.
const SERVICES: [&str; 3] = ["nvidia-dcgm", "nvidia-fabricmanager", "nvidia-persistenced"];

pub(super) fn system(root: &Root) -> System {
    let text = |path: &str| root.text(path).unwrap_or_default();
    let command_line = arguments(&text("/proc/cmdline"));
    let is_guest = text("/proc/cpuinfo")
        .lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
        || root.exists("/sys/hypervisor/type");
    System {
        name: text("/proc/sys/kernel/hostname"),
        kernel: text("/proc/sys/kernel/osrelease"),
        architecture: root
            .text("/proc/sys/kernel/arch")
            .unwrap_or_else(|| architecture(&text("/proc/cpuinfo"))),
        boot_id: text("/proc/sys/kernel/random/boot_id"),
        boot_loader: boot_loader(root),
        initramfs: initramfs(root),
        is_guest,
        has_kvm: root.exists("/dev/kvm"),
        nested: ["kvm_intel", "kvm_amd"]
            .iter()
            .find_map(|module| root.text(&format!("/sys/module/{module}/parameters/nested")))
            .map(|value| matches!(value.as_str(), "1" | "Y")),
        modules: MODULES
            .iter()
            .filter(|module| root.exists(&format!("/sys/module/{module}")))
            .map(|&module| module.to_owned())
            .collect(),
        services: services(root),
        mlx4_num_vfs: root
            .text("/sys/module/mlx4_core/parameters/num_vfs")
            .filter(|value| !value.is_empty()),
        pci_stub_ids: ids(
            &command_line,
            "pci-stub.ids=",
            root.text("/sys/module/pci_stub/parameters/ids"),
        ),
        vfio_ids: ids(
            &command_line,
            "vfio-pci.ids=",
            root.text("/sys/module/vfio_pci/parameters/ids"),
        ),
        files: paths::WRITTEN
            .iter()
            .filter_map(|&path| {
                let contents = String::from_utf8(root.bytes(path)?).ok()?;
                let path = path.to_owned();
                Some(ConfigFile { path, contents })
            })
            .collect(),
        command_line,
    }
}

/// By how the kernel describes processors: one before 6.1 does not name the architecture.
fn architecture(cpuinfo: &str) -> String {
    let has = |key: &str| cpuinfo.lines().any(|line| line.starts_with(key));
    match (has("vendor_id"), has("CPU implementer")) {
        (true, _) => "x86_64",
        (_, true) => "aarch64",
        _ => "",
    }
    .to_owned()
}

/// The words of a command line; a value in quotes may have spaces.
fn arguments(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for c in line.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            ' ' | '\t' | '\n' if !is_quoted => words.push(String::new()),
            c => words
                .last_mut()
                .expect("there is always a last word")
                .push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn ids(command_line: &[String], prefix: &str, parameter: Option<String>) -> Vec<String> {
    // Dashes and underscores are the same to the kernel.
    let prefix = prefix.replace('-', "_");
    command_line
        .iter()
        .filter_map(|word| {
            let (key, value) = word.split_at_checked(prefix.len())?;
            (key.replace('-', "_") == prefix).then(|| value.to_owned())
        })
        .chain(parameter.filter(|value| value != "(null)"))
        .flat_map(|list| list.split(',').map(str::to_owned).collect::<Vec<_>>())
        .filter(|id| !id.is_empty())
        .collect()
}

/// Those that have a process.
pub(crate) fn services(root: &Root) -> Vec<String> {
    let mut running: Vec<String> = Vec::new();
    for pid in root
        .entries("/proc")
        .iter()
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    {
        let Some(group) = root.text(&format!("/proc/{pid}/cgroup")) else {
            continue;
        };
        for service in SERVICES {
            let unit = format!("{service}.service");
            if group.split('/').any(|part| part == unit)
                && !running.iter().any(|name| name == service)
            {
                running.push(service.to_owned());
            }
        }
    }
    running.sort();
    running
}

fn boot_loader(root: &Root) -> BootLoader {
    if root.exists("/usr/sbin/grubby") || root.exists("/sbin/grubby") {
        BootLoader::Grubby
    } else if root.exists("/usr/sbin/update-grub") && root.exists("/etc/default/grub") {
        BootLoader::GrubFolder
    } else {
        BootLoader::Unknown
    }
}

fn initramfs(root: &Root) -> Option<Initramfs> {
    if root.exists("/usr/sbin/update-initramfs") {
        Some(Initramfs::InitramfsTools)
    } else if root.exists("/usr/bin/dracut") || root.exists("/usr/sbin/dracut") {
        Some(Initramfs::Dracut)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_values_of_the_command_line_stay_together() {
        assert_eq!(
            arguments("quiet  dyndbg=\"file a +p\" iommu=pt\n"),
            ["quiet", "dyndbg=file a +p", "iommu=pt"]
        );
    }

    #[test]
    fn kernels_that_do_not_name_the_architecture_show_it() {
        assert_eq!(
            architecture("processor\t: 0\nvendor_id\t: GenuineIntel\n"),
            "x86_64"
        );
        assert_eq!(
            architecture("processor\t: 0\nCPU implementer\t: 0x41\n"),
            "aarch64"
        );
        assert_eq!(architecture(""), "");
    }

    #[test]
    fn ids_are_found_however_the_module_is_spelt() {
        let line = ["vfio_pci.ids=10de:2330,15b3:1021".to_owned()];
        assert_eq!(
            ids(&line, "vfio-pci.ids=", None),
            ["10de:2330", "15b3:1021"]
        );
        assert_eq!(
            ids(&[], "vfio-pci.ids=", Some("(null)".to_owned())),
            [""; 0]
        );
    }
}
