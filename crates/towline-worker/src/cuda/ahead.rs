//! Primary contexts that are made before a client has come: that takes a driver some hundred milliseconds, most of what a short program
//! takes in all.

use std::sync::Arc;
use std::thread::JoinHandle;

use towline_backend::cuda::*;

/// Devices whose primary context is held for the session to come. A session that makes a context gives all of them up: those that it
/// uses it holds itself then, and others take device memory for nothing.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    held: Vec<CUdevice>,
    /// What makes them: a client that comes early waits for no more than it would without.
    maker: Option<JoinHandle<Vec<CUdevice>>>,
}

impl Ahead {
    /// Contexts that are held already.
    pub(crate) fn of(held: Vec<CUdevice>) -> Self {
        Self { held, maker: None }
    }

    /// Begins to make the primary contexts of the first `count` devices that other processes may use meanwhile.
    pub(crate) fn make(&mut self, api: &Arc<dyn CudaApi>, devices: &[CUdevice], count: usize) {
        let missing = devices
            .iter()
            .take(count)
            .filter(|device| !self.held.contains(device));
        let missing: Vec<_> = missing.copied().collect();
        if missing.is_empty() {
            return;
        }
        let api = Arc::clone(api);
        let maker = std::thread::Builder::new()
            .name("contexts".into())
            .spawn(move || make(&*api, &missing));
        // Without a thread there are no more ahead.
        self.maker = maker.ok();
    }

    /// Gives a device's context up, if it is held.
    pub(crate) fn give_up(&mut self, api: &dyn CudaApi, device: CUdevice) {
        self.settle();
        if let Some(place) = self.held.iter().position(|held| *held == device) {
            self.held.swap_remove(place);
            // SAFETY: no pointers; the reference is ours.
            unsafe { api.cuDevicePrimaryCtxRelease_v2(device) };
        }
    }

    /// Gives all up.
    pub(crate) fn give_up_all(&mut self, api: &dyn CudaApi) {
        self.settle();
        while let Some(device) = self.held.last().copied() {
            self.give_up(api, device);
        }
    }

    /// Waits until they have been made.
    fn settle(&mut self) {
        if let Some(maker) = self.maker.take() {
            self.held.extend(maker.join().unwrap_or_default());
        }
    }
}

/// Whether other processes may use the device as well.
pub(super) fn is_shared(api: &dyn CudaApi, device: CUdevice) -> bool {
    let mut mode = 0;
    // SAFETY: one place for the value.
    let status = unsafe {
        api.cuDeviceGetAttribute(&raw mut mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device)
    };
    status == CUDA_SUCCESS && mode == CU_COMPUTEMODE_DEFAULT as i32
}

/// The devices whose contexts were made.
fn make(api: &dyn CudaApi, devices: &[CUdevice]) -> Vec<CUdevice> {
    let made = |device: &CUdevice| {
        let mut context = std::ptr::null_mut();
        // SAFETY: one place for the context.
        let status = unsafe { api.cuDevicePrimaryCtxRetain(&raw mut context, *device) };
        if status != CUDA_SUCCESS {
            // The session to come is told when it asks for one.
            log::debug!("device {device}: no context ahead of a session: {status}");
        }
        status == CUDA_SUCCESS
    };
    let shared = devices.iter().filter(|device| is_shared(api, **device));
    shared.filter(|device| made(device)).copied().collect()
}

#[cfg(test)]
pub(super) mod tests {
    use towline_backend::cuda::NullCuda;

    use super::*;

    /// Releases until there is nothing to release.
    pub(in crate::cuda) fn references(null: &NullCuda, device: CUdevice) -> usize {
        // SAFETY: no pointers.
        let release = || unsafe { null.cuDevicePrimaryCtxRelease_v2(device) };
        (0..9).take_while(|_| release() == CUDA_SUCCESS).count()
    }

    #[test]
    fn the_first_devices_have_contexts_before_a_session() {
        let null = NullCuda::new(3);
        let made = make(&null, &[2, 0]);
        assert_eq!(made, [2, 0]);
        let held = [0, 1, 2].map(|device| references(&null, device));
        assert_eq!(held, [1, 0, 1]);
    }

    #[test]
    fn held_context_is_not_made_again() {
        let null = Arc::new(NullCuda::new(2));
        let mut own = std::ptr::null_mut();
        // SAFETY: one place for the context.
        let status = unsafe { null.cuDevicePrimaryCtxRetain(&raw mut own, 0) };
        assert_eq!(status, CUDA_SUCCESS);
        let mut ahead = Ahead::of(vec![0]);
        ahead.make(&(Arc::clone(&null) as _), &[0, 1], 2);
        ahead.settle();
        assert_eq!(ahead.held, [0, 1]);
        assert_eq!([0, 1].map(|device| references(&null, device)), [1, 1]);
    }

    #[test]
    fn what_is_given_up_is_released_once() {
        let null = Arc::new(NullCuda::new(2));
        let mut ahead = Ahead::default();
        ahead.make(&(Arc::clone(&null) as _), &[0, 1], 2);
        let mut own = std::ptr::null_mut();
        // SAFETY: one place for the context.
        let status = unsafe { null.cuDevicePrimaryCtxRetain(&raw mut own, 0) };
        assert_eq!(status, CUDA_SUCCESS);
        ahead.give_up(&*null, 0);
        ahead.give_up_all(&*null);
        ahead.give_up_all(&*null);
        let held = [0, 1].map(|device| references(&null, device));
        assert_eq!(held, [1, 0]);
    }
}
