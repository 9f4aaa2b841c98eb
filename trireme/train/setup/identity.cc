// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/setup/identity.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <fmt/core.h>
#include <torch/csrc/api/include/torch/version.h>

#include <algorithm>
#include <cstdlib>

#include "trireme/comm/local/reduce_kernels.h"
#include "trireme/comm/local/waiter.h"

namespace trireme {

std::string run_identity(int64_t leaf_size, int64_t leaves, at::Device device, int tp) {
  using CoreName = char* (*)();
  auto core = reinterpret_cast<CoreName>(::dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  const char* capability = std::getenv("ATEN_CPU_CAPABILITY");
  std::string text = fmt::format(
      "leaf={} leaves={} torch={}.{}.{} blas={} threads={} aten={} simd={}", leaf_size, leaves,
      TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH, core ? core() : "other",
      at::get_num_threads(), capability ? capability : "default", local::reduce_target());
  if (!device.is_cpu()) text += " device=" + c10::DeviceTypeName(device.type(), true);
  if (tp > 1) text += fmt::format(" tp={}", tp);
  return text;
}

int spare_cpus(int ranks) {
  uint64_t mask[16] = {};
  local::read_cpu_mask(mask);
  int mine = 0;
  for (uint64_t m : mask) mine += __builtin_popcountll(m);
  // Ranks may share the mask or be bound to parts of it; assume the worse case.
  return static_cast<int>(
             std::min<double>(mine / std::max(1, ranks), local::cgroup_cpus() / ranks)) -
         1;
}

}  // namespace trireme
