// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/rules/findings.h"

#include <fmt/core.h>

#include <algorithm>

namespace trireme {

void Findings::report(size_t order, KeyReport entry) {
  reported_[entry.path] = reports_.size();
  reports_.emplace_back(order, std::move(entry));
}

bool Findings::broken(std::string_view path) const {
  auto it = reported_.find(path);
  return it != reported_.end() && !reports_[it->second].second.error.empty();
}

bool Findings::fine(std::initializer_list<const char*> paths) const {
  return std::all_of(paths.begin(), paths.end(),
                     [&](const char* path) { return !broken(path) && config_.applies(path); });
}

void Findings::complain(std::string_view path, const std::string& why) {
  auto it = reported_.find(path);
  if (it == reported_.end()) {
    report(order(), {.path = std::string(path), .value = config_.value_text(path).value_or("")});
    it = reported_.find(path);
  }
  auto& entry = reports_[it->second].second;
  entry.verdict = KeyReport::Verdict::wrong;
  entry.why = fmt::format("{} {}", path, why);
  entry.error = fmt::format("{}: {}", entry.origin.str(), entry.why);
}

void Findings::idle(std::string_view path, const std::string& why) {
  auto it = reported_.find(path);
  if (it == reported_.end()) return;
  auto& entry = reports_[it->second].second;
  if (entry.verdict != KeyReport::Verdict::supported) return;
  entry.verdict = KeyReport::Verdict::without_effect;
  entry.why = why;
}

std::vector<KeyReport> Findings::take() {
  std::stable_sort(reports_.begin(), reports_.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<KeyReport> out;
  for (auto& [order, entry] : reports_) out.push_back(std::move(entry));
  return out;
}

}  // namespace trireme
