// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/pickle/pickle_calls.h"

#include "trireme/base/check.h"
#include "trireme/interop/dtype.h"
#include "trireme/interop/named_array.h"
#include "trireme/interop/pickle/pickle_names.h"
#include "trireme/interop/shown.h"

namespace trireme::interop {
namespace {

constexpr size_t kMostArguments = 256, kMostWord = 4096, kMostArrays = 1'000'000;

Meaning meaning_of_node(const Node& node) {
  return node.kind == Kind::symbol ? static_cast<Meaning>(node.integer) : Meaning::refused;
}

/// A tuple or list of sizes.
std::vector<int64_t> sizes_of(const Tree& tree, NodeId id, const std::string& what) {
  const Node& node = tree[id];
  check<Corrupt>(
      (node.kind == Kind::tuple || node.kind == Kind::list) && node.items.size() <= kMostDims,
      "{} is {}, not at most {} sizes", what, tree.described(id), kMostDims);
  std::vector<int64_t> sizes;
  for (NodeId item : node.items) {
    check<Corrupt>(tree[item].kind == Kind::integer && tree[item].integer >= 0,
                   "{} has {} for a size", what, tree.described(item));
    sizes.push_back(tree[item].integer);
  }
  return sizes;
}

/// That every element of the array lies in its storage, and that it has no more of them.
void check_bounds(const Array& array, const Storage& storage, uint64_t size,
                  const std::string& what) {
  const int64_t count = element_count(array.shape);
  const uint64_t room = storage.bytes / size;
  check<Corrupt>(count >= 0, "{} has more than 2^63 elements", what);
  if (count == 0) return;
  check<Corrupt>(
      static_cast<uint64_t>(count) <= room,
      "{} has {} elements, its storage {}: it is expanded or damaged; in Python, save its "
      "clone()",
      what, count, room);
  int64_t last = array.offset;
  bool fits = true;
  for (size_t dim = 0; dim < array.shape.size(); ++dim) {
    int64_t reach = 0;
    fits = fits && !__builtin_mul_overflow(array.shape[dim] - 1, array.strides[dim], &reach) &&
           !__builtin_add_overflow(last, reach, &last);
  }
  check<Corrupt>(fits && static_cast<uint64_t>(last) < room,
                 "{} reaches beyond its storage of {} elements", what, room);
}

NodeId rebuilt_tensor(Tree& tree, const Node& function, const std::vector<NodeId>& arguments,
                      const std::string& where) {
  const std::string what = where + ": a tensor";
  const bool v3 = function.text.ends_with("v3");
  check<Corrupt>(arguments.size() >= (v3 ? 7u : 6u) && arguments.size() <= (v3 ? 8u : 7u),
                 "{} is described by {} values", what, arguments.size());
  check<Corrupt>(tree[arguments[0]].kind == Kind::storage, "{} lies in {}, not in a storage", what,
                 tree.described(arguments[0]));
  Array array;
  array.storage = static_cast<uint32_t>(tree[arguments[0]].integer);
  const Storage& storage = tree.storages[array.storage];
  array.dtype = storage.dtype;
  if (v3) {
    const Node& named = tree[arguments[6]];
    check<Corrupt>(meaning_of_node(named) == Meaning::dtype, "{} has {} for a dtype", what,
                   tree.described(arguments[6]));
    const Dtype* known = find_torch_dtype(named.text.substr(named.text.find('.') + 1));
    check<UsageError>(known != nullptr,
                      "{} has dtype {}, which we do not read: convert it in Python", what,
                      shown(named.text));
    array.dtype = known->name;
  }
  const Dtype* dtype = find_dtype(array.dtype);
  check<Corrupt>(dtype != nullptr, "{} lies in a storage without a dtype", what);
  const Node& offset = tree[arguments[1]];
  check<Corrupt>(offset.kind == Kind::integer && offset.integer >= 0, "{} begins at element {}",
                 what, tree.described(arguments[1]));
  array.offset = offset.integer;
  array.shape = sizes_of(tree, arguments[2], what + "'s shape");
  array.strides = sizes_of(tree, arguments[3], what + "'s strides");
  check<Corrupt>(array.shape.size() == array.strides.size(), "{} has {} dims and {} strides", what,
                 array.shape.size(), array.strides.size());
  check_bounds(array, storage, dtype->size, what);
  check<UsageError>(tree.arrays.size() < kMostArrays, "{}: more than {} tensors", where,
                    kMostArrays);
  return tree.array(std::move(array));
}

NodeId joined_path(Tree& tree, const std::vector<NodeId>& parts, const std::string& where) {
  std::string path;
  for (NodeId part : parts) {
    check<Corrupt>(tree[part].kind == Kind::text, "{}: a path has {} for a part", where,
                   tree.described(part));
    if (!path.empty() && path.back() != '/') path += '/';
    check<Corrupt>(tree[part].text.size() <= kMostWord && path.size() <= kMostWord,
                   "{}: a path of more than {} bytes", where, kMostWord);
    path += tree[part].text;
  }
  return tree.text(std::move(path));
}

/// dict(), or a Counter of a dict.
NodeId made_dict(Tree& tree, const Node& function, const std::vector<NodeId>& arguments,
                 const std::string& where) {
  if (arguments.empty())
    return function.text.ends_with("OrderedDict") ? tree.ordered_dict() : tree.dict();
  check<UsageError>(arguments.size() == 1 && tree[arguments[0]].kind == Kind::dict,
                    "{}: a {} made from {}, which we do not read: save it as a dict", where,
                    function.text, tree.described(arguments[0]));
  return arguments[0];
}

}  // namespace

NodeId described_call(Tree& tree, NodeId called, NodeId given, const std::string& where) {
  // Copies: the table of nodes grows below.
  const Node function{
      .kind = tree[called].kind, .integer = tree[called].integer, .text = tree[called].text};
  const Meaning meaning = meaning_of_node(function);
  check<Corrupt>(tree[given].kind == Kind::tuple && tree[given].items.size() <= kMostArguments,
                 "{}: a call with {} for its arguments", where, tree.described(given));
  const std::vector<NodeId> arguments = tree[given].items;
  const auto is = [&](size_t i, Kind kind) {
    return i < arguments.size() && tree[arguments[i]].kind == kind;
  };
  switch (meaning) {
    case Meaning::dict:
      return made_dict(tree, function, arguments, where);
    case Meaning::tensor:
      return rebuilt_tensor(tree, function, arguments, where);
    case Meaning::parameter:
      check<Corrupt>(is(0, Kind::array) && (arguments.size() == 3 || arguments.size() == 4),
                     "{}: a parameter that is no tensor", where);
      return arguments[0];
    case Meaning::size:
      check<Corrupt>(arguments.size() == 1, "{}: a torch.Size of {} values", where,
                     arguments.size());
      sizes_of(tree, arguments[0], where + ": a torch.Size");
      return arguments[0];
    case Meaning::text: {
      check<Corrupt>(
          is(0, Kind::text) && arguments.size() <= 2 && tree[arguments[0]].text.size() <= kMostWord,
          "{}: {} of something else than a word", where, function.text);
      std::string word = tree[arguments[0]].text;
      if (is(1, Kind::integer)) word += ":" + std::to_string(tree[arguments[1]].integer);
      return tree.text(std::move(word));
    }
    case Meaning::path:
      return joined_path(tree, arguments, where);
    case Meaning::choice:
      check<Corrupt>(is(0, Kind::integer) && arguments.size() == 1,
                     "{}: a value of {} that is no number", where, function.text);
      return arguments[0];
    case Meaning::attribute:
      check<UsageError>(arguments.size() == 2 && is(1, Kind::text) &&
                            meaning_of_node(tree[arguments[0]]) == Meaning::choice,
                        "{}: refuses to call {} on {}: it reads checkpoints and runs nothing",
                        where, function.text,
                        arguments.empty() ? "nothing" : tree.described(arguments[0]));
      return arguments[1];
    case Meaning::same:
      check<Corrupt>(!arguments.empty(), "{}: {} without a value", where, function.text);
      return arguments[0];
    default:
      fail<UsageError>("{}: refuses to call {}: it reads checkpoints and runs nothing", where,
                       tree.described(called));
  }
}

NodeId described_object(Tree& tree, NodeId cls, NodeId arguments, const std::string& where) {
  const Node& named = tree[cls];
  const Meaning meaning = meaning_of_node(named);
  check<UsageError>(
      meaning == Meaning::data || (meaning == Meaning::dict && named.text.ends_with("OrderedDict")),
      "{}: refuses to make an instance of {}: it reads checkpoints and runs nothing", where,
      tree.described(cls));
  check<Corrupt>(tree[arguments].kind == Kind::tuple && tree[arguments].items.empty(),
                 "{}: an instance of {} that is made from something", where, shown(named.text));
  return meaning == Meaning::dict ? tree.ordered_dict()
                                  : tree.add({.kind = Kind::object, .integer = cls});
}

void described_state(Tree& tree, NodeId object, NodeId state, const std::string& where) {
  Node& node = tree[object];
  // An OrderedDict's state is what was set on it as attributes: _metadata, versions of modules.
  if (node.kind == Kind::dict && node.integer == 1 && tree[state].kind == Kind::dict) return;
  check<UsageError>(node.kind == Kind::object,
                    "{}: refuses to set the state of {}: it reads checkpoints and runs nothing",
                    where, tree.described(object));
  check<Corrupt>(node.items.empty(), "{}: {} is given two states", where, tree.described(object));
  node.items.push_back(state);
}

NodeId described_storage(Tree& tree, NodeId id, std::unordered_map<std::string, NodeId>& known,
                         const std::string& where) {
  const Node& tuple = tree[id];
  const auto is = [&](size_t i, Kind kind) { return tree[tuple.items[i]].kind == kind; };
  check<Corrupt>(tuple.kind == Kind::tuple && tuple.items.size() >= 5 && is(0, Kind::text) &&
                     tree[tuple.items[0]].text == "storage" && is(2, Kind::text) &&
                     is(4, Kind::integer) && tree[tuple.items[4]].integer >= 0,
                 "{}: {} for the description of a storage", where, tree.described(id));
  const Node& cls = tree[tuple.items[1]];
  check<UsageError>(meaning_of_node(cls) == Meaning::storage, "{}: {} for the class of a storage",
                    where, tree.described(tuple.items[1]));
  Storage storage{tree[tuple.items[2]].text, "",
                  static_cast<uint64_t>(tree[tuple.items[4]].integer)};
  if (!cls.text.starts_with("torch.storage.")) {
    const Dtype* dtype = find_storage_dtype(cls.text.substr(cls.text.find('.') + 1));
    check<UsageError>(
        dtype != nullptr,
        "{}: a tensor lies in a {}, a dtype that we do not read: convert it in Python", where,
        shown(cls.text));
    storage.dtype = dtype->name;
    check<Corrupt>(!__builtin_mul_overflow(storage.bytes, dtype->size, &storage.bytes),
                   "{}: a storage of more than 2^64 bytes", where);
  }
  const auto found = known.find(storage.key);
  if (found != known.end()) {
    const Storage& before = tree.storages[static_cast<size_t>(tree[found->second].integer)];
    check<Corrupt>(before.dtype == storage.dtype && before.bytes == storage.bytes,
                   "{}: storage '{}' is described in two ways", where, shown(storage.key));
    return found->second;
  }
  const std::string key = storage.key;
  tree.storages.push_back(std::move(storage));
  const NodeId made =
      tree.add({.kind = Kind::storage, .integer = static_cast<int64_t>(tree.storages.size() - 1)});
  known.emplace(key, made);
  return made;
}

}  // namespace trireme::interop
