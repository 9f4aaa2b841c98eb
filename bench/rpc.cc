// SPDX-License-Identifier: Apache-2.0
// Calls between two processes of one host, beside what nobody can do without: a ping-pong over bare
// futexes, or over two words while both spin; an echo of messages over the same channel; memcpy; an
// epoll loop that echoes as many bytes with the same seals. All alternate in each round; the
// figures are medians over the rounds. Each process is bound to a CPU of its own. Bounds:
//   an empty call ≤ the bare ping-pong + 3 µs, asleep and spinning; over TCP ≤ 1.5 × the echo
//   64 calls outstanding ≥ 0.4 × the echo over the same ring
//   1,000 outstanding: at most as many threads as there are CPUs, and 4
//   64 MiB ≥ 0.75 × memcpy; 64 MiB that are given away ≤ 2 × an empty call
//   behind 256 MiB the p99 of an empty call grows by at most two chunks' copy
// Void above 5 % of foreign load. (bench/rpc_vs_torch.py compares with torch's agent.)
//   cmake --build build/release --target rpc && build/release/bench/rpc [ROUNDS]
#include "trireme/rpc/rpc.h"

#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/channel_bare.h"
#include "bench/channel_end.h"
#include "bench/foreign_load.h"
#include "bench/tcp_echo.h"
#include "trireme/channel/local/hub.h"
#include "trireme/channel/tcp/hub.h"
#include "trireme/net/connect.h"
#include "trireme/net/listener.h"
#include "trireme/rpc/codec/tensor.h"
#include "trireme/store/server/tcp_server.h"
#include "trireme/store/tcp_store.h"

using namespace trireme;
using namespace trireme::bare;

namespace {

constexpr int64_t kSmall = int64_t{64} << 20, kLarge = int64_t{256} << 20;
constexpr int kCalls = 2000, kTcpCalls = 500;
constexpr Duration kSpin = std::chrono::milliseconds(2);  // so that whoever has no turn sleeps
const net::Credentials kJob{"bench", net::Secret(std::string(32, 's'))};

void nothing() {}
void takes(const at::Tensor&) {}
int threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}
/// Ready once all of a thousand have come.
rpc::Future<void> with_the_others() {
  static std::mutex mutex;
  static std::vector<rpc::Promise<void>> all;
  std::lock_guard lock(mutex);
  all.emplace_back();
  auto future = all.back().future();
  if (all.size() == 1000)
    for (auto& promise : std::exchange(all, {})) promise.set();
  return future;
}
TRIREME_REMOTE(bench_nothing, &nothing);
TRIREME_REMOTE(bench_takes, &takes);
TRIREME_REMOTE(bench_threads, &threads);
TRIREME_REMOTE(bench_with_the_others, &with_the_others);

enum Mode { asleep, spinning, tcp };
const char* const kName[] = {"asleep", "spinning", "tcp"};

rpc::Worker worker(const char* role, Mode mode, const net::Endpoint& store) {
  const Duration spin = mode == spinning ? kSpin : Duration::zero();
  rpc::Options options;
  options.name = std::string(role) + kName[mode];
  options.store = TcpStore::connect(store, kJob, Deadline::after(std::chrono::seconds(10)));
  options.threads = 2;
  options.most_threads = static_cast<int>(std::thread::hardware_concurrency()) + 4;
  if (std::string(role) == "server")
    options.offers = {
        rpc::offer<bench_nothing, bench_takes, bench_threads, bench_with_the_others>()};
  if (mode == tcp)
    options.roads = {{"tcp", [](const channel::Peer& self, channel::Accept accept) {
                        channel::TcpOptions o;
                        o.self = self, o.accept = std::move(accept), o.credentials = kJob;
                        return std::shared_ptr<channel::Hub>(channel::tcp_hub(std::move(o)));
                      }}};
  else
    options.roads = {{"local", [spin](const channel::Peer& self, channel::Accept accept) {
                        return std::shared_ptr<channel::Hub>(channel::local_hub(
                            {.self = self, .accept = std::move(accept), .spin = spin}));
                      }}};
  return rpc::init(options);
}

/// The peers without calls: what channel_bare.h has, the TCP echo, and a channel that echoes.
struct Others {
  Shared bare;
  std::atomic<bool> ready;
  char echo[64];
};

[[noreturn]] void answer_bare(Others& o) {
  Shared& s = o.bare;
  std::shared_ptr<End> end;
  auto hub = channel::local_hub({.self = {"answers", 1},
                                 .accept =
                                     [&](const auto& channel) {
                                       end = std::make_shared<End>(true);
                                       end->channel = channel;
                                       return end;
                                     },
                                 .spin = kSpin});
  std::strcpy(s.address[1], hub->address().c_str());
  s.ready = true;
  while (!end) hub->serve(Deadline::after(std::chrono::milliseconds(1)));
  answer_phases(s, [&](Phase) { hub->serve(Deadline::after(std::chrono::milliseconds(20))); });
}

/// A process of this one's, on the second CPU, that ends with it.
class Child {
 public:
  explicit Child(const std::function<void()>& run) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(two_cpus().second);
    run();
    ::_exit(0);
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;

 private:
  pid_t pid_;
};

double us_of(const std::function<void()>& f) {
  const auto begin = Clock::now();
  f();
  return seconds_since(begin) * 1e6;
}
double empty_calls(const rpc::Peer& to, int calls, double part = 0.5) {
  std::vector<double> us;
  for (int i = 0; i < calls; ++i) us.push_back(us_of([&] { to.sync<bench_nothing>(); }));
  return median(us, part);
}
/// Calls a second, with 64 under way.
double outstanding(const rpc::Peer& to, int calls) {
  std::vector<rpc::Future<void>> under_way;
  const auto begin = Clock::now();
  for (int i = 0; i < kOutstanding; ++i) under_way.push_back(to.async<bench_nothing>());
  for (size_t i = 0; i < static_cast<size_t>(calls); ++i) {
    rpc::Future<void>& oldest = under_way[i % kOutstanding];
    oldest.get();
    oldest = to.async<bench_nothing>();
  }
  for (auto& future : under_way) future.get();
  return calls / seconds_since(begin);
}

}  // namespace

int main(int argc, char** argv) {
  const bool only_empty = argc > 1 && std::string(argv[1]) == "empty";
  const int rounds = argc > 1 && !only_empty ? std::atoi(argv[1]) : 7;
  auto* o = new (::mmap(nullptr, sizeof(Others), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0)) Others{};
  const int first_cpu = two_cpus().first;
  // The server of the store is the only thread that could be in the way of fork(): it comes last.
  auto store_listener = net::Listener::loopback();
  const net::Endpoint store_at = store_listener.endpoint();
  auto echo_listener = std::make_unique<net::Listener>(net::Listener::loopback());
  const net::Endpoint echo_at = echo_listener->endpoint();
  std::vector<std::unique_ptr<Child>> children;
  children.push_back(std::make_unique<Child>([&] { answer_bare(*o); }));
  children.push_back(std::make_unique<Child>([&] {
    Echo end(echo_listener->accept(Deadline::never()), 'c', 's');
    while (end.hear()) end.say();
  }));
  for (const Mode mode : {asleep, spinning, tcp})
    children.push_back(std::make_unique<Child>([&] {
      at::set_num_threads(1);
      auto server = worker("server", mode, store_at);
      while (true) ::pause();
    }));
  pin(first_cpu);
  std::vector<net::Listener> listeners;
  listeners.push_back(std::move(store_listener));
  StoreServer store({.credentials = kJob}, std::move(listeners));

  std::vector<rpc::Worker> mine;
  std::vector<rpc::Peer> to;
  for (const Mode mode : {asleep, spinning, tcp}) {
    mine.push_back(worker("client", mode, store_at));
    to.push_back(mine.back().peer(std::string("server") + kName[mode]));
  }
  if (only_empty) {  // for bench/rpc_vs_torch.py
    std::printf("%.3f %.3f %.3f\n", empty_calls(to[asleep], kCalls),
                empty_calls(to[spinning], kCalls), empty_calls(to[tcp], kCalls));
    children.clear();
    std::fflush(stdout);
    ::_exit(0);
  }
  while (!o->bare.ready) ::usleep(1000);
  auto hub = channel::local_hub({.self = {"calls", 1}, .accept = {}, .spin = kSpin});
  auto end = std::make_shared<End>(false);
  end->channel =
      hub->open(o->bare.address[1], {"answers", 1}, end, Deadline::after(std::chrono::seconds(10)));
  Caller channel{*hub, *end};
  Echo echo(net::connect(echo_at, Deadline::never()), 's', 'c');

  const at::Tensor small = at::ones({kSmall}, at::kByte), large = at::ones({kLarge}, at::kByte);
  const std::shared_ptr<void> from = warm(kLarge), into = warm(kLarge);
  const ForeignLoad load;
  enum {
    bare_a,
    call_a,
    bare_s,
    call_s,
    echo_t,
    call_t,
    bare_e,
    echo_e,
    call_e,
    copy,
    body,
    given,
    p99,
    p99_behind,
    chunk,
    kFigures
  };
  std::vector<double> all[kFigures];
  uint32_t bare_calls = 0, bare_spins = 0;
  BareEnd rings{RingWriter(&o->bare.there), RingReader(&o->bare.back)};
  const auto in_phase = [&](Phase what, auto f) {
    const InPhase phase(o->bare, what);
    return f();
  };
  for (int round = 0; round < rounds; ++round) {
    all[bare_a].push_back(in_phase(Phase::bare_asleep,
                                   [&] { return bare_asleep(o->bare, bare_calls, kAsleepCalls); }));
    bare_calls += kAsleepCalls;
    all[call_a].push_back(empty_calls(to[asleep], kCalls));
    all[bare_s].push_back(
        in_phase(Phase::bare_spin, [&] { return bare_spin(o->bare, bare_spins, kSpinCalls); }));
    bare_spins += kSpinCalls;
    all[call_s].push_back(empty_calls(to[spinning], kCalls));
    std::vector<double> echoes;
    for (int i = 0; i < kTcpCalls; ++i)
      echoes.push_back(us_of([&] {
        echo.say();
        echo.hear();
      }));
    all[echo_t].push_back(median(echoes));
    all[call_t].push_back(empty_calls(to[tcp], kTcpCalls));
    all[bare_e].push_back(in_phase(Phase::bare_echo, [&] { return bare_echo(rings, kEchoes); }));
    all[echo_e].push_back(in_phase(Phase::spinning, [&] { return channel.outstanding(kEchoes); }));
    all[call_e].push_back(outstanding(to[spinning], kEchoes / 2));
    for (int i = 0; i < 3; ++i) {
      all[copy].push_back(copy_us(into.get(), from.get(), kSmall));
      all[body].push_back(us_of([&] { to[spinning].sync<bench_takes>(small); }));
    }
    for (int i = 0; i < 50; ++i) {
      const at::Tensor lent = rpc::empty(to[spinning], {kSmall}, at::kByte);
      all[given].push_back(us_of([&] { to[spinning].sync<bench_takes>(lent); }));
    }
    all[p99].push_back(empty_calls(to[spinning], kCalls, 0.99));
    std::vector<double> behind;
    for (int i = 0; i < 3; ++i) {
      auto taken = to[spinning].async<bench_takes>(large);
      while (!taken.ready()) behind.push_back(us_of([&] { to[spinning].sync<bench_nothing>(); }));
    }
    all[p99_behind].push_back(median(behind, 0.99));
    for (int i = 0; i < 100; ++i) {
      const size_t at = static_cast<size_t>(i) * channel::kChunk;
      all[chunk].push_back(copy_us(static_cast<char*>(into.get()) + at,
                                   static_cast<char*>(from.get()) + at, channel::kChunk));
    }
  }
  const double foreign = load.part();
  const auto m = [&](int which) { return median(all[which]); };
  std::printf("asleep: an empty call %.1f µs, bare futexes %.1f µs: + %.2f µs (bound 3)\n",
              m(call_a), m(bare_a), m(call_a) - m(bare_a));
  std::printf("spinning: an empty call %.2f µs, bare words %.2f µs: + %.2f µs (bound 3)\n",
              m(call_s), m(bare_s), m(call_s) - m(bare_s));
  std::printf("TCP: an empty call %.1f µs, an epoll echo %.1f µs: %.2f × (bound 1.5)\n", m(call_t),
              m(echo_t), m(call_t) / m(echo_t));
  std::printf(
      "64 outstanding: %.2f M/s, an echo over the same channel %.2f M/s: %.2f of it (bound 0.4; "
      "the bare ring: %.1f M/s)\n",
      m(call_e) / 1e6, m(echo_e) / 1e6, m(call_e) / m(echo_e), m(bare_e) / 1e6);
  std::printf("64 MiB: %.1f GB/s, memcpy %.1f GB/s: %.2f of it (bound 0.75)\n",
              static_cast<double>(kSmall) / m(body) / 1e3,
              static_cast<double>(kSmall) / m(copy) / 1e3, m(copy) / m(body));
  std::printf("64 MiB given away: %.2f µs, %.2f × an empty call (bound 2)\n", m(given),
              m(given) / m(call_s));
  std::printf(
      "p99 of an empty call: %.1f µs, behind 256 MiB %.1f µs: + %.1f × a chunk's copy of %.1f µs "
      "(bound 2)\n",
      m(p99), m(p99_behind), (m(p99_behind) - m(p99)) / m(chunk), m(chunk));
  std::vector<rpc::Future<void>> thousand;
  for (int i = 0; i < 999; ++i) thousand.push_back(to[asleep].async<bench_with_the_others>());
  const int there = to[asleep].sync<bench_threads>(), here = mine[asleep].threads();
  thousand.push_back(to[asleep].async<bench_with_the_others>());
  for (auto& future : thousand) future.get();
  std::printf(
      "1,000 outstanding: %d threads of ours here, %d of the whole process there (bound "
      "%u)\n",
      here, there, std::thread::hardware_concurrency() + 4);
  std::printf("foreign load %.1f %%%s\n", 100 * foreign, foreign > 0.05 ? ": VOID" : "");
  children.clear();
  std::fflush(stdout);
  ::_exit(0);  // its workers wait for nobody
}
