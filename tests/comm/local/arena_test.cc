// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/arena.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <filesystem>

#include "tests/support/file_log.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/ranks.h"

namespace arena_test {

using namespace trireme;
using namespace trireme::local;
using namespace trireme::testing;

namespace {

size_t open_fds() {
  size_t n = 0;
  for ([[maybe_unused]] auto& e : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
  return n;
}

struct Counted {
  std::vector<std::pair<uint32_t, size_t>> announced;
  Arena arena{[this](uint32_t window, const UniqueFd&, size_t bytes) {
    announced.emplace_back(window, bytes);
  }};
};

}  // namespace

TEST(comm_local_arena, memory_beyond_the_limit_on_file_sizes_is_refused_and_no_signal) {
  EXPECT_EQ(end_of_child("",
                         [] {
                           const FileSizeLimit limit(8192);
                           UniqueFd fd;
                           Window::create(8192, fd);
                           Window::create(8193, fd);
                         }),
            "ResourceError: cannot write shared memory of ranks: it would have 12288 bytes, and "
            "the limit on file sizes is 8192 (ulimit -f)");
}

TEST(comm_local_arena, a_freed_block_serves_the_next_of_its_size) {
  Counted c;
  void* a = c.arena.allocate(3 << 20);
  c.arena.deallocate(a);
  for (int i = 0; i < 100; ++i) {
    void* b = c.arena.allocate(3 << 20);
    EXPECT_EQ(a, b);
    c.arena.deallocate(b);
  }
  EXPECT_EQ(c.announced.size(), 1u);
  EXPECT_EQ(c.arena.window_bytes(), size_t{3} << 20);
}

TEST(comm_local_arena, growth_adds_windows_and_moves_nothing) {
  Counted c;
  std::vector<std::pair<unsigned char*, size_t>> blocks;
  for (size_t bytes : {size_t{1}, size_t{100}, size_t{70000}, size_t{2} << 20, size_t{5} << 20}) {
    auto* p = static_cast<unsigned char*>(c.arena.allocate(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % (bytes >= (64 << 10) ? 4096 : 64), 0u);
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(p[i], 0);
    std::memset(p, static_cast<int>(blocks.size() + 1), bytes);
    blocks.emplace_back(p, bytes);
  }
  ASSERT_EQ(c.announced.size(), 3u);  // the small ones share one
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(c.announced[i].first, i);
  for (size_t b = 0; b < blocks.size(); ++b)
    for (size_t i = 0; i < blocks[b].second; ++i) ASSERT_EQ(blocks[b].first[i], b + 1);
}

TEST(comm_local_arena, finds_what_lies_in_one_window_and_nothing_else) {
  Counted c;
  auto* p = static_cast<unsigned char*>(c.arena.allocate(2 << 20));
  Place place{};
  ASSERT_TRUE(c.arena.find(p + 64, 1000, place));
  EXPECT_EQ(place.window, 0u);
  EXPECT_EQ(place.offset, 64u);
  EXPECT_TRUE(c.arena.find(p, 2 << 20, place));
  EXPECT_FALSE(c.arena.find(p, (2 << 20) + 1, place));
  int here = 0;
  EXPECT_FALSE(c.arena.find(&here, sizeof here, place));
}

TEST(comm_local_arena, a_window_can_be_neither_shrunk_nor_grown) {
  UniqueFd fd;
  Window w = Window::create(10000, fd);
  EXPECT_EQ(w.bytes(), 12288u);
  EXPECT_NE(::ftruncate(fd.get(), 4096), 0);
  EXPECT_NE(::ftruncate(fd.get(), 1 << 20), 0);
  EXPECT_NE(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  EXPECT_NE(::fcntl(fd.get(), F_GET_SEALS) & F_SEAL_SEAL, 0);
}

TEST(comm_local_arena, an_impossible_size_is_a_resource_error_and_the_arena_lives) {
  Counted c;
  EXPECT_THROW(c.arena.allocate(size_t{1} << 46), ResourceError);
  EXPECT_THROW(c.arena.allocate(~size_t{0}), ResourceError);
  EXPECT_NE(c.arena.allocate(100), nullptr);
  EXPECT_EQ(c.announced.back().first, 0u);  // no number was lost
}

TEST(comm_local_arena, only_a_socket_and_a_pidfd_a_peer_stay_open) {
  for (auto& o : as_processes(3, [](Engine& e) {
         const size_t before = open_fds();
         std::vector<void*> blocks;
         for (int i = 0; i < 5; ++i) {
           auto* p = static_cast<float*>(e.host().allocate(1 << 20));
           std::fill(p, p + 1000, 1.0f);
           e.run({.op = Collective::all_reduce,
                  .dtype = DType::f32,
                  .in = p,
                  .out = p,
                  .count = 10000,
                  .site = CallSite::here()});
           check<Error>(p[0] == 3.0f, "{}", p[0]);
           blocks.push_back(p);
         }
         for (void* p : blocks) e.host().deallocate(p);
         const size_t after = open_fds();
         check<Error>(before == after, "{} descriptors, then {}", before, after);
         size_t sockets = 0, memory = 0;
         for (auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
           std::error_code gone;
           const auto target = std::filesystem::read_symlink(entry, gone).string();
           sockets += target.rfind("socket:", 0) == 0;
           memory += target.find("memfd:") != std::string::npos;
         }
         check<Error>(memory == 0 && sockets >= 2, "{} memfds, {} sockets", memory, sockets);
       }))
    EXPECT_EQ(o, "");
}

TEST(comm_local_arena, more_windows_than_a_socket_holds_hold_nobody_up) {
  const auto begin = Clock::now();
  for (auto& o : as_processes(2, [](Engine& e) {
         // One rank allocates while the other is busy elsewhere; descriptors fill the socket.
         std::vector<float*> blocks;
         if (e.rank() == 0)
           for (int i = 0; i < 400; ++i)
             blocks.push_back(static_cast<float*>(e.host().allocate((1 << 20) + 4096)));
         e.run({.op = Collective::barrier, .site = CallSite::here()});
         std::vector<float> plain(20000, 1.0f);
         for (size_t i : {size_t{399}, size_t{0}, size_t{399}}) {
           float* p = e.rank() == 0 ? blocks[i] : plain.data();
           std::fill(p, p + 20000, 1.0f);
           e.run({.op = Collective::broadcast,
                  .dtype = DType::f32,
                  .in = p,
                  .out = p,
                  .count = 20000,
                  .site = CallSite::here()});
           e.run({.op = Collective::all_reduce,
                  .dtype = DType::f32,
                  .in = p,
                  .out = p,
                  .count = 20000,
                  .site = CallSite::here()});
           check<Error>(p[19999] == 2.0f, "{}", p[19999]);
         }
       }))
    EXPECT_EQ(o, "");
  EXPECT_LT(seconds_since(begin), 9.0);  // nobody waited for a full socket
}

}  // namespace arena_test
