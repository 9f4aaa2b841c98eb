// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/question_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>

#include "tests/data/text/errors.h"
#include "tests/data/text/made_questions.h"
#include "trireme/base/file.h"
#include "trireme/data/text/squad.h"

namespace trireme::question_file_test {
namespace {

using namespace made_questions;

struct File {
  explicit File(const std::string& text) { write_file_atomic(path(), text); }
  std::string path() const { return folder / "questions"; }
  PrivateFolder folder;
};

std::string lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += natural_question(i, words(i, i + 20),
                             i % 3 == 0 ? Annotation{} : Annotation{.begin = i % 7, .end = 9}) +
            "\n";
  return text;
}

bool same(const Question& a, const Question& b) {
  return a.where == b.where && a.id == b.id && a.question == b.question &&
         a.document == b.document && a.answer_class == b.answer_class &&
         a.answer_begin == b.answer_begin && a.answer_end == b.answer_end && a.answers == b.answers;
}

TEST(data_text_question_file, lines_are_read_in_any_order_as_they_are_one_after_the_other) {
  const File file(lines(40));
  const QuestionFile questions(file.path());
  EXPECT_EQ(questions.format(), QuestionFormat::natural_questions);
  std::vector<Question> in_order;
  NaturalQuestionsReader reader(file.path());
  for (Question q; reader.next(&q);) in_order.push_back(q);
  ASSERT_EQ(questions.size(), 40);
  Question q;
  for (int i = 0; i < 200; ++i) {
    const auto number = static_cast<size_t>(i * 17 % 40);
    questions.read(static_cast<int64_t>(number), &q);
    ASSERT_TRUE(same(q, in_order[number]));
    ASSERT_EQ(questions.classes()[number], q.answer_class);
  }
  EXPECT_ERROR(questions.read(40, &q), UsageError, "there is no question 40: there are 40");
  EXPECT_ERROR(questions.read(-1, &q), UsageError, "there is no question -1");
}

TEST(data_text_question_file, squad_is_read_as_its_reader_does) {
  const std::string context = words(0, 30);
  const File file(squad(context, squad_question("a", "w3", 9) + "," + squad_question("b", "", 0) +
                                     "," + squad_question("c", "w4 w5", 12)));
  const QuestionFile questions(file.path());
  EXPECT_EQ(questions.format(), QuestionFormat::squad);
  BadSamples bad(OnBadSample::stop);
  const auto all = read_squad(file.path(), &bad);
  ASSERT_EQ(questions.size(), 3);
  for (size_t i : {2u, 0u, 1u, 2u}) {
    Question q;
    questions.read(static_cast<int64_t>(i), &q);
    EXPECT_TRUE(same(q, all[i])) << i;
  }
}

TEST(data_text_question_file, the_format_is_told_by_the_first_line_that_can_be_read) {
  const auto format = [](const std::string& text) {
    return QuestionFile(File(text).path(), {.bad = OnBadSample::skip}).format();
  };
  const std::string nq = lines(1), of_squad = squad("w1", squad_question("a", "w1", 0));
  EXPECT_EQ(format(nq), QuestionFormat::natural_questions);
  EXPECT_EQ(format("{\"cut\n" + nq), QuestionFormat::natural_questions);
  EXPECT_EQ(format("\n\xff\xff\n" + nq), QuestionFormat::natural_questions);
  EXPECT_EQ(format(of_squad), QuestionFormat::squad);
  std::string pretty = of_squad;
  for (const char* sign : {"{", "[", ","})
    for (size_t at = 0; (at = pretty.find(sign, at)) != std::string::npos; at += 2)
      pretty.insert(at + 1, "\n");
  EXPECT_EQ(format(pretty), QuestionFormat::squad);
  for (const char* text : {"", "{}", "[1]", "hello", "{\"documents\": \"x\"}"})
    EXPECT_ERROR(format(text), UsageError, "neither lines of Natural Questions");
  // Inside of an object, a member's name tells nothing.
  EXPECT_ERROR(format("{\"x\": {\"data\": 1}}"), UsageError, "neither");
  // A name that is given is believed, and the reader says what is wrong.
  EXPECT_ERROR(QuestionFile(File(nq).path(), {.format = QuestionFormat::squad}), Corrupt,
               "no 'data'");
  EXPECT_ERROR(QuestionFile(File(of_squad).path(), {.format = QuestionFormat::natural_questions}),
               Corrupt, "questions:1: no 'document_text'");
}

TEST(data_text_question_file, bad_questions_stop_it_or_are_left_out_the_same_each_time) {
  const std::string good = lines(1);
  const File file(good + "{\"cut\n" + natural_question(1, "w1 w2", {.begin = 1, .end = 9}) + "\n" +
                  good + natural_question(2, "") + "\n" + good + "{\"document_text\":\"w\xff\"}\n" +
                  good.substr(0, good.size() / 2));
  EXPECT_ERROR(QuestionFile(file.path()), Corrupt, "questions:2: the line ends within its JSON");
  for (int rank = 0; rank < 2; ++rank) {
    const QuestionFile questions(file.path(), {.bad = OnBadSample::skip});
    EXPECT_EQ(questions.size(), 3);
    EXPECT_EQ(questions.bad().count(), 5);
    EXPECT_EQ(
        questions.bad().first(),
        (std::vector<std::string>{
            file.path() + ":2: the line ends within its JSON: the file may have been cut off",
            file.path() + ":3: the long answer is words 1 to 9, and the document has 2",
            file.path() + ":5: the document is empty",
            file.path() + ":7: byte 20 of the line is not UTF-8",
            file.path() + ":8: the line ends within its JSON: the file may have been cut off"}));
    Question q;
    questions.read(2, &q);
    EXPECT_EQ(q.where, file.path() + ":6");
  }
}

TEST(data_text_question_file, what_its_user_cannot_use_is_a_bad_question_too) {
  const auto no_seven = [](const Question& q) {
    if (q.id == "7") throw Corrupt(q.where + ": seven");
  };
  const File nq(lines(12));
  EXPECT_ERROR(QuestionFile(nq.path(), {}, no_seven), Corrupt, "questions:8: seven; mend the file");
  const QuestionFile left(nq.path(), {.bad = OnBadSample::skip}, no_seven);
  EXPECT_EQ(left.size(), 11);
  EXPECT_EQ(left.bad().first(), std::vector<std::string>{nq.path() + ":8: seven"});
  EXPECT_EQ(left.classes().size(), 11u);

  const File of_squad(squad("w1 w2", squad_question("6", "w1", 0) + "," +
                                         squad_question("7", "w1", 0) + "," +
                                         squad_question("8", "w2", 3)));
  EXPECT_ERROR(QuestionFile(of_squad.path(), {}, no_seven), Corrupt, "question 7: seven");
  const QuestionFile two(of_squad.path(), {.bad = OnBadSample::skip}, no_seven);
  EXPECT_EQ(two.size(), 2);
  EXPECT_EQ(two.bad().count(), 1);
  Question q;
  two.read(1, &q);
  EXPECT_EQ(q.id, "8");
  EXPECT_EQ(q.document, "w1 w2");
}

TEST(data_text_question_file, other_questions_have_another_identity) {
  const auto identity = [](const std::string& text) {
    return QuestionFile(File(text).path()).identity();
  };
  EXPECT_EQ(identity(lines(9)), identity(lines(9)));
  EXPECT_NE(identity(lines(9)), identity(lines(10)));
  EXPECT_NE(identity(natural_question(1, "w1 w2", {.begin = 0, .end = 1})),
            identity(natural_question(1, "w1 w2", {.yes_no = "YES", .begin = 0, .end = 1})));
  EXPECT_NE(identity(squad("w1 w2", squad_question("a", "w1", 0))),
            identity(squad("w1 w2", squad_question("a", "w2", 3))));
}

TEST(data_text_question_file, a_line_of_a_gigabyte_takes_no_memory_and_what_follows_is_read) {
  const PrivateFolder folder;
  const std::string path = folder / "nq.jsonl", good = lines(1);
  write_file_atomic(path, good);
  // A hole in the file: no disk is used.
  const auto end = static_cast<off_t>(good.size()) + (off_t{1} << 30);
  ASSERT_EQ(::truncate(path.c_str(), end), 0);
  {
    std::ofstream behind(path, std::ios::app);
    behind << "\n" << good;
  }
  EXPECT_ERROR(QuestionFile(path, {}), Corrupt, path + ":2: a line of more than 67108864 bytes");
  const int64_t before = memory_in_use();
  const auto began = std::chrono::steady_clock::now();
  const QuestionFile questions(path, {.bad = OnBadSample::skip});
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60));
  EXPECT_LT(memory_in_use() - before, int64_t{64} << 20);
  EXPECT_EQ(questions.size(), 2);
  EXPECT_EQ(questions.bad().count(), 1);
  Question q;
  questions.read(1, &q);
  EXPECT_EQ(q.where, path + ":3");
}

TEST(data_text_question_file, a_file_that_changes_while_it_is_used_is_found_to_be_bad) {
  const File file(lines(3));
  const QuestionFile questions(file.path());
  std::fstream writer(file.path(), std::ios::in | std::ios::out);
  writer << "xxxx";
  writer.close();
  Question q;
  EXPECT_ERROR(questions.read(0, &q), Corrupt, "questions:1: not JSON");
  questions.read(1, &q);
  EXPECT_EQ(q.id, "1");
}

}  // namespace
}  // namespace trireme::question_file_test
