// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/drawing.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/pipeline/schedule/schedules.h"
#include "tests/support/refusals.h"

namespace trireme::pipeline::testing::drawing_test {
namespace {

using trireme::testing::has;

std::string drawn(const char* name, ScheduleSize size, TextStyle style = {}, Costs costs = {}) {
  const Schedule s = generate_schedule(name, size);
  return draw_text(s, simulate(s, costs), style);
}

// Columns on a terminal: bytes that do not continue a UTF-8 character.
int columns_of(const std::string& line) {
  int columns = 0;
  for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return columns;
}

TEST(pipeline_schedule_drawing, has_a_row_for_each_rank_and_a_column_for_each_unit_of_time) {
  EXPECT_EQ(drawn("1f1b", {3, 3, 1}),
            "rank 0 F0 F1 F2 .  .  .  .  B0 -- .  B1 -- .  B2 --\n"
            "rank 1 .  F0 F1 .  .  B0 -- F2 B1 -- .  B2 -- .  .\n"
            "rank 2 .  .  F0 B0 -- F1 B1 -- F2 B2 -- .  .  .  .\n");
}

TEST(pipeline_schedule_drawing, names_the_stage_where_ranks_have_several) {
  EXPECT_EQ(drawn("zb_v", {2, 1, 2}),
            "rank 0 0F0 .   .   3F0 3I0 3W0 .   .   0I0 0W0\n"
            "rank 1 .   1F0 2F0 .   .   2I0 2W0 1I0 1W0 .\n");
}

TEST(pipeline_schedule_drawing, the_shortest_action_takes_one_column_and_others_their_share) {
  EXPECT_EQ(drawn("zb_h1", {2, 1, 1}, {}, {{{4, 4, 2}}, 2}),
            "rank 0 F0 -- .  .  .  .  .  .  I0 -- W0\n"
            "rank 1 .  .  .  F0 -- I0 -- W0 .  .  .\n");
}

TEST(pipeline_schedule_drawing, goes_on_below_where_the_terminal_ends) {
  TextStyle narrow;
  narrow.columns = 22;
  EXPECT_EQ(drawn("gpipe", {2, 2, 1}, narrow),
            "rank 0 F0 F1 .  .  .\n"
            "rank 1 .  F0 F1 B0 --\n"
            "\n"
            "rank 0 B0 -- B1 --\n"
            "rank 1 B1 -- .  .\n");
}

TEST(pipeline_schedule_drawing, no_line_is_wider_than_the_terminal) {
  for_all_schedules([](const Schedule& s, const ScheduleSize& size) {
    if (size.micro_batches % 5 != 1) return;  // enough of them
    const Timing timing = simulate(s, {{{3, 2, 1}}, 0.4});
    for (const int columns : {20, 57, 80, 200}) {
      TextStyle style;
      style.columns = columns, style.utf8 = columns == 57, style.most_blocks = 1000;
      std::istringstream lines(draw_text(s, timing, style));
      for (std::string line; std::getline(lines, line);)
        ASSERT_LE(columns_of(line), columns) << described(s, size);
    }
  });
}

TEST(pipeline_schedule_drawing, is_ascii_without_escapes_unless_the_terminal_takes_more) {
  for (const char c : drawn("dualpipe_v", {4, 8, 2}))
    EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~'));
  TextStyle style;
  style.utf8 = true;
  EXPECT_TRUE(has(drawn("1f1b", {2, 1, 1}, style), "rank 1 ·  F0 B0 ──"));
  style.colour = true;
  EXPECT_TRUE(has(drawn("1f1b", {2, 1, 1}, style), "\x1b[34mF0\x1b[0m \x1b[32mB0\x1b[0m"));
}

TEST(pipeline_schedule_drawing, stops_after_some_pieces_and_says_so) {
  TextStyle style;
  style.columns = 40, style.most_blocks = 2;
  const std::string text = drawn("1f1b", {2, 100, 1}, style);
  EXPECT_TRUE(text.ends_with("(the first 16 of 303 columns; --svg FILE draws all of them)\n"))
      << text;
}

// Tags are closed in order, and text has no bare markup.
void expect_well_formed(const std::string& svg) {
  std::vector<std::string> open;
  for (size_t at = svg.find("?>") + 2; at < svg.size();) {
    const size_t begin = svg.find('<', at);
    const std::string text = svg.substr(at, std::min(begin, svg.size()) - at);
    EXPECT_EQ(text.find('>'), std::string::npos) << text;
    for (size_t amp = text.find('&'); amp != std::string::npos; amp = text.find('&', amp + 1))
      EXPECT_TRUE(text.substr(amp, 4) == "&lt;" || text.substr(amp, 4) == "&gt;" ||
                  text.substr(amp, 5) == "&amp;" || text.substr(amp, 6) == "&quot;")
          << text;
    if (begin == std::string::npos) break;
    const size_t end = svg.find('>', begin);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = svg.substr(begin + 1, end - begin - 1);
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), tag.substr(1));
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
    at = end + 1;
  }
  EXPECT_TRUE(open.empty());
}

TEST(pipeline_schedule_drawing, svg_is_well_formed_and_has_a_rectangle_for_each_action) {
  for (const ScheduleKind& kind : schedule_kinds()) {
    const Schedule s = generate_schedule(kind.name, {4, 8, kind.stages_per_rank});
    const std::string svg = draw_svg(s, simulate(s, {}));
    expect_well_formed(svg);
    size_t actions = 0, rectangles = 0;
    for (const auto& list : s.actions) actions += list.size();
    for (size_t at = svg.find("<rect "); at != std::string::npos; at = svg.find("<rect ", at + 1))
      ++rectangles;
    EXPECT_EQ(rectangles, actions + 4 + 4 + 1) << kind.name;  // rows, legend, ground
  }
}

TEST(pipeline_schedule_drawing, svg_says_memory_and_bubble_of_the_step_each_rank_and_each_stage) {
  const Schedule plain = generate_schedule("1f1b", {4, 8, 1});
  const std::string svg = draw_svg(plain, simulate(plain, {}));
  EXPECT_TRUE(has(svg,
                  ">step 33: bubble 27.3 %; memory at most 4 micro-batches of a stage kept on "
                  "one rank: 4 inputs, 0 W wait</text>"));
  for (int kept : {4, 3, 2, 1})
    EXPECT_TRUE(has(svg, fmt::format(">bubble 27.3 %, inputs {0}, W wait 0, kept {0}<", kept)));
  EXPECT_FALSE(has(svg, ">stage 0 (rank 0)")) << "it is the rank's line";
  const Schedule v = generate_schedule("zb_v", {4, 8, 2});
  const Timing timing = simulate(v, {{{3, 2, 1}}, 0.4});
  const std::string of_v = draw_svg(v, timing);
  for (size_t s = 0; s < 8; ++s)
    EXPECT_TRUE(has(
        of_v,
        fmt::format(">stage {} (rank {}): computes {:.1f} % of the step, bubble "
                    "before it {:.1f} %, inputs {}, W wait {}, kept {}</text>",
                    s, timing.stages[s].rank, 100 * timing.stages[s].busy / timing.makespan,
                    100 * timing.stages[s].waited / timing.makespan, timing.stages[s].activations,
                    timing.stages[s].weight_gradients, timing.stages[s].kept)))
        << s;
}

TEST(pipeline_schedule_drawing, the_stages_waits_and_work_are_those_of_their_ranks) {
  for_all_schedules([](const Schedule& s, const ScheduleSize& size) {
    if (size.micro_batches % 5 != 1) return;
    const Timing timing = simulate(s, {{{3, 2, 1}}, 0.4});
    for (size_t r = 0; r < timing.ranks.size(); ++r) {
      double busy = 0, waited = 0;
      int inputs = 0, waiting = 0;
      for (const StageTiming& stage : timing.stages) {
        if (stage.rank != static_cast<int>(r)) continue;
        busy += stage.busy, waited += stage.waited;
        inputs += stage.activations, waiting += stage.weight_gradients;
        ASSERT_LE(stage.activations, timing.ranks[r].activations) << described(s, size);
        ASSERT_LE(stage.kept, timing.ranks[r].kept) << described(s, size);
      }
      ASSERT_NEAR(busy, timing.ranks[r].busy, 1e-9) << described(s, size);
      ASSERT_NEAR(busy + waited, timing.ranks[r].end, 1e-9) << described(s, size);
      ASSERT_GE(inputs, timing.ranks[r].activations) << described(s, size);
      ASSERT_GE(waiting, timing.ranks[r].weight_gradients) << described(s, size);
    }
  });
}

TEST(pipeline_schedule_drawing, svg_escapes_what_a_file_may_be_called) {
  Schedule s = generate_schedule("1f1b", {2, 2, 1});
  s.name = "<script>\"a\" & 'b'\x1b\xff</script>";
  const std::string svg = draw_svg(s, simulate(s, {}));
  expect_well_formed(svg);
  EXPECT_TRUE(has(svg, "&lt;script&gt;&quot;a&quot; &amp; 'b'??&lt;/script&gt;: 2 ranks"));
}

}  // namespace
}  // namespace trireme::pipeline::testing::drawing_test
