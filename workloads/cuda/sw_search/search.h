// The search that needs no GPU: the generated database and its layout, BLOSUM62, what one thread of the kernel does, and
// the reference.
#ifndef WORKLOADS_CUDA_SW_SEARCH_SEARCH_H
#define WORKLOADS_CUDA_SW_SEARCH_SEARCH_H

#include "../common/problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

namespace search {

// The 20 amino acids in the order of BLOSUM62, then what fills a sequence up: it matches nothing.
constexpr unsigned letters = 21, padding = 20;
constexpr int gap_open = 11, gap_extend = 1; // a gap of k letters costs 10 + k, as BLAST's defaults
constexpr int never_matches = -100;

// Swiss-Prot of late 2025: some 573,000 sequences with 207 million residues, from 2 to 35,213 long, of median 294 and
// mean 361. A log-normal distribution of that median and mean is close to it.
constexpr size_t swiss_prot_sequences = 573000;
constexpr unsigned shortest = 2, longest = 35213;
constexpr double median_length = 294, mean_length = 361;

// Henikoff and Henikoff, 1992; A R N D C Q E G H I L K M F P S T W Y V.
constexpr signed char blosum62[20][20] = {
    {4, -1, -2, -2, 0, -1, -1, 0, -2, -1, -1, -1, -1, -2, -1, 1, 0, -3, -2, 0},
    {-1, 5, 0, -2, -3, 1, 0, -2, 0, -3, -2, 2, -1, -3, -2, -1, -1, -3, -2, -3},
    {-2, 0, 6, 1, -3, 0, 0, 0, 1, -3, -3, 0, -2, -3, -2, 1, 0, -4, -2, -3},
    {-2, -2, 1, 6, -3, 0, 2, -1, -1, -3, -4, -1, -3, -3, -1, 0, -1, -4, -3, -3},
    {0, -3, -3, -3, 9, -3, -4, -3, -3, -1, -1, -3, -1, -2, -3, -1, -1, -2, -2, -1},
    {-1, 1, 0, 0, -3, 5, 2, -2, 0, -3, -2, 1, 0, -3, -1, 0, -1, -2, -1, -2},
    {-1, 0, 0, 2, -4, 2, 5, -2, 0, -3, -3, 1, -2, -3, -1, 0, -1, -3, -2, -2},
    {0, -2, 0, -1, -3, -2, -2, 6, -2, -4, -4, -2, -3, -3, -2, 0, -2, -2, -3, -3},
    {-2, 0, 1, -1, -3, 0, 0, -2, 8, -3, -3, -1, -2, -1, -2, -1, -2, -2, 2, -3},
    {-1, -3, -3, -3, -1, -3, -3, -4, -3, 4, 2, -3, 1, 0, -3, -2, -1, -3, -1, 3},
    {-1, -2, -3, -4, -1, -2, -3, -4, -3, 2, 4, -2, 2, 0, -3, -2, -1, -2, -1, 1},
    {-1, 2, 0, -1, -3, 1, 1, -2, -1, -3, -2, 5, -1, -3, -1, 0, -1, -3, -2, -2},
    {-1, -1, -2, -3, -1, 0, -2, -3, -2, 1, 2, -1, 5, 0, -2, -1, -1, -1, -1, 1},
    {-2, -3, -3, -3, -2, -3, -3, -3, -1, 0, 0, -3, 0, 6, -4, -2, -2, 1, 3, -1},
    {-1, -2, -2, -1, -3, -1, -1, -2, -2, -3, -3, -1, -2, -4, 7, -1, -1, -4, -3, -2},
    {1, -1, 1, 0, -1, 0, 0, 0, -1, -2, -2, 0, -1, -2, -1, 4, 1, -3, -2, -2},
    {0, -1, 0, -1, -1, -1, -1, -2, -2, -1, -1, -1, -1, -2, -1, 1, 5, -2, -2, 0},
    {-3, -3, -4, -4, -2, -2, -3, -2, -2, -3, -2, -3, -1, 1, -4, -3, -2, 11, 2, -3},
    {-2, -2, -2, -3, -2, -1, -2, -3, 2, -1, -1, -2, -1, 3, -3, -2, -2, 2, 7, -1},
    {0, -3, -3, -3, -1, -2, -2, -3, -3, 3, 1, -2, 1, -1, -2, -2, 0, -3, -1, 4},
};

// Residues of Swiss-Prot in 1/10,000, in the same order.
constexpr unsigned share_of_letter[20] = {826, 552, 406, 546, 138, 393, 672, 707, 228, 591,
                                          965, 580, 241, 386, 474, 665, 536, 110, 292, 686};

inline std::vector<unsigned char> random_protein(size_t length, random_source &random) {
    static const std::vector<unsigned char> table = [] {
        std::vector<unsigned char> table;
        for (unsigned letter = 0; letter < 20; letter++) table.insert(table.end(), share_of_letter[letter], static_cast<unsigned char>(letter));
        return table;
    }();
    std::vector<unsigned char> protein(length);
    for (unsigned char &letter : protein) letter = table[random.below(table.size())];
    return protein;
}

struct database {
    std::vector<unsigned char> residues;
    std::vector<size_t> starts;
    std::vector<unsigned> lengths;

    // One sequence in 200 has a relative of a piece of the query in it.
    database(size_t sequences, const std::vector<unsigned char> &query, uint64_t seed) {
        random_source random{seed};
        const double spread = std::sqrt(2 * std::log(mean_length / median_length));
        residues.reserve(sequences * 372);
        for (size_t i = 0; i < sequences; i++) {
            // Box and Muller.
            const double normal = std::sqrt(-2 * std::log(1 - random.uniform(0, 1))) * std::cos(6.283185307179586 * random.uniform(0, 1));
            const double drawn = std::clamp(median_length * std::exp(spread * normal), double{shortest}, double{longest});
            std::vector<unsigned char> protein = random_protein(static_cast<size_t>(drawn), random);
            if (random.below(200) == 0) plant(protein, query, random);
            starts.push_back(residues.size());
            lengths.push_back(static_cast<unsigned>(protein.size()));
            residues.insert(residues.end(), protein.begin(), protein.end());
        }
    }

private:
    static void plant(std::vector<unsigned char> &protein, const std::vector<unsigned char> &query, random_source &random) {
        size_t from = random.below(query.size()), at = random.below(protein.size());
        for (; from < query.size() && at < protein.size(); from++, at++) {
            const size_t chance = random.below(100);
            if (chance < 3) from += random.below(4); // letters lost
            if (chance >= 97) at += random.below(4); // letters gained
            if (chance < 70 && from < query.size() && at < protein.size()) protein[at] = query[from];
        }
    }
};

// H by the recurrences, column after column.
inline int reference_score(const std::vector<unsigned char> &query, const unsigned char *sequence, size_t length) {
    constexpr int never = -(1 << 28);
    std::vector<int> h(query.size() + 1, 0), e(query.size() + 1, never);
    int best = 0;
    for (size_t column = 0; column < length; column++) {
        int diagonal = 0, f = never;
        for (size_t row = 1; row <= query.size(); row++) {
            e[row] = std::max(e[row] - gap_extend, h[row] - gap_open);
            f = std::max(f - gap_extend, h[row - 1] - gap_open);
            const int aligned = diagonal + blosum62[query[row - 1]][sequence[column]];
            diagonal = h[row];
            h[row] = std::max({0, aligned, e[row], f});
            best = std::max(best, h[row]);
        }
    }
    return best;
}

// Sequences for one launch, sorted by length; 32 neighbours form a group, as long as its longest, for the 32 threads of a
// warp. The letters of a group are interleaved: word i of thread t, which holds its letters 4 i to 4 i + 3, is at
// 32 i + t, so that a warp reads whole lines.
struct chunk {
    std::vector<uint32_t> words;
    std::vector<unsigned> group_starts; // in words
    std::vector<unsigned> group_words;  // per thread
    std::vector<unsigned> sequences;    // number in the database, by thread
};

inline std::vector<chunk> arrange(const database &database, size_t words_per_chunk) {
    std::vector<unsigned> order(database.lengths.size());
    std::iota(order.begin(), order.end(), 0);
    // The longest first: they take longest.
    std::stable_sort(order.begin(), order.end(), [&](unsigned a, unsigned b) { return database.lengths[a] > database.lengths[b]; });
    std::vector<chunk> chunks;
    for (size_t first = 0; first < order.size(); first += 32) {
        const unsigned words = static_cast<unsigned>(divide_up(database.lengths[order[first]], 4));
        if (chunks.empty() || chunks.back().words.size() + size_t{32} * words > words_per_chunk) chunks.emplace_back();
        chunk &chunk = chunks.back();
        const size_t start = chunk.words.size();
        chunk.group_starts.push_back(static_cast<unsigned>(start));
        chunk.group_words.push_back(words);
        chunk.words.resize(start + size_t{32} * words, padding * 0x01010101u);
        for (size_t thread = 0; thread < 32 && first + thread < order.size(); thread++) {
            const unsigned sequence = order[first + thread];
            const unsigned char *letters = &database.residues[database.starts[sequence]];
            for (size_t at = 0; at < database.lengths[sequence]; at++) {
                uint32_t &word = chunk.words[start + 32 * (at / 4) + thread];
                const unsigned shift = 8 * (at % 4);
                word = (word & ~(0xffu << shift)) | uint32_t{letters[at]} << shift;
            }
            chunk.sequences.push_back(sequence);
        }
    }
    return chunks;
}

// The query is cut into strips of rows; a thread goes along its sequence once per strip, with the rows in registers.
constexpr unsigned strip_rows = 16;

// Scores of the strip's rows against every letter.
struct strip_profile {
    signed char scores[letters][strip_rows];
};

inline strip_profile profile_of(const std::vector<unsigned char> &query, size_t strip) {
    strip_profile profile;
    for (unsigned letter = 0; letter < letters; letter++) {
        for (unsigned row = 0; row < strip_rows; row++) {
            const size_t at = strip * strip_rows + row;
            profile.scores[letter][row] = static_cast<signed char>(
                letter == padding || at >= query.size() ? never_matches : blosum62[query[at]][letter]);
        }
    }
    return profile;
}

// H and F that leave the lowest row of a strip, by column; in a group column j of thread t is at 32 j + t.
struct alignas(8) boundary {
    int h, f;
};

HOST_DEVICE int larger(int a, int b) { return a > b ? a : b; }

// One strip of one thread: reads the boundary of the strip above unless `first`, leaves its own, and returns the best H.
HOST_DEVICE int align_strip(const strip_profile &profile, const uint32_t *words, unsigned count, boundary *boundary,
                            unsigned thread, bool first, int best) {
    constexpr int never = -(1 << 28);
    int h[strip_rows], e[strip_rows];
    for (unsigned row = 0; row < strip_rows; row++) h[row] = 0, e[row] = never;
    int corner = 0;
    for (unsigned i = 0; i < count; i++) {
        const uint32_t four = words[32 * static_cast<size_t>(i) + thread];
        for (unsigned j = 0; j < 4; j++) {
            const size_t at = 32 * (4 * static_cast<size_t>(i) + j) + thread;
            const signed char *scores = profile.scores[four >> 8 * j & 0xff];
            int above = first ? 0 : boundary[at].h, f = first ? never : boundary[at].f, diagonal = corner;
            corner = above;
            for (unsigned row = 0; row < strip_rows; row++) {
                e[row] = larger(e[row] - gap_extend, h[row] - gap_open);
                f = larger(f - gap_extend, above - gap_open);
                const int aligned = diagonal + scores[row];
                diagonal = h[row];
                above = larger(larger(aligned, 0), larger(e[row], f));
                h[row] = above;
                best = larger(best, above);
            }
            boundary[at] = {above, f};
        }
    }
    return best;
}

} // namespace search

#endif
