// Scales and adds in pieces on several streams, in pinned memory, with events; checks every element.

#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                                                            \
    do {                                                                                                                       \
        const cudaError_t status = (call);                                                                                     \
        if (status != cudaSuccess) {                                                                                           \
            std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status));                    \
            std::exit(1);                                                                                                      \
        }                                                                                                                      \
    } while (0)

__global__ void saxpy(float factor, const float *x, float *y, int count) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) y[at] = factor * x[at] + y[at];
}

int main() {
    constexpr int streams = 4, piece = 1 << 20, count = streams * piece;
    constexpr float factor = 2.0f;
    float *x, *y, *result, *on_x, *on_y;
    const size_t bytes = count * sizeof(float);
    CHECK(cudaMallocHost(&x, bytes));
    CHECK(cudaMallocHost(&y, bytes));
    CHECK(cudaMallocHost(&result, bytes));
    CHECK(cudaMalloc(&on_x, bytes));
    CHECK(cudaMalloc(&on_y, bytes));
    for (int at = 0; at < count; at++) {
        x[at] = static_cast<float>(at % 512);
        y[at] = static_cast<float>(at % 31);
    }
    cudaStream_t lanes[streams];
    cudaEvent_t begin, ends[streams];
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventRecord(begin));
    for (int lane = 0; lane < streams; lane++) {
        const int from = lane * piece;
        CHECK(cudaStreamCreateWithFlags(&lanes[lane], cudaStreamNonBlocking));
        CHECK(cudaEventCreate(&ends[lane]));
        CHECK(cudaStreamWaitEvent(lanes[lane], begin, 0));
        CHECK(cudaMemcpyAsync(on_x + from, x + from, bytes / streams, cudaMemcpyHostToDevice, lanes[lane]));
        CHECK(cudaMemcpyAsync(on_y + from, y + from, bytes / streams, cudaMemcpyHostToDevice, lanes[lane]));
        saxpy<<<piece / 256, 256, 0, lanes[lane]>>>(factor, on_x + from, on_y + from, piece);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpyAsync(result + from, on_y + from, bytes / streams, cudaMemcpyDeviceToHost, lanes[lane]));
        CHECK(cudaEventRecord(ends[lane], lanes[lane]));
    }
    for (int lane = 0; lane < streams; lane++) {
        CHECK(cudaEventSynchronize(ends[lane]));
        float time_ms = -1.0f;
        CHECK(cudaEventElapsedTime(&time_ms, begin, ends[lane]));
        if (time_ms < 0.0f) return std::fprintf(stderr, "time ran backwards\n"), 1;
        for (int at = lane * piece; at < (lane + 1) * piece; at++) {
            if (result[at] != factor * x[at] + y[at]) {
                std::fprintf(stderr, "element %d is %g, not %g\n", at, result[at], factor * x[at] + y[at]);
                return 1;
            }
        }
        CHECK(cudaStreamQuery(lanes[lane]));
        CHECK(cudaStreamDestroy(lanes[lane]));
        CHECK(cudaEventDestroy(ends[lane]));
    }
    CHECK(cudaDeviceSynchronize());
    std::printf("%d results are right\n", count);
    return 0;
}
