// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/sources/corpus.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/file.h"
#include "trireme/data/sources/documents.h"

namespace corpus_test {

using namespace trireme;

namespace {

class data_corpus : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder / name) << text;
  }
  CorpusOptions options(int64_t context, double fraction = 0) {
    return {.paths = {folder.path()},
            .extensions = {},
            .context = context,
            .validation_fraction = fraction};
  }
  // Forty files of 500 bytes, each of one letter pair of its own.
  void write_many() {
    for (int i = 0; i < 40; ++i)
      write("f" + std::to_string(i), std::string(500, static_cast<char>('0' + i)));
  }
  PrivateFolder folder;
};

std::string text_of(const at::Tensor& row) {
  std::string s;
  for (int64_t i = 0; i < row.numel(); ++i) s += static_cast<char>(row[i].item<int64_t>());
  return s;
}

std::set<char> letters(const DataSource& source) {
  std::set<char> seen;
  for (int64_t i = 0; i < source.size(); ++i)
    for (char c : text_of(source.get({i}).input[0]))
      if (c != '\n') seen.insert(c);
  return seen;
}

std::string message(const CorpusOptions& options) {
  try {
    open_corpus(options);
  } catch (const Error& e) {
    return e.kind() + std::string(": ") + e.what();
  }
  return "";
}

}  // namespace

TEST_F(data_corpus, windows_are_the_files_in_order_with_newlines_between) {
  write("b", "ghij");
  write("a", "abcdef");
  const auto corpus = open_corpus(options(4));  // "abcdef\nghij\n"
  ASSERT_EQ(corpus.train->size(), 2);
  EXPECT_EQ(corpus.validation, nullptr);
  const auto batch = corpus.train->get({1, 0});
  EXPECT_EQ(text_of(batch.input[0]), "ef\ng");
  EXPECT_EQ(text_of(batch.target[0]), "f\ngh");
  EXPECT_EQ(text_of(batch.input[1]), "abcd");
  EXPECT_EQ(text_of(batch.target[1]), "bcde");
  EXPECT_EQ(batch.input.scalar_type(), at::kLong);
  EXPECT_EQ(batch.weight, 8);
}

TEST_F(data_corpus, bytes_above_127_stay_positive) {
  write("a", "\xff\xfe\xff\xfe\xff\xfe");
  EXPECT_EQ(open_corpus(options(2)).train->get({0}).input[0][0].item<int64_t>(), 255);
}

TEST_F(data_corpus, held_out_files_are_unseen_by_training) {
  write_many();
  const auto corpus = open_corpus(options(50, 0.1));
  const auto seen = letters(*corpus.train), held = letters(*corpus.validation);
  EXPECT_EQ(held.size(), 4u) << "a tenth of forty equal files";
  EXPECT_EQ(seen.size() + held.size(), 40u);
  for (char c : held) EXPECT_FALSE(seen.contains(c));
}

TEST_F(data_corpus, the_split_depends_on_names_not_on_where_the_folder_is) {
  write_many();
  PrivateFolder elsewhere;
  std::filesystem::copy(folder.path(), elsewhere.path());
  auto there = options(50, 0.1);
  there.paths = {elsewhere.path()};
  const auto a = open_corpus(options(50, 0.1)), b = open_corpus(there);
  EXPECT_EQ(letters(*a.validation), letters(*b.validation));
  EXPECT_EQ(a.identity, b.identity);
  write("f0", "changed in size");
  EXPECT_NE(open_corpus(options(50, 0.1)).identity, a.identity);
}

TEST_F(data_corpus, bytes_that_change_under_the_same_lengths_change_the_contents_alone) {
  write_many();
  PrivateFolder elsewhere;
  std::filesystem::copy(folder.path(), elsewhere.path());
  auto there = options(50, 0.1);
  there.paths = {elsewhere.path()};
  const auto a = open_corpus(options(50, 0.1)), docs = open_documents(options(50, 0.1));
  EXPECT_EQ(open_corpus(there).contents, a.contents) << "wherever the folder is";
  EXPECT_EQ(docs.contents, a.contents);
  write("f7", std::string(250, '7') + 'x' + std::string(249, '7'));
  const auto b = open_corpus(options(50, 0.1));
  EXPECT_EQ(b.identity, a.identity);
  EXPECT_NE(b.contents, a.contents);
  EXPECT_NE(open_documents(options(50, 0.1)).contents, docs.contents);
}

TEST_F(data_corpus, of_a_large_file_its_ends_and_fourteen_places_between_count) {
  constexpr size_t kBytes = size_t{3} << 20, kSample = size_t{64} << 10;
  const std::string text(kBytes, 'x');
  const auto contents_with = [&](size_t changed) {
    std::string other = text;
    other[changed] = 'y';
    write("a", other);
    return open_corpus(options(50)).contents;
  };
  write("a", text);
  const uint64_t before = open_corpus(options(50)).contents;
  for (const size_t seen : {size_t{0}, kSample - 1, (kBytes - kSample) / 15 * 7, kBytes - 1})
    EXPECT_NE(contents_with(seen), before) << seen;
  EXPECT_EQ(contents_with(kSample), before) << "this costs as much for 100 GB";
}

TEST_F(data_corpus, one_file_is_split_at_its_end) {
  write("a", std::string(900, 'x') + std::string(100, 'y'));
  const auto corpus = open_corpus(options(10, 0.1));
  EXPECT_EQ(letters(*corpus.train), std::set<char>{'x'});
  EXPECT_TRUE(letters(*corpus.validation).contains('y'));
  EXPECT_GE(corpus.validation->size(), 9);
}

TEST_F(data_corpus, a_tiny_fraction_still_holds_out_a_window) {
  write_many();
  EXPECT_GE(open_corpus(options(100, 1e-6)).validation->size(), 1);
}

TEST_F(data_corpus, binary_and_empty_files_of_folders_are_left_out_and_counted) {
  write("text", std::string(100, 'x'));
  write("binary", std::string("a\0b", 3));
  write("empty", "");
  const auto corpus = open_corpus(options(10));
  EXPECT_EQ(letters(*corpus.train), std::set<char>{'x'});
  const auto line = corpus.train->describe();
  EXPECT_NE(line.find("corpus: 1 files"), std::string::npos) << line;
  EXPECT_NE(line.find("2 binary or empty"), std::string::npos) << line;
}

TEST_F(data_corpus, a_binary_file_that_is_named_is_read) {
  write("binary", std::string("a\0b\0c\0d\0", 8));
  auto o = options(4);
  o.paths = {folder / "binary"};
  EXPECT_EQ(open_corpus(o).train->get({0}).input[0][1].item<int64_t>(), 0);
}

TEST_F(data_corpus, bad_input_is_one_clear_sentence) {
  EXPECT_NE(message(options(8)).find("UsageError: the corpus '" + folder.path() + "' is empty"),
            std::string::npos);
  write("a", "short");
  EXPECT_NE(message(options(8)).find("holds 6 bytes, fewer than one window of context + 1 = 9"),
            std::string::npos)
      << message(options(8));
  EXPECT_NE(message(options(3, 0.5)).find("fewer than two windows"), std::string::npos);
  auto missing = options(8);
  missing.paths = {folder / "none"};
  EXPECT_NE(message(missing).find("UsageError"), std::string::npos);
  missing.paths = {};
  EXPECT_NE(message(missing).find("UsageError"), std::string::npos);
  EXPECT_NE(message(options(0)).find("UsageError"), std::string::npos);
  EXPECT_NE(message(options(2, 1.0)).find("UsageError"), std::string::npos);
}

TEST_F(data_corpus, an_unreadable_file_is_named_with_the_reason) {
  write("secret", "0123456789");
  set_failpoints("file.open=error(13)");
  const auto text = message(options(4));
  set_failpoints("");
  EXPECT_NE(text.find("ResourceError"), std::string::npos) << text;
  EXPECT_NE(text.find("secret"), std::string::npos);
  EXPECT_NE(text.find("denied"), std::string::npos);
}

TEST_F(data_corpus, an_end_of_document_follows_each_file_and_tells_of_nothing) {
  write("b", "gh.j");
  write("a", "abcdef");
  auto o = options(4);
  o.end_of_document = '.';
  const auto corpus = open_corpus(o);  // "abcdef.gh.j."
  const MicroBatch m = corpus.train->get({0, 1});
  EXPECT_EQ(text_of(m.input[0]), "abcd");
  EXPECT_EQ(text_of(m.input[1]), "ef.g");
  EXPECT_TRUE(m.target[1].equal(at::tensor({int64_t{'f'}, int64_t{'.'}, kNoTarget, int64_t{'h'}})));
  EXPECT_EQ(m.weight, 7);
  EXPECT_EQ(m.row_weights, (std::vector<int64_t>{4, 3}));
  EXPECT_NE(corpus.identity, open_corpus(options(4)).identity);
  EXPECT_NE(corpus.train->describe().find("documents ended by byte 46"), std::string::npos);
}

}  // namespace corpus_test
