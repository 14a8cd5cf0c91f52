//! Shares of a device's time, and who goes first.

use super::codec::{ControlError, Reader, Writer};

/// Largest share, in percent.
pub const WHOLE_SHARE: u8 = 100;

/// The order of leases that wait for a device, as long as none has had more than its share.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Priority {
    /// After all others.
    BestEffort,
    /// In turn.
    #[default]
    Normal,
    /// Before all others, and without waiting for their turn to end.
    LatencyCritical,
}

impl Priority {
    /// All of them, in their order.
    pub const ALL: [Self; 3] = [Self::BestEffort, Self::Normal, Self::LatencyCritical];

    /// Its name in options, files and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::BestEffort => "best-effort",
            Self::Normal => "normal",
            Self::LatencyCritical => "latency-critical",
        }
    }

    /// The one of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|priority| priority.name() == name)
    }

    fn number(self) -> u8 {
        match self {
            Self::Normal => 0,
            Self::LatencyCritical => 1,
            Self::BestEffort => 2,
        }
    }
}

/// A lease's part of its devices' time.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TimeShare {
    /// Of 1 to 100; `None`: a part of what the shares of others leave.
    pub percent: Option<u8>,
    /// Its place among those that wait.
    pub priority: Priority,
}

impl TimeShare {
    pub(super) fn write(self, writer: &mut Writer) {
        writer.u8(self.percent.unwrap_or(0));
        writer.u8(self.priority.number());
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, ControlError> {
        let invalid = |field, value: u8| ControlError::InvalidValue {
            field,
            value: value.into(),
        };
        let percent = reader.u8("share of time")?;
        let number = reader.u8("priority")?;
        if percent > WHOLE_SHARE {
            return Err(invalid("share of time", percent));
        }
        let priority = Priority::ALL
            .into_iter()
            .find(|priority| priority.number() == number);
        Ok(Self {
            percent: Some(percent).filter(|percent| *percent > 0),
            priority: priority.ok_or_else(|| invalid("priority", number))?,
        })
    }
}
