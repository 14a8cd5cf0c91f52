use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// What a program registers: bytes for a wrapper, and orders that come in any sequence.
#[derive(Debug, Clone)]
enum Order {
    Register(Vec<u8>),
    Forget(usize),
    Kernel(usize, usize, String),
    Variable(usize, usize, usize, bool),
}

/// Bytes of a wrapper: any, or those of a good one with some changed.
fn wrapper() -> impl Strategy<Value = Vec<u8>> {
    let good = || {
        let words = [WRAPPER_MAGIC.to_ne_bytes(), 1_u32.to_ne_bytes()];
        [words.concat(), 64_usize.to_ne_bytes().to_vec()].concat()
    };
    prop_oneof![
        vec(any::<u8>(), 16),
        Just(good()),
        (0..16_usize, any::<u8>()).prop_map(move |(at, byte)| {
            let mut bytes = good();
            bytes[at] = byte;
            bytes
        }),
    ]
}

fn order() -> impl Strategy<Value = Order> {
    let (handle, address) = (0..4_usize, 1..6_usize);
    prop_oneof![
        wrapper().prop_map(Order::Register),
        handle.clone().prop_map(Order::Forget),
        (handle.clone(), address.clone(), "[a-z]{0,3}")
            .prop_map(|(handle, host, name)| Order::Kernel(handle, host, name)),
        (handle, address, any::<usize>(), any::<bool>())
            .prop_map(|(handle, at, size, managed)| Order::Variable(handle, at, size, managed)),
    ]
}

/// Whether a wrapper's bytes are those of a fat binary.
fn is_good(bytes: &[u8]) -> bool {
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let has_data = bytes[8..16].iter().any(|byte| *byte != 0);
    word(0) == WRAPPER_MAGIC && matches!(word(4), 1 | 2) && has_data
}

proptest! {
    /// The registry is what a plain list of what was registered and not forgotten says, whatever comes.
    #[test]
    fn the_first_that_was_not_forgotten_is_found(orders in vec(order(), 0..40)) {
        let code = Code::default();
        let mut wrappers = Vec::new();
        let mut handles: Vec<(usize, bool)> = Vec::new();
        let mut kernels: BTreeMap<usize, Vec<(usize, String)>> = BTreeMap::new();
        let mut variables: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
        for order in orders {
            match order {
                Order::Register(bytes) => {
                    let good = is_good(&bytes);
                    let bytes = Box::leak(bytes.into_boxed_slice());
                    // SAFETY: the bytes are as many as a wrapper's, and stay.
                    let handle = unsafe { code.register(bytes.as_ptr().cast()) };
                    prop_assert!(handles.iter().all(|(other, _)| *other != handle));
                    handles.push((handle, good));
                    wrappers.push(bytes);
                }
                Order::Forget(at) if at < handles.len() => {
                    let (handle, _) = handles.remove(at);
                    prop_assert!(code.forget(handle).is_none(), "nothing was loaded");
                    prop_assert!(code.forget(handle).is_none());
                    kernels.values_mut().for_each(|all| all.retain(|(of, _)| *of != handle));
                    variables.values_mut().for_each(|all| all.retain(|(of, _)| *of != handle));
                }
                Order::Kernel(at, host, name) => {
                    let handle = handles.get(at).map_or(1, |(handle, _)| *handle);
                    code.add_kernel(handle, host, CString::new(name.clone()).unwrap());
                    if handle != 1 {
                        kernels.entry(host).or_default().push((handle, name));
                    }
                }
                Order::Variable(at, address, size, managed) => {
                    let handle = handles.get(at).map_or(1, |(handle, _)| *handle);
                    let shadow = Shadow { address, size, managed };
                    code.add_variable(handle, &shadow, CString::from(c"v"));
                    if handle != 1 {
                        variables.entry(address).or_default().push((handle, size));
                    }
                }
                Order::Forget(_) => {}
            }
        }
        let registered = code.read();
        for (handle, good) in &handles {
            prop_assert_eq!(registered.binaries[handle].image.is_ok(), *good);
        }
        for host in 1..6 {
            let found = meant(&registered.kernels, host);
            let found = found.map(|kernel| {
                let binary = Arc::as_ptr(&kernel.binary).addr();
                (binary, kernel.name.to_str().unwrap().to_owned())
            });
            let expected = kernels.get(&host).and_then(|all| all.first());
            prop_assert_eq!(code.handle(host).is_some(), expected.is_some());
            prop_assert_eq!(code.is_symbol(host), expected.is_some());
            prop_assert_eq!(found, expected.cloned());
            let found = meant(&registered.variables, host);
            let found = found.map(|variable| (Arc::as_ptr(&variable.binary).addr(), variable.size));
            prop_assert_eq!(found, variables.get(&host).and_then(|all| all.first()).copied());
        }
    }
}

#[test]
fn null_is_no_fat_binary() {
    let code = Code::default();
    // SAFETY: NULL is allowed.
    let handle = unsafe { code.register(std::ptr::null()) };
    assert_eq!(
        code.read().binaries[&handle].image,
        Err(cudaErrorInvalidKernelImage)
    );
}

#[test]
fn a_shadow_that_is_none_is_no_symbol() {
    let code = Code::default();
    let shadow = std::ptr::without_provenance(64);
    assert_eq!(code.variable(shadow).err(), Some(cudaErrorInvalidSymbol));
}

#[test]
fn functions_of_the_program_are_no_handles() {
    let function: fn() = functions_of_the_program_are_no_handles;
    assert!(is_in_object(function as usize));
    // Handles of the driver are numbers or places on its heap.
    let place = Box::new(0_u64);
    assert!(!is_in_object(std::ptr::from_ref(&*place).addr()));
    assert!(!is_in_object(0x0200_0000_0000_0001));
}
