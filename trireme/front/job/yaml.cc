// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/job/yaml.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "trireme/base/check.h"

namespace trireme::job {
namespace {

using Json = nlohmann::ordered_json;

/// Code points; UsageError where the bytes are no UTF-8.
std::vector<uint32_t> code_points(const std::string& text) {
  std::vector<uint32_t> points;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : 4;
    uint32_t point = length == 1 ? lead : lead & (0x7fu >> length);
    bool good = (lead < 0x80 || lead >= 0xc2) && lead < 0xf5 && i + length <= text.size();
    for (size_t k = 1; good && k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      good = next >> 6 == 2;
      point = point << 6 | (next & 0x3f);
    }
    const uint32_t least = length == 3 ? 0x800 : length == 4 ? 0x10000 : 0;
    good = good && point >= least && point <= 0x10ffff && (point < 0xd800 || point > 0xdfff);
    check<UsageError>(good, "byte {} of '{}' is not UTF-8, and a manifest holds nothing else", i,
                      text.substr(0, 60));
    points.push_back(point);
    i += length;
  }
  return points;
}

/// Neither a line break to some reader nor something that none prints.
bool is_printable(uint32_t c) {
  return (c >= 0x20 && c < 0x7f) || (c >= 0xa0 && c < 0xd800 && c != 0x2028 && c != 0x2029) ||
         (c >= 0xe000 && c < 0xfffe && c != 0xfeff) || c >= 0x10000;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  size_t at = 0;
  for (const uint32_t c : code_points(text)) {
    const size_t length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    if (c == '"' || c == '\\')
      out += {'\\', static_cast<char>(c)};
    else if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (is_printable(c))
      out += text.substr(at, length);
    else if (c < 0x100)
      out += fmt::format("\\x{:02x}", c);
    else
      out += fmt::format("\\u{:04x}", c);
    at += length;
  }
  return out + "\"";
}

/// Words that YAML 1.1 takes for a boolean or nothing, in any case.
bool is_reserved(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* word : {"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
    if (text == word) return true;
  return false;
}

/// Begins with a letter, '/' or two dashes and a letter (a flag), and has nothing that means
/// something to YAML. Numbers, dates and the like begin otherwise.
bool may_be_bare(const std::string& text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const bool begins =
      !text.empty() && (letter(text[0]) || text[0] == '/' ||
                        (text.size() > 2 && text.rfind("--", 0) == 0 && letter(text[2])));
  return begins && !is_reserved(text) && std::all_of(text.begin(), text.end(), [&](char c) {
           return letter(c) || (c >= '0' && c <= '9') ||
                  std::string_view("_/.=-").find(c) != std::string_view::npos;
         });
}

bool may_be_literal(const std::string& text) {
  if (text.find('\n') == std::string::npos || text[0] == ' ' || text[0] == '\n' || text[0] == '\t')
    return false;
  for (size_t at = 0; at < text.size();) {  // a line of blanks is shown by no editor
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    if (!line.empty() && line.find_first_not_of(" \t") == std::string::npos) return false;
    at = end + 1;
  }
  const auto points = code_points(text);
  return std::all_of(points.begin(), points.end(),
                     [](uint32_t c) { return c == '\n' || c == '\t' || is_printable(c); });
}

std::string literal(const std::string& text, const std::string& indent) {
  const bool ends = text.back() == '\n';
  const bool more = ends && text.size() > 1 && text[text.size() - 2] == '\n';
  std::string out = more ? "|+" : ends ? "|" : "|-";
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    out += "\n" + (end > at ? indent + text.substr(at, end - at) : "");
    at = end + 1;
  }
  return out;
}

std::string scalar(const Json& value, const std::string& indent) {
  if (!value.is_string()) return value.dump();
  const auto& text = value.get_ref<const std::string&>();
  if (may_be_literal(text)) return literal(text, indent);
  return may_be_bare(text) ? text : quoted(text);
}

/// Lines behind the current one, or the rest of it; no newline at the end.
std::string below(const Json& value, const std::string& indent);

std::string entries(const Json& value, const std::string& indent) {
  std::string out;
  for (const auto& [key, inner] : value.items()) {
    if (!out.empty()) out += "\n" + indent;
    out += scalar(key, "") + ":" + below(inner, indent);
  }
  return out;
}

std::string items(const Json& value, const std::string& indent) {
  std::string out;
  for (const Json& inner : value) {
    if (!out.empty()) out += "\n" + indent;
    out += "- ";
    out += inner.is_object() && !inner.empty() ? entries(inner, indent + "  ")
                                               : scalar(inner, indent + "  ");
  }
  return out;
}

std::string below(const Json& value, const std::string& indent) {
  if (!value.is_structured() || value.empty()) return " " + scalar(value, indent + "  ");
  const std::string inner = indent + "  ";
  return "\n" + inner + (value.is_object() ? entries(value, inner) : items(value, inner));
}

}  // namespace

std::string yaml_document(const Json& value) { return entries(value, "") + "\n"; }

}  // namespace trireme::job
