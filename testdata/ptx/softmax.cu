/* Softmax of rows, a block for each: the largest element and the sum of exponentials by shuffles. */
__device__ float all_max(float value) {
    for (int half = 16; half > 0; half /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, half));
    return value;
}
__device__ float all_sum(float value) {
    for (int half = 16; half > 0; half /= 2) value += __shfl_xor_sync(0xffffffff, value, half);
    return value;
}
extern "C" __global__ void softmax(const float *x, float *to, int columns) {
    const float *row = x + (size_t)blockIdx.x * columns;
    float top = -1e30f, sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += 32) top = fmaxf(top, row[i]);
    top = all_max(top);
    for (int i = threadIdx.x; i < columns; i += 32) sum += expf(row[i] - top);
    sum = all_sum(sum);
    for (int i = threadIdx.x; i < columns; i += 32)
        to[(size_t)blockIdx.x * columns + i] = expf(row[i] - top) / sum;
}
