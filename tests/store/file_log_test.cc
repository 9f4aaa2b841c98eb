// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/file/file_log.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/support/refusals.h"
#include "trireme/base/error.h"
#include "trireme/store/file/file_seats.h"

namespace file_log_test {

using namespace trireme;
using namespace trireme::detail;
using Type = FileRecord::Type;

namespace {

using trireme::testing::has;

const FileRecord kBegin{Type::begin, "job", "token", 1, 3, 0};

FileRecord enter(uint32_t client, uint32_t rank) {
  return {Type::enter, "", "host", client, rank, 100 + client};
}
FileRecord leave(uint32_t client) { return {Type::leave, "", "", client, 0, 0}; }

std::vector<FileRecord> some_records() {
  return {kBegin,
          enter(0, 2),
          {Type::put, "key", std::string("\0\xff", 2), 0, 0, 0},
          {Type::will, "gone", "yes", 0, 0, 0},
          {Type::erase, "key", "", 0, 0, 0},
          leave(0),
          enter(1, kNoRank),
          {Type::will, "w", "", 1, 0, 0},
          {Type::lost, "", "", 1, 0, 0}};
}

FileState state_of(const std::vector<FileRecord>& records) {
  FileState out;
  for (const auto& record : records) out.apply(record);
  return out;
}

}  // namespace

TEST(store_file_log, records_read_back_and_none_of_their_beginnings_is_one) {
  for (const auto& record : some_records()) {
    auto bytes = encode(record);
    size_t taken = 0;
    EXPECT_EQ(decode_record(bytes + "more", &taken), record);
    EXPECT_EQ(taken, bytes.size());
    for (size_t n = 0; n < bytes.size(); ++n)
      EXPECT_EQ(decode_record(bytes.substr(0, n), &taken), std::nullopt);
  }
}

TEST(store_file_log, damage_is_refused_or_makes_the_record_longer_than_the_file) {
  std::mt19937_64 random(3);
  for (const auto& record : some_records()) {
    auto good = encode(record);
    for (int round = 0; round < 500; ++round) {
      auto bytes = good;
      bytes[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
      size_t taken = 0;
      try {
        EXPECT_EQ(decode_record(bytes, &taken), std::nullopt);
      } catch (const Corrupt&) {
      }
    }
  }
}

TEST(store_file_log, other_files_and_other_versions_are_told_apart) {
  EXPECT_TRUE(check_file_start(file_start(), "f"));
  EXPECT_FALSE(check_file_start(file_start().substr(0, 9), "f"));
  EXPECT_FALSE(check_file_start("", "f"));
  EXPECT_THROW(check_file_start("TRIX", "f"), Corrupt);
  auto newer = file_start();
  newer[8] = 7;
  try {
    check_file_start(newer, "the file");
    FAIL();
  } catch (const Mismatch& error) {
    EXPECT_TRUE(has(error.what(), "the file") && has(error.what(), "version 7") &&
                has(error.what(), "version 1"))
        << error.what();
  }
}

TEST(store_file_log, a_state_follows_its_records) {
  auto state = state_of(some_records());
  EXPECT_EQ(state.job_id(), "job");
  EXPECT_EQ(state.attempt(), 1u);
  EXPECT_EQ(state.world_size(), 3u);
  EXPECT_EQ(state.find("key"), std::nullopt);
  EXPECT_EQ(state.find("gone"), std::nullopt);  // it left in order
  EXPECT_EQ(state.find("w"), "");               // it did not
  EXPECT_EQ(state.clients().at(0).end, FileState::Client::End::left);
  EXPECT_EQ(state.clients().at(1).end, FileState::Client::End::lost);
}

TEST(store_file_log, records_that_make_no_sense_at_their_place_are_refused) {
  EXPECT_THROW(state_of({enter(0, 0)}), Corrupt);
  EXPECT_THROW(state_of({kBegin, kBegin}), Corrupt);
  EXPECT_THROW(state_of({{Type::begin, "job", "", 0, 0, 0}}), Corrupt);
  EXPECT_THROW(state_of({kBegin, enter(1, 0)}), Corrupt);
  EXPECT_THROW(state_of({kBegin, enter(0, 3)}), Corrupt);
  EXPECT_THROW(state_of({kBegin, leave(0)}), Corrupt);
  EXPECT_THROW(state_of({kBegin, enter(0, 0), leave(0), leave(0)}), Corrupt);
  EXPECT_THROW(state_of({kBegin, {Type::put, "", "", 0, 0, 0}}), Corrupt);
}

TEST(store_file_seats, who_may_enter) {
  // Two clients, ranks 0 and 1 of three; each is in {alive, dead, left}.
  for (int first = 0; first < 3; ++first)
    for (int second = 0; second < 3; ++second)
      for (uint32_t rank = 0; rank < 3; ++rank)
        for (int attempt = 0; attempt <= 2; ++attempt)
          for (const char* job : {"job", "other"}) {
            int now[] = {first, second};
            auto records = std::vector<FileRecord>{kBegin, enter(0, 0), enter(1, 1)};
            for (uint32_t c = 0; c < 2; ++c)
              if (now[c] == 2) records.push_back(leave(c));
            auto seat = find_seat(
                state_of(records), {job, static_cast<uint32_t>(attempt), 3, rank},
                [&](uint32_t c) { return now[c] == 0; }, "/f");
            int alive = (first == 0) + (second == 0), left = (first == 2) + (second == 2);
            bool mine = rank < 2 && now[rank] == 0;
            auto want = left == 2                   ? FileVerdict::take_over
                        : job != std::string("job") ? FileVerdict::refused
                        : attempt == 0              ? FileVerdict::refused
                        : attempt == 2 && alive     ? FileVerdict::come_again
                        : attempt == 2              ? FileVerdict::take_over
                        : left && alive             ? FileVerdict::come_again
                        : alive < 2 || mine         ? FileVerdict::refused
                                                    : FileVerdict::enter;
            EXPECT_EQ(seat.verdict, want) << first << second << rank << attempt << job;
            if (want == FileVerdict::refused) {
              EXPECT_TRUE(has(seat.why, "/f")) << seat.why;
            }
          }
}

TEST(store_file_seats, refusals_say_who_and_what_to_do) {
  auto dead = [](uint32_t) { return false; };
  auto alive = [](uint32_t) { return true; };
  auto state = state_of({kBegin, enter(0, 2)});
  auto why = find_seat(state, {"job", 1, 3, 0}, dead, "/f").why;
  EXPECT_TRUE(has(why, "rank 2 (process 100 on host)") && has(why, "Delete the file")) << why;
  why = find_seat(state, {"other", 1, 3, 0}, dead, "/f").why;
  EXPECT_TRUE(has(why, "job 'job'") && has(why, "Delete the file")) << why;
  why = find_seat(state, {"other", 1, 3, 0}, alive, "/f").why;
  EXPECT_TRUE(has(why, "in use by job 'job'") && has(why, "file of its own")) << why;
  why = find_seat(state, {"job", 1, 4, 0}, alive, "/f").why;
  EXPECT_TRUE(has(why, "world of 4") && has(why, "one of 3")) << why;
  why = find_seat(state, {"job", 1, 3, 2}, alive, "/f").why;
  EXPECT_TRUE(has(why, "taken already") && has(why, "process 100")) << why;
}

TEST(store_file_seats, a_file_without_anybody_is_left_behind) {
  auto seat = find_seat(
      state_of({kBegin}), {"job", 1, 3, 0}, [](uint32_t) { return true; }, "/f");
  EXPECT_EQ(seat.verdict, FileVerdict::refused);
  EXPECT_TRUE(has(seat.why, "Delete the file")) << seat.why;
}

}  // namespace file_log_test
