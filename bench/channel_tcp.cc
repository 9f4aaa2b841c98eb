// SPDX-License-Identifier: Apache-2.0
// Channels over TCP, two processes on one host, with a secret: an empty message there and back
// beside an epoll loop that echoes as many bytes with the same seals; the same while bodies of
// 256 MiB come the same way; and how fast those come. Bounds: 1.5 × the echo; behind a body, the
// time that two chunks take more. Void above 5 % of foreign load. Both ends of either are on one
// CPU, then on two: where the kernel puts them else decides more than what they do, since waking
// another CPU may take longer than a whole echo.
//   cmake --build build/release --target channel_tcp && build/release/bench/channel_tcp [ROUNDS]
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/foreign_load.h"
#include "bench/tcp_echo.h"
#include "trireme/base/clock.h"
#include "trireme/channel/tcp/hub.h"
#include "trireme/channel/tcp/memory.h"
#include "trireme/net/connect.h"
#include "trireme/net/frame.h"
#include "trireme/net/listener.h"

using namespace trireme;
using namespace trireme::bare;

namespace {

const net::Credentials kJob{"bench", net::Secret(std::string(32, 's'))};
constexpr uint64_t kLarge = uint64_t{256} << 20;

double median(std::vector<double> v, double at = 0.5) {
  std::sort(v.begin(), v.end());
  return v[std::min(v.size() - 1, static_cast<size_t>(at * static_cast<double>(v.size())))];
}

struct Row {
  const char* name;
  bool one_cpu;
  Duration spin;
};

/// Sends back what is empty, and an empty one for each body.
class Answers final : public channel::Receiver {
 public:
  explicit Answers(std::shared_ptr<channel::Channel> to) : to_(std::move(to)) {}
  void received(channel::Message message) override {
    to_->send({message.bodies.empty() ? "" : "body", {}});
  }
  void closed(const std::string&) override { ::_exit(0); }

 private:
  std::shared_ptr<channel::Channel> to_;
};
class Counts final : public channel::Receiver {
 public:
  void received(channel::Message message) override { ++(message.bytes.empty() ? empty : bodies); }
  void closed(const std::string&) override { std::printf("closed\n"), std::exit(1); }
  int empty = 0, bodies = 0;
};

[[noreturn]] void be_the_other(int said, int cpu, Duration spin) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  pin(cpu);
  channel::TcpOptions options;
  options.self = {"b", 1};
  options.credentials = kJob;
  options.spin = spin;
  options.accept = [](const std::shared_ptr<channel::Channel>& to) {
    return std::make_shared<Answers>(to);
  };
  auto hub = channel::tcp_hub(std::move(options));
  auto listener = net::Listener::loopback();
  const auto at = hub->address() + " " + listener.endpoint().text();
  if (::write(said, at.data(), at.size()) < 0) ::_exit(1);
  const pid_t echo = ::fork();
  if (echo == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Echo end(listener.accept(Deadline::never()), 'c', 's');
    while (end.hear()) end.say();
    ::_exit(0);
  }
  while (true) hub->serve(Deadline::never());
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  const auto [mine, other] = two_cpus();
  pin(mine);
  for (const auto& [name, one_cpu, spin] :
       {Row{"asleep, one CPU", true, Duration::zero()},
        Row{"asleep, two CPUs", false, Duration::zero()},
        Row{"spinning, two CPUs", false, std::chrono::milliseconds(1)}}) {
    int said[2];
    if (::pipe2(said, O_CLOEXEC) != 0) return 1;
    const pid_t pid = ::fork();
    if (pid == 0) be_the_other(said[1], one_cpu ? mine : other, spin);
    char text[256];
    const ssize_t n = ::read(said[0], text, sizeof text);
    if (n <= 0) return 1;
    const std::string at(text, static_cast<size_t>(n));
    channel::TcpOptions options;
    options.self = {"a", 1};
    options.credentials = kJob;
    options.spin = spin;
    auto hub = channel::tcp_hub(std::move(options));
    auto counts = std::make_shared<Counts>();
    auto to = hub->open(at.substr(0, at.find(' ')), {"b", 1}, counts,
                        Deadline::after(std::chrono::seconds(10)));
    Echo echo(net::connect(net::Endpoint::parse(at.substr(at.find(' ') + 1)), Deadline::never()),
              's', 'c');
    const auto call = [&] {
      const auto start = Clock::now();
      const int before = counts->empty;
      to->send({"", {}});
      while (counts->empty == before) hub->serve(Deadline::never());
      return 1e6 * seconds_since(start);
    };
    const ForeignLoad load;
    std::vector<double> calls, echoes;
    for (int round = 0; round < rounds; ++round) {
      for (int i = 0; i < 500; ++i) calls.push_back(call());
      for (int i = 0; i < 500; ++i) {
        const auto start = Clock::now();
        echo.say();
        echo.hear();
        echoes.push_back(1e6 * seconds_since(start));
      }
    }
    std::printf("%s\n", name);
    std::printf("  empty: %.1f µs, echo %.1f µs: %.2f × (bound 1.5); p99 %.1f and %.1f µs\n",
                median(calls), median(echoes), median(calls) / median(echoes), median(calls, 0.99),
                median(echoes, 0.99));
    auto memory = channel::tcp::plain_memory(kLarge);
    std::memset(memory.get(), 'x', kLarge);
    std::vector<double> seconds, behind;
    for (int round = 0; round < std::max(3, rounds / 4); ++round) {
      const auto start = Clock::now();
      const int before = counts->bodies;
      to->send({"", {{memory, kLarge}}});
      while (counts->bodies == before) behind.push_back(call());
      seconds.push_back(seconds_since(start));
    }
    const double two_chunks = 1e6 * median(seconds) * 2 * channel::kChunk / kLarge;
    std::printf(
        "  256 MiB: %.2f GB/s; an empty one behind it: p50 %.0f, p99 %.0f µs; two chunks "
        "take %.0f µs\n",
        kLarge / 1e9 / median(seconds), median(behind), median(behind, 0.99), two_chunks);
    std::printf("  foreign load %.1f %%%s\n", 100 * load.part(),
                load.part() > 0.05 ? ": void" : "");
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  return 0;
}
