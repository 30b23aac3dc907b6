//! The screen, on an output that takes what the test lets it.

use super::super::held::KEPT_BYTES;
use super::*;

/// What has been taken, and how much more may be.
#[derive(Default)]
struct Slow {
    taken: Vec<u8>,
    room: usize,
    told: bool,
}

impl Output for Slow {
    fn offer(&mut self, byte: u8) -> bool {
        let takes = self.room > 0;
        if takes {
            self.room -= 1;
            self.taken.push(byte);
        }
        takes
    }

    fn tell_of_room(&mut self, wanted: bool) {
        self.told = wanted;
    }
}

/// A screen whose output takes `room` bytes, and two VMs.
fn slow(room: usize) -> (Screen<Slow>, Held, Held) {
    let mut screen = Screen::new(Slow {
        room,
        ..Slow::default()
    });
    screen.set_interrupts(true);
    (screen, Held::new(0, "a"), Held::new(1, "b"))
}

fn screen() -> (Screen<Slow>, Held, Held) {
    slow(usize::MAX)
}

fn print(screen: &mut Screen<Slow>, held: &mut Held, text: &str) {
    text.bytes().for_each(|byte| screen.guest(held, byte));
}

fn shown(screen: &mut Screen<Slow>) -> String {
    String::from_utf8(std::mem::take(&mut screen.out().taken)).unwrap()
}

#[test]
fn lines_are_printed_whole_with_their_name() {
    let (mut screen, mut a, mut b) = screen();
    print(&mut screen, &mut a, "one\r\ntw");
    print(&mut screen, &mut b, "other\n\n");
    print(&mut screen, &mut a, "o\n");
    assert_eq!(
        shown(&mut screen),
        "a| one\r\nb| other\r\nb| \r\na| two\r\n"
    );
    print(&mut screen, &mut a, &"x".repeat(LINE_BYTES + 1));
    let long = format!("a| {}\r\n", "x".repeat(LINE_BYTES));
    assert_eq!(shown(&mut screen), long);
    screen.finish(&mut a);
    screen.finish(&mut b);
    assert_eq!(shown(&mut screen), "a| x\r\n");
}

#[test]
fn a_vm_that_is_shown_needs_no_end_of_line() {
    let (mut screen, mut a, mut b) = screen();
    print(&mut screen, &mut a, "logi");
    screen.show_vm(&mut a);
    print(&mut screen, &mut a, "n: ");
    print(&mut screen, &mut b, "unseen\n");
    assert_eq!(shown(&mut screen), "login: ");
    screen.show_vm(&mut b);
    assert_eq!(shown(&mut screen), "unseen\n");
    screen.show_vm(&mut b);
    assert_eq!(shown(&mut screen), "");
}

#[test]
fn the_hypervisor_begins_on_a_line_of_its_own() {
    let (mut screen, mut a, _) = screen();
    screen.show_vm(&mut a);
    print(&mut screen, &mut a, "$ ");
    screen.line(format_args!("[hv] x"));
    screen.line(format_args!("[hv] y"));
    assert_eq!(shown(&mut screen), "$ \r\n[hv] x\r\n[hv] y\r\n");
}

#[test]
fn what_nobody_looks_at_is_lost_in_the_end() {
    let (mut screen, mut a, _) = screen();
    screen.show(Focus::Monitor);
    print(&mut screen, &mut a, &"y".repeat(3 * KEPT_BYTES));
    assert!(screen.is_ready(&a));
    assert_eq!(shown(&mut screen), "");
    screen.show_vm(&mut a);
    let text = shown(&mut screen);
    assert!(text.starts_with("(part of what a printed is lost)\r\n"));
    assert!(text.ends_with(&"y".repeat(KEPT_BYTES)));
}

#[test]
fn what_was_kept_is_shown_as_lines_too() {
    let (mut screen, mut a, _) = screen();
    screen.show(Focus::Monitor);
    print(&mut screen, &mut a, "one\r\ntwo\r\n");
    screen.show(Focus::Lines);
    screen.pump(&mut a);
    assert_eq!(shown(&mut screen), "a| one\r\na| two\r\n");
}

/// As the output's interrupt has it.
fn interrupt(screen: &mut Screen<Slow>, room: usize, vms: &mut [&mut Held]) {
    screen.out().room = room;
    screen.drain();
    vms.iter_mut().for_each(|vm| screen.pump(vm));
}

#[test]
fn a_vm_waits_for_a_slow_output_and_loses_nothing() {
    let (mut screen, mut a, _) = slow(0);
    screen.show_vm(&mut a);
    let text: Vec<u8> = (0..20_000u32).map(|n| b'a' + (n % 26) as u8).collect();
    let mut all = text.chunks(16);
    while screen.is_ready(&a) {
        // As many as a FIFO has, before the guest looks again.
        let chunk = all.next().unwrap();
        chunk.iter().for_each(|&byte| screen.guest(&mut a, byte));
    }
    assert!(screen.out().told);
    while !screen.queue.is_empty() || !a.is_empty() {
        interrupt(&mut screen, 16, &mut [&mut a]);
        if screen.is_ready(&a) {
            let chunk = all.next().unwrap_or_default();
            chunk.iter().for_each(|&byte| screen.guest(&mut a, byte));
        }
    }
    assert_eq!(screen.out().taken, text);
    assert!(!screen.out().told);
}

#[test]
fn one_that_floods_leaves_room_for_others() {
    let (mut screen, mut a, mut b) = slow(0);
    // It doesn't wait when it is told to.
    let flood = "flood\n".repeat(2000);
    print(&mut screen, &mut a, &flood);
    assert!(!screen.is_ready(&a) && screen.is_ready(&b));
    print(&mut screen, &mut b, "hello\n");
    screen.line(format_args!("[hv] here"));
    assert!(screen.queue.len() < VM_BYTES + LINE_BYTES);
    // The hypervisor's is out with what had been queued before.
    let queued = screen.queue.len();
    interrupt(&mut screen, queued, &mut [&mut b, &mut a]);
    assert!(shown(&mut screen).ends_with("\n[hv] here\r\n"));
    interrupt(&mut screen, usize::MAX, &mut [&mut b, &mut a]);
    assert!(shown(&mut screen).starts_with("b| hello\r\n"));
}

#[test]
fn before_interrupts_are_taken_output_is_waited_for() {
    let (mut screen, mut a, _) = screen();
    screen.set_interrupts(false);
    print(&mut screen, &mut a, "x\n");
    assert!(screen.queue.is_empty() && !screen.out().told);
    assert_eq!(shown(&mut screen), "a| x\r\n");
}

#[test]
fn what_the_user_types_stays_below_what_is_printed() {
    let (mut screen, _, _) = screen();
    screen.show(Focus::Monitor);
    screen.ask("> ");
    b"lisx".iter().for_each(|&byte| screen.typed(byte));
    screen.erased();
    assert_eq!(shown(&mut screen), "\r\n> lisx\x08 \x08");
    screen.line(format_args!("[hv] x"));
    assert_eq!(shown(&mut screen), "\r     \r[hv] x\r\n> lis");
    screen.typed(b't');
    screen.asked();
    screen.line(format_args!("answer"));
    assert_eq!(shown(&mut screen), "t\r\nanswer\r\n");
    screen.line(format_args!("[hv] y"));
    assert_eq!(shown(&mut screen), "[hv] y\r\n");
}

#[test]
fn a_line_that_was_left_half_typed_is_there_again() {
    let (mut screen, mut a, _) = screen();
    screen.show(Focus::Monitor);
    screen.ask("> ");
    screen.typed(b'l');
    shown(&mut screen);
    screen.line(format_args!("[a]"));
    assert_eq!(shown(&mut screen), "\r   \r[a]\r\n> l");
    screen.show_vm(&mut a);
    screen.line(format_args!("[hv] x"));
    assert_eq!(shown(&mut screen), "\r\n[hv] x\r\n");
    screen.show(Focus::Monitor);
    screen.ask("> ");
    assert_eq!(shown(&mut screen), "> l");
    // Nobody types more than there is room for.
    (0..2 * TYPED_BYTES).for_each(|_| screen.typed(b'x'));
    assert_eq!(screen.row.len(), screen.row.capacity());
}
