// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trireme/base/export.h"

// What a pickle holds, as data: nothing in it can be called. Nodes are kept in one table and refer
// to each other by number, as a pickle's memo does, so a value may be in two places.
namespace trireme::interop {

enum class Kind : uint8_t {
  none,
  boolean,
  integer,
  real,
  text,
  bytes,
  list,
  tuple,
  dict,
  array,    // a tensor
  storage,  // what tensors lie in
  symbol,   // a name that Python would import: torch.float32
  object,   // an instance of a class of data: torch.distributed.checkpoint.metadata.Metadata
};

using NodeId = uint32_t;

struct Node {
  Kind kind = Kind::none;
  // boolean, integer; array, storage: which of the tree's; dict: 1 for an OrderedDict; object: the
  // node of its class.
  int64_t integer = 0;
  double real = 0;
  std::string text = {};  // text, bytes; symbol: its dotted name
  // Elements; dict: key, value, key, value, …; object: its state, once it has one.
  std::vector<NodeId> items = {};
};

struct Storage {
  std::string key;    // the name of its record: "0", "1", …
  std::string dtype;  // "" where only bytes are known
  uint64_t bytes = 0;
};

/// A tensor as a view of a storage. All in elements.
struct Array {
  std::string dtype;
  std::vector<int64_t> shape, strides;
  int64_t offset = 0;
  uint32_t storage = 0;
};

class TRIREME_API Tree {
 public:
  const Node& operator[](NodeId id) const { return nodes_[id]; }
  Node& operator[](NodeId id) { return nodes_[id]; }
  size_t size() const { return nodes_.size(); }
  NodeId root = 0;
  std::vector<Array> arrays;
  std::vector<Storage> storages;

  NodeId add(Node node);
  NodeId none() { return add({}); }
  NodeId boolean(bool value) { return add({.kind = Kind::boolean, .integer = value}); }
  NodeId integer(int64_t value) { return add({.kind = Kind::integer, .integer = value}); }
  NodeId real(double value) { return add({.kind = Kind::real, .real = value}); }
  NodeId text(std::string value) { return add({.kind = Kind::text, .text = std::move(value)}); }
  NodeId list(std::vector<NodeId> items = {}) {
    return add({.kind = Kind::list, .items = std::move(items)});
  }
  NodeId tuple(std::vector<NodeId> items = {}) {
    return add({.kind = Kind::tuple, .items = std::move(items)});
  }
  NodeId dict() { return add({.kind = Kind::dict}); }
  NodeId ordered_dict() { return add({.kind = Kind::dict, .integer = 1}); }
  void set(NodeId dict, NodeId key, NodeId value);
  void set(NodeId dict, std::string key, NodeId value) { set(dict, text(std::move(key)), value); }
  /// A row-major array in a storage of its own.
  NodeId array(std::string dtype, std::vector<int64_t> shape);
  NodeId array(Array array);

  /// The value of a text key of a dict, or of an attribute of an object whose state is a dict.
  std::optional<NodeId> find(NodeId dict, std::string_view key) const;
  /// "torch.distributed.checkpoint.metadata.Metadata"; "" for what is no object.
  std::string_view class_of(NodeId object) const;
  /// "a dict", "torch.float32", … for messages.
  std::string described(NodeId id) const;

 private:
  std::deque<Node> nodes_;  // millions do not move as it grows
};

}  // namespace trireme::interop
