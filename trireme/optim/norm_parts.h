// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/tensor/parameter_table.h"

namespace trireme {

/// Maps the tensors of an optimizer to the parameters of which they are parts, when parameters are
/// split over ranks (ZeRO). Norms are still those of whole parameters: each rank sums the squares
/// in each block (optim/norm_kernels.h) that it holds, add_over_ranks() adds the lists over ranks,
/// and since a block is on one rank only, the tree over blocks gives the same bits as one rank with
/// everything.
///
/// Ranks exchange 8 bytes per block of 1,024 elements.
class TRIREME_API NormParts {
 public:
  struct Whole {
    std::string name;
    int64_t numel = 0;
  };
  /// Adds `n` numbers over ranks in place; all ranks call it equally often. A block's number is 0
  /// on all ranks but one, so the addition does not round.
  using AddOverRanks = std::function<void(double* values, int64_t n)>;

  /// Every tensor is a parameter of its own.
  explicit NormParts(const NamedTensors& parameters);
  /// `parameters`: all of them, in the same order on every rank (blocks are added in the order of
  /// names, whatever that order is). `begins`: by name, the offset of this rank's tensor in its
  /// parameter; a multiple of the block size.
  NormParts(std::vector<Whole> parameters, std::map<std::string, int64_t> begins,
            AddOverRanks add_over_ranks);
  /// The same for models whose layers are divided over ranks, which may hold copies of a tensor:
  /// `counted_elsewhere` are those of which another rank's copy counts. With `one_number_each`,
  /// ranks exchange 8 bytes per parameter, and the bits depend on how it is divided.
  NormParts(std::vector<Whole> parameters, std::map<std::string, int64_t> begins,
            AddOverRanks add_over_ranks, std::set<std::string> counted_elsewhere,
            bool one_number_each);

  int64_t blocks() const { return blocks_; }  // over all parameters
  size_t parameters() const { return names_.size(); }
  const std::string& name(size_t parameter) const { return names_[parameter]; }
  /// The index of the parameter to which a tensor belongs.
  size_t index_of(const std::string& tensor) const;
  /// The position of the tensor's first block in the list of all blocks.
  int64_t first_block(const std::string& tensor) const;
  /// The whole parameter's blocks: first, count.
  std::pair<int64_t, int64_t> range(size_t parameter) const { return ranges_[parameter]; }
  /// Adds one number per parameter.
  void add_over_ranks(std::vector<double>& of_parameters) const;
  /// Adds one number per block.
  void add_blocks_over_ranks(std::vector<double>& of_blocks) const;
  bool shared() const { return static_cast<bool>(add_over_ranks_); }

 private:
  struct Place {
    size_t parameter = 0;
    int64_t begin = 0;
  };
  std::vector<std::string> names_;
  std::vector<std::pair<int64_t, int64_t>> ranges_;
  std::map<std::string, Place> places_;
  AddOverRanks add_over_ranks_;
  std::vector<size_t> counted_elsewhere_;
  bool one_number_each_ = false;
  int64_t blocks_ = 0;
};

/// Adds over the ranks of a group; nothing is sent in a group of one.
TRIREME_API NormParts::AddOverRanks add_over(Group group);

}  // namespace trireme
