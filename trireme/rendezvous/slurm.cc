// SPDX-License-Identifier: Apache-2.0
#include "trireme/rendezvous/slurm.h"

#include <charconv>

#include "trireme/base/check.h"

namespace trireme {
namespace {

constexpr size_t kMostNodes = 1 << 17;

struct Notation {
  std::string_view text;
  std::string_view variable;

  [[noreturn]] void refuse(std::string_view why) const {
    fail<UsageError>("{}='{}' is not Slurm's notation: {}", variable, text, why);
  }
  int number(std::string_view digits) const {
    int value = 0;
    auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || code != std::errc() || end != digits.data() + digits.size() || value < 0)
      refuse(fmt::format("'{}' is not a number", digits));
    return value;
  }
};

/// At commas outside brackets.
std::vector<std::string_view> split(const Notation& in, std::string_view text) {
  std::vector<std::string_view> out;
  size_t start = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size()) {
      depth += text[i] == '[' ? 1 : text[i] == ']' ? -1 : 0;
      if (depth < 0 || depth > 1) in.refuse("its brackets do not match");
      if (text[i] != ',' || depth > 0) continue;
    }
    if (i == start) in.refuse("an empty item");
    out.push_back(text.substr(start, i - start));
    start = i + 1;
  }
  if (depth != 0) in.refuse("its brackets do not match");
  return out;
}

/// "08-10,12" → 08 09 10 12
std::vector<std::string> expand_range(const Notation& in, std::string_view ranges) {
  std::vector<std::string> out;
  for (auto item : split(in, ranges)) {
    auto dash = item.find('-');
    auto first = item.substr(0, dash);
    auto last = dash == std::string_view::npos ? first : item.substr(dash + 1);
    int from = in.number(first);
    int to = in.number(last);
    if (to < from || static_cast<size_t>(to) - static_cast<size_t>(from) >= kMostNodes)
      in.refuse(fmt::format("the range '{}'", item));
    for (int i = from; i <= to; ++i) out.push_back(fmt::format("{:0{}}", i, first.size()));
    if (out.size() > kMostNodes) in.refuse("too many nodes");
  }
  return out;
}

void expand_item(const Notation& in, std::string_view item, std::vector<std::string>* out) {
  std::vector<std::string> names = {""};
  while (!item.empty()) {
    auto open = item.find('[');
    for (auto& name : names) name += item.substr(0, open);
    if (open == std::string_view::npos) break;
    auto close = item.find(']', open);
    std::vector<std::string> longer;
    auto parts = expand_range(in, item.substr(open + 1, close - open - 1));
    if (names.size() * parts.size() > kMostNodes) in.refuse("too many nodes");
    for (const auto& name : names)
      for (const auto& part : parts) longer.push_back(name + part);
    names = std::move(longer);
    item.remove_prefix(close + 1);
  }
  if (out->size() + names.size() > kMostNodes) in.refuse("too many nodes");
  out->insert(out->end(), names.begin(), names.end());
}

}  // namespace

std::vector<std::string> expand_slurm_nodes(std::string_view text, std::string_view variable) {
  Notation in{text, variable};
  std::vector<std::string> out;
  for (auto item : split(in, text)) expand_item(in, item, &out);
  return out;
}

std::optional<int> slurm_tasks_on_node(std::string_view text, int node, std::string_view variable) {
  Notation in{text, variable};
  int64_t at = 0;
  std::optional<int> found;
  for (auto item : split(in, text)) {
    int times = 1;
    auto open = item.find("(x");
    auto tasks = in.number(item.substr(0, open));
    if (open != std::string_view::npos) {
      if (item.back() != ')') in.refuse("a missing ')'");
      times = in.number(item.substr(open + 2, item.size() - open - 3));
    }
    if (!found && node >= at && node < at + times) found = tasks;
    at += times;
  }
  return found;
}

}  // namespace trireme
