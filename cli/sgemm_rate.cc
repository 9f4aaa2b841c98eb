// SPDX-License-Identifier: Apache-2.0
#include "cli/sgemm_rate.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/fd.h"
#include "trireme/launch/process.h"
#include "trireme/launch/text.h"
#include "trireme/launch/worker_env.h"

namespace trireme {
namespace {

constexpr int kSize = 1024;
constexpr auto kPatience = std::chrono::seconds(20);
using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int,
                       float, float*, int);

double best_gflops(Sgemm sgemm) {
  constexpr int kRowMajor = 101, kNoTranspose = 111;
  size_t count = size_t{kSize} * kSize;
  std::vector<float> a(count), b(count), c(count);
  for (size_t i = 0; i < count; ++i) {
    a[i] = 1.0f + static_cast<float>(i % 7);
    b[i] = 1.0f - static_cast<float>(i % 5);
  }
  double best = 1e9;
  auto budget = Deadline::after(std::chrono::milliseconds(400));
  for (int i = 0; i < 4 || !budget.expired(); ++i) {
    auto start = Clock::now();
    sgemm(kRowMajor, kNoTranspose, kNoTranspose, kSize, kSize, kSize, 1, a.data(), kSize, b.data(),
          kSize, 0, c.data(), kSize);
    best = std::min(best, seconds_since(start));
  }
  return 2.0 * kSize * kSize * kSize / best / 1e9;
}

}  // namespace

int sgemm_probe() {
  for (const char* name : {"libopenblas.so.0", "libblas.so.3"}) {
    void* library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) continue;
    auto corename = reinterpret_cast<char* (*)()>(::dlsym(library, "openblas_get_corename"));
    auto sgemm = reinterpret_cast<Sgemm>(::dlsym(library, "cblas_sgemm"));
    if (!corename || !sgemm) continue;
    std::printf("%s %.1f\n", corename(), best_gflops(sgemm));
    return 0;
  }
  return 1;
}

SgemmRate measure_sgemm(const std::string& coretype) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  UniqueFd in(ends[0]), out(ends[1]), nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  launch::ProcessSpec child;
  child.program = "/proc/self/exe";
  child.argv = {"trireme", "doctor", kSgemmProbe};
  launch::EnvMap env{{"OPENBLAS_NUM_THREADS", "1"}, {"OMP_NUM_THREADS", "1"}};
  if (!coretype.empty()) env["OPENBLAS_CORETYPE"] = coretype;
  child.env = launch::merged_environment(env);
  if (coretype.empty())
    std::erase_if(child.env, [](auto& entry) { return entry.starts_with("OPENBLAS_CORETYPE="); });
  child.stdout_fd = out.get();
  child.stderr_fd = nothing.get();
  ::sigprocmask(SIG_SETMASK, nullptr, &child.mask);
  pid_t pid = launch::start_process(child);
  out.reset();
  std::string text;
  auto deadline = Deadline::after(kPatience);
  while (!deadline.expired()) {
    pollfd ready{in.get(), POLLIN, 0};
    if (::poll(&ready, 1, deadline.poll_ms(1000)) <= 0) continue;
    char buffer[256];
    ssize_t n = ::read(in.get(), buffer, sizeof buffer);
    if (n <= 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  ::kill(pid, SIGKILL);
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  auto fields = launch::split(launch::trim(text), ' ');
  if (fields.size() != 2) return {};
  return {std::string(fields[0]), launch::parse_number(fields[1]).value_or(0)};
}

}  // namespace trireme
