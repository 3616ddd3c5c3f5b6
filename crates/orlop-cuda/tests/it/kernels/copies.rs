//! Strided copies and fills: random layouts, and the number of calls.

use super::{KernelBench, far, first, layout, noise};
use crate::random::Random;
use orlop_alloc::engine_support::{DeviceOps, DevicePtr, HostOps, LoopDim, StridedLoops};
use orlop_core::{Device, Layout, StreamId};

impl Random {
    /// Returns sizes, strides of a destination without overlap and of a source with expanded dimensions.
    fn layouts(&mut self) -> (Layout, Layout) {
        let rank = self.below(12);
        let sizes: Vec<usize> =
            (0..rank).map(|_| if rank > 7 { 1 + self.below(2) } else { self.below(25) % 5 + 1 }).collect();
        let mut strides = |may_expand: bool| {
            let mut order: Vec<usize> = (0..rank).collect();
            (1..rank).for_each(|last| order.swap(last, self.below(last + 1)));
            let (mut next, mut strides) = (1, vec![0; rank]);
            for dim in order {
                strides[dim] = if may_expand && self.below(4) == 0 { 0 } else { next };
                next = next * sizes[dim] + self.below(3) % 2;
            }
            strides
        };
        let (to, from) = (strides(false), strides(true));
        (layout(&sizes, &to), layout(&sizes, &from))
    }
}

#[test]
fn random_strided_copies_and_fills_agree_with_the_cpu() {
    let here = KernelBench::new();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut launches = 0;
    for round in 0..400_usize {
        let (to_layout, from_layout) = random.layouts();
        let item = [1, 2, 4, 8, 16, 3, 12, 24][round % 8];
        // Also of elements that are less aligned than their size.
        let (to_offset, from_offset) =
            if round % 3 == 0 { (random.below(9), random.below(9)) } else { (0, 0) };
        let bytes = |layout: &Layout| layout.byte_range(item).unwrap().end;
        let source = noise(bytes(&from_layout) + from_offset);
        let before = vec![0xa5; bytes(&to_layout) + to_offset];
        let (to, from) = (here.block(&before), here.block(&source));
        let (mut expected, mut source_copy) = (before.clone(), source.clone());
        let before_launches = here.machine.calls("cuLaunchKernel");
        StridedLoops::with((&to_layout, item), Some((&from_layout, item)), |loops| {
            let places = (far(&to, to_offset), far(&from, from_offset));
            // SAFETY: the layouts are inside the blocks behind the offsets.
            unsafe { here.ops.copy_strided(places.0, places.1, item, loops, here.stream.id()) }.unwrap();
            let host = |bytes: &mut [u8], offset| DevicePtr::new(first(&mut bytes[offset..]), Device::CPU);
            let places = (host(&mut expected, to_offset), host(&mut source_copy, from_offset));
            // The host copies items of a power of two.
            if item.is_power_of_two() {
                // SAFETY: the layouts are inside the vectors behind the offsets.
                unsafe { HostOps.copy_strided(places.0, places.1, item, loops, StreamId::HOST) }.unwrap();
            } else {
                let run = LoopDim { size: item, dst: 1, src: 1 };
                let all = [loops.dims(), &[run]].concat();
                copy_bytes(&mut expected, &source, &all, (to_offset, from_offset));
            }
        })
        .unwrap();
        launches += here.machine.calls("cuLaunchKernel") - before_launches;
        assert!(here.read(&to) == expected, "{round}: {item} {to_layout:?} {from_layout:?}");

        let pattern = &noise(40)[round % 7..round % 7 + item];
        let mut expected = before.clone();
        here.write(&to, &before);
        StridedLoops::with((&to_layout, item), None, |loops| {
            let target = far(&to, to_offset);
            // SAFETY: the layout is inside the block behind the offset.
            unsafe { here.ops.fill_strided(target, pattern, loops, here.stream.id()) }.unwrap();
            let run = LoopDim { size: item, dst: 1, src: 1 };
            let all: Vec<LoopDim> =
                loops.dims().iter().map(|dim| LoopDim { src: 0, ..*dim }).chain([run]).collect();
            copy_bytes(&mut expected, pattern, &all, (to_offset, 0));
        })
        .unwrap();
        assert!(here.read(&to) == expected, "fill {round}: {item} {to_layout:?}");
    }
    assert!(launches > 200, "{launches}");
    assert_eq!(here.machine.races(), []);
}

/// Copies a byte at every step, from the offsets on.
fn copy_bytes(to: &mut [u8], from: &[u8], dims: &[LoopDim], (to_at, from_at): (usize, usize)) {
    let Some((dim, inner)) = dims.split_first() else {
        to[to_at] = from[from_at];
        return;
    };
    for step in 0..dim.size {
        copy_bytes(to, from, inner, (to_at + step * dim.dst, from_at + step * dim.src));
    }
}

#[test]
fn one_call_for_rows_one_launch_for_elements_and_no_wait() {
    let here = KernelBench::new();
    here.ops.load_kernels().unwrap();
    let (to, from) = (here.block(&[0; 40_000]), here.block(&noise(40_000)));
    let waits = here.machine.counts().waits;
    let calls = |item, to_sizes: (&[usize], &[usize]), strides: &[usize]| {
        here.copy(&to, &from, item, (&layout(to_sizes.0, to_sizes.1), &layout(to_sizes.0, strides)))
    };
    // Rows of 32 bytes; every second element; a transposition; a row that is repeated; short rows.
    assert_eq!(calls(4, (&[50, 8], &[8, 1]), &[16, 1]), [0, 1]);
    assert_eq!(calls(4, (&[400], &[1]), &[2]), [1, 0]);
    assert_eq!(calls(4, (&[50, 60], &[60, 1]), &[1, 50]), [1, 0]);
    assert_eq!(calls(4, (&[50, 60], &[60, 1]), &[0, 1]), [1, 0]);
    assert_eq!(calls(2, (&[50, 3], &[3, 1]), &[5, 1]), [1, 0]);
    // Three loops around rows: one launch instead of a call for each step of the first one.
    assert_eq!(calls(4, (&[5, 4, 3, 8], &[500, 100, 30, 1]), &[600, 100, 8, 1]), [1, 0]);
    assert_eq!(calls(4, (&[3, 0], &[1, 1]), &[1, 1]), [0, 0]);
    assert_eq!(here.machine.counts().waits, waits);
}

#[test]
fn fills_of_long_patterns_are_one_launch() {
    let here = KernelBench::new();
    here.ops.load_kernels().unwrap();
    for (pattern, launches) in [(8, 1), (16, 1), (12, 0), (2, 0)] {
        let block = here.block(&[0; 4800]);
        drop(here.machine.take_calls());
        let bytes = noise(pattern);
        // SAFETY: inside the block.
        unsafe { here.ops.fill(block.device_ptr(), &bytes, 4800 / pattern, here.stream.id()) }.unwrap();
        assert_eq!(here.machine.calls("cuLaunchKernel"), launches, "{pattern}");
        assert!(here.read(&block) == bytes.repeat(4800 / pattern), "{pattern}");
    }
}

#[test]
fn more_loops_than_a_launch_has_are_several_launches() {
    let here = KernelBench::new();
    here.ops.load_kernels().unwrap();
    let strides: Vec<usize> = (0..10).map(|dim| 1 << dim).collect();
    let reversed: Vec<usize> = strides.iter().rev().copied().collect();
    let (rows, columns) = (layout(&[2; 10], &reversed), layout(&[2; 10], &strides));
    let source = noise(4096);
    let (to, from) = (here.block(&[0; 4096]), here.block(&source));
    assert_eq!(here.copy(&to, &from, 4, (&rows, &columns)), [4, 0]);
    let element = |index: u16| {
        let at = usize::from(index.reverse_bits() >> 6) * 4;
        source[at..at + 4].to_vec()
    };
    assert!(here.read(&to) == (0..1024).flat_map(element).collect::<Vec<u8>>());
}
