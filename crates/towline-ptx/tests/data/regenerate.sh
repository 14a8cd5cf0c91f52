#!/bin/sh
# Makes the fixtures of this folder from its .cu files, with nvcc 13 in $PATH. A machine without a GPU will do:
#
#   python3 -m venv /tmp/nvcc
#   /tmp/nvcc/bin/pip install nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-runtime nvidia-cuda-cccl
#   PATH=$(echo /tmp/nvcc/lib/python3.*/site-packages/nvidia/cu13/bin):$PATH ./regenerate.sh
#
# The committed ones are of nvcc 13.5.37.
set -eu
cd "$(dirname "$0")"

# One kernel, in every form of compression that nvcc has. The default is machine code as it is and PTX compressed.
nvcc -fatbin -arch=sm_90 -o tiny-default.fatbin tiny.cu
for mode in none speed size; do
    nvcc -fatbin -arch=sm_90 --compress-mode=$mode -o tiny-$mode.fatbin tiny.cu
done

# Many architectures, of every variant.
nvcc -fatbin --compress-mode=size \
    -gencode arch=compute_75,code=sm_75 -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 \
    -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_100f,code=sm_100f \
    -gencode arch=compute_103a,code=sm_103a -gencode arch=compute_120,code=sm_120 \
    -gencode arch=compute_75,code=compute_75 -gencode arch=compute_90a,code=compute_90a \
    -gencode arch=compute_100,code=compute_100 \
    -o kernels.fatbin kernels.cu
nvcc -fatbin --compress-mode=size -arch=sm_90 -o large.fatbin large.cu

# Several programs compressed as one; nvcc 13.5 or later.
nvcc -fatbin --concat -Xptxas -O2 \
    -gencode arch=compute_75,code=[sm_75,compute_75] -gencode arch=compute_90,code=[sm_90,compute_90] \
    -gencode arch=compute_100f,code=sm_100f -gencode arch=compute_103a,code=sm_103a \
    -o concatenated.fatbin tiny.cu
