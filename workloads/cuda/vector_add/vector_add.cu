// Adds two vectors on the device and checks every element.

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                                                            \
    do {                                                                                                                       \
        const cudaError_t status = (call);                                                                                     \
        if (status != cudaSuccess) {                                                                                           \
            std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status));                    \
            std::exit(1);                                                                                                      \
        }                                                                                                                      \
    } while (0)

__global__ void add(const float *a, const float *b, float *sum, int count) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) sum[at] = a[at] + b[at];
}

int main(int argc, char **argv) {
    const int count = argc > 1 ? std::atoi(argv[1]) : 1 << 20;
    std::vector<float> a(count), b(count), sum(count);
    for (int at = 0; at < count; at++) {
        a[at] = static_cast<float>(at % 1000);
        b[at] = static_cast<float>(at % 77) * 0.5f;
    }
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    std::printf("device: %s\n", device.name);
    const size_t bytes = count * sizeof(float);
    float *on_a, *on_b, *on_sum;
    CHECK(cudaMalloc(&on_a, bytes));
    CHECK(cudaMalloc(&on_b, bytes));
    CHECK(cudaMalloc(&on_sum, bytes));
    CHECK(cudaMemcpy(on_a, a.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(on_b, b.data(), bytes, cudaMemcpyHostToDevice));
    add<<<(count + 255) / 256, 256>>>(on_a, on_b, on_sum, count);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(sum.data(), on_sum, bytes, cudaMemcpyDeviceToHost));
    for (int at = 0; at < count; at++) {
        if (sum[at] != a[at] + b[at]) {
            std::fprintf(stderr, "element %d is %g, not %g\n", at, sum[at], a[at] + b[at]);
            return 1;
        }
    }
    CHECK(cudaFree(on_a));
    CHECK(cudaFree(on_b));
    CHECK(cudaFree(on_sum));
    std::printf("%d sums are right\n", count);
    return 0;
}
