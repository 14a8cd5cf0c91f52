// Parameters of more than 4 KiB, which compilers describe in another form, and kernels with other attributes.

struct Big { int values[3000]; };
struct Huge { char bytes[20000]; };

extern "C" __global__ void big(char a, Big b, Huge c, int i, int *out) { *out = b.values[i] + c.bytes[i] + a; }

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(64) clustered(const __grid_constant__ Big b, int *out)
{
    *out = b.values[3];
}

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? 1 : fibonacci(n - 1) + fibonacci(n - 2); }

extern "C" __global__ void recursive(int n, int *out)
{
    volatile int kept[20];
    for (int i = 0; i < 20; i++)
        kept[i] = out[i] * n;
    *out = fibonacci(n) + kept[n];
}
