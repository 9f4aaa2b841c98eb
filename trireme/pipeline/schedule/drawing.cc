// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/drawing.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace trireme::pipeline {
namespace {

// The length that a column stands for: the shortest action, but no more than some thousands of
// them.
double column_time(const Timing& timing) {
  constexpr double kMostColumns = 4000;
  double shortest = timing.makespan;
  for (const RankTiming& rank : timing.ranks)
    for (const Span& s : rank.spans)
      if (s.end > s.start) shortest = std::min(shortest, s.end - s.start);
  return std::max({shortest, timing.makespan / kMostColumns, 1e-300});
}

struct Cell {
  std::string text;  // "" where idle
  ActionKind kind = ActionKind::forward;
  bool goes_on = false;  // of the action to the left
};

std::vector<Cell> cells_of(const RankTiming& rank, double unit, bool with_stage) {
  std::vector<Cell> cells;
  for (const Span& s : rank.spans) {
    const auto start = static_cast<size_t>(std::lround(s.start / unit));
    const auto end = static_cast<size_t>(std::lround(s.end / unit));
    if (start > cells.size()) cells.resize(start);
    std::string text = with_stage ? std::to_string(s.action.stage) : "";
    text += word_of(s.action.kind) + std::to_string(s.action.micro_batch);
    cells.push_back({text, s.action.kind, false});
    while (cells.size() < end) cells.push_back({"", s.action.kind, true});
  }
  return cells;
}

const char* colour_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return "\x1b[34m";
    case ActionKind::weight_gradient:
      return "\x1b[33m";
    default:
      return "\x1b[32m";
  }
}

std::string cell_text(const Cell& cell, size_t width, const TextStyle& style) {
  std::string out;
  if (cell.goes_on) {
    for (size_t i = 1; i < width; ++i) out += style.utf8 ? "─" : "-";
  } else if (cell.text.empty()) {
    out = std::string(style.utf8 ? "·" : ".") + std::string(width - 2, ' ');
  } else {
    out = cell.text + std::string(width - 1 - cell.text.size(), ' ');
  }
  const bool busy = cell.goes_on || !cell.text.empty();
  return (style.colour && busy ? colour_of(cell.kind) + out + "\x1b[0m" : out) + " ";
}

}  // namespace

std::string memory_text(const Timing& timing) {
  int kept = 0, inputs = 0, waiting = 0;
  for (const RankTiming& r : timing.ranks) {
    kept = std::max(kept, r.kept);
    inputs = std::max(inputs, r.activations);
    waiting = std::max(waiting, r.weight_gradients);
  }
  return fmt::format("at most {} micro-batch{} of a stage kept on one rank: {} input{}, {} W wait",
                     kept, kept == 1 ? "" : "es", inputs, inputs == 1 ? "" : "s", waiting);
}

std::string draw_text(const Schedule& schedule, const Timing& timing, const TextStyle& style) {
  const double unit = column_time(timing);
  const bool with_stage = schedule.stages() > schedule.ranks();
  std::vector<std::vector<Cell>> rows;
  size_t columns = 0, width = 3;
  for (const RankTiming& rank : timing.ranks) {
    rows.push_back(cells_of(rank, unit, with_stage));
    columns = std::max(columns, rows.back().size());
    for (const Cell& c : rows.back()) width = std::max(width, c.text.size() + 1);
  }
  const size_t label = 6 + std::to_string(rows.size() - 1).size();
  const auto most = static_cast<size_t>(std::max(style.columns, 0));
  const size_t room = most > label + width ? (most - label) / width : 1;
  std::string out;
  int blocks = 0;
  for (size_t begin = 0; begin < columns; begin += room) {
    if (blocks == style.most_blocks)
      return out + fmt::format("(the first {} of {} columns; --svg FILE draws all of them)\n",
                               begin, columns);
    if (blocks++ > 0) out += "\n";
    const size_t end = std::min(columns, begin + room);
    for (size_t rank = 0; rank < rows.size(); ++rank) {
      std::string line = fmt::format("{:<{}}", fmt::format("rank {}", rank), label);
      for (size_t c = begin; c < end; ++c)
        line += cell_text(c < rows[rank].size() ? rows[rank][c] : Cell{}, width, style);
      while (!line.empty() && line.back() == ' ') line.pop_back();
      out += line + "\n";
    }
  }
  return out;
}

}  // namespace trireme::pipeline
