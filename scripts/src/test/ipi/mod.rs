//! Part `ipi`: IPIs and stolen time, as the crate guest-pv and as Linux see them.

mod abuse;
mod among;
mod edges;
mod example;
mod linux;
mod preempted;
mod steal;

use anyhow::Result;

use super::{Options, Part, Rig, Tally, names};
use crate::context::Context;
use crate::run::NEEDS;

/// The part `ipi`.
pub struct Ipi;

/// A step of this part.
type Step = fn(&Rig<'_>, &mut Tally) -> Result<()>;

/// The steps, by the names that `--only` knows.
const STEPS: [(&str, Step); 7] = [
    ("among", among::run),
    ("edges", edges::run),
    ("abuse", abuse::run),
    ("linux", linux::run),
    ("steal", steal::run),
    ("preempted", preempted::run),
    ("example", example::run),
];

impl Part for Ipi {
    fn name(&self) -> &'static str {
        "ipi"
    }

    fn about(&self) -> &'static str {
        "IPIs among vCPUs and stolen time, by the crate guest-pv and by Linux"
    }

    fn steps(&self) -> Vec<&'static str> {
        names(&STEPS)
    }

    fn needs(&self) -> Vec<&'static str> {
        NEEDS.to_vec()
    }

    fn run(&self, cx: &Context, options: &Options, tally: &mut Tally) -> Result<()> {
        let rig = Rig::new(cx, options)?;
        options.run_steps(&STEPS, |step| step(&rig, tally))
    }
}
