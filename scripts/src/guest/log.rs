//! Signs of trouble in what a Linux kernel prints.

/// Texts that a healthy kernel never prints, whatever the load: faults of its own, lost
/// or unhandled interrupts, CPUs or tasks that make no progress, wrong memory, faults of
/// programs that never fault on a machine that works. From the messages of Linux 7.2.
const TROUBLE: [&str; 25] = [
    "Oops",
    "BUG:",
    "WARNING:",
    "Call Trace",
    "Kernel panic",
    "Unable to handle kernel",
    "in kernel code",
    "nobody cared",
    "detected stall",
    "self-detected stall",
    "soft lockup",
    "hard LOCKUP",
    "blocked for more than",
    "Marking clocksource",
    "Bad page",
    "unhandled signal",
    "segfault",
    // KVM's complaints about a guest.
    "Unsupported csr",
    "unsupported gspr",
    "not supported Inst",
    "internal error",
    "ECode:",
    "Bad IOCSR length",
    "Bad MMIO length",
    "invalid target cpu",
];

/// The lines of `text` that show trouble.
pub fn trouble(text: &str) -> Vec<&str> {
    let shows_trouble = |line: &&str| TROUBLE.iter().any(|sign| line.contains(sign));
    text.lines().filter(shows_trouble).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_found_and_harmless_lines_are_not() {
        let text = "[    0.1] Booting\n[    1.0] irq 19: nobody cared (try booting)\n\
                    [    2.0] rcu: INFO: rcu_sched self-detected stall on CPU\n\
                    [    3.0] ima: No TPM chip found, activating TPM-bypass!\n";
        assert_eq!(trouble(text).len(), 2);
        assert!(
            trouble("[    0.0] This architecture does not have kernel memory protection.")
                .is_empty()
        );
    }
}
