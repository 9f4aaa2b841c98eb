// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/compression.h"

#include <gtest/gtest.h>

#include "tests/grad/codec_rounds.h"
#include "tests/grad/small_net.h"

namespace compression_test {

using namespace trireme;
using namespace trireme::testing;

TEST(grad_compression, unknown_types_and_numbers_out_of_range_are_refused_by_name) {
  const auto said = [](const CompressionOptions& o) {
    try {
      check_compression(o);
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(said({.type = "int9"}),
            "there is no compression 'int9': choose none, int8, topk, sign, powersgd or auto");
  EXPECT_EQ(said({.type = "int8", .block = 4}),
            "compression int8: block is 4: choose 8 to 65536 elements");
  EXPECT_NE(said({.type = "topk", .density = 0}), "");
  EXPECT_NE(said({.type = "powersgd", .rank = 0}), "");
  EXPECT_NE(said({.type = "powersgd", .min_compression = 0}), "");
  EXPECT_NE(said({.type = "sign", .start_step = -1}), "");
  EXPECT_NE(said({.type = "auto", .max_residual = 1}), "");
  EXPECT_NE(said({.type = "auto", .decide_every = 3}), "");
  // What a type does not look at is not its.
  EXPECT_EQ(said({.type = "none", .block = 0, .rank = -1}), "");
  EXPECT_EQ(said({.type = "int8", .density = 7}), "");
  for (const auto& codec : every_codec()) EXPECT_EQ(said(codec), "");
}

TEST(grad_compression, tells_which_options_a_type_looks_at) {
  EXPECT_TRUE(compression_option_applies("int8", "block"));
  EXPECT_FALSE(compression_option_applies("int8", "rank"));
  EXPECT_TRUE(compression_option_applies("auto", "rank"));
  EXPECT_FALSE(compression_option_applies("none", "start_step"));
  EXPECT_FALSE(compression_option_applies("int9", "type"));
}

TEST(grad_compression, none_needs_no_hook_and_every_other_type_says_what_it_is) {
  run_threads(1, [](Group g) {
    const NamedTensors parameters = {{"w", at::zeros({40, 40})}};
    expect(make_compression({}, parameters, g) == nullptr, "a hook");
    const std::map<std::string, std::string> want = {{"int8", "int8, blocks of 256"},
                                                     {"topk", "the largest 10 % of elements"},
                                                     {"sign", "signs"},
                                                     {"powersgd", "PowerSGD of rank 4"},
                                                     {"auto", "auto: not yet chosen"}};
    for (const auto& [type, text] : want)
      expect(make_compression({.type = type}, parameters, g)->describe() == text, type);
  });
}

}  // namespace compression_test
