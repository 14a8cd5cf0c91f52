#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *precision_name(enum precision precision)
{
    return precision == PRECISION_DOUBLE ? "double" : "single";
}

void usage_error(const struct options *options, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "%s: ", options->workload);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nTry '%s --help'.\n", options->workload);
    exit(EXIT_BAD_USAGE);
}

static void print_table(struct option_table table)
{
    for (size_t i = 0; i < table.count; i++) {
        const struct option *option = &table.entries[i];
        char left[64];
        snprintf(left, sizeof left, "--%s %s", option->name, option->value ? option->value : "");
        printf("  %-28s %s\n", left, option->help);
    }
}

static const struct option *find(struct option_table table, const char *name, size_t length)
{
    for (size_t i = 0; i < table.count; i++) {
        const struct option *option = &table.entries[i];
        if (strlen(option->name) == length && memcmp(option->name, name, length) == 0)
            return option;
    }
    return NULL;
}

/* "6K" is 6144. False when `text` is not a count or does not fit. */
static bool parse_count(const char *text, size_t *count)
{
    if (!isdigit((unsigned char)text[0]))
        return false;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    unsigned shift = 0;
    switch (toupper((unsigned char)*end)) {
    case 'K': shift = 10, end++; break;
    case 'M': shift = 20, end++; break;
    case 'G': shift = 30, end++; break;
    }
    /* SIZE_MAX itself stands for "all" or "any". */
    if (errno != 0 || *end != '\0' || number >= SIZE_MAX >> shift)
        return false;
    *count = (size_t)number << shift;
    return true;
}

/* Index of `word` in "one|two|three", or -1. */
static int choice_index(const char *choices, const char *word)
{
    const size_t length = strlen(word);
    int index = 0;
    for (const char *at = choices; at != NULL; index++) {
        const char *bar = strchr(at, '|');
        const size_t choice_length = bar ? (size_t)(bar - at) : strlen(at);
        if (choice_length == length && memcmp(at, word, length) == 0)
            return index;
        at = bar ? bar + 1 : NULL;
    }
    return -1;
}

static void set(const struct options *options, const struct option *option, const char *text)
{
    size_t count;
    switch (option->kind) {
    case OPTION_FLAG:
        *(bool *)option->target = true;
        return;
    case OPTION_TEXT:
        *(const char **)option->target = text;
        return;
    case OPTION_CHOICE: {
        const int index = choice_index(option->value, text);
        if (index < 0)
            usage_error(options, "--%s takes %s, not '%s'", option->name, option->value, text);
        *(int *)option->target = index;
        return;
    }
    case OPTION_COUNT_OR_ALL:
        if (strcmp(text, "all") == 0) {
            *(size_t *)option->target = ALL_DEVICES;
            return;
        }
        break;
    case OPTION_COUNT:
        break;
    }
    if (!parse_count(text, &count) || count < option->minimum)
        usage_error(options, "--%s takes a whole number of at least %zu%s, not '%s'", option->name,
                    option->minimum, option->kind == OPTION_COUNT_OR_ALL ? " or 'all'" : "", text);
    *(size_t *)option->target = count;
}

void options_parse(struct options *options, int argc, char **argv, const char *what,
                   const char *size_means, struct option_table own)
{
    bool help = false;
    const struct option basic_entries[] = {
        {"size", OPTION_COUNT, &options->size, 1, "N", size_means},
        {"platform", OPTION_TEXT, &options->platform, 0, "SUBSTRING",
         "platform whose name or vendor contains SUBSTRING (default: the first with a device)"},
        {"device", OPTION_COUNT, &options->device, 0, "INDEX", "use only the device of this index"},
        {"list", OPTION_FLAG, &options->list, 0, NULL, "list platforms and devices, then exit"},
        {"help", OPTION_FLAG, &help, 0, NULL, "print this text, then exit"},
    };
    const struct option measured_entries[] = {
        {"devices", OPTION_COUNT_OR_ALL, &options->devices, 1, "N|all",
         "use the first N devices, or all, in one context (default: 1)"},
        {"iterations", OPTION_COUNT, &options->iterations, 1, "R", "measure R times (default: 5)"},
        {"instances", OPTION_COUNT, &options->instances, 1, "K",
         "issue K problems without waiting, then finish (default: 1)"},
        {"seed", OPTION_COUNT, &options->seed, 0, "S", "seed of the random input (default: 1)"},
        {"no-check", OPTION_FLAG, &options->skip_check, 0, NULL, "do not check the result"},
        {"json", OPTION_FLAG, &options->json, 0, NULL, "print only the line of JSON"},
    };
    const struct option_table tables[] = {
        own,
        {measured_entries, options->measured ? sizeof measured_entries / sizeof measured_entries[0] : 0},
        {basic_entries, sizeof basic_entries / sizeof basic_entries[0]},
    };
    const size_t table_count = sizeof tables / sizeof tables[0];

    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (strncmp(argument, "--", 2) != 0)
            usage_error(options, "unexpected argument '%s'", argument);
        const char *name = argument + 2;
        const char *equals = strchr(name, '=');
        const size_t length = equals ? (size_t)(equals - name) : strlen(name);
        const struct option *option = NULL;
        for (size_t t = 0; option == NULL && t < table_count; t++)
            option = find(tables[t], name, length);
        if (option == NULL)
            usage_error(options, "unknown option '--%.*s'", (int)length, name);
        const char *text = NULL;
        if (option->kind == OPTION_FLAG) {
            if (equals != NULL)
                usage_error(options, "--%s takes no value", option->name);
        } else if (equals != NULL) {
            text = equals + 1;
        } else if (i + 1 < argc) {
            text = argv[++i];
        } else {
            usage_error(options, "--%s needs a value (%s)", option->name, option->value);
        }
        set(options, option, text);
    }
    if (help) {
        printf("Usage: %s [OPTION]...\n%s\n\n", options->workload, what);
        for (size_t t = 0; t < table_count; t++)
            print_table(tables[t]);
        printf("\nDefault size: %zu. Numbers may end in K, M or G (powers of 1024).\n"
               "Exit status: 0 the result is right (or was not checked), %d it is wrong, %d bad usage,\n"
               "%d OpenCL error, %d skipped because the device lacks something.\n",
               options->size, EXIT_WRONG_RESULT, EXIT_BAD_USAGE, EXIT_OPENCL_ERROR, EXIT_SKIPPED);
        exit(EXIT_PASSED);
    }
    if (options->device != ANY_DEVICE && options->devices != 1)
        usage_error(options, "--device and --devices exclude each other");
}
