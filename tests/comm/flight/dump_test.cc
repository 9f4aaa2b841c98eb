// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/flight/dump.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>

#include "tests/comm/flight/histories.h"
#include "tests/support/refusals.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/comm/flight/dump_reader.h"
#include "trireme/comm/flight/recorder.h"
#include "trireme/comm/flight/verdict.h"

namespace dump_test {

using namespace trireme;
using namespace trireme::flight;
using namespace trireme::testing;

namespace {

using trireme::testing::has;

CallWords words(uint64_t count) {
  return {.op = Collective::all_reduce, .dtype = DType::f32, .count = count};
}

std::string reason(const std::function<void()>& body) {
  try {
    body();
    return "nothing";
  } catch (const Error& e) {
    return std::string(e.kind()) + ": " + e.what();
  }
}

struct Rank {
  explicit Rank(int rank, const std::string& folder = "")
      : ring(new Ring{}),
        recorder(ring.get()),
        dumper(ring.get(),
               {.backend = "local",
                .group = "world/1",
                .rank = rank,
                .size = 2,
                .world_rank = rank + 2,
                .generation = 77},
               folder) {}
  std::unique_ptr<Ring> ring;
  Recorder recorder;
  Dumper dumper;
};

}  // namespace

TEST(comm_flight_dump, what_was_recorded_is_read_back) {
  PrivateFolder folder;
  Rank rank(1, folder.path());
  for (uint64_t n = 1; n <= 3; ++n) rank.recorder.call(n, words(n * 10), {"train.cc", int(n)});
  rank.recorder.matched(2);
  rank.recorder.done(1);
  const uint64_t p = rank.recorder.pair(
      {.op = Collective::recv, .dtype = DType::i64, .root = -1, .tag = 5, .count = 9}, {"p.cc", 3});
  rank.recorder.pair_peer(p, 0);
  rank.recorder.pair_done(p);
  ASSERT_TRUE(rank.dumper.dump_failure("it was late"));
  const auto all = read_dumps(folder.path());
  ASSERT_EQ(all.size(), 1u);
  const History& h = all[0];
  EXPECT_EQ(std::tie(h.group, h.backend, h.why),
            std::make_tuple("world/1", "local", "it was late"));
  EXPECT_EQ(std::tie(h.rank, h.size, h.world_rank, h.generation, h.pid),
            std::make_tuple(1, 2, 3, uint64_t{77}, ::getpid()));
  ASSERT_EQ(h.calls.size(), 3u);
  EXPECT_EQ(text_of(h.calls[1]), "all_reduce(float32[20], sum) at train.cc:2");
  EXPECT_EQ(h.calls[0].state, CallState::done);
  EXPECT_EQ(h.calls[1].state, CallState::matched);
  EXPECT_EQ(h.calls[2].state, CallState::posted);
  EXPECT_LE(h.calls[0].posted, h.calls[0].done);
  EXPECT_NEAR(h.calls[2].posted, h.written, 5);
  ASSERT_EQ(h.pairs.size(), 1u);
  EXPECT_EQ(text_of(h.pairs[0]), "recv(int64[9], from rank 0) at p.cc:3");
  EXPECT_EQ(h.pairs[0].tag, 5);
}

TEST(comm_flight_dump, the_last_two_thousand_calls_are_kept_and_no_name_is_lost) {
  PrivateFolder folder;
  Rank rank(0, folder.path());
  for (uint64_t n = 1; n <= 5000; ++n) rank.recorder.call(n, words(n), {"train.cc", int(n % 700)});
  ASSERT_TRUE(rank.dumper.write_down(0, nullptr));
  const History h = read_dumps(folder.path())[0];
  ASSERT_EQ(h.calls.size(), kRecords);
  EXPECT_EQ(h.calls.front().seq, 5000 - kRecords + 1);
  EXPECT_EQ(h.calls.back().seq, 5000u);
  for (const Entry& e : h.calls) {  // places beyond the first kSites have no name
    const std::string site = "train.cc:" + std::to_string(e.seq % 700);
    EXPECT_EQ(e.site, e.seq % 700 >= 1 && e.seq % 700 <= kSites ? site : "") << e.seq;
  }
}

TEST(comm_flight_dump, all_of_this_process_write_into_a_folder_that_is_made) {
  PrivateFolder parent;
  Rank a(0), b(1);
  a.recorder.call(1, words(1), {"a.cc", 1});
  const std::string folder = parent / "flight";
  EXPECT_EQ(flight_dump(folder), 2);
  EXPECT_EQ(read_dumps(folder).size(), 2u);
  for (const auto& f : std::filesystem::directory_iterator(folder))
    EXPECT_EQ(f.path().extension(), ".flight") << f.path();  // no temporary stays
}

TEST(comm_flight_dump, nothing_is_written_without_a_folder) {
  Rank rank(0);
  EXPECT_FALSE(rank.dumper.dump_failure("x"));
  EXPECT_FALSE(rank.dumper.write_down(SIGUSR2, nullptr));
}

TEST(comm_flight_dump, a_peer_writes_for_a_dead_rank_but_not_over_its_own_words) {
  PrivateFolder folder;
  Rank alive(0, folder.path()), dead(1, folder.path());
  dead.recorder.call(1, words(3), {"a.cc", 1});
  ASSERT_TRUE(alive.dumper.dump_for(*dead.ring, 1, 3, 4321));
  auto all = read_dumps(folder.path());
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(std::tie(all[0].rank, all[0].writer, all[0].pid), std::make_tuple(1, 0, 4321));
  EXPECT_EQ(all[0].calls.size(), 1u);
  EXPECT_FALSE(alive.dumper.dump_for(*dead.ring, 1, 3, 4321));
}

TEST(comm_flight_dump, fatal_signals_and_usr2_write_and_take_their_course) {
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGUSR2}) {
    PrivateFolder folder;
    const pid_t pid = ::fork();
    if (pid == 0) {
      for (int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGUSR2}) ::signal(s, SIG_DFL);
      Rank rank(1, folder.path());
      rank.recorder.call(1, words(3), {"a.cc", 1});
      install_signal_handlers();
      ::raise(signal);
      ::_exit(7);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    if (signal == SIGUSR2) {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    } else {
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << signal;
    }
    const auto all = read_dumps(folder.path());
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].signal, signal);
    EXPECT_EQ(all[0].calls.size(), 1u);
  }
}

TEST(comm_flight_dump, a_program_that_has_a_handler_keeps_it) {
  PrivateFolder folder;
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::signal(SIGUSR2, [](int) { ::_exit(3); });
    Rank rank(0, folder.path());
    install_signal_handlers();
    ::raise(SIGUSR2);
    ::_exit(7);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3);
}

TEST(comm_flight_dump, a_forked_child_does_not_write_for_its_parent) {
  PrivateFolder folder;
  Rank rank(0, folder.path());
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(rank.dumper.dump_failure("x") ? 1 : 0);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// ---- bytes that are not what they should be

namespace {

std::string one_dump() {
  PrivateFolder folder;
  Rank rank(0, folder.path());
  for (uint64_t n = 1; n <= 20; ++n) rank.recorder.call(n, words(n), {"train.cc", int(n)});
  rank.dumper.dump_failure("x");
  for (const auto& f : std::filesystem::directory_iterator(folder.path()))
    return read_file(f.path().string());
  return "";
}

}  // namespace

TEST(comm_flight_dump, a_dump_that_is_cut_anywhere_is_refused_in_one_sentence) {
  const std::string bytes = one_dump();
  ASSERT_GT(bytes.size(), 1000u);
  for (size_t n = 0; n < bytes.size(); n += n < 1000 ? 1 : 37) {
    const std::string why = reason([&] { read_dump({bytes.data(), n}, "x.flight"); });
    EXPECT_EQ(why.rfind("Corrupt: x.flight is ", 0), 0u) << n << ": " << why;
    EXPECT_EQ(why.find('\n'), std::string::npos);
  }
  EXPECT_TRUE(has(reason([&] { read_dump(bytes + "12345678", "x"); }), "Corrupt: x is truncated"));
}

TEST(comm_flight_dump, a_dump_with_any_byte_changed_is_refused) {
  const std::string bytes = one_dump();
  Dice dice(1);
  for (size_t i = 0; i < bytes.size(); i += 1 + dice.up_to(20)) {
    std::string bad = bytes;
    bad[i] = static_cast<char>(bad[i] ^ static_cast<char>(1 + dice.up_to(254)));
    const std::string why = reason([&] { read_dump(bad, "x"); });
    EXPECT_TRUE(why.rfind("Corrupt: ", 0) == 0 || why.rfind("UsageError: ", 0) == 0)
        << i << ": " << why;
  }
}

TEST(comm_flight_dump, a_newer_version_is_refused_naming_both) {
  std::string bytes = one_dump();
  bytes[8] = 2;
  const std::string why = reason([&] { read_dump(bytes, "x"); });
  EXPECT_TRUE(has(why, "UsageError: x has version 2") && has(why, "up to version 1")) << why;
}

TEST(comm_flight_dump, an_empty_folder_says_how_to_get_dumps) {
  PrivateFolder folder;
  EXPECT_TRUE(has(reason([&] { read_dumps(folder.path()); }), "TRIREME_FLIGHT_DIR"));
  EXPECT_TRUE(has(reason([&] { read_dumps(folder / "none"); }), "UsageError: cannot read"));
}

}  // namespace dump_test
