// SPDX-License-Identifier: Apache-2.0
#include "trireme/rendezvous/generations.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/log.h"
#include "trireme/net/secret.h"
#include "trireme/store/tcp_store.h"

namespace trireme {

namespace generations {
namespace {
std::string under(int attempt, const std::string& key) {
  return fmt::format("attempt/{}/members/{}", attempt, key);
}
}  // namespace

std::string newest(int attempt) { return under(attempt, "newest"); }
std::string able(int attempt, int64_t id) { return under(attempt, fmt::format("able/{}", id)); }
std::string ready(int attempt, int64_t id) { return under(attempt, fmt::format("ready/{}", id)); }
std::string over(int attempt) { return under(attempt, "over"); }
}  // namespace generations

namespace {

constexpr Duration kLookEvery = std::chrono::milliseconds(100);
constexpr Duration kSlice = std::chrono::milliseconds(50);
constexpr Duration kSoon = std::chrono::milliseconds(4);  // between looks, at first
constexpr Duration kPatient = std::chrono::seconds(2);    // and then as often as the thread

/// A store in which nobody waits for longer than its generation lasts.
class StoreOfGeneration final : public Store {
 public:
  StoreOfGeneration(std::shared_ptr<Store> inner,
                    std::shared_ptr<const detail::ToldGenerations> told, int64_t number)
      : inner_(std::move(inner)), told_(std::move(told)), number_(number) {}

  void set(const std::string& key, std::string_view value) override { inner_->set(key, value); }
  std::string get(const std::string& key, Deadline deadline) override {
    std::string value;
    in_slices(deadline, [&](Deadline until) { value = inner_->get(key, until); });
    return value;
  }
  std::optional<std::string> try_get(const std::string& key) override {
    look();
    return inner_->try_get(key);
  }
  int64_t add(const std::string& key, int64_t delta) override { return inner_->add(key, delta); }
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired) override {
    return inner_->compare_set(key, expected, desired);
  }
  void wait(const std::vector<std::string>& keys, Deadline deadline) override {
    in_slices(deadline, [&](Deadline until) { inner_->wait(keys, until); });
  }
  std::vector<std::string> missing(const std::vector<std::string>& keys) override {
    return inner_->missing(keys);
  }
  bool delete_key(const std::string& key) override { return inner_->delete_key(key); }
  int64_t count_keys(std::string_view prefix) override { return inner_->count_keys(prefix); }
  void set_will(const std::string& key, std::string_view value) override {
    inner_->set_will(key, value);
  }
  void clear_will() override { inner_->clear_will(); }
  void set_answer_limit(Duration limit) override { inner_->set_answer_limit(limit); }
  std::unique_ptr<Store> clone(Deadline deadline) override {
    return std::make_unique<StoreOfGeneration>(inner_->clone(deadline), told_, number_);
  }
  std::string describe() const override { return inner_->describe(); }

 private:
  void look() const {
    trireme::check<PeerLost>(told_->broken.load(std::memory_order_relaxed) < number_,
                             "generation {} of the ranks has lost one of them", number_);
    trireme::check<PeerLost>(told_->formed.load(std::memory_order_relaxed) >= number_ ||
                                 told_->newest.load(std::memory_order_relaxed) <= number_,
                             "there is a newer generation of the ranks than {}", number_);
  }
  template <class Wait>
  void in_slices(Deadline deadline, const Wait& wait) const {
    while (true) {
      look();
      if (deadline.remaining() <= kSlice) return wait(deadline);
      try {
        return wait(Deadline::after(kSlice));
      } catch (const Timeout&) {
      }
    }
  }

  std::shared_ptr<Store> inner_;
  std::shared_ptr<const detail::ToldGenerations> told_;
  int64_t number_;
};

std::optional<int64_t> number_in(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

bool comes_later(const net::Getenv& env) {
  const auto id = env(kMemberVariable);
  if (!id || id->empty()) return false;
  return number_in(*id).value_or(0) >= read_rank_env(env).world_size;
}

std::unique_ptr<GenerationMember> GenerationMember::of_process(Duration timeout,
                                                               const net::Getenv& env) {
  const auto id = env(kMemberVariable);
  if (!id || id->empty()) return nullptr;
  const auto number = number_in(*id);
  check<UsageError>(number && *number >= 0, "{}={}: a number is expected", kMemberVariable, *id);
  const RankEnv rank = read_rank_env(env);
  check<UsageError>(!rank.store_endpoint.empty(),
                    "{} is set and TRIREME_STORE is not: the launcher sets both", kMemberVariable);
  const auto at = net::Endpoint::parse(rank.store_endpoint);
  auto admission = net::load_admission(env);
  std::shared_ptr<Store> store =
      TcpStore::connect(at, {rank.job_id, std::move(admission.secret)}, Deadline::after(timeout));
  return std::make_unique<GenerationMember>(std::move(store), rank.attempt, *number,
                                            rank.world_size);
}

GenerationMember::GenerationMember(std::shared_ptr<Store> store, int attempt, int64_t id,
                                   int first_ones)
    : store_(std::move(store)),
      attempt_(attempt),
      id_(id),
      first_ones_(first_ones),
      told_(std::make_shared<detail::ToldGenerations>()),
      watched_(store_->clone(Deadline::after(std::chrono::seconds(30)))) {
  for (int64_t member = 0; member < first_ones; ++member) now_.members.push_back(member);
  watcher_ = std::thread([this] { watch(); });
}

GenerationMember::~GenerationMember() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ends_.notify_all();
  watcher_.join();
}

int GenerationMember::rank() const {
  const auto found = std::find(now_.members.begin(), now_.members.end(), id_);
  return found == now_.members.end() ? -1 : static_cast<int>(found - now_.members.begin());
}

void GenerationMember::hear(const Generation& newest) {
  const auto raise = [](std::atomic<int64_t>& to, int64_t number) {
    for (int64_t now = to.load(); now < number && !to.compare_exchange_weak(now, number);) {
    }
  };
  raise(told_->newest, newest.number);
  raise(told_->broken, newest.broken);
}

void GenerationMember::watch() {
  const std::string key = generations::newest(attempt_);
  std::unique_lock lock(mutex_);
  while (!ending_) {
    lock.unlock();
    try {
      if (const auto text = watched_->try_get(key)) hear(decode<Generation>(*text));
      // Nobody comes to a meeting any more.
      if (watched_->try_get(generations::over(attempt_))) hear({0, {}, INT64_MAX});
    } catch (const Error& error) {  // the launcher is gone, and the kernel ends this process
      log_debug("nobody tells of new generations any more: {}", error.what());
      return;
    }
    lock.lock();
    ends_.wait_for(lock, kLookEvery, [this] { return ending_; });
  }
}

void GenerationMember::say_able() { store_->set(generations::able(attempt_, id_), "1"); }
void GenerationMember::say_ready() { store_->set(generations::ready(attempt_, id_), "1"); }
void GenerationMember::say_over(int exit_code) {
  failpoint("rendezvous.over");
  store_->compare_set(generations::over(attempt_), "", std::to_string(exit_code));
}

GenerationMember::Next GenerationMember::next(Deadline deadline,
                                              const std::function<bool()>& give_up) {
  const auto begin = Clock::now();
  std::unique_lock lock(mutex_);
  while (true) {
    if (const auto text = store_->try_get(generations::over(attempt_)))
      return {false, static_cast<int>(number_in(*text).value_or(kExitFailed))};
    if (const auto text = store_->try_get(generations::newest(attempt_))) {
      Generation newest = decode<Generation>(*text);
      hear(newest);
      const auto& members = newest.members;
      if (newest.number > now_.number &&
          std::find(members.begin(), members.end(), id_) != members.end()) {
        now_ = std::move(newest);
        return {true, {}};
      }
    }
    if (deadline.expired() || (give_up && give_up())) return {};
    const Duration pause = Clock::now() - begin < kPatient ? kSoon : kLookEvery;
    ends_.wait_for(lock, std::min(pause, deadline.remaining()));
  }
}

std::shared_ptr<Store> GenerationMember::meeting() {
  return std::make_shared<PrefixStore>(
      std::make_shared<StoreOfGeneration>(store_->clone(Deadline::after(std::chrono::seconds(30))),
                                          told_, now_.number),
      fmt::format("attempt/{}/generation/{}", attempt_, now_.number));
}

}  // namespace trireme
