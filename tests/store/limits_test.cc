// SPDX-License-Identifier: Apache-2.0
// Few descriptors (ulimit -n 64): a sentence that says so, and those who are in go on.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/store/child.h"
#include "tests/support/refusals.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/net/connect.h"
#include "trireme/store/file/file_store.h"
#include "trireme/store/server/tcp_server.h"
#include "trireme/store/tcp_store.h"

namespace limits_test {

using namespace trireme;
using namespace std::chrono_literals;
using trireme::testing::Child;

namespace {

using trireme::testing::has;

constexpr rlim_t kFew = 64;
const net::Credentials kJob{"job", {}};

Deadline soon() { return Deadline::after(10s); }
void allow_few() {
  set_log_sink([](LogLevel, std::string_view) {});
  rlimit limit{kFew, kFew};
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// Takes every descriptor that is left.
std::vector<UniqueFd> take_all() {
  std::vector<UniqueFd> out;
  while (true) {
    UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!fd) return out;
    out.push_back(std::move(fd));
  }
}

std::string resource_error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const ResourceError& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST(store_limits, a_server_out_of_descriptors_serves_those_who_are_in_and_takes_others_later) {
  Child serving([](const Child::Parent& parent) {
    allow_few();
    StoreServer server({kJob});
    parent.tell(server.endpoints()[0].text());
    parent.hear();
    auto refusals = server.refusals();
    parent.tell(refusals.empty() ? "no refusals" : refusals[0]);
    parent.hear();
  });
  auto at = net::Endpoint::parse(serving.hear());
  auto good = TcpStore::connect(at, kJob, soon());
  std::vector<net::Socket> crowd;
  for (int i = 0; i < 100; ++i) crowd.push_back(net::connect(at, soon()));
  for (int i = 1; i <= 100; ++i) EXPECT_EQ(good->add("n", 1), i);
  serving.tell("what did you refuse?");
  auto refused = serving.hear();
  EXPECT_TRUE(has(refused, "ulimit -n")) << refused;
  crowd.clear();
  EXPECT_EQ(TcpStore::connect(at, kJob, soon())->add("n", 1), 101);
  serving.tell("end");
  EXPECT_EQ(serving.wait(), 0);
}

TEST(store_limits, a_client_out_of_descriptors_says_so_and_its_connections_go_on) {
  Child child([](const Child::Parent& parent) {
    allow_few();
    auto at = net::Endpoint::parse(parent.hear());
    auto first = TcpStore::connect(at, kJob, soon());
    auto taken = take_all();
    parent.tell(resource_error_of([&] { first->clone(soon()); }));
    parent.tell(resource_error_of([&] {
      TcpStore::connect(net::Endpoint::tcp({"localhost", at.address.port}), kJob, soon());
    }));
    parent.tell(std::to_string(first->add("n", 1)));
  });
  StoreServer server({kJob});
  child.tell(server.endpoints()[0].text());
  for (int i = 0; i < 2; ++i) {
    auto what = child.hear();
    EXPECT_TRUE(has(what, "Too many open files") && has(what, "ulimit -n")) << what;
  }
  EXPECT_EQ(child.hear(), "1");
  EXPECT_EQ(child.wait(), 0);
}

TEST(store_limits, a_store_that_cannot_be_opened_for_want_of_descriptors_says_so) {
  PrivateFolder folder;
  Child child([&](const Child::Parent& parent) {
    allow_few();
    auto path = folder / "store";
    auto store = FileStore::join(path, {"job", 0, 2, 0}, soon());
    auto taken = take_all();
    parent.tell(resource_error_of([&] { FileStore::join(path, {"job", 0, 2, 1}, soon()); }));
    parent.tell(resource_error_of([&] { store->clone(soon()); }));
    parent.tell(resource_error_of([&] { StoreServer server({kJob}); }));
    taken.resize(taken.size() - 1);  // room for the listener alone
    parent.tell(resource_error_of([&] { StoreServer server({kJob}); }));
    parent.tell(std::to_string(store->add("n", 1)));
  });
  for (int i = 0; i < 4; ++i) {
    auto what = child.hear();
    EXPECT_TRUE(has(what, "Too many open files") && has(what, "ulimit -n")) << what;
  }
  EXPECT_EQ(child.hear(), "1");
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace limits_test
