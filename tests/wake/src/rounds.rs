//! The threads, and the rounds that wake them.

use core::cell::UnsafeCell;
use core::fmt::Write;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::linux::{self, Output};

const MOST_THREADS: usize = 64;
const MOST_ROUNDS: usize = 1024;
const STACK_BYTES: usize = 16 * 1024;

/// What everybody sleeps between two rounds, in ns: long enough for all to be asleep.
const PAUSE: u64 = 5_000_000;

/// What the threads sleep on. It is always 0: a wake is all they wait for, as perf's do.
static DOOR: AtomicU32 = AtomicU32::new(0);
/// How many have come through it in this round.
static AWAKE: AtomicU32 = AtomicU32::new(0);
/// How many there are.
static THREADS: AtomicU32 = AtomicU32::new(0);
/// How many rounds are over; the first thread sleeps on it.
static ROUNDS: AtomicU32 = AtomicU32::new(0);

#[repr(align(16))]
struct Stack(UnsafeCell<[u8; STACK_BYTES]>);

// SAFETY: a thread's own, and nobody refers to it.
unsafe impl Sync for Stack {}

static STACKS: [Stack; MOST_THREADS] =
    [const { Stack(UnsafeCell::new([0; STACK_BYTES])) }; MOST_THREADS];

/// Ticks of each round, of the wakes and of the whole.
static TIMES: [[AtomicU64; 2]; MOST_ROUNDS] =
    [const { [const { AtomicU64::new(0) }; 2] }; MOST_ROUNDS];

/// Does what the arguments say; the program's exit status.
pub fn run(arguments: [Option<&str>; 3]) -> usize {
    let number = |text: Option<&str>, most: usize| {
        let number: usize = text?.parse().ok()?;
        (1..=most).contains(&number).then_some(number)
    };
    let [threads, rounds, how] = arguments;
    let (threads, rounds) = (number(threads, MOST_THREADS), number(rounds, MOST_ROUNDS));
    let (Some(threads), Some(rounds), Some(how @ ("wake" | "rest"))) = (threads, rounds, how)
    else {
        let _ = writeln!(Output, "wake THREADS ROUNDS wake|rest");
        return 2;
    };
    THREADS.store(threads as u32, Ordering::Relaxed);
    linux::bind(0);
    for (index, stack) in STACKS.iter().enumerate().take(threads) {
        let top = stack.0.get() as usize + STACK_BYTES;
        // SAFETY: a stack is used once.
        unsafe { linux::spawn(sleeper, index, top) };
    }
    for times in TIMES.iter().take(rounds) {
        linux::sleep(PAUSE);
        linux::mark_round();
        let [timed, whole] = match how {
            "wake" => round(threads as u32),
            _ => [0; 2],
        };
        times[0].store(timed, Ordering::Relaxed);
        times[1].store(whole, Ordering::Relaxed);
    }
    linux::sleep(PAUSE);
    linux::mark_round();
    print(rounds);
    0
}

/// Wakes everybody; the ticks of that, and until the last one's answer.
fn round(threads: u32) -> [u64; 2] {
    let round = ROUNDS.load(Ordering::Acquire);
    let start = linux::ticks();
    let mut woken = 0;
    while woken < threads {
        woken += linux::wake_one(&DOOR);
    }
    let timed = linux::ticks() - start;
    linux::mark_woken();
    while ROUNDS.load(Ordering::Acquire) == round {
        linux::wait(&ROUNDS, round);
    }
    [timed, linux::ticks() - start]
}

/// A thread that sleeps until it is woken, and so on.
extern "C" fn sleeper(index: usize) -> ! {
    linux::bind(index);
    loop {
        linux::wait(&DOOR, 0);
        let awake = AWAKE.fetch_add(1, Ordering::AcqRel) + 1;
        if awake == THREADS.load(Ordering::Relaxed) {
            AWAKE.store(0, Ordering::Relaxed);
            ROUNDS.fetch_add(1, Ordering::Release);
            linux::wake_one(&ROUNDS);
        }
    }
}

fn print(rounds: usize) {
    let frequency = linux::frequency().max(1);
    let nanoseconds = |ticks: &AtomicU64| {
        let ticks = u128::from(ticks.load(Ordering::Relaxed));
        ticks * 1_000_000_000 / u128::from(frequency)
    };
    for (round, [timed, whole]) in TIMES.iter().enumerate().take(rounds) {
        let (timed, whole) = (nanoseconds(timed), nanoseconds(whole));
        // Where nobody reads there is nobody to tell.
        let _ = writeln!(Output, "wake {} {timed} {whole}", round + 1);
    }
}
