// Multiplies matrices on tensor cores, of small integers so that every sum is exact: by nvcuda::wmma in four types, and in half
// precision as libraries do it, with asynchronous copies into a ring of slabs in shared memory, ldmatrix and mma. For sm_80.

#include <cuda_awbarrier_primitives.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline_primitives.h>
#include <mma.h>

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

constexpr unsigned rows = 128, columns = 192, depth = 160, warp = 32;

// A warp for each tile of 16 by 16; `a` lies by rows, `b` by columns.
template <typename element, typename fragment, typename total, unsigned k>
__global__ void by_wmma(const element *a, const element *b, total *c) {
    using namespace nvcuda::wmma;
    nvcuda::wmma::fragment<matrix_a, 16, 16, k, fragment, row_major> left;
    nvcuda::wmma::fragment<matrix_b, 16, 16, k, fragment, col_major> right;
    nvcuda::wmma::fragment<accumulator, 16, 16, k, total> sum;
    const unsigned row = blockIdx.y * 16, column = blockIdx.x * 16;
    fill_fragment(sum, total(0));
    for (unsigned at = 0; at < depth; at += k) {
        load_matrix_sync(left, a + row * depth + at, depth);
        load_matrix_sync(right, b + column * depth + at, depth);
        mma_sync(sum, left, right, sum);
    }
    store_matrix_sync(c + row * columns + column, sum, columns, mem_row_major);
}

constexpr unsigned tile = 64, slab = 32, stages = 3, threads = 128;

// Where 8 elements of a slab lie: rows of 64 bytes whose pieces of 16 change places, so that no two rows of a matrix of ldmatrix share banks.
__device__ unsigned place(unsigned row, unsigned piece) { return row * slab + ((piece ^ (row >> 1)) & 3) * 8; }

__device__ unsigned shared_address(const void *at) { return static_cast<unsigned>(__cvta_generic_to_shared(at)); }

// A tile of 64 by 64 for each block, a quarter of it for each of four warps.
__global__ void __launch_bounds__(threads) pipelined(const __half *a, const __half *b, float *c) {
    __shared__ __align__(128) __half left[stages][tile * slab], right[stages][tile * slab];
    __shared__ __mbarrier_t filled[stages];
    const unsigned thread = threadIdx.x, lane = thread % warp;
    const unsigned own_row = thread / 64 * 32, own_column = thread / warp % 2 * 32;
    const __half *const a_tile = a + blockIdx.y * tile * depth, *const b_tile = b + blockIdx.x * tile * depth;
    if (thread < stages) __mbarrier_init(&filled[thread], threads);
    __syncthreads();
    const auto fetch = [&](unsigned number) {
        const unsigned stage = number % stages;
        for (unsigned part = thread; part < tile * slab / 8; part += threads) {
            const unsigned row = part / 4, piece = part % 4;
            const size_t from = row * depth + number * slab + piece * 8;
            __pipeline_memcpy_async(&left[stage][place(row, piece)], a_tile + from, 16);
            __pipeline_memcpy_async(&right[stage][place(row, piece)], b_tile + from, 16);
        }
        // The barrier is told when the copies of all threads have come.
        __pipeline_arrive_on(reinterpret_cast<__mbarrier_t *>(&filled[stage]));
    };
    float sum[2][4][4] = {};
    constexpr unsigned slabs = depth / slab;
    for (unsigned number = 0; number < stages - 1; number++) fetch(number);
    for (unsigned number = 0; number < slabs; number++) {
        if (number + stages - 1 < slabs) fetch(number + stages - 1);
        const unsigned stage = number % stages;
        const __mbarrier_token_t token = __mbarrier_arrive(&filled[stage]);
        while (!__mbarrier_test_wait(&filled[stage], token)) {}
        for (unsigned k = 0; k < slab / 8; k += 2) {
            unsigned a_part[2][4], b_part[2][4];
            for (unsigned i = 0; i < 2; i++) {
                const unsigned at = shared_address(&left[stage][place(own_row + i * 16 + lane % 16, k + lane / 16)]);
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                             : "=r"(a_part[i][0]), "=r"(a_part[i][1]), "=r"(a_part[i][2]), "=r"(a_part[i][3])
                             : "r"(at));
                const unsigned row = own_column + i * 16 + lane / 16 * 8 + lane % 8;
                const unsigned b_at = shared_address(&right[stage][place(row, k + lane / 8 % 2)]);
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                             : "=r"(b_part[i][0]), "=r"(b_part[i][1]), "=r"(b_part[i][2]), "=r"(b_part[i][3])
                             : "r"(b_at));
            }
            for (unsigned i = 0; i < 2; i++) {
                for (unsigned j = 0; j < 4; j++) {
                    float *const d = sum[i][j];
                    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                                 : "r"(a_part[i][0]), "r"(a_part[i][1]), "r"(a_part[i][2]), "r"(a_part[i][3]),
                                   "r"(b_part[j / 2][j % 2 * 2]), "r"(b_part[j / 2][j % 2 * 2 + 1]));
                }
            }
        }
        // The slab is overwritten in the next round.
        __syncthreads();
    }
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned j = 0; j < 4; j++) {
            for (unsigned part = 0; part < 4; part++) {
                const unsigned row = blockIdx.y * tile + own_row + i * 16 + part / 2 * 8 + lane / 4;
                const unsigned column = blockIdx.x * tile + own_column + j * 8 + lane % 4 * 2 + part % 2;
                c[row * columns + column] = sum[i][j][part];
            }
        }
    }
}

static int small(unsigned number, unsigned by) { return static_cast<int>(number * by % 7) - 3; }

// Multiplies with `launch`, and compares every element.
template <typename element, typename total, typename function> static bool is_right(const char *name, function launch) {
    std::vector<element> a(rows * depth), b(columns * depth);
    std::vector<total> c(rows * columns);
    for (unsigned at = 0; at < a.size(); at++) a[at] = static_cast<element>(static_cast<float>(small(at, 5)));
    for (unsigned at = 0; at < b.size(); at++) b[at] = static_cast<element>(static_cast<float>(small(at, 11)));
    element *on_a, *on_b;
    total *on_c;
    CHECK(cudaMalloc(&on_a, a.size() * sizeof(element)));
    CHECK(cudaMalloc(&on_b, b.size() * sizeof(element)));
    CHECK(cudaMalloc(&on_c, c.size() * sizeof(total)));
    CHECK(cudaMemcpy(on_a, a.data(), a.size() * sizeof(element), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(on_b, b.data(), b.size() * sizeof(element), cudaMemcpyHostToDevice));
    launch(on_a, on_b, on_c);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(c.data(), on_c, c.size() * sizeof(total), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(on_a));
    CHECK(cudaFree(on_b));
    CHECK(cudaFree(on_c));
    for (unsigned row = 0; row < rows; row++) {
        for (unsigned column = 0; column < columns; column++) {
            int expected = 0;
            for (unsigned k = 0; k < depth; k++) expected += small(row * depth + k, 5) * small(column * depth + k, 11);
            const double found = static_cast<double>(c[row * columns + column]);
            if (found != expected) {
                std::fprintf(stderr, "%s: row %u, column %u is %g, not %d\n", name, row, column, found, expected);
                return false;
            }
        }
    }
    std::printf("%s: %u results are right\n", name, rows * columns);
    return true;
}

int main() {
    const dim3 tiles(columns / 16, rows / 16), blocks(columns / tile, rows / tile);
    bool right = is_right<__half, float>("half precision", [&](const __half *a, const __half *b, float *c) {
        by_wmma<__half, __half, float, 16><<<tiles, warp>>>(a, b, c);
    });
    right &= is_right<__nv_bfloat16, float>("bfloat16", [&](const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c) {
        by_wmma<__nv_bfloat16, __nv_bfloat16, float, 16><<<tiles, warp>>>(a, b, c);
    });
    right &= is_right<float, float>("tf32", [&](const float *a, const float *b, float *c) {
        by_wmma<float, nvcuda::wmma::precision::tf32, float, 8><<<tiles, warp>>>(a, b, c);
    });
    right &= is_right<signed char, int>("bytes", [&](const signed char *a, const signed char *b, int *c) {
        by_wmma<signed char, signed char, int, 16><<<tiles, warp>>>(a, b, c);
    });
    right &= is_right<__half, float>("half precision, pipelined", [&](const __half *a, const __half *b, float *c) {
        pipelined<<<blocks, threads>>>(a, b, c);
    });
    return right ? 0 : 1;
}
