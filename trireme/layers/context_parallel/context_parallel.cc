// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/context_parallel/context_parallel.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include <chrono>

#include "trireme/base/check.h"
#include "trireme/comm/fake/backend.h"

namespace trireme {

ContextParallel::ContextParallel(Group group) : ContextParallel(std::move(group), Options()) {}

ContextParallel::ContextParallel(Group group, Options options)
    : group_(std::move(group)), options_(options) {
  check<UsageError>(static_cast<bool>(group_),
                    "ContextParallel: the group is empty: give it the group of the mesh's axis "
                    "'cp'");
}

ContextParallel ContextParallel::alone() { return imagined(0, 1, Options()); }

ContextParallel ContextParallel::imagined(int rank, int size, Options options) {
  detail::BackendSpec spec;
  spec.rank = rank;
  spec.size = size;
  spec.timeout = std::chrono::minutes(10);
  spec.name = "imagined";
  return {Group(detail::fake_backend(spec)), options};
}

std::vector<Part> ContextParallel::parts(int64_t time) const {
  const auto fault = fault_of_context(time, size());
  check<UsageError>(fault.empty(), "ContextParallel: {}", fault);
  return context_places(time, size(), rank(), options_.balance);
}

at::Tensor ContextParallel::places(int64_t time, at::Device device) const {
  const at::TensorOptions numbers = at::TensorOptions(at::kLong).device(device);
  std::vector<at::Tensor> all;
  for (const Part& p : parts(time)) all.push_back(at::arange(p.begin, p.end(), numbers));
  return all.size() == 1 ? all[0] : at::cat(all);
}

at::Tensor ContextParallel::own(const at::Tensor& whole, int64_t dim) const {
  if (size() == 1) return whole;
  std::vector<at::Tensor> all;
  for (const Part& p : parts(whole.size(dim))) all.push_back(whole.narrow(dim, p.begin, p.length));
  return all.size() == 1 ? all[0] : at::cat(all, dim);
}

}  // namespace trireme
