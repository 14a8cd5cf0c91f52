//! Programs of which only the costs are known: who sends how much to whom, and how much is computed in between, after their
//! public specifications.
//!
//! Counts and sizes follow from the specifications. The speed of a core and what it draws from memory are assumptions, each with
//! its source ([`assumed`]); docs/study.md says what hangs on them.

pub mod assumed;
mod cg;
mod ft;
mod grid;
mod halo;
mod himeno;
mod is;
mod lu;
mod md;

pub use self::assumed::{Assumed, Quantity};
pub use self::halo::scrambled_halo;

use super::{MAX_RANKS, Op, Program};
use crate::{Error, Result};

/// One of the study's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// NPB CG, conjugate gradient, class C
    Cg,
    /// NPB FT, three-dimensional FFT, class C
    Ft,
    /// Himeno, size XL, as GCC compiled it
    Himeno,
    /// Himeno, size XL, as Intel's compiler compiled it
    HimenoIntel,
    /// NPB IS, integer sort, class C
    Is,
    /// NPB LU, SSOR, class C
    Lu,
    /// Molecular dynamics of 327,506 atoms
    Atpase,
    /// The same with the non-bonded forces on GPUs
    AtpaseGpu,
    /// Molecular dynamics of 1,066,628 atoms
    Stmv,
    /// The same with the non-bonded forces on GPUs
    StmvGpu,
}

impl Kernel {
    /// All of them, by name.
    pub const ALL: &[(&str, Self)] = &[
        ("cg", Self::Cg),
        ("ft", Self::Ft),
        ("is", Self::Is),
        ("lu", Self::Lu),
        ("himeno", Self::Himeno),
        ("himeno-intel", Self::HimenoIntel),
        ("atpase", Self::Atpase),
        ("atpase-gpu", Self::AtpaseGpu),
        ("stmv", Self::Stmv),
        ("stmv-gpu", Self::StmvGpu),
    ];

    /// The one of this name.
    pub fn named(name: &str) -> Result<Self> {
        let known = Self::ALL.iter().find(|(known, _)| *known == name);
        known.map(|(_, kernel)| *kernel).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|(name, _)| *name).collect();
            Error::Size(format!(
                "there is no declared program `{name}`; there are {}",
                names.join(", ")
            ))
        })
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        let known = Self::ALL.iter().find(|(_, kernel)| *kernel == self);
        known.map_or("", |(name, _)| name)
    }

    /// The program on so many ranks.
    pub fn program(self, ranks: usize) -> Result<Program> {
        self.program_assuming(ranks, Assumed::default())
    }

    /// The same with one of the assumed values varied.
    pub fn program_assuming(self, ranks: usize, assumed: Assumed) -> Result<Program> {
        let fail = |why: &str| {
            Err(Error::Size(format!(
                "{} does not run on {ranks} ranks: {why}",
                self.name()
            )))
        };
        if ranks == 0 || ranks > MAX_RANKS {
            return fail("too few or too many");
        }
        let npb = matches!(self, Self::Cg | Self::Ft | Self::Is | Self::Lu);
        if npb && (!ranks.is_power_of_two() || ranks > 512) {
            return fail("class C takes a power of two up to 512");
        }
        let n = ranks as u32;
        Ok(match self {
            Self::Cg => cg::program(n, assumed),
            Self::Ft => ft::program(n, assumed),
            Self::Is => is::program(n, assumed),
            Self::Lu => lu::program(n, assumed),
            Self::Himeno => himeno::program(n, self.name(), Quantity::HimenoSpeed, assumed),
            Self::HimenoIntel => {
                himeno::program(n, self.name(), Quantity::HimenoIntelSpeed, assumed)
            }
            Self::Atpase => md::program(n, self.name(), 327_506, false, assumed),
            Self::AtpaseGpu => md::program(n, self.name(), 327_506, true, assumed),
            Self::Stmv => md::program(n, self.name(), 1_066_628, false, assumed),
            Self::StmvGpu => md::program(n, self.name(), 1_066_628, true, assumed),
        })
    }
}

/// A program whose ranks' bodies are made one by one.
fn build(
    name: &str,
    ranks: u32,
    iterations: u64,
    speed: f64,
    demand: f64,
    body: impl Fn(u32, &mut Vec<Op>),
) -> Program {
    let body = (0..ranks).map(|rank| {
        let mut ops = Vec::new();
        body(rank, &mut ops);
        ops
    });
    Program {
        name: name.to_owned(),
        start: vec![Vec::new(); ranks as usize],
        body: body.collect(),
        iterations,
        memory_demand: demand,
        rated_speed: speed,
        communicators: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_fits_together() {
        for (name, kernel) in Kernel::ALL {
            for ranks in [1, 2, 16, 32] {
                let mut program = kernel.program(ranks).unwrap();
                let before = program.body.clone();
                program
                    .fit()
                    .unwrap_or_else(|error| panic!("{name} on {ranks}: {error}"));
                assert!(
                    program.body == before,
                    "{name} on {ranks}: both ends state the same sizes"
                );
            }
        }
    }

    #[test]
    fn work_does_not_depend_on_the_number_of_ranks() {
        for (name, kernel) in Kernel::ALL {
            let total = |ranks: usize| -> f64 {
                let program = kernel.program(ranks).unwrap();
                (0..ranks).map(|rank| program.ops(rank)).sum()
            };
            let (few, many) = (total(16), total(64));
            assert!((few / many - 1.0).abs() < 0.02, "{name}: {few} and {many}");
        }
    }

    #[test]
    fn counts_that_a_program_does_not_take_are_refused() {
        assert!(
            Kernel::Cg
                .program(24)
                .unwrap_err()
                .to_string()
                .contains("power of two")
        );
        assert!(Kernel::Ft.program(1024).is_err());
        assert!(Kernel::Himeno.program(0).is_err());
        assert!(Kernel::Himeno.program(384).is_ok());
        assert!(
            Kernel::named("bt")
                .unwrap_err()
                .to_string()
                .contains("himeno")
        );
    }
}
