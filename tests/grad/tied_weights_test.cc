// SPDX-License-Identifier: Apache-2.0
// Tensors that a model registers under several names, under DistributedDataParallel. The reference
// is torch::optim on each tensor once, over the whole batch, in one process.
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/script.h>

#include <sstream>

#include "tests/grad/tied_net.h"
#include "tests/support/refusals.h"
#include "trireme/comm/fake/traffic.h"
#include "trireme/grad/compression/compression.h"
#include "trireme/grad/compression/int8_hook.h"
#include "trireme/grad/compression/power_sgd_hook.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/hooks/adasum_hook.h"
#include "trireme/grad/reducer.h"

namespace tied_weights_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr int kSteps = 4;
constexpr int64_t kRows = 8;
constexpr size_t kSmall = 512;  // bytes of a bucket: no two names share one

using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

// Adam alone would not tell a gradient that is twice too large.
const std::vector<std::pair<std::string, Make>> kOptimizers = {
    {"SGD",
     [](auto p) {
       return std::make_unique<torch::optim::SGD>(p, torch::optim::SGDOptions(0.05).momentum(0.9));
     }},
    {"Adam", [](auto p) {
       return std::make_unique<torch::optim::Adam>(p, torch::optim::AdamOptions(0.01));
     }}};

const std::vector<std::pair<std::string, DdpOptions>> kWays = {
    {"plain", {.bucket_bytes = kSmall}},
    {"one bucket", {}},
    {"static_graph", {.bucket_bytes = kSmall, .static_graph = true}},
    {"find_unused_parameters", {.bucket_bytes = kSmall, .find_unused_parameters = true}},
    {"check_finite", {.bucket_bytes = kSmall, .check_finite = true}},
    {"delayed", {.bucket_bytes = kSmall, .delayed = {"emb.weight"}}}};

TiedNet serial(const Make& make) {
  TiedNet net = tied_net();
  auto optimizer = make(each_once(*net));
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    mean_loss(net, tokens(kRows, step)).backward();
    optimizer->step();
  }
  return net;
}

std::vector<std::string> names_of(const Reducer& reducer) {
  std::vector<std::string> names;
  for (size_t i = 0; i < reducer.size(); ++i) names.push_back(reducer.name(i));
  return names;
}

}  // namespace

TEST(grad_tied_weights, train_as_over_the_whole_batch_with_each_option) {
  for (const auto& optimizer_of : kOptimizers) {
    const std::string& kind = optimizer_of.first;
    const Make& make = optimizer_of.second;
    TiedNet want = serial(make);
    for (const auto& entry : kWays)
      for (int n : {2, 4})
        run_threads(n, [&](Group g) {
          const std::string& way = entry.first;
          const DdpOptions& options = entry.second;
          TiedNet net = tied_net(static_cast<uint64_t>(g.rank()) + 1);  // rank 0's counts
          DistributedDataParallel ddp(net, g, options);
          auto optimizer = make(each_once(*net));
          for (int step = 0; step < kSteps; ++step) {
            optimizer->zero_grad();
            mean_loss(net, rows_of(tokens(kRows, step), g)).backward();
            optimizer->step();
          }
          expect_tied_as(net, want, 1e-12, kind + ", " + way + ": ");
        });
  }
}

TEST(grad_tied_weights, train_as_over_the_whole_batch_with_no_sync) {
  for (const auto& optimizer_of : kOptimizers) {
    const std::string& kind = optimizer_of.first;
    const Make& make = optimizer_of.second;
    TiedNet want = serial(make);
    for (const auto& entry : kWays)
      for (int n : {2, 4})
        run_threads(n, [&](Group g) {
          const std::string& way = entry.first;
          const DdpOptions& options = entry.second;
          if (options.static_graph) return;  // the first round counts, and it has both backwards
          TiedNet net = tied_net();
          DistributedDataParallel ddp(net, g, options);
          auto optimizer = make(each_once(*net));
          for (int step = 0; step < kSteps; ++step) {
            optimizer->zero_grad();
            const at::Tensor mine = rows_of(tokens(kRows, step), g);
            const int64_t half = mine.size(0) / 2;
            {
              auto guard = ddp.no_sync();
              (mean_loss(net, mine.narrow(0, 0, half)) / 2).backward();
            }
            (mean_loss(net, mine.narrow(0, half, half)) / 2).backward();
            optimizer->step();
          }
          expect_tied_as(net, want, 1e-12, kind + ", " + way + ": ");
        });
  }
}

TEST(grad_tied_weights, have_one_entry_under_the_first_name) {
  run_threads(2, [](Group g) {
    TiedNet net = tied_net();
    DistributedDataParallel ddp(net, g, {.bucket_bytes = kSmall, .find_unused_parameters = true});
    const auto names = names_of(ddp.reducer());
    // LibTorch lists a module's own parameters before its children's.
    expect(names == std::vector<std::string>{"head", "a.weight", "a.bias", "first.weight",
                                             "first.bias", "b.weight", "b.bias"},
           fmt::format("{}", fmt::join(names, " ")));
    (net->a->weight.sum() + net->again->bias.sum()).backward();
    expect(ddp.unused_parameters() ==
               std::vector<std::string>{"head", "a.bias", "first.weight", "b.weight", "b.bias"},
           fmt::format("{}", fmt::join(ddp.unused_parameters(), " ")));
  });
}

TEST(grad_tied_weights, a_gradient_that_is_not_finite_is_told_by_the_first_name) {
  const auto said = what_ranks_throw(2, [](Group g) {
    TiedNet net = tied_net();
    DistributedDataParallel ddp(
        net, g, {.bucket_bytes = kSmall, .find_unused_parameters = true, .check_finite = true});
    (net->again->weight * (g.rank() == 1 ? NAN : 1.0)).sum().backward();
  });
  for (const auto& s : said) {
    EXPECT_TRUE(has(s, "NumericError")) << s;
    EXPECT_TRUE(has(s, "'first.weight' on rank 1")) << s;
  }
}

TEST(grad_tied_weights, patterns_match_any_of_the_names) {
  run_threads(2, [](Group g) {
    TiedNet net = tied_net();
    // 'again.*' are the second names of the layer 'first'.
    DistributedDataParallel ddp(net, g, {.delayed = {"again.weight"}});
    const auto buckets = ddp.reducer().buckets();
    expect(buckets.size() == 2 && buckets[1].size() == 1, "one apart");
    expect(ddp.reducer().name(static_cast<size_t>(buckets[1][0])) == "first.weight",
           "the other one");
  });
  const auto said = what_ranks_throw(1, [](Group g) {
    TiedNet net = tied_net();
    DistributedDataParallel ddp(net, g, {.delayed = {"again.wait"}});
  });
  EXPECT_TRUE(has(said[0], "no parameter matches 'again.wait'")) << said[0];
}

namespace {

struct Tables : torch::nn::Module {
  Tables() {
    weight = register_parameter("weight", torch::ones({20, 3}, at::kDouble));
    emb = register_module(
        "emb", torch::nn::Embedding(torch::nn::EmbeddingOptions(20, 3).sparse(true)._weight(
                   weight.detach().clone())));
    other = register_module("other", emb.ptr());
    scale = register_parameter("scale", torch::ones({3}, at::kDouble));
  }
  at::Tensor weight, scale;
  torch::nn::Embedding emb{nullptr};
  std::shared_ptr<torch::nn::EmbeddingImpl> other;
};

}  // namespace

TEST(grad_tied_weights, a_sparse_embedding_at_two_paths_is_gathered_once) {
  auto loss = [](Tables& m, const at::Tensor& rows) {
    return ((m.emb(rows) * 2 + m.other->forward(rows + 5)) * m.scale).sum() + m.weight.sum();
  };
  run_threads(2, [&](Group g) {
    Tables net, plain;
    DistributedDataParallel ddp(net, g, {.bucket_bytes = kSmall});
    expect(ddp.reducer().size() == 2, "weight and scale are dense");
    const at::Tensor rows = torch::arange(8, at::kLong);
    loss(net, rows_of(rows, g)).backward();
    loss(plain, rows).backward();
    const at::Tensor got = net.emb->weight.grad().to_dense(),
                     want = plain.emb->weight.grad().to_dense() / 2;
    expect(net.emb->weight.grad().is_sparse() && torch::allclose(got, want), "rows");
  });
}

TEST(grad_tied_weights, ranks_that_tie_differently_are_told_which_name) {
  // One has two tensors where the other has one.
  auto said = what_ranks_throw(2, [](Group g) {
    TiedNet net = tied_net(1, g.rank() == 0);
    DistributedDataParallel ddp(net, g);
  });
  for (const auto& s : said) {
    EXPECT_TRUE(has(s, "Mismatch")) << s;
    EXPECT_TRUE(has(s, "also named 'emb.weight'") || has(s, "also named 'head'")) << s;
  }
  // As many entries under the same names, but 'c' is another one of them.
  said = what_ranks_throw(2, [](Group g) {
    at::Tensor a = torch::ones({2}).requires_grad_(), b = torch::ones({2}).requires_grad_();
    DistributedDataParallel ddp({{"a", a}, {"b", b}, {"c", g.rank() ? a : b}}, {}, g);
  });
  for (const auto& s : said) {
    EXPECT_TRUE(has(s, "Mismatch")) << s;
    EXPECT_TRUE(has(s, "also named 'c'")) << s;
  }
  // Buffers, too.
  said = what_ranks_throw(2, [](Group g) {
    at::Tensor w = torch::ones({2}).requires_grad_(), m = torch::ones({2}), n = torch::ones({2});
    DistributedDataParallel ddp({{"w", w}}, {{"m", m}, {"n", n}, {"o", g.rank() ? m : n}}, g);
  });
  for (const auto& s : said) EXPECT_TRUE(has(s, "Mismatch") && has(s, "also named 'o'")) << s;
}

TEST(grad_tied_weights, of_a_torchscript_module_and_of_what_is_loaded_from_its_file) {
  auto script = [] {
    torch::jit::Module m("Net");
    const at::Tensor w = torch::arange(12, at::kDouble).sin().view({3, 4}).requires_grad_(true);
    m.register_parameter("embedding", w, false);
    m.register_parameter("between", torch::full({3}, 0.5, at::kDouble).requires_grad_(true), false);
    m.register_parameter("head", w, false);
    m.define(
        "def forward(self, x):\n  h = torch.tanh(torch.matmul(x, self.embedding.t())) * "
        "self.between\n  return torch.matmul(h, self.head)\n");
    return m;
  };
  auto loaded = [&] {
    std::stringstream file;
    script().save(file);
    return torch::jit::load(file);
  };
  for (bool from_file : {false, true})
    run_threads(2, [&](Group g) {
      torch::jit::Module net = from_file ? loaded() : script(), plain = script();
      DistributedDataParallel ddp(net, g, {.bucket_bytes = 64});
      const at::Tensor whole = torch::arange(24, at::kDouble).cos().view({6, 4});
      for (int step = 0; step < 3; ++step) {
        for (auto* m : {&net, &plain})
          for (const auto& p : m->parameters()) p.mutable_grad() = at::Tensor();
        net.forward({rows_of(whole, g)}).toTensor().pow(2).mean().backward();
        plain.forward({whole}).toTensor().pow(2).mean().backward();
        at::NoGradGuard no_grad;
        std::set<at::TensorImpl*> done;
        for (auto* m : {&net, &plain})
          for (const auto& p : m->parameters())
            if (done.insert(p.unsafeGetTensorImpl()).second) p.sub_(p.grad());
        for (const char* name : {"embedding", "between", "head"})
          expect(torch::allclose(net.attr(name).toTensor(), plain.attr(name).toTensor(), 1e-10),
                 name);
      }
      if (!from_file) expect(ddp.reducer().size() == 2, "entries");
    });
}

TEST(grad_tied_weights, of_plain_lists_and_a_buffer_that_is_a_parameter) {
  run_threads(2, [](Group g) {
    at::Tensor w = torch::full({4}, 1.0 + g.rank(), at::kDouble).requires_grad_(true),
               v = torch::full({4}, 3.0, at::kDouble).requires_grad_(true),
               mean = torch::full({2}, 5.0 + g.rank());
    DistributedDataParallel ddp({{"w", w}, {"v", v}, {"again", w}, {"w", w}},
                                {{"mean", mean}, {"w_as_buffer", w}, {"mean_again", mean}}, g,
                                {.bucket_bytes = 8, .buffers = BufferPolicy::mean});
    expect(ddp.reducer().size() == 2 && w.eq(1).all().item<bool>(), "rank 0's, once");
    mean.fill_(g.rank());
    (w * (g.rank() + 1) + v).sum().backward();
    expect(w.grad().eq(1.5).all().item<bool>() && v.grad().eq(1).all().item<bool>(), "means");
    expect(mean.eq(0.5).all().item<bool>() && w.eq(1).all().item<bool>(), "buffers");
  });
}

// head.set_data(embedding) makes two tensors with one memory: LibTorch's optimizers step both, and
// so it is here.
TEST(grad_tied_weights, two_tensors_in_one_memory_are_two_as_they_are_in_one_process) {
  auto both = [] {
    at::Tensor a = torch::arange(6, at::kDouble).sin().requires_grad_(true),
               b = torch::zeros({6}, at::kDouble).requires_grad_(true);
    b.set_data(a);
    return std::vector<at::Tensor>{a, b};
  };
  auto loss = [](const std::vector<at::Tensor>& p, const at::Tensor& x) {
    return (torch::tanh(x * p[0]) * p[1]).pow(2).sum(1).mean();
  };
  const at::Tensor x = torch::arange(24, at::kDouble).cos().view({4, 6});
  auto want = both();
  torch::optim::SGD serial(want, torch::optim::SGDOptions(0.1));
  for (int i = 0; i < 3; ++i) {
    serial.zero_grad();
    loss(want, x).backward();
    serial.step();
  }
  run_threads(2, [&](Group g) {
    auto p = both();
    DistributedDataParallel ddp({{"embedding", p[0]}, {"head", p[1]}}, {}, g, {.bucket_bytes = 16});
    torch::optim::SGD optimizer(p, torch::optim::SGDOptions(0.1));
    for (int i = 0; i < 3; ++i) {
      optimizer.zero_grad();
      loss(p, rows_of(x, g)).backward();
      optimizer.step();
    }
    expect(torch::allclose(p[0], want[0], 1e-10) && p[0].data_ptr() == p[1].data_ptr(), "weights");
  });
}

TEST(grad_tied_weights, hooks_that_remember_are_made_of_either_list) {
  auto lists = [](TiedNet& net) {
    NamedTensors all, once;
    std::set<at::TensorImpl*> seen;
    for (const auto& item : net->named_parameters()) {
      all.emplace_back(item.key(), item.value());
      if (seen.insert(item.value().unsafeGetTensorImpl()).second) once.push_back(all.back());
    }
    return std::pair{all, once};
  };
  using Hook = std::function<std::pair<CommHook, std::shared_ptr<void>>(NamedTensors, Group)>;
  auto of = [](auto made) { return std::pair{made->hook(), std::shared_ptr<void>(made)}; };
  const std::vector<Hook> hooks = {
      [&](NamedTensors p, Group g) { return of(int8_hook(p, g, {})); },
      [&](NamedTensors p, Group g) {
        return of(
            power_sgd_hook(p, g, {.matrix_approximation_rank = 1, .min_compression_rate = 0.5}));
      },
      [&](NamedTensors p, Group g) { return of(make_compression({.type = "auto"}, p, g)); },
      [&](NamedTensors, Group) { return of(adasum_hook()); }};
  for (const Hook& hook : hooks)
    run_threads(2, [&](Group g) {
      TiedNet net = tied_net(1, true, at::kFloat), twin = tied_net(1, true, at::kFloat);
      auto [all, all_kept] = hook(lists(net).first, g);
      auto [once, once_kept] = hook(lists(twin).second, g);
      DistributedDataParallel ours(net, g, {.bucket_bytes = kSmall, .hook = all}),
          theirs(lists(twin).second, {}, g, {.bucket_bytes = kSmall, .hook = once});
      for (int step = 0; step < 5; ++step) {
        for (auto* m : {&net, &twin}) {
          (*m)->zero_grad();
          mean_loss(*m, rows_of(tokens(kRows, step), g)).backward();
          at::NoGradGuard no_grad;
          for (auto& p : each_once(**m)) p.sub_(p.grad(), 0.1);
        }
      }
      for (const auto& item : net->named_parameters())
        expect(torch::equal(item.value(), twin->named_parameters()[item.key()]), item.key());
    });
}

TEST(grad_tied_weights, are_broadcast_once) {
  TiedNet net = tied_net();
  Group world = init_process_group({.backend = "fake", .rank = 0, .world_size = 4});
  DistributedDataParallel ddp(net, world);
  uint64_t bytes = net->scale.nbytes();
  for (const auto& p : each_once(*net)) bytes += p.nbytes();
  EXPECT_EQ(fake_traffic(world).operations["broadcast"].bytes, bytes);
}

}  // namespace tied_weights_test
