// SPDX-License-Identifier: Apache-2.0
// Objects at other workers, and references to them as values of calls.
#include "trireme/rpc/object/rref.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/rpc/workers.h"
#include "tests/support/captured_log.h"

namespace trireme::rpc_object_rref_test {
namespace {

using namespace rpc_test;
using rpc::Future;
using rpc::RRef;

std::atomic<int> alive{0};
Gate* slow_construction = nullptr;

struct Counter {
  Counter(int start, const std::string& how) : count(start) {
    if (how == "slow") slow_construction->wait();
    if (how == "throws") throw NumericError("no such start");
    ++alive;
  }
  ~Counter() { --alive; }
  int add(int by) { return count += by; }
  int get() const { return count; }
  Future<int> later(int by) { return rpc::ready(count + by); }
  std::atomic<int> count;
};
TRIREME_REMOTE_CLASS(Counter, int, const std::string&);
TRIREME_REMOTE(add, &Counter::add);
TRIREME_REMOTE(get_count, &Counter::get);
TRIREME_REMOTE(later, &Counter::later);

struct Pair {
  RRef<Counter> first;
  std::vector<RRef<Counter>> more;
  TRIREME_FIELDS(first, more)
};

/// Keeps references for others, calls them, gives them back.
struct Shelf {
  std::mutex mutex;
  std::map<std::string, RRef<Counter>> refs;
  void put(const std::string& name, const RRef<Counter>& ref) {
    std::lock_guard lock(mutex);
    refs[name] = ref;
  }
  RRef<Counter> take(const std::string& name) {
    std::lock_guard lock(mutex);
    auto ref = refs[name];
    refs.erase(name);
    return ref;
  }
  int sum(const Pair& pair) {
    int total = pair.first.sync<get_count>();
    for (const auto& ref : pair.more) total += ref.sync<get_count>();
    return total;
  }
  int local(const RRef<Counter>& ref) {
    if (!ref.valid()) return -2;
    return ref.is_owner() ? ref.local_value()->get() : -1;
  }
  void refuses(const RRef<Counter>&) { throw UsageError("not this one"); }
};
TRIREME_REMOTE(put, &Shelf::put);
TRIREME_REMOTE(take, &Shelf::take);
TRIREME_REMOTE(sum, &Shelf::sum);
TRIREME_REMOTE(local, &Shelf::local);
TRIREME_REMOTE(refuses, &Shelf::refuses);

double half(double x) {
  if (x < 0) throw NumericError("negative");
  return x / 2;
}
struct half_of {
  static constexpr const char* kName = "half_of";
  static constexpr auto kFunction = &half;
};

struct Nothing {};
TRIREME_REMOTE_CLASS(Nothing);

template <class X, class... A>
concept Makes = rpc::detail::CanMake<X, A...>;
static_assert(Makes<Counter, std::string>);  // after the first
static_assert(!Makes<Counter, int>);
static_assert(!Makes<Counter>);
static_assert(rpc::detail::CanMakeOfNothing<Nothing>);

class rpc_object_rref : public ::testing::Test {
 protected:
  rpc_object_rref() { slow_construction = &gate; }
  ~rpc_object_rref() override { gate.open(); }

  std::vector<rpc::Offer> offers() const {
    return {rpc::offer_objects<Counter, add, get_count, later>(),
            rpc::offer<put, take, sum, local, refuses>(std::make_shared<Shelf>()),
            rpc::offer<half_of>()};
  }
  static rpc::detail::Objects::Counts counts(const rpc::Worker& worker) {
    return rpc::detail::Access::objects(worker)->counts();
  }
  /// Nothing is referred to any more.
  bool all_are_free() {
    return comes_about([&] {
      for (const auto* worker : {&server, &one, &two}) {
        const auto now = counts(*worker);
        if (now.owned + now.held + now.passed > 0) return false;
      }
      return alive == 0;
    });
  }

  Gate gate;
  Job job{std::chrono::milliseconds(2)};
  rpc::Worker server = job.start("server0", offers());
  rpc::Worker one = job.start("trainer1", offers());
  rpc::Worker two = job.start("trainer2", offers());
};

}  // namespace

TEST_F(rpc_object_rref,
       an_object_is_made_and_called_at_its_owner_and_freed_with_its_last_reference) {
  {
    RRef<Counter> counter = one.peer("server0").remote<Counter>(40, "fast");
    EXPECT_EQ(counter.async<add>(2).get(), 42);
    EXPECT_EQ(counter.sync<later>(3), 45);
    EXPECT_EQ(counter.owner(), "server0");
    EXPECT_FALSE(counter.is_owner());
    EXPECT_TRUE(counter.confirmed());
    EXPECT_EQ(alive, 1);
    const auto copy = counter;
    counter = {};
    EXPECT_EQ(copy.sync<get_count>(), 42);
  }
  EXPECT_TRUE(all_are_free());
}

TEST_F(rpc_object_rref, calls_before_the_object_is_there_wait_for_it_in_order) {
  auto counter = one.peer("server0").remote<Counter>(0, "slow");
  std::vector<Future<int>> sums;
  for (int i = 1; i <= 5; ++i) sums.push_back(counter.async<add>(i));
  ASSERT_TRUE(gate.has_waiting(1));
  EXPECT_FALSE(counter.confirmed());
  EXPECT_FALSE(sums[0].ready());
  EXPECT_NE(text_of<Timeout>([&] { counter.with(20ms).sync<get_count>(); }).find("was not there"),
            std::string::npos);
  gate.open();
  for (auto& sum : sums) sum.get();
  EXPECT_EQ(counter.sync<get_count>(), 15);
}

TEST_F(rpc_object_rref, the_error_of_a_constructor_is_that_of_every_use) {
  {
    auto counter = one.peer("server0").remote<Counter>(1, "throws");
    two.peer("trainer1");
    one.peer("trainer2").sync<put>("broken", counter);
    for (int i = 0; i < 2; ++i)
      EXPECT_NE(text_of<NumericError>([&] { counter.sync<get_count>(); }).find("no such start"),
                std::string::npos);
    auto other = two.peer("trainer2").sync<take>("broken");
    EXPECT_NE(text_of<NumericError>([&] { other.sync<get_count>(); }).find("no such start"),
              std::string::npos);
  }
  EXPECT_TRUE(all_are_free());
}

TEST_F(rpc_object_rref,
       a_reference_goes_to_third_workers_and_outlives_the_one_that_made_the_object) {
  {
    auto counter = one.peer("server0").remote<Counter>(7, "fast");
    one.peer("trainer2").sync<put>("mine", counter);
  }
  EXPECT_TRUE(comes_about([&] { return counts(one).held == 0; }));
  EXPECT_EQ(alive, 1);
  {
    auto back = one.peer("trainer2").sync<take>("mine");
    EXPECT_EQ(back.sync<get_count>(), 7);
    EXPECT_TRUE(comes_about([&] { return counts(two).held == 0; }));
    EXPECT_EQ(back.sync<add>(1), 8);
  }
  EXPECT_TRUE(all_are_free());
}

TEST_F(rpc_object_rref,
       references_are_members_of_structs_and_vectors_and_reach_the_owner_as_its_own) {
  {
    auto peer = one.peer("server0");
    Pair pair{peer.remote<Counter>(1, "fast"), {}};
    for (int i = 0; i < 20; ++i) pair.more.push_back(peer.remote<Counter>(i, "fast"));
    EXPECT_EQ(one.peer("trainer2").sync<sum>(pair), 191);
    EXPECT_EQ(peer.sync<local>(pair.more[5]), 5);
    EXPECT_EQ(one.peer("trainer2").sync<local>(pair.more[5]), -1);
    EXPECT_FALSE(one.peer("trainer2").sync<take>("nobody's").valid());
  }
  EXPECT_TRUE(all_are_free());
}

TEST_F(rpc_object_rref, an_object_that_is_still_made_may_be_passed_on) {
  {
    auto counter = one.peer("server0").remote<Counter>(3, "slow");
    ASSERT_TRUE(gate.has_waiting(1));
    auto total = one.peer("trainer2").async<sum>(Pair{counter, {counter}});
    counter = {};
    gate.open();
    EXPECT_EQ(total.get(), 6);
  }
  EXPECT_TRUE(all_are_free());
}

TEST_F(rpc_object_rref, the_result_of_a_function_stays_where_it_is) {
  {
    RRef<double> value = one.peer("server0").remote<half_of>(5.0);
    EXPECT_EQ(value.to_here(), 2.5);
    EXPECT_EQ(value.fetch().get(), 2.5);
    auto bad = one.peer("server0").remote<half_of>(-1);
    EXPECT_NE(text_of<NumericError>([&] { bad.to_here(); }).find("negative"), std::string::npos);
    auto mine = rpc::own(one, std::make_shared<double>(4.0));
    EXPECT_TRUE(mine.is_owner());
    EXPECT_EQ(mine.to_here(), 4.0);
    EXPECT_EQ(*mine.local_value(), 4.0);
    EXPECT_NE(text_of<UsageError>([&] { value.local_value(); }).find("for the owner alone"),
              std::string::npos);
  }
  EXPECT_TRUE(all_are_free());
}

TEST_F(rpc_object_rref, a_call_that_fails_keeps_nothing) {
  {
    auto counter = one.peer("server0").remote<Counter>(1, "fast");
    EXPECT_THROW(one.peer("trainer2").sync<refuses>(counter), UsageError);
    EXPECT_THROW(one.peer("trainer2", {.deadline = 1ns}).sync<put>("late", counter), Timeout);
  }
  EXPECT_TRUE(all_are_free());
}

TEST_F(rpc_object_rref, what_a_dead_worker_held_is_freed_and_a_stopped_one_keeps) {
  {
    auto counter = one.peer("server0").remote<Counter>(1, "fast");
    one.peer("trainer2").sync<put>("kept", counter);
  }
  EXPECT_TRUE(comes_about([&] { return counts(one).held == 0; }));
  job.net->stop("trainer2");
  EXPECT_EQ(one.peer("server0").remote<half_of>(1.0).to_here(), 0.5);
  EXPECT_EQ(alive, 1);
  job.net->kill("trainer2");
  EXPECT_TRUE(comes_about([&] { return alive == 0; }));
}

TEST_F(rpc_object_rref, the_death_of_an_owner_is_told_by_its_name) {
  auto counter = one.peer("server0").remote<Counter>(1, "fast");
  EXPECT_EQ(counter.sync<get_count>(), 1);
  job.net->kill("server0");
  EXPECT_TRUE(comes_about([&] {
    return text_of<PeerLost>([&] { counter.sync<get_count>(); }).find("'server0'") !=
           std::string::npos;
  }));
}

TEST_F(rpc_object_rref, shutdown_tells_of_leaks_by_where_they_were_made) {
  testing::CapturedLog log;
  auto counter = one.peer("server0").remote<Counter>(1, "fast");
  EXPECT_EQ(counter.sync<get_count>(), 1);
  const auto said = "rref_test.cc:" + std::to_string(__LINE__ - 2);
  one.shutdown({.graceful = false, .deadline = kPlenty});
  const auto lines = log.with("an RRef to a Counter");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find(said), std::string::npos) << lines[0];
  EXPECT_THROW(counter.sync<get_count>(), Aborted);
  EXPECT_TRUE(comes_about([&] { return alive == 0; }));
}

TEST_F(rpc_object_rref, references_of_damaged_bytes_are_errors_and_free_all_with_their_sender) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 60; ++i) {
    auto counter = one.peer("server0").remote<Counter>(i, "fast");
    counter.sync<get_count>();
    job.net->intercept("trainer1", [&](channel::Message& message) {
      // A call with a reference has its owner's name; what stands before the arguments is left.
      const auto name = message.bytes.find("server0");
      if (message.bytes[0] == 2 && name != std::string::npos && name > 40)
        message.bytes[name - 40 + random() % 56] ^= static_cast<char>(1 + random() % 255);
      return true;
    });
    try {
      one.peer("trainer2", {.deadline = 2s}).sync<put>("damaged", counter);
    } catch (const Error&) {
    }
    job.net->intercept("trainer1", [](channel::Message&) { return true; });
  }
  EXPECT_EQ(two.peer("server0").remote<half_of>(1.0).to_here(), 0.5);
  job.net->kill("trainer1");
  two.peer("trainer2").sync<take>("damaged");
  EXPECT_TRUE(comes_about([&] {
    const auto now = counts(server);
    return alive == 0 && now.owned == 0 && counts(two).held == 0;
  })) << alive
      << " alive, " << counts(server).owned << " owned, " << counts(two).held << " held";
}

TEST_F(rpc_object_rref, a_worker_that_returns_under_its_name_does_not_have_the_object) {
  auto counter = one.peer("server0").remote<Counter>(1, "fast");
  EXPECT_EQ(counter.sync<get_count>(), 1);
  server.shutdown({.graceful = false, .deadline = kPlenty});
  server = job.start("server0", offers());
  EXPECT_EQ(one.peer("server0").remote<half_of>(1.0).to_here(), 0.5);
  EXPECT_THROW(counter.sync<get_count>(), PeerLost);
  EXPECT_EQ(one.peer("server0").sync<local>(RRef<Counter>()), -2);
  EXPECT_EQ(one.peer("server0").sync<local>(counter), -1);  // not its own
}

TEST_F(rpc_object_rref, what_was_not_offered_cannot_be_made_or_called) {
  auto bare = job.start("bare");
  auto counter = one.peer("bare").remote<Counter>(1, "fast");
  EXPECT_NE(text_of<UsageError>([&] { counter.sync<get_count>(); }).find("offers no"),
            std::string::npos);
  auto value = one.peer("bare").remote<half_of>(1.0);
  EXPECT_NE(text_of<UsageError>([&] { value.to_here(); }).find("offers no function"),
            std::string::npos);
}

}  // namespace trireme::rpc_object_rref_test
