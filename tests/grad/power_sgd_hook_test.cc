// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/power_sgd_hook.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/grad/codec_rounds.h"
#include "tests/grad/small_net.h"
#include "tests/support/command.h"
#include "tests/support/paths.h"

namespace power_sgd_hook_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

MakeHook power(PowerSgdOptions options) {
  return [=](const NamedTensors& p, const Group& g) { return power_sgd_hook(p, g, options); };
}

PowerSgdOptions rank_of(int64_t rank, bool error_feedback = true, int64_t start = 0) {
  PowerSgdOptions o;
  o.matrix_approximation_rank = rank;
  o.common = {error_feedback, start};
  return o;
}

std::string text_of(const at::Tensor& t) {
  const at::Tensor c = t.contiguous().to(at::kFloat);
  return {static_cast<const char*>(c.data_ptr()), c.nbytes()};
}

// From the same factors and over the same gradients, two ranks of ours and two processes of
// torch's.
void equals_torch(int64_t rank) {
  PrivateFolder folder;
  constexpr int kRounds = 8, kStart = 2;
  const auto shapes = mixed_shapes();
  std::string gradients;
  for (int64_t i = 0; i < kRounds; ++i)
    for (int r = 0; r < 2; ++r)
      for (size_t p = 0; p < shapes.size(); ++p)
        gradients += text_of(Rounds::gradient(r, i, p, shapes[p]));
  std::vector<at::Tensor> ours(kRounds);
  std::string factors;
  run_threads(2, [&](Group g) {
    Rounds run(g, power(rank_of(rank, true, kStart)), shapes, ReduceOp::avg);
    if (g.rank() == 0) {
      Shown shown;
      run.hook->state(shown);
      for (size_t p = 0; p < shapes.size(); ++p)
        if (const auto q = shown.tensors.find("hook.q.p" + std::to_string(p));
            q != shown.tensors.end())
          factors += text_of(q->second);
    }
    for (int64_t i = 0; i < kRounds; ++i) {
      run.round(i);
      if (g.rank() == 0) ours[static_cast<size_t>(i)] = run.result();
    }
  });
  write_file_atomic(folder / "gradients", gradients);
  write_file_atomic(folder / "factors", factors);
  write_file_atomic(
      folder / "job.json",
      nlohmann::json{
          {"shapes", shapes}, {"rounds", kRounds}, {"rank", rank}, {"start", kStart}, {"rate", 2}}
          .dump());
  Command peer({"/usr/bin/python3", trireme::testing::source_path("/tests/grad/power_sgd_peer.py"),
                folder.path()});
  const int code = peer.finish(std::chrono::seconds(60));
  if (code == 77)
    GTEST_SKIP() << "no PyTorch for /usr/bin/python3 (Debian: python3-torch): " << peer.err;
  ASSERT_EQ(code, 0) << peer.out << peer.err;
  const std::string means = read_file(folder / "means");
  const int64_t numel = ours[0].numel();
  ASSERT_EQ(means.size(), static_cast<size_t>(kRounds * numel * 4));
  at::Tensor theirs = at::empty({kRounds, numel});
  std::memcpy(theirs.data_ptr(), means.data(), means.size());
  for (int64_t i = 0; i < kRounds; ++i)
    EXPECT_LT(relative(ours[static_cast<size_t>(i)], theirs[i]), 2e-5)
        << "rank " << rank << ", round " << i;
  // So that agreement means something: compressed rounds are far from the plain mean.
  const at::Tensor plain = ours[kStart].to(at::kDouble);
  double far = 0;
  run_threads(2, [&](Group g) {
    Rounds run(g, power(rank_of(rank)), shapes);
    if (g.rank() == 0) far = relative(plain, run.truth(kStart) / 2);
  });
  EXPECT_GT(far, 0.2);
}

}  // namespace

TEST(grad_power_sgd_hook, a_matrix_of_low_rank_comes_back_whole) {
  for (int64_t rank : {2, 3, 5})
    run_threads(2, [&](Group g) {
      Rounds run(g, power(rank_of(rank, false)), {{60, 40}, {9}});
      at::Tensor mean;
      run.round(0, [&](size_t p, at::Tensor& gradient) {
        if (p != 0) return;
        // Both ranks' rows are of one plane of two dims.
        at::Tensor a = at::empty({60, 2}), b = at::empty({2, 40});
        normal_(a, 10 + static_cast<uint64_t>(g.rank()), 0, 1);
        normal_(b, 5, 0, 1);
        gradient = at::mm(a, b);
        mean = gradient.clone();
      });
      g.all_reduce(mean).wait();
      const double off = relative(run.parameters[0].second.grad(), mean);
      expect(off < 1e-5, fmt::format("rank {}: off by {}", rank, off));
      expect(run.parameters[1].second.grad().equal(Rounds::gradient(0, 0, 1, {9}) +
                                                   Rounds::gradient(1, 0, 1, {9})),
             "what is not compressed");
    });
}

TEST(grad_power_sgd_hook, warm_start_finds_the_best_approximation) {
  run_threads(2, [](Group g) {
    const auto off_after = [&](bool warm, int rounds) {
      PowerSgdOptions o = rank_of(2, false);
      o.warm_start = warm;
      Rounds run(g, power(o), {{50, 64}});
      for (int i = 0; i < rounds; ++i) run.round(0);
      return relative(run.result().reshape({50, 64}), run.truth(0).reshape({50, 64}));
    };
    const at::Tensor singular = std::get<1>(
        at::svd((Rounds::gradient(0, 0, 0, {50, 64}) + Rounds::gradient(1, 0, 0, {50, 64}))
                    .to(at::kDouble)));
    const double best = (singular.narrow(0, 2, 48).norm() / singular.norm()).item<double>();
    const double once = off_after(true, 1), often = off_after(true, 40),
                 cold = off_after(false, 40);
    expect(often < 1.01 * best && often >= 0.9999 * best,
           fmt::format("{} where {} is the best", often, best));
    expect(once > often && cold > often, "cold and warm are alike");
  });
}

TEST(grad_power_sgd_hook, a_gradient_of_zeros_does_not_end_a_direction) {
  run_threads(2, [](Group g) {
    Rounds run(g, power(rank_of(2)), {{60, 40}});
    for (int i = 0; i < 3; ++i) {
      run.round(i, [](size_t, at::Tensor& gradient) { gradient.zero_(); });
      expect(run.result().eq(0).all().item<bool>(), "not zeros");
    }
    run.round(5);
    expect(run.result().norm().item<double>() > 0.05 * run.truth(5).norm().item<double>(),
           "nothing comes any more");
  });
}

TEST(grad_power_sgd_hook, buckets_that_are_laid_out_anew_change_nothing) {
  run_threads(2, [](Group g) {
    Rounds one(g, power(rank_of(2)), mixed_shapes(), ReduceOp::sum, at::kFloat, 1 << 20);
    Rounds many(g, power(rank_of(2)), mixed_shapes(), ReduceOp::sum, at::kFloat, 100);
    const auto other_order = [](Rounds& r, int64_t number) {
      r.reducer->open();
      for (size_t i = 0; i < r.parameters.size(); ++i) {
        const size_t p = (i * 3 + 2) % r.parameters.size();
        at::Tensor& t = r.parameters[p].second;
        t.mutable_grad() = Rounds::gradient(r.group.rank(), number, p, t.sizes());
        r.reducer->ready(p);
      }
      r.reducer->close();
    };
    const auto before = many.reducer->buckets();
    for (int64_t i = 0; i < 4; ++i) {
      other_order(one, i);
      other_order(many, i);
      expect(one.result().equal(many.result()), fmt::format("round {}", i));
    }
    expect(many.reducer->buckets() != before, "the layout did not change");
  });
}

TEST(grad_power_sgd_hook, a_rank_above_the_matrices_is_refused_by_name) {
  const NamedTensors net = {{"head.weight", at::zeros({10, 300})},
                            {"body.weight", at::zeros({12, 2, 3})},
                            {"bias", at::zeros({300})}};
  const auto said = [](const NamedTensors& p, int64_t rank, double rate) {
    try {
      plan_power_sgd(p, rank, rate);
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(
      said(net, 11, 2),
      "PowerSGD: parameter 'head.weight' has shape [10, 300], whose rank is at most 10: a rank "
      "of 11 is above it. Choose 10 or less");
  // Too small for it: as it is, as torch's. It must not gain, either.
  EXPECT_EQ(said(net, 10, 2), "");
  EXPECT_EQ(said({{"w", at::zeros({100, 100})}, {"small", at::zeros({4, 1000})}}, 8, 2), "");
  // Asked for, all the same.
  EXPECT_NE(said({{"w", at::zeros({100, 100})}, {"small", at::zeros({4, 1000})}}, 8, 0.1)
                .find("'small' has shape [4, 1000], whose rank is at most 4"),
            std::string::npos);
  EXPECT_EQ(said({{"bias", at::zeros({300})}}, 64, 2), "");
  EXPECT_NE(said(net, 0, 2), "");
  EXPECT_NE(said(net, 65, 2), "");
  EXPECT_NE(said(net, 1, 0), "");
  const auto all = what_ranks_throw(
      3, [&](Group g) { make_compression({.type = "powersgd", .rank = 11}, net, g); });
  for (const auto& text : all)
    EXPECT_EQ(text.rfind("UsageError: PowerSGD: parameter", 0), 0u) << text;
}

TEST(grad_power_sgd_hook, the_plan_compresses_what_shrinks_enough) {
  for (int64_t n : {1, 2, 5, 8, 30, 200})
    for (int64_t m : {1, 3, 8, 64, 500})
      for (int64_t rank : {1, 2, 4}) {
        const auto plan =
            plan_power_sgd({{"w", at::zeros({n, m})}, {"big", at::zeros({70, 70})}}, rank, 2);
        EXPECT_EQ(plan[0].compressed, 2 * rank * (n + m) < n * m);
        EXPECT_TRUE(!plan[0].compressed || rank <= std::min(n, m));
      }
}

TEST(grad_power_sgd_hook, gives_what_torchs_hook_gives_at_rank_1) { equals_torch(1); }

TEST(grad_power_sgd_hook, gives_what_torchs_hook_gives_at_rank_3) { equals_torch(3); }

}  // namespace power_sgd_hook_test
