// SPDX-License-Identifier: Apache-2.0
// examples/qa on drawn questions, each command as docs/qa.md has it, at a small size; and what the
// published recipe did wrong (its defects are numbered as there), done right.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/cli/qa_runs.h"
#include "tests/faults/job_on_hosts.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"

namespace trireme::testing::qa_test {
namespace {

class cli_qa : public QaRuns {};

// Defect 5: metrics are means over all samples and ranks. Defect 7: ranks draw what one process
// draws. Defect 9: every rank evaluates its part.
TEST_F(cli_qa, drawn_questions_train_alike_on_one_rank_and_on_two) {
  const QaRun one = finished("one", 1), two = finished("two", 2);
  EXPECT_NE(one.said.find("4 × 4 × 1 = 16 samples a step"), std::string::npos) << one.said;
  EXPECT_NE(two.said.find("4 × 2 × 2 = 16 samples a step"), std::string::npos)
      << "qa.batch_split makes micro-batches of 4 on any number of ranks: " << two.said;
  ASSERT_EQ(one.losses.size(), 6u);
  ASSERT_EQ(two.losses.size(), 6u);
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(one.losses[i], two.losses[i], 2e-4) << i;
  ASSERT_EQ(one.evaluations.size(), 2u) << "one after each epoch";
  for (const auto& [name, value] : one.evaluations.back())
    EXPECT_NEAR(value, two.evaluations.back().at(name), 2e-4) << name;
  for (const char* name : {"held_out_loss", "held_out_map", "held_out_accuracy", "held_out_cls"})
    EXPECT_TRUE(one.evaluations.back().contains(name)) << name;
  // The rate rises in the first half, as qa.warmup_coef says, and then falls.
  EXPECT_LT(one.rates[0], one.rates[2]);
  EXPECT_GT(one.rates[3], one.rates[5]);
  for (const char* name : {"last", "best", "epoch_1", "epoch_2"})
    EXPECT_TRUE(std::filesystem::is_symlink(two.folder + "/" + name)) << name;
  EXPECT_EQ(std::filesystem::read_symlink(two.folder + "/epoch_1"), step_folder_name(3));
}

// Defect 4: the recipe saved the state of mixed precision under one name and loaded another.
TEST_F(cli_qa, a_run_in_mixed_precision_goes_on_as_if_it_had_not_stopped) {
  for (const auto& [level, more] : std::vector<std::pair<std::string, Sets>>{
           {"O1", {"amp.dtype=bf16"}}, {"O2", {"amp.dtype=fp16", "fp16.emulate=true"}}}) {
    Sets sets{"amp.enabled=true", "amp.opt_level=" + level};
    sets.insert(sets.end(), more.begin(), more.end());
    const QaRun whole = finished("whole_" + level, 1, sets);
    const QaRun rest = resumed("rest_" + level, 2, whole.folder + "/epoch_1");
    EXPECT_NE(rest.said.find("going on after step 3"), std::string::npos) << rest.said;
    ASSERT_EQ(rest.losses.size(), 3u) << level;
    for (size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(rest.losses[i], whole.losses[i + 3], 2e-3) << level << i;
  }
}

TEST_F(cli_qa, ctrl_c_leaves_a_step_called_interrupt_to_go_on_from) {
  const std::string run = folder_ / "run";
  Command job(words(2, run, {"steps_per_print=1"}),
              {{{"TRIREME_FAILPOINTS", "train.step=sleep(200)"}}, folder_.path()});
  ASSERT_TRUE(eventually(
      [&] {
        const std::string metrics = run + "/metrics.jsonl";
        return std::filesystem::exists(metrics) &&
               read_file(metrics).find("\"step\":1") != std::string::npos;
      },
      kPatience));
  job.send(SIGINT);
  EXPECT_EQ(job.finish(kPatience), 130) << job.err;
  ASSERT_TRUE(std::filesystem::is_symlink(run + "/interrupt")) << job.err;
  const int64_t step = step_of_name(std::filesystem::read_symlink(run + "/interrupt").string());
  EXPECT_GT(step, 0);
  EXPECT_LT(step, 6);
  const QaRun rest = resumed("", 1, run + "/interrupt");
  EXPECT_NE(rest.said.find("going on after step " + std::to_string(step)), std::string::npos)
      << rest.said;
  EXPECT_TRUE(std::filesystem::exists(run + "/interrupt/")) << "its step stays";
  EXPECT_EQ(std::filesystem::read_symlink(run + "/last"), step_folder_name(6));
}

TEST_F(cli_qa, debug_takes_one_step_and_saves_nothing) {
  const QaRun run = finished("debug", 1, {"qa.debug=true"});
  EXPECT_EQ(run.losses.size(), 1u);
  EXPECT_TRUE(list_steps(run.folder).empty());
  EXPECT_FALSE(std::filesystem::is_symlink(run.folder + "/last"));
  EXPECT_NE(run.said.find("qa.sync_bn: BERT has no BatchNorm"), std::string::npos) << run.said;
}

TEST_F(cli_qa, what_cannot_be_is_refused_in_one_sentence) {
  const std::vector<std::pair<Sets, std::string>> all = {
      {{"qa.batch_split=3"}, "qa.batch_split 3 (--set) does not divide train_batch_size 16"},
      {{"train_micro_batch_size_per_gpu=2"}, "qa.batch_split makes micro-batches of 4, and"},
      {{"qa.batch_splitt=3"}, "the nearest known key is \"qa.batch_split\""},
      {{"qa.bert_weights=a", "checkpoint.init=b"}, "name different weights"},
      {{"qa.doc_stride=3"}, "qa.doc_stride"},
      {{"scheduler.type=cosine"}, "leave one of them out"},
      {{"qa.max_seq_len=64"}, "qa.max_seq_len is 64, and the encoder has positions for 32"},
      {{"qa.num_attention_heads=3"}, "a width of 16 does not divide into 3 heads"},
      {{"qa.best_metric=exact"}, "which drawn questions do not have"}};
  for (const auto& [sets, sentence] : all) {
    Command job(words(1, folder_ / "refused", sets), {{}, folder_.path()});
    EXPECT_NE(job.finish(kPatience), 0) << sentence;
    EXPECT_NE(job.err.find(sentence), std::string::npos) << sentence << "\n" << job.err;
    std::filesystem::remove_all(folder_ / "refused");
  }
}

// bert-base-uncased as TensorFlow's users have it: LayerNorm.gamma, and the heads of its training.
TEST_F(cli_qa, the_encoder_begins_with_published_weights) {
  std::vector<Floats> tensors = bert_of("gamma", "beta");
  tensors.push_back({"cls.predictions.bias", {128}});
  write(folder_ / "bert.safetensors", safetensors_text(tensors));
  const Sets start{"qa.bert_weights=" + (folder_ / "bert.safetensors"), "optimizer.params.lr=1e-30",
                   "training.epochs=1"};
  const QaRun run = finished("begun", 2, start);
  EXPECT_NE(run.said.find("gamma and beta of LayerNorm are weight and bias here"),
            std::string::npos)
      << run.said;
  const auto saved = interop::open_weights(run.folder + "/last/model.safetensors");
  for (const Floats& t : bert_of("weight", "bias")) {
    const auto* array = saved.find(t.name);
    ASSERT_NE(array, nullptr) << t.name;
    EXPECT_EQ(interop::testing::floats_of(*array), t.values()) << t.name;
  }

  const auto refused = [&](std::vector<Floats> other, const std::string& sentence) {
    write(folder_ / "bert.safetensors", safetensors_text(other));
    Command job(words(1, folder_ / "refused", start), {{}, folder_.path()});
    EXPECT_NE(job.finish(kPatience), 0) << sentence;
    EXPECT_NE(job.err.find(sentence), std::string::npos) << sentence << "\n" << job.err;
    std::filesystem::remove_all(folder_ / "refused");
  };
  auto missing = bert_of("gamma", "beta");
  missing.pop_back();
  refused(missing, missing.empty() ? "" : bert_of("gamma", "beta").back().name);
  auto wrong = bert_of("gamma", "beta");
  wrong[0].shape[0] = 100;
  refused(wrong, "word_embeddings.weight");
}

class cli_qa_hosts : public JobOnHosts {
 protected:
  cli_qa_hosts() : JobOnHosts(2) {}
  void SetUp() override {
    if (!std::filesystem::exists(worker_program())) GTEST_SKIP() << "this build has no LibTorch";
    JobOnHosts::SetUp();
  }
};

// Defect 8: the recipe wanted NCCL, and as many ranks on each host.
TEST_F(cli_qa_hosts, one_command_on_each_of_two_unequal_hosts) {
  const std::string run = folder_ / "run";
  std::vector<std::unique_ptr<Command>> launchers;
  for (const int node : {0, 1}) {
    Arguments command = trireme({"run", "--nnodes=2", "--node-rank=" + std::to_string(node),
                                 "--nproc-per-node=" + std::to_string(node == 0 ? 2 : 1),
                                 "--master-addr=" + Hosts::address(0), "--master-port=29500"});
    const Arguments program = qa_words(run, {"train_batch_size=12", "qa.batch_split=3"});
    command.insert(command.end(), program.begin(), program.end());
    launchers.push_back(std::make_unique<Command>(
        hosts_.on(node, command),
        CommandOptions{{{"TRIREME_SECRET_FILE", folder_ / "secret"}}, ""}));
  }
  for (auto& launcher : launchers) EXPECT_EQ(launcher->finish(seconds(90)), 0) << launcher->err;
  const std::string said = launchers[0]->out + launchers[0]->err;
  EXPECT_NE(said.find("4 × 1 × 3 = 12 samples a step"), std::string::npos) << said;
  EXPECT_TRUE(std::filesystem::is_symlink(run + "/epoch_2")) << said;
}

}  // namespace
}  // namespace trireme::testing::qa_test
