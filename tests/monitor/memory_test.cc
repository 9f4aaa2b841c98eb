// SPDX-License-Identifier: Apache-2.0
#include "trireme/monitor/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "tests/support/sanitized.h"

namespace trireme::memory_test {
namespace {

constexpr int64_t kSize = int64_t{32} << 20;

struct Mapping {
  explicit Mapping(int flags)
      : at(::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0)) {
    if (at != MAP_FAILED) std::memset(at, 1, kSize);
  }
  ~Mapping() { ::munmap(at, kSize); }
  void* at;
};

TEST(monitor_memory, fields_of_proc_are_bytes_and_absent_ones_zero) {
  const std::string text = "Name:\tx\nRssAnonymous:\t9 kB\nRssAnon:\t  1234 kB\nRssFile:\t5 kB";
  EXPECT_EQ(detail::proc_field_bytes(text, "RssAnon"), 1234 * 1024);
  EXPECT_EQ(detail::proc_field_bytes(text, "RssFile"), 5 * 1024);
  EXPECT_EQ(detail::proc_field_bytes(text, "RssShmem"), 0);
  EXPECT_EQ(detail::proc_field_bytes("RssAnon", "RssAnon"), 0);
  EXPECT_EQ(detail::proc_field_bytes("", "RssAnon"), 0);
}

TEST(monitor_memory, touched_anonymous_memory_is_counted) {
  if (testing::kSanitized)
    GTEST_SKIP() << "the sanitizer's shadow of what is touched counts as ours";
  const MemoryUse before = memory_use();
  Mapping memory(MAP_PRIVATE);
  ASSERT_NE(memory.at, MAP_FAILED);
  const int64_t grown = memory_use().anonymous - before.anonymous;
  EXPECT_GE(grown, kSize * 9 / 10);
  EXPECT_LE(grown, kSize * 3 / 2);
}

TEST(monitor_memory, shared_memory_counts_only_as_far_as_it_is_ours) {
  if (testing::kSanitized)
    GTEST_SKIP() << "the sanitizer's shadow of what is touched counts as ours";
  const MemoryUse before = memory_use();
  Mapping memory(MAP_SHARED);  // as a peer's window that this rank has read
  ASSERT_NE(memory.at, MAP_FAILED);
  const MemoryUse peers = memory_use(), own = memory_use(kSize);
  EXPECT_GE(peers.shared - before.shared, kSize * 9 / 10);
  EXPECT_LT(peers.total() - before.total(), kSize / 2);
  EXPECT_EQ(own.total() - own.anonymous, kSize);
}

TEST(monitor_memory, proportional_memory_is_at_least_what_nobody_shares) {
  Mapping memory(MAP_PRIVATE);
  ASSERT_NE(memory.at, MAP_FAILED);
  const int64_t pss = proportional_memory();
  if (pss < 0) GTEST_SKIP() << "this kernel has no smaps_rollup";
  EXPECT_GE(pss, kSize * 9 / 10);
}

}  // namespace
}  // namespace trireme::memory_test
