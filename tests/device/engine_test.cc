// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/engine.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/device/train_runs.h"
#include "tests/shard/sharded_nets.h"
#include "tests/support/ranks.h"
#include "trireme/tensor/module_device.h"

// initialize() on a device whose memory the CPU cannot touch.
namespace trireme::device_engine_test {
namespace {

using namespace trireme::testing;

Config ds_config(const std::string& more = "") {
  return Config::from_text("ds_config.json", R"({
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "gradient_clipping": 0.5,
    "optimizer": {"type": "Adam", "params": {"lr": 0.01}})" +
                                                 more + "}");
}

at::Tensor loss_of(const at::Tensor& y) { return y.to(at::kFloat).pow(2).sum(1).mean(); }

struct Ended {
  NamedTensors weights;
  std::vector<double> losses;
};

void steps_of(Engine& engine, Ended* ended) {
  for (int step = 0; step < 3; ++step) {
    const at::Tensor mine = part(rows_of_step(step, at::kFloat), engine.group());
    for (const at::Tensor& rows : mine.chunk(2)) {
      engine.backward(loss_of(engine.forward(rows.to(engine.device()))));
      engine.step();
    }
    ended->losses.push_back(engine.loss());
  }
}

// Every rank's module is rank 0's, moved by the engine or by the caller before.
Ended train_module(int ranks, const std::string& more, bool on_device, bool by_caller = false) {
  Ended ended;
  const Config config =
      ds_config(more + (on_device && !by_caller ? R"(, "device": "privateuseone")" : ""));
  const auto body = [&](Group g) {
    Small net = wide(static_cast<uint64_t>(g.rank()) + 1, at::kFloat);
    if (by_caller) move_module(*net, pretend::device(g.rank()));
    Engine engine = initialize(net, config, g);
    EXPECT_EQ(engine.device(), on_device ? pretend::device(g.rank()) : at::Device(at::kCPU));
    Ended mine;
    steps_of(engine, &mine);
    engine.gathered([&] {
      for (const auto& item : net->named_parameters())
        mine.weights.emplace_back(item.key(), item.value().detach().cpu().clone());
    });
    if (g.rank() == 0) ended = mine;
  };
  if (on_device)
    pretend::run_on_devices(ranks, [&](Group g, c10::Device) { body(g); });
  else
    run_threads(ranks, body);
  return ended;
}

TEST(device_engine, every_stage_ends_with_the_cpus_bits_on_one_rank_and_on_two) {
  for (const int ranks : {1, 2})
    for (const char* stage : {"0", "1", "2", "3"})
      for (const char* optimizer : {"", R"(, "offload_optimizer": {"device": "cpu"})"}) {
        if (*stage == '0' && *optimizer) continue;
        const std::string more =
            std::string(R"(, "zero_optimization": {"stage": )") + stage + optimizer + "}";
        const Ended cpu = train_module(ranks, more, false);
        pretend::for_some_seeds(1, [&] {
          const Ended there = train_module(ranks, more, true);
          EXPECT_EQ(first_difference(there.weights, cpu.weights), "") << more << ", " << ranks;
          EXPECT_EQ(there.losses, cpu.losses);
        });
      }
}

TEST(device_engine, a_module_that_the_caller_put_there_stays_there) {
  const Ended cpu = train_module(1, "", false), moved = train_module(1, "", true),
              there = train_module(1, "", true, true);
  for (const Ended* on_device : {&moved, &there}) {
    EXPECT_EQ(first_difference(on_device->weights, cpu.weights), "");
    EXPECT_EQ(on_device->losses, cpu.losses);
  }
}

TEST(device_engine, a_checkpoint_goes_from_one_kind_of_device_to_the_other) {
  for (const char* async : {"false", "true"}) {
    Folders folders;
    const std::string more = std::string(R"(, "checkpoint": {"async": )") + async + "}";
    NamedTensors saved, loaded;
    const auto weights = [](Small& net) {
      NamedTensors all;
      for (const auto& item : net->named_parameters())
        all.emplace_back(item.key(), item.value().detach().cpu().clone());
      return all;
    };
    pretend::run_on_devices(1, [&](Group g, c10::Device) {
      Small net = wide(1, at::kFloat);
      Engine engine = initialize(net, ds_config(more + R"(, "device": "privateuseone")"), g);
      Ended ended;
      steps_of(engine, &ended);
      engine.save_checkpoint(folders.folder.path());
      engine.wait_for_checkpoint();
      saved = weights(net);
    });
    run_threads(1, [&](Group g) {
      Small net = wide(7, at::kFloat);
      Engine engine = initialize(net, ds_config(more), g);
      EXPECT_EQ(engine.load_checkpoint(folders.folder.path()), 3);
      loaded = weights(net);
    });
    EXPECT_EQ(first_difference(loaded, saved), "");
  }
}

TEST(device_engine, what_is_on_two_devices_is_refused_with_both) {
  const auto refused = [](const std::string& device, const std::function<void(Small&)>& put,
                          bool call = false) {
    return outcome_of([&] {
      pretend::run_on_devices(1, [&](Group g, c10::Device) {
        Small net = wide(1, at::kFloat);
        put(net);
        Engine engine =
            initialize(net, ds_config(device.empty() ? "" : R"(, "device": ")" + device + "\""), g);
        if (call) engine.forward(rows_of_step(0, at::kFloat));
      });
    });
  };
  const auto here = [](Small&) {};
  const auto there = [](Small& net) { move_module(*net, pretend::device(0)); };
  const std::string split = refused("", [](Small& net) {
    net->register_parameter("far", at::ones({3}, at::TensorOptions().device(pretend::device(1))));
  });
  EXPECT_NE(split.find("UsageError: the module is on two devices, 'far' on privateuseone:1 and '"),
            std::string::npos)
      << split;
  const std::string other = refused("privateuseone:1", there);
  EXPECT_NE(other.find("device is privateuseone:1, and the module passed to initialize() is on "
                       "privateuseone:0: leave it on the CPU"),
            std::string::npos)
      << other;
  EXPECT_NE(refused("cpu", there).find("device is cpu, and the module"), std::string::npos);
  const std::string input = refused("privateuseone", here, true);
  EXPECT_NE(input.find("Engine::forward: input 0 is on cpu, and the module is on privateuseone:0: "
                       "bring it there with to(engine.device())"),
            std::string::npos)
      << input;
}

}  // namespace
}  // namespace trireme::device_engine_test
