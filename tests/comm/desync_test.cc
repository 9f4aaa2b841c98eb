// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <condition_variable>
#include <iostream>
#include <map>
#include <mutex>
#include <thread>

#include "tests/support/refusals.h"
#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/base/rank_label.h"
#include "trireme/comm/desync/checked_backend.h"
#include "trireme/comm/desync/stall_watch.h"
#include "trireme/comm/flight/dump.h"
#include "trireme/comm/flight/dump_reader.h"
#include "trireme/comm/flight/verdict.h"
#include "trireme/comm/registry.h"
#include "trireme/comm/start/run.h"
#include "trireme/comm/wrappers/recorded_backend.h"

namespace desync_test {

// Backends that compare nothing by themselves, checked and recorded from outside.
using namespace trireme;
using namespace trireme::detail;

namespace {

using trireme::testing::has;

// Ranks of this process that meet at every call and believe each other: a broadcast that meets an
// all_reduce goes on with whatever bytes there are, as MPI or Gloo would.
struct Place {
  explicit Place(int size) : size(size), bytes(static_cast<size_t>(size)) {}
  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> bytes;
  int came = 0;
  uint64_t round = 0;
  std::string aborted;

  std::vector<std::string> meet(int rank, std::string mine) {
    std::unique_lock lock(mutex);
    if (!aborted.empty()) throw PeerLost(aborted);
    bytes[static_cast<size_t>(rank)] = std::move(mine);
    const uint64_t now = round;
    if (++came == size) {
      came = 0;
      ++round;
      met = bytes;
      changed.notify_all();
    } else {
      const bool met_in_time = changed.wait_for(lock, std::chrono::seconds(5),
                                                [&] { return round != now || !aborted.empty(); });
      if (round == now && !aborted.empty()) throw PeerLost(aborted);
      if (!met_in_time) throw Timeout("nobody came");
    }
    return met;
  }
  std::vector<std::string> met;
};

class TrustingBackend final : public Backend {
 public:
  TrustingBackend(std::shared_ptr<Place> place, int rank)
      : Backend(rank, place->size, std::chrono::seconds(5)), place_(std::move(place)) {}
  const std::string& name() const override {
    static const std::string name = "trusting";
    return name;
  }
  bool supports(Collective, at::ScalarType, at::DeviceType) const override { return true; }
  bool supports(ReduceOp, at::ScalarType) const override { return true; }
  at::Tensor empty(at::IntArrayRef sizes, at::TensorOptions options) override {
    return at::empty(sizes, options);
  }
  Token post(const trireme::detail::Call& c) override {
    if (c.facts().is_message)
      return {++number_, 0, static_cast<uint8_t>(c.op == Collective::send ? 1 : 2)};
    if (c.op != Collective::all_gather) return call(c.counted() ? *c.counted() : at::Tensor());
    const auto all = place_->meet(rank(), bytes_of(*c.input));
    auto* to = static_cast<char*>(c.output->data_ptr());
    for (const std::string& part : all) to = std::copy(part.begin(), part.end(), to);
    return {};
  }
  void wait(Token, Duration) override {}
  bool completed(Token) override { return true; }
  int source(Token) override { return 0; }
  int64_t shared_bytes() const override { return 0; }
  void progress() override {}
  void abort(const std::string& why, AbortKind) override {
    std::lock_guard lock(place_->mutex);
    place_->aborted = why;
    place_->changed.notify_all();
  }
  void when_complete(Token, std::function<void()> done) override { done(); }
  std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                    const std::string& name) override {
    static std::mutex mutex;
    static std::map<std::pair<Place*, std::string>, std::shared_ptr<Place>> places;
    const auto rank_there = std::find(members.begin(), members.end(), rank()) - members.begin();
    std::lock_guard lock(mutex);
    auto& place = places[{place_.get(), name}];
    if (!place) place = std::make_shared<Place>(static_cast<int>(members.size()));
    return std::make_shared<TrustingBackend>(place, static_cast<int>(rank_there));
  }

 private:
  static std::string bytes_of(const at::Tensor& t) {
    return {static_cast<const char*>(t.data_ptr()), t.nbytes()};
  }
  Token call(const at::Tensor& t) {
    place_->meet(rank(), t.defined() ? bytes_of(t) : "");
    return {++number_, 0, 3};
  }
  std::shared_ptr<Place> place_;
  uint64_t number_ = 0;
};

using Make = std::function<std::shared_ptr<Backend>(std::shared_ptr<Backend>)>;

/// What each rank threw, as "Kind: text"; "" where nothing.
std::vector<std::string> as_ranks(int n, const Make& make, const std::function<void(Group)>& body) {
  auto place = std::make_shared<Place>(n);
  std::vector<std::string> outcomes(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      ThreadRankScope label(r);
      try {
        Group group(make(std::make_shared<TrustingBackend>(place, r)));
        body(group);
      } catch (const Error& e) {
        outcomes[static_cast<size_t>(r)] = std::string(e.kind()) + ": " + e.what();
      } catch (const std::exception& e) {
        outcomes[static_cast<size_t>(r)] = e.what();
      }
    });
  for (auto& t : threads) t.join();
  return outcomes;
}

Make checked(const std::string& how) {
  return [how](std::shared_ptr<Backend> b) { return checked_backend(b, how, "world"); };
}

struct Wrong {
  const char* name;
  std::function<void(Group, bool)> call;  // the odd rank's, or the others'
  const char *others, *odd;
};

std::vector<Wrong> wrongs() {
  using at::ones;
  return {
      {"operation",
       [](Group g, bool odd) { odd ? g.broadcast(ones(8), 0) : g.all_reduce(ones(8)); },
       "all_reduce(float32[8], sum)", "broadcast(float32[8], root 0)"},
      {"dtype", [](Group g, bool odd) { g.all_reduce(ones(8, odd ? at::kInt : at::kFloat)); },
       "float32[8]", "int32[8]"},
      {"count", [](Group g, bool odd) { g.all_reduce(ones(odd ? 7 : 8)); }, "[8]", "[7]"},
      {"root", [](Group g, bool odd) { g.broadcast(ones(8), odd); }, "root 0", "root 1"},
      {"reduction",
       [](Group g, bool odd) { g.all_reduce(ones(8), odd ? ReduceOp::max : ReduceOp::sum); }, "sum",
       "max"},
      {"barrier",
       [](Group g, bool odd) {
         if (odd)
           g.barrier();
         else
           g.all_reduce(ones(8));
       },
       "all_reduce(", "barrier"},
      {"missing",
       [](Group g, bool odd) {
         if (!odd) g.all_reduce(ones(8));
         g.broadcast(ones(8), 0);
       },
       "all_reduce(", "broadcast("},
  };
}

/// What is wrong is named, on all ranks, at the first wrong call.
void expect_named(const Wrong& w, const std::vector<std::string>& outcomes, const char* call) {
  for (const std::string& o : outcomes) {
    EXPECT_EQ(o.rfind(std::string("Mismatch: ") + call, 0), 0u) << w.name << ": " << o;
    EXPECT_TRUE(has(o, "rank 0 called ") && has(o, ", but rank 1 called ")) << w.name << ": " << o;
    EXPECT_TRUE(has(o, w.others) && has(o, w.odd)) << w.name << ": " << o;
    EXPECT_TRUE(has(o, "tests/comm/desync_test.cc:")) << w.name << ": " << o;
  }
}

}  // namespace

TEST(comm_desync, check_each_stops_the_first_wrong_call_on_all_ranks) {
  for (const Wrong& w : wrongs())
    expect_named(w,
                 as_ranks(3, checked("each"),
                          [&](Group g) {
                            g.barrier();
                            w.call(g, g.rank() == 1);
                          }),
                 "call 2 of group world: ");
}

TEST(comm_desync, check_hash_names_the_wrong_call_after_at_most_64) {
  for (const Wrong& w : wrongs()) {
    if (std::string(w.name) == "missing") continue;  // ranks then call the check at other times
    expect_named(w,
                 as_ranks(2, checked("hash"),
                          [&](Group g) {
                            for (int i = 0; i < 70; ++i) g.barrier();
                            w.call(g, g.rank() == 1);
                            for (int i = 0; i < 64; ++i) g.barrier();
                          }),
                 "call 71 of group world: ");
  }
}

TEST(comm_desync, the_first_call_that_two_ranks_have_kept_and_that_differs_is_found) {
  using trireme::detail::first_difference;
  const trireme::detail::RecentCalls a{5, {13, 14, 15}, {"four", "five"}},
      b{4, {11, 12, 13, 24}, {}}, ahead{9, {18, 19}, {}}, none{};
  EXPECT_EQ(first_difference(a, b), 4u);
  EXPECT_EQ(first_difference(b, a), 4u);
  EXPECT_EQ(first_difference(a, a), std::nullopt);
  EXPECT_EQ(first_difference(a, ahead), std::nullopt);  // nothing that both kept
  EXPECT_EQ(first_difference(a, none), std::nullopt);
  EXPECT_EQ(a.text(5), "five");
  EXPECT_EQ(a.text(4), "four");
  EXPECT_EQ(a.text(3), "");
  EXPECT_EQ(a.text(6), "");
}

TEST(comm_desync, programs_that_are_right_are_left_alone) {
  for (const char* how : {"each", "hash", "off"}) {
    const auto outcomes = as_ranks(3, checked(how), [&](Group g) {
      for (int i = 0; i < 200; ++i) {
        at::Tensor in = at::full({2}, g.rank(), at::kFloat), out = at::empty({6});
        g.all_gather_into_tensor(out, in).wait();
        trireme::check<Error>(out[4].item<float>() == 2, "wrong data");
        g.all_reduce(at::ones(i + 1)).wait();
      }
      Group pair = g.new_group({0, 2});
      if (pair) pair.barrier();
    });
    for (auto& o : outcomes) EXPECT_EQ(o, "") << how;
  }
}

TEST(comm_desync, a_group_of_some_ranks_is_checked_too) {
  const auto outcomes = as_ranks(3, checked("each"), [&](Group g) {
    Group pair = g.new_group({0, 2});
    if (pair) pair.all_reduce(at::ones(pair.rank() + 1));
  });
  EXPECT_EQ(outcomes[1], "");
  for (int r : {0, 2})
    EXPECT_TRUE(has(outcomes[size_t(r)], "Mismatch: call 1 of group world/") &&
                has(outcomes[size_t(r)], "float32[2]"))
        << outcomes[size_t(r)];
}

TEST(comm_desync, an_unknown_word_for_check_is_refused) {
  EXPECT_THROW(checked_backend(nullptr, "always", "world"), UsageError);
}

TEST(comm_desync, gloo_with_check_each_raises_on_all_ranks) {
  const auto present = present_backends();
  if (std::find(present.begin(), present.end(), "gloo") == present.end())
    GTEST_SKIP() << "this build has no gloo";
  for (const Wrong& w : wrongs()) {
    std::mutex mutex;
    std::vector<std::string> outcomes;
    EXPECT_THROW(
        run_threads(3,
                    [&](Group g) {
                      try {
                        g.barrier();
                        w.call(g, g.rank() == 1);
                      } catch (const Error& e) {
                        std::lock_guard lock(mutex);
                        outcomes.push_back(std::string(e.kind()) + ": " + e.what());
                        throw;
                      }
                    },
                    {.timeout = std::chrono::seconds(10), .backend = "gloo", .check = "each"}),
        Mismatch)
        << w.name;
    EXPECT_EQ(outcomes.size(), 3u);
    expect_named(w, outcomes, "call 2 of group world: ");
  }
}

// ---- the recorder in front of a backend that has none

TEST(comm_desync, a_backend_without_a_recorder_gets_one_and_its_dumps_name_the_rank) {
  PrivateFolder folder;
  ::setenv("TRIREME_FLIGHT_DIR", folder.path().c_str(), 1);
  const auto outcomes = as_ranks(
      3,
      [](std::shared_ptr<Backend> b) {
        const int rank = b->rank();
        return recorded_backend(checked_backend(b, "each", "world"), "world", rank);
      },
      [](Group g) {
        g.barrier();
        g.all_reduce(at::ones(g.rank() == 1 ? 9 : 8)).wait();
      });
  ::unsetenv("TRIREME_FLIGHT_DIR");
  const auto all = flight::read_dumps(folder.path());
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].backend, "trusting");
  EXPECT_TRUE(has(all[0].why, "call 2 of group world")) << all[0].why;
  EXPECT_EQ(all[0].calls[0].state, flight::CallState::done);
  const auto v = flight::judge(all);
  EXPECT_TRUE(has(v.sentence, "rank 1 called all_reduce(float32[9], sum) at ") &&
              has(v.sentence, " as its call 2 of group world where ranks 0 and 2 called "))
      << v.sentence;
}

TEST(comm_desync, the_recorder_sees_every_call_and_message_and_their_end) {
  PrivateFolder folder;
  as_ranks(
      1, [](std::shared_ptr<Backend> b) { return recorded_backend(b, "world", 0); },
      [&](Group g) {
        g.all_reduce(at::ones(3, at::kBFloat16)).wait();
        g.reduce(at::ones(2), 0);
        const at::Tensor message = at::ones(4);
        const auto post = [&](Collective op, int tag) {
          return g.get()->post({.op = op,
                                .tag = tag,
                                .input = &message,
                                .output = &message,
                                .site = CallSite::here()});
        };
        post(Collective::send, 5);
        const Token t = post(Collective::recv, 6);
        EXPECT_TRUE(g.get()->completed(t));
        EXPECT_EQ(flight_dump(folder.path()), 1);
      });
  const auto h = flight::read_dumps(folder.path())[0];
  ASSERT_EQ(h.calls.size(), 2u);
  EXPECT_TRUE(has(flight::text_of(h.calls[0]), "all_reduce(bfloat16[3], sum) at tests/comm/"));
  EXPECT_EQ(h.calls[0].state, flight::CallState::done);
  EXPECT_EQ(h.calls[1].state, flight::CallState::posted);
  ASSERT_EQ(h.pairs.size(), 2u);
  EXPECT_EQ(h.pairs[0].state, flight::CallState::posted);
  EXPECT_EQ(h.pairs[1].state, flight::CallState::done);
  EXPECT_EQ(h.pairs[1].tag, 6);
}

}  // namespace desync_test
