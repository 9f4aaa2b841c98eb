// SPDX-License-Identifier: Apache-2.0
#include <ATen/Context.h>
#include <dlfcn.h>
#include <torch/csrc/api/include/torch/version.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli/worker/tasks.h"
#include "trireme/base/check.h"
#include "trireme/base/version.h"
#include "trireme/comm/registry.h"

namespace trireme {
namespace {

std::string library_of(void* symbol) {
  Dl_info info{};
  return symbol && ::dladdr(symbol, &info) && info.dli_fname ? info.dli_fname : "";
}

std::string cpu_capability() {
  if (const char* chosen = std::getenv("ATEN_CPU_CAPABILITY"); chosen && *chosen) return chosen;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma"))
    return "avx512";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
#endif
  return "default";
}

}  // namespace

int about_task(const Words&) {
  void* sgemm = ::dlsym(RTLD_DEFAULT, "sgemm_");
  auto corename = reinterpret_cast<char* (*)()>(::dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  const nlohmann::ordered_json about{{"trireme", version()},
                                     {"libtorch", TORCH_VERSION},
                                     {"cuda", at::hasCUDA()},
                                     {"cpu_capability", cpu_capability()},
                                     {"blas_library", library_of(sgemm)},
                                     {"blas_corename", corename ? corename() : ""},
                                     {"backends", detail::present_backends()}};
  std::puts(about.dump().c_str());
  return std::fflush(stdout) == 0 ? kExitDone : kExitFailed;
}

}  // namespace trireme
