// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/offload/offload_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "tests/shard/offload_child.h"
#include "trireme/base/failpoint.h"

namespace trireme::testing::offload_file_test {
namespace {

constexpr size_t kPage = OffloadFile::kAlignment;

struct Failpoints {
  explicit Failpoints(const std::string& text) { set_failpoints(text); }
  ~Failpoints() { set_failpoints(""); }
};

std::shared_ptr<void> filled(size_t bytes, uint32_t seed) {
  auto memory = offload_memory(bytes);
  std::mt19937 random(seed);
  for (size_t i = 0; i < bytes / 4; ++i) static_cast<uint32_t*>(memory.get())[i] = random();
  return memory;
}

bool same(const std::shared_ptr<void>& a, const std::shared_ptr<void>& b, size_t bytes) {
  return std::memcmp(a.get(), b.get(), bytes) == 0;
}

/// Every way of moving bytes that there is here.
std::vector<OffloadFileOptions> ways(const std::string& folder) {
  std::vector<OffloadFileOptions> found;
  for (auto engine : {OffloadEngine::automatic, OffloadEngine::threads})
    for (bool direct : {true, false})
      for (int depth : {1, 8})
        for (size_t block : {kPage, 4 * kPage})
          found.push_back({.folder = folder,
                           .block_size = block,
                           .queue_depth = depth,
                           .engine = engine,
                           .direct = direct});
  return found;
}

TEST(shard_offload_file, what_was_written_is_read_in_every_way_with_many_requests_under_way) {
  PrivateFolder folder;
  for (const auto& options : ways(folder.path())) {
    OffloadFile file(options, 64 * kPage);
    // Regions of 1 to 9 pages, one behind the other, written three times over.
    std::map<uint64_t, std::pair<size_t, std::shared_ptr<void>>> regions;
    for (uint32_t round = 0; round < 3; ++round) {
      std::vector<OffloadFile::Request> writes;
      uint64_t at = 0;
      for (size_t pages = 1; at + pages * kPage <= 64 * kPage; pages = pages % 9 + 1) {
        auto bytes = filled(pages * kPage, round * 100 + static_cast<uint32_t>(at / kPage));
        regions[at] = {pages * kPage, bytes};
        writes.push_back(file.write(at, bytes, pages * kPage));
        at += pages * kPage;
      }
      for (auto& w : writes) w.wait();
    }
    std::vector<std::pair<OffloadFile::Request, std::shared_ptr<void>>> reads;
    for (const auto& [at, region] : regions) {
      auto into = offload_memory(region.first);
      reads.emplace_back(file.read(at, into, region.first), into);
    }
    size_t i = 0;
    for (const auto& [at, region] : regions) {
      reads[i].first.wait();
      EXPECT_TRUE(same(reads[i].second, region.second, region.first)) << at;
      EXPECT_TRUE(file.holds(at, region.second.get(), region.first));
      const auto view = file.map(at, region.first);
      EXPECT_EQ(std::memcmp(view.get(), region.second.get(), region.first), 0) << at;
      ++i;
    }
    EXPECT_GT(i, 10u);
  }
}

TEST(shard_offload_file, requests_of_the_same_bytes_go_in_order) {
  PrivateFolder folder;
  for (const auto& options : ways(folder.path())) {
    constexpr size_t kBytes = 8 * kPage;
    OffloadFile file(options, kBytes);
    std::vector<std::shared_ptr<void>> written, read;
    std::vector<OffloadFile::Request> requests;
    for (uint32_t i = 0; i < 12; ++i) {
      written.push_back(filled(kBytes, i));
      read.push_back(offload_memory(kBytes));
      requests.push_back(file.write(0, written.back(), kBytes));
      requests.push_back(file.read(0, read.back(), kBytes));
    }
    for (auto& r : requests) r.wait();
    for (size_t i = 0; i < written.size(); ++i) EXPECT_TRUE(same(written[i], read[i], kBytes)) << i;
  }
}

TEST(shard_offload_file, the_engine_can_be_asked_for_and_says_which_it_is) {
  PrivateFolder folder;
  OffloadFile threads({.folder = folder.path(), .engine = OffloadEngine::threads}, kPage);
  EXPECT_STREQ(threads.engine(), "threads");
  OffloadFile any({.folder = folder.path()}, kPage);
  if (!any.why_not_io_uring().empty()) GTEST_SKIP() << any.why_not_io_uring();
  EXPECT_STREQ(any.engine(), "io_uring");
  OffloadFile uring({.folder = folder.path(), .engine = OffloadEngine::io_uring}, kPage);
  EXPECT_STREQ(uring.engine(), "io_uring");
}

TEST(shard_offload_file, where_the_kernel_refuses_io_uring_a_thread_reads_and_writes) {
  PrivateFolder folder;
  for (int error : {EPERM, ENOSYS}) {
    EXPECT_EQ(in_child([&] {
                deny(SYS_io_uring_setup, error);
                OffloadFile file({.folder = folder.path()}, 4 * kPage);
                check<Error>(std::string(file.engine()) == "threads" &&
                                 has(file.why_not_io_uring(), "io_uring_setup: "),
                             "{} {}", file.engine(), file.why_not_io_uring());
                auto bytes = filled(4 * kPage, 1), into = offload_memory(4 * kPage);
                file.write(0, bytes, 4 * kPage).wait();
                file.read(0, into, 4 * kPage).wait();
                check<Error>(same(bytes, into, 4 * kPage), "other bytes");
              }),
              "");
    const std::string forced = in_child([&] {
      deny(SYS_io_uring_setup, error);
      OffloadFile({.folder = folder.path(), .engine = OffloadEngine::io_uring}, kPage);
    });
    EXPECT_TRUE(has(forced, "ResourceError: ") && has(forced, "choose the engine 'threads'"))
        << forced;
  }
}

TEST(shard_offload_file, the_file_has_no_name_and_its_space_is_reserved) {
  PrivateFolder folder;
  OffloadFile file({.folder = folder.path()}, 300 * kPage);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  struct stat s {};
  const UniqueFd fd = nameless_file(folder.path());
  ASSERT_EQ(::fstat(fd.get(), &s), 0);
  EXPECT_EQ(static_cast<size_t>(s.st_size), 300 * kPage);
  EXPECT_GE(static_cast<size_t>(s.st_blocks) * 512, 300 * kPage);
  EXPECT_EQ(s.st_mode & 0777, 0600u);
}

TEST(shard_offload_file, a_flipped_bit_is_named_with_its_bytes_and_other_regions_are_fine) {
  PrivateFolder folder;
  for (const auto& options : ways(folder.path())) {
    OffloadFile file(options, 32 * kPage);
    auto bytes = filled(16 * kPage, 7), into = offload_memory(16 * kPage);
    file.write(0, bytes, 16 * kPage).wait();
    file.write(16 * kPage, bytes, 16 * kPage).wait();
    flip_byte(folder.path(), 16 * kPage + 9 * kPage + 5);
    file.read(0, into, 16 * kPage).wait();
    const std::string o = outcome_of([&] { file.read(16 * kPage, into, 16 * kPage).wait(); });
    const size_t begin = (16 + 9 / (options.block_size / kPage) * (options.block_size / kPage));
    EXPECT_TRUE(has(o, "Corrupt: the offload file in " + folder.path() + ": bytes " +
                           std::to_string(begin * kPage) + " to ") &&
                has(o, fmt::format("(of the region {} to {})", 16 * kPage, 32 * kPage)) &&
                has(o, "Continue from the last checkpoint"))
        << o;
    // Written again, it is whole again.
    file.write(16 * kPage, bytes, 16 * kPage).wait();
    file.read(16 * kPage, into, 16 * kPage).wait();
    EXPECT_TRUE(same(bytes, into, 16 * kPage));
  }
}

TEST(shard_offload_file, blocks_that_changed_places_and_a_lost_write_are_found) {
  PrivateFolder folder;
  OffloadFile file({.folder = folder.path(), .block_size = kPage}, 4 * kPage);
  auto zeros = offload_memory(2 * kPage), into = offload_memory(2 * kPage);
  file.write(0, zeros, 2 * kPage).wait();
  EXPECT_TRUE(file.holds(0, zeros.get(), 2 * kPage));
  auto first = filled(kPage, 1), second = filled(kPage, 2);
  file.write(2 * kPage, first, kPage).wait();
  file.write(3 * kPage, second, kPage).wait();
  const UniqueFd fd = nameless_file(folder.path());
  ASSERT_EQ(::pwrite(fd.get(), second.get(), kPage, 2 * kPage), static_cast<ssize_t>(kPage));
  ASSERT_EQ(::pwrite(fd.get(), first.get(), kPage, 3 * kPage), static_cast<ssize_t>(kPage));
  ASSERT_EQ(::fsync(fd.get()), 0);
  EXPECT_THROW(file.read(2 * kPage, into, kPage).wait(), Corrupt);
  EXPECT_THROW(file.read(3 * kPage, into, kPage).wait(), Corrupt);
}

TEST(shard_offload_file, a_failing_disk_is_thrown_at_wait_and_the_half_written_region_is_not_read) {
  PrivateFolder folder;
  for (const auto& options : ways(folder.path())) {
    OffloadFile file(options, 32 * kPage);
    auto bytes = filled(16 * kPage, 3), into = offload_memory(16 * kPage);
    file.write(0, bytes, 16 * kPage).wait();
    file.write(16 * kPage, bytes, 16 * kPage).wait();
    {
      Failpoints full("offload.write@2=error(28)");
      auto request = file.write(0, bytes, 16 * kPage);
      for (int again = 0; again < 2; ++again) {
        const std::string o = outcome_of([&] { request.wait(); });
        EXPECT_TRUE(has(o, "ResourceError: the offload file in " + folder.path()) &&
                    has(o, "No space left on device") && has(o, "choose another folder"))
            << o;
      }
    }
    EXPECT_TRUE(has(outcome_of([&] { file.read(0, into, 16 * kPage).wait(); }),
                    "ResourceError: the offload file in "));
    {
      Failpoints bad("offload.read@1=error(5)");
      const std::string o = outcome_of([&] { file.read(16 * kPage, into, 16 * kPage).wait(); });
      EXPECT_TRUE(has(o, "cannot read ") && has(o, "Input/output error")) << o;
    }
    file.read(16 * kPage, into, 16 * kPage).wait();  // reading hurts nothing
    file.write(0, bytes, 16 * kPage).wait();
    file.read(0, into, 16 * kPage).wait();
    EXPECT_TRUE(same(bytes, into, 16 * kPage));
  }
}

TEST(shard_offload_file, a_disk_that_does_not_answer_is_a_timeout_and_memory_stays_until_it_does) {
  PrivateFolder folder;
  Failpoints slow("offload.write@1=sleep(150)");
  std::weak_ptr<void> watched;
  {
    OffloadFile file({.folder = folder.path(), .timeout = std::chrono::milliseconds(20)}, kPage);
    OffloadFile::Request request;
    {
      auto bytes = filled(kPage, 1);
      watched = bytes;
      request = file.write(0, bytes, kPage);
    }
    const std::string o = outcome_of([&] { request.wait(); });
    EXPECT_TRUE(has(o, "Timeout: the offload file in ") && has(o, "the disk does not answer")) << o;
    EXPECT_FALSE(watched.expired());
    while (!watched.expired()) std::this_thread::yield();
    request.wait();
  }
}

TEST(shard_offload_file, a_disk_that_is_too_small_is_refused_with_the_bytes_needed_and_free) {
  PrivateFolder folder;
  const std::string disk = folder / "disk";
  const std::string o = in_child([&] {
    if (auto why = mount_small_disk(disk, "size=1m"); !why.empty()) fail<Error>("skip: {}", why);
    {
      OffloadFile fits({.folder = disk}, 200 * kPage);
      auto bytes = filled(200 * kPage, 1), into = offload_memory(200 * kPage);
      fits.write(0, bytes, 200 * kPage).wait();
      fits.read(0, into, 200 * kPage).wait();
      check<Error>(same(bytes, into, 200 * kPage), "other bytes");
    }
    OffloadFile file({.folder = disk}, 300 * kPage);
  });
  if (has(o, "skip: ")) GTEST_SKIP() << o;
  EXPECT_EQ(o, "ResourceError: offload needs 1228800 bytes in " + disk +
                   ", the disk has 1048576 free (No space left on device): free some space or name "
                   "another folder");
}

TEST(shard_offload_file, a_quota_met_while_reserving_and_a_limit_on_file_sizes_are_named) {
  PrivateFolder folder;
  {
    Failpoints quota("offload.reserve=error(122)");
    const std::string o = outcome_of([&] { OffloadFile({.folder = folder.path()}, kPage); });
    EXPECT_TRUE(has(o, "ResourceError: offload needs 4096 bytes in ") && has(o, "quota")) << o;
  }
  const std::string o = in_child([&] {
    rlimit limit{8 * kPage, 8 * kPage};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    OffloadFile({.folder = folder.path()}, 9 * kPage);
  });
  EXPECT_TRUE(has(o, "ResourceError: offload needs a file of 36864 bytes") && has(o, "ulimit -f"))
      << o;
}

TEST(shard_offload_file, folders_that_are_missing_or_not_writable_are_one_clear_sentence) {
  PrivateFolder folder;
  auto refusal = [](const std::string& path) {
    return outcome_of([&] { OffloadFile({.folder = path}, kPage); });
  };
  EXPECT_EQ(refusal(folder / "none"),
            "ResourceError: offload folder " + (folder / "none") + ": No such file or directory");
  write_file_atomic(folder / "file", "x");
  EXPECT_EQ(refusal(folder / "file"),
            "ResourceError: offload folder " + (folder / "file") + " is not a folder");
  EXPECT_TRUE(has(refusal("/proc"), "ResourceError: cannot make an offload file in /proc: "))
      << refusal("/proc");
  EXPECT_TRUE(has(refusal(""), "UsageError: ")) << refusal("");
}

TEST(shard_offload_file, requests_and_options_out_of_bounds_are_refused_by_name) {
  PrivateFolder folder;
  OffloadFile file({.folder = folder.path()}, 8 * kPage);
  auto memory = offload_memory(8 * kPage);
  const std::shared_ptr<void> odd(memory, static_cast<char*>(memory.get()) + 512);
  file.write(2 * kPage, memory, 4 * kPage).wait();
  auto refused = [](const std::function<void()>& call, const std::string& part) {
    const std::string o = outcome_of(call);
    EXPECT_TRUE(has(o, "UsageError: offload: ") && has(o, part)) << o;
  };
  refused([&] { file.write(0, odd, kPage); }, "not aligned");
  refused([&] { file.write(0, nullptr, kPage); }, "not aligned");
  refused([&] { file.write(8 * kPage, memory, kPage); }, "inside the file's 32768 bytes");
  refused([&] { file.write(1, memory, kPage); }, "multiples of 4096");
  refused([&] { file.write(0, memory, 0); }, "multiples of 4096");
  refused([&] { file.write(0, memory, SIZE_MAX - kPage + 1); }, "inside the file's");
  refused([&] { file.write(0, memory, 3 * kPage); }, "other bounds");
  refused([&] { file.write(5 * kPage, memory, 2 * kPage); }, "other bounds");
  refused([&] { file.write(2 * kPage, memory, 2 * kPage); }, "other bounds");
  refused([&] { file.read(2 * kPage, memory, 2 * kPage); }, "never written as such");
  refused([&] { file.map(0, kPage); }, "never written as such");
  auto options = [](const OffloadFileOptions& o) { OffloadFile(o, kPage); };
  const std::string& path = folder.path();
  refused([&] { options({.folder = path, .block_size = 1000}); }, "block_size is 1000");
  refused([&] { options({.folder = path, .queue_depth = 0}); }, "queue_depth is 0");
  refused([&] { options({.folder = path, .timeout = Duration::zero()}); }, "timeout");
}

}  // namespace
}  // namespace trireme::testing::offload_file_test
