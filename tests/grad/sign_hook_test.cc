// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/sign_hook.h"

#include <gtest/gtest.h>

#include "tests/grad/codec_rounds.h"
#include "tests/grad/small_net.h"

namespace sign_hook_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

MakeHook sign(bool error_feedback = true) {
  return [=](const NamedTensors& p, const Group& g) {
    return sign_hook(p, g, {{error_feedback, 0}});
  };
}

}  // namespace

TEST(grad_sign_hook, each_parameter_travels_as_signs_times_its_mean_magnitude) {
  for (int n : {2, 3, 4})
    run_threads(n, [&](Group g) {
      Rounds run(g, sign(false), {{1}, {9}, {64}, {33, 7}, {9000}});
      run.round(3);
      for (size_t p = 0; p < run.parameters.size(); ++p) {
        const at::Tensor& t = run.parameters[p].second;
        at::Tensor want = at::zeros_like(t);
        for (int r = 0; r < n; ++r) {
          const at::Tensor x = Rounds::gradient(r, 3, p, t.sizes());
          want += at::where(x < 0, -1.0, 1.0) * x.abs().mean();
        }
        const double off = relative(t.grad(), want);
        expect(off < 1e-5, fmt::format("parameter {} is off by {}", p, off));
      }
    });
}

TEST(grad_sign_hook, leaves_what_the_mean_magnitude_says) {
  run_threads(2, [](Group g) {
    Rounds run(g, sign(), {{50, 40}});
    run.round(0);
    const at::Tensor x = Rounds::gradient(g.rank(), 0, 0, {50, 40}).to(at::kDouble);
    const double want =
        1 - std::pow(x.abs().mean().item<double>(), 2) / x.pow(2).mean().item<double>();
    const double left =
        run.kept().to(at::kDouble).pow(2).sum().item<double>() / x.pow(2).sum().item<double>();
    expect(std::abs(left - want) < 1e-5, fmt::format("{} and {}", left, want));
    expect(left > 0.3 && left < 0.42, "of normal numbers 1 - 2/pi");
  });
}

TEST(grad_sign_hook, a_parameter_of_zeros_stays_zeros) {
  run_threads(2, [](Group g) {
    Rounds run(g, sign(), {{100}, {7}});
    run.round(0, [](size_t p, at::Tensor& gradient) {
      if (p == 1) gradient.zero_();
    });
    expect(run.parameters[1].second.grad().eq(0).all().item<bool>(), "zeros");
  });
}

}  // namespace sign_hook_test
