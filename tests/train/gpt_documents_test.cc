// SPDX-License-Identifier: Apache-2.0
// data.end_of_document: rows of the built-in gpt that hold several documents, on every layout of
// the model. Every stage and part reads from the micro-batch's tokens where documents begin.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/refusals.h"
#include "tests/train/run_folders.h"
#include "trireme/train/evaluate.h"

namespace gpt_documents_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

struct Seen {
  std::vector<double> losses, norms;
  double held_out = 0;
  int64_t held_out_weight = 0;
};

Seen train(const Folders& folders, int ranks, Sets sets, bool ends = true) {
  // Lines are documents.
  if (ends) sets.push_back("data.end_of_document=10");
  for (const char* set :
       {"train_batch_size=16", "train_micro_batch_size_per_gpu=2", "model.layers=4",
        "model.tied_head=true", "optimizer.type=SGD", "optimizer.params.lr=0.1"})
    sets.push_back(set);
  const Config config = tiny_gpt(folders.corpus, sets);
  Seen seen;
  run_threads(
      ranks,
      [&](Group g) {
        trireme::Run run = build_run(config, g);
        start_data(run, config);
        Seen mine;
        for (int i = 0; i < 3; ++i) {
          const StepReport r = train_step(run);
          mine.losses.push_back(r.loss), mine.norms.push_back(r.grad_norm);
        }
        const Evaluation e = evaluate(run);
        mine.held_out = e.loss, mine.held_out_weight = e.weight;
        if (g.rank() == 0) seen = mine;
      },
      std::chrono::seconds(60));
  return seen;
}

void expect_near(const Seen& got, const Seen& want) {
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], want.losses[i], 1e-5 * want.losses[i]) << i;
    EXPECT_NEAR(got.norms[i], want.norms[i], 1e-4 * want.norms[i]) << i;
  }
  EXPECT_NEAR(got.held_out, want.held_out, 1e-5 * want.held_out);
  EXPECT_EQ(got.held_out_weight, want.held_out_weight);
}

}  // namespace

TEST(train_gpt_documents, every_layout_trains_as_one_process) {
  const Folders folders;
  const Seen want = train(folders, 1, {});
  const Seen whole = train(folders, 1, {}, false);
  EXPECT_GT(std::abs(whole.losses[0] - want.losses[0]), 1e-3);
  EXPECT_LT(want.held_out_weight, whole.held_out_weight);  // ends tell of nothing
  struct Case {
    int ranks;
    Sets sets;
  };
  for (const Case& c :
       {Case{2, {"parallelism.pp=2"}}, Case{2, {"parallelism.pp=2", "parallelism.schedule=zb_v"}},
        Case{4,
             {"parallelism.pp=2", "zero_optimization.stage=3",
              "zero_optimization.stage3_param_persistence_threshold=0",
              "training.recompute_every=1"}},
        Case{2, {"parallelism.tp=2"}},
        Case{2,
             {"parallelism.tp=2", "parallelism.sequence_parallel=true",
              "training.recompute_every=1"}},
        Case{4,
             {"parallelism.tp=2", "parallelism.sequence_parallel=true", "parallelism.pp=2",
              "parallelism.schedule=interleaved_1f1b"}}}) {
    SCOPED_TRACE(c.sets.back());
    expect_near(train(folders, c.ranks, c.sets), want);
  }
}

TEST(train_gpt_documents, bfloat16_and_autocast_keep_documents_apart) {
  const Folders folders;
  const Seen want = train(folders, 1, {});
  for (const std::string half : {"bf16.enabled=true", "torch_autocast.enabled=true"}) {
    const Seen got = train(folders, 2, {"parallelism.pp=2", half});
    EXPECT_NEAR(got.losses[0], want.losses[0], 0.02 * want.losses[0]) << half;
    EXPECT_EQ(got.held_out_weight, want.held_out_weight);
  }
}

TEST(train_gpt_documents, what_has_no_such_ends_refuses_the_key) {
  const Folders folders;
  for (const Sets& sets : {Sets{"data.type=documents", "data.end_of_document=10"},
                           Sets{"data.end_of_document=256"}, Sets{"data.end_of_document=-1"}})
    EXPECT_NE(refusal([&] { tiny_gpt(folders.corpus, sets); }).find("data.end_of_document"),
              std::string::npos)
        << sets.back();
}

}  // namespace gpt_documents_test
