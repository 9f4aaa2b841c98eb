// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/machine/blas_probe.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/fd.h"
#include "trireme/launch/flags/text.h"

namespace trireme::launch {
namespace {

constexpr auto kPatience = std::chrono::seconds(20);
constexpr int kSize = 1024;
using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int,
                       float, float*, int);

double best_gflops(Sgemm sgemm) {
  constexpr int kRowMajor = 101, kNoTranspose = 111;
  const size_t count = size_t{kSize} * kSize;
  std::vector<float> a(count), b(count), c(count);
  for (size_t i = 0; i < count; ++i) {
    a[i] = 1.0f + static_cast<float>(i % 7);
    b[i] = 1.0f - static_cast<float>(i % 5);
  }
  double best = 1e9;
  const auto budget = Deadline::after(std::chrono::milliseconds(400));
  for (int i = 0; i < 4 || !budget.expired(); ++i) {
    const auto start = Clock::now();
    sgemm(kRowMajor, kNoTranspose, kNoTranspose, kSize, kSize, kSize, 1, a.data(), kSize, b.data(),
          kSize, 0, c.data(), kSize);
    best = std::min(best, seconds_since(start));
  }
  return 2.0 * kSize * kSize * kSize / best / 1e9;
}

void say(int out, const std::string& text) {
  [[maybe_unused]] auto written = ::write(out, text.data(), text.size());
}

[[noreturn]] void answer(int out, const BlasQuestion& question) {
  // A core type that this CPU cannot run crashes: quietly.
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nothing >= 0) ::dup2(nothing, STDERR_FILENO);
  ::setenv("OPENBLAS_NUM_THREADS", "1", 1);
  ::setenv("OMP_NUM_THREADS", "1", 1);
  if (question.coretype && question.coretype->empty()) ::unsetenv("OPENBLAS_CORETYPE");
  if (question.coretype && !question.coretype->empty())
    ::setenv("OPENBLAS_CORETYPE", question.coretype->c_str(), 1);
  for (const char* name : {"libopenblas.so.0", "libblas.so.3"}) {
    void* library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) continue;
    auto corename = reinterpret_cast<char* (*)()>(::dlsym(library, "openblas_get_corename"));
    auto config = reinterpret_cast<char* (*)()>(::dlsym(library, "openblas_get_config"));
    if (!corename) continue;
    say(out, std::string(name) + "\n" + corename() + "\n" + (config ? config() : "") + "\n");
    auto sgemm = reinterpret_cast<Sgemm>(::dlsym(library, "cblas_sgemm"));
    if (question.measure && sgemm) say(out, std::to_string(best_gflops(sgemm)) + "\n");
    break;
  }
  ::_exit(0);
}

}  // namespace

BlasProbe parse_blas_answer(const std::string& text) {
  const auto lines = split(text, '\n');
  if (lines.size() < 3) return {};
  BlasProbe probe{std::string(lines[0]), std::string(lines[1]), std::string(trim(lines[2])), 0};
  if (lines.size() > 3) probe.gflops = parse_number(lines[3]).value_or(0);
  return probe;
}

BlasProbe probe_openblas(const BlasQuestion& question) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  UniqueFd in(ends[0]), out(ends[1]);
  pid_t child = ::fork();
  if (child < 0) return {};
  if (child == 0) answer(out.get(), question);
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
  return parse_blas_answer(text);
}

}  // namespace trireme::launch
