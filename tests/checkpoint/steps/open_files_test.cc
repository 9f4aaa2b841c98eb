// SPDX-License-Identifier: Apache-2.0
// Steps of more files than a process may open, and files that go while a step is read.
#include "trireme/checkpoint/steps/open_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <thread>

#include "tests/checkpoint/steps/written_step.h"
#include "tests/support/forked.h"
#include "tests/support/ranks.h"
#include "trireme/base/error.h"
#include "trireme/base/file/folder.h"
#include "trireme/checkpoint/steps/step_reader.h"
#include "trireme/checkpoint/steps/verify_step.h"

namespace trireme::test::open_files_test {
namespace {

using trireme::testing::ChildEnd;
using trireme::testing::ForkedChild;
using trireme::testing::outcome_of;

constexpr int64_t kEach = 16;  // elements of a rank

/// A step of so many ranks, each of which has a file.
std::string write_ranks(const std::string& run, int64_t ranks) {
  WrittenTensor w{"model.w", "F32", {ranks * kEach}, counted(ranks * kEach)};
  for (int64_t r = 0; r < ranks; ++r) w.boxes.push_back({{r * kEach}, {kEach}});
  return write_test_step(run, 1, {w}, {}, ranks);
}

std::string file_of(const std::string& folder, int64_t rank) {
  return folder + "/" + place_of("model.w", rank).file;
}

bool is_counted(std::span<const uint8_t> bytes, int64_t from) {
  const std::string expected = counted(from + static_cast<int64_t>(bytes.size() / sizeof(float)));
  return std::memcmp(bytes.data(), expected.data() + static_cast<size_t>(from) * sizeof(float),
                     bytes.size()) == 0;
}

void read_all(StepReader& step) {
  const int64_t count = step.index().tensors.at("model.w").shape()[0];
  check<Error>(is_counted(step.read("model.w", 0, count), 0), "other values were read");
}

void read_rank(StepReader& step, int64_t rank) {
  check<Error>(is_counted(step.read("model.w", rank * kEach, kEach), rank * kEach),
               "rank {} has other values", rank);
}

size_t open_now() { return list_folder("/proc/self/fd").size(); }

/// What `body` throws in a child that may open 64 files; "" if it does not.
std::string with_64_files(const std::function<void()>& body) {
  PrivateFolder said;
  ForkedChild child(ChildEnd::exit_at_once, [&] {
    const rlimit limit{64, 64};
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return "setrlimit: " + errno_text();
    write_text(said / "said", outcome_of(body));
    return std::string();
  });
  const std::string end = child.ended(std::chrono::seconds(60));
  return end.empty() ? read_file(said / "said") : end;
}

TEST(checkpoint_steps_open_files, a_step_of_200_ranks_is_read_and_verified_with_64_files) {
  PrivateFolder run;
  const std::string folder = write_ranks(run.path(), 200);
  EXPECT_EQ(with_64_files([&] {
              const size_t before = open_now();
              StepReader step(folder), other(folder);  // as one compares two steps
              for (int again = 0; again < 2; ++again) {
                read_all(step);
                read_all(other);
                for (int64_t rank = 199; rank >= 0; --rank) read_rank(step, rank);
              }
              check<Error>(open_now() <= before + 16, "{} files are open", open_now() - before);
              check<Error>(verify_step(folder).good(), "verify_step finds faults");
            }),
            "");
}

TEST(checkpoint_steps_open_files, where_hardly_a_descriptor_is_left_ours_are_closed_for_the_next) {
  PrivateFolder run;
  const std::string folder = write_ranks(run.path(), 6);
  EXPECT_EQ(with_64_files([&] {
              StepReader step(folder);
              read_rank(step, 0);
              read_rank(step, 1);
              while (::open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) {
              }
              read_all(step);
              read_all(step);
            }),
            "");
}

TEST(checkpoint_steps_open_files, a_file_that_goes_while_it_is_closed_is_named) {
  PrivateFolder run;
  const std::string folder = write_ranks(run.path(), 20);
  const std::string first = file_of(folder, 0), bytes = read_file(first);
  const auto changed = [&](const std::function<void()>& change) {
    return with_64_files([&] {
      StepReader step(folder);
      read_all(step);
      change();
      read_rank(step, 19);  // which is open
      read_rank(step, 0);
    });
  };
  EXPECT_EQ(changed([] {}), "");
  EXPECT_EQ(changed([&] { std::filesystem::remove(first); }),
            "Corrupt: " + first + " was deleted while it was read");
  write_text(first, bytes);
  EXPECT_EQ(changed([&] {
              write_text(first + ".new", bytes);
              std::filesystem::rename(first + ".new", first);
            }),
            "Corrupt: " + first + " was replaced while it was read");
  EXPECT_EQ(changed([&] { std::filesystem::resize_file(first, bytes.size() - 1); }),
            "Corrupt: " + first + " was replaced while it was read");
  write_text(first, bytes);
  EXPECT_EQ(changed([] {}), "");
}

TEST(checkpoint_steps_open_files, a_step_that_goes_before_its_files_are_opened_is_not_incomplete) {
  PrivateFolder run;
  const std::string folder = write_ranks(run.path(), 2);
  StepReader step(folder), same(folder);
  read_rank(same, 0);
  std::filesystem::rename(folder, run / "gone");
  EXPECT_EQ(outcome_of([&] { read_rank(step, 0); }),
            "Corrupt: " + file_of(folder, 0) + " was deleted while it was read");
  read_rank(same, 0);  // which is open
  std::filesystem::rename(run / "gone", folder);
  const std::string size = std::to_string(std::filesystem::file_size(file_of(folder, 1)));
  std::filesystem::remove(file_of(folder, 1));
  EXPECT_EQ(
      outcome_of([&] { read_rank(step, 1); }),
      "Corrupt: " + file_of(folder, 1) + " is missing; the index says it has " + size + " bytes");
}

TEST(checkpoint_steps_open_files, threads_that_read_together_get_the_files_they_ask_for) {
  constexpr int64_t kRanks = 40;
  PrivateFolder run;
  const std::string folder = write_ranks(run.path(), kRanks);
  EXPECT_EQ(with_64_files([&] {
              const CheckpointIndex index = read_step_index(folder);
              const auto open = std::make_shared<OpenFiles>();
              std::vector<std::unique_ptr<StepFile>> files;
              const IndexTensor& w = index.tensors.at("model.w");
              for (const IndexPart& part : w.parts)
                files.push_back(
                    std::make_unique<StepFile>(folder, part.file, index.files.at(part.file), open));
              std::vector<std::string> outcomes(8);
              std::vector<std::thread> threads;
              for (size_t t = 0; t < outcomes.size(); ++t)
                threads.emplace_back([&, t] {
                  outcomes[t] = outcome_of([&] {
                    std::vector<uint8_t> bytes(kEach * sizeof(float));
                    for (size_t i = 0; i < 2000; ++i) {
                      const size_t rank = (i * (2 * t + 1) + t) % kRanks;
                      const uint64_t at = files[rank]->find(w.parts[rank], "F32").begin;
                      files[rank]->will_read(at, bytes.size());
                      if (i % 2)
                        files[rank]->read(at, bytes);
                      else
                        files[rank]->read_again(at, bytes);
                      check<Error>(is_counted(bytes, static_cast<int64_t>(rank) * kEach),
                                   "rank {} has other values", rank);
                    }
                  });
                });
              for (std::thread& thread : threads) thread.join();
              for (const std::string& outcome : outcomes)
                check<Error>(outcome.empty(), "{}", outcome);
            }),
            "");
}

}  // namespace
}  // namespace trireme::test::open_files_test
