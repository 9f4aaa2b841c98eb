// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/auto_hook.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>

#include "trireme/base/check.h"
#include "trireme/base/clock.h"
#include "trireme/grad/compression/codec_choice.h"
#include "trireme/grad/compression/host_calls.h"
#include "trireme/tensor/host_data.h"

namespace trireme {
namespace {

constexpr int64_t kProbe = int64_t{1} << 18;  // floats: more than a link's buffers take at once
constexpr const char* kState = "hook.auto";

// Seconds of one all_reduce, on this rank.
double timed(Group& group, const at::Tensor& t, at::Device device) {
  const Clock::time_point begun = Clock::now();
  host_calls::all_reduce(group, t, device).wait();
  return seconds_since(begun);
}

class AutoHook final : public CompressionHook {
 public:
  AutoHook(std::vector<std::unique_ptr<Codec>> codecs, const NamedTensors& parameters,
           const Group& group, const AutoOptions& options)
      : CompressionHook(parameters, group, options.common),
        options_(options),
        codecs_(std::move(codecs)) {
    codecs_.insert(codecs_.begin(), plain_codec());
    measured_.resize(codecs_.size());
  }

  void state(StateVisitor& visitor) override {
    CompressionHook::state(visitor);
    std::string text = written(), given = text;
    visitor.value(kState, given);
    if (given != text) read(given);
    for (const auto& codec : codecs_) codec->state(visitor);
  }

  std::string describe() const override {
    if (choice_.empty()) return "auto: not yet chosen";
    std::string text = "auto";
    for (size_t b = 0; b < choice_.size(); ++b)
      text += fmt::format("{} bucket {}: {}", b ? "," : ":", b, codecs_[choice_[b]]->describe());
    return text;
  }

 private:
  // The codec that this round tries on all buckets; codecs_.size(): none, the choice holds.
  size_t trying() const {
    const int64_t at = (rounds() - options_.common.start_step) % options_.decide_every;
    return std::min(static_cast<size_t>(std::max<int64_t>(at, 0)), codecs_.size());
  }

  Codec& codec_for(int bucket) override {
    const size_t codec = trying();
    if (codec < codecs_.size()) return *codecs_[codec];
    const auto b = static_cast<size_t>(bucket);
    return *codecs_[b < choice_.size() ? choice_[b] : 0];
  }

  bool measuring() const override { return trying() < codecs_.size(); }

  void settled(Group& group, const BucketReport& report) override {
    const size_t codec = trying();
    if (codec == codecs_.size()) return;
    auto& seen = measured_[codec];
    const auto b = static_cast<size_t>(report.bucket);
    seen.resize(b + 1);
    seen[b] = {1, static_cast<double>(report.bytes), report.seconds,
               report.energy > 0 ? report.residual / report.energy : 0};
    if (!report.is_last) return;
    agree(group, seen, report.good);
    if (codec + 1 == codecs_.size()) decide(group);
  }

  // The slowest rank and the one that leaves most count.
  void agree(Group& group, std::vector<CodecCost>& seen, bool good) {
    at::Tensor both = at::empty({2 * static_cast<int64_t>(seen.size())}, at::kDouble);
    auto* p = host_data<double>(both);
    for (size_t b = 0; b < seen.size(); ++b) {
      p[2 * b] = seen[b].seconds;
      p[2 * b + 1] = seen[b].residual;
    }
    host_calls::all_reduce(group, both, device(), ReduceOp::max).wait();
    for (size_t b = 0; b < seen.size(); ++b) {
      seen[b].seconds = p[2 * b];
      // Nothing was learnt from gradients that were not finite: not in this period.
      seen[b].residual = good ? p[2 * b + 1] : std::numeric_limits<double>::infinity();
    }
  }

  void decide(Group& group) {
    at::Tensor probe = group.empty({kProbe}, at::kFloat).zero_();
    const at::Tensor small = probe.narrow(0, 0, 1);
    timed(group, small, device());  // ranks come together
    const double once = std::min(timed(group, small, device()), timed(group, small, device()));
    const double large = (timed(group, probe, device()) + timed(group, probe, device())) / 2;
    at::Tensor times = at::empty({2}, at::kDouble);
    host_data<double>(times)[0] = once;
    host_data<double>(times)[1] = large;
    host_calls::all_reduce(group, times, device(), ReduceOp::max).wait();
    const double share = 2.0 * (group.size() - 1) / group.size();
    const LinkCost link =
        link_cost(4 * share, host_data<double>(times)[0], 4 * share * static_cast<double>(kProbe),
                  host_data<double>(times)[1]);
    choice_.assign(measured_[0].size(), 0);
    for (size_t b = 0; b < choice_.size(); ++b) {
      std::vector<CodecCost> costs;
      for (size_t c = 0; c < codecs_.size(); ++c) {
        costs.push_back(b < measured_[c].size() ? measured_[c][b] : CodecCost{});
        costs.back().calls = codecs_[c]->calls();
        if (b >= measured_[c].size())
          costs.back().residual = std::numeric_limits<double>::infinity();
      }
      choice_[b] = choose_codec(link, costs, options_.max_residual);
    }
  }

  // Numbers in base 16: how many codecs, how many choices, those; and what was measured of each
  // codec.
  std::string written() const {
    std::string text = fmt::format("{:x} {:x}", codecs_.size(), choice_.size());
    for (size_t c : choice_) text += fmt::format(" {:x}", c);
    for (const auto& seen : measured_) {
      text += fmt::format(" {:x}", seen.size());
      for (const CodecCost& cost : seen)
        for (double v : {cost.bytes, cost.seconds, cost.residual})
          text += fmt::format(" {:x}", std::bit_cast<uint64_t>(v));
    }
    return text;
  }

  void read(const std::string& text) {
    const char* at = text.data();
    const char* end = at + text.size();
    const auto next = [&](uint64_t limit) {
      uint64_t v = 0;
      while (at < end && *at == ' ') ++at;
      const auto [behind, error] = std::from_chars(at, end, v, 16);
      check<Corrupt>(error == std::errc() && v <= limit, "{}: not what an auto hook wrote: '{}'",
                     kState, text);
      at = behind;
      return v;
    };
    constexpr uint64_t kAny = std::numeric_limits<uint64_t>::max(), kMost = 1 << 20;
    const uint64_t codecs = next(kMost);
    check<UsageError>(codecs == codecs_.size(),
                      "{}: saved with a choice among {} codecs, loaded with {}", kState, codecs,
                      codecs_.size());
    std::vector<size_t> choice(next(kMost));
    for (size_t& c : choice) c = next(codecs - 1);
    std::vector<std::vector<CodecCost>> measured(codecs);
    for (auto& seen : measured) {
      seen.resize(next(kMost));
      for (CodecCost& cost : seen)
        for (double* v : {&cost.bytes, &cost.seconds, &cost.residual})
          *v = std::bit_cast<double>(next(kAny));
    }
    choice_ = std::move(choice);
    measured_ = std::move(measured);
  }

  const AutoOptions options_;
  std::vector<std::unique_ptr<Codec>> codecs_;    // the first one is plain
  std::vector<std::vector<CodecCost>> measured_;  // by codec, by bucket; equal on all ranks
  std::vector<size_t> choice_;                    // by bucket
};

}  // namespace

std::shared_ptr<CompressionHook> auto_hook(std::vector<std::unique_ptr<Codec>> codecs,
                                           const NamedTensors& parameters, const Group& group,
                                           const AutoOptions& options) {
  check<UsageError>(options.max_residual > 0 && options.max_residual < 1,
                    "compression: a largest residual of {}: choose a share of the energy between 0 "
                    "and 1",
                    options.max_residual);
  check<UsageError>(options.decide_every >= 10 && codecs.size() <= 8,
                    "compression: a choice among {} codecs every {} steps: at most 8, every 10 or "
                    "more",
                    codecs.size(), options.decide_every);
  return std::make_shared<AutoHook>(std::move(codecs), parameters, group, options);
}

}  // namespace trireme
