// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/fully_shard.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/rnn.h>
#include <torch/serialize.h>

#include <array>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "tests/shard/sharded_tower.h"
#include "tests/support/refusals.h"

namespace fully_shard_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

using States = std::tuple<at::Tensor, at::Tensor>;

// An LSTM takes an optional pair of states and returns a tensor and such a pair.
struct Recurrent : torch::nn::Module {
  Recurrent() {
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    torch::manual_seed(3);
    lstm = register_module(
        "lstm", torch::nn::LSTM(torch::nn::LSTMOptions(5, 7).num_layers(2).batch_first(true)));
    head = register_module("head", torch::nn::Linear(7, 3));
    to(at::kDouble);
  }
  /// Twice, from zeros and from the states of the first pass, so that gradients cross both.
  template <class Pass>
  at::Tensor loss(const at::Tensor& x, const Pass& pass) {
    const std::tuple<at::Tensor, States> first = pass(x, torch::optional<States>());
    const std::tuple<at::Tensor, States> second =
        pass(x * 0.5, torch::optional<States>(std::get<1>(first)));
    return head->forward(std::get<0>(second)).square().mean() +
           std::get<1>(std::get<1>(second)).square().mean();
  }
  torch::nn::LSTM lstm{nullptr};
  torch::nn::Linear head{nullptr};
};

at::Tensor sequences(int64_t from, int64_t to) {
  return at::arange(8 * 4 * 5, at::kDouble).view({8, 4, 5}).sin().slice(0, from, to);
}

// What each_tensor() is to find: nested every way that it knows.
struct Nested : torch::nn::Module {
  using Result = std::pair<std::vector<std::optional<at::Tensor>>,
                           std::map<std::string, std::array<at::Tensor, 2>>>;
  Nested() { inner = register_module("inner", std::make_shared<Block>()); }
  Result forward(const std::vector<at::Tensor>& x, int64_t times) {
    const at::Tensor y = inner->forward(x[0]) * times;
    return {{y, std::nullopt, y * 2}, {{"a", {y * 3, at::Tensor()}}}};
  }
  std::shared_ptr<Block> inner;
};

}  // namespace

TEST(shard_fully_shard, an_lstm_is_a_unit_and_its_nested_states_carry_gradients) {
  auto want = std::make_shared<Recurrent>();
  torch::optim::SGD serial(want->parameters(), torch::optim::SGDOptions(0.5));
  for (int step = 0; step < 3; ++step) {
    serial.zero_grad();
    want->loss(sequences(0, 8),
               [&](const at::Tensor& x, torch::optional<States> states) {
                 return want->lstm->forward(x, states);
               })
        .backward();
    serial.step();
  }
  for (int world : {1, 2, 4})
    run_threads(world, [&](Group g) {
      auto net = std::make_shared<Recurrent>();
      FullySharded sharded(g);
      auto lstm = fully_shard(net->lstm, sharded, "lstm");
      sharded.root(*net);
      ShardedOptimizer<torch::optim::SGD> optimizer(sharded, torch::optim::SGDOptions(0.5));
      const int64_t rows = 8 / g.size();
      const at::Tensor mine = sequences(g.rank() * rows, (g.rank() + 1) * rows);
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        sharded
            .run(
                [&](const at::Tensor& x) {
                  return net->loss(x, [&](const at::Tensor& in, torch::optional<States> states) {
                    return lstm.forward(in, states);
                  });
                },
                mine)
            .backward();
        optimizer.step();
      }
      FullySharded::Gathered whole(sharded);
      expect_same_parameters(*net, *want, 1e-12);
    });
}

TEST(shard_fully_shard, tensors_are_found_in_vectors_optionals_pairs_maps_and_arrays) {
  run_threads(2, [&](Group g) {
    auto net = std::make_shared<Nested>();
    FullySharded sharded(g);
    auto unit = fully_shard(net, sharded, "net");
    torch::nn::Module none;
    sharded.root(none);
    sharded
        .run(
            [&](const at::Tensor& x) {
              const Nested::Result r = unit.forward(std::vector<at::Tensor>{x}, int64_t{2});
              expect(r.first.size() == 3 && !r.first[1].has_value(), "shape of the vector");
              const auto& pair = r.second.at("a");
              expect(!pair[1].defined(), "an undefined tensor");
              expect(pair[0].allclose(r.first[0].value() * 3), "values");
              return (pair[0] + *r.first[2]).sum();
            },
            at::ones({2, 40}))
        .backward();
    bool any = false;
    for (const auto& [name, shard] : sharded.shards())
      any = any || (shard.grad().defined() && shard.grad().abs().sum().item<double>() > 0);
    expect(any, "no gradient came to the shards");
  });
}

TEST(shard_fully_shard, torch_save_of_a_sharded_module_says_what_to_use_instead) {
  run_threads(2, [&](Group g) {
    ShardedTower net(1, g);
    for (std::shared_ptr<torch::nn::Module> module :
         {std::static_pointer_cast<torch::nn::Module>(net.tower),
          std::static_pointer_cast<torch::nn::Module>(net.tower->blocks[1])}) {
      std::stringstream file;
      const std::string text = refusal([&] { torch::save(module, file); });
      expect(has(text, "split over ranks") && has(text, "FullySharded::Gathered"), text);
    }
    // Under the cure it is a file as of any module, which a plain one reads.
    std::stringstream file;
    {
      FullySharded::Gathered whole(net.sharded);
      torch::save(std::static_pointer_cast<torch::nn::Module>(net.tower), file);
    }
    auto plain = std::make_shared<Tower>(2), want = std::make_shared<Tower>(1);
    auto as_module = std::static_pointer_cast<torch::nn::Module>(plain);
    torch::load(as_module, file);
    expect_same_parameters(*plain, *want, 0);
  });
}

}  // namespace fully_shard_test
