//! NCCL, cuBLAS, cuDNN, cuSOLVER, cuSPARSE and NVRTC.

use super::process::Process;
use super::{is_dry, run_dry, settings};
use orlop_dryrun::settings::OUTPUT;

/// Communicators are created without an identifier by value, which a call of numbers cannot pass.
fn communicator(process: &Process, ranks: usize, rank: usize) -> Result<usize, i32> {
    let mut handle = 0_usize;
    let at = (&raw mut handle).expose_provenance();
    match process.call4("ncclCommInitRankScalable", at, ranks, rank, 1) {
        0 => Ok(handle),
        code => Err(code),
    }
}

#[test]
fn other_ranks_have_what_this_one_has() {
    if !is_dry() {
        run_dry("libraries::other_ranks_have_what_this_one_has", &settings());
        return;
    }
    let process = Process::new();
    assert_eq!(communicator(&process, 2, 2), Err(4));
    let free = || process.memory().0;
    let before = free();
    let (pair, single) = (communicator(&process, 2, 1).expect("it fits"), communicator(&process, 1, 0));
    assert_eq!(before - free(), 544 << 20);
    // 2 GiB of memory, of which the driver has a part, do not have room for another.
    let group = communicator(&process, 8, 0).expect("it fits");
    assert_eq!((before - free(), communicator(&process, 8, 0)), ((544 + 688) << 20, Err(1)));
    for created in [pair, single.expect("it fits"), group] {
        assert_eq!(process.call1("ncclCommDestroy", created), 0);
    }
    assert_eq!(before, free());
    let (from, kept) = (process.allocate(4096).expect("it fits"), [1, 2, 3, 4]);
    let (to, mut read) = (from + 512, [9; 4]);
    for ranks in [1, 8] {
        let world = communicator(&process, ranks, 0).expect("a communicator");
        // Four elements of one byte, broadcast by this rank and by another; one of four bytes, reduced.
        let factor = u8::try_from(ranks).expect("few");
        let sum = kept.map(|byte| byte * factor);
        let root = ranks - 1;
        for (name, arguments, expected) in [
            ("ncclBcast", [from, 4, 1, 0, world, 0, 0], kept),
            ("ncclBcast", [from, 4, 1, root, world, 0, 0], kept),
            ("ncclBroadcast", [from, to, 4, 1, 0, world, 0], kept),
            ("ncclBroadcast", [to, to, 4, 1, root, world, 0], kept),
            ("ncclAllReduce", [from, to, 1, 2, 0, world, 0], sum),
            ("ncclAllReduce", [from, to, 1, 7, 2, world, 0], kept),
        ] {
            process.copy(from, &mut kept.clone());
            assert_eq!(process.call(name, arguments), 0);
            process.read(&mut read, if name == "ncclBcast" { from } else { to });
            assert_eq!(read, expected, "{name}, {ranks} ranks");
        }
        assert_eq!(process.call("ncclAllGather", [from, to, 4, 1, world, 0]), 0);
        let mut all = vec![9; 4 * ranks];
        process.read(&mut all, to);
        assert_eq!(all, kept.repeat(ranks));
        assert_eq!(process.call1("ncclCommDestroy", world), 0);
        assert_eq!(process.call("ncclBcast", [from, 4, 1, 0, world, 0]), 4);
    }
}

#[test]
fn only_buffers_that_a_collective_writes_are_forgotten() {
    if !is_dry() {
        run_dry("libraries::only_buffers_that_a_collective_writes_are_forgotten", &settings());
        return;
    }
    let process = Process::new();
    let world = communicator(&process, 8, 1).expect("a communicator");
    let [from, to] = [(); 2].map(|()| process.allocate(4096).expect("it fits"));
    // Four elements of one byte; the sum.
    let (elements, bytes, sum) = (4, 1, 0);
    let reduce = |root| process.call("ncclReduce", [from, to, elements, bytes, sum, root, world, 0]);
    let send = || process.call("ncclSend", [from, elements, bytes, 0, world, 0]);
    let receive = || process.call("ncclRecv", [to, elements, bytes, 0, world, 0]);
    let kept = [7; 4];
    for (collective, expected) in [
        (&send as &dyn Fn() -> i32, kept),
        (&|| reduce(0), kept),
        (&|| reduce(1), [0; 4]),
        (&receive, [0; 4]),
    ] {
        for address in [from, to, to + 4] {
            process.copy(address, &mut kept.clone());
        }
        assert_eq!(collective(), 0);
        let read = [from, to, to + 4].map(|address| {
            let mut read = [9; 4];
            process.read(&mut read, address);
            read
        });
        assert_eq!(read, [kept, expected, kept]);
    }
    assert_eq!(process.call("ncclSend", [from, elements, 99, 0, world, 0]), 4);
    assert_eq!(process.call("ncclRecv", [to, usize::MAX, 8, 0, world, 0]), 4);
}

#[test]
fn communicators_are_split_and_made_for_all_devices() {
    if !is_dry() {
        let mut several = settings().memory(16 << 30);
        several.devices = 3;
        run_dry("libraries::communicators_are_split_and_made_for_all_devices", &several);
        return;
    }
    let process = Process::new();
    let all = |devices: &[i32], named: bool| {
        let mut handles = vec![0_usize; devices.len()];
        let (at, names) = (handles.as_mut_ptr().expose_provenance(), devices.as_ptr().expose_provenance());
        let code = process.call("ncclCommInitAll", [at, devices.len(), if named { names } else { 0 }]);
        if code == 0 { Ok(handles) } else { Err(code) }
    };
    let numbers = |handle| {
        ["ncclCommCount", "ncclCommUserRank", "ncclCommCuDevice"].map(|name| {
            let mut number = -1_i32;
            assert_eq!(process.call2(name, handle, (&raw mut number).expose_provenance()), 0, "{name}");
            number
        })
    };
    let created = all(&[0; 3], false).expect("three devices");
    assert!(created.into_iter().map(numbers).eq([[3, 0, 0], [3, 1, 1], [3, 2, 2]]));
    let created = all(&[2, 0], true).expect("two devices");
    assert!(created.iter().copied().map(numbers).eq([[2, 0, 2], [2, 1, 0]]));
    assert_eq!([all(&[0; 4], false), all(&[0, 3], true)], [const { Err(101) }; 2]);

    let split = |color: i32, key: usize| {
        let mut part = 1_usize;
        let at = (&raw mut part).expose_provenance();
        let color = usize::try_from(color.cast_unsigned()).expect("64 bits");
        assert_eq!(process.call("ncclCommSplit", [created[0], color, key, at, 0]), 0);
        part
    };
    // The part is on the device of the whole, and its rank is the key if that is one.
    assert_eq!([1, 5].map(|key| numbers(split(3, key))), [[2, 1, 2], [2, 0, 2]]);
    assert_eq!(split(-1, 0), 0);
    assert_eq!(process.call1("ncclCommDestroy", created[0]), 0);
    assert_eq!(process.call("ncclCommSplit", [created[0], 0, 0, 0, 0]), 4);
}

#[test]
fn cudnn_names_its_version_in_parts() {
    if !is_dry() {
        run_dry("libraries::cudnn_names_its_version_in_parts", &settings());
        return;
    }
    let process = Process::new();
    let parts = [0, 1, 2].map(|part| {
        let mut value = 0_i32;
        let at = (&raw mut value).expose_provenance();
        assert_eq!(process.call2("cudnnGetProperty", part, at), 0);
        value
    });
    assert_eq!(parts, [9, 19, 0]);
}

#[test]
fn workspaces_of_solvers_are_near_to_measured_ones() {
    if !is_dry() {
        let folder = run_dry("libraries::workspaces_of_solvers_are_near_to_measured_ones", &settings());
        let report = std::fs::read_to_string(folder.path().join("answers.json")).expect("the report");
        assert!(report.contains("\"solver_workspaces_estimated\": 8, "), "{report}");
        return;
    }
    let process = Process::new();
    let handle = process.created("cusolverDnCreate");
    let mut elements = 0_i32;
    let at = (&raw mut elements).expose_provenance();
    assert_eq!(process.call("cusolverDnDgeqrf_bufferSize", [handle, 300, 200, 0, 300, at]), 0);
    assert_eq!(elements, 786_432);
    // More than 31 bits: `CUSOLVER_STATUS_INVALID_VALUE`.
    assert_eq!(process.call("cusolverDnSsyevd_bufferSize", [handle, 1, 0, 40_000, 0, 40_000, 0, at]), 3);
    let (m, n) = (4096, 100);
    let jacobi = |economy| [handle, 1, economy, m, n, 0, m, 0, 0, m, 0, n, at, 0];
    for (economy, measured) in [(0, 3_635_360), (1, 1_585_440)] {
        assert_eq!(process.call("cusolverDnSgesvdj_bufferSize", jacobi(economy)), 0);
        assert_eq!(elements, measured);
    }
    // As many bytes for complex numbers of two `f64` as for `float`.
    for (function, measured) in [("cusolverDnSpotrf_bufferSize", 1056), ("cusolverDnZpotrf_bufferSize", 264)]
    {
        assert_eq!(process.call(function, [handle, 0, 1000, 0, 1000, at]), 0);
        assert_eq!(elements, measured);
    }
    let mut sizes = [0_usize, 7];
    let (device, host) = (sizes.as_mut_ptr().expose_provenance(), (&raw mut sizes[1]).expose_provenance());
    // Of `float` (0), with its values as `float`.
    let any_type = [handle, 0, 1, 0, 1000, 0, 0, 1000, 0, 0, 0, device, host];
    assert_eq!(process.call("cusolverDnXsyevd_bufferSize", any_type), 0);
    assert_eq!(sizes, [4 * 4_159_987, 0]);
    assert_eq!(process.call("cusolverDnSgesvd_bufferSize", [handle, 100, 8, at]), 0);
    assert_eq!(elements, 821_248);
    assert_ne!(process.created("cusparseCreate"), 0);
    let output = std::env::var_os(OUTPUT).expect("the folder");
    process.report(&std::path::Path::new(&output).join("answers.json"));
}

#[test]
fn a_program_of_nvrtc_is_a_kernel_that_does_nothing() {
    if !is_dry() {
        run_dry("libraries::a_program_of_nvrtc_is_a_kernel_that_does_nothing", &settings());
        return;
    }
    let process = Process::new();
    let program = process.created("nvrtcCreateProgram");
    assert_eq!(process.call("nvrtcCompileProgram", [program, 0, 0]), 0);
    let (mut bytes, mut image) = (0_usize, [7_u8; 2]);
    assert_eq!(process.call2("nvrtcGetCUBINSize", program, (&raw mut bytes).expose_provenance()), 0);
    assert_eq!(process.call2("nvrtcGetCUBIN", program, image.as_mut_ptr().expose_provenance()), 0);
    assert_eq!((bytes, image), (1, [0, 7]));
    let module = process.created("cuModuleLoadData");
    let mut function = 0_usize;
    assert_eq!(process.call("cuModuleGetFunction", [(&raw mut function).expose_provenance(), module, 0]), 0);
    assert_eq!(process.call1("cuLaunchKernel", function), 0);
}

#[test]
fn a_product_of_sparse_matrices_has_elements() {
    if !is_dry() {
        run_dry("libraries::a_product_of_sparse_matrices_has_elements", &settings());
        return;
    }
    let process = Process::new();
    let matrix = |rows, columns, elements| {
        let mut handle = 0_usize;
        let at = (&raw mut handle).expose_provenance();
        let arguments = [at, rows, columns, elements, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(process.call("cusparseCreateCsr", arguments), 0);
        handle
    };
    let [a, b, c] = [matrix(4, 100, 200), matrix(100, 5, 5), matrix(4, 5, 0)];
    let mut bytes = 9_usize;
    let workspace = (&raw mut bytes).expose_provenance();
    let arguments = [0, 0, 0, 0, a, b, 0, c, 0, 0, 0, workspace, 0];
    assert_eq!(process.call("cusparseSpGEMM_compute", arguments), 0);
    let mut sizes = [0_i64; 3];
    let [rows, columns, elements] = [0, 1, 2].map(|index| (&raw mut sizes[index]).expose_provenance());
    assert_eq!(process.call("cusparseSpMatGetSize", [c, rows, columns, elements]), 0);
    assert_eq!((sizes, bytes), ([4, 5, 10], 0));
    assert_eq!(process.call1("cusparseDestroySpMat", c), 0);
    assert_eq!(process.call("cusparseSpMatGetSize", [c, rows, columns, elements]), 3);
}

#[test]
fn a_sum_of_sparse_matrices_has_the_elements_of_both() {
    if !is_dry() {
        let folder = run_dry("libraries::a_sum_of_sparse_matrices_has_the_elements_of_both", &settings());
        let report = std::fs::read_to_string(folder.path().join("answers.json")).expect("the report");
        assert!(report.contains("\"products_assumed\": {\"a thread without a program\": 1}"), "{report}");
        return;
    }
    let process = Process::new();
    let (mut bytes, mut elements) = (9_usize, 0_i32);
    let (workspace, count) = ((&raw mut bytes).expose_provenance(), (&raw mut elements).expose_provenance());
    let sizes = [0, 10, 5, 0, 0, 12, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, workspace];
    assert_eq!(process.call("cusparseDcsrgeam2_bufferSizeExt", sizes), 0);
    let sum = |elements| [0, 10, 5, 0, 12, 0, 0, 0, 7, 0, 0, 0, 0, elements, 0];
    assert_eq!(process.call("cusparseXcsrgeam2Nnz", sum(count)), 0);
    assert_eq!((bytes, elements), (0, 19));
    let output = std::env::var_os(OUTPUT).expect("the folder");
    process.report(&std::path::Path::new(&output).join("answers.json"));
    assert_eq!(process.call("cusparseXcsrgeam2Nnz", sum(0)), 1, "no place for the result");
}

#[test]
fn batches_of_matrices_have_no_wrong_argument() {
    if !is_dry() {
        run_dry("libraries::batches_of_matrices_have_no_wrong_argument", &settings());
        return;
    }
    let process = Process::new();
    for (name, arguments_before) in
        [("cublasSgeqrfBatched", 6), ("cublasCgelsBatched", 9), ("cublasZgetrsBatched", 9)]
    {
        let mut info = 7_i32;
        let mut arguments = [0; 20];
        arguments[arguments_before] = (&raw mut info).expose_provenance();
        assert_eq!((process.call(name, arguments), info), (0, 0), "{name}");
        assert_eq!(process.call(name, [0; 20]), 0, "{name}");
    }
}
