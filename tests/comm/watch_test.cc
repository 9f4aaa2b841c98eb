// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>

#include "tests/store/child.h"
#include "tests/support/processes.h"
#include "trireme/base/file.h"
#include "trireme/comm/c10d/failure_monitor.h"
#include "trireme/store/server/tcp_server.h"
#include "trireme/store/tcp_store.h"

namespace watch_test {

using namespace trireme;
using namespace std::chrono_literals;
using trireme::detail::Failure;
using trireme::detail::FailureMonitor;
using trireme::testing::Child;
using trireme::testing::eventually;

TEST(comm_watch, a_store_that_stands_still_is_no_loss_however_little_its_connection_would_bear) {
  const net::Credentials job{"watch", std::nullopt};
  const auto at = net::Endpoint::unix_abstract(
      std::filesystem::path(PrivateFolder("trireme-test").path()).filename());
  Child keeper([&](const Child::Parent& test) {
    StoreServer::Options options;
    options.credentials = job;
    StoreServer server(options, at);
    test.tell("up");
    test.hear();
  });
  ASSERT_EQ(keeper.hear(), "up");
  const auto connect = [&] { return TcpStore::connect(at, job, Deadline::after(10s), 100ms); };

  std::atomic<int> failures{0};
  FailureMonitor watch(connect(), 0, 2), other(connect(), 1, 2);
  watch.join("world", {0, 1}, [&](const Failure&) { ++failures; });
  keeper.send(SIGSTOP);
  EXPECT_TRUE(eventually([&] { return !watch.silence().empty(); }, 20s));  // after two seconds
  EXPECT_EQ(failures, 0);
  keeper.send(SIGCONT);
  EXPECT_TRUE(eventually([&] { return watch.silence().empty(); }, 20s));
  EXPECT_EQ(failures, 0);

  // And it is as good as before.
  other.join("world", {0, 1}, [](const Failure&) {});
  other.fail("world", {Failure::Kind::resource, 1, "no memory"});
  EXPECT_TRUE(eventually([&] { return failures == 1; }, 20s));
  watch.leave("world", false);
  other.leave("world", false);
}

}  // namespace watch_test
