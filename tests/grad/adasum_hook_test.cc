// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/hooks/adasum_hook.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/grad/small_net.h"
#include "tests/support/refusals.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/hooks/adasum.h"

namespace trireme::testing::adasum_hook_test {
namespace {

at::Tensor gradient(int64_t n, int rank) {
  return (at::arange(n, at::kDouble) * 0.37 + rank * 1.1).sin() * (1 + rank);
}

at::Tensor adasum(const at::Tensor& a, const at::Tensor& b) {
  auto dot = [](const at::Tensor& x, const at::Tensor& y) { return (x * y).sum().item<double>(); };
  const AdasumFactors f = adasum_factors(dot(a, b), dot(a, a), dot(b, b));
  return f.a * a + f.b * b;
}

/// The rule on whole gradients, along the tree.
at::Tensor adasum_of(std::vector<at::Tensor> all) {
  for (; all.size() > 1; all.resize(all.size() / 2))
    for (size_t i = 0; i < all.size() / 2; ++i) all[i] = adasum(all[2 * i], all[2 * i + 1]);
  return all[0];
}

TEST(grad_adasum_hook, right_angles_are_added_and_equals_averaged) {
  const AdasumFactors apart = adasum_factors(0, 2, 3), equal = adasum_factors(5, 5, 5);
  EXPECT_EQ(apart.a, 1);
  EXPECT_EQ(apart.b, 1);
  EXPECT_EQ(equal.a, 0.5);
  EXPECT_EQ(equal.b, 0.5);
  EXPECT_EQ(adasum_factors(0, 0, 4).a, 1);
  EXPECT_TRUE(std::isnan(adasum_factors(NAN, NAN, 1).a));
}

// Two parameters with a gap between them, in shares that cut both.
TEST(grad_adasum_hook, every_parameter_is_the_rule_s_on_its_own_whole_gradient) {
  for (int n : {1, 2, 4, 8})
    for (ReduceOp op : {ReduceOp::avg, ReduceOp::sum})
      for (at::ScalarType type : {at::kFloat, at::kDouble})
        run_threads(n, [&](Group g) {
          const int64_t first = 37, second = 101, at_second = 48, numel = 150;
          at::Tensor flat = g.empty({numel}, at::dtype(type)).zero_();
          auto part = [&](int64_t offset, int64_t length) {
            return flat.narrow(0, offset, length);
          };
          part(0, first).copy_(gradient(first, g.rank()));
          part(at_second, second).copy_(gradient(second, g.rank() + 3));
          const std::vector<GradBucketPart> parts{{0, "a", 0, part(0, first)},
                                                  {1, "b", at_second, part(at_second, second)}};
          GradBucket bucket{0, true, flat, &parts};
          auto hook = adasum_hook()->hook();
          hook(g, bucket, op).wait();
          std::vector<at::Tensor> a, b;
          for (int r = 0; r < n; ++r) {
            a.push_back(gradient(first, r).to(type).to(at::kDouble));
            b.push_back(gradient(second, r + 3).to(type).to(at::kDouble));
          }
          const double factor = op == ReduceOp::sum ? n : 1,
                       most = type == at::kFloat ? 2e-6 : 1e-13;
          auto close = [&](const at::Tensor& got, const at::Tensor& want) {
            return ((got.to(at::kDouble) - want).norm() / want.norm()).item<double>() < most;
          };
          expect(close(part(0, first), factor * adasum_of(a)), "the first parameter");
          expect(close(part(at_second, second), factor * adasum_of(b)), "the second");
          at::Tensor all = at::empty({n * numel}, flat.options());
          g.all_gather_into_tensor(all, flat).wait();
          for (int r = 0; r < n; ++r)
            expect(at::equal(all.narrow(0, r * numel, numel), flat), "the same bits on every rank");
        });
}

TEST(grad_adasum_hook, reduces_the_buckets_of_a_ddp) {
  run_threads(2, [](Group g) {
    Small net = make(1), twin = make(1);
    DistributedDataParallel ddp(
        net, g, {.bucket_bytes = 400, .first_bucket_bytes = 200, .hook = adasum_hook()->hook()});
    for (int step = 0; step < 3; ++step) {
      std::vector<NamedTensors> of(2);
      for (int r = 0; r < 2; ++r) {
        twin->zero_grad();
        twin->forward(input(4) + r + step).pow(2).mean().backward();
        for (const auto& item : twin->named_parameters())
          of[static_cast<size_t>(r)].emplace_back(item.key(), item.value().grad().clone());
      }
      net->zero_grad();
      net->forward(input(4) + g.rank() + step).pow(2).mean().backward();
      const auto parameters = net->named_parameters();
      for (size_t i = 0; i < of[0].size(); ++i) {
        const at::Tensor want = adasum(of[0][i].second, of[1][i].second),
                         got = parameters[of[0][i].first].grad();
        expect((got - want).norm().item<double>() <= 1e-12 * want.norm().item<double>(),
               of[0][i].first);
      }
    }
  });
}

TEST(grad_adasum_hook, three_ranks_and_half_gradients_are_refused_on_all_of_them) {
  auto reduce = [](at::ScalarType type) {
    return [type](Group g) {
      Small net = make(1, type);
      DistributedDataParallel ddp(net, g, {.hook = adasum_hook()->hook()});
      net->forward(input(4, type)).pow(2).mean().backward();
    };
  };
  for (const std::string& s : what_ranks_throw(3, reduce(at::kFloat)))
    EXPECT_TRUE(has(s, "a power of two")) << s;
  for (const std::string& s : what_ranks_throw(2, reduce(at::kBFloat16)))
    EXPECT_TRUE(has(s, "torch_autocast")) << s;
}

}  // namespace
}  // namespace trireme::testing::adasum_hook_test
