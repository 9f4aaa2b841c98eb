// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/export.h"
#include "trireme/pipeline/schedule/timing.h"

// Pictures of a schedule in time: one row a rank, time from left to right.
namespace trireme::pipeline {

struct TextStyle {
  int columns = 100;    // of the terminal; what is longer goes on below
  bool utf8 = false;    // else plain ASCII
  bool colour = false;  // ANSI escapes
  int most_blocks = 8;  // pieces below each other, after which the drawing stops and says so
};

/// Each column is the shortest time of an action: F3 is the forward of micro-batch 3 (4F3 where
/// ranks have several stages), followed by dashes while it lasts; dots are idle time. Lengths are
/// rounded to columns. Ends in a newline; no line is longer than the style says, as long as that
/// leaves room for one action.
TRIREME_API std::string draw_text(const Schedule& schedule, const Timing& timing,
                                  const TextStyle& style = {});

/// What one rank keeps at most, in words: "at most 4 micro-batches of a stage kept on one rank: 4
/// inputs, 0 W wait". The last two need not be so many at one time.
TRIREME_API std::string memory_text(const Timing& timing);

/// A complete SVG document with a legend, to scale. Beside each rank stand its bubble and how many
/// micro-batches it keeps, below the drawing those of the step, and of each stage where ranks have
/// several. What the schedule's name has of markup is
/// escaped, and what is not ASCII or is a control character becomes '?'.
TRIREME_API std::string draw_svg(const Schedule& schedule, const Timing& timing);

}  // namespace trireme::pipeline
