// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/prepared/prepared_questions.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/data/text/errors.h"
#include "tests/data/text/made_questions.h"
#include "tests/support/captured_log.h"
#include "tests/support/forked.h"
#include "trireme/base/file.h"
#include "trireme/base/file/file_faults.h"

namespace trireme::prepared_questions_test {
namespace {

using namespace made_questions;
using testing::CapturedLog;
using testing::ChildEnd;
using testing::ForkedChild;

/// Bad samples of every kind among good ones of many lengths.
std::string lines(int count, bool with_bad = true) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    const int begin = i % 5;
    text += natural_question(i, words(i % 40, i % 40 + 6 + i * 7 % 23),
                             i % 3 == 0 ? Annotation{} : Annotation{.begin = begin, .end = 5}) +
            "\n";
    if (!with_bad) continue;
    if (i % 7 == 3) text += "{\"document_text\":\"w\n";
    if (i % 11 == 4) text += natural_question(i, "\u200b") + "\n";
    if (i % 13 == 5) text += std::string(700, 'x') + "\n";  // too long
    if (i % 17 == 6) text += "\n";
  }
  return text;
}

/// What is logged, news as well.
struct AllLogged : CapturedLog {
  AllLogged() { set_log_level(LogLevel::info); }
  ~AllLogged() { set_log_level(LogLevel::warn); }
};

struct Made {
  explicit Made(const std::string& text) {
    write_file_atomic(path, text);
    options.folder = folder / "prepared";
    options.file.bad = OnBadSample::skip;
    options.file.longest_line = 650;
    options.part_bytes = 1000;
  }
  std::shared_ptr<const PreparedQuestions> prepare() const {
    return prepare_questions(path, vocabulary, options);
  }
  std::string in() const { return prepared_folder_of(path, options.folder); }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(in()))
      all.push_back(entry.path().filename());
    std::sort(all.begin(), all.end());
    return all;
  }
  /// Of each file in the folder: a write by renaming gives it another.
  std::map<std::string, ino_t> files() const {
    std::map<std::string, ino_t> all;
    for (const std::string& name : names()) {
      struct stat info {};
      ::stat((in() + "/" + name).c_str(), &info);
      all[name] = info.st_ino;
    }
    return all;
  }

  PrivateFolder folder;
  const std::string path = folder / "questions.jsonl";
  std::shared_ptr<const Vocabulary> vocabulary =
      std::make_shared<const Vocabulary>(Vocabulary::from_text(vocabulary_text(), "vocab.txt"));
  PreparedOptions options;
};

/// "": what is prepared are the pieces, lines and bad samples that reading the file gives.
std::string difference(const Made& made, const PreparedQuestions* prepared) {
  if (prepared == nullptr) return "nothing is prepared";
  QuestionChunker chunker(WordPieceTokenizer(made.vocabulary, made.options.word_piece),
                          {.drop_tags = made.options.drop_tags});
  const QuestionFile file(made.path, made.options.file,
                          [&](const Question& q) { chunker.check_cuttable(q); });
  if (prepared->size() != file.size())
    return fmt::format("{} questions, not {}", prepared->size(), file.size());
  if (prepared->left_out() != file.bad().count())
    return fmt::format("{} bad samples, not {}", prepared->left_out(), file.bad().count());
  if (prepared->of_lines()) {
    const QuestionFile again = QuestionFile::of_lines(made.path, prepared->lines());
    if (again.identity() != file.identity()) return "another identity";
    if (again.classes() != file.classes()) return "other classes";
    if (again.bad().first() != file.bad().first()) return "other first bad samples";
    Question a, b;
    for (int64_t i = 0; i < file.size(); ++i) {
      file.read(i, &a);
      again.read(i, &b);
      if (a.where != b.where || a.document != b.document) return "another text: " + b.where;
    }
  }
  QuestionPieces want, got;
  Question question;
  for (int64_t i = 0; i < file.size(); ++i) {
    file.read(i, &question);
    chunker.encode(question, &want);
    prepared->read(i, &got);
    if (got.id != want.id || got.question != want.question || got.document != want.document ||
        got.answer_class != want.answer_class || got.answer_begin != want.answer_begin ||
        got.answer_end != want.answer_end || got.sentences != want.sentences)
      return fmt::format("question {} has other pieces", i);
  }
  return "";
}

TEST(data_text_prepared_questions, parts_of_any_size_are_what_reading_the_file_gives) {
  for (const std::string& text :
       {lines(24), lines(1), lines(10) + "{\"cut", std::string("\n\n") + lines(5)})
    for (const uint64_t part : {100, 333, 1000, 100'000}) {
      Made made(text);
      made.options.part_bytes = part;
      EXPECT_EQ(difference(made, made.prepare().get()), "") << part;
      EXPECT_EQ(difference(made, made.prepare().get()), "") << part << ", from the folder";
      EXPECT_EQ(made.names().size(), 1 + (text.size() + part - 1) / part) << "a lock, and parts";
    }
}

TEST(data_text_prepared_questions, what_is_there_is_read_and_not_made) {
  const Made made(lines(60));
  made.prepare();
  const auto files = made.files();
  const AllLogged log;
  EXPECT_EQ(difference(made, made.prepare().get()), "");
  EXPECT_EQ(made.files(), files);
  EXPECT_TRUE(log.lines().empty());
}

TEST(data_text_prepared_questions, what_does_not_fit_any_more_is_made_anew_and_the_log_says_why) {
  const auto made_anew = [](const char* why, const std::function<void(Made&)>& change) {
    Made made(lines(60));
    made.options.part_bytes = 4000;
    made.prepare();
    change(made);
    {
      const AllLogged log;
      EXPECT_EQ(difference(made, made.prepare().get()), "") << why;
      EXPECT_EQ(log.with("is made anew").size(), 1u) << why;
      EXPECT_EQ(log.with(why).size(), 1u) << why;
      EXPECT_EQ(log.with("parts of").size(), 1u) << why;
    }
    EXPECT_EQ(difference(made, made.prepare().get()), "");
  };
  const auto set_time = [](const std::string& path, time_t seconds) {
    const timespec times[2] = {{seconds, 0}, {seconds, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  };
  made_anew("the file of questions has changed",
            [&](Made& made) { set_time(made.path, 1'000'000); });
  made_anew("the file of questions has changed", [&](Made& made) {
    struct stat info {};
    ASSERT_EQ(::stat(made.path.c_str(), &info), 0);
    std::string text = read_file(made.path);
    const size_t at = text.find("w1 w2");
    ASSERT_NE(at, std::string::npos);
    text[at + 1] = '3';
    write_file_atomic(made.path, text);
    const timespec times[2] = {info.st_mtim, info.st_mtim};
    ASSERT_EQ(::utimensat(AT_FDCWD, made.path.c_str(), times, 0), 0);
  });
  made_anew("the file of questions has changed",
            [&](Made& made) { write_file_atomic(made.path, lines(59)); });
  made_anew("another vocabulary", [](Made& made) {
    made.vocabulary = std::make_shared<const Vocabulary>(
        Vocabulary::from_text(vocabulary_text() + "zebra\n", "vocab.txt"));
  });
  made_anew("another vocabulary", [](Made& made) { made.options.word_piece.lower_case = false; });
  made_anew("another vocabulary", [](Made& made) { made.options.drop_tags = true; });
  made_anew("another part", [](Made& made) { made.options.part_bytes = 3999; });
  made_anew("is damaged", [](Made& made) {
    const std::string part = made.in() + "/part-00001.pieces";
    std::string bytes = read_file(part);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write_file_atomic(part, bytes);
  });
  made_anew("are no part of prepared questions",
            [](Made& made) { write_file_atomic(made.in() + "/part-00000.pieces", "cut off"); });
  made_anew("prepared questions of version 9, and this program has version 1", [](Made& made) {
    const std::string part = made.in() + "/part-00002.pieces";
    std::string bytes = read_file(part);
    bytes[8] = 9;
    write_file_atomic(part, bytes);
  });
}

TEST(data_text_prepared_questions,
     a_shorter_file_leaves_no_parts_behind_and_files_of_one_name_are_apart) {
  const Made made(lines(60));
  made.prepare();
  const size_t before = made.names().size();
  write_file_atomic(made.path, lines(10));
  EXPECT_EQ(difference(made, made.prepare().get()), "");
  EXPECT_LT(made.names().size(), before);

  Made other(lines(20));
  other.options.folder = made.options.folder;
  EXPECT_EQ(difference(other, other.prepare().get()), "");
  EXPECT_NE(other.in(), made.in());
  const auto files = made.files();
  EXPECT_EQ(difference(made, made.prepare().get()), "");
  EXPECT_EQ(made.files(), files);
}

TEST(data_text_prepared_questions, a_folder_that_cannot_be_written_is_one_warning) {
  const auto warned = [](Made& made, const char* why) {
    const CapturedLog log;
    EXPECT_EQ(made.prepare(), nullptr) << why;
    ASSERT_EQ(log.lines().size(), 1u) << why;
    EXPECT_EQ(log.with("pieces are not kept in " + made.options.folder).size(), 1u);
    EXPECT_EQ(log.with(why).size(), 1u) << log.lines()[0];
  };
  Made made(lines(40));
  const std::string good = made.options.folder;
  made.options.folder = made.path + "/below-a-file";
  warned(made, "it is there and not a folder");
  made.options.folder = good;
  set_file_faults("only=.pieces,write:ENOSPC");
  warned(made, "No space left on device");
  set_file_faults("only=.pieces,rename:EROFS");
  warned(made, "Read-only file system");
  set_file_faults("");
  for (const std::string& name : made.names()) EXPECT_EQ(name, "lock");
  // One that is whole can be read where nothing can be written.
  made.prepare();
  set_file_faults("write:EROFS,rename:EROFS,mkdir:EROFS,create:EROFS");
  EXPECT_EQ(difference(made, made.prepare().get()), "");
  set_file_faults("");
}

TEST(data_text_prepared_questions, a_file_that_changes_meanwhile_is_not_prepared) {
  const Made made(lines(40));
  // The second part's writing finds that it grows.
  set_log_level(LogLevel::info);
  bool changed = false;
  std::vector<std::string> said;
  set_log_sink([&](LogLevel, std::string_view text) {
    said.emplace_back(text);
    if (std::exchange(changed, true)) return;
    write_file_atomic(made.path, lines(41));  // it has just begun
  });
  EXPECT_EQ(made.prepare(), nullptr);
  set_log_sink({});
  set_log_level(LogLevel::warn);
  EXPECT_TRUE(std::any_of(said.begin(), said.end(), [](const std::string& line) {
    return line.find("has changed meanwhile") != std::string::npos;
  }));
  EXPECT_EQ(difference(made, made.prepare().get()), "");
}

TEST(data_text_prepared_questions, a_bad_sample_that_stops_is_left_to_the_reading) {
  Made made(lines(40));
  made.options.file.bad = OnBadSample::stop;
  const CapturedLog log;
  EXPECT_EQ(made.prepare(), nullptr);
  made.options.file.bad = OnBadSample::skip;
  EXPECT_EQ(difference(made, made.prepare().get()), "");
  made.options.file.bad = OnBadSample::stop;
  EXPECT_EQ(made.prepare(), nullptr);
  EXPECT_TRUE(log.lines().empty());
  Made good(lines(40, false));
  good.options.file.bad = OnBadSample::stop;
  EXPECT_EQ(difference(good, good.prepare().get()), "");
  made.options.file.format = QuestionFormat::squad;
  EXPECT_ERROR(made.prepare(), Corrupt, made.path);
  EXPECT_ERROR(prepare_questions("/nowhere", made.vocabulary, made.options), UsageError,
               "does not exist");
}

TEST(data_text_prepared_questions, squad_is_prepared_too) {
  const std::string context = words(0, 30);
  Made made(squad(context, squad_question("a", "w3", 9) + "," + squad_question("b", "", 0) + "," +
                               squad_question("c", "w7", 5) + "," +
                               squad_question("d", "w4 w5", 12)));
  const auto prepared = made.prepare();
  EXPECT_EQ(difference(made, prepared.get()), "");
  EXPECT_FALSE(prepared->of_lines());
  EXPECT_EQ(prepared->left_out(), 1) << "w7 is not there";
  EXPECT_EQ(made.names().size(), 2u);
}

TEST(data_text_prepared_questions, processes_that_come_at_once_make_each_part_once) {
  const Made made(lines(200));
  const PrivateFolder seen;
  {
    std::vector<std::unique_ptr<ForkedChild>> children;
    for (int i = 0; i < 4; ++i)
      children.push_back(std::make_unique<ForkedChild>(ChildEnd::exit_at_once, [&, i] {
        set_file_faults(fmt::format("only=.pieces,count={}/{}", seen.path(), i));
        return difference(made, made.prepare().get());
      }));
    for (auto& child : children) EXPECT_EQ(child->ended(), "");
  }
  EXPECT_EQ(difference(made, made.prepare().get()), "");
  std::map<std::string, int> renames;  // of each part
  for (int i = 0; i < 4; ++i) {
    const std::string file = seen / std::to_string(i);
    if (!std::filesystem::exists(file)) continue;
    std::istringstream text(read_file(file));
    for (std::string line; std::getline(text, line);)
      if (line.find("rename") != std::string::npos) {
        const size_t at = line.find("part-");
        ASSERT_NE(at, std::string::npos) << line;
        ++renames[line.substr(at, 10)];
      }
  }
  EXPECT_EQ(renames.size() + 1, made.names().size());
  for (const auto& [part, times] : renames) EXPECT_EQ(times, 1) << part;
}

TEST(data_text_prepared_questions,
     a_process_that_is_killed_at_any_file_call_leaves_what_others_go_on_with) {
  const std::string text = lines(8);  // two parts
  int calls = 0;
  {
    const Made made(text);
    const PrivateFolder seen;
    set_file_faults("only=" + made.options.folder + ",count=" + (seen / "calls"));
    made.prepare();
    set_file_faults("");
    const std::string said = read_file(seen / "calls");
    calls = static_cast<int>(std::count(said.begin(), said.end(), '\n'));
  }
  ASSERT_GT(calls, 20);
  // Every other one, before or after it in turn; all of them with TRIREME_SOAK=1.
  const int stride = std::getenv("TRIREME_SOAK") ? 1 : 2;
  for (int call = 1; call <= calls; call += stride) {
    const Made made(text);
    ForkedChild child(ChildEnd::exit_at_once, [&] {
      set_file_faults(fmt::format("only={},{}:{}", made.options.folder, call,
                                  call / stride % 2 ? "kill-before" : "kill-after"));
      made.prepare();
      return "";
    });
    EXPECT_EQ(child.ended(), "the child died of signal 9") << call;
    EXPECT_EQ(difference(made, made.prepare().get()), "") << call;
    for (const std::string& name : made.names())
      EXPECT_EQ(name.find(".tmp."), std::string::npos) << name << " after call " << call;
  }
}

}  // namespace
}  // namespace trireme::prepared_questions_test
