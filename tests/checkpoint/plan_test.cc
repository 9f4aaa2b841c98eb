// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "trireme/base/error.h"
#include "trireme/checkpoint/load_plan.h"
#include "trireme/checkpoint/save_plan.h"

namespace plan_test {

using namespace trireme;

namespace {

/// [0, numel) in `parts` ranges at random cuts; some of them may be empty.
std::vector<Slice> cut(int64_t numel, int parts, std::mt19937& random) {
  std::vector<int64_t> at{0, numel};
  for (int i = 1; i < parts; ++i)
    at.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(numel + 1)));
  std::sort(at.begin(), at.end());
  std::vector<Slice> slices;
  for (size_t i = 0; i + 1 < at.size(); ++i)
    slices.push_back({"model.w", {numel}, {at[i]}, {at[i + 1] - at[i]}});
  return slices;
}

SavePlan plan_of(const std::vector<Slice>& slices) {
  std::vector<HeldState> ranks;
  for (const Slice& s : slices) ranks.push_back({{{s, "F32"}}, {}});
  return plan_save(ranks);
}

}  // namespace

TEST(checkpoint_plan, every_element_is_written_once_by_the_first_that_holds_it) {
  std::mt19937 random(1);
  for (int64_t numel = 1; numel <= 8; ++numel)
    for (int shards = 1; shards <= 5; ++shards)
      for (int replicas = 1; replicas <= 3; ++replicas) {
        auto slices = cut(numel, shards, random);
        const auto once = slices;
        for (int i = 1; i < replicas; ++i) slices.insert(slices.end(), once.begin(), once.end());
        std::shuffle(slices.begin(), slices.end(), random);
        const SavePlan plan = plan_of(slices);
        std::vector<int> written(static_cast<size_t>(numel));
        std::set<std::string> files;
        for (size_t r = 0; r < slices.size(); ++r) {
          const std::string& file = plan.files[r][0];
          if (file.empty()) continue;
          EXPECT_TRUE(files.insert(file).second) << file;
          for (size_t before = 0; before < r; ++before) EXPECT_NE(slices[before], slices[r]);
          for (int64_t i = 0; i < slices[r].lengths[0]; ++i)
            ++written[static_cast<size_t>(slices[r].offsets[0] + i)];
        }
        EXPECT_EQ(written, std::vector<int>(written.size(), 1));
        size_t holders = 0;
        for (const IndexPart& part : plan.index.tensors.at("model.w").parts)
          holders += part.ranks.empty() ? slices.size() : part.ranks.size();
        size_t with_elements = 0;
        for (const Slice& s : slices) with_elements += s.numel() > 0;
        EXPECT_EQ(holders, with_elements);
      }
}

TEST(checkpoint_plan, what_is_planned_is_an_index_that_is_read_back) {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    SavePlan plan = plan_of(cut(1 + round % 9, 1 + round % 5, random));
    plan.index.world = 1 + round % 5;
    plan.index.layout = "some";
    for (auto& part : plan.index.tensors.at("model.w").parts) plan.index.files[part.file] = {};
    const auto back = parse_index(index_text(plan.index), "INDEX");
    const auto &want = plan.index.tensors.at("model.w").parts,
               &got = back.tensors.at("model.w").parts;
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].slice, want[i].slice);
      EXPECT_EQ(got[i].ranks, want[i].ranks);
      EXPECT_EQ(got[i].file, want[i].file);
    }
  }
}

TEST(checkpoint_plan, every_wanted_range_is_put_together_from_every_cut) {
  std::mt19937 random(3);
  for (int64_t numel = 1; numel <= 9; ++numel)
    for (int parts = 1; parts <= 4; ++parts) {
      const SavePlan plan = plan_of(cut(numel, parts, random));
      const IndexTensor& saved = plan.index.tensors.at("model.w");
      for (int64_t begin = 0; begin <= numel; ++begin)
        for (int64_t length = 0; begin + length <= numel; ++length) {
          const Slice wanted{"model.w", {numel}, {begin}, {length}};
          std::vector<int64_t> got;
          for (const LoadPiece& p : plan_load(saved, wanted)) {
            ASSERT_EQ(p.to, static_cast<int64_t>(got.size()));
            const Slice& part = saved.parts[p.part].slice;
            ASSERT_LE(p.from + p.count, part.numel());
            for (int64_t i = 0; i < p.count; ++i) got.push_back(flat_begin(part) + p.from + i);
          }
          ASSERT_EQ(static_cast<int64_t>(got.size()), length);
          for (int64_t i = 0; i < length; ++i) ASSERT_EQ(got[static_cast<size_t>(i)], begin + i);
        }
    }
}

TEST(checkpoint_plan, what_all_ranks_hold_whole_goes_into_rank_0s_plain_files) {
  const HeldState held{{{Slice::whole("model.w", {2, 3}), "F32"}, {Slice::whole("x", {}), "F64"}},
                       {{"v", int64_t{1}}}};
  const SavePlan plan = plan_save({held, held, held});
  EXPECT_EQ(plan.files[0], (std::vector<std::string>{"model.safetensors", "state.safetensors"}));
  for (size_t r : {1, 2}) EXPECT_EQ(plan.files[r], (std::vector<std::string>{"", ""}));
  EXPECT_TRUE(plan.index.tensors.at("model.w").parts.front().ranks.empty());
  EXPECT_TRUE(plan.index.value_ranks.empty());
}

TEST(checkpoint_plan, what_one_rank_alone_has_bears_its_number) {
  const HeldState some{{{Slice::whole("model.w", {2, 3}), "F32"}}, {{"v", int64_t{1}}}};
  const SavePlan plan = plan_save({{}, some, {}});
  EXPECT_EQ(plan.files[1][0], "model-rank00001.safetensors");
  EXPECT_EQ(plan.index.tensors.at("model.w").parts.front().ranks, (RankList{1}));
  EXPECT_EQ(plan.index.value_ranks.at("v"), (RankList{1}));
}

}  // namespace plan_test
