// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/norm_parts.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/refusals.h"
#include "trireme/optim/clip.h"
#include "trireme/optim/norm_kernels.h"
#include "trireme/optim/optimizer.h"

namespace norm_parts_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

at::Tensor parameter(int64_t n, double value, double gradient) {
  at::Tensor p = at::full({n}, value, at::kFloat).requires_grad_();
  p.mutable_grad() = at::full({n}, gradient, at::kFloat);
  return p;
}

using Part = NormParts::Part;

}  // namespace

TEST(optim_norm_parts, a_copy_counts_nowhere_and_has_the_norm_of_its_parameter) {
  const int64_t n = 3 * kNormBlock + 5;
  for (const bool one_number_each : {false, true}) {
    // The copy's own gradient is another one: what is asked of it is the parameter's.
    const NamedTensors tensors = {
        {"a", parameter(n, 1, 2)}, {"copy", parameter(n, 1, 100)}, {"z", parameter(7, 1, 3)}};
    const NormParts parts({{"a", n}, {"z", 7}},
                          {{"a", {"a", 0}}, {"copy", {"a", 0, false}}, {"z", {"z", 0}}}, {},
                          one_number_each);
    EXPECT_EQ(parts.index_of("copy"), parts.index_of("a"));
    EXPECT_NE(parts.first_block("copy"), parts.first_block("a"));
    const double want = std::sqrt(4.0 * static_cast<double>(n) + 9 * 7);
    EXPECT_NEAR(grad_norm(tensors, parts, 0, 1).norm, want, 1e-9 * want);
    EXPECT_NEAR(clip_grad_norm_(tensors, parts, 1e9, 1, false),
                2.0 * static_cast<double>(n) + 3 * 7, 1e-3);
  }
}

TEST(optim_norm_parts, ranks_exchange_what_is_counted_alone) {
  std::vector<int64_t> sent;
  const NormParts parts(
      {{"a", kNormBlock}, {"z", 2 * kNormBlock}},
      {{"a", {"a", 0, false}}, {"z", {"z", kNormBlock, false}}},
      [&](double* values, int64_t n) {
        sent.push_back(n);
        for (int64_t i = 0; i < n; ++i) EXPECT_EQ(values[i], 0);
      },
      false);
  std::vector<double> blocks(static_cast<size_t>(parts.blocks()), 1);
  std::fill_n(blocks.begin(), 3, 0.0);  // of tensors that this rank does not have
  parts.add_blocks_over_ranks(blocks);
  EXPECT_EQ(sent, std::vector<int64_t>{3});
  for (const double b : blocks) EXPECT_EQ(b, 0);
}

TEST(optim_norm_parts, layerwise_steps_of_a_parameter_and_its_copy_are_equal) {
  for (const std::string type : {"lamb", "lars"}) {
    const NamedTensors tensors = {{"a", parameter(40, 2, 0.5)}, {"copy", parameter(40, 2, 0.5)}};
    const auto parts = std::make_shared<const NormParts>(
        std::vector<NormParts::Whole>{{"a", 40}},
        std::map<std::string, Part>{{"a", {"a", 0}}, {"copy", {"a", 0, false}}},
        NormParts::AddOverRanks(), true);
    const auto optimizer =
        type == "lamb" ? make_lamb(tensors, {}, {}, parts) : make_lars(tensors, {}, {}, parts);
    optimizer->step(0.1, 1);
    EXPECT_TRUE(tensors[0].second.equal(tensors[1].second)) << type;
    EXPECT_FALSE(tensors[0].second.equal(at::full({40}, 2, at::kFloat))) << type;
  }
}

TEST(optim_norm_parts, a_part_of_no_parameter_is_refused) {
  EXPECT_TRUE(has(refusal([] {
                    NormParts({{"a", 4}}, {{"b", {"c", 0}}}, {}, false);
                  }),
                  "'b' is not a part of these parameters"));
  EXPECT_TRUE(has(refusal([] {
                    NormParts({{"a", 4}}, {{"a", {"a", 3}}}, {}, false);
                  }),
                  "begins at element 3"));
}

}  // namespace norm_parts_test
