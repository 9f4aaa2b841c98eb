// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/strict_json.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "trireme/base/check.h"

namespace trireme {

using nlohmann::json;

namespace {

/// Builds the value as the parser goes, and refuses at once what must not be there.
class StrictBuilder {
 public:
  StrictBuilder(const std::string& where, int max_depth, int depth = 0,
                const JsonMember* body = nullptr)
      : where_(where),
        max_depth_(static_cast<size_t>(max_depth)),
        depth_(static_cast<size_t>(depth)),
        body_(body) {}
  json& root() { return root_; }

  bool null() { return add(nullptr); }
  bool boolean(bool v) { return add(v); }
  bool number_integer(json::number_integer_t v) { return add(v); }
  bool number_unsigned(json::number_unsigned_t v) { return add(v); }
  bool number_float(json::number_float_t v, const std::string&) { return add(v); }
  bool string(std::string& v) { return add(std::move(v)); }
  bool binary(json::binary_t&) { return false; }  // not in JSON
  bool start_object(size_t) { return open(json::value_t::object); }
  bool start_array(size_t) { return open(json::value_t::array); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    check_depth();
    auto& object = open_.back()->get_ref<json::object_t&>();
    // Our own files name most keys in order.
    const size_t before = object.size();
    const auto at = object.emplace_hint(object.end(), name, nullptr);
    check_first_of_name(object.size() > before, name, where_);
    slot_ = &at->second;
    if (open_.size() <= depth_) names_[open_.size() - 1] = name;
    if (open_.size() == depth_ && all_objects()) member_ = slot_;
    return true;
  }
  bool parse_error(size_t, const std::string&, const json::exception& e) {
    fail<Corrupt>("{}: not JSON ({})", where_, e.what());
  }

 private:
  void check_depth() const {
    check<Corrupt>(open_.size() <= max_depth_, "{}: nested more than {} deep", where_, max_depth_);
  }
  json* place(json value) {
    check_depth();
    check<Corrupt>(++values_ <= kMostJsonValues, "{}: holds more than {} values", where_,
                   kMostJsonValues);
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_object()) return &(*slot_ = std::move(value));
    auto& array = open_.back()->get_ref<json::array_t&>();
    array.push_back(std::move(value));
    return &array.back();
  }
  bool add(json value) {
    place(std::move(value));
    show_member();
    return true;
  }
  bool open(json::value_t kind) {
    open_.push_back(place(json(kind)));
    return true;
  }
  bool close() {
    open_.pop_back();
    show_member();
    return true;
  }
  bool all_objects() const {
    return std::all_of(open_.begin(), open_.end(), [](const json* j) { return j->is_object(); });
  }
  /// If it is complete.
  void show_member() {
    if (member_ == nullptr || open_.size() != depth_) return;
    const json value = std::move(*std::exchange(member_, nullptr));
    const std::string& name = names_[depth_ - 1];
    open_.back()->get_ref<json::object_t&>().erase(name);
    values_ = 0;
    (*body_)(root_, depth_ == 1 ? std::string() : names_[0], name, value);
  }

  const std::string& where_;
  const size_t max_depth_, depth_;  // depth_ 0: all is kept
  const JsonMember* body_;
  std::array<std::string, 2> names_;  // of the keys that were read last, down to depth_
  json* member_ = nullptr;            // the one that body_ is to be shown
  size_t values_ = 0;                 // that are kept, or were since then
  json root_;
  std::vector<json*> open_;  // what is open; nothing is added to what contains it meanwhile
  json* slot_ = nullptr;     // of the key that was read last
};

json built(StrictBuilder builder, std::string_view text, const std::string& where) {
  try {
    json::sax_parse(text.begin(), text.end(), &builder);
  } catch (const json::exception& e) {
    fail<Corrupt>("{}: not JSON ({})", where, e.what());
  }
  return std::move(builder.root());
}

}  // namespace

json parse_strict_json(std::string_view text, const std::string& where, int max_depth) {
  return built(StrictBuilder(where, max_depth), text, where);
}

json for_each_json_member(std::string_view text, const std::string& where, int max_depth, int depth,
                          const JsonMember& body) {
  check<UsageError>(depth == 1 || depth == 2, "members of depth {}", depth);
  return built(StrictBuilder(where, max_depth, depth, &body), text, where);
}

void check_first_of_name(bool is_first, const std::string& name, const std::string& where) {
  check<Corrupt>(is_first, "{}: key '{}' occurs twice", where, name);
}

const json& json_member(const json& object, const char* key, const std::string& where) {
  check<Corrupt>(object.is_object(), "{}: not a JSON object", where);
  auto found = object.find(key);
  check<Corrupt>(found != object.end(), "{}: no '{}'", where, key);
  return *found;
}

int64_t json_size(const json& value, const std::string& where, const char* what) {
  check<Corrupt>(
      value.is_number_unsigned() &&
          value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()),
      "{}: {} is not a whole number from 0 to 2^63-1", where, what);
  return value.get<int64_t>();
}

std::string json_text(const json& value, const std::string& where, const char* what) {
  check<Corrupt>(value.is_string(), "{}: {} is not a string", where, what);
  return value.get<std::string>();
}

std::vector<int64_t> json_sizes(const json& value, const std::string& where, const char* what) {
  check<Corrupt>(value.is_array() && value.size() <= 64, "{}: {} is not a list of at most 64 sizes",
                 where, what);
  std::vector<int64_t> sizes;
  for (const auto& v : value) sizes.push_back(json_size(v, where, what));
  return sizes;
}

std::string json_quoted(const std::string& text, const std::string& where) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail<UsageError>(
        "{}: a name is not UTF-8 text: {}", where,
        nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  }
}

}  // namespace trireme
