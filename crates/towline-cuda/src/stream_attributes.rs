//! Attributes of streams, as they were set: what nobody has set is what the driver begins with.

use std::collections::HashMap;
use std::sync::Mutex;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;

use crate::driver::{Driver, lock, read};

/// The bytes of a value.
type Value = [u8; 64];

/// The value of a policy that nobody has set: no policy's (seen with driver 580.159).
const UNSET_POLICY: i32 = -1;

/// Attributes that were set, by context and stream.
pub(crate) type StreamAttributes = Mutex<HashMap<(u64, u64), HashMap<CUstreamAttrID, Value>>>;

/// Attributes that streams have.
const KNOWN: [CUstreamAttrID; 5] = [
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
    CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY,
    CU_LAUNCH_ATTRIBUTE_PRIORITY,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
];

fn bytes(value: &CUlaunchAttributeValue) -> Value {
    // SAFETY: the bytes of the union, which the application has filled as far as they count.
    unsafe { value.pad }.map(|byte| byte as u8)
}

fn value(bytes: &Value) -> CUlaunchAttributeValue {
    CUlaunchAttributeValue {
        pad: bytes.map(|byte| byte as _),
    }
}

/// What a stream has before anything is set.
fn initial(attribute: CUstreamAttrID, priority: i32) -> Value {
    let mut bytes = [0; 64];
    let first = match attribute {
        CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY => UNSET_POLICY.to_ne_bytes(),
        CU_LAUNCH_ATTRIBUTE_PRIORITY => priority.to_ne_bytes(),
        // Domain 0 for what is by default, 1 for what is remote.
        CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP => [0, 1, 0, 0],
        _ => [0; 4],
    };
    bytes[..4].copy_from_slice(&first);
    bytes
}

impl Driver {
    /// The context and the stream of attributes; a stream whose capture is invalid tells none.
    fn attribute_key(&self, stream: CUstream) -> Result<(u64, u64), CUresult> {
        let (acting, handle, _) = self.enqueue_on(stream)?;
        Ok((acting.context.number, handle.0))
    }

    /// Refuses values that no device takes.
    fn check_attribute(
        &self,
        attribute: CUstreamAttrID,
        given: &Value,
        device: CUdevice,
    ) -> Result<(), CUresult> {
        // Most values are a number.
        let number = given
            .first_chunk()
            .map_or(0, |word| i32::from_ne_bytes(*word));
        let fits = match attribute {
            CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW => {
                // SAFETY: the attribute says that this part of the union counts.
                let window = unsafe { value(given).accessPolicyWindow };
                let most = CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE;
                let most = self.device(device)?.attribute(most);
                // Any property of hits is taken (seen with driver 580.159).
                (0.0..=1.0).contains(&window.hitRatio)
                    && window.num_bytes as u64 <= most.max(0) as u64
                    && window.missProp < CU_ACCESS_PROPERTY_PERSISTING
            }
            CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY => {
                (CU_SYNC_POLICY_AUTO..=CU_SYNC_POLICY_BLOCKING_SYNC).contains(&(number as u32))
            }
            CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP => {
                let count = CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT;
                let count = self.device(device)?.attribute(count);
                let is_one = |domain: &u8| count == 0 || i32::from(*domain) < count;
                given[..2].iter().all(is_one)
            }
            CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN => {
                number as u32 <= CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE
            }
            other => KNOWN.contains(&other),
        };
        match fits {
            true => Ok(()),
            false => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    pub(crate) fn set_stream_attribute(
        &self,
        stream: CUstream,
        attribute: CUstreamAttrID,
        given: &CUlaunchAttributeValue,
    ) -> Result<(), CUresult> {
        let (acting, handle, _) = self.enqueue_on(stream)?;
        let mut given = bytes(given);
        self.check_attribute(attribute, &given, acting.context.device)?;
        if attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY {
            let [a, b, c, d, ..] = given;
            let wanted = i32::from_ne_bytes([a, b, c, d]);
            let priority = self.nearest_priority(acting.context.device, wanted)?;
            given[..4].copy_from_slice(&priority.to_ne_bytes());
            if let Some(stream) = read(&self.streams).get(&handle.0) {
                stream.set_priority(priority);
            }
        }
        // How this process waits is its own matter: the server waits in its own way.
        if attribute != CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY {
            acting.post(&wire::StreamAttribute {
                stream: handle,
                attribute,
                value: &given,
            })?;
        }
        let key = (acting.context.number, handle.0);
        let mut all = lock(&self.stream_attributes);
        all.entry(key).or_default().insert(attribute, given);
        Ok(())
    }

    pub(crate) fn stream_attribute(
        &self,
        stream: CUstream,
        attribute: CUstreamAttrID,
    ) -> Result<CUlaunchAttributeValue, CUresult> {
        if !KNOWN.contains(&attribute) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let key = self.attribute_key(stream)?;
        let priority = self.describe(stream)?.priority();
        let all = lock(&self.stream_attributes);
        let set = all.get(&key).and_then(|set| set.get(&attribute));
        Ok(value(
            &set.copied().unwrap_or_else(|| initial(attribute, priority)),
        ))
    }

    pub(crate) fn copy_stream_attributes(
        &self,
        to: CUstream,
        from: CUstream,
    ) -> Result<(), CUresult> {
        let (to_key, from_key) = (self.attribute_key(to)?, self.attribute_key(from)?);
        if to_key.0 != from_key.0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // A stream's priority stays its own.
        let copied = KNOWN
            .iter()
            .filter(|one| **one != CU_LAUNCH_ATTRIBUTE_PRIORITY);
        for attribute in copied {
            let (now, wanted) = (
                bytes(&self.stream_attribute(to, *attribute)?),
                self.stream_attribute(from, *attribute)?,
            );
            if now != bytes(&wanted) {
                self.set_stream_attribute(to, *attribute, &wanted)?;
            }
        }
        Ok(())
    }

    /// Forgets what was set for streams that are gone.
    pub(crate) fn forget_stream_attributes(&self, gone: impl Fn(u64, u64) -> bool) {
        lock(&self.stream_attributes).retain(|(context, stream), _| !gone(*context, *stream));
    }
}
