//! Addresses of the family `AF_VSOCK`, which rustix does not know.

use rustix::io::Errno;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{AddressFamily, SocketAddrAny};

/// `struct sockaddr_vm` of Linux (`include/uapi/linux/vm_sockets.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct VsockAddress {
    family: u16,
    reserved: u16,
    pub(super) port: u32,
    pub(super) cid: u32,
    flags: u8,
    zero: [u8; 3],
}

impl VsockAddress {
    /// Listeners: any context of this machine.
    pub(super) const ANY_CID: u32 = u32::MAX;
    /// Listeners: a free port.
    pub(super) const ANY_PORT: u32 = u32::MAX;
    /// This machine itself.
    pub(super) const LOCAL_CID: u32 = 1;
    /// The host of this virtual machine.
    pub(super) const HOST_CID: u32 = 2;

    pub(super) fn new(cid: u32, port: u32) -> Self {
        Self {
            family: AddressFamily::VSOCK.as_raw(),
            reserved: 0,
            port,
            cid,
            flags: 0,
            zero: [0; 3],
        }
    }

    /// What the kernel said of a socket; `AFNOSUPPORT` for one of another family.
    pub(super) fn read(any: &SocketAddrAny) -> Result<Self, Errno> {
        let is_whole = any.addr_len() as usize >= size_of::<Self>();
        if any.address_family() != AddressFamily::VSOCK || !is_whole {
            return Err(Errno::AFNOSUPPORT);
        }
        // SAFETY: the address has as many bytes as this structure, as was just checked, and any bytes are a valid one; it is
        // read unaligned, since the storage of `any` promises no alignment.
        Ok(unsafe { any.as_ptr().cast::<Self>().read_unaligned() })
    }
}

// SAFETY: the closure is called with a pointer to `self`, which lives as long as the call, and with its size; it is laid out as
// the kernel's structure, has no padding, and every field has a value.
unsafe impl SocketAddrArg for VsockAddress {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        let len = SocketAddrLen::try_from(size_of::<Self>()).expect("16 bytes");
        f(std::ptr::from_ref(self).cast(), len)
    }
}
