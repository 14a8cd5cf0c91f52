// Checks, without a GPU, what the workloads share with their kernels: `make check-host`.
#include "common/options.h"
#include "lennard_jones/physics.h"
#include "smith_waterman/reference.h"
#include "sw_search/search.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

static int failures = 0;

#define EXPECT(what)                                                                                                           \
    do {                                                                                                                       \
        if (!(what)) {                                                                                                         \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                                            \
            failures++;                                                                                                        \
        }                                                                                                                      \
    } while (0)

static void bands_cover_everything_once() {
    size_t next = 0;
    for (size_t index = 0; index < 3; index++) {
        const band band = band_of(11, 3, index);
        EXPECT(band.first == next);
        EXPECT(band.count == 4 || band.count == 3);
        next += band.count;
    }
    EXPECT(next == 11);
}

static void options_understand_suffixes_and_choices() {
    options options{"test", 7};
    bool flag = false;
    int choice = 0;
    char program[] = "test", size[] = "--size=6K", devices[] = "--devices", all[] = "all", own[] = "--method", tiled[] = "tiled",
         set[] = "--flag";
    char *arguments[] = {program, size, devices, all, own, tiled, set};
    options_parse(options, 7, arguments, "", "",
                  {{"flag", option_kind::flag, &flag, 0, nullptr, ""}, {"method", option_kind::choice, &choice, 0, "wavefront|tiled", ""}});
    EXPECT(options.size == 6144);
    EXPECT(options.devices == all_devices);
    EXPECT(choice == 1);
    EXPECT(flag);
}

// Fills the whole matrix by the kernels' cell function, and follows its directions back.
static void alignments_score_what_they_describe() {
    for (const size_t n : {size_t{1}, size_t{2}, size_t{97}, size_t{300}}) {
        random_source random{n};
        std::vector<unsigned char> sequences(2 * n), directions(n * n);
        pair::random_sequences(sequences.data(), n, random);
        std::vector<int> h((n + 1) * (n + 1)), e(n + 1, pair::never), f(n + 1, pair::never);
        size_t best = 0;
        for (size_t row = 1; row <= n; row++) {
            for (size_t column = 1; column <= n; column++) {
                const size_t at = row * (n + 1) + column, diagonal = row + column - 2;
                const size_t first_row = diagonal < n ? 0 : diagonal - n + 1;
                unsigned char &direction = directions[pair::directions_of_diagonal(n, diagonal) + row - 1 - first_row];
                h[at] = pair::cell(h[at - n - 2], h[at - 1], h[at - n - 1], e[row], f[column],
                                   pair::substitution(sequences[row - 1], sequences[n + column - 1]), direction);
                if (h[at] > h[best]) best = at;
            }
        }
        EXPECT(h[best] == pair::reference_score(sequences.data(), n));
        if (h[best] > 0)
            EXPECT(pair::path_score(sequences.data(), directions.data(), n, best / (n + 1), best % (n + 1)) == h[best]);
    }
}

// The kernels of lennard_jones one after another, atom by atom.
template <typename real> struct fluid {
    lj::start<real> now;
    std::vector<unsigned> starts, neighbours, counts;
    std::vector<lj::vec<real>> forces, listed;

    size_t rebuild, steps = 0; // as the option --rebuild

    fluid(size_t cells, uint64_t seed, size_t rebuild) : now(cells, seed), rebuild(rebuild) { list(); }
    size_t atoms() const { return now.positions.size(); }

    void list() {
        const size_t n = atoms();
        for (lj::vec<real> &at : now.positions)
            at.x = now.bounds.wrapped(at.x), at.y = now.bounds.wrapped(at.y), at.z = now.bounds.wrapped(at.z);
        std::vector<unsigned> order(n);
        for (size_t i = 0; i < n; i++) order[i] = static_cast<unsigned>(i);
        const auto cell = [&](unsigned atom) { return now.bounds.cell_of(now.positions[atom]); };
        std::stable_sort(order.begin(), order.end(), [&](unsigned a, unsigned b) { return cell(a) < cell(b); });
        std::vector<lj::vec<real>> positions(n), velocities(n);
        for (size_t i = 0; i < n; i++) positions[i] = now.positions[order[i]], velocities[i] = now.velocities[order[i]];
        now.positions = positions, now.velocities = velocities, listed = positions;
        const unsigned cells = now.bounds.cells;
        starts.assign(static_cast<size_t>(cells) * cells * cells + 1, 0);
        for (unsigned i = 0; i < n; i++) starts[cell(i) + 1]++;
        for (size_t i = 1; i < starts.size(); i++) starts[i] += starts[i - 1];
        neighbours.resize(n * lj::most_neighbours);
        counts.resize(n);
        forces.resize(n);
        for (unsigned i = 0; i < n; i++) {
            counts[i] = lj::list_neighbours(now.bounds, now.positions.data(), starts.data(), i, &neighbours[i], n);
            EXPECT(counts[i] <= lj::most_neighbours);
        }
    }
    lj::state forces_and_state() {
        lj::sums sums = {};
        for (unsigned i = 0; i < atoms(); i++) {
            unsigned pairs;
            forces[i] = lj::force_on(now.bounds, now.positions.data(), i, &neighbours[i], atoms(), counts[i], true, pairs);
            sums.potential += forces[i].w;
            sums.pairs += pairs;
        }
        return with_motion(sums);
    }
    lj::state with_motion(lj::sums sums) const {
        for (const lj::vec<real> &v : now.velocities) {
            sums.kinetic += 0.5 * (static_cast<double>(v.x) * v.x + static_cast<double>(v.y) * v.y + static_cast<double>(v.z) * v.z);
            sums.x += v.x, sums.y += v.y, sums.z += v.z;
        }
        return lj::state_of(sums, atoms());
    }
    lj::state step() {
        const real step = static_cast<real>(lj::time_step);
        real farthest = 0;
        for (size_t i = 0; i < atoms(); i++) {
            lj::kick_and_drift(now.positions[i], now.velocities[i], forces[i], step);
            farthest = std::max(farthest, lj::distance_squared(now.bounds, now.positions[i], listed[i]));
        }
        const bool far = farthest > static_cast<real>(lj::skin * lj::skin / 4);
        if (rebuild > 0 ? ++steps % rebuild == 0 : far) list();
        lj::sums sums = {};
        for (unsigned i = 0; i < atoms(); i++) {
            unsigned pairs;
            forces[i] = lj::force_on(now.bounds, now.positions.data(), i, &neighbours[i], atoms(), counts[i], true, pairs);
            lj::kick(now.velocities[i], forces[i], step);
            sums.potential += forces[i].w;
            sums.pairs += pairs;
        }
        return with_motion(sums);
    }
};

template <typename real> static void fluid_keeps_its_energy_and_agrees_with_lammps(size_t cells, size_t rebuild) {
    fluid<real> fluid(cells, 1, rebuild);
    std::vector<lj::state> states = {fluid.forces_and_state()};
    std::vector<size_t> steps = {0};
    double farthest = 0;
    for (size_t step = 1; step <= lj::reference_steps; step++) {
        states.push_back(fluid.step());
        steps.push_back(step);
        farthest = std::max(farthest, std::fabs(states.back().conserved - states[0].conserved));
    }
    verdict verdict;
    lj::check_states<real>(states, steps, fluid.atoms(), verdict);
    EXPECT(verdict.passed);
    std::printf("lennard_jones, %zu bytes, %zu atoms: lattice %.7f, at step %zu T %.5f E %.5f, energy departs by %.1e, momentum %.1e\n",
                sizeof(real), fluid.atoms(), states[0].potential, steps.back(), states.back().temperature,
                states.back().potential, farthest, states.back().momentum);
    // The check notices: a state that lost energy, and one in which a pair is missing.
    std::vector<lj::state> wrong = states;
    wrong[50].conserved += 3e-3 * std::fabs(states[0].conserved);
    class verdict lost;
    lj::check_states<real>(wrong, steps, fluid.atoms(), lost);
    EXPECT(!lost.passed);
}

// What the search kernel does, thread by thread, against the plain recurrences.
static void search_scores_as_the_recurrences_say() {
    random_source random{3};
    const std::vector<unsigned char> query = search::random_protein(83, random);
    search::database database(700, query, 5);
    EXPECT(database.lengths.size() == 700);
    const auto best = std::max_element(database.lengths.begin(), database.lengths.end());
    EXPECT(*best <= search::longest && *std::min_element(database.lengths.begin(), database.lengths.end()) >= search::shortest);
    const std::vector<search::chunk> chunks = search::arrange(database, 1 << 14);
    EXPECT(chunks.size() > 2);
    size_t seen = 0;
    int high = 0;
    for (const search::chunk &chunk : chunks) {
        std::vector<search::boundary> boundary(chunk.words.size() * 4);
        for (unsigned thread = 0; thread < chunk.sequences.size(); thread++) {
            int score = 0;
            for (size_t strip = 0; strip < divide_up(query.size(), search::strip_rows); strip++) {
                const search::strip_profile profile = search::profile_of(query, strip);
                score = search::align_strip(profile, chunk.words.data() + chunk.group_starts[thread / 32], chunk.group_words[thread / 32],
                                            boundary.data() + 4 * static_cast<size_t>(chunk.group_starts[thread / 32]), thread % 32,
                                            strip == 0, score);
            }
            const size_t sequence = chunk.sequences[thread];
            EXPECT(score == search::reference_score(query, database.residues.data() + database.starts[sequence],
                                                    database.lengths[sequence]));
            high = std::max(high, score);
            seen++;
        }
    }
    EXPECT(seen == 700);
    // A piece of the query was planted, with substitutions and gaps.
    EXPECT(high > 100);
    const search::database large(20000, query, 1);
    double sum = 0;
    for (const unsigned length : large.lengths) sum += length;
    const double mean = sum / 20000;
    EXPECT(mean > 345 && mean < 377);
    std::printf("sw_search: mean length %.1f, best score %d\n", mean, high);
}

int main() {
    bands_cover_everything_once();
    options_understand_suffixes_and_choices();
    alignments_score_what_they_describe();
    fluid_keeps_its_energy_and_agrees_with_lammps<double>(6, 0);
    fluid_keeps_its_energy_and_agrees_with_lammps<float>(8, 20);
    search_scores_as_the_recurrences_say();
    if (failures > 0) return std::fprintf(stderr, "%d checks failed\n", failures), 1;
    std::printf("all is right\n");
    return 0;
}
