// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/top_k_hook.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/grad/codec_rounds.h"
#include "tests/grad/small_net.h"

namespace top_k_hook_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

std::vector<int32_t> by_sorting(const std::vector<float>& x, int64_t k) {
  std::vector<int32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return std::abs(x[static_cast<size_t>(a)]) > std::abs(x[static_cast<size_t>(b)]);
  });
  order.resize(static_cast<size_t>(k));
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<float> numbers(int64_t n, const std::string& kind) {
  at::Tensor t = at::empty({n});
  normal_(t, stable_hash(kind), 0, 1);
  std::vector<float> x(t.data_ptr<float>(), t.data_ptr<float>() + n);
  for (size_t i = 0; i < x.size(); ++i) {
    if (kind == "ties") x[i] = std::round(x[i]);
    if (kind == "zeros") x[i] = i % 200 ? 0 : x[i];
    if (kind == "all zeros") x[i] = 0;
    if (kind == "one block" && i > x.size() / 50) x[i] *= 1e-6f;
    if (kind == "heavy") x[i] = x[i] * x[i] * x[i] * x[i] * x[i];
  }
  return x;
}

}  // namespace

TEST(grad_top_k_hook, picks_what_sorting_picks) {
  for (const char* kind : {"normal", "ties", "zeros", "all zeros", "one block", "heavy"})
    for (int64_t n : {1, 10, 1000, 70000, 150000}) {
      const std::vector<float> x = numbers(n, kind);
      for (int64_t k : {int64_t{1}, n / 1000, n / 100, n / 3, n}) {
        if (k < 1) continue;
        ASSERT_EQ(largest_elements(x.data(), n, k), by_sorting(x, k))
            << kind << " " << n << " " << k;
      }
    }
  EXPECT_TRUE(largest_elements(nullptr, 0, 0).empty());
}

TEST(grad_top_k_hook, the_largest_of_each_rank_arrive_and_the_others_are_kept) {
  for (int n : {2, 3, 4})
    run_threads(n, [&](Group g) {
      const std::vector<int64_t> shape = {50, 20};
      Rounds run(g,
                 [](const NamedTensors& p, const Group& group) {
                   return top_k_hook(p, group, {0.015, {true, 0}});
                 },
                 {shape});
      run.round(4);
      at::Tensor want = at::zeros({1000}), left;
      for (int r = 0; r < n; ++r) {
        const at::Tensor x = Rounds::gradient(r, 4, 0, shape).flatten();
        const at::Tensor least = std::get<0>(x.abs().topk(15)).min();
        const at::Tensor rounded = x.to(at::kBFloat16).to(at::kFloat);
        const at::Tensor sent = at::where(x.abs() >= least, rounded, at::zeros({1}));
        want += sent;
        if (r == g.rank()) left = x - sent;
      }
      expect(relative(run.result(), want) < 1e-6, "the sum");
      expect(run.kept().equal(left), "what is kept");
    });
}

TEST(grad_top_k_hook, every_parameter_sends_its_share_however_small_its_gradient) {
  run_threads(2, [](Group g) {
    const std::vector<std::vector<int64_t>> shapes = {{40}, {300}, {1}};
    const NamedTensors parameters = {
        {"loud", at::zeros({40})}, {"faint", at::zeros({300})}, {"one", at::zeros({1})}};
    auto hook = top_k_hook(parameters, g, {0.05, {true, 0}});
    at::Tensor flat = g.empty({40 + 304 + 8}, at::kFloat).zero_();
    const at::Tensor loud = flat.narrow(0, 0, 40), faint = flat.narrow(0, 40, 300),
                     one = flat.narrow(0, 344, 1);
    normal_(loud, 1, 0, 1e3);
    normal_(faint, 2, 0, 1e-3);
    one.fill_(1e-6);
    const std::vector<GradBucketPart> parts = {
        {0, "loud", 0, loud}, {1, "faint", 40, faint}, {2, "one", 344, one}};
    GradBucket bucket{0, true, flat, &parts};
    hook->hook()(g, bucket, ReduceOp::sum).wait();
    expect(loud.count_nonzero().item<int64_t>() == 2, "of 40 elements, 2");
    expect(faint.count_nonzero().item<int64_t>() == 15, "of 300 elements, 15");
    expect(std::abs(one.item<float>() / 2e-6f - 1) < 4e-3f, "of one element, one");
  });
}

TEST(grad_top_k_hook, of_all_of_them_only_what_bfloat16_rounds_is_kept) {
  run_threads(2, [](Group g) {
    Rounds run(
        g,
        [](const NamedTensors& p, const Group& group) {
          return top_k_hook(p, group, {1, {true, 0}});
        },
        mixed_shapes());
    run.round(0);
    const at::Tensor truth = run.truth(0).to(at::kFloat);
    expect(relative(run.result(), truth) < 4e-3, "the sum");
    expect(run.kept().abs().max().item<float>() < 4e-3 * 10, "what is kept");
  });
}

TEST(grad_top_k_hook, refuses_densities_of_no_use) {
  for (double density : {0.0, -1.0, 1.01, std::nan("")})
    EXPECT_THROW(top_k_codec(density), UsageError);
}

}  // namespace top_k_hook_test
