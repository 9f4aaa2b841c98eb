// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>

#include <algorithm>
#include <memory>

#include "trireme/comm/group_check.h"

// Collectives of lists of tensors: packed into one buffer and one call if the parts are equal, else
// one call per part.
namespace trireme {

using detail::check_list;
using detail::check_reduction;
using detail::check_root;
using detail::check_tensor;
using detail::flatten;
using detail::unflatten;

namespace detail {

void check_list(const Backend& b, const std::vector<at::Tensor>& list, const char* what,
                const char* name) {
  check<UsageError>(static_cast<int>(list.size()) == b.size(), "{}: {} {} for {} ranks", what,
                    list.size(), name, b.size());
}

at::Tensor flatten(const std::vector<at::Tensor>& tensors, int64_t extra) {
  at::NoGradGuard no_grad;
  int64_t numel = extra;
  for (const auto& t : tensors) numel += t.numel();
  at::Tensor flat = at::empty({numel}, tensors.at(0).options().requires_grad(false));
  int64_t at = 0;
  for (const auto& t : tensors) {
    flat.narrow(0, at, t.numel()).view(t.sizes()).copy_(t);
    at += t.numel();
  }
  return flat;
}

void unflatten(const at::Tensor& flat, const std::vector<at::Tensor>& to) {
  at::NoGradGuard no_grad;
  int64_t at = 0;
  for (const auto& t : to) {
    t.copy_(flat.narrow(0, at, t.numel()).view(t.sizes()));
    at += t.numel();
  }
}

}  // namespace detail

namespace {

bool equal_shapes(const std::vector<at::Tensor>& list) {
  return std::all_of(list.begin(), list.end(),
                     [&](const at::Tensor& t) { return t.sizes() == list[0].sizes(); });
}

void check_part(const at::Tensor& part, const at::Tensor& own, const char* what, const char* name,
                size_t index) {
  check<UsageError>(part.scalar_type() == own.scalar_type() && part.sizes() == own.sizes(),
                    "{}: {} {} does not have the shape and dtype of this rank's other tensor", what,
                    name, index);
}

void check_one_dtype(const std::vector<at::Tensor>& list, const char* what) {
  check<UsageError>(!list.empty(), "{}: an empty list", what);
  for (size_t i = 0; i < list.size(); ++i)
    check<UsageError>(list[i].defined() && list[i].scalar_type() == list[0].scalar_type() &&
                          list[i].device() == list[0].device(),
                      "{}: tensor {} does not have the dtype and device of the first", what, i);
}

// Several calls as one Work: complete with the last of them.
Work join(std::vector<Work> parts) { return parts.empty() ? Work() : Work(std::move(parts)); }

}  // namespace

Work Group::all_gather(std::vector<at::Tensor> outputs, at::Tensor input, CallSite site) {
  auto& b = checked();
  check_tensor(b, Collective::all_gather, input, "all_gather");
  check_list(b, outputs, "all_gather", "outputs");
  for (const auto& t : outputs) check_tensor(b, Collective::all_gather, t, "all_gather");
  const auto me = static_cast<size_t>(rank());
  check_part(outputs[me], input, "all_gather", "output", me);
  for (const auto& t : outputs)
    check<UsageError>(t.scalar_type() == input.scalar_type(),
                      "all_gather: outputs of several dtypes");
  if (!equal_shapes(outputs)) {  // each part from its owner
    at::NoGradGuard no_grad;
    outputs[me].copy_(input);
    std::vector<Work> parts;
    for (int r = 0; r < size(); ++r)
      parts.push_back(broadcast(outputs[static_cast<size_t>(r)], r, site));
    return join(std::move(parts));
  }
  detail::Dense dense(input);
  at::Tensor flat = at::empty({size() * input.numel()}, input.options().requires_grad(false));
  auto token =
      b.post({.op = Collective::all_gather, .input = &dense.tensor, .output = &flat, .site = site});
  b.when_complete(token, [outputs, flat] { unflatten(flat, outputs); });
  return work(token);
}

Work Group::reduce_scatter(at::Tensor output, std::vector<at::Tensor> inputs, Reduction op,
                           CallSite site) {
  auto& b = checked();
  check_tensor(b, Collective::reduce_scatter, output, "reduce_scatter");
  check_reduction(b, op, output, "reduce_scatter");
  check_list(b, inputs, "reduce_scatter", "inputs");
  for (const auto& t : inputs) check_tensor(b, Collective::reduce_scatter, t, "reduce_scatter");
  const auto me = static_cast<size_t>(rank());
  check_part(inputs[me], output, "reduce_scatter", "input", me);
  for (const auto& t : inputs)
    check<UsageError>(t.scalar_type() == output.scalar_type(),
                      "reduce_scatter: inputs of several dtypes");
  if (equal_shapes(inputs)) {
    at::Tensor flat = flatten(inputs);
    return reduce_scatter_tensor(output, flat, op, site);
  }
  at::NoGradGuard no_grad;
  output.copy_(inputs[me]);
  std::vector<Work> parts;
  for (int r = 0; r < size(); ++r)
    parts.push_back(reduce(r == rank() ? output : inputs[static_cast<size_t>(r)], r, op, site));
  return join(std::move(parts));
}

Work Group::gather(std::vector<at::Tensor> outputs, at::Tensor input, int root, CallSite site) {
  auto& b = checked();
  check_tensor(b, Collective::gather, input, "gather");
  check_root(b, root, "gather");
  detail::Dense dense(input);
  at::Tensor flat;
  if (rank() == root) {
    check_list(b, outputs, "gather", "outputs");
    for (size_t r = 0; r < outputs.size(); ++r)
      check_part(outputs[r], input, "gather", "output", r);
    flat = at::empty({size() * input.numel()}, input.options().requires_grad(false));
  } else {
    check<UsageError>(outputs.empty(), "gather: outputs on rank {}, the root is {}", rank(), root);
  }
  auto token = b.post({.op = Collective::gather,
                       .root = root,
                       .input = &dense.tensor,
                       .output = &flat,
                       .site = site});
  if (flat.defined()) b.when_complete(token, [outputs, flat] { unflatten(flat, outputs); });
  return work(token);
}

Work Group::scatter(at::Tensor output, std::vector<at::Tensor> inputs, int root, CallSite site) {
  auto& b = checked();
  check_tensor(b, Collective::scatter, output, "scatter");
  check_root(b, root, "scatter");
  at::Tensor flat;
  if (rank() == root) {
    check_list(b, inputs, "scatter", "inputs");
    for (size_t r = 0; r < inputs.size(); ++r) check_part(inputs[r], output, "scatter", "input", r);
    flat = flatten(inputs);
  } else {
    check<UsageError>(inputs.empty(), "scatter: inputs on rank {}, the root is {}", rank(), root);
  }
  detail::Dense dense(output);
  auto token = b.post({.op = Collective::scatter,
                       .root = root,
                       .input = &flat,
                       .output = &dense.tensor,
                       .site = site});
  if (dense.copied) detail::copy_back(b, token, output, dense.tensor);
  return work(token);
}

Work Group::all_to_all(std::vector<at::Tensor> outputs, std::vector<at::Tensor> inputs,
                       CallSite site) {
  auto& b = checked();
  check_list(b, outputs, "all_to_all", "outputs");
  check_list(b, inputs, "all_to_all", "inputs");
  std::vector<int64_t> out_counts, in_counts;
  for (size_t r = 0; r < inputs.size(); ++r) {
    check_tensor(b, Collective::all_to_all, inputs[r], "all_to_all");
    check_tensor(b, Collective::all_to_all, outputs[r], "all_to_all");
    check<UsageError>(inputs[r].scalar_type() == inputs[0].scalar_type() &&
                          outputs[r].scalar_type() == inputs[0].scalar_type(),
                      "all_to_all: tensors of several dtypes");
    out_counts.push_back(outputs[r].numel());
    in_counts.push_back(inputs[r].numel());
  }
  at::Tensor from = flatten(inputs);
  int64_t total = 0;
  for (int64_t n : out_counts) total += n;
  at::Tensor to = at::empty({total}, from.options());
  auto token = b.post({.op = Collective::all_to_all,
                       .input = &from,
                       .output = &to,
                       .input_counts = &in_counts,
                       .output_counts = &out_counts,
                       .site = site});
  b.when_complete(token, [outputs, to] { unflatten(to, outputs); });
  return work(token);
}

Work Group::all_reduce_coalesced(std::vector<at::Tensor> tensors, Reduction op, CallSite site) {
  auto& b = checked();
  check_one_dtype(tensors, "all_reduce_coalesced");
  for (const auto& t : tensors) check_tensor(b, Collective::all_reduce, t, "all_reduce_coalesced");
  check_reduction(b, op, tensors[0], "all_reduce_coalesced");
  at::Tensor flat = flatten(tensors);
  if (op.factor != 1) flat.mul_(op.factor);
  auto token = b.post({.op = Collective::all_reduce,
                       .reduction = op.op,
                       .input = &flat,
                       .output = &flat,
                       .site = site});
  b.when_complete(token, [tensors, flat] { unflatten(flat, tensors); });
  return work(token);
}

Work Group::all_gather_into_tensor_coalesced(std::vector<at::Tensor> outputs,
                                             std::vector<at::Tensor> inputs, CallSite site) {
  auto& b = checked();
  const char* what = "all_gather_into_tensor_coalesced";
  check_one_dtype(inputs, what);
  check_one_dtype(outputs, what);
  check<UsageError>(outputs.size() == inputs.size(), "{}: {} outputs for {} inputs", what,
                    outputs.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(b, Collective::all_gather, inputs[i], what);
    check<UsageError>(outputs[i].scalar_type() == inputs[i].scalar_type() &&
                          outputs[i].numel() == inputs[i].numel() * size(),
                      "{}: output {} does not hold input {} of {} ranks", what, i, i, size());
  }
  at::Tensor from = flatten(inputs);
  at::Tensor to = at::empty({size(), from.numel()}, from.options());
  auto token = b.post({.op = Collective::all_gather, .input = &from, .output = &to, .site = site});
  b.when_complete(token, [outputs, inputs, to] {
    at::NoGradGuard no_grad;
    int64_t at = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int64_t n = inputs[i].numel();
      outputs[i].copy_(to.narrow(1, at, n).reshape(outputs[i].sizes()));
      at += n;
    }
  });
  return work(token);
}

Work Group::reduce_scatter_tensor_coalesced(std::vector<at::Tensor> outputs,
                                            std::vector<at::Tensor> inputs, Reduction op,
                                            CallSite site) {
  auto& b = checked();
  const char* what = "reduce_scatter_tensor_coalesced";
  check_one_dtype(inputs, what);
  check_one_dtype(outputs, what);
  check<UsageError>(outputs.size() == inputs.size(), "{}: {} outputs for {} inputs", what,
                    outputs.size(), inputs.size());
  check_reduction(b, op, inputs[0], what);
  int64_t each = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(b, Collective::reduce_scatter, inputs[i], what);
    check<UsageError>(outputs[i].scalar_type() == inputs[i].scalar_type() &&
                          inputs[i].numel() == outputs[i].numel() * size(),
                      "{}: input {} does not hold output {} of {} ranks", what, i, i, size());
    each += outputs[i].numel();
  }
  at::NoGradGuard no_grad;
  at::Tensor from = at::empty({size(), each}, inputs[0].options().requires_grad(false));
  int64_t at = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int64_t n = outputs[i].numel();
    from.narrow(1, at, n).copy_(inputs[i].reshape({size(), n}));
    at += n;
  }
  if (op.factor != 1) from.mul_(op.factor);
  at::Tensor to = at::empty({each}, from.options());
  auto token = b.post({.op = Collective::reduce_scatter,
                       .reduction = op.op,
                       .input = &from,
                       .output = &to,
                       .site = site});
  b.when_complete(token, [outputs, to] { unflatten(to, outputs); });
  return work(token);
}

}  // namespace trireme
