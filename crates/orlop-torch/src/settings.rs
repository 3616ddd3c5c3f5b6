//! The settings of the allocators: one value for all devices, fixed by the first request.

use crate::error::TorchError;
use orlop_cuda::{CudaDevice, CudaMemory};
use orlop_device::{DeviceAllocator, DeviceBacking as _, DeviceConfig, Policy, TorchConf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// How a device's allocator is made.
#[derive(Debug, Clone, Default)]
pub(crate) struct AllocatorSettings {
    policy: PolicyChoice,
    /// The maximum of reserved bytes.
    limit: Option<u64>,
}

#[derive(Debug, Clone)]
enum PolicyChoice {
    /// orlop's policy, with another [`Extensions::hold_to_peak`](orlop_device::Extensions::hold_to_peak).
    Orlop {
        hold_to_peak: Option<u32>,
    },
    Torch(Box<TorchConf>),
}

impl Default for PolicyChoice {
    fn default() -> Self {
        Self::Orlop { hold_to_peak: Policy::orlop().extensions.hold_to_peak }
    }
}

static GIVEN: Mutex<Option<AllocatorSettings>> = Mutex::new(None);
static FIXED: OnceLock<AllocatorSettings> = OnceLock::new();

impl AllocatorSettings {
    /// Reads the name of a policy and a limit in bytes, of which 0 is none.
    pub(crate) fn parse(policy: &str, limit: u64) -> Result<Self, TorchError> {
        let unknown = || TorchError::UnknownPolicy(policy.into());
        let policy = match policy.split_once(':').unwrap_or((policy, "")) {
            ("orlop", "") => PolicyChoice::default(),
            ("orlop", setting) => {
                let share = setting.strip_prefix("hold_to_peak=").ok_or_else(unknown)?;
                let hold_to_peak = match share {
                    "off" => None,
                    share => Some(share.parse().ok().filter(|power| *power < 64).ok_or_else(unknown)?),
                };
                PolicyChoice::Orlop { hold_to_peak }
            }
            ("torch", conf) => PolicyChoice::Torch(Box::new(conf.parse().map_err(|_| unknown())?)),
            _ => return Err(unknown()),
        };
        Ok(Self { policy, limit: (limit > 0).then_some(limit) })
    }

    /// Gives the settings of allocators that do not exist yet.
    pub(crate) fn give(self) -> Result<(), TorchError> {
        if FIXED.get().is_some() {
            return Err(TorchError::InUse);
        }
        *GIVEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(self);
        Ok(())
    }

    /// Returns the settings; from then on they stay as they are.
    pub(crate) fn fixed() -> &'static Self {
        let given = || GIVEN.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default();
        FIXED.get_or_init(given)
    }

    /// Creates the allocator of a device.
    pub(crate) fn build(&self, device: &CudaDevice) -> Result<DeviceAllocator<CudaMemory>, TorchError> {
        let config = DeviceConfig::from_env();
        let config = self.limit.map_or(config.clone(), |limit| config.limit(limit));
        let (memory, policy) = match &self.policy {
            PolicyChoice::Orlop { hold_to_peak } => {
                let memory = CudaMemory::new(device)?;
                let has_pages = memory.page_granularity().is_some();
                let mut policy = if has_pages { Policy::orlop() } else { Policy::orlop_without_pages() };
                policy.extensions.hold_to_peak = *hold_to_peak;
                (memory, policy)
            }
            PolicyChoice::Torch(conf) if conf.expandable_segments => {
                (CudaMemory::new(device)?, Policy::torch(conf))
            }
            PolicyChoice::Torch(conf) => (CudaMemory::in_regions(device), Policy::torch(conf)),
        };
        Ok(config.build(memory, policy)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_names() {
        let parsed = |policy| AllocatorSettings::parse(policy, 1 << 30);
        let share = |policy| match parsed(policy).map(|read| read.policy) {
            Ok(PolicyChoice::Orlop { hold_to_peak }) => hold_to_peak,
            other => panic!("{policy}: {other:?}"),
        };
        assert_eq!(share("orlop"), Policy::orlop().extensions.hold_to_peak);
        assert_eq!([share("orlop:hold_to_peak=3"), share("orlop:hold_to_peak=off")], [Some(3), None]);
        let torch = parsed("torch:expandable_segments:True").map(|read| read.policy);
        assert!(matches!(torch, Ok(PolicyChoice::Torch(conf)) if conf.expandable_segments));
        for unknown in ["", "bfc", "orlop:fast", "orlop:hold_to_peak=64", "torch:max_split_size_mb:x"] {
            let error = parsed(unknown).map(drop);
            assert!(matches!(error, Err(TorchError::UnknownPolicy(_))), "{unknown}: {error:?}");
        }
    }
}
