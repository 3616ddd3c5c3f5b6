//! Compiled kernels with calls, atomic operations, shuffles and votes: `testdata/ptx` says how each file was
//! made.

use crate::compiled::{Machine, compiled, machine, shape};
use crate::support::KernelDriver;
use cudarc::driver::{CudaContext, PushKernelArg};

/// The text of a kernel by NVRTC alone.
macro_rules! nvrtc {
    ($name:literal) => {
        include_str!(concat!("../../../../testdata/ptx/", $name, ".nvrtc.ptx"))
    };
}

#[test]
fn a_sum_by_shuffles_and_an_atomic_addition_is_computed() {
    for (compiler, text) in compiled!("warp_sum") {
        let Machine { driver, stream, kernel } = machine(text, "warp_sum");
        let values: Vec<f32> = (0..700_u16).map(f32::from).collect();
        let from = stream.clone_htod(&values).expect("a copy");
        let mut total = stream.alloc_zeros::<f32>(1).expect("memory");
        let other = stream.context().new_stream().expect("a stream");
        other.join(&stream).expect("an order");
        // SAFETY: the arguments are those of the kernel; it changes one element.
        let launched = unsafe {
            let mut builder = stream.launch_builder(&kernel);
            builder.arg(&from).arg(&mut total).arg(&700_i32).launch(shape((3, 1), (256, 1)))
        };
        launched.expect("a launch");
        // Another one beside it: nothing orders two atomic additions, and they do not race.
        let (from_address, to_address) = {
            use cudarc::driver::{DevicePtr, DevicePtrMut};
            (from.device_ptr(&stream).0, total.device_ptr_mut(&stream).0)
        };
        // SAFETY: as above, and both live until all work is done.
        let launched = unsafe {
            let mut builder = other.launch_builder(&kernel);
            builder.arg(&from_address).arg(&to_address).arg(&700_i32).launch(shape((3, 1), (256, 1)))
        };
        launched.expect("a launch");
        assert_eq!(driver.take_races(), [], "{compiler}");
        // A copy of the sum races with the other stream's.
        let result = stream.clone_dtoh(&total).expect("a copy");
        if let Some(driver) = driver.simulated() {
            let races = driver.take_races();
            assert_eq!(races.len(), 1, "{compiler}");
            assert!(races[0].earlier.is_atomic && !races[0].later.is_atomic, "{}", races[0]);
            let said = races[0].to_string();
            assert!(said.contains("not ordered after: warp_sum updates 4 bytes at"), "{said}");
        }
        stream.context().synchronize().expect("a wait");
        let both = stream.clone_dtoh(&total).expect("a copy");
        assert!(result[0] >= 244_650.0, "{compiler}: {result:?}");
        assert_eq!(both, [489_300.0], "{compiler}");
    }
}

#[test]
fn functions_are_called() {
    for (compiler, text) in compiled!("calls") {
        let Machine { driver, stream, kernel } = machine(text, "gcds");
        let a = stream.clone_htod(&[0_u32; 100]).expect("a copy");
        let mut to = stream.alloc_zeros::<u32>(100).expect("memory");
        // SAFETY: the arguments are those of the kernel.
        let launched = unsafe {
            let mut builder = stream.launch_builder(&kernel);
            builder.arg(&a).arg(&mut to).arg(&100_i32).launch(shape((4, 1), (32, 1)))
        };
        launched.expect("a launch");
        let gcd = |mut a: u32, mut b: u32| {
            while b != 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        let expected: Vec<u32> = (0..100).map(|i| gcd(720_720 + i, 12 * i + 18)).collect();
        assert_eq!(stream.clone_dtoh(&to).expect("a copy"), expected, "{compiler}");
        assert_eq!(driver.take_races(), [], "{compiler}");
    }
    for (compiler, text) in compiled!("calls") {
        let Machine { driver, stream, kernel } = machine(text, "means");
        let rows: Vec<f64> = (0..40 * 7).map(|index| f64::from(index) * 0.7 - 3.0).collect();
        let from = stream.clone_htod(&rows).expect("a copy");
        let mut to = stream.alloc_zeros::<f64>(40).expect("memory");
        // SAFETY: the arguments are those of the kernel.
        let launched = unsafe {
            let mut builder = stream.launch_builder(&kernel);
            builder.arg(&from).arg(&mut to).arg(&40_i32).arg(&7_i32).launch(shape((2, 1), (32, 1)))
        };
        launched.expect("a launch");
        let means: Vec<f64> =
            rows.chunks(7).map(|row| row.iter().fold(0.0, |sum, x| sum + x) / 7.0).collect();
        assert_eq!(stream.clone_dtoh(&to).expect("a copy"), means, "{compiler}");
        assert_eq!(driver.take_races(), [], "{compiler}");
    }
}

#[test]
fn every_atomic_operation_is_computed() {
    for (compiler, text) in compiled!("atomics") {
        let Machine { driver, stream, kernel } = machine(text, "atomics");
        let mut signed = stream.clone_htod(&[0_i32, 0, 5, -5]).expect("a copy");
        let words = [u32::MAX, 0, 0, 0, 3, 4, 0];
        let mut unsigned = stream.clone_htod(&words).expect("a copy");
        let mut wide = stream.clone_htod(&[1_u64, 0]).expect("a copy");
        let (mut single, mut double) =
            (stream.clone_htod(&[1_f32]).expect("a copy"), stream.clone_htod(&[1_f64]).expect("a copy"));
        // SAFETY: the arguments are those of the kernel.
        let launched = unsafe {
            let mut builder = stream.launch_builder(&kernel);
            builder.arg(&mut signed).arg(&mut unsigned).arg(&mut wide).arg(&mut single).arg(&mut double);
            builder.launch(shape((3, 1), (64, 1)))
        };
        launched.expect("a launch");
        // 192 threads: the sum of their numbers, and so on.
        assert_eq!(stream.clone_dtoh(&signed).expect("a copy"), [18_336, -384, -191, 191], "{compiler}");
        let xor = (0..192_u32).fold(0, |all, i| all ^ i);
        let (up, down) = ((3 + 192) % 10, (4 + 10 * 20 - 192) % 10);
        let expected = [0, 0xffff, xor, 7, up, down, 192];
        assert_eq!(stream.clone_dtoh(&unsigned).expect("a copy"), expected, "{compiler}");
        assert_eq!(stream.clone_dtoh(&wide).expect("a copy"), [(192 << 33) + 1, 191], "{compiler}");
        assert_eq!(stream.clone_dtoh(&single).expect("a copy"), [97.0], "{compiler}");
        assert_eq!(stream.clone_dtoh(&double).expect("a copy"), [49.0], "{compiler}");
        assert_eq!(driver.take_races(), [], "{compiler}");
    }
}

#[test]
fn threads_of_a_warp_know_of_each_other() {
    for (compiler, text) in compiled!("votes") {
        let Machine { driver, stream, kernel } = machine(text, "votes");
        let values: Vec<i32> = (0..64).map(|thread| (thread * 7 + 3) % 11 - 4 + thread / 32).collect();
        let from = stream.clone_htod(&values).expect("a copy");
        let mut to = stream.alloc_zeros::<u32>(640).expect("memory");
        // SAFETY: the arguments are those of the kernel: one block of 64 threads with ten words each.
        let launched = unsafe {
            let mut builder = stream.launch_builder(&kernel);
            builder.arg(&from).arg(&mut to).launch(shape((1, 1), (64, 1)))
        };
        launched.expect("a launch");
        let found = stream.clone_dtoh(&to).expect("a copy");
        for thread in 0..64 {
            let (warp, lane) = (&values[thread / 32 * 32..][..32], thread % 32);
            let lanes = |is_so: &dyn Fn(i32) -> bool| {
                (0..32).filter(|&lane| is_so(warp[lane])).fold(0_u32, |all, lane| all | 1 << lane)
            };
            let ballot = |lane: usize| {
                let values = &values[lane / 32 * 32..][..32];
                (0..32).filter(|&lane| values[lane] > 0).fold(0_u32, |all, lane| all | 1 << lane)
            };
            let source = if lane < 8 { lane / 4 * 4 + (lane + 1) % 4 } else { lane - 3 };
            // Lanes 8 to 10 read lanes that do not take part: undefined.
            let is_defined = !(8..11).contains(&lane);
            let expected = [
                ballot(thread),
                (ballot(thread) & ((1 << lane) - 1)).count_ones(),
                0,
                1,
                lanes(&|value| value == warp[lane]),
                1,
                if is_defined { warp[source].cast_unsigned() } else { found[thread * 10 + 6] },
                ballot(thread ^ 1),
                warp.iter().sum::<i32>().cast_unsigned(),
                warp.iter().max().copied().unwrap_or(0).cast_unsigned(),
            ];
            assert_eq!(found[thread * 10..][..10], expected, "{compiler}: thread {thread}");
        }
        assert_eq!(driver.take_races(), [], "{compiler}");
    }
}

/// Rounds a number to bfloat16, and returns its bits.
fn bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    u16::try_from((bits + 0x7fff + (bits >> 16 & 1)) >> 16).expect("16 bits")
}

#[test]
fn halves_and_bfloat16_are_reduced() {
    let text = nvrtc!("half_sum");
    let Machine { driver, stream, kernel } = machine(text, "half_sums");
    // Whole numbers up to 63 and their negatives, as halves.
    let half = |number: u16| {
        let Some(exponent) =
            number.checked_ilog2().map(|exponent| u16::try_from(exponent).expect("at most 15"))
        else {
            return 0;
        };
        (15 + exponent) << 10 | number << (10 - exponent) & 0x3ff
    };
    let rows: Vec<u16> = (0..64).map(half).chain((0..64).map(|number| half(number % 8) | 0x8000)).collect();
    let from = stream.clone_htod(&rows).expect("a copy");
    let mut to = stream.alloc_zeros::<u16>(2).expect("memory");
    // SAFETY: the arguments are those of the kernel.
    let launched = unsafe {
        let mut builder = stream.launch_builder(&kernel);
        builder.arg(&from).arg(&mut to).launch(shape((2, 1), (32, 1)))
    };
    launched.expect("a launch");
    // 2016 and -224.
    assert_eq!(stream.clone_dtoh(&to).expect("a copy"), [half(2016), half(224) | 0x8000]);
    assert_eq!(driver.take_races(), []);
    drop((from, to, stream, kernel, driver));

    let Machine { driver, stream, kernel } = machine(text, "bf16_norms");
    let rows: Vec<f32> = (0..128_i16).map(|number| f32::from(number % 50 - 30)).collect();
    let from = stream.clone_htod(&rows.iter().map(|&x| bf16(x)).collect::<Vec<_>>()).expect("a copy");
    let mut to = stream.alloc_zeros::<u16>(4).expect("memory");
    let scale = 0.3_f32;
    // SAFETY: the arguments are those of the kernel.
    let launched = unsafe {
        let mut builder = stream.launch_builder(&kernel);
        builder.arg(&from).arg(&mut to).arg(&scale).launch(shape((2, 1), (32, 1)))
    };
    launched.expect("a launch");
    let expected = rows.chunks(64).flat_map(|row| {
        // The squares are whole numbers, so that their sum is exact in any order.
        let sum: f32 = row.iter().map(|x| x * x).sum();
        [bf16(sum.sqrt() * scale), bf16(row.iter().fold(0.0, |top, x| x.abs().max(top)))]
    });
    assert_eq!(stream.clone_dtoh(&to).expect("a copy"), expected.collect::<Vec<_>>());
    assert_eq!(driver.take_races(), []);
}

#[test]
fn a_softmax_is_computed() {
    let Machine { driver, stream, kernel } = machine(nvrtc!("softmax"), "softmax");
    let (rows, columns) = (3_u32, 100_usize);
    let values: Vec<f32> = (0..300_u16).map(|index| f32::from(index * 37 % 101) * 0.2 - 9.0).collect();
    let from = stream.clone_htod(&values).expect("a copy");
    let mut to = stream.alloc_zeros::<f32>(300).expect("memory");
    // SAFETY: the arguments are those of the kernel.
    let launched = unsafe {
        let mut builder = stream.launch_builder(&kernel);
        builder.arg(&from).arg(&mut to).arg(&100_i32).launch(shape((rows, 1), (32, 1)))
    };
    launched.expect("a launch");
    let found = stream.clone_dtoh(&to).expect("a copy");
    for (row, found) in values.chunks(columns).zip(found.chunks(columns)) {
        let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
        for (&x, &found) in row.iter().zip(found) {
            let expected = f64::from(x).exp() / sum;
            assert!((f64::from(found) / expected - 1.0).abs() < 1e-5, "{found} and not {expected}");
        }
    }
    assert_eq!(driver.take_races(), []);
}

/// Which bins it counts in follows from data that is not known when it is submitted.
#[test]
fn addresses_that_depend_on_data_are_refused_by_name() {
    for (compiler, text) in compiled!("histogram") {
        let Machine { driver, stream, kernel } = machine(text, "histogram");
        let values: Vec<u8> = (0..200).collect();
        let from = stream.clone_htod(&values).expect("a copy");
        let mut bins = stream.alloc_zeros::<u32>(64).expect("memory");
        // SAFETY: the arguments are those of the kernel.
        let launched = unsafe {
            let mut builder = stream.launch_builder(&kernel);
            builder.arg(&from).arg(&mut bins).arg(&200_i32).launch(shape((1, 1), (256, 1)))
        };
        let Some(driver) = driver.simulated() else {
            launched.expect("a launch");
            assert_eq!(stream.clone_dtoh(&bins).expect("a copy"), [1; 64], "{compiler}");
            continue;
        };
        let error = launched.expect_err("a refusal");
        assert_eq!(error.0, cudarc::driver::sys::CUresult::CUDA_ERROR_NOT_SUPPORTED, "{compiler}");
        let refusal = driver.refusal().unwrap_or_default();
        assert!(refusal.starts_with("histogram, line "), "{refusal}");
        assert!(refusal.ends_with(": an address or a branch depends on data in memory"), "{refusal}");
        assert_eq!(stream.clone_dtoh(&bins).expect("a copy"), [0; 64], "{compiler}");
    }
}

/// As a linker of a real driver writes it.
#[test]
fn a_refused_module_says_why_in_its_log() {
    let driver = KernelDriver::start();
    let Some(driver) = driver.simulated() else { return };
    let _context = CudaContext::new(0).expect("there is a device");
    assert_eq!(driver.refusal(), None);
    let text = c".version 8.0\n.target sm_80\n.address_size 64\n\
                 .entry main()\n{\n wgmma.fence.sync.aligned;\n ret;\n}";
    let mut log = [0_u8; 200];
    let mut options = [
        cudarc::driver::sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
        cudarc::driver::sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    ];
    let mut values = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(log.len())];
    let mut module = std::ptr::null_mut();
    let result = cu!(cuModuleLoadDataEx(
        &raw mut module,
        text.as_ptr().cast(),
        2,
        options.as_mut_ptr(),
        values.as_mut_ptr()
    ));
    assert_eq!(result, cudarc::driver::sys::CUresult::CUDA_ERROR_INVALID_PTX);
    let said = std::ffi::CStr::from_bytes_until_nul(&log).expect("a text").to_string_lossy();
    let why = "main, line 6: wgmma.fence.sync.aligned: the instruction wgmma.fence.sync.aligned is not known";
    assert_eq!(said, why);
    assert_eq!(driver.refusal().as_deref(), Some(why));
}
