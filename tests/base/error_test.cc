// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/error.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>

namespace error_test {

using namespace trireme;

TEST(base_error, brief_leaves_the_stack_out) {
  const std::pair<const char*, const char*> rows[] = {
      {"disk is full", "disk is full"},
      {"", ""},
      {"no memory. Error 12\nException raised from alloc_cpu at ../c10/a.cpp:75 (most recent call "
       "first):\nframe #0: f",
       "no memory. Error 12"},
      {"bad\n\nframe #0: <unknown function> + 0x1\nframe #1: g\n", "bad"},
      {"two\nlines", "two\nlines"}};
  for (const auto& [whole, wanted] : rows) EXPECT_EQ(brief(std::runtime_error(whole)), wanted);
}

}  // namespace error_test
