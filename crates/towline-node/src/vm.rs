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
    /// The socket that the host's server listens at for ports of machines: `towline serve --listen virtio-serial:SOCKET`.
    #[serde(default = "default_socket")]
    pub socket: String,
    /// Whether the machine has a vsock device, for `towline serve --listen vsock:any:7140` ([`VSOCK_PORT`]), and is told so. The host
    /// needs `vhost_vsock`.
    #[serde(default = "default_true")]
    pub vsock: bool,
}

/// Ports that a machine has to its host's server: each process of it that uses the server takes one.
pub const PORTS: u32 = 4;
/// What the names of these ports begin with; a dot and a number follow.
pub const PORT_NAME: &str = "org.towline";

/// The port of vsock at which a machine looks for its host's server.
pub const VSOCK_PORT: u32 = 7140;
/// The beginning of the chassis's asset tag of a machine whose vsock device leads to a server; the server's address follows. A vsock
/// device alone says nothing of that: any cloud's machine has one. Every process in the machine may read the tag.
pub const CHASSIS_TAG: &str = "org.towline=";

fn default_socket() -> String {
    "/run/towline/machines.sock".to_owned()
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
            socket: default_socket(),
            vsock: true,
        }
    }
}
