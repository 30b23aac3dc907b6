//! What the counts might come to on hardware: a model, stated and calibrated.
//!
//! Under -icount a time is a number of instructions, and an exit costs next to nothing.
//! On silicon it costs hundreds of cycles. So: cycles = instructions / IPC + exits ×
//! cost. The IPC is chosen such that the bare machine takes the time that was measured
//! on a 3C5000, and the cost such that the two guests of Linux's KVM come as near as
//! they can (least squares of the relative errors) to theirs. What the model gives for
//! our columns is an estimate, never a time of hardware.
//!
//! Source of the three times: the cover letter of the patch series "LoongArch: KVM:
//! Add PV IPI support on LoongArch platform", `perf bench futex wake`, 16 of 16 threads.

use serde::Serialize;

/// Milliseconds on a 3C5000: the physical machine, a VM with the paravirtual IPI, one
/// without.
pub const MEASURED: [f64; 3] = [0.0176, 0.0481, 0.1140];

/// A 3C5000's clock, in cycles a millisecond.
const CYCLES_A_MS: f64 = 2.2e6;

/// What one wake of all threads takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Counts {
    /// Instructions of all CPUs.
    pub instructions: f64,
    /// Exits of all CPUs.
    pub exits: f64,
}

/// The model's constants.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Model {
    /// Instructions a cycle.
    pub ipc: f64,
    /// Cycles that an exit and the way back cost, besides their instructions.
    pub exit_cycles: f64,
}

impl Model {
    /// The model that fits the bare machine, and KVM's guests with and without the
    /// paravirtual IPI, to what was measured.
    pub fn calibrated(bare: Counts, kvm: [Counts; 2]) -> Self {
        let [bare_ms, kvm_ms @ ..] = MEASURED;
        let ipc = bare.instructions / (bare_ms * CYCLES_A_MS);
        // Least squares of (plain + cost × exits) / measured - 1.
        let (mut over, mut under) = (0.0, 0.0);
        for (counts, ms) in kvm.into_iter().zip(kvm_ms) {
            let measured = ms * CYCLES_A_MS;
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
        Self { ipc, exit_cycles }
    }

    /// Milliseconds that the model gives.
    pub fn ms(&self, counts: Counts) -> f64 {
        (counts.instructions / self.ipc + counts.exits * self.exit_cycles) / CYCLES_A_MS
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
        };
        let instructions = |ms: f64, exits: f64| {
            counts(
                (ms * CYCLES_A_MS - exits * real.exit_cycles) * real.ipc,
                exits,
            )
        };
        let [bare, with, without] = MEASURED;
        let found = Model::calibrated(
            instructions(bare, 0.0),
            [instructions(with, 12.0), instructions(without, 50.0)],
        );
        assert!(
            near(found.ipc, 0.6) && near(found.exit_cycles, 3000.0),
            "{found:?}"
        );
        assert!(near(found.ms(instructions(with, 12.0)), with));
    }

    #[test]
    fn dearer_exits_cost_only_those_who_exit() {
        let model = Model {
            ipc: 1.0,
            exit_cycles: 1000.0,
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
    fn without_exits_nothing_is_divided_by_zero() {
        let model = Model::calibrated(counts(1e4, 0.0), [counts(2e4, 0.0); 2]);
        assert_eq!(model.exit_cycles, 0.0);
    }
}
