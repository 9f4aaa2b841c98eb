// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  trireme::fuzz::TRIREME_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
