// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/report.h"

#include <fmt/format.h>

#include <cstdint>

namespace trireme::doctor {

ordered_json Report::to_json() const {
  ordered_json json, findings = ordered_json::array();
  for (const Section& section : sections) {
    json[section.name] = section.json;
    for (const Finding& f : section.findings)
      findings.push_back({{"section", f.section}, {"what", f.what}, {"do", f.todo}});
  }
  json["findings"] = findings;
  return json;
}

std::string Report::text() const {
  std::string text;
  size_t number = 0;
  for (const Section& section : sections) {
    if (section.rows.empty()) continue;
    text += section.name + "\n";
    for (const auto& [label, value] : section.rows)
      text += label.empty() ? fmt::format("  {:<18}{}\n", "", value)
                            : fmt::format("  {:<17} {}\n", label, value);
  }
  for (const Section& section : sections)
    for (const Finding& f : section.findings) {
      if (number++ == 0) text += "\nTo mend\n";
      text += fmt::format("  {}. {}: {}\n     -> {}\n", number, f.section, f.what, f.todo);
    }
  if (number == 0) text += "\nNothing to mend.\n";
  return text;
}

ordered_json pack(const Section& section) {
  ordered_json rows = ordered_json::array(), findings = ordered_json::array();
  for (const auto& [label, text] : section.rows) rows.push_back({label, text});
  for (const Finding& f : section.findings) findings.push_back({f.section, f.what, f.todo});
  return {{"name", section.name}, {"rows", rows}, {"json", section.json}, {"findings", findings}};
}

Section unpack(const ordered_json& packed) {
  Section section(packed.at("name").get<std::string>());
  for (const auto& row : packed.at("rows")) section.row(row.at(0), row.at(1));
  section.json = packed.at("json");
  for (const auto& f : packed.at("findings"))
    section.findings.push_back({f.at(0), f.at(1), f.at(2)});
  return section;
}

std::string text_of_list(const std::vector<int>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size(); ++i) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ",";
    text += std::to_string(numbers[i]);
    if (last > i) text += "-" + std::to_string(numbers[last]);
    i = last;
  }
  return text;
}

std::string text_of_bytes(uint64_t bytes) {
  if (bytes == UINT64_MAX) return "unlimited";
  static const char* const kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit < 4) value /= 1024, ++unit;
  return value == static_cast<double>(static_cast<int64_t>(value))
             ? fmt::format("{:.0f} {}", value, kUnits[unit])
             : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace trireme::doctor
