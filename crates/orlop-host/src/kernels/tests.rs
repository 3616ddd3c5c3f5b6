//! Compares the kernels with loops over every element.

use orlop_core::{Complex, DType, Element, Layout, Scalar, Shape, Strides, cast as cast_one, dispatch};
use proptest::prelude::*;

use super::{cast, copy, fill};

const CASES: u32 = if cfg!(miri) { 5 } else { 512 };

/// The largest number of elements of a view.
const MAX_NUMEL: usize = if cfg!(miri) { 96 } else { 1 << 13 };

/// A layout and the number of elements of its storage.
#[derive(Clone, Debug)]
struct StoredView {
    layout: Layout,
    storage: usize,
}

/// The memory placement of a dimension: its rank among the strides, the step of its elements, the gap after
/// them, and whether it is expanded.
type DimPlacement = (u8, usize, usize, bool);

/// Returns a view of these sizes. No two elements overlap, except along expanded dimensions.
fn view(sizes: &[usize], placements: &[DimPlacement], offset: usize) -> StoredView {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&dim| placements[dim].0);
    let mut strides = vec![0; sizes.len()];
    let mut next = 1;
    for dim in order {
        let (_, step, gap, expanded) = placements[dim];
        if !expanded {
            strides[dim] = next * step;
            next = strides[dim] * sizes[dim].max(1) + gap;
        }
    }
    let layout = Layout::new(Shape::new(sizes).unwrap(), Strides::new(&strides).unwrap(), offset).unwrap();
    let storage = layout.element_range().end + 3;
    StoredView { layout, storage }
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![1 => Just(0_usize), 30 => 1_usize..5, 30 => 2_usize..24, 12 => 20_usize..140];
    prop::collection::vec(size, 0..=6).prop_map(|mut sizes| {
        let mut numel = 1;
        for size in &mut sizes {
            if numel * *size > MAX_NUMEL {
                *size = 1;
            }
            numel *= (*size).max(1);
        }
        sizes
    })
}

fn placements(rank: usize, expands: bool) -> impl Strategy<Value = Vec<DimPlacement>> {
    let step = prop_oneof![6 => Just(1_usize), 1 => 2_usize..6];
    let gap = prop_oneof![4 => Just(0_usize), 1 => 1_usize..9];
    // Rows in order, or in any order.
    let place = prop_oneof![Just(true), Just(false)];
    (prop::collection::vec((any::<u8>(), step, gap, prop::bool::weighted(0.15)), rank), place).prop_map(
        move |(mut placements, in_order)| {
            let rank = placements.len();
            for (dim, placement) in placements.iter_mut().enumerate() {
                if in_order {
                    placement.0 = u8::try_from(rank - dim).unwrap();
                }
                placement.3 &= expands;
            }
            placements
        },
    )
}

/// Generates two views of one shape: one to write to and one to read from.
fn views() -> impl Strategy<Value = (StoredView, StoredView)> {
    sizes()
        .prop_flat_map(|sizes| {
            let rank = sizes.len();
            (Just(sizes), placements(rank, false), placements(rank, true), 0_usize..4, 0_usize..4)
        })
        .prop_map(|(sizes, dst, src, dst_offset, src_offset)| {
            (view(&sizes, &dst, dst_offset), view(&sizes, &src, src_offset))
        })
}

/// Returns the positions of a layout's elements, in the order of their indices.
fn positions(layout: &Layout) -> Vec<usize> {
    let mut positions = vec![layout.offset()];
    for (&size, &stride) in layout.shape().iter().zip(layout.strides().iter()) {
        positions =
            positions.iter().flat_map(|&at| (0..size).map(move |index| at + index * stride)).collect();
    }
    positions
}

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 167 + index / 251 + seed).to_le_bytes()[0]).collect()
}

/// A byte buffer that starts at an odd address.
struct Misaligned(Vec<u8>);

impl Misaligned {
    fn new(bytes: &[u8]) -> Self {
        let mut all = vec![0; bytes.len() + 32];
        let start = Self::start(&all);
        all[start..start + bytes.len()].copy_from_slice(bytes);
        Self(all)
    }

    fn start(all: &[u8]) -> usize {
        1 + all.as_ptr().align_offset(16)
    }

    fn as_mut_ptr(&mut self) -> *mut u8 {
        let start = Self::start(&self.0);
        self.0[start..].as_mut_ptr()
    }

    fn bytes(&self, len: usize) -> &[u8] {
        &self.0[Self::start(&self.0)..][..len]
    }
}

fn check_copy(dst: &StoredView, src: &StoredView, itemsize: usize) {
    let source = pattern(src.storage * itemsize, 1);
    let before = pattern(dst.storage * itemsize, 7);
    let mut expected = before.clone();
    for (to, from) in positions(&dst.layout).into_iter().zip(positions(&src.layout)) {
        expected[to * itemsize..][..itemsize].copy_from_slice(&source[from * itemsize..][..itemsize]);
    }
    let mut actual = before.clone();
    // SAFETY: the storages have the spans of the views, and are distinct; `dst` has no overlap.
    unsafe { copy(actual.as_mut_ptr(), &dst.layout, source.as_ptr(), &src.layout, itemsize) };
    assert!(actual == expected, "aligned");
    let (mut actual, mut source) = (Misaligned::new(&before), Misaligned::new(&source));
    // SAFETY: as above.
    unsafe { copy(actual.as_mut_ptr(), &dst.layout, source.as_mut_ptr(), &src.layout, itemsize) };
    assert!(actual.bytes(expected.len()) == expected, "misaligned");
}

/// Returns the expected result of a cast, computed element by element.
fn reference_cast(before: &[u8], dst: (&Layout, DType), source: &[u8], src: (&Layout, DType)) -> Vec<u8> {
    let mut expected = before.to_vec();
    let (dst_size, src_size) = (dst.1.size(), src.1.size());
    for (to, from) in positions(dst.0).into_iter().zip(positions(src.0)) {
        let (to, from) = (to * dst_size, from * src_size);
        cast_bytes(&mut expected[to..to + dst_size], dst.1, &source[from..from + src_size], src.1);
    }
    expected
}

fn cast_bytes(to: &mut [u8], dst: DType, from: &[u8], src: DType) {
    if dst == src && src != DType::Bool {
        // Not even the payload of a NaN changes.
        to.copy_from_slice(from);
    } else if src == DType::Bool {
        let value = from[0] != 0;
        dispatch!(dst, D => to.copy_from_slice(bytemuck::bytes_of(&cast_one::<bool, D>(value))));
    } else {
        dispatch!(src, S => {
            let value: S = bytemuck::checked::pod_read_unaligned(from);
            dispatch!(dst, D => to.copy_from_slice(bytemuck::bytes_of(&cast_one::<S, D>(value))));
        });
    }
}

/// Returns `true` if both have the same bits. Under Miri, which randomises the payload of a NaN, compares
/// values.
fn same(dtype: DType, a: &[u8], b: &[u8]) -> bool {
    fn same_as<T: Element>(a: &[u8], b: &[u8]) -> bool {
        let read = |bytes| match T::DTYPE {
            DType::Bool => Scalar::Bool(bytes == [1]),
            _ => Scalar::from(bytemuck::checked::pod_read_unaligned::<T>(bytes)),
        };
        let same_real = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan();
        match (read(a), read(b)) {
            (Scalar::Float(a), Scalar::Float(b)) => same_real(a, b),
            (Scalar::Complex(a), Scalar::Complex(b)) => same_real(a.re, b.re) && same_real(a.im, b.im),
            (a, b) => a == b,
        }
    }
    a == b || cfg!(miri) && dispatch!(dtype, T => same_as::<T>(a, b))
}

fn check_cast(dst: &StoredView, dst_dtype: DType, src: &StoredView, src_dtype: DType, source: &[u8]) {
    let before = pattern(dst.storage * dst_dtype.size(), 7);
    let expected = reference_cast(&before, (&dst.layout, dst_dtype), source, (&src.layout, src_dtype));
    let mut actual = before;
    // SAFETY: the storages have the spans of the views, and are distinct; `dst` has no overlap.
    unsafe { cast(actual.as_mut_ptr(), &dst.layout, dst_dtype, source.as_ptr(), &src.layout, src_dtype) };
    let size = dst_dtype.size();
    for (at, (actual, expected)) in actual.chunks(size).zip(expected.chunks(size)).enumerate() {
        assert!(
            same(dst_dtype, actual, expected),
            "{src_dtype} to {dst_dtype}, storage place {at}: {actual:02x?}, not {expected:02x?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn copies((dst, src) in views(), log_size in 0_u32..5) {
        check_copy(&dst, &src, 1 << log_size);
    }

    #[test]
    fn casts(
        (dst, src) in views(),
        dst_dtype in prop::sample::select(&DType::ALL[..]),
        src_dtype in prop::sample::select(&DType::ALL[..]),
    ) {
        let source = pattern(src.storage * src_dtype.size(), 1);
        check_cast(&dst, dst_dtype, &src, src_dtype, &source);
    }

    #[test]
    fn fills((dst, _) in views(), dtype in prop::sample::select(&DType::ALL[..]), value in -3_i64..300) {
        let size = dtype.size();
        let before = pattern(dst.storage * size, 7);
        let (mut filled, mut zeroed) = (before.clone(), before.clone());
        // SAFETY: the storage has the span of the view; there is no overlap.
        unsafe { fill(filled.as_mut_ptr(), &dst.layout, dtype, Scalar::Int(value)) };
        // SAFETY: as above.
        unsafe { fill(zeroed.as_mut_ptr(), &dst.layout, dtype, Scalar::Int(0)) };
        let (mut expected_filled, mut expected_zeroed) = (before.clone(), before);
        for at in positions(&dst.layout) {
            cast_bytes(&mut expected_filled[at * size..][..size], dtype, &value.to_ne_bytes(), DType::I64);
            expected_zeroed[at * size..][..size].fill(0);
        }
        prop_assert_eq!(filled, expected_filled);
        prop_assert_eq!(zeroed, expected_zeroed);
    }
}

/// Returns the bytes of elements that are edge cases of casts, and of some that are not.
fn edge_elements(dtype: DType) -> Vec<u8> {
    #[rustfmt::skip]
    let floats = [
        0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.5, 127.5, -128.5, 255.9, 256.0, 300.7, -1.0, -300.0, 448.0,
        464.0, 464.1, 57344.0, 61440.0, 65504.0, 65520.0, 65535.9, 6e-8, 3e-8, 2.98e-8, 1e-40, 1e-46,
        1e38, 1e39, -1e300, 2147483647.0, 2147483648.0, -2147483648.0, -2147483649.0, 4294967295.0,
        4294967296.0, 4294967552.0, 9.2e18, 9223372036854775808.0, 1.8e19, 18446744073709551616.0,
        -9223372036854775808.0, -9.3e18, f64::INFINITY, f64::NEG_INFINITY, f64::NAN,
    ];
    let ints = [
        0,
        1,
        -1,
        127,
        128,
        255,
        256,
        -128,
        32767,
        65535,
        65536,
        16777217,
        (1 << 60) + (1 << 36) + 1,
        i64::MAX,
        i64::MIN,
    ];
    let patterns = [0x00, 0xff, 0x80, 0x7f, 0x7e, 0x7c, 0xfc, 0x01, 0x02];
    let mut bytes = Vec::new();
    dispatch!(dtype, T => {
        let mut add = |element: T| bytes.extend_from_slice(bytemuck::bytes_of(&element));
        floats.iter().for_each(|&value| add(cast_one::<f64, T>(value)));
        ints.iter().for_each(|&value| add(cast_one::<i64, T>(value)));
        floats.iter().for_each(|&value| {
            let complex = Complex::new(1.0, value);
            bytes.extend_from_slice(bytemuck::bytes_of(&cast_one::<Complex<f64>, T>(complex)));
        });
    });
    for pattern in patterns {
        bytes.extend(core::iter::repeat_n(pattern, dtype.size()));
    }
    bytes.extend(pattern(dtype.size() * 37, 3));
    bytes
}

#[test]
fn every_pair_of_dtypes() {
    for src_dtype in DType::ALL {
        let mut source = edge_elements(src_dtype);
        let count = source.len() / src_dtype.size();
        // Enough elements for every step below to reach all edge cases.
        source = source.iter().copied().cycle().take(source.len() * 3).collect();
        let steps = [(1, 1), (1, 2), (2, 1), (3, 2)];
        // Miri would take an hour for all of them.
        let (count, steps, every) = if cfg!(miri) { (3, &steps[1..2], 7) } else { (count, &steps[..], 1) };
        for dst_dtype in DType::ALL.into_iter().step_by(every) {
            for &(dst_step, src_step) in steps {
                let dst = view(&[count], &[(0, dst_step, 0, false)], 0);
                let src = view(&[count], &[(0, src_step, 0, false)], 0);
                check_cast(&dst, dst_dtype, &src, src_dtype, &source);
            }
        }
    }
}

#[test]
fn every_number_of_elements() {
    for (dst_dtype, src_dtype) in
        [(DType::F16, DType::F32), (DType::F32, DType::F16), (DType::U8, DType::BF16)]
    {
        let source = pattern(1200 * src_dtype.size(), 5);
        for count in (0..40).chain([511, 512, 513, 1025]).take(if cfg!(miri) { 6 } else { 60 }) {
            let placement = [(0, 1, 0, false)];
            check_cast(
                &view(&[count], &placement, 1),
                dst_dtype,
                &view(&[count], &placement, 1),
                src_dtype,
                &source,
            );
        }
    }
}

#[test]
fn many_dimensions() {
    let sizes = [2, 1, 2, 3, 1, 2, 2, 2, 1, 2];
    let placements = |flip: bool| -> Vec<DimPlacement> {
        (0..10)
            .map(|dim| (if flip { 7 * dim % 10 } else { dim }, 1, usize::from(dim % 3 == 0), false))
            .collect()
    };
    check_copy(&view(&sizes, &placements(false), 0), &view(&sizes, &placements(true), 2), 4);
    let (dst, src) = (view(&sizes, &placements(true), 1), view(&sizes, &placements(false), 0));
    check_cast(&dst, DType::F32, &src, DType::I16, &pattern(src.storage * 2, 1));
}

#[test]
fn foreign_bools() {
    let layout = Layout::contiguous(Shape::new(&[5]).unwrap());
    let source = [0, 1, 2, 0x80, 0xff_u8];
    let mut bools = [7_u8; 5];
    // SAFETY: five bytes on both sides.
    unsafe { cast(bools.as_mut_ptr(), &layout, DType::Bool, source.as_ptr(), &layout, DType::Bool) };
    assert_eq!(bools, [0, 1, 1, 1, 1]);
    let mut floats = [7_f32; 5];
    // SAFETY: five elements on both sides.
    unsafe { cast(floats.as_mut_ptr().cast(), &layout, DType::F32, source.as_ptr(), &layout, DType::Bool) };
    assert_eq!(floats, [0.0, 1.0, 1.0, 1.0, 1.0]);
}

/// Large enough to run in parallel with feature `rayon`.
#[test]
#[cfg_attr(miri, ignore = "megabytes, element by element")]
fn large_ones() {
    let rows = [(2, 1, 0, false), (1, 1, 0, false)];
    let columns = [(1, 1, 3, false), (2, 1, 0, false)];
    check_copy(&view(&[700, 900], &rows, 1), &view(&[700, 900], &columns, 0), 4);
    check_copy(&view(&[3, 90_001], &rows, 1), &view(&[3, 90_001], &columns, 0), 8);
    check_copy(&view(&[90_001, 3], &columns, 1), &view(&[90_001, 3], &rows, 0), 16);
    check_copy(&view(&[1, 300_003], &rows, 1), &view(&[1, 300_003], &rows, 0), 4);
    let (dst, src) = (view(&[400, 900], &rows, 1), view(&[400, 900], &columns, 0));
    check_cast(&dst, DType::F32, &src, DType::F16, &pattern(src.storage * 2, 1));
    let mut filled = vec![0_u32; dst.storage];
    // SAFETY: the storage has the span of the view; there is no overlap.
    unsafe { fill(filled.as_mut_ptr().cast(), &dst.layout, DType::U32, Scalar::UInt(5)) };
    assert_eq!(filled.iter().filter(|&&element| element == 5).count(), 400 * 900);
    assert!(positions(&dst.layout).into_iter().all(|at| filled[at] == 5));
}
