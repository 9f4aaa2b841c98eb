// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/tensor_parallel/tensor_parallel.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <chrono>
#include <string_view>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/comm/fake/backend.h"
#include "trireme/tensor/host_data.h"

namespace trireme {

int64_t detail::digest_of(const at::Tensor& t) {
  uint64_t shape = stable_hash({static_cast<uint64_t>(t.scalar_type())});
  for (const int64_t size : t.sizes()) shape = stable_hash({shape, static_cast<uint64_t>(size)});
  const at::Tensor here = t.detach().contiguous().cpu();
  const std::string_view bytes(host_bits<const char>(here), here.nbytes());
  return static_cast<int64_t>(stable_hash({shape, stable_hash(bytes)}));
}

TensorParallel::TensorParallel(Group group) : TensorParallel(std::move(group), Options()) {}

TensorParallel::TensorParallel(Group group, Options options)
    : group_(std::move(group)),
      options_(std::move(options)),
      sharers_(std::make_shared<std::map<int, Group>>()) {
  check<UsageError>(static_cast<bool>(group_),
                    "TensorParallel: the group is empty: give it the group of the mesh's axis '{}'",
                    options_.axis);
}

TensorParallel TensorParallel::alone() { return imagined(0, 1, Options()); }

TensorParallel TensorParallel::imagined(int rank, int size, Options options) {
  detail::BackendSpec spec;
  spec.rank = rank;
  spec.size = size;
  spec.timeout = std::chrono::minutes(10);
  spec.name = "imagined";
  return {Group(detail::fake_backend(spec)), std::move(options)};
}

Group TensorParallel::sharers(int count) const {
  check<UsageError>(count > 0 && size() % count == 0,
                    "TensorParallel: {} ranks do not divide into sets of {}", size(), count);
  const auto known = sharers_->find(count);
  if (known != sharers_->end()) return known->second;
  Group group = group_;
  Group made = group.split(rank() / count, rank());
  sharers_->emplace(count, made);
  return made;
}

void TensorParallel::check_equal(const at::Tensor& t, const char* what, CallSite site) const {
  if (!options_.check_inputs || size() == 1) return;
  at::NoGradGuard no_grad;
  const auto on = t.options().dtype(at::kLong).requires_grad(false);
  const at::Tensor mine = at::full({1}, detail::digest_of(t), on);
  const at::Tensor all = at::empty({size()}, on);
  Group group = group_;
  group.all_gather_into_tensor(all, mine, site).wait();
  const at::Tensor here = all.cpu();
  const auto* digests = host_data<int64_t>(here);
  for (int r = 1; r < size(); ++r)
    check<UsageError>(
        digests[r] == digests[0],
        "{} differs between ranks {} and 0 of the tensor-parallel group '{}', whose "
        "ranks must all be given the same: let its ranks read the same data, and draw "
        "random numbers by key",
        what, r, group_.name());
}

ParameterLayout TensorParallel::replicated(const at::Tensor& parameter) const {
  return ParameterLayout::whole(
      parameter.sizes().vec(),
      {{options_.axis, options_.sequence_parallel ? OnAxis::sum : OnAxis::same}});
}

}  // namespace trireme
