// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/checkpoint/plain_copy.h"
#include "tests/checkpoint/test_state.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/save/save_plan.h"
#include "trireme/checkpoint/save/write_deal.h"
#include "trireme/checkpoint/steps/load_plan.h"
#include "trireme/checkpoint/steps/tiling.h"

namespace plan_test {

using namespace trireme;
using namespace trireme::test;

namespace {

/// A tensor cut into boxes: along random dims, and the boxes into flat ranges, as tensor, expert
/// and pipeline parallelism with ZeRO do.
std::vector<Slice> cut(const Sizes& shape, int cuts, bool flats, std::mt19937& random) {
  std::vector<Slice> parts{Slice::whole("model.w", shape)};
  for (int i = 0; i < cuts && !shape.empty(); ++i) {
    const auto p = static_cast<size_t>(below(random, static_cast<int64_t>(parts.size())));
    const auto d = static_cast<size_t>(below(random, static_cast<int64_t>(shape.size())));
    if (parts[p].lengths[d] < 2) continue;
    Slice second = parts[p];
    const int64_t at = 1 + below(random, parts[p].lengths[d] - 1);
    parts[p].lengths[d] = at;
    second.offsets[d] += at;
    second.lengths[d] -= at;
    parts.push_back(second);
  }
  if (flats)
    for (size_t p = 0, n = parts.size(); p < n; ++p) {
      if (parts[p].box_numel() < 2 || below(random, 2)) continue;
      const int64_t all = parts[p].box_numel(), at = 1 + below(random, all - 1);
      Slice second = parts[p];
      parts[p].flat = FlatRange{0, at};
      second.flat = FlatRange{at, all - at};
      parts.push_back(second);
    }
  std::shuffle(parts.begin(), parts.end(), random);
  return parts;
}

Sizes shape_from(std::mt19937& random) {
  Sizes shape(static_cast<size_t>(below(random, 5)));
  for (int64_t& n : shape) n = 1 + below(random, 5);
  return shape;
}

}  // namespace

TEST(checkpoint_plan, a_thousand_layouts_load_into_a_thousand_others_like_a_plain_copy) {
  std::mt19937 random(1);
  for (int round = 0; round < 1000; ++round) {
    const Sizes shape = shape_from(random), whole = numbers(shape);
    IndexTensor saved{"F32", {}};
    std::vector<Sizes> parts;
    for (const Slice& s : cut(shape, static_cast<int>(below(random, 6)), false, random)) {
      saved.parts.push_back({s, "f"});
      parts.push_back(values_of(s, whole));
    }
    for (const Slice& wanted : cut(shape, static_cast<int>(below(random, 6)), true, random))
      ASSERT_EQ(loaded(saved, parts, wanted), values_of(wanted, whole)) << "round " << round;
  }
}

TEST(checkpoint_plan, a_flat_tensor_and_a_shaped_one_load_into_each_other) {
  std::mt19937 random(2);
  for (int round = 0; round < 500; ++round) {
    const Sizes shape = shape_from(random), whole = numbers(shape);
    const Sizes flat{static_cast<int64_t>(whole.size())};
    for (const bool saved_flat : {true, false}) {
      IndexTensor saved{"F32", {}};
      std::vector<Sizes> parts;
      for (const Slice& s : cut(saved_flat ? flat : shape, 4, false, random)) {
        saved.parts.push_back({s, "f"});
        parts.push_back(values_of(s, whole));
      }
      for (const Slice& wanted : cut(saved_flat ? shape : flat, 3, true, random))
        ASSERT_EQ(loaded(saved, parts, wanted), values_of(wanted, whole));
    }
  }
}

TEST(checkpoint_plan, neighbours_are_one_run) {
  const IndexTensor saved{"F32", {{{"w", {8, 4, 3}, {2, 0, 0}, {6, 4, 3}}, "f"}}};
  // Rows that are whole on both sides.
  EXPECT_EQ(plan_load(saved, {"w", {8, 4, 3}, {3, 0, 0}, {2, 4, 3}}),
            (std::vector<Copy>{{0, 12, 0, 24, {}}}));
  // Columns: a run for each row.
  EXPECT_EQ(plan_load(saved, {"w", {8, 4, 3}, {2, 1, 0}, {6, 2, 3}}),
            (std::vector<Copy>{{0, 3, 0, 6, {{6, 12, 6}}}}));
}

TEST(checkpoint_plan, every_element_is_written_once_from_a_rank_that_holds_it) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const Sizes shape = shape_from(random), whole = numbers(shape);
    const auto slices = cut(shape, static_cast<int>(below(random, 6)), true, random);
    const auto shards = static_cast<int>(slices.size());
    const int replicas = 1 + static_cast<int>(below(random, 3));
    // Rank r holds slice r % shards, and a few hold two.
    std::vector<HeldState> ranks(static_cast<size_t>(shards * replicas));
    for (size_t r = 0; r < ranks.size(); ++r)
      ranks[r].tensors.push_back({slices[r % static_cast<size_t>(shards)], "I64"});
    if (shards > 2 && below(random, 2)) {  // one rank shows two boxes of the name, another none
      for (int k = 0; k < replicas; ++k) {
        auto& from = ranks[static_cast<size_t>(k * shards + 1)].tensors;
        ranks[static_cast<size_t>(k * shards)].tensors.push_back(from.front());
        from.clear();
      }
    }
    const SavePlan plan = plan_save(ranks);
    const WrittenFiles files(plan, ranks,
                             [&](const std::string&) -> const Sizes& { return whole; });
    // What the files hold is the tensor.
    const IndexTensor& saved = plan.index.tensors.at("model.w");
    const std::vector<Sizes> parts = files.parts_of("model.w");
    EXPECT_EQ(loaded(saved, parts, Slice::whole("model.w", shape)), whole);
    EXPECT_EQ(index_text(parse_index(index_text(plan.index), "INDEX")), index_text(plan.index));
  }
}

TEST(checkpoint_plan, what_ranks_hold_alike_they_share_in_writing) {
  std::mt19937 random(4);
  const int64_t block = 1 << 10;
  for (int round = 0; round < 300; ++round) {
    const auto ranks = static_cast<size_t>(1 + below(random, 8));
    std::vector<SharedBytes> items;
    std::vector<size_t> all(ranks);
    std::iota(all.begin(), all.end(), size_t{0});
    int64_t total = 0;
    for (int i = 0; i < 40; ++i) {
      items.push_back({all, below(random, 200 * block)});
      total += items.back().bytes;
    }
    for (size_t r = 0; r < ranks; ++r) items.push_back({{r}, below(random, 300 * block)});
    std::vector<int64_t> loads(ranks, 0), own(ranks, 0);
    for (size_t i = 40; i < items.size(); ++i) {
      own[items[i].ranks[0]] += items[i].bytes;
      total += items[i].bytes;
    }
    std::vector<std::vector<int>> blocks;
    for (const SharedBytes& item : items)
      blocks.emplace_back(static_cast<size_t>((item.bytes + block - 1) / block));
    for (const WriteShare& share : deal_writes(items, ranks, block)) {
      EXPECT_EQ(share.begin % block, 0);
      EXPECT_TRUE(share.end == items[share.item].bytes || share.end % block == 0);
      for (int64_t b = share.begin / block; b * block < share.end; ++b)
        ++blocks[share.item][static_cast<size_t>(b)];
      loads[items[share.item].ranks[share.holder]] += share.end - share.begin;
    }
    for (const auto& b : blocks) EXPECT_EQ(b, std::vector<int>(b.size(), 1));
    const int64_t fullest = *std::max_element(loads.begin(), loads.end());
    const int64_t mean = total / static_cast<int64_t>(ranks);
    EXPECT_LE(fullest, std::max(mean, *std::max_element(own.begin(), own.end())) + 2 * block);
  }
}

TEST(checkpoint_plan, what_all_ranks_hold_goes_into_plain_files_that_they_write_together) {
  const HeldState held{
      {{Slice::whole("model.w", {1 << 20, 2}), "F32"}, {Slice::whole("x", {}), "F64"}},
      {{"v", int64_t{1}}}};
  const SavePlan plan = plan_save({held, held, held, held});
  EXPECT_EQ(plan.index.tensors.at("model.w").parts.front().file, "model.safetensors");
  EXPECT_EQ(plan.index.tensors.at("x").parts.front().file, "state.safetensors");
  EXPECT_EQ(plan.files.size(), 2u);
  for (size_t r = 0; r < 4; ++r) EXPECT_NEAR(plan.bytes_of(r), 2 << 20, 16);
}

TEST(checkpoint_plan, what_one_rank_alone_has_carries_its_number) {
  const HeldState some{{{Slice::whole("model.w", {2, 3}), "F32"}}, {{"v", int64_t{1}}}};
  const SavePlan plan = plan_save({{}, some, {}});
  EXPECT_EQ(plan.index.tensors.at("model.w").parts.front().file, "model-rank00001.safetensors");
  EXPECT_EQ(std::get<int64_t>(plan.index.values.at("v")), 1);
}

TEST(checkpoint_plan, ranks_that_do_not_see_the_folder_leave_their_bytes_to_others) {
  const HeldState held{{{Slice::whole("model.w", {1 << 20}), "F32"}}, {}};
  const SavePlan plan = plan_save({held, held}, {true, false});
  EXPECT_EQ(plan.bytes_of(0), 4 << 20);
  EXPECT_EQ(plan.bytes_of(1), 0);
  const HeldState alone{{{Slice::whole("model.v", {3}), "F32"}}, {}};
  EXPECT_TRUE(contains(message_of<ResourceError>([&] {
                         plan_save({held, alone}, {true, false});
                       }),
                       "only rank 1 holds a part of 'model.v'"));
}

TEST(checkpoint_plan, tiles_are_those_that_cover_each_element_once) {
  std::mt19937 random(5);
  int wrong = 0;
  for (int round = 0; round < 2000; ++round) {
    const Sizes shape = shape_from(random), whole = numbers(shape);
    auto parts = cut(shape, static_cast<int>(below(random, 6)), below(random, 2) == 0, random);
    if (below(random, 2)) {  // one of them is moved, shrunk, dropped or doubled
      const auto p = static_cast<size_t>(below(random, static_cast<int64_t>(parts.size())));
      const auto how = below(random, 3);
      if (how == 0)
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(p));
      else if (how == 1)
        parts.push_back(parts[p]);
      else if (!shape.empty() && !parts[p].flat) {
        const auto d = static_cast<size_t>(below(random, static_cast<int64_t>(shape.size())));
        parts[p].offsets[d] = below(random, shape[d]);
        parts[p].lengths[d] = 1 + below(random, shape[d] - parts[p].offsets[d]);
      }
    }
    std::vector<int> times(whole.size());
    std::vector<const Slice*> list;
    for (const Slice& s : parts) {
      list.push_back(&s);
      for (int64_t v : values_of(s, whole)) ++times[static_cast<size_t>(v - 1000)];
    }
    if (list.empty()) continue;
    const bool tiles = std::all_of(times.begin(), times.end(), [](int n) { return n == 1; });
    ASSERT_EQ(fault_in_tiling(shape, list) == "", tiles) << "round " << round;
    wrong += !tiles;
  }
  EXPECT_GT(wrong, 300);
}

}  // namespace plan_test
