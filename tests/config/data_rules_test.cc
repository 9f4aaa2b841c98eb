// SPDX-License-Identifier: Apache-2.0
// Keys about data: what each of its values means, or why it is refused.
#include <gtest/gtest.h>

#include "tests/config/small_configs.h"
#include "tests/support/refusals.h"

namespace data_rules_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

using trireme::testing::has;

const char kMlp[] = R"({"train_batch_size": 8, "model": {"type": "mlp"}})";

std::string said(const Sets& sets, const char* base = kMlp) { return error_of(base, sets); }

Sets operator+(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

TEST(config_data_rules, drop_last_is_true_unless_it_is_given) {
  EXPECT_TRUE(config(kMlp).get_bool("training.drop_last"));
  EXPECT_FALSE(config(R"({"dataloader_drop_last": false})").get_bool("training.drop_last"));
}

TEST(config_data_rules, a_last_step_with_fewer_samples_is_refused_where_it_breaks_a_promise) {
  for (const char* other : {"training.reproducible=true", "balance.mode=throughput",
                            "averaging.type=local_sgd", "comm.strategy=adasum"}) {
    const std::string text = said({"training.drop_last=false", other});
    const std::string key(other, std::string(other).find('='));
    EXPECT_TRUE(has(text, "--set: training.drop_last is false")) << text;
    EXPECT_TRUE(has(text, key)) << text;
    EXPECT_EQ(said({"training.drop_last=true", other}), "");
  }
  EXPECT_TRUE(
      has(said({"training.drop_last=false", "data.type=documents", "data_efficiency.enabled=true",
                "data_efficiency.data_sampling.enabled=true",
                "data_efficiency.data_sampling.dynamic_batching.enabled=true",
                "data_efficiency.data_sampling.dynamic_batching.max_tokens=512"},
               R"({"train_batch_size": 8})"),
          "training.drop_last is false"));
  EXPECT_EQ(said({"training.drop_last=false", "compression.type=int8"}), "");
  EXPECT_EQ(said({"training.drop_last=false", "zero_optimization.stage=3"}), "");
}

TEST(config_data_rules, dummy_data_counts_its_samples_where_it_is_told) {
  EXPECT_EQ(config(kMlp, {"data.type=dummy"}).get_int("data.train_samples"), 0);
  EXPECT_EQ(
      config(kMlp, {"data.type=dummy", "data.train_samples=100"}).get_int("data.train_samples"),
      100);
  EXPECT_EQ(config(kMlp).get_int("data.train_samples"), 60000);
  EXPECT_TRUE(has(said({"data.train_samples=0"}), "data.train_samples is 0")) << "of digits";
}

TEST(config_data_rules, dummy_data_has_nothing_held_out) {
  EXPECT_TRUE(has(said({"data.type=dummy", "data.validation_samples=10"}),
                  "data.validation_samples applies when data.type is digits"));
  const Inspection seen = Config::inspect(
      ConfigInputs::from({}, {"model.type=mlp", "data.type=dummy", "training.eval_every=5"}));
  const KeyReport* eval = find(seen, "training.eval_every");
  ASSERT_NE(eval, nullptr);
  EXPECT_EQ(eval->verdict, KeyReport::Verdict::without_effect);
  EXPECT_TRUE(has(eval->why, "no held-out part")) << eval->why;
}

TEST(config_data_rules, the_best_checkpoints_need_evaluations) {
  EXPECT_TRUE(has(said({"checkpoint.keep_best=2"}), "training.eval_every is 0"));
  EXPECT_EQ(said({"checkpoint.keep_best=2", "training.eval_every=5"}), "");
  EXPECT_TRUE(has(said({"checkpoint.keep_best=2", "training.eval_every=5", "data.type=dummy"}),
                  "dummy, which has no held-out part"));
}

TEST(config_data_rules, asynchronous_saving_is_without_effect_where_nothing_is_saved_meanwhile) {
  const auto seen = [](std::vector<std::string> sets) {
    sets.push_back("checkpoint.async=true");
    const Inspection all = Config::inspect(ConfigInputs::from({}, sets));
    return *find(all, "checkpoint.async");
  };
  EXPECT_EQ(seen({}).verdict, KeyReport::Verdict::without_effect);
  EXPECT_TRUE(has(seen({}).why, "nothing says when to save during the run")) << seen({}).why;
  for (const char* when : {"checkpoint.every=5", "checkpoint.every_minutes=5",
                           "checkpoint.auto=true", "checkpoint.keep_every=5"})
    EXPECT_EQ(seen({when}).verdict, KeyReport::Verdict::supported) << when;
}

TEST(config_data_rules, snapshots_in_memory_of_state_that_lies_in_files_are_refused) {
  const std::vector<std::string> nvme = {"zero_optimization.stage=2",
                                         "zero_optimization.offload_optimizer.device=nvme",
                                         "zero_optimization.offload_optimizer.nvme_path=/tmp"};
  auto both = nvme;
  both.push_back("checkpoint.snapshot_every=2");
  EXPECT_EQ(said(nvme), "");
  EXPECT_TRUE(has(said(both), "zero_optimization.offload_optimizer.device is nvme")) << said(both);
  EXPECT_EQ(said({"checkpoint.snapshot_every=2"}), "");
}

TEST(config_data_rules, copies_on_the_next_host_want_something_in_memory) {
  const char* neighbour = "checkpoint.neighbour=true";
  EXPECT_TRUE(has(said({neighbour}), "Set checkpoint.snapshot_every")) << said({neighbour});
  EXPECT_TRUE(has(said({neighbour, "checkpoint.every=5"}), "they have nothing there"));
  EXPECT_EQ(said({neighbour, "checkpoint.snapshot_every=2"}), "");
  EXPECT_EQ(said({neighbour, "checkpoint.async=true", "checkpoint.every=5"}), "");
}

TEST(config_data_rules, images_are_evaluated_on_all_that_is_held_out) {
  const Inspection seen =
      Config::inspect(ConfigInputs::from({}, {"model.type=mlp", "training.eval_batches=5"}));
  EXPECT_EQ(find(seen, "training.eval_batches")->verdict, KeyReport::Verdict::without_effect);
  const Inspection text = Config::inspect(ConfigInputs::from({}, {"training.eval_batches=5"}));
  EXPECT_EQ(find(text, "training.eval_batches")->verdict, KeyReport::Verdict::supported);
}

TEST(config_data_rules, half_a_decay_of_a_cycle_is_refused_before_ranks_start) {
  const Sets cycle = {"scheduler.type=OneCycle", "scheduler.params.cycle_momentum=false",
                      "scheduler.params.cycle_min_lr=0.1", "scheduler.params.cycle_max_lr=0.2"};
  EXPECT_TRUE(has(said(cycle + Sets{"scheduler.params.decay_lr_rate=1"}), "set both or neither"));
  EXPECT_EQ(said(cycle + Sets{"scheduler.params.decay_step_size=5"}), "");
}

TEST(config_data_rules, the_resolved_file_keeps_what_was_left_open) {
  for (const Sets& sets : {Sets{}, {"data.type=dummy"}, {"data.workers=3"}}) {
    const Config c = config(kMlp, sets);
    const Config again = Config::from_text("config.json", c.to_json());
    EXPECT_EQ(again.has("data.workers"), c.has("data.workers"));
    EXPECT_EQ(again.get_int("data.train_samples"), c.get_int("data.train_samples"));
    EXPECT_EQ(again.hash(), c.hash());
  }
}

TEST(config_data_rules, a_word_that_is_no_device_is_refused_at_once) {
  for (const char* wrong : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:01", "cpu:0", "CUDA", "tpu"})
    EXPECT_TRUE(has(said({std::string("device=") + wrong}),
                    std::string("--set: device is \"") + wrong + "\": use auto, cpu, cuda, cuda:N"))
        << said({std::string("device=") + wrong});
  for (const char* fine : {"auto", "cpu", "cuda", "cuda:0", "cuda:12", "privateuseone:3"})
    EXPECT_EQ(said({std::string("device=") + fine}), "") << fine;
}

TEST(config_data_rules, noise_beside_zero_is_refused_before_ranks_start) {
  EXPECT_TRUE(
      has(said({"monitor.gradient_noise_scale=true", "zero_optimization.stage=1"}), "use stage 0"));
}

TEST(config_data_rules, groups_across_hosts_have_their_keys) {
  const Config c = config(kMlp, {"comm.backend=hybrid", "comm.across=mpi", "comm.check=each"});
  EXPECT_EQ(c.get_string("comm.across"), "mpi");
  EXPECT_EQ(c.get_string("comm.check"), "each");
  EXPECT_TRUE(has(said({"comm.across=mpi"}), "comm.across applies when comm.backend is hybrid"));
  EXPECT_TRUE(
      has(said({"comm.check=each"}), "comm.check applies when comm.backend is gloo or mpi"));
  EXPECT_TRUE(has(said({"comm.backend=hybrid", "comm.across=local"}), "gloo, mpi"));
}

}  // namespace data_rules_test
