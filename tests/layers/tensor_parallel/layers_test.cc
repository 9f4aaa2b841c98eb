// SPDX-License-Identifier: Apache-2.0
// What a careless or unlucky user of the layers gets.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>

#include "tests/layers/tensor_parallel/gpt.h"
#include "trireme/base/check.h"
#include "trireme/comm/fake/traffic.h"
#include "trireme/comm/start/run.h"
#include "trireme/layers/tensor_parallel/gradients.h"
#include "trireme/layers/tensor_parallel/regions.h"
#include "trireme/tensor/random/random.h"

namespace tensor_parallel_layers_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

std::string refused(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}
void has(const std::string& text, const std::string& part) {
  trireme::check<Error>(text.find(part) != text.npos, "'{}' does not say '{}'", text, part);
}
void near(const at::Tensor& a, const at::Tensor& b, const std::string& what,
          double tolerance = 1e-10) {
  trireme::check<Error>(a.defined() && a.sizes() == b.sizes(), "{} has other sizes", what);
  trireme::check<Error>(at::allclose(a, b, tolerance, tolerance), "{}: off by {}", what,
                        a.sub(b).abs().max().item<double>());
}

at::Tensor numbers(at::IntArrayRef sizes, double phase) {
  int64_t n = 1;
  for (const auto size : sizes) n *= size;
  return at::arange(n, at::kDouble).mul(0.37).add(phase).sin().view(sizes);
}

// A column- and a row-parallel layer with uneven parts, in float64.
struct Pair : torch::nn::Module {
  explicit Pair(const TensorParallel& tp, int64_t hidden = 11)
      : up(register_module("up", std::make_shared<ColumnParallelLinear>(tp, 6, hidden))),
        down(register_module("down", std::make_shared<RowParallelLinear>(tp, hidden, 6))) {
    load_formula(*this);
  }
  at::Tensor forward(const at::Tensor& x, int64_t sequence = 0) const {
    return down->forward(up->forward(x, sequence).tanh());
  }
  std::shared_ptr<ColumnParallelLinear> up;
  std::shared_ptr<RowParallelLinear> down;
};

}  // namespace

TEST(layers_tensor_parallel_layers, frozen_parts_and_inputs_send_and_get_nothing) {
  for (const bool sequence : {false, true})
    run_threads(3, [&](Group g) {
      const TensorParallel tp(g, {.sequence_parallel = sequence});
      Pair pair(tp);
      pair.up->weight.set_requires_grad(false);
      pair.down->bias.set_requires_grad(false);
      const at::Tensor whole = numbers({2, 6, 6}, 1);
      const at::Tensor x = sequence ? regions::scatter_to(whole, g, 1) : whole;
      pair.forward(x).sum().backward();
      EXPECT_FALSE(pair.up->weight.grad().defined());
      EXPECT_FALSE(pair.down->bias.grad().defined());
      EXPECT_TRUE(pair.up->bias.grad().defined());
      EXPECT_TRUE(pair.down->weight.grad().defined());
      at::NoGradGuard no_grad;
      EXPECT_FALSE(pair.forward(x).requires_grad());
    });
}

TEST(layers_tensor_parallel_layers, they_can_be_differentiated_twice) {
  // A gradient penalty: Σ (dy/dx)², and its derivatives, against one rank.
  std::map<std::string, at::Tensor> expected;
  at::Tensor penalty, of_x;
  for (const bool sequence : {false, true})
    for (const int ranks : {1, 2, 3}) {
      if (ranks == 1 && sequence) continue;
      run_threads(ranks, [&](Group g) {
        const TensorParallel tp(g, {.sequence_parallel = sequence});
        Pair pair(tp);
        const at::Tensor whole = numbers({2, 7, 6}, 1).requires_grad_(true);
        const at::Tensor x = sequence ? regions::scatter_to(whole, g, 1) : whole;
        at::Tensor y = pair.forward(x, 7);
        if (sequence) y = regions::gather_from(y, g, 1, 7);
        const at::Tensor first =
            torch::autograd::grad({y.pow(2).sum()}, {whole}, {}, true, true)[0];
        const at::Tensor loss = first.pow(2).sum();
        loss.backward();
        add_shared_gradients(pair, tp);
        if (ranks == 1) {
          penalty = loss.detach(), of_x = whole.grad();
          for (const auto& [name, p] : named_parameters(pair)) expected[name] = p.grad();
        } else {
          near(loss.detach(), penalty, "the penalty");
          near(whole.grad(), of_x, "the input's");
          const auto layouts = layouts_of(pair);
          for (const auto& [name, p] : named_parameters(pair))
            near(p.grad(), part_of(expected.at(name), layouts.at(name)), name);
        }
      });
    }
}

TEST(layers_tensor_parallel_layers, inputs_of_one_to_four_dims_are_taken) {
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{6}, {4, 6}, {2, 4, 6}, {2, 3, 2, 6}}) {
    at::Tensor expected;
    for (const int ranks : {1, 2, 4})
      run_threads(ranks, [&](Group g) {
        const TensorParallel tp(g);
        const at::Tensor x = numbers(sizes, 1).requires_grad_(true);
        const at::Tensor y = Pair(tp).forward(x);
        y.pow(2).sum().backward();
        const at::Tensor both = at::cat({y.detach().flatten(), x.grad().flatten()});
        if (ranks == 1)
          expected = both;
        else
          near(both, expected, "output and gradient");
      });
  }
}

TEST(layers_tensor_parallel_layers, an_input_that_differs_is_told_on_every_rank_when_checked) {
  std::atomic<int> told = 0;
  run_threads(3, [&](Group g) {
    const TensorParallel tp(g, {.check_inputs = true});
    Pair pair(tp);
    at::Tensor x = numbers({2, 6}, 1);
    pair.forward(x);
    if (g.rank() == 2) x[1][3] += 1e-14;
    const auto text = refused([&] { pair.forward(x); });
    has(text, "the input of a ColumnParallelLinear differs between ranks 2 and 0");
    ++told;
    const TensorParallel unchecked(g);
    Pair(unchecked).forward(x);  // and the group is usable
    VocabParallelEmbedding table(tp, 9, 4);
    has(refused([&] { table.forward(at::full({2}, g.rank(), at::kLong)); }),
        "the input of a VocabParallelEmbedding differs between ranks 1 and 0");
    has(refused([&] {
          vocab_parallel_cross_entropy(at::zeros({1, 3}), at::full({1}, g.rank(), at::kLong), 9,
                                       tp);
        }),
        "the target of a vocab_parallel_cross_entropy differs between ranks 1 and 0");
  });
  EXPECT_EQ(told, 3);
}

TEST(layers_tensor_parallel_layers, other_shapes_on_another_rank_are_one_error_without_a_hang) {
  for (const bool sequence : {false, true})
    EXPECT_THROW(run_threads(2,
                             [&](Group g) {
                               const TensorParallel tp(g, {.sequence_parallel = sequence});
                               Pair(tp).forward(numbers({2, 2 + g.rank(), 6}, 1));
                             }),
                 Mismatch);
}

TEST(layers_tensor_parallel_layers, a_rank_that_throws_between_layers_ends_the_others) {
  try {
    run_threads(3, [&](Group g) {
      const TensorParallel tp(g);
      Pair pair(tp);
      pair.forward(numbers({2, 6}, 1));
      if (g.rank() == 1) throw std::runtime_error("the disk is full");
      pair.forward(numbers({2, 6}, 1));
      ADD_FAILURE() << "rank " << g.rank() << " went on";
    });
    FAIL();
  } catch (const std::exception& e) {
    EXPECT_NE(std::string(e.what()).find("the disk is full"), std::string::npos) << e.what();
  }
}

TEST(layers_tensor_parallel_layers, positions_that_do_not_divide_need_their_number) {
  run_threads(2, [](Group g) {
    const TensorParallel tp(g, {.sequence_parallel = true});
    Pair pair(tp);
    const at::Tensor x = regions::scatter_to(numbers({2, 7, 6}, 1), g, 1);
    EXPECT_EQ(x.size(1), 3 + g.rank());
    pair.forward(x, 7);
    if (g.rank() == 0)
      has(refused([&] { pair.forward(x, 9); }),
          "rank 0 of 2 was given 3 positions of a sequence of 9, and its part is 4");
    has(refused([&] { pair.forward(numbers({2, 0, 6}, 1)); }), "a sequence of 0");
    has(refused([&] { pair.forward(numbers({6}, 1)); }), "a dim of positions");
    g.barrier();
  });
}

TEST(layers_tensor_parallel_layers, sizes_that_do_not_fit_are_refused_before_anything_is_made) {
  run_threads(2, [](Group g) {
    const TensorParallel tp(g);
    has(refused([&] { ColumnParallelLinear(tp, 4, 1); }),
        "a linear layer with outputs of 1 in granules of 1 gives 1 parts for 2 ranks");
    has(refused([&] { RowParallelLinear(tp, 8, 4, {.granule = 8}); }), "or a smaller granule");
    has(refused([&] { VocabParallelEmbedding(tp, 1, 4); }), "a vocabulary of 1");
    has(refused([&] { ParallelSwiGlu(tp, 4, 1); }), "a block with hidden units of 1");
    has(refused([&] { ParallelAttention(tp, {.width = 9, .heads = 3}); }),
        "3 query heads do not divide among 2 tensor-parallel ranks");
    has(refused([&] { ParallelAttention(tp, {.width = 10, .heads = 4}); }),
        "a width of 10 does not divide into 4 heads");
    has(refused([&] {
          Pair(tp).forward(numbers({2, 5}, 1));
        }),
        "the last dim of the input is 5, and this rank's weight is [");
    has(refused([&] {
          Pair(tp).forward(numbers({2, 6}, 1).to(at::kFloat));
        }),
        "the input is Float and the weight Double");
    has(refused([] { const TensorParallel none{Group()}; }), "the group is empty");
    g.barrier();
  });
}

TEST(layers_tensor_parallel_layers, ids_outside_of_the_vocabulary_are_refused_on_every_rank) {
  run_threads(2, [](Group g) {
    const TensorParallel tp(g);
    VocabParallelEmbedding table(tp, 9, 4);
    load_formula(table);
    has(refused([&] {
          table.forward(at::tensor({3, 9}, at::kLong));
        }),
        "an id of 9 is outside of the vocabulary of 9");
    has(refused([&] { table.forward(at::tensor({-1}, at::kLong)); }), "an id of -1");
    const at::Tensor whole = whole_by_formula("weight", {9, 4}, 0);
    const at::Tensor ids = at::tensor({8, 0, 4, 4}, at::kLong);
    near(table.forward(ids).detach(), whole.index_select(0, ids), "rows");
    near(table.forward(ids.to(at::kInt)).detach(), whole.index_select(0, ids), "rows by int32");
  });
}

TEST(layers_tensor_parallel_layers, parameters_that_were_never_set_are_nan_and_not_noise) {
  run_threads(2, [](Group g) {
    const TensorParallel tp(g);
    const ParallelBlock block(tp, {.width = 8, .heads = 4});
    for (const auto& [name, p] : named_parameters(block))
      EXPECT_EQ(p.isnan().all().item<bool>(), !name.starts_with("ln")) << name;
  });
}

TEST(layers_tensor_parallel_layers, dropout_without_a_scope_is_refused_where_ranks_would_differ) {
  for (const bool sequence : {false, true})
    run_threads(2, [&](Group g) {
      const TensorParallel tp(g, {.sequence_parallel = sequence});
      TestGpt model(tp, {.dropout = 0.5});
      load_formula(model);
      const auto batch = batch_by_formula(0, 3, 6);
      has(refused([&] { model.logits(batch.ids); }), "no RandomScope is set");
      model.eval();
      model.logits(batch.ids);
    });
}

TEST(layers_tensor_parallel_layers, shared_gradients_stay_undefined_where_no_rank_has_used_them) {
  run_threads(2, [](Group g) {
    const TensorParallel tp(g, {.sequence_parallel = true});
    Pair pair(tp);
    auto& bias = pair.down->bias;
    add_shared_gradients(pair, tp);
    EXPECT_FALSE(bias.grad().defined());
    if (g.rank() == 1) bias.mutable_grad() = at::ones_like(bias);
    add_shared_gradients(pair, tp);
    EXPECT_TRUE(bias.grad().eq(1).all().item<bool>()) << "a rank that did not use it gets the sum";
    add_shared_gradients(pair, tp);
    EXPECT_TRUE(bias.grad().eq(2).all().item<bool>());
    // Without sequence_parallel they are equal already, and stay as they are.
    const TensorParallel whole(g);
    Pair plain(whole);
    plain.down->bias.mutable_grad() = at::ones_like(bias);
    add_shared_gradients(plain, whole);
    EXPECT_TRUE(plain.down->bias.grad().eq(1).all().item<bool>());
  });
}

TEST(layers_tensor_parallel_layers, a_plain_norm_between_divided_positions_is_found) {
  struct WithPlainNorm : torch::nn::Module {
    explicit WithPlainNorm(const TensorParallel& tp)
        : pair(register_module("pair", std::make_shared<Pair>(tp))),
          norm(register_module("norm", std::make_shared<LayerNorm>(6))) {
      load_formula(*this);
    }
    std::shared_ptr<Pair> pair;
    std::shared_ptr<LayerNorm> norm;
  };
  std::atomic<int> told = 0;
  run_threads(3, [&](Group g) {
    for (const bool sequence : {false, true}) {
      const TensorParallel tp(g, {.sequence_parallel = sequence});
      WithPlainNorm net(tp);
      const at::Tensor whole = numbers({2, 7, 6}, 1);
      const at::Tensor x = sequence ? regions::scatter_to(whole, g, 1) : whole;
      check_replicas(net, tp);
      net.pair->forward(net.norm->forward(x), 7).pow(2).sum().backward();
      add_shared_gradients(net, tp);
      try {
        check_replicas(net, tp);
        trireme::check<Error>(!sequence, "nobody noticed");
      } catch (const UsageError& e) {
        trireme::check<Error>(sequence, "{}", e.what());
        has(e.what(), "the gradient of 'norm.weight' differs between ranks 1 and 0 of axis 'tp'");
        ++told;
      }
    }
    const TensorParallel tp(g);
    Pair pair(tp);
    if (g.rank() == 2) {
      at::NoGradGuard no_grad;
      pair.down->bias[1] += 1e-15;
    }
    try {
      check_replicas(pair, tp);
    } catch (const UsageError& e) {
      has(e.what(), "parameter 'down.bias' differs between ranks 2 and 0");
      ++told;
    }
  });
  EXPECT_EQ(told, 6);
}

TEST(layers_tensor_parallel_layers, shared_heads_and_buffers_that_differ_are_found) {
  struct WithTable : torch::nn::Module {
    explicit WithTable(const TensorParallel& tp)
        : attention(register_module(
              "attention",
              std::make_shared<ParallelAttention>(
                  tp, ParallelAttentionOptions{.width = 8, .heads = 4, .kv_heads = 2}))),
          table(register_buffer("table", at::ones({3}))) {
      load_formula(*this);
    }
    std::shared_ptr<ParallelAttention> attention;
    at::Tensor table;
  };
  // Of 4 ranks 0 and 1 share a key/value head, and 2 and 3 the other one.
  std::atomic<int> told = 0, alike = 0;
  const auto expect = [&](const torch::nn::Module& net, const TensorParallel& tp,
                          const std::string& what) {
    try {
      check_replicas(net, tp);
      ++alike;
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find(what), std::string::npos) << e.what();
      ++told;
    }
  };
  run_threads(4, [&](Group g) {
    const TensorParallel tp(g);
    at::NoGradGuard no_grad;
    WithTable good(tp), keys(tp), gradients(tp), table(tp);
    for (const auto& p : good.parameters()) at::Tensor(p).mutable_grad() = at::ones_like(p);
    expect(good, tp, "nothing");
    // Rows of a rank: 2 of queries, 2 of the keys and 2 of the values of its head.
    if (g.rank() == 3) keys.attention->qkv->weight[3][0] += 1e-6;
    expect(keys, tp,
           "the part of parameter 'attention.qkv.weight' of [2, 8] from [10, 0] on differs between "
           "ranks 3 and 2 of axis 'tp'");
    for (const auto& p : gradients.parameters()) at::Tensor(p).mutable_grad() = at::ones_like(p);
    if (g.rank() == 1) gradients.attention->qkv->bias.mutable_grad()[4] += 1;
    expect(
        gradients, tp,
        "the gradient of 'attention.qkv.bias' of [2] from [12] on differs between ranks 1 and 0");
    if (g.rank() == 2) table.table[1] = 7;
    expect(table, tp, "buffer 'table' differs between ranks 2 and 0");
  });
  EXPECT_EQ(alike, 4);
  EXPECT_EQ(told, 12);
}

TEST(layers_tensor_parallel_layers, the_norm_counts_shared_heads_once) {
  // Gradients of ones: the norm is √(elements of the whole model).
  for (const int64_t kv : {1, 2, 4})
    for (const int ranks : {1, 2, 4})
      run_threads(ranks, [&](Group g) {
        const TensorParallel tp(g);
        ParallelAttention attention(tp, {.width = 8, .heads = 4, .kv_heads = kv});
        int64_t elements = 0;
        const auto layouts = layouts_of(attention);
        for (const auto& [name, p] : named_parameters(attention)) {
          p.mutable_grad() = at::ones_like(p);
          elements += at::empty(layouts.at(name).shape).numel();
        }
        EXPECT_EQ(elements, (8 + 4 * kv) * 9 + 8 * 9);
        const double norm = clip_grad_norm(attention, tp, 1.0);
        EXPECT_NEAR(norm, std::sqrt(static_cast<double>(elements)), 1e-9);
        EXPECT_NEAR(attention.proj->bias.grad()[0].item<double>(), 1 / norm, 1e-6);
        EXPECT_NEAR(clip_grad_norm(attention, tp, 10.0), 1.0, 1e-5) << "and now it is not clipped";
        EXPECT_NEAR(attention.proj->bias.grad()[0].item<double>(), 1 / norm, 1e-6);
      });
}

TEST(layers_tensor_parallel_layers, a_block_sends_what_its_page_says) {
  // A world that moves nothing and counts.
  for (const bool sequence : {false, true}) {
    const Group g = init_process_group({.backend = "fake", .rank = 0, .world_size = 2});
    const TensorParallel tp(g, {.sequence_parallel = sequence});
    ParallelBlock block(tp, {.width = 24, .heads = 4});
    const uint64_t bytes = 2 * 6 * 24 * sizeof(float);  // [batch, positions, width]
    const auto count = [&](const char* op) { return fake_traffic(g).operations[op]; };
    const at::Tensor x = at::zeros({2, sequence ? 3 : 6, 24}).requires_grad_(true);
    const at::Tensor y = block.forward(x);
    EXPECT_EQ(count("all_reduce").calls, sequence ? 0u : 2u);
    EXPECT_EQ(count("all_reduce").bytes, sequence ? 0u : 2 * bytes);
    EXPECT_EQ(count("all_gather").calls, sequence ? 2u : 0u);
    EXPECT_EQ(count("all_gather").bytes, sequence ? 2 * bytes : 0u);
    EXPECT_EQ(count("reduce_scatter").calls, sequence ? 2u : 0u);
    y.sum().backward();
    EXPECT_EQ(count("all_reduce").calls, sequence ? 0u : 4u);
    EXPECT_EQ(count("all_gather").calls, sequence ? 6u : 0u);
    EXPECT_EQ(count("reduce_scatter").calls, sequence ? 4u : 0u);
    EXPECT_EQ(count("reduce_scatter").bytes, sequence ? 4 * bytes : 0u);
    EXPECT_EQ(fake_traffic(g).operations.size(), sequence ? 2u : 1u);
  }
}

TEST(layers_tensor_parallel_layers, what_is_added_lies_in_memory_of_the_group) {
  run_threads(2, [](Group g) {
    const TensorParallel tp(g);
    const auto made = [&](const at::Tensor& t) {
      // From Group::empty() the deleter is the group's; LibTorch's own allocator gives the other.
      return t.storage().data_ptr().get_deleter() !=
             at::empty({1}).storage().data_ptr().get_deleter();
    };
    Pair pair(tp);
    const at::Tensor x = numbers({2, 6}, 1).requires_grad_(true);
    const at::Tensor hidden = pair.up->forward(x);
    EXPECT_FALSE(made(hidden)) << "nobody adds it";
    EXPECT_TRUE(made(pair.down->forward(hidden)));
    at::Tensor gradient;
    x.register_hook([&](const at::Tensor& g_of_x) { gradient = g_of_x; });
    hidden.sum().backward();
    EXPECT_TRUE(made(gradient)) << "the input's gradient, which is added in backward";
  });
}

TEST(layers_tensor_parallel_layers, bfloat16_layers_are_near_float32s_widened_or_not) {
  for (const bool sequence : {false, true})
    for (const auto products : {HalfProducts::native, HalfProducts::widened})
      run_threads(2, [&](Group g) {
        const TensorParallel tp(g, {.sequence_parallel = sequence});
        ParallelGeluMlp exact(tp, 24, 50), half(tp, 24, 50);
        load_formula(exact), load_formula(half, at::kBFloat16);
        set_half_products(half, products);
        const at::Tensor x = numbers({2, 3, 24}, 1);
        const at::Tensor y = half.forward(x.to(at::kBFloat16), 6);
        EXPECT_EQ(y.scalar_type(), at::kBFloat16);
        near(y.detach().to(at::kDouble), exact.forward(x, 6).detach(), "output", 0.05);
        y.sum().backward();
        EXPECT_EQ(half.up->weight.grad().scalar_type(), at::kBFloat16);
      });
}

}  // namespace tensor_parallel_layers_test
