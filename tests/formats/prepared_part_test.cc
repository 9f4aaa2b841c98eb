// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/prepared/prepared_part.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "trireme/base/file.h"

// prepared-v1-narrow.bin and prepared-v1-wide.bin: parts of prepared questions as they were when
// the format landed, with pieces of two bytes and of four.
namespace trireme::prepared_part_format_test {
namespace {

constexpr PartOrigin kOrigin{{123'456, 1'700'000'000'000'000'001, 0xFEEDu}, 0xBEEF, 1000, 2000};

const std::vector<QuestionPieces>& questions() {
  static const std::vector<QuestionPieces> all = {
      {"first", {5, 6}, {1, 2, 3, 4, 5, 6, 7}, AnswerClass::short_answer, 2, 4, {0, 3}},
      {"-42", {7}, {9}, AnswerClass::unknown, 0, 0, {0}},
      {"third", {999}, {8, 8, 8}, AnswerClass::no, 0, 3, {0, 1, 2}}};
  return all;
}

std::string fixture(const std::string& name) {
  return read_file(trireme::testing::source_path("/tests/formats/") + name + ".bin");
}

std::string written(int64_t vocabulary) {
  PartWriter writer(kOrigin, vocabulary, true);
  int64_t line = 1;
  for (const QuestionPieces& q : questions()) {
    writer.add(q, 1000 + 100 * static_cast<uint64_t>(line), 90, line);
    line += 2;
  }
  return writer.finish(6, 2, {{2, "the document is empty"}, {4, "no 'example_id'"}});
}

void is_read_and_written(const std::string& name, int64_t vocabulary) {
  const std::string bytes = fixture(name);
  EXPECT_TRUE(written(vocabulary) == bytes) << name;
  const PreparedPart part(bytes, name);
  EXPECT_EQ(part.origin(), kOrigin);
  ASSERT_EQ(part.size(), 3);
  EXPECT_EQ(part.index().left_out, 2);
  EXPECT_EQ(part.index().lines, 6);
  for (int64_t i = 0; i < 3; ++i) {
    const QuestionPieces& want = questions()[static_cast<size_t>(i)];
    QuestionPieces got;
    part.read(i, vocabulary, &got);
    EXPECT_EQ(got.id, want.id);
    EXPECT_EQ(got.question, want.question);
    EXPECT_EQ(got.document, want.document);
    EXPECT_EQ(got.answer_class, want.answer_class);
    EXPECT_EQ(got.answer_begin, want.answer_begin);
    EXPECT_EQ(got.answer_end, want.answer_end);
    EXPECT_EQ(got.sentences, want.sentences);
  }
}

}  // namespace

TEST(formats_prepared_part, parts_of_version_1_are_read_and_written) {
  is_read_and_written("prepared-v1-narrow", 30'522);
  is_read_and_written("prepared-v1-wide", 250'000);
}

}  // namespace trireme::prepared_part_format_test
