//! Virtual machines from a plan: libvirt's XML, cloud-init's files, NCCL's topology, OpenStack's configuration.
//!
//! Everything here is text made of a [`crate::Plan`] and the [`crate::Host`] that it was made for. Nothing of the plan knows
//! libvirt; nothing here changes a host.

pub mod cloud;
mod domain;
pub mod layout;
mod nccl;
pub mod openstack;
mod xml;

pub use domain::domain;
pub use nccl::topology;
use serde::{Deserialize, Serialize};

/// What a machine has beside what the plan gives it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The folder of disks: `NAME.qcow2`, and `NAME-seed.iso` for cloud-init.
    #[serde(default = "default_images")]
    pub images: String,
    /// The network for management: a bridge of the host; libvirt's network `default` when not said.
    #[serde(default)]
    pub bridge: Option<String>,
    /// Whether the machine has UEFI, and not a BIOS. GPUs with large memory need it.
    #[serde(default = "default_true")]
    pub uefi: bool,
}

fn default_images() -> String {
    "/var/lib/libvirt/images".to_owned()
}

fn default_true() -> bool {
    true
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            images: default_images(),
            bridge: None,
            uefi: true,
        }
    }
}
