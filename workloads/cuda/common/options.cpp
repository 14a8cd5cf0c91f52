#include "options.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

void usage_error(const options &options, const char *format, ...) {
    va_list arguments;
    std::fprintf(stderr, "%s: ", options.workload);
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    va_end(arguments);
    std::fprintf(stderr, "\nTry '%s --help'.\n", options.workload);
    std::exit(exit_bad_usage);
}

// "6K" is 6144. False when `text` is not a count or does not fit.
static bool parse_count(const char *text, size_t &count) {
    if (!std::isdigit(static_cast<unsigned char>(text[0]))) return false;
    char *end;
    errno = 0;
    const unsigned long long number = std::strtoull(text, &end, 10);
    unsigned shift = 0;
    switch (std::toupper(static_cast<unsigned char>(*end))) {
        case 'K': shift = 10, end++; break;
        case 'M': shift = 20, end++; break;
        case 'G': shift = 30, end++; break;
        default: break;
    }
    // SIZE_MAX itself stands for "all" or "any".
    if (errno != 0 || *end != '\0' || number >= SIZE_MAX >> shift) return false;
    count = static_cast<size_t>(number) << shift;
    return true;
}

// Index of `word` in "one|two|three", or -1.
static int choice_index(const std::string &choices, const std::string &word) {
    int index = 0;
    for (size_t at = 0; at <= choices.size(); index++) {
        const size_t bar = std::min(choices.find('|', at), choices.size());
        if (choices.compare(at, bar - at, word) == 0) return index;
        at = bar + 1;
    }
    return -1;
}

static void set(const options &options, const option &option, const char *text) {
    switch (option.kind) {
        case option_kind::flag: *static_cast<bool *>(option.target) = true; return;
        case option_kind::choice: {
            const int index = choice_index(option.value, text);
            if (index < 0) usage_error(options, "--%s takes %s, not '%s'", option.name, option.value, text);
            *static_cast<int *>(option.target) = index;
            return;
        }
        case option_kind::count_or_all:
            if (std::strcmp(text, "all") == 0) {
                *static_cast<size_t *>(option.target) = all_devices;
                return;
            }
            break;
        case option_kind::count: break;
    }
    size_t count;
    if (!parse_count(text, count) || count < option.minimum)
        usage_error(options, "--%s takes a whole number of at least %zu%s, not '%s'", option.name, option.minimum,
                    option.kind == option_kind::count_or_all ? " or 'all'" : "", text);
    *static_cast<size_t *>(option.target) = count;
}

static void print_help(const options &options, const char *what, const std::vector<option> &table) {
    std::printf("Usage: %s [OPTION]...\n%s\n\n", options.workload, what);
    for (const option &option : table) {
        const std::string left = std::string("--") + option.name + " " + (option.value ? option.value : "");
        std::printf("  %-32s %s\n", left.c_str(), option.help);
    }
    std::printf("\nDefault size: %zu. Numbers may end in K, M or G (powers of 1024).\n"
                "Exit status: 0 the result is right (or was not checked), %d it is wrong, %d bad usage,\n"
                "%d CUDA error, %d skipped because the device lacks something.\n",
                options.size, exit_wrong_result, exit_bad_usage, exit_cuda_error, exit_skipped);
}

void options_parse(options &options, int argc, char **argv, const char *what, const char *size_means,
                   const std::vector<option> &own) {
    bool help = false;
    std::vector<option> table = own;
    const std::vector<option> common = {
        {"devices", option_kind::count_or_all, &options.devices, 1, "N|all", "use the first N devices, or all (default: 1)"},
        {"iterations", option_kind::count, &options.iterations, 1, "R", "measure R times"},
        {"instances", option_kind::count, &options.instances, 1, "K",
         "issue K problems without waiting, then finish (default: 1)"},
        {"host-memory", option_kind::choice, &options.host_memory, 0, "pinned|pageable",
         "kind of memory that copies come from and go to (default: pinned)"},
        {"seed", option_kind::count, &options.seed, 0, "S", "seed of the random input (default: 1)"},
        {"no-check", option_kind::flag, &options.skip_check, 0, nullptr, "do not check the result"},
        {"json", option_kind::flag, &options.json, 0, nullptr, "print only the line of JSON"},
        {"size", option_kind::count, &options.size, 1, "N", size_means},
        {"device", option_kind::count, &options.device, 0, "INDEX", "use only the device of this index"},
        {"list", option_kind::flag, &options.list, 0, nullptr, "list devices, then exit"},
        {"help", option_kind::flag, &help, 0, nullptr, "print this text, then exit"},
    };
    table.insert(table.end(), common.begin(), common.end());
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (std::strncmp(argument, "--", 2) != 0) usage_error(options, "unexpected argument '%s'", argument);
        const char *equals = std::strchr(argument, '=');
        const std::string name = equals ? std::string(argument + 2, equals) : std::string(argument + 2);
        const option *option = nullptr;
        for (const auto &candidate : table)
            if (name == candidate.name) option = &candidate;
        if (option == nullptr) usage_error(options, "unknown option '--%s'", name.c_str());
        const char *text = equals ? equals + 1 : nullptr;
        if (option->kind == option_kind::flag) {
            if (text != nullptr) usage_error(options, "--%s takes no value", option->name);
        } else if (text == nullptr) {
            if (i + 1 >= argc) usage_error(options, "--%s needs a value (%s)", option->name, option->value);
            text = argv[++i];
        }
        set(options, *option, text);
    }
    if (help) {
        print_help(options, what, table);
        std::exit(exit_passed);
    }
    if (options.device != any_device && options.devices != 1)
        usage_error(options, "--device and --devices exclude each other");
}
