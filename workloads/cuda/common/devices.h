// The devices of a workload, their streams and memory.
#ifndef WORKLOADS_CUDA_DEVICES_H
#define WORKLOADS_CUDA_DEVICES_H

#include "options.h"

#include <cstdlib>
#include <cuda_runtime.h>
#include <string>
#include <utility>
#include <vector>

#define CUDA_CHECK(call) check_status((call), #call, __FILE__, __LINE__)

// Prints the error and exits with exit_cuda_error unless `status` is cudaSuccess.
void check_status(cudaError_t status, const char *call, const char *file, int line);

struct devices {
    const struct options *options;
    std::vector<int> ids;
    std::vector<cudaStream_t> streams; // one per device
    std::string name;                  // of the first

    explicit devices(const struct options &options);
    ~devices();
    devices(const devices &) = delete;
    devices &operator=(const devices &) = delete;

    size_t count() const { return ids.size(); }
    void use(size_t device) const { CUDA_CHECK(cudaSetDevice(ids[device])); }
};

// Memory of one device, freed with its owner.
template <typename element> class device_array {
public:
    device_array() = default;
    device_array(const devices &devices, size_t device, size_t count) : count_(count) {
        devices.use(device);
        CUDA_CHECK(cudaMalloc(&data_, (count > 0 ? count : 1) * sizeof(element)));
    }
    ~device_array() { cudaFree(data_); }
    device_array(device_array &&other) noexcept { swap(other); }
    device_array &operator=(device_array &&other) noexcept {
        swap(other);
        return *this;
    }
    void swap(device_array &other) noexcept {
        std::swap(data_, other.data_);
        std::swap(count_, other.count_);
    }
    element *data() const { return data_; }
    size_t bytes() const { return count_ * sizeof(element); }

private:
    element *data_ = nullptr;
    size_t count_ = 0;
};

// Host memory of the kind that --host-memory names.
template <typename element> class host_array {
public:
    host_array() = default;
    host_array(const options &options, size_t count) : pinned_(options.host_memory == 0), count_(count) {
        const size_t bytes = (count > 0 ? count : 1) * sizeof(element);
        if (pinned_)
            CUDA_CHECK(cudaMallocHost(&data_, bytes));
        else
            data_ = static_cast<element *>(std::malloc(bytes));
        if (data_ == nullptr) CUDA_CHECK(cudaErrorMemoryAllocation);
    }
    ~host_array() {
        if (pinned_)
            cudaFreeHost(data_);
        else
            std::free(data_);
    }
    host_array(host_array &&other) noexcept { swap(other); }
    host_array &operator=(host_array &&other) noexcept {
        swap(other);
        return *this;
    }
    void swap(host_array &other) noexcept {
        std::swap(data_, other.data_);
        std::swap(pinned_, other.pinned_);
        std::swap(count_, other.count_);
    }
    element *data() const { return data_; }
    element &operator[](size_t at) const { return data_[at]; }
    size_t size() const { return count_; }
    size_t bytes() const { return count_ * sizeof(element); }

private:
    element *data_ = nullptr;
    bool pinned_ = false;
    size_t count_ = 0;
};

#endif
