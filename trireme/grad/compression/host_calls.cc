// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/host_calls.h"

#include <ATen/ops/empty.h>

namespace trireme::host_calls {
namespace {

// post(to, from), where they may be one tensor.
template <class Post>
Work through(const Group& group, Collective op, const at::Tensor& to, const at::Tensor& from,
             at::Device device, const Post& post) {
  if (device.is_cpu() || group.supports(op, to.scalar_type(), at::kCPU)) return post(to, from);
  const at::Tensor sent = from.to(device);
  const at::Tensor got =
      to.is_same(from) ? sent : at::empty(to.sizes(), to.options().device(device));
  return Work([work = post(got, sent), to, got]() mutable {
    work.wait();
    to.copy_(got);
  });
}

}  // namespace

Work all_reduce(Group group, const at::Tensor& t, at::Device device, ReduceOp op, CallSite site) {
  return through(
      group, Collective::all_reduce, t, t, device,
      [&](const at::Tensor& to, const at::Tensor&) { return group.all_reduce(to, op, site); });
}

Work all_gather(Group group, const at::Tensor& all, const at::Tensor& own, at::Device device,
                CallSite site) {
  return through(group, Collective::all_gather, all, own, device,
                 [&](at::Tensor to, const at::Tensor& from) {
                   return group.all_gather_into_tensor(to, from, site);
                 });
}

Work all_to_all(Group group, const at::Tensor& got, const at::Tensor& sent, at::Device device,
                CallSite site) {
  return through(group, Collective::all_to_all, got, sent, device,
                 [&](at::Tensor to, const at::Tensor& from) {
                   return group.all_to_all_single(to, from, {}, {}, site);
                 });
}

}  // namespace trireme::host_calls
