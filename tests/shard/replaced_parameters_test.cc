// SPDX-License-Identifier: Apache-2.0
// torch::load() and its relatives into a module that is sharded already: shards take the values, or
// every rank is told.
#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <sstream>

#include "tests/shard/sharded_tower.h"
#include "trireme/base/file.h"
#include "trireme/optim/host_optimizer.h"
#include "trireme/optim/master_weights.h"
#include "trireme/shard/sharded_data_parallel.h"

namespace replaced_parameters_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

template <class Holder>
std::string saved(Holder net) {
  std::ostringstream out;
  torch::save(net, out);
  return out.str();
}

template <class Holder>
void load(Holder& net, const std::string& bytes) {
  std::istringstream in(bytes);
  torch::load(net, in);
}

enum class When { before_the_first_step, between_steps, before_step, in_no_sync };

// A run of kSteps whose parameters are loaded once. `reduce(loss)` runs a backward.
template <class Net, class Backward, class Step>
void train_with_load(Net& net, When when, const std::string& file, const Backward& backward,
                     const Step& step) {
  for (int k = 0; k < kSteps; ++k) {
    if (when == When::before_the_first_step ? k == 0 : when == When::between_steps && k == 2)
      load(net, file);
    backward(k, [&] {
      if (when == When::in_no_sync && k == 2) load(net, file);
    });
    if (when == When::before_step && k == 2) load(net, file);
    step();
  }
}

Small serial(When when, const std::string& file) {
  Small want = wide();
  torch::optim::AdamW optimizer(want->parameters(), torch::optim::AdamWOptions(0.01));
  train_with_load(
      want, when, file,
      [&](int k, const auto& between) {
        optimizer.zero_grad();
        mean_loss(want, rows_of_step(k)).backward();
        between();
        mean_loss(want, rows_of_step(k + 10)).backward();
      },
      [&] { optimizer.step(); });
  return want;
}

std::vector<std::string> change_between_steps(const ShardedDataParallelOptions& options,
                                              const std::function<void(Small&, int)>& change,
                                              int at = 1) {
  return what_ranks_throw(2, [&](Group g) {
    Small net = wide();
    ShardedDataParallel zero(net, g, options);
    ShardedOptimizer<torch::optim::SGD> optimizer(zero.sharded(), torch::optim::SGDOptions(0.1));
    for (int k = 0; k < 3; ++k) {
      if (k == at) change(net, g.rank());
      optimizer.zero_grad();
      mean_loss(net, part(rows_of_step(k), g).to(net->a->weight.scalar_type())).backward();
      optimizer.step();
    }
  });
}

void expect_on_all(const std::vector<std::string>& said, const std::vector<std::string>& parts) {
  for (const auto& text : said)
    for (const auto& part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace

TEST(shard_replaced_parameters, torch_load_under_stages_1_and_2_is_the_serial_run) {
  const std::string file = saved(wide(7));
  for (When when :
       {When::before_the_first_step, When::between_steps, When::before_step, When::in_no_sync}) {
    Small want = serial(when, file);
    for (ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients})
      for (bool share : {false, true})
        run_threads(2, [&](Group g) {
          Small net = wide();
          ShardedDataParallel zero(
              net, g, {.stage = stage, .bucket_bytes = 1 << 13, .share_weights = share});
          ShardedOptimizer<torch::optim::AdamW> optimizer(zero.sharded(),
                                                          torch::optim::AdamWOptions(0.01));
          train_with_load(
              net, when, file,
              [&](int k, const auto& between) {
                optimizer.zero_grad();
                {
                  auto guard = zero.no_sync();
                  mean_loss(net, part(rows_of_step(k), g)).backward();
                }
                between();
                mean_loss(net, part(rows_of_step(k + 10), g)).backward();
              },
              [&] { optimizer.step(); });
          expect_same_parameters(*net, *want, 1e-12);
        });
  }
}

TEST(shard_replaced_parameters, an_optimizer_made_after_a_load_begins_with_the_loaded_values) {
  const std::string file = saved(wide(7));
  run_threads(2, [&](Group g) {
    Small net = wide(), want = wide(7);
    ShardedDataParallel zero(net, g);
    load(net, file);
    for (const auto& [name, shard] : zero.sharded().shards()) {
      const at::Tensor whole = want->named_parameters()[name].detach().reshape({-1});
      const int64_t n = shard.numel();
      bool found = false;
      for (int64_t at = 0; !found && at + n <= whole.numel(); ++at)
        found = whole.narrow(0, at, n).equal(shard.detach());
      expect(found, name + " has other values than the file");
    }
  });
}

TEST(shard_replaced_parameters, float32_masters_follow_a_load) {
  const std::string file = saved(wide(7, at::kBFloat16));
  using Make = std::function<std::unique_ptr<Optimizer>(NamedTensors)>;
  const Make inner = [](NamedTensors p) { return make_adamw(std::move(p)); };
  for (const Make& make :
       {Make([&](NamedTensors p) { return with_master_weights(std::move(p), inner); }),
        Make([&](NamedTensors p) { return host_optimizer(std::move(p), inner); })}) {
    Small want = wide(1, at::kBFloat16);
    NamedTensors all;
    for (const auto& item : want->named_parameters()) all.emplace_back(item.key(), item.value());
    const auto rows = [](int k) { return rows_of_step(k, at::kBFloat16); };
    auto serial = make(all);
    for (int k = 0; k < kSteps; ++k) {
      if (k == 2) load(want, file);
      serial->zero_grad(true);
      mean_loss(want, rows(k)).backward();
      serial->step(1e-4);
    }
    // Steps so small are lost in a bfloat16: with stale masters nothing of the file would be left.
    Small loaded = wide(7, at::kBFloat16);
    expect((want->b->weight - loaded->b->weight).abs().max().item<double>() < 0.01,
           "the masters did not follow");
    run_threads(2, [&](Group g) {
      Small net = wide(1, at::kBFloat16);
      ShardedDataParallel zero(net, g);
      auto optimizer = make(zero.sharded().shards());
      for (int k = 0; k < kSteps; ++k) {
        if (k == 2) load(net, file);
        zero.sharded().zero_grad();
        mean_loss(net, rows(k)).backward();
        optimizer->step(1e-4);
        zero.sharded().publish();
      }
      expect_same_parameters(*net, *want, 1e-12);
    });
  }
}

TEST(shard_replaced_parameters, a_load_on_one_rank_is_told_on_all) {
  const std::string file = saved(wide(7));
  for (bool share : {false, true})
    for (int where : {0, 1})
      expect_on_all(change_between_steps({.share_weights = share},
                                         [&](Small& net, int rank) {
                                           if (rank == where) load(net, file);
                                         }),
                    {"Mismatch: ", "was exchanged", "not on rank", "the sharded module"});
}

TEST(shard_replaced_parameters, a_load_on_one_rank_before_step_is_told_in_the_next_backward) {
  const std::string file = saved(wide(7));
  const auto said = what_ranks_throw(2, [&](Group g) {
    Small net = wide();
    ShardedDataParallel zero(net, g);
    ShardedOptimizer<torch::optim::SGD> optimizer(zero.sharded(), torch::optim::SGDOptions(0.1));
    for (int k = 0; k < 2; ++k) {
      optimizer.zero_grad();
      mean_loss(net, part(rows_of_step(k), g)).backward();
      if (g.rank() == 1) load(net, file);
      optimizer.step();
    }
  });
  expect_on_all(said, {"Mismatch: ", "was exchanged", "on rank 1 and not on rank 0"});
}

TEST(shard_replaced_parameters, a_load_that_our_optimizer_stepped_past_is_refused_on_all_ranks) {
  const std::string file = saved(wide(7)), tower = saved(std::make_shared<Tower>(7));
  for (bool stage3 : {false, true})
    for (int only : {-1, 1}) {
      const auto said = what_ranks_throw(2, [&](Group g) {
        const bool loads = only < 0 || g.rank() == only;
        if (stage3) {
          ShardedTower net(1, g);
          auto optimizer = make_adamw(net.sharded.shards());
          loss_of(net.forward(part(rows_of_step(0), g))).backward();
          if (loads) load(net.tower, tower);
          optimizer->step(0.01);
          net.sharded.publish();
          loss_of(net.forward(part(rows_of_step(0), g))).backward();
        } else {
          Small net = wide();
          ShardedDataParallel zero(net, g);
          auto optimizer = make_adamw(zero.sharded().shards());
          mean_loss(net, part(rows_of_step(0), g)).backward();
          if (loads) load(net, file);
          optimizer->step(0.01);
          zero.sharded().publish();
        }
      });
      expect_on_all(said, {"was exchanged (torch::load(), to(), set_data()) before an optimizer"});
      EXPECT_EQ(said[1].rfind("UsageError: rank 1: parameter '", 0), 0u) << said[1];
    }
}

TEST(shard_replaced_parameters, another_dtype_is_refused_on_all_ranks) {
  for (ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients})
    for (int only : {-1, 0})
      for (int at : {0, 1})
        expect_on_all(change_between_steps(
                          {.stage = stage},
                          [&](Small& net, int rank) {
                            if (only < 0 || rank == only) net->to(at::kFloat);
                          },
                          at),
                      {"UsageError: rank 0: parameter '", "is Float ", "the sharded module"});
}

TEST(shard_replaced_parameters, a_parameter_used_only_inside_no_sync_is_reduced) {
  for (ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients}) {
    Small want = wide();
    torch::optim::SGD serial(want->parameters(), torch::optim::SGDOptions(0.1));
    for (int k = 0; k < 2; ++k) {
      serial.zero_grad();
      const auto rows = rows_of_step(k);
      want->forward(rows).pow(2).mean().backward();
      want->forward(rows, false).pow(2).mean().backward();
      serial.step();
    }
    run_threads(2, [&](Group g) {
      Small net = wide();
      ShardedDataParallel zero(net, g, {.stage = stage});
      ShardedOptimizer<torch::optim::SGD> optimizer(zero.sharded(), torch::optim::SGDOptions(0.1));
      for (int k = 0; k < 2; ++k) {
        optimizer.zero_grad();
        const auto rows = part(rows_of_step(k), g);
        {
          auto guard = zero.no_sync();
          net->forward(rows).pow(2).mean().backward();
        }
        net->forward(rows, false).pow(2).mean().backward();
        optimizer.step();
      }
      expect_same_parameters(*net, *want, 1e-12);
    });
  }
}

TEST(shard_replaced_parameters, torch_load_under_stage_3_is_the_serial_run) {
  const std::string file = saved(std::make_shared<Tower>(7));
  for (int at : {0, 2})
    for (bool gathered : {false, true})
      for (bool on_disk : {false, true}) {
        PrivateFolder folder;
        auto want = std::make_shared<Tower>(1);
        torch::optim::AdamW serial(want->parameters(), torch::optim::AdamWOptions(0.01));
        for (int k = 0; k < kSteps; ++k) {
          if (k == at) load(want, file);
          serial.zero_grad();
          loss_of(want->forward(rows_of_step(k))).backward();
          serial.step();
        }
        run_threads(2, [&](Group g) {
          FullyShardedOptions options;
          if (on_disk)
            options.file = ShardFileOptions{.file = {.folder = folder.path(), .block_size = 4096},
                                            .buffer_count = 2};
          ShardedTower net(1, g, options);
          ShardedOptimizer<torch::optim::AdamW> optimizer(net.sharded,
                                                          torch::optim::AdamWOptions(0.01));
          for (int k = 0; k < kSteps; ++k) {
            if (k == at) {
              std::optional<FullySharded::Gathered> whole;
              if (gathered) whole.emplace(net.sharded);
              load(net.tower, file);
            }
            optimizer.zero_grad();
            loss_of(net.forward(part(rows_of_step(k), g))).backward();
            optimizer.step();
          }
          net.expect_same(*want);
          for (const auto& p : net.tower->parameters())
            expect(p.data_ptr() == nullptr, "bytes of a whole parameter are left");
        });
      }
}

TEST(shard_replaced_parameters, under_stage_3_a_load_on_one_rank_is_told_on_all) {
  const std::string file = saved(std::make_shared<Tower>(7));
  for (int where : {0, 1}) {
    const auto said = what_ranks_throw(2, [&](Group g) {
      ShardedTower net(1, g);
      ShardedOptimizer<torch::optim::SGD> optimizer(net.sharded, torch::optim::SGDOptions(0.1));
      for (int k = 0; k < 3; ++k) {
        if (k == 1 && g.rank() == where) load(net.tower, file);
        optimizer.zero_grad();
        loss_of(net.forward(part(rows_of_step(k), g))).backward();
        optimizer.step();
      }
    });
    expect_on_all(said, {"Mismatch: ", "was exchanged", "not on rank", "FullySharded"});
  }
}

TEST(shard_replaced_parameters, under_stage_3_another_dtype_is_refused_on_all_ranks) {
  for (int only : {-1, 1}) {
    const auto said = what_ranks_throw(2, [&](Group g) {
      ShardedTower net(1, g);
      if (only < 0 || g.rank() == only)
        net.tower->to->weight.set_data(torch::ones({40, 9}, at::kFloat));
      loss_of(net.forward(part(rows_of_step(0), g))).backward();
    });
    expect_on_all(said, {"parameter 'to.weight' is Float [40, 9] on cpu now"});
    EXPECT_EQ(said[1].rfind("UsageError: rank 1", 0), 0u) << said[1];
  }
}

TEST(shard_replaced_parameters, under_stage_3_a_unit_used_only_inside_no_sync_is_reduced) {
  const auto rows = [](int k) { return rows_of_step(k); };
  auto want = std::make_shared<Tower>(1);
  std::set<size_t> skipped;
  want->run_block = [&](size_t i, const at::Tensor& x) {
    return skipped.count(i) ? x : want->blocks[i]->forward(x);
  };
  torch::optim::SGD serial(want->parameters(), torch::optim::SGDOptions(0.1));
  for (int k = 0; k < 2; ++k) {
    serial.zero_grad();
    skipped.clear();
    loss_of(want->forward(rows(k))).backward();
    skipped = {2};
    loss_of(want->forward(rows(k))).backward();
    serial.step();
  }
  run_threads(2, [&](Group g) {
    ShardedTower net(1, g);
    bool skip = false;
    const auto all = net.tower->run_block;
    net.tower->run_block = [&](size_t i, const at::Tensor& x) {
      return skip && i == 2 ? x : all(i, x);
    };
    ShardedOptimizer<torch::optim::SGD> optimizer(net.sharded, torch::optim::SGDOptions(0.1));
    for (int k = 0; k < 2; ++k) {
      optimizer.zero_grad();
      {
        auto guard = net.sharded.no_sync();
        skip = false;
        loss_of(net.forward(part(rows(k), g))).backward();
      }
      skip = true;
      loss_of(net.forward(part(rows(k), g))).backward();
      optimizer.step();
    }
    net.expect_same(*want);
  });
}

TEST(shard_replaced_parameters, an_optimizer_state_of_whole_parameters_is_refused_on_all_ranks) {
  const auto matrix = [] { return torch::ones({64, 64}, at::kDouble).requires_grad_(true); };
  std::ostringstream out;
  {
    std::vector<at::Tensor> all{matrix()};
    torch::optim::Adam optimizer(all, torch::optim::AdamOptions(0.1));
    all[0].pow(2).sum().backward();
    optimizer.step();
    torch::save(optimizer, out);
  }
  const auto said = what_ranks_throw(2, [&](Group g) {
    const at::Tensor w = matrix();
    ShardedDataParallel zero(NamedTensors{{"w", w}}, {}, g);
    ShardedOptimizer<torch::optim::Adam> optimizer(zero.sharded(), torch::optim::AdamOptions(0.1));
    std::istringstream in(out.str());
    torch::load(optimizer.torch_optimizer(), in);
    w.pow(2).sum().backward();
    optimizer.step();
  });
  expect_on_all(said, {"ShardedOptimizer: the optimizer's state does not fit this rank's shards"});
}

}  // namespace replaced_parameters_test
