//! What a server says of a program's kernels.

use towline_wire::facts::{Argument, Facts, Kernel};

use crate::Seed;
use crate::memory::{bounded, proportional};

/// Facts have one encoding.
pub fn target(bytes: &[u8]) {
    if let Ok(facts) = bounded(proportional(bytes), || Facts::decode(bytes)) {
        assert_eq!(facts.encode(), bytes);
        for kernel in &facts.kernels {
            assert!(facts.kernel(&kernel.name).is_some());
        }
    }
}

/// None, and two kernels of which one has recorded arguments.
pub fn seeds() -> Vec<Seed> {
    let argument = |name: &[u8]| Argument {
        address: 0x119b,
        access: 0x11a3,
        qualifier: 1,
        type_name: b"float*".into(),
        name: name.into(),
    };
    let facts = Facts {
        kernels: vec![
            Kernel {
                name: b"saxpy".into(),
                num_args: 2,
                arguments: Some(vec![argument(b"x"), argument(b"y")]),
            },
            Kernel {
                name: b"other".into(),
                num_args: 7,
                arguments: None,
            },
        ],
    };
    vec![
        Seed::new("empty", Facts::default().encode()),
        Seed::new("two", facts.encode()),
    ]
}
