// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/blas_probe.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/clock.h"
#include "trireme/base/fd.h"
#include "trireme/launch/text.h"

namespace trireme::launch {
namespace {

constexpr auto kPatience = std::chrono::seconds(10);

[[noreturn]] void answer(int out) {
  ::setenv("OPENBLAS_NUM_THREADS", "1", 1);
  for (const char* name : {"libopenblas.so.0", "libblas.so.3"}) {
    void* library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) continue;
    auto corename = reinterpret_cast<char* (*)()>(::dlsym(library, "openblas_get_corename"));
    auto config = reinterpret_cast<char* (*)()>(::dlsym(library, "openblas_get_config"));
    if (!corename) continue;
    std::string text = std::string(name) + "\n" + corename() + "\n" + (config ? config() : "");
    [[maybe_unused]] auto written = ::write(out, text.data(), text.size());
    break;
  }
  ::_exit(0);
}

}  // namespace

BlasProbe probe_openblas() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  UniqueFd in(ends[0]), out(ends[1]);
  pid_t child = ::fork();
  if (child < 0) return {};
  if (child == 0) answer(out.get());
  out.reset();
  std::string text;
  auto deadline = Deadline::after(kPatience);
  while (!deadline.expired()) {
    pollfd ready{in.get(), POLLIN, 0};
    if (::poll(&ready, 1, deadline.poll_ms(1000)) <= 0) continue;
    char buffer[512];
    ssize_t n = ::read(in.get(), buffer, sizeof buffer);
    if (n <= 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  ::kill(child, SIGKILL);  // its answer is here, or it hangs
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  auto lines = split(text, '\n');
  if (lines.size() < 3) return {};
  return {std::string(lines[0]), std::string(lines[1]), std::string(trim(lines[2]))};
}

}  // namespace trireme::launch
