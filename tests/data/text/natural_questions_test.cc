// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/natural_questions.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/data/text/errors.h"
#include "trireme/base/file.h"

namespace trireme::natural_questions_test {
namespace {

constexpr const char* kDocument = "<P> The Titanic sank in 1912 . </P> It was new .";

struct Annotation {
  std::string yes_no = "NONE";
  int begin = -1, end = -1, candidate = -1;
  std::string shorts;
};

std::string line_of(const Annotation& a, const std::string& document = kDocument) {
  return R"({"document_text":")" + document +
         R"(","long_answer_candidates":[{"start_token":0,"top_level":true,"end_token":9}],)" +
         R"("question_text":"when did it sink","annotations":[{"yes_no_answer":")" + a.yes_no +
         R"(","long_answer":{"start_token":)" + std::to_string(a.begin) + R"(,"candidate_index":)" +
         std::to_string(a.candidate) + R"(,"end_token":)" + std::to_string(a.end) +
         R"(},"short_answers":[)" + a.shorts +
         R"(],"annotation_id":593165450220027640}],"document_url":"https://x","example_id":5655493461695504401})";
}

Question read(const std::string& line) {
  Question out;
  read_natural_question(line, "nq.jsonl:3", &out);
  return out;
}

std::string answer(const Question& q) {
  return q.document.substr(q.answer_begin, q.answer_end - q.answer_begin);
}

TEST(data_text_natural_questions, the_first_annotation_says_class_and_answer) {
  const Question unknown = read(line_of({}));
  EXPECT_EQ(unknown.answer_class, AnswerClass::unknown);
  EXPECT_EQ(unknown.id, "5655493461695504401");
  EXPECT_EQ(unknown.question, "when did it sink");
  EXPECT_EQ(unknown.document, kDocument);
  EXPECT_EQ(answer(unknown), "");

  const Question in_long = read(line_of({"NONE", 0, 8, 0, ""}));
  EXPECT_EQ(in_long.answer_class, AnswerClass::long_answer);
  EXPECT_EQ(answer(in_long), "<P> The Titanic sank in 1912 . </P>");

  const Question in_short = read(line_of(
      {"NONE", 0, 8, 0, R"({"start_token":5,"end_token":6},{"start_token":4,"end_token":6})"}));
  EXPECT_EQ(in_short.answer_class, AnswerClass::short_answer);
  EXPECT_EQ(answer(in_short), "1912");

  EXPECT_EQ(read(line_of({"YES", 8, 12, 0, ""})).answer_class, AnswerClass::yes);
  EXPECT_EQ(answer(read(line_of({"NO", 8, 12, 0, ""}))), "It was new .");
  EXPECT_EQ(read(line_of({"NO", 8, 12, 0, ""})).answer_class, AnswerClass::no);
}

TEST(data_text_natural_questions, words_are_counted_by_single_spaces_as_the_data_set_was_made) {
  // A space that does not break is part of a word.
  EXPECT_EQ(answer(read(line_of({"NONE", 1, 2, 0, ""}, "a\u00a0b c d"))), "c");
}

TEST(data_text_natural_questions, an_answer_outside_the_document_is_refused) {
  const auto shorts = [](int begin, int end) {
    return "{\"start_token\":" + std::to_string(begin) + ",\"end_token\":" + std::to_string(end) +
           "}";
  };
  EXPECT_ERROR(read(line_of({"NONE", 0, 13, 0, ""})), Corrupt,
               "nq.jsonl:3: the long answer is words 0 to 13, and the document has 12");
  EXPECT_ERROR(read(line_of({"NONE", 5, 5, 0, ""})), Corrupt, "the long answer is words 5 to 5");
  EXPECT_ERROR(read(line_of({"NONE", 5, 2, 0, ""})), Corrupt, "the long answer is words 5 to 2");
  EXPECT_ERROR(read(line_of({"YES", -1, -1, -1, ""})), Corrupt,
               "the long answer is words -1 to -1");
  EXPECT_ERROR(read(line_of({"NONE", 0, 8, 0, shorts(11, 99)})), Corrupt,
               "the short answer is words 11 to 99");
  EXPECT_ERROR(read(line_of({"NONE", 0, 8, 0, shorts(-3, 2)})), Corrupt,
               "the short answer is words -3 to 2");
  EXPECT_ERROR(read(line_of({"NONE", 0, 8, 0, "{\"start_token\":1}"})), Corrupt,
               "no start_token or no end_token");
  EXPECT_EQ(answer(read(line_of({"NONE", 11, 12, 0, ""}))), ".");
}

TEST(data_text_natural_questions, a_line_that_is_no_question_is_refused_with_the_reason) {
  const std::string good = line_of({});
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string line = good;
    const size_t at = line.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return line.replace(at, from.size(), to);
  };
  EXPECT_ERROR(read(""), Corrupt, "nq.jsonl:3: the line ends within its JSON");
  EXPECT_ERROR(read(good.substr(0, 200)), Corrupt, "nq.jsonl:3: the line ends within its JSON");
  EXPECT_ERROR(read(good.substr(0, good.size() - 1)), Corrupt, "the line ends within its JSON");
  EXPECT_ERROR(read(good + "x"), Corrupt, "not JSON at byte");
  EXPECT_ERROR(read("[1]"), Corrupt, "an array");
  EXPECT_ERROR(read("7"), Corrupt, "a number where an object should be");
  EXPECT_ERROR(read(with("Titanic", "Tit\xffnic")), Corrupt,
               "nq.jsonl:3: byte 30 of the line is not UTF-8");
  EXPECT_ERROR(read(with("Titanic", "\\ud800")), Corrupt, "not JSON at byte");
  EXPECT_ERROR(read(line_of({}, "")), Corrupt, "nq.jsonl:3: the document is empty");
  EXPECT_ERROR(read(line_of({}, "   ")), Corrupt, "the document is empty");
  EXPECT_ERROR(read(with("when did it sink", "")), Corrupt, "the question is empty");
  EXPECT_ERROR(read(with("document_text", "text")), Corrupt, "no 'document_text'");
  EXPECT_ERROR(read(with("question_text", "question")), Corrupt, "no 'question_text'");
  EXPECT_ERROR(read(with("example_id", "id")), Corrupt, "no 'example_id'");
  EXPECT_ERROR(read(with("annotations", "notes")), Corrupt, "no annotation");
  EXPECT_ERROR(read(with("\"question_text\":\"when did it sink\"", "\"question_text\":4")), Corrupt,
               "a number where the text of 'question_text' should be");
  EXPECT_ERROR(read(with("\"document_url\":\"https://x\"", "\"question_text\":\"b\"")), Corrupt,
               "'question_text' occurs twice");
  EXPECT_ERROR(read(with("\"NONE\"", "\"MAYBE\"")), Corrupt, "none of YES, NO and NONE");
  EXPECT_ERROR(read(with("\"NONE\"", "null")), Corrupt,
               "null where the text of 'yes_no_answer' should be");
  EXPECT_ERROR(read(with("yes_no_answer", "yes")), Corrupt, "lacks yes_no_answer");
  EXPECT_ERROR(read(with("\"candidate_index\":-1", "\"candidate_index\":0.5")), Corrupt,
               "a fraction where the whole number of 'candidate_index' should be");
  EXPECT_ERROR(read(with("\"short_answers\":[]", "\"short_answers\":[3]")), Corrupt,
               "a number where an object of the array should be");
  EXPECT_ERROR(read(with("\"https://x\"", std::string(100, '[') + std::string(100, ']'))), Corrupt,
               "nested more than 64 deep");
  EXPECT_EQ(read(with("\"https://x\"", "[[{\"question_text\":[1,null,true,0.5]}]]")).question,
            "when did it sink");
}

TEST(data_text_natural_questions, bad_lines_stop_the_reading_or_are_counted_the_same_each_time) {
  const PrivateFolder folder;
  const std::string path = folder / "nq.jsonl";
  const std::string good = line_of({});
  write_file_atomic(path, good + "\n{\"cut\n" + good + "\n\n" + line_of({}, "") + "\n" + good);
  Question q;
  NaturalQuestionsReader strict(path);
  ASSERT_TRUE(strict.next(&q));
  EXPECT_EQ(q.where, path + ":1");
  EXPECT_ERROR(strict.next(&q), Corrupt, path + ":2: the line ends within its JSON");
  EXPECT_TRUE(strict.next(&q));  // who catches it may go on
  for (int rank = 0; rank < 2; ++rank) {
    NaturalQuestionsReader reader(path, {.bad = OnBadSample::skip});
    std::vector<std::string> seen;
    while (reader.next(&q)) seen.push_back(q.where);
    EXPECT_EQ(seen, (std::vector<std::string>{path + ":1", path + ":3", path + ":6"}));
    EXPECT_EQ(reader.bad().count(), 3);
    EXPECT_EQ(reader.lines(), 6);
    EXPECT_EQ(reader.bad().first()[2], path + ":5: the document is empty");
  }
}

TEST(data_text_natural_questions, a_line_of_a_gigabyte_is_refused_without_being_held) {
  const PrivateFolder folder;
  const std::string path = folder / "nq.jsonl";
  write_file_atomic(path, line_of({}) + "\n");
  const auto first = static_cast<off_t>(line_of({}).size()) + 1;
  ASSERT_EQ(::truncate(path.c_str(), first + (off_t{1} << 30)),
            0);  // a hole: no disk is used
  NaturalQuestionsReader reader(path);
  Question q;
  ASSERT_TRUE(reader.next(&q));
  EXPECT_ERROR(reader.next(&q), Corrupt, path + ":2: a line of more than 67108864 bytes");
}

TEST(data_text_natural_questions, what_follows_a_line_that_is_too_long_is_read) {
  const PrivateFolder folder;
  const std::string path = folder / "nq.jsonl";
  const std::string good = line_of({});
  write_file_atomic(path, good + "\n" + good + " \n" + std::string(10 * good.size(), 'x') + "\n" +
                              good + "\n" + good + "x");
  for (const OnBadSample bad : {OnBadSample::skip, OnBadSample::stop}) {
    NaturalQuestionsReader reader(path, {.bad = bad, .longest_line = good.size()});
    Question q;
    std::vector<std::string> seen;
    for (int i = 0; i < 6; ++i) {
      try {
        if (reader.next(&q)) seen.push_back(q.where);
      } catch (const Corrupt& error) {
        EXPECT_NE(std::string(error.what()).find("a line of more than"), std::string::npos);
      }
    }
    EXPECT_EQ(seen, (std::vector<std::string>{path + ":1", path + ":4"}));
    EXPECT_EQ(reader.lines(), 5);
    EXPECT_EQ(reader.bad().count(), bad == OnBadSample::skip ? 3 : 0);
  }
}

TEST(data_text_natural_questions, an_empty_file_has_no_questions_and_a_missing_one_is_refused) {
  const PrivateFolder folder;
  write_file_atomic(folder / "nq.jsonl", "");
  NaturalQuestionsReader reader(folder / "nq.jsonl");
  Question q;
  EXPECT_FALSE(reader.next(&q));
  EXPECT_ERROR(NaturalQuestionsReader("/nowhere.jsonl"), UsageError,
               "'/nowhere.jsonl' does not exist");
  EXPECT_ERROR(NaturalQuestionsReader(folder.path()), UsageError, "is not a regular file");
}

}  // namespace
}  // namespace trireme::natural_questions_test
