// SPDX-License-Identifier: Apache-2.0
#include "trireme/monitor/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <termios.h>

#include <algorithm>

#include "trireme/base/fd.h"

namespace trireme {
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

TEST(monitor_progress, the_line_is_in_torchtitans_words) {
  EXPECT_EQ(step_line(view(10)),
            "step: 10  loss:  4.2310  grad_norm:  1.0312  memory:  0.31GiB  tps: 12,345");
  EXPECT_EQ(step_line(view(7)),
            "step:  7  loss:  4.2310  grad_norm:  1.0312  memory:  0.31GiB  tps: 12,345");
  StepView images = view(10);
  images.tokens_per_s = 0;
  EXPECT_EQ(step_line(images, 600),
            "step: 10/600  loss:  4.2310  grad_norm:  1.0312  memory:  0.31GiB  samples/s: 96");
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
  for (int step : {1, 10, 20, 25}) expected += step_line(view(step)) + "\n";
  EXPECT_EQ(pipe.text(), expected + "validation loss 2.0\n");
}

TEST(monitor_progress, a_resumed_run_shows_its_first_step) {
  Pipe pipe;
  Progress progress({.fd = pipe.writer.get(), .steps = 100, .first = 33, .every = 10});
  for (int step = 34; step <= 39; ++step) progress.step(view(step));
  EXPECT_EQ(pipe.text(), step_line(view(34)) + "\n");
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
  // The note replaces the bar, which is drawn again below it.
  EXPECT_NE(text.find("\r\x1b[Ksaved\r\n\r 25% ["), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

TEST(monitor_progress, the_bar_fills_and_never_wraps) {
  const std::string words = "step: 1/2";
  for (int width = 0; width <= 200; ++width) {
    for (int done = 0; done <= 8; ++done) {
      const std::string line = detail::bar_line(done, 8, 61, words, width);
      EXPECT_LE(static_cast<int>(line.size()), std::max(0, width - 1));
    }
  }
  EXPECT_EQ(detail::bar_line(4, 8, 61, words, 100),
            " 50% [============>           ] step: 1/2  eta 1:01");
  EXPECT_EQ(detail::bar_line(8, 8, 0, words, 100),
            "100% [========================] step: 1/2  eta 0:00");
  EXPECT_EQ(detail::bar_line(0, 8, 7322, words, 30), "  0% step: 1/2  eta 2:02:02");
  EXPECT_EQ(detail::bar_line(4, 0, 0, words, 100), words);
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
}  // namespace trireme
