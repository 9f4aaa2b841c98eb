// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/balance/own_time.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "trireme/base/fd.h"

namespace trireme {

int64_t runnable_ns() {
  const UniqueFd file(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));
  char text[96] = {};
  long long on_cpu = 0, in_queue = 0;
  if (file.get() < 0 || ::read(file.get(), text, sizeof text - 1) <= 0 ||
      std::sscanf(text, "%lld %lld", &on_cpu, &in_queue) != 2 || on_cpu <= 0)
    return now_ns();
  return on_cpu + in_queue;
}

}  // namespace trireme
