// Molecular dynamics of a Lennard-Jones fluid: LAMMPS's `in.lj` with a list of neighbours, velocity Verlet, no thermostat.
// The default is the size of the rCUDA paper: 76^3 cells of 4 atoms, 2,000 steps.
//
// By default neighbours are listed anew every 20 steps without looking whether that is needed, as `in.lj` does, so that a
// run waits for nothing. With `--rebuild 0` they are listed when an atom has moved half the skin: the host reads four bytes
// after every step to know.
//
// With several devices each moves a band of the atoms and has the positions of all; after every drift the new positions go
// from the device that computed them to all others. Every device sorts all atoms by itself, to the same order.
#include "../common/measure.h"
#include "physics.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

using namespace lj;

constexpr unsigned group = 128, scan_group = 1024;

// What the host looks at: how far atoms have moved since the last listing, and whether a limit was passed.
struct signals {
    int farthest; // squared, a float's bits: they order as non-negative floats do
    unsigned most_neighbours; // when more than fit
};

__device__ inline unsigned thread_index() { return blockIdx.x * blockDim.x + threadIdx.x; }

template <typename real>
__global__ void find_cells(box<real> box, vec<real> *positions, unsigned atoms, unsigned *cells, unsigned *counts) {
    const unsigned atom = thread_index();
    if (atom >= atoms) return;
    vec<real> at = positions[atom];
    at.x = box.wrapped(at.x), at.y = box.wrapped(at.y), at.z = box.wrapped(at.z);
    positions[atom] = at;
    const unsigned cell = box.cell_of(at);
    cells[atom] = cell;
    atomicAdd(&counts[cell], 1u);
}

// Turns counts into the places where cells begin, with the end of the last behind them; `fill` becomes a copy. One block.
__global__ void __launch_bounds__(scan_group)
    start_cells(const unsigned *counts, unsigned *starts, unsigned *fill, unsigned cells) {
    __shared__ unsigned sums[scan_group];
    const unsigned share = (cells + scan_group - 1) / scan_group, first = min(threadIdx.x * share, cells);
    const unsigned end = min(first + share, cells);
    unsigned sum = 0;
    for (unsigned cell = first; cell < end; cell++) sum += counts[cell];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned reach = 1; reach < scan_group; reach *= 2) {
        const unsigned before = threadIdx.x >= reach ? sums[threadIdx.x - reach] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }
    unsigned at = sums[threadIdx.x] - sum;
    for (unsigned cell = first; cell < end; cell++) {
        starts[cell] = at;
        fill[cell] = at;
        at += counts[cell];
    }
    if (threadIdx.x == scan_group - 1) starts[cells] = sums[threadIdx.x];
}

__global__ void fill_cells(const unsigned *cells, unsigned atoms, unsigned *fill, unsigned *order) {
    const unsigned atom = thread_index();
    if (atom < atoms) order[atomicAdd(&fill[cells[atom]], 1u)] = atom;
}

// Atoms arrive in a cell in any order; sorted, every run and every device gets the same.
__global__ void sort_cells(const unsigned *starts, unsigned cells, unsigned *order) {
    const unsigned cell = thread_index();
    if (cell >= cells) return;
    const unsigned first = starts[cell], end = starts[cell + 1];
    for (unsigned i = first + 1; i < end; i++) {
        const unsigned atom = order[i];
        unsigned at = i;
        for (; at > first && order[at - 1] > atom; at--) order[at] = order[at - 1];
        order[at] = atom;
    }
}

template <typename real>
__global__ void gather(const unsigned *order, unsigned atoms, const vec<real> *positions, const vec<real> *velocities,
                       vec<real> *sorted_positions, vec<real> *sorted_velocities, vec<real> *listed, signals *signals) {
    const unsigned slot = thread_index();
    if (slot == 0) signals->farthest = 0;
    if (slot >= atoms) return;
    const vec<real> position = positions[order[slot]];
    sorted_positions[slot] = position;
    listed[slot] = position;
    sorted_velocities[slot] = velocities[order[slot]];
}

// From here on a thread has atom first + its index, of the band of `count`.
template <typename real>
__global__ void list(box<real> box, const vec<real> *positions, const unsigned *starts, unsigned first, unsigned count,
                     unsigned *neighbours, unsigned *counts, signals *signals) {
    const unsigned slot = thread_index();
    if (slot >= count) return;
    const unsigned found = list_neighbours(box, positions, starts, first + slot, neighbours + slot, count);
    counts[slot] = min(found, most_neighbours);
    if (found > most_neighbours) atomicMax(&signals->most_neighbours, found);
}

template <typename real>
__global__ void drift(box<real> box, vec<real> *positions, vec<real> *velocities, const vec<real> *forces,
                      const vec<real> *listed, unsigned first, unsigned count, real step, signals *signals) {
    const unsigned slot = thread_index();
    float moved = 0;
    if (slot < count) {
        const unsigned atom = first + slot;
        vec<real> position = positions[atom], velocity = velocities[atom];
        kick_and_drift(position, velocity, forces[slot], step);
        positions[atom] = position;
        velocities[atom] = velocity;
        moved = static_cast<float>(distance_squared(box, position, listed[atom]));
    }
    const int farthest = __reduce_max_sync(0xffffffffu, __float_as_int(moved));
    // Most warps have nothing to add, and reading is cheaper than finding that out atomically.
    if (threadIdx.x % 32 == 0 && farthest > *const_cast<volatile int *>(&signals->farthest)) atomicMax(&signals->farthest, farthest);
}

// Sums of a block's threads, valid in thread 0. In a fixed order, so that equal input gives equal bits.
__device__ sums block_sums(sums own) {
    __shared__ sums all[group];
    all[threadIdx.x] = own;
    __syncthreads();
    for (unsigned half = group / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            const sums other = all[threadIdx.x + half];
            sums &mine = all[threadIdx.x];
            mine.potential += other.potential, mine.pairs += other.pairs, mine.kinetic += other.kinetic;
            mine.x += other.x, mine.y += other.y, mine.z += other.z;
        }
        __syncthreads();
    }
    return all[0];
}

// New forces, and the second half of the kick unless `step` is zero. `energy` adds the block's part of the sums.
template <typename real, bool energy>
__global__ void __launch_bounds__(group)
    push(box<real> box, const vec<real> *positions, vec<real> *velocities, vec<real> *forces, const unsigned *neighbours,
         const unsigned *counts, unsigned first, unsigned count, real step, sums *parts) {
    const unsigned slot = thread_index();
    sums own = {};
    if (slot < count) {
        unsigned pairs;
        const vec<real> force = force_on(box, positions, first + slot, neighbours + slot, count, counts[slot], energy, pairs);
        vec<real> velocity = velocities[first + slot];
        kick(velocity, force, step);
        forces[slot] = force;
        velocities[first + slot] = velocity;
        const double x = velocity.x, y = velocity.y, z = velocity.z;
        own = {static_cast<double>(force.w), static_cast<double>(pairs), (x * x + y * y + z * z) / 2, x, y, z};
    }
    if (!energy) return;
    own = block_sums(own);
    if (threadIdx.x == 0) parts[blockIdx.x] = own;
}

__global__ void __launch_bounds__(group) add_parts(const sums *parts, unsigned count, sums *total) {
    sums own = {};
    for (unsigned i = threadIdx.x; i < count; i += group) {
        const sums part = parts[i];
        own.potential += part.potential, own.pairs += part.pairs, own.kinetic += part.kinetic;
        own.x += part.x, own.y += part.y, own.z += part.z;
    }
    own = block_sums(own);
    if (threadIdx.x == 0) *total = own;
}

struct plan {
    size_t cells, steps, rebuild, sample;

    bool sampled(size_t step) const { return step % sample == 0 || step == steps; }
    size_t samples() const { return steps / sample + 1 + (steps % sample != 0); }
};

// One device's part of the fluid.
template <typename real> struct part {
    band atoms;
    device_array<vec<real>> positions, velocities, sorted_positions, sorted_velocities, listed, forces;
    device_array<unsigned> cells, order, cell_counts, starts, fill, neighbours, counts;
    device_array<sums> parts, totals;
    device_array<struct signals> signals;
    host_array<struct signals> seen;
    host_array<sums> samples;

    part(const devices &devices, size_t d, const plan &plan, size_t n, size_t all_cells)
        : atoms(band_of(n, devices.count(), d)), positions(devices, d, n), velocities(devices, d, n),
          sorted_positions(devices, d, n), sorted_velocities(devices, d, n), listed(devices, d, n),
          forces(devices, d, atoms.count), cells(devices, d, n), order(devices, d, n), cell_counts(devices, d, all_cells),
          starts(devices, d, all_cells + 1), fill(devices, d, all_cells), neighbours(devices, d, atoms.count * most_neighbours),
          counts(devices, d, atoms.count), parts(devices, d, divide_up(atoms.count, group)), totals(devices, d, plan.samples()),
          signals(devices, d, 1), seen(*devices.options, 1), samples(*devices.options, plan.samples()) {}
};

template <typename real> class fluid {
public:
    fluid(const devices &devices, const plan &plan, uint64_t seed)
        : devices_(devices), plan_(plan), first_positions_(*devices.options, atoms_in(plan)),
          first_velocities_(*devices.options, atoms_in(plan)), last_(*devices.options, atoms_in(plan)) {
        const start<real> start(plan.cells, seed);
        box_ = start.bounds;
        n_ = start.positions.size();
        cells_ = static_cast<unsigned>(box_.cells * box_.cells * box_.cells);
        std::copy(start.positions.begin(), start.positions.end(), first_positions_.data());
        std::copy(start.velocities.begin(), start.velocities.end(), first_velocities_.data());
        for (size_t d = 0; d < devices.count(); d++) {
            parts_.emplace_back(devices, d, plan, n_, cells_);
            devices.use(d);
            for (std::vector<cudaEvent_t> *events : {&moved_, &received_}) {
                cudaEvent_t event;
                CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
                events->push_back(event);
            }
        }
    }
    ~fluid() {
        for (const cudaEvent_t event : moved_) CUDA_CHECK(cudaEventDestroy(event));
        for (const cudaEvent_t event : received_) CUDA_CHECK(cudaEventDestroy(event));
    }
    fluid(const fluid &) = delete;

    static size_t atoms_in(const plan &plan) { return 4 * plan.cells * plan.cells * plan.cells; }

    void issue(run &run) {
        for (size_t d = 0; d < parts_.size(); d++) {
            part<real> &part = parts_[d];
            devices_.use(d);
            CUDA_CHECK(cudaMemcpyAsync(part.positions.data(), first_positions_.data(), part.positions.bytes(), cudaMemcpyHostToDevice, run.stream(d)));
            CUDA_CHECK(cudaMemcpyAsync(part.velocities.data(), first_velocities_.data(), part.velocities.bytes(), cudaMemcpyHostToDevice, run.stream(d)));
            CUDA_CHECK(cudaMemsetAsync(part.signals.data(), 0, part.signals.bytes(), run.stream(d)));
        }
        listings_ = 0;
        size_t sample = 0, listed_at = 0;
        list_neighbours(run);
        push_all(run, real(0), true, sample++);
        for (size_t step = 1; step <= plan_.steps; step++) {
            for (size_t d = 0; d < parts_.size(); d++) {
                part<real> &part = parts_[d];
                run.kernel(d, [&](cudaStream_t stream) {
                    drift<real><<<blocks(part.atoms.count), group, 0, stream>>>(
                        box_, part.positions.data(), part.velocities.data(), part.forces.data(), part.listed.data(), first(part),
                        count(part), static_cast<real>(time_step), part.signals.data());
                });
            }
            exchange(run, &part<real>::positions);
            if (plan_.rebuild > 0 ? step - listed_at >= plan_.rebuild : moved_too_far(run)) {
                exchange(run, &part<real>::velocities);
                list_neighbours(run);
                listed_at = step;
            }
            const bool sampled = plan_.sampled(step);
            push_all(run, static_cast<real>(time_step), sampled, sample);
            sample += sampled;
        }
        for (size_t d = 0; d < parts_.size(); d++) {
            part<real> &part = parts_[d];
            devices_.use(d);
            CUDA_CHECK(cudaMemcpyAsync(part.samples.data(), part.totals.data(), part.totals.bytes(), cudaMemcpyDeviceToHost, run.stream(d)));
            CUDA_CHECK(cudaMemcpyAsync(part.seen.data(), part.signals.data(), part.signals.bytes(), cudaMemcpyDeviceToHost, run.stream(d)));
            CUDA_CHECK(cudaMemcpyAsync(last_.data() + part.atoms.first, part.positions.data() + part.atoms.first,
                                       part.atoms.count * sizeof(vec<real>), cudaMemcpyDeviceToHost, run.stream(d)));
        }
    }
    void check(verdict &verdict, bool quiet) const {
        std::vector<state> states;
        std::vector<size_t> steps;
        for (const part<real> &part : parts_) {
            if (part.seen[0].most_neighbours == 0) continue;
            std::fprintf(stderr, "lennard_jones: %u neighbours of one atom; there is room for %u\n", part.seen[0].most_neighbours,
                         most_neighbours);
            verdict.passed = false;
        }
        for (size_t step = 0, sample = 0; step <= plan_.steps; step++) {
            if (!plan_.sampled(step)) continue;
            sums sum = {};
            for (const part<real> &part : parts_) {
                const sums &own = part.samples[sample];
                sum.potential += own.potential, sum.pairs += own.pairs, sum.kinetic += own.kinetic;
                sum.x += own.x, sum.y += own.y, sum.z += own.z;
            }
            states.push_back(state_of(sum, n_));
            steps.push_back(step);
            sample++;
        }
        check_states<real>(states, steps, n_, verdict);
        if (quiet && verdict.passed) return;
        for (size_t i = 0; i < states.size(); i++)
            std::fprintf(stderr, "step %zu: T %.6f, E potential %.7f, conserved %.7f, momentum %.1e\n", steps[i], states[i].temperature,
                         states[i].potential, states[i].conserved, states[i].momentum);
    }
    uint64_t digest(uint64_t hash) const {
        hash = hash_bytes(last_.data(), last_.bytes(), hash);
        for (const part<real> &part : parts_) hash = hash_bytes(part.samples.data(), part.samples.bytes(), hash);
        return hash;
    }
    size_t listings() const { return listings_; }

private:
    static unsigned blocks(size_t threads) { return static_cast<unsigned>(divide_up(threads, group)); }
    static unsigned first(const part<real> &part) { return static_cast<unsigned>(part.atoms.first); }
    static unsigned count(const part<real> &part) { return static_cast<unsigned>(part.atoms.count); }

    // Every device gets the other devices' bands of one array. The copies run on the streams of the receivers, and every
    // stream waits until all have theirs, so that nothing overwrites what is still read.
    void exchange(run &run, device_array<vec<real>> part<real>::*array) {
        const size_t devices = parts_.size();
        if (devices == 1) return;
        for (size_t d = 0; d < devices; d++) {
            devices_.use(d);
            CUDA_CHECK(cudaEventRecord(moved_[d], run.stream(d)));
        }
        for (size_t to = 0; to < devices; to++) {
            devices_.use(to);
            for (size_t from = 0; from < devices; from++) {
                if (from == to) continue;
                const band atoms = parts_[from].atoms;
                CUDA_CHECK(cudaStreamWaitEvent(run.stream(to), moved_[from], 0));
                CUDA_CHECK(cudaMemcpyPeerAsync((parts_[to].*array).data() + atoms.first, devices_.ids[to],
                                               (parts_[from].*array).data() + atoms.first, devices_.ids[from],
                                               atoms.count * sizeof(vec<real>), run.stream(to)));
            }
            CUDA_CHECK(cudaEventRecord(received_[to], run.stream(to)));
        }
        for (size_t d = 0; d < devices; d++)
            for (size_t other = 0; other < devices; other++)
                if (other != d) CUDA_CHECK(cudaStreamWaitEvent(run.stream(d), received_[other], 0));
    }
    bool moved_too_far(run &run) {
        for (size_t d = 0; d < parts_.size(); d++) {
            devices_.use(d);
            CUDA_CHECK(cudaMemcpyAsync(&parts_[d].seen[0].farthest, &parts_[d].signals.data()->farthest, sizeof(int),
                                       cudaMemcpyDeviceToHost, run.stream(d)));
        }
        run.finish();
        bool far = false;
        for (const part<real> &part : parts_) {
            float farthest;
            std::memcpy(&farthest, &part.seen[0].farthest, sizeof farthest);
            far |= farthest > static_cast<float>(skin * skin / 4);
        }
        return far;
    }
    void list_neighbours(run &run) {
        listings_++;
        const unsigned n = static_cast<unsigned>(n_);
        for (size_t d = 0; d < parts_.size(); d++) {
            part<real> &part = parts_[d];
            devices_.use(d);
            CUDA_CHECK(cudaMemsetAsync(part.cell_counts.data(), 0, part.cell_counts.bytes(), run.stream(d)));
            run.kernel(d, [&](cudaStream_t stream) {
                find_cells<real><<<blocks(n), group, 0, stream>>>(box_, part.positions.data(), n, part.cells.data(), part.cell_counts.data());
            });
            run.kernel(d, [&](cudaStream_t stream) {
                start_cells<<<1, scan_group, 0, stream>>>(part.cell_counts.data(), part.starts.data(), part.fill.data(), cells_);
            });
            run.kernel(d, [&](cudaStream_t stream) {
                fill_cells<<<blocks(n), group, 0, stream>>>(part.cells.data(), n, part.fill.data(), part.order.data());
            });
            run.kernel(d, [&](cudaStream_t stream) {
                sort_cells<<<blocks(cells_), group, 0, stream>>>(part.starts.data(), cells_, part.order.data());
            });
            run.kernel(d, [&](cudaStream_t stream) {
                gather<real><<<blocks(n), group, 0, stream>>>(part.order.data(), n, part.positions.data(), part.velocities.data(),
                                                              part.sorted_positions.data(), part.sorted_velocities.data(),
                                                              part.listed.data(), part.signals.data());
            });
            part.positions.swap(part.sorted_positions);
            part.velocities.swap(part.sorted_velocities);
            run.kernel(d, [&](cudaStream_t stream) {
                list<real><<<blocks(part.atoms.count), group, 0, stream>>>(box_, part.positions.data(), part.starts.data(), first(part),
                                                                           count(part), part.neighbours.data(), part.counts.data(),
                                                                           part.signals.data());
            });
        }
    }
    void push_all(run &run, real step, bool energy, size_t sample) {
        for (size_t d = 0; d < parts_.size(); d++) {
            part<real> &part = parts_[d];
            const auto kernel = energy ? push<real, true> : push<real, false>;
            run.kernel(d, [&](cudaStream_t stream) {
                kernel<<<blocks(part.atoms.count), group, 0, stream>>>(box_, part.positions.data(), part.velocities.data(),
                                                                       part.forces.data(), part.neighbours.data(), part.counts.data(),
                                                                       first(part), count(part), step, part.parts.data());
            });
            if (!energy) continue;
            run.kernel(d, [&](cudaStream_t stream) {
                add_parts<<<1, group, 0, stream>>>(part.parts.data(), blocks(part.atoms.count), part.totals.data() + sample);
            });
        }
    }

    const devices &devices_;
    plan plan_;
    box<real> box_;
    size_t n_ = 0, listings_ = 0;
    unsigned cells_ = 0;
    host_array<vec<real>> first_positions_, first_velocities_, last_;
    std::vector<part<real>> parts_; // one per device
    std::vector<cudaEvent_t> moved_, received_;
};

template <typename real> static int simulate(const options &options, const plan &plan) {
    const devices devices(options);
    std::vector<std::unique_ptr<fluid<real>>> fluids;
    for (size_t i = 0; i < options.instances; i++) fluids.push_back(std::make_unique<fluid<real>>(devices, plan, options.seed + i));

    // A run is long, so there is none more for the kernels' share.
    const measurement measurement = measure(devices, [&](run &run) {
        for (const auto &fluid : fluids) fluid->issue(run);
    }, false);
    verdict verdict;
    uint64_t digest = hash_bytes(nullptr, 0);
    for (const auto &fluid : fluids) {
        digest = fluid->digest(digest);
        if (!options.skip_check) fluid->check(verdict, options.json);
    }
    // Two devices sum energies in another order than one, so their digests differ; two runs on equal devices do not.
    const double atom_steps = static_cast<double>(fluid<real>::atoms_in(plan) * plan.steps * options.instances);
    const rate rate = {"gsteps_per_s", "G atom steps/s", atom_steps * 1e-9};
    return report(devices, measurement, rate, precision_name(options), options.skip_check ? nullptr : &verdict, digest);
}

int main(int argc, char **argv) {
    options options{"lennard_jones", 76};
    options.iterations = 1;
    plan plan{0, 2000, 20, 100};
    options_parse(options, argc, argv, "Moves the atoms of a Lennard-Jones fluid (LAMMPS's in.lj).",
                  "cells of four atoms along each edge, at least 6",
                  {{"precision", option_kind::choice, &options.precision, 0, "single|double", "of the atoms (default: single)"},
                   {"steps", option_kind::count, &plan.steps, 1, "S", "time steps of one run (default: 2000)"},
                   {"rebuild", option_kind::count, &plan.rebuild, 0, "K",
                    "list neighbours every K steps (default: 20), or with 0 when atoms have moved"},
                   {"thermo", option_kind::count, &plan.sample, 1, "K", "take energies every K steps (default: 100)"}});
    if (options.size < 6 || options.size > 400) usage_error(options, "--size %zu: from 6 to 400", options.size);
    plan.cells = options.size;
    return options.precision == precision_double ? simulate<double>(options, plan) : simulate<float>(options, plan);
}
