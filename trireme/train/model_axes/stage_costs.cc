// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/model_axes/stage_costs.h"

#include <ATen/ops/ones_like.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>

#include "trireme/base/clock.h"
#include "trireme/comm/objects.h"
#include "trireme/tensor/device.h"

namespace trireme {

double time_of(const std::function<std::vector<at::Tensor>()>& forward, at::Device device) {
  constexpr int kTimes = 3;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= kTimes; ++i) {
    const auto begin = Clock::now();
    std::vector<at::Tensor> trained, ones;
    for (const at::Tensor& t : forward())
      if (t.requires_grad()) trained.push_back(t), ones.push_back(at::ones_like(t));
    if (!trained.empty()) torch::autograd::backward(trained, ones);
    if (is_asynchronous(device)) DeviceStream::current(device).synchronize();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (i > 0) least = std::min(least, seconds);
  }
  return least;
}

std::vector<at::Tensor> as_stage_inputs(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& t : tensors)
    leaves.push_back(t.detach().requires_grad_(t.is_floating_point()));
  return leaves;
}

std::vector<double> mean_over_ranks(const std::vector<double>& own, Group group) {
  std::vector<double> mean(own.size(), 0);
  for (const auto& of_rank : all_gather_object(group, own))
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += of_rank.at(i) / group.size();
  return mean;
}

std::string describe_stages(const std::vector<pipeline::StageBlocks>& stages,
                            const std::vector<double>& seconds, const char* blocks) {
  std::vector<int64_t> counts;
  std::vector<std::string> times;
  for (const auto& s : stages) {
    double sum = 0;
    for (int64_t b = s.begin; b < s.end; ++b) sum += seconds.at(static_cast<size_t>(b));
    counts.push_back(s.end - s.begin);
    times.push_back(fmt::format("{:.1f}", sum * 1e3));
  }
  return fmt::format("stages of {} {}, which take {} ms each micro-batch", fmt::join(counts, ", "),
                     blocks, fmt::join(times, ", "));
}

}  // namespace trireme
