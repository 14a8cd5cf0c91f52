#include "bench.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double bench_now(void)
{
    return MPI_Wtime();
}

_Noreturn static void leave(int status)
{
    MPI_Finalize();
    exit(status);
}

_Noreturn void bench_refuse(const struct bench *bench, const char *format, ...)
{
    if (bench->rank == 0) {
        va_list arguments;
        fprintf(stderr, "%s: ", bench->workload);
        va_start(arguments, format);
        vfprintf(stderr, format, arguments);
        va_end(arguments);
        fprintf(stderr, "\nTry '%s --help'.\n", bench->workload);
    }
    leave(EXIT_BAD_USAGE);
}

_Noreturn void bench_abort(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    MPI_Abort(MPI_COMM_WORLD, status);
    abort();
}

void *bench_allocate(size_t count, size_t size)
{
    size_t bytes = 0;
    void *memory = NULL;
    if (!__builtin_mul_overflow(count, size, &bytes) && !__builtin_add_overflow(bytes, 63, &bytes))
        memory = aligned_alloc(64, bytes / 64 * 64 + (bytes < 64 ? 64 : 0));
    if (memory == NULL)
        bench_abort(EXIT_BAD_USAGE, "no memory for %zu elements of %zu bytes; use a smaller class or more ranks", count,
                    size);
    return memset(memory, 0, count * size);
}

static void print_help(const struct bench *bench, const char *what, const char *const *own_help,
                       const struct option *options, size_t option_count)
{
    printf("Usage: mpirun -np N %s [--class %s] [OPTION]...\n%s\n\n", bench->workload, bench->classes, what);
    printf("  %-28s %s\n", "--class CLASS", "the size of the problem [default: S]");
    for (size_t i = 0; i < option_count; i++) {
        char left[64];
        snprintf(left, sizeof left, "--%s %s", options[i].name, options[i].value ? options[i].value : "");
        printf("  %-28s %s\n", left, options[i].help);
    }
    printf("  %-28s %s\n", "--json", "print only the JSON object");
    for (; own_help != NULL && *own_help != NULL; own_help++)
        printf("%s\n", *own_help);
    printf("\nExit status: 0 right, 1 wrong, 2 bad usage, 3 device error, 77 skipped for want of a device.\n");
}

/* Position of `word` in "one|two|three", or -1. */
static int choice_index(const char *choices, const char *word)
{
    const size_t length = strlen(word);
    for (int index = 0; choices != NULL; index++) {
        const char *bar = strchr(choices, '|');
        const size_t choice_length = bar ? (size_t)(bar - choices) : strlen(choices);
        if (choice_length == length && memcmp(choices, word, length) == 0)
            return index;
        choices = bar ? bar + 1 : NULL;
    }
    return -1;
}

static void set_class(struct bench *bench, const char *name)
{
    bench->class_index = choice_index(bench->classes, name);
    if (bench->class_index < 0)
        bench_refuse(bench, "--class takes %s, not '%s'", bench->classes, name);
    snprintf(bench->class_name, sizeof bench->class_name, "%s", name);
}

static void set_option(const struct bench *bench, const struct option *option, const char *value)
{
    if (option->flag != NULL) {
        *option->flag = true;
    } else if (option->text != NULL) {
        *option->text = value;
    } else {
        char *end;
        errno = 0;
        const long number = strtol(value, &end, 10);
        if (errno != 0 || end == value || *end != '\0' || number < option->minimum || number > 1000000000)
            bench_refuse(bench, "--%s takes a whole number of at least %ld, not '%s'", option->name, option->minimum, value);
        *option->number = number;
    }
}

void bench_begin(struct bench *bench, int *argc, char ***argv, const char *what, const char *const *own_help,
                 const struct option *options, size_t option_count)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &bench->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &bench->ranks);
    set_class(bench, "S");
    for (int at = 1; at < *argc; at++) {
        const char *argument = (*argv)[at];
        if (strcmp(argument, "--help") == 0) {
            if (bench->rank == 0)
                print_help(bench, what, own_help, options, option_count);
            leave(EXIT_PASSED);
        }
        if (strcmp(argument, "--json") == 0) {
            bench->json = true;
            continue;
        }
        const struct option *option = NULL;
        for (size_t i = 0; i < option_count && strncmp(argument, "--", 2) == 0; i++)
            if (strcmp(options[i].name, argument + 2) == 0)
                option = &options[i];
        const bool is_class = strcmp(argument, "--class") == 0;
        if (!is_class && option == NULL)
            bench_refuse(bench, "there is no option '%s'", argument);
        const char *value = NULL;
        if (is_class || option->value != NULL) {
            if (++at >= *argc)
                bench_refuse(bench, "%s needs a value", argument);
            value = (*argv)[at];
        }
        if (is_class)
            set_class(bench, value);
        else
            set_option(bench, option, value);
    }
}

static void print_json_number(double number)
{
    if (isfinite(number))
        printf("%.6g", number);
    else
        printf("null");
}

int bench_end(const struct bench *bench, const struct result *result)
{
    double seconds = 0;
    MPI_Allreduce(&result->seconds, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    int passed = !result->checked || result->passed;
    MPI_Bcast(&passed, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (bench->rank == 0) {
        const char *check = !result->checked ? "skipped" : result->passed ? "pass" : "fail";
        const char *device = result->device ? result->device : "cpu";
        const double rate = result->work / seconds;
        if (!bench->json)
            printf("%s class %s (%s) on %d ranks, %s: %d iterations in %.3f s, %.6g %s, check %s (error %.2g)\n",
                   bench->workload, bench->class_name, result->size, bench->ranks, device, result->iterations, seconds,
                   rate, result->rate_key, check, result->max_error);
        printf("{\"workload\":\"%s\",\"class\":\"%s\",\"size\":\"%s\",\"ranks\":%d,\"device\":\"%s\",\"iterations\":%d,"
               "\"seconds\":%.6f,\"%s\":",
               bench->workload, bench->class_name, result->size, bench->ranks, device, result->iterations, seconds,
               result->rate_key);
        print_json_number(rate);
        printf(",\"check\":\"%s\",\"max_error\":", check);
        print_json_number(result->checked ? result->max_error : NAN);
        printf("%s}\n", result->extra ? result->extra : "");
        fflush(stdout);
    }
    MPI_Finalize();
    return passed ? EXIT_PASSED : EXIT_WRONG_RESULT;
}

double relative_error(const double *values, const double *expected, size_t count)
{
    double largest = 0;
    for (size_t i = 0; i < count; i++) {
        const double error = fabs((values[i] - expected[i]) / expected[i]);
        if (!(error <= largest))
            largest = isnan(error) ? INFINITY : error;
    }
    return largest;
}

int log2_exact(int number)
{
    int logarithm = 0;
    if (number < 1 || (number & (number - 1)) != 0)
        return -1;
    while (number > 1)
        number >>= 1, logarithm++;
    return logarithm;
}

struct range range_of_part(int total, int parts, int part)
{
    const int share = total / parts, rest = total % parts;
    return (struct range){
        .first = part * share + (part < rest ? part : rest),
        .count = share + (part < rest ? 1 : 0),
    };
}
