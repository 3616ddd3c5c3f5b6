#include <cuda_fp16.h>
#include <cuda_bf16.h>
/* Sums of rows of 64 elements by a warp for each row: in pairs of halves, and of bfloat16 in single precision. */
extern "C" __global__ void half_sums(const __half2 *x, __half *to) {
    __half2 sum = x[blockIdx.x * 32 + threadIdx.x];
    for (int half = 16; half > 0; half /= 2) sum = __hadd2(sum, __shfl_xor_sync(0xffffffff, sum, half));
    if (threadIdx.x == 0) to[blockIdx.x] = __hadd(__low2half(sum), __high2half(sum));
}
extern "C" __global__ void bf16_norms(const __nv_bfloat16 *x, __nv_bfloat16 *to, float scale) {
    float a = __bfloat162float(x[blockIdx.x * 64 + threadIdx.x]);
    float b = __bfloat162float(x[blockIdx.x * 64 + 32 + threadIdx.x]);
    float sum = a * a + b * b, top = fmaxf(fabsf(a), fabsf(b));
    for (int half = 16; half > 0; half /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, half);
        top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, half));
    }
    if (threadIdx.x == 0) {
        to[blockIdx.x * 2] = __float2bfloat16(sqrtf(sum) * scale);
        to[blockIdx.x * 2 + 1] = __float2bfloat16(top);
    }
}
