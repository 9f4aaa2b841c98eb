// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "trireme/optim/optimizer_segments.h"
#include "trireme/optim/rows/row_optimizer.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/host_data.h"

// Inside optim: the rows of a table that one step touches, and the passes of optim/rules over them.
namespace trireme {

struct RowOptimizer::Touched {
  at::Tensor table;                // [rows, width]
  at::Tensor rows;                 // [n] int64, contiguous; on the CPU, checked
  at::Tensor gradients;            // [n, width], contiguous, of the table's dtype and device
  std::vector<at::Tensor> states;  // each [rows, width]

  int64_t width() const { return table.size(1); }
  bool on_device() const { return !table.device().is_cpu(); }
};

namespace detail {

// Rows of a large table are not in a cache, and no CPU foresees which comes next. Inlined: GCC
// takes a function that only fetches for one without an effect, and drops calls of it.
template <class T>
[[gnu::always_inline]] inline void fetch_ahead(const T* row, int64_t width) {
  constexpr int64_t kLine = 64 / sizeof(T), kLines = 4;  // longer rows are foreseen from there on
  for (int64_t i = 0; i < std::min(width, kLine * kLines); i += kLine)
    __builtin_prefetch(row + i, 1);
}

/// pass(p, g, states, n) over the touched rows of a table in CPU memory; neighbours in one call.
template <class T, size_t kStates, class Pass>
void for_touched(const at::Tensor& table, const at::Tensor& rows, const at::Tensor& gradients,
                 const std::array<at::Tensor, kStates>& states, const Pass& pass) {
  const int64_t width = table.size(1);
  const auto* number = host_data<int64_t>(rows);
  const auto* g = host_data<T>(gradients);
  T* const p = host_data<T>(table);
  std::array<T*, kStates> first{};
  for (size_t k = 0; k < kStates; ++k)
    first[k] = states[k].defined() ? host_data<T>(states[k]) : nullptr;
  const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 15) / width);
  at::parallel_for(0, rows.size(0), grain, [&](int64_t begin, int64_t end) {
    constexpr int64_t kAhead = 16;
    for (int64_t i = begin; i < end;) {
      if (i + kAhead < end) {
        const int64_t next = number[i + kAhead] * width;
        fetch_ahead(p + next, width);
        for (T* state : first)
          if (state) fetch_ahead(state + next, width);
      }
      int64_t count = 1;
      while (i + count < end && number[i + count] == number[i] + count) ++count;
      std::array<T*, kStates> at{};
      for (size_t k = 0; k < kStates; ++k)
        at[k] = first[k] ? first[k] + number[i] * width : nullptr;
      pass(p + number[i] * width, g + i * width, at, count * width);
      i += count;
    }
  });
}

}  // namespace detail

/// pass(T* p, const T* g, std::array<T*, kStates> states, n), T float or double: elements are
/// independent. Writes the table.
template <size_t kStates, class Touched, class Pass>
void on_cpu(const Touched& t, const std::array<at::Tensor, kStates>& states, const Pass& pass) {
  if (t.table.scalar_type() == at::kFloat)
    detail::for_touched<float>(t.table, t.rows, t.gradients, states, pass);
  else
    detail::for_touched<double>(t.table, t.rows, t.gradients, states, pass);
}

/// pass(p, g, states) of the touched rows, flat, on any device: they are copied together, and what
/// pass() has written goes back to where it was. An undefined state stays undefined.
template <size_t kStates, class Touched, class Pass>
void on_any_device(const Touched& t, const std::array<at::Tensor, kStates>& states,
                   const Pass& pass) {
  c10::AutoGradMode no_grad(false);
  const at::Tensor rows = t.rows.to(t.table.device());
  const auto gather = [&](const at::Tensor& whole) {
    return whole.defined() ? whole.index_select(0, rows) : whole;
  };
  at::Tensor p = gather(t.table);
  std::array<at::Tensor, kStates> own, flat;
  for (size_t k = 0; k < kStates; ++k) {
    own[k] = gather(states[k]);
    if (own[k].defined()) flat[k] = own[k].view({-1});
  }
  pass(p.view({-1}), t.gradients.view({-1}), flat);
  at::Tensor table = t.table;
  table.index_copy_(0, rows, p);
  for (size_t k = 0; k < kStates; ++k) {
    at::Tensor whole = states[k];
    if (whole.defined()) whole.index_copy_(0, rows, own[k]);
  }
}

/// A list for a pass of rule_aten.h: of one tensor, or empty where that is undefined.
inline at::TensorList list_of(const at::Tensor& t) {
  return t.defined() ? at::TensorList(t) : at::TensorList();
}

}  // namespace trireme
