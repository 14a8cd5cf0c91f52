//! Certificates that a side does not take: why, and what to do about it.

use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};

const DAY: u64 = 24 * 60 * 60;

/// The reason of a failure in words; behind a semicolon, the thing to do.
pub(super) fn reason(error: &Error) -> String {
    let Error::InvalidCertificate(error) = error else {
        return error.to_string();
    };
    match error {
        CertificateError::ExpiredContext { not_after, .. } => format!(
            "its certificate ended on {}; have its operator renew it, or correct this machine's clock",
            date(*not_after)
        ),
        CertificateError::NotValidYetContext { not_before, .. } => format!(
            "its certificate is valid from {} on; correct this machine's clock, or have its operator give it another",
            date(*not_before)
        ),
        // An authority that was made anew has the old one's name.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate was not signed by the authority in the file of --ca; name the file of the authority that signed it".into()
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            let names = match names.is_empty() {
                true => "no name".into(),
                false => names.join(", "),
            };
            format!(
                "its certificate is for {names}, not for {}; name the server as the certificate does",
                expected.to_str()
            )
        }
        other => format!("its certificate cannot be used: {other}"),
    }
}

/// A name without its kind: rustls has `DnsName("gpu1")`.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, inner)| inner);
    inner.trim_matches(['"', ')'])
}

/// The last moment at which a certificate is valid.
pub(super) fn end(certificate: &CertificateDer<'_>) -> Option<UnixTime> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    // The only question about a time that rustls answers; times are compared before signatures.
    let late = UnixTime::since_unix_epoch(std::time::Duration::from_secs(u64::MAX));
    let roots = RootCertStore::empty();
    match verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], late, &[]) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Some(not_after)
        }
        _ => None,
    }
}

/// The day of a time, in UTC, as in `2026-11-28` (by H. Hinnant's `civil_from_days`).
pub(super) fn date(time: UnixTime) -> String {
    // Days since 1 March 0000; years that begin in March have the leap day at their end.
    let days = time.as_secs() / DAY + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = match month {
        10.. => (month - 9, 1),
        _ => (month + 3, 0),
    };
    format!("{}-{month:02}-{day:02}", 400 * era + year + next)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, day) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_798_761_599, "2026-12-31"),
            (4_107_542_400, "2100-03-01"),
        ] {
            let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            assert_eq!(date(time), day);
        }
    }

    #[test]
    fn names_stand_without_their_kinds() {
        assert_eq!(bare("DnsName(\"gpu1.example\")"), "gpu1.example");
        assert_eq!(bare("IpAddress(192.0.2.1)"), "192.0.2.1");
        assert_eq!(bare("DirectoryName"), "DirectoryName");
    }
}
