//! The `preempted` byte, where Linux looks at it: in the record that it has given to the
//! hypervisor, which a probe in the kernel reads at the same address.

use anyhow::{Context as _, Result, ensure};

use crate::guest::images::Image;
use crate::guest::job::Job;
use crate::guest::report::Report;
use crate::suite::to_end;
use crate::test::linux::LIMIT;
use crate::test::{Rig, Tally};
use crate::vm::LinuxVm;

/// vCPUs, all on one CPU: while one looks, no other runs.
const VCPUS: u32 = 4;

/// Runs the check.
///
/// # Errors
/// The machine can't be made.
pub fn run(rig: &Rig<'_>, tally: &mut Tally) -> Result<()> {
    let job = Job::new(rig.cx, "preempted.sh", &[])?;
    let vms = [LinuxVm::new("debian", VCPUS, 256)];
    let machine = rig.linux(Image::Shell, Some(&job), &vms, 1, rig.slow(4))?;
    let printed = to_end(&machine, LIMIT);
    let judged = printed.and_then(|bytes| judge(&String::from_utf8_lossy(&bytes)));
    tally.check("preempted vCPUs, seen by Linux", judged);
    Ok(())
}

fn judge(text: &str) -> Result<()> {
    let report = Report::read(text);
    let looks = |name| -> Result<Vec<&str>> {
        let fact = report.fact(name);
        let values = fact.with_context(|| format!("no `{name}` in:\n{text}"))?;
        Ok(values.iter().map(String::as_str).collect())
    };
    // The bytes of CPUs 1 to 3. CPU 0 looks; then CPU 1, which runs itself; then CPU 0
    // again, while the others sleep.
    for (name, want) in [("busy", "1,1,1"), ("one", "0,1,1"), ("idle", "0,0,0")] {
        let looks = looks(name)?;
        let right = looks.iter().filter(|&&look| look == want).count();
        // What the shell itself does may wake another CPU, or end a turn of one.
        ensure!(
            looks.len() >= 20 && 10 * right >= 9 * looks.len(),
            "{name}: {right} of {} are {want}: {looks:?}",
            looks.len()
        );
    }
    Ok(())
}
