// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/pickle/pickle_reader.h"

#include <bit>
#include <cstring>
#include <unordered_map>

#include "trireme/base/check.h"
#include "trireme/interop/pickle/pickle_calls.h"
#include "trireme/interop/pickle/pickle_names.h"
#include "trireme/interop/pickle/pickle_opcodes.h"
#include "trireme/interop/pickle/pickle_shape.h"
#include "trireme/interop/pickle/utf8.h"
#include "trireme/interop/shown.h"

namespace trireme::interop {
namespace {

constexpr size_t kMostValues = 4'000'000, kMostPushes = size_t{1} << 24,
                 kMostBytes = size_t{1} << 28, kMostMarks = 1000;

/// The stack machine of pickle. Every push refers to a node of the tree. A node takes 80 bytes, for
/// a single one of the input: so their number bounds the memory, and so does that of pushes.
class Unpickler {
 public:
  Unpickler(std::span<const uint8_t> bytes, const std::string& where)
      : bytes_(bytes), where_(where) {}

  Tree run() {
    check<UsageError>(bytes_.size() <= kMostBytes,
                      "{}: a pickle of {} bytes; the most that we read is {}", where_,
                      bytes_.size(), kMostBytes);
    check<Corrupt>(bytes_.size() >= 2 && bytes_[0] == static_cast<uint8_t>(Opcode::proto),
                   "{}: is no pickle of protocol 2 or later", where_);
    while (step()) {
      check<Corrupt>(tree_.size() <= kMostValues && pushes_ <= kMostPushes,
                     "{}: holds more than {} values", where_, kMostValues);
    }
    check<Corrupt>(at_ == bytes_.size() && stack_.size() == 1 && marks_.empty(),
                   "{}: has {} bytes after its value or {} values too many", where_,
                   bytes_.size() - at_, stack_.size() - 1);
    tree_.root = stack_[0];
    check_shape(tree_, where_);
    return std::move(tree_);
  }

 private:
  bool step();
  void step_value(Opcode opcode);
  void step_container(Opcode opcode);
  void step_name(Opcode opcode);
  void step_memo(Opcode opcode);

  std::string_view take(uint64_t count) {
    check<Corrupt>(count <= bytes_.size() - at_, "{}: is cut short at byte {}", where_, at_);
    const std::string_view taken(reinterpret_cast<const char*>(bytes_.data()) + at_, count);
    at_ += count;
    return taken;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view line() {
    const auto rest =
        std::string_view(reinterpret_cast<const char*>(bytes_.data()) + at_, bytes_.size() - at_);
    const size_t end = rest.find('\n');
    check<Corrupt>(end != rest.npos, "{}: is cut short at byte {}", where_, at_);
    at_ += end + 1;
    return rest.substr(0, end);
  }
  NodeId text(std::string_view bytes) {
    check<Corrupt>(valid_utf8(bytes), "{}: text that is no UTF-8 before byte {}", where_, at_);
    return tree_.text(std::string(bytes));
  }

  void push(NodeId id) {
    ++pushes_;
    stack_.push_back(id);
  }
  /// What the values above the last mark may not reach below.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  NodeId pop() {
    check<Corrupt>(stack_.size() > floor(), "{}: takes a value that is not there at byte {}",
                   where_, at_);
    const NodeId top = stack_.back();
    stack_.pop_back();
    return top;
  }
  NodeId top() {
    const NodeId id = pop();
    stack_.push_back(id);
    return id;
  }
  std::vector<NodeId> pop_to_mark() {
    check<Corrupt>(!marks_.empty(), "{}: ends a group that was not begun at byte {}", where_, at_);
    const auto begin = stack_.begin() + static_cast<ptrdiff_t>(marks_.back());
    std::vector<NodeId> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }
  /// Only lists take elements, and only dicts keys.
  std::vector<NodeId>& grown(Kind kind) {
    const NodeId id = top();
    check<Corrupt>(tree_[id].kind == kind, "{}: adds to {} as if it were {}", where_,
                   tree_.described(id), kind == Kind::list ? "a list" : "a dict");
    return tree_[id].items;
  }
  void remember(uint64_t index) {
    // Writers number what they remember in order, so an index is smaller than the bytes before it.
    check<Corrupt>(index < at_ && index <= kMostPushes, "{}: remembers a value under {} at byte {}",
                   where_, index, at_);
    if (memo_.size() <= index) memo_.resize(index + 1, kNothing);
    if (memo_[index] == kNothing) ++remembered_;
    memo_[index] = top();
  }
  void recall(uint64_t index) {
    check<Corrupt>(index < memo_.size() && memo_[index] != kNothing,
                   "{}: asks for value {}, which it did not remember, at byte {}", where_, index,
                   at_);
    push(memo_[index]);
  }
  void push_symbol(std::string_view module, std::string_view name) {
    const Meaning meaning = meaning_of(module, name);
    const std::string whole = std::string(module) + "." + std::string(name);
    check<UsageError>(
        meaning != Meaning::refused,
        "{}: refuses {}: it reads tensors and plain values (numbers, text, lists, dicts) "
        "and runs nothing; in Python, save without it",
        where_, shown(whole));
    const auto [known, fresh] = symbols_.emplace(whole, 0);
    if (fresh)
      known->second = tree_.add(
          {.kind = Kind::symbol, .integer = static_cast<int64_t>(meaning), .text = whole});
    push(known->second);
  }
  [[noreturn]] void refuse(Opcode opcode, const char* why) {
    fail<UsageError>("{}: pickle opcode 0x{:02x} at byte {} {}", where_, static_cast<int>(opcode),
                     at_ - 1, why);
  }

  static constexpr NodeId kNothing = UINT32_MAX;

  std::span<const uint8_t> bytes_;
  const std::string& where_;
  size_t at_ = 0, pushes_ = 0, remembered_ = 0;
  Tree tree_;
  std::vector<NodeId> stack_, memo_;
  std::vector<size_t> marks_;
  std::unordered_map<std::string, NodeId> storages_, symbols_;
};

bool Unpickler::step() {
  const auto opcode = static_cast<Opcode>(number<uint8_t>());
  switch (opcode) {
    case Opcode::stop:
      return false;
    case Opcode::proto: {
      const int protocol = number<uint8_t>();
      check<UsageError>(protocol >= 2 && protocol <= 5,
                        "{}: a pickle of protocol {}; we read 2 to 5", where_, protocol);
      break;
    }
    case Opcode::frame: {
      const auto length = number<uint64_t>();
      check<Corrupt>(length <= bytes_.size() - at_, "{}: is cut short at byte {}", where_, at_);
      break;
    }
    case Opcode::mark:
      check<Corrupt>(marks_.size() < kMostMarks, "{}: groups nested more than {} deep", where_,
                     kMostMarks);
      marks_.push_back(stack_.size());
      break;
    case Opcode::global:
    case Opcode::stack_global:
    case Opcode::inst:
    case Opcode::obj:
    case Opcode::reduce:
    case Opcode::newobj:
    case Opcode::newobj_ex:
    case Opcode::build:
    case Opcode::persid:
    case Opcode::binpersid:
    case Opcode::ext1:
    case Opcode::ext2:
    case Opcode::ext4:
      step_name(opcode);
      break;
    case Opcode::binput:
    case Opcode::long_binput:
    case Opcode::memoize:
    case Opcode::binget:
    case Opcode::long_binget:
      step_memo(opcode);
      break;
    case Opcode::tuple:
    case Opcode::tuple1:
    case Opcode::tuple2:
    case Opcode::tuple3:
    case Opcode::append:
    case Opcode::appends:
    case Opcode::setitem:
    case Opcode::setitems:
      step_container(opcode);
      break;
    default:
      step_value(opcode);
  }
  return true;
}

void Unpickler::step_value(Opcode opcode) {
  switch (opcode) {
    case Opcode::none:
      return push(tree_.none());
    case Opcode::newtrue:
      return push(tree_.boolean(true));
    case Opcode::newfalse:
      return push(tree_.boolean(false));
    case Opcode::binint:
      return push(tree_.integer(number<int32_t>()));
    case Opcode::binint1:
      return push(tree_.integer(number<uint8_t>()));
    case Opcode::binint2:
      return push(tree_.integer(number<uint16_t>()));
    case Opcode::long1: {
      const auto digits = take(number<uint8_t>());
      check<UsageError>(digits.size() <= 8,
                        "{}: a whole number of {} bytes before byte {}; we read 8", where_,
                        digits.size(), at_);
      const bool negative = !digits.empty() && (digits.back() & 0x80);
      uint64_t value = negative ? ~uint64_t{0} : 0;
      for (size_t i = digits.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(digits[i]);
      return push(tree_.integer(static_cast<int64_t>(value)));
    }
    case Opcode::binfloat: {
      const auto bits = __builtin_bswap64(number<uint64_t>());
      return push(tree_.real(std::bit_cast<double>(bits)));
    }
    case Opcode::binunicode:
    case Opcode::binstring:
      return push(text(take(number<uint32_t>())));
    case Opcode::short_binunicode:
    case Opcode::short_binstring:
      return push(text(take(number<uint8_t>())));
    case Opcode::binunicode8:
      return push(text(take(number<uint64_t>())));
    case Opcode::binbytes:
      return push(tree_.add({.kind = Kind::bytes, .text = std::string(take(number<uint32_t>()))}));
    case Opcode::short_binbytes:
      return push(tree_.add({.kind = Kind::bytes, .text = std::string(take(number<uint8_t>()))}));
    case Opcode::binbytes8:
      return push(tree_.add({.kind = Kind::bytes, .text = std::string(take(number<uint64_t>()))}));
    case Opcode::empty_tuple:
      return push(tree_.tuple());
    case Opcode::empty_list:
      return push(tree_.list());
    case Opcode::empty_dict:
      return push(tree_.dict());
    default:
      refuse(opcode, "is none that torch's files use");
  }
}

void Unpickler::step_container(Opcode opcode) {
  switch (opcode) {
    case Opcode::tuple:
      return push(tree_.tuple(pop_to_mark()));
    case Opcode::tuple1:
    case Opcode::tuple2:
    case Opcode::tuple3: {
      std::vector<NodeId> items(static_cast<size_t>(opcode) - static_cast<size_t>(Opcode::tuple1) +
                                1);
      for (size_t i = items.size(); i-- > 0;) items[i] = pop();
      return push(tree_.tuple(std::move(items)));
    }
    case Opcode::append: {
      const NodeId item = pop();
      grown(Kind::list).push_back(item);
      return;
    }
    case Opcode::appends: {
      const auto items = pop_to_mark();
      auto& list = grown(Kind::list);
      list.insert(list.end(), items.begin(), items.end());
      return;
    }
    case Opcode::setitem: {
      const NodeId value = pop(), key = pop();
      auto& dict = grown(Kind::dict);
      dict.push_back(key);
      dict.push_back(value);
      return;
    }
    default: {  // setitems
      const auto items = pop_to_mark();
      check<Corrupt>(items.size() % 2 == 0, "{}: a key without a value before byte {}", where_,
                     at_);
      auto& dict = grown(Kind::dict);
      dict.insert(dict.end(), items.begin(), items.end());
    }
  }
}

void Unpickler::step_name(Opcode opcode) {
  switch (opcode) {
    case Opcode::global: {
      const auto module = line(), name = line();
      return push_symbol(module, name);
    }
    case Opcode::stack_global: {
      const NodeId name = pop(), module = pop();
      check<Corrupt>(tree_[name].kind == Kind::text && tree_[module].kind == Kind::text,
                     "{}: {} of {} for a name", where_, tree_.described(name),
                     tree_.described(module));
      // Copies: a push moves the nodes.
      return push_symbol(std::string(tree_[module].text), std::string(tree_[name].text));
    }
    case Opcode::inst: {
      const auto module = line(), name = line();
      push_symbol(module, name);
      refuse(opcode, "(INST) is none that torch's files use");
    }
    case Opcode::obj:
      refuse(opcode, "(OBJ) is none that torch's files use");
    case Opcode::newobj_ex:
      refuse(opcode, "(NEWOBJ_EX) is none that torch's files use");
    case Opcode::persid:
      refuse(opcode, "(PERSID) is none that torch's files use");
    case Opcode::ext1:
    case Opcode::ext2:
    case Opcode::ext4:
      refuse(opcode, "asks for Python's registry of extensions, which we refuse");
    case Opcode::reduce: {
      const NodeId arguments = pop(), function = pop();
      return push(described_call(tree_, function, arguments, where_));
    }
    case Opcode::newobj: {
      const NodeId arguments = pop(), cls = pop();
      return push(described_object(tree_, cls, arguments, where_));
    }
    case Opcode::build: {
      const NodeId state = pop();
      return described_state(tree_, top(), state, where_);
    }
    default:  // binpersid
      return push(described_storage(tree_, pop(), storages_, where_));
  }
}

void Unpickler::step_memo(Opcode opcode) {
  switch (opcode) {
    case Opcode::binput:
      return remember(number<uint8_t>());
    case Opcode::long_binput:
      return remember(number<uint32_t>());
    case Opcode::memoize:
      return remember(remembered_);
    case Opcode::binget:
      return recall(number<uint8_t>());
    default:  // long_binget
      return recall(number<uint32_t>());
  }
}

}  // namespace

Tree read_pickle(std::span<const uint8_t> bytes, const std::string& where) {
  return Unpickler(bytes, where).run();
}

}  // namespace trireme::interop
