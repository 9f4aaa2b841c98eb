// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/pickle/pickle_writer.h"

#include <bit>
#include <limits>

#include "trireme/base/check.h"
#include "trireme/interop/dtype.h"
#include "trireme/interop/pickle/pickle_opcodes.h"
#include "trireme/interop/pickle/pickle_shape.h"
#include "trireme/interop/pickle/utf8.h"

namespace trireme::interop {
namespace {

class Pickler {
 public:
  explicit Pickler(const Tree& tree) : tree_(tree) {}

  std::string run() {
    op(Opcode::proto).little(2, 1);
    value(tree_.root);
    op(Opcode::stop);
    return std::move(out_);
  }

 private:
  void value(NodeId id) {
    const Node& node = tree_[id];
    switch (node.kind) {
      case Kind::none:
        op(Opcode::none);
        return;
      case Kind::boolean:
        op(node.integer ? Opcode::newtrue : Opcode::newfalse);
        return;
      case Kind::integer:
        return integer(node.integer);
      case Kind::real:
        op(Opcode::binfloat).little(__builtin_bswap64(std::bit_cast<uint64_t>(node.real)), 8);
        return;
      case Kind::text:
        return text(node.text);
      case Kind::list:
        op(Opcode::empty_list).op(Opcode::mark);
        for (NodeId item : node.items) value(item);
        op(Opcode::appends);
        return;
      case Kind::tuple:
        op(Opcode::mark);
        for (NodeId item : node.items) value(item);
        op(Opcode::tuple);
        return;
      case Kind::dict:
        if (node.integer == 1)
          ordered_dict();
        else
          op(Opcode::empty_dict);
        op(Opcode::mark);
        for (NodeId item : node.items) value(item);
        op(Opcode::setitems);
        return;
      case Kind::array:
        return array(tree_.arrays[static_cast<size_t>(node.integer)]);
      case Kind::symbol:
        if (node.text.starts_with("torch.") && find_torch_dtype(node.text.substr(6)))
          return global("torch", node.text.substr(6));
        break;
      default:
        break;
    }
    fail<UsageError>("{} cannot be written to a torch file: only tensors and plain values can",
                     tree_.described(id));
  }

  void integer(int64_t number) {
    if (number >= 0 && number <= 0xFF)
      op(Opcode::binint1).little(static_cast<uint64_t>(number), 1);
    else if (number >= std::numeric_limits<int32_t>::min() &&
             number <= std::numeric_limits<int32_t>::max())
      op(Opcode::binint).little(static_cast<uint64_t>(number), 4);
    else
      op(Opcode::long1).little(8, 1).little(static_cast<uint64_t>(number), 8);
  }
  void text(const std::string& words) {
    check<UsageError>(
        valid_utf8(words) && words.size() <= 0xFFFFFFFF,
        "a text that is no UTF-8, or of more than 4 GiB, cannot be written to a torch file");
    op(Opcode::binunicode).little(words.size(), 4);
    out_ += words;
  }
  void global(const std::string& module, const std::string& name) {
    op(Opcode::global);
    out_ += module + "\n" + name + "\n";
  }
  void ordered_dict() {
    global("collections", "OrderedDict");
    op(Opcode::empty_tuple).op(Opcode::reduce);
  }
  void sizes(const std::vector<int64_t>& numbers) {
    op(Opcode::mark);
    for (int64_t number : numbers) integer(number);
    op(Opcode::tuple);
  }
  void array(const Array& array) {
    const Storage& storage = tree_.storages[array.storage];
    const Dtype* dtype = find_dtype(storage.dtype);
    check<UsageError>(
        dtype != nullptr && array.dtype == storage.dtype,
        "a tensor of dtype '{}' in a storage of '{}' cannot be written to a torch file",
        array.dtype, storage.dtype);
    global("torch._utils", "_rebuild_tensor_v2");
    op(Opcode::mark).op(Opcode::mark);
    text("storage");
    global("torch", std::string(dtype->storage));
    text(storage.key);
    text("cpu");
    integer(static_cast<int64_t>(storage.bytes / dtype->size));
    op(Opcode::tuple).op(Opcode::binpersid);
    integer(array.offset);
    sizes(array.shape);
    sizes(array.strides);
    op(Opcode::newfalse);
    ordered_dict();
    op(Opcode::tuple).op(Opcode::reduce);
  }

  Pickler& op(Opcode opcode) {
    out_ += static_cast<char>(opcode);
    return *this;
  }
  Pickler& little(uint64_t number, int bytes) {
    for (int i = 0; i < bytes; ++i) out_ += static_cast<char>(number >> 8 * i);
    return *this;
  }

  const Tree& tree_;
  std::string out_;
};

}  // namespace

std::string write_pickle(const Tree& tree) {
  check_shape(tree, "the value to write");
  return Pickler(tree).run();
}

}  // namespace trireme::interop
