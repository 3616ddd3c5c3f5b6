//! Functions that must exist, because PyTorch and orlop look each of theirs up before they use any.

use crate::call::library_calls;
use crate::code::Failure;

macro_rules! refused {
    ($($name:ident)*) => { library_calls! { $(fn $name() |_machine| { Err(Failure::NOT_SUPPORTED) })* } };
}

refused! {
    cuCtxEnablePeerAccess
    cuCtxFromGreenCtx
    cuDevResourceGenerateDesc
    cuDevSmResourceSplitByCount
    cuDeviceCanAccessPeer
    cuDeviceGetDefaultMemPool
    cuDeviceGetDevResource
    cuDeviceGetMemPool
    cuDeviceSetMemPool
    cuGreenCtxCreate
    cuGreenCtxDestroy
    cuGreenCtxStreamCreate
    cuMemAllocFromPoolAsync
    cuMemAllocManaged
    cuMemExportToShareableHandle
    cuMemFreeAsync
    cuMemFreeHost
    cuMemGetAllocationPropertiesFromHandle
    cuMemHostAlloc
    cuMemImportFromShareableHandle
    cuMemPoolCreate
    cuMemPoolDestroy
    cuMemPoolGetAttribute
    cuMemPoolSetAccess
    cuMemPoolSetAttribute
    cuMemPoolTrimTo
    cuMemcpy3DAsync_v2
    cuMemcpyDtoDAsync_v2
    cuMemcpyDtoHAsync_v2
    cuMemcpyHtoDAsync_v2
    cuMemcpyPeerAsync
    cuMemsetD16Async
    cuMemsetD8Async
    cuMulticastAddDevice
    cuMulticastBindMem
    cuMulticastCreate
    cuMulticastUnbind
    cuStreamWriteValue32
}
