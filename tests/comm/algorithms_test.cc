// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/algorithms.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/comm/registry.h"
#include "trireme/comm/start/run.h"

namespace algorithms_test {

using namespace trireme;

namespace {

// Sums of these differ in float32 with the order in which they are added.
at::Tensor of_rank(int rank, int64_t count, at::ScalarType t) {
  at::Tensor x = at::arange(count, at::kDouble).mul(0.37).add(rank * 1.7).sin();
  x = x * (at::arange(count, at::kDouble).remainder(7) * 3 + 1).pow(rank % 3);
  if (!at::isFloatingType(t) && !at::isComplexType(t)) x = (x * 20).abs().remainder(100);
  return x.to(t);
}

std::vector<int> two_hosts(int n) {
  std::vector<int> hosts;
  for (int r = 0; r < n; ++r) hosts.push_back(r * 2 / n);
  return hosts;
}

void same(const at::Tensor& got, const at::Tensor& want, Algorithm a, int64_t count) {
  trireme::check<Error>(got.equal(want), "{} of {} × {}: other bits than all_reduce", name_of(a),
                        count, c10::toString(got.scalar_type()));
}

template <class F>
void refuses(F f) {
  try {
    f();
  } catch (const UsageError&) {
    return;
  }
  fail<Error>("not refused");
}

}  // namespace

TEST(comm_algorithms, sums_are_those_of_all_reduce_and_so_are_the_bits_where_the_order_is_kept) {
  for (int n = 1; n <= 8; ++n)
    run_threads(n, [n](Group g) {
      for (Algorithm a : kAlgorithms)
        for (bool hosts : {false, true})
          for (int64_t count :
               {int64_t{0}, int64_t{1}, int64_t{n - 1}, int64_t{2 * n + 1}, int64_t{1000}})
            for (auto t : {at::kFloat, at::kBFloat16, at::kDouble}) {
              AlgorithmOptions options;
              if (hosts) options.hosts = two_hosts(n);
              at::Tensor want = of_rank(g.rank(), count, t), got = want.clone();
              g.all_reduce(want).wait();
              all_reduce_with(g, got, ReduceOp::sum, a, options);
              if (keeps_order(a, options.hosts))
                same(got, want, a, count);
              else
                trireme::check<Error>(
                    got.to(at::kDouble)
                        .allclose(want.to(at::kDouble), t == at::kBFloat16 ? 0.1 : 1e-4,
                                  t == at::kBFloat16 ? 2 : 1e-3),
                    "{} of {}: not the sum", name_of(a), count);
            }
    });
}

TEST(comm_algorithms, every_reduction_and_dtype) {
  for (int n : {1, 2, 3, 5})
    run_threads(n, [](Group g) {
      for (Algorithm a : kAlgorithms)
        for (auto t : {at::kFloat, at::kHalf, at::kLong, at::kInt, at::kShort, at::kChar, at::kByte,
                       at::kBool, at::kComplexFloat})
          for (ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max,
                              ReduceOp::product, ReduceOp::band, ReduceOp::bor, ReduceOp::bxor}) {
            // Small integers, which no dtype rounds in any order.
            at::Tensor want = of_rank(g.rank(), 41, at::kDouble).mul(4).round().remainder(5).to(t);
            at::Tensor got = want.clone();
            if (!g.supports(op, t)) {
              refuses([&] { all_reduce_with(g, got, op, a); });
              continue;
            }
            g.all_reduce(want, op).wait();
            all_reduce_with(g, got, op, a);
            same(got, want, a, 41);
          }
    });
}

TEST(comm_algorithms, gloo_carries_them_as_well) {
  const auto present = trireme::detail::present_backends();
  if (std::find(present.begin(), present.end(), "gloo") == present.end())
    GTEST_SKIP() << "no gloo in this build";
  ThreadOptions options;
  options.backend = "gloo";
  std::vector<at::Tensor> of_local;
  run_threads(3, [&](Group g) {
    at::Tensor t = of_rank(g.rank(), 1001, at::kBFloat16);
    g.all_reduce(t).wait();
    if (g.rank() == 0) of_local.push_back(t);
  });
  run_threads(
      3,
      [&](Group g) {
        for (Algorithm a : kAlgorithms) {
          at::Tensor t = of_rank(g.rank(), 1001, at::kBFloat16);
          const auto traffic = all_reduce_with(g, t, ReduceOp::sum, a);
          trireme::check<Error>(traffic.rounds > 0, "rounds");
          // One order, whoever carries the bytes.
          if (keeps_order(a, {})) same(t, of_local[0], a, 1001);
        }
      },
      options);
}

TEST(comm_algorithms, every_rank_gets_the_same_bits_from_every_algorithm) {
  run_threads(7, [](Group g) {
    for (Algorithm a : kAlgorithms) {
      at::Tensor t = of_rank(g.rank(), 333, at::kFloat), first = at::empty_like(t);
      all_reduce_with(g, t, ReduceOp::sum, a);
      first.copy_(t);
      g.broadcast(first, 0).wait();
      same(t, first, a, 333);
    }
  });
}

TEST(comm_algorithms, counters_show_what_each_moves) {
  for (int n : {1, 2, 4, 8})
    run_threads(n, [n](Group g) {
      const int64_t count = 64 * 12;
      const auto s = static_cast<uint64_t>(n), bytes = uint64_t(count) * 4;
      for (Algorithm a : {Algorithm::ring, Algorithm::halving_doubling, Algorithm::direct}) {
        at::Tensor t = of_rank(g.rank(), count, at::kFloat);
        const PlanTraffic traffic = all_reduce_with(g, t, ReduceOp::sum, a);
        trireme::check<Error>(traffic.sent_bytes == 2 * (s - 1) * bytes / s &&
                                  traffic.received_bytes == traffic.sent_bytes,
                              "{} of {} ranks sent {} bytes", name_of(a), n, traffic.sent_bytes);
      }
      at::Tensor half = of_rank(g.rank(), count, at::kHalf);
      const auto narrow = all_reduce_with(g, half, ReduceOp::sum, Algorithm::ring);
      trireme::check<Error>(narrow.sent_bytes == (s - 1) * bytes / s, "a ring of halves");
      trireme::check<Error>(narrow.messages == 2 * (s - 1) && narrow.rounds == 2 * (n - 1),
                            "rounds of a ring");
    });
}

TEST(comm_algorithms, strided_tensors_and_premul_sum) {
  run_threads(3, [](Group g) {
    for (Algorithm a : kAlgorithms) {
      at::Tensor want = of_rank(g.rank(), 60, at::kDouble).view({20, 3});
      at::Tensor wide = at::full({20, 6}, -5.0, at::kDouble);
      at::Tensor got = wide.narrow(1, 2, 3);
      got.copy_(want);
      g.all_reduce(want, premul_sum(0.5)).wait();
      all_reduce_with(g, got, premul_sum(0.5), a);
      trireme::check<Error>(got.allclose(want), "{}: strided", name_of(a));
      trireme::check<Error>(wide.narrow(1, 0, 2).eq(-5).all().item<bool>(), "around it");
      at::Tensor half = of_rank(g.rank(), 9, at::kHalf), half_want = half.clone();
      g.all_reduce(half_want, premul_sum(0.3)).wait();
      all_reduce_with(g, half, premul_sum(0.3), a);
      trireme::check<Error>(half.to(at::kFloat).allclose(half_want.to(at::kFloat), 0.02, 0.05),
                            "{}: half", name_of(a));
      if (keeps_order(a, {})) same(half, half_want, a, 9);
    }
  });
}

TEST(comm_algorithms, wrong_arguments_are_refused_and_the_group_lives) {
  run_threads(2, [](Group g) {
    refuses([&] { all_reduce_with(g, at::Tensor(), ReduceOp::sum, Algorithm::ring); });
    refuses([&] {
      AlgorithmOptions options;
      options.hosts = {0, 0, 0};
      all_reduce_with(g, at::ones({4}), ReduceOp::sum, Algorithm::two_level, options);
    });
    refuses([&] {
      run_plan(g, make_plan(Algorithm::ring, g.rank(), 2, 4), at::ones({2, 2}), ReduceOp::sum, 1);
    });
    at::Tensor t = at::ones({4});
    all_reduce_with(g, t, ReduceOp::sum, Algorithm::ring);
    trireme::check<Error>(t.eq(2).all().item<bool>(), "after refusals");
  });
  Group none;
  EXPECT_THROW(all_reduce_with(none, at::ones({1}), ReduceOp::sum, Algorithm::ring), UsageError);
}

TEST(comm_algorithms, a_rank_that_leaves_in_the_middle_is_an_error_on_the_others) {
  try {
    run_threads(
        4,
        [](Group g) {
          at::Tensor t = at::ones({1000});
          all_reduce_with(g, t, ReduceOp::sum, Algorithm::ring);
          if (g.rank() == 2) throw NumericError("rank 2 has had enough");
          all_reduce_with(g, t, ReduceOp::sum, Algorithm::ring);
        },
        std::chrono::seconds(20));
    FAIL() << "nothing thrown";
  } catch (const NumericError& e) {
    EXPECT_STREQ(e.what(), "rank 2 has had enough");
  }
}

}  // namespace algorithms_test
