// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/prepared/prepared_part.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "tests/data/text/errors.h"
#include "trireme/base/file.h"
#include "trireme/data/text/prepared/part_plan.h"

namespace trireme::prepared_part_test {
namespace {

constexpr PartOrigin kOrigin{{1000, 77, 0xABCD}, 42, 100, 900};

std::vector<QuestionPieces> some_questions() {
  return {{"a", {5, 6}, {1, 2, 3, 4, 5, 6, 7}, AnswerClass::short_answer, 2, 4, {0, 3}},
          {"", {7}, {9}, AnswerClass::unknown, 0, 0, {}},
          {"42", {999}, {8, 8, 8}, AnswerClass::yes, 0, 3, {0, 1, 2}}};
}

std::string part_of(const std::vector<QuestionPieces>& questions, int64_t vocabulary,
                    bool of_lines = true) {
  PartWriter writer(kOrigin, vocabulary, of_lines);
  uint64_t line = 0;
  for (const QuestionPieces& q : questions) {
    ++line;
    writer.add(q, 100 * line, 10 + line, static_cast<int64_t>(2 * line));
  }
  return writer.finish(of_lines ? 9 : 0, 1, {{3, "the line ends within its JSON"}});
}

bool same(const QuestionPieces& a, const QuestionPieces& b) {
  return a.id == b.id && a.question == b.question && a.document == b.document &&
         a.answer_class == b.answer_class && a.answer_begin == b.answer_begin &&
         a.answer_end == b.answer_end && a.sentences == b.sentences;
}

TEST(data_text_prepared_part, gives_back_what_was_put_in_with_pieces_of_two_bytes_and_of_four) {
  for (const int64_t vocabulary : {1000, 65536, 65537, 1'000'000}) {
    auto questions = some_questions();
    questions[2].document.back() = static_cast<int32_t>(vocabulary) - 1;
    const std::string bytes = part_of(questions, vocabulary);
    const PreparedPart part(bytes, "part");
    EXPECT_EQ(part.origin(), kOrigin);
    ASSERT_EQ(part.size(), 3);
    for (size_t i : {2u, 0u, 1u, 0u}) {
      QuestionPieces q;
      part.read(static_cast<int64_t>(i), vocabulary, &q);
      EXPECT_TRUE(same(q, questions[i])) << i;
    }
    EXPECT_EQ(part.index().begins, (std::vector<uint64_t>{100, 200, 300}));
    EXPECT_EQ(part.index().lengths, (std::vector<uint64_t>{11, 12, 13}));
    EXPECT_EQ(part.index().numbers, (std::vector<int64_t>{2, 4, 6}));
    EXPECT_EQ(part.index().left_out, 1);
    EXPECT_EQ(part.index().first_left_out[0].line, 3);
    QuestionPieces q;
    EXPECT_ERROR(part.read(3, vocabulary, &q), UsageError, "there is no question 3: there are 3");
    EXPECT_ERROR(part.read(-1, vocabulary, &q), UsageError, "there is no question -1");
  }
  const std::string none = part_of({}, 10, false);
  EXPECT_EQ(PreparedPart(none, "part").size(), 0);
}

TEST(data_text_prepared_part, damage_to_any_byte_is_found_before_a_piece_is_believed) {
  const auto questions = some_questions();
  const std::string good = part_of(questions, 1000);
  const auto refused = [&](const std::string& bytes) {
    try {
      const PreparedPart part(bytes, "part");
      for (int64_t i = 0; i < part.size(); ++i) {
        QuestionPieces q;
        part.read(i, 1000, &q);
      }
    } catch (const Corrupt& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("part: ")) << error.what();
      return true;
    } catch (const Mismatch&) {
      return true;
    }
    return false;
  };
  ASSERT_FALSE(refused(good));
  for (size_t i = 0; i < good.size(); ++i)
    for (const int bit : {0, 7}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      EXPECT_TRUE(refused(bad)) << "byte " << i;
    }
  for (size_t i = 0; i < good.size(); ++i) EXPECT_TRUE(refused(good.substr(0, i))) << i;
  EXPECT_TRUE(refused(good + '\0'));
}

TEST(data_text_prepared_part, another_version_is_named_and_not_read) {
  std::string bytes = part_of(some_questions(), 1000);
  bytes[8] = 2;
  EXPECT_ERROR(PreparedPart(bytes, "part"), Mismatch,
               "part: prepared questions of version 2, and this program has version 1");
  bytes[0] = 'X';
  EXPECT_ERROR(PreparedPart(bytes, "part"), Corrupt, "part: no part of prepared questions");
}

// Sums that are right say nothing of who computed them.
TEST(data_text_prepared_part, a_question_that_cannot_be_is_refused_though_its_sum_is_right) {
  const auto says = [](const std::function<void(QuestionPieces&)>& change, const char* why) {
    auto questions = some_questions();
    change(questions[0]);
    const std::string bytes = part_of(questions, 1000);
    const PreparedPart part(bytes, "part");
    QuestionPieces q;
    EXPECT_ERROR(part.read(0, 1000, &q), Corrupt, why);
    part.read(1, 1000, &q);
    EXPECT_TRUE(same(q, questions[1]));
  };
  says([](auto& q) { q.document[3] = 1000; }, "a piece is none of the vocabulary's 1000");
  says([](auto& q) { q.question[0] = 60'000; }, "a piece is none of the vocabulary's 1000");
  says([](auto& q) { q.document.clear(); }, "or there is no piece");
  says([](auto& q) { q.question.clear(); }, "or there is no piece");
  says([](auto& q) { q.answer_end = 8; }, "an answer is not in its document");
  says([](auto& q) { q.answer_end = q.answer_begin; }, "an answer is not in its document");
  says([](auto& q) { q.sentences = {0, 7}; }, "sentences are not in order");
  says([](auto& q) { q.sentences = {3, 3}; }, "sentences are not in order");
}

TEST(data_text_prepared_part, an_index_that_cannot_be_is_refused) {
  PartIndex good;
  good.of_lines = true;
  good.begins = {0, 50};
  good.lengths = {40, 30};
  good.numbers = {1, 3};
  good.classes = {AnswerClass::yes, AnswerClass::unknown};
  good.ends = {120, 200};
  good.sums = {1, 2};
  good.lines = 3;
  good.left_out = 1;
  good.first_left_out = {{2, "why"}};
  detail::check_index(good, 96, 200);
  const auto says = [&](const std::function<void(PartIndex&)>& change, const char* why) {
    PartIndex bad = good;
    change(bad);
    EXPECT_ERROR(detail::check_index(bad, 96, 200), Corrupt, why);
  };
  says([](auto& i) { i.sums.pop_back(); }, "its lists are not equally long");
  says([](auto& i) { i.begins.push_back(7); }, "its lists are not equally long");
  says([](auto& i) { i.of_lines = false; }, "its lists are not equally long");
  says([](auto& i) { i.ends[0] = 96; }, "a record is not where it could be");
  says([](auto& i) { i.ends[1] = 201; }, "a record is not where it could be");
  says([](auto& i) { i.ends[1] = 199; }, "there are bytes that are no record");
  says([](auto& i) { i.classes[1] = AnswerClass(5); }, "there is no such class");
  says([](auto& i) { i.classes[1] = AnswerClass(-1); }, "there is no such class");
  says([](auto& i) { i.numbers[1] = 1; }, "lines are not in order");
  says([](auto& i) { i.numbers[1] = 4; }, "lines are not in order");
  says([](auto& i) { i.left_out = 0; }, "its counts cannot be");
  says([](auto& i) { i.left_out = -1; }, "its counts cannot be");
}

TEST(data_text_prepared_part, parts_of_a_file_follow_each_other_and_leave_out_no_byte) {
  const auto follows = [](const PartPlan& plan) {
    uint64_t at = 0;
    for (uint64_t part = 0; part < plan.parts(); ++part) {
      if (plan.begin(part) != at || plan.end(part) < at) return false;
      if (plan.end(part) - at > plan.part_bytes) return false;
      at = plan.end(part);
    }
    return at == plan.bytes;
  };
  for (uint64_t bytes = 0; bytes < 70; ++bytes)
    for (uint64_t size = 1; size < 80; ++size)
      ASSERT_TRUE(follows(PartPlan::of(bytes, true, size))) << bytes << " in " << size;
  constexpr uint64_t kMega = uint64_t{1} << 20;
  for (const uint64_t bytes : {uint64_t{1}, kMega, 4 * kMega, 100 * kMega, 17'000 * kMega}) {
    EXPECT_TRUE(follows(PartPlan::of(bytes, true))) << bytes;
    EXPECT_EQ(PartPlan::of(bytes, false).parts(), 1u);
  }
  EXPECT_EQ(PartPlan::of(3 * kMega, true).parts(), 1u);
  EXPECT_EQ(PartPlan::of(160 * kMega, true).parts(), 16u);
  EXPECT_EQ(PartPlan::of(17'000 * kMega, true).part_bytes, 64 * kMega);
}

TEST(data_text_prepared_part, a_stamp_tells_files_apart_by_size_time_and_samples) {
  const PrivateFolder folder;
  const std::string path = folder / "questions";
  const auto set_time = [&](time_t seconds) {
    const timespec times[2] = {{seconds, 5}, {seconds, 5}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  };
  std::string text(1'000'000, 'a');
  write_file_atomic(path, text);
  set_time(1000);
  const SourceStamp first = stamp_of(path);
  EXPECT_EQ(first.bytes, 1'000'000u);
  EXPECT_EQ(first.changed_ns, 1'000'000'000'005);
  EXPECT_EQ(stamp_of(path), first);
  set_time(1001);
  EXPECT_NE(stamp_of(path), first);
  for (const size_t at : {size_t{0}, text.size() / 63 + 100, text.size() - 1}) {
    std::string other = text;
    other[at] = 'b';
    write_file_atomic(path, other);
    set_time(1000);
    EXPECT_NE(stamp_of(path), first) << at;
    EXPECT_EQ(stamp_of(path).changed_ns, first.changed_ns);
  }
  write_file_atomic(path, "");
  EXPECT_EQ(stamp_of(path).bytes, 0u);
  EXPECT_ERROR(stamp_of("/nowhere"), UsageError, "does not exist");
  PartOrigin wanted = kOrigin;
  EXPECT_EQ(other_origin(kOrigin, wanted), "");
  wanted.end = 901;
  EXPECT_NE(other_origin(kOrigin, wanted).find("another part"), std::string::npos);
  wanted.rules = 43;
  EXPECT_NE(other_origin(kOrigin, wanted).find("another vocabulary"), std::string::npos);
  wanted.source.changed_ns = 78;
  EXPECT_NE(other_origin(kOrigin, wanted).find("has changed"), std::string::npos);
}

}  // namespace
}  // namespace trireme::prepared_part_test
