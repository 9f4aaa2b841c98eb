// SPDX-License-Identifier: Apache-2.0
// Who goes on when the launcher with the store of an elastic job is lost.
#include "trireme/launch/membership/succession.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "tests/launch/succession_history.h"
#include "trireme/base/error.h"

namespace trireme::launch::succession_test {
namespace {

using std::chrono::seconds;
using Step = SuccessionStep;

/// Every way in which one side of a generation may see the other.
template <class Body>
void for_all_cuts(int most, const Body& body) {
  for (int n = 1; n <= most; ++n)
    for (int left = 0; left < n; ++left)
      for (int dead = 0; left + dead < n; ++dead)
        for (int a = 0; left + dead + a <= n; ++a) body(n, left, dead, a, n - left - dead - a);
}

TEST(launch_succession, of_two_sides_that_do_not_see_each_other_at_most_one_goes_on) {
  int halves = 0;
  for_all_cuts(9, [&](int n, int left, int dead, int a, int b) {
    if (a == 0 || b == 0) return;
    // Each may know of the dead, or see nothing of them, and has heard of those that left, or not.
    for (int known_a = 0; known_a <= dead; ++known_a)
      for (int known_b = 0; known_b <= dead; ++known_b)
        for (int heard_a = 0; heard_a <= left; ++heard_a)
          for (int heard_b = 0; heard_b <= left; ++heard_b) {
            const Verdict one = verdict_of({n, a, known_a, heard_a});
            const Verdict other = verdict_of({n, b, known_b, heard_b});
            EXPECT_FALSE(one == Verdict::go_on && other == Verdict::go_on) << n << " " << a;
            EXPECT_FALSE(one == Verdict::go_on && other == Verdict::claim) << n << " " << a;
            halves += one == Verdict::claim && other == Verdict::claim;
          }
  });
  EXPECT_GT(halves, 0);
}

TEST(launch_succession, more_than_half_goes_on_and_a_half_where_the_others_are_known_to_be_dead) {
  for_all_cuts(16, [&](int n, int left, int dead, int ours, int silent) {
    if (ours == 0) return;
    const Verdict verdict = verdict_of({n, ours, dead, left});
    if (2 * ours > n - left)
      EXPECT_EQ(verdict, Verdict::go_on);
    else if (2 * ours == n - left)
      EXPECT_EQ(verdict, silent ? Verdict::claim : Verdict::go_on);
    else
      EXPECT_EQ(verdict, silent ? Verdict::give_up : Verdict::claim);
  });
  EXPECT_EQ(verdict_of({2, 1, 1, 0}), Verdict::go_on) << "either of --nnodes=1:2 may be killed";
  EXPECT_EQ(verdict_of({2, 1, 0, 0}), Verdict::claim) << "or its host cut off";
  EXPECT_EQ(verdict_of({4, 1, 0, 3}), Verdict::go_on) << "those that left said so themselves";
  EXPECT_EQ(verdict_of({3, 0, 3, 0}), Verdict::give_up) << "who is in none speaks for none";
}

/// Generation 7 of a, b, c, …, of whom a kept the store.
SuccessionView view_of(int members, const std::string& us) {
  SuccessionView view;
  view.us = us;
  view.own = {Standing::free, 7, "a"};
  view.last.number = 7;
  view.last.keeper = "a";
  for (int i = 0; i < members; ++i) {
    const std::string name(1, static_cast<char>('a' + i));
    view.last.members.push_back({name, name, 1, name + ":1"});
    if (name != us) view.seen[name] = {Sight::answers, {Standing::free, 7, "a"}};
  }
  view.seen["a"] = {Sight::refused};
  return view;
}

TEST(launch_succession, the_first_in_the_order_of_ranks_asks_and_the_others_wait_for_it) {
  const Step first = next_step(view_of(4, "b"));
  EXPECT_EQ(first.kind, Step::ask);
  EXPECT_EQ(first.asked, (std::vector<std::string>{"b", "c", "d"}));
  EXPECT_EQ(next_step(view_of(4, "c")).kind, Step::wait);
  SuccessionView late = view_of(4, "c");
  late.seen["b"].standing.is = Standing::in;
  EXPECT_EQ(next_step(late).kind, Step::wait) << "its workers still end";
  late.waited = seconds(61);
  EXPECT_EQ(next_step(late).kind, Step::ask);
  SuccessionView asked = view_of(4, "c");
  asked.own = {Standing::promised, 7, "a", "b"};
  EXPECT_EQ(next_step(asked).kind, Step::follow);
  EXPECT_EQ(next_step(asked).who, "b");
}

TEST(launch_succession, it_decides_when_all_have_answered_or_have_had_the_time) {
  SuccessionView view = view_of(4, "b");
  for (const char* name : {"c", "d"}) view.seen[name].standing = {Standing::promised, 7, "a", "b"};
  view.own = {Standing::promised, 7, "a", "b"};
  Step step = next_step(view);
  EXPECT_EQ(step.kind, Step::decided);
  EXPECT_EQ(step.verdict, Verdict::go_on);
  EXPECT_EQ(step.followers, 3);
  view.seen["d"] = {Sight::silent, {}, seconds(1)};
  EXPECT_EQ(next_step(view).kind, Step::wait);
  view.seen["d"].unheard = seconds(6);
  step = next_step(view);
  EXPECT_EQ(step.kind, Step::decided);
  EXPECT_EQ(step.verdict, Verdict::claim) << "two of four, and one may live";
  view.seen["c"] = {Sight::silent, {}, seconds(6)};
  step = next_step(view);
  EXPECT_EQ(step.kind, Step::give_up);
  EXPECT_EQ(step.sentence,
            "1 of the 4 nodes of the job are together here, and 2 do not answer: the others may go "
            "on, and not these");
}

TEST(launch_succession, a_promise_to_who_has_died_or_yielded_is_void_and_no_other_is) {
  SuccessionView view = view_of(5, "c");
  view.seen["b"] = {Sight::answers, {Standing::promised, 7, "a", "b"}};
  view.seen["d"].standing = {Standing::promised, 7, "a", "b"};
  EXPECT_EQ(next_step(view).kind, Step::wait) << "b asks";
  view.seen["b"] = {Sight::refused};
  EXPECT_EQ(next_step(view).asked, (std::vector<std::string>{"c", "d", "e"}));
  view.seen["b"] = {Sight::silent, {}, seconds(10)};
  EXPECT_EQ(next_step(view).asked, (std::vector<std::string>{"c", "e"})) << "b may live";
  // Two have begun to ask: the later one yields, for good.
  view.own = {Standing::promised, 7, "a", "c"};
  view.seen["b"] = {Sight::answers, {Standing::promised, 7, "a", "b"}};
  const Step yield = next_step(view);
  EXPECT_EQ(yield.kind, Step::yield);
  EXPECT_EQ(yield.who, "b");
  view.own = {Standing::promised, 7, "a", "b"};
  view.yielded = true;
  view.seen["b"] = {Sight::refused};
  EXPECT_EQ(next_step(view).kind, Step::wait);
  SuccessionView other = view_of(5, "b");
  other.own = {Standing::promised, 7, "a", "b"};
  other.seen["c"].standing = {Standing::promised, 7, "a", "b"};
  other.seen["d"].standing = {Standing::promised, 7, "a", "c"};
  EXPECT_EQ(next_step(other).asked, (std::vector<std::string>{"d", "e"}));
}

TEST(launch_succession, who_hears_of_a_newer_generation_comes_to_it_anew) {
  SuccessionView view = view_of(4, "b");
  view.seen["d"].standing = {Standing::in, 8, "d", "", "d:1"};
  EXPECT_EQ(next_step(view).kind, Step::rejoin);
  EXPECT_EQ(next_step(view).who, "d:1");
  EXPECT_EQ(next_step(view).generation, 8);
  EXPECT_EQ(next_step(view).keeper, "d");
  view.seen["d"].standing = {Standing::free, 8, "d"};
  EXPECT_EQ(next_step(view).kind, Step::wait) << "it has lost its store, too, and knows more";
}

// As after a cut that heals: the launcher that was cut off, which keeps its store, has announced a
// generation of its own, and the others have nearly elected one of themselves.
TEST(launch_succession, a_newer_generation_that_has_not_begun_is_nobodys_to_come_to) {
  SuccessionView view = view_of(3, "b");
  view.seen["a"] = {Sight::answers, {Standing::in, 8, "a", "", "a:1"}};
  EXPECT_EQ(next_step(view).kind, Step::rejoin);
  view.not_begun = {{8, "a"}};
  EXPECT_EQ(next_step(view).kind, Step::wait) << "it asks us, if it needs us";
  view.own = {Standing::promised, 7, "a", "b"};
  view.seen["c"].standing = {Standing::promised, 7, "a", "b"};
  EXPECT_EQ(next_step(view).kind, Step::wait) << "it may begin yet";
  view.seen["a"].standing.is = Standing::left;
  EXPECT_EQ(next_step(view).kind, Step::decided) << "it has given up";
  view.seen["a"].standing.is = Standing::in;
  view.waited = seconds(61);
  EXPECT_EQ(next_step(view).verdict, Verdict::go_on) << "it has none of us";
  view.seen["c"].standing = {Standing::in, 8, "d", "", "d:1"};
  EXPECT_EQ(next_step(view).kind, Step::rejoin) << "another one has begun";
  EXPECT_EQ(next_step(view).who, "d:1");
}

TEST(launch_succession, who_accepted_what_we_have_not_heard_of_is_not_asked) {
  SuccessionView view = view_of(3, "b");
  view.last.number = 9;
  view.last.keeper = "z";
  view.own = {Standing::free, 9, "z"};
  view.before = {view_of(3, "b").last};
  view.seen["c"].standing = {Standing::free, 8, "x"};
  EXPECT_EQ(next_step(view).asked, std::vector<std::string>{"b"});
  view.seen["c"].standing = {Standing::free, 6, "x"};
  EXPECT_EQ(next_step(view).asked.size(), 2u) << "it has been overtaken";
}

TEST(launch_succession, a_generation_that_may_have_begun_counts_beside_the_one_before) {
  SuccessionView view = view_of(3, "b");
  view.last.number = 8;
  view.last.members.pop_back();
  view.own = {Standing::promised, 8, "a", "b"};
  view.before = {view_of(3, "b").last};
  view.seen["c"] = {Sight::silent, {}, seconds(6)};
  const Step step = next_step(view);
  EXPECT_EQ(step.kind, Step::give_up) << "of the three before, c may go on with another";
  view.seen["c"] = {Sight::answers, {Standing::promised, 7, "a", "b"}};
  EXPECT_EQ(next_step(view).kind, Step::decided);
  EXPECT_EQ(next_step(view).verdict, Verdict::go_on);
}

TEST(launch_succession, in_any_history_one_generation_goes_on_and_a_connected_majority_does) {
  uint64_t begun = 0, proceeded = 0, claims_lost = 0, ended = 0;
  const uint64_t seeds = ::getenv("TRIREME_SOAK") ? 100'000 : 1'000;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const SuccessionHistory history(seed);
    ASSERT_EQ(history.fault, "") << "seed " << seed;
    begun += static_cast<uint64_t>(history.begun);
    proceeded += static_cast<uint64_t>(history.proceeded);
    claims_lost += static_cast<uint64_t>(history.claims_lost);
    ended += static_cast<uint64_t>(history.ended);
  }
  EXPECT_GT(begun, 2'000) << "the histories are not of nothing";
  EXPECT_GT(proceeded, 300);
  EXPECT_GT(claims_lost, 10);
  // It was 48 of 100 while launchers left what they could agree to for what had not begun.
  EXPECT_LT(100 * ended, 45 * seeds) << "jobs that rest with nobody";
}

TEST(launch_succession, a_standing_comes_back_as_it_was_said_and_other_words_are_refused) {
  const Standing standing{Standing::promised, 12, "k", "host \"a\" 00ff", ""};
  EXPECT_EQ(read_standing(to_text(standing)), standing);
  // As it has been since its first version.
  EXPECT_EQ(read_standing(R"({"generation":3,"is":"in","of":"k","store":"h:1","to":"","version":)"
                          R"("trireme standing 1"})"),
            (Standing{Standing::in, 3, "k", "", "h:1"}));
  for (const std::string& bad :
       {std::string(), std::string("{}"), std::string("[]"), std::string("null"),
        std::string(R"({"generation":3,"is":"out","of":"","store":"","to":"","version":)"
                    R"("trireme standing 1"})"),
        std::string(R"({"generation":-2,"is":"in","of":"","store":"","to":"","version":)"
                    R"("trireme standing 1"})"),
        std::string(R"({"generation":3,"is":"in","of":"","store":"","to":"","version":)"
                    R"("trireme standing 2"})"),
        R"({"generation":3,"is":"in","of":"","store":"","to":")" + std::string(2000, 'x') +
            R"(","version":"trireme standing 1"})"})
    EXPECT_THROW(read_standing(bad), Corrupt) << bad.substr(0, 100);
}

}  // namespace
}  // namespace trireme::launch::succession_test
