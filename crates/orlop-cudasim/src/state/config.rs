//! [`Config`]: what tests configure.

/// What tests configure; see the fields of `control::Configuration`.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) version: i32,
    pub(crate) seed: u64,
    pub(crate) call_ns: u64,
    pub(crate) op_ns: u64,
    pub(crate) bytes_per_us: u64,
    pub(crate) granularity: usize,
    pub(crate) pinned_limit: u64,
    pub(crate) has_poison: bool,
    pub(crate) has_pools: bool,
    pub(crate) has_vmm: bool,
    pub(crate) has_rdma: bool,
    /// The `CU_MEM_HANDLE_TYPE_*` bits by which pages are exported.
    pub(crate) page_handle_types: i32,
    pub(crate) has_peer_access: bool,
    pub(crate) frees_wait: bool,
    pub(crate) pools_wait: bool,
    pub(crate) modules_wait: bool,
    pub(crate) shares_access: bool,
    pub(crate) has_unique_handles: bool,
    /// The number of operations that a stream takes before a submission waits.
    pub(crate) launch_queue: usize,
    pub(crate) devices: Vec<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            version: 13_000,
            seed: 0,
            call_ns: 200,
            op_ns: 2_000,
            bytes_per_us: 20_000,
            granularity: 2 << 20,
            pinned_limit: u64::MAX,
            has_poison: true,
            has_pools: true,
            has_vmm: true,
            has_rdma: true,
            page_handle_types: 1,
            has_peer_access: false,
            frees_wait: false,
            pools_wait: false,
            modules_wait: false,
            shares_access: false,
            has_unique_handles: false,
            launch_queue: 1024,
            devices: vec![1 << 30],
        }
    }
}
