//! Part `linux`: Debian's kernel, unmodified, as the hypervisor's guest.
//!
//! A user is played at the console: logs in, types commands, uses the monitor, reboots,
//! switches off. All runs are deterministic but for the moment that a key is pressed.

mod boot;
mod cycles;
mod flood;
mod idle;
mod load;
mod one;
mod refusals;
pub mod session;
mod shapes;
mod two;

pub use session::Session;

use std::time::Duration;

use anyhow::Result;

use super::{Options, Part, Rig, Tally, names};
use crate::context::Context;
use crate::run::NEEDS;

/// The part `linux`.
pub struct Linux;

/// How long an answer at the console may take, on a machine that is busy with other work.
pub const LIMIT: Duration = Duration::from_secs(240);

/// A step of this part.
type Step = fn(&Rig<'_>, &mut Tally) -> Result<()>;

/// The steps, by the names that `--only` knows.
const STEPS: [(&str, Step); 10] = [
    ("one", one::run),
    ("boot", boot::run),
    ("two", two::run),
    ("flood", flood::run),
    ("shapes", shapes::run),
    ("stop-start", cycles::stop_and_start),
    ("reboots", cycles::reboots),
    ("pace", cycles::pace),
    ("load", load::run),
    ("refusals", refusals::run),
];

impl Part for Linux {
    fn name(&self) -> &'static str {
        "linux"
    }

    fn about(&self) -> &'static str {
        "Debian's Linux as the hypervisor's guest, at its console"
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
