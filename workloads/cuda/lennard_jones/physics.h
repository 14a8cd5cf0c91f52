// The Lennard-Jones fluid of LAMMPS's `in.lj`, in reduced units: what an atom does, said once for the kernels and for the
// host's check of them. Needs no CUDA.
//
// Atoms are kept in the order of the cells that they were in when neighbours were last listed; cells have edges of at
// least cutoff + skin, so that all neighbours of an atom are in the 27 cells around it. A list stays right until an atom
// has moved half the skin.
#ifndef WORKLOADS_CUDA_LENNARD_JONES_PHYSICS_H
#define WORKLOADS_CUDA_LENNARD_JONES_PHYSICS_H

#include "../common/problem.h"

#include <cmath>
#include <vector>

namespace lj {

constexpr double density = 0.8442, temperature = 1.44, time_step = 0.005, cutoff = 2.5, skin = 0.3;

// What LAMMPS's own log of its benchmark says of this system (bench/log.lj, 32,000 atoms, NVE): per atom, cut at 2.5 and
// not shifted. The first is a sum over a perfect lattice, so it holds for every size and velocity.
constexpr double energy_of_lattice = -6.7733681;
constexpr size_t reference_steps = 100;
constexpr double reference_temperature = 0.7574531, reference_energy = -5.7585055;

// Room for neighbours of one atom: 86 are expected, and hardly ever more than 120 at this density.
constexpr unsigned most_neighbours = 160;

template <typename real> struct alignas(4 * sizeof(real) < 16 ? 4 * sizeof(real) : 16) vec {
    real x, y, z, w;
};

template <typename real> struct box {
    real edge;      // of the whole, which is a cube and periodic
    unsigned cells; // along one edge

    HOST_DEVICE real nearest(real difference) const {
        const real half = edge / 2;
        return difference > half ? difference - edge : difference < -half ? difference + edge : difference;
    }
    // Into [0, edge); atoms have moved less than one edge.
    HOST_DEVICE real wrapped(real at) const {
        const real inside = at < 0 ? at + edge : at >= edge ? at - edge : at;
        // Adding the edge to a tiny negative number gives the edge itself.
        return inside >= edge ? real(0) : inside;
    }
    HOST_DEVICE unsigned along(real at) const {
        const unsigned cell = static_cast<unsigned>(at / edge * static_cast<real>(cells));
        return cell < cells ? cell : cells - 1;
    }
    HOST_DEVICE unsigned cell_of(const vec<real> &at) const {
        return (along(at.z) * cells + along(at.y)) * cells + along(at.x);
    }
};

// Sums over atoms that a thermodynamic state needs.
struct sums {
    double potential, pairs, kinetic, x, y, z; // each pair counted from both sides; the last three are momentum
};

// Half a kick, then a drift.
template <typename real> HOST_DEVICE void kick_and_drift(vec<real> &position, vec<real> &velocity, const vec<real> &force, real step) {
    velocity.x += step / 2 * force.x;
    velocity.y += step / 2 * force.y;
    velocity.z += step / 2 * force.z;
    position.x += step * velocity.x;
    position.y += step * velocity.y;
    position.z += step * velocity.z;
}

template <typename real> HOST_DEVICE void kick(vec<real> &velocity, const vec<real> &force, real step) {
    velocity.x += step / 2 * force.x;
    velocity.y += step / 2 * force.y;
    velocity.z += step / 2 * force.z;
}

template <typename real> HOST_DEVICE real distance_squared(const box<real> &box, const vec<real> &a, const vec<real> &b) {
    const real dx = box.nearest(a.x - b.x), dy = box.nearest(a.y - b.y), dz = box.nearest(a.z - b.z);
    return dx * dx + dy * dy + dz * dz;
}

// Lists the neighbours of `atom` in neighbours[0], [stride], [2 stride] ... and returns how many there are, also beyond
// `most_neighbours`, which are not written.
template <typename real>
HOST_DEVICE unsigned list_neighbours(const box<real> &box, const vec<real> *positions, const unsigned *cell_starts,
                                     unsigned atom, unsigned *neighbours, size_t stride) {
    constexpr real reach = static_cast<real>((cutoff + skin) * (cutoff + skin));
    const vec<real> own = positions[atom];
    const unsigned n = box.cells, cx = box.along(own.x), cy = box.along(own.y), cz = box.along(own.z);
    unsigned found = 0;
    for (unsigned dz = 0; dz < 3; dz++) {
        for (unsigned dy = 0; dy < 3; dy++) {
            for (unsigned dx = 0; dx < 3; dx++) {
                const unsigned x = (cx + n + dx - 1) % n, y = (cy + n + dy - 1) % n, z = (cz + n + dz - 1) % n;
                const unsigned cell = (z * n + y) * n + x;
                for (unsigned other = cell_starts[cell]; other < cell_starts[cell + 1]; other++) {
                    if (other == atom || distance_squared(box, own, positions[other]) >= reach) continue;
                    if (found < most_neighbours) neighbours[found * stride] = other;
                    found++;
                }
            }
        }
    }
    return found;
}

// The force on `atom`; with `energy` also what it adds to the sums, in its w the potential and in `pairs` their number.
template <typename real>
HOST_DEVICE vec<real> force_on(const box<real> &box, const vec<real> *positions, unsigned atom, const unsigned *neighbours,
                               size_t stride, unsigned count, bool energy, unsigned &pairs) {
    constexpr real within = static_cast<real>(cutoff * cutoff);
    const vec<real> own = positions[atom];
    vec<real> force = {0, 0, 0, 0};
    pairs = 0;
    for (unsigned i = 0; i < count; i++) {
        const vec<real> other = positions[neighbours[i * stride]];
        const real dx = box.nearest(own.x - other.x), dy = box.nearest(own.y - other.y), dz = box.nearest(own.z - other.z);
        const real squared = dx * dx + dy * dy + dz * dz;
        if (squared >= within) continue;
        const real inverse = 1 / squared, sixth = inverse * inverse * inverse;
        const real strength = 48 * inverse * sixth * (sixth - real(0.5));
        force.x += strength * dx;
        force.y += strength * dy;
        force.z += strength * dz;
        if (energy) {
            force.w += 4 * sixth * (sixth - 1);
            pairs++;
        }
    }
    return force;
}

// Face-centred cubic lattice of cells^3 x 4 atoms, and velocities without total momentum of exactly `temperature`.
template <typename real> struct start {
    box<real> bounds;
    std::vector<vec<real>> positions, velocities;

    start(size_t cells, uint64_t seed) {
        const double lattice = std::cbrt(4 / density), edge = lattice * static_cast<double>(cells);
        bounds = {static_cast<real>(edge), static_cast<unsigned>(edge / (cutoff + skin))};
        const size_t atoms = 4 * cells * cells * cells;
        positions.reserve(atoms);
        velocities.reserve(atoms);
        random_source random{seed};
        std::vector<double> speeds(3 * atoms);
        double mean[3] = {0, 0, 0}, squares = 0;
        for (size_t i = 0; i < atoms; i++) {
            for (int axis = 0; axis < 3; axis++) {
                speeds[3 * i + axis] = random.uniform(-0.5, 0.5);
                mean[axis] += speeds[3 * i + axis] / static_cast<double>(atoms);
            }
        }
        for (size_t i = 0; i < 3 * atoms; i++) {
            speeds[i] -= mean[i % 3];
            squares += speeds[i] * speeds[i];
        }
        // As LAMMPS counts: 3 (n - 1) degrees of freedom.
        const double factor = std::sqrt(temperature * 3 * static_cast<double>(atoms - 1) / squares);
        static const double corners[4][3] = {{0, 0, 0}, {0.5, 0.5, 0}, {0.5, 0, 0.5}, {0, 0.5, 0.5}};
        for (size_t z = 0; z < cells; z++) {
            for (size_t y = 0; y < cells; y++) {
                for (size_t x = 0; x < cells; x++) {
                    for (const auto &corner : corners) {
                        const double *speed = &speeds[3 * positions.size()];
                        positions.push_back({static_cast<real>((static_cast<double>(x) + corner[0]) * lattice),
                                             static_cast<real>((static_cast<double>(y) + corner[1]) * lattice),
                                             static_cast<real>((static_cast<double>(z) + corner[2]) * lattice), 0});
                        velocities.push_back({static_cast<real>(factor * speed[0]), static_cast<real>(factor * speed[1]),
                                              static_cast<real>(factor * speed[2]), 0});
                    }
                }
            }
        }
    }
};

// Thermodynamic state, per atom.
struct state {
    double potential; // cut, not shifted
    double conserved; // total energy with the potential shifted to zero at the cutoff: what the motion keeps
    double temperature, momentum;
};

inline state state_of(const sums &sums, size_t atoms) {
    const double n = static_cast<double>(atoms), sixth = std::pow(cutoff, -6), at_cutoff = 4 * sixth * (sixth - 1);
    const double momentum = std::sqrt(sums.x * sums.x + sums.y * sums.y + sums.z * sums.z);
    return {sums.potential / 2 / n, (sums.potential / 2 - at_cutoff * sums.pairs / 2 + sums.kinetic) / n,
            2 * sums.kinetic / (3 * (n - 1)), momentum / n};
}

// What the checks allow.
//
// Energy: with this step the scheme itself departs by 3e-4 of it while the lattice melts (measured in double precision),
// then stays; single precision adds far less. Step 100 against LAMMPS: other velocities, so the spread of the
// mean over n atoms counts; 8 standard deviations.
constexpr double conserved_tolerance = 1e-3;
template <typename real> constexpr double lattice_tolerance() { return sizeof(real) == 4 ? 2e-5 : 1e-7; }
template <typename real> constexpr double momentum_tolerance() { return sizeof(real) == 4 ? 1e-4 : 1e-10; }
inline double reference_tolerance(size_t atoms) { return 8 * 0.9 / std::sqrt(static_cast<double>(atoms)); }

// Holds a run's states against all of that: the first is of step 0, and `steps` says when the others were taken.
template <typename real>
void check_states(const std::vector<state> &states, const std::vector<size_t> &steps, size_t atoms, verdict &verdict) {
    verdict.hold(std::fabs(states[0].potential / energy_of_lattice - 1), lattice_tolerance<real>());
    for (size_t i = 0; i < states.size(); i++) {
        verdict.hold(std::fabs(states[i].conserved - states[0].conserved) / std::fabs(states[0].conserved), conserved_tolerance);
        if (!(states[i].momentum <= momentum_tolerance<real>())) verdict.passed = false;
        if (steps[i] != reference_steps) continue;
        const double tolerance = reference_tolerance(atoms);
        if (!(std::fabs(states[i].temperature - reference_temperature) <= tolerance)) verdict.passed = false;
        if (!(std::fabs(states[i].potential - reference_energy) <= 1.5 * tolerance)) verdict.passed = false;
    }
}

} // namespace lj

#endif
