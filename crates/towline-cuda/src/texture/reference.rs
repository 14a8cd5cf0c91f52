//! Texture references: deprecated, and state of a module on the server. What they are set to is asked there.

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::cuda::Session;
use towline_wire::cuda::texture_reference as setting;

use crate::driver::{Acting, Driver, read, write};

/// What a reference is bound to, as far as it is an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    Array(u64),
    Mipmap(u64),
}

/// Refuses an array of another server than a reference's.
fn check_session(reference: u64, array: u64) -> Result<(), CUresult> {
    match Session::index_of(reference) == Session::index_of(array) {
        true => Ok(()),
        false => Err(CUDA_ERROR_INVALID_HANDLE),
    }
}

impl Driver {
    fn acting_on(&self, reference: u64) -> Result<Acting<'_>, CUresult> {
        let acting = self.session_for(0)?;
        // A module's reference is only known by the session that it came from.
        match reference != 0 && Session::index_of(reference) == acting.context.session {
            true => Ok(acting),
            false => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Changes a setting, and tells the offset that the driver answers.
    pub(super) fn set_reference(
        &self,
        reference: CUtexref,
        which: u32,
        words: &[u64],
    ) -> Result<u64, CUresult> {
        self.set_bound(reference, which, None, words)
    }

    fn set_bound(
        &self,
        reference: CUtexref,
        which: u32,
        bound: Option<Bound>,
        words: &[u64],
    ) -> Result<u64, CUresult> {
        let number = reference.addr() as u64;
        let acting = self.acting_on(number)?;
        let mut all = [0; 6];
        for (place, word) in all.iter_mut().zip(words) {
            *place = *word;
        }
        let (array, mipmap) = match bound {
            Some(Bound::Array(array)) => (array, 0),
            Some(Bound::Mipmap(mipmap)) => (0, mipmap),
            None => (0, 0),
        };
        let request = wire::TextureReferenceSet {
            reference: wire::TexrefHandle(number),
            setting: which,
            array: wire::ArrayHandle(array),
            mipmap: wire::MipmappedArrayHandle(mipmap),
            words: wire::List::Values(&all),
        };
        let body = acting.call_for("cuTexRefSet", &request)?;
        let reply =
            wire::TextureReferenceSetReply::decode(&body).map_err(|_| acting.malformed())?;
        let binds = matches!(
            which,
            setting::ARRAY
                | setting::MIPMAP
                | setting::ADDRESS
                | setting::ADDRESS_2D
                | setting::ADDRESS_2D_UNALIGNED
        );
        if binds {
            let mut textures = write(&self.textures);
            match bound {
                Some(bound) => textures.bound.insert(number, bound),
                None => textures.bound.remove(&number),
            };
        }
        Ok(reply.offset.unwrap_or(0))
    }

    /// Binds a reference to an array, or a mipmapped one.
    pub(super) fn bind_reference(
        &self,
        reference: CUtexref,
        bound: Bound,
        flags: u32,
    ) -> Result<(), CUresult> {
        let which = match bound {
            Bound::Array(array) => {
                read(&self.arrays).plain(array)?;
                setting::ARRAY
            }
            Bound::Mipmap(mipmap) => {
                read(&self.arrays).mipmap(mipmap)?;
                setting::MIPMAP
            }
        };
        let (Bound::Array(number) | Bound::Mipmap(number)) = bound;
        check_session(reference.addr() as u64, number)?;
        self.set_bound(reference, which, Some(bound), &[flags.into()])
            .map(|_| ())
    }

    /// A setting as words.
    pub(super) fn reference_words(
        &self,
        reference: CUtexref,
        which: u32,
        index: i32,
    ) -> Result<[u64; 4], CUresult> {
        let number = reference.addr() as u64;
        let acting = self.acting_on(number)?;
        let request = wire::TextureReferenceGet {
            reference: wire::TexrefHandle(number),
            setting: which,
            index,
        };
        let body = acting.call_for("cuTexRefGet", &request)?;
        let reply =
            wire::TextureReferenceGetReply::decode(&body).map_err(|_| acting.malformed())?;
        let mut words = [0; 4];
        for (place, word) in words
            .iter_mut()
            .zip(reply.words.iter().flat_map(|list| list.iter()))
        {
            *place = word;
        }
        Ok(words)
    }

    /// What a reference is bound to.
    pub(super) fn bound_to(&self, reference: u64) -> Result<Bound, CUresult> {
        self.current()?;
        let found = read(&self.textures).bound.get(&reference).copied();
        found.ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    pub(super) fn create_reference(&self) -> Result<CUtexref, CUresult> {
        let acting = self.session_for(0)?;
        let handle = wire::TexrefHandle(acting.mint(wire::TexrefHandle::TAG));
        acting.call(&wire::TexRefCreate { pTexRef: handle })?;
        Ok(handle.to_raw())
    }

    pub(super) fn destroy_reference(&self, reference: CUtexref) -> Result<(), CUresult> {
        let number = reference.addr() as u64;
        let acting = self.acting_on(number)?;
        acting.call(&wire::TexRefDestroy {
            hTexRef: wire::TexrefHandle(number),
        })?;
        write(&self.textures).bound.remove(&number);
        Ok(())
    }

    pub(super) fn bind_surface(
        &self,
        reference: CUsurfref,
        array: CUarray,
        flags: u32,
    ) -> Result<(), CUresult> {
        let (number, array) = (reference.addr() as u64, array.addr() as u64);
        let acting = self.acting_on(number)?;
        read(&self.arrays).plain(array)?;
        check_session(number, array)?;
        acting.call(&wire::SurfRefSetArray {
            hSurfRef: wire::SurfrefHandle(number),
            hArray: wire::ArrayHandle(array),
            Flags: flags,
        })?;
        let mut textures = write(&self.textures);
        textures.bound.insert(number, Bound::Array(array));
        Ok(())
    }
}
