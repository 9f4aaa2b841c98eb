// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/tensor_parallel/regions.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "trireme/base/check.h"
#include "trireme/comm/functional.h"
#include "trireme/comm/start/run.h"
#include "trireme/layers/tensor_parallel/split_plan.h"

namespace regions_test {

using namespace trireme;

namespace {

constexpr int64_t kWhole = 7;

void same(const at::Tensor& a, const at::Tensor& b, const char* what) {
  trireme::check<Error>(a.defined() && a.sizes() == b.sizes() && at::allclose(a, b, 1e-12, 1e-12),
                        "{} differs", what);
}

at::Tensor numbers(at::IntArrayRef sizes, double phase) {
  int64_t n = 1;
  for (const auto size : sizes) n *= size;
  return at::arange(n, at::kDouble).add(phase).sin().view(sizes);
}

at::Tensor own_part(const at::Tensor& whole, int64_t dim, const Group& g) {
  const Part part = split_evenly(whole.size(dim), g.size())[static_cast<size_t>(g.rank())];
  return whole.narrow(dim, part.begin, part.length);
}

// Runs with 1 to 4 ranks, for each dim of [4, 7, 5].
void each(const std::function<void(Group, int64_t dim)>& body) {
  for (const int n : {1, 2, 3, 4})
    for (const int64_t dim : {0, 1, 2, -1}) run_threads(n, [&](Group g) { body(g, dim); });
}

}  // namespace

// The reference is one process: f(x) = Σ_r w_r(x) with the loss Σ c · y, whose gradients autograd
// of LibTorch gives without any of ours.
TEST(layers_tensor_parallel_regions,
     a_part_between_copy_and_reduce_has_the_gradients_of_one_process) {
  for (const int n : {1, 2, 3, 4})
    run_threads(n, [&](Group g) {
      const at::Tensor c = numbers({3, 5}, 0.5);
      const auto part = [](const at::Tensor& x, int r) { return x.mul(1.5 + r).tanh(); };
      const at::Tensor plain_x = numbers({3, 5}, 2).requires_grad_(true);
      at::Tensor plain_y = part(plain_x, 0);
      for (int r = 1; r < n; ++r) plain_y = plain_y + part(plain_x, r);
      (plain_y.pow(2) * c).sum().backward();

      const at::Tensor x = numbers({3, 5}, 2).requires_grad_(true);
      const at::Tensor y = regions::reduce_from(part(regions::copy_to(x, g), g.rank()), g);
      same(y, plain_y, "the sum");
      (y.pow(2) * c).sum().backward();
      same(x.grad(), plain_x.grad(), "the gradient");
    });
}

TEST(layers_tensor_parallel_regions,
     functional_all_reduce_there_multiplies_gradients_by_the_ranks) {
  run_threads(3, [](Group g) {
    const at::Tensor x = at::ones({2}, at::kDouble).requires_grad_(true);
    functional::all_reduce(x, g).sum().backward();
    same(x.grad(), at::full({2}, 3.0, at::kDouble), "the gradient of the sum of losses");
    const at::Tensor z = at::ones({2}, at::kDouble).requires_grad_(true);
    regions::reduce_from(z, g).sum().backward();
    same(z.grad(), at::ones({2}, at::kDouble), "the gradient of one loss");
  });
}

TEST(layers_tensor_parallel_regions, scatter_and_gather_are_each_others_backward_for_uneven_parts) {
  each([](Group g, int64_t dim) {
    const at::Tensor whole = numbers({4, kWhole, 5}, 1), c = numbers({4, kWhole, 5}, 9);
    const at::Tensor x = whole.clone().requires_grad_(true);
    const at::Tensor mine = regions::scatter_to(x, g, dim);
    same(mine, own_part(whole, dim < 0 ? dim + 3 : dim, g), "the part");
    const at::Tensor again = regions::gather_from(mine * 2, g, dim, whole.size(dim));
    same(again, whole * 2, "the whole");
    (again.pow(2) * c).sum().backward();
    same(x.grad(), whole * c * 8, "the gradient");
  });
}

TEST(layers_tensor_parallel_regions, a_sequence_is_gathered_and_scattered_with_sums) {
  each([](Group g, int64_t dim) {
    const int64_t at_dim = dim < 0 ? dim + 3 : dim;
    const at::Tensor whole = numbers({4, kWhole, 5}, 1), c = numbers({4, kWhole, 5}, 9);
    // One process: y = Σ_r (x · (r + 1))², of which each rank then has a part.
    const at::Tensor plain = whole.clone().requires_grad_(true);
    at::Tensor sum = plain.pow(2);
    for (int r = 1; r < g.size(); ++r) sum = sum + plain.mul(r + 1).pow(2);
    (sum.sin() * c).sum().backward();

    const at::Tensor x = own_part(whole, at_dim, g).clone().requires_grad_(true);
    const at::Tensor all = regions::gather_sequence(x, g, dim, whole.size(at_dim));
    same(all, whole, "the gathered");
    const at::Tensor mine = regions::reduce_scatter_sequence(all.mul(g.rank() + 1).pow(2), g, dim);
    same(mine, own_part(sum.detach(), at_dim, g), "the part of the sum");
    // Each rank's loss is its part of the one loss.
    (mine.sin() * own_part(c, at_dim, g)).sum().backward();
    same(x.grad(), own_part(plain.grad(), at_dim, g), "the gradient");
  });
}

TEST(layers_tensor_parallel_regions, they_can_be_differentiated_twice) {
  run_threads(2, [](Group g) {
    const at::Tensor x = numbers({4}, 1).requires_grad_(true);
    const auto f = [&](const at::Tensor& t) {
      return regions::reduce_from(regions::copy_to(t, g).pow(3), g).sum();
    };
    const at::Tensor first = torch::autograd::grad({f(x)}, {x}, {}, true, true)[0];
    same(first.detach(), x.detach().pow(2) * 6, "the first");
    first.sum().backward();
    same(x.grad(), x.detach() * 12, "the second");
  });
}

TEST(layers_tensor_parallel_regions, one_rank_gets_its_input_back) {
  run_threads(1, [](Group g) {
    const at::Tensor x = at::ones({2, 3});
    for (const at::Tensor& y :
         {regions::copy_to(x, g), regions::reduce_from(x, g), regions::scatter_to(x, g, 0),
          regions::gather_from(x, g, 1), regions::gather_sequence(x, g, 0),
          regions::reduce_scatter_sequence(x, g, 1)})
      EXPECT_TRUE(y.is_same(x));
  });
}

TEST(layers_tensor_parallel_regions, without_recording_and_for_inputs_without_gradients_they_work) {
  run_threads(2, [](Group g) {
    const at::Tensor x = numbers({4, 3}, g.rank());
    at::Tensor recorded, unrecorded;
    recorded = regions::reduce_from(x, g);
    trireme::check<Error>(!recorded.requires_grad(), "a gradient from nowhere");
    {
      at::NoGradGuard no_grad;
      unrecorded = regions::reduce_from(x.clone().requires_grad_(true), g);
      trireme::check<Error>(!unrecorded.requires_grad(), "recorded without recording");
    }
    same(recorded, numbers({4, 3}, 0) + numbers({4, 3}, 1), "the sum");
    same(unrecorded, recorded, "the sum without recording");
  });
}

TEST(layers_tensor_parallel_regions, a_part_that_is_not_this_ranks_is_refused_before_it_is_sent) {
  run_threads(2, [](Group g) {
    const at::Tensor x = at::ones({2, 3});
    try {
      regions::gather_from(x, g, 0, 5);  // 5 are 2 and 3
      trireme::check<Error>(g.rank() == 0, "rank 1 was let through");
    } catch (const UsageError& e) {
      EXPECT_STREQ(e.what(),
                   "regions::gather_from: rank 1 of 2 has 2 of the 5 elements of dim 0, and its "
                   "part is 3");
      g.abort("test");
    } catch (const PeerLost&) {
      EXPECT_EQ(g.rank(), 0);
    }
  });
}

TEST(layers_tensor_parallel_regions, other_shapes_on_another_rank_are_one_error_on_both) {
  int errors = 0;
  EXPECT_THROW(run_threads(2,
                           [&](Group g) {
                             regions::reduce_from(at::ones({4 + g.rank()}), g);
                             ++errors;
                           }),
               Mismatch);
  EXPECT_EQ(errors, 0);
}

}  // namespace regions_test
