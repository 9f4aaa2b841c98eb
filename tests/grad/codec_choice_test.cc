// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/codec_choice.h"

#include <gtest/gtest.h>

#include <limits>

namespace codec_choice_test {

using namespace trireme;

namespace {

// Plain, int8, PowerSGD, signs of 10 million elements between two ranks.
const std::vector<CodecCost> kCodecs = {
    {1, 40e6, 0, 0}, {2, 10.2e6, 0.02, 1e-5}, {2, 1e6, 0.05, 0.6}, {1, 1.25e6, 0.02, 0.36}};

}  // namespace

TEST(grad_codec_choice, a_fast_link_takes_the_plain_codec_and_a_slow_one_the_smallest_allowed) {
  EXPECT_EQ(choose_codec({1e-6, 1.0 / 12e9}, kCodecs, 0.9), 0u);    // memory
  EXPECT_EQ(choose_codec({1e-4, 1.0 / 12.5e6}, kCodecs, 0.5), 3u);  // 100 Mbit/s
  EXPECT_EQ(choose_codec({1e-4, 1.0 / 12.5e6}, kCodecs, 0.1), 1u);
  EXPECT_EQ(choose_codec({1e-4, 1.0 / 12.5e6}, kCodecs, 1e-6), 0u);
  EXPECT_EQ(choose_codec({1e-4, 1.0 / 1.25e6}, kCodecs, 0.9), 2u);  // 10 Mbit/s
}

TEST(grad_codec_choice, what_is_chosen_is_allowed_and_never_slower_than_plain) {
  for (double rate : {1e5, 1e7, 1e9, 1e11})
    for (double latency : {0.0, 1e-5, 1e-2})
      for (double bound : {1e-9, 1e-3, 0.36, 0.5, 0.99}) {
        const LinkCost link{latency, 1 / rate};
        const size_t best = choose_codec(link, kCodecs, bound);
        EXPECT_LE(kCodecs[best].residual, bound);
        EXPECT_LE(codec_seconds(link, kCodecs[best]), codec_seconds(link, kCodecs[0]));
        for (const CodecCost& other : kCodecs) {
          const bool allowed = other.residual <= bound;
          EXPECT_TRUE(!allowed || codec_seconds(link, kCodecs[best]) <= codec_seconds(link, other));
        }
      }
}

TEST(grad_codec_choice, a_codec_without_measure_is_not_taken) {
  auto codecs = kCodecs;
  for (size_t c = 1; c < codecs.size(); ++c)
    codecs[c].residual = std::numeric_limits<double>::infinity();
  EXPECT_EQ(choose_codec({1e-3, 1e-6}, codecs, 0.99), 0u);
  for (size_t c = 1; c < codecs.size(); ++c)
    codecs[c].residual = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(choose_codec({1e-3, 1e-6}, codecs, 0.99), 0u);
}

TEST(grad_codec_choice, a_link_is_found_back_from_two_calls) {
  const LinkCost link = link_cost(4, 2e-4 + 4 * 8e-8, 1e6, 2e-4 + 1e6 * 8e-8);
  EXPECT_NEAR(link.latency, 2e-4, 1e-9);
  EXPECT_NEAR(link.seconds_per_byte, 8e-8, 1e-13);
  const LinkCost odd = link_cost(4, 2e-4, 1e6, 1e-4);  // noise
  EXPECT_EQ(odd.seconds_per_byte, 0);
  EXPECT_EQ(odd.latency, 2e-4);
}

TEST(grad_codec_choice, the_memory_is_bounded_by_eight_gradients_at_one_half) {
  EXPECT_DOUBLE_EQ(memory_bound(0.5), 8);
  EXPECT_LT(memory_bound(0.1), 0.5);
}

}  // namespace codec_choice_test
