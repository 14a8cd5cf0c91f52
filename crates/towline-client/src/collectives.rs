//! The job of this process: CUDA sessions of one job ask their server to let their workers reach each other, for collectives next to the
//! devices.
//!
//! All ranks of a job have to give it the same name, which so comes from what their launcher told them all.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use towline_wire::control::limits;

/// Has CUDA sessions ask for collectives, as 1.
pub const COLLECTIVES: &str = "TOWLINE_COLLECTIVES";
/// The name of the job.
pub const JOB: &str = "TOWLINE_JOB";

/// The name where nothing else is said: a tenant has one such job.
const ONLY_JOB: &str = "default";
/// Hexadecimal digits that stand for a name that cannot be sent as it is.
const DIGEST_DIGITS: usize = 32;

/// Variables of launchers that together name a job, with the word that keeps the names of each apart.
const LAUNCHERS: [(&str, &[&str]); 5] = [
    ("slurm", &["SLURM_JOB_ID", "SLURM_STEP_ID"]),
    (
        "torch",
        &["TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"],
    ),
    ("master", &["MASTER_ADDR", "MASTER_PORT"]),
    ("ompi", &["OMPI_MCA_ess_base_jobid"]),
    ("pmix", &["PMIX_NAMESPACE"]),
];

/// The name of this process's job; empty where it asks for no collectives.
pub(crate) fn job_of_process() -> String {
    job(|name| std::env::var(name).ok()).unwrap_or_default()
}

/// The name of a job by variables; `None` where they ask for no collectives.
fn job(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    variable(COLLECTIVES).filter(|value| value == "1")?;
    let derived = |(word, variables): &(&str, &[&str])| {
        let mut name = (*word).to_owned();
        for each in *variables {
            name = format!("{name}-{}", variable(each)?);
        }
        Some(name)
    };
    let named = variable(JOB).or_else(|| LAUNCHERS.iter().find_map(derived));
    Some(sendable(named.unwrap_or_else(|| ONLY_JOB.to_owned())))
}

/// The name, or a digest of one that is too long or not plain.
fn sendable(name: String) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    if name.len() <= limits::JOB_BYTES && name.bytes().all(is_plain) {
        return name;
    }
    let mut digits = String::new();
    for byte in Sha256::digest(name) {
        // Writing to a string does not fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits.truncate(DIGEST_DIGITS);
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job_with(variables: &[(&str, &str)]) -> Option<String> {
        job(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn job_is_named_only_on_request() {
        assert_eq!(job_with(&[(JOB, "train")]), None);
        assert_eq!(job_with(&[(COLLECTIVES, "0"), (JOB, "train")]), None);
        let named = job_with(&[(COLLECTIVES, "1"), (JOB, "train")]);
        assert_eq!(named.as_deref(), Some("train"));
    }

    #[test]
    fn launchers_name_jobs_in_order() {
        let steps: [(&[(&str, &str)], &str); 6] = [
            (&[], "default"),
            (&[("PMIX_NAMESPACE", "ns-3")], "pmix-ns-3"),
            (&[("OMPI_MCA_ess_base_jobid", "77")], "ompi-77"),
            (
                &[("MASTER_ADDR", "10.0.0.1"), ("MASTER_PORT", "29500")],
                "master-10.0.0.1-29500",
            ),
            (
                &[("TORCHELASTIC_RUN_ID", "none")],
                "torch-none-10.0.0.1-29500",
            ),
            (
                &[("SLURM_JOB_ID", "12"), ("SLURM_STEP_ID", "0")],
                "slurm-12-0",
            ),
        ];
        let mut variables = vec![(COLLECTIVES, "1")];
        for (more, name) in steps {
            variables.extend(more);
            assert_eq!(job_with(&variables).as_deref(), Some(name));
        }
    }

    #[test]
    fn half_of_a_launchers_variables_name_nothing() {
        let named = job_with(&[
            (COLLECTIVES, "1"),
            ("SLURM_JOB_ID", "12"),
            ("MASTER_ADDR", ""),
        ]);
        assert_eq!(named.as_deref(), Some("default"));
    }

    #[test]
    fn long_and_odd_names_become_digests() {
        let named = |name: &str| job_with(&[(COLLECTIVES, "1"), (JOB, name)]).unwrap();
        assert_eq!(named(&"j".repeat(64)), "j".repeat(64));
        let [long, odd] = [named(&"j".repeat(65)), named("two words")];
        for digest in [&long, &odd] {
            assert_eq!(digest.len(), DIGEST_DIGITS);
            assert!(digest.bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
        assert_ne!(long, odd);
        assert_eq!(odd, named("two words"));
    }
}
