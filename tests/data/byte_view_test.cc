// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/sources/byte_view.h"

#include <gtest/gtest.h>

#include <string>

#include "trireme/base/error.h"

namespace byte_view_test {

using namespace trireme;

namespace {
std::span<const uint8_t> bytes(const std::string& s) {
  return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
}
std::string read(const ByteView& view, int64_t offset, int64_t n) {
  std::string out(static_cast<size_t>(n), '?');
  view.read(offset, {reinterpret_cast<uint8_t*>(out.data()), out.size()});
  return out;
}
const std::string kParts[] = {"abc", "d", "", "efgh"};
const std::string kLine = "abc\nd\n\nefgh\n";

ByteView whole() {
  ByteView view;
  for (const auto& part : kParts) view.append(bytes(part));
  return view;
}
}  // namespace

TEST(data_byte_view, reads_any_range_of_the_joined_files) {
  const auto view = whole();
  const auto size = static_cast<int64_t>(kLine.size());
  ASSERT_EQ(view.size(), size);
  for (int64_t from = 0; from < size; ++from)
    for (int64_t n = 0; from + n <= size; ++n)
      ASSERT_EQ(read(view, from, n),
                kLine.substr(static_cast<size_t>(from), static_cast<size_t>(n)));
}

TEST(data_byte_view, a_split_is_the_line_cut_in_two) {
  const auto size = static_cast<int64_t>(kLine.size());
  for (int64_t at = 0; at <= size; ++at) {
    const auto [first, rest] = whole().split(at);
    ASSERT_EQ(first.size() + rest.size(), size) << at;
    ASSERT_EQ(first.size(), at);
    ASSERT_EQ(read(first, 0, first.size()) + read(rest, 0, rest.size()), kLine);
  }
}

TEST(data_byte_view, outside_is_refused) {
  const auto view = whole();
  uint8_t out[4];
  EXPECT_THROW(view.read(view.size() - 3, out), UsageError);
  EXPECT_THROW(view.read(-1, out), UsageError);
}

}  // namespace byte_view_test
