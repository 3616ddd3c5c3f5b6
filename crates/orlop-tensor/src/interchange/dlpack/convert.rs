//! Conversion of dtypes and devices to and from DLPack's.

use super::abi::{DLDataType, DLDataTypeCode, DLDevice, DLDeviceType};
use crate::error::dlpack::DlpackError;
use orlop_alloc::Access;
use orlop_core::{DType, Device, DeviceType, MemoryKind};

impl From<DType> for DLDataType {
    fn from(dtype: DType) -> Self {
        let (code, bits) = match dtype {
            DType::Bool => (DLDataTypeCode::BOOL, 8),
            DType::U8 => (DLDataTypeCode::UINT, 8),
            DType::U16 => (DLDataTypeCode::UINT, 16),
            DType::U32 => (DLDataTypeCode::UINT, 32),
            DType::U64 => (DLDataTypeCode::UINT, 64),
            DType::I8 => (DLDataTypeCode::INT, 8),
            DType::I16 => (DLDataTypeCode::INT, 16),
            DType::I32 => (DLDataTypeCode::INT, 32),
            DType::I64 => (DLDataTypeCode::INT, 64),
            DType::F8E4M3 => (DLDataTypeCode::FLOAT8_E4M3FN, 8),
            DType::F8E5M2 => (DLDataTypeCode::FLOAT8_E5M2, 8),
            DType::F16 => (DLDataTypeCode::FLOAT, 16),
            DType::BF16 => (DLDataTypeCode::BFLOAT, 16),
            DType::F32 => (DLDataTypeCode::FLOAT, 32),
            DType::F64 => (DLDataTypeCode::FLOAT, 64),
            DType::C64 => (DLDataTypeCode::COMPLEX, 64),
            DType::C128 => (DLDataTypeCode::COMPLEX, 128),
        };
        Self { code, bits, lanes: 1 }
    }
}

impl TryFrom<DLDataType> for DType {
    type Error = DlpackError;

    fn try_from(dtype: DLDataType) -> Result<Self, DlpackError> {
        if dtype.lanes != 1 {
            return Err(DlpackError::Lanes { lanes: dtype.lanes });
        }
        Self::ALL
            .into_iter()
            .find(|&known| DLDataType::from(known) == dtype)
            .ok_or(DlpackError::DType { dtype })
    }
}

impl TryFrom<Device> for DLDevice {
    type Error = DlpackError;

    /// Pinned memory is exported as `CPU` too. The kind is only a request, which an allocator of ordinary
    /// memory may have served, and a consumer would assume that GPUs can access `CUDA_HOST` memory.
    fn try_from(device: Device) -> Result<Self, DlpackError> {
        match device.device_type() {
            DeviceType::Cpu => Ok(Self { device_type: DLDeviceType::CPU, device_id: 0 }),
            DeviceType::Cuda => {
                Ok(Self { device_type: DLDeviceType::CUDA, device_id: device.index().into() })
            }
            _ => Err(DlpackError::UnnamedDevice { device }),
        }
    }
}

/// Returns the device, kind and access of memory on a DLPack device.
pub(super) fn place_of(device: DLDevice) -> Result<(Device, MemoryKind, Access), DlpackError> {
    match device.device_type {
        // There is one CPU device, whatever the index.
        DLDeviceType::CPU => Ok((Device::CPU, MemoryKind::Default, Access::Host)),
        DLDeviceType::CUDA_HOST => Ok((Device::CPU, MemoryKind::HostPinned, Access::Host)),
        DLDeviceType::CUDA => {
            let index = u16::try_from(device.device_id).map_err(|_| DlpackError::UnknownDevice { device })?;
            Ok((Device::cuda(index), MemoryKind::Default, Access::Device))
        }
        _ => Err(DlpackError::UnknownDevice { device }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtypes_come_back() {
        for dtype in DType::ALL {
            let there = DLDataType::from(dtype);
            assert_eq!(DType::try_from(there), Ok(dtype));
            assert_eq!(usize::from(there.bits), dtype.size() * 8);
            let vector = DLDataType { lanes: 4, ..there };
            assert_eq!(DType::try_from(vector), Err(DlpackError::Lanes { lanes: 4 }));
        }
    }

    #[test]
    fn unknown_dtypes() {
        for (code, bits) in [(0, 128), (1, 4), (2, 8), (3, 64), (4, 32), (5, 32), (6, 1), (8, 8), (17, 4)] {
            let dtype = DLDataType { code: DLDataTypeCode(code), bits, lanes: 1 };
            assert_eq!(DType::try_from(dtype), Err(DlpackError::DType { dtype }));
        }
    }

    #[test]
    fn devices() {
        for device in [Device::CPU, Device::cuda(0), Device::cuda(65535)] {
            assert_eq!(place_of(DLDevice::try_from(device).unwrap()).unwrap().0, device);
        }
        let device = Device::custom(1, 0);
        assert_eq!(DLDevice::try_from(device), Err(DlpackError::UnnamedDevice { device }));
        for (device_type, device_id) in [(0, 0), (2, -1), (2, 65536), (10, 0), (13, 0)] {
            let device = DLDevice { device_type: DLDeviceType(device_type), device_id };
            assert_eq!(place_of(device).unwrap_err(), DlpackError::UnknownDevice { device });
        }
    }
}
