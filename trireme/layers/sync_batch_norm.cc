// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/sync_batch_norm.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <tuple>
#include <vector>

#include "trireme/base/check.h"

namespace trireme {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::Variable;
using torch::autograd::variable_list;

at::ScalarType compute_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor cast(const at::Tensor& t, at::ScalarType type) { return t.defined() ? t.to(type) : t; }

// All dims but the channels'.
std::vector<int64_t> sample_dims(const at::Tensor& x) {
  std::vector<int64_t> dims{0};
  for (int64_t d = 2; d < x.dim(); ++d) dims.push_back(d);
  return dims;
}

// [C] → [1, C, 1, …], to be broadcast over x.
at::Tensor per_channel(const at::Tensor& t, const at::Tensor& x) {
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  sizes[1] = t.numel();
  return t.to(compute_type(x)).view(sizes);
}

// Of the samples of all ranks; float64. squares: Σ (x - mean)².
struct Statistics {
  at::Tensor mean, squares;
  double count = 0;
};

// Means and squares around them are put together, rather than sums of x and x²: those cancel where
// a mean is large beside the deviation.
Statistics over_ranks(const at::Tensor& x, Group& group) {
  const int64_t channels = x.size(1);
  const int64_t n = x.numel() / channels;
  at::Tensor mine = at::zeros({2 * channels + 1}, x.options().dtype(at::kDouble));
  if (n > 0) {
    at::Tensor var, mean;
    std::tie(var, mean) = at::var_mean(x.to(compute_type(x)), sample_dims(x), /*unbiased=*/false);
    mine.narrow(0, 0, channels).copy_(mean);
    mine.narrow(0, channels, channels).copy_(var).mul_(n);
    mine.narrow(0, 2 * channels, 1).fill_(n);
  }
  at::Tensor all = at::empty({group.size(), 2 * channels + 1}, mine.options());
  group.all_gather_into_tensor(all, mine).wait();
  const at::Tensor means = all.narrow(1, 0, channels), squares = all.narrow(1, channels, channels),
                   counts = all.narrow(1, 2 * channels, 1);
  Statistics s;
  s.count = counts.sum().item<double>();
  check<UsageError>(s.count > 1,
                    "SyncBatchNorm: {} value per channel over all {} ranks; training needs more "
                    "than one: give larger batches, or call eval()",
                    s.count, group.size());
  s.mean = means.mul(counts).sum(0).div_(s.count);
  s.squares = means.sub(s.mean).pow_(2).mul_(counts).add_(squares).sum(0);
  return s;
}

// What backward needs beside tensors.
struct Normalised : torch::CustomClassHolder {
  Group group;
  double count = 0;
};

struct Normalise : Function<Normalise> {
  // mean, invstd: float64, [C].
  static Variable forward(AutogradContext* ctx, Variable x, Variable weight, Variable bias,
                          Variable mean, Variable invstd,
                          c10::intrusive_ptr<Normalised> normalised) {
    ctx->save_for_backward({x, weight, mean, invstd});
    ctx->saved_data["normalised"] = c10::IValue::make_capsule(normalised);
    const auto type = compute_type(x);
    at::Tensor y = x.to(type).sub(per_channel(mean, x));
    y.mul_(per_channel(invstd.mul(weight), x)).add_(per_channel(bias, x));
    return y.to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &invstd = saved[3];
    auto capsule = ctx->saved_data["normalised"].toCapsule();
    auto& normalised = static_cast<Normalised&>(*capsule);
    const auto type = compute_type(x);
    const auto dims = sample_dims(x);
    const int64_t channels = x.size(1);
    const at::Tensor dy = grads[0].to(type);
    at::Tensor around = x.to(type).sub(per_channel(mean, x));
    // Σ dy and Σ dy · (x - mean), of this rank's samples.
    at::Tensor sums =
        at::cat({dy.sum(dims).to(at::kDouble), dy.mul(around).sum(dims).to(at::kDouble)});
    // Copies: what follows works on the sums in place.
    variable_list result(6);
    result[1] = sums.narrow(0, channels, channels).mul(invstd).to(weight.scalar_type());
    result[2] = sums.narrow(0, 0, channels).to(weight.scalar_type(), false, /*copy=*/true);
    if (!x.requires_grad()) return result;
    normalised.group.all_reduce(sums).wait();
    sums.div_(normalised.count);
    const at::Tensor slope = sums.narrow(0, channels, channels).mul(invstd).mul(invstd).neg();
    around.mul_(per_channel(slope, x)).add_(dy).sub_(per_channel(sums.narrow(0, 0, channels), x));
    around.mul_(per_channel(invstd.mul(weight), x));
    result[0] = around.to(x.scalar_type());
    return result;
  }
};

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(const torch::nn::BatchNormOptions& options, Group group)
    : options(options), group_(std::move(group)) {
  check<UsageError>(options.num_features() >= 1,
                    "SyncBatchNorm: {} features: give the number of channels, at least 1",
                    options.num_features());
  SyncBatchNormImpl::reset();
}

SyncBatchNormImpl::SyncBatchNormImpl(const torch::nn::BatchNormOptions& options, Group group,
                                     at::Tensor weight, at::Tensor bias, at::Tensor running_mean,
                                     at::Tensor running_var, at::Tensor num_batches_tracked)
    : options(options), group_(std::move(group)) {
  hold(std::move(weight), std::move(bias), std::move(running_mean), std::move(running_var),
       std::move(num_batches_tracked));
}

void SyncBatchNormImpl::hold(at::Tensor w, at::Tensor b, at::Tensor mean, at::Tensor var,
                             at::Tensor batches) {
  const bool w_wants = w.defined() && w.requires_grad(), b_wants = b.defined() && b.requires_grad();
  weight = register_parameter("weight", std::move(w), w_wants);
  bias = register_parameter("bias", std::move(b), b_wants);
  running_mean = register_buffer("running_mean", std::move(mean));
  running_var = register_buffer("running_var", std::move(var));
  num_batches_tracked = register_buffer("num_batches_tracked", std::move(batches));
}

void SyncBatchNormImpl::reset() {
  const int64_t c = options.num_features();
  at::Tensor w, b, mean, var, batches;
  if (options.affine()) {
    w = at::ones({c}).requires_grad_();
    b = at::zeros({c}).requires_grad_();
  }
  if (options.track_running_stats()) {
    mean = at::zeros({c});
    var = at::ones({c});
    batches = at::zeros({}, at::kLong);
  }
  hold(w, b, mean, var, batches);
}

void SyncBatchNormImpl::reset_running_stats() {
  if (!running_mean.defined()) return;
  running_mean.zero_();
  running_var.fill_(1);
  num_batches_tracked.zero_();
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "trireme::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps()
         << ", momentum=";
  if (options.momentum())
    stream << *options.momentum();
  else
    stream << "none";
  stream << ", affine=" << (options.affine() ? "true" : "false")
         << ", track_running_stats=" << (options.track_running_stats() ? "true" : "false") << ")";
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& x) {
  check<UsageError>(x.dim() >= 2 && x.dim() <= 5 && x.size(1) == options.num_features(),
                    "SyncBatchNorm: the input has {} dims and {} channels; it must be [n, {}] or "
                    "[n, {}, …] with at most 5 dims",
                    x.dim(), x.dim() > 1 ? x.size(1) : 0, options.num_features(),
                    options.num_features());
  check<UsageError>(x.is_floating_point(), "SyncBatchNorm: the input is {}: give a floating type",
                    c10::toString(x.scalar_type()));
  if (is_training()) return train_forward(x);
  const auto type = compute_type(x);
  return at::batch_norm(x.to(type), cast(weight, type), cast(bias, type), cast(running_mean, type),
                        cast(running_var, type), /*training=*/!running_mean.defined(), 0,
                        options.eps(), at::globalContext().userEnabledCuDNN())
      .to(x.scalar_type());
}

at::Tensor SyncBatchNormImpl::train_forward(const at::Tensor& x) {
  check<UsageError>(static_cast<bool>(group_),
                    "SyncBatchNorm: the module has no group to synchronise with: give one to its "
                    "constructor, or call convert_sync_batch_norm(model, group) once");
  at::Tensor mean, invstd;
  auto normalised = c10::make_intrusive<Normalised>();
  {
    at::NoGradGuard no_grad;
    Statistics s = over_ranks(x, group_);
    if (running_mean.defined()) move_running_stats(s.mean, s.squares, s.count);
    mean = s.mean;
    invstd = s.squares.div_(s.count).add_(options.eps()).rsqrt_();
    normalised->group = group_;
    normalised->count = s.count;
  }
  const at::Tensor w = weight.defined() ? weight : at::ones_like(mean);
  const at::Tensor b = bias.defined() ? bias : at::zeros_like(mean);
  return Normalise::apply(x, w, b, mean, invstd, normalised);
}

// The same on every rank, so that nothing needs to be broadcast.
void SyncBatchNormImpl::move_running_stats(const at::Tensor& mean, const at::Tensor& squares,
                                           double count) {
  num_batches_tracked.add_(1);
  const double momentum =
      options.momentum() ? *options.momentum() : 1.0 / num_batches_tracked.item<double>();
  const auto type = running_mean.scalar_type();
  running_mean.mul_(1 - momentum).add_(mean.to(type), momentum);
  running_var.mul_(1 - momentum).add_(squares.div(count - 1).to(type), momentum);
}

}  // namespace trireme
