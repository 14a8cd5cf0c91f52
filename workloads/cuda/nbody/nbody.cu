// N-body: softened gravity between all pairs, integrated with the semi-implicit Euler method.
//
// With several devices each moves a band of the bodies. After every step the new positions go from the device that
// computed them to all others: peer copies ordered by events across the streams.
#include "../common/measure.h"

#include <cmath>
#include <cstdio>
#include <cstring>

constexpr unsigned tile = 256;
constexpr double time_step = 0.01, softening_squared = 0.0025;
// By convention an interaction counts as 20 operations (GPU Gems 3).
constexpr double operations_per_interaction = 20;
// Interactions that the check may spend on one instance.
constexpr size_t check_budget = size_t{1} << 25;

// Position and mass, or velocity and zero. As wide as one memory access.
template <typename real> struct alignas(4 * sizeof(real) < 16 ? 4 * sizeof(real) : 16) body {
    real x, y, z, w;
};

// Moves the bodies first .. first + count - 1; one thread per body, all bodies in turn through shared memory.
template <typename real>
__global__ void __launch_bounds__(tile)
    step_bodies(const body<real> *__restrict__ positions, body<real> *__restrict__ moved, body<real> *__restrict__ velocities,
                unsigned bodies, unsigned first, unsigned count, real time_step, real softening_squared) {
    __shared__ body<real> part[tile];
    const unsigned thread = threadIdx.x, slot = blockIdx.x * tile + thread;
    const bool present = slot < count;
    const body<real> position = positions[first + (present ? slot : 0)];
    real x = 0, y = 0, z = 0;
    for (unsigned start = 0; start < bodies; start += tile) {
        const unsigned other = start + thread;
        // A body without mass attracts nothing.
        part[thread] = other < bodies ? positions[other] : body<real>{0, 0, 0, 0};
        __syncthreads();
        for (unsigned i = 0; i < tile; i++) {
            const body<real> body = part[i];
            const real dx = body.x - position.x, dy = body.y - position.y, dz = body.z - position.z;
            const real inverse = rsqrt(dx * dx + dy * dy + dz * dz + softening_squared);
            const real pull = body.w * inverse * inverse * inverse;
            x += pull * dx;
            y += pull * dy;
            z += pull * dz;
        }
        __syncthreads();
    }
    if (!present) return;
    body<real> velocity = velocities[slot];
    velocity.x += time_step * x;
    velocity.y += time_step * y;
    velocity.z += time_step * z;
    velocities[slot] = velocity;
    moved[first + slot] = {position.x + time_step * velocity.x, position.y + time_step * velocity.y,
                           position.z + time_step * velocity.z, position.w};
}

// One device's part of one instance.
template <typename real> struct part {
    band bodies;
    device_array<body<real>> positions[2]; // of all bodies; a step reads one and writes the other
    device_array<body<real>> velocities;   // of the band
};

template <typename real> struct instance {
    host_array<body<real>> positions, velocities, final_positions, final_velocities;
    std::vector<part<real>> parts; // one per device

    instance(const devices &devices, size_t n, random_source &random)
        : positions(*devices.options, n), velocities(*devices.options, n), final_positions(*devices.options, n),
          final_velocities(*devices.options, n) {
        const auto within = [&](double limit) { return static_cast<real>(random.uniform(-limit, limit)); };
        for (size_t at = 0; at < n; at++) {
            positions[at].x = within(1), positions[at].y = within(1), positions[at].z = within(1);
            positions[at].w = static_cast<real>(random.uniform(0.5, 1.5) / static_cast<double>(n));
            velocities[at].x = within(0.1), velocities[at].y = within(0.1), velocities[at].z = within(0.1);
            velocities[at].w = 0;
        }
        for (size_t d = 0; d < devices.count(); d++) {
            const band bodies = band_of(n, devices.count(), d);
            parts.push_back({bodies, {{devices, d, n}, {devices, d, n}}, {devices, d, bodies.count}});
        }
    }
};

template <typename real> class system_of_bodies {
public:
    system_of_bodies(const devices &devices, size_t steps) : devices_(devices), n_(devices.options->size), steps_(steps) {
        random_source random{devices.options->seed};
        for (size_t i = 0; i < devices.options->instances; i++) instances_.emplace_back(devices, n_, random);
        for (size_t d = 0; d < devices.count(); d++) {
            devices.use(d);
            cudaEvent_t event;
            CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
            moved_.push_back(event);
            CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
            received_.push_back(event);
        }
    }
    ~system_of_bodies() {
        for (const cudaEvent_t event : moved_) CUDA_CHECK(cudaEventDestroy(event));
        for (const cudaEvent_t event : received_) CUDA_CHECK(cudaEventDestroy(event));
    }

    void issue(run &run) const {
        for (const instance<real> &instance : instances_) {
            send(instance, run);
            for (size_t step = 0; step < steps_; step++) advance(instance, run, step);
            receive(instance, run, steps_, instance.final_positions, instance.final_velocities);
        }
    }
    verdict check() const;
    uint64_t digest() const {
        uint64_t hash = hash_bytes(nullptr, 0);
        for (const instance<real> &instance : instances_) {
            hash = hash_bytes(instance.final_positions.data(), instance.final_positions.bytes(), hash);
            hash = hash_bytes(instance.final_velocities.data(), instance.final_velocities.bytes(), hash);
        }
        return hash;
    }

private:
    using bodies = host_array<body<real>>;

    void send(const instance<real> &instance, run &run) const {
        for (size_t d = 0; d < instance.parts.size(); d++) {
            const part<real> &part = instance.parts[d];
            CUDA_CHECK(cudaMemcpyAsync(part.positions[0].data(), instance.positions.data(), instance.positions.bytes(),
                                       cudaMemcpyHostToDevice, run.stream(d)));
            CUDA_CHECK(cudaMemcpyAsync(part.velocities.data(), instance.velocities.data() + part.bodies.first,
                                       part.velocities.bytes(), cudaMemcpyHostToDevice, run.stream(d)));
        }
    }
    // Step number `step`, counted from 0.
    void advance(const instance<real> &instance, run &run, size_t step) const {
        const size_t source = step % 2, count = instance.parts.size();
        for (size_t d = 0; d < count; d++) {
            const part<real> &part = instance.parts[d];
            run.kernel(d, [&](cudaStream_t stream) {
                const unsigned present = static_cast<unsigned>(part.bodies.count);
                step_bodies<real><<<static_cast<unsigned>(divide_up(present, tile)), tile, 0, stream>>>(
                    part.positions[source].data(), part.positions[1 - source].data(), part.velocities.data(),
                    static_cast<unsigned>(n_), static_cast<unsigned>(part.bodies.first), present,
                    static_cast<real>(time_step), static_cast<real>(softening_squared));
            });
            if (count > 1) CUDA_CHECK(cudaEventRecord(moved_[d], run.stream(d)));
        }
        if (count > 1) exchange(instance, run, 1 - source);
    }
    // Copies the positions that each device has computed to every other device. The copies run on the streams of the
    // receivers, and every stream waits until all have theirs, so that no later step overwrites what is still read.
    void exchange(const instance<real> &instance, run &run, size_t target) const {
        const size_t count = instance.parts.size();
        for (size_t to = 0; to < count; to++) {
            devices_.use(to);
            for (size_t from = 0; from < count; from++) {
                if (from == to) continue;
                const part<real> &source = instance.parts[from];
                const size_t first = source.bodies.first;
                CUDA_CHECK(cudaStreamWaitEvent(run.stream(to), moved_[from], 0));
                CUDA_CHECK(cudaMemcpyPeerAsync(instance.parts[to].positions[target].data() + first, devices_.ids[to],
                                               source.positions[target].data() + first, devices_.ids[from],
                                               source.bodies.count * sizeof(body<real>), run.stream(to)));
            }
            CUDA_CHECK(cudaEventRecord(received_[to], run.stream(to)));
        }
        for (size_t d = 0; d < count; d++)
            for (size_t other = 0; other < count; other++)
                if (other != d) CUDA_CHECK(cudaStreamWaitEvent(run.stream(d), received_[other], 0));
    }
    // Reads the state after `steps` steps: every device has the bodies of its band.
    void receive(const instance<real> &instance, run &run, size_t steps, const bodies &positions, const bodies &velocities) const {
        for (size_t d = 0; d < instance.parts.size(); d++) {
            const part<real> &part = instance.parts[d];
            const size_t first = part.bodies.first, bytes = part.bodies.count * sizeof(body<real>);
            CUDA_CHECK(cudaMemcpyAsync(positions.data() + first, part.positions[steps % 2].data() + first, bytes,
                                       cudaMemcpyDeviceToHost, run.stream(d)));
            CUDA_CHECK(cudaMemcpyAsync(velocities.data() + first, part.velocities.data(), bytes, cudaMemcpyDeviceToHost,
                                       run.stream(d)));
        }
    }
    void check_body(const bodies &before, const bodies &speeds, const bodies &after, const bodies &new_speeds, size_t at,
                    verdict &verdict) const;

    const devices &devices_;
    size_t n_, steps_;
    std::vector<instance<real>> instances_;
    std::vector<cudaEvent_t> moved_, received_; // one per device
};

// Moves one body from `before` in double precision and compares with `after`. The acceleration is a sum of n terms and
// its error is measured against A = the sum of the terms' lengths: 4 sqrt(n) u A for the summation (rounding errors are
// independent with mean zero: Higham and Mary, 2019) and 16 u A for the terms themselves, of about ten operations each
// with a reciprocal square root of at most 2 ulp. Velocity and position add the rounding of their own update.
template <typename real>
void system_of_bodies<real>::check_body(const bodies &before, const bodies &speeds, const bodies &after,
                                        const bodies &new_speeds, size_t at, verdict &verdict) const {
    const double u = unit_roundoff<real>();
    // What the kernel was given: the parameters rounded to its precision.
    const double step = static_cast<real>(time_step), softening = static_cast<real>(softening_squared);
    const double position[3] = {before[at].x, before[at].y, before[at].z};
    const double speed[3] = {speeds[at].x, speeds[at].y, speeds[at].z};
    const double found[3] = {after[at].x, after[at].y, after[at].z};
    const double found_speed[3] = {new_speeds[at].x, new_speeds[at].y, new_speeds[at].z};
    double acceleration[3] = {0, 0, 0}, length_sum = 0;
    for (size_t other = 0; other < n_; other++) {
        const double difference[3] = {before[other].x - position[0], before[other].y - position[1], before[other].z - position[2]};
        double squared = softening;
        for (const double along : difference) squared += along * along;
        const double inverse = 1 / std::sqrt(squared);
        const double pull = before[other].w * inverse * inverse * inverse;
        for (int axis = 0; axis < 3; axis++) acceleration[axis] += pull * difference[axis];
        length_sum += pull * std::sqrt(squared);
    }
    const double acceleration_error = (16 + 4 * std::sqrt(static_cast<double>(n_))) * u * length_sum;
    for (int axis = 0; axis < 3; axis++) {
        const double velocity = speed[axis] + step * acceleration[axis];
        const double velocity_error = step * acceleration_error + 4 * u * (std::fabs(velocity) + step * length_sum);
        const double moved = position[axis] + step * velocity;
        const double moved_error = step * velocity_error + 4 * u * (std::fabs(position[axis]) + std::fabs(moved));
        const double off = std::fabs(found_speed[axis] - velocity);
        if (!(off <= velocity_error && std::fabs(found[axis] - moved) <= moved_error)) verdict.passed = false;
        verdict.max_error = std::fmax(verdict.max_error, off / (std::fabs(velocity) + step * length_sum));
    }
    if (after[at].w != before[at].w) verdict.passed = false;
}

// Runs each instance once more, step by step, and checks each step from the state that the device itself had before it,
// so that no error is amplified by the motion. The state after the last step must be, to the bit, the one of the measured
// run, which waited for nothing in between: anything else is a lost ordering.
template <typename real> verdict system_of_bodies<real>::check() const {
    const options &options = *devices_.options;
    const size_t bytes = n_ * sizeof(body<real>), budget = check_budget / n_ / steps_;
    random_source random{options.seed ^ 0x636865636bu};
    bodies positions[2] = {{options, n_}, {options, n_}}, velocities[2] = {{options, n_}, {options, n_}};
    verdict verdict;
    for (const instance<real> &instance : instances_) {
        run run(devices_);
        std::memcpy(positions[0].data(), instance.positions.data(), bytes);
        std::memcpy(velocities[0].data(), instance.velocities.data(), bytes);
        send(instance, run);
        for (size_t step = 0; step < steps_; step++) {
            const size_t from = step % 2, to = 1 - from;
            advance(instance, run, step);
            receive(instance, run, step + 1, positions[to], velocities[to]);
            run.finish();
            const auto look = [&](size_t at) {
                check_body(positions[from], velocities[from], positions[to], velocities[to], at, verdict);
            };
            // All bodies while that is cheap; else the first and last body of every band and random ones.
            if (n_ <= budget) {
                for (size_t at = 0; at < n_; at++) look(at);
                continue;
            }
            for (const part<real> &part : instance.parts) {
                look(part.bodies.first);
                look(part.bodies.first + part.bodies.count - 1);
            }
            for (size_t sample = 0; sample < budget; sample++) look(random.below(n_));
        }
        const size_t last = steps_ % 2;
        if (std::memcmp(positions[last].data(), instance.final_positions.data(), bytes) != 0 ||
            std::memcmp(velocities[last].data(), instance.final_velocities.data(), bytes) != 0) {
            std::fprintf(stderr, "nbody: the measured run and the stepped run differ\n");
            verdict.passed = false;
        }
    }
    return verdict;
}

template <typename real> static int move(const options &options, size_t steps) {
    const devices devices(options);
    if (options.size < devices.count())
        usage_error(options, "--size %zu: fewer bodies than devices (%zu)", options.size, devices.count());
    const system_of_bodies<real> bodies(devices, steps);
    const measurement measurement = measure(devices, [&](run &run) { bodies.issue(run); });
    const uint64_t digest = bodies.digest();
    verdict verdict;
    if (!options.skip_check) verdict = bodies.check();
    const double n = static_cast<double>(options.size);
    const rate rate = {"gflops", "GFLOP/s",
                       operations_per_interaction * n * n * static_cast<double>(steps * options.instances) * 1e-9};
    return report(devices, measurement, rate, precision_name(options), options.skip_check ? nullptr : &verdict, digest);
}

int main(int argc, char **argv) {
    options options{"nbody", 4096};
    size_t steps = 2;
    options_parse(options, argc, argv, "Moves bodies that all attract each other.", "bodies",
                  {{"precision", option_kind::choice, &options.precision, 0, "single|double", "of the bodies (default: single)"},
                   {"steps", option_kind::count, &steps, 1, "S", "time steps of one run (default: 2)"}});
    if (options.size > 1 << 26) usage_error(options, "--size %zu: at most 67108864", options.size);
    return options.precision == precision_double ? move<double>(options, steps) : move<float>(options, steps);
}
