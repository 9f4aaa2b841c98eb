// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/layout_state.h"

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"

namespace trireme {

// The longest ending that is a parameter's name.
const ParameterLayout* LayoutVisitor::layout_for(const std::string& name) const {
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
    if (const auto it = layouts_.find(name.substr(dot + 1)); it != layouts_.end())
      return &it->second;
  return nullptr;
}

void LayoutVisitor::tensor(const Slice& slice, at::Tensor local) {
  const ParameterLayout* layout = layout_for(slice.name);
  const auto elsewhere = [&](const Box& box) { return saving() && !box.counted; };
  if (!layout) return inner_.tensor(slice, std::move(local));
  if (layout->is_whole()) {
    if (!elsewhere(layout->boxes[0])) inner_.tensor(slice, std::move(local));
    return;
  }
  check<UsageError>(
      slice.global_shape == layout->local_shape() && slice.lengths == slice.global_shape,
      "'{}' is state of a parameter of which this rank holds a part, and has other "
      "sizes than that: it cannot be saved or loaded",
      slice.name);
  const int64_t first = slice.flat ? slice.flat->begin : 0, count = slice.numel();
  const at::Tensor elements = local.view({-1});
  int64_t at = 0;  // of the box, among this rank's elements
  for (const Box& box : layout->boxes) {
    const int64_t begin = std::max(first, at), end = std::min(first + count, at + box.numel());
    if (begin < end && !elsewhere(box)) {
      Slice part{slice.name, layout->shape, box.offsets, box.lengths};
      if (end - begin < box.numel()) part.flat = FlatRange{begin - at, end - begin};
      inner_.tensor(part, elements.narrow(0, begin - first, end - begin));
    }
    at += box.numel();
  }
}

void LayoutVisitor::copy_of_rank_0(const std::string& name, at::Tensor whole) {
  if (!first_replica_) return inner_.copy_of_rank_0(name, std::move(whole));
  if (!saving() || *first_replica_) StateVisitor::tensor(name, std::move(whole));
}

StateWalk with_layouts(StateWalk walk, const torch::nn::Module& module) {
  return [walk = std::move(walk), &module](StateVisitor& v) {
    const ParameterLayouts layouts = layouts_of(module);
    LayoutVisitor parts(v, layouts);
    walk(parts);
  };
}

}  // namespace trireme
