// SPDX-License-Identifier: Apache-2.0
#include "trireme/rendezvous/join.h"

#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/net/address.h"
#include "trireme/net/secret.h"

namespace trireme {
namespace {

std::string rank_key(int rank) { return fmt::format("rank/{}", rank); }
std::string left_key(int rank) { return fmt::format("left/{}", rank); }

Member parse_member(const std::string& value) {
  Member out;
  std::istringstream(value) >> out.pid >> out.host;
  return out;
}

}  // namespace

std::optional<Member> member(Store& store, int rank) {
  auto value = store.try_get(rank_key(rank));
  return value ? std::optional(parse_member(*value)) : std::nullopt;
}

bool has_left(Store& store, int rank) { return store.check({left_key(rank)}); }

namespace detail {

std::string name_ranks(const std::vector<int>& ranks) {
  constexpr int kNamed = 16;
  std::string out;
  int named = 0;
  for (size_t i = 0; i < ranks.size(); ++named) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (named == kNamed) return out + fmt::format(" and {} more", ranks.size() - i);
    if (named) out += ", ";
    out += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return out;
}

std::string get_or_say(Store& store, const std::string& key, Deadline deadline,
                       const std::function<void()>& say) {
  constexpr Duration kSayAfter = std::chrono::seconds(3);
  if (deadline.remaining() > kSayAfter) try {
      return store.get(key, Deadline::after(kSayAfter));
    } catch (const Timeout&) {
      say();
    }
  return store.get(key, deadline);
}

Seat take_seat(Store& store, int rank, int world_size) {
  // The token tells apart two threads of one process.
  std::string mine = fmt::format("{} {} {}", ::getpid(), net::host_name(), net::random_token());
  std::string holder = store.compare_set(rank_key(rank), "", mine);
  if (holder != mine) {
    if (has_left(store, rank)) return Seat::left;
    auto who = parse_member(holder);
    fail<UsageError>(
        "rank {} of this job is taken already, by process {} on {}: start each rank once, and give "
        "two jobs at "
        "the same time different MASTER_PORTs (this is process {} on {})",
        rank, who.pid, who.host, ::getpid(), net::host_name());
  }
  std::string own_world = std::to_string(world_size);
  std::string world = store.compare_set("world_size", "", own_world);
  check<UsageError>(world == own_world,
                    "rank {} was started for a world of {} ranks, and others of this job for one "
                    "of {}: start all ranks of a "
                    "job alike",
                    rank, own_world, world);
  if (store.add("joined", 1) == world_size) store.compare_set("join", "", "ok");
  return Seat::ours;
}

namespace {

std::vector<int> missing_ranks(Store& store, int world_size) {
  std::vector<std::string> keys;
  for (int r = 0; r < world_size; ++r) keys.push_back(rank_key(r));
  std::vector<int> missing;
  auto absent = store.missing(keys);  // in the order of `keys`
  for (int r = 0; r < world_size && missing.size() < absent.size(); ++r)
    if (absent[missing.size()] == keys[r]) missing.push_back(r);
  return missing;
}

/// One of those that wait says so: the lowest.
void say_who_is_awaited(Store& store, int rank, int world_size, double so_far, Deadline deadline) {
  // Where thousands wait, each of them asks for one key and not for thousands.
  if (rank > 0 && store.check({rank_key(0)})) return;
  const auto missing = missing_ranks(store, world_size);
  if (missing.empty()) return;  // the last one has just come
  for (int r = 0; r < rank; ++r)
    if (std::find(missing.begin(), missing.end(), r) == missing.end()) return;
  const std::string until =
      deadline.is_never()
          ? "there is no deadline"
          : fmt::format("the deadline is in {:.0f} s",
                        std::chrono::duration<double>(deadline.remaining()).count());
  log_warn("rank {} waits for {} {} of {} to join at {} ({:.0f} s so far; {})", rank,
           missing.size() == 1 ? "rank" : "ranks", name_ranks(missing), world_size,
           store.describe(), so_far, until);
}

}  // namespace

void wait_for_world(Store& store, int rank, int world_size, Deadline deadline,
                    const std::function<std::string()>& turned_away) {
  auto start = Clock::now();
  std::string verdict;
  try {
    verdict = get_or_say(store, "join", deadline, [&] {
      say_who_is_awaited(store, rank, world_size, seconds_since(start), deadline);
    });
  } catch (const Timeout&) {
    const std::vector<int> missing = missing_ranks(store, world_size);
    std::string why = fmt::format(
        "{} of {} ranks joined within {:.1f} s; missing: {} {}. Start them or see why they ended, "
        "or allow more time",
        world_size - missing.size(), world_size, seconds_since(start),
        missing.size() == 1 ? "rank" : "ranks", name_ranks(missing));
    if (auto strangers = turned_away ? turned_away() : ""; !strangers.empty())
      why += fmt::format(" ({})", strangers);
    // Whoever gives up first speaks for all: nobody goes on with a part of the world.
    verdict = store.compare_set("join", "", why);
  }
  check<Timeout>(verdict == "ok", "rank {} at store {}: {}", rank, store.describe(), verdict);
}

MemberStore::MemberStore(std::unique_ptr<Store> inner, int rank)
    : inner_(std::move(inner)), rank_(rank) {}

MemberStore::~MemberStore() {
  inner_->set_answer_limit(std::chrono::seconds(2));
  try {
    inner_->set(left_key(rank_), "1");
  } catch (const std::exception& error) {  // the store left first: nobody is there to be told
    log_debug("rank {} left without a word: {}", rank_, error.what());
  }
}

}  // namespace detail
}  // namespace trireme
