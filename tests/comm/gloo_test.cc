// SPDX-License-Identifier: Apache-2.0
// What conformance_test.cc does not ask of gloo: sizes that take several segments, numbers equal to
// local's, and what happens when ranks are late or call different things.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdlib>
#include <thread>

#include "tests/support/backends.h"
#include "tests/support/refusals.h"
#include "trireme/base/check.h"
#include "trireme/base/clock.h"
#include "trireme/comm/start/run.h"
#include "trireme/store/memory_store.h"

namespace gloo_test {

using namespace trireme;
using namespace std::chrono_literals;
using trireme::testing::has;

namespace {

class comm_gloo : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!trireme::testing::present("gloo")) GTEST_SKIP() << "this build has no gloo";
  }
};

void as_threads(int n, const std::function<void(Group)>& fn, Duration timeout = 20s) {
  run_threads(n, fn, ThreadOptions{timeout, "gloo"});
}

void equal(const at::Tensor& got, const at::Tensor& want, const char* what) {
  trireme::check<Error>(got.equal(want), "{}: wrong result", what);
}

template <class E>
std::string text_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  fail<Error>("nothing thrown");
}

}  // namespace

TEST_F(comm_gloo, segments_give_the_bits_of_the_local_backend) {
  // Sizes around one and several segments of each of the algorithms.
  const std::vector<int64_t> sizes{1, 7, 2049, 262144 + 3, 2 * 262144 * 3 + 5};
  for (int n : {2, 3, 4})
    for (auto dtype : {at::kFloat, at::kBFloat16}) {
      std::vector<std::vector<at::Tensor>> local(static_cast<size_t>(n));
      auto body = [&](Group g, bool compare) {
        auto& mine = local[static_cast<size_t>(g.rank())];
        size_t k = 0;
        auto next = [&](const at::Tensor& t) {
          if (!compare)
            mine.push_back(t.clone());
          else
            equal(t, mine.at(k++), "gloo, as local");
        };
        for (int64_t size : sizes) {
          at::Tensor x = (at::arange(size, at::kFloat).add(g.rank() * 0.37).sin() * 3).to(dtype);
          at::Tensor a = x.clone(), b = x.clone(), c = x.clone(), s = at::empty({size}, dtype);
          g.all_reduce(a).wait();
          next(a);
          g.all_reduce(b, ReduceOp::avg).wait();
          next(b);
          g.reduce(c, n - 1).wait();
          next(c);
          g.reduce_scatter_tensor(s, x.repeat({n})).wait();
          next(s);
          g.broadcast(x, n / 2).wait();
          next(x);
        }
      };
      run_threads(n, [&](Group g) { body(g, false); });
      as_threads(n, [&](Group g) { body(g, true); });
    }
}

// More segments than are under way at a time: places are used again.
TEST_F(comm_gloo, many_segments_give_the_sum_to_all_to_one_and_to_each_its_part) {
  constexpr int64_t kCount = (int64_t{3} << 20) / 4 * 10 + 7;
  as_threads(3, [](Group g) {
    const at::Tensor x = at::arange(kCount, at::kInt).add(g.rank());
    const at::Tensor sum = at::arange(kCount, at::kInt).mul(3).add(3);
    at::Tensor all = x.clone(), one = x.clone(), part = at::empty({kCount / 3}, at::kInt);
    Work pending[] = {g.all_reduce(all), g.reduce(one, 1),
                      g.reduce_scatter_tensor(part, x.narrow(0, 0, kCount / 3 * 3))};
    for (Work& w : pending) w.wait();
    equal(all, sum, "all_reduce");
    equal(one, g.rank() == 1 ? sum : x, "reduce");
    equal(part, sum.narrow(0, g.rank() * (kCount / 3), kCount / 3), "reduce_scatter");
  });
}

TEST_F(comm_gloo, messages_that_nobody_waits_for_arrive_and_are_let_go_of) {
  as_threads(2, [](Group g) {
    constexpr int kMany = 150;
    if (g.rank() == 0) {
      at::Tensor payload = at::ones({100});
      for (int i = 0; i < kMany; ++i) g.isend(payload, 1, i % 3);
      g.barrier();
      g.isend(payload, 1, 7);  // the last one, and then it leaves
      g.progress();
      // Held by the calls that are not let go of yet.
      check<Error>(payload.use_count() < 10, "{} messages are held", payload.use_count());
    } else {
      at::Tensor t = at::empty({100});
      for (int tag : {2, 0, 1})
        for (int i = 0; i < kMany / 3; ++i) g.recv(t, 0, tag).wait();
      g.barrier();
      g.recv(t, 0, 7).wait();
      equal(t, at::ones({100}), "recv");
    }
  });
}

TEST_F(comm_gloo, polling_tells_when_a_message_is_there) {
  as_threads(2, [](Group g) {
    at::Tensor t = at::full({1000}, g.rank(), at::kLong);
    if (g.rank() == 0) {
      at::Tensor got = at::empty({2000}, at::kLong).slice(0, 0, 2000, 2);
      Work w = g.irecv(got, kAnySource, 3);
      check<Error>(!w.is_completed(), "complete before it was sent");
      g.barrier();
      const auto deadline = Deadline::after(10s);
      while (!w.is_completed() && !deadline.expired()) std::this_thread::yield();
      check<Error>(w.source() == 1, "source");
      equal(got.contiguous(), at::ones({1000}, at::kLong), "recv into a strided tensor");
    } else {
      g.barrier();
      g.send(t, 0, 3).wait();
    }
  });
}

TEST_F(comm_gloo, subgroups_overlap_and_outlive_their_parent) {
  as_threads(4, [](Group g) {
    Group half = g.split(g.rank() % 2), row = g.new_group({3, 0, 2});
    std::vector<Work> works;
    at::Tensor a = at::full({300000}, g.rank()), b = at::full({5}, g.rank());
    works.push_back(half.all_reduce(a));
    if (row) works.push_back(row.all_reduce(b));
    for (Work& w : works) w.wait();
    equal(a, at::full({300000}, g.rank() % 2 ? 4.0f : 2.0f), "half");
    if (row) equal(b, at::full({5}, 5.0f), "row");
    check<Error>(bool(row) == (g.rank() != 1), "membership");
    if (row) check<Error>(row.world_ranks() == std::vector<int>({3, 0, 2}), "world ranks");
    g = Group();
    half.barrier();
    Group alone = half.new_group({half.rank() == 0 ? 0 : 0});
    if (alone) {
      at::Tensor c = at::ones({3});
      alone.all_reduce(c).wait();
      equal(c, at::ones({3}), "a group of one");
    }
  });
}

TEST_F(comm_gloo, calls_that_differ_are_a_mismatch_that_names_both) {
  std::string texts[2];
  const auto start = Clock::now();
  as_threads(2, [&](Group g) {
    at::Tensor t = at::ones({g.rank() == 0 ? 1000 : 2000});
    g.barrier();
    texts[g.rank()] = text_of<Mismatch>([&] { g.all_reduce(t).wait(); });
  });
  EXPECT_LT(seconds_since(start), 10);
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_TRUE(
      has(texts[0], "call 2 of group world: rank 0 called all_reduce(float32[1000], sum) at ") &&
      has(texts[0], "rank 1 called all_reduce(float32[2000], sum) at "))
      << texts[0];
}

TEST_F(comm_gloo, a_rank_that_does_not_come_is_named_by_the_timeout) {
  std::string texts[3];
  as_threads(
      3,
      [&](Group g) {
        g.barrier();
        if (g.rank() == 1) {  // comes when the others have given up
          const auto deadline = Deadline::after(10s);
          while (texts[0].empty() && !deadline.expired()) {
            std::this_thread::sleep_for(10ms);
            try {
              g.progress();
            } catch (const Timeout&) {
            }
          }
        }
        texts[g.rank()] = text_of<Timeout>([&] { g.barrier(); });
        // It stays so.
        EXPECT_EQ(text_of<Timeout>([&] { g.barrier(); }), texts[g.rank()]);
      },
      900ms);
  EXPECT_TRUE(has(texts[0], "call 2, barrier at ") && has(texts[0], "rank 1 did not arrive within"))
      << texts[0];
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[0], texts[2]);
}

TEST_F(comm_gloo, a_recv_that_gets_nothing_times_out_and_another_group_can_be_built) {
  auto store = std::make_shared<MemoryStore>();
  std::vector<std::thread> ranks;
  for (int r = 0; r < 2; ++r)
    ranks.emplace_back([&, r] {
      for (std::string name : {"first", "second"}) {
        trireme::detail::BackendSpec spec;
        spec.rank = r;
        spec.size = 2;
        spec.timeout = 20s;
        spec.store = store;
        spec.name = name;
        Group g(trireme::detail::make_backend("gloo", spec));
        at::Tensor t = at::ones({10});
        g.all_reduce(t).wait();
        EXPECT_EQ(t[0].item<float>(), 2);
        if (name == "second") continue;
        if (r == 0) {
          const std::string text = text_of<Timeout>([&] { g.recv(t, 1, 4).wait(200ms); });
          EXPECT_TRUE(has(text, "recv from rank 1, recv(float32[10]) at ")) << text;
        } else {
          text_of<Timeout>([&] { g.barrier(); });
        }
      }
    });
  for (auto& t : ranks) t.join();
}

// What ends a wait must not wait for the thread that moves the bytes.
TEST_F(comm_gloo, a_recv_that_is_late_while_a_collective_moves_bytes_is_a_timeout) {
  const auto start = Clock::now();
  as_threads(2, [](Group g) {
    at::Tensor big = at::ones({8 << 20}), t = at::ones({10});
    g.barrier();
    Work moving = g.all_reduce(big);
    text_of<Timeout>([&] { g.recv(t, 1 - g.rank(), 4).wait(3ms); });
    text_of<Timeout>([&] { g.barrier(); });
  });
  EXPECT_LT(seconds_since(start), 10);
}

TEST_F(comm_gloo, a_rank_that_throws_is_told_to_the_others_with_its_words) {
  std::string texts[3];
  EXPECT_THROW(as_threads(3,
                          [&](Group g) {
                            g.barrier();
                            if (g.rank() == 2) throw NumericError("loss is nan");
                            texts[g.rank()] = text_of<PeerLost>([&] { g.barrier(); });
                          }),
               NumericError);
  EXPECT_EQ(texts[0], "rank 2 failed after call 1: loss is nan");
  EXPECT_EQ(texts[1], texts[0]);
}

TEST_F(comm_gloo, a_rank_that_left_is_a_mismatch_for_who_needs_it) {
  as_threads(2, [](Group g) {
    g.barrier();
    if (g.rank() == 1) return;
    const std::string text = text_of<Mismatch>([&] { g.barrier(); });
    EXPECT_TRUE(has(text, "rank 1 left while rank 0 waits in call 2, barrier at ")) << text;
  });
}

TEST_F(comm_gloo, a_tag_out_of_range_and_a_backend_that_is_not_there_are_refused) {
  as_threads(2, [](Group g) {
    at::Tensor t = at::ones({2});
    constexpr int kLast = (1 << 16) - 17;
    for (int tag : {kLast + 1, 1 << 16, 1 << 29, 1 << 30, 2147483647}) {
      const std::string text = text_of<UsageError>([&] { g.send(t, 1 - g.rank(), tag); });
      EXPECT_TRUE(has(text, "the gloo backend takes tags up to 65519")) << text;
      text_of<UsageError>([&] { g.recv(t, 1 - g.rank(), tag); });
    }
    text_of<UsageError>([&] { g.all_reduce(at::ones({2}, at::kBool)); });
    EXPECT_FALSE(g.supports(Collective::all_reduce, at::kFloat, at::kCUDA));
    EXPECT_FALSE(g.supports(ReduceOp::avg, at::kInt));
    // The largest tag is as good as a small one.
    Work w = g.irecv(t, 1 - g.rank(), kLast);
    g.send(at::full({2}, 3.0f), 1 - g.rank(), kLast).wait();
    w.wait();
    equal(t, at::full({2}, 3.0f), "recv");
  });
  EXPECT_THROW(run_threads(
                   2, [](Group) {}, ThreadOptions{20s, "carrier-pigeon"}),
               UsageError);
  EXPECT_THROW(trireme::detail::make_backend("carrier-pigeon", {}), UsageError);
}

}  // namespace gloo_test
