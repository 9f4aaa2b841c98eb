// SPDX-License-Identifier: Apache-2.0
// The commands of docs/qa.md, as they are written there, on small files and with a small encoder.
// (Defects 1 and 11 of the published recipe: its script and its README could not be followed.)
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/qa_questions.h"
#include "tests/cli/qa_runs.h"

namespace trireme::testing::qa_pages_test {
namespace {

class cli_qa_pages : public QaRuns {};

std::vector<Arguments> commands() {
  std::vector<Arguments> all;
  std::istringstream in(read_file(source_path("/docs/qa.md")));
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("$ ./qa ", 0) != 0) continue;
    std::istringstream words(line.substr(2));
    all.emplace_back();
    for (std::string word; words >> word;) all.back().push_back(word);
  }
  return all;
}

TEST_F(cli_qa_pages, every_command_of_the_page_runs) {
  for (const char* name : {"dummy", "natural_questions", "squad"})
    std::filesystem::copy(qa_config(name), folder_ / (std::string(name) + ".json"));
  const MadeQuestions made(8);
  write(folder_ / "vocab.txt", made.vocabulary());
  write(folder_ / "train-v1.1.json", made.squad());
  write(folder_ / "dev-v1.1.json", made.squad());
  write(folder_ / "simplified-nq-train.jsonl", made.natural_questions());
  write(folder_ / "bert-base-uncased.safetensors", safetensors_text(bert_of("weight", "bias")));
  const std::vector<Arguments> all = commands();
  EXPECT_GE(all.size(), 7u);
  for (Arguments words : all) {
    std::string text;
    for (const std::string& word : words) text += word + " ";
    words[0] = qa_program();
    const bool resumes = text.find("--resume") != std::string::npos;
    Sets sets = resumes ? Sets{} : kTinyEncoder;
    if (!resumes) {
      sets.insert(sets.end(), {"qa.max_seq_len=32", "qa.max_question_len=8", "qa.vocab_size=128",
                               "train_batch_size=4", "qa.batch_split=2", "amp.enabled=false"});
      if (text.find("dummy") != std::string::npos)
        sets.push_back("qa.dummy_dataset_len=8");
      else
        sets.push_back("qa.doc_stride=16");
    }
    for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
    Command job(words, {{}, folder_.path()});
    EXPECT_EQ(job.finish(kPatience), 0) << text << "\n" << job.out << job.err;
  }
}

}  // namespace
}  // namespace trireme::testing::qa_pages_test
