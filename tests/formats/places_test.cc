// SPDX-License-Identifier: Apache-2.0
// Who trains together, as launchers write it in the job's store. places-v1.bin was written by
// another program (places_v1.py).
#include "trireme/launch/membership/places.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/paths.h"
#include "trireme/base/file.h"

namespace trireme::places_format_test {

TEST(formats_places, who_trains_together_in_version_1_is_read_and_written) {
  const std::string fixture =
      read_file(trireme::testing::source_path("/tests/formats/places-v1.bin"));
  launch::Places places = launch::Places::read(fixture, 3);
  EXPECT_EQ(places.generation().number, 1);
  EXPECT_EQ(places.generation().members, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(places.generation().broken, 0);
  EXPECT_EQ(places.losses(), 2);
  EXPECT_EQ(places.member_at(1), 7);
  EXPECT_TRUE(places.awaited().empty());
  EXPECT_TRUE(places.text() == fixture);
  // A worker reads the same bytes as a generation.
  EXPECT_EQ(decode<trireme::Generation>(fixture).members, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(places.next()->members, (std::vector<int64_t>{0, 7, 2}));
}

}  // namespace trireme::places_format_test
