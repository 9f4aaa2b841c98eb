// SPDX-License-Identifier: Apache-2.0
#include "trireme/models/sampling.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/tensor/host_data.h"

namespace trireme {
namespace {

class EvalMode {
 public:
  explicit EvalMode(torch::nn::Module& module) : module_(module), training_(module.is_training()) {
    module.eval();
  }
  ~EvalMode() { module_.train(training_); }
  EvalMode(const EvalMode&) = delete;

 private:
  torch::nn::Module& module_;
  bool training_;
};

size_t pick(const std::vector<double>& scores, const SamplingOptions& options, int64_t index) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Likeliest first; of equals the lower byte.
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  const double best = scores[order[0]];
  check<NumericError>(std::isfinite(best), "generate: the model's scores are not finite at byte {}",
                      index);
  if (options.temperature == 0) return order[0];
  if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(options.top_k)));
  std::vector<double> sums;
  double sum = 0;
  for (auto i : order) sums.push_back(sum += std::exp((scores[i] - best) / options.temperature));
  const auto block = philox_block(stable_hash({options.seed, stable_hash("generate")}), 0,
                                  static_cast<uint64_t>(index));
  const double at = uniform01_double(block[0], block[1]) * sum;
  const auto found = std::upper_bound(sums.begin(), sums.end(), at) - sums.begin();
  return order[std::min(static_cast<size_t>(found), order.size() - 1)];
}

}  // namespace

std::string generate(Gpt& model, std::string_view prompt, const SamplingOptions& options,
                     const std::function<bool(char)>& on_byte) {
  check<UsageError>(model.options().vocab == 256,
                    "generate: the model has a vocabulary of {}, not the 256 bytes",
                    model.options().vocab);
  check<UsageError>(options.count >= 0 && options.temperature >= 0 && options.top_k >= 0,
                    "generate: count {}, temperature {}, top_k {}: none may be negative",
                    options.count, options.temperature, options.top_k);
  at::NoGradGuard no_grad;
  EvalMode eval(model);
  const auto device = model.parameters().front().device();
  std::string text(prompt.empty() ? "\n" : prompt);
  const size_t start = text.size();
  for (int64_t i = 0; i < options.count; ++i) {
    const auto length = std::min(text.size(), static_cast<size_t>(model.options().context));
    auto input = at::empty({1, static_cast<int64_t>(length)}, at::dtype(at::kLong));
    std::transform(text.end() - static_cast<std::ptrdiff_t>(length), text.end(),
                   host_data<int64_t>(input), [](char c) { return static_cast<uint8_t>(c); });
    const auto logits = model.next_logits(input.to(device)).to(at::kCPU, at::kDouble).contiguous();
    const auto* p = host_data<double>(logits);
    text.push_back(static_cast<char>(pick({p, p + 256}, options, i)));
    if (on_byte && !on_byte(text.back())) break;
  }
  return text.substr(start);
}

}  // namespace trireme
