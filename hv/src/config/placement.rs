//! Which of the machine's CPUs each VM runs on.
//!
//! A VM that names CPUs runs on those. One that names none runs on all that
//! no other VM claims for itself, beginning where the VM before it has
//! ended: small VMs lie side by side, rather than all on the first CPUs.

use super::VmConfig;
use alloc::vec::Vec;

/// For each VM the indices of the CPUs that its vCPUs run on, in turn, on a
/// machine of `cpus` CPUs; empty where all are claimed by others.
#[must_use]
pub fn place(vms: &[&VmConfig], cpus: usize) -> Vec<Vec<usize>> {
    let exclusive = vms.iter().filter(|vm| vm.exclusive);
    let claimed: Vec<usize> = exclusive.flat_map(|vm| vm.cpus.iter().copied()).collect();
    let free: Vec<usize> = (0..cpus).filter(|cpu| !claimed.contains(cpu)).collect();
    let mut next = 0usize;
    let mut place = |vm: &&VmConfig| {
        if !vm.cpus.is_empty() {
            return vm.cpus.clone();
        }
        let mut chosen = free.clone();
        if let Some(first) = next.checked_rem(chosen.len()) {
            chosen.rotate_left(first);
        }
        next += vm.ids.len();
        chosen
    };
    vms.iter().map(&mut place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(vcpus: u32, cpus: &[usize], exclusive: bool) -> VmConfig {
        VmConfig {
            ids: (0..vcpus).collect(),
            cpus: cpus.to_vec(),
            exclusive,
            ..VmConfig::default()
        }
    }

    #[test]
    fn claimed_cpus_are_left_alone() {
        let (owner, named) = (vm(2, &[1, 2], true), vm(1, &[3], false));
        let anywhere = vm(2, &[], false);
        let places = place(&[&anywhere, &owner, &named], 4);
        assert_eq!(places, [vec![0, 3], vec![1, 2], vec![3]]);
    }

    #[test]
    fn vms_that_name_no_cpus_lie_side_by_side() {
        let vms = [vm(2, &[], false), vm(3, &[], false), vm(1, &[], false)];
        let places = place(&vms.each_ref(), 4);
        let firsts: Vec<usize> = places.iter().map(|cpus| cpus[0]).collect();
        assert_eq!(firsts, [0, 2, 1]);
        assert!(places.iter().all(|cpus| cpus.len() == 4));
    }

    #[test]
    fn nothing_may_be_left() {
        let places = place(&[&vm(1, &[0], true), &vm(1, &[], false)], 1);
        assert_eq!(places, [vec![0], vec![]]);
    }
}
