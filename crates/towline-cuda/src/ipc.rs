//! Memory and events shared with other processes whose sessions are on the same server.
//!
//! What the application passes on, in 64 bytes or in a file, is a token: only the server knows what it stands for, and gives it to its
//! own sessions alone.

use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;

use crate::driver::{Acting, Driver, InteropCalls, lock, read, write};
use crate::memory::{Kind, Range};

/// Begins what stands for something shared.
const MAGIC: &[u8; 8] = b"towline\x01";
/// Bytes of a token.
const TOKEN: usize = 32;
/// Bytes of a handle.
const HANDLE: usize = CU_IPC_HANDLE_SIZE as usize;

/// Kinds of what is shared; the server has the same numbers.
const MEMORY: u32 = 0;
const EVENT: u32 = 1;
pub(crate) const PHYSICAL: u32 = 2;
pub(crate) const POOL: u32 = 3;
const POINTER: u32 = 4;

type Token = [u8; TOKEN];

/// What the process shares.
#[derive(Default)]
pub(crate) struct Sharing {
    state: Mutex<Shared>,
    /// Held while memory of another process is opened or closed.
    opening: Mutex<()>,
    /// There is, or was, memory that other programs have too.
    memory: AtomicBool,
}

#[derive(Default)]
struct Shared {
    /// Whether the servers share memory, where they have shown it, by session.
    able: HashMap<u8, bool>,
    /// Tokens of what is offered, by kind and id.
    offered: HashMap<(u32, u64), Token>,
    opened: HashMap<Token, Opened>,
}

/// Memory of another process.
struct Opened {
    address: u64,
    context: u64,
    /// How often the application has opened it.
    count: u32,
}

impl Sharing {
    /// Whether a session's server shares memory, where that has shown.
    pub(crate) fn is_known(&self, session: u8) -> Option<bool> {
        lock(&self.state).able.get(&session).copied()
    }

    /// Whether other programs may use memory that this one uses.
    pub(crate) fn has_memory(&self) -> bool {
        self.memory.load(Ordering::Acquire)
    }
}

/// A handle in the form that applications pass on.
fn handle(kind: u32, token: &Token) -> [u8; HANDLE] {
    let mut bytes = [0; HANDLE];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&kind.to_le_bytes());
    bytes[16..16 + TOKEN].copy_from_slice(token);
    bytes
}

/// The token in a handle; `None` where it is none of ours, or of another kind.
fn token(kind: u32, bytes: &[u8; HANDLE]) -> Option<Token> {
    let ours = bytes.starts_with(MAGIC) && bytes[8..12] == kind.to_le_bytes();
    ours.then(|| std::array::from_fn(|at| bytes[16 + at]))
}

fn chars(bytes: [u8; HANDLE]) -> [c_char; HANDLE] {
    bytes.map(|byte| byte as c_char)
}

fn bytes(chars: &[c_char; HANDLE]) -> [u8; HANDLE] {
    chars.map(|byte| byte as u8)
}

impl Driver {
    /// Offers something of the context's session to others of its server; `id` tells it from all else of the process.
    pub(crate) fn share(
        &self,
        acting: &Acting<'_>,
        call: &'static str,
        kind: u32,
        number: u64,
        id: u64,
    ) -> Result<Token, CUresult> {
        if let Some(token) = lock(&self.sharing.state).offered.get(&(kind, id)) {
            return Ok(*token);
        }
        let shared = acting.call_for(call, &wire::Share { kind, number });
        if kind == MEMORY && matches!(shared, Ok(_) | Err(CUDA_ERROR_NOT_SUPPORTED)) {
            let able = &mut lock(&self.sharing.state).able;
            able.insert(acting.context.session, shared.is_ok());
        }
        let body = shared?;
        let reply = wire::ShareReply::decode(&body).map_err(|_| acting.malformed())?;
        let token = reply.token.and_then(|token| token.try_into().ok());
        let token: Token = token.ok_or_else(|| acting.malformed())?;
        lock(&self.sharing.state).offered.insert((kind, id), token);
        if kind != EVENT {
            // From here on copies wait for themselves.
            self.sharing.memory.store(true, Ordering::Release);
            self.settle_all_written(acting.context.session)?;
        }
        Ok(token)
    }

    /// Opens what another process's session offers: address, bytes, device.
    fn open_shared(
        &self,
        acting: &Acting<'_>,
        call: &'static str,
        kind: u32,
        token: &Token,
        number: u64,
    ) -> Result<(u64, u64, i32), CUresult> {
        let own = |(of, known): (&(u32, u64), &Token)| of.0 == kind && known == token;
        if matches!(kind, MEMORY | EVENT) && lock(&self.sharing.state).offered.iter().any(own) {
            // As the driver does: a process does not open what it has exported itself.
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        if kind != EVENT {
            self.sharing.memory.store(true, Ordering::Release);
        }
        let request = wire::OpenShared {
            kind,
            token: token.as_slice(),
            flags: CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS,
            number,
        };
        let body = acting.call_for(call, &request)?;
        let reply = wire::OpenSharedReply::decode(&body).map_err(|_| acting.malformed())?;
        match (reply.address, reply.size, reply.device) {
            (Some(address), Some(size), Some(device)) => Ok((address, size, device)),
            _ => Err(acting.malformed()),
        }
    }

    pub(crate) fn export_memory(&self, address: CUdeviceptr) -> Result<[u8; HANDLE], CUresult> {
        self.ready()?;
        let (start, range) = match read(&self.memory).find(address) {
            Some((start, range)) if range.kind == Kind::Device => (start, range.clone()),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        let acting = self.acting_in(self.context(range.context)?)?;
        let token = self.share(&acting, "cuIpcGetMemHandle", MEMORY, start, range.id)?;
        Ok(handle(MEMORY, &token))
    }

    fn open_memory(&self, given: &[u8; HANDLE], flags: u32) -> Result<u64, CUresult> {
        if flags & !CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let acting = self.session_for(0)?;
        let token = token(MEMORY, given).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let context = acting.context.number;
        let _opening = lock(&self.sharing.opening);
        if let Some(opened) = lock(&self.sharing.state).opened.get_mut(&token) {
            // One context of a process at a time.
            if opened.context != context {
                return Err(CUDA_ERROR_INVALID_CONTEXT);
            }
            opened.count += 1;
            return Ok(opened.address);
        }
        let call = "cuIpcOpenMemHandle";
        let (address, size, _) = self.open_shared(&acting, call, MEMORY, &token, 0)?;
        let placed = self.claim(acting.context.session, address, size as usize);
        if let Err(status) = placed {
            acting.call_for(call, &wire::CloseShared { address })?;
            return Err(status);
        }
        let range = Range {
            kind: Kind::Opened,
            ..Range::device(&acting.context, size as usize, self.new_id())
        };
        write(&self.memory).insert(address, range);
        let opened = Opened {
            address,
            context,
            count: 1,
        };
        lock(&self.sharing.state).opened.insert(token, opened);
        Ok(address)
    }

    fn close_memory(&self, address: u64) -> Result<(), CUresult> {
        self.ready()?;
        let _opening = lock(&self.sharing.opening);
        let context = {
            let mut sharing = lock(&self.sharing.state);
            let found = |(_, opened): &(&Token, &mut Opened)| opened.address == address;
            let (token, opened) = sharing
                .opened
                .iter_mut()
                .find(found)
                .ok_or(CUDA_ERROR_INVALID_VALUE)?;
            opened.count -= 1;
            if opened.count > 0 {
                return Ok(());
            }
            let (token, context) = (*token, opened.context);
            sharing.opened.remove(&token);
            context
        };
        write(&self.memory).remove(address);
        let acting = self.acting_in(self.context(context)?)?;
        acting.call_for("cuIpcCloseMemHandle", &wire::CloseShared { address })?;
        Ok(())
    }

    fn export_event(&self, event: CUevent) -> Result<[u8; HANDLE], CUresult> {
        let known = self.event(event)?;
        if !known.is_shareable() {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let acting = self.acting_in(self.context(known.context)?)?;
        let number = event.addr() as u64;
        // Before others have it: from here on its recordings are waited for until the server has them.
        known.share();
        let token = self.share(&acting, "cuIpcGetEventHandle", EVENT, number, number)?;
        Ok(handle(EVENT, &token))
    }

    fn open_event(&self, given: &[u8; HANDLE]) -> Result<CUevent, CUresult> {
        let acting = self.session_for(0)?;
        let token = token(EVENT, given).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let number = acting.mint(wire::EventHandle::TAG);
        self.open_shared(&acting, "cuIpcOpenEventHandle", EVENT, &token, number)?;
        Ok(self.shared_event(&acting, number))
    }

    /// Gives the application a file that stands for physical memory or a pool; whoever gets it through a socket can open that.
    pub(crate) fn export_file(
        &self,
        acting: &Acting<'_>,
        kind: u32,
        number: u64,
    ) -> Result<RawFd, CUresult> {
        let call = match kind {
            POOL => "cuMemPoolExportToShareableHandle",
            _ => "cuMemExportToShareableHandle",
        };
        let token = self.share(acting, call, kind, number, number)?;
        let file = memory_file(c"towline-memory", SEALABLE).ok_or(CUDA_ERROR_OPERATING_SYSTEM)?;
        let mut file = File::from(file);
        let written = file.write_all(&handle(kind, &token));
        written.map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
        // SAFETY: the file is open.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) };
        Ok(file.into_raw_fd())
    }

    /// Opens the physical memory or the pool that a file stands for, under a number: its bytes and device.
    pub(crate) fn import_file(
        &self,
        acting: &Acting<'_>,
        kind: u32,
        file: RawFd,
        number: u64,
    ) -> Result<(u64, i32), CUresult> {
        let mut given = [0; HANDLE];
        if file < 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller's contract: an open descriptor, which stays the application's.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        let own = file.try_clone_to_owned().map(File::from);
        let own = own.map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let all = own.read_exact_at(&mut given, 0);
        all.map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let token = token(kind, &given).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let call = match kind {
            POOL => "cuMemPoolImportFromShareableHandle",
            _ => "cuMemImportFromShareableHandle",
        };
        let (_, size, device) = self.open_shared(acting, call, kind, &token, number)?;
        Ok((size, device))
    }

    /// What names an allocation of a pool to processes that have opened the pool.
    pub(crate) fn export_pointer(&self, address: CUdeviceptr) -> Result<[u8; HANDLE], CUresult> {
        self.ready()?;
        let range = match read(&self.memory).find(address) {
            Some((start, range)) if start == address && range.kind == Kind::Device => range.clone(),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        let acting = self.acting_in(self.context(range.context)?)?;
        let call = "cuMemPoolExportPointer";
        let token = self.share(&acting, call, POINTER, address, range.id)?;
        Ok(handle(POINTER, &token))
    }

    /// Opens such an allocation in a pool; it is freed as any other.
    pub(crate) fn import_pointer(
        &self,
        acting: &Acting<'_>,
        pool: u64,
        given: &[u8; HANDLE],
    ) -> Result<CUdeviceptr, CUresult> {
        let token = token(POINTER, given).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let call = "cuMemPoolImportPointer";
        let (address, size, _) = self.open_shared(acting, call, POINTER, &token, pool)?;
        let placed = self.claim(acting.context.session, address, size as usize);
        if let Err(status) = placed {
            acting.call_for(call, &wire::MemoryFree { address })?;
            return Err(status);
        }
        let range = Range::device(&acting.context, size as usize, self.new_id());
        write(&self.memory).insert(address, range);
        Ok(address)
    }

    /// Whether other programs can open the memory that begins here.
    pub(crate) fn is_offered(&self, address: u64) -> bool {
        let id = read(&self.memory).find(address).map(|(_, range)| range.id);
        id.is_some_and(|id| {
            lock(&self.sharing.state)
                .offered
                .contains_key(&(MEMORY, id))
        })
    }

    /// Something that was offered has ended.
    pub(crate) fn unshare_memory(&self, range: &Range) {
        let offered = &mut lock(&self.sharing.state).offered;
        offered.remove(&(MEMORY, range.id));
        offered.remove(&(POINTER, range.id));
    }

    pub(crate) fn unshare_pool(&self, pool: u64) {
        lock(&self.sharing.state).offered.remove(&(POOL, pool));
    }

    pub(crate) fn unshare_event(&self, event: u64) {
        lock(&self.sharing.state).offered.remove(&(EVENT, event));
    }

    pub(crate) fn unshare_physical(&self, memory: u64) {
        lock(&self.sharing.state)
            .offered
            .remove(&(PHYSICAL, memory));
    }

    /// What a context had opened has ended with it.
    pub(crate) fn forget_opened(&self, context: u64) {
        let sharing = &mut lock(&self.sharing.state);
        sharing.opened.retain(|_, opened| opened.context != context);
    }
}

/// The file may be sealed, and closes when the program executes another.
const SEALABLE: u32 = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;

/// A new file that lies in memory.
pub(crate) fn memory_file(name: &CStr, flags: u32) -> Option<OwnedFd> {
    // By number: glibc has had the function only since 2.27.
    // SAFETY: the name is a string.
    let file = unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), flags) };
    let file = RawFd::try_from(file).ok().filter(|file| *file >= 0)?;
    // SAFETY: it was opened just now, and nobody else has it.
    Some(unsafe { OwnedFd::from_raw_fd(file) })
}

impl InteropCalls for Driver {
    fn cuIpcGetEventHandle(&self, event: CUevent) -> Result<CUipcEventHandle, CUresult> {
        self.export_event(event).map(|bytes| CUipcEventHandle {
            reserved: chars(bytes),
        })
    }

    fn cuIpcOpenEventHandle(&self, handle: CUipcEventHandle) -> Result<CUevent, CUresult> {
        self.open_event(&bytes(&handle.reserved))
    }

    fn cuIpcGetMemHandle(&self, dptr: CUdeviceptr) -> Result<CUipcMemHandle, CUresult> {
        self.export_memory(dptr).map(|bytes| CUipcMemHandle {
            reserved: chars(bytes),
        })
    }

    fn cuIpcOpenMemHandle(
        &self,
        handle: CUipcMemHandle,
        Flags: u32,
    ) -> Result<CUdeviceptr, CUresult> {
        InteropCalls::cuIpcOpenMemHandle_v2(self, handle, Flags)
    }

    fn cuIpcOpenMemHandle_v2(
        &self,
        handle: CUipcMemHandle,
        Flags: u32,
    ) -> Result<CUdeviceptr, CUresult> {
        self.open_memory(&bytes(&handle.reserved), Flags)
    }

    fn cuIpcCloseMemHandle(&self, dptr: CUdeviceptr) -> Result<(), CUresult> {
        self.close_memory(dptr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_gives_its_token_back_for_its_kind_only() {
        let secret = [7; TOKEN];
        let given = handle(EVENT, &secret);
        assert_eq!(token(EVENT, &given), Some(secret));
        assert_eq!(token(MEMORY, &given), None);
        assert_eq!(token(EVENT, &[0; HANDLE]), None);
        assert_eq!(bytes(&chars(given)), given);
    }
}
