// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/exchange_memory.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/grad/compression/power_sgd_plan.h"
#include "trireme/grad/compression/top_k_wire.h"
#include "trireme/optim/averaging/averaging_plan.h"
#include "trireme/planner/element_bytes.h"

namespace trireme {
namespace {

int64_t all_of(const std::vector<ParameterShape>& parameters) {
  int64_t n = 0;
  for (const auto& p : parameters) n += p.numel();
  return n;
}

int64_t power_sgd_bytes(const CompressionOptions& c,
                        const std::vector<ParameterShape>& parameters) {
  int64_t numbers = 0;
  for (const auto& p : parameters) {
    const int64_t n = p.numel(), rows = p.shape.size() < 2 ? 1 : p.shape[0];
    const int64_t cols = n / std::max<int64_t>(1, rows);
    const bool compressed =
        p.shape.size() >= 2 && power_sgd_compresses(rows, cols, c.rank, c.min_compression);
    // Both factors travel; the right one is kept for the next step.
    numbers += compressed ? (rows + 2 * cols) * c.rank : n;
  }
  return numbers * kFloatBytes;
}

int64_t wire_bytes(const std::string& type, const CompressionOptions& c, int64_t ranks,
                   const std::vector<ParameterShape>& parameters) {
  const int64_t n = all_of(parameters);
  if (type == "none") return 0;
  if (type == "int8") {  // given away, got, all; of this rank's share the sum, exact and as sent
    const int64_t payload = n + n / c.block * kFloatBytes;
    return 3 * payload + payload / ranks + n / ranks * kFloatBytes;
  }
  if (type == "sign") return (ranks + 1) * (n / 8);
  if (type == "topk") {
    int64_t travel = 0;
    for (const auto& p : parameters) travel += top_k::chosen(p.numel(), c.density);
    return (ranks + 1) * top_k::Layout(n, travel).bytes;
  }
  if (type == "powersgd") return power_sgd_bytes(c, parameters);
  fail<UsageError>("the planner knows no compression '{}'", type);
}

}  // namespace

int64_t codec_bytes(const CompressionOptions& codec, int ranks, int element_bytes,
                    const std::vector<ParameterShape>& parameters) {
  if (codec.type == "none") return 0;
  const int64_t n = all_of(parameters);
  const int64_t kept = codec.error_feedback ? n * kFloatBytes : 0;
  if (ranks < 2) return kept;
  int64_t wire =
      element_bytes == kFloatBytes ? 0 : n * kFloatBytes;  // half buckets are worked on as floats
  if (codec.type != "auto") return kept + wire + wire_bytes(codec.type, codec, ranks, parameters);
  for (const char* type : {"int8", "powersgd", "sign", "topk"})  // all are tried
    wire += wire_bytes(type, codec, ranks, parameters);
  return kept + wire;
}

int64_t exchange_bytes(const ExchangeShape& e, const std::vector<ParameterShape>& parameters) {
  const int64_t n = all_of(parameters);
  int64_t bytes = codec_bytes(e.gradients, e.ranks, e.gradient_bytes, parameters);
  if (e.averaging == "diloco")  // weights of the last period, momentum, the way since
    bytes += 3 * n * kFloatBytes +
             codec_bytes(e.pseudo_gradients, e.ranks, kFloatBytes, {{"all", {n}, 0}});
  else if (e.averaging != "none" && e.ranks > 1)
    bytes += std::min(n * kFloatBytes, kAveragedAtOnce);
  return bytes;
}

}  // namespace trireme
