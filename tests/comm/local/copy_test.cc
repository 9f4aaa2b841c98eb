// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace copy_test {

using namespace trireme::local;

// What lies around the target stays as it was.
TEST(comm_local_copy, every_alignment_and_size_copies_exactly_that) {
  constexpr size_t kAround = 64, kMost = (160 << 10) + 77;
  std::vector<unsigned char> from(kMost + 128), to(kMost + 128 + 2 * kAround);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 131 + i / 4096);
  for (bool streamed : {false, true})
    for (size_t size : {size_t{0}, size_t{1}, size_t{4095}, size_t{16384}, size_t{32767},
                        size_t{32768}, size_t{32768 + 63}, size_t{65536 + 4096 + 1}, kMost})
      for (size_t at : {0, 1, 16, 63})
        for (size_t source : {0, 7, 64}) {
          std::fill(to.begin(), to.end(), 0xee);
          copy_block(to.data() + kAround + at, from.data() + source, size, streamed);
          const auto begin = to.begin() + static_cast<std::ptrdiff_t>(kAround + at),
                     end = begin + static_cast<std::ptrdiff_t>(size);
          ASSERT_TRUE(std::equal(begin, end, from.begin() + static_cast<std::ptrdiff_t>(source)))
              << size << " bytes from " << source << " to " << at << ", streamed " << streamed;
          auto untouched = [](unsigned char c) { return c == 0xee; };
          ASSERT_TRUE(std::all_of(to.begin(), begin, untouched) &&
                      std::all_of(end, to.end(), untouched))
              << size << " bytes to " << at;
        }
}

TEST(comm_local_copy, a_call_that_leaves_the_caches_is_streamed_on_every_machine) {
  EXPECT_GT(stream_from(), size_t{1} << 20);
  EXPECT_LE(stream_from(), size_t{96} << 20);
}

}  // namespace copy_test
