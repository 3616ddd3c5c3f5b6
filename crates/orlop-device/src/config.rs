//! The settings of a device allocator, from a builder or from the environment.

use crate::allocator::DeviceAllocator;
use crate::backing::DeviceBacking;
use crate::engine::{DeviceRequest, Engine};
use crate::policy::{Growth, Policy};
use orlop_alloc::{Error, Result};
use orlop_context::AllocatorConfig;
use orlop_core::{ByteSize, StreamId};

const LIMIT: &str = "ORLOP_DEVICE_LIMIT";
const GROWTH: &str = "ORLOP_DEVICE_GROWTH";
const PREALLOCATE: &str = "ORLOP_DEVICE_PREALLOCATE";
const SIZE: &str = "a byte size such as 8GiB, or a share of the device such as 50%";

/// A number of bytes, or a share of the device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeviceShare {
    Bytes(u64),
    Percent(u8),
}

impl DeviceShare {
    fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.trim().parse().ok().filter(|percent| (1..=100).contains(percent));
                percent.map(Self::Percent)
            }
            None => text.parse::<ByteSize>().ok().map(|ByteSize(bytes)| Self::Bytes(bytes)),
        }
    }

    /// Returns the bytes, of a device with `memory` bytes.
    fn of(self, memory: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            // Divided first, so that nothing overflows.
            Self::Percent(percent) => memory / 100 * u64::from(percent),
        }
    }
}

/// The settings of a [`DeviceAllocator`] beside its policy.
///
/// | variable | value |
/// |---|---|
/// | `ORLOP_DEVICE_LIMIT` | [`DeviceConfig::limit`]: a byte size (`8GiB`), or a share of the device (`50%`) |
/// | `ORLOP_DEVICE_GROWTH` | `pages` as far as the policy and the device have them, or `regions` |
/// | `ORLOP_DEVICE_PREALLOCATE` | [`DeviceConfig::preallocate`]: a size or a share, as for the limit |
///
/// An empty variable counts as not set. A value that cannot be parsed is an error when the allocator is
/// built. The factories of devices follow the variables too: `host-pages` of [`register`](crate::register),
/// and those of `orlop-cuda` whose allocators cache.
///
/// ```
/// use orlop_core::Device;
/// use orlop_device::{DeviceConfig, NullDevice, Policy};
///
/// let config = DeviceConfig::new().limit(64 << 20).preallocate(32 << 20);
/// let allocator = config.build(NullDevice::new(Device::cuda(0), 1 << 30), Policy::orlop())?;
/// assert_eq!(allocator.device_stats().reserved_bytes.all.current, 32 << 20);
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceConfig {
    limit: Option<DeviceShare>,
    in_regions: bool,
    preallocated: Option<DeviceShare>,
    /// The first value that could not be read: variable, value, accepted values.
    misread: Option<(&'static str, Box<str>, &'static str)>,
}

impl DeviceConfig {
    /// Creates settings that change nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the environment variables listed at [`DeviceConfig`].
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// Reads the variables listed at [`DeviceConfig`], by a function that returns their values.
    fn from_variables(value_of: impl Fn(&str) -> Option<String>) -> Self {
        let mut config = Self::default();
        let value_of = |name| value_of(name).filter(|value| !value.is_empty());
        for (name, is_limit) in [(LIMIT, true), (PREALLOCATE, false)] {
            let Some(text) = value_of(name) else { continue };
            let share = DeviceShare::parse(&text);
            if share.is_none() {
                config.misread.get_or_insert((name, text.into(), SIZE));
            } else if is_limit {
                config.limit = share;
            } else {
                config.preallocated = share;
            }
        }
        match value_of(GROWTH).as_deref() {
            None | Some("pages") => {}
            Some("regions") => config.in_regions = true,
            Some(other) => _ = config.misread.get_or_insert((GROWTH, other.into(), "pages or regions")),
        }
        config
    }

    /// Limits reserved bytes.
    #[must_use]
    pub fn limit(self, bytes: u64) -> Self {
        Self { limit: Some(DeviceShare::Bytes(bytes)), ..self }
    }

    /// Limits reserved bytes to a share of the device's memory, from 1 to 100 percent; other values count as
    /// the nearest of these.
    #[must_use]
    pub fn limit_percent(self, percent: u8) -> Self {
        Self { limit: Some(DeviceShare::Percent(percent.clamp(1, 100))), ..self }
    }

    /// Grows in regions, where the policy and the device have pages too.
    #[must_use]
    pub fn in_regions(self) -> Self {
        Self { in_regions: true, ..self }
    }

    /// Reserves memory before the first request, contiguously, in the order of the device's default stream.
    /// Requests of more than 1 MiB use it, others before they fail.
    #[must_use]
    pub fn preallocate(self, bytes: u64) -> Self {
        Self { preallocated: Some(DeviceShare::Bytes(bytes)), ..self }
    }

    /// Applies the limit of a factory's configuration, if there is one, in place of the limit that is set.
    #[must_use]
    pub fn overridden_by(self, config: &AllocatorConfig) -> Self {
        match config.limit {
            Some(bytes) => self.limit(bytes as u64),
            None => self,
        }
    }

    /// Creates an allocator over a device, by the rules of a policy and with these settings.
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] for a value that could not be read; the device's failures and
    /// [`DeviceError::OutOfMemory`](crate::DeviceError::OutOfMemory) of the pre-allocation.
    pub fn build<B: DeviceBacking>(&self, backing: B, mut policy: Policy) -> Result<DeviceAllocator<B>> {
        if let Some((variable, value, expected)) = self.misread.clone() {
            return Err(Error::Configuration { variable, value, expected });
        }
        if self.in_regions {
            policy.growth = Growth::Regions;
        }
        let (device, memory) = (backing.device(), backing.memory());
        let mut engine = Engine::new(backing, policy);
        if let Some(limit) = self.limit {
            engine.set_memory_limit(limit.of(memory));
        }
        if let Some(bytes) = self.preallocated {
            let bytes = usize::try_from(bytes.of(memory)).unwrap_or(usize::MAX);
            let block = engine.allocate(DeviceRequest::new(bytes, StreamId::default_of(device)))?;
            engine.free(block)?;
        }
        Ok(DeviceAllocator::over(engine))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::NullDevice;
    use orlop_alloc::{Allocator, Request};
    use orlop_core::Device;

    fn device() -> NullDevice {
        NullDevice::new(Device::cuda(0), 1000 << 20)
    }

    fn read(pairs: &[(&str, &str)]) -> DeviceConfig {
        let value =
            |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
        DeviceConfig::from_variables(value)
    }

    #[test]
    fn settings_are_read_from_variables() {
        assert_eq!(read(&[]), DeviceConfig::new());
        let all = read(&[(LIMIT, "64MiB"), (GROWTH, "regions"), (PREALLOCATE, "1%")]);
        let expected = DeviceConfig { preallocated: Some(DeviceShare::Percent(1)), ..DeviceConfig::new() };
        assert_eq!(all, expected.limit(64 << 20).in_regions());
        assert_eq!(read(&[(LIMIT, ""), (GROWTH, "pages")]), DeviceConfig::new());
        for (name, value) in [(LIMIT, "much"), (LIMIT, "101%"), (GROWTH, "both"), (PREALLOCATE, "-1")] {
            let error = read(&[(name, value)]).build(device(), Policy::orlop()).unwrap_err();
            assert!(matches!(error, Error::Configuration { variable, .. } if variable == name), "{error}");
        }
    }

    #[test]
    fn an_allocator_is_limited_and_has_its_memory_before_the_first_request() {
        for config in [DeviceConfig::new().limit(64 << 20), DeviceConfig::new().limit_percent(10)] {
            let config = config.preallocate(40 << 20);
            for (config, in_pages) in [(config.clone(), true), (config.in_regions(), false)] {
                let allocator = config.build(device(), Policy::orlop()).unwrap().into_ref();
                let stats = allocator.device_stats();
                assert_eq!((stats.reserved_bytes.all.current, stats.allocation.all.current), (40 << 20, 0));
                assert_eq!(stats.segment.all.current, u64::from(!in_pages));
                let calls = stats.num_device_alloc;
                let blocks = [8, 16].map(|mib| allocator.allocate(&Request::new(mib << 20)).unwrap());
                assert_eq!(allocator.device_stats().num_device_alloc, calls, "of the memory that is there");
                assert!(allocator.allocate(&Request::new(200 << 20)).unwrap_err().is_out_of_memory());
                drop(blocks);
            }
        }
        let config = DeviceConfig::new().limit(1 << 20).preallocate(2 << 20);
        assert!(config.build(device(), Policy::orlop()).is_err());
    }
}
