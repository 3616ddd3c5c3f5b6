/* The words of CUDA C that the kernels use, for clang without CUDA's headers. */
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
struct Axes { unsigned x, y, z; };
#define threadIdx (Axes{(unsigned)__nvvm_read_ptx_sreg_tid_x(), (unsigned)__nvvm_read_ptx_sreg_tid_y(), 0})
#define blockIdx (Axes{(unsigned)__nvvm_read_ptx_sreg_ctaid_x(), (unsigned)__nvvm_read_ptx_sreg_ctaid_y(), 0})
#define blockDim (Axes{(unsigned)__nvvm_read_ptx_sreg_ntid_x(), (unsigned)__nvvm_read_ptx_sreg_ntid_y(), 1})
#define __device__ __attribute__((device))
#define __noinline__ __attribute__((noinline))
#define CODE __attribute__((device, always_inline)) static inline
#define SHUFFLE(name, how, last)                                                                              \
    CODE float name(unsigned mask, float value, int by, int width = 32) {                                     \
        return __nvvm_shfl_sync_##how##_f32(mask, value, by, (32 - width) << 8 | last);                       \
    }                                                                                                         \
    CODE int name(unsigned mask, int value, int by, int width = 32) {                                         \
        return __nvvm_shfl_sync_##how##_i32(mask, value, by, (32 - width) << 8 | last);                       \
    }
SHUFFLE(__shfl_sync, idx, 31)
SHUFFLE(__shfl_up_sync, up, 0)
SHUFFLE(__shfl_down_sync, down, 31)
SHUFFLE(__shfl_xor_sync, bfly, 31)
#define __ballot_sync __nvvm_vote_ballot_sync
#define __any_sync __nvvm_vote_any_sync
#define __all_sync __nvvm_vote_all_sync
#define __match_any_sync __nvvm_match_any_sync_i32
#define __syncwarp() __nvvm_bar_warp_sync(0xffffffff)
#define __reduce_add_sync(mask, value) __nvvm_redux_sync_add(value, mask)
#define __reduce_max_sync(mask, value) __nvvm_redux_sync_max(value, mask)
#define __popc __builtin_popcount
CODE unsigned __activemask() {
    unsigned mask;
    asm volatile("activemask.b32 %0;" : "=r"(mask));
    return mask;
}
CODE int atomicAdd(int *at, int value) { return __nvvm_atom_add_gen_i(at, value); }
CODE unsigned atomicAdd(unsigned *at, unsigned value) { return __nvvm_atom_add_gen_i((int *)at, value); }
CODE float atomicAdd(float *at, float value) { return __nvvm_atom_add_gen_f(at, value); }
CODE double atomicAdd(double *at, double value) { return __nvvm_atom_add_gen_d(at, value); }
CODE unsigned long long atomicAdd(unsigned long long *at, unsigned long long value) {
    return __nvvm_atom_add_gen_ll((long long *)at, value);
}
CODE unsigned atomicAdd_block(unsigned *at, unsigned value) { return __nvvm_atom_cta_add_gen_i((int *)at, value); }
#define atomicSub(at, value) __nvvm_atom_add_gen_i(at, -(value))
#define atomicMin __nvvm_atom_min_gen_i
CODE int atomicMax(int *at, int value) { return __nvvm_atom_max_gen_i(at, value); }
CODE unsigned long long atomicMax(unsigned long long *at, unsigned long long value) {
    return __nvvm_atom_max_gen_ull(at, value);
}
#define atomicAnd(at, value) __nvvm_atom_and_gen_i((int *)(at), value)
#define atomicOr(at, value) __nvvm_atom_or_gen_i((int *)(at), value)
#define atomicXor(at, value) __nvvm_atom_xor_gen_i((int *)(at), value)
#define atomicExch(at, value) __nvvm_atom_xchg_gen_i((int *)(at), value)
#define atomicInc __nvvm_atom_inc_gen_ui
#define atomicDec __nvvm_atom_dec_gen_ui
