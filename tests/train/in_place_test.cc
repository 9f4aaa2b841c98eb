// SPDX-License-Identifier: Apache-2.0
// What a run takes from one group to the next in its process: steps are taken by all or by none.
#include "trireme/train/in_place/in_place.h"

#include <gtest/gtest.h>

#include "tests/train/run_folders.h"
#include "tests/train/small_runs.h"
#include "trireme/train/forward_backward.h"
#include "trireme/train/in_place/ranks_that_train.h"

namespace in_place_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

InPlace::Options options(int first_ranks, bool scaled = false) {
  return {.first_ranks = first_ranks,
          .scaled = scaled,
          .is_over = [] { return false; },
          .is_able = [] {}};
}

class Loss : public Program {
 public:
  Pieces make(const Config&) override { return {}; }
  LossTerms loss(Network&, const MicroBatch&) override { return {}; }
};

/// A rank's run on one group: its first, or that of a later generation.
struct OnGroup {
  OnGroup(InPlace& in_place, const Config& config, Group group)
      : trainer(make_built_in_trainer(program, config, group, in_place.start(config, group))) {
    Trainer::Impl& t = trainer.impl();
    in_place.fill(t);
    start_data(t.first(), config);
  }
  void steps(InPlace& in_place, int n) {
    for (int i = 0; i < n; ++i) {
      in_place.begin_step(trainer.impl());
      trainer.impl().take_step({});
      in_place.step_taken();
      in_place.settled();
    }
  }
  Loss program;
  Trainer trainer;
};

std::vector<at::Tensor> weights(OnGroup& on) {
  std::vector<at::Tensor> all;
  for (const auto& [name, w] : on.trainer.impl().first().weights) all.push_back(w.detach().clone());
  for (const auto& b : on.trainer.impl().first().model->buffers()) all.push_back(b.clone());
  return all;
}

void expect_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << i;
}

/// It has left the groups before, and the ranks find what they hold together.
bool meets(InPlace& in_place, int64_t generation, const Group& group) {
  in_place.goes_on(generation);
  return in_place.find_step(group);
}

/// After `n` steps in one group.
std::vector<at::Tensor> calm(const Config& config, int ranks, int n) {
  std::vector<at::Tensor> after;
  run_threads(ranks, [&](Group g) {
    InPlace in_place(options(ranks));
    OnGroup on(in_place, config, g);
    on.steps(in_place, n);
    if (g.rank() == 0) after = weights(on);
  });
  return after;
}

}  // namespace

TEST(train_in_place, who_was_behind_and_who_is_new_get_the_newest_step_of_those_that_are_left) {
  const Config config = digits("mlp", {"training.steps=20"});
  const std::vector<at::Tensor> wanted = calm(config, 2, 7);
  std::vector<std::unique_ptr<InPlace>> kept(2);
  run_threads(2, [&](Group g) {
    auto& in_place = kept[static_cast<size_t>(g.rank())];
    in_place = std::make_unique<InPlace>(options(2));
    OnGroup on(*in_place, config, g);
    on.steps(*in_place, 4);
    if (g.rank() == 0) {
      in_place->keep(on.trainer.impl());  // as if the others were seen to be lost after step 4
      on.trainer.impl().take_step({});
    } else {
      on.steps(*in_place, 1);
      in_place->keep(on.trainer.impl());
    }
  });
  std::vector<at::Tensor> after[2];
  run_threads(2, [&](Group g) {
    const auto rank = static_cast<size_t>(g.rank());
    ASSERT_TRUE(meets(*kept[rank], 1, g));
    OnGroup on(*kept[rank], config, g);
    EXPECT_EQ(on.trainer.step(), 5);
    on.steps(*kept[rank], 2);
    after[rank] = weights(on);
  });
  for (const auto& mine : after) expect_same(mine, wanted);
  // One leaves, and another comes that has nothing.
  kept[1] = std::make_unique<InPlace>(options(2));
  run_threads(2, [&](Group g) {
    InPlace fresh(options(2));
    InPlace& mine = g.rank() == 0 ? fresh : *kept[1];
    EXPECT_FALSE(meets(mine, 2, g)) << "nobody has a step";
  });
}

TEST(train_in_place,
     a_step_that_is_broken_off_changes_neither_statistics_nor_the_place_in_the_data) {
  const Config config = digits("net", {"training.steps=20"});
  const std::vector<at::Tensor> wanted = calm(config, 1, 3);
  InPlace in_place(options(1));
  run_threads(1, [&](Group g) {
    OnGroup on(in_place, config, g);
    on.steps(in_place, 2);
    Trainer::Impl& t = on.trainer.impl();
    in_place.begin_step(t);
    const Batch batch = trireme::next_batch(t.first());
    {
      at::NoGradGuard no_grad;
      t.first().loss(t.first(), batch.front());  // as far as it came
    }
    in_place.keep(t);
  });
  run_threads(1, [&](Group g) {
    ASSERT_TRUE(meets(in_place, 1, g));
    OnGroup on(in_place, config, g);
    on.steps(in_place, 1);
    expect_same(weights(on), wanted);
  });
}

TEST(train_in_place, a_rank_that_was_stopped_in_its_update_has_nothing_to_give) {
  const Config config = digits("mlp", {"training.steps=20"});
  std::vector<std::unique_ptr<InPlace>> kept(2);
  for (const bool both : {false, true}) {
    run_threads(2, [&](Group g) {
      auto& in_place = kept[static_cast<size_t>(g.rank())];
      in_place = std::make_unique<InPlace>(options(2));
      OnGroup on(*in_place, config, g);
      on.steps(*in_place, 2);
      if (g.rank() == 0 || both) on.trainer.impl().first().in_update = true;
      in_place->keep(on.trainer.impl());
    });
    run_threads(2, [&](Group g) {
      InPlace& mine = *kept[static_cast<size_t>(g.rank())];
      EXPECT_EQ(meets(mine, 1, g), !both);
      if (!both) {
        EXPECT_EQ(OnGroup(mine, config, g).trainer.step(), 2);
      }
    });
  }
}

TEST(train_in_place, fewer_ranks_take_as_many_samples_or_fewer_at_a_lower_rate) {
  const Config config = digits(
      "mlp", {"training.steps=20", "train_batch_size=12", "train_micro_batch_size_per_gpu=2"});
  for (const bool scaled : {false, true})
    run_threads(2, [&](Group g) {
      InPlace in_place(options(3, scaled));
      OnGroup on(in_place, config, g);
      const trireme::Run& run = on.trainer.impl().first();
      EXPECT_EQ(run.batches.train, scaled ? 8 : 12);
      EXPECT_DOUBLE_EQ(run.lr_factor(), scaled ? 8.0 / 12 : 1);
      on.steps(in_place, 1);
      EXPECT_EQ(on.trainer.impl().done.front().report.samples, scaled ? 8 : 12);
    });
}

/// Ranks `ids` of those in `kept` take `n` steps in a generation and leave it.
void go_on(std::vector<std::unique_ptr<InPlace>>& kept, const std::vector<size_t>& ids,
           const Config& config, int64_t generation, int n) {
  run_threads(static_cast<int>(ids.size()), [&](Group g) {
    InPlace& mine = *kept[ids[static_cast<size_t>(g.rank())]];
    if (generation > 0) {
      ASSERT_TRUE(meets(mine, generation, g)) << generation;
    }
    OnGroup on(mine, config, g);
    on.steps(mine, n);
    mine.keep(on.trainer.impl());
  });
}

std::vector<std::unique_ptr<InPlace>> four() {
  std::vector<std::unique_ptr<InPlace>> kept;
  for (int rank = 0; rank < 4; ++rank) kept.push_back(std::make_unique<InPlace>(options(4)));
  return kept;
}

/// Four ranks, of which two are lost, and two that come later. Shards are on two of the four.
TEST(train_in_place, copies_and_replicas_go_from_four_ranks_to_two_and_back_with_the_same_bits) {
  for (const Sets& sets : {Sets{}, Sets{"zero_optimization.stage=1", "parallelism.dp_shard=2"},
                           Sets{"zero_optimization.stage=2", "parallelism.dp_shard=2"},
                           Sets{"zero_optimization.stage=3", "parallelism.dp_shard=2"}}) {
    Sets all{"training.steps=20", "training.reproducible=true", "train_micro_batch_size_per_gpu=4"};
    all.insert(all.end(), sets.begin(), sets.end());
    const Config config = digits("mlp", all);
    SCOPED_TRACE(sets.empty() ? "copies" : sets[0]);
    const NamedTensors wanted = train_on_threads(4, config, 9)[0].weights;
    auto kept = four();
    go_on(kept, {0, 1, 2, 3}, config, 0, 3);
    EXPECT_EQ(ranks_that_train(config, 4, 3), 2);
    go_on(kept, {1, 2}, config, 1, 3);  // 0 and 3 are lost: between them 1 and 2 have all shards
    kept[0] = std::make_unique<InPlace>(options(4));
    kept[3] = std::make_unique<InPlace>(options(4));
    run_threads(4, [&](Group g) {
      InPlace& mine = *kept[static_cast<size_t>(g.rank())];
      ASSERT_TRUE(meets(mine, 2, g));
      OnGroup on(mine, config, g);
      EXPECT_EQ(on.trainer.step(), 6);
      on.steps(mine, 3);
      EXPECT_EQ(first_difference(weights_of(on.trainer.impl().first()), wanted), "");
    });
  }
}

TEST(train_in_place, shards_that_no_other_rank_has_are_found_to_be_gone) {
  for (const char* stage : {"1", "2", "3"}) {
    const Config config = digits("mlp", {"training.steps=20", "train_micro_batch_size_per_gpu=4",
                                         std::string("zero_optimization.stage=") + stage});
    auto kept = four();
    go_on(kept, {0, 1, 2, 3}, config, 0, 2);
    go_on(kept, {0, 1, 2, 3}, config, 1, 1);  // nobody is lost, as when others come
    run_threads(2, [&](Group g) {
      EXPECT_FALSE(meets(*kept[static_cast<size_t>(1 + g.rank())], 2, g)) << stage;
    });
    run_threads(2, [&](Group g) {
      EXPECT_FALSE(meets(*kept[static_cast<size_t>(1 + g.rank())], 3, g))
          << "what they had counts no more: they have gone back";
    });
  }
}

TEST(train_in_place, a_spare_that_waited_while_the_others_went_back_gives_nothing) {
  const Config config = digits("mlp", {"training.steps=20"});
  auto kept = four();
  go_on(kept, {0, 1}, config, 0, 5);
  kept[2]->goes_on(1);
  go_on(kept, {2}, config, 0, 0);  // a newer generation, which begins at an earlier step
  std::swap(kept[1], kept[2]);
  go_on(kept, {0, 1}, config, 2, 0);
  run_threads(1, [&](Group g) {
    ASSERT_TRUE(meets(*kept[0], 3, g));
    EXPECT_EQ(OnGroup(*kept[0], config, g).trainer.step(), 0);
  });
}

TEST(train_in_place, as_many_ranks_train_as_the_configuration_allows) {
  const auto train = [](const Sets& sets, int all, int there) {
    return ranks_that_train(digits("mlp", sets), all, there);
  };
  EXPECT_EQ(train({}, 4, 3), 3);
  EXPECT_EQ(train({"training.reproducible=true"}, 8, 7), 4);
  const std::string zero = "zero_optimization.stage=2";
  EXPECT_EQ(train({zero}, 4, 3), 2) << "16 samples in 4 micro-batches";
  EXPECT_EQ(train({zero, "elastic.mode=in_process", "elastic.batch=scale"}, 4, 3), 3);
  EXPECT_EQ(train({zero, "parallelism.dp_shard=2"}, 4, 3), 2);
  EXPECT_EQ(train({zero, "parallelism.dp_replicate=2"}, 4, 1), 0);
  EXPECT_EQ(train({zero, "parallelism.dp_shard=2"}, 4, 4), 4);
}

}  // namespace in_place_test
