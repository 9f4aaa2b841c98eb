// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/process/stop_requests.h"

#include <gtest/gtest.h>

namespace trireme::testing {
namespace {

TEST(base_stop_requests, the_first_signal_is_remembered) {
  StopRequests requests(100);
  EXPECT_EQ(requests.first(), 0);
  EXPECT_FALSE(requests.is_impatient(SIGUSR1, 0));
  EXPECT_FALSE(requests.is_impatient(SIGTERM, 1000));
  EXPECT_EQ(requests.first(), SIGUSR1);
}

TEST(base_stop_requests, a_second_SIGINT_or_SIGTERM_is_impatient) {
  for (int first : {SIGINT, SIGTERM})
    for (int second : {SIGINT, SIGTERM}) {
      StopRequests requests(100);
      EXPECT_FALSE(requests.is_impatient(first, 0));
      EXPECT_FALSE(requests.is_impatient(second, 99)) << "the same request";
      EXPECT_TRUE(requests.is_impatient(second, 100));
    }
}

TEST(base_stop_requests, SIGHUP_and_SIGUSR1_never_are) {
  for (int first : {SIGINT, SIGTERM, SIGHUP, SIGUSR1})
    for (int later : {SIGHUP, SIGUSR1}) {
      StopRequests requests(100);
      EXPECT_FALSE(requests.is_impatient(first, 0));
      for (int64_t at : {1, 99, 100, 5000, 5001})
        EXPECT_FALSE(requests.is_impatient(later, at)) << first << " then " << later;
    }
}

TEST(base_stop_requests, the_first_SIGTERM_after_a_warning_is_not_a_second_one) {
  for (int warning : {SIGHUP, SIGUSR1}) {
    StopRequests requests(100);
    EXPECT_FALSE(requests.is_impatient(warning, 0));
    EXPECT_FALSE(requests.is_impatient(SIGTERM, 5000));
    EXPECT_FALSE(requests.is_impatient(SIGTERM, 5099)) << "the same request";
    EXPECT_TRUE(requests.is_impatient(SIGTERM, 5100));
  }
}

}  // namespace
}  // namespace trireme::testing
