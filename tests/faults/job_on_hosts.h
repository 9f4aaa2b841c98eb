// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "tests/faults/job.h"
#include "tests/support/namespaces.h"
#include "trireme/launch/job_store.h"
#include "trireme/net/secret.h"

namespace trireme::testing {

/// Tests of jobs whose launchers share a secret, each on a host of its own (a network namespace).
class JobOnHosts : public ::testing::Test {
 protected:
  explicit JobOnHosts(int hosts) : hosts_(hosts) {}
  void SetUp() override {
    if (!hosts_.why().empty()) GTEST_SKIP() << hosts_.why();
    launch::write_secret(folder_ / "secret", net::generate_secret());
  }

  Hosts hosts_;
  PrivateFolder folder_{"trireme-test"};
};

}  // namespace trireme::testing
