//! A client that keeps the rules only as far as a test wants.

use super::*;

/// Longer than any handshake takes.
const LIMIT: Duration = Duration::from_secs(20);

/// How a client connects where the server's address does not say.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Wire {
    Clear,
    Tls,
}

pub(super) struct Client {
    /// The TLS of `connection`, if it is encrypted.
    pub(super) tls: Option<Arc<TlsConnection>>,
    pub(super) connection: Arc<dyn Connection>,
    pub(super) buffer: MessageBuffer,
    pub(super) address: Address,
    pub(super) welcome: Option<Welcome>,
}

impl Client {
    pub(super) fn dial(address: &Address) -> Self {
        Self::dial_over(Wire::Clear, address)
    }

    pub(super) fn dial_over(wire: Wire, address: &Address) -> Self {
        let stream = Registry::global()
            .connect(address, &ConnectOptions::control())
            .expect("the server listens");
        let (connection, tls): (Arc<dyn Connection>, _) = match wire {
            Wire::Clear => (stream, None),
            Wire::Tls => {
                let tls = ClientTls::default()
                    .connect(stream, LIMIT)
                    .expect("the server encrypts");
                (Arc::clone(&tls) as _, Some(tls))
            }
        };
        let buffer = MessageBuffer::new(limits::SERVER_MESSAGE_BYTES);
        Self {
            tls,
            connection,
            buffer,
            address: address.clone(),
            welcome: None,
        }
    }

    pub(super) fn join(
        address: &Address,
        purpose: Purpose,
        token: Option<Token>,
    ) -> Result<Self, HandshakeError> {
        Self::join_from("here", address, purpose, token)
    }

    pub(super) fn join_from(
        host: &str,
        address: &Address,
        purpose: Purpose,
        token: Option<Token>,
    ) -> Result<Self, HandshakeError> {
        let wire = match token {
            Some(_) => Wire::Tls,
            None => Wire::Clear,
        };
        let hello = Hello::new(purpose, "test", std::process::id(), host, [7; 32]);
        Self::join_over(wire, address, hello, token)
    }

    pub(super) fn join_over(
        wire: Wire,
        address: &Address,
        hello: Hello,
        token: Option<Token>,
    ) -> Result<Self, HandshakeError> {
        let mut client = Self::dial_over(wire, address);
        let channel = client.tls.as_ref().map_or(Channel::Clear, |tls| {
            Channel::Encrypted(tls.exporter(labels::CONTROL, b""))
        });
        let (mut handshake, first) = ClientHandshake::start(hello, token, channel);
        client.send(&first);
        loop {
            let frame = client.frame().expect("an answer before the end");
            match handshake.receive(&frame)? {
                ClientProgress::Send(answer) => client.send(&answer),
                ClientProgress::Wait => {}
                ClientProgress::Done(welcome) => {
                    client.welcome = Some(*welcome);
                    return Ok(client);
                }
            }
        }
    }

    pub(super) fn session(address: &Address) -> Self {
        Self::join(address, Purpose::Session, None).expect("the server lets us in")
    }

    pub(super) fn query(address: &Address) -> Self {
        Self::join(address, Purpose::Query, None).expect("the server lets us in")
    }

    pub(super) fn send(&self, bytes: &[u8]) {
        self.connection
            .send(&[IoSlice::new(bytes)])
            .expect("the server reads");
    }

    /// The next frame, or `None` when the server has closed.
    pub(super) fn frame(&mut self) -> Option<Vec<u8>> {
        let mut bytes = [0; 4096];
        loop {
            if let Some(frame) = self
                .buffer
                .next_frame()
                .expect("the server speaks the protocol")
            {
                return Some(frame);
            }
            assert!(
                self.connection
                    .wait_readable(Some(Duration::from_secs(20)))
                    .unwrap_or(true),
                "no answer"
            );
            match self.connection.recv(&mut bytes) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.buffer.push(&bytes[..count]),
            }
        }
    }

    pub(super) fn message(&mut self) -> Option<Message> {
        self.frame()
            .map(|frame| Message::decode(&frame).expect("the server speaks the protocol"))
    }

    pub(super) fn status(&mut self) -> Status {
        self.send(&Message::StatusRequest.encode());
        match self.message() {
            Some(Message::Status(status)) => status,
            other => panic!("not a status: {other:?}"),
        }
    }

    pub(super) fn kill(&mut self, session_id: u64) -> Result<(), String> {
        self.send(&Message::KillSession(KillSession { session_id }).encode());
        match self.message() {
            Some(Message::SessionKilled(killed)) => killed.outcome,
            other => panic!("not an outcome: {other:?}"),
        }
    }

    /// Asks for a peer lane from the server of this address.
    pub(super) fn offer(&mut self, address: &str) -> Result<Ticket, String> {
        let offer = PeerOffer {
            lane: 5,
            address: address.into(),
        };
        self.send(&Message::PeerOffer(offer).encode());
        match self.message() {
            Some(Message::PeerTicket(answer)) if answer.lane == 5 => answer.ticket,
            other => panic!("not a ticket: {other:?}"),
        }
    }

    /// Asks for a peer lane to the server of this address.
    pub(super) fn connect(&mut self, address: &str, ticket: &Ticket) -> Result<(), String> {
        let connect = PeerConnect {
            lane: 5,
            address: address.into(),
            ticket: ticket.clone(),
        };
        self.send(&Message::PeerConnect(connect).encode());
        match self.message() {
            Some(Message::PeerConnected(answer)) if answer.lane == 5 => answer.outcome,
            other => panic!("not an outcome: {other:?}"),
        }
    }

    pub(super) fn ticket(&self) -> Ticket {
        self.welcome
            .as_ref()
            .and_then(|welcome| welcome.session.as_ref())
            .expect("a session")
            .ticket
            .clone()
    }

    pub(super) fn preamble(&self, index: u16, count: u16) -> AttachPreamble {
        AttachPreamble {
            ticket: self.ticket(),
            lane_index: index,
            lane_count: count,
            again: false,
        }
    }

    pub(super) fn lane_key(&self) -> Option<LaneKey> {
        let tls = self.tls.as_ref()?;
        Some(LaneKey::from_bytes(tls.exporter(labels::LANE_KEY, b"")))
    }

    pub(super) fn lane(&self, index: u16, count: u16) -> Lane {
        let lane = Lane::open(&self.address, self.preamble(index, count));
        match self.lane_key() {
            None => lane,
            Some(key) => lane
                .encrypt(&key, index, count)
                .expect("the worker takes it"),
        }
    }
}

pub(super) struct Lane(pub(super) Arc<dyn Connection>);

impl Lane {
    pub(super) fn open(address: &Address, preamble: AttachPreamble) -> Self {
        let connection = Registry::global()
            .connect(address, &ConnectOptions::default())
            .expect("the server listens");
        connection
            .send(&[IoSlice::new(&preamble.encode())])
            .expect("the server reads");
        Self(connection)
    }

    /// TLS and proofs, as a client's lane has them.
    pub(super) fn encrypt(
        self,
        key: &LaneKey,
        index: u16,
        count: u16,
    ) -> Result<Self, TransportError> {
        let tls = ClientTls::default().connect(self.0, LIMIT)?;
        let end = LaneEnd::Client { index, count };
        let binding = tls.exporter(labels::LANE, b"");
        let check = |proof: &_| key.verify(end.other(), &binding, proof);
        tls.exchange_proofs(true, &key.prove(end, &binding), check, LIMIT)?;
        Ok(Self(tls))
    }

    pub(super) fn order(&self, order: &[u8; 8]) {
        self.0
            .send(&[IoSlice::new(order)])
            .expect("the worker reads");
    }

    pub(super) fn echoes(&self) -> bool {
        let mut back = [0; 8];
        self.0.send(&[IoSlice::new(b"abcdefgh")]).is_ok()
            && recv_exact(&*self.0, &mut back).is_ok()
            && &back == b"abcdefgh"
    }

    /// Whether the server has closed it, or said something.
    pub(super) fn has_ended(&self) -> bool {
        let now = Some(Duration::ZERO);
        self.0.wait_readable(now).unwrap_or(true)
    }

    /// Whether the server closes it, within the time that refusing takes.
    pub(super) fn is_refused(&self) -> bool {
        let readable = self
            .0
            .wait_readable(Some(Duration::from_secs(10)))
            .unwrap_or(true);
        readable && matches!(self.0.recv(&mut [0; 8]), Ok(0) | Err(_))
    }
}
