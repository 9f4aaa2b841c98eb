// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/model_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <vector>

namespace trireme {
namespace {

/// Columns wide enough for their header, between bars, and the rule below the header.
std::string rows_text(const std::vector<std::array<std::string, 4>>& rows, std::string* rule) {
  std::array<size_t, 4> width{};
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  // Three characters a column for its bar, and as many for the column of numbers.
  *rule = std::string(width[0] + width[1] + width[2] + width[3] + 3 * (width.size() + 1), '-');
  std::string out;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (size_t i = 0; i < width.size(); ++i)
      line += fmt::format("{}{:<{}}", i ? " | " : "", rows[r][i], width[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
    if (r == 0) out += *rule + "\n";
  }
  return out;
}

}  // namespace

std::string count_text(int64_t count) {
  static constexpr const char* kUnits[] = {"", " K", " M", " B", " T"};
  size_t unit = 0;
  double value = static_cast<double>(count);
  while (value >= 1000 && unit < 4) value /= 1000, ++unit;
  if (unit == 0) return fmt::format("{}", count);
  return value >= 100 ? fmt::format("{}{}", static_cast<int64_t>(value), kUnits[unit])
                      : fmt::format("{:.1f}{}", value, kUnits[unit]);
}

std::string model_table(const ModelShape& model, int bytes) {
  std::vector<std::array<std::string, 4>> rows = {{" ", "Name", "Type", "Params"}};
  for (size_t i = 0; i < model.modules.size(); ++i) {
    const auto& m = model.modules[i];
    rows.push_back({std::to_string(i), m.name, m.type, count_text(m.parameters)});
  }
  std::string rule, out = rows_text(rows, &rule);
  const int64_t all = model.numel();
  const std::string megabytes = fmt::format("{:.3f}", static_cast<double>(all * bytes) * 1e-6);
  return out + rule + "\n" + fmt::format("{:<10}Trainable params\n", count_text(all)) +
         fmt::format("{:<10}Non-trainable params\n", count_text(0)) +
         fmt::format("{:<10}Total params\n", count_text(all)) +
         fmt::format("{:<10}Total estimated model params size (MB)\n", megabytes);
}

}  // namespace trireme
