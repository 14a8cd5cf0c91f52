//! Binding this process to CPUs and NUMA nodes; threads and processes it starts later inherit it.

#![allow(unsafe_code)]

use rustix::thread::CpuSet;

use crate::{Context, SysError};

/// Parses a list as the kernel writes it: `0-3,8,10-11`. In the error, what is wrong.
pub fn parse_list(text: &str) -> Result<Vec<usize>, String> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let number = |text: &str| {
            text.trim()
                .parse::<usize>()
                .map_err(|_| format!("`{part}` is neither a number nor a range like 0-3"))
        };
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if first > last {
            return Err(format!("the range `{part}` runs backwards"));
        }
        if last >= CpuSet::MAX_CPU {
            return Err(format!(
                "`{part}` is beyond the {} CPUs that Linux numbers",
                CpuSet::MAX_CPU
            ));
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// The CPUs of this machine, as the kernel writes them.
pub fn online() -> Option<String> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    Some(list.trim().to_owned())
}

/// The CPUs of a NUMA node.
pub fn of_numa_node(node: u32) -> Result<Vec<usize>, SysError> {
    let action =
        || format!("find NUMA node {node}: `ls /sys/devices/system/node` lists those there are");
    let list = std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist"))
        .while_trying_to(action())?;
    parse_list(&list).map_err(|reason| SysError::new(action(), std::io::Error::other(reason)))
}

/// Binds the calling thread, and all it starts from now on, to `cpus`.
pub fn bind(cpus: &[usize]) -> Result<(), SysError> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu);
    }
    rustix::thread::sched_setaffinity(None, &set).while_trying_to(format!("run on CPUs {cpus:?}"))
}

/// Has the calling thread, and all it starts from now on, take memory from `node` while it has some.
pub fn prefer_memory_of(node: u32) -> Result<(), SysError> {
    const MASK_BITS: usize = 1024;
    const MPOL_PREFERRED: libc::c_int = 1;
    let action = || format!("take memory from NUMA node {node}");
    let mut mask = [0u64; MASK_BITS / 64];
    let word = mask
        .get_mut(node as usize / 64)
        .ok_or_else(|| SysError::new(action(), std::io::ErrorKind::InvalidInput))?;
    *word |= 1 << (node % 64);
    // SAFETY: the kernel reads MASK_BITS bits of `mask`, which has as many.
    let result = unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy,
            MPOL_PREFERRED,
            mask.as_ptr(),
            MASK_BITS,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).while_trying_to(action()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_list("0-3,8,10-11\n"), Ok(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse_list("5,5,4"), Ok(vec![4, 5]));
    }

    #[test]
    fn nonsense_is_named() {
        assert_eq!(
            parse_list("3-1").unwrap_err(),
            "the range `3-1` runs backwards"
        );
        assert!(parse_list("x").unwrap_err().contains("`x` is neither"));
        assert!(parse_list("0-99999999").unwrap_err().contains("beyond"));
        assert!(parse_list("").is_err());
    }

    #[test]
    fn binding_is_seen_by_the_kernel() {
        let seen = std::thread::spawn(|| {
            bind(&[0]).unwrap();
            let set = rustix::thread::sched_getaffinity(None).unwrap();
            (set.count(), set.is_set(0))
        });
        assert_eq!(seen.join().unwrap(), (1, true));
    }

    #[test]
    fn missing_numa_node_says_where_to_look() {
        assert!(
            of_numa_node(999)
                .unwrap_err()
                .to_string()
                .contains("NUMA node 999")
        );
    }
}
