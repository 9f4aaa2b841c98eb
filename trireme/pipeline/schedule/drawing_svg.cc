// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>

#include "trireme/pipeline/schedule/drawing.h"

namespace trireme::pipeline {
namespace {

constexpr int kRow = 30, kGap = 4, kLabel = 70, kTop = 60, kBottom = 52, kLine = 16;
constexpr int kFigures = 300;  // width of the text beside a row

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c >= ' ' && c <= '~' ? c : '?';
    }
  return out;
}

struct Paint {
  const char* fill;
  const char* meaning;
};

Paint paint_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return {"#8fb8ee", "F forward"};
    case ActionKind::input_gradient:
      return {"#8fd3b0", "I input gradient"};
    case ActionKind::weight_gradient:
      return {"#f2d06b", "W weight gradient"};
    default:
      return {"#7cc4c0", "B backward"};
  }
}

std::string rectangle(double x, double y, double width, double height, const char* fill) {
  return fmt::format(
      R"(<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" fill="{}" stroke="#ffffff" stroke-width="0.7"/>)",
      x, y, width, height, fill);
}

std::string label(double x, double y, double size, const char* anchor, const std::string& text) {
  return fmt::format(R"(<text x="{:.2f}" y="{:.2f}" font-size="{:.1f}" text-anchor="{}">{}</text>)",
                     x, y, size, anchor, escaped(text));
}

double share(double part, double of) { return of > 0 ? 100 * part / of : 0; }

template <class Kept>
std::string memory_of(const Kept& k) {
  return fmt::format("inputs {}, W wait {}, kept {}", k.activations, k.weight_gradients, k.kept);
}

}  // namespace

std::string draw_svg(const Schedule& schedule, const Timing& timing) {
  double shortest = timing.makespan;
  for (const RankTiming& rank : timing.ranks)
    for (const Span& s : rank.spans)
      if (s.end > s.start) shortest = std::min(shortest, s.end - s.start);
  // 26 points for the shortest action, within what viewers take.
  const double whole =
      std::clamp(timing.makespan / std::max(shortest, 1e-300) * 26, 500.0, 30000.0);
  const double scale = timing.makespan > 0 ? whole / timing.makespan : 0;
  const bool with_stage = schedule.stages() > schedule.ranks();
  const double width = kLabel + whole + kFigures;
  const size_t stage_lines = with_stage ? timing.stages.size() : 0;
  const double drawn = kTop + static_cast<double>(schedule.ranks()) * (kRow + kGap);
  const double height = drawn + kBottom + static_cast<double>(stage_lines) * kLine;
  std::string out = fmt::format(
      R"(<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}" font-family="sans-serif" fill="#222222">
<rect width="{0:.0f}" height="{1:.0f}" fill="#ffffff"/>
)",
      width, height);
  out += label(10, 22, 15, "start",
               fmt::format("{}: {} ranks, {} stages, {} micro-batches", schedule.name,
                           schedule.ranks(), schedule.stages(), schedule.micro_batches)) +
         "\n";
  double at = 10;
  for (const ActionKind kind : {ActionKind::forward, ActionKind::backward,
                                ActionKind::input_gradient, ActionKind::weight_gradient}) {
    const Paint paint = paint_of(kind);
    out += rectangle(at, 32, 14, 14, paint.fill) +
           label(at + 18, 43.5, 11, "start", paint.meaning) + "\n";
    at += 118;
  }
  for (int r = 0; r < schedule.ranks(); ++r) {
    const double y = kTop + static_cast<double>(r) * (kRow + kGap);
    out += label(10, y + 19, 12, "start", fmt::format("rank {}", r));
    out += rectangle(kLabel, y, timing.makespan * scale, kRow, "#eeeeee") + "\n";
    const RankTiming& rank = timing.ranks[static_cast<size_t>(r)];
    const double idle = share(timing.makespan - rank.busy, timing.makespan);
    out += label(kLabel + whole + 10, y + 19, 11, "start",
                 fmt::format("bubble {:.1f} %, {}", idle, memory_of(rank))) +
           "\n";
    for (const Span& s : rank.spans) {
      const double x = kLabel + s.start * scale, w = (s.end - s.start) * scale;
      if (w <= 0) continue;
      out += rectangle(x, y, w, kRow, paint_of(s.action.kind).fill);
      std::string text = with_stage ? text_of(s.action)
                                    : word_of(s.action.kind) + std::to_string(s.action.micro_batch);
      const double size = std::min(11.0, w / (0.85 * static_cast<double>(text.size())));
      if (size >= 3) out += label(x + w / 2, y + kRow / 2.0 + size * 0.36, size, "middle", text);
      out += "\n";
    }
  }
  double below = drawn + 14;
  out += label(kLabel, below, 11, "start", "0") + "\n";
  out += label(kLabel + whole, below, 11, "end", fmt::format("{:.6g}", timing.makespan)) + "\n";
  out += label(kLabel, below + kLine + 4, 11, "start",
               fmt::format("step {:.6g}: bubble {:.1f} %; memory {}", timing.makespan,
                           100 * timing.bubble(), memory_text(timing)));
  below += kLine + 4;
  for (size_t i = 0; i < stage_lines; ++i) {
    const StageTiming& stage = timing.stages[i];
    below += kLine;
    out += "\n" +
           label(kLabel, below, 11, "start",
                 fmt::format("stage {} (rank {}): computes {:.1f} % of the step, bubble before it "
                             "{:.1f} %, {}",
                             i, stage.rank, share(stage.busy, timing.makespan),
                             share(stage.waited, timing.makespan), memory_of(stage)));
  }
  return out + "\n</svg>\n";
}

}  // namespace trireme::pipeline
