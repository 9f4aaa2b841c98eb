// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <cmath>

#include "trireme/config/json_reader.h"

namespace trireme {

std::string Origin::str() const {
  if (!name) return "default";
  return line == 0 ? *name : fmt::format("{}:{}:{}", *name, line, column);
}

bool Value::to_integer(int64_t* out) const {
  if (kind == Kind::integer) {
    *out = integer;
    return true;
  }
  if (kind != Kind::number || std::trunc(number) != number || std::fabs(number) > 0x1p53)
    return false;
  *out = static_cast<int64_t>(number);
  return true;
}

bool Value::to_number(double* out) const {
  if (kind != Kind::integer && kind != Kind::number) return false;
  *out = number;
  return true;
}

const Value* Value::find(std::string_view key) const {
  for (const auto& member : members)
    if (member.key == key) return &member.value;
  return nullptr;
}

std::string json_quote(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\r':
        out += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20)
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        else
          out += c;
    }
  }
  return out + "\"";
}

std::string Value::text() const {
  switch (kind) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return boolean ? "true" : "false";
    case Kind::integer:
      return fmt::format("{}", integer);
    case Kind::number: {
      auto text = fmt::format("{}", number);  // the shortest text that reads back to the same bits
      // 1000.0 must not come back as an integer.
      return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
    }
    case Kind::string:
      return json_quote(string);
    case Kind::array: {
      std::string out = "[";
      for (const auto& value : array) out += (out.size() > 1 ? ", " : "") + value.text();
      return out + "]";
    }
    case Kind::object: {
      std::string out = "{";
      for (const auto& member : members)
        out += (out.size() > 1 ? ", " : "") + json_quote(member.key) + ": " + member.value.text();
      return out + "}";
    }
  }
  return "null";
}

std::string Value::describe() const {
  auto cut = text();
  if (cut.size() > 40) {
    cut.resize(37);
    while (!cut.empty() && (static_cast<unsigned char>(cut.back()) & 0xC0) == 0x80) cut.pop_back();
    if (!cut.empty() && static_cast<unsigned char>(cut.back()) >= 0xC0) cut.pop_back();
    cut += "...";
  }
  switch (kind) {
    case Kind::string:
      return "the string " + cut;
    case Kind::array:
      return "the array " + cut;
    case Kind::object:
      return "the object " + cut;
    default:
      return cut;
  }
}

bool Value::operator==(const Value& other) const {
  if (kind != other.kind) return false;
  switch (kind) {
    case Kind::null:
      return true;
    case Kind::boolean:
      return boolean == other.boolean;
    case Kind::integer:
      return integer == other.integer;
    case Kind::number:
      return number == other.number;
    case Kind::string:
      return string == other.string;
    case Kind::array:
      return array == other.array;
    case Kind::object:
      if (members.size() != other.members.size()) return false;
      for (size_t i = 0; i < members.size(); ++i)
        if (members[i].key != other.members[i].key || !(members[i].value == other.members[i].value))
          return false;
      return true;
  }
  return false;
}

Value Value::of(bool v) {
  Value value;
  value.kind = Kind::boolean;
  value.boolean = v;
  return value;
}

Value Value::of(int64_t v) {
  Value value;
  value.kind = Kind::integer;
  value.integer = v;
  value.number = static_cast<double>(v);
  return value;
}

Value Value::of(double v) {
  Value value;
  value.kind = Kind::number;
  value.number = v;
  return value;
}

Value Value::of(std::string v) {
  Value value;
  value.kind = Kind::string;
  value.string = std::move(v);
  return value;
}

}  // namespace trireme
