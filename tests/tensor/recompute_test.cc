// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/recompute/recompute.h"

#include <ATen/autocast_mode.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <torch/autograd.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <atomic>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "trireme/base/check.h"
#include "trireme/tensor/autocast.h"
#include "trireme/tensor/random/random.h"
#include "trireme/tensor/torch_compat.h"

namespace recompute_test {

using namespace trireme;
using Tensors = std::vector<at::Tensor>;

namespace {

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t width) {
    norm = register_module("norm", torch::nn::LayerNorm(std::vector<int64_t>{width}));
    up = register_module("up", torch::nn::Linear(width, 4 * width));
    down = register_module("down", torch::nn::Linear(4 * width, width));
    torch_drop = register_module("torch_drop", torch::nn::Dropout(0.3));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor h = torch::gelu(up(norm(x)));
    if (stock) h = torch_drop(h);
    if (keyed) h = keyed_dropout(h, 0.3, "drop");
    return x + down(h);
  }
  bool stock = false, keyed = false;
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};
  torch::nn::Dropout torch_drop{nullptr};
};
TORCH_MODULE(Block);

constexpr int64_t kRows = 6, kWidth = 16;

RandomContext context() {
  RandomContext c;
  c.seed = 5;
  c.step = 3;
  c.samples.resize(kRows);
  std::iota(c.samples.begin(), c.samples.end(), 40);
  return c;
}

struct Blocks {
  explicit Blocks(size_t n) {
    torch::manual_seed(7);
    for (size_t i = 0; i < n; ++i) {
      blocks.push_back(Block(kWidth));
      for (auto& p : blocks.back()->named_parameters()) {
        name_parameters({{"blocks." + std::to_string(i) + "." + p.key(), p.value()}});
        parameters.push_back(p.value());
      }
    }
    x = torch::randn({kRows, kWidth}).requires_grad_();
  }
  std::vector<Block> blocks;
  Tensors parameters;
  at::Tensor x;

  at::Tensor through(at::Tensor h, bool again, size_t from = 0, size_t to = 99) {
    for (size_t i = from; i < std::min(to, blocks.size()); ++i) {
      Block b = blocks[i];
      h = again ? recompute([b](const at::Tensor& t) mutable { return b->forward(t); }, h,
                            b->parameters())
                : b->forward(h);
    }
    return h;
  }
  // Gradients of x and of all parameters after the forward; RNG from the same start each time.
  Tensors gradients(const std::function<at::Tensor()>& forward) {
    torch::manual_seed(99);
    x.mutable_grad() = at::Tensor();
    for (auto& p : parameters) p.mutable_grad() = at::Tensor();
    {
      RandomScope scope(context());
      forward().to(at::kFloat).pow(2).sum().backward();
    }
    Tensors all{x.grad().clone()};
    for (auto& p : parameters) all.push_back(p.grad().defined() ? p.grad().clone() : at::Tensor());
    return all;
  }
};

void same_bits(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].defined(), b[i].defined()) << i;
    if (a[i].defined()) {
      EXPECT_TRUE(a[i].equal(b[i])) << i;
    }
  }
}

std::string refused(const std::function<void()>& body) {
  try {
    body();
  } catch (const UsageError& e) {
    return e.what();
  } catch (const std::exception& e) {
    return std::string("another kind: ") + e.what();
  }
  return "";
}

void says(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

// Bytes of CPU tensors that are alive.
class CountingAllocator : public c10::Allocator {
 public:
#if TRIREME_TORCH_AT_LEAST(2, 0)
  at::DataPtr allocate(size_t n) override { return counted(n); }
  void copy_data(void* to, const void* from, size_t n) const override {
    default_copy_data(to, from, n);
  }
#else
  at::DataPtr allocate(size_t n) const override { return counted(n); }
#endif
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  static int64_t live() { return live_; }

 private:
  static at::DataPtr counted(size_t n) {
    void* p = n ? std::aligned_alloc(64, (n + 63) / 64 * 64) : nullptr;
    live_ += static_cast<int64_t>(malloc_usable_size(p));
    return {p, p, &release, at::Device(at::kCPU)};
  }
  static void release(void* p) {
    live_ -= static_cast<int64_t>(malloc_usable_size(p));
    std::free(p);
  }
  static std::atomic<int64_t> live_;
};
std::atomic<int64_t> CountingAllocator::live_{0};

}  // namespace

TEST(tensor_recompute, gradients_have_the_bits_of_the_plain_ones) {
  for (bool stock : {false, true})
    for (bool keyed : {false, true}) {
      Blocks net(3);
      for (auto& b : net.blocks) b->stock = stock, b->keyed = keyed;
      auto plain = net.gradients([&] { return net.through(net.x, false); });
      auto again = net.gradients([&] { return net.through(net.x, true); });
      same_bits(plain, again);
    }
}

TEST(tensor_recompute, outputs_and_the_generator_afterwards_are_those_of_the_plain_call) {
  Blocks net(2);
  for (auto& b : net.blocks) b->stock = true;
  torch::manual_seed(1);
  auto plain = net.through(net.x, false);
  auto next = torch::rand({4});
  torch::manual_seed(1);
  auto again = net.through(net.x, true);
  EXPECT_TRUE(plain.equal(again));
  EXPECT_TRUE(next.equal(torch::rand({4})));
  auto draws = torch::rand({1}), state = at::detail::getDefaultCPUGenerator().get_state();
  again.sum().backward();  // puts the generator back where it found it
  EXPECT_TRUE(state.equal(at::detail::getDefaultCPUGenerator().get_state()));
}

TEST(tensor_recompute, nests) {
  Blocks net(4);
  for (auto& b : net.blocks) b->stock = b->keyed = true;
  auto plain = net.gradients([&] { return net.through(net.x, false); });
  auto nested = net.gradients([&] {
    auto outer = [&](const at::Tensor& t) {
      auto h = recompute([&](const at::Tensor& u) { return net.through(u, true, 0, 2); }, t,
                         Tensors(net.parameters.begin(), net.parameters.begin() + 12));
      return net.through(h, true, 2, 4);
    };
    return recompute(outer, net.x, net.parameters);
  });
  same_bits(plain, nested);
}

TEST(tensor_recompute, several_inputs_and_outputs_some_without_gradient) {
  torch::manual_seed(3);
  auto w = torch::randn({4, 4}).requires_grad_(), unused = torch::randn({2}).requires_grad_();
  auto a = torch::randn({3, 4}).requires_grad_(), b = torch::randn({3, 4});
  auto index = torch::tensor({2, 0, 1}, at::kLong);
  auto fn = [&](const Tensors& in) -> Tensors {
    auto y = torch::mm(in[0], w).index_select(0, in[2]);
    EXPECT_FALSE(in[3].defined());
    return {y.sigmoid(), y * in[1], y.argmax(1), in[0], in[1] * 2};
  };
  auto run = [&](bool again, bool only_second) -> Tensors {
    a.mutable_grad() = w.mutable_grad() = unused.mutable_grad() = at::Tensor();
    Tensors inputs{a, b, index, at::Tensor()};
    Tensors y = again ? recompute(fn, inputs, {w, unused}) : fn(inputs);
    EXPECT_EQ(y.size(), 5u);
    EXPECT_EQ(y[2].scalar_type(), at::kLong);
    auto loss = y[1].pow(2).sum();
    if (!only_second) loss = loss + y[0].sum() + y[3].pow(3).sum();
    loss.backward();
    EXPECT_FALSE(unused.grad().defined());
    return {a.grad(), w.grad(), y[0].detach(), y[1].detach(), y[2], y[3].detach(), y[4].detach()};
  };
  for (bool only_second : {false, true}) same_bits(run(false, only_second), run(true, only_second));
}

TEST(tensor_recompute, inputs_without_gradient_still_train_the_parameters) {
  Blocks net(2);
  auto x = net.x.detach();
  auto h = net.through(x, true);
  EXPECT_TRUE(h.requires_grad());
  h.pow(2).sum().backward();
  Tensors again;
  for (auto& p : net.parameters) again.push_back(p.grad().clone());
  for (auto& p : net.parameters) p.mutable_grad() = at::Tensor();
  net.through(x, false).pow(2).sum().backward();
  for (size_t i = 0; i < again.size(); ++i) EXPECT_TRUE(again[i].equal(net.parameters[i].grad()));
}

TEST(tensor_recompute, each_parameter_is_accumulated_once) {
  Blocks net(2);
  std::vector<int> fired(net.parameters.size(), 0);
  std::vector<compat::GradHook> hooks;
  std::vector<std::string> order;
  for (size_t i = 0; i < fired.size(); ++i)
    hooks.emplace_back(net.parameters[i], [&, i] {
      if (++fired[i] == 1 && order.empty())
        compat::on_backward_end([&] { order.push_back("end"); });
      order.push_back("hook");
    });
  net.through(net.x, true).sum().backward();
  for (int n : fired) EXPECT_EQ(n, 1);
  EXPECT_EQ(order.size(), fired.size() + 1);
  EXPECT_EQ(order.back(), "end");  // after the hooks of every block, not of the first one
}

TEST(tensor_recompute, a_declared_parameter_without_use_is_not_accumulated) {
  auto used = torch::ones({3}).requires_grad_(), unused = torch::ones({3}).requires_grad_();
  int fired_used = 0, fired_unused = 0;
  compat::GradHook a(used, [&] { ++fired_used; }), b(unused, [&] { ++fired_unused; });
  auto x = torch::ones({3});
  recompute([&](const at::Tensor& t) { return t * used; }, x, {used, unused}).sum().backward();
  EXPECT_EQ(fired_used, 1);
  EXPECT_EQ(fired_unused, 0);
  EXPECT_FALSE(unused.grad().defined());
}

TEST(tensor_recompute, a_weight_used_in_two_blocks_gets_both_gradients) {
  torch::manual_seed(2);
  auto w = torch::randn({8, 8}, at::kDouble).requires_grad_();
  auto x = torch::randn({3, 8}, at::kDouble);
  auto f = [&](const at::Tensor& t) { return torch::mm(t, w).tanh(); };
  f(f(x)).sum().backward();
  auto plain = w.grad().clone();
  w.mutable_grad() = at::Tensor();
  recompute(f, recompute(f, x, {w, w}), {w}).sum().backward();
  EXPECT_TRUE(plain.equal(w.grad()));
}

TEST(tensor_recompute, a_declared_tensor_may_be_computed_itself) {
  auto w = torch::randn({4, 4}).requires_grad_();
  auto tied = w.tanh();
  auto x = torch::randn({2, 4});
  auto f = [&](const at::Tensor& t) { return torch::mm(t, tied).sigmoid(); };
  auto plain = torch::autograd::grad({f(x).sum()}, {w}, {}, true)[0];
  auto again = torch::autograd::grad({recompute(f, x, {tied}).sum()}, {w})[0];
  EXPECT_TRUE(plain.equal(again));
}

TEST(tensor_recompute, backward_twice_over_a_kept_graph) {
  Blocks net(1);
  auto y = net.through(net.x, true).sum();
  y.backward({}, /*retain_graph=*/true);
  auto once = net.parameters[2].grad().clone();
  y.backward();
  EXPECT_TRUE(net.parameters[2].grad().equal(once * 2));
  EXPECT_THROW(y.backward(), c10::Error);
}

TEST(tensor_recompute, autocast_is_that_of_the_forward) {
  Blocks net(3);
  auto run = [&](bool again) {
    return net.gradients([&] {
      AutocastGuard guard(at::kCPU, at::kBFloat16);
      return net.through(net.x, again);  // backward runs outside of the guard
    });
  };
  same_bits(run(false), run(true));
}

TEST(tensor_recompute, a_weight_cast_without_a_graph_is_not_found_by_others) {
  auto w = torch::randn({4, 4}).requires_grad_();
  auto x = torch::randn({2, 4});
  auto f = [&](const at::Tensor& t) { return torch::mm(t, w).to(at::kFloat).tanh(); };
  auto run = [&](bool again) {
    w.mutable_grad() = at::Tensor();
    AutocastGuard guard(at::kCPU, at::kBFloat16);
    auto h = again ? recompute(f, x, {w}) : f(x);
    auto loss = torch::mm(h, w).to(at::kFloat).sum();  // the same weight outside of the block
    loss.backward();                                   // and backward inside the region
    auto after = torch::mm(x, w).to(at::kFloat).sum();
    after.backward();
    return w.grad().clone();
  };
  auto plain = run(false), again = run(true);
  EXPECT_TRUE(plain.allclose(again, 2e-2, 2e-2)) << plain - again;
}

TEST(tensor_recompute, keyed_dropout_numbers_its_calls_as_in_forward) {
  auto w = torch::ones({kWidth}).requires_grad_();
  auto x = torch::ones({kRows, kWidth});
  auto f = [&](const at::Tensor& t) {
    return keyed_dropout(keyed_dropout(t * w, 0.5, "drop"), 0.5, "drop");
  };
  auto run = [&](bool again) {
    w.mutable_grad() = at::Tensor();
    at::Tensor sum;
    {
      RandomScope scope(context());
      sum = keyed_dropout(x, 0.5, "drop").sum();  // call 0 is outside of the block
      for (int i = 0; i < 3; ++i) sum = sum + (again ? recompute(f, x, {w}) : f(x)).sum();
    }
    RandomScope other(RandomContext{1, 1, {1}});  // backward may find another scope, or none
    sum.backward();
    EXPECT_EQ(RandomScope::next_call(1), 0);
    return Tensors{sum.detach(), w.grad().clone()};
  };
  same_bits(run(false), run(true));
}

TEST(tensor_recompute, without_gradients_it_is_the_plain_call) {
  Blocks net(1);
  int calls = 0;
  auto f = [&](const at::Tensor& t) {
    ++calls;
    return net.blocks[0]->forward(t);
  };
  torch::NoGradGuard no_grad;
  auto y = recompute(f, net.x, net.parameters);
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(y.equal(net.blocks[0]->forward(net.x)));
}

TEST(tensor_recompute, memory_between_forward_and_backward_falls) {
  auto* below = c10::GetCPUAllocator();
  static CountingAllocator counting;
  c10::SetCPUAllocator(&counting, 255);
  int64_t held[2];
  {
    Blocks net(8);
    auto x = torch::randn({64, kWidth}).requires_grad_();
    for (bool again : {false, true}) {
      const int64_t before = CountingAllocator::live();
      auto y = net.through(x, again);
      held[again] = CountingAllocator::live() - before;
      y.sum().backward();
      for (auto& p : net.parameters) p.mutable_grad() = at::Tensor();
      x.mutable_grad() = at::Tensor();
      y = at::Tensor();
      EXPECT_EQ(CountingAllocator::live(), before);  // nothing stays behind
    }
  }
  c10::SetCPUAllocator(below, 255);
  // A block keeps its input (1), and plainly norm (1), up (4), gelu (4) and its output too.
  EXPECT_GE(held[0], 8 * held[1]) << held[0] << " against " << held[1];
  EXPECT_LE(held[1], 8 * 64 * kWidth * 4 + 4096);
}

TEST(tensor_recompute, thread_ranks_recompute_side_by_side) {
  std::vector<std::thread> threads;
  for (int r = 0; r < 4; ++r)
    threads.emplace_back([r] {
      auto w = (torch::arange(kWidth * kWidth).view({kWidth, kWidth}) * 0.1 + r).sin();
      w.requires_grad_();
      auto x = torch::ones({kRows, kWidth});
      auto f = [&](const at::Tensor& t) { return keyed_dropout(torch::mm(t, w), 0.5, "d").tanh(); };
      for (int i = 0; i < 20; ++i) {
        RandomScope scope(context());
        w.mutable_grad() = at::Tensor();
        recompute(f, x, {w}).sum().backward();
        auto again = w.grad().clone();
        w.mutable_grad() = at::Tensor();
        RandomScope once_more(context());
        f(x).sum().backward();
        EXPECT_TRUE(again.equal(w.grad()));
      }
    });
  for (auto& t : threads) t.join();
}

TEST(tensor_recompute, an_undeclared_parameter_is_refused_by_name) {
  Blocks net(2);
  Tensors some(net.parameters.begin(), net.parameters.begin() + 11);
  auto y = recompute([&](const at::Tensor& t) { return net.through(t, false); }, net.x, some);
  auto text = refused([&] { y.sum().backward(); });
  says(text, "'blocks.1.down.bias' (Float [16])");
  says(text, "declare it");
  // An inner block's parameters are the outer one's too.
  y = recompute([&](const at::Tensor& t) { return net.through(t, true); }, net.x, some);
  says(refused([&] { y.sum().backward(); }), "'blocks.1.down.bias'");
  auto nameless = torch::ones({4, 2}).requires_grad_();
  auto x = torch::ones({3, 4}).requires_grad_();
  auto z = recompute([&](const at::Tensor& t) { return torch::mm(t, nameless); }, x, Tensors{});
  says(refused([&] { z.sum().backward(); }), "(Float [4, 2]) that is not among its parameters");
}

TEST(tensor_recompute, an_activation_that_is_not_an_input_is_refused) {
  auto w = torch::ones({4}).requires_grad_();
  auto outside = w * 2;
  auto x = torch::ones({4}).requires_grad_();
  auto y = recompute([&](const at::Tensor& t) { return t * outside; }, x, Tensors{w});
  auto text = refused([&] { y.sum().backward(); });
  says(text, "MulBackward");
  says(text, "give it as an input");
}

TEST(tensor_recompute, a_change_in_place_is_refused) {
  Blocks net(1);
  auto y = net.through(net.x, true);
  {
    torch::NoGradGuard no_grad;
    net.parameters[1].add_(1);
  }
  says(refused([&] { y.sum().backward(); }), "'blocks.0.norm.bias'");

  auto x = torch::ones({3}).requires_grad_();
  auto h = x * 2;
  says(refused([&] { recompute([](const at::Tensor& t) { return t.mul_(2); }, h, Tensors{}); }),
       "changes input 0 (Float [3]) in place");
  h = x * 2;
  auto z = recompute([](const at::Tensor& t) { return t.sin(); }, h, Tensors{});
  h.add_(1);
  EXPECT_THROW(z.sum().backward(), c10::Error);  // LibTorch's own words
}

TEST(tensor_recompute, what_differs_between_the_runs_is_refused) {
  auto x = torch::ones({3, 4}).requires_grad_();
  int run = 0;
  auto y = recompute([&](const at::Tensor& t) { return run++ ? t.sum(0) : t * 2; }, x, Tensors{});
  says(refused([&] { y.sum().backward(); }), "output 0 of fn is (Float [4]) in backward");
  run = 0;
  auto more = [&](const Tensors& t) { return run++ ? Tensors{t[0], t[0] * 2} : Tensors{t[0] * 2}; };
  auto many = recompute(more, {x}, {});
  says(refused([&] { many[0].sum().backward(); }), "1 outputs in forward and 2 in backward");
  run = 0;
  auto drawing = [&](const at::Tensor& t) {
    auto dropped = torch::dropout(t, 0.5, true);
    if (run++) torch::rand({1});
    return dropped;
  };
  auto before = at::detail::getDefaultCPUGenerator();
  y = recompute(drawing, x, Tensors{});
  auto state = before.get_state();
  says(refused([&] { y.sum().backward(); }), "other random numbers");
  EXPECT_TRUE(state.equal(before.get_state()));  // restored after the error, too
  run = 0;
  y = recompute(drawing, x, Tensors{}, RecomputeOptions{false});
  EXPECT_EQ(refused([&] { y.sum().backward(); }), "");
}

TEST(tensor_recompute, an_error_of_fn_in_backward_arrives_and_leaves_the_thread_as_it_was) {
  auto x = torch::ones({3}).requires_grad_();
  int run = 0;
  auto f = [&](const at::Tensor& t) -> at::Tensor {
    if (run++) throw std::runtime_error("second time");
    return torch::dropout(t, 0.5, true);
  };
  const auto autocast = AutocastState::current();
  at::Tensor y;
  {
    AutocastGuard guard(at::kCPU, at::kBFloat16);
    y = recompute(f, x, Tensors{});
  }
  auto state = at::detail::getDefaultCPUGenerator().get_state();
  says(refused([&] { y.sum().backward(); }), "second time");
  EXPECT_TRUE(state.equal(at::detail::getDefaultCPUGenerator().get_state()));
  EXPECT_EQ(AutocastState::current(), autocast);
  EXPECT_EQ(RandomScope::current(), nullptr);
  EXPECT_EQ(at::autocast::increment_nesting(), 1);
  EXPECT_EQ(at::autocast::decrement_nesting(), 0);
}

TEST(tensor_recompute, calls_that_make_no_sense_are_refused) {
  auto x = torch::ones({3}).requires_grad_();
  says(refused([&] { recompute(RecomputeFn(), Tensors{x}, {}); }), "fn is empty");
  auto nothing = [](const Tensors&) { return Tensors{}; };
  says(refused([&] { recompute(nothing, {x}, {}); }), "gave no output");
  auto undefined = [](const Tensors& t) { return Tensors{t[0] * 2, at::Tensor()}; };
  says(refused([&] { recompute(undefined, {x}, {}); }), "output 1 of fn is undefined");
  auto good = [](const Tensors& t) { return Tensors{t[0] * 2}; };
  says(refused([&] { recompute(good, {x}, {at::Tensor()}); }), "parameter 0 of the list");
  auto y = recompute(good, {x}, {})[0].pow(2).sum();
  says(refused([&] { torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true); }),
       "create_graph=true");
}

}  // namespace recompute_test
