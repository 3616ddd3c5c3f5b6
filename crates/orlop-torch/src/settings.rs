//! The settings of the allocators: one value for all devices, fixed by the first request.

use crate::error::TorchError;
use orlop_cuda::{CudaDevice, CudaMemory};
use orlop_device::{DeviceAllocator, DeviceBacking as _, DeviceConfig, Policy, TorchConf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// How a device's allocator is made.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct AllocatorSettings {
    policy: PolicyChoice,
    /// The maximum of reserved bytes.
    limit: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq)]
enum PolicyChoice {
    #[default]
    Orlop,
    /// orlop's policy, with another [`Extensions::hold_to_peak`](orlop_device::Extensions::hold_to_peak).
    OrlopHeld(Option<u32>),
    /// orlop's policy, without the extensions that wait for streams although the device has memory.
    OrlopApart,
    Torch(Box<TorchConf>),
}

static GIVEN: Mutex<Option<AllocatorSettings>> = Mutex::new(None);
static FIXED: OnceLock<AllocatorSettings> = OnceLock::new();

impl AllocatorSettings {
    /// Reads the name of a policy and a limit in bytes, of which 0 is none.
    pub(crate) fn parse(policy: &str, limit: u64) -> Result<Self, TorchError> {
        let unknown = || TorchError::UnknownPolicy(policy.into());
        let policy = match policy.split_once(':').unwrap_or((policy, "")) {
            ("orlop", "") => PolicyChoice::Orlop,
            ("orlop", "streams=apart") => PolicyChoice::OrlopApart,
            ("orlop", "hold_to_peak=off") => PolicyChoice::OrlopHeld(None),
            ("orlop", setting) => {
                let share = setting.strip_prefix("hold_to_peak=").and_then(|share| share.parse().ok());
                let share = share.filter(|&power| power < 64).ok_or_else(unknown)?;
                PolicyChoice::OrlopHeld(Some(share))
            }
            ("torch", conf) => PolicyChoice::Torch(Box::new(conf.parse().map_err(|_| unknown())?)),
            _ => return Err(unknown()),
        };
        Ok(Self { policy, limit: (limit > 0).then_some(limit) })
    }

    /// Gives the settings of allocators that do not exist yet. Those of existing ones can be given again.
    pub(crate) fn give(self) -> Result<(), TorchError> {
        match FIXED.get() {
            Some(fixed) if *fixed == self => Ok(()),
            Some(_) => Err(TorchError::InUse),
            None => {
                *GIVEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(self);
                Ok(())
            }
        }
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
        let memory = match &self.policy {
            PolicyChoice::Torch(conf) if !conf.expandable_segments => CudaMemory::in_regions(device),
            _ => CudaMemory::new(device)?,
        };
        let policy = self.policy.policy(memory.page_granularity().is_some());
        Ok(config.build(memory, policy)?)
    }
}

impl PolicyChoice {
    /// Returns the policy for a device.
    fn policy(&self, has_pages: bool) -> Policy {
        let mut policy = match self {
            Self::Torch(conf) => return Policy::torch(conf),
            _ if has_pages => Policy::orlop(),
            _ => Policy::orlop_without_pages(),
        };
        let extensions = &mut policy.extensions;
        match self {
            Self::OrlopHeld(share) => extensions.hold_to_peak = *share,
            Self::OrlopApart => {
                (extensions.steal, extensions.limit_run_ahead) = (false, false);
                // The host waits for the streams that used pages before they move.
                extensions.hold_to_peak = None;
            }
            Self::Orlop | Self::Torch(_) => {}
        }
        policy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_names() {
        let parsed = |policy| AllocatorSettings::parse(policy, 1 << 30).map(|read| read.policy);
        let extensions = |policy, has_pages| match parsed(policy) {
            Ok(choice) => choice.policy(has_pages).extensions,
            Err(error) => panic!("{policy}: {error}"),
        };
        for (has_pages, own) in [(true, Policy::orlop()), (false, Policy::orlop_without_pages())] {
            let mut expected = own.extensions;
            assert_eq!(extensions("orlop", has_pages), expected);
            for (policy, share) in [("orlop:hold_to_peak=3", Some(3)), ("orlop:hold_to_peak=off", None)] {
                expected.hold_to_peak = share;
                assert_eq!(extensions(policy, has_pages), expected);
            }
            assert!(expected.steal && expected.limit_run_ahead);
            (expected.steal, expected.limit_run_ahead) = (false, false);
            assert_eq!(extensions("orlop:streams=apart", has_pages), expected);
        }
        let torch = parsed("torch:expandable_segments:True");
        assert!(matches!(torch, Ok(PolicyChoice::Torch(conf)) if conf.expandable_segments));
        let unknown = ["", "bfc", "orlop:fast", "orlop:hold_to_peak=64", "orlop:streams=near"];
        for unknown in unknown.into_iter().chain(["torch:max_split_size_mb:x"]) {
            let error = parsed(unknown).map(drop);
            assert!(matches!(error, Err(TorchError::UnknownPolicy(_))), "{unknown}: {error:?}");
        }
    }
}
