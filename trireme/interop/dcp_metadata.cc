// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/dcp_metadata.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/interop/dtype.h"
#include "trireme/interop/named_array.h"
#include "trireme/interop/pickle/pickle_reader.h"
#include "trireme/interop/shown.h"
#include "trireme/interop/tree.h"

namespace trireme::interop {
namespace {

constexpr size_t kMostAttributes = 64, kMostPath = 1024;

/// A tensor's name and the offset of a chunk; for what is no tensor, no offset.
using DcpKey = std::pair<std::string, std::vector<int64_t>>;

class MetadataReader {
 public:
  MetadataReader(std::span<const uint8_t> bytes, const std::string& where)
      : tree_(read_pickle(bytes, where)), where_(where) {}

  DcpMetadata run() {
    check<UsageError>(is_a(tree_.root, "Metadata"),
                      "{}: holds {}, not the Metadata of a DCP folder", where_,
                      tree_.described(tree_.root));
    read_places(member(tree_.root, "storage_data", "the metadata"));
    const NodeId described = member(tree_.root, "state_dict_metadata", "the metadata");
    check<Corrupt>(tree_[described].kind == Kind::dict, "{}: describes {}", where_,
                   tree_.described(described));
    DcpMetadata metadata;
    const auto& items = tree_[described].items;
    for (size_t i = 0; i < items.size(); i += 2) {
      const Node& name = tree_[items[i]];
      check<Corrupt>(name.kind == Kind::text, "{}: describes a value called {}", where_,
                     tree_.described(items[i]));
      if (is_a(items[i + 1], "BytesStorageMetadata"))
        metadata.values.push_back({name.text, place(name.text, {})});
      else
        metadata.tensors.push_back(tensor(name.text, items[i + 1]));
    }
    return metadata;
  }

 private:
  bool is_a(NodeId id, std::string_view cls) const {
    const std::string_view whole = tree_.class_of(id);
    return whole.size() > cls.size() && whole.ends_with(cls) &&
           whole[whole.size() - cls.size() - 1] == '.';
  }
  /// Attributes are looked up one by one, which a state of very many would make slow.
  std::optional<NodeId> attribute(NodeId object, std::string_view name) const {
    const Node& node = tree_[object];
    if (node.kind != Kind::object || node.items.empty()) return std::nullopt;
    check<Corrupt>(tree_[node.items[0]].items.size() <= 2 * kMostAttributes,
                   "{}: {} has more than {} attributes", where_, tree_.described(object),
                   kMostAttributes);
    return tree_.find(object, name);
  }
  NodeId member(NodeId object, std::string_view name, const std::string& what) const {
    const auto found = attribute(object, name);
    check<Corrupt>(found.has_value(), "{}: {} has no {}", where_, what, name);
    return *found;
  }
  std::vector<int64_t> sizes(NodeId id, const std::string& what) const {
    const Node& node = tree_[id];
    check<Corrupt>(
        (node.kind == Kind::tuple || node.kind == Kind::list) && node.items.size() <= kMostDims,
        "{}: {} has {} for sizes", where_, what, tree_.described(id));
    std::vector<int64_t> found;
    for (NodeId item : node.items) {
      check<Corrupt>(tree_[item].kind == Kind::integer && tree_[item].integer >= 0,
                     "{}: {} has {} for a size", where_, what, tree_.described(item));
      found.push_back(tree_[item].integer);
    }
    return found;
  }
  uint64_t count(NodeId object, std::string_view name, const std::string& what) const {
    const NodeId id = member(object, name, what);
    check<Corrupt>(tree_[id].kind == Kind::integer && tree_[id].integer >= 0,
                   "{}: {} has {} for its {}", where_, what, tree_.described(id), name);
    return static_cast<uint64_t>(tree_[id].integer);
  }
  std::string text(NodeId object, std::string_view name, const std::string& what) const {
    const NodeId id = member(object, name, what);
    check<Corrupt>(tree_[id].kind == Kind::text && tree_[id].text.size() < kMostPath,
                   "{}: {} has {} for its {}", where_, what, tree_.described(id), name);
    return tree_[id].text;
  }

  /// storage_data: MetadataIndex → _StorageInfo.
  void read_places(NodeId id) {
    check<Corrupt>(tree_[id].kind == Kind::dict, "{}: places its items by {}", where_,
                   tree_.described(id));
    const auto& items = tree_[id].items;
    for (size_t i = 0; i < items.size(); i += 2) {
      const NodeId index = items[i], info = items[i + 1];
      check<Corrupt>(is_a(index, "MetadataIndex") && is_a(info, "_StorageInfo"),
                     "{}: places {} at {}", where_, tree_.described(index), tree_.described(info));
      DcpKey key{text(index, "fqn", "an index"), {}};
      // Absent in an index without an offset, where the class's default applies.
      const auto offset = attribute(index, "offset");
      if (offset && tree_[*offset].kind != Kind::none) key.second = sizes(*offset, "an index");
      const std::string what = "the place of '" + shown(key.first) + "'";
      DcpItem item{text(info, "relative_path", what), count(info, "offset", what),
                   count(info, "length", what)};
      const auto transforms = attribute(info, "transform_descriptors");
      const bool as_it_is =
          !transforms || tree_[*transforms].kind == Kind::none ||
          (tree_[*transforms].kind != Kind::object && tree_[*transforms].items.empty());
      check<UsageError>(as_it_is, "{}: {} is compressed or encoded: save it without extensions",
                        where_, what);
      check<Corrupt>(places_.emplace(key, std::move(item)).second, "{}: {} is given twice", where_,
                     what);
    }
    check_overlaps();
  }
  void check_overlaps() const {
    std::vector<const DcpItem*> items;
    for (const auto& [key, item] : places_) items.push_back(&item);
    std::sort(items.begin(), items.end(), [](const DcpItem* a, const DcpItem* b) {
      return std::tie(a->file, a->offset, a->length) < std::tie(b->file, b->offset, b->length);
    });
    for (size_t i = 0; i < items.size(); ++i) {
      const DcpItem& item = *items[i];
      uint64_t end = 0;
      const bool fits = !__builtin_add_overflow(item.offset, item.length, &end);
      const bool last = i + 1 == items.size() || items[i + 1]->file != item.file;
      check<Corrupt>(fits && (last || end <= items[i + 1]->offset),
                     "{}: two items of {} share bytes", where_, shown(item.file));
    }
  }
  /// Each place is taken once: what is read is no more than what the files hold.
  DcpItem place(const std::string& name, const std::vector<int64_t>& offsets) {
    auto found = places_.find({name, offsets});
    if (found == places_.end()) found = places_.find({name, {}});
    check<Corrupt>(found != places_.end(), "{}: does not tell in which file '{}' is", where_,
                   shown(name));
    const DcpItem item = std::move(found->second);
    places_.erase(found);
    return item;
  }

  std::string dtype(NodeId properties, const std::string& what) const {
    // A tuple of state since 1.13 (memory formats cannot be pickled); the dtype comes first.
    const Node& node = tree_[properties];
    std::optional<NodeId> id = attribute(properties, "dtype");
    if (!id && node.kind == Kind::object && !node.items.empty()) {
      const Node& state = tree_[node.items[0]];
      if (state.kind == Kind::tuple && !state.items.empty()) id = state.items[0];
    }
    check<Corrupt>(id && tree_[*id].kind == Kind::symbol && tree_[*id].text.starts_with("torch."),
                   "{}: {} has no dtype", where_, what);
    const Dtype* known = find_torch_dtype(tree_[*id].text.substr(6));
    check<UsageError>(known != nullptr,
                      "{}: {} has dtype {}, which we do not read: convert it in Python", where_,
                      what, shown(tree_[*id].text));
    return std::string(known->name);
  }
  DcpTensor tensor(const std::string& name, NodeId id) {
    const std::string what = "tensor '" + shown(name) + "'";
    check<Corrupt>(is_a(id, "TensorStorageMetadata"), "{}: describes '{}' by {}", where_,
                   shown(name), tree_.described(id));
    DcpTensor tensor{name,
                     dtype(member(id, "properties", what), what),
                     sizes(member(id, "size", what), what),
                     {}};
    const NodeId chunks = member(id, "chunks", what);
    check<Corrupt>(tree_[chunks].kind == Kind::list, "{}: {} has {} for its chunks", where_, what,
                   tree_.described(chunks));
    for (NodeId chunk : tree_[chunks].items) {
      check<UsageError>(++chunks_ <= kMostChunks, "{}: more than {} chunks", where_, kMostChunks);
      DcpChunk found{sizes(member(chunk, "offsets", what), what),
                     sizes(member(chunk, "sizes", what), what),
                     {}};
      check<Corrupt>(found.offsets.size() == tensor.shape.size() &&
                         found.lengths.size() == tensor.shape.size(),
                     "{}: {} has a chunk of other dims", where_, what);
      // Ranks without a share of a tensor describe an empty one, some of them at one offset.
      if (element_count(found.lengths) == 0) continue;
      found.item = place(name, found.offsets);
      tensor.chunks.push_back(std::move(found));
    }
    return tensor;
  }

  // One list may stand for the chunks of many tensors, so a small pickle could describe very many.
  static constexpr size_t kMostChunks = 1'000'000;

  const Tree tree_;
  const std::string& where_;
  std::map<DcpKey, DcpItem> places_;
  size_t chunks_ = 0;
};

}  // namespace

DcpMetadata read_dcp_metadata(std::span<const uint8_t> bytes, const std::string& where) {
  return MetadataReader(bytes, where).run();
}

}  // namespace trireme::interop
