/* How often each value from 0 to 63 is there: counted in shared memory, added up in global memory. */
extern "C" __global__ void histogram(const unsigned char *x, unsigned *bins, int n) {
    __shared__ unsigned part[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x < 64) part[threadIdx.x] = 0;
    __syncthreads();
    if (i < n && x[i] < 64) atomicAdd(&part[x[i]], 1u);
    __syncthreads();
    if (threadIdx.x < 64 && part[threadIdx.x]) atomicAdd(&bins[threadIdx.x], part[threadIdx.x]);
}
