// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/base/call_site.h"
#include "trireme/base/export.h"
#include "trireme/comm/group.h"

// Where a tensor-parallel part of a network begins and ends: pairs of functions of which each is
// the backward of the other.
//
// All ranks of the group compute one and the same loss, and each differentiates it as its own. So
// the gradient of what is equal on all ranks is equal on all ranks, and the gradient of a part is
// that part of the whole gradient: nothing is multiplied by the number of ranks. comm/functional.h
// is for ranks with losses of their own, and differentiates the sum of them: its all_reduce, used
// here, would multiply gradients by the number of ranks.
//
//   forward                     | backward
//   copy_to          identity   | all_reduce
//   reduce_from      all_reduce | identity
//   scatter_to       own part   | all_gather
//   gather_from      all_gather | own part
//   gather_sequence  all_gather | reduce_scatter     between parts of the sequence and what follows
//   reduce_scatter_sequence     | all_gather         … and back
//
// They return tensors of their own memory (copy_to, and all of them for one rank: the input) and
// block. Every rank calls them, forward and backward, in the same order with the same whole shape.
// Each can be differentiated again. A dim that is divided is divided by split_evenly()
// (split_plan.h) with the granule that is given. UsageError, before anything is sent, for a part
// that is not this rank's. (Megatron-LM's mappings.)
namespace trireme::regions {

/// From what is equal on all ranks to what each rank computes with it alone.
TRIREME_API at::Tensor copy_to(const at::Tensor& x, const Group& group,
                               CallSite site = CallSite::here());
/// Adds what each rank computed; the sum is equal on all of them.
TRIREME_API at::Tensor reduce_from(const at::Tensor& x, const Group& group,
                                   CallSite site = CallSite::here());

/// This rank's part of what is equal on all ranks.
TRIREME_API at::Tensor scatter_to(const at::Tensor& x, const Group& group, int64_t dim,
                                  int64_t granule = 1, CallSite site = CallSite::here());
/// The whole of which each rank has a part. `whole` is its size in `dim`; 0: the parts are equal.
/// What follows is to be the same on all ranks.
TRIREME_API at::Tensor gather_from(const at::Tensor& x, const Group& group, int64_t dim,
                                   int64_t whole = 0, int64_t granule = 1,
                                   CallSite site = CallSite::here());

/// gather_from() for what ranks then use each in its own way: their gradients are added.
TRIREME_API at::Tensor gather_sequence(const at::Tensor& x, const Group& group, int64_t dim,
                                       int64_t whole = 0, CallSite site = CallSite::here());
/// Adds what each rank computed, and gives each rank its part of the sum.
TRIREME_API at::Tensor reduce_scatter_sequence(const at::Tensor& x, const Group& group, int64_t dim,
                                               CallSite site = CallSite::here());

}  // namespace trireme::regions
