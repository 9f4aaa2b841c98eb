// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/check.h"

// Rank ↔ coordinates on named axes. Pure: integers and names in, integers out; no group, no tensor.
namespace trireme {

struct MeshAxis {
  std::string name;
  int size = 1;  // -1: whatever is left of the world; at most one axis
};

/// Combines some axes and divides them in another way: the ranks that `over` spans are numbered in
/// the mesh's order and distributed over the axes of `into`, slowest to fastest. This is how
/// experts fold over data, context and tensor parallelism: {"dp_shard", "cp", "tp"} into {"edp",
/// -1}, {"ep", 8}, {"etp", 1}.
struct MeshFold {
  std::vector<std::string> over;
  std::vector<MeshAxis> into;
};

/// A name for several axes together. Axes that the mesh lacks count as size 1, as long as it has at
/// least one of them.
struct MeshFlat {
  std::string name;
  std::vector<std::string> axes;
};

/// Known in every mesh: "dp" = dp_replicate × dp_shard, "dp_shard_cp" = dp_shard × cp, "dp_cp" =
/// all three.
inline std::vector<MeshFlat> usual_flats() {
  return {{"dp", {"dp_replicate", "dp_shard"}},
          {"dp_shard_cp", {"dp_shard", "cp"}},
          {"dp_cp", {"dp_replicate", "dp_shard", "cp"}}};
}

struct MeshAxes {
  MeshAxes(std::initializer_list<MeshAxis> axes) : axes(axes) {}
  MeshAxes(std::vector<MeshAxis> axes, std::vector<MeshFold> folds = {},
           std::vector<MeshFlat> flats = {})
      : axes(std::move(axes)), folds(std::move(folds)), flats(std::move(flats)) {}
  /// Slowest to fastest: neighbours on the last axis are ranks r and r + 1.
  std::vector<MeshAxis> axes;
  std::vector<MeshFold> folds;
  std::vector<MeshFlat> flats;  // in addition to the usual ones
};

/// How many ways each kind of parallelism divides the world.
struct ParallelSizes {
  int dp_replicate = 1;
  int dp_shard = -1;
  int cp = 1;
  int tp = 1;
  int pp = 1;
  int ep = 1;
  int etp = 1;                 // tensor-parallel ranks of one expert where experts fold: 1 or tp
  bool ep_is_an_axis = false;  // ep is an axis like the others, not folded over dp_shard × cp × tp
};

/// The sets of several axes of which a training run makes groups, beside a group for each axis.
inline std::vector<std::vector<std::string>> groups_of_several_axes() {
  return {{"dp_replicate", "dp_shard"},
          {"dp_replicate", "dp_shard", "cp"},
          {"dp_shard", "cp"},
          {"pp", "tp"},
          {"dp_shard", "cp", "tp"},
          {"pp", "dp_shard", "cp"},
          {"pp", "dp_shard", "cp", "tp"},
          {"pp", "dp_replicate", "dp_shard", "cp"}};
}

/// pp, dp_replicate, dp_shard, (ep,) cp, tp: tensor-parallel ranks are neighbours and therefore on
/// one host; pipeline stages are farthest from each other. With a folded ep > 1 there are also
/// "edp", "ep" and "etp". (The order of torchtitan's ParallelDims and, except for pp, of Megatron's
/// tp-cp-ep-dp-pp.)
inline MeshAxes parallel_axes(const ParallelSizes& s) {
  MeshAxes mesh({{"pp", s.pp}, {"dp_replicate", s.dp_replicate}, {"dp_shard", s.dp_shard}});
  if (s.ep_is_an_axis) mesh.axes.push_back({"ep", s.ep});
  mesh.axes.push_back({"cp", s.cp});
  mesh.axes.push_back({"tp", s.tp});
  check<UsageError>(s.etp == 1 || (s.etp == s.tp && !s.ep_is_an_axis),
                    "etp {} is neither 1 nor tp {} of folded experts", s.etp, s.tp);
  if (!s.ep_is_an_axis && s.ep != 1)
    mesh.folds.push_back({{"dp_shard", "cp", "tp"}, {{"edp", -1}, {"ep", s.ep}, {"etp", s.etp}}});
  return mesh;
}

/// The position of each rank of a world on its axes.
class MeshShape {
 public:
  /// UsageError, listing every factor and the product, if the sizes do not multiply to `world`.
  MeshShape(int world, const MeshAxes& mesh) : world_(world), flats_(mesh.flats) {
    check<UsageError>(world >= 1, "a mesh of {} ranks", world);
    check<UsageError>(!mesh.axes.empty(), "a mesh of no axes");
    std::vector<MeshAxis> axes = mesh.axes;
    fill(axes, world, fmt::format("but the world has {} rank{}", world, world == 1 ? "" : "s"));
    int stride = world;
    for (const MeshAxis& a : axes) {
      stride /= a.size;
      add({a, 0, stride, {}});
    }
    own_axes_ = axes_.size();
    for (const MeshFold& fold : mesh.folds) add_fold(fold);
    for (const MeshFlat& flat : usual_flats())
      if (!find(flat.name) && !find_flat(flat.name)) flats_.push_back(flat);
    for (const MeshFlat& flat : mesh.flats)
      check<UsageError>(!find(flat.name), "'{}' names both an axis and a set of axes", flat.name);
  }

  int world() const { return world_; }
  /// The mesh's own axes, slowest to fastest, followed by those of its folds.
  std::vector<MeshAxis> axes() const {
    std::vector<MeshAxis> all;
    for (const Axis& a : axes_) all.push_back(a.axis);
    return all;
  }
  size_t own_axes() const { return own_axes_; }

  /// A set of axes has one bit for each position in axes(). Names may be axes or flat sets.
  /// UsageError for an unknown name, and for a set that contains both folded axes and the axes into
  /// which they were folded.
  uint64_t set_of(const std::vector<std::string>& names) const {
    uint64_t set = 0;
    for (const std::string& name : names) set |= set_of(name);
    uint64_t folded = 0;
    for (size_t i = 0; i < axes_.size(); ++i)
      if (set >> i & 1) folded |= axes_[i].over;
    check<UsageError>(
        !(folded & set) && one_fold(set),
        "{}: these axes divide the same ranks in two ways; use the axes of one way only",
        describe_set(set));
    return set;
  }
  uint64_t set_of(std::initializer_list<const char*> names) const {
    return set_of(std::vector<std::string>(names.begin(), names.end()));
  }
  uint64_t set_of(const std::string& name) const {
    if (const Axis* a = find(name)) return bit(a);
    const MeshFlat* flat = find_flat(name);
    uint64_t set = 0;
    if (flat)
      for (const std::string& part : flat->axes)
        if (const Axis* a = find(part)) set |= bit(a);
    check<UsageError>(set != 0, "the mesh has no axis '{}'. It has {}", name, known_names());
    return set;
  }
  /// "dp_replicate+dp_shard".
  std::string describe_set(uint64_t set) const {
    std::string text;
    for (size_t i = 0; i < axes_.size(); ++i)
      if (set >> i & 1) text += (text.empty() ? "" : "+") + axes_[i].axis.name;
    return text;
  }

  int size(uint64_t set) const {
    int64_t product = 1;
    for (size_t i = 0; i < axes_.size(); ++i)
      if (set >> i & 1) product *= axes_[i].axis.size;
    return static_cast<int>(product);
  }
  int size(const std::string& name) const { return size(set_of(name)); }

  /// Axes of one rank change nothing: sets that differ in them are the same groups.
  uint64_t without_ones(uint64_t set) const {
    uint64_t rest = 0;
    for (size_t i = 0; i < axes_.size(); ++i)
      if (set >> i & 1 && axes_[i].axis.size > 1) rest |= uint64_t{1} << i;
    return rest;
  }

  /// The position on an axis; on several axes, numbered with the last of them fastest.
  int coordinate(int rank, uint64_t set) const {
    check_rank(rank);
    int place = 0;
    for (size_t i = 0; i < axes_.size(); ++i)
      if (set >> i & 1) place = place * axes_[i].axis.size + on_axis(rank, axes_[i]);
    return place;
  }
  int coordinate(int rank, const std::string& name) const { return coordinate(rank, set_of(name)); }
  /// The coordinates on each of the mesh's own axes.
  std::vector<int> coordinates(int rank) const {
    check_rank(rank);
    std::vector<int> all;
    for (size_t i = 0; i < own_axes_; ++i) all.push_back(on_axis(rank, axes_[i]));
    return all;
  }
  int rank_at(const std::vector<int>& coordinates) const {
    check<UsageError>(coordinates.size() == own_axes_, "{} coordinates for {} axes",
                      coordinates.size(), own_axes_);
    int rank = 0;
    for (size_t i = 0; i < own_axes_; ++i) {
      check<UsageError>(coordinates[i] >= 0 && coordinates[i] < axes_[i].axis.size,
                        "no place {} on the axis {} of size {}", coordinates[i], axes_[i].axis.name,
                        axes_[i].axis.size);
      rank += coordinates[i] * axes_[i].stride;
    }
    return rank;
  }

  /// The ranks that differ from `rank` only on the axes of the set, including `rank`: the members
  /// of its group for these axes. members[i] has coordinate i; for the mesh's own axes this order
  /// is ascending.
  std::vector<int> members(int rank, uint64_t set) const {
    check_rank(rank);
    std::vector<int> all;
    for (int r = 0; r < world_; ++r)
      if (same_elsewhere(r, rank, set)) all.push_back(r);
    std::sort(all.begin(), all.end(),
              [&](int r, int s) { return coordinate(r, set) < coordinate(s, set); });
    return all;
  }
  /// All groups of the set, ordered by their lowest rank; together they partition the world.
  std::vector<std::vector<int>> groups(uint64_t set) const {
    std::vector<std::vector<int>> all;
    std::vector<bool> seen(static_cast<size_t>(world_));
    for (int r = 0; r < world_; ++r) {
      if (seen[static_cast<size_t>(r)]) continue;
      all.push_back(members(r, set));
      for (int m : all.back()) seen[static_cast<size_t>(m)] = true;
    }
    return all;
  }
  /// The rank `steps` positions farther on the axes of the set, wrapping around at the end.
  int neighbour(int rank, uint64_t set, int steps) const {
    const std::vector<int> all = members(rank, set);
    const int n = static_cast<int>(all.size());
    return all[static_cast<size_t>(((coordinate(rank, set) + steps) % n + n) % n)];
  }

  /// "pp 2 × dp_shard 2 × tp 2 = 8 ranks, dp_shard × tp also as edp 1 × ep 4"; ranks on the last
  /// axis are neighbours.
  std::string describe() const {
    std::string text = factors(0, own_axes_);
    text += fmt::format(" = {} rank{}", world_, world_ == 1 ? "" : "s");
    for (size_t i = own_axes_; i < axes_.size();) {
      size_t end = i;
      while (end < axes_.size() && axes_[end].over == axes_[i].over &&
             axes_[end].fold == axes_[i].fold)
        ++end;
      std::string over;
      for (size_t k = 0; k < own_axes_; ++k)
        if (axes_[i].over >> k & 1) over += (over.empty() ? "" : " × ") + axes_[k].axis.name;
      text += fmt::format(", {} also as {}", over, factors(i, end));
      i = end;
    }
    return text;
  }

 private:
  struct Axis {
    MeshAxis axis;
    /// For an axis of a fold: the axes that it divides anew; 0: an axis of the mesh.
    uint64_t over = 0;
    int stride = 1;  // in ranks; for an axis of a fold: in positions on `over`
    int fold = 0;    // number of the fold, from 1; 0: none
    Axis(MeshAxis axis, uint64_t over, int stride, int fold)
        : axis(std::move(axis)), over(over), stride(stride), fold(fold) {}
  };

  static std::string times(const std::vector<MeshAxis>& axes) {
    std::string text;
    for (const MeshAxis& a : axes)
      text += fmt::format("{}{} {}", text.empty() ? "" : " × ", a.name, a.size);
    return text;
  }
  std::string factors(size_t begin, size_t end) const {
    std::vector<MeshAxis> axes;
    for (size_t i = begin; i < end; ++i) axes.push_back(axes_[i].axis);
    return times(axes);
  }

  /// Gives the axis of size -1 whatever is left of `total`; `but` says what the product should be.
  static void fill(std::vector<MeshAxis>& axes, int total, const std::string& but) {
    MeshAxis* open = nullptr;
    int64_t product = 1;
    for (MeshAxis& a : axes) {
      check<UsageError>(a.size >= 1 || a.size == -1, "{}: the size of {} must be -1 or at least 1",
                        times(axes), a.name);
      if (a.size == -1) {
        check<UsageError>(!open, "{}: two sizes are -1; only one can be derived", times(axes));
        open = &a;
      } else {
        product = std::min(product * a.size, int64_t{1} << 31);  // beyond every world
      }
    }
    const std::string shown =
        product < int64_t{1} << 31 ? std::to_string(product) : "more than 2^31";
    if (open) {
      check<UsageError>(product <= total && total % product == 0,
                        "{}: the given sizes multiply to {}, {}, which is not divisible by that",
                        times(axes), shown, but);
      open->size = static_cast<int>(total / product);
    } else {
      check<UsageError>(product == total, "{} = {}, {}", times(axes), shown, but);
    }
  }

  void add(Axis axis) {
    const std::string& name = axis.axis.name;
    check<UsageError>(!name.empty(), "an axis without a name");
    check<UsageError>(!find(name), "two axes are named '{}'", name);
    check<UsageError>(axes_.size() < 63, "a mesh of more than 63 axes");
    axes_.push_back(std::move(axis));
  }

  void add_fold(const MeshFold& fold) {
    uint64_t over = 0;
    for (const std::string& name : fold.over) {
      const Axis* a = find(name);
      check<UsageError>(a && a->fold == 0, "'{}' cannot be folded: it is not an axis of the mesh",
                        name);
      over |= bit(a);
    }
    check<UsageError>(over != 0, "a fold over no axes");
    std::vector<MeshAxis> into = fold.into;
    const int total = size(over);
    std::vector<MeshAxis> given;
    for (size_t i = 0; i < own_axes_; ++i)
      if (over >> i & 1) given.push_back(axes_[i].axis);
    fill(into, total, fmt::format("but {} = {}", times(given), total));
    int stride = total;
    ++folds_;
    for (const MeshAxis& a : into) {
      stride /= a.size;
      add({a, over, stride, folds_});
    }
  }

  int on_axis(int rank, const Axis& a) const {
    const int place = a.over ? coordinate(rank, a.over) : rank;
    return place / a.stride % a.axis.size;
  }

  /// Whether two ranks have equal coordinates on every axis outside the set.
  bool same_elsewhere(int r, int s, uint64_t set) const {
    uint64_t covered = set;
    int fold = 0;
    for (size_t i = 0; i < axes_.size(); ++i)
      if (set >> i & 1 && axes_[i].fold) covered |= axes_[i].over, fold = axes_[i].fold;
    for (size_t i = 0; i < axes_.size(); ++i) {
      const bool counts = axes_[i].fold == 0 || axes_[i].fold == fold;
      if (counts && !(covered >> i & 1) && on_axis(r, axes_[i]) != on_axis(s, axes_[i]))
        return false;
    }
    return true;
  }

  bool one_fold(uint64_t set) const {
    int fold = 0;
    for (size_t i = 0; i < axes_.size(); ++i) {
      if (!(set >> i & 1) || !axes_[i].fold) continue;
      if (fold && axes_[i].fold != fold) return false;
      fold = axes_[i].fold;
    }
    return true;
  }

  const Axis* find(const std::string& name) const {
    for (const Axis& a : axes_)
      if (a.axis.name == name) return &a;
    return nullptr;
  }
  const MeshFlat* find_flat(const std::string& name) const {
    for (const MeshFlat& f : flats_)
      if (f.name == name) return &f;
    return nullptr;
  }
  uint64_t bit(const Axis* a) const { return uint64_t{1} << (a - axes_.data()); }
  std::string known_names() const {
    std::string text;
    for (const Axis& a : axes_) text += (text.empty() ? "" : ", ") + a.axis.name;
    return text;
  }
  void check_rank(int rank) const {
    check<UsageError>(rank >= 0 && rank < world_, "rank {} is not in a world of {}", rank, world_);
  }

  int world_;
  std::vector<Axis> axes_;
  size_t own_axes_ = 0;
  int folds_ = 0;
  std::vector<MeshFlat> flats_;
};

}  // namespace trireme
