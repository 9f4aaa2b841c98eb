// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/placed_linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/start/run.h"
#include "trireme/grad/ddp.h"
#include "trireme/layers/plain.h"
#include "trireme/tensor/gradient_place.h"

namespace placed_linear_test {

using namespace trireme;

namespace {

/// A layer whose weight has a place, as a bucket would offer it.
struct Placed {
  Placed(int64_t in, int64_t out, bool with_bias = true, at::ScalarType dtype = at::kFloat)
      : layer(in, out, with_bias) {
    layer.to(dtype);
    at::NoGradGuard no_grad;
    for (auto& p : layer.parameters()) p.copy_(at::randn_like(p));
    memory = at::full({out, in}, 7.0f, at::dtype(dtype));
    offer = std::make_unique<GradientPlaceOffer>(layer.weight, [this] {
      ++asked;
      return GradientPlace{at::from_blob(memory.data_ptr(), memory.sizes(), memory.options()),
                           &finite};
    });
  }
  bool in_place() const {
    const at::Tensor& g = layer.weight.grad();
    return g.defined() && g.data_ptr() == memory.data_ptr();
  }

  Linear layer;
  at::Tensor memory;
  std::optional<bool> finite;
  int asked = 0;
  std::unique_ptr<GradientPlaceOffer> offer;
};

}  // namespace

// dW is computed panel by panel: some BLAS kernels round the elements at a panel's edge otherwise.
TEST(layers_placed_linear, has_the_gradients_of_linear_and_writes_into_the_place) {
  for (const bool with_bias : {true, false})
    for (const int64_t batch : {1, 2, 8, 33})
      for (const auto& [in, out] : std::vector<std::pair<int64_t, int64_t>>{
               {1, 1}, {3, 5}, {784, 10}, {784, 700}, {4096, 129}, {2048, 517}, {20000, 40}}) {
        Placed mine(in, out, with_bias);
        const at::Tensor data = at::randn({batch, in}), seed = at::randn({batch, out});
        at::Tensor x = data.clone().requires_grad_(), y = data.clone().requires_grad_();
        at::Tensor w = mine.layer.weight.detach().clone().requires_grad_(), b;
        if (with_bias) b = mine.layer.bias.detach().clone().requires_grad_();
        const at::Tensor got = mine.layer.forward(x);
        const at::Tensor want = with_bias ? at::linear(y, w, b) : at::linear(y, w);
        EXPECT_TRUE(got.equal(want));
        got.backward(seed);
        want.backward(seed);
        const std::string shape = fmt::format("{} x {} -> {}", batch, in, out);
        EXPECT_TRUE(mine.in_place()) << shape;
        EXPECT_TRUE(at::allclose(mine.layer.weight.grad(), w.grad(), 1e-5, 1e-5)) << shape;
        EXPECT_TRUE(x.grad().equal(y.grad())) << shape;
        if (with_bias) {
          EXPECT_TRUE(mine.layer.bias.grad().equal(b.grad())) << shape;
        }
        EXPECT_EQ(mine.finite, true) << shape;
      }
}

// Of other shapes and dtypes it is one product, and has the bits of autograd's.
TEST(layers_placed_linear, takes_every_dtype_and_any_leading_dims) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16})
    for (const bool with_bias : {true, false})
      for (const std::vector<int64_t>& leading :
           std::vector<std::vector<int64_t>>{{5}, {3, 4}, {1, 1}, {2, 3, 4}, {2, 1, 3, 2}}) {
        Placed mine(12, 7, with_bias, dtype);
        mine.layer.set_half_products(HalfProducts::native);
        std::vector<int64_t> in = leading, out = leading;
        in.push_back(12);
        out.push_back(7);
        const at::Tensor data = at::randn(in).to(dtype), seed = at::randn(out).to(dtype);
        at::Tensor x = data.clone().requires_grad_(), y = data.clone().requires_grad_();
        at::Tensor w = mine.layer.weight.detach().clone().requires_grad_(), b;
        if (with_bias) b = mine.layer.bias.detach().clone().requires_grad_();
        const at::Tensor got = mine.layer.forward(x);
        const at::Tensor want = with_bias ? at::linear(y, w, b) : at::linear(y, w);
        const std::string what =
            fmt::format("{} of {} dims, bias {}", c10::toString(dtype), in.size(), with_bias);
        EXPECT_TRUE(got.equal(want)) << what;
        got.backward(seed);
        want.backward(seed);
        EXPECT_TRUE(mine.in_place()) << what;
        const bool panels = dtype == at::kFloat && in.size() == 2;
        EXPECT_TRUE(panels ? at::allclose(mine.layer.weight.grad(), w.grad(), 1e-5, 1e-5)
                           : mine.layer.weight.grad().equal(w.grad()))
            << what;
        EXPECT_TRUE(x.grad().equal(y.grad())) << what;
        if (with_bias) {
          EXPECT_TRUE(mine.layer.bias.grad().equal(b.grad())) << what;
        }
        EXPECT_EQ(mine.finite.has_value(), panels) << what;
      }
}

TEST(layers_placed_linear, says_whether_the_gradient_is_finite) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Placed p(2000, 700);
    at::Tensor x = at::randn({4, 2000});
    x[3][1999] = bad;
    p.layer.forward(x).backward(at::ones({4, 700}));
    EXPECT_TRUE(p.in_place());
    EXPECT_EQ(p.finite, false);
  }
}

TEST(layers_placed_linear, leaves_the_place_alone_where_the_gradient_goes_elsewhere) {
  Placed p(6, 4);
  const at::Tensor x = at::randn({3, 6}), before = p.memory.clone();
  // To the caller.
  auto got = torch::autograd::grad({p.layer.forward(x).sum()}, {p.layer.weight});
  EXPECT_TRUE(got[0].allclose(x.sum(0).expand({4, 6})));
  // Into a graph: a second derivative needs it.
  auto y = p.layer.forward(x).pow(2).sum();
  auto first = torch::autograd::grad({y}, {p.layer.weight}, {}, true, /*create_graph=*/true);
  EXPECT_EQ(p.asked, 0);
  auto second = torch::autograd::grad({first[0].sum()}, {p.layer.weight});
  EXPECT_TRUE(second[0].allclose(2 * x.t().mm(x).sum(0).expand({4, 6}), 1e-4, 1e-4));
  p.layer.forward(x).sum().backward({}, c10::nullopt, /*create_graph=*/true);
  EXPECT_FALSE(p.in_place());
  EXPECT_EQ(p.asked, 0);
  EXPECT_TRUE(p.memory.equal(before));
}

TEST(layers_placed_linear, later_contributions_are_added_to_the_first) {
  Placed p(6, 4);
  const at::Tensor x = at::randn({3, 6}), z = at::randn({2, 6});
  p.layer.forward(x).sum().backward();
  p.layer.forward(z).sum().backward();
  EXPECT_TRUE(p.in_place());
  EXPECT_EQ(p.asked, 1);
  EXPECT_TRUE(p.memory.allclose((x.sum(0) + z.sum(0)).expand({4, 6}), 1e-5, 1e-5));
}

TEST(layers_placed_linear, a_weight_whose_gradient_has_no_place_is_plain) {
  Placed p(6, 4);
  p.offer.reset();
  EXPECT_FALSE(trireme::detail::takes_place(at::randn({3, 6}), p.layer.weight, p.layer.bias));
  p.layer.forward(at::randn({3, 6})).sum().backward();
  EXPECT_FALSE(p.in_place());
}

namespace {

struct Net : torch::nn::Module {
  Net() {
    a = register_module("a", std::make_shared<Linear>(40, 30));
    b = register_module("b", std::make_shared<Linear>(30, 30));
    at::NoGradGuard no_grad;
    int k = 0;
    for (auto& p : parameters())
      p.copy_(at::linspace(-1, 1, p.numel()).view(p.sizes()).mul(++k).sin());
  }
  /// b is used twice.
  at::Tensor forward(const at::Tensor& x) { return b->forward(b->forward(a->forward(x)).tanh()); }
  std::shared_ptr<Linear> a, b;
};

at::Tensor batch(int rank, int step) {
  return at::linspace(-1, 1, 5 * 40).view({5, 40}).mul(1 + rank + 3 * step).cos();
}

/// Gradients of one loss after the others, by plain torch.
std::vector<at::Tensor> plain(int rank, const std::vector<int>& steps) {
  Net net;
  for (int s : steps) {
    const auto lin = [](const Linear& l, const at::Tensor& x) {
      return at::linear(x, l.weight, l.bias);
    };
    lin(*net.b, lin(*net.b, lin(*net.a, batch(rank, s))).tanh()).sum().backward();
  }
  std::vector<at::Tensor> out;
  for (auto& p : net.parameters()) out.push_back(p.grad());
  return out;
}

}  // namespace

TEST(layers_placed_linear, under_ddp_gradients_are_the_mean_of_plain_ones_bit_for_bit) {
  for (const bool static_graph : {false, true})
    run_threads(2, [&](Group g) {
      Net net;
      DdpOptions options;
      options.static_graph = static_graph;
      DistributedDataParallel ddp(net, g, options);
      const auto expect = [&](const std::vector<int>& steps, const char* what) {
        const auto zero = plain(0, steps), one = plain(1, steps);
        for (size_t i = 0; i < zero.size(); ++i)
          EXPECT_TRUE(net.parameters()[i].grad().equal((zero[i] + one[i]) / 2)) << what << i;
      };
      const auto none = [&] {
        for (auto& p : net.parameters()) p.mutable_grad() = at::Tensor();
      };
      for (int step = 0; step < 3; ++step) {
        none();
        net.forward(batch(g.rank(), step)).sum().backward();
        expect({step}, "a round");
      }
      if (static_graph) return;
      none();
      {
        auto no_sync = ddp.no_sync();
        net.forward(batch(g.rank(), 4)).sum().backward();
      }
      net.forward(batch(g.rank(), 5)).sum().backward();
      expect({4, 5}, "after no_sync");
      // What autograd::grad() returned is nobody's place.
      none();
      auto kept =
          torch::autograd::grad({net.forward(batch(g.rank(), 6)).sum()}, {net.a->weight})[0];
      const at::Tensor copy = kept.clone();
      net.forward(batch(g.rank(), 7)).sum().backward();
      expect({7}, "after grad()");
      EXPECT_TRUE(kept.equal(copy));
    });
}

TEST(layers_placed_linear, what_is_added_later_in_the_round_is_looked_at_too) {
  run_threads(2, [&](Group g) {
    Net net;
    DdpOptions options;
    options.check_finite = true;
    DistributedDataParallel ddp(net, g, options);
    for (int step = 0; step < 2; ++step) {
      for (auto& p : net.parameters()) p.mutable_grad() = at::Tensor();
      net.forward(batch(g.rank(), step)).sum().backward();
    }
    for (auto& p : net.parameters()) p.mutable_grad() = at::Tensor();
    at::Tensor x = batch(g.rank(), 0), y = batch(g.rank(), 1);
    if (g.rank() == 1) y[0][0] = std::numeric_limits<float>::infinity();
    std::string said;
    try {
      {
        auto no_sync = ddp.no_sync();
        net.forward(x).sum().backward();
      }
      net.a->forward(y).sum().add(net.b->forward(at::ones({1, 30})).sum()).backward();
    } catch (const NumericError& e) {
      said = e.what();
    }
    EXPECT_NE(said.find("a.weight"), std::string::npos) << said;
  });
}

}  // namespace placed_linear_test
