// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/engine.h"

#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/shard/sharded_nets.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"

namespace engine_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

Config ds_config(const std::string& more = "") {
  return Config::from_text("ds_config.json", R"({
    "train_micro_batch_size_per_gpu": 4,
    "gradient_clipping": 0,
    "optimizer": {"type": "Adam", "params": {"lr": 0.01}})" +
                                                 more + "}");
}

at::Tensor loss_of(const at::Tensor& y) { return y.to(at::kFloat).pow(2).sum(1).mean(); }

// torch::optim::AdamW on the whole batch: DeepSpeed's "Adam" is AdamW.
Small serial(int steps) {
  Small net = wide(1, at::kFloat);
  torch::optim::AdamW optimizer(net->parameters(),
                                torch::optim::AdamWOptions(0.01).weight_decay(0));
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    loss_of(net->forward(rows_of_step(step, at::kFloat))).backward();
    optimizer.step();
  }
  return net;
}

void steps_of(Engine& engine, const Group& g, int from, int to) {
  for (int step = from; step < to; ++step) {
    const at::Tensor mine = part(rows_of_step(step, at::kFloat), g);
    const int64_t micro = engine.gradient_accumulation_steps(), rows = mine.size(0) / micro;
    for (int64_t m = 0; m < micro; ++m) {
      engine.backward(loss_of(engine.forward(mine.narrow(0, m * rows, rows))));
      engine.step();
    }
  }
}

}  // namespace

TEST(train_engine, every_stage_and_accumulation_is_the_serial_run) {
  Small want = serial(kSteps);
  for (int stage : {0, 1, 2, 3})
    for (int accumulation : {1, 2})
      run_threads(2, [&](Group g) {
        Small net = wide(static_cast<uint64_t>(g.rank()) + 1, at::kFloat);
        Engine engine = initialize(
            net,
            ds_config(fmt::format(
                R"(, "gradient_accumulation_steps": {}, "zero_optimization": {{"stage": {}}})",
                accumulation, stage)),
            g);
        steps_of(engine, g, 0, kSteps);
        expect(engine.global_steps() == kSteps, "steps");
        engine.gathered([&] { expect_same_parameters(*net, *want, 2e-5); });
      });
}

// As people give it: two inputs, one of them integers, and an LSTM's nested outputs.
struct TwoInputsImpl : torch::nn::Module {
  TwoInputsImpl() {
    words = register_module("words", torch::nn::Embedding(11, 6));
    lstm = register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(9, 8).batch_first(true)));
    out = register_module("out", torch::nn::Linear(8, 3));
  }
  std::tuple<at::Tensor, std::tuple<at::Tensor, at::Tensor>> forward(const at::Tensor& x,
                                                                     const at::Tensor& ids) {
    auto [y, state] = lstm(torch::cat({x, words(ids)}, -1));
    return {out(y), state};
  }
  torch::nn::Embedding words{nullptr};
  torch::nn::LSTM lstm{nullptr};
  torch::nn::Linear out{nullptr};
};
TORCH_MODULE(TwoInputs);

TEST(train_engine, any_stage_takes_any_number_of_inputs_and_outputs) {
  const at::Tensor x = (torch::arange(8 * 5 * 3, at::kFloat) * 0.3).sin().reshape({8, 5, 3});
  const at::Tensor ids = torch::arange(40).reshape({8, 5}) % 11;
  auto loss_of_all = [](const std::vector<at::Tensor>& y) {
    return y[0].pow(2).mean() + y[1].pow(2).mean() + 0.5 * y[2].mean();
  };
  torch::manual_seed(3);
  TwoInputs want;
  torch::optim::AdamW optimizer(want->parameters(),
                                torch::optim::AdamWOptions(0.01).weight_decay(0));
  std::vector<at::Tensor> first;
  for (const auto& p : want->parameters()) first.push_back(p.detach().clone());
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    auto [y, state] = want->forward(x, ids);
    loss_of_all({y, std::get<0>(state), std::get<1>(state)}).backward();
    optimizer.step();
  }
  for (int stage : {0, 2, 3})
    run_threads(2, [&](Group g) {
      TwoInputs net;
      {
        at::NoGradGuard no_grad;
        for (size_t i = 0; i < first.size(); ++i) net->parameters()[i].copy_(first[i]);
      }
      Engine engine = initialize(
          net, ds_config(fmt::format(R"(, "zero_optimization": {{"stage": {}}})", stage)), g);
      for (int step = 0; step < 3; ++step) {
        const auto y = engine.forward_list({part(x, g), part(ids, g)});
        expect(y.size() == 3, "outputs");
        engine.backward(loss_of_all(y));
        engine.step();
      }
      engine.gathered([&] { expect_same_parameters(*net, *want, 2e-5); });
    });
  const auto said = what_ranks_throw(1, [&](Group g) {
    TwoInputs net;
    Engine engine = initialize(net, ds_config(), g);
    engine.forward(x, ids);
  });
  EXPECT_NE(said[0].find("returned 3 tensors: call forward_list()"), std::string::npos) << said[0];
  const auto one = what_ranks_throw(1, [&](Group g) {
    TwoInputs net;
    Engine engine = initialize(net, ds_config(), g);
    engine.forward(x);
  });
  EXPECT_NE(one[0].find("does not take 1 tensors"), std::string::npos) << one[0];
}

TEST(train_engine, stage_3_keeps_no_whole_parameter_between_steps) {
  run_threads(2, [](Group g) {
    Small net = wide(1, at::kFloat);
    Engine engine = initialize(net, ds_config(R"(, "zero_optimization": {"stage": 3})"), g);
    steps_of(engine, g, 0, 1);
    for (const auto& item : net->named_parameters())
      expect(item.value().data_ptr() == nullptr, item.key() + " has bytes between steps");
  });
}

namespace {
// Lines that the library logs while it lives.
struct Logged {
  Logged() {
    set_log_level(LogLevel::info);
    set_log_sink([this](LogLevel, std::string_view text) {
      std::lock_guard lock(mutex);
      lines.emplace_back(text);
    });
  }
  ~Logged() {
    set_log_sink({});
    set_log_level(LogLevel::warn);
  }
  int of(const std::string& part) {
    std::lock_guard lock(mutex);
    return static_cast<int>(std::count_if(lines.begin(), lines.end(), [&](const auto& line) {
      return line.find(part) != std::string::npos;
    }));
  }
  std::mutex mutex;
  std::vector<std::string> lines;
};
}  // namespace

TEST(train_engine, steps_per_print_logs_a_line_every_so_many_steps) {
  Logged logged;
  run_threads(2, [](Group g) {
    Small net = wide(1, at::kFloat);
    Engine engine = initialize(net, ds_config(R"(, "steps_per_print": 2)"), g);
    steps_of(engine, g, 0, 5);
  });
  EXPECT_EQ(logged.of("step 2, skipped 0, lr 0.01, loss "), 1) << "rank 0 alone";
  EXPECT_EQ(logged.of("step 4, "), 1);
  EXPECT_EQ(logged.of("step 1, ") + logged.of("step 3, ") + logged.of("step 5, "), 0);
  set_log_level(LogLevel::warn);
  run_threads(1, [](Group g) {
    Small net = wide(1, at::kFloat);
    initialize(net, ds_config(R"(, "steps_per_print": 2)"), g);
  });
  EXPECT_EQ(logged.of("steps_per_print is 2, and lines of level info are switched off"), 1);
}

TEST(train_engine, monitor_metrics_is_written_and_goes_on_after_a_checkpoint) {
  PrivateFolder folder;
  const std::string path = folder / "metrics.jsonl";
  const Config config = ds_config(fmt::format(
      R"(, "monitor": {{"metrics": "{}", "gradient_noise_scale": true}}, "checkpoint": {{"folder": "{}", "keep": 1}})",
      path, folder.path()));
  run_threads(2, [&](Group g) {
    {
      Small net = wide(1, at::kFloat);
      Engine engine = initialize(net, config, g);
      steps_of(engine, g, 0, 2);
      engine.save_checkpoint();
      steps_of(engine, g, 2, 3);
      engine.save_checkpoint();
    }
    Small net = wide(1, at::kFloat);
    Engine engine = initialize(net, config, g);
    expect(engine.load_checkpoint(folder.path()) == 3, "step");
    steps_of(engine, g, 3, 4);
    g.barrier();
  });
  EXPECT_FALSE(std::filesystem::exists(folder / "step-00000002")) << "checkpoint.keep is 1";
  EXPECT_TRUE(std::filesystem::exists(folder / "step-00000003"));
  std::vector<int64_t> steps;
  std::istringstream text(read_file(path));
  for (std::string line; std::getline(text, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("event")) continue;
    steps.push_back(json["step"].get<int64_t>());
    EXPECT_TRUE(json.contains("gradient_noise_scale")) << line;
    EXPECT_GT(json["samples_per_s"].get<double>(), 0) << line;
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4}));
}

// It threw "0 parts" on two ranks.
TEST(train_engine, gradient_noise_is_measured_over_ranks_and_over_micro_batches) {
  auto measured = [](int ranks, int accumulation) {
    double noise = 0;
    run_threads(ranks, [&](Group g) {
      Small net = wide(1, at::kFloat);
      Engine engine = initialize(
          net,
          ds_config(fmt::format(
              R"(, "gradient_accumulation_steps": {}, "monitor": {{"gradient_noise_scale": true}})",
              accumulation)),
          g);
      steps_of(engine, g, 0, 4);
      if (g.rank() == 0) noise = engine.gradient_noise_scale();
    });
    return noise;
  };
  const double ranks = measured(4, 1), micro = measured(1, 4);
  EXPECT_TRUE(std::isfinite(ranks));
  EXPECT_NEAR(micro / ranks, 1, 1e-2);
}

TEST(train_engine, tuned_buckets_are_written_to_their_file) {
  PrivateFolder folder;
  const std::string path = folder / "buckets.json";
  run_threads(2, [&](Group g) {
    Small net = wide(1, at::kFloat);
    Engine engine = initialize(
        net,
        ds_config(fmt::format(
            R"(, "comm": {{"tune_buckets": true, "tuning_budget": 1, "buckets_file": "{}"}})",
            path)),
        g);
    bool there = false;
    for (int step = 0; step < 3000 && !there; ++step) {
      steps_of(engine, g, 0, 1);
      if (step % 50 == 49) {
        g.barrier();
        there = std::filesystem::exists(path);
        at::Tensor all = at::full({}, there ? 1.0 : 0.0);
        g.all_reduce(all, ReduceOp::min).wait();
        there = all.item<double>() > 0;
      }
    }
    expect(there, "comm.buckets_file is written");
  });
}

TEST(train_engine, keys_that_it_does_not_serve_are_refused_with_their_place) {
  for (const char* section :
       {R"("training": {"recompute_every": 1})", R"("training": {"activation_memory_mb": 64})",
        R"("checkpoint": {"every": 5})", R"("training": {"drop_last": false})",
        R"("training": {"epochs": 2})", R"("training": {"reproducible": true})",
        R"("balance": {"mode": "throughput"})", R"("data": {"workers": 2})",
        R"("model": {"type": "net"})", R"("comm": {"backend": "gloo"})",
        R"("comm": {"timeout_s": 5})"}) {
    const auto said = what_ranks_throw(1, [&](Group g) {
      Small net = wide(1, at::kFloat);
      initialize(net, ds_config(std::string(",\n") + section), g);
    });
    EXPECT_NE(said[0].find("ds_config.json:5:"), std::string::npos) << section << said[0];
    EXPECT_NE(said[0].find("initialize()"), std::string::npos) << section << said[0];
  }
}

TEST(train_engine, step_does_something_with_the_last_micro_batch_alone) {
  run_threads(2, [](Group g) {
    Small net = wide(1, at::kFloat);
    Engine engine = initialize(net, ds_config(R"(, "gradient_accumulation_steps": 2)"), g);
    const at::Tensor before = net->a->weight.detach().clone();
    engine.backward(loss_of(engine.forward(input(4, at::kFloat))));
    expect(!engine.is_gradient_accumulation_boundary(), "half of a step");
    engine.step();
    expect(torch::equal(net->a->weight, before) && engine.global_steps() == 0, "nothing yet");
    engine.backward(loss_of(engine.forward(input(4, at::kFloat))));
    expect(engine.is_gradient_accumulation_boundary(), "a whole one");
    engine.step();
    expect(!torch::equal(net->a->weight, before) && engine.global_steps() == 1, "now");
  });
}

TEST(train_engine, half_precision_of_the_configuration_trains) {
  for (const char* precision :
       {R"(, "bf16": {"enabled": true})", R"(, "fp16": {"enabled": true, "emulate": true})"})
    run_threads(2, [&](Group g) {
      Small net = wide(1, at::kFloat);
      Engine engine = initialize(
          net, ds_config(std::string(precision) + R"(, "zero_optimization": {"stage": 2})"), g);
      steps_of(engine, g, 0, 1);
      const double first = engine.loss();
      steps_of(engine, g, 0, 20);
      expect(engine.loss() < 0.8 * first, "loss " + std::to_string(engine.loss()));
    });
}

TEST(train_engine, a_checkpoint_goes_on_with_the_same_bits) {
  for (const auto& [stage, async] :
       {std::pair{0, false}, {2, false}, {3, false}, {0, true}, {2, true}, {3, true}}) {
    PrivateFolder folder;
    const Config config = ds_config(fmt::format(
        R"(, "zero_optimization": {{"stage": {}}}, "checkpoint": {{"async": {}}})", stage, async));
    run_threads(2, [&](Group g) {
      Small whole = wide(1, at::kFloat), halves = wide(2, at::kFloat);
      std::vector<at::Tensor> wanted;
      {
        Engine engine = initialize(whole, config, g);
        steps_of(engine, g, 0, 2);
        engine.save_checkpoint(folder.path());
        steps_of(engine, g, 2, 4);
        engine.gathered([&] {
          for (const auto& p : whole->parameters()) wanted.push_back(p.detach().clone());
        });
      }
      Engine engine = initialize(halves, config, g);
      expect(engine.load_checkpoint(folder.path()) == 2, "at step 2");
      steps_of(engine, g, 2, 4);
      engine.gathered([&] {
        for (size_t i = 0; i < wanted.size(); ++i)
          expect(torch::equal(wanted[i], halves->parameters()[i]), "bits");
      });
    });
  }
}

TEST(train_engine, a_damaged_checkpoint_changes_nothing_once_steps_were_taken) {
  PrivateFolder folder;
  const Config config = ds_config(R"(, "zero_optimization": {"stage": 2})");
  std::string step;
  run_threads(2, [&](Group g) {
    Small net = wide(1, at::kFloat);
    Engine engine = initialize(net, config, g);
    steps_of(engine, g, 0, 1);
    const std::string saved = engine.save_checkpoint(folder.path());
    if (g.rank() == 0) step = saved;
  });
  for (const auto& file : std::filesystem::directory_iterator(step))
    if (file.path().extension() == ".safetensors") {
      std::string bytes = read_file(file.path().string());
      bytes.back() = static_cast<char>(bytes.back() ^ 1);
      write_file_atomic(file.path().string(), bytes);
    }
  run_threads(2, [&](Group g) {
    Small net = wide(1, at::kFloat);
    Engine engine = initialize(net, config, g);
    const auto refused = [&] {
      try {
        engine.load_checkpoint(folder.path());
      } catch (const Corrupt& e) {
        return std::string(e.what());
      }
      return std::string();
    };
    const char* part = "part old and part new now";
    expect(refused().find(part) != std::string::npos, "a new engine is filled as it is compared");
    for (auto& p : net->parameters()) p.detach().fill_(0.25);
    steps_of(engine, g, 0, 1);
    std::vector<at::Tensor> before;
    for (const auto& p : net->parameters()) before.push_back(p.detach().clone());
    const std::string text = refused();
    expect(!text.empty() && text.find(part) == std::string::npos, text);
    for (size_t i = 0; i < before.size(); ++i)
      expect(before[i].equal(net->parameters()[i]), "the state is what it was");
  });
}

namespace {
struct FailpointScope {
  explicit FailpointScope(const std::string& text) { set_failpoints(text); }
  ~FailpointScope() { set_failpoints(""); }
};
}  // namespace

TEST(train_engine, an_asynchronous_checkpoint_is_there_once_it_was_waited_for) {
  PrivateFolder folder;
  const Config config = ds_config(R"(, "checkpoint": {"async": true, "keep": 1})");
  const FailpointScope slow("checkpoint.write=sleep(40)");
  run_threads(2, [&](Group g) {
    Small net = wide(1, at::kFloat);
    Engine engine = initialize(net, config, g);
    steps_of(engine, g, 0, 1);
    const std::string path = engine.save_checkpoint(folder / "a");
    expect(path == folder / "a/step-00000001", path);
    expect(!std::filesystem::exists(path), "it waited for the disk");
    engine.wait_for_checkpoint();
    expect(std::filesystem::exists(path), "it is published");
    steps_of(engine, g, 1, 2);
    engine.save_checkpoint(folder / "a");
    steps_of(engine, g, 2, 3);
    engine.save_checkpoint(folder / "b");  // another folder waits for the first one
    expect(std::filesystem::exists(folder / "a/step-00000002"), "the one before");
    g.barrier();
    expect(!std::filesystem::exists(path), "keep is 1");
    expect(engine.load_checkpoint(folder / "b") == 3, "a load waits");
  });
}

TEST(train_engine, an_asynchronous_checkpoint_that_fails_is_thrown_by_the_next_call) {
  PrivateFolder folder;
  const Config config = ds_config(R"(, "checkpoint": {"async": true})");
  const FailpointScope full("checkpoint.write@1=error(28)");
  run_threads(2, [&](Group g) {
    Small net = wide(1, at::kFloat);
    Engine engine = initialize(net, config, g);
    steps_of(engine, g, 0, 1);
    engine.save_checkpoint(folder.path());
    try {
      engine.save_checkpoint(folder.path());
      expect(false, "no error");
    } catch (const ResourceError& e) {
      expect(std::string(e.what()).find("checkpoint of step 1 was not saved") == 0, e.what());
    }
    engine.save_checkpoint(folder.path());
    engine.wait_for_checkpoint();
    expect(std::filesystem::exists(folder / "step-00000001"), "again, it is saved");
  });
}

TEST(train_engine, torch_load_after_initialize_is_followed_at_every_stage) {
  const auto file_of = [](Small net) {
    std::ostringstream out;
    torch::save(net, out);
    return out.str();
  };
  const auto load = [](Small& net, const std::string& file) {
    std::istringstream in(file);
    torch::load(net, in);
  };
  const std::string file = file_of(wide(7, at::kFloat)), half = file_of(wide(7, at::kBFloat16));
  Small want = wide(1, at::kFloat);
  torch::optim::AdamW optimizer(want->parameters(),
                                torch::optim::AdamWOptions(0.01).weight_decay(0));
  for (int step = 0; step < kSteps; ++step) {
    if (step == 2) load(want, file);
    optimizer.zero_grad();
    loss_of(want->forward(rows_of_step(step, at::kFloat))).backward();
    optimizer.step();
  }
  for (int stage : {0, 1, 2})
    run_threads(2, [&](Group g) {
      const std::string zero = fmt::format(R"(, "zero_optimization": {{"stage": {}}})", stage);
      Small net = wide(1, at::kFloat);
      Engine engine = initialize(net, ds_config(zero), g);
      steps_of(engine, g, 0, 2);
      load(net, file);
      steps_of(engine, g, 2, kSteps);
      expect_same_parameters(*net, *want, 2e-5);
      // With float32 masters beside the parameters: one small step from what was loaded.
      for (bool emulated : {false, true}) {
        Small model = wide(1, at::kFloat), loaded = wide(7, at::kFloat);
        Engine narrow = initialize(
            model,
            ds_config(zero + (emulated ? R"(, "fp16": {"enabled": true, "emulate": true})"
                                       : R"(, "bf16": {"enabled": true})")),
            g);
        steps_of(narrow, g, 0, 1);
        load(model, emulated ? file : half);
        steps_of(narrow, g, 1, 2);
        narrow.forward(input(2, at::kFloat));  // emulated: the model's tensors are filled here
        expect((model->b->weight - loaded->b->weight).abs().max().item<double>() < 0.02,
               "not what was loaded");
      }
    });
}

TEST(train_engine, torch_load_on_one_rank_after_initialize_is_told_on_all) {
  std::ostringstream out;
  torch::save(wide(7, at::kFloat), out);
  for (int stage : {0, 2}) {
    const auto said = what_ranks_throw(2, [&](Group g) {
      Small net = wide(1, at::kFloat);
      Engine engine = initialize(
          net, ds_config(fmt::format(R"(, "zero_optimization": {{"stage": {}}})", stage)), g);
      std::istringstream in(out.str());
      if (g.rank() == 1) torch::load(net, in);
      steps_of(engine, g, 0, 1);
    });
    for (const auto& text : said)
      EXPECT_NE(text.find("was exchanged or frozen after"), std::string::npos) << text;
  }
}

TEST(train_engine, what_it_cannot_do_is_said) {
  const auto late = what_ranks_throw(1, [](Group g) {
    Small net = wide(1, at::kFloat);
    Engine engine = initialize(net, ds_config(), g);
    engine.step();
  });
  EXPECT_NE(late[0].find("backward was not called before it"), std::string::npos) << late[0];
  const auto constant = what_ranks_throw(1, [](Group g) {
    Small net = wide(1, at::kFloat);
    Engine engine = initialize(net, ds_config(), g);
    engine.backward(torch::ones({}));
  });
  EXPECT_NE(constant[0].find("not a scalar that depends on the module"), std::string::npos)
      << constant[0];
}

}  // namespace engine_test
