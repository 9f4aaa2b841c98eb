// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/device/train_runs.h"
#include "tests/support/ranks.h"
#include "tests/train/programs.h"
#include "trireme/base/error.h"

// train() on a device whose copies, events and collectives are late, and whose memory the CPU
// cannot touch: what is saved has the bits of the same run on the CPU.
namespace trireme::device_train_test {
namespace {

using namespace trireme::testing;

Sets with(Sets sets, const std::string& more) {
  sets.push_back(more);
  return sets;
}

using Make = std::function<Config(const Sets&)>;

void expect_cpus_bits(const Make& config, int ranks, const Sets& sets = {},
                      const MakeProgram& program = {}) {
  Folders folders;
  const RunOf cpu = run_of(config(sets), ranks, folders.run("cpu"), {}, program);
  ASSERT_FALSE(cpu.bytes.empty());
  int seed = 0;
  pretend::for_seeds(seeds(), [&] {
    const RunOf there = run_of(config(with(sets, kOnDevice)), ranks,
                               folders.run("there" + std::to_string(++seed)), {}, program);
    EXPECT_TRUE(there.bytes == cpu.bytes) << testing::PrintToString(sets);
    EXPECT_EQ(there.result.loss, cpu.result.loss);
    EXPECT_EQ(there.result.held_out_loss, cpu.result.held_out_loss);
  });
}

TEST(device_train, a_perceptron_a_convolutional_net_and_a_gpt_end_with_the_cpus_bits) {
  const Folders folders;
  for (const char* model : {"mlp", "net", "convnet"})
    expect_cpus_bits([&](const Sets& sets) { return digits(model, sets); }, 1,
                     {"training.steps=3", "training.eval_every=2"});
  expect_cpus_bits([&](const Sets& sets) { return tiny_gpt(folders.corpus, sets); }, 1,
                   {"training.steps=3", "training.eval_batches=2"});
}

TEST(device_train, every_stage_of_zero_ends_with_the_cpus_bits_on_one_rank_and_on_two) {
  const Folders folders;
  for (const char* stage : {"0", "1", "2", "3"})
    for (const int ranks : {1, 2})
      expect_cpus_bits([&](const Sets& sets) { return tiny_gpt(folders.corpus, sets); }, ranks,
                       {"training.steps=3", "training.eval_batches=2",
                        std::string("zero_optimization.stage=") + stage});
}

TEST(device_train, accumulated_recomputed_and_bfloat16_steps_end_with_the_cpus_bits) {
  const Folders folders;
  for (const Sets& more :
       {Sets{"gradient_accumulation_steps=4", "data.workers=0"}, Sets{"training.recompute_every=1"},
        Sets{"bf16.enabled=true"}, Sets{"training.activation_memory_mb=100"},
        Sets{"training.reproducible=true", "training.leaves=4"}}) {
    Sets sets{"training.steps=3", "training.eval_batches=2"};
    sets.insert(sets.end(), more.begin(), more.end());
    expect_cpus_bits([&](const Sets& s) { return tiny_gpt(folders.corpus, s); }, 1, sets);
  }
}

TEST(device_train, programs_with_two_updates_and_with_batches_of_their_own_end_with_the_cpus_bits) {
  const auto config = [](const char* name, Program* keys, const Sets& sets) {
    auto table = std::make_shared<KeyTable>(KeyTable::built_in());
    keys->keys(*table);
    return Config::from_text(name,
                             R"({"train_batch_size": 16, "gradient_clipping": 0.5,
                                 "optimizer": {"type": "Adam"}, "training": {"steps": 3}})",
                             sets, table);
  };
  RingGan gan;
  expect_cpus_bits([&](const Sets& sets) { return config("gan.json", &gan, sets); }, 1, {},
                   [] { return std::make_unique<RingGan>(); });
  DigitsProgram chain;
  for (const char* stage : {"0", "3"})
    expect_cpus_bits([&](const Sets& sets) { return config("digits.json", &chain, sets); }, 1,
                     {std::string("zero_optimization.stage=") + stage},
                     [] { return std::make_unique<DigitsProgram>(); });
}

TEST(device_train, a_run_goes_on_from_the_other_kind_of_device_with_the_same_bits) {
  const Folders folders;
  for (const char* async : {"true", "false"})
    for (const char* stage : {"0", "2", "3"}) {
      const Sets sets{std::string("checkpoint.async=") + async,
                      std::string("zero_optimization.stage=") + stage, "training.eval_batches=2",
                      "checkpoint.every=2"};
      const auto config = [&](Sets more) {
        more.insert(more.begin(), sets.begin(), sets.end());
        return tiny_gpt(folders.corpus, more);
      };
      const std::string name = std::string(async) + stage;
      const RunOf whole = run_of(config({"training.steps=4"}), 1, folders.run("whole" + name));
      pretend::for_seeds(seeds(), [&] {
        const std::string cpu = folders.run("cpu" + name), there = folders.run("there" + name);
        // Two steps on each: the scheduler counts to four.
        const auto half = [&](const std::string& folder, const Sets& more,
                              const std::optional<std::string>& from) {
          return run_of(config(more), 1, folder, from);
        };
        half(cpu, {"training.steps=4"}, {});
        half(there, {"training.steps=4", kOnDevice}, {});
        const std::string to_cpu = folders.run("to_cpu" + name),
                          to_device = folders.run("to_device" + name);
        EXPECT_TRUE(half(to_cpu, {"training.steps=4"}, there + "/step-00000002").bytes ==
                    whole.bytes)
            << name;
        EXPECT_TRUE(
            half(to_device, {"training.steps=4", kOnDevice}, cpu + "/step-00000002").bytes ==
            whole.bytes)
            << name;
      });
    }
}

TEST(device_train, says_where_it_computes_and_shows_that_memory) {
  Folders folders;
  const std::string folder = folders.run("there");
  const RunOf run = run_of(digits("mlp", {"training.steps=2", kOnDevice}), 1, folder);
  ASSERT_FALSE(run.lines.empty());
  EXPECT_NE(run.lines[0].find("; on privateuseone:0; "), std::string::npos) << run.lines[0];
  const std::string metrics = read_file(folder + "/metrics.jsonl");
  EXPECT_NE(metrics.find(R"("device":"privateuseone:0"})"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find(R"("device_allocated_bytes":)"), std::string::npos) << metrics;
}

// Steps wait for the device as often with eight micro-batches as with two.
TEST(device_train, a_step_waits_once_for_all_losses) {
  const auto waits = [](const char* accumulation) {
    uint64_t count = 0;
    const Config config =
        digits("mlp", {"train_batch_size=16",
                       std::string("gradient_accumulation_steps=") + accumulation, kOnDevice});
    pretend::run_on_devices(1, [&](Group g, c10::Device) {
      trireme::Run run = build_run(config, g);
      start_data(run, config);
      train_step(run);
      const uint64_t before = pretend::counters().host_waits;
      for (int i = 0; i < 3; ++i) train_step(run);
      count = pretend::counters().host_waits - before;
    });
    return count;
  };
  EXPECT_EQ(waits("2"), waits("8"));
}

TEST(device_train, a_rank_without_device_memory_halves_its_micro_batches) {
  const auto bytes_of_step = [](const Sets& sets) {
    size_t peak = 0;
    const Config config = digits("mlp", sets);
    pretend::run_on_devices(1, [&](Group g, c10::Device) {
      trireme::Run run = build_run(config, g);
      start_data(run, config);
      for (int i = 0; i < 2; ++i) train_step(run);
      peak = pretend::memory_counts().peak_allocated;
    });
    return peak;
  };
  const Sets wide{"model.hidden=[4096]",  "train_batch_size=64", "balance.mode=throughput",
                  "balance.every=100000", "data.workers=0",      kOnDevice};
  pretend::synchronize();
  pretend::reset_memory_peaks();
  const size_t all = bytes_of_step(wide);
  pretend::synchronize();
  const pretend::MemoryLimit limit(all - (size_t{256} << 10));
  Folders folders;
  const RunOf run = run_of(digits("mlp", with(wide, "training.steps=3")), 1, folders.run("there"));
  const std::string said = testing::PrintToString(run.lines);
  EXPECT_NE(said.find("rank 0 ran out of memory at 64 samples: micro-batches of 32 from here on"),
            std::string::npos)
      << said;
  EXPECT_EQ(run.result.steps, 3);
}

TEST(device_train, what_cannot_run_there_is_one_sentence_before_the_first_step) {
  Folders folders;
  const auto refusal = [&](const Sets& sets, bool gpt = false) {
    return outcome_of([&] {
      pretend::run_on_devices(1, [&](Group g, c10::Device) {
        build_run(gpt ? tiny_gpt(folders.corpus, sets) : digits("mlp", sets), g);
      });
    });
  };
  const auto expect = [&](const Sets& sets, const std::string& said) {
    EXPECT_NE(refusal(sets).find(said), std::string::npos) << refusal(sets);
  };
  expect({"device=privateuseone:7"},
         "--set: device 'privateuseone:7' is not there: this process sees 4");
  expect({kOnDevice, "torch_autocast.enabled=true"},
         "torch_autocast.enabled: there is no autocast on privateuseone:0");
  expect({kOnDevice, "fp16.enabled=true"}, "fp16.enabled: privateuseone:0 has no float16 kernels");
  expect({kOnDevice, "zero_optimization.stage=3", "zero_optimization.offload_param.device=cpu"},
         "zero_optimization.offload_param.device keeps parameters where the CPU computes");
  expect({kOnDevice, "zero_optimization.stage=1", "zero_optimization.share_weights=true"},
         "zero_optimization.share_weights keeps one copy in the memory of the CPU");
  EXPECT_NE(outcome_of([&] {
              run_threads(5, [&](Group g) { build_run(digits("mlp", {kOnDevice}), g); });
            }).find("start as many ranks on a host as it has devices"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::device_train_test
