/* The words of CUDA C that the kernels use, for clang without CUDA's headers. */
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
struct Axes { unsigned x, y, z; };
#define threadIdx (Axes{(unsigned)__nvvm_read_ptx_sreg_tid_x(), (unsigned)__nvvm_read_ptx_sreg_tid_y(), 0})
#define blockIdx (Axes{(unsigned)__nvvm_read_ptx_sreg_ctaid_x(), (unsigned)__nvvm_read_ptx_sreg_ctaid_y(), 0})
#define blockDim (Axes{(unsigned)__nvvm_read_ptx_sreg_ntid_x(), (unsigned)__nvvm_read_ptx_sreg_ntid_y(), 1})
