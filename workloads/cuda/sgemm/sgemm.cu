// SGEMM and DGEMM: C = alpha A B + beta C for square matrices, row-major, tiled twice: a block computes a tile x tile part
// of C from slabs of A and B in shared memory, and a thread computes registers x registers elements of it, so that each
// value read from shared memory serves several multiplications.
//
// With several devices each gets a band of the rows of A and C, and all of B.
#include "../common/measure.h"

#include <cfloat>
#include <cmath>

constexpr unsigned group = 16, slab = 16;
constexpr double alpha = 1.5, beta = -0.5;

// Multiplications that the check may spend on one instance.
constexpr size_t check_budget = size_t{1} << 27;

template <typename real, unsigned registers>
__global__ void __launch_bounds__(group *group)
    gemm(unsigned rows, unsigned columns, unsigned depth, real alpha, const real *__restrict__ a,
         const real *__restrict__ b, real beta, real *__restrict__ c) {
    constexpr unsigned tile = group * registers;
    // A is stored transposed; the extra column spreads those writes over the banks of shared memory.
    __shared__ real a_slab[slab][tile + 1];
    __shared__ real b_slab[slab][tile];

    const unsigned x = threadIdx.x, y = threadIdx.y, thread = y * group + x;
    const unsigned first_row = blockIdx.y * tile, first_column = blockIdx.x * tile;
    real sum[registers][registers] = {};

    for (unsigned start = 0; start < depth; start += slab) {
        // Neighbouring threads read neighbouring elements; what lies outside the matrices counts as zero.
        for (unsigned i = thread; i < tile * slab; i += group * group) {
            const unsigned row = first_row + i / slab, k = start + i % slab;
            a_slab[i % slab][i / slab] = row < rows && k < depth ? a[static_cast<size_t>(row) * depth + k] : real(0);
        }
        for (unsigned i = thread; i < tile * slab; i += group * group) {
            const unsigned k = start + i / tile, column = first_column + i % tile;
            b_slab[i / tile][i % tile] = k < depth && column < columns ? b[static_cast<size_t>(k) * columns + column] : real(0);
        }
        __syncthreads();
        for (unsigned k = 0; k < slab; k++) {
            real a_value[registers], b_value[registers];
            for (unsigned i = 0; i < registers; i++) {
                a_value[i] = a_slab[k][y + i * group];
                b_value[i] = b_slab[k][x + i * group];
            }
            for (unsigned i = 0; i < registers; i++)
                for (unsigned j = 0; j < registers; j++) sum[i][j] += a_value[i] * b_value[j];
        }
        __syncthreads();
    }
    for (unsigned i = 0; i < registers; i++) {
        for (unsigned j = 0; j < registers; j++) {
            const unsigned row = first_row + y + i * group, column = first_column + x + j * group;
            if (row < rows && column < columns) {
                const size_t at = static_cast<size_t>(row) * columns + column;
                c[at] = alpha * sum[i][j] + beta * c[at];
            }
        }
    }
}

// One device's part of one instance.
template <typename real> struct part {
    band rows;
    device_array<real> a, b, c;
};

template <typename real> struct instance {
    host_array<real> a, b, c, result;
    std::vector<part<real>> parts; // one per device

    instance(const devices &devices, size_t n, random_source &random)
        : a(*devices.options, n * n), b(*devices.options, n * n), c(*devices.options, n * n), result(*devices.options, n * n) {
        for (const host_array<real> *matrix : {&a, &b, &c})
            for (size_t i = 0; i < n * n; i++) (*matrix)[i] = static_cast<real>(random.uniform(-1, 1));
        for (size_t d = 0; d < devices.count(); d++) {
            const band rows = band_of(n, devices.count(), d);
            parts.push_back({rows, {devices, d, rows.count * n}, {devices, d, n * n}, {devices, d, rows.count * n}});
        }
    }
};

template <typename real> static void issue(const instance<real> &instance, size_t n, run &run) {
    // More registers than this for sums in double precision leave a multiprocessor too few threads.
    constexpr unsigned registers = sizeof(real) == 4 ? 8 : 4, tile = group * registers;
    for (size_t d = 0; d < instance.parts.size(); d++) {
        const part<real> &part = instance.parts[d];
        const cudaStream_t stream = run.stream(d);
        const size_t offset = part.rows.first * n;
        CUDA_CHECK(cudaMemcpyAsync(part.a.data(), instance.a.data() + offset, part.a.bytes(), cudaMemcpyHostToDevice, stream));
        CUDA_CHECK(cudaMemcpyAsync(part.b.data(), instance.b.data(), part.b.bytes(), cudaMemcpyHostToDevice, stream));
        CUDA_CHECK(cudaMemcpyAsync(part.c.data(), instance.c.data() + offset, part.c.bytes(), cudaMemcpyHostToDevice, stream));
        run.kernel(d, [&](cudaStream_t stream) {
            const unsigned columns = static_cast<unsigned>(n), rows = static_cast<unsigned>(part.rows.count);
            const dim3 grid(static_cast<unsigned>(divide_up(n, tile)), static_cast<unsigned>(divide_up(rows, tile)));
            gemm<real, registers><<<grid, dim3(group, group), 0, stream>>>(
                rows, columns, columns, real(alpha), part.a.data(), part.b.data(), real(beta), part.c.data());
        });
        CUDA_CHECK(cudaMemcpyAsync(instance.result.data() + offset, part.c.data(), part.c.bytes(), cudaMemcpyDeviceToHost, stream));
    }
}

// Recomputes one row in double precision. An element's error is measured relative to S = the sum of the absolute values
// of its terms. Rounding errors are independent with mean zero, so for n terms they stay below 4 sqrt(n) u S but with
// negligible probability (Higham and Mary, 2019), u being the unit roundoff, in whatever order the device sums. The 8
// covers alpha, beta and the final sum.
template <typename real> static void check_row(const instance<real> &instance, size_t n, size_t row, verdict &verdict) {
    const double tolerance = (8 + 4 * std::sqrt(static_cast<double>(n))) * unit_roundoff<real>();
    std::vector<double> sums(n), magnitudes(n);
    for (size_t k = 0; k < n; k++) {
        const double a = instance.a[row * n + k];
        for (size_t column = 0; column < n; column++) {
            const double term = a * static_cast<double>(instance.b[k * n + column]);
            sums[column] += term;
            magnitudes[column] += std::fabs(term);
        }
    }
    for (size_t column = 0; column < n; column++) {
        const double c = instance.c[row * n + column];
        const double expected = alpha * sums[column] + beta * c;
        const double magnitude = std::fabs(alpha) * magnitudes[column] + std::fabs(beta * c) + DBL_MIN;
        verdict.hold(std::fabs(instance.result[row * n + column] - expected) / magnitude, tolerance);
    }
}

// All rows while that is cheap; else the first and last row of every band and random ones.
template <typename real> static void check(const instance<real> &instance, size_t n, random_source &random, verdict &verdict) {
    const size_t budget = check_budget / (n * n);
    if (n <= budget) {
        for (size_t row = 0; row < n; row++) check_row(instance, n, row, verdict);
        return;
    }
    for (const part<real> &part : instance.parts) {
        check_row(instance, n, part.rows.first, verdict);
        check_row(instance, n, part.rows.first + part.rows.count - 1, verdict);
    }
    for (size_t sample = 0; sample < budget; sample++) check_row(instance, n, random.below(n), verdict);
}

template <typename real> static int multiply(const options &options) {
    const devices devices(options);
    const size_t n = options.size;
    if (n < devices.count()) usage_error(options, "--size %zu: fewer rows than devices (%zu)", n, devices.count());
    random_source random{options.seed}, choice{options.seed ^ 0x636865636bu};
    std::vector<instance<real>> instances;
    for (size_t i = 0; i < options.instances; i++) instances.emplace_back(devices, n, random);

    const measurement measurement = measure(devices, [&](run &run) {
        for (const instance<real> &instance : instances) issue(instance, n, run);
    });
    verdict verdict;
    uint64_t digest = hash_bytes(nullptr, 0);
    for (const instance<real> &instance : instances) {
        digest = hash_bytes(instance.result.data(), instance.result.bytes(), digest);
        if (!options.skip_check) check(instance, n, choice, verdict);
    }
    const double side = static_cast<double>(n);
    const rate rate = {"gflops", "GFLOP/s", 2 * side * side * side * static_cast<double>(options.instances) * 1e-9};
    return report(devices, measurement, rate, precision_name(options), options.skip_check ? nullptr : &verdict, digest);
}

int main(int argc, char **argv) {
    options options{"sgemm", 512};
    options_parse(options, argc, argv, "Multiplies two square matrices: C = alpha A B + beta C.",
                  "rows and columns of the matrices",
                  {{"precision", option_kind::choice, &options.precision, 0, "single|double", "SGEMM or DGEMM (default: single)"}});
    if (options.size > 1 << 16) usage_error(options, "--size %zu: at most 65536", options.size);
    return options.precision == precision_double ? multiply<double>(options) : multiply<float>(options);
}
