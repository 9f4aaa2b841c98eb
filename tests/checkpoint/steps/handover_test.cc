// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/snapshot/handover.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "tests/checkpoint/steps/pretend_worker.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/steps/snapshot/handed_on.h"

namespace handover_test {

using namespace trireme;
using namespace trireme::test;

namespace {

size_t open_descriptors() {
  size_t n = 0;
  for ([[maybe_unused]] const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
  return n;
}

ino_t inode(int fd) {
  struct stat info {};
  ::fstat(fd, &info);
  return info.st_ino;
}

class checkpoint_steps_handover : public ::testing::Test {
 protected:
  checkpoint_steps_handover() { ::setenv(kSnapshotsVariable, path_.c_str(), 1); }
  ~checkpoint_steps_handover() override { ::unsetenv(kSnapshotsVariable); }

  /// A connection that says what it likes.
  UniqueFd stranger() const {
    UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::strncpy(to.sun_path, path_.c_str(), sizeof to.sun_path - 1);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    return fd;
  }
  static std::string message(int32_t rank, int32_t slot, uint32_t version = 1) {
    const uint32_t words[] = {0x6e735254, version, static_cast<uint32_t>(rank),
                              static_cast<uint32_t>(slot)};
    return {reinterpret_cast<const char*>(words), sizeof words};
  }
  static void send(int socket, const std::string& bytes, const std::vector<int>& fds) {
    iovec io{const_cast<char*>(bytes.data()), bytes.size()};
    std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
    msghdr h{};
    h.msg_iov = &io;
    h.msg_iovlen = 1;
    if (!fds.empty()) {
      h.msg_control = control.data();
      h.msg_controllen = control.size();
      cmsghdr* c = CMSG_FIRSTHDR(&h);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
    }
    ASSERT_EQ(::sendmsg(socket, &h, 0), static_cast<ssize_t>(bytes.size()));
  }

  PrivateFolder folder_;
  const std::string path_ = folder_ / "snapshots";
};

}  // namespace

TEST_F(checkpoint_steps_handover, what_a_rank_handed_over_is_held_when_it_is_gone) {
  SnapshotHolder holder(path_);
  const UniqueFd a = memory_of("a"), b = memory_of("b"), c = memory_of("c");
  {
    SnapshotHandover rank(5);
    rank.hold(0, a.get());
    rank.hold(1, b.get());
    rank.hold(1, c.get());
  }
  const auto held = holder.take_all();
  ASSERT_EQ(held.size(), 2u);
  EXPECT_EQ(held[0].rank, 5);
  EXPECT_EQ(inode(held[0].fd.get()), inode(a.get()));
  EXPECT_EQ(inode(held[1].fd.get()), inode(c.get()));
  EXPECT_TRUE(holder.take_all().empty());
}

TEST_F(checkpoint_steps_handover, what_a_rank_takes_back_is_given_up) {
  SnapshotHolder holder(path_);
  const size_t before = open_descriptors();
  {
    const UniqueFd a = memory_of("a");
    SnapshotHandover rank(0);
    rank.hold(0, a.get());
    holder.serve();
    rank.hold(0, -1);
  }
  holder.serve();
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_TRUE(holder.take_all().empty());
}

TEST_F(checkpoint_steps_handover, without_a_launcher_a_rank_goes_on) {
  const UniqueFd a = memory_of("a");
  SnapshotHandover nobody_listens(0);
  nobody_listens.hold(0, a.get());
  ::unsetenv(kSnapshotsVariable);
  SnapshotHandover no_variable(0);
  no_variable.hold(0, a.get());
  ::setenv(kSnapshotsVariable, "no path", 1);
  SnapshotHandover no_path(0);
  no_path.hold(0, a.get());
  ::setenv(kSnapshotsVariable, path_.c_str(), 1);
  auto holder = std::make_unique<SnapshotHolder>(path_);
  SnapshotHandover rank(0);
  rank.hold(0, a.get());
  EXPECT_EQ(holder->take_all().size(), 1u);
  holder.reset();  // it has ended
  rank.hold(0, a.get());
  rank.hold(1, a.get());
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(checkpoint_steps_handover, a_folder_too_deep_for_a_sockets_address_is_reached) {
  const std::string deep = folder_ / std::string(150, 'd');
  std::filesystem::create_directory(deep);
  SnapshotHolder holder(deep + "/snapshots");
  ::setenv(kSnapshotsVariable, (deep + "/snapshots").c_str(), 1);
  const UniqueFd a = memory_of("a");
  SnapshotHandover rank(0);
  rank.hold(0, a.get());
  EXPECT_EQ(holder.take_all().size(), 1u);
}

TEST_F(checkpoint_steps_handover, what_is_no_sealed_memory_cuts_its_sender_off) {
  SnapshotHolder holder(path_);
  write_file_atomic(folder_ / "file", "bytes");
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  const UniqueFd reading(pipe[0]), writing(pipe[1]);
  const UniqueFd file(::open((folder_ / "file").c_str(), O_RDONLY | O_CLOEXEC));
  const UniqueFd device(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  const UniqueFd grows = memory_of("a", F_SEAL_SHRINK | F_SEAL_SEAL), open_size = memory_of("a", 0);
  UniqueFd sparse(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(sparse.get(), int64_t{1} << 62), 0);
  ::fcntl(sparse.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  const UniqueFd good = memory_of("a");
  const size_t before = open_descriptors();
  for (int fd :
       {file.get(), reading.get(), device.get(), grows.get(), open_size.get(), sparse.get()}) {
    const UniqueFd worker = stranger();
    send(worker.get(), message(0, 0), {fd});
    send(worker.get(), message(0, 1), {good.get()});  // it is not listened to any more
    holder.serve();
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_TRUE(holder.take_all().empty());
}

TEST_F(checkpoint_steps_handover, what_is_no_message_of_ours_cuts_its_sender_off) {
  SnapshotHolder holder(path_);
  const UniqueFd good = memory_of("a");
  const size_t before = open_descriptors();
  const std::vector<int> many(40, good.get());
  const std::vector<std::pair<std::string, std::vector<int>>> hostile{
      {"x", {good.get()}},
      {std::string(5000, 'x'), {good.get()}},
      {message(0, 0) + "x", {good.get()}},
      {message(0, 0, 2), {good.get()}},
      {message(0, 2), {good.get()}},
      {message(0, -1), {good.get()}},
      {message(-1, 0), {good.get()}},
      {message(0, 0), {good.get(), good.get()}},
      {message(0, 0), many}};
  for (const auto& [bytes, fds] : hostile) {
    const UniqueFd worker = stranger();
    send(worker.get(), bytes, fds);
    holder.serve();
  }
  holder.serve();
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_TRUE(holder.take_all().empty());
}

TEST_F(checkpoint_steps_handover,
       who_asks_gets_what_is_sealed_and_what_others_left_is_taken_for_it) {
  SnapshotHolder holder(path_);
  const UniqueFd a = memory_of("a"), b = memory_of("b");
  SnapshotHandover stays(1);
  stays.hold(0, b.get());
  { SnapshotHandover(0).hold(0, a.get()); }
  const auto answered = [&](const std::vector<const HandedSnapshot*>& with) {
    std::vector<HandedSnapshot> got;
    std::string error;
    std::thread asks([&] {
      try {
        got = ask_for_snapshots();
      } catch (const Corrupt& e) {
        error = e.what();
      }
    });
    while (!holder.is_asked()) holder.serve();
    holder.answer(with);
    asks.join();
    holder.serve();
    EXPECT_FALSE(holder.is_asked());
    return std::pair(std::move(got), error);
  };
  std::vector<HandedSnapshot> left;
  holder.serve();
  left = holder.take_left();
  ASSERT_EQ(left.size(), 1u) << "rank 1 is there, and hands its own over itself";
  EXPECT_EQ(inode(left[0].fd.get()), inode(a.get()));
  EXPECT_NE(answered({&left[0]}).second, "") << "it is not sealed against writing";
  ASSERT_TRUE(seal_snapshot(left[0].fd.get()));
  left.push_back({UniqueFd(::dup(left[0].fd.get())), 3});
  const auto got = answered({&left[0], &left[1]}).first;
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[1].rank, 3);
  EXPECT_EQ(inode(got[1].fd.get()), inode(a.get()));
  EXPECT_TRUE(answered({}).first.empty());
  EXPECT_EQ(holder.take_all().size(), 1u);
  ::unsetenv(kSnapshotsVariable);
  EXPECT_TRUE(ask_for_snapshots().empty()) << "there is no launcher";
}

TEST_F(checkpoint_steps_handover,
       what_ranks_left_goes_when_all_that_came_after_them_have_their_own) {
  SnapshotHolder holder(path_);
  const UniqueFd a = memory_of("a");
  auto first = std::make_unique<SnapshotHandover>(0),
       second = std::make_unique<SnapshotHandover>(1);
  for (SnapshotHandover* rank : {first.get(), second.get()}) {
    rank->hold(0, a.get());
    rank->hold(1, -1);
  }
  holder.serve();
  EXPECT_TRUE(holder.all_have_let_go());
  second.reset();  // it is lost: its part of the step is needed
  holder.serve();
  EXPECT_EQ(holder.ranks_that_let_go(), 1u);
  first.reset();
  SnapshotHandover third(0), fourth(1);
  third.hold(0, a.get());
  third.hold(1, -1);
  fourth.hold(0, a.get());
  holder.serve();
  EXPECT_FALSE(holder.all_have_let_go());
  fourth.hold(1, -1);
  holder.serve();
  EXPECT_EQ(holder.take_all().size(), 2u) << "those of the two that have come after";
}

TEST_F(checkpoint_steps_handover, connections_and_what_one_of_them_holds_are_bounded) {
  SnapshotHolder holder(path_);
  const UniqueFd good = memory_of("a");
  const size_t before = open_descriptors();
  SnapshotHandover busy(0);
  for (int i = 0; i < 10'000; ++i) {
    busy.hold(i % 2, good.get());
    if (i % 16 == 0) holder.serve();
  }
  EXPECT_LE(open_descriptors(), before + 4);
  std::vector<UniqueFd> crowd;
  for (int i = 0; i < 1100; ++i) {
    crowd.push_back(UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
    if (!crowd.back()) break;  // this process has no more descriptors
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::strncpy(to.sun_path, path_.c_str(), sizeof to.sun_path - 1);
    ::connect(crowd.back().get(), reinterpret_cast<const sockaddr*>(&to), sizeof to);
    holder.serve();
  }
  std::vector<pollfd> watched;
  holder.add_to(watched);
  EXPECT_LE(watched.size(), 1025u);
  crowd.clear();
  holder.serve();
  EXPECT_FALSE(holder.take_all().empty()) << "and the worker before them is heard";
}

}  // namespace handover_test
