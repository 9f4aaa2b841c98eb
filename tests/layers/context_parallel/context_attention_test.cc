// SPDX-License-Identifier: Apache-2.0
// Attention over positions that ranks divide, against one rank that has them all.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>

#include "tests/support/refusals.h"
#include "trireme/base/check.h"
#include "trireme/comm/start/run.h"
#include "trireme/layers/attention.h"
#include "trireme/layers/context_parallel/context_parallel.h"
#include "trireme/tensor/recompute/recompute.h"

namespace context_attention_test {

using namespace trireme;

namespace {

constexpr ContextMethod kMethods[] = {ContextMethod::ring, ContextMethod::gather,
                                      ContextMethod::all_to_all};

at::Tensor numbers(at::IntArrayRef sizes, double phase) {
  int64_t n = 1;
  for (const auto size : sizes) n *= size;
  return at::arange(n, at::kDouble).mul(0.37).add(phase).sin().mul(1.5).view(sizes);
}

// Documents of many lengths, which begin elsewhere in each row.
at::Tensor documents(int64_t rows, int64_t time, int64_t longest) {
  if (longest == 0) return {};
  at::Tensor starts = at::zeros({rows, time}, at::kLong);
  for (int64_t b = 0; b < rows; ++b)
    for (int64_t begin = 0, n = 0; begin < time; begin += n) {
      n = std::min(time - begin, 1 + (begin * 7 + b * 5) % longest);
      starts[b].narrow(0, begin, n).fill_(begin);
    }
  return starts;
}

struct Shape {
  int64_t time, heads = 4, kv_heads = 4, rows = 2, width = 3;
  int64_t longest = 0;
};

struct Whole {
  Whole(const Shape& s, at::ScalarType type) : starts(documents(s.rows, s.time, s.longest)) {
    const auto of = [&](int64_t heads, double phase) {
      return numbers({s.rows, s.time, heads, s.width}, phase).to(type).set_requires_grad(true);
    };
    q = of(s.heads, 1), k = of(s.kv_heads, 2), v = of(s.kv_heads, 3);
    g = numbers(q.sizes(), 4).to(type);
    out = attention(q, k, v, {0, 0, starts}).out;
    out.backward(g);
  }
  at::Tensor starts, q, k, v, g, out;
};

// ‖a - b‖ against the size of b.
void near(const at::Tensor& a, const at::Tensor& b, double tolerance, const std::string& what) {
  const double off = a.to(at::kDouble).sub(b.to(at::kDouble)).norm().item<double>(),
               of = b.to(at::kDouble).norm().item<double>();
  trireme::check<Error>(off <= tolerance * (of + 1e-30), "{}: off by {} of {}", what, off, of);
}

void compare(const Shape& s, int ranks, ContextParallel::Options options, at::ScalarType type,
             double tolerance, bool recomputed = false) {
  const Whole whole(s, type);
  run_threads(ranks, [&](Group g) {
    const ContextParallel cp(g, options);
    const auto own = [&](const at::Tensor& t) {
      return cp.own(t.detach()).clone().set_requires_grad(t.requires_grad());
    };
    const at::Tensor q = own(whole.q), k = own(whole.k), v = own(whole.v);
    const auto attend = [&](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> {
      return {context_attention(in[0], in[1], in[2], whole.starts, cp, s.time)};
    };
    const at::Tensor out = recomputed ? recompute(attend, {q, k, v}, {})[0] : attend({q, k, v})[0];
    near(out, own(whole.out), tolerance, "out");
    out.backward(own(whole.g));
    near(q.grad(), own(whole.q.grad()), tolerance, "dq");
    near(k.grad(), own(whole.k.grad()), tolerance, "dk");
    near(v.grad(), own(whole.v.grad()), tolerance, "dv");
  });
}

}  // namespace

TEST(layers_context_parallel_context_attention, is_exact_for_every_method_length_and_rank) {
  int compared = 0;
  for (const auto method : kMethods)
    for (const auto balance : {ContextBalance::head_tail, ContextBalance::none})
      for (const int ranks : {1, 2, 3, 4})
        for (const int64_t time : {4, 5, 7, 16, 67, 150})
          for (const int64_t longest : {0, 1, 6, 90}) {
            const Shape s{.time = time, .heads = 12, .kv_heads = 12, .longest = longest};
            if (longest && ((time + longest + ranks) % 3 == 0)) continue;  // a part of the pairs
            EXPECT_NO_THROW(compare(s, ranks, {method, balance}, at::kDouble, 1e-12))
                << static_cast<int>(method) << " " << static_cast<int>(balance) << ", " << ranks
                << " ranks, " << time << " places, documents of " << longest;
            ++compared;
          }
  EXPECT_GT(compared, 300);
}

TEST(layers_context_parallel_context_attention, in_float32_it_is_to_1e_6_and_bfloat16_to_its_own) {
  for (const auto method : kMethods)
    for (const int64_t longest : {0, 50}) {
      const Shape s{.time = 203, .heads = 6, .kv_heads = 3, .width = 16, .longest = longest};
      EXPECT_NO_THROW(compare(s, 3, {.method = method}, at::kFloat, 1e-6));
      EXPECT_NO_THROW(compare(s, 3, {.method = method}, at::kBFloat16, 2e-2));
    }
}

TEST(layers_context_parallel_context_attention,
     key_value_heads_may_be_fewer_than_query_heads_or_ranks) {
  for (const auto method : kMethods)
    for (const int64_t kv : {1, 2, 4, 8})
      EXPECT_NO_THROW(compare({.time = 37, .heads = 8, .kv_heads = kv, .longest = 11}, 4,
                              {.method = method}, at::kDouble, 1e-12))
          << static_cast<int>(method) << " " << kv;
  // 3 key/value heads for 2 ranks: the ring and the gather take any.
  for (const auto method : {ContextMethod::ring, ContextMethod::gather})
    EXPECT_NO_THROW(
        compare({.time = 9, .heads = 3, .kv_heads = 3}, 2, {.method = method}, at::kDouble, 1e-12));
}

TEST(layers_context_parallel_context_attention, recomputed_it_is_the_same) {
  for (const auto method : kMethods)
    EXPECT_NO_THROW(compare({.time = 41, .longest = 17}, 2, {.method = method}, at::kDouble, 1e-12,
                            /*recomputed=*/true));
}

TEST(layers_context_parallel_context_attention,
     a_nan_of_one_rank_is_seen_by_those_behind_it_alone) {
  for (const auto method : kMethods)
    run_threads(2, [&](Group g) {
      const ContextParallel cp(g, {.method = method});
      const at::Tensor x = numbers({1, 16, 2, 4}, 1), keys = x.clone();
      keys[0][10].fill_(std::numeric_limits<double>::quiet_NaN());
      const at::Tensor y = context_attention(cp.own(x), cp.own(keys), cp.own(x), {}, cp, 16);
      const at::Tensor nan = y.isnan().flatten(2).any(-1)[0];
      trireme::check<Error>(nan.equal(cp.places(16).ge(10)), "not the places from 10 on");
    });
}

TEST(layers_context_parallel_context_attention, places_and_own_say_what_a_rank_has) {
  run_threads(2, [&](Group g) {
    const ContextParallel cp(g);
    const std::vector<int64_t> want =
        g.rank() == 0 ? std::vector<int64_t>{0, 1, 6, 7, 8} : std::vector<int64_t>{2, 3, 4, 5};
    // 9 places in 4 chunks: 2, 2, 2 and 3.
    trireme::check<Error>(cp.places(9).equal(at::tensor(want, at::kLong)), "other places");
    trireme::check<Error>(cp.own(at::arange(9), 0).equal(cp.places(9)), "other positions");
    trireme::check<Error>(cp.length(9) == static_cast<int64_t>(want.size()), "another length");
  });
  const ContextParallel alone = ContextParallel::alone();
  EXPECT_TRUE(alone.places(5).equal(at::arange(5)));
  const ContextParallel planned =
      ContextParallel::imagined(1, 2, {.balance = ContextBalance::none});
  EXPECT_TRUE(planned.places(6).equal(at::tensor({3, 4, 5}, at::kLong)));
}

TEST(layers_context_parallel_context_attention,
     what_does_not_fit_is_refused_before_anything_is_sent) {
  run_threads(2, [&](Group g) {
    const auto says = [&](ContextParallel::Options o, const at::Tensor& q, const at::Tensor& k,
                          const at::Tensor& starts, int64_t time, const std::string& text) {
      const ContextParallel cp(g, o);
      try {
        context_attention(q, k, k, starts, cp, time);
      } catch (const UsageError& e) {
        trireme::check<Error>(std::string(e.what()).find(text) != std::string::npos, "{}",
                              e.what());
        return;
      }
      fail<Error>("not refused: {}", text);
    };
    const at::Tensor q = numbers({1, 4, 3, 2}, 0);
    says({}, q, q, {}, 12,
         "given queries of 4 positions and keys of 4 of a row of 12, and its part is 6");
    says({}, q, q.narrow(1, 0, 3), {}, 8, "keys of 3 of a row of 8");
    says({}, q.narrow(1, 0, 1), q.narrow(1, 0, 1), {}, 1, "1 positions do not divide among 2");
    says({}, q, q, at::zeros({1, 7}, at::kLong), 8, "must be [1, 8] in int64");
    says({}, q, q, at::full({1, 8}, 3, at::kLong), 8, "place 0 of row 0 starts at 3");
    says({.method = ContextMethod::all_to_all}, q, q, {}, 8, "3 query heads do not divide among 2");
    g.barrier();  // the group is as it was
  });
  EXPECT_THROW(ContextParallel{Group{}}, UsageError);
}

TEST(layers_context_parallel_context_attention, ranks_that_call_different_rows_are_told_so) {
  // One rank thinks that the row is longer: nobody waits for ever, and both hear of it.
  std::atomic<int> told{0};
  try {
    run_threads(2, [&](Group g) {
      const ContextParallel cp(g, {.balance = ContextBalance::none});
      const int64_t time = g.rank() == 0 ? 8 : 10;
      const at::Tensor x = numbers({1, cp.length(time), 2, 2}, 0);
      try {
        context_attention(x, x, x, {}, cp, time);
      } catch (const Error&) {
        ++told;
        throw;
      }
    });
  } catch (const Error&) {
  }
  EXPECT_EQ(told, 2);
}

TEST(layers_context_parallel_context_attention, a_second_derivative_is_refused) {
  run_threads(2, [&](Group g) {
    const ContextParallel cp(g);
    const at::Tensor q = numbers({1, 4, 2, 2}, 0).set_requires_grad(true);
    const at::Tensor y = context_attention(q, q, q, {}, cp, 8);
    std::string text;
    try {
      y.sum().backward({}, /*retain_graph=*/c10::nullopt, /*create_graph=*/true);
    } catch (const std::exception& e) {
      text = e.what();
    }
    trireme::check<Error>(text.find("differentiated once") != std::string::npos, "said: {}", text);
  });
}

}  // namespace context_attention_test
