// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/functional.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>

#include "trireme/base/check.h"
#include "trireme/comm/start/run.h"

namespace functional_test {

using namespace trireme;

namespace {

using Apply = std::function<at::Tensor(const at::Tensor& input, Group group)>;

// The loss is the sum over ranks of (output · weights of that rank): backward must give what a
// change of each input element does to it. Every rank takes part in every evaluation.
void gradcheck(Group g, at::IntArrayRef sizes, const Apply& apply) {
  torch::manual_seed(11 + g.rank());
  at::Tensor x = at::randn(sizes, at::kDouble).requires_grad_(true);
  at::Tensor out = apply(x, g);
  torch::manual_seed(101 + g.rank());
  const at::Tensor weights = at::randn(out.sizes(), at::kDouble);
  (out * weights).sum().backward();
  const at::Tensor grad = x.grad();
  trireme::check<Error>(grad.defined() && grad.sizes() == x.sizes(), "no gradient");

  at::NoGradGuard no_grad;
  auto loss = [&](const at::Tensor& input) {
    at::Tensor sum = (apply(input, g) * weights).sum();
    g.all_reduce(sum).wait();
    return sum.item<double>();
  };
  for (int r = 0; r < g.size(); ++r) {
    at::Tensor numel = at::full({1}, x.numel(), at::kLong);
    g.broadcast(numel, r).wait();
    for (int64_t i = 0; i < numel.item<int64_t>(); ++i) {
      constexpr double h = 1e-6;
      double at_side[2];
      for (int side : {0, 1}) {
        at::Tensor moved = x.detach().clone();
        if (g.rank() == r) moved.view(-1)[i] += side ? h : -h;
        at_side[side] = loss(moved);
      }
      if (g.rank() != r) continue;
      const double numeric = (at_side[1] - at_side[0]) / (2 * h);
      const double given = grad.contiguous().view(-1)[i].item<double>();
      trireme::check<Error>(std::abs(numeric - given) < 1e-6 * (1 + std::abs(numeric)),
                            "rank {}, element {}: backward gives {}, the function changes by {}", r,
                            i, given, numeric);
    }
  }
}

void on_ranks(at::IntArrayRef sizes, const Apply& apply) {
  for (int n : {1, 2, 3}) run_threads(n, [&](Group g) { gradcheck(g, sizes, apply); });
}

}  // namespace

TEST(comm_functional, all_reduce_passes_gradcheck) {
  on_ranks({2, 3}, [](auto& x, Group g) { return functional::all_reduce(x * x, g); });
  on_ranks({4}, [](auto& x, Group g) { return functional::all_reduce(x, g, ReduceOp::avg); });
  on_ranks({4}, [](auto& x, Group g) {
    return functional::all_reduce(x, g, premul_sum(0.5 + g.rank()));
  });
}

TEST(comm_functional, all_gather_passes_gradcheck) {
  on_ranks({2, 2}, [](auto& x, Group g) { return functional::all_gather(x.t(), g).pow(2); });
}

TEST(comm_functional, reduce_scatter_passes_gradcheck) {
  for (auto op : {ReduceOp::sum, ReduceOp::avg})
    for (int n : {1, 2, 3})
      run_threads(n, [&](Group g) {
        gradcheck(g, {n, 3}, [&](auto& x, Group group) {
          return functional::reduce_scatter(x * x, group, op);
        });
      });
}

TEST(comm_functional, broadcast_passes_gradcheck) {
  on_ranks({3}, [](auto& x, Group g) { return functional::broadcast(x * x, g, g.size() - 1); });
}

TEST(comm_functional, all_to_all_single_passes_gradcheck) {
  for (int n : {1, 2, 3})
    run_threads(n, [&](Group g) {
      gradcheck(g, {2 * n, 2},
                [](auto& x, Group group) { return functional::all_to_all_single(x * x, group); });
      // Rank r sends q rows to rank q: a rank gets its own number of rows from each, and rank 0
      // none.
      std::vector<int64_t> to, from;
      int64_t rows = 0;
      for (int q = 0; q < n; ++q) {
        to.push_back(q);
        from.push_back(g.rank());
        rows += q;
      }
      gradcheck(g, {rows, 2}, [&](auto& x, Group group) {
        return functional::all_to_all_single(x * x, group, from, to);
      });
    });
}

TEST(comm_functional, what_has_no_gradient_is_refused) {
  run_threads(1, [](Group g) {
    at::Tensor x = at::ones({2}).requires_grad_(true);
    EXPECT_THROW(functional::all_reduce(x, g, ReduceOp::max), UsageError);
    EXPECT_THROW(functional::reduce_scatter(x, g), UsageError);
    EXPECT_THROW(functional::all_to_all_single(x, g, {2}, {}), UsageError);
  });
}

}  // namespace functional_test
