/* Functions that are not inlined: with a structure as result and argument, with pointers to variables of the
   caller, and one that calls itself. */
struct Pair { double sum; int count; };

__device__ __noinline__ Pair add(Pair pair, double value) {
    pair.sum += value;
    pair.count += 1;
    return pair;
}

__device__ __noinline__ void divide(unsigned a, unsigned b, unsigned *quotient, unsigned *rest) {
    *quotient = a / b;
    *rest = a % b;
}

__device__ __noinline__ unsigned gcd(unsigned a, unsigned b) {
    unsigned quotient, rest;
    if (b == 0) return a;
    divide(a, b, &quotient, &rest);
    return gcd(b, rest) + quotient - quotient;
}

extern "C" __global__ void gcds(const unsigned *a, unsigned *to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = gcd(720720u + i, 12u * i + 18u);
}

extern "C" __global__ void means(const double *x, double *to, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    Pair pair = {0.0, 0};
    for (int column = 0; column < columns; column++) pair = add(pair, x[row * columns + column]);
    to[row] = pair.sum / pair.count;
}
