// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
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
  /// A tensor of this rank.
  struct Part {
    std::string parameter;  // of which it is a part, or a copy of one
    int64_t begin = 0;      // in it; a multiple of the block size
    bool counted = true;    // false: its elements count where another tensor has them too
  };
  /// The same for models whose layers are divided over ranks, which may hold copies of a tensor, or
  /// of ranges of its elements (`ranges_elsewhere`: begin, end in this rank's tensor) of which
  /// another rank's copy counts. `tensors`: by name. With `one_number_each`, ranks exchange 8 bytes
  /// per parameter, and the bits depend on how it is divided.
  using Ranges = std::vector<std::pair<int64_t, int64_t>>;
  NormParts(std::vector<Whole> parameters, const std::map<std::string, Part>& tensors,
            AddOverRanks add_over_ranks, bool one_number_each,
            std::map<std::string, Ranges> ranges_elsewhere = {});

  /// Over all parameters, and behind them the blocks of tensors that are not counted.
  int64_t blocks() const { return blocks_; }
  size_t parameters() const { return names_.size(); }
  const std::string& name(size_t parameter) const { return names_[parameter]; }
  /// The index of the parameter to which a tensor belongs.
  size_t index_of(const std::string& tensor) const;
  /// The position of the tensor's first block in the list of all blocks.
  int64_t first_block(const std::string& tensor) const;
  /// The whole parameter's blocks: first, count.
  std::pair<int64_t, int64_t> range(size_t parameter) const { return ranges_[parameter]; }
  /// `values`, of the named tensor's size, with zeros where another rank's element counts: a copy,
  /// if there are such elements.
  at::Tensor counted(const std::string& tensor, const at::Tensor& values) const;
  /// Adds one number per parameter.
  void add_over_ranks(std::vector<double>& of_parameters) const;
  /// Adds one number per block.
  void add_blocks_over_ranks(std::vector<double>& of_blocks) const;
  bool shared() const { return static_cast<bool>(add_over_ranks_); }

 private:
  struct Place {
    size_t parameter = 0;
    int64_t first_block = 0;
  };
  void number_blocks(const std::vector<Whole>& parameters);
  static Place place(const Whole& whole, size_t parameter, int64_t first_block, int64_t begin);

  std::vector<std::string> names_;
  std::vector<std::pair<int64_t, int64_t>> ranges_;
  std::map<std::string, Place> places_;
  AddOverRanks add_over_ranks_;
  std::map<std::string, Ranges> ranges_elsewhere_;
  bool one_number_each_ = false;
  int64_t blocks_ = 0, counted_blocks_ = 0;
};

/// Adds over the ranks of a group; nothing is sent in a group of one.
TRIREME_API NormParts::AddOverRanks add_over(Group group);

}  // namespace trireme
