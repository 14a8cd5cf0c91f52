#include "atoms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for `count` elements of `size` bytes and keeps what is there. */
static void *grown(void *memory, size_t count, size_t size)
{
    void *larger = realloc(memory, count * size);
    if (larger == NULL)
        bench_abort(EXIT_BAD_USAGE, "no memory for %zu elements of %zu bytes; use a smaller class or more ranks", count,
                    size);
    return larger;
}

static void reserve_atoms(struct atoms *atoms, int count)
{
    if (count <= atoms->capacity)
        return;
    atoms->capacity = count + count / 4 + 64;
    const size_t capacity = (size_t)atoms->capacity;
    atoms->x = grown(atoms->x, 3 * capacity, sizeof(double));
    atoms->v = grown(atoms->v, 3 * capacity, sizeof(double));
    atoms->f = grown(atoms->f, 3 * capacity, sizeof(double));
    atoms->id = grown(atoms->id, capacity, sizeof(double));
}

static void reserve_buffer(double **buffer, size_t *capacity, size_t count)
{
    if (count <= *capacity)
        return;
    *capacity = count + count / 4 + 256;
    *buffer = grown(*buffer, *capacity, sizeof(double));
}

void atoms_divide(struct atoms *atoms, const struct bench *bench, double box, double reach)
{
    memset(atoms, 0, sizeof *atoms);
    atoms->bench = bench;
    atoms->box = box;
    atoms->reach = reach;
    MPI_Dims_create(bench->ranks, 3, atoms->parts);
    MPI_Cart_create(MPI_COMM_WORLD, 3, atoms->parts, (int[3]){1, 1, 1}, 0, &atoms->grid);
    MPI_Cart_coords(atoms->grid, bench->rank, 3, atoms->place);
    for (int axis = 0; axis < 3; axis++) {
        const double side = box / atoms->parts[axis];
        if (side < reach)
            bench_refuse(bench, "class %s is too small for %d ranks: parts must be at least %.2f wide", bench->class_name,
                         bench->ranks, reach);
        atoms->low[axis] = side * atoms->place[axis];
        atoms->high[axis] = atoms->place[axis] + 1 == atoms->parts[axis] ? box : side * (atoms->place[axis] + 1);
        int before, after;
        MPI_Cart_shift(atoms->grid, axis, 1, &before, &after);
        struct swap *down = &atoms->swaps[2 * axis], *up = down + 1;
        *down = (struct swap){.to = before, .from = after, .axis = axis};
        *up = (struct swap){.to = after, .from = before, .axis = axis};
        if (atoms->place[axis] == 0)
            down->shift = box;
        if (atoms->place[axis] + 1 == atoms->parts[axis])
            up->shift = -box;
    }
}

void atoms_add(struct atoms *atoms, const double x[3], const double v[3], double id)
{
    const size_t at = (size_t)atoms->own;
    reserve_atoms(atoms, atoms->own + 1);
    memcpy(atoms->x + 3 * at, x, 3 * sizeof(double));
    memcpy(atoms->v + 3 * at, v, 3 * sizeof(double));
    atoms->id[at] = id;
    atoms->own++;
}

#define PACKED 7 /* position, velocity, number */

/* Moves atom `number` to the end of the send buffer, which has `count` atoms; the last atom takes its place. */
static void take_out(struct atoms *atoms, int number, size_t count, const struct swap *swap)
{
    reserve_buffer(&atoms->send, &atoms->send_capacity, (count + 1) * PACKED);
    double *packed = atoms->send + count * PACKED;
    const size_t at = (size_t)number, last = (size_t)--atoms->own;
    memcpy(packed, atoms->x + 3 * at, 3 * sizeof(double));
    memcpy(packed + 3, atoms->v + 3 * at, 3 * sizeof(double));
    packed[6] = atoms->id[at];
    packed[swap->axis] += swap->shift;
    memcpy(atoms->x + 3 * at, atoms->x + 3 * last, 3 * sizeof(double));
    memcpy(atoms->v + 3 * at, atoms->v + 3 * last, 3 * sizeof(double));
    atoms->id[at] = atoms->id[last];
}

void atoms_migrate(struct atoms *atoms)
{
    atoms->copies = 0;
    for (int number = 0; number < 6; number++) {
        const struct swap *swap = &atoms->swaps[number];
        const int axis = swap->axis;
        const bool down = number % 2 == 0;
        size_t leaving = 0;
        for (int i = 0; i < atoms->own;) {
            const double x = atoms->x[3 * (size_t)i + (size_t)axis];
            if (down ? x < atoms->low[axis] : x >= atoms->high[axis])
                take_out(atoms, i, leaving++, swap);
            else
                i++;
        }
        int sent = (int)leaving * PACKED, received = 0;
        MPI_Sendrecv(&sent, 1, MPI_INT, swap->to, 0, &received, 1, MPI_INT, swap->from, 0, atoms->grid,
                     MPI_STATUS_IGNORE);
        reserve_buffer(&atoms->receive, &atoms->receive_capacity, (size_t)received);
        MPI_Sendrecv(atoms->send, sent, MPI_DOUBLE, swap->to, 1, atoms->receive, received, MPI_DOUBLE, swap->from, 1,
                     atoms->grid, MPI_STATUS_IGNORE);
        for (int at = 0; at < received; at += PACKED)
            atoms_add(atoms, atoms->receive + at, atoms->receive + at + 3, atoms->receive[at + 6]);
    }
}

static void send_positions(struct atoms *atoms, const struct swap *swap)
{
    reserve_buffer(&atoms->send, &atoms->send_capacity, 3 * (size_t)swap->sent_count);
    for (int i = 0; i < swap->sent_count; i++) {
        double *packed = atoms->send + 3 * (size_t)i;
        memcpy(packed, atoms->x + 3 * (size_t)swap->sent[i], 3 * sizeof(double));
        packed[swap->axis] += swap->shift;
    }
    MPI_Sendrecv(atoms->send, 3 * swap->sent_count, MPI_DOUBLE, swap->to, 2, atoms->x + 3 * (size_t)swap->first,
                 3 * swap->count, MPI_DOUBLE, swap->from, 2, atoms->grid, MPI_STATUS_IGNORE);
}

static void choose(struct swap *swap, int number)
{
    if (swap->sent_count == swap->sent_capacity) {
        swap->sent_capacity = 2 * swap->sent_capacity + 256;
        swap->sent = grown(swap->sent, (size_t)swap->sent_capacity, sizeof(int));
    }
    swap->sent[swap->sent_count++] = number;
}

/* Axis after axis, and with the copies from earlier axes, so that those across edges and corners come along. */
void atoms_choose_copies(struct atoms *atoms)
{
    atoms->copies = 0;
    for (int axis = 0; axis < 3; axis++) {
        struct swap *down = &atoms->swaps[2 * axis], *up = down + 1;
        const int known = atoms->own + atoms->copies;
        down->sent_count = up->sent_count = 0;
        for (int i = 0; i < known; i++) {
            const double x = atoms->x[3 * (size_t)i + (size_t)axis];
            if (x < atoms->low[axis] + atoms->reach)
                choose(down, i);
            if (x >= atoms->high[axis] - atoms->reach)
                choose(up, i);
        }
        for (struct swap *swap = down; swap <= up; swap++) {
            MPI_Sendrecv(&swap->sent_count, 1, MPI_INT, swap->to, 3, &swap->count, 1, MPI_INT, swap->from, 3, atoms->grid,
                         MPI_STATUS_IGNORE);
            swap->first = atoms->own + atoms->copies;
            reserve_atoms(atoms, swap->first + swap->count);
            send_positions(atoms, swap);
            atoms->copies += swap->count;
        }
    }
}

void atoms_update_copies(struct atoms *atoms)
{
    for (int number = 0; number < 6; number++)
        send_positions(atoms, &atoms->swaps[number]);
}

/* ---- neighbours ---- */

struct cells {
    int count[3];
    double low[3], per_side[3];
};

static int cell_along(const struct cells *cells, int axis, double x)
{
    const int cell = (int)((x - cells->low[axis]) * cells->per_side[axis]);
    return cell < 0 ? 0 : cell >= cells->count[axis] ? cells->count[axis] - 1 : cell;
}

static void sort_into_cells(struct neighbours *neighbours, const struct atoms *atoms, struct cells *cells)
{
    size_t total = 1;
    for (int axis = 0; axis < 3; axis++) {
        const double side = atoms->high[axis] - atoms->low[axis] + 2 * atoms->reach;
        cells->low[axis] = atoms->low[axis] - atoms->reach;
        cells->count[axis] = (int)(side / atoms->reach);
        cells->per_side[axis] = cells->count[axis] / side;
        total *= (size_t)cells->count[axis];
    }
    const int known = atoms->own + atoms->copies;
    if (total > neighbours->cell_capacity) {
        neighbours->cells = grown(neighbours->cells, total, sizeof(int));
        neighbours->cell_capacity = total;
    }
    if (known > neighbours->next_capacity) {
        neighbours->next = grown(neighbours->next, (size_t)known, sizeof(int));
        neighbours->next_capacity = known;
    }
    for (size_t i = 0; i < total; i++)
        neighbours->cells[i] = -1;
    for (int i = known - 1; i >= 0; i--) {
        const double *x = atoms->x + 3 * (size_t)i;
        const int cell = (cell_along(cells, 2, x[2]) * cells->count[1] + cell_along(cells, 1, x[1])) * cells->count[0] +
                         cell_along(cells, 0, x[0]);
        neighbours->next[i] = neighbours->cells[cell];
        neighbours->cells[cell] = i;
    }
}

/* Adds those of one cell that are near atom i; answers the new length of the list. */
static size_t add_near(struct neighbours *neighbours, const struct atoms *atoms, int i, int cell, size_t length)
{
    const double *x = atoms->x + 3 * (size_t)i, reach_squared = atoms->reach * atoms->reach;
    for (int j = neighbours->cells[cell]; j >= 0; j = neighbours->next[j]) {
        const double *y = atoms->x + 3 * (size_t)j;
        const double d[3] = {x[0] - y[0], x[1] - y[1], x[2] - y[2]};
        if (j == i || d[0] * d[0] + d[1] * d[1] + d[2] * d[2] > reach_squared)
            continue;
        if (length == neighbours->capacity) {
            neighbours->capacity = 2 * neighbours->capacity + 1024;
            neighbours->list = grown(neighbours->list, neighbours->capacity, sizeof(int));
        }
        neighbours->list[length++] = j;
    }
    return length;
}

void neighbours_find(struct neighbours *neighbours, const struct atoms *atoms)
{
    struct cells cells;
    sort_into_cells(neighbours, atoms, &cells);
    if (atoms->own + 1 > neighbours->starts_capacity) {
        neighbours->starts_capacity = atoms->own + atoms->own / 4 + 64;
        neighbours->starts = grown(neighbours->starts, (size_t)neighbours->starts_capacity, sizeof(size_t));
    }
    neighbours->own = atoms->own;
    neighbours->most = 0;
    size_t length = 0;
    for (int i = 0; i < atoms->own; i++) {
        neighbours->starts[i] = length;
        int from[3], to[3];
        for (int axis = 0; axis < 3; axis++) {
            const int cell = cell_along(&cells, axis, atoms->x[3 * (size_t)i + (size_t)axis]);
            from[axis] = cell > 0 ? cell - 1 : 0;
            to[axis] = cell + 1 < cells.count[axis] ? cell + 1 : cell;
        }
        for (int z = from[2]; z <= to[2]; z++)
            for (int y = from[1]; y <= to[1]; y++)
                for (int x = from[0]; x <= to[0]; x++)
                    length = add_near(neighbours, atoms, i, (z * cells.count[1] + y) * cells.count[0] + x, length);
        const int count = (int)(length - neighbours->starts[i]);
        if (count > neighbours->most)
            neighbours->most = count;
    }
    neighbours->starts[atoms->own] = length;
}
