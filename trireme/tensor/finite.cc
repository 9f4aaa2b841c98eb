// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/finite.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

#include "trireme/tensor/finite_aten.h"
#include "trireme/tensor/finite_kernels.h"
#include "trireme/tensor/host_data.h"

namespace trireme {
namespace {

constexpr int64_t kGrain = 1 << 16;

bool plain(const at::Tensor& t) {
  return t.device().is_cpu() && t.layout() == at::kStrided && t.is_contiguous();
}

bool has_kernel(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
}

template <class T>
bool look(const at::Tensor& from, const at::Tensor* to,
          bool (*kernel)(const T*, T*, size_t, at::ScalarType)) {
  const auto* p = host_bits<const T>(from);
  T* q = to ? host_bits<T>(*to) : nullptr;
  std::atomic<bool> finite{true};
  at::parallel_for(0, from.numel(), kGrain, [&](int64_t begin, int64_t end) {
    if (!kernel(p + begin, q ? q + begin : nullptr, static_cast<size_t>(end - begin),
                from.scalar_type()))
      finite = false;
  });
  return finite;
}

// `to`: null, or where to copy.
bool look(const at::Tensor& from, const at::Tensor* to) {
  switch (from.element_size()) {
    case 8:
      return look<int64_t>(from, to, [](const int64_t* p, int64_t* q, size_t n, at::ScalarType) {
        return finite_bits64(p, q, n);
      });
    case 4:
      return look<int32_t>(from, to, [](const int32_t* p, int32_t* q, size_t n, at::ScalarType) {
        return finite_bits32(p, q, n);
      });
    default:
      return look<int16_t>(
          from, to, [](const int16_t* p, int16_t* q, size_t n, at::ScalarType type) {
            return finite_bits16(p, q, n, type == at::kHalf ? int16_t{0x7c00} : int16_t{0x7f80});
          });
  }
}

}  // namespace

bool all_finite(const at::Tensor& t) {
  if (plain(t) && has_kernel(t.scalar_type())) return look(t, nullptr);
  return all_finite_aten(t);
}

int64_t first_not_finite(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> elsewhere;
  std::vector<int64_t> numbers;
  auto first = static_cast<int64_t>(tensors.size());
  for (int64_t i = 0; i < first; ++i) {
    const at::Tensor& t = tensors[static_cast<size_t>(i)];
    if (!t.defined()) continue;
    if (t.device().is_cpu()) {
      if (!all_finite(t)) first = i;
      continue;
    }
    elsewhere.push_back(t);
    numbers.push_back(i);
  }
  const int64_t bad = first_not_finite_aten(elsewhere);
  if (bad >= 0) first = std::min(first, numbers[static_cast<size_t>(bad)]);
  return first == static_cast<int64_t>(tensors.size()) ? -1 : first;
}

bool copy_all_finite(const at::Tensor& to, const at::Tensor& from) {
  if (plain(to) && plain(from) && to.scalar_type() == from.scalar_type() &&
      to.sizes() == from.sizes() && has_kernel(from.scalar_type()))
    return look(from, &to);
  to.copy_(from);
  return all_finite(to);
}

}  // namespace trireme
