// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/rows/row_gradients.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "trireme/base/check.h"
#include "trireme/tensor/host_data.h"

namespace trireme {
namespace {

std::string shape_of(const at::Tensor& t) {
  std::string text = "[";
  for (int64_t i = 0; i < t.dim(); ++i) text += (i ? ", " : "") + std::to_string(t.size(i));
  return text + "]";
}

void check_part(const RowGradients& part, size_t number, const RowGradients& first) {
  const at::Tensor &rows = part.rows, &g = part.gradients;
  check<UsageError>(rows.defined() && g.defined(),
                    "merge_rows: part {} has undefined rows or gradients", number);
  check<UsageError>(
      rows.dim() == 1 && rows.scalar_type() == at::kLong && rows.layout() == at::kStrided,
      "merge_rows: the rows of part {} are {} {}: give their numbers as int64 [n]", number,
      c10::toString(rows.scalar_type()), shape_of(rows));
  check<UsageError>(
      g.dim() >= 2 && g.is_floating_point() && g.layout() == at::kStrided &&
          g.size(0) == rows.size(0),
      "merge_rows: part {} has {} rows and gradients {} {}: give each row one, [n, …] of a float "
      "dtype",
      number, rows.size(0), c10::toString(g.scalar_type()), shape_of(g));
  check<UsageError>(
      g.sizes().slice(1) == first.gradients.sizes().slice(1) &&
          g.scalar_type() == first.gradients.scalar_type(),
      "merge_rows: the gradients of part {} are {} {}, and those of part 0 are {} {}: "
      "rows of one table have one shape and dtype",
      number, c10::toString(g.scalar_type()), shape_of(g),
      c10::toString(first.gradients.scalar_type()), shape_of(first.gradients));
}

/// A row and its gradient in host memory.
struct Entry {
  int64_t row;
  const char* gradient;
};

template <class T>
void add_rows(const Entry* entries, int64_t count, int64_t width, T* out, double* sums) {
  if (count == 1) {
    std::memcpy(out, entries->gradient, static_cast<size_t>(width) * sizeof(T));
    return;
  }
  const auto of = [&](int64_t i) { return reinterpret_cast<const T*>(entries[i].gradient); };
  std::copy_n(of(0), width, sums);
  for (int64_t i = 1; i < count; ++i)
    for (int64_t j = 0; j < width; ++j) sums[j] += static_cast<double>(of(i)[j]);
  for (int64_t j = 0; j < width; ++j) out[j] = static_cast<T>(sums[j]);
}

/// `begins`: of each row's entries, and behind the last.
template <class T>
void add_all(const std::vector<Entry>& entries, const std::vector<size_t>& begins, int64_t width,
             T* out) {
  const auto rows = static_cast<int64_t>(begins.size()) - 1;
  const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 16) / std::max<int64_t>(1, width));
  at::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
    std::vector<double> sums(static_cast<size_t>(width));
    for (int64_t i = begin; i < end; ++i) {
      const size_t at = begins[static_cast<size_t>(i)];
      const size_t behind = begins[static_cast<size_t>(i) + 1];
      add_rows(entries.data() + at, static_cast<int64_t>(behind - at), width, out + i * width,
               sums.data());
    }
  });
}

}  // namespace

RowGradients merge_rows(const std::vector<RowGradients>& parts) {
  check<UsageError>(!parts.empty(), "merge_rows: no parts: give at least one, if with no rows");
  const c10::Device where = parts[0].gradients.defined() ? parts[0].gradients.device() : at::kCPU;
  std::vector<at::Tensor> held;  // what entries point into
  std::vector<Entry> entries;
  for (size_t i = 0; i < parts.size(); ++i) {
    check_part(parts[i], i, parts[0]);
    const at::Tensor rows = parts[i].rows.detach().cpu().contiguous();
    at::Tensor g = parts[i].gradients.detach().cpu();
    if (g.scalar_type() != at::kDouble) g = g.to(at::kFloat);
    g = g.contiguous();
    const auto* numbers = host_data<int64_t>(rows);
    const auto* first = host_bits<char>(g);
    const auto step = static_cast<size_t>(g.stride(0)) * g.element_size();
    for (int64_t k = 0; k < rows.size(0); ++k) {
      check<UsageError>(numbers[k] >= 0, "merge_rows: row {} of part {} is {}: rows count from 0",
                        k, i, numbers[k]);
      entries.push_back({numbers[k], first + static_cast<size_t>(k) * step});
    }
    held.push_back(std::move(g));
  }
  std::vector<int64_t> shape = held[0].sizes().vec();
  int64_t width = 1;
  for (size_t i = 1; i < shape.size(); ++i) width *= shape[i];
  const size_t bytes = static_cast<size_t>(width) * held[0].element_size();
  std::sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
    if (a.row != b.row) return a.row < b.row;
    return bytes > 0 && std::memcmp(a.gradient, b.gradient, bytes) < 0;
  });
  std::vector<size_t> begins;
  for (size_t i = 0; i < entries.size(); ++i)
    if (i == 0 || entries[i].row != entries[i - 1].row) begins.push_back(i);
  const auto count = static_cast<int64_t>(begins.size());
  begins.push_back(entries.size());

  RowGradients out;
  out.rows = at::empty({count}, at::kLong);
  auto* numbers = host_data<int64_t>(out.rows);
  for (int64_t i = 0; i < count; ++i) numbers[i] = entries[begins[static_cast<size_t>(i)]].row;
  shape[0] = count;
  out.gradients = at::empty(shape, held[0].scalar_type());
  if (held[0].scalar_type() == at::kDouble)
    add_all(entries, begins, width, host_data<double>(out.gradients));
  else
    add_all(entries, begins, width, host_data<float>(out.gradients));
  if (where.is_cpu()) return out;
  return {out.rows.to(where), out.gradients.to(where)};
}

}  // namespace trireme
