//! What our columns are to reach, and whether they do.

use std::fmt;

use super::figures::Figures;
use super::model::{Model, Reading};
use crate::bench::systems::System;

/// A figure and its limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    /// What is limited.
    pub what: String,
    /// What it is.
    pub value: f64,
    /// The most that it may be.
    pub limit: f64,
    /// Whether it was counted, and isn't the model's.
    pub counted: bool,
}

impl Goal {
    /// Whether it is reached.
    pub fn met(&self) -> bool {
        self.value <= self.limit
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what, value, limit, ..
        } = self;
        let word = if self.met() { "met" } else { "missed" };
        writeln!(f, "goal: {what}: {value:.2}, at most {limit:.2}: {word}")
    }
}

/// A column's limits: ÷ bare, instructions a wake, exits a wake, ÷ bare in the model.
const LIMITS: [(System, System, [f64; 4]); 2] = [
    (
        System::Paravirtual,
        System::KvmParavirtual,
        [1.10, 280.0, 3.0, 1.6],
    ),
    (System::Native, System::Kvm, [1.35, 480.0, 5.0, 3.0]),
];

/// Up to which price of an exit each of our columns is within its limit of the model.
pub fn prices(figures: &[Figures], model: Model) -> String {
    let counts = |system: System| {
        let found = figures.iter().find(|of| of.system == system)?;
        Some(found.counts(Reading::All))
    };
    let price = |(system, _, [.., limit]): (System, System, [f64; 4])| {
        let price = model.highest_price(counts(system)?, counts(System::Bare)?, limit);
        let label = system.label();
        Some(format!(
            "{label}: {limit:.2} × bare or less in the model where an exit costs at most {price:.0} cycles\n"
        ))
    };
    LIMITS.into_iter().filter_map(price).collect()
}

/// The goals of the columns that were measured.
pub fn goals(figures: &[Figures], model: Model) -> Vec<Goal> {
    let find = |system: System| figures.iter().find(|of| of.system == system);
    let Some(bare) = find(System::Bare) else {
        return Vec::new();
    };
    let mut goals = Vec::new();
    for (system, rival, [ratio, added, exits, modelled]) in LIMITS {
        let Some(ours) = find(system) else { continue };
        let mut goal = |what: &str, value: f64, limit: f64| {
            let what = format!("{}, {what}", system.label());
            goals.push(Goal {
                counted: !what.ends_with("model"),
                what,
                value,
                limit,
            });
        };
        goal("÷ bare", ours.summary.minimum / bare.summary.minimum, ratio);
        goal("instructions added a wake", ours.added(bare)[0], added);
        goal("exits a wake", ours.wake.all_exits(), exits);
        if let Some(rival) = find(rival) {
            goal(
                "exits of KVM's",
                ours.wake.all_exits(),
                rival.wake.all_exits(),
            );
        }
        let of = |figures: &Figures| model.ms(figures.counts(Reading::All));
        goal("÷ bare in the model", of(ours) / of(bare), modelled);
    }
    goals
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::figures;
    use super::*;

    const MODEL: Model = Model {
        ipc: 1.0,
        exit_cycles: 1000.0,
        clock_mhz: 1000.0,
    };

    #[test]
    fn each_limit_can_be_missed() {
        let bare = figures(System::Bare, &[0.02], 0.0);
        let missed = |ms: f64, exits: f64, kvm: f64| -> Vec<String> {
            let ours = figures(System::Paravirtual, &[ms], exits);
            let kvm = figures(System::KvmParavirtual, &[0.04], kvm);
            let goals = goals(&[bare.clone(), ours, kvm], MODEL);
            assert_eq!(goals.len(), 5);
            let missed = goals.into_iter().filter(|goal| !goal.met());
            missed.map(|goal| goal.what).collect()
        };
        assert!(missed(0.021, 0.5, 4.0).is_empty());
        assert_eq!(missed(0.023, 0.1, 4.0).len(), 1);
        assert_eq!(missed(0.026, 0.1, 4.0).len(), 2);
        assert_eq!(missed(0.021, 2.0, 1.0).len(), 2);
        assert_eq!(missed(0.021, 3.5, 4.0).len(), 2);
    }
}
