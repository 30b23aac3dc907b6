//! A program that needs `core`, `alloc`, and `memcpy` from `compiler_builtins`: it is
//! compiled and linked, never run, to see that the target's libraries work.

#![no_std]
#![no_main]
extern crate alloc;

struct NoMemory;

// SAFETY: it never returns memory.
unsafe impl core::alloc::GlobalAlloc for NoMemory {
    unsafe fn alloc(&self, _: core::alloc::Layout) -> *mut u8 {
        core::ptr::null_mut()
    }
    unsafe fn dealloc(&self, _: *mut u8, _: core::alloc::Layout) {}
}

#[global_allocator]
static MEMORY: NoMemory = NoMemory;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[unsafe(no_mangle)]
extern "C" fn _start(to: &mut [u8; 4096], from: &[u8; 4096]) {
    *to = *from;
    drop(alloc::vec::Vec::from([from[0]]));
}
