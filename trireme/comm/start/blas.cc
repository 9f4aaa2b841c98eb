// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/start/blas.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "trireme/base/log.h"

namespace trireme {
namespace {

const char* better_core() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return "SkylakeX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return nullptr;
}

void mend() {
  if (const char* chosen = std::getenv("OPENBLAS_CORETYPE"); chosen && *chosen) return;
  auto name = reinterpret_cast<char* (*)()>(::dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  if (!name || std::strcmp(name(), "Prescott") != 0) return;
  const char* core = better_core();
  if (!core) return;
  auto quit = reinterpret_cast<void (*)()>(::dlsym(RTLD_DEFAULT, "gotoblas_dynamic_quit"));
  auto init = reinterpret_cast<void (*)()>(::dlsym(RTLD_DEFAULT, "gotoblas_dynamic_init"));
  if (!quit || !init) {
    log_warn(
        "OpenBLAS runs its slowest kernels (Prescott) on this CPU. export OPENBLAS_CORETYPE={} "
        "before you start",
        core);
    return;
  }
  ::setenv("OPENBLAS_CORETYPE", core, 1);
  quit();
  init();
  log_debug("OpenBLAS: {} instead of Prescott", core);
}

}  // namespace

void mend_blas() {
  static std::once_flag once;
  std::call_once(once, mend);
}

}  // namespace trireme
