//! Turning [`policy`](super::policy) into filters, and putting them on.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::policy::{
    ALLOWED, ALLOWED_IF, Allowed, ArgumentRule, CONNECTIONS, Is, KILLED, NETWORK_SOCKETS,
    ONLY_LOCAL_SOCKETS, ONLY_THREADS, PROGRAMS, REFUSED, REFUSED_IF,
};
use super::{Network, WorkerKind};
use crate::SysError;

/// Second step of the jail: filters system calls on all threads, for good. Call it when the device runtime is warm.
///
/// Three filters, of which the kernel takes the strictest answer: what is dangerous kills the process, what is known but
/// not needed fails with EPERM, what is unknown (newer than this list) with ENOSYS, so that a C library falls back.
/// Calls that are always allowed cost nothing measurable: the kernel caches that answer per call (since Linux 5.11).
pub fn seal(kind: WorkerKind, network: Network) -> Result<(), SysError> {
    let action = "put on the seccomp filter";
    let filters = filters(kind, network)
        .map_err(|error| SysError::new(action, std::io::Error::other(error)))?;
    for filter in filters {
        // All threads at once: a vendor runtime has started some already.
        seccompiler::apply_filter_all_threads(&filter)
            .map_err(|error| SysError::new(action, std::io::Error::other(error)))?;
    }
    Ok(())
}

fn filters(
    kind: WorkerKind,
    network: Network,
) -> Result<Vec<BpfProgram>, seccompiler::BackendError> {
    let known: Vec<i64> = [ALLOWED, PROGRAMS, CONNECTIONS, REFUSED, KILLED].concat();
    let (threads, programs): (&[ArgumentRule], &[i64]) = match kind.starts_programs() {
        true => (&[], &[]),
        false => (&[ONLY_THREADS], PROGRAMS),
    };
    let (sockets, connections): (&[ArgumentRule], &[i64]) = match network.is_shared() {
        true => (NETWORK_SOCKETS, &[]),
        false => (ONLY_LOCAL_SOCKETS, CONNECTIONS),
    };
    let mut allowed_if: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let conditional = ALLOWED_IF.iter().chain(sockets).map(|rule| rule.call);
    let conditional = conditional.chain(REFUSED_IF.iter().map(|refusal| refusal.call));
    for refusal in REFUSED_IF {
        let refusals = allowed_if.entry(refusal.call).or_default();
        let conditions = refusal.when.iter().map(|(argument, is)| {
            let (operator, value) = match is {
                Is::Equal(value) => (SeccompCmpOp::Eq, *value),
                Is::Unequal(value) => (SeccompCmpOp::Ne, *value),
            };
            condition(*argument, operator, value)
        });
        refusals.push(SeccompRule::new(conditions.collect::<Result<_, _>>()?)?);
    }
    for rule in ALLOWED_IF.iter().chain(threads).chain(sockets) {
        let refusals = allowed_if.entry(rule.call).or_default();
        refusals.extend(refusal_rules(rule)?);
    }
    Ok(vec![
        filter(
            known
                .iter()
                .copied()
                .chain(conditional)
                .map(|call| (call, Vec::new()))
                .collect(),
            SeccompAction::Errno(libc::ENOSYS as u32),
            SeccompAction::Allow,
        )?,
        filter(
            KILLED.iter().map(|call| (*call, Vec::new())).collect(),
            SeccompAction::Allow,
            SeccompAction::KillProcess,
        )?,
        // Last, because it refuses `seccomp` itself.
        filter(
            REFUSED
                .iter()
                .chain(programs)
                .chain(connections)
                .map(|call| (*call, Vec::new()))
                .chain(allowed_if)
                .collect(),
            SeccompAction::Allow,
            SeccompAction::Errno(libc::EPERM as u32),
        )?,
    ])
}

fn condition(
    argument: u8,
    operator: SeccompCmpOp,
    value: u32,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    let len = SeccompCmpArgLen::Dword;
    SeccompCondition::new(argument, len, operator, u64::from(value))
}

/// Rules that match the calls which `rule` does not allow.
fn refusal_rules(rule: &ArgumentRule) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let condition = |operator, value| condition(rule.argument, operator, value);
    match rule.allowed {
        Allowed::WithoutBits(bits) => {
            let refused = (0..32).map(|bit| 1u32 << bit).filter(|bit| bits & bit != 0);
            refused
                .map(|bit| {
                    SeccompRule::new(vec![condition(SeccompCmpOp::MaskedEq(bit.into()), bit)?])
                })
                .collect()
        }
        Allowed::WithBits(bits) => {
            let missing = condition(SeccompCmpOp::MaskedEq(bits.into()), 0)?;
            Ok(vec![SeccompRule::new(vec![missing])?])
        }
        Allowed::ThisProcess => {
            let this = std::process::id();
            let others = [0, this].map(|number| condition(SeccompCmpOp::Ne, number));
            let others = others.into_iter().collect::<Result<Vec<_>, _>>()?;
            Ok(vec![SeccompRule::new(others)?])
        }
        Allowed::OneOf(values) => {
            let conditions: Result<Vec<_>, _> = values
                .iter()
                .map(|value| condition(SeccompCmpOp::Ne, *value))
                .collect();
            Ok(vec![SeccompRule::new(conditions?)?])
        }
        Allowed::NotOneOf(values) => values
            .iter()
            .map(|value| SeccompRule::new(vec![condition(SeccompCmpOp::Eq, *value)?]))
            .collect(),
    }
}

fn filter(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, seccompiler::BackendError> {
    SeccompFilter::new(rules, otherwise, matched, TARGET)?.try_into()
}

#[cfg(target_arch = "x86_64")]
const TARGET: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const TARGET: TargetArch = TargetArch::aarch64;
#[cfg(target_arch = "riscv64")]
const TARGET: TargetArch = TargetArch::riscv64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_in_one_list() {
        let mut all: Vec<i64> = [ALLOWED, PROGRAMS, CONNECTIONS, REFUSED, KILLED].concat();
        all.extend(ALLOWED_IF.iter().map(|rule| rule.call));
        all.extend([libc::SYS_socket, libc::SYS_setsockopt]);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn policies_compile() {
        for kind in [WorkerKind::OpenCl, WorkerKind::Cuda] {
            for network in [Network::Own, Network::Job, Network::Host] {
                assert_eq!(filters(kind, network).unwrap().len(), 3);
            }
        }
    }
}
