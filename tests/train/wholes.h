// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <map>
#include <mutex>
#include <string>

#include "trireme/tensor/parameter_layout.h"
#include "trireme/tensor/parameter_table.h"

namespace trireme::testing {

/// The whole parameters of which ranks, that are threads, hold parts. What several of them hold is
/// expected to have the same bits.
class Wholes {
 public:
  void add(const NamedTensors& tensors, const ParameterLayouts& layouts) {
    at::NoGradGuard no_grad;
    std::lock_guard lock(mutex_);
    for (const auto& [name, t] : tensors) {
      const auto it = layouts.find(name);
      const ParameterLayout layout =
          it == layouts.end() ? ParameterLayout::whole(t.sizes().vec()) : it->second;
      const auto [place, is_new] =
          wholes_.emplace(name, torch::full(layout.shape, NAN, at::TensorOptions(t.scalar_type())));
      int64_t row = 0;
      for (const Box& box : layout.boxes) {
        at::Tensor part = place->second;
        for (size_t d = 0; d < box.offsets.size(); ++d)
          part = part.narrow(static_cast<int64_t>(d), box.offsets[d], box.lengths[d]);
        const at::Tensor own = layout.boxes.size() == 1 ? t : t.narrow(0, row, box.lengths.at(0));
        if (part.isnan().all().item<bool>())
          part.copy_(own);
        else
          EXPECT_TRUE(part.equal(own)) << name << " differs between ranks that hold it alike";
        if (!box.lengths.empty()) row += box.lengths[0];
      }
    }
  }
  NamedTensors all() const { return {wholes_.begin(), wholes_.end()}; }

 private:
  std::mutex mutex_;
  std::map<std::string, at::Tensor> wholes_;
};

}  // namespace trireme::testing
