// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/wrappers/by_device.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tests/support/conformance.h"
#include "trireme/base/check.h"
#include "trireme/comm/local/host/host.h"
#include "trireme/comm/registry.h"
#include "trireme/comm/start/run.h"

namespace by_device_test {

using namespace trireme;
using namespace std::chrono_literals;

namespace {

std::string refusal(const std::string& text) {
  try {
    trireme::detail::BackendSpec spec;
    spec.timeout = 1s;
    trireme::detail::make_backend(text, spec);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST(comm_by_device, a_call_goes_to_the_backend_of_its_tensor) {
  // The local backend stands for the GPU's: what reaches it is refused there, by name.
  auto world = std::make_shared<local::ThreadWorld>(1),
       other = std::make_shared<local::ThreadWorld>(1);
  std::vector<std::string> asked;
  Group g(trireme::detail::by_device_backend(
      "cpu:first,cuda:second", [&](const std::string& name, const std::string& device) {
        asked.push_back(device + "=" + name);
        trireme::detail::BackendSpec spec;
        spec.timeout = 5s;
        spec.threads = name == "first" ? world : other;
        return trireme::detail::make_backend("local", spec);
      }));
  EXPECT_EQ(asked, std::vector<std::string>({"cpu=first", "cuda=second"}));
  EXPECT_EQ(g.backend(), "cpu:first,cuda:second");
  at::Tensor t = at::ones({3});
  g.all_reduce(t).wait();
  EXPECT_TRUE(g.supports(Collective::all_reduce, at::kFloat, at::kCPU));
  EXPECT_FALSE(g.supports(Collective::all_reduce, at::kFloat, at::kXLA));
  EXPECT_THROW(g.empty({3}, at::TensorOptions().device(at::kMeta)), UsageError);
}

TEST(comm_by_device, a_device_s_backend_conforms) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  SpawnOptions options;
  options.timeout = 20s;
  options.backend = "cpu:local,cuda:fake";
  options.args = {std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name()};
  spawn(
      2,
      [](Group g) {
        trireme::testing::conform(g, {at::kFloat, at::kLong}, {{0}, {3, 5}, {40000}});
        Group both = g.split(0, -g.rank());
        trireme::testing::conform(both, {at::kBFloat16}, {{7}});
      },
      options);
}

TEST(comm_by_device, a_text_that_says_nothing_is_refused) {
  EXPECT_TRUE(has(refusal("cpu:"), "write DEVICE:BACKEND"));
  EXPECT_TRUE(has(refusal("cpu:fake,cuda"), "write DEVICE:BACKEND"));
  EXPECT_TRUE(has(refusal("cpu:fake,"), "write DEVICE:BACKEND"));
  EXPECT_TRUE(has(refusal("cpu:fake,cpu:fake"), "two for cpu"));
  EXPECT_TRUE(has(refusal("abacus:fake"), "there is no device 'abacus'"));
  EXPECT_TRUE(has(refusal("cpu:pigeon"), "there is no backend 'pigeon'"));
}

}  // namespace by_device_test
