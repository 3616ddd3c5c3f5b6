//! Functions that must exist, because PyTorch looks each of them up before it uses any.

use crate::call::library_calls;
use crate::code::Failure;

macro_rules! refused {
    ($($name:ident)*) => { library_calls! { $(fn $name() |_machine| { Err(Failure::NOT_SUPPORTED) })* } };
}

refused! {
    cuCtxFromGreenCtx
    cuDevResourceGenerateDesc
    cuDevSmResourceSplitByCount
    cuDeviceGetDevResource
    cuGreenCtxCreate
    cuGreenCtxDestroy
    cuGreenCtxStreamCreate
    cuMemExportToShareableHandle
    cuMemGetAllocationPropertiesFromHandle
    cuMemImportFromShareableHandle
    cuMulticastAddDevice
    cuMulticastBindMem
    cuMulticastCreate
    cuMulticastUnbind
    cuStreamWriteValue32
}
