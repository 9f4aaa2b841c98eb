// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/hybrid/backend.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/comm/hybrid/hosts.h"
#include "trireme/comm/hybrid/hybrid_backend.h"
#include "trireme/store/store.h"

// Builds the inner groups: inside a host, across hosts, and one of all ranks.
namespace trireme::detail {

HybridBackend::HybridBackend(const BackendSpec& spec, HostLayout layout)
    : Backend(spec.rank, spec.size, spec.timeout),
      spec_(spec),
      layout_(std::move(layout)),
      even_(layout_.is_even()),
      ending_(*spec.store, rank(), size(), Deadline::after(timeout())) {
  groups_[inside] = make_inside();
  const auto peers = layout_.peers_across(rank());
  // If hosts are uneven, only their leaders communicate across hosts.
  if (even_ || layout_.index(rank()) == 0)
    groups_[across] =
        make_across(peers, fmt::format("across{}", even_ ? layout_.index(rank()) : 0));
  groups_[flat] = make_across({}, "flat");
}

bool HybridBackend::supports(Collective op, at::ScalarType dtype, at::DeviceType device) const {
  return groups_[inside]->supports(op, dtype, device) && groups_[flat]->supports(op, dtype, device);
}
bool HybridBackend::supports(ReduceOp op, at::ScalarType dtype) const {
  // avg is the sum, divided once.
  if (op == ReduceOp::avg && !groups_[inside]->supports(op, dtype)) return false;
  const ReduceOp below = op == ReduceOp::avg ? ReduceOp::sum : op;
  return groups_[inside]->supports(below, dtype) && groups_[flat]->supports(below, dtype);
}

std::shared_ptr<Backend> HybridBackend::make_inside() {
  BackendSpec spec = spec_;
  spec.name = "all";
  spec.size = static_cast<int>(layout_.peers_inside(rank()).size());
  spec.rank = layout_.index(rank());
  spec.check = "";  // only the calls of this group are checked and recorded
  spec.store =
      std::make_shared<PrefixStore>(spec_.store, fmt::format("inside{}", layout_.host(rank())));
  return make_backend("local", spec);
}

std::shared_ptr<Backend> HybridBackend::make_across(const std::vector<int>& members,
                                                    const std::string& name) {
  BackendSpec spec = spec_;
  spec.name = spec_.name + "." + name;
  spec.check = "";
  spec.store = std::make_shared<PrefixStore>(spec_.store, name);
  if (!members.empty()) {
    spec.size = static_cast<int>(members.size());
    spec.rank =
        static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  }
  return make_backend(spec_.across, spec);
}

std::shared_ptr<Backend> HybridBackend::subgroup(const std::vector<int>& members,
                                                 const std::string& name) {
  const bool one_host = std::all_of(members.begin(), members.end(), [&](int m) {
    return layout_.host(m) == layout_.host(members[0]);
  });
  if (one_host) {
    std::vector<int> indices;
    for (int m : members) indices.push_back(layout_.index(m));
    return groups_[inside]->subgroup(indices, name);
  }
  BackendSpec spec = spec_;
  spec.name = name;
  spec.size = static_cast<int>(members.size());
  spec.rank = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  spec.store = std::make_shared<PrefixStore>(spec_.store, name);
  return hybrid_backend(spec);
}

std::shared_ptr<Backend> hybrid_backend(const BackendSpec& spec) {
  check<UsageError>(spec.across == "gloo" || spec.across == "mpi" || spec.across == "nccl",
                    "the hybrid backend uses gloo, mpi or nccl across hosts, not '{}'",
                    spec.across);
  check<UsageError>(spec.store != nullptr, "the hybrid backend needs the job's store");
  return std::make_shared<HybridBackend>(
      spec,
      HostLayout(find_hosts(*spec.store, spec.rank, spec.size, Deadline::after(spec.timeout))));
}

}  // namespace trireme::detail
