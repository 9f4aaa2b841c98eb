// SPDX-License-Identifier: Apache-2.0
#include "cli/worker/bench_check.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "cli/bench_values.h"

namespace trireme::bench {
namespace {

constexpr int64_t kSlice = 1 << 20;  // elements: a check of 1 GiB does not take 2 GiB more

template <class Value>
void fill(const at::Tensor& tensor, const Value& value) {
  for (int64_t begin = 0; begin < tensor.numel(); begin += kSlice) {
    const int64_t n = std::min(kSlice, tensor.numel() - begin);
    at::Tensor slice = at::empty({n}, at::kDouble);
    auto* v = static_cast<double*>(slice.data_ptr());
    for (int64_t i = 0; i < n; ++i) v[i] = value(begin + i);
    tensor.narrow(0, begin, n).copy_(slice);
  }
}

}  // namespace

int64_t count_wrong(BenchPeer& peer, BenchCall& c, Group& world) {
  const int me = world.rank(), n = world.size();
  if (c.out.defined()) c.out.fill_(kPoison);
  if (c.in.defined()) fill(c.in, [&](int64_t i) { return value_at(c.op, c.red, me, i, n); });
  peer.run(c);
  int64_t wrong = 0;
  if (has_result(c.op, me, c.root)) {
    // Outputs that have a part of each rank are counted by it.
    const int64_t part = c.out_parts.empty() ? c.out.numel() : c.out_parts[0].numel();
    for (int64_t begin = 0; begin < c.out.numel(); begin += kSlice) {
      const int64_t count = std::min(kSlice, c.out.numel() - begin);
      const at::Tensor slice = c.out.narrow(0, begin, count).to(at::kDouble);
      const auto* v = static_cast<const double*>(slice.data_ptr());
      for (int64_t i = 0; i < count; ++i)
        wrong += !is_right(v[i], expected_at(c.op, c.red, me, begin + i, n, c.root, part), c.red,
                           *c.type);
    }
  }
  at::Tensor sum = at::full({1}, wrong, at::kLong);
  world.all_reduce(sum).wait();
  return sum.item<int64_t>();
}

}  // namespace trireme::bench
