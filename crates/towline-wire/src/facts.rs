//! What a worker learns of a program's kernels when it is built: the reason why creating a kernel and setting its arguments for the
//! first time usually need no round trip.

use crate::codec::{Decoder, Scalar, put_blob, put_flag};
use crate::error::DecodeError;

/// Most kernels of a program.
const KERNEL_LIMIT: usize = 65_536;
/// Most arguments of a kernel.
const ARGUMENT_LIMIT: usize = 4096;

/// One argument as the compiler recorded it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Argument {
    /// `CL_KERNEL_ARG_ADDRESS_*`.
    pub address: u32,
    /// `CL_KERNEL_ARG_ACCESS_*`.
    pub access: u32,
    /// `CL_KERNEL_ARG_TYPE_*` bits.
    pub qualifier: u64,
    /// Type name without the NUL.
    pub type_name: Vec<u8>,
    /// Argument name without the NUL.
    pub name: Vec<u8>,
}

/// One kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Function name without the NUL.
    pub name: Vec<u8>,
    /// Number of arguments.
    pub num_args: u32,
    /// The arguments, where the compiler recorded them.
    pub arguments: Option<Vec<Argument>>,
}

/// The kernels of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The kernels, in the vendor's order.
    pub kernels: Vec<Kernel>,
}

impl Facts {
    /// The kernel of this name.
    pub fn kernel(&self, name: &[u8]) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }

    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        (self.kernels.len() as u32).put(&mut out);
        for kernel in &self.kernels {
            put_blob(&mut out, &kernel.name);
            kernel.num_args.put(&mut out);
            put_flag(&mut out, kernel.arguments.is_some());
            for argument in kernel.arguments.iter().flatten() {
                argument.address.put(&mut out);
                argument.access.put(&mut out);
                argument.qualifier.put(&mut out);
                put_blob(&mut out, &argument.type_name);
                put_blob(&mut out, &argument.name);
            }
        }
        out
    }

    /// Reads facts.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let count = decoder.scalar::<u32>()? as usize;
        if count > KERNEL_LIMIT {
            return Err(DecodeError::TooLong {
                what: "kernels",
                len: count as u64,
                limit: KERNEL_LIMIT as u64,
            });
        }
        let mut kernels = Vec::new();
        for _ in 0..count {
            let mut kernel = Kernel {
                name: decoder.blob()?.to_vec(),
                num_args: decoder.scalar()?,
                arguments: None,
            };
            if kernel.num_args as usize > ARGUMENT_LIMIT {
                let len = kernel.num_args.into();
                return Err(DecodeError::TooLong {
                    what: "arguments",
                    len,
                    limit: ARGUMENT_LIMIT as u64,
                });
            }
            if decoder.flag()? {
                let mut arguments = Vec::new();
                for _ in 0..kernel.num_args {
                    arguments.push(Argument {
                        address: decoder.scalar()?,
                        access: decoder.scalar()?,
                        qualifier: decoder.scalar()?,
                        type_name: decoder.blob()?.to_vec(),
                        name: decoder.blob()?.to_vec(),
                    });
                }
                kernel.arguments = Some(arguments);
            }
            kernels.push(kernel);
        }
        decoder.finish()?;
        Ok(Self { kernels })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_survive_the_wire_and_no_cut_decodes() {
        let argument = Argument {
            address: 0x119b,
            access: 0x11a3,
            qualifier: 1,
            type_name: b"int*".into(),
            name: b"out".into(),
        };
        let facts = Facts {
            kernels: vec![
                Kernel {
                    name: b"fill".into(),
                    num_args: 1,
                    arguments: Some(vec![argument]),
                },
                Kernel {
                    name: b"other".into(),
                    num_args: 7,
                    arguments: None,
                },
            ],
        };
        let bytes = facts.encode();
        assert_eq!(Facts::decode(&bytes).as_ref(), Ok(&facts));
        for cut in 0..bytes.len() {
            assert!(Facts::decode(&bytes[..cut]).is_err());
        }
    }
}
