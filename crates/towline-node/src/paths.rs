//! The files that steps write, each at one place.

/// Options and order of modules.
pub(crate) const MODPROBE: &str = "/etc/modprobe.d/towline-node.conf";
/// Which driver takes which device, by address.
pub(crate) const UDEV: &str = "/etc/udev/rules.d/10-towline-node.rules";
/// Modules that the initramfs must have.
pub(crate) const INITRAMFS_MODULES: &str = "/etc/initramfs-tools/modules";
/// The same for dracut.
pub(crate) const DRACUT: &str = "/etc/dracut.conf.d/towline-node.conf";
/// Kernel arguments for the next start.
pub(crate) const GRUB: &str = "/etc/default/grub.d/towline-node.cfg";

/// All of them.
pub(crate) const WRITTEN: [&str; 5] = [MODPROBE, UDEV, INITRAMFS_MODULES, DRACUT, GRUB];

/// The journal's folder: root does what the journal says, so nobody else may write here. Not below the folder of the service, which has an account
/// of its own.
pub(crate) const STATE: &str = "/var/lib/towline-node";
