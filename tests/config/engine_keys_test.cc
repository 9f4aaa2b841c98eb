// SPDX-License-Identifier: Apache-2.0
// Each key of the table has its effect under initialize(), or is refused there.
#include "trireme/config/engine_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/config/other_values.h"
#include "tests/support/paths.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace engine_keys_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

// What a key that is served needs beside it to be read at all is in its `when`; these are checked
// against each other, too.
const std::map<std::string, std::vector<std::string>> kBeside = {
    {"data.train_samples", {"model.type=mlp"}},
    {"data.validation_samples", {"model.type=mlp"}},
    {"data.path", {"model.type=mlp"}},
    {"model.width", {"model.heads=2"}},
    {"model.inputs", {"data.type=dummy"}},
    {"model.outputs", {"data.type=dummy"}},
    {"checkpoint.keep_best", {"training.eval_every=1"}},
    {"checkpoint.neighbour", {"checkpoint.snapshot_every=2"}},
};

}  // namespace

TEST(config_engine_keys, every_row_names_keys_of_the_table) {
  for (const NotOfEngine& row : keys_not_of_engine()) {
    const auto& keys = all_keys();
    EXPECT_TRUE(std::any_of(keys.begin(), keys.end(), [&](const KeyInfo& key) {
      return key.status == KeyStatus::supported && key.alias_of.empty() &&
             not_of_engine(key.path) == &row;
    })) << row.keys;
  }
}

TEST(config_engine_keys, the_page_lists_every_row) {
  const std::string page = read_file(trireme::testing::source_path("/docs/configuration.md"));
  for (const NotOfEngine& row : keys_not_of_engine())
    EXPECT_NE(page.find("`" + std::string(row.keys) + "`"), std::string::npos) << row.keys;
}

TEST(config_engine_keys, what_an_engine_does_not_serve_is_refused_with_its_place) {
  int tried = 0;
  for (const KeyInfo& key : all_keys()) {
    const NotOfEngine* row = not_of_engine(key.path);
    if (!row || key.status != KeyStatus::supported || !key.alias_of.empty()) continue;
    std::vector<std::string> sets = chosen_for(key);
    if (auto it = kBeside.find(key.path); it != kBeside.end())
      sets.insert(sets.end(), it->second.begin(), it->second.end());
    if (key.path.find("dynamic_batching") != std::string::npos)
      sets.insert(sets.end(), {"data.type=documents",
                               "data_efficiency.data_sampling.dynamic_batching.max_tokens=512"});
    // "true" of a key whose harmless value is false is its default, given; so is "warn".
    const bool harmless_false = row->fine && row->fine == std::string("false");
    const std::string value = key.path == "checkpoint.on_error" ? "warn"
                              : harmless_false                  ? "true"
                              : key.path == "data.type" ? "documents"  // corpus follows from gpt
                                                        : other_value(key);
    std::erase_if(sets, [&](const std::string& s) { return s.starts_with(key.path + "="); });
    sets.push_back(key.path + "=" + value);
    const auto refusals = engine_refusals(Config::from_text("c.json", "{}", sets));
    const std::string begins = "--set: " + key.path + " is ";
    EXPECT_TRUE(std::any_of(refusals.begin(), refusals.end(),
                            [&](const std::string& text) { return text.starts_with(begins); }))
        << key.path << " = " << value;
    ++tried;
  }
  EXPECT_GT(tried, 40);
}

TEST(config_engine_keys, a_value_that_asks_for_nothing_is_fine) {
  const Config c = Config::from_text("c.json", R"({
    "model": {"type": "gpt"}, "training": {"seed": 42, "recompute_every": 0},
    "checkpoint": {"at_end": false}, "monitor": {"progress": false}, "balance": {"mode": "none"}})");
  EXPECT_TRUE(engine_refusals(c).empty()) << engine_refusals(c)[0];
  EXPECT_NO_THROW(check_engine_keys(c));
}

TEST(config_engine_keys, the_sentence_names_file_and_line) {
  const Config c = Config::from_text("ds_config.json", "{\n  \"checkpoint\": {\"every\": 10}\n}");
  try {
    check_engine_keys(c);
    ADD_FAILURE();
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(),
                 "ds_config.json:2:27: checkpoint.every is 10, and initialize() saves only when "
                 "you call save_checkpoint(): call it at the interval you want");
  }
}

}  // namespace engine_keys_test
