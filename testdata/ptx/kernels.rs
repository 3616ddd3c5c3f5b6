#![feature(no_core, lang_items, abi_ptx, link_llvm_intrinsics, intrinsics, rustc_attrs, auto_traits, arbitrary_self_types)]
#![allow(internal_features)]
#![no_core]
#![no_std]

//! `y = a * x + y`, and the order of elements reversed, without the core library: the least of it that the
//! kernels need comes first.

#[lang = "pointee_sized"]
trait PointeeSized {}
#[lang = "meta_sized"]
trait MetaSized: PointeeSized {}
#[lang = "sized"]
trait Sized: MetaSized {}
#[lang = "legacy_receiver"]
trait LegacyReceiver {}
impl<T: PointeeSized> LegacyReceiver for &T {}
#[lang = "freeze"]
unsafe auto trait Freeze {}
impl<T: PointeeSized> Copy for &T {}
#[lang = "copy"]
trait Copy: Sized {}
impl Copy for f32 {}
impl Copy for u32 {}
impl Copy for usize {}
impl<T> Copy for *const T {}
impl<T> Copy for *mut T {}
#[lang = "add"]
trait Add<Rhs = Self> {
    type Output;
    fn add(self, other: Rhs) -> Self::Output;
}
#[lang = "mul"]
trait Mul<Rhs = Self> {
    type Output;
    fn mul(self, other: Rhs) -> Self::Output;
}
#[lang = "eq"]
trait PartialEq<Rhs: PointeeSized = Self>: PointeeSized {
    fn eq(&self, other: &Rhs) -> bool;
}
#[lang = "partial_ord"]
trait PartialOrd<Rhs: PointeeSized = Self>: PointeeSized {
    fn lt(&self, other: &Rhs) -> bool;
}
impl Add for f32 {
    type Output = f32;
    fn add(self, other: f32) -> f32 { self + other }
}
impl Mul for f32 {
    type Output = f32;
    fn mul(self, other: f32) -> f32 { self * other }
}
impl PartialOrd for u32 {
    fn lt(&self, other: &u32) -> bool { *self < *other }
}

#[rustc_intrinsic]
const unsafe fn arith_offset<T>(pointer: *const T, offset: isize) -> *const T;
#[rustc_intrinsic]
const fn wrapping_add<T: Copy>(a: T, b: T) -> T;
#[rustc_intrinsic]
const fn wrapping_sub<T: Copy>(a: T, b: T) -> T;
#[rustc_intrinsic]
const fn wrapping_mul<T: Copy>(a: T, b: T) -> T;

unsafe extern "C" {
    #[link_name = "llvm.nvvm.read.ptx.sreg.tid.x"]
    fn thread() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.ntid.x"]
    fn threads() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.ctaid.x"]
    fn block() -> u32;
}

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn saxpy(a: f32, x: *const f32, y: *mut f32, n: u32) {
    unsafe {
        let i = wrapping_add(wrapping_mul(block(), threads()), thread());
        if i < n {
            let (x, y) = (arith_offset(x, i as isize), arith_offset(y as *const f32, i as isize) as *mut f32);
            *y = a * *x + *y;
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn reverse(from: *const u32, to: *mut u32, n: u32) {
    unsafe {
        let i = wrapping_add(wrapping_mul(block(), threads()), thread());
        if i < n {
            let j = wrapping_sub(wrapping_sub(n, 1), i);
            *(arith_offset(to as *const u32, j as isize) as *mut u32) = *arith_offset(from, i as isize);
        }
    }
}
