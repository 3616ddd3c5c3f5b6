/* What the threads of a warp know of each other. Ten words for each thread. */
extern "C" __global__ void votes(const int *x, unsigned *to) {
    unsigned lane = threadIdx.x % 32, *mine = to + threadIdx.x * 10;
    int value = x[threadIdx.x];
    unsigned ballot = __ballot_sync(0xffffffff, value > 0);
    mine[0] = ballot;
    mine[1] = __popc(ballot & ((1u << lane) - 1));
    mine[2] = __any_sync(0xffffffff, value > 100);
    mine[3] = __all_sync(0xffffffff, value > -100);
    mine[4] = __match_any_sync(0xffffffff, value);
    mine[5] = (__activemask() >> lane) & 1;
    if (lane < 8) mine[6] = __shfl_sync(0xff, value, lane + 1, 4);
    else mine[6] = __shfl_up_sync(0xffffff00, value, 3);
    __syncwarp();
    mine[7] = to[(threadIdx.x ^ 1) * 10];
    mine[8] = __reduce_add_sync(0xffffffff, (unsigned)value);
    mine[9] = __reduce_max_sync(0xffffffff, value);
}
