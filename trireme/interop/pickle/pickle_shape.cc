// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/pickle/pickle_shape.h"

#include <unordered_set>

#include "trireme/base/check.h"
#include "trireme/interop/shown.h"

namespace trireme::interop {
namespace {

constexpr size_t kMostDepth = 100;

void check_keys(const Tree& tree, const Node& dict, const std::string& where) {
  std::unordered_set<std::string_view> texts;
  std::unordered_set<int64_t> integers;
  for (size_t i = 0; i < dict.items.size(); i += 2) {
    const Node& key = tree[dict.items[i]];
    const bool fresh = key.kind == Kind::text      ? texts.insert(key.text).second
                       : key.kind == Kind::integer ? integers.insert(key.integer).second
                                                   : true;
    check<Corrupt>(fresh, "{}: a dict has the key {} twice", where, tree.described(dict.items[i]));
  }
}

}  // namespace

void check_shape(const Tree& tree, const std::string& where) {
  // How deep what is in a node reaches, once that is known; a node on the path down is open.
  constexpr uint8_t kUnseen = 255, kOpen = 254;
  std::vector<uint8_t> height(tree.size(), kUnseen);
  struct Step {
    NodeId node;
    size_t next = 0;
    uint8_t height = 0;
  };
  std::vector<Step> path{{tree.root}};
  height[tree.root] = kOpen;
  while (!path.empty()) {
    Step& step = path.back();
    const Node& node = tree[step.node];
    if (step.next < node.items.size()) {
      const NodeId item = node.items[step.next++];
      check<Corrupt>(height[item] != kOpen, "{}: {} holds itself", where, tree.described(item));
      if (height[item] == kUnseen) {
        height[item] = kOpen;
        check<Corrupt>(path.size() <= kMostDepth, "{}: values nested more than {} deep", where,
                       kMostDepth);
        path.push_back({item});
      } else if (height[item] + 1 > step.height) {
        step.height = static_cast<uint8_t>(height[item] + 1);
      }
      continue;
    }
    if (node.kind == Kind::dict) check_keys(tree, node, where);
    check<Corrupt>(path.size() + step.height <= kMostDepth + 1,
                   "{}: values nested more than {} deep", where, kMostDepth);
    const uint8_t reached = step.height;
    height[step.node] = reached;
    path.pop_back();
    if (!path.empty() && reached + 1 > path.back().height)
      path.back().height = static_cast<uint8_t>(reached + 1);
  }
}

}  // namespace trireme::interop
