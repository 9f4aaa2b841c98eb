// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/module_summary.h"

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "trireme/tensor/tied_tensors.h"

namespace trireme {
namespace {

struct Count {
  int64_t trainable = 0, frozen = 0, bytes = 0;
  int64_t all() const { return trainable + frozen; }
};

Count count_of(const torch::nn::Module& module) {
  Count count;
  for (const auto& [name, tensor] : named_parameters(module)) {
    (tensor.requires_grad() ? count.trainable : count.frozen) += tensor.numel();
    count.bytes += tensor.numel() * static_cast<int64_t>(tensor.element_size());
  }
  return count;
}

/// "torch::nn::Conv2dImpl" is what LibTorch calls the module that everybody writes as Conv2d.
std::string short_type(std::string name) {
  name = name.substr(0, name.find('<'));
  const size_t scope = name.rfind("::");
  if (scope != std::string::npos) name = name.substr(scope + 2);
  if (name.size() > 4 && name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

std::string thousands(int64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

std::string without_trailing_spaces(std::string line) {
  line.resize(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::string short_count(int64_t count) {
  static const char* const kUnits[] = {"", " K", " M", " B", " T"};
  double value = static_cast<double>(count);
  size_t unit = 0;
  for (int64_t rest = count; rest >= 1000 && unit + 1 < std::size(kUnits); rest /= 1000, ++unit)
    value /= 1000;
  // Three digits say enough. Lightning cuts a large number and rounds a small one.
  if (unit == 0 || value >= 100) return thousands(static_cast<int64_t>(value)) + kUnits[unit];
  return fmt::format("{:.1f}{}", value, kUnits[unit]);
}

std::string module_summary(const torch::nn::Module& module) {
  std::vector<std::vector<std::string>> rows{{"", "Name", "Type", "Params"}};
  for (const auto& child : module.named_children())
    rows.push_back({std::to_string(rows.size() - 1), child.key(), short_type(child.value()->name()),
                    short_count(count_of(*child.value()).all())});
  std::vector<size_t> widths{1, 0, 0, 0};
  size_t whole = 3 * (widths.size() + 1);
  for (size_t column = 0; column < widths.size(); ++column) {
    for (const auto& row : rows) widths[column] = std::max(widths[column], row[column].size());
    whole += widths[column];
  }
  std::string text;
  const std::string rule = std::string(whole, '-') + "\n";
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (size_t column = 0; column < widths.size(); ++column)
      line += fmt::format("{}{:<{}}", column ? " | " : "", rows[r][column], widths[column]);
    text += without_trailing_spaces(line) + "\n";
    if (r == 0) text += rule;
  }
  const Count count = count_of(module);
  text += rule;
  text += fmt::format("{:<10}Trainable params\n", short_count(count.trainable));
  text += fmt::format("{:<10}Non-trainable params\n", short_count(count.frozen));
  text += fmt::format("{:<10}Total params\n", short_count(count.all()));
  text += fmt::format("{:<10}Total estimated model params size (MB)",
                      fmt::format("{:.3f}", static_cast<double>(count.bytes) / 1e6));
  return text;
}

}  // namespace trireme
