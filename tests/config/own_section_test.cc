// SPDX-License-Identifier: Apache-2.0
// A program adds a section of its own to the table of keys: its keys are checked, shown and read as
// those of this version are.
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/config/key_table.h"
#include "trireme/config/report.h"
#include "trireme/config/resolved.h"

namespace own_section_test {

using namespace trireme;

namespace {

struct GameSection {
  std::string board = "go";
  int64_t size = 19;
  double komi = 6.5;
  bool handicap = false;
  std::vector<int64_t> layers = {64, 64};
  std::vector<double> mix = {0.5, 0.5};
  std::vector<std::string> openings;
  std::optional<std::string> record;
  std::optional<int64_t> stones = 2;

  void fields(Fields& f) {
    f.field({.path = "game.board", .choices = "go chess", .help = "what is played"}, board);
    f.field({.path = "game.size", .min = 5, .max = 25, .help = "lines of the board"}, size);
    f.field({.path = "game.komi", .when = "game.board=go", .help = "points for white"}, komi);
    f.field({.path = "game.handicap", .when = "game.board=go", .help = "black begins ahead"},
            handicap);
    f.field({.path = "game.layers", .min = 1, .help = "widths of the network"}, layers);
    f.field({.path = "game.mix", .min = 0, .max = 1, .help = "parts of the losses"}, mix);
    f.field({.path = "game.openings", .help = "files with openings"}, openings);
    f.field({.path = "game.record", .help = "file to which games are written"}, record);
    f.field({.path = "game.stones",
             .min = 1,
             .max = 9,
             .when = "game.handicap=true",
             .idle = true,
             .help = "stones that black is ahead"},
            stones);
    f.row({.path = "game.lines", .type = KeyType::integer, .alias_of = "game.size"});
  }
};

std::shared_ptr<const KeyTable> table() {
  KeyTable keys = KeyTable::built_in_copy();
  keys.add<GameSection>();
  return std::make_shared<const KeyTable>(std::move(keys));
}

Config read(const std::string& text, const std::vector<std::string>& sets = {}) {
  return Config::from_text("game.json", text, sets, table());
}

std::string refusal(const std::string& text) {
  try {
    read(text);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "nothing was refused";
}

std::string refused(const KeyInfo& row) {
  KeyTable keys = KeyTable::built_in_copy();
  keys.add<GameSection>();
  const size_t before = keys.keys().size();
  try {
    keys.add({{.path = "game.fine", .type = KeyType::boolean, .help = "stays out, too"}, row});
  } catch (const UsageError& e) {
    EXPECT_EQ(keys.keys().size(), before);
    EXPECT_EQ(keys.find("game.fine"), nullptr);
    return e.what();
  }
  return "nothing was refused";
}

}  // namespace

TEST(config_own_section, members_are_filled_from_files_and_flags) {
  const Config c = read(R"({"game": {"board": "CHESS", "size": 8, "layers": 32, "mix": [1, 0],
                                     "openings": "a.pgn", "record": "games.pgn"}})",
                        {"game.size=12"});
  const auto game = c.section<GameSection>();
  EXPECT_EQ(game.board, "chess");
  EXPECT_EQ(game.size, 12);
  EXPECT_EQ(game.layers, std::vector<int64_t>{32});
  EXPECT_EQ(game.mix, (std::vector<double>{1, 0}));
  EXPECT_EQ(game.openings, std::vector<std::string>{"a.pgn"});
  EXPECT_EQ(game.record, "games.pgn");
}

TEST(config_own_section, what_is_not_given_is_what_the_member_began_with) {
  const auto game = read("{}").section<GameSection>();
  EXPECT_EQ(game.board, "go");
  EXPECT_EQ(game.size, 19);
  EXPECT_EQ(game.komi, 6.5);
  EXPECT_EQ(game.layers, (std::vector<int64_t>{64, 64}));
  EXPECT_TRUE(game.openings.empty());
  EXPECT_FALSE(game.record);
}

TEST(config_own_section, what_does_not_apply_is_a_default_or_absent) {
  EXPECT_FALSE(read("{}").section<GameSection>().stones);
  EXPECT_EQ(read(R"({"game": {"handicap": true}})").section<GameSection>().stones, 2);
  const Config c = read(R"({"game": {"komi": 0.5}})", {"game.board=chess"});
  EXPECT_EQ(c.section<GameSection>().komi, 6.5);
}

TEST(config_own_section, bounds_choices_and_types_are_checked_with_their_place) {
  EXPECT_EQ(refusal(R"({"game": {"size": 3}})"),
            "game.json:1:19: game.size: must be between 5 and 25, found 3");
  EXPECT_EQ(refusal(R"({"game": {"board": "whist"}})"),
            "game.json:1:20: game.board: \"whist\" is not one of go, chess");
  EXPECT_EQ(refusal(R"({"game": {"layers": [8, 0]}})"),
            "game.json:1:21: game.layers: must be at least 1, found 0");
  EXPECT_EQ(refusal(R"({"game": {"handicap": 1}})"),
            "game.json:1:23: game.handicap: expected true or false, found 1");
}

TEST(config_own_section, a_key_that_does_not_apply_is_refused_or_listed_as_idle) {
  EXPECT_EQ(refusal(R"({"game": {"board": "chess", "komi": 0.5}})"),
            "game.json:1:37: game.komi applies when game.board is go, and game.board is \"chess\" "
            "(game.json:1:20); remove it");
  const Inspection seen = Config::inspect(ConfigInputs::from({}, {"game.stones=3"}), table());
  ASSERT_EQ(seen.keys.size(), 1u);
  EXPECT_EQ(seen.keys[0].verdict, KeyReport::Verdict::without_effect);
}

TEST(config_own_section, a_slip_names_the_nearest_key_of_the_whole_table) {
  EXPECT_EQ(refusal(R"({"game": {"sise": 9}})"),
            "game.json:1:11: unknown key \"game.sise\"; the nearest known key is \"game.size\"");
  EXPECT_EQ(refusal(R"({"training": {"stepz": 9}})"),
            "game.json:1:15: unknown key \"training.stepz\"; the nearest known key is "
            "\"training.steps\"");
}

TEST(config_own_section, another_name_says_the_same) {
  EXPECT_EQ(read(R"({"game": {"lines": 9}})").section<GameSection>().size, 9);
  EXPECT_EQ(refusal(R"({"game": {"lines": 9, "size": 9}})"),
            "game.json:1:31: game.size is given twice (first at game.json:1:20); remove one");
}

TEST(config_own_section, show_and_the_runs_file_have_them_with_their_origins) {
  const Config c = read("{\n  \"game\": {\"size\": 9}}", {"game.komi=7.5"});
  const std::string shown = show_text(c, std::nullopt);
  EXPECT_NE(shown.find("game.size"), std::string::npos) << shown;
  EXPECT_EQ(c.origin("game.size"), "game.json:2:20");
  EXPECT_EQ(c.origin("game.komi"), "--set");
  const Config again = load_resolved(c.to_json(), table());
  EXPECT_EQ(again.hash(), c.hash());
  EXPECT_EQ(again.origin("game.size"), "game.json:2:20");
  EXPECT_EQ(again.section<GameSection>().komi, 7.5);
  EXPECT_THROW(load_resolved(c.to_json()), UsageError);
}

TEST(config_own_section, the_hash_of_a_run_counts_them) {
  EXPECT_NE(read("{}").hash(), read(R"({"game": {"size": 9}})").hash());
  EXPECT_EQ(read(R"({"game": {"size": 19}})").hash(), read("{}").hash());
  EXPECT_EQ(Config::from_text("c.json", "{}", {}, KeyTable::built_in()).hash(),
            Config::from_text("c.json", "{}").hash());
}

TEST(config_own_section, the_table_of_this_version_does_not_know_them) {
  EXPECT_EQ(find_key("game.size"), nullptr);
  const Config c = Config::from_text("c.json", "{}");
  EXPECT_THROW(c.section<GameSection>(), UsageError);
  EXPECT_THROW(Config::from_text("c.json", R"({"game": {"size": 9}})"), UsageError);
}

TEST(config_own_section, a_name_that_is_taken_is_refused) {
  const auto taken = [](const char* path) {
    return refused({.path = path, .type = KeyType::boolean, .help = "h"});
  };
  EXPECT_EQ(taken("training.steps"),
            "the key training.steps of a section of your own is taken: the table has "
            "training.steps already");
  EXPECT_EQ(taken("game.size"),
            "the key game.size of a section of your own is taken: the table has game.size already");
  EXPECT_EQ(taken("training.log_every"),
            "the key training.log_every of a section of your own is taken: the table has "
            "training.log_every already");
  EXPECT_EQ(taken("wandb.project"),
            "the key wandb.project of a section of your own is taken: the table has wandb.* "
            "already");
  EXPECT_EQ(taken("optimizer.params"),
            "the key optimizer.params of a section of your own is the name of a section");
  EXPECT_EQ(taken("training.steps.least"),
            "the key training.steps.least of a section of your own is below training.steps, which "
            "is a key");
  for (const char* path : {"", ".a", "a.", "a..b", "_origins"})
    EXPECT_TRUE(taken(path).ends_with("give it a name such as game.players")) << path;
}

TEST(config_own_section, a_row_that_contradicts_itself_is_refused) {
  EXPECT_EQ(refused({.path = "game.x", .type = KeyType::boolean}),
            "the key game.x of a section of your own has no help text");
  EXPECT_EQ(
      refused(
          {.path = "game.x", .type = KeyType::integer, .default_json = "0", .min = 1, .help = "h"}),
      "the default of the key game.x: must be at least 1, found 0");
  EXPECT_EQ(
      refused({.path = "game.x", .type = KeyType::boolean, .when = "game.sise=9", .help = "h"}),
      "the key game.x of a section of your own applies when game.sise=9, and game.sise is not a "
      "key with a default");
  EXPECT_EQ(
      refused(
          {.path = "game.x", .type = KeyType::boolean, .when = "game.board=whist", .help = "h"}),
      "the key game.x of a section of your own applies when game.board=whist, and game.board is "
      "never whist");
  EXPECT_EQ(refused({.path = "game.x", .type = KeyType::boolean, .alias_of = "game.sise"}),
            "the key game.x of a section of your own is an alias of game.sise, which is not a key");
}

}  // namespace own_section_test
