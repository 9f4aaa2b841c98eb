// SPDX-License-Identifier: Apache-2.0
// 10,000 ranks join a job's store over TCP, with a secret, and meet: how long it takes from the
// first connection until the last rank knows that all are there, and how many requests each makes.
// Bounds: 10 s and 6 requests. Each rank is a thread with a connection of its own, in 8 processes.
// Void above 5 % of foreign load.
//   cmake --build build/release --target store_crowd && build/release/bench/store_crowd [RANKS]
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bench/foreign_load.h"
#include "trireme/base/check.h"
#include "trireme/base/clock.h"
#include "trireme/base/log.h"
#include "trireme/rendezvous/join.h"
#include "trireme/store/server/tcp_server.h"
#include "trireme/store/tcp_store.h"

using namespace trireme;

namespace {

constexpr int kProcesses = 8;
constexpr double kMostSeconds = 10;
constexpr int kMostRequests = 6;
constexpr size_t kStack = 256 << 10;

const net::Credentials kJob{"crowd", net::Secret(std::string(32, 's'))};

/// Counts what a rank asks of the store.
class Counted final : public Store {
 public:
  explicit Counted(std::unique_ptr<Store> inner) : inner_(std::move(inner)) {}
  int requests() const { return requests_; }

  void set(const std::string& key, std::string_view value) override { store().set(key, value); }
  std::string get(const std::string& key, Deadline deadline) override {
    return store().get(key, deadline);
  }
  std::optional<std::string> try_get(const std::string& key) override {
    return store().try_get(key);
  }
  int64_t add(const std::string& key, int64_t delta) override { return store().add(key, delta); }
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired) override {
    return store().compare_set(key, expected, desired);
  }
  void wait(const std::vector<std::string>& keys, Deadline deadline) override {
    store().wait(keys, deadline);
  }
  std::vector<std::string> missing(const std::vector<std::string>& keys) override {
    return store().missing(keys);
  }
  bool delete_key(const std::string& key) override { return store().delete_key(key); }
  int64_t count_keys(std::string_view prefix) override { return store().count_keys(prefix); }
  void set_will(const std::string& key, std::string_view value) override {
    store().set_will(key, value);
  }
  void clear_will() override { store().clear_will(); }
  std::unique_ptr<Store> clone(Deadline deadline) override { return inner_->clone(deadline); }
  std::string describe() const override { return inner_->describe(); }

 private:
  Store& store() {
    ++requests_;
    return *inner_;
  }
  std::unique_ptr<Store> inner_;
  int requests_ = 0;
};

struct Rank {
  int rank = 0, world = 0;
  const net::Endpoint* at = nullptr;
  int requests = 0;
  std::string fault;
  std::unique_ptr<Counted> store;  // kept, so that all are connected together
};

void* join_and_meet(void* of) {
  auto& me = *static_cast<Rank*>(of);
  try {
    const Deadline deadline = Deadline::after(std::chrono::seconds(120));
    me.store = std::make_unique<Counted>(TcpStore::connect(*me.at, kJob, deadline));
    detail::take_seat(*me.store, me.rank, me.world);
    detail::wait_for_world(*me.store, me.rank, me.world, deadline);
    me.requests = me.store->requests();
  } catch (const std::exception& error) {
    me.fault = error.what();
  }
  return nullptr;
}

/// Ranks `first` … of `world`; what the last line of the pipe says: the most requests, or a fault.
[[noreturn]] void be_ranks(int first, int count, int world, int go, int said) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  set_log_level(LogLevel::error);
  char text[256];
  const ssize_t n = ::read(go, text, sizeof text);
  if (n <= 0) ::_exit(1);
  const net::Endpoint at = net::Endpoint::parse(std::string(text, static_cast<size_t>(n)));
  std::vector<Rank> ranks(static_cast<size_t>(count));
  std::vector<pthread_t> threads(ranks.size());
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kStack);
  for (size_t i = 0; i < ranks.size(); ++i) {
    ranks[i].rank = first + static_cast<int>(i), ranks[i].world = world, ranks[i].at = &at;
    if (::pthread_create(&threads[i], &attributes, join_and_meet, &ranks[i]) != 0) {
      ::dprintf(said, "no thread for rank %d\n", ranks[i].rank);
      ::_exit(1);
    }
  }
  int most = 0;
  std::string fault;
  for (size_t i = 0; i < ranks.size(); ++i) {
    ::pthread_join(threads[i], nullptr);
    most = std::max(most, ranks[i].requests);
    if (!ranks[i].fault.empty()) fault = ranks[i].fault;
  }
  if (fault.empty())
    ::dprintf(said, "%d", most);
  else
    ::dprintf(said, "%s", fault.c_str());
  ::close(said);
  [[maybe_unused]] auto over = ::read(go, text, sizeof text);  // until all have met
  ::_exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  const int world = argc > 1 ? std::atoi(argv[1]) : 10'000;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (world < kProcesses || files.rlim_cur < static_cast<rlim_t>(world) + 100) {
    std::printf("%d ranks take as many open files, and the limit is %lu (ulimit -Hn)\n", world,
                static_cast<unsigned long>(files.rlim_cur));
    return 2;
  }
  struct Child {
    pid_t pid;
    int go, said;
  };
  std::vector<Child> children;
  for (int p = 0; p < kProcesses; ++p) {
    int go[2], said[2];
    if (::pipe2(go, O_CLOEXEC) != 0 || ::pipe2(said, O_CLOEXEC) != 0) return 1;
    const int first = static_cast<int>(int64_t{world} * p / kProcesses);
    const int end = static_cast<int>(int64_t{world} * (p + 1) / kProcesses);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::close(go[1]), ::close(said[0]);
      for (const Child& other : children) ::close(other.go), ::close(other.said);
      be_ranks(first, end - first, world, go[0], said[1]);
    }
    ::close(go[0]), ::close(said[1]);
    children.push_back({pid, go[1], said[0]});
  }
  StoreServer::Options options;
  options.credentials = kJob;
  options.max_pending = StoreServer::most_strangers(world);
  StoreServer server(std::move(options));
  const std::string at = server.endpoints().at(0).text();
  const ForeignLoad load;
  const auto begin = Clock::now();
  for (const Child& child : children)
    if (::write(child.go, at.data(), at.size()) < 0) return 1;
  int most = 0;
  bool fine = true;
  for (const Child& child : children) {
    std::string text;
    char bytes[256];
    for (ssize_t n; (n = ::read(child.said, bytes, sizeof bytes)) > 0;)
      text.append(bytes, static_cast<size_t>(n));
    if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) {
      std::printf("a process of ranks: %s\n", text.empty() ? "ended" : text.c_str());
      fine = false;
      continue;
    }
    most = std::max(most, std::atoi(text.c_str()));
  }
  const double seconds = seconds_since(begin);
  const size_t connected = server.clients();
  for (const Child& child : children) ::close(child.go);
  rusage ranks{};
  for (const Child& child : children) ::waitpid(child.pid, nullptr, 0);
  ::getrusage(RUSAGE_CHILDREN, &ranks);
  // The ranks' own time is no foreign load.
  const double own = static_cast<double>(ranks.ru_utime.tv_sec + ranks.ru_stime.tv_sec) +
                     1e-6 * static_cast<double>(ranks.ru_utime.tv_usec + ranks.ru_stime.tv_usec);
  const double foreign = std::max(
      0.0, load.part() -
               own / (seconds_since(begin) * static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN))));
  std::printf(
      "%d ranks joined and met in %.2f s (bound %.0f s%s), %zu connected at once, at most %d "
      "requests each (bound %d%s); foreign load %.1f %%%s\n",
      world, seconds, kMostSeconds, seconds > kMostSeconds ? ": MISSED" : "", connected, most,
      kMostRequests, most > kMostRequests ? ": MISSED" : "", 100 * foreign,
      foreign > 0.05 ? ": VOID" : "");
  return fine ? 0 : 1;
}
