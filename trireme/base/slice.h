// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

/// The part of a named global tensor that a rank holds: a box with one offset and one length for
/// each dim. Pure data; checkpoints describe everything in these terms.
struct Slice {
  std::string name;
  std::vector<int64_t> global_shape;
  std::vector<int64_t> offsets;
  std::vector<int64_t> lengths;

  static Slice whole(std::string name, std::vector<int64_t> shape) {
    std::vector<int64_t> zeros(shape.size(), 0);
    return {std::move(name), shape, std::move(zeros), shape};
  }
  int64_t numel() const {
    int64_t n = 1;
    for (auto length : lengths) n *= length;
    return n;
  }
  bool is_whole() const { return lengths == global_shape; }
  bool operator==(const Slice&) const = default;
};

}  // namespace trireme
