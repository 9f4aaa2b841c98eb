// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/process/process_mark.h"

#include <gtest/gtest.h>

#include "tests/support/forked.h"

namespace process_mark_test {

using namespace trireme;
using namespace trireme::testing;

TEST(base_process_mark, holds_in_the_process_that_made_it_and_in_no_child) {
  const ProcessMark mark;
  EXPECT_TRUE(mark.is_here());
  mark.check("this thing");
  ForkedChild child(ChildEnd::exit_at_once, [&] {
    std::string wrong = refused_in_child("check", [&] { mark.check("this thing"); });
    const ProcessMark own;
    if (!own.is_here()) wrong += "the child's own mark does not hold";
    if (mark.is_here()) wrong += "the parent's mark holds in the child";
    ForkedChild grandchild(ChildEnd::exit_at_once, [&] {
      return std::string(own.is_here() || mark.is_here() ? "a mark holds in the grandchild" : "");
    });
    return wrong + grandchild.ended();
  });
  EXPECT_EQ(child.ended(), "");
  EXPECT_TRUE(mark.is_here());
}

}  // namespace process_mark_test
