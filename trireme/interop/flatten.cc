// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/flatten.h"

#include <unordered_set>

#include "trireme/base/check.h"
#include "trireme/interop/shown.h"

namespace trireme::interop {
namespace {

// One value may be in many places, so that a small tree has very many paths: all is counted.
constexpr size_t kMostLeaves = 1'000'000, kMostVisits = 4'000'000, kMostNameBytes = size_t{1} << 28;

class Flattening {
 public:
  Flattening(const Tree& tree, const std::string& where) : tree_(tree), where_(where) {}

  std::vector<NamedNode> run() {
    visit(tree_.root, "");
    return std::move(leaves_);
  }

 private:
  void visit(NodeId id, const std::string& name) {
    name_bytes_ += name.size();
    check<UsageError>(
        ++visits_ <= kMostVisits && name_bytes_ <= kMostNameBytes && leaves_.size() < kMostLeaves,
        "{}: more than {} values have names", where_, kMostLeaves);
    const Node& node = tree_[id];
    switch (node.kind) {
      case Kind::dict:
        for (size_t i = 0; i < node.items.size(); i += 2)
          visit(node.items[i + 1], joined(name, key(node.items[i], name)));
        break;
      case Kind::list:
      case Kind::tuple:
        for (size_t i = 0; i < node.items.size(); ++i)
          visit(node.items[i], joined(name, std::to_string(i)));
        break;
      case Kind::object:
        for (NodeId state : node.items) visit(state, name);
        break;
      default: {
        const std::string whole = name.empty() ? "value" : name;
        check<UsageError>(names_.insert(whole).second,
                          "{}: two values are called '{}': rename one before saving", where_,
                          shown(whole));
        leaves_.push_back({whole, id});
      }
    }
  }
  const std::string& key(NodeId id, const std::string& name) {
    const Node& node = tree_[id];
    check<UsageError>(node.kind == Kind::text || node.kind == Kind::integer,
                      "{}: '{}' has the key {}, which is neither text nor a whole number: rename "
                      "it before saving",
                      where_, shown(name), tree_.described(id));
    if (node.kind == Kind::text) return node.text;
    return number_ = std::to_string(node.integer);
  }
  static std::string joined(const std::string& name, const std::string& part) {
    return name.empty() ? part : name + "." + part;
  }

  const Tree& tree_;
  const std::string& where_;
  std::string number_;
  size_t visits_ = 0, name_bytes_ = 0;
  std::unordered_set<std::string> names_;
  std::vector<NamedNode> leaves_;
};

}  // namespace

std::vector<NamedNode> flatten(const Tree& tree, const std::string& where) {
  return Flattening(tree, where).run();
}

}  // namespace trireme::interop
