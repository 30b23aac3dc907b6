//! What the counts might come to on hardware: a model, stated and calibrated.
//!
//! Under -icount a time is a number of instructions, and an exit costs next to nothing.
//! On silicon it costs hundreds of cycles. So: cycles = instructions / IPC + exits ×
//! cost. The IPC is chosen such that the bare machine takes the time that was measured
//! on a 3C5000, and the cost such that the two guests of Linux's KVM come as near as
//! they can (least squares of the relative errors) to theirs. What the model gives for
//! our columns is an estimate, never a time of hardware.
//!
//! Which exits: of all CPUs, until the woken threads sleep again, though on parallel
//! hardware some of them come after perf's time, or beside it; that puts a guest too
//! high. Those of the CPU that wakes alone are the other reading, which leaves out that
//! the woken ones hold it up. Both are calibrated, each by itself, and printed.
//!
//! Source of the three times: the cover letter of the patch series "LoongArch: KVM:
//! Add PV IPI support on LoongArch platform", `perf bench futex wake`, 16 of 16 threads.
//! Linux's KVM of that time left IOCSR accesses, and with them the IPIs of a guest without the
//! paravirtual ones, to QEMU in user space ("LoongArch KVM changes for v6.7" says so); today's
//! emulates them in the kernel. So the third time probably has work in it that no column of
//! ours has, and the price that fits both is too high. Fits to each alone are printed
//! beside it.

use serde::Serialize;

/// Milliseconds on a 3C5000: the physical machine, a VM with the paravirtual IPI, one
/// without.
pub const MEASURED: [f64; 3] = [0.0176, 0.0481, 0.1140];

/// A 3C5000's clock.
pub const CLOCK_MHZ: f64 = 2200.0;

/// What one of perf's repeats takes, the wake of all threads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Counts {
    /// Instructions of all CPUs.
    pub instructions: f64,
    /// Exits of all CPUs.
    pub exits: f64,
}

/// Which exits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Of all CPUs.
    All,
    /// Of the CPU that wakes.
    Waker,
}

/// The model's constants.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Model {
    /// Instructions a cycle.
    pub ipc: f64,
    /// Cycles that an exit and the way back cost, besides their instructions.
    pub exit_cycles: f64,
    /// Cycles a microsecond.
    pub clock_mhz: f64,
}

/// What [`Model::exit_cycles`] came to when all columns were measured, with the exits of
/// all CPUs, for when KVM's aren't.
pub const EXIT_CYCLES: f64 = 1346.0;

impl Model {
    /// The model that fits the bare machine, with exits at [`EXIT_CYCLES`].
    pub fn with_exits_as_before(bare: Counts, clock_mhz: f64) -> Self {
        Self {
            exit_cycles: EXIT_CYCLES,
            ..Self::calibrated(bare, [bare; 2], clock_mhz)
        }
    }

    /// The model that fits the bare machine, and KVM's guests with and without the
    /// paravirtual IPI, to what was measured.
    pub fn calibrated(bare: Counts, kvm: [Counts; 2], clock_mhz: f64) -> Self {
        let [_, with, without] = MEASURED;
        Self::fitted(bare, &[(kvm[0], with), (kvm[1], without)], clock_mhz)
    }

    /// The model that fits the bare machine, and each of `kvm` to the milliseconds beside
    /// it.
    pub fn fitted(bare: Counts, kvm: &[(Counts, f64)], clock_mhz: f64) -> Self {
        let cycles = |ms: f64| ms * clock_mhz * 1e3;
        let ipc = bare.instructions / cycles(MEASURED[0]);
        // Least squares of (plain + cost × exits) / measured - 1.
        let (mut over, mut under) = (0.0, 0.0);
        for &(counts, ms) in kvm {
            let measured = cycles(ms);
            let (plain, slope) = (
                counts.instructions / ipc / measured,
                counts.exits / measured,
            );
            over += (1.0 - plain) * slope;
            under += slope * slope;
        }
        let exit_cycles = if under > 0.0 {
            (over / under).max(0.0)
        } else {
            0.0
        };
        Self {
            ipc,
            exit_cycles,
            clock_mhz,
        }
    }

    /// The models that fit the bare machine and one of KVM's guests alone.
    pub fn fitted_alone(bare: Counts, kvm: [Counts; 2], clock_mhz: f64) -> [Self; 2] {
        let [_, with, without] = MEASURED;
        [(kvm[0], with), (kvm[1], without)].map(|one| Self::fitted(bare, &[one], clock_mhz))
    }

    /// Milliseconds that the model gives.
    pub fn ms(&self, counts: Counts) -> f64 {
        let cycles = counts.instructions / self.ipc + counts.exits * self.exit_cycles;
        cycles / (self.clock_mhz * 1e3)
    }

    /// The most cycles that an exit may cost where `counts` shall take at most `ratio`
    /// times as long as `bare`.
    pub fn highest_price(&self, counts: Counts, bare: Counts, ratio: f64) -> f64 {
        let spare = ratio * bare.instructions - counts.instructions;
        spare / self.ipc / counts.exits
    }

    /// The model with exits `factor` times as dear.
    #[must_use]
    pub fn with_exits_at(self, factor: f64) -> Self {
        let exit_cycles = self.exit_cycles * factor;
        Self {
            exit_cycles,
            ..self
        }
    }

    /// The model with `factor` times as many instructions a cycle.
    #[must_use]
    pub fn with_ipc_at(self, factor: f64) -> Self {
        let ipc = self.ipc * factor;
        Self { ipc, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(instructions: f64, exits: f64) -> Counts {
        Counts {
            instructions,
            exits,
        }
    }

    fn near(a: f64, b: f64) -> bool {
        (a / b - 1.0).abs() < 1e-9
    }

    #[test]
    fn a_model_that_can_fit_fits() {
        let real = Model {
            ipc: 0.6,
            exit_cycles: 3000.0,
            clock_mhz: CLOCK_MHZ,
        };
        let instructions = |ms: f64, exits: f64| {
            counts(
                (ms * CLOCK_MHZ * 1e3 - exits * real.exit_cycles) * real.ipc,
                exits,
            )
        };
        let [bare, with, without] = MEASURED;
        let found = Model::calibrated(
            instructions(bare, 0.0),
            [instructions(with, 12.0), instructions(without, 50.0)],
            CLOCK_MHZ,
        );
        assert!(
            near(found.ipc, 0.6) && near(found.exit_cycles, 3000.0),
            "{found:?}"
        );
        assert!(near(found.ms(instructions(with, 12.0)), with));
    }

    #[test]
    fn a_fit_to_one_meets_it() {
        let (bare, kvm) = (counts(1e4, 0.0), [counts(1.5e4, 20.0), counts(1.6e4, 50.0)]);
        let alone = Model::fitted_alone(bare, kvm, CLOCK_MHZ);
        for ((model, counts), ms) in alone.iter().zip(kvm).zip(&MEASURED[1..]) {
            assert!(near(model.ms(counts), *ms));
        }
        let both = Model::calibrated(bare, kvm, CLOCK_MHZ).exit_cycles;
        let least = alone[0].exit_cycles.min(alone[1].exit_cycles);
        let most = alone[0].exit_cycles.max(alone[1].exit_cycles);
        assert!(least < both && both < most);
    }

    #[test]
    fn dearer_exits_cost_only_those_who_exit() {
        let model = Model {
            ipc: 1.0,
            exit_cycles: 1000.0,
            clock_mhz: CLOCK_MHZ,
        };
        let dear = model.with_exits_at(2.0);
        assert!(near(
            model.ms(counts(2.2e6, 0.0)),
            dear.ms(counts(2.2e6, 0.0))
        ));
        let more = dear.ms(counts(0.0, 11.0)) - model.ms(counts(0.0, 11.0));
        assert!(near(more, 11.0 * 1000.0 / 2.2e6));
    }

    #[test]
    fn at_its_highest_price_an_exit_takes_what_is_left() {
        let (bare, ours) = (counts(1000.0, 0.0), counts(1100.0, 10.0));
        let model = Model {
            ipc: 0.5,
            exit_cycles: 1.0,
            clock_mhz: 1000.0,
        };
        let exit_cycles = model.highest_price(ours, bare, 1.6);
        let dear = Model {
            exit_cycles,
            ..model
        };
        assert!(near(exit_cycles, 100.0));
        assert!(near(dear.ms(ours) / dear.ms(bare), 1.6));
    }

    #[test]
    fn without_exits_nothing_is_divided_by_zero() {
        let model = Model::calibrated(counts(1e4, 0.0), [counts(2e4, 0.0); 2], CLOCK_MHZ);
        assert_eq!(model.exit_cycles, 0.0);
    }
}
