//! A child of the process cannot use CUDA, and is told so.

use crate::machine::{Machine, last_error, pointer};
use orlop_torch::{orlop_torch_free, orlop_torch_malloc};

#[test]
fn a_child_is_refused_and_leaks() {
    let machine = Machine::new(7);
    let stream = machine.device.create_stream().unwrap();
    let block = machine.malloc(1 << 20, &stream);
    // SAFETY: the child calls functions that take no lock there, and ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: no stream is used.
        let refused = unsafe { orlop_torch_malloc(512, machine.number, std::ptr::null_mut()) }.is_null()
            && machine.segment(512, std::ptr::null_mut()) == 0
            && last_error().contains("forked");
        // SAFETY: nothing is freed in a child.
        unsafe { orlop_torch_free(pointer(block), 0, machine.number, std::ptr::null_mut()) };
        // SAFETY: it ends the child, without destructors of the parent's.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: the child is this process's.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
    assert_eq!(machine.stat("allocation.all.current"), 1);
    machine.free(block, &stream);
}
