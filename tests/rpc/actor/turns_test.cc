// SPDX-License-Identifier: Apache-2.0
// What the chain of calls says of actors' turns.
#include "trireme/rpc/actor/turns.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace trireme::rpc_actor_turns_test {
namespace {

using rpc::detail::origin_in;
using rpc::detail::shown_turns;
using rpc::detail::Turn;
using rpc::detail::turn_of;
using rpc::detail::turn_text;
using rpc::wire::Link;

}  // namespace

TEST(rpc_actor_turns, a_turn_is_read_back_from_its_text) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) {
    const Turn turn{random(), random() >> random() % 64};
    const Link link{"sim0", turn_text("Sim.run", turn)};
    EXPECT_EQ(turn_of(link), turn);
    EXPECT_EQ(shown_turns({link}), "'Sim.run' on 'sim0'");
  }
}

TEST(rpc_actor_turns, other_methods_are_no_turns) {
  const std::string good = turn_text("m", {1, 2});
  std::mt19937_64 random(2);
  for (const std::string& text :
       {std::string(), std::string("pull"), std::string(300, '#'), good.substr(1 + 1), good + " ",
        good.substr(0, good.size() - 1),
        std::string(" #") + std::string(16, 'g') + "." + std::string(16, '0')})
    EXPECT_FALSE(turn_of({"w", text})) << text;
  int read = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    text[random() % text.size()] = static_cast<char>(random());
    read += turn_of({"w", text}).has_value();  // whatever it is, within bounds
    EXPECT_FALSE(shown_turns({{"w", text}}).empty());
  }
  EXPECT_GT(read, 0);
  EXPECT_LT(read, 20000);
}

TEST(rpc_actor_turns, the_origin_of_a_message_is_the_turn_within_which_it_was_sent) {
  const Turn a{1, 10}, b{2, 20}, again{1, 30};
  const std::vector<Link> chain{{"w0", turn_text("A.ask", a)},
                                {"w1", turn_text("B.ask", b)},
                                {"w0", turn_text("A.tell", again)}};
  const auto origin = origin_in(chain, "w0", a);
  ASSERT_TRUE(origin);
  EXPECT_EQ(origin->link, 0u);
  EXPECT_EQ(origin->first_ticket, 20u);
  EXPECT_FALSE(origin->direct);
  EXPECT_TRUE(origin_in(chain, "w1", b)->direct);
  EXPECT_EQ(origin_in(chain, "w1", b)->first_ticket, 30u);
  EXPECT_FALSE(origin_in(chain, "w0", again)) << "a message is not within itself";
  EXPECT_FALSE(origin_in(chain, "w1", a)) << "another worker's";
  EXPECT_FALSE(origin_in(chain, "w0", {1, 11})) << "another turn";
  const std::vector<Link> through{{"w0", turn_text("A.ask", a)}, {"w1", "plain"}, {"w0", "A.tell"}};
  EXPECT_EQ(origin_in(through, "w0", a)->first_ticket, 0u);
  EXPECT_FALSE(origin_in({}, "w0", a));
}

}  // namespace trireme::rpc_actor_turns_test
