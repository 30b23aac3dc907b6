//! The interrupt controllers under threads: devices, drivers and vCPUs at
//! once, and no line is forgotten.

#![cfg(not(loom))]

use hv::dev::iocsr::eiointc::{Eiointc, Targets};
use hv::dev::irq_line::{EiointcVector, Hwi, PchPicInput};
use hv::dev::lane::Lane;
use hv::dev::pch_pic::{PchPic, Vectors};
use hv::isa::insn::Width;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread;

/// vCPUs, threads that change something, what each of them does in an
/// episode, and episodes, after each of which everything is looked at.
const CPUS: usize = 3;
const DISTURBERS: usize = 3;
const STEPS: usize = 4;
const EPISODES: usize = 3_000;

/// A VM's controllers, and what was posted to each vCPU.
#[derive(Default)]
struct Board {
    eiointc: Eiointc,
    pch_pic: PchPic,
    posted: [AtomicU8; CPUS],
    /// The lines as each vCPU last saw them.
    seen: [AtomicU8; CPUS],
    /// Threads that still change something.
    busy: AtomicUsize,
    /// vCPUs that missed a change of a line, over all episodes.
    wrong: AtomicUsize,
}

impl Targets for Board {
    fn changed(&self, cpu: u32, hwi: Hwi) {
        if let Some(posted) = self.posted.get(cpu as usize) {
            posted.fetch_or(1 << hwi.number(), Ordering::SeqCst);
        }
    }
}

impl Vectors for Board {
    fn set(&self, vector: EiointcVector, high: bool) {
        self.eiointc.set(vector, high, self);
    }
}

impl Board {
    fn iocsr(&self, cpu: u32, offset: u32, width: Width, value: u64) {
        let lane = Lane::new(offset.into(), width);
        self.eiointc.write(cpu, offset, lane, value, self);
    }

    /// Takes what was posted, as a vCPU does before it enters the guest.
    fn look(&self, cpu: usize) {
        let posted = self.posted[cpu].swap(0, Ordering::SeqCst);
        if posted != 0 {
            let levels = self.eiointc.levels(cpu as u32);
            let seen = self.seen[cpu].load(Ordering::Relaxed);
            let now = seen & !posted | levels & posted;
            self.seen[cpu].store(now, Ordering::Relaxed);
        }
    }

    /// A vCPU: it looks, and if asked acknowledges what it has, once.
    fn run(&self, cpu: usize, mut acknowledge: bool) {
        while self.busy.load(Ordering::SeqCst) > 0 {
            self.look(cpu);
            if acknowledge {
                let isr = self.eiointc.read(cpu as u32, 0x1800, Width::Double);
                self.iocsr(cpu as u32, 0x1800, Width::Double, isr);
                acknowledge = false;
            }
            thread::yield_now();
        }
        self.look(cpu);
    }

    /// A device or a driver: whatever its random numbers say.
    fn disturb(&self, random: &mut u64) {
        for _ in 0..STEPS {
            *random ^= *random << 13;
            *random ^= *random >> 7;
            *random ^= *random << 17;
            let (what, value) = (*random % 5, *random >> 8);
            let vector = value as u8 % 64;
            match what {
                0 => self.iocsr(0, 0x1c00 + u32::from(vector), Width::Byte, value >> 8 & 3),
                1 => self.iocsr(0, 0x1600, Width::Double, value | value << 32),
                2 => {
                    let input = PchPicInput::new(vector).expect("below 64");
                    self.pch_pic.set(input, value >> 8 & 1 == 1, self);
                }
                3 => self.pch_pic.write(0x20, Width::Double, value, self),
                _ => self.set(EiointcVector::new(vector), true),
            }
        }
        self.busy.fetch_sub(1, Ordering::SeqCst);
    }

    /// Nothing changes any more: each vCPU knows its lines. No panic here,
    /// which would leave the other threads waiting.
    fn check(&self) {
        for (cpu, seen) in self.seen.iter().enumerate() {
            if seen.load(Ordering::SeqCst) != self.eiointc.levels(cpu as u32) {
                self.wrong.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

#[test]
fn nothing_is_forgotten_among_threads() {
    let board = Board::default();
    // Routes are ids, and every group of vectors has a line.
    board.iocsr(0, 0x4000_0004, Width::Word, 8);
    board.iocsr(0, 0x14c0, Width::Double, 0x0808_0404_0202_0201);
    for input in 0..64 {
        board
            .pch_pic
            .write(0x200 + input, Width::Byte, input, &board);
    }
    let barrier = Barrier::new(CPUS + DISTURBERS);
    let episodes = |act: &mut dyn FnMut(usize)| {
        for episode in 0..EPISODES {
            if barrier.wait().is_leader() {
                board.check();
                board.busy.store(DISTURBERS, Ordering::SeqCst);
            }
            barrier.wait();
            act(episode);
        }
    };
    thread::scope(|scope| {
        let (board, episodes) = (&board, &episodes);
        for cpu in 0..CPUS {
            scope.spawn(move || episodes(&mut |episode| board.run(cpu, episode % 2 == 0)));
        }
        for seed in 1..=DISTURBERS as u64 {
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            scope.spawn(move || episodes(&mut |_| board.disturb(&mut random)));
        }
    });
    board.check();
    assert_eq!(board.wrong.load(Ordering::SeqCst), 0);
}
