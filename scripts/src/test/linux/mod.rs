//! Part `linux`: Debian's kernel, unmodified, as the hypervisor's guest.
//!
//! A user is played at the console: logs in, types commands, uses the monitor, reboots,
//! switches off. All runs are deterministic but for the moment that a key is pressed.

mod one;
mod refusals;
mod session;
mod shapes;
mod soak;
mod two;

use std::time::Duration;

use anyhow::Result;

use super::{Options, Part, Tally};
use crate::context::Context;
use crate::hypervisor::Hypervisor;
use crate::run::NEEDS;

/// The part `linux`.
pub struct Linux;

/// How long an answer at the console may take, on a machine that is busy with other work.
const LIMIT: Duration = Duration::from_secs(240);

impl Part for Linux {
    fn name(&self) -> &'static str {
        "linux"
    }

    fn about(&self) -> &'static str {
        "Debian's Linux as the hypervisor's guest, at its console"
    }

    fn needs(&self) -> Vec<&'static str> {
        NEEDS.to_vec()
    }

    fn run(&self, cx: &Context, options: &Options, tally: &mut Tally) -> Result<()> {
        let hypervisor = Hypervisor::build(cx)?;
        one::run(cx, &hypervisor, options, tally)?;
        two::run(cx, &hypervisor, options, tally)?;
        shapes::run(cx, &hypervisor, options, tally)?;
        soak::run(cx, &hypervisor, options, tally)?;
        refusals::run(cx, &hypervisor, tally)
    }
}
