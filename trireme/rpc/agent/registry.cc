// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/agent/registry.h"

#include <algorithm>
#include <charconv>
#include <condition_variable>

#include "trireme/base/check.h"

namespace trireme::rpc::detail {
namespace {

// How long a wait keeps the store to itself, and how long it then stays away.
constexpr Duration kTurn = std::chrono::milliseconds(100);
constexpr Duration kPause = std::chrono::milliseconds(50);
// Each is asked for by itself: a number beyond that is none that workers have counted to.
constexpr int64_t kMostWorkers = int64_t{1} << 24;

int64_t number_in(const std::string& text) {
  int64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  check<Corrupt>(read.ec == std::errc() && read.ptr == text.data() + text.size(),
                 "the store's table of workers has '{}' where a number belongs",
                 text.substr(0, 40));
  return number;
}

bool is_no_more(const std::string& state) { return state == "left" || state == "gone"; }

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  return text.empty() ? "none" : text;
}

}  // namespace

Registry::Registry(std::shared_ptr<Store> store, uint64_t generation)
    : store_(std::make_shared<PrefixStore>(std::move(store), "rpc/" + std::to_string(generation))) {
}

std::optional<std::string> Registry::get(const std::string& key) {
  std::lock_guard lock(mutex_);
  return store_->try_get(key);
}

int64_t Registry::new_number() {
  std::lock_guard lock(mutex_);
  return store_->add("members", 1);
}

std::optional<Member> Registry::now(const std::string& key) {
  const auto number = get(key);
  if (!number) return {};
  if (const auto state = get("done/" + *number); state && is_no_more(*state)) return {};
  const auto member = get("member/" + *number);
  if (!member) return {};  // it is about to be there
  return decode<Member>(*member);
}

bool Registry::take(const std::string& key, const std::string& called, const Member* may_be_of) {
  for (;;) {
    const auto holder = get(key);
    if (holder) {
      const auto state = get("done/" + *holder);
      if (!state || !is_no_more(*state)) {
        const auto member = get("member/" + *holder);
        std::string who = "another worker";
        if (member) {
          const auto other = decode<Member>(*member);
          if (may_be_of && other.pid == may_be_of->pid && other.host == may_be_of->host)
            return false;
          who = fmt::format("process {} on host {}", other.pid, other.host);
        }
        fail<UsageError>("rpc::init: {} is taken by {}: each worker of a job has its own", called,
                         who);
      }
    }
    std::lock_guard lock(mutex_);
    const std::string mine = std::to_string(number_);
    if (store_->compare_set(key, holder.value_or(""), mine) == mine) return true;
  }
}

void Registry::join(const Member& self, bool process_rank) {
  number_ = self.number;
  const std::string number = std::to_string(self.number);
  {
    std::lock_guard lock(mutex_);
    store_->set_will("done/" + number, "gone");
    store_->set("member/" + number, encode(self));
  }
  try {
    take("name/" + self.name, fmt::format("the name '{}'", self.name));
    if (self.rank >= 0)
      take("rank/" + std::to_string(self.rank), fmt::format("rank {}", self.rank),
           process_rank ? &self : nullptr);
  } catch (...) {
    leave();
    throw;
  }
}

Member Registry::find_at(const std::string& key, const std::string& called, Deadline deadline) {
  for (;;) {
    if (auto member = now(key)) return *member;
    if (deadline.expired()) {
      std::vector<std::string> names;
      for (const auto& member : present()) names.push_back(member.name);
      fail<Timeout>("no worker {} has joined by the deadline; there are {}", called, joined(names));
    }
    try {
      std::lock_guard lock(mutex_);
      store_->wait({key}, Deadline::after(std::min(deadline.remaining(), kTurn)));
    } catch (const Timeout&) {
      continue;
    }
    // The name's last holder is no more, or this one is about to write what it is.
    std::mutex nobody;
    std::unique_lock lock(nobody);
    std::condition_variable().wait_for(lock, std::min(deadline.remaining(), kPause));
  }
}

std::optional<Member> Registry::find_number(int64_t number) {
  const std::string text = std::to_string(number);
  if (const auto state = get("done/" + text); state && is_no_more(*state)) return {};
  const auto member = get("member/" + text);
  if (!member) return {};
  return decode<Member>(*member);
}

Member Registry::find(const std::string& name, Deadline deadline) {
  return find_at("name/" + name, "'" + name + "'", deadline);
}
Member Registry::find(int rank, Deadline deadline) {
  return find_at("rank/" + std::to_string(rank), "of rank " + std::to_string(rank), deadline);
}

std::vector<std::pair<Member, std::string>> Registry::all() {
  std::vector<std::pair<Member, std::string>> found;
  const auto text = get("members");
  const int64_t count = text ? number_in(*text) : 0;
  check<Corrupt>(count >= 0 && count <= kMostWorkers,
                 "the store's table of workers says that there have been {}", count);
  for (int64_t i = 1; i <= count; ++i) {
    const std::string number = std::to_string(i);
    if (const auto member = get("member/" + number))
      found.emplace_back(decode<Member>(*member), get("done/" + number).value_or(""));
  }
  return found;
}

std::vector<Member> Registry::present() {
  std::vector<Member> found;
  for (auto& [member, state] : all())
    if (!is_no_more(state)) found.push_back(std::move(member));
  return found;
}

void Registry::done() {
  std::lock_guard lock(mutex_);
  store_->set("done/" + std::to_string(number_), "done");
}

std::vector<int> Registry::absent_ranks(int world) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < world; ++rank) keys.push_back("rank/" + std::to_string(rank));
  std::vector<int> absent;
  if (keys.empty()) return absent;
  std::lock_guard lock(mutex_);
  const auto missing = store_->missing(keys);  // in the order of `keys`
  for (int rank = 0; rank < world && absent.size() < missing.size(); ++rank)
    if (missing[absent.size()] == keys[static_cast<size_t>(rank)]) absent.push_back(rank);
  return absent;
}

void Registry::wait_for_all(int world, Deadline deadline) {
  for (;;) {
    std::vector<std::string> names, keys;
    // First: whoever has a rank is a member before.
    for (const int rank : absent_ranks(world)) {
      names.push_back(fmt::format("rank {}", rank));
      keys.push_back("rank/" + std::to_string(rank));
    }
    for (const auto& [member, state] : all())
      if (state.empty()) {
        names.push_back(member.name);
        keys.push_back("done/" + std::to_string(member.number));
      }
    if (keys.empty()) return;
    check<Timeout>(!deadline.expired(),
                   "these workers have not called shutdown() by the deadline: {}", joined(names));
    try {
      std::lock_guard lock(mutex_);
      store_->wait(keys, Deadline::after(std::min(deadline.remaining(), kTurn)));
    } catch (const Timeout&) {
    }
  }
}

void Registry::leave() {
  std::lock_guard lock(mutex_);
  store_->set("done/" + std::to_string(number_), "left");
  store_->clear_will();
}

}  // namespace trireme::rpc::detail
