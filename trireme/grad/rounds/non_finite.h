// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "trireme/grad/rounds/round_record.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/finite.h"

namespace trireme {

/// The first NaN or infinity among the gradients of a round, the same on every rank.
struct NonFinite {
  int rank = -1;         // the lowest rank that has one; -1: none
  size_t parameter = 0;  // the first such parameter of that rank
};

/// From a fact of the record by which each rank gives the index of its first such parameter + 1, or
/// 0 if it has none.
inline NonFinite first_non_finite(const RoundRecord& record, RoundRecord::Fact fact) {
  const auto first = record.of(fact);
  for (size_t r = 0; r < first.size(); ++r)
    if (first[r] != 0) return {static_cast<int>(r), static_cast<size_t>(first[r]) - 1};
  return {};
}

/// to.copy_(from), and whether it is finite where that is known at once: a hook does not wait for a
/// device.
inline std::optional<bool> copy_and_look(const at::Tensor& to, const at::Tensor& from) {
  if (!is_asynchronous(to.device()) && !is_asynchronous(from.device()))
    return copy_all_finite(to, from);
  to.copy_(from);
  return std::nullopt;
}

/// Looks at a rank's gradients on their way into a round, and knows the first that is not finite
/// when the record is made. On a device one number for each is computed there, and all of them are
/// read in first(), which waits for the device.
class FirstNonFinite {
 public:
  void clear() {
    first_ = 0;
    asked_.clear();
    answers_.clear();
  }
  /// Of the parameter with this index. `finite`: if that is known; else `gradient` is looked at as
  /// the stream has it now.
  void look(size_t parameter, std::optional<bool> finite, const at::Tensor& gradient);
  /// Its index + 1; 0: none. Blocks where an answer is on a device.
  double first();

 private:
  void found(size_t parameter) {
    if (first_ == 0) first_ = static_cast<double>(parameter + 1);
  }
  double first_ = 0;
  std::vector<size_t> asked_;
  std::vector<at::Tensor> answers_;
};

}  // namespace trireme
