// SPDX-License-Identifier: Apache-2.0
// The state of whole models on ranks of several axes, planned for saving on some and for loading on
// others.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "tests/checkpoint/plain_copy.h"
#include "trireme/checkpoint/save/save_plan.h"
#include "trireme/checkpoint/steps/index.h"
#include "trireme/checkpoint/steps/load_plan.h"

namespace plan_worlds_test {

using namespace trireme;
using namespace trireme::test;

namespace {

/// How ranks of tensor parallelism hold a parameter.
enum class Split {
  same,     // all of them whole
  rows,     // dim 0
  columns,  // dim 1
  fused     // query, key and value rows of some heads: three boxes
};

struct Parameter {
  std::string name;
  Sizes shape;
  Split split = Split::same;
  int64_t granule = 1;      // of what is split
  int64_t layer = -1;       // -1: in the first stage
  bool last_too = false;    // … and in the last: an embedding that is the head, too
  int64_t expert = -1;      // the one that it belongs to
  bool of_experts = false;  // dim 0 is the expert
};

struct Model {
  explicit Model(std::mt19937& random) {
    // Some are so large that ranks which hold one alike divide its bytes.
    const int64_t d = 1 + below(random, 5),
                  words = below(random, 100) == 0 ? 300'000 / d : 3 + below(random, 9);
    layers = 1 + below(random, 5), experts = 1 + below(random, 5);
    const bool tied = below(random, 2) == 0, stacked = below(random, 2) == 0;
    list.push_back({"embed", {words, d}, Split::rows, 1, -1, tied});
    if (!tied) list.push_back({"head", {words, d}, Split::rows, 1, layers - 1});
    const int64_t heads = 1 + below(random, 4), of_head = 1 + below(random, 3);
    for (int64_t l = 0; l < layers; ++l) {
      const std::string at = "blocks." + std::to_string(l) + ".";
      list.push_back({at + "norm", {d}, Split::same, 1, l});
      list.push_back({at + "qkv", {3 * heads * of_head, d}, Split::fused, of_head, l});
      list.push_back({at + "proj", {d, heads * of_head}, Split::columns, of_head, l});
      list.push_back({at + "temperature", {}, Split::same, 1, l});
      if (stacked)
        list.push_back({at + "up", {experts, d, 4}, Split::columns, 1, l, false, -1, true});
      for (int64_t e = 0; e < experts && !stacked; ++e)
        list.push_back(
            {at + "experts." + std::to_string(e) + ".up", {d, 4}, Split::columns, 1, l, false, e});
    }
    for (const Parameter& p : list) {
      // 4 bytes an element, which must tell all elements apart.
      values["model." + p.name] = numbers(p.shape, 1'000'000 * std::ssize(values));
      values["optim.m." + p.name] = numbers(p.shape, 1'000'000 * std::ssize(values));
    }
  }
  std::vector<Parameter> list;
  int64_t layers = 0, experts = 0;
  std::map<std::string, Sizes> values;
};

/// A part of n for rank i of `size`, in granules; ranks may get none.
std::pair<int64_t, int64_t> part(int64_t n, int64_t granule, int64_t size, int64_t i) {
  const int64_t all = n / granule, begin = all * i / size, end = all * (i + 1) / size;
  return {begin * granule, (end - begin) * granule};
}

/// Ranks on axes, and how what they hold alike is sharded.
struct World {
  explicit World(std::mt19937& random) {
    dp = 1 + below(random, 4), tp = 1 + below(random, 3), pp = 1 + below(random, 3);
    do ep = 1 + below(random, dp);
    while (dp % ep != 0);
    do shards = 1 + below(random, dp);
    while (dp % shards != 0);
    stage = static_cast<int>(below(random, 4));
    looped = below(random, 2) == 0;
    shows_empty = below(random, 2) == 0;
    std::shuffle(order.begin(), order.end(), random);
  }
  std::string text() const {
    return fmt::format("dp {} tp {} pp {} ep {}, {} shards, stage {}", dp, tp, pp, ep, shards,
                       stage);
  }
  int64_t ranks() const { return dp * tp * pp; }

  /// Does a stage have the parameter?
  bool has(const Model& model, int64_t p, const Parameter& parameter) const {
    if (parameter.layer < 0) return p == 0 || (parameter.last_too && p == pp - 1);
    return p == (looped ? parameter.layer % pp : parameter.layer * pp / model.layers);
  }

  /// The boxes of a parameter that (tp rank t, ep rank e) has before it is sharded.
  std::vector<Slice> boxes(const Model& model, const Parameter& q, int64_t t, int64_t e) const {
    Slice box = Slice::whole(q.name, q.shape);
    const auto narrow = [](Slice s, size_t dim, std::pair<int64_t, int64_t> to) {
      s.offsets[dim] += to.first, s.lengths[dim] = to.second;
      return s;
    };
    const auto experts = part(model.experts, 1, ep, e);
    if (q.of_experts) box = narrow(box, 0, experts);
    if (q.expert >= 0 && (q.expert < experts.first || q.expert >= experts.first + experts.second))
      return {};
    if (q.split == Split::same) return {box};
    if (q.split == Split::fused) {
      const int64_t third = q.shape[0] / 3;
      std::vector<Slice> three;
      for (int64_t i = 0; i < 3; ++i) {
        auto rows = part(third, q.granule, tp, t);
        rows.first += i * third;
        three.push_back(narrow(box, 0, rows));
      }
      return three;
    }
    const size_t dim = q.split == Split::rows ? 0 : 1;
    return {narrow(box, dim, part(q.shape[dim], q.granule, tp, t))};
  }

  /// What each rank shows to a save (`for_save`) or to a load. As in tensor/layout_state.h, a save
  /// is shown by one rank of tp, and of pp, what several hold: ZeRO may have cut it otherwise
  /// there.
  std::vector<HeldState> held(const Model& model, bool for_save) const {
    std::vector<HeldState> all(static_cast<size_t>(ranks()));
    for (int64_t d = 0; d < dp; ++d)
      for (int64_t t = 0; t < tp; ++t)
        for (int64_t p = 0; p < pp; ++p)
          all[static_cast<size_t>(rank_of(d, t, p))] = held_by(model, d, t, p, for_save);
    return all;
  }

 private:
  int64_t rank_of(int64_t d, int64_t t, int64_t p) const {
    const std::array<int64_t, 3> at{d, t, p}, sizes{dp, tp, pp};
    int64_t rank = 0;
    for (size_t axis : order) rank = rank * sizes[axis] + at[axis];
    return rank;
  }

  HeldState held_by(const Model& model, int64_t d, int64_t t, int64_t p, bool for_save) const {
    HeldState held;
    held.values["train.step"] = int64_t{7};
    // Experts have fewer replicas: those of the ranks with the same ones.
    for (const bool of_experts : {false, true}) {
      std::vector<Slice> boxes;  // they lie behind each other in a flat buffer
      std::set<std::string> elsewhere;
      for (const Parameter& q : model.list) {
        if ((q.of_experts || q.expert >= 0) != of_experts || !has(model, p, q)) continue;
        for (const Slice& box : this->boxes(model, q, t, d % ep)) boxes.push_back(box);
        const bool is_first = (q.split != Split::same || t == 0) && (!q.last_too || p == 0);
        if (for_save && !is_first) elsewhere.insert(q.name);
      }
      const int64_t replicas = of_experts ? dp / ep : dp, mine = of_experts ? d / ep : d;
      const int64_t cut = std::gcd(shards, replicas);
      show(held, boxes, elsewhere, "model.", "I32", stage == 3 ? cut : 1, mine);
      show(held, boxes, elsewhere, "optim.m.", "I64", stage > 0 ? cut : 1, mine);
    }
    return held;
  }

  /// The boxes, or what is in this shard's range of them.
  void show(HeldState& held, const std::vector<Slice>& boxes,
            const std::set<std::string>& elsewhere, const std::string& prefix,
            const std::string& dtype, int64_t cut, int64_t replica) const {
    int64_t all = 0, at = 0;
    for (const Slice& box : boxes) all += box.numel();
    const int64_t each = (all + cut - 1) / cut, first = replica % cut * each;
    for (const Slice& box : boxes) {
      Slice slice = box;
      slice.name = prefix + box.name;
      const int64_t n = box.numel();
      const int64_t begin = std::clamp(first - at, int64_t{0}, n),
                    end = std::clamp(first + each - at, int64_t{0}, n);
      at += n;
      if (elsewhere.count(box.name) == 0 && (begin < end || shows_empty)) {
        if (end - begin != n) slice.flat = FlatRange{begin, end - begin};
        held.tensors.push_back({slice, dtype});
      }
    }
  }

  int64_t dp, tp, pp, ep, shards;
  int stage;
  bool looped;       // layers are dealt to stages in turn
  bool shows_empty;  // ranks also show what they have nothing of
  std::array<size_t, 3> order{0, 1, 2};
};

}  // namespace

TEST(checkpoint_plan_worlds, a_thousand_models_move_from_world_to_world_like_a_plain_copy) {
  std::mt19937 random(18);
  size_t on_some = 0, fused = 0, flat = 0, replicated = 0, divided = 0;
  for (int round = 0; round < 1000; ++round) {
    const Model model(random);
    const World from(random), to(random);
    SCOPED_TRACE(fmt::format("round {}: {} → {}", round, from.text(), to.text()));
    const std::vector<HeldState> holders = from.held(model, true);
    const SavePlan plan = plan_save(holders);
    const WrittenFiles files(plan, holders, [&](const std::string& name) -> const Sizes& {
      return model.values.at(name);
    });
    const CheckpointIndex index = parse_index(index_text(plan.index), "INDEX");
    EXPECT_EQ(index.tensors.size(), model.values.size());
    std::map<std::string, std::vector<Sizes>> parts;
    std::map<std::string, std::vector<int>> wanted;  // how often, by element
    for (const auto& [name, values] : model.values) {
      parts[name] = files.parts_of(name);
      wanted[name].resize(values.size());
    }
    for (const HeldState& rank : to.held(model, false))
      for (const HeldTensor& t : rank.tensors) {
        const std::string& name = t.slice.name;
        const Sizes& whole = model.values.at(name);
        const Sizes plain = values_of(t.slice, whole);
        ASSERT_EQ(loaded(index.tensors.at(name), parts[name], t.slice), plain) << name;
        for (int64_t v : plain) ++wanted[name][static_cast<size_t>(v - whole.front())];
      }
    for (const auto& [name, times] : wanted) {
      EXPECT_EQ(std::count(times.begin(), times.end(), 0), 0) << "nobody wanted some of " << name;
      replicated += std::count(times.begin(), times.end(), 1) == 0;
    }
    for (const HeldState& rank : holders) {
      std::map<std::string, int> boxes;
      for (const HeldTensor& t : rank.tensors)
        flat += t.slice.flat.has_value(), ++boxes[t.slice.name];
      on_some += boxes.size() < model.values.size();
      for (const auto& [name, count] : boxes) fused += count > 1;
    }
    for (const auto& writes : plan.writes)
      for (const PlannedWrite& w : writes) divided += w.bytes == CheckpointIndex::kBlock;
  }
  // The worlds are as various as they are meant to be.
  EXPECT_GT(on_some, 1000u);
  EXPECT_GT(fused, 1000u);
  EXPECT_GT(flat, 1000u);
  EXPECT_GT(replicated, 1000u);
  EXPECT_GT(divided, 5u);
}

}  // namespace plan_worlds_test
