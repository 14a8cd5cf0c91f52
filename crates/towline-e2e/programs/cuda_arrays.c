/*
 * Holds arrays of every shape, among them one of several levels and one of nothing but zeros, and memory of a second device if there is one,
 * until the test says check.
 */
#include "driver.h"

typedef struct {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
} Shape;

typedef struct {
    size_t x, y, z, level;
    int kind;
    void *host;
    uint64_t device;
    void *array, *unused;
    size_t pitch, height;
} End;

typedef struct {
    End from, to;
    size_t width, height, depth;
} Box;

enum { HOST = 1, ARRAY = 3, LEVELS = 3, ARRAYS = 3 + LEVELS };

static const Shape SHAPES[] = {
    {.width = 300, .height = 200, .format = 3, .channels = 1},
    {.width = 33, .height = 7, .depth = 5, .format = 3, .channels = 4},
    {.width = 64, .format = 3, .channels = 1},
    {.width = 96, .height = 40, .format = 3, .channels = 2},
};

/* The word of array `number` at a place; the third array holds zeros. */
static uint32_t word(int number, size_t at)
{
    return number == 2 ? 0 : (uint32_t)(at * 2654435761u) + (uint32_t)number;
}

static size_t side(size_t side, int level)
{
    return side >> level > 0 ? side >> level : 1;
}

/* Copies all of an array, or of a level, to or from host memory. */
static void copy(void *array, const Shape *shape, int level, uint32_t *host, int write)
{
    const size_t width = side(shape->width, level) * shape->channels * 4, height = side(shape->height, level);
    const End there = {.kind = ARRAY, .array = array}, here = {.kind = HOST, .host = host, .pitch = width, .height = height};
    const Box box = {
        .from = write ? here : there,
        .to = write ? there : here,
        .width = width,
        .height = height,
        .depth = side(shape->depth, level),
    };
    CALL(cuMemcpy3D_v2, (const Box *), &box);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_device();
    void *arrays[ARRAYS], *mipmap;
    for (int i = 0; i < 3; i++)
        CALL(cuArray3DCreate_v2, (void **, const Shape *), &arrays[i], &SHAPES[i]);
    CALL(cuMipmappedArrayCreate, (void **, const Shape *, unsigned), &mipmap, &SHAPES[3], LEVELS);
    for (int i = 0; i < LEVELS; i++)
        CALL(cuMipmappedArrayGetLevel, (void **, void *, unsigned), &arrays[3 + i], mipmap, i);
    static uint32_t words[300 * 200];
    int devices;
    void *first, *second = NULL;
    uint64_t memory = 0;
    CALL(cuDeviceGetCount, (int *), &devices);
    CALL(cuCtxGetCurrent, (void **), &first);
    if (devices > 1) {
        CALL(cuDevicePrimaryCtxRetain, (void **, int), &second, 1);
        CALL(cuCtxSetCurrent, (void *), second);
        memory = device_memory(sizeof words);
        CALL(cuMemsetD32_v2, (uint64_t, unsigned, size_t), memory, 77, sizeof words / 4);
        CALL(cuCtxSetCurrent, (void *), first);
    }
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < ARRAYS; i++) {
            const Shape *shape = &SHAPES[i < 3 ? i : 3];
            const int level = i < 3 ? 0 : i - 3;
            const size_t count =
                side(shape->width, level) * side(shape->height, level) * side(shape->depth, level) * shape->channels;
            if (turn == 0) {
                for (size_t at = 0; at < count; at++)
                    words[at] = word(i, at);
                copy(arrays[i], shape, level, words, 1);
                continue;
            }
            memset(words, 1, sizeof words);
            copy(arrays[i], shape, level, words, 0);
            for (size_t at = 0; at < count; at++)
                if (words[at] != word(i, at)) {
                    fprintf(stderr, "array %d: word %zu is %u\n", i, at, words[at]);
                    return 1;
                }
        }
        if (turn == 0) {
            puts("holds");
            getchar();
        }
    }
    if (second != NULL) {
        CALL(cuCtxSetCurrent, (void *), second);
        CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), words, memory, sizeof words);
        for (size_t at = 0; at < sizeof words / 4; at++)
            if (words[at] != 77) {
                fprintf(stderr, "second device: word %zu is %u\n", at, words[at]);
                return 1;
            }
    }
    printf("right on %d devices\n", devices);
    return 0;
}
