// SPDX-License-Identifier: Apache-2.0
// A process that holds references to objects of another: while it is stopped it keeps them, and it
// goes on with them; killed, it lets go of them.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/rpc/processes.h"
#include "tests/support/captured_log.h"
#include "tests/support/processes.h"
#include "trireme/rpc/object/rref.h"

namespace trireme::rpc_object_stopped_test {
namespace {

using namespace rpc_test;
using rpc::RRef;

std::atomic<int> alive{0};

struct Box {
  explicit Box(int value) : value_(value) { ++alive; }
  ~Box() { --alive; }
  int get() const { return value_; }

 private:
  const int value_;
};
TRIREME_REMOTE_CLASS(Box, int);
TRIREME_REMOTE(get_box, &Box::get);

struct Shelf {
  void put(const std::vector<RRef<Box>>& more) {
    std::lock_guard lock(mutex);
    boxes.insert(boxes.end(), more.begin(), more.end());
  }
  int sum() {
    std::lock_guard lock(mutex);
    int sum = 0;
    for (const auto& box : boxes) sum += box.sync<get_box>();
    return sum;
  }
  std::mutex mutex;
  std::vector<RRef<Box>> boxes;
};
TRIREME_REMOTE(put_boxes, &Shelf::put);
TRIREME_REMOTE(sum_of_boxes, &Shelf::sum);

/// True: none of its threads runs any more.
bool stop(const testing::Child& child) {
  child.send(SIGSTOP);
  return testing::eventually([&] {
    const std::string threads = "/proc/" + std::to_string(child.pid()) + "/task";
    for (const int thread : testing::numbers_in(threads))
      if (testing::state_of(thread) != 'T') return false;
    return true;
  });
}

class rpc_object_stopped : public ::testing::TestWithParam<const char*> {};

}  // namespace

TEST_P(rpc_object_stopped, a_process_keeps_what_it_holds_and_lets_go_of_it_when_it_is_killed) {
  testing::CapturedLog log;
  const std::string road = GetParam();
  const auto offers = [](const WorkerProcess::Parent&) {
    return std::vector<rpc::Offer>{rpc::offer<put_boxes, sum_of_boxes>(std::make_shared<Shelf>())};
  };
  WorkerProcess user(road, "user0", offers), other(road, "user1", offers);
  const SharedStore store;
  ASSERT_TRUE(user.join(store) && other.join(store));
  const auto me = rpc::init(
      process_options(road, "owner", store.address(), {rpc::offer_objects<Box, get_box>()}));
  const rpc::Peer holder = me.peer("user0"), witness = me.peer("user1");
  {
    std::vector<RRef<Box>> boxes;
    for (int i = 1; i <= 10; ++i) boxes.push_back(rpc::own(me, std::make_shared<Box>(i)));
    holder.sync<put_boxes>(boxes);
    witness.sync<put_boxes>(std::vector<RRef<Box>>{boxes[0]});
  }
  ASSERT_EQ(holder.sync<sum_of_boxes>(), 55);
  ASSERT_EQ(alive, 10);

  ASSERT_TRUE(stop(*user));
  EXPECT_THROW(holder.with(700ms).sync<sum_of_boxes>(), Timeout);
  EXPECT_EQ(witness.sync<sum_of_boxes>(), 1) << "others go on";
  EXPECT_EQ(alive, 10) << "stopped is not dead";
  user->send(SIGCONT);
  EXPECT_EQ(holder.sync<sum_of_boxes>(), 55);

  ASSERT_TRUE(stop(*user));  // dead is dead, though it was stopped
  user->kill();
  EXPECT_TRUE(comes_about([] { return alive == 1; })) << alive;
  EXPECT_EQ(witness.sync<sum_of_boxes>(), 1);
  other->kill();
  EXPECT_TRUE(comes_about([] { return alive == 0; })) << alive;
  me.shutdown({.graceful = false, .deadline = kPlenty});
}

INSTANTIATE_TEST_SUITE_P(, rpc_object_stopped, ::testing::Values("local", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace trireme::rpc_object_stopped_test
