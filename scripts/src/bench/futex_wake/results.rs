//! All columns and what the models make of them.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::figures::Figures;
use super::goals::{Goal, goals};
use super::model::{CLOCK_MHZ, MEASURED, Model, Reading};
use super::{plot, table, versions};
use crate::bench::Options;
use crate::bench::systems::{CPUS, System};
use crate::context::Context;

/// What the model is read with.
const READINGS: [Reading; 2] = [Reading::All, Reading::Waker];

/// What was measured.
pub struct Results<'a> {
    /// The columns, the bare machine's first.
    pub figures: Vec<Figures>,
    models: [Model; 2],
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
            options,
        })
    }

    /// For people.
    pub fn table(&self) -> String {
        table::text(&self.figures, self.models)
    }

    /// The goals of the columns that were measured.
    pub fn goals(&self) -> Vec<Goal> {
        let [all, _] = self.models;
        goals(&self.figures, all)
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
        let [all, waker] = self.models;
        json!({
            "cpus": CPUS,
            "seeds": options.seeds().collect::<Vec<_>>(),
            "repeats": options.repeats,
            "rounds": options.rounds,
            "versions": versions(cx),
            "columns": figures,
            "models": {
                "exits_of_all_cpus": modelled(Reading::All, all),
                "exits_of_the_waker": modelled(Reading::Waker, waker),
            },
            "hardware_ms": MEASURED,
        })
    }
}

/// The cost models: calibrated where KVM was measured, but for what the command line
/// gives.
fn models(figures: &[Figures], options: &Options) -> Result<[Model; 2]> {
    let find = |wanted: System| figures.iter().find(|of| of.system == wanted);
    let clock = options.clock_mhz.unwrap_or(CLOCK_MHZ);
    let bare = find(System::Bare).context("the bare machine wasn't measured")?;
    let kvm = find(System::KvmParavirtual).zip(find(System::Kvm));
    Ok(READINGS.map(|reading| {
        let bare = bare.counts(reading);
        let calibrated = match kvm {
            Some((with, without)) => {
                let kvm = [with, without].map(|of| of.counts(reading));
                Model::calibrated(bare, kvm, clock)
            }
            None => Model::with_exits_as_before(bare, clock),
        };
        Model {
            ipc: options.ipc.unwrap_or(calibrated.ipc),
            exit_cycles: options.exit_cycles.unwrap_or(calibrated.exit_cycles),
            ..calibrated
        }
    }))
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
        let [found, _] = models(&all, &options).unwrap();
        assert_eq!((found.exit_cycles, found.clock_mhz), (7.0, 1000.0));
        assert!(models(&all[1..], &options).is_err());
    }

    #[test]
    fn without_kvm_an_exit_costs_what_it_did() {
        let bare = [figures(System::Bare, &[0.02], 0.0)];
        let [found, _] = models(&bare, &Options::default()).unwrap();
        assert_eq!(found.exit_cycles, model::EXIT_CYCLES);
    }
}
