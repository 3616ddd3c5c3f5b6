//! [`StackStr`]: a short string on the stack, for `Display` implementations that honour width and alignment.
//!
//! Reports align columns (`{:>10}`), and [`core::fmt::Formatter::pad`] needs the finished text. A heap string
//! would allocate while an out-of-memory error is being printed.

use core::fmt::{self, Write};

/// Up to `N` bytes of text. Writing more is an error and never truncates.
pub(crate) struct StackStr<const N: usize> {
    buffer: [u8; N],
    len: usize,
}

impl<const N: usize> StackStr<N> {
    /// Renders `arguments` and pads the result as the formatter's flags specify.
    pub(crate) fn pad(f: &mut fmt::Formatter<'_>, arguments: fmt::Arguments<'_>) -> fmt::Result {
        let mut text = Self { buffer: [0; N], len: 0 };
        text.write_fmt(arguments)?;
        f.pad(core::str::from_utf8(&text.buffer[..text.len]).map_err(|_| fmt::Error)?)
    }
}

impl<const N: usize> Write for StackStr<N> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let end = self.len.checked_add(s.len()).ok_or(fmt::Error)?;
        self.buffer.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(s.as_bytes());
        self.len = end;
        Ok(())
    }
}
