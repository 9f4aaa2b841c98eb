// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/base/slice.h"
#include "trireme/tensor/tied_tensors.h"

namespace torch::nn {
class Module;
}

// Which part of a whole parameter a rank holds, and how its gradients on the ranks of each axis
// belong together: the one description that initialisation, loading, reduction, clipping,
// optimizers, checkpoints and the planner read of a model that is divided by tensor parallelism.
namespace trireme {

/// A box of a whole tensor, with one offset and one length for each dim.
struct Box {
  std::vector<int64_t> offsets, lengths;
  /// False where a lower rank of a split axis holds the same box (a key/value head that several
  /// ranks share), or an earlier stage of a pipeline (a tied head): norms, updates by norm and
  /// checkpoints take each element once, from where it is counted.
  bool counted = true;

  int64_t numel() const {
    int64_t n = 1;
    for (const int64_t length : lengths) n *= length;
    return n;
  }
  static Box whole(std::vector<int64_t> shape) {
    std::vector<int64_t> zeros(shape.size(), 0);
    return {std::move(zeros), std::move(shape)};
  }
  bool operator==(const Box&) const = default;
};

/// What the ranks of an axis hold of a parameter once backward has returned.
enum class OnAxis : uint8_t {
  split,  // other ranks hold other parts, and each has the whole gradient of its own part
  sum,    // each holds the whole value; their gradients are parts of a sum and are to be added
  same    // each holds the whole value, and the gradients are equal already
};

struct TRIREME_API ParameterLayout {
  std::vector<int64_t> shape;  // of the whole parameter
  /// This rank's parts, disjoint, in the order in which their elements lie in its tensor. Several
  /// of them (a fused QKV) follow one another in dim 0 and have equal lengths in the other dims.
  std::vector<Box> boxes;
  /// By axis of the mesh. An axis that is not named is `same`: the module is replicated there, and
  /// its inputs are equal.
  std::map<std::string, OnAxis> axes;
  /// The parameter of which this is a further copy on this rank, under a name of its own, for
  /// another stage of a pipeline (a tied head beside the embedding); empty: it is one itself.
  /// Gradients, norms and checkpoints are that parameter's.
  std::string copy_of = {};

  static ParameterLayout whole(std::vector<int64_t> shape, std::map<std::string, OnAxis> axes = {});
  OnAxis on(const std::string& axis) const;
  /// The sizes of the tensor that this rank holds.
  std::vector<int64_t> local_shape() const;
  /// One box that is the whole parameter.
  bool is_whole() const;
  bool operator==(const ParameterLayout&) const = default;
};

/// What is wrong with a layout in itself, or "".
TRIREME_API std::string fault_of(const ParameterLayout& layout);

/// The boxes as slices under one name, which is how a StateVisitor takes them.
TRIREME_API std::vector<Slice> slices_of(const std::string& name, const ParameterLayout& layout);

/// A copy of the part of `whole` that this rank holds, for loading. UsageError for another shape.
TRIREME_API at::Tensor part_of(const at::Tensor& whole, const ParameterLayout& layout);

/// A module that knows how parameters are laid out: its own, and those of modules inside of it.
class TRIREME_API LaysOutParameters {
 public:
  virtual ~LaysOutParameters();
  /// `name` is the parameter's name from this module on ("weight", "ln1.weight"). nullopt: what the
  /// modules around it say, else whole and the same on every axis.
  virtual std::optional<ParameterLayout> layout_of(const std::string& name,
                                                   const at::Tensor& parameter) const = 0;
};

using ParameterLayouts = std::map<std::string, ParameterLayout>;

/// The parameter that has this name in the whole model: the one of which it is a copy, or itself.
TRIREME_API const std::string& whole_name(const ParameterLayouts& layouts, const std::string& name);

/// With the copies as further names of what they are copies of, for a load: each is filled from
/// what a checkpoint has of that parameter.
TRIREME_API TiedNames with_copies(TiedNames tied, const ParameterLayouts& layouts);

/// The layout of every parameter below `module`, by name; tied ones under each of their names. The
/// innermost module that knows a layout decides. Throws UsageError if a layout is faulty or does
/// not fit its tensor, or if two names of one tensor have different layouts.
TRIREME_API ParameterLayouts layouts_of(const torch::nn::Module& module);

}  // namespace trireme
