//! Numbers of cuDNN 9's backend interface, as its documentation names them.

/// The version that the library reports.
pub(crate) const VERSION: usize = 91_900;

/// Descriptor types.
pub(super) mod kind {
    pub(crate) const CONVOLUTION_FORWARD: i32 = 10;
    pub(crate) const CONVOLUTION_BACKWARD_FILTER: i32 = 11;
    pub(crate) const CONVOLUTION_BACKWARD_DATA: i32 = 12;
}

/// Attribute names.
pub(super) mod name {
    pub(crate) const HEURISTICS_GRAPH: i32 = 201;
    pub(crate) const HEURISTICS_RESULTS: i32 = 202;
    pub(crate) const CONFIGURATION_ENGINE: i32 = 300;
    pub(crate) const CONFIGURATION_WORKSPACE: i32 = 303;
    pub(crate) const CONFIGURATION_SHARED_MEMORY: i32 = 304;
    pub(crate) const PLAN_CONFIGURATION: i32 = 401;
    pub(crate) const PLAN_WORKSPACE: i32 = 402;
    pub(crate) const FORWARD_W_X_Y: [i32; 3] = [703, 704, 705];
    pub(crate) const DATA_W_DX_DY: [i32; 3] = [709, 710, 711];
    pub(crate) const FILTER_DW_X_DY: [i32; 3] = [715, 716, 717];
    pub(crate) const GRAPH_OPERATIONS: i32 = 801;
    pub(crate) const TENSOR_TYPE: i32 = 901;
    pub(crate) const TENSOR_DIMENSIONS: i32 = 902;
    pub(crate) const TENSOR_STRIDES: i32 = 903;
    pub(crate) const ENGINE_GRAPH: i32 = 1300;
    pub(crate) const ENGINE_INDEX: i32 = 1301;
    pub(crate) const ENGINE_NUMERICAL_NOTE: i32 = 1303;
}

/// The numerical note of engines whose results differ from run to run.
pub(super) const NONDETERMINISTIC: i32 = 4;

/// Attribute types.
pub(super) const BACKEND_DESCRIPTOR: i32 = 15;

/// Returns the bytes of a value of an attribute type.
pub(super) fn size_of(kind: i32) -> usize {
    match kind {
        // Handles, 64-bit integers, doubles, pointers, descriptors.
        0 | 3 | 5 | 6 | BACKEND_DESCRIPTOR => 8,
        // Fractions: two 64-bit integers.
        26 => 16,
        // Booleans and characters.
        2 | 24 => 1,
        _ => 4,
    }
}
