// SPDX-License-Identifier: Apache-2.0
#include "trireme/monitor/progress.h"

#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <utility>

namespace trireme {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);
// How long a reader that takes nothing (Ctrl-S, a pager) holds up the run: for a line, and for what
// is said once.
constexpr int kLinePatience = 100, kNotePatience = 1000;

/// A terminal that does not say what it is, or says that it cannot.
bool redraws(const char* term) {
  return term && *term && std::string_view(term) != "dumb" && std::string_view(term) != "unknown";
}

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

namespace {

/// What a line may say, in the order in which it says it. "" where it has nothing to say.
struct Words {
  std::string step, loss, grad_norm, memory, rate, elapsed, eta;
};

Words words_of(const StepView& v, int64_t steps, const StepTime& time) {
  Words w;
  w.step = fmt::format("step: {:2}", v.step);
  if (steps > 0) w.step += fmt::format("/{}", steps);
  w.loss = fmt::format("loss: {:7.4f}", v.loss);
  w.grad_norm = fmt::format("grad_norm: {:7.4f}", v.grad_norm);
  w.memory = fmt::format("memory: {:5.2f}GiB", static_cast<double>(v.memory_bytes) / (1 << 30));
  w.rate = v.tokens_per_s > 0 ? "tps: " + with_commas(std::llround(v.tokens_per_s))
                              : "samples/s: " + with_commas(std::llround(v.samples_per_s));
  w.elapsed = "elapsed " + minutes(time.elapsed);
  if (time.left >= 0) w.eta = "eta " + minutes(time.left);
  return w;
}

std::string joined(std::initializer_list<const std::string*> parts) {
  std::string line;
  for (const std::string* part : parts)
    if (!part->empty()) line += (line.empty() ? "" : "  ") + *part;
  return line;
}

}  // namespace

std::string step_line(const StepView& view, int64_t steps, const StepTime& time) {
  const Words w = words_of(view, steps, time);
  return joined({&w.step, &w.loss, &w.grad_norm, &w.memory, &w.rate, &w.elapsed, &w.eta});
}

std::string detail::bar_line(const StepView& view, int64_t steps, const StepTime& time, int width) {
  // The last column stays free: a full line would wrap on some terminals.
  const int room = std::max(0, width - 1);
  const Words all = words_of(view, steps, time);
  Words w;
  w.step = all.step;
  w.eta = all.eta;
  auto line = [&] {
    return joined({&w.step, &w.loss, &w.grad_norm, &w.memory, &w.rate, &w.elapsed, &w.eta});
  };
  auto add = [&](std::string Words::*word, const std::string& with) {
    const std::string before = std::exchange(w.*word, with);
    if (static_cast<int>(line().size()) > room) w.*word = before;
  };
  for (auto word : {&Words::loss, &Words::rate, &Words::grad_norm}) add(word, all.*word);
  add(&Words::elapsed, minutes(time.elapsed));
  add(&Words::memory, all.memory);
  add(&Words::elapsed, all.elapsed);
  std::string text = line();
  if (static_cast<int>(text.size()) > room) text.resize(static_cast<size_t>(room));
  if (steps <= 0) return text;
  const double part =
      std::clamp(static_cast<double>(view.step) / static_cast<double>(steps), 0.0, 1.0);
  const std::string percent = fmt::format("{:3}% ", static_cast<int>(part * 100));
  const int left = room - static_cast<int>(text.size() + percent.size());
  if (left < 0) return text;
  const int cells = std::min(left - 3, 24);
  if (cells < 6) return percent + text;
  const int full = static_cast<int>(part * cells);
  return percent + '[' + std::string(static_cast<size_t>(full), '=') + (full < cells ? ">" : "") +
         std::string(static_cast<size_t>(std::max(0, cells - full - 1)), ' ') + "] " + text;
}

Progress::Progress(ProgressOptions options) : options_(options), start_(Clock::now()) {
  using Style = ProgressOptions::Style;
  const bool automatic = options.style == Style::automatic;
  bar_ = options.style == Style::bar ||
         (automatic && ::isatty(options.fd) && redraws(std::getenv("TERM")));
  lines_ = options.style == Style::lines || (automatic && !bar_);
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
    put(step_line(view, options_.steps, time_of(view)) + "\n", kLinePatience);
    printed_ = view.step;
  }
}

StepTime Progress::time_of(const StepView& view) const {
  StepTime time{seconds_since(start_), -1};
  const int64_t done = view.step - options_.first;
  if (options_.steps > 0 && done > 0)
    time.left = time.elapsed / static_cast<double>(done) *
                static_cast<double>(std::max<int64_t>(0, options_.steps - view.step));
  return time;
}

void Progress::draw(const StepView& view) {
  put("\r" + detail::bar_line(view, options_.steps, time_of(view), columns_of(options_.fd)) +
          "\x1b[K",
      0);
  open_ = true;
  printed_ = view.step;
}

void Progress::note(std::string_view text) {
  if (!bar_ && !lines_) return;
  std::string line(text);
  line += '\n';
  if (open_) {
    put("\r\x1b[K" + line, kNotePatience);
    draw(last_);
  } else {
    put(line, kNotePatience);
  }
}

void Progress::finish() {
  if (bar_ && open_) {
    if (printed_ != last_.step) draw(last_);
    put("\n", kLinePatience);
    open_ = false;
  }
}

void Progress::put(const std::string& text, int patience_ms) {
  if (!bar_ && !lines_) return;
  for (size_t at = 0; at < text.size();) {
    pollfd ready{options_.fd, POLLOUT, 0};
    if (::poll(&ready, 1, patience_ms) == 0) return;  // nobody takes it now: training goes on
    // What a pipe takes without waiting, once it takes anything.
    const ssize_t n =
        ::write(options_.fd, text.data() + at, std::min<size_t>(text.size() - at, PIPE_BUF));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) {
      bar_ = lines_ = open_ = false;  // nobody is looking any more
      return;
    }
    at += static_cast<size_t>(n);
  }
}

}  // namespace trireme
