//! The sizes that follow from values of a device, and the lines of the program at which values are decided.

use super::process::Process;
use super::{is_dry, run_dry, settings};
use orlop_dryrun::settings::OUTPUT;
use std::fs;
use std::path::Path;
use std::thread;

/// The two passes of PyTorch's reduction of a boolean mask, and a kernel after it.
const REDUCTION: usize = 0x100;
const SECOND_PASS: usize = 0x200;
const OTHER: usize = 0x300;

/// Returns the count that PyTorch would read after the reduction of a mask.
fn counted(process: &Process, mask: usize, elements: u64, after: &[usize]) -> u64 {
    let iterator = [mask, 0];
    let count = process.allocate(512).expect("it fits");
    let arguments = [
        iterator.as_ptr().expose_provenance(),
        (&raw const count).expose_provenance(),
        (&raw const elements).expose_provenance(),
    ];
    process.launch_with(REDUCTION, &arguments);
    after.iter().for_each(|&stub| process.launch(stub));
    let mut read = [9; 8];
    process.read(&mut read, count);
    u64::from_le_bytes(read)
}

#[test]
fn a_mask_has_the_elements_that_were_copied_or_are_assumed() {
    if !is_dry() {
        let mut assumed = settings();
        assumed.assumptions = assumed.assumptions.with("mask=0.25").expect("an assumption");
        let folder = run_dry("sizes::a_mask_has_the_elements_that_were_copied_or_are_assumed", &assumed);
        let report = fs::read_to_string(folder.path().join("answers.json")).expect("the report");
        for answer in [
            "\"masks_counted\": 1",
            "\"masks_assumed\": {\"train.py:7 step\": 3}",
            "\"values_read_as_zero\": {\"train.py:7 step\": 1}",
            "\"sizes_read_as_zero\": {\"a thread without a program\": 1}",
        ] {
            assert!(report.contains(answer), "{report}");
        }
        return;
    }
    extern "C" fn name_caller(name: *mut u8, size: usize) {
        let line = b"train.py:7 step\0";
        assert!(line.len() <= size);
        // SAFETY: the buffer has room for `size` bytes, and is not the constant.
        unsafe { std::ptr::copy_nonoverlapping(line.as_ptr(), name, line.len()) };
    }
    let process = Process::new();
    process.call1("orlop_dry_run_name_callers", (name_caller as *const ()).expose_provenance());
    process.register(REDUCTION, c"18DeviceReduceKernelNonZeroOpIbEEPKbEEPiyS9_");
    process.register(SECOND_PASS, c"28DeviceReduceSingleTileKernelEPiSC_iS9_ii");
    process.register(OTHER, c"_Z3addv");
    let mask = process.allocate(4096).expect("it fits");
    process.copy(mask, &mut [0, 1, 1, 0, 1]);
    assert_eq!(counted(&process, mask, 5, &[SECOND_PASS]), 3);
    // Not the mask that was copied: its size differs.
    assert_eq!(counted(&process, mask, 4096, &[]), 1024);
    // What is printed decides nothing, and is not in the report.
    assert_eq!(process.call1("orlop_dry_run_swap_silence", 1), 0);
    assert_eq!(counted(&process, mask, 4096, &[]), 1024);
    assert_eq!(process.call1("orlop_dry_run_swap_silence", 0), 1);
    // More elements than have 32 bits.
    assert_eq!(counted(&process, mask, 1 << 40, &[]), 1 << 38);
    // Cleared memory, into which a kernel may have written since.
    process.copy(mask, &mut [0; 4]);
    assert_eq!(counted(&process, mask, 4, &[]), 1);
    // The count is the result of its kernel alone.
    assert_eq!(counted(&process, mask, 4, &[OTHER]), 0);
    process.call1("orlop_dry_run_name_callers", 0);
    process.register(OTHER, c"DeviceScanKernel");
    assert_eq!(counted(&process, mask, 4, &[OTHER]), 0);
    process.report(&Path::new(&std::env::var_os(OUTPUT).expect("the folder")).join("answers.json"));
}

#[test]
fn distinct_values_and_maxima_are_assumed() {
    if !is_dry() {
        let mut assumed = settings();
        let all = assumed.assumptions.with("unique=20").and_then(|all| all.with("max=9"));
        assumed.assumptions = all.expect("two assumptions");
        let folder = run_dry("sizes::distinct_values_and_maxima_are_assumed", &assumed);
        let report = fs::read_to_string(folder.path().join("answers.json")).expect("the report");
        for answer in [
            "\"distinct_values_assumed\": {\"a thread without a program\": 2}",
            "\"maxima_assumed\": {\"a thread without a program\": 2}",
            "\"values_read_as_zero\": {\"a thread without a program\": 2}",
        ] {
            assert!(report.contains(answer), "{report}");
        }
        return;
    }
    let process = Process::new();
    let result = process.allocate(512).expect("it fits");
    let read = |bytes: usize| {
        let mut read = [0; 8];
        process.read(&mut read[..bytes], result);
        u64::from_le_bytes(read)
    };
    process.register(REDUCTION, c"23DeviceSelectSweepKernel...equal_toIvEEi");
    let distinct = |elements: u32| {
        let mut arguments = [0; 8];
        arguments[7] = (&raw const elements).expose_provenance();
        process.launch_with(REDUCTION, &arguments);
        read(8)
    };
    assert_eq!([1000, 5].map(distinct), [20, 5]);
    process.register(OTHER, c"13reduce_kernel...13MaxNanFunctorIlEE");
    process.launch(OTHER);
    assert_eq!([8, 4, 1].map(read), [9, 9, 0]);
    // A maximum of numbers that are no sizes.
    process.register(OTHER, c"13reduce_kernel...13MaxNanFunctorIfEE");
    process.launch(OTHER);
    assert_eq!(read(4), 0);
    // What isfinite() ends with.
    process.register(OTHER, c"15binary_internal10MulFunctorIbEE");
    process.launch(OTHER);
    assert_eq!(read(1), 1);
    process.report(&Path::new(&std::env::var_os(OUTPUT).expect("the folder")).join("answers.json"));
}

#[test]
fn what_the_host_computed_is_known_to_its_tensor_alone() {
    if !is_dry() {
        let folder = run_dry("sizes::what_the_host_computed_is_known_to_its_tensor_alone", &settings());
        let report = fs::read_to_string(folder.path().join("answers.json")).expect("the report");
        for answer in [
            "\"reads_answered_as_copied\": 1",
            "\"masks_counted\": 1",
            "\"masks_assumed\": {\"a thread without a program\": 1}",
            "\"repeats_assumed\": {\"a thread without a program\": 1}",
            "\"bins_assumed\": {\"a thread without a program\": 1}",
        ] {
            assert!(report.contains(answer), "{report}");
        }
        return;
    }
    let process = Process::new();
    let address = process.allocate(512).expect("it fits");
    let (values, mut read) = ([7_u8; 4], [9_u8; 4]);
    let at = values.as_ptr().expose_provenance();
    assert_eq!(process.call("orlop_dry_run_write", [address, 4, at]), 0);
    let into = read.as_mut_ptr().expose_provenance();
    assert_eq!(process.call("orlop_dry_run_read", [address, 4, into]), 0);
    assert_eq!(read, values);
    // Another tensor in the same memory.
    process.read(&mut read, address);
    assert_eq!(read, [0; 4]);
    // The read that is announced, once.
    assert_eq!(process.call("orlop_dry_run_expect", [address, 4, at]), 0);
    process.read(&mut read, address);
    assert_eq!(read, values);
    process.read(&mut read, address);
    assert_eq!(read, [0; 4]);
    // A tensor that is not known is not what was copied for another.
    process.copy(address, &mut [5; 4]);
    assert_eq!(process.call2("orlop_dry_run_distrust", address, 4), 0);
    process.read(&mut read, address);
    assert_eq!(read, [0; 4]);
    process.register(REDUCTION, c"18DeviceReduceKernelNonZeroOpIbEEPKbEEPiyS9_");
    assert_eq!(process.call1("orlop_dry_run_expect_size", 0), 0);
    assert_eq!(counted(&process, address, 4, &[]), 0);
    assert_eq!(process.call1("orlop_dry_run_expect_size", usize::MAX), 0);
    assert_eq!(counted(&process, address, 4, &[]), 0);
    for assumed in 0..3 {
        assert_eq!(process.call1("orlop_dry_run_assume", assumed), 0);
    }
    process.report(&Path::new(&std::env::var_os(OUTPUT).expect("the folder")).join("answers.json"));
}

#[test]
fn threads_do_not_answer_the_reads_of_each_other() {
    if !is_dry() {
        let mut assumed = settings();
        assumed.assumptions = assumed.assumptions.with("mask=0.25").expect("an assumption");
        run_dry("sizes::threads_do_not_answer_the_reads_of_each_other", &assumed);
        return;
    }
    let process = Process::new();
    process.register(REDUCTION, c"18DeviceReduceKernelNonZeroOpIbEEPKbEEPiyS9_");
    process.register(OTHER, c"_Zvec15and_kernel_cudaE");
    let mask = process.allocate(4096).expect("it fits");
    let elsewhere =
        |body: &(dyn Fn() + Sync)| thread::scope(|scope| scope.spawn(body).join().expect("no panic"));
    // A size and a value that another thread expects.
    let values = [7_u8; 4];
    elsewhere(&|| {
        assert_eq!(process.call1("orlop_dry_run_expect_size", 3), 0);
        let at = values.as_ptr().expose_provenance();
        assert_eq!(process.call("orlop_dry_run_expect", [mask, 4, at]), 0);
    });
    assert_eq!(counted(&process, mask, 4096, &[]), 1024);
    let mut read = [9; 4];
    process.read(&mut read, mask);
    assert_ne!(read, values);
    // A kernel of another thread is not the last one of this: neither a count nor a truth is lost or gained.
    let (iterator, elements) = ([mask, 0], 4096_u64);
    let arguments = [iterator.as_ptr().expose_provenance(), 0, (&raw const elements).expose_provenance()];
    process.launch_with(REDUCTION, &arguments);
    elsewhere(&|| process.launch(OTHER));
    let mut count = [9; 8];
    process.read(&mut count, mask);
    assert_eq!(u64::from_le_bytes(count), 1024);
    process.read(&mut read[..1], mask);
    assert_eq!(read[0], 0);
}
