//! Descriptions of tensors for the device's copy engine. They depend on nothing but the arguments and the device, so each is asked for
//! once.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Mutex;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;

use crate::driver::{Driver, lock};

/// Most dimensions of a tensor.
const MAX_RANK: usize = 5;
/// Descriptions that are kept; a program that makes more of them asks again.
const KEPT: usize = 4096;

/// What a description follows from: the device, its kind, the address, the other arguments.
type Key = (CUdevice, u32, u64, Vec<u64>);

/// Descriptions that are known.
#[derive(Default)]
pub(crate) struct Tensors(Mutex<HashMap<Key, [u64; 16]>>);

/// The arguments of a description, as words.
pub(crate) struct Arguments(Vec<u64>);

impl Arguments {
    /// The arguments that all kinds begin with. A tensor of one dimension has no strides.
    pub(crate) fn new(
        least_rank: usize,
        data_type: CUtensorMapDataType,
        dims: &[cuuint64_t],
        strides: &[cuuint64_t],
    ) -> Result<Self, CUresult> {
        if !(least_rank..=MAX_RANK).contains(&dims.len()) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut words = Self(vec![data_type.into(), dims.len() as u64]);
        words.list(dims);
        words.list(strides);
        Ok(words)
    }

    pub(crate) fn list<T: Word>(&mut self, list: &[T]) {
        self.0.extend(list.iter().map(Word::word));
    }
}

/// A number that travels as a word; a negative one with its sign.
pub(crate) trait Word {
    fn word(&self) -> u64;
}

impl Word for u64 {
    fn word(&self) -> u64 {
        *self
    }
}

impl Word for u32 {
    fn word(&self) -> u64 {
        u64::from(*self)
    }
}

impl Word for i32 {
    fn word(&self) -> u64 {
        i64::from(*self) as u64
    }
}

impl Driver {
    pub(crate) fn describe_tensor(
        &self,
        kind: u32,
        address: *mut c_void,
        arguments: Arguments,
    ) -> Result<CUtensorMap, CUresult> {
        let opaque = self.tensor(kind, address.addr() as u64, arguments.0)?;
        Ok(CUtensorMap { opaque })
    }

    /// A description with another address.
    pub(crate) fn move_tensor(
        &self,
        map: &CUtensorMap,
        address: *mut c_void,
    ) -> Result<CUtensorMap, CUresult> {
        self.describe_tensor(3, address, Arguments(map.opaque.to_vec()))
    }

    fn tensor(&self, kind: u32, address: u64, words: Vec<u64>) -> Result<[u64; 16], CUresult> {
        let acting = self.session_for(0)?;
        let key = (acting.context.device, kind, address, words);
        if let Some(known) = lock(&self.tensors.0).get(&key) {
            return Ok(*known);
        }
        let request = wire::TensorMap {
            kind,
            address,
            count: key.3.len() as u32,
            words: wire::List::Values(&key.3),
        };
        let body = acting.call_for("cuTensorMapEncode", &request)?;
        let reply = wire::TensorMapReply::decode(&body).map_err(|_| acting.malformed())?;
        let bytes = reply.map.unwrap_or_default();
        let mut opaque = [0; 16];
        let (words, rest) = bytes.as_chunks::<8>();
        if words.len() != opaque.len() || !rest.is_empty() {
            return Err(acting.malformed());
        }
        for (place, word) in opaque.iter_mut().zip(words) {
            *place = u64::from_le_bytes(*word);
        }
        let mut known = lock(&self.tensors.0);
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(key, opaque);
        Ok(opaque)
    }
}
