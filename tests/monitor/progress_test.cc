// SPDX-License-Identifier: Apache-2.0
#include "trireme/monitor/progress.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <termios.h>

#include <algorithm>

#include "trireme/base/fd.h"

namespace trireme::progress_test {
namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0) {
      reader.reset(ends[0]);
      writer.reset(ends[1]);
    }
  }
  std::string text() {
    char block[1 << 16];
    const ssize_t got = ::read(reader.get(), block, sizeof block);
    return std::string(block, std::max<ssize_t>(got, 0));
  }
  UniqueFd reader, writer;
};

StepView view(int64_t step) {
  StepView v;
  v.step = step;
  v.loss = 4.231;
  v.grad_norm = 1.0312;
  v.memory_bytes = 332859965;  // 0.31 GiB
  v.tokens_per_s = 12345;
  v.samples_per_s = 96.4;
  return v;
}

const StepTime kTime{12, 61};

TEST(monitor_progress, the_line_is_in_torchtitans_words_and_says_how_far_it_is) {
  EXPECT_EQ(step_line(view(10), 0, {12, -1}),
            "step: 10  loss:  4.2310  grad_norm:  1.0312  memory:  0.31GiB  tps: 12,345  elapsed "
            "0:12");
  EXPECT_EQ(step_line(view(7), 60, kTime),
            "step:  7/60  loss:  4.2310  grad_norm:  1.0312  memory:  0.31GiB  tps: 12,345  "
            "elapsed 0:12  eta 1:01");
  StepView images = view(10);
  images.tokens_per_s = 0;
  EXPECT_EQ(step_line(images, 600, {4000, 7322}),
            "step: 10/600  loss:  4.2310  grad_norm:  1.0312  memory:  0.31GiB  samples/s: 96  "
            "elapsed 1:06:40  eta 2:02:02");
}

TEST(monitor_progress, commas_stand_every_three_digits) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(1234567), "1,234,567");
  EXPECT_EQ(with_commas(-123456), "-123,456");
}

TEST(monitor_progress,
     elsewhere_than_on_a_terminal_it_is_a_line_each_n_steps_and_the_first_and_last) {
  Pipe pipe;
  {
    Progress progress({.fd = pipe.writer.get(), .steps = 25, .every = 10});
    for (int step = 1; step <= 25; ++step) progress.step(view(step));
    progress.note("validation loss 2.0");
    progress.finish();
  }
  std::string expected;
  for (int step : {1, 10, 20, 25}) expected += step_line(view(step), 25, {0, 0}) + "\n";
  EXPECT_EQ(pipe.text(), expected + "validation loss 2.0\n");
}

TEST(monitor_progress, a_resumed_run_shows_its_first_step) {
  Pipe pipe;
  Progress progress({.fd = pipe.writer.get(), .steps = 100, .first = 33, .every = 10});
  for (int step = 34; step <= 39; ++step) progress.step(view(step));
  EXPECT_EQ(pipe.text(), step_line(view(34), 100, {0, 0}) + "\n");
}

TEST(monitor_progress, none_shows_nothing) {
  Pipe pipe;
  Progress progress({.fd = pipe.writer.get(), .every = 1, .style = ProgressOptions::Style::none});
  progress.step(view(1));
  progress.note("text");
  progress.finish();
  EXPECT_EQ(pipe.text(), "");
}

TEST(monitor_progress, on_a_terminal_it_is_a_bar_of_one_line) {
  ::setenv("TERM", "xterm", 1);
  int leader = -1, follower = -1;
  winsize size{};
  size.ws_col = 130;
  size.ws_row = 24;
  ASSERT_EQ(::openpty(&leader, &follower, nullptr, nullptr, &size), 0);
  UniqueFd screen(leader), terminal(follower);
  Progress progress({.fd = terminal.get(), .steps = 200, .every = 10});
  progress.step(view(50));
  progress.note("saved");
  progress.finish();
  char block[8192];
  std::string text;
  while (text.find("\r\n", text.find("saved") == std::string::npos ? 0 : text.find("saved") + 7) ==
         std::string::npos) {
    const ssize_t got = ::read(screen.get(), block, sizeof block);
    ASSERT_GT(got, 0);
    text.append(block, got);
  }
  EXPECT_EQ(text.substr(0, 6), "\r 25% ");
  EXPECT_NE(text.find("step: 50/200"), std::string::npos);
  EXPECT_NE(text.find("eta 0:0"), std::string::npos);
  EXPECT_NE(text.find("elapsed 0:0"), std::string::npos);
  // The note replaces the bar, which is drawn again below it.
  EXPECT_NE(text.find("\r\x1b[Ksaved\r\n\r 25% ["), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

/// The numbers of a line, as they stand in it.
std::vector<std::string> numbers_in(const std::string& line) {
  std::vector<std::string> found;
  std::string word;
  for (char c : line + " ") {
    const bool part =
        std::isdigit(static_cast<unsigned char>(c)) || c == '.' || c == ',' || c == ':' || c == '/';
    if (part) {
      word += c;
    } else {
      if (word.find_first_of("0123456789") != std::string::npos) found.push_back(word);
      word.clear();
    }
  }
  return found;
}

TEST(monitor_progress, at_80_columns_numbers_are_whole_and_the_eta_stays) {
  EXPECT_EQ(detail::bar_line(view(50), 200, kTime, 80),
            "step: 50/200  loss:  4.2310  grad_norm:  1.0312  tps: 12,345  0:12  eta 1:01");
  EXPECT_EQ(detail::bar_line(view(50), 200, kTime, 60),
            "step: 50/200  loss:  4.2310  tps: 12,345  0:12  eta 1:01");
  EXPECT_EQ(detail::bar_line(view(50), 200, kTime, 40), "step: 50/200  loss:  4.2310  eta 1:01");
  EXPECT_EQ(detail::bar_line(view(50), 200, kTime, 120),
            " 25% [==>      ] step: 50/200  loss:  4.2310  grad_norm:  1.0312  memory:  0.31GiB  "
            "tps: 12,345  elapsed 0:12  eta 1:01");
}

TEST(monitor_progress, at_every_width_the_line_fits_and_its_numbers_are_whole) {
  StepView large = view(999'999);
  large.loss = 1234.5678;
  large.grad_norm = 98765.4321;
  large.memory_bytes = int64_t{1234} << 30;
  large.tokens_per_s = 1234567;
  for (const StepView& v : {view(50), large}) {
    const StepTime long_time{98765, 123456};
    const auto whole = numbers_in(step_line(v, 1'000'000, long_time));
    const std::string shortest = fmt::format("step: {}/1000000  eta 34:17:36", v.step);
    for (int width = 0; width <= 220; ++width) {
      const std::string line = detail::bar_line(v, 1'000'000, long_time, width);
      ASSERT_LE(static_cast<int>(line.size()), std::max(0, width - 1));
      if (width - 1 < static_cast<int>(shortest.size())) continue;
      EXPECT_NE(line.find("eta 34:17:36"), std::string::npos) << line;
      for (const auto& number : numbers_in(line))
        EXPECT_TRUE(line.find(number + "%") != std::string::npos ||
                    std::count(whole.begin(), whole.end(), number))
            << number << " in " << line;
    }
  }
}

TEST(monitor_progress, the_bar_fills) {
  auto bar = [](int64_t step) {
    const std::string line = detail::bar_line(view(step), 8, kTime, 200);
    return line.substr(0, line.find(" step:"));
  };
  EXPECT_EQ(bar(0), "  0% [>                       ]");
  EXPECT_EQ(bar(4), " 50% [============>           ]");
  EXPECT_EQ(bar(8), "100% [========================]");
  EXPECT_EQ(detail::bar_line(view(4), 0, {12, -1}, 200), step_line(view(4), 0, {12, -1}));
}

TEST(monitor_progress, a_dumb_terminal_gets_lines_without_escapes) {
  for (const char* term : {"dumb", ""}) {
    const std::string before = std::getenv("TERM") ? std::getenv("TERM") : "";
    ::setenv("TERM", term, 1);
    int leader = -1, follower = -1;
    ASSERT_EQ(::openpty(&leader, &follower, nullptr, nullptr, nullptr), 0);
    UniqueFd screen(leader), terminal(follower);
    {
      Progress progress({.fd = terminal.get(), .steps = 2, .every = 1});
      progress.step(view(1));
      progress.note("saved");
      progress.step(view(2));
      progress.finish();
    }
    ::setenv("TERM", before.c_str(), 1);
    terminal.reset();
    // What was written arrives in pieces; after the last one the read fails.
    std::string text;
    char block[8192];
    for (ssize_t got; (got = ::read(screen.get(), block, sizeof block)) > 0;)
      text.append(block, static_cast<size_t>(got));
    EXPECT_EQ(text, step_line(view(1), 2, {0, 0}) + "\r\nsaved\r\n" +
                        step_line(view(2), 2, {0, 0}) + "\r\n");
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
  }
}

TEST(monitor_progress, a_reader_that_takes_nothing_does_not_hold_up_the_run) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);  // writes to it wait, as they do on a terminal
  UniqueFd reader(ends[0]), writer(ends[1]);
  Progress progress({.fd = writer.get(), .every = 1, .style = ProgressOptions::Style::lines});
  const auto start = Clock::now();
  int64_t step = 0;
  pollfd room{writer.get(), POLLOUT, 0};
  while (::poll(&room, 1, 0) == 1) progress.step(view(++step));
  for (int more = 0; more < 5; ++more) progress.step(view(++step));
  EXPECT_LT(seconds_since(start), 30);
  // When it reads again, lines come again, whole ones.
  std::string text(1 << 20, '\0');
  ASSERT_GT(::read(reader.get(), text.data(), text.size()), 0);
  progress.step(view(4321));
  const ssize_t n = ::read(reader.get(), text.data(), text.size());
  EXPECT_EQ(text.substr(0, static_cast<size_t>(n)).rfind("step: 4321", 0), 0u);
}

TEST(monitor_progress, a_reader_that_left_does_not_stop_the_run) {
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ASSERT_EQ(::sigaction(SIGPIPE, &ignore, &before), 0);
  Pipe pipe;
  pipe.reader.reset();
  Progress progress({.fd = pipe.writer.get(), .every = 1});
  EXPECT_NO_THROW({
    progress.step(view(1));
    progress.step(view(2));
    progress.finish();
  });
  ::sigaction(SIGPIPE, &before, nullptr);
}

}  // namespace
}  // namespace trireme::progress_test
