// SPDX-License-Identifier: Apache-2.0
// A process of the same user that knows the address and keeps to nothing: it loses its own channel,
// and the worker goes on with the others.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>

#include <random>

#include "tests/channel/local/local_workers.h"
#include "tests/support/captured_log.h"
#include "trireme/base/process/descriptor_socket.h"
#include "trireme/channel/local/letter.h"
#include "trireme/channel/local/local_hub.h"

namespace trireme::channel::local {
namespace {

using namespace conformance;
using Memory = ::trireme::local::Window;

/// An end that speaks the letters by hand.
class Stranger {
 public:
  explicit Stranger(const std::string& address)
      : to_(LocalAddress::parse(address)),
        socket(connect_for_descriptors_at_name(to_.socket)),
        lane_out(make_lane(lane_fd)),
        bell(make_bell(bell_fd)) {}

  Letter hello() const {
    Letter letter;
    letter.generation = 7;
    letter.bytes = sizeof(Lane);
    letter.set_text("stranger");
    std::memcpy(letter.token, to_.knock.data(), kTokenBytes);
    return letter;
  }
  Letter bell_letter() const {
    Letter letter;
    letter.kind = LetterKind::bell;
    letter.bytes = sizeof(BellMemory);
    return letter;
  }
  ReceivedLetter next() const {
    pollfd there{socket.get(), POLLIN, 0};
    ::poll(&there, 1, 10000);
    return receive_letter(socket.get());
  }
  /// Into the house, as an honest one comes.
  void enter() {
    ASSERT_TRUE(send_letter(socket.get(), hello(), lane_fd.get()));
    ASSERT_TRUE(send_letter(socket.get(), bell_letter(), bell_fd.get()));
    const ReceivedLetter lane = next(), theirs = next();
    ASSERT_EQ(lane.content.kind, LetterKind::welcome);
    ASSERT_EQ(theirs.content.kind, LetterKind::bell);
    lane_in = map_shared(lane.fd, lane.content.bytes, "it");
    peer_bell.emplace(map_shared(theirs.fd, theirs.content.bytes, "it"));
  }
  Lane& out() { return *reinterpret_cast<Lane*>(lane_out.base()); }
  Lane& in() { return *reinterpret_cast<Lane*>(lane_in.base()); }
  /// One record in the ring, whatever is in it.
  void put(const std::vector<uint64_t>& words, RecordKind kind = kShort) {
    if (!writer) writer.emplace(&out());
    unsigned char* to = writer->room(8 * words.size());
    ASSERT_NE(to, nullptr);
    std::memcpy(to, words.data(), 8 * words.size());
    writer->publish(kind, 8 * words.size());
    peer_bell->ring();
  }
  void share(uint32_t number, int fd, uint64_t bytes) const {
    Letter letter;
    letter.kind = LetterKind::window;
    letter.number = number;
    letter.bytes = bytes;
    ASSERT_TRUE(send_letter(socket.get(), letter, fd));
  }

 private:
  LocalAddress to_;

 public:
  UniqueFd socket, lane_fd, bell_fd;
  Memory lane_out, bell, lane_in;
  std::optional<Bell> peer_bell;
  std::optional<RingWriter> writer;
};

constexpr uint64_t front(uint64_t bytes, uint64_t bodies) { return bytes | bodies << 32; }
constexpr uint64_t lent(uint64_t bytes) { return bytes << 1 | 1; }

/// A worker with an honest friend.
struct House {
  House() : victim(make_local, "victim"), honest(make_local, "honest"), line(honest, victim) {}
  /// The stranger's end of it; the honest one's was there before.
  Worker::Accepted strangers_end(size_t n = 0) {
    testing::eventually([&] { return victim.accepted().size() >= n + 2; });
    return victim.accepted().at(n + 1);
  }
  void goes_on() {
    ASSERT_TRUE(line.channel->send({"still here?", {body_of(100000, 1)}}));
    ASSERT_TRUE(line.far->has(1));
    EXPECT_TRUE(is_body(line.far->take_all()[0].bodies[0], 100000, 1));
    ASSERT_TRUE(line.far_channel->send({"yes", {}}));
    ASSERT_TRUE(line.near->has(1));
    line.near->take_all();
  }
  Worker victim, honest;
  Line line;
};

TEST(channel_local_hostile, an_honest_stranger_is_let_in) {
  House house;
  Stranger stranger(house.victim.address());
  ASSERT_NO_FATAL_FAILURE(stranger.enter());
  const auto inbox = house.strangers_end().inbox;
  stranger.put({front(8, 0), 0x6f6c6c6568});
  ASSERT_TRUE(inbox->has(1));
  EXPECT_EQ(inbox->messages()[0].bytes, std::string("hello\0\0\0", 8));
  EXPECT_EQ(inbox->closings(), 0);
  house.goes_on();
}

TEST(channel_local_hostile, messages_that_are_none_end_the_channel_with_a_sentence) {
  House house;
  const std::vector<std::vector<uint64_t>> bad = {
      {front(kMostBytes + 1, 0)},
      {front(0, kMostBodies + 1)},
      {front(0, 1), (kMostBodyBytes + 1) << 1},
      {front(0, 0), 0},
      {front(0, 1), lent(1), 0, 0},  // no such window
      {front(0, 1), lent(kMostBodyBytes), 0, uint64_t{1} << 63},
  };
  for (size_t i = 0; i < bad.size(); ++i) {
    Stranger stranger(house.victim.address());
    ASSERT_NO_FATAL_FAILURE(stranger.enter());
    const auto inbox = house.strangers_end(i).inbox;
    stranger.put(bad[i]);
    ASSERT_TRUE(inbox->is_closed()) << i;
    EXPECT_NE(inbox->why().find("what worker 'stranger'"), std::string::npos) << inbox->why();
    EXPECT_TRUE(inbox->messages().empty());
    EXPECT_EQ(stranger.in().closed.load(), 1u);
  }
  house.goes_on();
}

TEST(channel_local_hostile, loans_outside_of_a_window_or_of_no_number_end_the_channel) {
  House house;
  constexpr uint64_t kBytes = 65536;
  const std::vector<std::vector<uint64_t>> bad = {
      {front(0, 1), lent(kBytes + 1), 0, 0},
      {front(0, 1), lent(kBytes), 0, 1},
      {front(0, 1), lent(1), 0, kBytes},
      {front(0, 1), lent(1), 0, ~uint64_t{0}},
      {front(0, 1), lent(1), uint64_t{kMostLent} << 32, 0},
      {front(0, 1), lent(1), 1, 0},
  };
  for (size_t i = 0; i < bad.size(); ++i) {
    Stranger stranger(house.victim.address());
    ASSERT_NO_FATAL_FAILURE(stranger.enter());
    const auto inbox = house.strangers_end(i).inbox;
    UniqueFd fd;
    const Memory window = Memory::create(kBytes, fd);
    stranger.share(0, fd.get(), kBytes);
    stranger.put({front(0, 1), lent(kBytes), 0, 0});  // a good one first
    ASSERT_TRUE(inbox->has(1)) << i;
    stranger.put(bad[i]);
    ASSERT_TRUE(inbox->is_closed()) << i;
    EXPECT_EQ(inbox->messages().size(), 1u);
    EXPECT_EQ(inbox->messages()[0].bodies[0].bytes, kBytes);
  }
  house.goes_on();
}

TEST(channel_local_hostile, memory_that_could_shrink_or_is_not_there_is_not_mapped) {
  House house;
  constexpr uint64_t kBytes = 1 << 20;
  const auto memfd = [&](bool filled, unsigned seals) {
    UniqueFd fd(::memfd_create("stranger", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(fd.get(), kBytes), 0);
    if (filled) {
      EXPECT_EQ(::fallocate(fd.get(), 0, 0, kBytes), 0);
    }
    if (seals) {
      EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    }
    return fd;
  };
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd pipe_in(ends[0]), pipe_out(ends[1]);
  std::vector<std::pair<UniqueFd, uint64_t>> bad;
  bad.emplace_back(memfd(true, 0), kBytes);                                   // could shrink
  bad.emplace_back(memfd(false, F_SEAL_SHRINK | F_SEAL_GROW), kBytes);        // holes
  bad.emplace_back(memfd(true, F_SEAL_SHRINK | F_SEAL_GROW), kBytes + 4096);  // smaller
  bad.emplace_back(memfd(true, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), kBytes);
  bad.emplace_back(UniqueFd(::open("/dev/zero", O_RDWR | O_CLOEXEC)), kBytes);
  bad.emplace_back(UniqueFd(::dup(pipe_in.get())), kBytes);
  bad.emplace_back(UniqueFd(), kBytes);
  for (size_t i = 0; i < bad.size(); ++i) {
    Stranger stranger(house.victim.address());
    ASSERT_NO_FATAL_FAILURE(stranger.enter());
    const auto inbox = house.strangers_end(i).inbox;
    stranger.share(0, bad[i].first.get(), bad[i].second);
    stranger.put({front(0, 1), lent(1), 0, 0});
    ASSERT_TRUE(inbox->is_closed()) << i;
    EXPECT_TRUE(inbox->messages().empty()) << i;
  }
  // Nor as a lane: nobody is let in.
  const testing::CapturedLog log;
  for (auto& [fd, bytes] : bad) {
    Stranger stranger(house.victim.address());
    Letter hello = stranger.hello();
    hello.bytes = bytes;
    ASSERT_TRUE(send_letter(stranger.socket.get(), hello, fd.get()));
    ASSERT_TRUE(send_letter(stranger.socket.get(), stranger.bell_letter(), stranger.bell_fd.get()));
    EXPECT_EQ(stranger.next().state, ReceivedLetter::closed);
  }
  EXPECT_EQ(house.victim.accepted().size(), 1 + bad.size());
  EXPECT_TRUE(testing::eventually([&] {
    return log.with("worker 'victim' cannot let worker 'stranger' in").size() == bad.size();
  }));
  house.goes_on();
}

TEST(channel_local_hostile, returning_what_was_not_lent_ends_the_channel) {
  House house;
  for (size_t i = 0; i < 3; ++i) {
    Stranger stranger(house.victim.address());
    ASSERT_NO_FATAL_FAILURE(stranger.enter());
    const auto [channel, inbox] = house.strangers_end(i);
    if (i == 0) stranger.in().returns[0] = 5, stranger.in().returned = 1;
    if (i == 1) stranger.in().returns[0] = ~uint32_t{0}, stranger.in().returned = 1;
    if (i == 2) stranger.in().returned = uint64_t{1} << 50;
    stranger.peer_bell->ring();
    ASSERT_TRUE(testing::eventually([&] {
      channel->send({"", {body_of(50000, 1)}});
      return inbox->closings() == 1;
    }));
    EXPECT_NE(inbox->why().find("broke the channel: it returned"), std::string::npos)
        << inbox->why();
  }
  house.goes_on();
}

TEST(channel_local_hostile, random_bytes_all_over_the_shared_memory_harm_nobody_else) {
  House house;
  std::mt19937_64 random(7);
  size_t ended = 0;
  for (size_t round = 0; round < 12; ++round) {
    Stranger stranger(house.victim.address());
    ASSERT_NO_FATAL_FAILURE(stranger.enter());
    const auto [channel, inbox] = house.strangers_end(round);
    for (int n = 0; n < 2000; ++n) {
      auto* lane = reinterpret_cast<unsigned char*>(n % 2 ? &stranger.out() : &stranger.in());
      // The counters more often than the ring.
      const size_t at = random() % (random() % 2 ? 448 : sizeof(Lane) - 8);
      const uint64_t word = random() % 3 ? random() % 300000 / 8 * 8 : random();
      std::memcpy(lane + at / 8 * 8, &word, 8);
      if (n % 100 == 0) {
        stranger.peer_bell->ring();
        channel->send({pattern(random() % 2000, 1), {body_of(random() % 40000, 2)}});
      }
    }
    if (testing::eventually([&] { return inbox->closings() == 1; }, std::chrono::milliseconds(300)))
      ++ended;
    channel->close("enough");
    ASSERT_TRUE(inbox->is_closed());
  }
  EXPECT_GT(ended, 4u);
  house.goes_on();
}

TEST(channel_local_hostile, letters_that_are_none_and_silence_keep_nobody_out) {
  House house;
  std::mt19937_64 random(8);
  std::vector<Stranger> silent;
  for (int i = 0; i < 100; ++i) {
    silent.emplace_back(house.victim.address());
    const Stranger& stranger = silent.back();
    if (!stranger.socket || i % 4 == 0) continue;
    if (i % 4 == 1) {
      const std::string bytes = pattern(1 + random() % 1000, random());
      send_descriptor(stranger.socket.get(), bytes.data(), bytes.size(), -1);
    }
    Letter letter = stranger.hello();
    letter.kind = static_cast<LetterKind>(random() % 8);
    letter.text_bytes = static_cast<uint32_t>(random());
    if (i % 4 == 2) send_letter(stranger.socket.get(), letter, -1);
    if (i % 4 == 3) send_letter(stranger.socket.get(), stranger.hello(), -1);  // without a lane
  }
  house.goes_on();
  Line another(house.honest, house.victim);
  EXPECT_TRUE(another.channel->send({"in", {}}));
  EXPECT_EQ(house.victim.accepted().size(), 2u);
}

TEST(channel_local_hostile, another_version_hears_ours_and_is_sent_away) {
  House house;
  Stranger stranger(house.victim.address());
  Letter hello = stranger.hello();
  hello.version = kSharedVersion + 1;
  ASSERT_TRUE(send_letter(stranger.socket.get(), hello, stranger.lane_fd.get()));
  const ReceivedLetter answer = stranger.next();
  ASSERT_EQ(answer.state, ReceivedLetter::letter);
  EXPECT_EQ(answer.content.kind, LetterKind::refusal);
  EXPECT_EQ(answer.content.version, kSharedVersion);
  EXPECT_EQ(answer.content.number, static_cast<uint32_t>(Refusal::version));
  house.goes_on();
}

TEST(channel_local_hostile, a_hub_of_another_version_is_a_mismatch_that_names_both) {
  Worker a(make_local, "a");
  LocalAddress at{std::string(32, 's'), std::string(32, 'k'), std::string(32, 'a')};
  at.socket.replace(0, 8, std::to_string(::getpid()).append("00000000").substr(0, 8));
  const UniqueFd listener = listen_for_descriptors_at_name(at.socket, 4);
  std::thread other([&] {
    pollfd there{listener.get(), POLLIN, 0};
    ::poll(&there, 1, 10000);
    const auto peer = accept_for_descriptors(listener.get());
    Letter letter;
    letter.version = 42;
    ASSERT_TRUE(peer && send_letter(peer->socket.get(), letter, -1));
    there.fd = peer->socket.get();
    ::poll(&there, 1, 10000);
  });
  const auto got = kind_and_text([&] {
    a.hub().open(at.text(), {"b", 7}, std::make_shared<Inbox>(), soon());
  });
  other.join();
  EXPECT_EQ(got.first, "Mismatch") << got.second;
  EXPECT_NE(got.second.find("version 42"), std::string::npos) << got.second;
  EXPECT_NE(got.second.find("version 1"), std::string::npos) << got.second;
}

}  // namespace
}  // namespace trireme::channel::local
