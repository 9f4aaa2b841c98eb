// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/tensor/parameter_table.h"

namespace trireme {

/// Of which parameters the tensors of an optimizer are parts, where a parameter lies on several
/// ranks (ZeRO). Norms are then of whole parameters: each rank adds squares per block
/// (optim/norm_kernels.h) of what it holds, share() adds the lists over ranks, and since a block
/// lies on one rank, the tree over blocks gives the bits that one rank with everything gets.
///
/// 8 bytes a block of 1,024 elements go around.
class TRIREME_API NormParts {
 public:
  struct Whole {
    std::string name;
    int64_t numel = 0;
  };
  /// Adds `n` numbers over ranks, in place; all ranks call it equally often. A block's number is 0
  /// on all ranks but one, so nothing is rounded.
  using Share = std::function<void(double* values, int64_t n)>;

  /// Every tensor is a parameter of its own.
  explicit NormParts(const NamedTensors& parameters);
  /// `parameters`: all of them, in the same order on every rank (blocks are added in the order of
  /// names, whatever that order is). `begins`: where this
  /// rank's tensors begin in theirs, by name; a multiple of the block.
  NormParts(std::vector<Whole> parameters, std::map<std::string, int64_t> begins, Share share);

  int64_t blocks() const { return blocks_; }  // of all parameters
  size_t parameters() const { return names_.size(); }
  const std::string& name(size_t parameter) const { return names_[parameter]; }
  /// Of the parameter that a tensor is a part of.
  size_t index_of(const std::string& tensor) const;
  /// Where the tensor's blocks lie in a list of all blocks.
  int64_t first_block(const std::string& tensor) const;
  /// The whole parameter's: first, count.
  std::pair<int64_t, int64_t> range(size_t parameter) const { return ranges_[parameter]; }
  void share(std::vector<double>& values) const;
  bool shared() const { return static_cast<bool>(share_); }

 private:
  struct Place {
    size_t parameter = 0;
    int64_t begin = 0;
  };
  std::vector<std::string> names_;
  std::vector<std::pair<int64_t, int64_t>> ranges_;
  std::map<std::string, Place> places_;
  Share share_;
  int64_t blocks_ = 0;
};

}  // namespace trireme
