// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/rounds/gradient_checks.h"

#include "trireme/base/check.h"

namespace trireme {

void check_reducible(const NamedTensors& parameters, const Group& group) {
  for (const auto& [name, p] : parameters) {
    check<UsageError>(group.supports(Collective::all_reduce, p.scalar_type(), p.device().type()),
                      "parameter '{}' is {} on {}, which the {} backend cannot reduce", name,
                      c10::toString(p.scalar_type()), c10::DeviceTypeName(p.device().type(), true),
                      group.backend());
    check<UsageError>(p.is_floating_point() || p.is_complex(),
                      "parameter '{}' is {}: gradients are floating or complex", name,
                      c10::toString(p.scalar_type()));
  }
}

void detail::refuse_gradient(const std::string& name, const at::Tensor& grad,
                             const at::Tensor& place) {
  check<UsageError>(grad.defined(), "parameter '{}' is ready without a gradient", name);
  check<UsageError>(!grad.requires_grad(),
                    "backward(create_graph=true) through DistributedDataParallel: the gradient of "
                    "'{}' would not be reduced with its graph. Use torch::autograd::grad instead",
                    name);
  check<UsageError>(!grad.is_sparse(),
                    "the gradient of '{}' is sparse: name it in DdpOptions::sparse (those of "
                    "torch::nn::Embedding with sparse(true) are found by themselves)",
                    name);
  fail<UsageError>(
      "the gradient of '{}' is {} now; it was {} when DistributedDataParallel was built. Build it "
      "after to(dtype)",
      name, c10::toString(grad.scalar_type()), c10::toString(place.scalar_type()));
}

bool is_fact_of_the_group(const Error& error) {
  return dynamic_cast<const Mismatch*>(&error) || dynamic_cast<const PeerLost*>(&error) ||
         dynamic_cast<const Timeout*>(&error) || dynamic_cast<const Aborted*>(&error);
}

std::string hook_failure(int rank, size_t bucket, const std::string& what) {
  return fmt::format("the communication hook of rank {} failed for bucket {}: {}", rank, bucket,
                     what);
}

std::string before_reducing_failure(int rank, const std::string& what) {
  return fmt::format("DdpOptions::before_reducing of rank {} failed: {}", rank, what);
}

}  // namespace trireme
