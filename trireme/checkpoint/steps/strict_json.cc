// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/strict_json.h"

#include <limits>
#include <set>

#include "trireme/base/check.h"

namespace trireme {

using nlohmann::json;

json parse_strict_json(std::string_view text, const std::string& where, int max_depth) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  auto look = [&](int depth, json::parse_event_t event, json& parsed) {
    check<Corrupt>(depth <= max_depth, "{}: nested more than {} deep", where, max_depth);
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key)
      check<Corrupt>(keys.back().insert(parsed.get_ref<const std::string&>()).second,
                     "{}: key '{}' occurs twice", where, parsed.get_ref<const std::string&>());
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), look);
  } catch (const json::exception& e) {
    fail<Corrupt>("{}: not JSON ({})", where, e.what());
  }
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
