// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

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

using Sizes = std::vector<int64_t>;

int64_t below(std::mt19937& random, int64_t n) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
}

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

/// The elements of a slice, out of the whole tensor: element by element.
Sizes values_of(const Slice& s, const Sizes& whole) {
  Sizes at{0};
  for (size_t d = 0; d < s.global_shape.size(); ++d) {
    Sizes next;
    for (int64_t row : at)
      for (int64_t i = 0; i < s.lengths[d]; ++i)
        next.push_back(row * s.global_shape[d] + s.offsets[d] + i);
    at = std::move(next);
  }
  if (s.flat) at = Sizes(at.begin() + s.flat->begin, at.begin() + s.flat->begin + s.flat->count);
  Sizes values;
  for (int64_t i : at) values.push_back(whole[static_cast<size_t>(i)]);
  return values;
}

Sizes shape_from(std::mt19937& random) {
  Sizes shape(static_cast<size_t>(below(random, 5)));
  for (int64_t& n : shape) n = 1 + below(random, 5);
  return shape;
}

Sizes numbers(const Sizes& shape) {
  Sizes whole(static_cast<size_t>(Slice::whole("", shape).numel()));
  std::iota(whole.begin(), whole.end(), int64_t{1000});
  return whole;
}

/// What a load does, on numbers.
Sizes loaded(const IndexTensor& saved, const std::vector<Sizes>& parts, const Slice& wanted) {
  Sizes got(static_cast<size_t>(wanted.numel()), -1);
  for (const Copy& copy : plan_load(saved, wanted)) {
    EXPECT_LE(copy.from_end(), static_cast<int64_t>(parts[copy.part].size()));
    for_each_run(copy, [&](int64_t from, int64_t to, int64_t run) {
      for (int64_t i = 0; i < run; ++i) {
        auto& place = got.at(static_cast<size_t>(to + i));
        EXPECT_EQ(place, -1) << "written twice";
        place = parts[copy.part].at(static_cast<size_t>(from + i));
      }
    });
  }
  return got;
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
    std::vector<std::vector<char>> files;
    std::vector<std::vector<int>> times;
    for (const PlannedFile& f : plan.files) {
      files.emplace_back(static_cast<size_t>(f.size));
      times.emplace_back(static_cast<size_t>(f.size));
      std::fill_n(times.back().begin(), f.head.size(), 1);
    }
    for (size_t r = 0; r < ranks.size(); ++r)
      for (const PlannedWrite& w : plan.writes[r]) {
        const Sizes values = values_of(ranks[r].tensors[w.tensor].slice, whole);
        const char* from = reinterpret_cast<const char*>(values.data()) + w.from;
        ASSERT_LE(w.from + w.bytes, static_cast<int64_t>(values.size() * 8));
        for (int64_t i = 0; i < w.bytes; ++i) {
          files[w.file].at(static_cast<size_t>(w.at + i)) = from[i];
          ++times[w.file].at(static_cast<size_t>(w.at + i));
        }
      }
    for (const auto& t : times) EXPECT_EQ(t, std::vector<int>(t.size(), 1));
    // What the files hold is the tensor.
    const IndexTensor& saved = plan.index.tensors.at("model.w");
    std::vector<Sizes> parts;
    std::set<std::string> names;
    for (const IndexPart& part : saved.parts) {
      EXPECT_TRUE(names.insert(part.file).second) << "a name twice in " << part.file;
      EXPECT_FALSE(part.slice.flat);
      const auto file = std::find_if(plan.files.begin(), plan.files.end(),
                                     [&](const PlannedFile& f) { return f.name == part.file; });
      const auto at = static_cast<size_t>(file - plan.files.begin());
      Sizes values(static_cast<size_t>(part.slice.numel()));
      ASSERT_EQ(file->head.size() + values.size() * 8, files[at].size());
      std::copy_n(files[at].data() + file->head.size(), values.size() * 8,
                  reinterpret_cast<char*>(values.data()));
      parts.push_back(values);
    }
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
