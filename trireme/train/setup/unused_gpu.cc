// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/setup/unused_gpu.h"

#include <torch/cuda.h>
#include <unistd.h>

namespace trireme {

bool has_gpu(const char* device_file) {
  return ::access(device_file, F_OK) == 0 || torch::cuda::is_available();
}

}  // namespace trireme
