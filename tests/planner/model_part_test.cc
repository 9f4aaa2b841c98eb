// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/model_part.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/support/refusals.h"
#include "trireme/planner/model_shape.h"

namespace model_part_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

ModelGeometry gpt(bool tied) {
  ModelGeometry g;
  g.layers = 6, g.width = 24, g.heads = 12, g.context = 10, g.vocab = 301, g.tied_head = tied;
  return g;
}

ModelPart rank_of(int tp, int rank) {
  ModelPart part;
  part.tp = tp;
  part.tp_rank = rank;
  return part;
}

std::map<std::string, std::vector<int64_t>> shapes(const ModelShape& model) {
  std::map<std::string, std::vector<int64_t>> all;
  for (const auto& p : model.parameters) all[p.name] = p.shape;
  return all;
}

/// What every rank of a tensor-parallel group has whole.
bool is_whole(const std::string& name) {
  return has(name, "ln") || has(name, "wpe") || has(name, "proj.bias") || has(name, "down.bias");
}

Config config(const std::vector<std::string>& sets) {
  return Config::from_text("c.json", R"({"train_micro_batch_size_per_gpu": 2})", sets);
}

std::vector<std::string> of_rank(const ModelGeometry& g, const ModelPart& part) {
  std::vector<std::string> names;
  for (const auto& p : model_shape(g, part).parameters) names.push_back(p.name);
  return names;
}

}  // namespace

TEST(planner_model_part, the_parts_of_ranks_add_up_to_the_whole) {
  for (const bool tied : {true, false})
    for (int tp = 1; tp <= 4; ++tp) {
      const auto whole = shapes(model_shape(gpt(tied)));
      std::map<std::string, int64_t> rows, columns;
      for (int rank = 0; rank < tp; ++rank) {
        const auto part = shapes(model_shape(gpt(tied), rank_of(tp, rank)));
        ASSERT_EQ(part.size(), whole.size());
        for (const auto& [name, shape] : part) {
          ASSERT_EQ(shape.size(), whole.at(name).size()) << name;
          if (is_whole(name)) {
            EXPECT_EQ(shape, whole.at(name)) << name;
          }
          rows[name] += shape.front();
          columns[name] += shape.back();
        }
      }
      for (const auto& [name, shape] : whole) {
        if (is_whole(name)) continue;
        const bool by_columns = has(name, "proj.weight") || has(name, "down.weight");
        EXPECT_EQ(by_columns ? columns[name] : rows[name],
                  by_columns ? shape.back() : shape.front())
            << name << " over " << tp;
      }
    }
}

TEST(planner_model_part, the_last_rank_has_the_most) {
  for (int tp = 1; tp <= 4; ++tp)
    for (int rank = 0; rank < tp; ++rank)
      EXPECT_LE(model_shape(gpt(true), rank_of(tp, rank)).numel(),
                model_shape(gpt(true), rank_of(tp, tp - 1)).numel());
  const auto parts = fullest_parts(config({"parallelism.tp=3"}), 6);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].tp, 3);
  EXPECT_EQ(parts[0].tp_rank, 2);
  EXPECT_FALSE(parts[0].sequence_parallel);
  EXPECT_TRUE(
      fullest_parts(config({"parallelism.tp=2", "parallelism.sequence_parallel=true"}), 2)[0]
          .sequence_parallel);
  EXPECT_FALSE(
      fullest_parts(config({"parallelism.sequence_parallel=true"}), 2)[0].sequence_parallel);
}

TEST(planner_model_part, stages_have_each_block_once_and_a_tied_embedding_twice) {
  for (const bool tied : {true, false})
    for (const char* schedule : {"1f1b", "interleaved_1f1b", "zb_v"}) {
      const Config c =
          config({"model.tied_head=false", "parallelism.pp=2", "gradient_accumulation_steps=4",
                  std::string("parallelism.schedule=") + schedule});
      std::map<std::string, int> seen;
      for (const ModelPart& part : fullest_parts(c, 2))
        for (const std::string& name : of_rank(gpt(tied), part)) ++seen[name];
      const bool ends_meet = std::string(schedule) == "zb_v";  // both ends are on rank 0
      auto whole = shapes(model_shape(gpt(tied)));
      if (tied && ends_meet) whole["wte_of_head.weight"] = whole.at("wte.weight");
      EXPECT_EQ(seen.size(), whole.size());
      for (const auto& [name, times] : seen) {
        EXPECT_TRUE(whole.count(name)) << name;
        EXPECT_EQ(times, tied && name == "wte.weight" && !ends_meet ? 2 : 1) << name;
      }
    }
}

TEST(planner_model_part, units_of_a_stage_are_numbered_from_its_first_block) {
  const auto parts = fullest_parts(
      config({"parallelism.pp=2", "parallelism.stages=[2,4]", "gradient_accumulation_steps=2"}), 2);
  ASSERT_EQ(parts.size(), 2u);
  int blocks[2] = {0, 0};
  for (int rank : {0, 1})
    for (const auto& p : model_shape(gpt(true), parts[static_cast<size_t>(rank)]).parameters) {
      EXPECT_EQ(p.unit > 0, has(p.name, "blocks.")) << p.name;
      blocks[rank] = std::max(blocks[rank], p.unit);
    }
  EXPECT_EQ(blocks[0], 2);
  EXPECT_EQ(blocks[1], 4);
}

TEST(planner_model_part, what_cannot_be_divided_is_one_sentence_with_its_place) {
  const auto fault = [](const std::vector<std::string>& sets, int world) {
    return fault_of_division(config(sets), world);
  };
  EXPECT_EQ(fault({}, 4), "");
  EXPECT_EQ(fault({"parallelism.tp=3"}, 3), "");
  EXPECT_EQ(fault({"parallelism.tp=4"}, 4),
            "parallelism.tp 4 (--set): 6 query heads do not divide among 4 tensor-parallel ranks: "
            "choose a number of ranks that divides 6");
  EXPECT_EQ(fault({"parallelism.tp=512", "model.width=512", "model.heads=512"}, 512),
            "parallelism.tp 512 (--set): a vocabulary of 256 in granules of 1 gives 256 parts for "
            "512 ranks of the tensor-parallel group: use fewer ranks");
  EXPECT_EQ(fault({"parallelism.tp=6", "model.context=5"}, 6), "");
  EXPECT_EQ(fault({"parallelism.tp=6", "model.context=5", "parallelism.sequence_parallel=true"}, 6),
            "parallelism.tp 6 (--set): a context of 5 in granules of 1 gives 5 parts for 6 ranks "
            "of the tensor-parallel group: use fewer ranks");
  EXPECT_EQ(fault({"parallelism.pp=7", "gradient_accumulation_steps=7"}, 7),
            "parallelism.pp 7 (--set), and gradient_accumulation_steps are its micro-batches: 7 "
            "stages, and the model has 6 blocks: each stage needs one, so use fewer ranks or "
            "stages");
  EXPECT_TRUE(has(
      fault({"parallelism.pp=2", "parallelism.stages=[1,2]", "gradient_accumulation_steps=2"}, 2),
      "the stages have 3 blocks together, and the model has 6"));
  EXPECT_EQ(fault({"parallelism.cp=4", "model.context=4"}, 4), "");
  EXPECT_EQ(fault({"parallelism.cp=4", "model.context=3"}, 4),
            "parallelism.cp 4 (--set): 3 positions do not divide among 4 context-parallel ranks: "
            "use at most 3 of them");
  EXPECT_EQ(fault({"parallelism.cp=4"}, 4), "");  // a ring takes any number of heads
  EXPECT_EQ(fault({"parallelism.cp=4", "parallelism.cp_method=all_to_all"}, 4),
            "parallelism.cp 4 (--set): 6 query heads do not divide among 4 context-parallel ranks, "
            "as all_to_all needs: choose a number of ranks that divides 6, or ring or all_gather");
  EXPECT_TRUE(
      has(fault({"parallelism.cp=2", "parallelism.tp=2", "parallelism.cp_method=all_to_all"}, 4),
          "3 query heads do not divide among 2"));
  EXPECT_TRUE(has(fault({"parallelism.cp=2", "parallelism.tp=3", "model.context=5",
                         "parallelism.sequence_parallel=true"},
                        6),
                  "a rank's part of the context of 2"));
  EXPECT_EQ(refusal([&] { fullest_parts(config({"parallelism.tp=4"}), 4); }),
            fault({"parallelism.tp=4"}, 4));
  ModelGeometry mlp;
  mlp.type = "mlp";
  EXPECT_TRUE(has(refusal([&] { model_shape(mlp, rank_of(2, 0)); }), "only gpt can"));
}

}  // namespace model_part_test
