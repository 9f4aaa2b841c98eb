// SPDX-License-Identifier: Apache-2.0
// What a worker that hangs is doing, as it writes it down when somebody asks.
#include "trireme/rpc/agent/call_board.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/rpc/workers.h"
#include "tests/store/child.h"
#include "tests/support/processes.h"
#include "tests/support/sanitized.h"
#include "trireme/base/file.h"

namespace trireme::rpc_call_board_test {
namespace {

using namespace rpc_test;
using rpc::detail::CallBoard;
using rpc::detail::CallDirection;

struct Service {
  Gate gate;
  void hold() { gate.wait(); }
};
TRIREME_REMOTE(hold, &Service::hold);

std::string written_in(const std::string& folder) {
  std::string text;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".calls") text += read_file(entry.path().string());
  return text;
}

}  // namespace

TEST(rpc_call_board, shows_the_calls_that_are_under_way_and_no_others) {
  CallBoard board("trainer0", "");
  const int first = board.put(CallDirection::made, "pull", "server0", now_ns() - 2'000'000'000);
  const int second = board.put(CallDirection::answered, std::string(200, 'm'), "a", now_ns());
  ASSERT_EQ(board.now().size(), 2u);
  board.take(second);
  const auto calls = board.now();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].method, "pull");
  EXPECT_EQ(calls[0].peer, "server0");
  EXPECT_GE(calls[0].seconds, 2.0);
  board.take(first);
  EXPECT_TRUE(board.now().empty());
}

TEST(rpc_call_board, a_call_that_finds_no_place_is_made_all_the_same) {
  CallBoard board("trainer0", "");
  std::vector<int> places;
  for (size_t i = 0; i < 3 * CallBoard::kPlaces; ++i)
    places.push_back(board.put(CallDirection::made, "pull", "server0", 0));
  EXPECT_LE(board.now().size(), CallBoard::kPlaces);
  EXPECT_GT(board.now().size(), CallBoard::kPlaces / 2);
  for (const int place : places) board.take(place);
  EXPECT_TRUE(board.now().empty());
}

TEST(rpc_call_board, is_read_while_others_write) {
  CallBoard board("trainer0", "");
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (const char c : {'a', 'b', 'c'})
    threads.emplace_back([&, c] {
      const std::string text(40, c);
      while (!over) board.take(board.put(CallDirection::made, text, text, 0));
    });
  for (int i = 0; i < 2000; ++i)
    for (const auto& call : board.now()) {
      ASSERT_EQ(call.method, call.peer) << "never half of one and half of another";
      ASSERT_EQ(call.method, std::string(40, call.method[0]));
    }
  over = true;
  for (auto& thread : threads) thread.join();
}

TEST(rpc_call_board, a_process_that_hangs_names_its_calls_when_it_is_asked) {
  if (testing::kThreadSanitized)
    GTEST_SKIP() << "ThreadSanitizer keeps a signal back while all threads of the process sleep";
  const PrivateFolder folder("trireme-test");
  testing::Child child([&](const testing::Child::Parent& parent) {
    ::setenv("TRIREME_FLIGHT_DIR", folder.path().c_str(), 1);
    Job job;
    auto service = std::make_shared<Service>();
    auto server = job.start("server0", {rpc::offer<hold>(service)});
    auto me = job.start("trainer/0");
    auto future = me.peer("server0").async<hold>();
    service->gate.has_waiting(1);
    parent.tell("hangs");
    parent.hear();
  });
  ASSERT_EQ(child.hear(), "hangs");
  const std::string waits = "  waits for 'hold' on worker 'server0', since ",
                    runs = "  runs 'hold' for worker 'trainer/0', since ",
                    head = "calls under way of worker 'trainer/0' (pid ";
  EXPECT_TRUE(testing::eventually([&] {
    child.send(SIGUSR2);
    const std::string text = written_in(folder.path());
    return text.find(waits) != text.npos && text.find(runs) != text.npos &&
           text.find(head) != text.npos;
  })) << written_in(folder.path());
  EXPECT_EQ(testing::state_of(child.pid()) == 'Z', false) << "it goes on";
}

TEST(rpc_call_board, where_nothing_is_under_way_nothing_is_written) {
  const PrivateFolder folder("trireme-test");
  Job job;
  auto worker = job.start("trainer0");
  EXPECT_EQ(write_all_down(0, folder.path().c_str()), 0);
  EXPECT_EQ(written_in(folder.path()), "");
}

}  // namespace trireme::rpc_call_board_test
