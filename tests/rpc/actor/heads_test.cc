// SPDX-License-Identifier: Apache-2.0
// What stands before the arguments of calls of actors, byte for byte as docs/rpc.md says it.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <string>

#include "trireme/rpc/actor/host.h"
#include "trireme/rpc/actor/message.h"

namespace trireme::rpc_actor_heads_test {
namespace {

template <class Head>
std::string bytes_of(const Head& head) {
  encoding::Writer writer;
  writer.put(head);
  std::string hex;
  for (const char byte : writer.take()) hex += fmt::format("{:02x}", static_cast<uint8_t>(byte));
  return hex;
}

}  // namespace

TEST(rpc_actor_heads, a_message_begins_with_its_actor_its_ticket_and_whether_it_is_answered) {
  const std::string broadcast = bytes_of(rpc::detail::MessageHead{0x0102, 0x0a0b, false});
  EXPECT_EQ(broadcast,
            "0201000000000000"
            "0b0a000000000000"
            "00");
  EXPECT_EQ(bytes_of(rpc::detail::MessageHead{1, 2, true}).back(), '1');
}

TEST(rpc_actor_heads, a_spawn_begins_with_the_actor_its_place_and_its_policy) {
  const rpc::detail::SpawnHead head{.actor = 1,
                                    .group = "Sim",
                                    .rank = 2,
                                    .size = 4,
                                    .restarts = 3,
                                    .on_error = rpc::OnError::restart,
                                    .most_restarts = 5,
                                    .within_ns = 6};
  EXPECT_EQ(bytes_of(head),
            "0100000000000000"
            "0300000000000000"
            "53696d"
            "02000000"
            "04000000"
            "03000000"
            "01000000"
            "05000000"
            "0600000000000000");
}

}  // namespace trireme::rpc_actor_heads_test
