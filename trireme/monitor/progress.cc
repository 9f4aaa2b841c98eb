// SPDX-License-Identifier: Apache-2.0
#include "trireme/monitor/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>

namespace trireme {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);

int columns_of(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string minutes(double seconds) {
  const int64_t s = std::llround(std::clamp(seconds, 0.0, 360000.0));
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
                   : fmt::format("{}:{:02}", s / 60, s % 60);
}

}  // namespace

std::string with_commas(int64_t value) {
  std::string digits = std::to_string(value);
  const int first = digits[0] == '-' ? 1 : 0;
  for (int at = static_cast<int>(digits.size()) - 3; at > first; at -= 3) digits.insert(at, ",");
  return digits;
}

std::string step_line(const StepView& v, int64_t steps) {
  std::string line = fmt::format("step: {:2}", v.step);
  if (steps > 0) line += fmt::format("/{}", steps);
  line += fmt::format("  loss: {:7.4f}  grad_norm: {:7.4f}  memory: {:5.2f}GiB", v.loss,
                      v.grad_norm, static_cast<double>(v.memory_bytes) / (1 << 30));
  if (v.tokens_per_s > 0)
    line += "  tps: " + with_commas(std::llround(v.tokens_per_s));
  else
    line += "  samples/s: " + with_commas(std::llround(v.samples_per_s));
  return line;
}

std::string detail::bar_line(int64_t done, int64_t steps, double seconds_left,
                             const std::string& text, int width) {
  std::string line;
  const std::string tail = steps > 0 ? "  eta " + minutes(seconds_left) : "";
  if (steps > 0) {
    const double part =
        std::clamp(static_cast<double>(done) / static_cast<double>(steps), 0.0, 1.0);
    line = fmt::format("{:3}% ", static_cast<int>(part * 100));
    // The bar gets what the words leave, within reason.
    const int room = width - static_cast<int>(line.size() + text.size() + tail.size()) - 4;
    const int cells = std::min(room, 24);
    if (cells >= 6) {
      const int full = static_cast<int>(part * cells);
      line += '[' + std::string(full, '=') + (full < cells ? ">" : "") +
              std::string(std::max(0, cells - full - 1), ' ') + "] ";
    }
  }
  line += text + tail;
  // The last column stays free: a full line would wrap on some terminals.
  if (static_cast<int>(line.size()) > width - 1) line.resize(std::max(0, width - 1));
  return line;
}

Progress::Progress(ProgressOptions options) : options_(options), start_(Clock::now()) {
  using Style = ProgressOptions::Style;
  bar_ = options.style == Style::bar || (options.style == Style::automatic && ::isatty(options.fd));
  lines_ = options.style == Style::lines || (options.style == Style::automatic && !bar_);
  if (options_.every < 1) lines_ = false;
}

Progress::~Progress() { finish(); }

void Progress::step(const StepView& view) {
  last_ = view;
  if (bar_) {
    const auto now = Clock::now();
    if (open_ && now - drawn_ < kRedraw && view.step != options_.steps) return;
    drawn_ = now;
    draw(view);
  } else if (lines_ && (view.step % options_.every == 0 || view.step == options_.first + 1 ||
                        view.step == options_.steps)) {
    put(step_line(view) + "\n");
    printed_ = view.step;
  }
}

void Progress::draw(const StepView& view) {
  const double seconds = seconds_since(start_);
  const auto done = static_cast<double>(std::max<int64_t>(1, view.step - options_.first));
  const double left = seconds / done * static_cast<double>(options_.steps - view.step);
  put("\r" +
      detail::bar_line(view.step, options_.steps, left, step_line(view, options_.steps),
                       columns_of(options_.fd)) +
      "\x1b[K");
  open_ = true;
  printed_ = view.step;
}

void Progress::note(std::string_view text) {
  if (!bar_ && !lines_) return;
  std::string line(text);
  line += '\n';
  if (open_) {
    put("\r\x1b[K" + line);
    draw(last_);
  } else {
    put(line);
  }
}

void Progress::finish() {
  if (bar_ && open_) {
    if (printed_ != last_.step) draw(last_);
    put("\n");
    open_ = false;
  }
}

void Progress::put(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(options_.fd, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      bar_ = lines_ = open_ = false;  // nobody is looking any more
      return;
    }
    at += n;
  }
}

}  // namespace trireme
