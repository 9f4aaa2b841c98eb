// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <string>

#include "trireme/base/encoding.h"
#include "trireme/base/export.h"

// Tensors as arguments and results of remote calls, and as members of structs in them: include this
// before TRIREME_REMOTE names a function that has some.
//
// Dense tensors of the CPU, of every dtype that collectives take, with any strides; an undefined
// tensor stays undefined. One that is larger than kInlineBytes travels beside the message without a
// copy where it is contiguous. As an argument it must therefore not change until the call's Future
// is ready. As a result it may: where its handler still holds the memory, a copy travels. What
// arrives is contiguous, belongs to the receiver, and requires no gradient, unless the call is made
// within a context (rpc/autograd/context.h). UsageError: a tensor of
// another device, sparse, quantised, or of another dtype.
namespace trireme::encoding {

template <>
struct Custom<at::Tensor> {
  static constexpr uint64_t kInlineBytes = 1024;
  static std::string type() { return "tensor"; }
  TRIREME_API static void put(Writer& writer, const at::Tensor& tensor);
  TRIREME_API static void get(Reader& reader, at::Tensor& tensor);
};

}  // namespace trireme::encoding

namespace trireme::rpc {

class Peer;

/// A tensor of the CPU whose elements are not set, for an argument of a call to `to`: its memory is
/// shared with that worker where both are on one host, so that it is given and not copied. Fill it,
/// pass it, and write to it no more: the handler's tensor is the same memory. Sent to another
/// worker, or as a view of a part, it is copied like any tensor.
TRIREME_API at::Tensor empty(const Peer& to, at::IntArrayRef sizes, at::ScalarType dtype);

}  // namespace trireme::rpc
