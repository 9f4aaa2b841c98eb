// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/grad/bucket_plan.h"
#include "trireme/grad/comm_hook.h"
#include "trireme/tensor/gradient_place.h"
#include "trireme/tensor/parameter_table.h"

namespace trireme {

/// Where gradients live: one block per dtype, from Group::empty, cut into buckets. p.grad() of a
/// bound parameter is an alias of its place that autograd does not count as a view, so zero_grad()
/// and in-place adds are allowed on it.
class BucketMemory {
 public:
  BucketMemory(const NamedTensors& parameters, const Group& group);

  /// Buckets in launch order for parameters that come in `order`; those of `separate` (by index;
  /// may be empty: none) come last, in buckets of their own. What places held moves along, and
  /// gradients that were bound are bound again.
  void lay_out(const std::vector<int>& order, const BucketSizes& sizes,
               const std::vector<bool>& separate);

  struct Bucket {
    std::vector<int> members;
    std::vector<GradBucketPart> parts;
    at::Tensor flat;
    int64_t elements = 0;  // of flat
  };
  const std::vector<Bucket>& buckets() const { return buckets_; }
  const Bucket& bucket_of(size_t parameter) const { return buckets_[home_[parameter]]; }
  size_t bucket_index(size_t parameter) const { return home_[parameter]; }
  /// p's place, in p's shape.
  const at::Tensor& place(size_t parameter) const { return places_[parameter]; }
  bool bound(size_t parameter) const;
  /// The place, for somebody who will write a gradient there.
  GradientPlace lend(size_t parameter);
  /// Makes p.grad() the place; what p.grad() held is copied there, and looked at on the way.
  void bind(size_t parameter);
  /// What stands in a place has changed since it was bound, or comes from elsewhere.
  void changed(size_t parameter) { part(parameter).finite.reset(); }

 private:
  GradBucketPart& part(size_t parameter) {
    return buckets_[home_[parameter]].parts[index_[parameter]];
  }

  struct Kind {  // of a parameter, when this was made: its place is for that
    std::vector<int64_t> sizes;
    at::ScalarType dtype;
    int64_t numel = 0, bytes = 0;  // bytes: of an element
    int64_t lines() const;
  };

  const NamedTensors& parameters_;
  std::vector<Kind> kinds_;
  std::map<at::ScalarType, at::Tensor> blocks_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> home_, index_;  // a parameter's bucket, and its place among the parts
  std::vector<at::Tensor> places_;
  std::vector<bool> lent_;  // and not bound since
  std::vector<std::vector<int>> plan_;
};

}  // namespace trireme
