// Searches a protein database for one query: the best local alignment's score with every sequence, affine gaps, BLOSUM62.
//
// The database is generated, with the size and the distribution of lengths of Swiss-Prot. A thread aligns the query with one
// sequence; sequences are sorted by length, so that the threads of a warp end together. The database goes to the device
// in chunks, each copied while the one before is computed, on two streams. Several devices take chunks in turns.
#include "../common/measure.h"
#include "search.h"

#include <cmath>
#include <cstdio>
#include <memory>

using namespace search;

constexpr unsigned group = 128;
// Words of a chunk: 64 MiB, and boundaries of 512 MiB for it.
constexpr size_t chunk_words = size_t{1} << 24;
// Cells that the check may spend.
constexpr size_t check_budget = size_t{1} << 28;

// The query's strips one after another: profiles[0] to profiles[strips - 1].
__global__ void __launch_bounds__(group)
    align(const strip_profile *__restrict__ profiles, unsigned strips, const uint32_t *__restrict__ words,
          const unsigned *__restrict__ group_starts, const unsigned *__restrict__ group_words, unsigned sequences,
          boundary *__restrict__ boundaries, int *__restrict__ scores) {
    __shared__ strip_profile profile;
    const unsigned thread = blockIdx.x * group + threadIdx.x;
    // A warp stays whole: threads beyond the last sequence align its group's padding.
    const unsigned last_group = (sequences - 1) / 32, own_group = thread / 32;
    const bool present = own_group <= last_group;
    const unsigned start = present ? group_starts[own_group] : 0, count = present ? group_words[own_group] : 0;
    int best = 0;
    for (unsigned strip = 0; strip < strips; strip++) {
        __syncthreads();
        const uint32_t *from = reinterpret_cast<const uint32_t *>(&profiles[strip]);
        for (unsigned i = threadIdx.x; i < sizeof profile / 4; i += group) reinterpret_cast<uint32_t *>(&profile)[i] = from[i];
        __syncthreads();
        best = align_strip(profile, words + start, count, boundaries + 4 * static_cast<size_t>(start), thread % 32, strip == 0, best);
    }
    if (thread < sequences) scores[thread] = best;
}

// A chunk in host memory that copies can come from, and its scores.
struct piece {
    host_array<uint32_t> words;
    host_array<unsigned> starts, counts;
    host_array<int> scores;
    std::vector<unsigned> sequences;

    piece(const options &options, const chunk &chunk)
        : words(options, chunk.words.size()), starts(options, chunk.group_starts.size()),
          counts(options, chunk.group_words.size()), scores(options, chunk.sequences.size()), sequences(chunk.sequences) {
        std::copy(chunk.words.begin(), chunk.words.end(), words.data());
        std::copy(chunk.group_starts.begin(), chunk.group_starts.end(), starts.data());
        std::copy(chunk.group_words.begin(), chunk.group_words.end(), counts.data());
    }
};

// Room for one chunk on a device, and the stream that fills and empties it.
struct slot {
    device_array<uint32_t> words;
    device_array<unsigned> starts, counts;
    device_array<boundary> boundaries;
    device_array<int> scores;
    cudaStream_t stream;

    slot(const devices &devices, size_t d, size_t most_words, size_t most_groups)
        : words(devices, d, most_words), starts(devices, d, most_groups), counts(devices, d, most_groups),
          boundaries(devices, d, 4 * most_words), scores(devices, d, 32 * most_groups) {
        CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    ~slot() { CUDA_CHECK(cudaStreamDestroy(stream)); }
    slot(const slot &) = delete;
};

struct searcher {
    const devices &on;
    std::vector<unsigned char> query;
    database sequences;
    std::vector<piece> pieces;
    std::vector<device_array<strip_profile>> profiles; // one per device
    std::vector<std::unique_ptr<slot>> slots;          // two per device
    host_array<strip_profile> host_profiles;
    std::vector<cudaEvent_t> begun, done;
    std::vector<int> scores; // by number in the database

    searcher(const devices &devices, size_t query_length, random_source random)
        : on(devices), query(random_protein(query_length, random)), sequences(devices.options->size, query, random.next()),
          host_profiles(*devices.options, divide_up(query_length, strip_rows)), scores(devices.options->size) {
        size_t most_words = 0, most_groups = 0;
        for (const chunk &chunk : arrange(sequences, chunk_words)) {
            most_words = std::max(most_words, chunk.words.size());
            most_groups = std::max(most_groups, chunk.group_starts.size());
            pieces.emplace_back(*devices.options, chunk);
        }
        for (size_t strip = 0; strip < host_profiles.size(); strip++) host_profiles[strip] = profile_of(query, strip);
        for (size_t d = 0; d < on.count(); d++) {
            profiles.emplace_back(devices, d, host_profiles.size());
            for (int i = 0; i < 2; i++) slots.push_back(std::make_unique<slot>(devices, d, most_words, most_groups));
            for (std::vector<cudaEvent_t> *events : {&begun, &done}) {
                cudaEvent_t event;
                CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
                events->push_back(event);
            }
        }
    }
    ~searcher() {
        for (const cudaEvent_t event : begun) CUDA_CHECK(cudaEventDestroy(event));
        for (const cudaEvent_t event : done) CUDA_CHECK(cudaEventDestroy(event));
    }
    searcher(const searcher &) = delete;

    void issue(run &run) {
        const size_t devices = on.count();
        for (size_t d = 0; d < devices; d++) {
            on.use(d);
            CUDA_CHECK(cudaMemcpyAsync(profiles[d].data(), host_profiles.data(), host_profiles.bytes(), cudaMemcpyHostToDevice, run.stream(d)));
            CUDA_CHECK(cudaEventRecord(begun[d], run.stream(d)));
            for (size_t i = 0; i < 2; i++) CUDA_CHECK(cudaStreamWaitEvent(slots[2 * d + i]->stream, begun[d], 0));
        }
        for (size_t i = 0; i < pieces.size(); i++) {
            const size_t d = i % devices;
            send(pieces[i], *slots[2 * d + i / devices % 2], d, run);
        }
        // The device's own stream, which the run waits for, ends last.
        for (size_t d = 0; d < devices; d++) {
            on.use(d);
            for (size_t i = 0; i < 2; i++) {
                CUDA_CHECK(cudaEventRecord(done[d], slots[2 * d + i]->stream));
                CUDA_CHECK(cudaStreamWaitEvent(run.stream(d), done[d], 0));
            }
        }
    }
    void send(piece &piece, slot &slot, size_t d, run &run) {
        on.use(d);
        const auto copy = [&](auto &to, const auto &from) {
            CUDA_CHECK(cudaMemcpyAsync(to.data(), from.data(), from.bytes(), cudaMemcpyHostToDevice, slot.stream));
        };
        copy(slot.words, piece.words);
        copy(slot.starts, piece.starts);
        copy(slot.counts, piece.counts);
        const unsigned count = static_cast<unsigned>(piece.sequences.size());
        run.kernel_on(d, slot.stream, [&](cudaStream_t stream) {
            align<<<static_cast<unsigned>(divide_up(count, group)), group, 0, stream>>>(
                profiles[d].data(), static_cast<unsigned>(host_profiles.size()), slot.words.data(), slot.starts.data(),
                slot.counts.data(), count, slot.boundaries.data(), slot.scores.data());
        });
        CUDA_CHECK(cudaMemcpyAsync(piece.scores.data(), slot.scores.data(), piece.scores.bytes(), cudaMemcpyDeviceToHost, slot.stream));
    }
    void collect() {
        for (const piece &piece : pieces)
            for (size_t i = 0; i < piece.sequences.size(); i++) scores[piece.sequences[i]] = piece.scores[i];
    }
    // All arithmetic is on integers, so the tolerance is zero. The best hits, the longest and the shortest sequence, and as
    // many random ones as the budget allows.
    verdict check() const {
        std::vector<size_t> sample(std::min<size_t>(scores.size(), 20));
        std::vector<size_t> order(scores.size());
        std::iota(order.begin(), order.end(), 0);
        std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(sample.size()), order.end(),
                          [&](size_t a, size_t b) { return scores[a] > scores[b]; });
        std::copy_n(order.begin(), sample.size(), sample.begin());
        const auto by_length = std::minmax_element(sequences.lengths.begin(), sequences.lengths.end());
        sample.push_back(static_cast<size_t>(by_length.first - sequences.lengths.begin()));
        sample.push_back(static_cast<size_t>(by_length.second - sequences.lengths.begin()));
        size_t cells = 0;
        for (const size_t sequence : sample) cells += sequences.lengths[sequence] * query.size();
        random_source random{on.options->seed ^ 0x636865636bu};
        while (cells < check_budget && sample.size() < scores.size()) {
            sample.push_back(random.below(scores.size()));
            cells += sequences.lengths[sample.back()] * query.size();
        }
        verdict verdict;
        for (const size_t sequence : sample) {
            const int expected = reference_score(query, &sequences.residues[sequences.starts[sequence]], sequences.lengths[sequence]);
            if (scores[sequence] != expected)
                std::fprintf(stderr, "sw_search: sequence %zu scores %d, expected %d\n", sequence, scores[sequence], expected);
            verdict.hold(std::fabs(static_cast<double>(scores[sequence]) - expected) / std::max(expected, 1), 0);
        }
        return verdict;
    }
};

int main(int argc, char **argv) {
    options options{"sw_search", swiss_prot_sequences};
    options.iterations = 3;
    size_t query = 464;
    options_parse(options, argc, argv, "Scores one protein against every sequence of a database as large as Swiss-Prot.",
                  "sequences in the database",
                  {{"query", option_kind::count, &query, 1, "N", "letters of the query (default: 464)"}});
    if (options.size > 1 << 26) usage_error(options, "--size %zu: at most 67108864", options.size);
    if (query > 1 << 16) usage_error(options, "--query %zu: at most 65536", query);
    if (options.instances != 1) usage_error(options, "--instances: one search fills the device");
    const devices devices(options);
    searcher searcher(devices, query, random_source{options.seed});
    const measurement measurement = measure(devices, [&](run &run) { searcher.issue(run); });
    searcher.collect();
    verdict verdict;
    if (!options.skip_check) verdict = searcher.check();
    const double cells = static_cast<double>(searcher.sequences.residues.size()) * static_cast<double>(query);
    return report(devices, measurement, {"gcups", "GCUPS", cells * 1e-9}, nullptr, options.skip_check ? nullptr : &verdict,
                  hash_bytes(searcher.scores.data(), searcher.scores.size() * sizeof(int)));
}
