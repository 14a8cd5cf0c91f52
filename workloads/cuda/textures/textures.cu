// Reads and writes through textures and surfaces of every shape, and checks each element against the formulas of the CUDA C++ Programming
// Guide, worked out on the host.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#define CHECK(call)                                                                                                            \
    do {                                                                                                                       \
        const cudaError_t status = (call);                                                                                     \
        if (status != cudaSuccess) {                                                                                           \
            std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status));                    \
            std::exit(1);                                                                                                      \
        }                                                                                                                      \
    } while (0)

namespace {

// Weights of filters have eight bits; values are at most this large.
constexpr float LARGEST = 4.0f;
constexpr float TOLERANCE = LARGEST / 64.0f;

int failures = 0;

void expect(const char *what, const std::vector<float> &found, const std::function<float(size_t)> &wanted, float tolerance) {
    for (size_t at = 0; at < found.size(); at++) {
        const float right = wanted(at);
        if (!(std::fabs(found[at] - right) <= tolerance)) {
            std::fprintf(stderr, "%s: element %zu is %g, not %g\n", what, at, found[at], right);
            failures++;
            return;
        }
    }
    std::printf("%s: %zu elements are right\n", what, found.size());
}

float noise(size_t at) {
    uint32_t bits = static_cast<uint32_t>(at) * 2654435761u + 12345u;
    bits ^= bits >> 15;
    return static_cast<float>(bits % 4096u) / 1024.0f;
}

std::vector<float> noise_of(size_t count) {
    std::vector<float> values(count);
    for (size_t at = 0; at < count; at++) values[at] = noise(at);
    return values;
}

enum class Edge { Wrap, Clamp, Mirror, Border };

int resolve(int at, int count, Edge edge) {
    switch (edge) {
    case Edge::Wrap: return (at % count + count) % count;
    case Edge::Mirror: {
        const int twice = (at % (2 * count) + 2 * count) % (2 * count);
        return std::min(twice, 2 * count - 1 - twice);
    }
    case Edge::Clamp: return std::clamp(at, 0, count - 1);
    default: return at >= 0 && at < count ? at : -1;
    }
}

// A texture of up to three sides, read by the book; coordinates in texels.
float by_the_book(const std::function<float(int, int, int)> &texel, std::array<int, 3> sides, std::array<float, 3> at, Edge edge,
                  bool linear) {
    int first[3];
    float part[3];
    for (int side = 0; side < 3; side++) {
        const float place = linear ? at[side] - 0.5f : at[side];
        first[side] = static_cast<int>(std::floor(place));
        part[side] = linear ? place - std::floor(place) : 0.0f;
        if (sides[side] == 0) first[side] = 0, part[side] = 0.0f;
    }
    float sum = 0.0f;
    for (int corner = 0; corner < 8; corner++) {
        float weight = 1.0f;
        int found[3];
        bool inside = true;
        for (int side = 0; side < 3; side++) {
            const int further = corner >> side & 1;
            weight *= further ? part[side] : 1.0f - part[side];
            found[side] = resolve(first[side] + further, std::max(sides[side], 1), edge);
            inside = inside && found[side] >= 0;
        }
        if (weight != 0.0f && inside) sum += weight * texel(found[0], found[1], found[2]);
    }
    return sum;
}

template <typename T> struct OnDevice {
    T *at = nullptr;
    size_t count;
    explicit OnDevice(size_t count) : count(count) { CHECK(cudaMalloc(&at, count * sizeof(T))); }
    ~OnDevice() { cudaFree(at); }
    OnDevice(const OnDevice &) = delete;
    std::vector<T> read() const {
        std::vector<T> values(count);
        CHECK(cudaMemcpy(values.data(), at, count * sizeof(T), cudaMemcpyDeviceToHost));
        return values;
    }
};

cudaTextureDesc described(cudaTextureAddressMode mode, cudaTextureFilterMode filter, bool normalized) {
    cudaTextureDesc desc{};
    for (auto &one : desc.addressMode) one = mode;
    desc.filterMode = filter;
    desc.readMode = cudaReadModeElementType;
    desc.normalizedCoords = normalized;
    return desc;
}

cudaTextureObject_t texture_of(cudaArray_t array, const cudaTextureDesc &desc) {
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureObject_t texture;
    CHECK(cudaCreateTextureObject(&texture, &resource, &desc, nullptr));
    return texture;
}

cudaSurfaceObject_t surface_of(cudaArray_t array) {
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaSurfaceObject_t surface;
    CHECK(cudaCreateSurfaceObject(&surface, &resource));
    return surface;
}

template <typename T> cudaArray_t array_of(const std::vector<T> &values, cudaExtent extent, unsigned flags) {
    const auto format = cudaCreateChannelDesc<T>();
    cudaArray_t array;
    CHECK(cudaMalloc3DArray(&array, &format, extent, flags));
    const size_t height = std::max<size_t>(extent.height, 1), depth = std::max<size_t>(extent.depth, 1);
    cudaMemcpy3DParms copy{};
    copy.srcPtr = make_cudaPitchedPtr(const_cast<T *>(values.data()), extent.width * sizeof(T), extent.width, height);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(extent.width, height, depth);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    return array;
}

__global__ void turn(cudaTextureObject_t picture, float *out, int width, int height, float angle) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const float u = x / static_cast<float>(width) - 0.5f, v = y / static_cast<float>(height) - 0.5f;
    const float s = u * cosf(angle) - v * sinf(angle) + 0.5f, t = v * cosf(angle) + u * sinf(angle) + 0.5f;
    out[y * width + x] = tex2D<float>(picture, s, t);
}

void turned_pictures() {
    constexpr int width = 96, height = 80;
    const auto values = noise_of(width * height);
    cudaArray_t picture = array_of(values, make_cudaExtent(width, height, 0), 0);
    const auto texel = [&](int x, int y, int) { return values[y * width + x]; };
    const struct {
        const char *name;
        cudaTextureAddressMode mode;
        Edge edge;
    } modes[] = {{"a picture turned, wrapped", cudaAddressModeWrap, Edge::Wrap},
                 {"a picture turned, mirrored", cudaAddressModeMirror, Edge::Mirror},
                 {"a picture turned, clamped", cudaAddressModeClamp, Edge::Clamp},
                 {"a picture turned, with a border", cudaAddressModeBorder, Edge::Border}};
    for (const auto &mode : modes) {
        const auto texture = texture_of(picture, described(mode.mode, cudaFilterModeLinear, true));
        OnDevice<float> out(width * height);
        turn<<<dim3(6, 5), dim3(16, 16)>>>(texture, out.at, width, height, 0.6f);
        CHECK(cudaGetLastError());
        expect(mode.name, out.read(), [&](size_t at) {
            const float u = static_cast<float>(at % width) / width - 0.5f, v = static_cast<float>(at / width) / height - 0.5f;
            const float s = u * std::cos(0.6f) - v * std::sin(0.6f) + 0.5f, t = v * std::cos(0.6f) + u * std::sin(0.6f) + 0.5f;
            return by_the_book(texel, {width, height, 0}, {s * width, t * height, 0.0f}, mode.edge, true);
        }, TOLERANCE);
        CHECK(cudaDestroyTextureObject(texture));
    }
    CHECK(cudaFreeArray(picture));
}

__global__ void layers(cudaTextureObject_t stack, float *out, int width, int height) {
    const int x = threadIdx.x, y = blockIdx.x, layer = blockIdx.y;
    out[(layer * height + y) * width + x] = -tex2DLayered<float>(stack, (x + 0.5f) / width, (y + 0.5f) / height, layer) + layer;
}

void layered_pictures() {
    constexpr int width = 48, height = 20, count = 5;
    const auto values = noise_of(width * height * count);
    cudaArray_t stack = array_of(values, make_cudaExtent(width, height, count), cudaArrayLayered);
    const auto texture = texture_of(stack, described(cudaAddressModeWrap, cudaFilterModeLinear, true));
    OnDevice<float> out(values.size());
    layers<<<dim3(height, count), width>>>(texture, out.at, width, height);
    CHECK(cudaGetLastError());
    expect("layers", out.read(), [&](size_t at) { return -values[at] + static_cast<float>(at / (width * height)); }, TOLERANCE);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(stack));
}

__device__ __host__ float3 direction(int face, float s, float t) {
    switch (face) {
    case 0: return make_float3(1.0f, -t, -s);
    case 1: return make_float3(-1.0f, -t, s);
    case 2: return make_float3(s, 1.0f, t);
    case 3: return make_float3(s, -1.0f, -t);
    case 4: return make_float3(s, -t, 1.0f);
    default: return make_float3(-s, -t, -1.0f);
    }
}

__global__ void faces(cudaTextureObject_t cube, float *out, int side) {
    const int x = threadIdx.x, y = threadIdx.y, face = blockIdx.x;
    const float3 way = direction(face, (2 * x + 1) / static_cast<float>(side) - 1.0f, (2 * y + 1) / static_cast<float>(side) - 1.0f);
    out[(face * side + y) * side + x] = texCubemap<float>(cube, way.x, way.y, way.z);
}

__global__ void faces_of_layers(cudaTextureObject_t cubes, float *out, int side) {
    const int x = threadIdx.x, y = threadIdx.y, face = blockIdx.x, layer = blockIdx.y;
    const float3 way = direction(face, (2 * x + 1) / static_cast<float>(side) - 1.0f, (2 * y + 1) / static_cast<float>(side) - 1.0f);
    out[((layer * 6 + face) * side + y) * side + x] = texCubemapLayered<float>(cubes, way.x, way.y, way.z, layer);
}

void cubes() {
    constexpr int side = 16;
    const auto values = noise_of(side * side * 12);
    cudaArray_t cube = array_of(std::vector<float>(values.begin(), values.begin() + side * side * 6), make_cudaExtent(side, side, 6),
                                cudaArrayCubemap);
    cudaArray_t two = array_of(values, make_cudaExtent(side, side, 12), cudaArrayCubemap | cudaArrayLayered);
    const auto desc = described(cudaAddressModeClamp, cudaFilterModeLinear, true);
    const auto texture = texture_of(cube, desc), textures = texture_of(two, desc);
    OnDevice<float> out(side * side * 6), more(side * side * 12);
    faces<<<6, dim3(side, side)>>>(texture, out.at, side);
    CHECK(cudaGetLastError());
    expect("a cube", out.read(), [&](size_t at) { return values[at]; }, TOLERANCE);
    faces_of_layers<<<dim3(6, 2), dim3(side, side)>>>(textures, more.at, side);
    CHECK(cudaGetLastError());
    expect("two cubes", more.read(), [&](size_t at) { return values[at]; }, TOLERANCE);
    for (const auto one : {texture, textures}) CHECK(cudaDestroyTextureObject(one));
    for (const auto one : {cube, two}) CHECK(cudaFreeArray(one));
}

__global__ void shift_rows(cudaTextureObject_t rows, float *out, int width, int height, int right, int down) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < width) out[y * width + x] = tex2D<float>(rows, (x + right + 0.5f) / width, (y + down + 0.5f) / height);
}

__global__ void gather_line(cudaTextureObject_t line, const int *from, float4 *out, int count) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) out[at] = tex1Dfetch<float4>(line, from[at]);
}

void memory_as_texture() {
    constexpr int width = 200, height = 31;
    const auto values = noise_of(width * height);
    float *rows;
    size_t pitch;
    CHECK(cudaMallocPitch(&rows, &pitch, width * sizeof(float), height));
    CHECK(cudaMemcpy2D(rows, pitch, values.data(), width * sizeof(float), width * sizeof(float), height, cudaMemcpyHostToDevice));
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypePitch2D;
    resource.res.pitch2D.devPtr = rows;
    resource.res.pitch2D.desc = cudaCreateChannelDesc<float>();
    resource.res.pitch2D.width = width;
    resource.res.pitch2D.height = height;
    resource.res.pitch2D.pitchInBytes = pitch;
    auto desc = described(cudaAddressModeWrap, cudaFilterModePoint, true);
    cudaTextureObject_t texture;
    CHECK(cudaCreateTextureObject(&texture, &resource, &desc, nullptr));
    OnDevice<float> out(width * height);
    shift_rows<<<dim3(4, height), 64>>>(texture, out.at, width, height, 16, 7);
    CHECK(cudaGetLastError());
    expect("rows of memory, shifted", out.read(), [&](size_t at) {
        const size_t x = (at % width + 16) % width, y = (at / width + 7) % height;
        return values[y * width + x];
    }, 0.0f);
    CHECK(cudaDestroyTextureObject(texture));

    constexpr int count = 777;
    std::vector<uchar4> bytes(count);
    for (int at = 0; at < count; at++) {
        bytes[at] = make_uchar4(at % 256, at / 3 % 256, 255 - at % 256, 51);
    }
    OnDevice<uchar4> line(count);
    CHECK(cudaMemcpy(line.at, bytes.data(), count * sizeof(uchar4), cudaMemcpyHostToDevice));
    std::vector<int> order(count);
    for (int at = 0; at < count; at++) order[at] = at * 5 % count;
    // One beyond the end reads nothing.
    order[3] = count;
    OnDevice<int> from(count);
    CHECK(cudaMemcpy(from.at, order.data(), count * sizeof(int), cudaMemcpyHostToDevice));
    resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = line.at;
    resource.res.linear.desc = cudaCreateChannelDesc<uchar4>();
    resource.res.linear.sizeInBytes = count * sizeof(uchar4);
    desc.readMode = cudaReadModeNormalizedFloat;
    desc.normalizedCoords = 0;
    CHECK(cudaCreateTextureObject(&texture, &resource, &desc, nullptr));
    OnDevice<float4> fetched(count);
    gather_line<<<7, 128>>>(texture, from.at, fetched.at, count);
    CHECK(cudaGetLastError());
    std::vector<float> flat;
    for (const auto &one : fetched.read()) flat.insert(flat.end(), {one.x, one.y, one.z, one.w});
    expect("bytes of memory as fractions", flat, [&](size_t at) {
        if (order[at / 4] == count) return 0.0f;
        const uchar4 &one = bytes[order[at / 4]];
        const unsigned char parts[] = {one.x, one.y, one.z, one.w};
        return parts[at % 4] / 255.0f;
    }, 1e-6f);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFree(rows));
}

__global__ void paint(cudaSurfaceObject_t paper, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < width) surf2Dwrite(x + 1000.0f * y, paper, x * static_cast<int>(sizeof(float)), y);
    // Beyond the edge these do nothing.
    if (x == 0) surf2Dwrite(-1.0f, paper, width * static_cast<int>(sizeof(float)), height, cudaBoundaryModeZero);
}

__global__ void double_up(cudaSurfaceObject_t paper, float *beyond, int width) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= width) return;
    float value;
    surf2Dread(&value, paper, x * static_cast<int>(sizeof(float)), y);
    surf2Dwrite(2.0f * value, paper, x * static_cast<int>(sizeof(float)), y);
    if (x == 0 && y == 0) {
        beyond[0] = surf2Dread<float>(paper, -4, 0, cudaBoundaryModeZero);
        beyond[1] = surf2Dread<float>(paper, 4, -3, cudaBoundaryModeZero);
    }
}

__global__ void fill_layers(cudaSurfaceObject_t stack, int width, int height) {
    const int x = threadIdx.x, y = blockIdx.x, layer = blockIdx.y;
    const short2 value = make_short2(static_cast<short>(x - y), static_cast<short>(layer * 100));
    if (x < width && y < height) surf2DLayeredwrite(value, stack, x * static_cast<int>(sizeof(short2)), y, layer);
}

__global__ void fill_volume(cudaSurfaceObject_t volume, int side) {
    const int x = threadIdx.x, y = threadIdx.y, z = blockIdx.x;
    surf3Dwrite(static_cast<unsigned char>(x + y * side + z), volume, x, y, z);
}

void surfaces() {
    constexpr int width = 70, height = 9;
    cudaArray_t paper = array_of(std::vector<float>(width * height), make_cudaExtent(width, height, 0), cudaArraySurfaceLoadStore);
    const auto surface = surface_of(paper);
    OnDevice<float> beyond(2);
    paint<<<dim3(2, height), 64>>>(surface, width, height);
    double_up<<<dim3(2, height), 64>>>(surface, beyond.at, width);
    CHECK(cudaGetLastError());
    std::vector<float> found(width * height);
    CHECK(cudaMemcpy2DFromArray(found.data(), width * sizeof(float), paper, 0, 0, width * sizeof(float), height,
                                cudaMemcpyDeviceToHost));
    expect("a surface, written and doubled", found, [&](size_t at) { return 2.0f * (at % width + 1000.0f * (at / width)); }, 0.0f);
    expect("reads beyond its edges", beyond.read(), [](size_t) { return 0.0f; }, 0.0f);
    CHECK(cudaDestroySurfaceObject(surface));
    CHECK(cudaFreeArray(paper));

    constexpr int layer_count = 3;
    cudaArray_t stack = array_of(std::vector<short2>(32 * 6 * layer_count), make_cudaExtent(32, 6, layer_count),
                                 cudaArraySurfaceLoadStore | cudaArrayLayered);
    const auto layered = surface_of(stack);
    fill_layers<<<dim3(6, layer_count), 32>>>(layered, 32, 6);
    CHECK(cudaGetLastError());
    std::vector<short2> pairs(32 * 6 * layer_count);
    cudaMemcpy3DParms copy{};
    copy.srcArray = stack;
    copy.dstPtr = make_cudaPitchedPtr(pairs.data(), 32 * sizeof(short2), 32, 6);
    copy.extent = make_cudaExtent(32, 6, layer_count);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&copy));
    std::vector<float> flat;
    for (const auto &one : pairs) flat.insert(flat.end(), {static_cast<float>(one.x), static_cast<float>(one.y)});
    expect("layers of a surface", flat, [](size_t at) {
        const int place = static_cast<int>(at / 2);
        return static_cast<float>(at % 2 ? place / (32 * 6) * 100 : place % 32 - place / 32 % 6);
    }, 0.0f);
    CHECK(cudaDestroySurfaceObject(layered));
    CHECK(cudaFreeArray(stack));

    constexpr int side = 8;
    cudaArray_t volume =
        array_of(std::vector<unsigned char>(side * side * side), make_cudaExtent(side, side, side), cudaArraySurfaceLoadStore);
    const auto deep = surface_of(volume);
    fill_volume<<<side, dim3(side, side)>>>(deep, side);
    CHECK(cudaGetLastError());
    std::vector<unsigned char> bytes(side * side * side);
    copy = {};
    copy.srcArray = volume;
    copy.dstPtr = make_cudaPitchedPtr(bytes.data(), side, side, side);
    copy.extent = make_cudaExtent(side, side, side);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&copy));
    expect("a surface of three sides", std::vector<float>(bytes.begin(), bytes.end()), [](size_t at) {
        return static_cast<float>(at % (side * side) + at / (side * side));
    }, 0.0f);
    CHECK(cudaDestroySurfaceObject(deep));
    CHECK(cudaFreeArray(volume));
}

// A cubic B-spline from four reads with filters, and from sixteen without.
__device__ __host__ float weight(int which, float part) {
    switch (which) {
    case 0: return (1.0f - part) * (1.0f - part) * (1.0f - part) / 6.0f;
    case 1: return (3.0f * part * part * part - 6.0f * part * part + 4.0f) / 6.0f;
    case 2: return (-3.0f * part * part * part + 3.0f * part * part + 3.0f * part + 1.0f) / 6.0f;
    default: return part * part * part / 6.0f;
    }
}

__global__ void smooth(cudaTextureObject_t picture, float *out, int width, int height, float scale) {
    const int at_x = blockIdx.x * blockDim.x + threadIdx.x, at_y = blockIdx.y;
    if (at_x >= width) return;
    const float x = at_x * scale - 0.5f, y = at_y * scale - 0.5f;
    const float left = floorf(x), top = floorf(y), u = x - left, v = y - top;
    const float right_weight = weight(2, u) + weight(3, u), low_weight = weight(2, v) + weight(3, v);
    const float x0 = left - 0.5f + weight(1, u) / (weight(0, u) + weight(1, u)), x1 = left + 1.5f + weight(3, u) / right_weight;
    const float y0 = top - 0.5f + weight(1, v) / (weight(0, v) + weight(1, v)), y1 = top + 1.5f + weight(3, v) / low_weight;
    const float upper = (1.0f - right_weight) * tex2D<float>(picture, x0, y0) + right_weight * tex2D<float>(picture, x1, y0);
    const float lower = (1.0f - right_weight) * tex2D<float>(picture, x0, y1) + right_weight * tex2D<float>(picture, x1, y1);
    out[at_y * width + at_x] = (1.0f - low_weight) * upper + low_weight * lower;
}

void cubic_filter() {
    constexpr int width = 40, height = 30, large = 100;
    constexpr float scale = 0.4f;
    std::vector<unsigned char> values(width * height);
    for (size_t at = 0; at < values.size(); at++) values[at] = static_cast<unsigned char>(noise(at) * 63.0f);
    cudaArray_t picture = array_of(values, make_cudaExtent(width, height, 0), 0);
    auto desc = described(cudaAddressModeClamp, cudaFilterModeLinear, false);
    desc.readMode = cudaReadModeNormalizedFloat;
    const auto texture = texture_of(picture, desc);
    OnDevice<float> out(large * 75);
    smooth<<<dim3(2, 75), 64>>>(texture, out.at, large, 75, scale);
    CHECK(cudaGetLastError());
    expect("a cubic filter of four reads", out.read(), [&](size_t at) {
        const float x = static_cast<float>(at % large) * scale - 0.5f, y = static_cast<float>(at / large) * scale - 0.5f;
        const int left = static_cast<int>(std::floor(x)), top = static_cast<int>(std::floor(y));
        float sum = 0.0f;
        for (int i = 0; i < 4; i++) {
            for (int j = 0; j < 4; j++) {
                const int column = resolve(left - 1 + i, width, Edge::Clamp), row = resolve(top - 1 + j, height, Edge::Clamp);
                sum += weight(i, x - left) * weight(j, y - top) * values[row * width + column] / 255.0f;
            }
        }
        return sum;
    }, 1.0f / 64.0f);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(picture));
}

__global__ void soften(cudaTextureObject_t volume, cudaSurfaceObject_t out, int side) {
    const int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
    float sum = 0.0f;
    for (int corner = 0; corner < 8; corner++) {
        const float right = corner & 1 ? 0.75f : 0.25f, down = corner & 2 ? 0.75f : 0.25f, deep = corner & 4 ? 0.75f : 0.25f;
        sum += tex3D<float>(volume, (x + right) / side, (y + down) / side, (z + deep) / side);
    }
    surf3Dwrite(sum / 8.0f, out, x * static_cast<int>(sizeof(float)), y, z);
}

void volume_filter() {
    constexpr int side = 20;
    const auto values = noise_of(side * side * side);
    const cudaExtent extent = make_cudaExtent(side, side, side);
    cudaArray_t from = array_of(values, extent, 0);
    cudaArray_t to = array_of(std::vector<float>(values.size()), extent, cudaArraySurfaceLoadStore);
    const auto texture = texture_of(from, described(cudaAddressModeMirror, cudaFilterModeLinear, true));
    const auto surface = surface_of(to);
    soften<<<dim3(side, side), side>>>(texture, surface, side);
    CHECK(cudaGetLastError());
    std::vector<float> found(values.size());
    cudaMemcpy3DParms copy{};
    copy.srcArray = to;
    copy.dstPtr = make_cudaPitchedPtr(found.data(), side * sizeof(float), side, side);
    copy.extent = extent;
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&copy));
    const auto texel = [&](int x, int y, int z) { return values[(z * side + y) * side + x]; };
    expect("a volume, softened", found, [&](size_t at) {
        const float x = static_cast<float>(at % side), y = static_cast<float>(at / side % side),
                    z = static_cast<float>(at / (side * side));
        float sum = 0.0f;
        for (int corner = 0; corner < 8; corner++) {
            const float right = corner & 1 ? 0.75f : 0.25f, down = corner & 2 ? 0.75f : 0.25f, deep = corner & 4 ? 0.75f : 0.25f;
            sum += by_the_book(texel, {side, side, side}, {x + right, y + down, z + deep}, Edge::Mirror, true);
        }
        return sum / 8.0f;
    }, TOLERANCE);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaDestroySurfaceObject(surface));
    CHECK(cudaFreeArray(from));
    CHECK(cudaFreeArray(to));
}

__global__ void from_many(const cudaTextureObject_t *pictures, float *out, int side) {
    const int x = threadIdx.x, y = blockIdx.x;
    // Another texture for each thread.
    out[y * side + x] = tex2D<float>(pictures[(x + y) % 3], x + 0.5f, y + 0.5f);
}

void textures_in_memory() {
    constexpr int side = 32;
    const auto values = noise_of(side * side * 3);
    std::array<cudaArray_t, 3> arrays;
    std::array<cudaTextureObject_t, 3> objects;
    for (int number = 0; number < 3; number++) {
        const auto begin = values.begin() + number * side * side;
        arrays[number] = array_of(std::vector<float>(begin, begin + side * side), make_cudaExtent(side, side, 0), 0);
        objects[number] = texture_of(arrays[number], described(cudaAddressModeClamp, cudaFilterModePoint, false));
    }
    OnDevice<cudaTextureObject_t> list(3);
    CHECK(cudaMemcpy(list.at, objects.data(), sizeof objects, cudaMemcpyHostToDevice));
    OnDevice<float> out(side * side);
    from_many<<<side, side>>>(list.at, out.at, side);
    CHECK(cudaGetLastError());
    expect("handles of textures in memory", out.read(), [&](size_t at) {
        return values[(at % side + at / side) % 3 * side * side + at];
    }, 0.0f);
    for (int number = 0; number < 3; number++) {
        CHECK(cudaDestroyTextureObject(objects[number]));
        CHECK(cudaFreeArray(arrays[number]));
    }
}

__global__ void halve(cudaTextureObject_t larger, cudaSurfaceObject_t smaller, int side) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= side) return;
    const float value = tex2D<float>(larger, (x + 0.5f) / side, (y + 0.5f) / side);
    surf2Dwrite(value, smaller, x * static_cast<int>(sizeof(float)), y);
}

__global__ void at_level(cudaTextureObject_t pyramid, float *out, int side, float level) {
    const int x = threadIdx.x, y = blockIdx.x;
    out[y * side + x] = tex2DLod<float>(pyramid, (x + 0.5f) / side, (y + 0.5f) / side, level);
}

void levels() {
    constexpr int side = 32, count = 6;
    const auto format = cudaCreateChannelDesc<float>();
    cudaMipmappedArray_t pyramid;
    CHECK(cudaMallocMipmappedArray(&pyramid, &format, make_cudaExtent(side, side, 0), count, cudaArraySurfaceLoadStore));
    std::vector<std::vector<float>> wanted{noise_of(side * side)};
    cudaArray_t level;
    CHECK(cudaGetMipmappedArrayLevel(&level, pyramid, 0));
    CHECK(cudaMemcpy2DToArray(level, 0, 0, wanted[0].data(), side * sizeof(float), side * sizeof(float), side, cudaMemcpyHostToDevice));
    for (int number = 1; number < count; number++) {
        const int half = side >> number;
        cudaArray_t next;
        CHECK(cudaGetMipmappedArrayLevel(&next, pyramid, number));
        const auto larger = texture_of(level, described(cudaAddressModeClamp, cudaFilterModeLinear, true));
        const auto smaller = surface_of(next);
        halve<<<dim3(1, half), 32>>>(larger, smaller, half);
        CHECK(cudaGetLastError());
        CHECK(cudaDestroyTextureObject(larger));
        CHECK(cudaDestroySurfaceObject(smaller));
        std::vector<float> means(half * half);
        for (int at = 0; at < half * half; at++) {
            const float *rows = &wanted.back()[at / half * 2 * half * 2 + at % half * 2];
            means[at] = (rows[0] + rows[1] + rows[2 * half] + rows[2 * half + 1]) / 4.0f;
        }
        wanted.push_back(means);
        level = next;
    }
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeMipmappedArray;
    resource.res.mipmap.mipmap = pyramid;
    auto desc = described(cudaAddressModeClamp, cudaFilterModePoint, true);
    desc.mipmapFilterMode = cudaFilterModeLinear;
    desc.maxMipmapLevelClamp = count - 1;
    cudaTextureObject_t texture;
    CHECK(cudaCreateTextureObject(&texture, &resource, &desc, nullptr));
    for (int number = 0; number < count; number++) {
        const int half = side >> number;
        OnDevice<float> out(half * half);
        at_level<<<half, half>>>(texture, out.at, half, static_cast<float>(number));
        CHECK(cudaGetLastError());
        expect("a mipmap level", out.read(), [&](size_t at) { return wanted[number][at]; }, TOLERANCE);
    }
    OnDevice<float> between(side / 4 * side / 4);
    at_level<<<side / 4, side / 4>>>(texture, between.at, side / 4, 2.5f);
    CHECK(cudaGetLastError());
    expect("between two levels", between.read(), [&](size_t at) {
        const size_t x = at % (side / 4), y = at / (side / 4);
        return (wanted[2][at] + wanted[3][y / 2 * (side / 8) + x / 2]) / 2.0f;
    }, TOLERANCE);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeMipmappedArray(pyramid));
}

__global__ void four_at_once(cudaTextureObject_t picture, float4 *out, int side) {
    const int x = threadIdx.x, y = blockIdx.x;
    out[y * side + x] = tex2Dgather<float4>(picture, x + 1.0f, y + 1.0f, 0);
}

void gathers() {
    constexpr int side = 16;
    const auto values = noise_of(side * side);
    cudaArray_t picture = array_of(values, make_cudaExtent(side, side, 0), cudaArrayTextureGather);
    const auto texture = texture_of(picture, described(cudaAddressModeClamp, cudaFilterModePoint, false));
    OnDevice<float4> out(side * side);
    four_at_once<<<side, side>>>(texture, out.at, side);
    CHECK(cudaGetLastError());
    std::vector<float> flat;
    for (const auto &one : out.read()) flat.insert(flat.end(), {one.x, one.y, one.z, one.w});
    expect("four texels at once", flat, [&](size_t at) {
        const int right[] = {0, 1, 1, 0}, down[] = {1, 1, 0, 0};
        const int x = static_cast<int>(at / 4 % side), y = static_cast<int>(at / 4 / side);
        const int column = resolve(x + right[at % 4], side, Edge::Clamp), row = resolve(y + down[at % 4], side, Edge::Clamp);
        return values[row * side + column];
    }, 0.0f);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(picture));
}

} // namespace

int main() {
    turned_pictures();
    layered_pictures();
    cubes();
    memory_as_texture();
    surfaces();
    cubic_filter();
    volume_filter();
    textures_in_memory();
    levels();
    gathers();
    CHECK(cudaDeviceSynchronize());
    return failures == 0 ? 0 : 1;
}
