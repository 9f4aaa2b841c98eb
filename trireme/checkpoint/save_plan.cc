// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/save_plan.h"

#include <bit>
#include <utility>

#include "trireme/base/check.h"

namespace trireme {
namespace {

struct Holder {
  size_t rank, i;
};
using Range = std::pair<int64_t, int64_t>;  // of flat elements: begin, end

Range range_of(const Slice& slice) {
  return {flat_begin(slice), flat_begin(slice) + slice.numel()};
}

class Planner {
 public:
  explicit Planner(const std::vector<HeldState>& ranks) : ranks_(ranks) {
    plan_.files.resize(ranks.size());
    for (size_t r = 0; r < ranks.size(); ++r) plan_.files[r].resize(ranks[r].tensors.size());
  }

  SavePlan plan() {
    std::map<std::string, std::vector<Holder>> holders;
    for (size_t r = 0; r < ranks_.size(); ++r)
      for (size_t i = 0; i < ranks_[r].tensors.size(); ++i)
        holders[ranks_[r].tensors[i].slice.name].push_back({r, i});
    for (const auto& [name, list] : holders) tensor(name, list);
    for (size_t r = 0; r < ranks_.size(); ++r)
      for (const auto& [name, v] : ranks_[r].values) value(name, v, r);
    std::erase_if(plan_.index.value_ranks,
                  [&](const auto& item) { return item.second.size() == ranks_.size(); });
    return std::move(plan_);
  }

 private:
  const HeldTensor& held(const Holder& h) const { return ranks_[h.rank].tensors[h.i]; }

  void tensor(const std::string& name, const std::vector<Holder>& holders) {
    const HeldTensor& first = held(holders.front());
    std::map<Range, std::vector<Holder>> parts;
    for (const Holder& h : holders) {
      const HeldTensor& t = held(h);
      check<UsageError>(
          is_flat_range(t.slice),
          "checkpoint: '{}' of rank {} is neither whole nor a range of a tensor of one dim", name,
          h.rank);
      check<UsageError>(t.slice.global_shape == first.slice.global_shape && t.dtype == first.dtype,
                        "checkpoint: '{}' has another shape or dtype on rank {} than on rank {}",
                        name, h.rank, holders.front().rank);
      if (t.slice.numel() > 0 || t.slice.is_whole()) parts[range_of(t.slice)].push_back(h);
    }
    IndexTensor& out = plan_.index.tensors[name];
    out.dtype = first.dtype;
    check<UsageError>(!parts.empty(), "checkpoint: no rank holds a part of '{}'", name);
    for (const auto& [range, list] : parts) {
      IndexPart& part = out.parts.emplace_back();
      part.slice = held(list.front()).slice;
      const bool all = part.slice.is_whole() && list.size() == ranks_.size();
      for (const Holder& h : list)
        if (!all) part.ranks.push_back(static_cast<int64_t>(h.rank));
      part.file = all ? place_of(name).file : rank_file_of(name, part.ranks.front());
      plan_.files[list.front().rank][list.front().i] = part.file;
    }
    const std::string hole = hole_in(out.parts);
    check<UsageError>(hole.empty(), "checkpoint: '{}' of the {} ranks does not fit together: {}",
                      name, ranks_.size(), hole);
  }

  void value(const std::string& name, const IndexValue& v, size_t rank) {
    const auto [at, fresh] = plan_.index.values.emplace(name, v);
    RankList& holders = plan_.index.value_ranks[name];
    check<UsageError>(fresh || same(at->second, v),
                      "checkpoint: the value '{}' is {} on rank {} and {} on rank {}", name,
                      text_of(at->second), fresh ? 0 : holders.front(), text_of(v), rank);
    holders.push_back(static_cast<int64_t>(rank));
  }

  static bool same(const IndexValue& a, const IndexValue& b) {
    const auto *x = std::get_if<double>(&a), *y = std::get_if<double>(&b);
    return x && y ? std::bit_cast<uint64_t>(*x) == std::bit_cast<uint64_t>(*y) : a == b;
  }
  static std::string text_of(const IndexValue& v) {
    if (const auto* i = std::get_if<int64_t>(&v)) return fmt::format("{}", *i);
    if (const auto* d = std::get_if<double>(&v)) return fmt::format("{:.17g}", *d);
    const auto& s = std::get<std::string>(v);
    return s.size() <= 100 ? "'" + s + "'" : fmt::format("a text of {} bytes", s.size());
  }

  const std::vector<HeldState>& ranks_;
  SavePlan plan_;
};

}  // namespace

SavePlan plan_save(const std::vector<HeldState>& ranks) { return Planner(ranks).plan(); }

}  // namespace trireme
