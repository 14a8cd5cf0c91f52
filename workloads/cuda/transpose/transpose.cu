// Matrix transpose of a square matrix through tiles in shared memory, so that both the reads and the writes of global
// memory run along rows.
//
// With several devices each transposes a band of rows, which is a band of columns of the result.
#include "../common/measure.h"

#include <cmath>

constexpr unsigned tile = 32, group_rows = 8;

template <typename real>
__global__ void __launch_bounds__(tile *group_rows)
    transpose(const real *__restrict__ input, real *__restrict__ output, unsigned rows, unsigned columns) {
    // The extra column puts the elements of a tile's column into different banks.
    __shared__ real part[tile][tile + 1];
    const unsigned x = threadIdx.x, first_row = blockIdx.y * tile, first_column = blockIdx.x * tile;

    for (unsigned y = threadIdx.y; y < tile; y += group_rows) {
        const unsigned row = first_row + y, column = first_column + x;
        if (row < rows && column < columns) part[y][x] = input[static_cast<size_t>(row) * columns + column];
    }
    __syncthreads();
    for (unsigned y = threadIdx.y; y < tile; y += group_rows) {
        const unsigned row = first_row + x, column = first_column + y;
        if (row < rows && column < columns) output[static_cast<size_t>(column) * rows + row] = part[x][y];
    }
}

// One device's part of one instance.
template <typename real> struct part {
    band rows;
    device_array<real> input, output;
};

template <typename real> struct instance {
    host_array<real> input, output;
    std::vector<part<real>> parts; // one per device

    instance(const devices &devices, size_t n, random_source &random)
        : input(*devices.options, n * n), output(*devices.options, n * n) {
        for (size_t at = 0; at < n * n; at++) {
            input[at] = static_cast<real>(random.uniform(-1, 1));
            output[at] = std::numeric_limits<real>::quiet_NaN();
        }
        for (size_t d = 0; d < devices.count(); d++) {
            const band rows = band_of(n, devices.count(), d);
            parts.push_back({rows, {devices, d, rows.count * n}, {devices, d, rows.count * n}});
        }
    }
};

template <typename real> static void issue(const instance<real> &instance, size_t n, run &run) {
    for (size_t d = 0; d < instance.parts.size(); d++) {
        const part<real> &part = instance.parts[d];
        const unsigned rows = static_cast<unsigned>(part.rows.count), columns = static_cast<unsigned>(n);
        CUDA_CHECK(cudaMemcpyAsync(part.input.data(), instance.input.data() + part.rows.first * n, part.input.bytes(),
                                   cudaMemcpyHostToDevice, run.stream(d)));
        run.kernel(d, [&](cudaStream_t stream) {
            const dim3 grid(static_cast<unsigned>(divide_up(n, tile)), static_cast<unsigned>(divide_up(rows, tile)));
            transpose<real><<<grid, dim3(tile, group_rows), 0, stream>>>(part.input.data(), part.output.data(), rows, columns);
        });
        // The device's output is the band's columns of the result: its rows go to places that are one whole row apart.
        const size_t width = rows * sizeof(real);
        CUDA_CHECK(cudaMemcpy2DAsync(instance.output.data() + part.rows.first, n * sizeof(real), part.output.data(), width,
                                     width, n, cudaMemcpyDeviceToHost, run.stream(d)));
    }
}

// Nothing is computed, so every element must arrive unchanged: the tolerance is zero.
template <typename real> static void check(const instance<real> &instance, size_t n, verdict &verdict) {
    for (size_t row = 0; row < n; row++)
        for (size_t column = 0; column < n; column++)
            verdict.hold(std::fabs(instance.output[column * n + row] - instance.input[row * n + column]), 0);
}

template <typename real> static int turn(const options &options) {
    const devices devices(options);
    const size_t n = options.size;
    if (n < devices.count()) usage_error(options, "--size %zu: fewer rows than devices (%zu)", n, devices.count());
    random_source random{options.seed};
    std::vector<instance<real>> instances;
    for (size_t i = 0; i < options.instances; i++) instances.emplace_back(devices, n, random);

    const measurement measurement = measure(devices, [&](run &run) {
        for (const instance<real> &instance : instances) issue(instance, n, run);
    });
    verdict verdict;
    uint64_t digest = hash_bytes(nullptr, 0);
    for (const instance<real> &instance : instances) {
        digest = hash_bytes(instance.output.data(), instance.output.bytes(), digest);
        if (!options.skip_check) check(instance, n, verdict);
    }
    // Each element is read once and written once.
    const rate rate = {"gbytes_per_s", "GB/s", 2e-9 * static_cast<double>(n * n * sizeof(real) * options.instances)};
    return report(devices, measurement, rate, precision_name(options), options.skip_check ? nullptr : &verdict, digest);
}

int main(int argc, char **argv) {
    options options{"transpose", 2048};
    options_parse(options, argc, argv, "Transposes a square matrix.", "rows and columns of the matrix",
                  {{"precision", option_kind::choice, &options.precision, 0, "single|double", "of the elements (default: single)"}});
    if (options.size > 1 << 17) usage_error(options, "--size %zu: at most 131072", options.size);
    return options.precision == precision_double ? turn<double>(options) : turn<float>(options);
}
