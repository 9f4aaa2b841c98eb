// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/model_table.h"

#include <gtest/gtest.h>

namespace model_table_test {

using namespace trireme;

TEST(planner_model_table, equals_lightnings_for_pytorchs_mnist_example) {
  ModelGeometry g;
  g.type = "convnet";
  EXPECT_EQ(model_shape(g).numel(), 1199882);
  EXPECT_EQ(model_table(model_shape(g)),
            "  | Name     | Type    | Params\n"
            "-------------------------------------\n"
            "0 | conv1    | Conv2d  | 320\n"
            "1 | conv2    | Conv2d  | 18.5 K\n"
            "2 | dropout1 | Dropout | 0\n"
            "3 | dropout2 | Dropout | 0\n"
            "4 | fc1      | Linear  | 1.2 M\n"
            "5 | fc2      | Linear  | 1.3 K\n"
            "-------------------------------------\n"
            "1.2 M     Trainable params\n"
            "0         Non-trainable params\n"
            "1.2 M     Total params\n"
            "4.800     Total estimated model params size (MB)\n");
}

TEST(planner_model_table, counts_are_written_as_lightning_writes_them) {
  const std::pair<int64_t, const char*> rows[] = {{0, "0"},
                                                  {999, "999"},
                                                  {1000, "1.0 K"},
                                                  {1290, "1.3 K"},
                                                  {18496, "18.5 K"},
                                                  {123456, "123 K"},
                                                  {999999, "999 K"},
                                                  {1000000, "1.0 M"},
                                                  {10795776, "10.8 M"},
                                                  {2500000000, "2.5 B"},
                                                  {3000000000000, "3.0 T"},
                                                  {4000000000000000, "4000 T"}};
  for (auto [count, text] : rows) EXPECT_EQ(count_text(count), text);
}

TEST(planner_model_table, a_gpt_shows_its_children) {
  const std::string text = model_table(model_shape(ModelGeometry()));
  EXPECT_NE(text.find("3 | blocks | ModuleList | 10.6 M\n"), std::string::npos) << text;
  EXPECT_NE(text.find("10.8 M    Trainable params\n"), std::string::npos) << text;
}

}  // namespace model_table_test
