//! Textures and surfaces.

extern "C" {
    /// Makes a texture.
    #[call]
    fn cudaCreateTextureObject(
        pTexObject: *mut cudaTextureObject_t,
        pResDesc: *const cudaResourceDesc,
        pTexDesc: *const cudaTextureDesc,
        pResViewDesc: *const cudaResourceViewDesc,
    ) -> cudaError_t;

    /// Destroys a texture.
    #[call(driver = "cuTexObjectDestroy")]
    fn cudaDestroyTextureObject(texObject: cudaTextureObject_t) -> cudaError_t;

    /// Tells what memory a texture reads.
    #[call]
    fn cudaGetTextureObjectResourceDesc(
        pResDesc: *mut cudaResourceDesc,
        texObject: cudaTextureObject_t,
    ) -> cudaError_t;

    /// Tells how a texture reads.
    #[call]
    fn cudaGetTextureObjectTextureDesc(
        pTexDesc: *mut cudaTextureDesc,
        texObject: cudaTextureObject_t,
    ) -> cudaError_t;

    /// Tells what part of its memory a texture reads.
    #[call]
    fn cudaGetTextureObjectResourceViewDesc(
        pResViewDesc: *mut cudaResourceViewDesc,
        texObject: cudaTextureObject_t,
    ) -> cudaError_t;

    /// Makes a surface.
    #[call]
    fn cudaCreateSurfaceObject(
        pSurfObject: *mut cudaSurfaceObject_t,
        pResDesc: *const cudaResourceDesc,
    ) -> cudaError_t;

    /// Destroys a surface.
    #[call(driver = "cuSurfObjectDestroy")]
    fn cudaDestroySurfaceObject(surfObject: cudaSurfaceObject_t) -> cudaError_t;

    /// Tells what memory a surface reads and writes.
    #[call]
    fn cudaGetSurfaceObjectResourceDesc(
        pResDesc: *mut cudaResourceDesc,
        surfObject: cudaSurfaceObject_t,
    ) -> cudaError_t;
}
