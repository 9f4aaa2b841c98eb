// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/parameter_table.h"

#include <set>

#include "trireme/base/check.h"

namespace trireme {

ParameterTable::ParameterTable(const NamedTensors& parameters) {
  std::set<std::string> seen;
  for (const auto& [name, p] : parameters) {
    check<UsageError>(seen.insert(name).second,
                      "parameter '{}' appears twice: give each a name of its own", name);
    entries_.push_back({name, p.sizes().vec(), p.scalar_type(), numel_, p.numel(), 0});
    numel_ += p.numel();
  }
}

void ParameterTable::assign_option_groups(const std::vector<std::pair<std::string, int>>& rules) {
  for (auto& entry : entries_) {
    entry.option_group = 0;
    for (const auto& [pattern, group] : rules)
      if (glob_match(pattern, entry.name)) entry.option_group = group;
  }
}

std::string ParameterTable::fingerprint() const {
  std::string text;
  for (const auto& e : entries_) {
    text += e.name + ' ' + c10::toString(e.dtype) + " [";
    for (size_t i = 0; i < e.shape.size(); ++i) text += (i ? "," : "") + std::to_string(e.shape[i]);
    text += "]\n";
  }
  return text;
}

bool glob_match(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace trireme
