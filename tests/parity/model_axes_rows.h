// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <ostream>
#include <string>
#include <vector>

#include "tests/train/run_folders.h"

// Rows of tables of models that are divided over ranks: the divided run, and the plain one of one
// process with which it is compared.
namespace trireme::testing::model_axes {

constexpr int64_t kSteps = 20;

struct Row {
  int dp = 1, tp = 1, pp = 1;
  Sets sets = {};           // of the divided run alone
  Sets of_both = {};        // of the plain run too
  double tolerance = 1e-5;  // ‖a - b‖ / ‖b‖ of a parameter
  int cp = 1;
  int ranks() const { return dp * tp * pp * cp; }
};

inline std::string text_of(const Row& r) {
  std::string text = fmt::format("dp{}_tp{}_pp{}", r.dp, r.tp, r.pp);
  if (r.cp > 1) text += fmt::format("_cp{}", r.cp);
  for (const Sets* sets : {&r.sets, &r.of_both})
    for (std::string set : *sets) {
      if (!set.ends_with(".enabled=true")) set = set.substr(set.rfind('.') + 1);
      for (char& c : set)
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
      text += "_" + set;
    }
  return text;
}

inline std::string row_name(const ::testing::TestParamInfo<Row>& info) {
  return text_of(info.param);
}
inline void PrintTo(const Row& row, std::ostream* out) { *out << text_of(row); }

/// Two leaves for each stage of the pipeline on each data-parallel rank; SGD, because Adam hides a
/// wrong factor of the gradient.
inline Config config_of(const Row& row, const Folders& folders, const Sets& more) {
  const int heads = (row.tp == 1 ? (row.cp == 1 ? 2 : 1) : row.tp) * row.cp;
  Sets sets = {"optimizer.type=SGD",
               "optimizer.params.lr=0.5",
               "model.tied_head=false",
               "model.heads=" + std::to_string(heads),
               "model.width=" + std::to_string(8 * heads),
               "model.layers=" + std::to_string(std::max(2, 2 * row.pp)),
               "model.vocab=259",
               "train_batch_size=" + std::to_string(4 * row.pp * row.dp)};
  sets.insert(sets.end(), row.of_both.begin(), row.of_both.end());
  sets.insert(sets.end(), more.begin(), more.end());
  const bool documents =
      std::find(row.of_both.begin(), row.of_both.end(), "data.type=documents") != row.of_both.end();
  // With sequence_parallel each rank has a position of the shortest. Ranks of cp need none: some
  // rows are shorter than there are of them.
  const int shortest = row.cp > 1 ? 1 : 4;
  return tiny_gpt(documents ? write_short_documents(folders.folder, shortest) : folders.corpus,
                  sets);
}

inline Config plain_config(const Row& row, const Folders& folders) {
  return config_of(row, folders, {});
}

inline Config divided_config(const Row& row, const Folders& folders) {
  Sets sets = row.sets;
  sets.push_back("parallelism.tp=" + std::to_string(row.tp));
  sets.push_back("parallelism.pp=" + std::to_string(row.pp));
  if (row.cp > 1) sets.push_back("parallelism.cp=" + std::to_string(row.cp));
  if (row.pp > 1) sets.push_back("train_micro_batch_size_per_gpu=2");
  return config_of(row, folders, sets);
}

inline void expect_near(const std::vector<double>& a, const std::vector<double>& b,
                        double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance * b[i]) << "step " << i;
}

/// The plain model as the one on which differences show: it learns, and the norm is clipped.
inline void expect_a_reference(const std::vector<double>& losses,
                               const std::vector<double>& norms) {
  EXPECT_LT(losses.back(), losses.front());
  EXPECT_GT(*std::max_element(norms.begin(), norms.end()), 0.5);
}

}  // namespace trireme::testing::model_axes
