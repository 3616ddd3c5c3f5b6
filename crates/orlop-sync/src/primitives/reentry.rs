//! The end of a process whose allocator was called from inside of itself.

/// Ends the process: code that runs inside a slot or a locked section entered it again, for example a backing
/// or a global allocator above this one.
#[cold]
#[inline(never)]
pub(crate) fn abort_reentered() -> ! {
    use std::io::Write;
    // As bytes and unbuffered: nothing may be allocated here. The process ends even if the message cannot be
    // written.
    let _ = std::io::stderr().write_all(b"orlop: an allocator was called from inside of itself\n");
    std::process::abort()
}
