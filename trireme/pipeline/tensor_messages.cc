// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/tensor_messages.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/tensor/host_data.h"

namespace trireme::pipeline {
namespace {

constexpr int64_t kMagic = 0x54524950;  // "TRIP"
constexpr int64_t kVersion = 1;
constexpr int64_t kMostTensors = 8, kMostDims = 8;
constexpr int64_t kEach = 3 + kMostDims;  // dtype, requires_grad, dims, sizes
constexpr int64_t kNumbers = 3 + kMostTensors * kEach;
constexpr int64_t kMostElements = int64_t{1} << 40;

// Floating dtypes alone carry gradients; the rest are masks and positions.
constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong,
                                      at::kInt,   at::kShort,  at::kChar, at::kByte,     at::kBool};

int64_t code_of(at::ScalarType dtype) {
  for (size_t i = 0; i < std::size(kDtypes); ++i)
    if (kDtypes[i] == dtype) return static_cast<int64_t>(i);
  fail<UsageError>("a stage gives a tensor of dtype {}, which stages cannot pass on: cast it",
                   c10::toString(dtype));
}

at::Tensor line_of(const std::vector<at::Tensor>& tensors) {
  check<UsageError>(tensors.size() <= kMostTensors,
                    "a stage gives {} tensors; {} at most go to the next stage: stack some of them",
                    tensors.size(), kMostTensors);
  at::Tensor line = at::empty({kNumbers}, at::kLong).zero_();
  auto* n = host_data<int64_t>(line);
  n[0] = kMagic, n[1] = kVersion, n[2] = static_cast<int64_t>(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& t = tensors[i];
    check<UsageError>(t.defined() && t.layout() == at::kStrided && t.dim() <= kMostDims,
                      "output {} of a stage is undefined, sparse, or has more than {} dims", i,
                      kMostDims);
    int64_t* of = n + 3 + static_cast<int64_t>(i) * kEach;
    of[0] = code_of(t.scalar_type());
    of[1] = t.requires_grad();
    of[2] = t.dim();
    for (int64_t d = 0; d < t.dim(); ++d) of[3 + d] = t.size(d);
  }
  return line;
}

}  // namespace

TensorMessages::TensorMessages(Group group, at::Device device)
    : group_(std::move(group)), device_(device) {}

// A copy in memory that the peer reads in place, where the group has such memory: this rank goes on
// to compute, and would not pass on the rest of a message meanwhile.
at::Tensor TensorMessages::readable(const at::Tensor& tensor) const {
  if (!tensor.device().is_cpu()) return tensor.contiguous();
  return group_.empty(tensor.sizes(), tensor.options()).copy_(tensor);
}

void TensorMessages::post(at::Tensor tensor, int to, int tag) {
  Work work = group_.send(tensor, to, tag);
  sent_.push_back({std::move(tensor), std::move(work)});
}

void TensorMessages::send(const std::vector<at::Tensor>& tensors, int to, int tag) {
  post(line_of(tensors), to, tag);
  send_known(tensors, to, tag);
}

void TensorMessages::send_known(const std::vector<at::Tensor>& tensors, int to, int tag) {
  for (const at::Tensor& t : tensors)
    if (t.numel() > 0) post(readable(t.detach()), to, tag);
}

std::vector<at::Tensor> TensorMessages::recv(int from, int tag) {
  const Span span("exposed_comm", "wait for a stage");
  at::Tensor line = at::empty({kNumbers}, at::kLong);
  group_.recv(line, from, tag).wait();
  const auto* n = host_data<int64_t>(line);
  check<Corrupt>(n[0] == kMagic && n[1] == kVersion && n[2] >= 0 && n[2] <= kMostTensors,
                 "rank {} sent something that is not a stage's output of version {}", from,
                 kVersion);
  std::vector<at::Tensor> tensors;
  std::vector<Work> works;
  for (int64_t i = 0; i < n[2]; ++i) {
    const int64_t* of = n + 3 + i * kEach;
    check<Corrupt>(of[0] >= 0 && of[0] < static_cast<int64_t>(std::size(kDtypes)) && of[2] >= 0 &&
                       of[2] <= kMostDims,
                   "rank {} sent a tensor of a dtype or a number of dims that there is not", from);
    int64_t elements = 1;
    for (int64_t d = 0; d < of[2]; ++d) {
      check<Corrupt>(of[3 + d] >= 0 && of[3 + d] <= kMostElements, "rank {} sent a size of {}",
                     from, of[3 + d]);
      elements *= of[3 + d];
      check<Corrupt>(elements <= kMostElements, "rank {} sent a tensor of more than 2^40 elements",
                     from);
    }
    at::Tensor t = at::empty({of + 3, static_cast<size_t>(of[2])},
                             at::TensorOptions(kDtypes[of[0]]).device(device_));
    if (elements > 0) works.push_back(group_.recv(t, from, tag));
    tensors.push_back(std::move(t));
  }
  for (Work& work : works) work.wait();
  for (int64_t i = 0; i < n[2]; ++i)
    if (n[3 + i * kEach + 1]) tensors[static_cast<size_t>(i)].requires_grad_();
  return tensors;
}

std::vector<at::Tensor> TensorMessages::recv_like(const std::vector<at::Tensor>& like, int from,
                                                  int tag) {
  const Span span("exposed_comm", "wait for a stage");
  std::vector<at::Tensor> tensors;
  std::vector<Work> works;
  for (const at::Tensor& t : like) {
    tensors.push_back(at::empty(t.sizes(), t.options().requires_grad(false)));
    if (t.numel() > 0) works.push_back(group_.recv(tensors.back(), from, tag));
  }
  for (Work& work : works) work.wait();
  return tensors;
}

void TensorMessages::progress() {
  while (!sent_.empty() && sent_.front().work.is_completed()) sent_.pop_front();
}

void TensorMessages::finish() {
  const Span span("exposed_comm", "wait for a stage");
  for (; !sent_.empty(); sent_.pop_front()) sent_.front().work.wait();
}

}  // namespace trireme::pipeline
