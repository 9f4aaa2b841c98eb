// SPDX-License-Identifier: Apache-2.0
// What gradient codecs take of one rank's time, beside the wire: encoding and decoding of a bucket,
// in nanoseconds an element, with error feedback. Two ranks as threads take turns on as many cores
// as there are: the codecs' own clocks count, not the waiting. Void at a foreign load above 5 %.
//   cmake --build build/release --target codecs && build/release/bench/codecs [ELEMENTS [ROUNDS]]
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/comm/start/run.h"
#include "trireme/grad/compression/compression.h"
#include "trireme/tensor/random/random.h"

using namespace trireme;

namespace {

// One bucket of square matrices, handed to the hook as a reducer would: median seconds an element.
double seconds_of(Group& g, const std::string& type, int64_t elements, int rounds) {
  constexpr int64_t kSide = 1024;
  NamedTensors parameters;
  std::vector<GradBucketPart> parts;
  const int64_t count = std::max<int64_t>(1, elements / (kSide * kSide));
  at::Tensor buffer = g.empty({count * kSide * kSide}, at::kFloat),
             fresh = at::zeros(buffer.sizes(), at::kFloat);
  normal_(fresh, 1 + static_cast<uint64_t>(g.rank()), 0, 1);
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor place =
        buffer.narrow(0, i * kSide * kSide, kSide * kSide).view({kSide, kSide});
    parameters.emplace_back(fmt::format("w{}", i), place);
    parts.push_back(
        {static_cast<size_t>(i), parameters.back().first, i * kSide * kSide, place, {}});
  }
  CompressionOptions options;
  options.type = type;
  options.start_step = 0;
  const auto hook = make_compression(options, parameters, g);
  const CommHook reduce = hook->hook();
  std::vector<double> seconds;
  for (int i = 0; i < rounds; ++i) {
    buffer.copy_(fresh);
    GradBucket bucket{0, true, buffer, &parts};
    reduce(g, bucket, ReduceOp::sum).wait();
    seconds.push_back(hook->seconds());
  }
  std::nth_element(seconds.begin(), seconds.begin() + rounds / 2, seconds.end());
  return seconds[static_cast<size_t>(rounds / 2)] / static_cast<double>(buffer.numel());
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t elements = argc > 1 ? std::atoll(argv[1]) : int64_t{10} << 20;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 7;
  for (const char* type : {"int8", "topk", "sign", "powersgd"})
    run_threads(2, [&](Group g) {
      at::NoGradGuard no_grad;
      const double each = seconds_of(g, type, elements, rounds);
      if (g.rank() == 0) std::printf("%-9s %.2f ns/element\n", type, 1e9 * each);
    });
  return 0;
}
