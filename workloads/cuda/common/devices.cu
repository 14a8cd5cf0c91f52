#include "devices.h"

#include <cstdio>

// Set with the devices, so that messages can begin with the workload's name.
static const char *program_name = "workload";

void check_status(cudaError_t status, const char *call, const char *file, int line) {
    if (status == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s:%d: %s: %s (%s)\n", program_name, file, line, call, cudaGetErrorString(status),
                 cudaGetErrorName(status));
    std::exit(exit_cuda_error);
}

static std::string device_name(int device) {
    cudaDeviceProp properties;
    CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    return properties.name;
}

static void list(int available) {
    for (int device = 0; device < available; device++) std::printf("%d: %s\n", device, device_name(device).c_str());
    std::exit(exit_passed);
}

devices::devices(const struct options &options) : options(&options) {
    program_name = options.workload;
    int available = 0;
    CUDA_CHECK(cudaGetDeviceCount(&available));
    if (options.list) list(available);
    const size_t wanted = options.devices == all_devices ? static_cast<size_t>(available) : options.devices;
    if (options.device != any_device && options.device >= static_cast<size_t>(available))
        usage_error(options, "--device %zu: there are %d devices, counted from 0", options.device, available);
    if (wanted > static_cast<size_t>(available))
        usage_error(options, "--devices %zu: there are only %d", wanted, available);
    for (size_t device = 0; device < wanted; device++)
        ids.push_back(static_cast<int>(options.device != any_device ? options.device : device));
    name = device_name(ids.front());
    for (size_t device = 0; device < count(); device++) {
        use(device);
        cudaStream_t stream;
        CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        streams.push_back(stream);
        for (size_t peer = 0; peer < count(); peer++) {
            int possible = 0;
            if (peer != device) CUDA_CHECK(cudaDeviceCanAccessPeer(&possible, ids[device], ids[peer]));
            // Without it copies between devices go through the host, which is as right and slower.
            if (possible) CUDA_CHECK(cudaDeviceEnablePeerAccess(ids[peer], 0));
        }
    }
}

devices::~devices() {
    for (size_t device = 0; device < count(); device++) {
        use(device);
        CUDA_CHECK(cudaStreamDestroy(streams[device]));
    }
}
