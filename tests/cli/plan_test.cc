// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "tests/support/refusals.h"
#include "trireme/base/file.h"

namespace trireme::testing::plan_test {
namespace {

Arguments schedule(const Arguments& more) {
  Arguments words = trireme({"plan", "schedule"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

struct Said {
  int code;
  std::string out, err;
};

Said said(const Arguments& more, const CommandOptions& options = {}) {
  Command command(schedule(more), options);
  const int code = command.finish();
  return {code, command.out, command.err};
}

TEST(cli_plan, draws_a_schedule_with_its_bubble_and_memory) {
  const Said s = said({"--name", "1f1b", "-p", "4", "-m", "8"});
  ASSERT_EQ(s.code, 0) << s.err;
  EXPECT_EQ(s.out.rfind("1f1b: p = 4 ranks, m = 8 micro-batches, 4 stages\n\n"
                        "rank 0 F0 F1 F2 F3 .  .  .  .  .  .  B0 -- F4 B1 -- ",
                        0),
            0u)
      << s.out;
  EXPECT_TRUE(has(s.out, "step    33, of which the busiest rank computes 24: bubble 27.3 %\n"));
  EXPECT_TRUE(has(s.out,
                  "memory  at most 4 micro-batches of a stage kept on one rank: 4 inputs, "
                  "0 W wait\n"));
  EXPECT_TRUE(has(s.out, "\n   3  3               3        27        24   27.3 %        1"))
      << s.out;
  EXPECT_EQ(s.err, "");
}

TEST(cli_plan, virtual_stages_have_bubble_and_memory_of_their_own) {
  const PrivateFolder folder;
  const Arguments zb_v = {"--name", "zb_v", "-p", "2", "-m", "4"};
  Arguments to_file = zb_v;
  to_file.insert(to_file.end(), {"--json", folder / "a.json"});
  const Said s = said(to_file);
  ASSERT_EQ(s.code, 0) << s.err;
  EXPECT_TRUE(has(
      s.out, "\nstage   rank  computes  of step   bubble   inputs   W wait  kept\n    0      0 "))
      << s.out;
  const auto json = nlohmann::json::parse(read_file(folder / "a.json"));
  ASSERT_EQ(json.at("of_stage").size(), 4u);
  for (const auto& stage : json.at("of_stage")) {
    EXPECT_GE(stage.at("kept"), stage.at("inputs"));
    EXPECT_GE(stage.at("weight_gradients_waiting"), 1) << "W is apart from I";
    EXPECT_GE(stage.at("bubble"), 0.0);
  }
}

// Each drawing of the page, printed anew.
TEST(cli_plan, the_drawings_of_the_page_are_what_the_tool_prints) {
  const std::string page = read_file(trireme::testing::source_path("/docs/model_parallel.md"));
  const std::regex block("```console\n\\$ trireme plan schedule ([^\n]*)\n([^`]*)```");
  int drawings = 0;
  for (std::sregex_iterator it(page.begin(), page.end(), block), end; it != end; ++it) {
    Arguments words;
    std::istringstream line((*it)[1]);
    for (std::string word; line >> word;) words.push_back(word);
    const Said s = said(words, {{{"COLUMNS", ""}}, ""});
    EXPECT_EQ(s.code, 0) << s.err;
    EXPECT_EQ(s.out, (*it)[2].str()) << (*it)[1];
    ++drawings;
  }
  EXPECT_GE(drawings, 8);
}

TEST(cli_plan, respects_the_width_that_it_is_told) {
  const Said s = said({"--name", "gpipe", "-p", "4", "-m", "16"}, {{{"COLUMNS", "60"}}, ""});
  ASSERT_EQ(s.code, 0) << s.err;
  std::istringstream lines(s.out.substr(0, s.out.find("step ")));
  size_t longest = 0;
  for (std::string text; std::getline(lines, text);) longest = std::max(longest, text.size());
  EXPECT_LE(longest, 60u);
  EXPECT_GE(longest, 50u);
}

TEST(cli_plan, a_reader_that_leaves_early_is_no_error) {
  const Said s = [] {
    Command shell({"/bin/bash", "-c",
                   trireme({})[0] + " plan schedule --name gpipe -p 64 -m 512 | head -n 1"});
    const int code = shell.finish();
    return Said{code, shell.out, shell.err};
  }();
  EXPECT_EQ(s.code, 0);
  EXPECT_EQ(s.out, "gpipe: p = 64 ranks, m = 512 micro-batches, 64 stages\n");
  EXPECT_EQ(s.err, "");
}

TEST(cli_plan, what_it_writes_it_reads_back_as_right) {
  for (const char* format : {"compute_only", "compute_comms"}) {
    const Said written = said({"--name", "dualpipe_v", "-p", "4", "-m", "10", "--csv", "-",
                               std::string("--format=") + format});
    ASSERT_EQ(written.code, 0) << written.err;
    EXPECT_EQ(has(written.out, "SEND_F"), format == std::string("compute_comms"));
    const PrivateFolder folder;
    write_file_atomic(folder / "mine.csv", written.out);
    const Said read = said({"--table", folder / "mine.csv"});
    EXPECT_EQ(read.code, 0) << read.err;
    EXPECT_TRUE(has(read.out, ": p = 4 ranks, m = 10 micro-batches, 8 stages\n"));
  }
}

TEST(cli_plan, a_wrong_table_is_drawn_and_its_fault_named) {
  const PrivateFolder folder;
  write_file_atomic(folder / "t.csv", "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
  const Said s = said({"--table", folder / "t.csv"});
  EXPECT_EQ(s.code, 1);
  EXPECT_TRUE(has(s.out, "[0RECV_B0]")) << s.out;
  EXPECT_TRUE(has(s.err, "rank 0, action 3 (0RECV_B0) waits for rank 1, action 6 (1SEND_B0)"))
      << s.err;
  EXPECT_TRUE(has(s.err, "(deadlock)"));
  write_file_atomic(folder / "t.csv", "0F0,0B0\n2F0,2B0\n");
  const Said gap = said({"--table", folder / "t.csv"});
  EXPECT_EQ(gap.code, 1);
  EXPECT_TRUE(has(gap.err, "no rank computes stage 1")) << gap.err;
}

TEST(cli_plan, bounds_that_a_schedule_exceeds_are_named) {
  const Said s = said({"--name", "gpipe", "-p", "2", "-m", "8", "--most-inputs", "4"});
  EXPECT_EQ(s.code, 1);
  EXPECT_TRUE(has(s.err, "rank 0, action 10 (0F4) makes 5 live activations")) << s.err;
  EXPECT_EQ(
      said({"--name", "1f1b", "-p", "4", "-m", "8", "--most-inputs", "4", "--rendezvous"}).code, 0);
}

TEST(cli_plan, json_and_svg_hold_the_same_schedule) {
  const PrivateFolder folder;
  const Said s = said({"--name", "zb_v", "-p", "2", "-m", "4", "--costs", "2,2,2", "--json", "-",
                       "--svg", folder / "a.svg"});
  ASSERT_EQ(s.code, 0) << s.err;
  const auto json = nlohmann::json::parse(s.out);
  EXPECT_EQ(json.at("name"), "zb_v");
  EXPECT_EQ(json.at("stages"), 4);
  EXPECT_EQ(json.at("span_bubble"), 0.0);
  EXPECT_EQ(json.at("of_rank")[1].at("actions")[0],
            (nlohmann::json{{"action", "1F0"}, {"start", 2.0}, {"end", 4.0}}));
  EXPECT_EQ(json.at("of_stage").size(), 4u);
  const std::string svg = read_file(folder / "a.svg");
  EXPECT_TRUE(has(svg, ">zb_v: 2 ranks, 4 stages, 4 micro-batches</text>"));
  // The same figures.
  const auto& rank = json.at("of_rank")[0];
  EXPECT_TRUE(has(
      svg, fmt::format(">bubble {:.1f} %, inputs {}, W wait {}, kept {}</text>",
                       100 * rank.at("bubble").get<double>(), rank.at("inputs").get<int>(),
                       rank.at("weight_gradients_waiting").get<int>(), rank.at("kept").get<int>())))
      << svg;
}

TEST(cli_plan, each_stage_may_have_costs_of_its_own) {
  const Said s =
      said({"--name", "1f1b", "-p", "2", "-m", "1", "--costs", "1,1,1;2,2,2", "--transfer", "0.5"});
  ASSERT_EQ(s.code, 0) << s.err;
  EXPECT_TRUE(has(s.out, "step    10, of which the busiest rank computes 6: bubble 40.0 %\n"))
      << s.out;
}

TEST(cli_plan, what_it_cannot_do_is_said_in_one_line) {
  const std::pair<Arguments, std::string> cases[] = {
      {{}, "say --name NAME or --table FILE, one of them ('--list' shows the names)"},
      {{"--name", "1f1b"}, "say how many ranks and micro-batches: -p 4 -m 8"},
      {{"--name", "1f2b", "-p", "4", "-m", "8"}, "there is no pipeline schedule '1f2b'"},
      {{"--name", "1f1b", "-p", "four", "-m", "8"}, "-p four: give a whole number from 1 on"},
      {{"--name", "1f1b", "-p", "0", "-m", "8"}, "-p 0: give a whole number from 1 on"},
      {{"--name", "1f1b", "-p", "4", "-m", "99999999"}, "give a whole number from 1 on"},
      {{"--name", "1f1b", "-p", "4", "-m"}, "-m needs a value"},
      {{"--name", "zb_h2", "-p", "4", "-m", "2"}, "choose at least 7 micro-batches, or zb_h1"},
      {{"--name", "1f1b", "-p", "4", "-m", "8", "--costs", "1,2"}, "give three times F,I,W"},
      {{"--name", "1f1b", "-p", "4", "-m", "8", "--costs", "1,2,nan"},
       "give a time that is not negative"},
      {{"--name", "1f1b", "-p", "4", "-m", "8", "--transfer", "-1"},
       "give a time that is not negative"},
      {{"--name", "1f1b", "-p", "4", "-m", "8", "--colour"}, "does not know '--colour'"},
      {{"--name", "1f1b", "-p", "4", "-m", "8", "--micro-batch=3"},
       "did you mean --micro-batches?"},
      {{"--name", "1f1b", "-p", "4", "-m", "8", "--format", "xls"},
       "choose compute_only or compute_comms"},
      {{"--name", "1f1b", "-p", "4", "-m", "8", "--csv", "-", "--json", "-"}, "only one of"},
      {{"--table", "t.csv", "-p", "4"}, "leave out -p, -m and -v"},
  };
  for (const auto& [words, why] : cases) {
    const Said s = said(words);
    EXPECT_EQ(s.code, 2) << why;
    EXPECT_TRUE(has(s.err, why)) << s.err;
    EXPECT_EQ(std::count(s.err.begin(), s.err.end(), '\n'), 1) << s.err;
    EXPECT_EQ(s.out, "");
  }
  const Said missing = said({"--table", "/nowhere/t.csv"});
  EXPECT_EQ(missing.code, 1);
  EXPECT_TRUE(has(missing.err, "/nowhere/t.csv"));
  Command other(trireme({"plan", "shedule"}));
  EXPECT_EQ(other.finish(), 2);
  EXPECT_TRUE(has(other.err, "trireme plan plans a 'schedule', not 'shedule'")) << other.err;
}

TEST(cli_plan, a_list_names_every_schedule_with_its_source) {
  const Said s = said({"--list"});
  ASSERT_EQ(s.code, 0);
  for (const char* name : {"gpipe", "1f1b", "interleaved_1f1b", "breadth_first", "zb_h1", "zb_h2",
                           "zb_2p", "zb_v", "dualpipe_v"})
    EXPECT_TRUE(has(s.out, std::string("\n") + name + " ")) << name;
  EXPECT_EQ(std::count(s.out.begin(), s.out.end(), '\n'), 10);
}

}  // namespace
}  // namespace trireme::testing::plan_test
