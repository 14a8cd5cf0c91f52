// Kernels whose parameters have every kind of size and alignment, and the symbols that a module can have. regenerate.sh makes the
// fixtures of it.

struct Byte3 { char r, g, b; };
struct Mixed { char tag; double value; short last; };
struct Nested { Byte3 colour; int ids[5]; Mixed mixed[2]; };
struct __align__(16) Wide { float4 row[2]; };
struct Empty {};

__constant__ float coefficients[17];
__device__ int counter = 7;
__device__ double table[3][4];
__managed__ unsigned long long shared_with_host;

extern "C" __global__ void no_parameters() { counter = 1; }

extern "C" __global__ void scalars(char a, short b, int c, long long d, float e, double f, bool g, unsigned char h)
{
    table[0][0] = a + b + c + d + e + f + g + h;
}

extern "C" __global__ void padded(char a, Byte3 b, char c, Mixed d, char e, Nested f, Byte3 g, Wide h, char i)
{
    table[0][1] = a + b.r + b.g + b.b + c + d.tag + d.value + d.last + e + f.colour.b + f.ids[4] + f.mixed[1].value + g.b + h.row[1].w + i;
}

extern "C" __global__ void unused(char a, Empty b, int c, Wide d) {}

extern "C" __global__ void saxpy(int n, float a, const float *__restrict__ x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i] + y[i] + coefficients[i % 17];
}

extern "C" __global__ void __launch_bounds__(128, 4) reduce(const float *in, float *out)
{
    __shared__ float part[128];
    extern __shared__ float more[];
    part[threadIdx.x] = in[threadIdx.x] + more[threadIdx.x];
    __syncthreads();
    for (int s = 64; s > 0; s >>= 1) {
        if (threadIdx.x < s)
            part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *out = part[0] + (float)shared_with_host;
}

struct Large { int values[1000]; };
extern "C" __global__ void large(Large l, int i, int *out) { *out = l.values[i]; }

template <typename T> __global__ void generic(T value, T *out) { *out = value; }
template __global__ void generic<double>(double, double *);
template __global__ void generic<Mixed>(Mixed, Mixed *);
