//! The settings of a texture reference, as `TextureReferenceSet` and `TextureReferenceGet` number them, and the words of each.

/// The array that it reads; flags.
pub const ARRAY: u32 = 0;
/// The mipmapped array that it reads; flags.
pub const MIPMAP: u32 = 1;
/// Memory: address, bytes. Answers the offset in bytes; asked for, the address.
pub const ADDRESS: u32 = 2;
/// A rectangle in memory: width, height, format, channels, address, pitch.
pub const ADDRESS_2D: u32 = 3;
/// As [`ADDRESS_2D`], with any pitch.
pub const ADDRESS_2D_UNALIGNED: u32 = 4;
/// Format, packed components.
pub const FORMAT: u32 = 5;
/// Dimension, mode.
pub const ADDRESS_MODE: u32 = 6;
/// Mode.
pub const FILTER_MODE: u32 = 7;
/// Mode.
pub const MIPMAP_FILTER_MODE: u32 = 8;
/// The bits of a 32-bit float.
pub const MIPMAP_LEVEL_BIAS: u32 = 9;
/// Least and greatest, as bits of 32-bit floats.
pub const MIPMAP_LEVEL_CLAMP: u32 = 10;
/// Number.
pub const MAX_ANISOTROPY: u32 = 11;
/// Four components, as bits of 32-bit floats.
pub const BORDER_COLOR: u32 = 12;
/// Flags.
pub const FLAGS: u32 = 13;
