// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <string>
#include <variant>

#include "trireme/checkpoint/steps/compare_tensors.h"

// Two steps on disk, whatever ranks and layouts saved them.
namespace trireme::testing {

/// How the state of two steps differs, a line for each name; "": names, dtypes, shapes and values
/// are equal, and all tensors bit for bit. Their world and layout do not count.
inline std::string differences(StepReader& a, StepReader& b) {
  std::string found;
  if (a.index().step != b.index().step) found += "the number of steps\n";
  for (const auto& [name, tensor] : a.index().tensors) {
    const auto other = b.index().tensors.find(name);
    if (other == b.index().tensors.end())
      found += name + " is missing\n";
    else if (other->second.dtype != tensor.dtype || other->second.shape() != tensor.shape())
      found += name + " has another dtype or shape\n";
    else if (const auto n = compare_tensors(a, b, name, 0).differing)
      found += name + " differs in " + std::to_string(n) + " elements\n";
  }
  for (const auto& [name, tensor] : b.index().tensors)
    if (!a.index().tensors.contains(name)) found += name + " is new\n";

  const auto same = [](const IndexValue& x, const IndexValue& y) {
    const double *p = std::get_if<double>(&x), *q = std::get_if<double>(&y);
    return p && q ? std::bit_cast<uint64_t>(*p) == std::bit_cast<uint64_t>(*q) : x == y;
  };
  for (const auto& [name, value] : a.index().values) {
    const auto other = b.index().values.find(name);
    if (other == b.index().values.end())
      found += "the value " + name + " is missing\n";
    else if (!same(value, other->second))
      found += "the value " + name + " differs\n";
  }
  for (const auto& [name, value] : b.index().values)
    if (!a.index().values.contains(name)) found += "the value " + name + " is new\n";
  return found;
}

inline std::string differences(const std::string& step_a, const std::string& step_b) {
  StepReader a(step_a), b(step_b);
  return differences(a, b);
}

}  // namespace trireme::testing
