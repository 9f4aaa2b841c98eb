// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"

// What a person sees of a run. On a terminal: a bar that redraws itself in place. Elsewhere (a
// file, a pipe, CI, TERM=dumb): one line every N steps, in torchtitan's words:
//
//   step: 10/600  loss:  4.2310  grad_norm:  1.0312  memory:  0.31GiB  tps: 12,345  elapsed 0:12
//   eta 11:48
//
// Used by one thread of one rank (0).
namespace trireme {

struct StepView {
  int64_t step = 0;  // counts from 1
  double loss = 0, grad_norm = 0;
  int64_t memory_bytes = 0;
  double samples_per_s = 0,
         tokens_per_s = 0;  // over all ranks; tokens 0 where samples are not text
};

/// Of a run, in seconds.
struct StepTime {
  double elapsed = 0;
  double left = -1;  // -1: nobody knows
};

/// "1,234,567"
TRIREME_API std::string with_commas(int64_t value);
/// The line above. `steps` > 0 gives "step: 10/600".
TRIREME_API std::string step_line(const StepView& view, int64_t steps, const StepTime& time);

struct ProgressOptions {
  int fd = 2;         // where it goes: the program decides; not owned
  int64_t steps = 0;  // how many there will be; 0: nobody knows
  int64_t first = 0;  // steps done before (a resumed run)
  /// If no bar is drawn: the number of steps from one line to the next. The first and the last step
  /// always get a line.
  int64_t every = 10;
  enum class Style {
    automatic,
    bar,
    lines,
    none
  } style = Style::automatic;  // automatic: a bar if fd is a terminal that can redraw a line
};

class TRIREME_API Progress {
 public:
  explicit Progress(ProgressOptions options);
  /// Ends the bar's line, so that what is printed next does not stand in it.
  ~Progress();
  Progress(const Progress&) = delete;

  /// Costs a few hundred nanoseconds when nothing is due. A failing write (a closed terminal) is
  /// not an error of the run, and one that would wait (a stopped terminal, a pager) is left out.
  void step(const StepView& view);
  /// A line of its own, above the bar: "validation loss …", "saved step-00000100".
  void note(std::string_view text);
  void finish();

 private:
  void draw(const StepView& view);
  StepTime time_of(const StepView& view) const;
  void put(const std::string& text, int patience_ms);

  ProgressOptions options_;
  bool bar_ = false, lines_ = false;
  bool open_ = false;  // the cursor stands at the end of a bar
  Clock::time_point start_, drawn_;
  StepView last_;
  int64_t printed_ = -1;
};

namespace detail {
/// What fits into `width` columns, numbers whole: step and eta always (cut only where not even they
/// fit), then loss, rate, gradient norm, elapsed time, memory, and with what is left the bar.
TRIREME_API std::string bar_line(const StepView& view, int64_t steps, const StepTime& time,
                                 int width);
}  // namespace detail

}  // namespace trireme
