//! Messages of every form, with the numbers that they contain.

use super::*;

const GIB: u64 = 1 << 30;
pub(super) const MIB: u64 = 1 << 20;

/// A size as messages round it: two decimals of a GiB.
pub(super) fn gib(hundredths: u64) -> Option<u64> {
    Some(u64::try_from(u128::from(hundredths) * u128::from(GIB) / 100).unwrap())
}

/// Reads the only message of a text.
pub(super) fn one(text: &str) -> OutOfMemoryMessage {
    let mut found = OutOfMemoryMessage::find_all(text);
    assert_eq!(found.len(), 1, "{text}: {found:?}");
    found.remove(0)
}

#[test]
fn pytorch_until_2_0() {
    let message = one(
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 1; 7.79 GiB total capacity; 6.20 \
         GiB already allocated; 14.44 MiB free; 6.32 GiB reserved in total by PyTorch) If reserved memory is \
         >> allocated memory try setting max_split_size_mb to avoid fragmentation.",
    );
    assert_eq!((message.framework, message.device.as_deref()), (Framework::Torch, Some("GPU 1")));
    assert_eq!((message.requested, message.total, message.live), (Some(20 * MIB), gib(779), gib(620)));
    assert_eq!(message.unused, Some(gib(632).unwrap() - gib(620).unwrap()));
    let oldest = one(
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 7.79 GiB total capacity; 6.20 GiB already \
         allocated; 1.00 GiB free; 100.00 MiB cached)",
    );
    assert_eq!((oldest.free, oldest.unused), (Some(GIB), Some(100 * MIB)));
    // 2 GiB do not fit beside 6.2 GiB in what is left of 7.79 GiB.
    assert!(oldest.verdict().remedy.starts_with("No allocator could have served it: at least "));
}

/// As people paste them: from the request on, or with the first words on a line of their own.
#[test]
fn messages_without_their_first_words() {
    let first = "Tried to allocate 20.00 MiB (GPU 0; 1.96 GiB total capacity; 1.24 GiB already allocated; \
                 2.88 MiB free; 1.25 GiB reserved in total by PyTorch)";
    let second = "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is \
                  free. Of the allocated memory 6.00 GiB is allocated by PyTorch, and 512.00 MiB is \
                  reserved by PyTorch but unallocated.";
    let message = one(first);
    assert_eq!((message.framework, message.device.as_deref()), (Framework::Torch, Some("GPU 0")));
    assert_eq!((message.requested, message.total, message.live), (Some(20 << 20), gib(196), gib(124)));
    let message = one(&format!("CUDA out of memory.\n{second}"));
    assert_eq!((message.requested, message.total, message.live), (gib(200), gib(800), gib(600)));
    let both = OutOfMemoryMessage::find_all(&format!("{first}\n{second}"));
    assert_eq!(both.iter().map(|message| message.total).collect::<Vec<_>>(), [gib(196), gib(800)]);
    // Whole messages are one each, and a request without numbers of a device is none.
    let whole =
        format!("RuntimeError: CUDA out of memory. {first}\nRuntimeError: CUDA out of memory. {second}");
    assert_eq!(OutOfMemoryMessage::find_all(&whole).len(), 2);
    assert!(OutOfMemoryMessage::find_all("Tried to allocate 20.00 MiB on the heap").is_empty());
}

#[test]
fn pytorch_from_2_1() {
    let text = |capacity: &str| {
        format!(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 35.60 GiB. GPU 0 has a total \
             {capacity} of 79.33 GiB of which 26.16 GiB is free. Process 1 has 53.16 GiB memory in use. Of \
             the \
             allocated memory 11.97 GiB is allocated by PyTorch, and 40.69 GiB is reserved by PyTorch but \
             unallocated."
        )
    };
    for capacity in ["capacity", "capacty"] {
        let message = one(&text(capacity));
        assert_eq!((message.total, message.free), (gib(7933), gib(2616)));
        assert_eq!((message.live, message.unused), (gib(1197), gib(4069)));
        // In a container a process does not know its own number.
        assert_eq!((message.this_process, message.other_processes), (gib(5316), 0));
        let verdict = message.verdict();
        assert!(verdict.remedy.contains("66.8 GiB were free, but not in one piece"), "{}", verdict.remedy);
        assert!(verdict.remedy.contains("expandable_segments:True"));
        assert!(verdict.next.contains("_record_memory_history"));
    }
}

#[test]
fn other_processes_and_limits_are_told_apart() {
    let others = one(
        "CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 23.69 GiB of which \
        1.50 \
         GiB is free. Process 77 has 12.00 GiB memory in use. Process 78 has 2.00 GiB memory in use. \
         Including \
         non-PyTorch memory, this process has 8.19 GiB memory in use. Of the allocated memory 7.00 GiB is \
         allocated by PyTorch, with 1.25 GiB allocated in private pools (e.g., CUDA Graphs), and 512.00 MiB \
         is \
         reserved by PyTorch but unallocated.",
    );
    assert_eq!((others.other_processes, others.this_process), (14 * GIB, gib(819)));
    assert_eq!(others.private_pools, gib(125));
    assert!(others.verdict().remedy.starts_with("Other processes hold 14.0 GiB: stop them"));
    let limit = one(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which \
        70.00 \
         GiB is free. 10.00 GiB allowed; Of the allocated memory 9.00 GiB is allocated by PyTorch, and \
         256.00 \
         MiB is reserved by PyTorch but unallocated.",
    );
    assert_eq!(limit.limit, Some(10 * GIB));
    assert_eq!(
        limit.verdict().remedy,
        "The limit of the process is 10.0 GiB: at least 1.00 GiB must go, or raise it."
    );
}

/// In a container, with a line of the launcher after the message.
#[test]
fn names_of_processes_are_no_processes() {
    let message = one(
        "CUDA out of memory. Tried to allocate 80.00 GiB. GPU 0 has a total capacity of 79.33 GiB of which \
         26.16 GiB is free. Process 1 has 53.16 GiB memory in use. Of the allocated memory 11.97 GiB is \
         allocated by PyTorch, and 40.69 GiB is reserved by PyTorch but unallocated.\nProcess \
         SpawnProcess-1: has 3 errors",
    );
    assert_eq!((message.this_process, message.other_processes), (gib(5316), 0));
    assert!(message.verdict().remedy.starts_with("No allocator"), "{}", message.verdict().remedy);
    assert_eq!(scan::size_at_start("15.06G of"), None);
    assert_eq!(scan::size_at_start("4096 of"), Some(4096));
}

#[test]
fn other_devices_of_pytorch() {
    let mps = one(
        "RuntimeError: MPS backend out of memory (MPS allocated: 9.05 GB, other allocations: 2.34 KB, max \
         allowed: 9.07 GB). Tried to allocate 1.20 GB on private pool.",
    );
    assert_eq!((mps.requested, mps.live, mps.limit), (gib(120), gib(905), gib(907)));
    assert!(mps.verdict().remedy.contains("must go"), "{}", mps.verdict().remedy);
    let beside = one(
        "RuntimeError: MPS backend out of memory (MPS allocated: 5.00 GB, other allocations: 12.90 GB, max \
         allowed: 18.13 GB). Tried to allocate 256.00 MB on private pool.",
    );
    assert!(beside.verdict().remedy.contains("must go"), "{}", beside.verdict().remedy);
    let host = one(
        "RuntimeError: [enforce fail at alloc_cpu.cpp:83] err == 0. DefaultCPUAllocator: can't allocate \
         memory: you tried to allocate 8000000000 bytes. Error code 12 (Cannot allocate memory)",
    );
    assert_eq!((host.framework, host.requested), (Framework::TorchCpu, Some(8_000_000_000)));
}

#[test]
fn jax_and_tensorflow() {
    let jax = one(
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate \
         25769803776 bytes.",
    );
    assert_eq!((jax.framework, jax.requested), (Framework::Xla, Some(24 * GIB)));
    let bfc =
        one("W bfc_allocator.cc:479] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.91GiB \
        (rounded to \
         2048000000)requested by op MatMul\nFree  at 7f2a00000000 of size 256 next 1\n\
         Free  at 7f2a40000000 of size 1073741824 next 7\nSum Total of in-use chunks: 5.00GiB\n\
         total_region_allocated_bytes_: 8589934592 memory_limit_: 8589934592 available bytes: 0\nStats: \n\
         Limit:                      8589934592\nInUse:                      5368709120\n\
         LargestFreeBlock:                    0\n");
    assert_eq!((bfc.device.as_deref(), bfc.requested), (Some("GPU_0_bfc"), Some(2_048_000_000)));
    assert_eq!((bfc.total, bfc.live, bfc.unused), (Some(8 * GIB), Some(5 * GIB), Some(3 * GIB)));
    assert_eq!(bfc.largest_unused, Some(GIB));
    let remedy = bfc.verdict().remedy;
    assert!(
        remedy.contains("the largest piece 1.00 GiB: set TF_GPU_ALLOCATOR=cuda_malloc_async"),
        "{remedy}"
    );
}

/// The driver had room and refused: no setting of the allocator would have helped.
#[test]
fn a_driver_that_refuses_with_room_is_not_fragmentation() {
    let refused = |text: &str| one(text).verdict().remedy;
    for text in [
        "CUDA out of memory. Tried to allocate 12.50 MiB (GPU 0; 10.92 GiB total capacity; 8.57 MiB already \
         allocated; 9.28 GiB free; 4.68 MiB cached)",
        "HIP out of memory. Tried to allocate 432.00 MiB. GPU 0 has a total capacity of 15.92 GiB of which \
        7.12 \
         GiB is free. Of the allocated memory 8.08 GiB is allocated by PyTorch, and 321.96 MiB is reserved \
         by \
         PyTorch but unallocated.",
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacty of 4.00 GiB of which \
        2.80 GiB \
         is free. Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by \
         PyTorch \
         but unallocated.",
    ] {
        let remedy = refused(text);
        assert!(remedy.starts_with("No setting of PyTorch helps: the driver refused with"), "{remedy}");
    }
    let full = refused(
        "CUDA out of memory. Tried to allocate 32.00 MiB. GPU 0 has a total capacty of 4.00 GiB of which \
        41.56 \
         MiB is free. Including non-PyTorch memory, this process has 3.44 GiB memory in use. Of the \
         allocated \
         memory 2.58 GiB is allocated by PyTorch, and 1.90 MiB is reserved by PyTorch but unallocated.",
    );
    assert!(full.starts_with("The memory of the device is nearly full"), "{full}");
    // Within its limit the process had none free.
    let limited = refused(
        "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which \
        70.00 \
         GiB is free. 10.00 GiB allowed; Of the allocated memory 7.00 GiB is allocated by PyTorch, and 2.50 \
         GiB \
         is reserved by PyTorch but unallocated.",
    );
    assert!(limited.contains("not in one piece"), "{limited}");
}

/// Much is reserved and unused: it would have served the request, had it been in one piece.
#[test]
fn what_is_reserved_and_unused_comes_first() {
    for free in ["2.05", "2.50"] {
        let message = one(&format!(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of \
            which \
             {free} GiB is free. Of the allocated memory 60.00 GiB is allocated by PyTorch, and 16.00 GiB is \
             reserved by PyTorch but unallocated."
        ));
        let remedy = message.verdict().remedy;
        assert!(remedy.contains("not in one piece: set PYTORCH_CUDA_ALLOC_CONF"), "{remedy}");
    }
}

#[test]
fn programs_of_xla() {
    let gpu = one("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to \
        allocate 4770354232 bytes.\nBufferAssignment OOM Debugging.\nBufferAssignment stats:\n             \
        parameter allocation:  372.76MiB\n              constant allocation:    48.5KiB\n        \
        maybe_live_out allocation:    9.64GiB\n     preallocated temp allocation:    4.44GiB\n              \
           \
        total allocation:   14.44GiB\n              total fragmentation:  680.30MiB (4.60%)\n");
    let program = gpu.program.unwrap();
    assert_eq!((Some(program.total), program.results), (gib(1444), gib(964)));
    assert!(gpu.verdict().remedy.starts_with("The compiled program needs 14.4 GiB: 373 MiB parameters"));
    let tpu =
        one("RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. \
        Used 63.80G of 30.75G hbm. Exceeded hbm capacity by 33.05G.\n\nTotal hbm usage >= 65.05G:\n    \
        reserved \
        1.25G\n    program          63.80G\n    arguments            0B\n\nProgram hbm requirement \
        63.80G:\n    \
        HLO temp         63.79G (100.0% utilization: Unpadded (63.58G) Padded (63.58G), 0.3% fragmentation \
        (210.89M))");
    assert_eq!((tpu.device.as_deref(), tpu.total), (Some("hbm"), gib(3075)));
    assert_eq!(tpu.program.and_then(|program| program.temporaries), gib(6379));
    assert!(tpu.verdict().remedy.starts_with("The compiled program needs 63.8 GiB of 30.8 GiB"));
    let old =
        one("Execution of replica 0 failed: Resource exhausted: Out of memory while trying to allocate \
        5520758552 bytes.");
    assert_eq!(old.requested, Some(5_520_758_552));
    let run =
        one("RESOURCE_EXHAUSTED: Attempting to allocate 1.50G. That was not possible. There are 1.23G \
        free.; (0x0x0_HBM0)");
    assert_eq!((run.requested, run.free), (gib(150), gib(123)));
    assert!(run.verdict().remedy.contains("nearly full"));
}

#[test]
fn tensors_of_tensorflow() {
    let text = "ResourceExhaustedError: OOM when allocating tensor with shape[64,112,112,64] and type float \
    on \
        /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Conv2D]";
    let tensor = one(text);
    assert_eq!((tensor.device.as_deref(), tensor.requested), (Some("GPU_0_bfc"), Some(196 * MIB)));
    let scalar = one("OOM when allocating tensor with shape[] and type half on d by allocator cpu");
    assert_eq!(scalar.requested, Some(2));
    // After the dump of the same request it says nothing new.
    let dump =
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 196.00MiB (rounded to 205520896)\n";
    assert_eq!(one(&[dump, text].concat()).requested, Some(196 * MIB));
    for hostile in
        ["shape[9999999999,9999999999] and type float on", "shape[1 and type", "shape[é] and type x"]
    {
        let text = format!("OOM when allocating tensor with {hostile} by allocator GPU_0_bfc");
        assert!(OutOfMemoryMessage::find_all(&text).is_empty());
    }
}

#[test]
fn engines_and_libraries() {
    let vllm =
        one("ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB \
        KV cache is needed, which is larger than the available KV cache memory (9.87 GiB). Based on the \
        available memory, the estimated maximum model length is 80848. Try increasing");
    assert_eq!((vllm.requested, vllm.free), (Some(16 * GIB), gib(987)));
    assert!(vllm.verdict().remedy.starts_with("--max-model-len 80848 fits, or raise"));
    assert!(vllm.verdict().next.contains("orlop kv"));
    let older =
        one("The model's max seq len (163840) is larger than the maximum number of tokens that can be \
        stored in KV cache (13360). Try increasing");
    assert_eq!((older.framework, older.fitting_tokens), (Framework::Vllm, Some(13_360)));
    let none = one("ValueError: No available memory for the cache blocks. Try increasing");
    assert_eq!(none.framework, Framework::Vllm);
    let ort = one("bfc_arena.cc:342 Failed to allocate memory for requested buffer of size 1073741824");
    assert_eq!((ort.framework, ort.requested), (Framework::OnnxRuntime, Some(GIB)));
    assert!(ort.verdict().next.contains("orlop plan"));
    let cublas = one("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`");
    assert_eq!((cublas.framework, cublas.device.as_deref()), (Framework::CudaLibrary, Some("cuBLAS")));
    let candle = one("Error: DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")");
    assert_eq!(candle.framework, Framework::Cuda);
    let twice =
        one("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in https://docs.nvidia.com");
    assert_eq!((twice.framework, twice.times), (Framework::Cuda, 1));
    let llama =
        one("ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.00 MiB on device 1: cudaMalloc \
        failed: out of memory");
    assert_eq!((llama.device.as_deref(), llama.requested), (Some("GPU 1"), Some(8 * GIB)));
    let echo = "0.1.2 E ggml_gallocr_reserve_n_impl: failed to allocate CUDA1 buffer of size 10345253120\n";
    let first = "E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9866.00 MiB on device 1: \
         cudaMalloc failed: out of memory\n";
    assert_eq!(one(&[first, echo].concat()).device.as_deref(), Some("GPU 1"));
    assert_eq!(one(&["CUDA error: out of memory\n", echo].concat()).requested, Some(10_345_253_120));
    let alone = one(echo);
    assert_eq!((alone.device.as_deref(), alone.requested), (Some("CUDA1"), Some(10_345_253_120)));
    assert!(alone.verdict().remedy.contains("--n-gpu-layers"));
    let vulkan = one("ggml_vulkan: Device memory allocation of size 3959422976 failed.\n");
    assert_eq!((vulkan.framework, vulkan.requested), (Framework::LlamaCpp, Some(3_959_422_976)));
    let host = one("ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 4096");
    assert_eq!(host.device.as_deref(), Some("CPU"));
    assert!(OutOfMemoryMessage::find_all("CPU model buffer of size 4096").is_empty());
}

#[test]
fn a_log_has_several_and_equal_ones_are_one() {
    let cuda = |gib: u64| {
        format!(
            "[rank0]: CUDA out of memory. Tried to allocate {gib}.00 GiB. GPU 0 has a total capacity of \
            80.00 GiB \
             of which 1.00 GiB is free.\n"
        )
    };
    let log = [cuda(2), cuda(2), cuda(3), "CUDA error: out of memory\n".to_owned()].concat();
    let found = OutOfMemoryMessage::find_all(&log);
    assert_eq!(found.iter().map(|message| message.times).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(found[1].requested, Some(3 * GIB));
    let bare = one("RuntimeError: CUDA error: out of memory");
    assert!(bare.verdict().remedy.starts_with("The message has no numbers"));
    assert!(OutOfMemoryMessage::find_all("all is well").is_empty());
}

/// Each message is read within a bounded part of the log.
#[test]
fn one_long_line_is_read_in_linear_time() {
    for text in [
        "CUDA_ERROR_OUT_OF_MEMORY ",
        "OOM when allocating tensor with shape[",
        "RESOURCE_EXHAUSTED: ",
        "No available memory for the cache blocks",
    ] {
        assert!(OutOfMemoryMessage::find_all(&text.repeat(20_000)).len() < 2, "{text}");
    }
    let line = |size| {
        format!("OOM when allocating tensor with shape[{size}] and type int8 by allocator GPU_0_bfc\n")
    };
    let log: String = (0..20_000).map(|size| line(size * 256)).collect();
    assert_eq!(OutOfMemoryMessage::find_all(&log).len(), 20_000);
}

#[test]
fn hostile_texts_are_read_without_a_panic() {
    for text in [
        "CUDA out of memory. Tried to allocate",
        "CUDA out of memory. Tried to allocate 99999999999999999999 GiB. GPU 99999999999999999999999 has",
        "CUDA out of memory. Tried to allocate 1..2 GiB (GPU ; total capacity;",
        "CUDA out of memory. Tried to allocate é GiB. Process é has Process has Process 1 has é",
        "ran out of memory trying to allocate ",
        "MPS backend out of memory (MPS allocated: ",
    ] {
        for message in OutOfMemoryMessage::find_all(&text.repeat(3)) {
            assert_eq!(message.verdict().to_string().lines().count(), 3);
        }
    }
}
