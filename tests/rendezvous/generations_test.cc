// SPDX-License-Identifier: Apache-2.0
// A worker's view of who is there, told by its launcher through the store.
#include "trireme/rendezvous/generations.h"

#include <gtest/gtest.h>

#include <thread>

#include "trireme/base/error.h"
#include "trireme/store/memory_store.h"

namespace trireme::generations_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class rendezvous_generations : public ::testing::Test {
 protected:
  void announce(int64_t number, std::vector<int64_t> members, int64_t broken) {
    store_->set(generations::newest(2), encode(Generation{number, std::move(members), broken}));
  }
  std::unique_ptr<GenerationMember> member(int64_t id) {
    return std::make_unique<GenerationMember>(store_->clone(Deadline::never()), 2, id, 3);
  }
  static bool eventually(const std::function<bool()>& what) {
    for (const Deadline end = Deadline::after(seconds(20)); !end.expired();) {
      if (what()) return true;
      std::this_thread::yield();
    }
    return false;
  }
  std::shared_ptr<Store> store_ = std::make_shared<MemoryStore>();
};

TEST_F(rendezvous_generations, a_worker_goes_from_the_first_ones_to_the_newest_that_holds_it) {
  const auto worker = member(2);
  EXPECT_EQ(worker->rank(), 2);
  EXPECT_FALSE(worker->came_later());
  EXPECT_FALSE(worker->is_over());
  EXPECT_FALSE(worker->next(Deadline::after(milliseconds(5))).came);
  announce(1, {0, 1}, 0);
  announce(2, {0, 2}, 0);
  EXPECT_TRUE(eventually([&] { return worker->is_over(); }));
  EXPECT_TRUE(worker->next(Deadline::after(seconds(20))).came);
  EXPECT_EQ(worker->generation().number, 2);
  EXPECT_EQ(worker->rank(), 1);
  EXPECT_FALSE(worker->is_over());
}

TEST_F(rendezvous_generations, one_that_came_later_waits_for_its_turn_or_the_end_of_the_run) {
  const auto later = member(3);
  EXPECT_TRUE(later->came_later());
  EXPECT_EQ(later->rank(), -1);
  later->say_ready();
  EXPECT_TRUE(store_->try_get(generations::ready(2, 3)));
  announce(1, {0, 1}, 0);
  EXPECT_FALSE(later->next(Deadline::after(milliseconds(5))).came) << "others train";
  const auto first = member(0);
  first->say_able();
  EXPECT_TRUE(store_->try_get(generations::able(2, 0)));
  first->say_over(75);
  const auto end = later->next(Deadline::never());
  EXPECT_FALSE(end.came);
  EXPECT_EQ(end.exit_code, 75);
}

TEST_F(rendezvous_generations, the_first_word_that_the_run_is_over_counts_before_any_generation) {
  const auto later = member(3), last = member(1);
  announce(1, {3, 1}, 0);
  ASSERT_TRUE(later->next(Deadline::after(seconds(20))).came);
  const auto meeting = later->meeting();  // to which the other does not come: it has ended
  last->say_over(0);
  member(2)->say_over(75);
  EXPECT_THROW(meeting->get("never", Deadline::after(seconds(20))), PeerLost);
  announce(2, {3, 1, 5}, 0);
  const auto end = later->next(Deadline::never());
  EXPECT_FALSE(end.came);
  EXPECT_EQ(end.exit_code, 0);
}

TEST_F(rendezvous_generations, who_waits_for_a_lost_one_is_woken) {
  const auto worker = member(0);
  const auto meeting = worker->meeting();
  worker->has_formed();
  std::thread loses([&] { announce(2, {0, 3}, 1); });
  EXPECT_THROW(meeting->get("never", Deadline::after(seconds(20))), PeerLost);
  loses.join();
  EXPECT_THROW(meeting->clone(Deadline::never())->wait({"a"}, Deadline::after(seconds(20))),
               PeerLost);
  EXPECT_THROW(meeting->try_get("a"), PeerLost);
  EXPECT_TRUE(worker->next(Deadline::after(seconds(20))).came);
  worker->meeting()->set("met", "yes");
  EXPECT_EQ(store_->try_get("attempt/2/generation/2/met"), "yes");
}

TEST_F(rendezvous_generations, one_that_comes_wakes_who_meets_and_not_who_has_met) {
  const auto worker = member(0), other = member(1);
  announce(1, {0, 1}, 0);
  for (const auto& one : {worker.get(), other.get()})
    ASSERT_TRUE(one->next(Deadline::after(seconds(20))).came);
  const auto meeting = worker->meeting(), met = other->meeting();
  other->has_formed();
  announce(2, {0, 1, 3}, 0);
  EXPECT_THROW(meeting->get("never", Deadline::after(seconds(20))), PeerLost)
      << "the others may be in the newer one, and never come";
  EXPECT_TRUE(eventually([&] { return other->is_over(); }));
  EXPECT_THROW(met->get("never", Deadline::after(milliseconds(120))), Timeout)
      << "the generation has lost nobody";
}

TEST_F(rendezvous_generations, waiting_ends_when_its_owner_says_so) {
  const auto worker = member(0);
  int asked = 0;
  EXPECT_FALSE(worker->next(Deadline::never(), [&] { return ++asked == 3; }).came);
}

TEST_F(rendezvous_generations, a_process_without_the_launcher_s_number_is_no_member) {
  const auto env = [](const std::string& id) {
    return [id](const std::string& name) -> std::optional<std::string> {
      if (name == kMemberVariable && !id.empty()) return id;
      return std::nullopt;
    };
  };
  EXPECT_EQ(GenerationMember::of_process(seconds(1), env("")), nullptr);
  EXPECT_THROW(GenerationMember::of_process(seconds(1), env("x")), UsageError);
  EXPECT_THROW(GenerationMember::of_process(seconds(1), env("-1")), UsageError);
  EXPECT_THROW(GenerationMember::of_process(seconds(1), env("0")), UsageError) << "no store";
}

}  // namespace
}  // namespace trireme::generations_test
