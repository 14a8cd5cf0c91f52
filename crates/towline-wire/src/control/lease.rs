//! Leases: an admin gives a tenant of its own, with devices, for a time.

use super::codec::{ControlError, Reader, Writer};
use super::message::{NONCE_BYTES, Nonce};
use super::{TimeShare, Token, limits};

/// Parts of a server's devices.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LeasedPart {
    /// So many devices, that no other lease has anything of.
    Whole(u32),
    /// So many bytes of the memory of one device.
    Memory(u64),
}

/// Client to server, on a connection without a session, of a tenant that is an admin: make a tenant that has some of the devices.
///
/// The token of the new tenant is [`Token::of_lease`], which both ends know. A lease that is there already, with the same token, is given
/// again as it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GiveLease {
    /// Name of the new tenant.
    pub name: String,
    /// Makes its token unlike that of any other lease.
    pub nonce: Nonce,
    /// Its devices.
    pub part: LeasedPart,
    /// Names or beginnings of UUIDs of devices that it is to be of, at most [`limits::TENANT_DEVICES`]; empty: any.
    pub on: Vec<String>,
    /// For how long; 0: until it is ended.
    pub seconds: u64,
    /// Most sessions at once; 0 limits nothing.
    pub sessions: u32,
    /// Of its devices' time.
    pub time: TimeShare,
}

/// Server to client: the answer to a [`GiveLease`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LeaseGiven {
    /// The lease; or why there is none.
    pub outcome: Result<Lease, String>,
}

/// A lease that was given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lease {
    /// Names of its devices, at most [`limits::TENANT_DEVICES`].
    pub devices: Vec<String>,
    /// Its end, in seconds since 1970 (UTC); 0 where it has none.
    pub until_s: u64,
}

/// Client to server, of an admin: give a lease another end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RenewLease {
    /// Its name.
    pub name: String,
    /// Seconds from now; 0: until it is ended.
    pub seconds: u64,
}

/// Client to server, of an admin: end a lease and its sessions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EndLease {
    /// Its name.
    pub name: String,
}

/// Server to client: the answer to a [`RenewLease`], and to an [`EndLease`], then once the workers of its sessions are gone.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LeaseChanged {
    /// Whether it is done; or why not.
    pub outcome: Result<(), String>,
}

impl GiveLease {
    pub(super) fn write(&self, writer: &mut Writer) {
        writer.text(&self.name, limits::TENANT_BYTES);
        writer.raw(&self.nonce);
        let (is_whole, amount) = match self.part {
            LeasedPart::Whole(devices) => (true, u64::from(devices)),
            LeasedPart::Memory(bytes) => (false, bytes),
        };
        writer.bool(is_whole);
        writer.u64(amount);
        writer.texts(&self.on, limits::TENANT_DEVICES, limits::DEVICE_NAME_BYTES);
        writer.u64(self.seconds);
        writer.u32(self.sessions);
        self.time.write(writer);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, ControlError> {
        Ok(Self {
            name: reader.text("name of a lease", limits::TENANT_BYTES)?,
            nonce: reader.array::<NONCE_BYTES>("nonce of a lease")?,
            part: {
                let is_whole = reader.bool("whether devices are whole")?;
                let amount = reader.u64("amount of devices")?;
                let too_many = |_| ControlError::InvalidValue {
                    field: "amount of devices",
                    value: amount,
                };
                match is_whole {
                    true => LeasedPart::Whole(amount.try_into().map_err(too_many)?),
                    false => LeasedPart::Memory(amount),
                }
            },
            on: reader.texts(
                "devices of a lease",
                limits::TENANT_DEVICES,
                limits::DEVICE_NAME_BYTES,
            )?,
            seconds: reader.u64("seconds of a lease")?,
            sessions: reader.u32("sessions of a lease")?,
            time: TimeShare::read(reader)?,
        })
    }

    /// The token of the lease, where it is asked for with this one.
    pub fn token(&self, admin: &Token) -> Token {
        admin.of_lease(&self.name, &self.nonce)
    }
}

impl LeaseGiven {
    pub(super) fn write(&self, writer: &mut Writer) {
        writer.bool(self.outcome.is_ok());
        match &self.outcome {
            Ok(lease) => {
                writer.texts(
                    &lease.devices,
                    limits::TENANT_DEVICES,
                    limits::DEVICE_NAME_BYTES,
                );
                writer.u64(lease.until_s);
            }
            Err(reason) => writer.text(reason, limits::TEXT_BYTES),
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, ControlError> {
        let outcome = match reader.bool("whether there is a lease")? {
            true => Ok(Lease {
                devices: reader.texts(
                    "devices of a lease",
                    limits::TENANT_DEVICES,
                    limits::DEVICE_NAME_BYTES,
                )?,
                until_s: reader.u64("end of a lease")?,
            }),
            false => Err(reader.text("reason", limits::TEXT_BYTES)?),
        };
        Ok(Self { outcome })
    }
}

impl RenewLease {
    pub(super) fn write(&self, writer: &mut Writer) {
        writer.text(&self.name, limits::TENANT_BYTES);
        writer.u64(self.seconds);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, ControlError> {
        Ok(Self {
            name: reader.text("name of a lease", limits::TENANT_BYTES)?,
            seconds: reader.u64("seconds of a lease")?,
        })
    }
}
