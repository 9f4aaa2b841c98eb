// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/missing_operator.h"

#include <gtest/gtest.h>
#include <torch/csrc/api/include/torch/version.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/device/train_runs.h"
#include "tests/shard/sharded_nets.h"
#include "tests/support/ranks.h"
#include "tests/support/refusals.h"
#include "tests/train/programs.h"
#include "trireme/shard/fully_shard.h"
#include "trireme/tensor/module_device.h"
#include "trireme/train/engine.h"

// An operator that LibTorch does not have for the device: one sentence, before a weight changes.
namespace trireme::device_missing_operator_test {
namespace {

using namespace trireme::testing;
using trireme::testing::has;

using Body = std::function<void(Group, at::Device)>;

/// What each rank's error says, as "Kind: text". `op`: what no device has; empty: nothing yet.
Outcomes said_by(int ranks, const std::string& op, const Body& body) {
  Outcomes said(static_cast<size_t>(ranks));
  std::optional<pretend::Lacks> lacks;
  if (!op.empty()) lacks.emplace(op);
  try {
    pretend::run_on_devices(ranks, [&](Group g, c10::Device device) {
      std::string& mine = said[static_cast<size_t>(g.rank())];
      mine = outcome_of([&] { body(g, device); });
      if (!mine.empty()) g.abort(mine);
    });
  } catch (const std::exception&) {  // what a rank threw again
  }
  return said;
}

/// Each rank's own, or another's that it was told.
void expect_named_on_all(const Outcomes& said, const std::string& op,
                         const std::string& needed_by = "") {
  bool own = false;
  for (const std::string& text : said) {
    EXPECT_TRUE(has(text, needed_by)) << text;
    EXPECT_TRUE(has(text, "LibTorch " TORCH_VERSION " has no kernel of '" + op)) << text;
    EXPECT_TRUE(has(text, "for the device privateuseone:")) << text;
    EXPECT_TRUE(has(text, "set device to cpu")) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    own = own || text.starts_with("UsageError: ");
  }
  EXPECT_TRUE(own) << said[0];
}

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& p : parameters) copies.push_back(p.detach().cpu().clone());
  return copies;
}

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!a[i].equal(b[i])) return false;
  return a.size() == b.size();
}

}  // namespace

TEST(device_missing_operator, is_named_with_its_layer_before_a_run_is_built) {
  const Folders folders;
  const std::string there = ", which layer 'blocks.0.mlp.up' needs: ",
                    back = ", which the backward of layer 'blocks.0.mlp.up' needs: ";
  for (const auto& [layout, op, needed_by] :
       {std::tuple{Sets{}, "aten::gelu", there}, std::tuple{Sets{}, "aten::gelu_backward", back},
        std::tuple{Sets{"zero_optimization.stage=3"}, "aten::gelu_backward", back},
        std::tuple{Sets{"parallelism.pp=2"}, "aten::gelu_backward", back},
        std::tuple{Sets{"parallelism.tp=2"}, "aten::gelu", there},
        std::tuple{Sets{"bf16.enabled=true"}, "aten::gelu_backward", back}}) {
    SCOPED_TRACE(op + (layout.empty() ? std::string() : " " + layout[0]));
    const Config config =
        tiny_gpt(folders.corpus, with(layout, {kOnDevice, "train_micro_batch_size_per_gpu=4"}));
    expect_named_on_all(said_by(2, op, [&](Group g, at::Device) { build_run(config, g); }), op,
                        needed_by);
  }
}

TEST(device_missing_operator, is_said_before_step_1_and_before_the_runs_folder_holds_anything) {
  const Folders folders;
  const std::string run = folders.run("run");
  const auto text = said_by(2, "aten::gelu", [&](Group g, at::Device) {
    TrainOptions options;
    options.run_dir = run;
    options.config_json = "{}";
    options.built = [] { ADD_FAILURE() << "the run was built"; };
    options.say = [](const std::string& line) { ADD_FAILURE() << line; };
    train(tiny_gpt(folders.corpus, {kOnDevice}), g, options);
  });
  expect_named_on_all(text, "aten::gelu'", "layer 'blocks.0.mlp.up'");
  EXPECT_TRUE(!std::filesystem::exists(run) || std::filesystem::is_empty(run));
}

TEST(device_missing_operator, of_every_built_in_network_is_named) {
  for (const auto& [model, op, needed_by] :
       {std::tuple{"mlp", "aten::addmm", ", which layer 'layers.0' needs"},
        std::tuple{"net", "aten::max_pool2d_with_indices", ", which layer 'conv2' needs"},
        std::tuple{"convnet", "aten::max_pool2d_with_indices_backward",
                   ", which the backward of layer '"}}) {
    const Config config = digits(model, {kOnDevice});
    expect_named_on_all(said_by(1, op, [&](Group g, at::Device) { build_run(config, g); }), op,
                        needed_by);
  }
}

// What is not rehearsed (the loop of a program, say) meets it in the step.
TEST(device_missing_operator, in_a_step_is_named_on_all_ranks_before_a_weight_changes) {
  const Folders folders;
  for (const Sets& layout : {Sets{}, Sets{"zero_optimization.stage=3"}, Sets{"parallelism.pp=2"}}) {
    SCOPED_TRACE(layout.empty() ? std::string() : layout[0]);
    const Config config =
        tiny_gpt(folders.corpus, with(layout, {kOnDevice, "train_micro_batch_size_per_gpu=4"}));
    std::optional<pretend::Lacks> lacks;
    const Outcomes said = said_by(2, "", [&](Group g, at::Device) {
      trireme::Run run = build_run(config, g);
      start_data(run, config);
      g.barrier();
      if (g.rank() == 0) lacks.emplace("aten::gelu_backward");
      g.barrier();
      std::vector<at::Tensor> parameters;
      // With ZeRO-3 the whole ones are nowhere now.
      ShardedParameters* sharded = run.gradients->sharded();
      for (const auto& [name, p] : sharded ? sharded->shards() : run.gradients->parameters())
        parameters.push_back(p);
      const auto before = copies_of(parameters);
      try {
        train_step(run);
      } catch (const Error&) {
        EXPECT_EQ(run.step, 0);
        EXPECT_TRUE(equal(copies_of(parameters), before));
        throw;
      }
    });
    expect_named_on_all(said, "aten::gelu_backward'");
  }
}

TEST(device_missing_operator, of_an_optimizer_is_named_before_step_1) {
  for (const char* type : {"AdamW", "Lamb"}) {
    const Config config = digits("mlp", {kOnDevice, std::string("optimizer.type=") + type,
                                         "optimizer.params={\"lr\":0.01}"});
    expect_named_on_all(
        said_by(1, "aten::_foreach_sqrt", [&](Group g, at::Device) { build_run(config, g); }),
        "aten::_foreach_sqrt'", std::string(", which the optimizer ") + type + " needs: ");
  }
  // The CPU steps there.
  const Config host = digits("mlp", with(host_optimizer("1"), {kOnDevice}));
  EXPECT_EQ(said_by(1, "aten::_foreach_sqrt", [&](Group g, at::Device) { build_run(host, g); }),
            Outcomes{""});
}

// Its loss is computed on two samples of its data.
TEST(device_missing_operator, of_a_programs_loss_is_named_before_step_1) {
  const auto config = [](Program& program) {
    auto table = std::make_shared<KeyTable>(*KeyTable::built_in());
    program.keys(*table);
    return Config::from_text("program.json",
                             R"({"train_batch_size": 16, "device": "privateuseone",
                                 "optimizer": {"type": "Adam"}, "training": {"steps": 3}})",
                             {}, table);
  };
  const Folders folders;
  for (const auto& [op, needed_by] :
       {std::tuple{"aten::relu", ", which layer 'body.up' needs"},
        std::tuple{"aten::threshold_backward", ", which the backward of layer 'head.up' needs"}})
    expect_named_on_all(said_by(2, op,
                                [&](Group g, at::Device) {
                                  DigitsProgram program;
                                  TrainOptions options;
                                  options.run_dir = folders.run("run");
                                  options.built = [] { ADD_FAILURE() << "the run was built"; };
                                  train(program, config(program), g, options);
                                }),
                        op, needed_by);
}

TEST(device_missing_operator, is_named_by_an_engine_in_forward_and_in_backward) {
  const Config config = Config::from_text("ds_config.json", R"({
    "train_micro_batch_size_per_gpu": 4, "device": "privateuseone",
    "optimizer": {"type": "Adam", "params": {"lr": 0.01}}})");
  for (const char* op : {"aten::tanh", "aten::tanh_backward"}) {
    const Outcomes said = said_by(2, op, [&](Group g, at::Device device) {
      Small net = wide(1, at::kFloat);
      Engine engine = initialize(net, config, g);
      const auto before = copies_of(net->parameters());
      try {
        const at::Tensor rows = part(rows_of_step(0, at::kFloat), g).to(device);
        engine.backward(engine.forward(rows).pow(2).sum(1).mean());
      } catch (const Error&) {
        EXPECT_EQ(engine.global_steps(), 0);
        EXPECT_TRUE(equal(copies_of(net->parameters()), before));
        throw;
      }
    });
    expect_named_on_all(said, op,
                        has(op, "_backward") ? ", which the backward of layer 'b' needs"
                                             : ", which layer 'a' needs");
  }
}

TEST(device_missing_operator, in_a_unit_of_fully_sharded_is_named) {
  const Outcomes said = said_by(2, "aten::tanh", [](Group g, at::Device device) {
    Small net = wide(1, at::kFloat);
    move_module(*net, device);
    FullySharded sharded(g);
    auto a = fully_shard(net->a, sharded, "a");
    sharded.root(*net);
    sharded.run([&](at::Tensor x) { return torch::tanh(a.forward(x)); },
                part(rows_of_step(0, at::kFloat), g).to(device));
  });
  expect_named_on_all(said, "aten::tanh'");
}

TEST(device_missing_operator, of_the_cpu_is_left_to_libtorch) {
  const auto missing = [] {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "Could not run 'aten::keel' with arguments from the 'CPU'");
  };
  EXPECT_THROW(naming_missing_operator(at::kCPU, missing), c10::NotImplementedError);
  EXPECT_THROW(naming_missing_operator(pretend::device(), missing), UsageError);
  EXPECT_EQ(naming_missing_operator(pretend::device(), [] { return 7; }), 7);
  // Other errors of LibTorch are not about an operator that is missing.
  EXPECT_THROW(naming_missing_operator(pretend::device(), [] { TORCH_CHECK(false, "no 'keel'"); }),
               c10::Error);
}

TEST(device_missing_operator, is_found_in_what_devices_say) {
  const auto said = [](const std::string& text) {
    return outcome_of([&] {
      naming_missing_operator(pretend::device(1),
                              [&] { TORCH_CHECK_NOT_IMPLEMENTED(false, text); });
    });
  };
  EXPECT_EQ(said("The operator 'aten::oar' is not currently implemented for the device."),
            "UsageError: LibTorch " TORCH_VERSION
            " has no kernel of 'aten::oar' for the device privateuseone:1: take a LibTorch that "
            "has it, compute it in another way, or set device to cpu");
  EXPECT_TRUE(has(said("not here"), "no kernel of an operator (not here) for")) << said("not here");
}

}  // namespace trireme::device_missing_operator_test
