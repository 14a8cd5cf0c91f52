use std::collections::BTreeMap;

use towline_wire::control::{Priority, TimeShare};
use towline_worker::Turn;

use super::*;

const MS: u64 = 1_000_000;
const DEVICE: &str = "device";

/// A session on the one device, with a clock of the test's.
struct Player {
    tenant: u64,
    time: TimeShare,
    /// Length of one of its kernels; 0 where it has none to launch.
    kernel: u64,
    told: Turn,
    number: u64,
    /// Of the kernel that runs.
    left: u64,
    asked: bool,
    done: u64,
    /// It never hands a turn over.
    hangs: bool,
}

/// The device runs what is launched, in equal parts where several have launched.
struct World {
    arbiter: Arbiter,
    players: BTreeMap<u64, Player>,
    now: u64,
    grants: Vec<(u64, u64)>,
}

fn share(percent: u8) -> TimeShare {
    TimeShare {
        percent: Some(percent),
        ..TimeShare::default()
    }
}

fn of(priority: Priority, percent: u8) -> TimeShare {
    TimeShare {
        priority,
        ..share(percent)
    }
}

impl World {
    fn new(times: &[TimeShare]) -> Self {
        let mut world = Self {
            arbiter: Arbiter::default(),
            players: BTreeMap::new(),
            now: 0,
            grants: Vec::new(),
        };
        for (session, time) in (1..).zip(times) {
            world.join(session, session, *time);
        }
        world
    }

    fn join(&mut self, session: u64, tenant: u64, time: TimeShare) {
        let player = Player {
            tenant,
            time,
            kernel: MS,
            told: Turn::Free,
            number: 0,
            left: 0,
            asked: false,
            done: 0,
            hangs: false,
        };
        self.players.insert(session, player);
        self.want(session);
    }

    fn want(&mut self, session: u64) {
        let player = &self.players[&session];
        let lease = (player.tenant, player.time);
        let name = DEVICE.to_owned();
        let outcome = self.arbiter.want(&name, lease, (session, 0), self.now);
        self.hear(outcome);
    }

    fn hear(&mut self, outcome: Outcome) {
        for word in outcome.words {
            let Some(player) = self.players.get_mut(&word.session) else {
                continue;
            };
            // As a worker hears it.
            let is_this = word.number == player.number;
            let has_it = matches!(player.told, Turn::Hold | Turn::Yield);
            match word.turn {
                Turn::Hold | Turn::Yield if !is_this => {
                    player.number = word.number;
                    player.asked = false;
                    self.grants.push((self.now, word.session));
                }
                Turn::Hold | Turn::Yield | Turn::Stop if !is_this || !has_it => continue,
                Turn::Free => player.asked = false,
                _ => {}
            }
            player.told = word.turn;
        }
    }

    /// Lets a tenth of a millisecond pass.
    fn step(&mut self) {
        const STEP: u64 = MS / 10;
        let sessions: Vec<u64> = self.players.keys().copied().collect();
        for session in &sessions {
            let player = self.players.get_mut(session).unwrap();
            let launches = matches!(
                player.told,
                Turn::Free | Turn::Hold | Turn::Yield | Turn::Ahead
            );
            if player.left == 0 && player.kernel > 0 && launches {
                player.left = player.kernel;
            }
            let asks = player.kernel > 0
                && matches!(player.told, Turn::Wait | Turn::Stop | Turn::Ahead)
                && !std::mem::replace(&mut player.asked, true);
            if asks {
                self.want(*session);
            }
        }
        let at_work = self.players.values().filter(|player| player.left > 0);
        let part = STEP / (at_work.count() as u64).max(1);
        for player in self.players.values_mut().filter(|player| player.left > 0) {
            player.left = player.left.saturating_sub(part);
            player.done += part;
        }
        self.now += STEP;
        for session in sessions {
            let player = self.players.get_mut(&session).unwrap();
            let is_idle = player.kernel == 0 && player.told == Turn::Yield;
            let is_over = player.told == Turn::Stop || is_idle;
            if player.left == 0 && is_over && !player.hangs {
                player.told = Turn::Wait;
                let number = player.number;
                let name = DEVICE.to_owned();
                let outcome = self.arbiter.over(&name, session, number, self.now);
                self.hear(outcome);
            }
        }
        while self.arbiter.due().is_some_and(|due| due <= self.now) {
            let outcome = self.arbiter.tick(self.now);
            self.hear(outcome);
        }
    }

    fn run(&mut self, ms: u64) {
        (0..ms * 10).for_each(|_| self.step());
    }

    /// Percentages of what was done in a window.
    fn shares(&mut self, ms: u64) -> Vec<f64> {
        let before: Vec<u64> = self.players.values().map(|player| player.done).collect();
        self.run(ms);
        let done = self.players.values().zip(before);
        let done: Vec<u64> = done.map(|(player, before)| player.done - before).collect();
        let all = done.iter().sum::<u64>().max(1) as f64;
        done.iter().map(|part| *part as f64 * 100.0 / all).collect()
    }

    fn kill(&mut self, session: u64) {
        self.players.remove(&session);
        let outcome = self.arbiter.leave(session, self.now);
        self.hear(outcome);
    }
}

fn is_near(shares: &[f64], expected: &[f64], points: f64) -> bool {
    let pairs = shares.iter().zip(expected);
    shares.len() == expected.len()
        && pairs
            .clone()
            .all(|(is, should)| (is - should).abs() <= points)
}

#[test]
fn busy_leases_get_their_shares() {
    let mut world = World::new(&[share(70), share(30)]);
    world.run(100);
    for window in 0..5 {
        let shares = world.shares(1000);
        assert!(is_near(&shares, &[70.0, 30.0], 3.0), "{window}: {shares:?}");
    }
}

#[test]
fn kernels_of_any_length_count_by_time() {
    let mut world = World::new(&[share(70), share(30)]);
    world.players.get_mut(&2).unwrap().kernel = 40 * MS;
    world.players.get_mut(&1).unwrap().kernel = MS / 10;
    let shares = world.shares(10_000);
    assert!(is_near(&shares, &[70.0, 30.0], 3.0), "{shares:?}");
}

#[test]
fn three_leases_get_their_shares() {
    let mut world = World::new(&[share(50), share(30), share(20)]);
    let shares = world.shares(10_000);
    assert!(is_near(&shares, &[50.0, 30.0, 20.0], 3.0), "{shares:?}");
}

#[test]
fn tenants_without_share_divide_the_rest() {
    let mut world = World::new(&[share(60), TimeShare::default(), TimeShare::default()]);
    let shares = world.shares(10_000);
    assert!(is_near(&shares, &[60.0, 20.0, 20.0], 3.0), "{shares:?}");
}

#[test]
fn sessions_of_one_lease_share_its_part() {
    let mut world = World::new(&[share(70), share(30)]);
    world.join(3, 1, share(70));
    let shares = world.shares(10_000);
    assert!((shares[1] - 30.0).abs() <= 3.0, "{shares:?}");
    assert!((shares[0] - shares[2]).abs() <= 3.0, "{shares:?}");
}

#[test]
fn session_that_paused_in_a_turn_goes_on() {
    let mut world = World::new(&[share(70), share(30)]);
    world.join(3, 1, share(70));
    for _ in 0..50 {
        world.players.get_mut(&1).unwrap().kernel = 0;
        world.run(3);
        world.players.get_mut(&1).unwrap().kernel = MS;
        world.run(4);
    }
    let shares = world.shares(1000);
    assert!(is_near(&shares, &[35.0, 30.0, 35.0], 3.0), "{shares:?}");
}

#[test]
fn time_of_idle_lease_goes_to_others() {
    let mut world = World::new(&[share(70), share(20), share(10)]);
    world.run(100);
    world.players.get_mut(&1).unwrap().kernel = 0;
    world.run(10);
    let shares = world.shares(10_000);
    assert!(is_near(&shares, &[0.0, 66.7, 33.3], 3.0), "{shares:?}");
}

#[test]
fn lone_session_is_not_paced() {
    let world = World::new(&[share(10)]);
    assert_eq!(world.players[&1].told, Turn::Free);
    let world = World::new(&[TimeShare::default(), TimeShare::default()]);
    assert!(
        world
            .players
            .values()
            .all(|player| player.told == Turn::Free)
    );
}

#[test]
fn killed_holder_frees_the_device() {
    let mut world = World::new(&[share(50), share(50), share(50)]);
    world.run(1000);
    let holds = |player: &Player| matches!(player.told, Turn::Hold | Turn::Yield);
    let holder = world.players.iter().find(|(_, player)| holds(player));
    let holder = *holder.expect("one has its turn").0;
    world.kill(holder);
    assert!(world.players.values().any(holds));
    let shares = world.shares(1000);
    assert!(is_near(&shares, &[50.0, 50.0], 3.0), "{shares:?}");
    let last = *world.players.keys().next().unwrap();
    world.kill(last);
    assert!(
        world
            .players
            .values()
            .all(|player| player.told == Turn::Free)
    );
}

#[test]
fn turn_that_is_never_handed_over_is_taken() {
    let mut world = World::new(&[share(50), share(50)]);
    let hanging = world.players.get_mut(&1).unwrap();
    (hanging.hangs, hanging.kernel) = (true, 1_000_000 * MS);
    world.run(1000);
    let before = world.players[&2].done;
    world.run(1000);
    // Half of the time, with half of the device.
    assert!(world.players[&2].done - before >= 200 * MS);
}

#[test]
fn late_joiner_gets_no_credit_for_idleness() {
    let mut world = World::new(&[share(50), share(50)]);
    world.players.get_mut(&2).unwrap().kernel = 0;
    world.run(5000);
    world.players.get_mut(&2).unwrap().kernel = MS;
    let shares = world.shares(200);
    assert!(is_near(&shares, &[50.0, 50.0], 6.0), "{shares:?}");
    world.join(3, 3, share(50));
    let shares = world.shares(300);
    assert!(is_near(&shares, &[33.3, 33.3, 33.3], 6.0), "{shares:?}");
}

#[test]
fn latency_critical_launch_waits_for_nobody() {
    let mut world = World::new(&[
        of(Priority::BestEffort, 90),
        of(Priority::LatencyCritical, 10),
    ]);
    world.players.get_mut(&1).unwrap().kernel = 20 * MS;
    world.players.get_mut(&2).unwrap().kernel = 0;
    world.run(1000);
    let mut longest = 0;
    for _ in 0..20 {
        world.run(97);
        let (begun, before) = (world.now, world.players[&2].done);
        world.players.get_mut(&2).unwrap().kernel = MS;
        while world.players[&2].done < before + MS {
            world.step();
        }
        world.players.get_mut(&2).unwrap().kernel = 0;
        longest = longest.max(world.now - begun);
    }
    // The other's kernel runs beside it, on half the device.
    assert!(longest <= 2 * MS + MS / 10, "{longest}");
}

#[test]
fn latency_critical_lease_keeps_to_its_share() {
    let mut world = World::new(&[share(80), of(Priority::LatencyCritical, 20)]);
    world.run(1000);
    let shares = world.shares(10_000);
    assert!(is_near(&shares, &[80.0, 20.0], 3.0), "{shares:?}");
}

#[test]
fn latency_critical_leases_share_by_their_shares() {
    let latency = |percent| of(Priority::LatencyCritical, percent);
    let mut world = World::new(&[latency(50), latency(30), latency(20)]);
    world.run(1000);
    let shares = world.shares(10_000);
    assert!(is_near(&shares, &[50.0, 30.0, 20.0], 3.0), "{shares:?}");
}

#[test]
fn best_effort_gives_way_and_never_starves() {
    let mut world = World::new(&[share(70), of(Priority::BestEffort, 30)]);
    world.run(1000);
    let shares = world.shares(10_000);
    assert!(is_near(&shares, &[70.0, 30.0], 3.0), "{shares:?}");
    let mine = world.grants.iter().filter(|(_, session)| *session == 2);
    let times: Vec<u64> = mine.map(|(time, _)| *time).collect();
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(gaps.max().expect("it had turns") <= 1000 * MS);
    // It has used little lately, and the other has been away: it stops at the next kernel all the same.
    world.players.get_mut(&1).unwrap().kernel = 0;
    world.run(1000);
    world.players.get_mut(&1).unwrap().kernel = MS;
    let begun = world.now;
    while world.players[&1].left == 0 {
        world.step();
    }
    assert!(world.now - begun <= 2 * MS, "{}", world.now - begun);
}

#[test]
fn changed_share_counts_at_once() {
    let mut world = World::new(&[share(50), share(50)]);
    world.run(1000);
    let times = [(1, share(80)), (2, share(20))];
    for (session, time) in times {
        world.players.get_mut(&session).unwrap().time = time;
    }
    let of = |tenant| {
        times
            .iter()
            .find(|(of, _)| *of == tenant)
            .map(|(_, time)| *time)
    };
    let outcome = world.arbiter.claim(&of, world.now);
    world.hear(outcome);
    let shares = world.shares(5000);
    assert!(is_near(&shares, &[80.0, 20.0], 3.0), "{shares:?}");
}

#[test]
fn stale_and_foreign_words_change_nothing() {
    let mut world = World::new(&[share(50), share(50)]);
    world.run(100);
    let name = DEVICE.to_owned();
    for number in [0, 1, u64::MAX] {
        for session in [1, 2, 77] {
            let outcome = world.arbiter.over(&name, session, number, world.now);
            let is_current = world
                .players
                .get(&session)
                .is_some_and(|player| player.number == number);
            assert!(outcome.words.is_empty() || is_current);
        }
    }
    let shares = world.shares(2000);
    assert!(is_near(&shares, &[50.0, 50.0], 3.0), "{shares:?}");
}
