//! What a worker tells of a module or library when it has loaded it: the reason why launches and questions about functions need no
//! round trip.
//!
//! Decoding holds the places of parameters against what CUDA permits. A client that packs arguments compares them with the image besides.

use crate::codec::{Decoder, Scalar, put_blob};
use crate::error::DecodeError;

/// Most functions of a module: cuBLAS has some ten thousand in one.
const FUNCTION_LIMIT: usize = 262_144;
/// Most parameters of a function.
const PARAMETER_LIMIT: usize = 4096;
/// Most bytes of a function's parameters: what CUDA 12.1 and later permit from compute capability 7.0 on.
pub const PARAMETER_BYTES_LIMIT: usize = 32_764;
/// Most attributes of a function.
const ATTRIBUTE_LIMIT: usize = 64;

/// Where a parameter lies in the block that a launch passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// Bytes from the block's start.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
}

impl Parameter {
    /// Where it ends.
    pub fn end(&self) -> usize {
        self.offset as usize + self.size as usize
    }
}

/// A kernel of the image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Function {
    /// Name without the NUL.
    pub name: Vec<u8>,
    /// Its parameters, in order.
    pub parameters: Vec<Parameter>,
    /// `CU_FUNC_ATTRIBUTE_*` and value, as the driver has them once the function is loaded.
    pub attributes: Vec<(u32, i32)>,
}

impl Function {
    /// Bytes of its parameter block.
    pub fn parameter_bytes(&self) -> usize {
        self.parameters
            .iter()
            .map(Parameter::end)
            .max()
            .unwrap_or(0)
    }

    /// The value of an attribute.
    pub fn attribute(&self, attribute: u32) -> Option<i32> {
        let found = self
            .attributes
            .iter()
            .find(|(known, _)| *known == attribute);
        found.map(|(_, value)| *value)
    }
}

/// The kernels of a module or library, in the driver's order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModuleFacts {
    /// The kernels.
    pub functions: Vec<Function>,
}

impl ModuleFacts {
    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        (self.functions.len() as u32).put(&mut out);
        for function in &self.functions {
            put_blob(&mut out, &function.name);
            (function.parameters.len() as u32).put(&mut out);
            for parameter in &function.parameters {
                parameter.offset.put(&mut out);
                parameter.size.put(&mut out);
            }
            (function.attributes.len() as u32).put(&mut out);
            for (attribute, value) in &function.attributes {
                attribute.put(&mut out);
                value.put(&mut out);
            }
        }
        out
    }

    /// Reads facts.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let mut functions = Vec::new();
        for _ in 0..decoder.count("functions", FUNCTION_LIMIT)? {
            let mut function = Function {
                name: decoder.blob()?.to_vec(),
                ..Function::default()
            };
            let mut end = 0;
            for _ in 0..decoder.count("parameters", PARAMETER_LIMIT)? {
                let parameter = Parameter {
                    offset: decoder.scalar()?,
                    size: decoder.scalar()?,
                };
                end = end_behind(end, parameter)?;
                function.parameters.push(parameter);
            }
            for _ in 0..decoder.count("attributes", ATTRIBUTE_LIMIT)? {
                function
                    .attributes
                    .push((decoder.scalar()?, decoder.scalar()?));
            }
            functions.push(function);
        }
        decoder.finish()?;
        Ok(Self { functions })
    }
}

/// Where a parameter ends that begins at `start` or later.
fn end_behind(start: u64, parameter: Parameter) -> Result<u64, DecodeError> {
    let Parameter { offset, size } = parameter;
    let end = u64::from(offset) + u64::from(size);
    if u64::from(offset) < start {
        return Err(DecodeError::BadValue {
            what: "offset of a parameter",
            value: offset.into(),
        });
    }
    if end > PARAMETER_BYTES_LIMIT as u64 {
        return Err(DecodeError::TooLong {
            what: "parameters of a function",
            len: end,
            limit: PARAMETER_BYTES_LIMIT as u64,
        });
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_no_function_can_have_are_refused() {
        let decoded = |places: &[(u32, u32)]| {
            let parameters = places.iter();
            let parameters = parameters.map(|&(offset, size)| Parameter { offset, size });
            let function = Function {
                parameters: parameters.collect(),
                ..Function::default()
            };
            let functions = vec![Function::default(), function];
            ModuleFacts::decode(&ModuleFacts { functions }.encode()).is_ok()
        };
        for possible in [
            &[(0, 32_764)][..],
            &[(0, 8), (8, 4), (16, 32_748)],
            &[(4, 0), (4, 0)],
        ] {
            assert!(decoded(possible), "{possible:?}");
        }
        for impossible in [
            &[(0, 32_765)][..],
            &[(0, 8), (7, 4)],
            &[(8, 4), (0, 4)],
            &[(3_000_000_000, 4)],
            &[(u32::MAX, u32::MAX)],
        ] {
            assert!(!decoded(impossible), "{impossible:?}");
        }
    }

    #[test]
    fn facts_of_a_module_survive_the_wire_and_no_cut_decodes() {
        let function = Function {
            name: b"_Z3addPfS_i".into(),
            parameters: vec![
                Parameter { offset: 0, size: 8 },
                Parameter {
                    offset: 16,
                    size: 4,
                },
            ],
            attributes: vec![(0, 1024), (9, -1)],
        };
        assert_eq!(function.parameter_bytes(), 20);
        assert_eq!(function.attribute(9), Some(-1));
        let facts = ModuleFacts {
            functions: vec![function, Function::default()],
        };
        let bytes = facts.encode();
        assert_eq!(ModuleFacts::decode(&bytes).as_ref(), Ok(&facts));
        for cut in 0..bytes.len() {
            assert!(ModuleFacts::decode(&bytes[..cut]).is_err());
        }
    }
}
