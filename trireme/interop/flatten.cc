// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/flatten.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "trireme/base/check.h"
#include "trireme/interop/pickle/pickle_shape.h"
#include "trireme/interop/shown.h"

namespace trireme::interop {
namespace {

constexpr uint64_t kMostLeaves = 1'000'000, kMostNameBytes = uint64_t{1} << 28;

class Flattening {
 public:
  Flattening(const Tree& tree, const std::string& where) : tree_(tree), where_(where) {}

  std::vector<NamedNode> run() {
    check_shape(tree_, where_);  // what is below recurses
    // One value may be in many places, so that a small tree can have very many names.
    check<UsageError>(leaves_below(tree_.root) <= kMostLeaves, "{}: more than {} values have names",
                      where_, kMostLeaves);
    visit(tree_.root);
    check_names();
    return std::move(leaves_);
  }

 private:
  /// With the nodes on the way to them; saturates above the limit.
  uint64_t leaves_below(NodeId id) {
    const auto known = below_.find(id);
    if (known != below_.end()) return known->second;
    const Node& node = tree_[id];
    uint64_t count = 1;
    const size_t first = node.kind == Kind::dict ? 1 : 0, step = node.kind == Kind::dict ? 2 : 1;
    for (size_t i = first; i < node.items.size() && count <= kMostLeaves; i += step)
      count += leaves_below(node.items[i]);
    below_.emplace(id, count);
    return count;
  }

  void visit(NodeId id) {
    const Node& node = tree_[id];
    switch (node.kind) {
      case Kind::dict:
        for (size_t i = 0; i < node.items.size(); i += 2)
          visit_part(key(node.items[i]), node.items[i + 1]);
        break;
      case Kind::list:
      case Kind::tuple:
        for (size_t i = 0; i < node.items.size(); ++i) visit_part(std::to_string(i), node.items[i]);
        break;
      case Kind::object:
        for (NodeId state : node.items) visit(state);
        break;
      default:
        name_bytes_ += name_.size();
        check<UsageError>(name_bytes_ <= kMostNameBytes,
                          "{}: the names of its values have more than {} bytes", where_,
                          kMostNameBytes);
        leaves_.push_back({name_.empty() ? "value" : name_, id});
    }
  }
  void visit_part(const std::string& part, NodeId id) {
    const size_t before = name_.size();
    if (before > 0) name_ += '.';
    name_ += part;
    visit(id);
    name_.resize(before);
  }
  std::string key(NodeId id) const {
    const Node& node = tree_[id];
    check<UsageError>(node.kind == Kind::text || node.kind == Kind::integer,
                      "{}: '{}' has the key {}, which is neither text nor a whole number: rename "
                      "it before saving",
                      where_, shown(name_), tree_.described(id));
    return node.kind == Kind::text ? node.text : std::to_string(node.integer);
  }
  void check_names() const {
    std::vector<std::string_view> names;
    for (const NamedNode& leaf : leaves_) names.push_back(leaf.name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end())
      fail<UsageError>("{}: two values are called '{}': rename one before saving", where_,
                       shown(*twice));
  }

  const Tree& tree_;
  const std::string& where_;
  std::unordered_map<NodeId, uint64_t> below_;
  std::string name_;
  uint64_t name_bytes_ = 0;
  std::vector<NamedNode> leaves_;
};

}  // namespace

std::vector<NamedNode> flatten(const Tree& tree, const std::string& where) {
  return Flattening(tree, where).run();
}

}  // namespace trireme::interop
