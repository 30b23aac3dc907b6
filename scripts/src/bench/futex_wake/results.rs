//! All columns and what the models make of them.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::doze::{self, Doze};
use super::figures::Figures;
use super::goals::{Goal, goals};
use super::model::{CLOCK_MHZ, MEASURED, Model, Reading};
use super::{SEEDS, plot, table, versions};
use crate::bench::Options;
use crate::bench::systems::{CPUS, System};
use crate::context::Context;

/// The cost models.
#[derive(Debug, Clone, Copy)]
pub struct Models {
    /// Of the exits of all CPUs: the one that the goals are of.
    pub all: Model,
    /// Of the exits of the CPU that wakes.
    pub waker: Model,
    /// Of the exits of all CPUs, fitted to one of KVM's guests alone, with the paravirtual
    /// IPI and without; none where those weren't measured.
    pub alone: Option<[Model; 2]>,
}

/// What was measured.
pub struct Results<'a> {
    /// The columns, the bare machine's first.
    pub figures: Vec<Figures>,
    /// Guests of our own, beside the columns.
    doze: Vec<Doze>,
    models: Models,
    options: &'a Options,
}

impl<'a> Results<'a> {
    /// Of `figures`, measured with `options`.
    ///
    /// # Errors
    /// The bare machine isn't among them.
    pub fn of(figures: Vec<Figures>, options: &'a Options) -> Result<Self> {
        Ok(Self {
            models: models(&figures, options)?,
            figures,
            doze: Vec::new(),
            options,
        })
    }

    /// With guests of our own beside the columns.
    #[must_use]
    pub fn beside(self, doze: Vec<Doze>) -> Self {
        Self { doze, ..self }
    }

    /// For people.
    pub fn table(&self) -> String {
        let doze = doze::text(&self.doze, self.figures.first(), self.models.all);
        table::text(&self.figures, self.models) + &doze
    }

    /// The goals of the columns that were measured.
    pub fn goals(&self) -> Vec<Goal> {
        goals(&self.figures, self.models.all)
    }

    /// As a picture.
    ///
    /// # Errors
    /// There is nothing to draw.
    pub fn svg(&self) -> Result<String> {
        plot::svg(&self.figures)
    }

    /// Every figure: nothing in it depends on when or where it was measured.
    pub fn json(&self, cx: &Context) -> Value {
        let (figures, options) = (&self.figures, self.options);
        let modelled = |reading: Reading, model: Model| {
            let ms = figures.iter().map(|of| model.ms(of.counts(reading)));
            json!({ "constants": model, "ms": ms.collect::<Vec<_>>() })
        };
        let Models { all, waker, alone } = self.models;
        let alone = alone.map(|models| models.map(|model| modelled(Reading::All, model)));
        json!({
            "cpus": CPUS,
            "seeds": options.seeds(SEEDS).collect::<Vec<_>>(),
            "repeats": options.repeats,
            "rounds": options.rounds,
            "versions": versions(cx),
            "columns": figures,
            "doze": self.doze,
            "models": {
                "exits_of_all_cpus": modelled(Reading::All, all),
                "exits_of_the_waker": modelled(Reading::Waker, waker),
                "exits_of_all_cpus_fitted_to_one_alone": alone,
            },
            "hardware_ms": MEASURED,
        })
    }
}

/// The cost models: calibrated where KVM was measured, but for what the command line
/// gives.
fn models(figures: &[Figures], options: &Options) -> Result<Models> {
    let find = |wanted: System| figures.iter().find(|of| of.system == wanted);
    let clock = options.clock_mhz.unwrap_or(CLOCK_MHZ);
    let bare = find(System::Bare).context("the bare machine wasn't measured")?;
    let kvm = find(System::KvmParavirtual).zip(find(System::Kvm));
    let kvm = |reading| kvm.map(|(with, without)| [with, without].map(|of| of.counts(reading)));
    let model = |reading| {
        let bare = bare.counts(reading);
        let calibrated = match kvm(reading) {
            Some(kvm) => Model::calibrated(bare, kvm, clock),
            None => Model::with_exits_as_before(bare, clock),
        };
        Model {
            ipc: options.ipc.unwrap_or(calibrated.ipc),
            exit_cycles: options.exit_cycles.unwrap_or(calibrated.exit_cycles),
            ..calibrated
        }
    };
    let alone = |kvm| Model::fitted_alone(bare.counts(Reading::All), kvm, clock);
    Ok(Models {
        all: model(Reading::All),
        waker: model(Reading::Waker),
        alone: kvm(Reading::All).map(alone),
    })
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::figures;
    use super::super::model;
    use super::*;

    #[test]
    fn the_command_line_overrides_the_calibration() {
        let all = System::ALL.map(|system| figures(system, &[0.02], 3.0));
        let options = Options {
            exit_cycles: Some(7.0),
            clock_mhz: Some(1000.0),
            ..Options::default()
        };
        let Models {
            all: found, alone, ..
        } = models(&all, &options).unwrap();
        assert_eq!((found.exit_cycles, found.clock_mhz), (7.0, 1000.0));
        assert!(alone.is_some() && models(&all[1..], &options).is_err());
    }

    #[test]
    fn without_kvm_an_exit_costs_what_it_did() {
        let bare = [figures(System::Bare, &[0.02], 0.0)];
        let found = models(&bare, &Options::default()).unwrap();
        assert_eq!(found.all.exit_cycles, model::EXIT_CYCLES);
        assert!(found.alone.is_none());
    }
}
