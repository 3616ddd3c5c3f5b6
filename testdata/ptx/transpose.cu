extern "C" __global__ void transpose(const float *from, float *to, unsigned rows, unsigned columns) {
    __shared__ float tile[16][17];
    unsigned column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = from[row * columns + column];
    __syncthreads();
    column = blockIdx.y * 16 + threadIdx.x, row = blockIdx.x * 16 + threadIdx.y;
    if (row < columns && column < rows) to[row * rows + column] = tile[threadIdx.x][threadIdx.y];
}
