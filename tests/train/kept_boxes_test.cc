// SPDX-License-Identifier: Apache-2.0
// Who has which box of a state, and from whom the others get it.
#include "trireme/train/in_place/kept_boxes.h"

#include <gtest/gtest.h>

namespace kept_boxes_test {

using namespace trireme;

namespace {
using Boxes = std::vector<KeptBox>;
const KeptBox kUpper{"w", {0, 0}, {2, 3}, 6}, kLower{"w", {2, 0}, {2, 3}, 6},
    kBias{"b", {0}, {4}, 6};
}  // namespace

TEST(train_kept_boxes, a_state_is_whole_if_every_tensor_is_however_often_it_is_there) {
  const WholeState whole{{"w", 12}, {"b", 4}};
  EXPECT_TRUE(are_whole({{kBias, kUpper}, {kBias, kLower}}, whole));
  EXPECT_TRUE(are_whole({{kBias, kUpper}, {}, {kLower, kUpper}}, whole));
  EXPECT_FALSE(are_whole({{kBias, kUpper}, {kBias, kUpper}}, whole)) << "half of w is twice there";
  EXPECT_FALSE(are_whole({{kUpper}, {kLower}}, whole)) << "nobody has b";
  EXPECT_FALSE(are_whole({{kBias}}, {})) << "nobody says what the whole is";
  EXPECT_TRUE(are_whole({{{"scalar", {}, {}, 6}}}, {{"scalar", 1}}));
}

TEST(train_kept_boxes, each_box_comes_once_from_the_first_that_has_it) {
  const std::vector<BoxSent> sent = boxes_to_send({{kUpper}, {kBias, kLower}, {kBias, kUpper}});
  EXPECT_EQ(sent,
            (std::vector<BoxSent>{{kBias, 1, false}, {kUpper, 0, false}, {kLower, 1, false}}));
  EXPECT_EQ(boxes_to_send({{kBias}, {kBias}}), (std::vector<BoxSent>{{kBias, 0, true}}));
  EXPECT_TRUE(boxes_to_send({{}, {}}).empty());
}

TEST(train_kept_boxes, what_two_boxes_share) {
  const SharedBox some = shared_box({0, 2}, {4, 4}, {3, 0}, {5, 3});
  EXPECT_TRUE(some.any);
  EXPECT_EQ(some.offsets, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(some.lengths, (std::vector<int64_t>{1, 1}));
  EXPECT_FALSE(shared_box({0}, {4}, {4}, {2}).any);
  EXPECT_TRUE(shared_box({}, {}, {}, {}).any) << "one number";
}

}  // namespace kept_boxes_test
