// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <sstream>

#include "tests/support/paths.h"
#include "trireme/base/file.h"
#include "trireme/channel/local/letter.h"

namespace trireme::channel::local {
namespace {

// Workers of different builds share it: whatever moves needs a new version.
std::string layout() {
  std::ostringstream text;
  text << "# Memory and letters that two workers share, version " << kSharedVersion
       << ": name, offset, size\n";
  auto line = [&](const char* name, size_t offset, size_t size) {
    text << name << ' ' << offset << ' ' << size << '\n';
  };
#define FIELD(type, field) line(#type "." #field, offsetof(type, field), sizeof(type::field))
  line("Lane", 0, sizeof(Lane));
  FIELD(Lane, magic);
  FIELD(Lane, version);
  FIELD(Lane, bytes);
  FIELD(Lane, head);
  FIELD(Lane, closed);
  FIELD(Lane, why);
  FIELD(Lane, sender_waits);
  FIELD(Lane, taken);
  FIELD(Lane, returned);
  FIELD(Lane, returns);
  FIELD(Lane, ring);
  line("BellMemory", 0, sizeof(BellMemory));
  FIELD(BellMemory, magic);
  FIELD(BellMemory, version);
  FIELD(BellMemory, sleeping);
  FIELD(BellMemory, bell);
  line("Letter", 0, sizeof(Letter));
  FIELD(Letter, magic);
  FIELD(Letter, version);
  FIELD(Letter, kind);
  FIELD(Letter, number);
  FIELD(Letter, generation);
  FIELD(Letter, bytes);
  FIELD(Letter, text_bytes);
  FIELD(Letter, token);
  FIELD(Letter, text);
#undef FIELD
  return text.str();
}

}  // namespace

TEST(channel_local_layout, is_that_of_its_version) {
  const std::string path = trireme::testing::source_path("/tests/formats/channel-local-v") +
                           std::to_string(kSharedVersion) + ".txt";
  EXPECT_EQ(layout(), read_file(path))
      << "What workers share has changed: raise kSharedVersion and add a fixture beside " << path;
}

TEST(channel_local_layout, what_the_two_ends_write_does_not_share_a_line) {
  EXPECT_GE(offsetof(Lane, taken) / 64, offsetof(Lane, sender_waits) / 64 + 1);
  EXPECT_NE(offsetof(Lane, head) / 64, offsetof(Lane, closed) / 64);
  EXPECT_EQ(offsetof(Lane, ring) % 4096, 0u);
}

}  // namespace trireme::channel::local
