// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/squad.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/data/text/errors.h"
#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "trireme/base/lines.h"

namespace trireme::squad_test {
namespace {

using trireme::testing::Command;
using trireme::testing::source_path;

TEST(data_text_squad, scores_are_those_of_the_evaluation_scripts) {
  Command python(
      {"/usr/bin/python3", source_path("/tests/data/text/squad_reference.py"), "11", "4000"});
  const int status = python.finish(std::chrono::seconds(60));
  if (status == 127) GTEST_SKIP() << "no python3";
  ASSERT_EQ(status, 0) << python.err;
  int right = 0, partly = 0, empty = 0;
  for (const std::string& line : lines_of(python.out)) {
    const auto told = nlohmann::json::parse(line);
    const auto prediction = told["prediction"].get<std::string>();
    const auto answers = told["answers"].get<std::vector<std::string>>();
    ASSERT_EQ(normalized_answer(prediction), told["normalized"].get<std::string>()) << line;
    const AnswerScore score = squad_score(prediction, answers);
    ASSERT_EQ(score.exact, told["exact"].get<double>()) << line;
    ASSERT_EQ(score.f1, told["f1"].get<double>()) << line;  // to the bit
    right += score.exact == 1;
    partly += score.f1 > 0 && score.f1 < 1;
    empty += answers.empty();
    if (answers.empty()) continue;
    const AnswerScore old = squad_score_v1(prediction, answers);
    ASSERT_EQ(old.exact, told["exact_v1"].get<double>()) << line;
    ASSERT_EQ(old.f1, told["f1_v1"].get<double>()) << line;
  }
  EXPECT_GT(right, 500);
  EXPECT_GT(partly, 100);
  EXPECT_GT(empty, 300);
}

TEST(data_text_squad, what_the_script_leaves_out_does_not_count) {
  EXPECT_EQ(normalized_answer("  The U.S.'s  an-swer a_the\n"), "uss answer athe");
  EXPECT_EQ(squad_score("the Eiffel Tower!", {"Eiffel tower"}).exact, 1);
  EXPECT_EQ(squad_score("", {}).exact, 1);
  EXPECT_EQ(squad_score("the", {}).f1, 1);  // nothing is left of it
  EXPECT_EQ(squad_score("tower", {}).f1, 0);
  EXPECT_EQ(squad_score_v1("the", {"a"}).f1, 0);  // 1.1: nothing in common
  EXPECT_EQ(squad_score_v1("the", {"a"}).exact, 1);
  EXPECT_DOUBLE_EQ(squad_score("red green blue", {"red", "green blue sky"}).f1, 2.0 / 3);
  EXPECT_ERROR(squad_score_v1("a", {}), UsageError, "no questions without an answer");
  EXPECT_ERROR(normalized_answer("ab\xff"), Corrupt, "byte 3 of an answer is not UTF-8");
  SquadScores sum;
  sum.add({1, 1}, true);
  sum.add({0, 0.5}, false);
  EXPECT_EQ(sum.total, 2);
  EXPECT_EQ(sum.f1, 1.5);
  EXPECT_EQ(sum.f1_without_answer, 0.5);
  EXPECT_EQ(sum.with_answer, 1);
}

struct File {
  explicit File(const std::string& text) { write_file_atomic(path(), text); }
  std::string path() const { return folder / "squad.json"; }
  PrivateFolder folder;
};

std::string squad_of(const std::string& context, const std::string& qas) {
  return R"({"version": "v2.0", "data": [{"title": "t", "paragraphs": [{"context": ")" + context +
         R"(", "qas": [)" + qas + "]}]}]}";
}

std::vector<Question> read(const std::string& text) {
  const File file(text);
  BadSamples bad(OnBadSample::stop);
  return read_squad(file.path(), &bad);
}

constexpr const char* kAnswered =
    R"({"id": "q1", "question": "Who?", "answers": [{"text": "Zoë", "answer_start": 5}, {"text": "oë", "answer_start": 6}], "is_impossible": false})";
constexpr const char* kImpossible =
    R"({"id": "q2", "question": "Why?", "answers": [], "plausible_answers": [{"text": "Zoë", "answer_start": 5}], "is_impossible": true})";
constexpr const char* kOfVersion1 =
    R"({"id": "q3", "question": "Who?", "answers": [{"text": "é", "answer_start": 0}]})";

TEST(data_text_squad, both_versions_are_read_and_characters_become_bytes) {
  const auto questions =
      read(squad_of("é is Zoë.", std::string(kAnswered) + "," + kImpossible + "," + kOfVersion1));
  ASSERT_EQ(questions.size(), 3u);
  EXPECT_EQ(questions[0].answer_class, AnswerClass::short_answer);
  EXPECT_EQ(questions[0].document.substr(questions[0].answer_begin,
                                         questions[0].answer_end - questions[0].answer_begin),
            "Zoë");
  EXPECT_EQ(questions[0].answers, (std::vector<std::string>{"Zoë", "oë"}));
  EXPECT_EQ(questions[1].answer_class, AnswerClass::unknown);
  EXPECT_TRUE(questions[1].answers.empty());
  EXPECT_EQ(questions[2].answer_end, 2u);
  EXPECT_EQ(questions[2].id, "q3");
}

TEST(data_text_squad, bad_questions_are_refused_by_id_or_left_out) {
  const auto one = [](const std::string& id, const std::string& answers) {
    return R"({"id": ")" + id + R"(", "question": "q", "answers": [)" + answers + "]}";
  };
  const std::vector<std::pair<std::string, std::string>> bad{
      {one("b1", R"({"text": "Zoe", "answer_start": 5})"),
       "at character 5 the paragraph has another"},
      {one("b2", R"({"text": "é", "answer_start": 900})"),
       "at character 900 the paragraph has another"},
      {one("b3", R"({"text": "", "answer_start": 0})"), "at character 0 the paragraph has another"},
      {one("b4", R"({"text": "é", "answer_start": -1})"), "answer_start is not a whole number"},
      {one("b5", ""), "no answer, and is_impossible does not say so"},
      {R"({"id": "b6", "question": " ", "answers": []})", "the question is empty"},
      {R"({"id": "b7", "question": "q"})", "no 'answers'"},
      {R"({"id": "b8", "question": 3, "answers": []})", "question is not a string"},
      {R"({"id": "b9", "question": "q", "answers": [], "is_impossible": 1})",
       "neither true nor false"},
      {kOfVersion1, "an earlier question has this id"},
  };
  std::string all = kOfVersion1;
  for (const auto& [json, says] : bad) {
    EXPECT_ERROR(read(squad_of("é is Zoë.", std::string(kOfVersion1) + "," + json)), Corrupt, says);
    all += "," + json;
  }
  const File file(squad_of("é is Zoë.", all));
  BadSamples skipped(OnBadSample::skip);
  EXPECT_EQ(read_squad(file.path(), &skipped).size(), 1u);
  EXPECT_EQ(skipped.count(), static_cast<int64_t>(bad.size()));
  ASSERT_EQ(skipped.first().size(), 8u);
  EXPECT_NE(skipped.first()[0].find("squad.json: question b1: "), std::string::npos);
  EXPECT_ERROR(read(squad_of("  ", kOfVersion1)), Corrupt, "question q3: the paragraph is empty");
}

TEST(data_text_squad, what_is_no_file_of_squad_is_refused_by_name) {
  BadSamples skip(OnBadSample::skip);
  EXPECT_ERROR(read_squad("/nowhere.json", &skip), UsageError, "'/nowhere.json' does not exist");
  EXPECT_ERROR(read(""), Corrupt, "squad.json: not JSON");
  EXPECT_ERROR(read("[]"), Corrupt, "squad.json: not a JSON object");
  EXPECT_ERROR(read(R"({"data": 1})"), Corrupt, "'data' is not an array");
  EXPECT_ERROR(read("{\"data\": \"\xff\"}"), Corrupt, "squad.json: byte 11 is not UTF-8");
  const std::string whole = squad_of("é", kOfVersion1);
  EXPECT_ERROR(read(whole.substr(0, whole.size() / 2)), Corrupt, "squad.json: not JSON");
}

}  // namespace
}  // namespace trireme::squad_test
