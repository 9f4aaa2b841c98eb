// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/group.h"

#include <ATen/ops/empty.h>

#include "trireme/base/check.h"
#include "trireme/comm/backend.h"

namespace trireme {
namespace {

void check_tensor(const detail::Backend& b, Collective op, const at::Tensor& t, const char* what) {
  check<UsageError>(t.defined(), "{}: undefined tensor", what);
  check<UsageError>(t.layout() == at::kStrided, "{}: a sparse tensor; make it dense first", what);
  check<UsageError>(b.supports(op, t.scalar_type(), t.device().type()),
                    "{}: the {} backend does not take {} on {}", what, b.name(),
                    c10::toString(t.scalar_type()), c10::DeviceTypeName(t.device().type(), true));
}

// `t` itself where it is contiguous, else a copy; `back` says that the call writes it.
struct Dense {
  at::Tensor tensor;
  bool copied = false;
  explicit Dense(const at::Tensor& t)
      : tensor(t.is_contiguous() ? t : t.contiguous()), copied(!t.is_contiguous()) {}
};

void copy_back(detail::Backend& b, detail::Token token, const at::Tensor& to,
               const at::Tensor& from) {
  b.when_complete(token, [to = to, from = from] {
    at::NoGradGuard no_grad;
    to.copy_(from);
  });
}

}  // namespace

void Work::wait() {
  if (backend_ && token_.kind) backend_->wait(token_, backend_->timeout());
}
void Work::wait(Duration timeout) {
  if (backend_ && token_.kind) backend_->wait(token_, timeout);
}
bool Work::is_completed() { return !backend_ || !token_.kind || backend_->completed(token_); }

detail::Backend& Group::checked() const {
  check<UsageError>(backend_ != nullptr, "no group: call init_process_group() first");
  return *backend_;
}

Work Group::work(detail::Token token) const { return token.kind ? Work(backend_, token) : Work(); }

int Group::rank() const { return checked().rank(); }
int Group::size() const { return checked().size(); }
const std::string& Group::backend() const { return checked().name(); }
Duration Group::timeout() const { return checked().timeout(); }
bool Group::supports(Collective op, at::ScalarType dtype, at::DeviceType device) const {
  return checked().supports(op, dtype, device);
}
at::Tensor Group::empty(at::IntArrayRef sizes, at::TensorOptions options) const {
  return checked().empty(sizes, options);
}
int64_t Group::shared_bytes() const { return checked().shared_bytes(); }
void Group::progress() { checked().progress(); }
void Group::abort(const std::string& why) { checked().abort(why); }

Work Group::all_reduce(at::Tensor t, ReduceOp op, CallSite site) {
  auto& b = checked();
  check_tensor(b, Collective::all_reduce, t, "all_reduce");
  Dense dense(t);
  auto token = b.all_reduce(dense.tensor, op, site);
  if (dense.copied) copy_back(b, token, t, dense.tensor);
  return work(token);
}

Work Group::broadcast(at::Tensor t, int root, CallSite site) {
  auto& b = checked();
  check_tensor(b, Collective::broadcast, t, "broadcast");
  Dense dense(t);
  auto token = b.broadcast(dense.tensor, root, site);
  if (dense.copied && rank() != root) copy_back(b, token, t, dense.tensor);
  return work(token);
}

Work Group::reduce(at::Tensor t, int root, ReduceOp op, CallSite site) {
  auto& b = checked();
  check_tensor(b, Collective::reduce, t, "reduce");
  Dense dense(t);
  auto token = b.reduce(dense.tensor, root, op, site);
  if (dense.copied && rank() == root) copy_back(b, token, t, dense.tensor);
  return work(token);
}

Work Group::all_gather_into_tensor(at::Tensor output, at::Tensor input, CallSite site) {
  auto& b = checked();
  check_tensor(b, Collective::all_gather, input, "all_gather_into_tensor");
  check_tensor(b, Collective::all_gather, output, "all_gather_into_tensor");
  check<UsageError>(output.scalar_type() == input.scalar_type(),
                    "all_gather_into_tensor: output is {}, input is {}",
                    c10::toString(output.scalar_type()), c10::toString(input.scalar_type()));
  check<UsageError>(
      output.numel() == input.numel() * size(),
      "all_gather_into_tensor: output has {} elements; {} ranks × {} of the input are {}",
      output.numel(), size(), input.numel(), input.numel() * size());
  Dense dense(input), dense_out(output);
  auto token = b.all_gather(dense_out.tensor, dense.tensor, site);
  if (dense_out.copied) copy_back(b, token, output, dense_out.tensor);
  return work(token);
}

Work Group::all_gather(std::vector<at::Tensor> outputs, at::Tensor input, CallSite site) {
  auto& b = checked();
  check_tensor(b, Collective::all_gather, input, "all_gather");
  check<UsageError>(static_cast<int>(outputs.size()) == size(),
                    "all_gather: {} outputs for {} ranks", outputs.size(), size());
  for (size_t r = 0; r < outputs.size(); ++r) {
    check_tensor(b, Collective::all_gather, outputs[r], "all_gather");
    check<UsageError>(
        outputs[r].sizes() == input.sizes() && outputs[r].scalar_type() == input.scalar_type(),
        "all_gather: output {} is not of the input's shape and dtype", r);
  }
  Dense dense(input);
  at::Tensor flat = at::empty({size() * input.numel()}, input.options());
  auto token = b.all_gather(flat, dense.tensor, site);
  b.when_complete(token, [outputs, flat, n = input.numel()] {
    at::NoGradGuard no_grad;
    for (size_t r = 0; r < outputs.size(); ++r)
      outputs[r].copy_(flat.narrow(0, static_cast<int64_t>(r) * n, n).view(outputs[r].sizes()));
  });
  return work(token);
}

Work Group::reduce_scatter_tensor(at::Tensor output, at::Tensor input, ReduceOp op, CallSite site) {
  auto& b = checked();
  check_tensor(b, Collective::reduce_scatter, input, "reduce_scatter_tensor");
  check_tensor(b, Collective::reduce_scatter, output, "reduce_scatter_tensor");
  check<UsageError>(output.scalar_type() == input.scalar_type(),
                    "reduce_scatter_tensor: output is {}, input is {}",
                    c10::toString(output.scalar_type()), c10::toString(input.scalar_type()));
  check<UsageError>(
      input.numel() == output.numel() * size(),
      "reduce_scatter_tensor: input has {} elements; {} ranks × {} of the output are {}",
      input.numel(), size(), output.numel(), output.numel() * size());
  Dense dense(input), dense_out(output);
  auto token = b.reduce_scatter(dense_out.tensor, dense.tensor, op, site);
  if (dense_out.copied) copy_back(b, token, output, dense_out.tensor);
  return work(token);
}

Work Group::reduce_scatter(at::Tensor output, std::vector<at::Tensor> inputs, ReduceOp op,
                           CallSite site) {
  check<UsageError>(static_cast<int>(inputs.size()) == size(),
                    "reduce_scatter: {} inputs for {} ranks", inputs.size(), size());
  check_tensor(checked(), Collective::reduce_scatter, output, "reduce_scatter");
  const int64_t n = output.numel();
  at::Tensor flat = at::empty({size() * n}, output.options());
  at::NoGradGuard no_grad;
  for (size_t r = 0; r < inputs.size(); ++r) {
    check_tensor(checked(), Collective::reduce_scatter, inputs[r], "reduce_scatter");
    check<UsageError>(
        inputs[r].sizes() == output.sizes() && inputs[r].scalar_type() == output.scalar_type(),
        "reduce_scatter: input {} is not of the output's shape and dtype", r);
    flat.narrow(0, static_cast<int64_t>(r) * n, n).view(output.sizes()).copy_(inputs[r]);
  }
  return reduce_scatter_tensor(output, flat, op, site);
}

Work Group::send(at::Tensor t, int to, int tag, CallSite site) {
  auto& b = checked();
  check_tensor(b, Collective::send, t, "send");
  return work(b.send(Dense(t).tensor, to, tag, site));
}

Work Group::recv(at::Tensor t, int from, int tag, CallSite site) {
  auto& b = checked();
  check_tensor(b, Collective::recv, t, "recv");
  Dense dense(t);
  auto token = b.recv(dense.tensor, from, tag, site);
  if (dense.copied) copy_back(b, token, t, dense.tensor);
  return work(token);
}

void Group::barrier(CallSite site) {
  auto& b = checked();
  b.wait(b.barrier(site), b.timeout());
}

}  // namespace trireme
