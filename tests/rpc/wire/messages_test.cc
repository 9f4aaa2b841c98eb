// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/wire/messages.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <variant>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::rpc_wire_messages_test {
namespace {

using namespace rpc::wire;

std::vector<Message> examples() {
  return {Hello{"server0", 7, {{"pull", "tensor([i64])"}, {"ping", "void()"}}},
          Hello{"t", -1, {}},
          Call{3, 1, kNoBudget, {}},
          Call{0, UINT64_MAX, 0, {{"a", "f"}, {"b", "g"}}},
          Call{1, 2, 3, {{"a", "f"}}, Context{-1, UINT64_MAX, 5}},
          Reply{5},
          Failure{9, true, "", "std::out_of_range", "3 is too far", "server0", -1, -1, "", -1},
          Failure{0, false, "Timeout", "", "late", "b", 3, 4, "all_reduce", 1LL << 40},
          Began{1},
          Cancel{2},
          Goodbye{}};
}

std::string encoded(const Message& message) {
  return std::visit([](const auto& one) { return encode(one); }, message);
}

}  // namespace

TEST(rpc_wire_messages, each_is_read_as_it_was_written) {
  for (const Message& message : examples()) {
    const std::string bytes = encoded(message);
    const Decoded decoded = decode(bytes);
    EXPECT_EQ(decoded.message, message) << message.index();
    EXPECT_EQ(decoded.value_at, bytes.size());
  }
}

TEST(rpc_wire_messages, arguments_and_results_follow_the_head) {
  for (const Message& message : {Message(Call{3, 1, 2, {{"a", "f"}}}), Message(Reply{5})}) {
    const std::string head = encoded(message);
    const Decoded decoded = decode(head + "value");
    EXPECT_EQ(decoded.message, message);
    EXPECT_EQ(decoded.value_at, head.size());
  }
}

TEST(rpc_wire_messages, the_number_and_the_budget_of_a_call_are_written_when_it_leaves) {
  std::string bytes = encode(Call{4, 0, 0, {{"a", "f"}}}) + "arguments";
  complete(bytes, 77, 123456);
  EXPECT_EQ(std::get<Call>(decode(bytes).message), (Call{4, 77, 123456, {{"a", "f"}}}));
}

TEST(rpc_wire_messages, one_that_is_cut_short_is_Corrupt) {
  for (const Message& message : examples()) {
    const std::string bytes = encoded(message);
    for (size_t length = 0; length < bytes.size(); ++length)
      EXPECT_THROW(decode(bytes.substr(0, length)), Corrupt) << message.index() << " " << length;
  }
}

TEST(rpc_wire_messages, one_with_bytes_too_many_is_Corrupt) {
  for (const Message& message : examples())
    if (!std::holds_alternative<Call>(message) && !std::holds_alternative<Reply>(message)) {
      EXPECT_THROW(decode(encoded(message) + "x"), Corrupt) << message.index();
    }
}

TEST(rpc_wire_messages, lengths_beyond_what_is_there_are_refused_before_they_cost_memory) {
  std::string hello = encode(Hello{"w", 0, {}});
  for (const uint32_t methods : {16385u, 1u, UINT32_MAX}) {
    std::string bytes = hello;
    bytes.replace(bytes.size() - 4, 4, reinterpret_cast<const char*>(&methods), 4);
    EXPECT_THROW(decode(bytes), Corrupt) << methods;
  }
  std::string bytes = hello;
  const uint32_t length = UINT32_MAX;
  bytes.replace(9, 4, reinterpret_cast<const char*>(&length), 4);  // of the name
  EXPECT_THROW(decode(bytes), Corrupt);
}

TEST(rpc_wire_messages, another_version_is_a_Mismatch_that_names_both) {
  std::string bytes = encode(Hello{"w", 0, {}});
  bytes[5] = 9;
  try {
    decode(bytes);
    FAIL() << "read";
  } catch (const Mismatch& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("version 9"), text.npos) << text;
    EXPECT_NE(text.find("version 2"), text.npos) << text;
  }
}

TEST(rpc_wire_messages, flags_and_kinds_that_nobody_knows_are_refused) {
  std::string hello = encode(Hello{"w", 0, {}}), call = encode(Call{});
  hello[7] = 1;
  EXPECT_THROW(decode(hello), Corrupt);
  call[1] = 1;
  EXPECT_THROW(decode(call), Corrupt);
  for (const char kind : {0, 8, 100, -1}) EXPECT_THROW(decode(std::string(20, kind)), Corrupt);
  std::string failure = encode(Failure{});
  failure[9] = 2;  // whether it began
  EXPECT_THROW(decode(failure), Corrupt);
}

TEST(rpc_wire_messages, what_is_too_long_is_refused_or_cut_where_it_is_written) {
  EXPECT_THROW(encode(Hello{"w", 0, {{std::string(257, 'n'), "void()"}}}), UsageError);
  EXPECT_THROW(encode(Hello{"w", 0, {{"n", std::string(kMaxSignature + 1, 's')}}}), UsageError);
  std::vector<MethodName> many;
  for (int i = 0; i < 20; ++i) many.push_back({std::to_string(i), std::string(kMaxSignature, 's')});
  EXPECT_THROW(encode(Hello{"w", 0, many}), UsageError);  // beyond kMaxHello
  EXPECT_THROW(encode(Hello{"w", 0, std::vector<MethodName>(kMaxMethods + 1)}), UsageError);
  Failure failure;
  failure.text = std::string(1 << 20, 'x');
  EXPECT_EQ(std::get<Failure>(decode(encode(failure)).message).text.size(), kMaxText);
}

TEST(rpc_wire_messages, a_chain_that_has_no_end_is_refused_and_shown_by_its_ends) {
  Call call;
  for (size_t i = 0; i < kMaxChain; ++i) call.chain.push_back({"w" + std::to_string(i), "f"});
  EXPECT_EQ(std::get<Call>(decode(encode(call)).message), call);
  call.chain.push_back({"last", "g"});
  try {
    encode(call);
    FAIL() << "written";
  } catch (const UsageError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("'f' on 'w0'"), text.npos) << text;
    EXPECT_NE(text.find("57 more"), text.npos) << text;
    EXPECT_NE(text.find("'g' on 'last'"), text.npos) << text;
  }
  EXPECT_EQ(shown({{"a", "f"}, {"b", "g"}}), "'f' on 'a' → 'g' on 'b'");
}

TEST(rpc_wire_messages, any_bytes_are_read_as_the_message_that_they_are_or_refused) {
  const auto all = examples();
  std::mt19937_64 random(3);
  const auto draw = [&](uint64_t below) { return random() % below; };
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = encoded(all[draw(all.size())]);
    for (uint64_t n = 1 + draw(4); n > 0; --n)
      bytes[draw(bytes.size())] = static_cast<char>(draw(256));
    try {
      const Decoded decoded = decode(bytes);
      ASSERT_LE(decoded.value_at, bytes.size());
      ASSERT_EQ(encoded(decoded.message), bytes.substr(0, decoded.value_at));
    } catch (const Corrupt&) {
    } catch (const Mismatch&) {
    }
  }
}

}  // namespace trireme::rpc_wire_messages_test
