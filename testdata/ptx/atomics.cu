/* Every thread changes each of the counters. */
extern "C" __global__ void atomics(int *s, unsigned *u, unsigned long long *w, float *f, double *d) {
    __shared__ unsigned count;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    atomicAdd(&s[0], i);
    atomicSub(&s[1], 2);
    atomicMin(&s[2], -i);
    atomicMax(&s[3], i);
    atomicAnd(&u[0], ~(1u << (i % 32)));
    atomicOr(&u[1], 1u << (i % 16));
    atomicXor(&u[2], (unsigned)i);
    atomicExch(&u[3], 7u);
    atomicInc(&u[4], 9u);
    atomicDec(&u[5], 9u);
    atomicAdd(&w[0], 1ull << 33);
    atomicMax(&w[1], (unsigned long long)i);
    atomicAdd(f, 0.5f);
    atomicAdd(d, 0.25);
    atomicAdd_block(&count, 1u);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&u[6], count);
}
