//! What the controllers of an NVMe drive share, and who has how much of it.
//!
//! A virtual function of a drive is born out of service, without queues and interrupts (Virtualization Enhancements, NVMe 1.3, section
//! 8.5). The physical function's controller takes from a pool of them, and gives from it to the others: what it keeps for itself counts
//! from its next reset on. How large the pool is only the drive tells, which is why a plan has shares in it and no numbers. `nvme` of
//! nvme-cli asks and gives.

use serde_json::Value;

use crate::act::State;
use crate::address::PciAddress;
use crate::step::{Action, DriveShare};
use crate::world::{World, WorldError};

/// What there is of one kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Pool {
    /// All that can be shared out.
    total: u64,
    /// What the physical function's controller has of it.
    primary: u64,
    /// What that controller has besides, for good.
    private: u64,
    /// The most that another controller can have; 0: no such limit.
    most: u64,
    /// In what steps; 0: any number.
    granularity: u64,
}

impl Pool {
    /// What each of `among` functions gets. `needed` is what a controller cannot do without.
    fn share(self, among: u64, needed: u64) -> Option<u64> {
        // A controller that keeps nothing cannot be asked to take anything back.
        let kept = needed.saturating_sub(self.private);
        let each = self.total.checked_sub(kept)?.checked_div(among)?;
        let each = match self.most {
            0 => each,
            most => each.min(most),
        };
        let each = each - each.checked_rem(self.granularity).unwrap_or(0);
        (each >= needed).then_some(each)
    }
}

/// An action's parts.
struct Share<'a> {
    device: PciAddress,
    controller: &'a str,
    function: Option<u32>,
    share: DriveShare,
    among: u32,
}

impl<'a> Share<'a> {
    fn of(action: &'a Action) -> Option<Self> {
        match action {
            Action::DriveShare {
                device,
                controller,
                function,
                share,
                among,
            } => Some(Self {
                device: *device,
                controller,
                function: *function,
                share: *share,
                among: *among,
            }),
            _ => None,
        }
    }

    fn node(&self) -> String {
        format!("/dev/{}", self.controller)
    }

    fn error(&self, what: impl Into<String>) -> WorldError {
        WorldError::Drive {
            controller: self.controller.to_owned(),
            what: what.into(),
        }
    }

    fn ask(&self, world: &mut dyn World, command: &str) -> Result<Value, WorldError> {
        let node = self.node();
        let words = ["nvme", command, node.as_str(), "-o", "json"].map(str::to_owned);
        let text = world.ask(&words)?;
        serde_json::from_str(&text)
            .map_err(|_| self.error(format!("is not told of: `nvme {command}` prints no JSON")))
    }

    /// The pool, and the number of the physical function's controller.
    fn pool(&self, world: &mut dyn World) -> Result<(Pool, u64), WorldError> {
        let told = self.ask(world, "primary-ctrl-caps")?;
        let number = |name: &str| {
            told.get(name).and_then(Value::as_u64).ok_or_else(|| {
                self.error(format!(
                    "is not told of: `nvme primary-ctrl-caps` prints no {name}"
                ))
            })
        };
        // `vq...` are its fields on queues, `vi...` those on interrupts.
        let kind = match self.share {
            DriveShare::Interrupts => "vi",
            DriveShare::Queues | DriveShare::Online => "vq",
        };
        let field = |name: &str| number(&format!("{kind}{name}"));
        let pool = Pool {
            total: field("frt")?,
            primary: field("rfap")?,
            private: field("prt")?,
            most: field("frsm")?,
            granularity: field("gran")?,
        };
        Ok((pool, number("cntlid")?))
    }

    /// What a controller cannot do without: the admin queues and a pair for data; an interrupt.
    fn needed(&self) -> u64 {
        match self.share {
            DriveShare::Queues => 2,
            DriveShare::Interrupts => 1,
            DriveShare::Online => 0,
        }
    }

    /// What a function is to have; `None` where the drive has nothing to share out, and functions have what they need.
    fn each(&self, pool: Pool) -> Result<Option<u64>, WorldError> {
        if pool.total == 0 {
            return Ok(None);
        }
        let among = u64::from(self.among.max(1));
        pool.share(among, self.needed()).map(Some).ok_or_else(|| {
            self.error(format!(
                "has {} {} to share, too few for {among} functions and itself",
                pool.total,
                self.share.name()
            ))
        })
    }

    /// What `nvme list-secondary` tells of the function's controller: its number, what it has, whether it is in service.
    fn secondary(&self, world: &mut dyn World) -> Result<(u64, u64, bool), WorldError> {
        let told = self.ask(world, "list-secondary")?;
        // Virtual functions count from 1 there.
        let wanted = u64::from(self.function.unwrap_or(0)) + 1;
        let controllers = told.get("secondary-controllers").and_then(Value::as_array);
        let field = |controller: &Value, name: &str| controller.get(name).and_then(Value::as_u64);
        let found = controllers.into_iter().flatten().find_map(|controller| {
            if field(controller, "virtual-function-number") != Some(wanted) {
                return None;
            }
            let has = match self.share {
                DriveShare::Interrupts => field(controller, "num-virtual-interrupts")?,
                DriveShare::Queues | DriveShare::Online => field(controller, "num-virtual-queues")?,
            };
            let id = field(controller, "secondary-controller-identifier")?;
            let is_online = field(controller, "secondary-controller-state")? & 1 == 1;
            Some((id, has, is_online))
        });
        found.ok_or_else(|| {
            self.error(format!(
                "has no controller for virtual function {}",
                wanted - 1
            ))
        })
    }

    fn manage(
        &self,
        world: &mut dyn World,
        controller: u64,
        action: u8,
        number: u64,
    ) -> Result<(), WorldError> {
        let resource = self.share as u8 & 1;
        let words = [
            "nvme".to_owned(),
            "virt-mgmt".to_owned(),
            self.node(),
            format!("--cntlid={controller}"),
            format!("--rt={resource}"),
            format!("--act={action}"),
            format!("--nr={number}"),
        ];
        world.run(&words)
    }

    /// Gives the physical function's controller what it keeps. It has it after a reset, of which programs see a pause.
    fn keep(&self, world: &mut dyn World, number: u64) -> Result<(), WorldError> {
        let (_, controller) = self.pool(world)?;
        self.manage(world, controller, Self::ASSIGN_PRIMARY, number)?;
        world.run(&["nvme".to_owned(), "reset".to_owned(), self.node()])
    }

    // What Virtualization Management does, of its field ACT.
    const ASSIGN_PRIMARY: u8 = 1;
    const OFFLINE: u8 = 7;
    const ASSIGN_SECONDARY: u8 = 8;
    const ONLINE: u8 = 9;
}

pub(crate) fn state(
    world: &mut dyn World,
    action: &Action,
    found: Option<&str>,
) -> Result<State, WorldError> {
    let Some(share) = Share::of(action) else {
        return Ok(State::Gone);
    };
    // After a restart another drive may have the name.
    let folder = format!(
        "/sys/bus/pci/devices/{}/nvme/{}",
        share.device, share.controller
    );
    if !world.root().exists(&folder) {
        return Ok(State::Gone);
    }
    let found = found.and_then(|found| found.parse::<u64>().ok());
    let by = |is_done: bool, present: u64| match (found, is_done) {
        // Before it is done, what is there is what was there; a drive may have been so from the start.
        (Some(found), false) if found == present => State::Before,
        (None, false) => State::Before,
        (_, true) => State::After,
        (Some(_), false) => State::Other(format!("{present} {}", share.share.name())),
    };
    Ok(match (share.function, share.share) {
        (_, DriveShare::Online) => {
            let (.., is_online) = share.secondary(world)?;
            by(is_online, u64::from(is_online))
        }
        (None, _) => {
            let (pool, _) = share.pool(world)?;
            let each = share.each(pool)?;
            by(
                each.is_none_or(|each| pool.primary <= left(pool, each, share.among)),
                pool.primary,
            )
        }
        (Some(_), _) => {
            let (pool, _) = share.pool(world)?;
            let each = share.each(pool)?;
            let (_, has, _) = share.secondary(world)?;
            by(each.is_none_or(|each| each == has), has)
        }
    })
}

/// What the physical function's controller may keep.
fn left(pool: Pool, each: u64, among: u32) -> u64 {
    pool.total.saturating_sub(each.saturating_mul(among.into()))
}

/// What there is now, for undoing.
pub(crate) fn present(
    world: &mut dyn World,
    action: &Action,
) -> Result<Option<String>, WorldError> {
    let Some(share) = Share::of(action) else {
        return Ok(None);
    };
    let number = match (share.function, share.share) {
        (_, DriveShare::Online) => u64::from(share.secondary(world)?.2),
        (None, _) => share.pool(world)?.0.primary,
        (Some(_), _) => share.secondary(world)?.1,
    };
    Ok(Some(number.to_string()))
}

pub(crate) fn forward(world: &mut dyn World, action: &Action) -> Result<(), WorldError> {
    let Some(share) = Share::of(action) else {
        return Ok(());
    };
    if share.share == DriveShare::Online {
        let (id, ..) = share.secondary(world)?;
        return share.manage(world, id, Share::ONLINE, 0);
    }
    let (pool, _) = share.pool(world)?;
    let Some(each) = share.each(pool)? else {
        return Ok(());
    };
    match share.function {
        None => share.keep(world, left(pool, each, share.among)),
        Some(_) => {
            let (id, ..) = share.secondary(world)?;
            share.manage(world, id, Share::ASSIGN_SECONDARY, each)
        }
    }
}

pub(crate) fn backward(
    world: &mut dyn World,
    action: &Action,
    found: Option<&str>,
) -> Result<(), WorldError> {
    let Some(share) = Share::of(action) else {
        return Ok(());
    };
    if share.share == DriveShare::Online {
        let (id, ..) = share.secondary(world)?;
        return share.manage(world, id, Share::OFFLINE, 0);
    }
    let Some(found) = found.and_then(|found| found.parse().ok()) else {
        return Ok(());
    };
    match share.function {
        None => share.keep(world, found),
        Some(_) => {
            let (id, ..) = share.secondary(world)?;
            share.manage(world, id, Share::ASSIGN_SECONDARY, found)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pool;

    const QEMU: Pool = Pool {
        total: 8,
        primary: 8,
        private: 57,
        most: 2,
        granularity: 1,
    };

    #[test]
    fn functions_share_evenly_up_to_what_one_can_have() {
        assert_eq!(QEMU.share(4, 2), Some(2));
        assert_eq!(QEMU.share(1, 2), Some(2));
        let roomy = Pool { most: 0, ..QEMU };
        assert_eq!(roomy.share(3, 2), Some(2));
        assert_eq!(roomy.share(1, 2), Some(8));
    }

    #[test]
    fn the_physical_function_keeps_what_it_cannot_do_without() {
        let shared = Pool {
            private: 0,
            most: 0,
            ..QEMU
        };
        assert_eq!(shared.share(1, 2), Some(6));
        assert_eq!(shared.share(3, 2), Some(2));
        assert_eq!(shared.share(4, 2), None);
    }

    #[test]
    fn shares_come_in_the_steps_of_the_drive() {
        let coarse = Pool {
            most: 0,
            granularity: 4,
            ..QEMU
        };
        assert_eq!(coarse.share(1, 2), Some(8));
        assert_eq!(coarse.share(2, 2), Some(4));
        assert_eq!(coarse.share(3, 2), None);
        assert_eq!(Pool { total: 0, ..coarse }.share(1, 2), None);
    }
}
