//! The handshake: from a connection in the clear to a [`TlsConnection`].

use std::io::IoSlice;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConnectionData, Resumption, UnbufferedClientConnection};
use rustls::crypto::{CryptoProvider, ring as ring_provider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ServerConnectionData, WebPkiClientVerifier};
use rustls::server::{UnbufferedServerConnection, danger::ClientCertVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::unbuffered::{
    ConnectionState, EncodeError, UnbufferedConnectionCommon, UnbufferedStatus,
};
use rustls::{ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme};

use super::connection::{Keys, TlsConnection};
use super::exporter::Listener;
use super::identity::{Authority, Fingerprint, Identity};
use crate::{Connection, TransportError};

/// Nothing of a handshake is longer, long certificate chains included.
const HANDSHAKE_LIMIT: usize = 128 << 10;
/// Keeps a connection meant for another protocol from being taken for one of ours.
const PROTOCOL: &[u8] = b"towline";
/// What a client that knows no name of its server says it looks for.
const NO_NAME: &str = "towline.invalid";

/// What rustls encrypts with. The exporter counts on SHA-256, which is all that both suites use.
pub(super) fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![
            ring_provider::cipher_suite::TLS13_AES_128_GCM_SHA256,
            ring_provider::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..ring_provider::default_provider()
    }
}

static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(provider()));

/// The side that connects.
#[derive(Clone, Debug, Default)]
pub struct ClientTls {
    /// The authority that must have signed the server's certificate, and the name that this must hold. Without it any will do: see
    /// [`TlsConnection::peer_fingerprint`].
    pub authority: Option<(Authority, String)>,
    /// The certificate for a server that asks for one.
    pub identity: Option<Identity>,
}

impl ClientTls {
    /// Makes the handshake, within `limit`.
    pub fn connect(
        &self,
        stream: Arc<dyn Connection>,
        limit: Duration,
    ) -> Result<Arc<TlsConnection>, TransportError> {
        let failed = |error: Error| failed(&*stream, &error);
        let listener = Arc::new(Listener::default());
        let (config, name) = self.config(&listener).map_err(failed)?;
        let mut connection =
            UnbufferedClientConnection::new(Arc::new(config), name).map_err(failed)?;
        let left = drive(
            &mut connection,
            UnbufferedConnectionCommon::<ClientConnectionData>::process_tls_records,
            &*stream,
            &[],
            limit,
        )?;
        let peer = fingerprint(connection.peer_certificates()).map_err(failed)?;
        let (secrets, keys) = connection
            .dangerous_into_kernel_connection()
            .map_err(failed)?;
        TlsConnection::new(stream, secrets, Keys::Client(keys), left, &listener, peer)
    }

    fn config(
        &self,
        listener: &Arc<Listener>,
    ) -> Result<(ClientConfig, ServerName<'static>), Error> {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&PROVIDER))
            .with_protocol_versions(&[&rustls::version::TLS13])?;
        let (builder, name) = match &self.authority {
            Some((authority, name)) => (
                builder.with_root_certificates(Arc::clone(&authority.0)),
                name.as_str(),
            ),
            None => (
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(AnyCertificate)),
                NO_NAME,
            ),
        };
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(
                Arc::clone(&identity.0),
            ))),
        };
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.enable_secret_extraction = true;
        config.key_log = Arc::clone(listener) as _;
        let name = ServerName::try_from(name.to_owned()).map_err(|_| {
            Error::General(format!("`{name}` is no name that a certificate can hold"))
        })?;
        Ok((config, name))
    }
}

/// The side that accepts.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// What to show.
    pub identity: Identity,
    /// The authority that must have signed the client's certificate; without it none is asked for.
    pub authority: Option<Authority>,
}

impl ServerTls {
    /// Makes the handshake, within `limit`. `first` is what has been read of the connection already.
    pub fn accept(
        &self,
        stream: Arc<dyn Connection>,
        first: &[u8],
        limit: Duration,
    ) -> Result<Arc<TlsConnection>, TransportError> {
        let failed = |error: Error| failed(&*stream, &error);
        let listener = Arc::new(Listener::default());
        let config = self.config(&listener).map_err(failed)?;
        let mut connection = UnbufferedServerConnection::new(Arc::new(config)).map_err(failed)?;
        let left = drive(
            &mut connection,
            UnbufferedConnectionCommon::<ServerConnectionData>::process_tls_records,
            &*stream,
            first,
            limit,
        )?;
        let peer = fingerprint(connection.peer_certificates()).map_err(failed)?;
        let (secrets, keys) = connection
            .dangerous_into_kernel_connection()
            .map_err(failed)?;
        TlsConnection::new(stream, secrets, Keys::Server(keys), left, &listener, peer)
    }

    fn config(&self, listener: &Arc<Listener>) -> Result<ServerConfig, Error> {
        let builder = ServerConfig::builder_with_provider(Arc::clone(&PROVIDER))
            .with_protocol_versions(&[&rustls::version::TLS13])?;
        let builder = match &self.authority {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let verifier: Arc<dyn ClientCertVerifier> =
                    WebPkiClientVerifier::builder_with_provider(
                        Arc::clone(&authority.0),
                        Arc::clone(&PROVIDER),
                    )
                    .build()
                    .map_err(|error| Error::General(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(
            &self.identity.0,
        ))));
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.enable_secret_extraction = true;
        config.key_log = Arc::clone(listener) as _;
        Ok(config)
    }
}

fn fingerprint(chain: Option<&[CertificateDer<'_>]>) -> Result<Option<Fingerprint>, Error> {
    chain
        .and_then(|chain| chain.first())
        .map(Fingerprint::of)
        .transpose()
}

/// What came behind the handshake.
#[derive(Default)]
pub(super) struct Left {
    /// Content that rustls has opened.
    pub(super) content: Vec<u8>,
    /// The start of the next record.
    pub(super) sealed: Vec<u8>,
    /// The peer has ended the connection already.
    pub(super) ended: bool,
}

type Process<D> = for<'c, 'i> fn(
    &'c mut UnbufferedConnectionCommon<D>,
    &'i mut [u8],
) -> UnbufferedStatus<'c, 'i, D>;

/// Exchanges messages until data may be sent.
fn drive<D>(
    connection: &mut UnbufferedConnectionCommon<D>,
    process: Process<D>,
    stream: &dyn Connection,
    first: &[u8],
    limit: Duration,
) -> Result<Left, TransportError> {
    let deadline = Instant::now() + limit;
    let mut incoming = first.to_vec();
    let mut outgoing = Vec::new();
    let mut content = Vec::new();
    let mut ended = false;
    // What the peer says first shows whether it speaks TLS at all.
    let mut begins = false;
    loop {
        let UnbufferedStatus { mut discard, state } = process(connection, &mut incoming);
        let mut wants_more = false;
        match state {
            Ok(ConnectionState::EncodeTlsData(mut record)) => {
                append(&mut outgoing, |room| record.encode(room))
            }
            Ok(ConnectionState::TransmitTlsData(transmit)) => {
                stream.send(&[IoSlice::new(&outgoing)])?;
                outgoing.clear();
                transmit.done();
            }
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(record) = traffic.next_record() {
                    let record = record.map_err(|error| failed(stream, &error))?;
                    discard += record.discard;
                    content.extend_from_slice(record.payload);
                }
            }
            Ok(ConnectionState::WriteTraffic(_)) => {
                incoming.drain(..discard);
                return Ok(Left {
                    content,
                    sealed: incoming,
                    ended,
                });
            }
            Ok(ConnectionState::BlockedHandshake) => wants_more = true,
            Ok(ConnectionState::PeerClosed) => ended = true,
            Ok(_) => {
                return Err(TransportError::Closed {
                    peer: stream.peer(),
                });
            }
            Err(error) => {
                incoming.drain(..discard);
                tell(connection, process, stream, &mut incoming);
                return Err(failed(stream, &error));
            }
        }
        incoming.drain(..discard);
        if wants_more {
            receive(stream, &mut incoming, deadline, limit)?;
            if !begins && !super::is_record(&incoming) {
                return Err(TransportError::NotTls {
                    peer: stream.peer(),
                    said: incoming,
                });
            }
            begins = begins || incoming.len() >= 2;
        }
    }
}

/// Sends the alert that says why this side gives up, if there is one. rustls remembers places in what has come, which must be there still.
fn tell<D>(
    connection: &mut UnbufferedConnectionCommon<D>,
    process: Process<D>,
    stream: &dyn Connection,
    incoming: &mut [u8],
) {
    if let Ok(ConnectionState::EncodeTlsData(mut record)) = process(connection, incoming).state {
        let mut alert = Vec::new();
        append(&mut alert, |room| record.encode(room));
        // The connection is given up whether or not the other side hears why.
        let _ = stream.try_send(&alert);
    }
}

/// Appends what rustls encodes, which says how much room it needs.
fn append(out: &mut Vec<u8>, mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>) {
    let start = out.len();
    let mut room = 1 << 10;
    loop {
        out.resize(start + room, 0);
        match encode(&mut out[start..]) {
            Ok(written) => return out.truncate(start + written),
            Err(EncodeError::InsufficientSize(size)) => room = size.required_size,
            // It was encoded before, which this module does not do.
            Err(EncodeError::AlreadyEncoded) => return out.truncate(start),
        }
    }
}

fn receive(
    stream: &dyn Connection,
    incoming: &mut Vec<u8>,
    deadline: Instant,
    limit: Duration,
) -> Result<(), TransportError> {
    let late = || TransportError::TimedOut {
        address: stream.peer(),
        timeout: limit,
    };
    if incoming.len() > HANDSHAKE_LIMIT {
        return Err(failed(
            stream,
            &Error::General("its handshake is too long".into()),
        ));
    }
    let left = deadline.saturating_duration_since(Instant::now());
    if !stream.wait_readable(Some(left))? {
        return Err(late());
    }
    let mut bytes = [0; 4 << 10];
    match stream.recv(&mut bytes)? {
        0 => Err(TransportError::Closed {
            peer: stream.peer(),
        }),
        count => {
            incoming.extend_from_slice(bytes.get(..count).unwrap_or_default());
            Ok(())
        }
    }
}

fn failed(stream: &dyn Connection, error: &Error) -> TransportError {
    TransportError::Tls {
        peer: stream.peer(),
        reason: super::refusal::reason(error),
    }
}

#[cfg(test)]
pub(super) fn any_certificate() -> Arc<dyn ServerCertVerifier> {
    Arc::new(AnyCertificate)
}

/// Takes any certificate whose key its holder has.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &PROVIDER.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        PROVIDER
            .signature_verification_algorithms
            .supported_schemes()
    }
}
