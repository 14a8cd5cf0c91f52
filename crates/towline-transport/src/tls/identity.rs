//! Keys and certificates: whom a side shows to be, and whom it takes the other for.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;

use crate::TransportError;

/// A private key with the certificate that shows its public half.
#[derive(Clone, Debug)]
pub struct Identity(pub(super) Arc<CertifiedKey>);

/// Longest file of a key that is read.
pub const MAX_KEY_BYTES: usize = 64 << 10;

/// The authority that signs certificates of a site.
#[derive(Clone, Debug)]
pub struct Authority(pub(super) Arc<RootCertStore>);

/// SHA-256 of a public key (its SubjectPublicKeyInfo): what a server is recognised by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fingerprint(pub [u8; 32]);

impl Identity {
    /// A new key, and the bytes to keep it by, which [`from_key`](Self::from_key) takes. The certificate says nothing but the key.
    pub fn generate() -> Result<(Self, Vec<u8>), TransportError> {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).map_err(unusable)?;
        let bytes = key.serialize_der();
        Ok((Self::from_key(&bytes)?, bytes))
    }

    /// The identity of a kept key.
    pub fn from_key(bytes: &[u8]) -> Result<Self, TransportError> {
        let key = PrivatePkcs8KeyDer::from(bytes.to_vec());
        let pair = rcgen::KeyPair::try_from(&key).map_err(unusable)?;
        let certificate = rcgen::CertificateParams::new(vec!["towline".to_owned()])
            .and_then(|parameters| parameters.self_signed(&pair))
            .map_err(unusable)?;
        Self::new(vec![certificate.der().clone()], key.into())
    }

    /// An identity that a site gives: a chain of certificates, the own one first, and its key, both as PEM.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, TransportError> {
        let chain = CertificateDer::pem_slice_iter(certificates)
            .collect::<Result<Vec<_>, _>>()
            .map_err(unusable)?;
        if chain.is_empty() {
            return Err(unusable("the file holds no certificate in PEM"));
        }
        Self::new(chain, PrivateKeyDer::from_pem_slice(key).map_err(unusable)?)
    }

    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, TransportError> {
        let certified = CertifiedKey::from_der(chain, key, &super::handshake::provider());
        Ok(Self(Arc::new(certified.map_err(unusable)?)))
    }

    /// The last second at which its certificate is valid, since 1970.
    pub fn end(&self) -> Option<u64> {
        let end = super::refusal::end(self.0.end_entity_cert().ok()?)?;
        Some(end.as_secs())
    }

    /// What its holder is recognised by.
    pub fn fingerprint(&self) -> Result<Fingerprint, TransportError> {
        let own = self.0.end_entity_cert().map_err(unusable)?;
        Fingerprint::of(own).map_err(unusable)
    }
}

impl Authority {
    /// The certificates of the authority, as PEM.
    pub fn from_pem(certificates: &[u8]) -> Result<Self, TransportError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(certificates) {
            let certificate = certificate.map_err(unusable)?;
            roots.add(certificate).map_err(unusable)?;
        }
        match roots.is_empty() {
            true => Err(unusable("the file holds no certificate in PEM")),
            false => Ok(Self(Arc::new(roots))),
        }
    }
}

fn unusable(reason: impl fmt::Display) -> TransportError {
    TransportError::Credentials {
        reason: reason.to_string(),
    }
}

impl Fingerprint {
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Result<Self, rustls::Error> {
        let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
        let hash = digest(&SHA256, key.as_ref());
        Ok(Self(
            hash.as_ref().try_into().expect("SHA-256 has 32 bytes"),
        ))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Not 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a fingerprint has 64 hexadecimal digits")]
pub struct NoFingerprint;

impl FromStr for Fingerprint {
    type Err = NoFingerprint;

    fn from_str(text: &str) -> Result<Self, NoFingerprint> {
        let mut bytes = [0; 32];
        if text.len() != 2 * bytes.len() {
            return Err(NoFingerprint);
        }
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| NoFingerprint)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| NoFingerprint)?;
        }
        Ok(Self(bytes))
    }
}
