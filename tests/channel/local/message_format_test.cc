// SPDX-License-Identifier: Apache-2.0
#include "trireme/channel/local/message_format.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/channel/workers.h"
#include "tests/support/paths.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace trireme::channel::local {
namespace {

using conformance::body_of;
using conformance::is_body;
using conformance::pattern;

std::string written(const Message& message, const std::vector<std::optional<LentPlace>>& lent,
                    std::mt19937_64& random) {
  MessageWriter writer(message, lent);
  std::string bytes;
  while (writer.left() > 0) {
    const uint64_t n = 1 + random() % writer.left();
    bytes.resize(bytes.size() + n);
    writer.write(reinterpret_cast<unsigned char*>(bytes.data()) + bytes.size() - n, n);
  }
  return bytes;
}

/// Fed in random parts; the message must end with the last of them.
std::optional<Message> read(const std::string& bytes, const MessageReader::Resolve& resolve,
                            std::mt19937_64& random) {
  MessageReader reader;
  std::optional<Message> message;
  for (size_t at = 0; at < bytes.size();) {
    const size_t n = 1 + random() % (bytes.size() - at);
    EXPECT_FALSE(message);
    message = reader.feed(reinterpret_cast<const unsigned char*>(bytes.data()) + at, n, resolve);
    at += n;
    EXPECT_EQ(reader.in_the_middle(), !message);
  }
  return message;
}

std::shared_ptr<const void> nothing_is_lent(const LentPlace&, uint64_t) {
  throw Corrupt("nothing is lent here");
}

TEST(channel_local_message_format, messages_come_out_as_they_went_in_however_they_are_cut) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 500; ++round) {
    Message message{pattern(random() % 300, 1), {}};
    std::vector<std::optional<LentPlace>> lent;
    for (uint64_t i = random() % 6; i > 0; --i) {
      message.bodies.push_back(body_of(random() % 2 * (random() % 5000), i));
      lent.emplace_back();
      if (random() % 3 == 0)
        lent.back() =
            LentPlace{static_cast<uint32_t>(random()), static_cast<uint32_t>(random()), random()};
    }
    std::vector<LentPlace> asked;
    const auto resolve = [&](const LentPlace& place, uint64_t bytes) {
      asked.push_back(place);
      return body_of(bytes + 1, 9).data;
    };
    const auto got = read(written(message, lent, random), resolve, random);
    ASSERT_TRUE(got);
    EXPECT_EQ(got->bytes, message.bytes);
    ASSERT_EQ(got->bodies.size(), message.bodies.size());
    size_t next = 0;
    for (size_t i = 0; i < lent.size(); ++i) {
      EXPECT_EQ(got->bodies[i].bytes, message.bodies[i].bytes);
      if (!lent[i]) {
        EXPECT_TRUE(got->bodies[i].bytes == 0 ||
                    std::memcmp(got->bodies[i].data.get(), message.bodies[i].data.get(),
                                message.bodies[i].bytes) == 0);
        continue;
      }
      EXPECT_EQ(asked[next].window, lent[i]->window);
      EXPECT_EQ(asked[next].number, lent[i]->number);
      EXPECT_EQ(asked[next++].offset, lent[i]->offset);
    }
  }
}

TEST(channel_local_message_format, what_is_beyond_the_limits_is_refused_before_memory_is_taken) {
  const auto feed = [](std::vector<uint64_t> words) {
    MessageReader reader;
    return reader.feed(reinterpret_cast<const unsigned char*>(words.data()), 8 * words.size(),
                       nothing_is_lent);
  };
  const auto front = [](uint64_t bytes, uint64_t bodies) { return bytes | bodies << 32; };
  EXPECT_THROW(feed({front(kMostBytes + 1, 0)}), Corrupt);
  EXPECT_THROW(feed({front(0, kMostBodies + 1)}), Corrupt);
  EXPECT_THROW(feed({front(0, 1), (kMostBodyBytes + 1) << 1}), Corrupt);
  EXPECT_THROW(feed({front(0, 1), ~uint64_t{0}}), Corrupt);
  EXPECT_THROW(feed({front(0, 1), 3, 0, 0}), Corrupt);  // lent, and nothing is
  EXPECT_THROW(feed({front(0, 0), 0}), Corrupt);        // behind its end
  EXPECT_TRUE(feed({front(0, 0)}));
  EXPECT_FALSE(feed({front(1, 0)}));
}

TEST(channel_local_message_format, changed_bytes_are_a_message_or_refused) {
  std::mt19937_64 random(4);
  Message message{"text", {body_of(40, 1), body_of(0, 2), body_of(3000, 3)}};
  const std::string whole = written(message, {std::nullopt, LentPlace{1, 2, 4096}, {}}, random);
  int messages = 0, refused = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string bytes = whole;
    for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n) {
      // Sizes stay small or become impossible: those between would only cost this test memory.
      constexpr size_t kBytes[] = {0, 1, 2, 7};
      bytes[random() % 7 * 8 + kBytes[random() % 4]] = static_cast<char>(random() % 9);
    }
    MessageReader reader;
    try {
      if (reader.feed(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                      [](const LentPlace&, uint64_t) { return body_of(1, 1).data; }))
        ++messages;
    } catch (const Corrupt&) {
      ++refused;
    } catch (const ResourceError&) {
      ++refused;
    }
  }
  EXPECT_GT(messages, 100);
  EXPECT_GT(refused, 100);
}

// Two builds on one host must read each other's messages, or refuse each other.
TEST(channel_local_message_format, the_bytes_are_those_of_version_1) {
  std::mt19937_64 random(5);
  const std::string bytes = written({"seven b", {body_of(5, 1), body_of(70000, 2), {}}},
                                    {std::nullopt, LentPlace{3, 4, 8192}, std::nullopt}, random);
  EXPECT_EQ(bytes,
            read_file(trireme::testing::source_path("/tests/formats/channel-message-v1.bin")))
      << "Records have changed: raise kSharedVersion, and add a fixture";
}

}  // namespace
}  // namespace trireme::channel::local
