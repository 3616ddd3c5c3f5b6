//! The init function of this crate: it registers its allocators by name, as any backend outside `orlop-alloc`
//! does.

use crate::{DeviceConfig, HostPages, Policy};
use orlop_alloc::{AllocatorRef, Error, Result};
use orlop_context::AllocatorConfig;
use orlop_context::registry::{Factory, Registry};

/// Registers the allocators of this crate that a name is enough for. Call it before the first allocation.
///
/// | name | engine | priority | limit |
/// |---|---|---|---|
/// | `host-pages` | [`DeviceAllocator`] over [`HostPages`] (Linux) | 25 | required, multiples of 2 MiB |
///
/// The limit is the size of the device: its shares, and the limit of reserved bytes and the pre-allocation
/// within it, are those of the environment variables of [`DeviceConfig`].
///
/// [`DeviceAllocator`]: crate::DeviceAllocator
///
/// ```
/// use orlop_context::AllocatorConfig;
/// use orlop_context::registry::Registry;
///
/// let registry = Registry::with_builtin();
/// orlop_device::register(&registry);
/// # if cfg!(any(not(target_os = "linux"), miri)) {
/// #     return Ok(());
/// # }
/// let allocator = registry.make("host-pages", &AllocatorConfig::new().limit(64 << 20))?;
/// assert_eq!(allocator.name(), "host-pages");
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[track_caller]
pub fn register(registry: &Registry) {
    // Where there are no such pages there is no factory.
    let pages = cfg!(all(target_os = "linux", not(miri))).then(|| {
        Factory::new("host-pages", 25, host_pages).with_backing(AllocatorConfig::backing_or_default)
    });
    registry.register_all(pages);
}

fn host_pages(options: &AllocatorConfig) -> Result<AllocatorRef> {
    let limit = options.require_limit("a number of bytes: host-pages is a device of that size")?;
    options.refuse_backing("a setting of host-pages: it has memory of its own")?;
    options.refuse_node("a setting of host-pages: its pages are where they were last moved to")?;
    options.refuse_bfc_settings()?;
    // It is a device of whole granules: no more of them than the limit allows.
    let size = limit - limit % HostPages::GRANULE;
    if size == 0 {
        return Err(Error::Configuration {
            variable: "limit",
            value: limit.to_string().into(),
            expected: "at least 2 MiB: host-pages has pages of that size",
        });
    }
    let policy = Policy { name: "host-pages", ..Policy::orlop() };
    let allocator = DeviceConfig::from_env().build(HostPages::new(size as u64)?, policy)?;
    Ok(AllocatorRef::with_statistics(allocator, options.statistics).erase())
}
