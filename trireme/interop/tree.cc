// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/tree.h"

#include <utility>

#include "trireme/base/check.h"
#include "trireme/interop/dtype.h"
#include "trireme/interop/named_array.h"
#include "trireme/interop/shown.h"

namespace trireme::interop {

NodeId Tree::add(Node node) {
  nodes_.push_back(std::move(node));
  return static_cast<NodeId>(nodes_.size() - 1);
}

void Tree::set(NodeId dict, NodeId key, NodeId value) {
  nodes_[dict].items.push_back(key);
  nodes_[dict].items.push_back(value);
}

NodeId Tree::array(Array array) {
  arrays.push_back(std::move(array));
  return add({.kind = Kind::array, .integer = static_cast<int64_t>(arrays.size() - 1)});
}

NodeId Tree::array(std::string dtype, std::vector<int64_t> shape) {
  const Dtype* known = find_dtype(dtype);
  check<UsageError>(known != nullptr, "dtype '{}' is not one that torch files hold", dtype);
  const int64_t count = element_count(shape);
  check<UsageError>(count >= 0, "an array of more than 2^63 elements cannot be written");
  storages.push_back(
      {std::to_string(storages.size()), dtype, static_cast<uint64_t>(count) * known->size});
  auto strides = row_major(shape);
  return array({.dtype = std::move(dtype),
                .shape = std::move(shape),
                .strides = std::move(strides),
                .offset = 0,
                .storage = static_cast<uint32_t>(storages.size() - 1)});
}

std::optional<NodeId> Tree::find(NodeId dict, std::string_view key) const {
  const Node* node = &nodes_[dict];
  if (node->kind == Kind::object && !node->items.empty()) node = &nodes_[node->items[0]];
  if (node->kind != Kind::dict) return std::nullopt;
  for (size_t i = 0; i < node->items.size(); i += 2) {
    const Node& name = nodes_[node->items[i]];
    if (name.kind == Kind::text && name.text == key) return node->items[i + 1];
  }
  return std::nullopt;
}

std::string_view Tree::class_of(NodeId object) const {
  const Node& node = nodes_[object];
  return node.kind == Kind::object
             ? std::string_view(nodes_[static_cast<NodeId>(node.integer)].text)
             : std::string_view();
}

std::string Tree::described(NodeId id) const {
  const Node& node = nodes_[id];
  switch (node.kind) {
    case Kind::none:
      return "None";
    case Kind::boolean:
      return node.integer ? "True" : "False";
    case Kind::integer:
      return std::to_string(node.integer);
    case Kind::real:
      return fmt::format("{}", node.real);
    case Kind::text:
      return "'" + shown(node.text) + "'";
    case Kind::bytes:
      return "bytes";
    case Kind::list:
      return "a list";
    case Kind::tuple:
      return "a tuple";
    case Kind::dict:
      return "a dict";
    case Kind::array:
      return "a tensor";
    case Kind::storage:
      return "a storage";
    case Kind::symbol:
      return shown(node.text);
    case Kind::object:
      return "a " + shown(class_of(id));
  }
  return "a value";
}

}  // namespace trireme::interop
