// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/save/save_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/checkpoint/save/write_deal.h"
#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/checkpoint/steps/element_size.h"
#include "trireme/checkpoint/steps/safetensors_head.h"
#include "trireme/checkpoint/steps/tiling.h"
#include "trireme/interop/strict_json.h"

namespace trireme {
namespace {

struct Holder {
  size_t rank, tensor;
  int64_t at;  // the box's first element in the tensor's memory
};
using BoxKey = std::pair<std::vector<int64_t>, std::vector<int64_t>>;  // offsets, lengths

/// A box that goes to a file.
struct Box {
  const std::string* name;
  size_t part;  // of the index's tensor
  std::vector<Holder> holders;
  size_t file = 0;
  int64_t at = 0;  // byte in the file
  int64_t bytes = 0;
  int64_t each = 0;  // bytes of an element
};

class Planner {
 public:
  Planner(const std::vector<HeldState>& ranks, const std::vector<bool>& sees)
      : ranks_(ranks), sees_(sees) {
    if (sees_.empty()) sees_.assign(ranks.size(), true);
    plan_.writes.resize(ranks.size());
    plan_.blocks.resize(ranks.size());
  }

  SavePlan plan() {
    std::map<std::string, std::vector<Holder>> holders;
    for (size_t r = 0; r < ranks_.size(); ++r)
      for (size_t i = 0; i < ranks_[r].tensors.size(); ++i)
        holders[ranks_[r].tensors[i].slice.name].push_back({r, i, 0});
    for (const auto& [name, list] : holders) tensor(name, list);
    plan_.index.values = agreed_values(ranks_);
    lay_out_files();
    deal();
    return std::move(plan_);
  }

 private:
  const HeldTensor& held(const Holder& h) const { return ranks_[h.rank].tensors[h.tensor]; }

  void tensor(const std::string& name, const std::vector<Holder>& shown) {
    check<UsageError>(place_of(name).key != kSafetensorsMetadata,
                      "checkpoint: the tensor '{}' would be called '{}' in its file, which "
                      "safetensors files reserve: give it another name",
                      name, kSafetensorsMetadata);
    const HeldTensor& first = held(shown.front());
    const std::vector<int64_t>& shape = first.slice.global_shape;
    std::map<BoxKey, std::vector<Holder>> boxes;
    for (const Holder& h : shown) {
      const HeldTensor& t = held(h);
      check<UsageError>(t.slice.global_shape == shape && t.dtype == first.dtype,
                        "checkpoint: '{}' has another shape or dtype on rank {} than on rank {}",
                        name, h.rank, shown.front().rank);
      const std::string fault = fault_of(t.slice);
      check<UsageError>(fault.empty(), "checkpoint: '{}' on rank {}: {}", name, h.rank, fault);
      for (PlacedBox& box : boxes_of(t.slice)) {
        auto& list = boxes[{std::move(box.offsets), std::move(box.lengths)}];
        check<UsageError>(list.empty() || list.back().rank != h.rank,
                          "checkpoint: rank {} shows a part of '{}' twice", h.rank, name);
        list.push_back({h.rank, h.tensor, box.at});
      }
      if (t.slice.is_whole() && t.slice.numel() == 0) boxes[{t.slice.offsets, shape}].push_back(h);
    }
    check<UsageError>(!boxes.empty(), "checkpoint: no rank holds a part of '{}'", name);
    const auto at = plan_.index.tensors.emplace(name, IndexTensor{first.dtype, {}}).first;
    IndexTensor& out = at->second;
    std::map<int64_t, size_t> named;  // boxes so far, by the rank in the file's name
    for (const auto& [key, list] : boxes) {
      const bool all = list.size() == ranks_.size();
      const auto rank = all ? int64_t{-1} : static_cast<int64_t>(list.front().rank);
      IndexPart& part = out.parts.emplace_back();
      part.slice = {name, shape, key.first, key.second};
      part.file = place_of(name, rank, named[rank]++).file;
      Box box{&at->first, out.parts.size() - 1, {}};
      for (const Holder& h : list)
        if (sees_[h.rank]) box.holders.push_back(h);
      check<ResourceError>(
          !box.holders.empty(),
          "checkpoint: only rank {} holds a part of '{}', and its host does not see "
          "the run folder: the folder must be one that all hosts share",
          list.front().rank, name);
      boxes_.push_back(std::move(box));
    }
    std::vector<const Slice*> slices;
    for (const IndexPart& part : out.parts) slices.push_back(&part.slice);
    const std::string fault = fault_in_tiling(shape, slices);
    check<UsageError>(fault.empty(), "checkpoint: '{}' of the {} ranks does not fit together: {}",
                      name, ranks_.size(), fault);
  }

  // The heads of the files, and where each box lies in its own.
  void lay_out_files() {
    std::map<std::string, std::vector<Box*>> contents{{CheckpointIndex::kModelFile, {}},
                                                      {CheckpointIndex::kStateFile, {}}};
    for (Box& box : boxes_) contents[part_of(box).file].push_back(&box);
    for (auto& [file, list] : contents) {
      auto described = [&](const Box& box) {
        const IndexTensor& t = plan_.index.tensors.at(*box.name);
        return SafetensorsTensor{place_of(*box.name).key, t.dtype, part_of(box).slice.lengths};
      };
      std::vector<std::pair<SafetensorsTensor, Box*>> sorted;
      for (Box* box : list) sorted.emplace_back(described(*box), box);
      std::sort(sorted.begin(), sorted.end(),
                [](const auto& a, const auto& b) { return comes_before(a.first, b.first); });
      std::vector<SafetensorsTensor> tensors;
      std::string offsets = "{";
      for (auto& [t, box] : sorted) {
        if (!tensors.empty()) offsets += ',';
        offsets +=
            json_quoted(t.name, "checkpoint") +
            fmt::format(":{{\"saved_offsets\":[{}]}}", fmt::join(part_of(*box).slice.offsets, ","));
        tensors.push_back(t);
      }
      // Stock readers ask for the format; PyTorch's distributed checkpoints for the other two.
      const std::map<std::string, std::string> metadata{
          {"format", "pt"}, {"DCP_VERSION", "1.0"}, {"DCP_SHARDING_INFO", offsets + "}"}};
      PlannedFile planned{file, safetensors_head(tensors, metadata, "checkpoint"), 0, 0};
      int64_t at = static_cast<int64_t>(planned.head.size());
      for (auto& [t, box] : sorted) {
        box->file = plan_.files.size(), box->at = at;
        box->each = safetensors_item_size(t.dtype);
        box->bytes = part_of(*box).slice.numel() * box->each;
        at += box->bytes;
        auto& blocks = part_of(*box).blocks;
        blocks.assign(static_cast<size_t>((box->bytes + CheckpointIndex::kBlock - 1) /
                                          CheckpointIndex::kBlock),
                      0);
      }
      planned.size = at;
      planned.creator = list.empty() ? first_writer() : list.front()->holders.front().rank;
      plan_.index.files[file] = {static_cast<uint64_t>(at),
                                 Checksum::of(planned.head.data(), planned.head.size())};
      plan_.files.push_back(std::move(planned));
    }
  }

  size_t first_writer() const {
    return static_cast<size_t>(std::find(sees_.begin(), sees_.end(), true) - sees_.begin());
  }

  IndexPart& part_of(const Box& box) { return plan_.index.tensors.at(*box.name).parts[box.part]; }

  void deal() {
    std::vector<Box*> order;
    for (Box& box : boxes_) order.push_back(&box);
    std::sort(order.begin(), order.end(), [](const Box* a, const Box* b) {
      return std::pair(a->file, a->at) < std::pair(b->file, b->at);
    });
    std::vector<SharedBytes> items;
    for (const Box* box : order) {
      SharedBytes& item = items.emplace_back();
      item.bytes = box->bytes;
      for (const Holder& h : box->holders) item.ranks.push_back(h.rank);
    }
    for (const WriteShare& share : deal_writes(items, ranks_.size(), CheckpointIndex::kBlock))
      write(*order[share.item], share);
    for (size_t r = 0; r < ranks_.size(); ++r) sort_writes(r);
  }

  void write(Box& box, const WriteShare& share) {
    const Holder& h = box.holders[share.holder];
    const int64_t bytes = share.end - share.begin;
    plan_.writes[h.rank].push_back(
        {h.tensor, h.at * box.each + share.begin, box.file, box.at + share.begin, bytes});
    const int64_t block = CheckpointIndex::kBlock;
    plan_.blocks[h.rank].push_back({&part_of(box), static_cast<size_t>(share.begin / block),
                                    static_cast<size_t>((bytes + block - 1) / block)});
  }

  void sort_writes(size_t rank) {
    auto& writes = plan_.writes[rank];
    auto& blocks = plan_.blocks[rank];
    std::vector<size_t> order(writes.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::pair(writes[a].file, writes[a].at) < std::pair(writes[b].file, writes[b].at);
    });
    std::vector<PlannedWrite> sorted_writes;
    std::vector<SavePlan::Blocks> sorted_blocks;
    for (size_t i : order) {
      sorted_writes.push_back(writes[i]);
      sorted_blocks.push_back(blocks[i]);
    }
    writes = std::move(sorted_writes);
    blocks = std::move(sorted_blocks);
  }

  const std::vector<HeldState>& ranks_;
  std::vector<bool> sees_;
  std::vector<Box> boxes_;
  SavePlan plan_;
};

bool same(const IndexValue& a, const IndexValue& b) {
  const auto *x = std::get_if<double>(&a), *y = std::get_if<double>(&b);
  return x && y ? std::bit_cast<uint64_t>(*x) == std::bit_cast<uint64_t>(*y) : a == b;
}

std::string text_of(const IndexValue& v) {
  if (const auto* i = std::get_if<int64_t>(&v)) return fmt::format("{}", *i);
  if (const auto* d = std::get_if<double>(&v)) return fmt::format("{:.17g}", *d);
  const auto& s = std::get<std::string>(v);
  return s.size() <= 100 ? "'" + s + "'" : fmt::format("a text of {} bytes", s.size());
}

}  // namespace

std::map<std::string, IndexValue> agreed_values(const std::vector<HeldState>& ranks) {
  std::map<std::string, IndexValue> values;
  std::map<std::string, size_t> holder;
  for (size_t r = 0; r < ranks.size(); ++r)
    for (const auto& [name, v] : ranks[r].values) {
      const auto [at, fresh] = values.emplace(name, v);
      if (fresh) holder[name] = r;
      check<UsageError>(fresh || same(at->second, v),
                        "checkpoint: the value '{}' is {} on rank {} and {} on rank {}", name,
                        text_of(at->second), holder[name], text_of(v), r);
    }
  return values;
}

int64_t SavePlan::bytes_of(size_t rank) const {
  int64_t bytes = 0;
  for (const PlannedWrite& w : writes[rank]) bytes += w.bytes;
  return bytes;
}

SavePlan plan_save(const std::vector<HeldState>& ranks, const std::vector<bool>& sees) {
  return Planner(ranks, sees).plan();
}

}  // namespace trireme
