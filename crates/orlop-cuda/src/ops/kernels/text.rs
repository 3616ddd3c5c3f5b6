//! The text of the module of kernels, from the templates beside this file.
//!
//! PTX is the driver's portable assembly: it compiles the text for the device when the module is loaded. The
//! version is that of CUDA 9, the target the oldest with every instruction used, so that any device that has
//! the rest of this crate's calls takes it. Floats of 16 and 8 bits are converted with integers: PTX has
//! instructions for them on newer devices only, and those do not keep the payload of a NaN.

use std::ffi::CStr;

const HEAD: &str = "//\n.version 6.0\n.target sm_50\n.address_size 64\n";

/// What all kernels begin with: the addresses of a thread's element.
const LOOPS: &str = include_str!("loops.ptx");
const CAST: &str = include_str!("cast.ptx");
const WIDEN: &str = include_str!("widen.ptx");
const NARROW: &str = include_str!("narrow.ptx");

/// The sizes of elements that are copied and filled, in bytes.
pub(super) const WIDTHS: [usize; 5] = [1, 2, 4, 8, 16];

/// The names of the entries, in the order of [`WIDTHS`].
pub(super) const COPIES: [&CStr; 5] =
    [c"orlop_copy_1", c"orlop_copy_2", c"orlop_copy_4", c"orlop_copy_8", c"orlop_copy_16"];
pub(super) const FILLS: [&CStr; 5] =
    [c"orlop_fill_1", c"orlop_fill_2", c"orlop_fill_4", c"orlop_fill_8", c"orlop_fill_16"];
pub(super) const CAST_NAME: &CStr = c"orlop_cast";

/// Returns the text of the module.
pub(in crate::ops) fn text() -> String {
    let mut text = String::from(HEAD);
    for ((width, copy), fill) in WIDTHS.into_iter().zip(COPIES).zip(FILLS) {
        let (register, kind) = if width == 16 { ("{%low, %high}", "v2.u64") } else { ("%low", kind(width)) };
        let declared = "\t.reg .b64 %low, %high;\n";
        let load = format!("\tld.global.{kind} {register}, [%from];\n");
        // The parameter is aligned to 8 bytes, not to 16.
        let value = match width {
            16 => "\tld.param.u64 %low, [NAME_args+40];\n\tld.param.u64 %high, [NAME_args+48];\n".to_owned(),
            _ => format!("\tld.param.{kind} {register}, [NAME_args+40];\n"),
        };
        let store = format!("\tst.global.{kind} [%to], {register};\n");
        entry(&mut text, copy, &[declared, &load, &store]);
        entry(&mut text, fill, &[declared, &value, &store]);
    }
    let mut cast = CAST.to_owned();
    for (from, to) in [("%f", "%d"), ("%g", "%e")] {
        let each = |template: &str, from, to| template.replace("FROM", from).replace("TO", to);
        cast = cast.replace(&format!("EACH(WIDEN, {from}, {to})\n"), &each(WIDEN, from, to));
        cast = cast.replace(&format!("EACH(NARROW, {to}, {from})\n"), &each(NARROW, to, from));
    }
    entry(&mut text, CAST_NAME, &[&cast]);
    text
}

/// Returns the type of an integer of `width` bytes.
fn kind(width: usize) -> &'static str {
    match width {
        1 => "u8",
        2 => "u16",
        4 => "u32",
        _ => "u64",
    }
}

fn entry(text: &mut String, name: &CStr, body: &[&str]) {
    let name = name.to_str().unwrap_or_default();
    for part in [&[LOOPS], body, &["END:\n\tret;\n}\n"]].concat() {
        text.push_str(&part.replace("NAME", name));
    }
}
