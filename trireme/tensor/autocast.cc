// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/autocast.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "trireme/base/check.h"
#include "trireme/tensor/autocast_compat.h"

namespace trireme {
namespace {

AutocastState::Device device_state(at::DeviceType device) {
  if (device == at::kPrivateUse1 && !compat::kHasPrivateAutocast) return {};
  const compat::DeviceAutocast now = compat::autocast_of(device);
  return {now.enabled, now.dtype};
}

void set(const AutocastState& to) {
  compat::set_autocast(at::kCPU, {to.cpu.enabled, to.cpu.dtype});
  compat::set_autocast(at::kCUDA, {to.cuda.enabled, to.cuda.dtype});
  if (compat::kHasPrivateAutocast)
    compat::set_autocast(at::kPrivateUse1, {to.privateuseone.enabled, to.privateuseone.dtype});
  at::autocast::set_autocast_cache_enabled(to.cache);
}

void check_device(at::DeviceType device) {
  if (device == at::kPrivateUse1)
    check<UsageError>(has_autocast(device), "autocast: {}: give CPU or CUDA",
                      compat::kHasPrivateAutocast
                          ? "the library of the device privateuseone has registered no operators"
                          : "LibTorch " TORCH_VERSION " has none of the device privateuseone");
  else
    check<UsageError>(device == at::kCPU || device == at::kCUDA,
                      "autocast: the device is {}: give CPU or CUDA", c10::DeviceTypeName(device));
}

// By trying: what a build lacks does not follow from its version alone.
std::string try_half_on(at::Device device) {
  c10::AutoGradMode no_grad(false);
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  std::string lacks;
  auto attempt = [&](const char* name, auto op) {
    try {
      op();
    } catch (const c10::Error&) {
      lacks += (lacks.empty() ? "" : ", ") + std::string(name);
    }
  };
  const auto half = at::TensorOptions().dtype(at::kHalf).device(device);
  const at::Tensor square = at::ones({2, 2}, half), image = at::ones({1, 1, 2, 2}, half);
  attempt("mm", [&] { at::mm(square, square); });
  attempt("conv2d", [&] { at::conv2d(image, image); });
  attempt("layer_norm", [&] { at::layer_norm(square, {2}, square[0], square[1]); });
  return lacks;
}

}  // namespace

const std::string& detail::cpu_half_lacks() {
  static const std::string lacks = try_half_on(at::kCPU);
  return lacks;
}

std::string detail::half_lacks(at::Device device) { return try_half_on(device); }

// Otherwise a guard would have no effect.
bool has_autocast(at::DeviceType device) {
  if (device != at::kPrivateUse1) return device == at::kCPU || device == at::kCUDA;
  const auto mm = c10::Dispatcher::singleton().findSchema({"aten::mm", ""});
  return compat::kHasPrivateAutocast && mm &&
         mm->hasKernelForDispatchKey(compat::kPrivateAutocastKey);
}

void check_autocast(at::DeviceType device, at::ScalarType dtype) {
  check_device(device);
  check<UsageError>(dtype == at::kBFloat16 || dtype == at::kHalf,
                    "autocast: the dtype is {}: give BFloat16 or Half, or none to turn autocast "
                    "off",
                    c10::toString(dtype));
  if (device == at::kCUDA) {
    check<UsageError>(at::globalContext().hasCUDA(),
                      "autocast: this LibTorch sees no CUDA device: give CPU");
  } else if (device == at::kCPU && dtype == at::kHalf) {
    const std::string& lacks = detail::cpu_half_lacks();
    check<UsageError>(lacks.empty(),
                      "autocast: LibTorch {} has no float16 kernels on a CPU for {}: take "
                      "BFloat16, or float16 on a CUDA device",
                      TORCH_VERSION, lacks);
  }
}

AutocastState AutocastState::current() {
  return {device_state(at::kCPU), device_state(at::kCUDA), device_state(at::kPrivateUse1),
          at::autocast::is_autocast_cache_enabled()};
}

AutocastGuard::AutocastGuard(at::DeviceType device, std::optional<at::ScalarType> dtype, bool cache)
    : before_(AutocastState::current()) {
  check_device(device);
  if (dtype) check_autocast(device, *dtype);
  AutocastState inside = before_;
  AutocastState::Device& mine = device == at::kCPU    ? inside.cpu
                                : device == at::kCUDA ? inside.cuda
                                                      : inside.privateuseone;
  mine.enabled = dtype.has_value();
  if (dtype) mine.dtype = *dtype;
  inside.cache = cache;
  set(inside);
  at::autocast::increment_nesting();
}

AutocastGuard::AutocastGuard(const AutocastState& state) : before_(AutocastState::current()) {
  set(state);
  at::autocast::increment_nesting();
}

AutocastGuard::~AutocastGuard() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  set(before_);
}

}  // namespace trireme
