//! NVRTC: programs that compile to an image without code, which the driver loads as any other. PyTorch
//! compiles operations of complex numbers with it.

use crate::abi::{Out, Text};
use crate::call::library_calls;
use std::ffi::CStr;

/// The version: of the release that comes with PyTorch 2.11.
const VERSION: (i32, i32) = (13, 0);

/// The image and the log of each program: no bytes and the end of a text.
const EMPTY: &[u8] = &[0];

/// The name of each kernel.
const KERNEL: &CStr = c"kernel";

library_calls! {
    fn nvrtcVersion(major: Out<i32>, minor: Out<i32>) |_machine| {
        major.set(VERSION.0)?;
        minor.set(VERSION.1)
    }

    fn nvrtcCreateProgram(
        program: Out<usize>,
        _source: Text,
        _name: Text,
        _headers: i32,
        _sources: usize,
        _names: usize,
    ) |machine| { program.set(machine.handle()) }

    fn nvrtcDestroyProgram(program: Out<usize>) |_machine| { program.set(0) }

    fn nvrtcCompileProgram(_program: usize, _count: i32, _options: usize) |_machine| { Ok(()) }

    fn nvrtcAddNameExpression(_program: usize, _expression: Text) |_machine| { Ok(()) }

    fn nvrtcGetLoweredName(_program: usize, _expression: Text, name: Out<usize>) |_machine| {
        name.set(KERNEL.as_ptr().expose_provenance())
    }

    fn nvrtcGetCUBINSize(_program: usize, bytes: Out<usize>) |_machine| { bytes.set(EMPTY.len()) }

    fn nvrtcGetCUBIN(_program: usize, image: Out<u8>) |_machine| {
        image.write(EMPTY);
        Ok(())
    }

    fn nvrtcGetPTXSize(_program: usize, bytes: Out<usize>) |_machine| { bytes.set(EMPTY.len()) }

    fn nvrtcGetPTX(_program: usize, text: Out<u8>) |_machine| {
        text.write(EMPTY);
        Ok(())
    }

    fn nvrtcGetProgramLogSize(_program: usize, bytes: Out<usize>) |_machine| { bytes.set(EMPTY.len()) }

    fn nvrtcGetProgramLog(_program: usize, log: Out<u8>) |_machine| {
        log.write(EMPTY);
        Ok(())
    }
}
