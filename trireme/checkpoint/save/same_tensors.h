// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <unordered_map>

#include "trireme/base/slice.h"
#include "trireme/tensor/tensor_overlaps.h"

namespace trireme {

/// Finds what a walk shows under several names: the same elements in the same memory, as the same
/// slice.
class SameTensors {
 public:
  /// The name under which it was shown first; its own if it was not.
  std::string first_of(const Slice& slice, const at::Tensor& local) {
    if (const auto met = memory_.find(local); met && met->same) {
      const Slice& first = slices_.at(met->name);
      if (first.global_shape == slice.global_shape && first.offsets == slice.offsets &&
          first.lengths == slice.lengths && first.flat == slice.flat)
        return met->name;
    }
    memory_.add(slice.name, local);
    slices_.emplace(slice.name, slice);
    return slice.name;
  }

 private:
  TensorOverlaps memory_;
  std::unordered_map<std::string, Slice> slices_;
};

}  // namespace trireme
