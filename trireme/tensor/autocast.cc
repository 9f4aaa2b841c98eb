// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/autocast.h"

#include <ATen/ops/conv2d.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/tensor/autocast_compat.h"

namespace trireme {
namespace {

void set(const AutocastState& to) {
  for (size_t i = 0; i < kDeviceKinds.size(); ++i)
    compat::set_autocast(kDeviceKinds[i], {to.by_kind[i].enabled, to.by_kind[i].dtype});
  at::autocast::set_autocast_cache_enabled(to.cache);
}

size_t number_of(at::DeviceType device) {
  const auto found = std::find(kDeviceKinds.begin(), kDeviceKinds.end(), device);
  check<UsageError>(found != kDeviceKinds.end(), "autocast: the device is {}: give CPU or CUDA",
                    c10::DeviceTypeName(device));
  return static_cast<size_t>(found - kDeviceKinds.begin());
}

void check_device(at::DeviceType device) {
  number_of(device);
  const std::string why = device_kind(device)->why_no_autocast();
  check<UsageError>(why.empty(), "autocast: {}: give CPU or CUDA", why);
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
  return std::count(kDeviceKinds.begin(), kDeviceKinds.end(), device) &&
         device_kind(device)->why_no_autocast().empty();
}

void check_autocast(at::DeviceType device, at::ScalarType dtype) {
  check_device(device);
  check<UsageError>(dtype == at::kBFloat16 || dtype == at::kHalf,
                    "autocast: the dtype is {}: give BFloat16 or Half, or none to turn autocast "
                    "off",
                    c10::toString(dtype));
  const std::string why = device_kind(device)->why_no_autocast_in(dtype);
  check<UsageError>(why.empty(), "autocast: {}", why);
}

AutocastState AutocastState::current() {
  AutocastState now;
  for (size_t i = 0; i < kDeviceKinds.size(); ++i) {
    const compat::DeviceAutocast of = compat::autocast_of(kDeviceKinds[i]);
    now.by_kind[i] = {of.enabled, of.dtype};
  }
  now.cache = at::autocast::is_autocast_cache_enabled();
  return now;
}

AutocastState::Device& AutocastState::of(at::DeviceType device) {
  return by_kind[number_of(device)];
}

AutocastGuard::AutocastGuard(at::DeviceType device, std::optional<at::ScalarType> dtype, bool cache)
    : before_(AutocastState::current()) {
  check_device(device);
  if (dtype) check_autocast(device, *dtype);
  AutocastState inside = before_;
  AutocastState::Device& mine = inside.of(device);
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
