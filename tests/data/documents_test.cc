// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/sources/documents.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/refusals.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace documents_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

CorpusOptions options_of(const PrivateFolder& folder, int64_t context, double held_out = 0) {
  return {{folder.path()}, {}, context, held_out};
}

/// Document i as the text that it was cut from.
std::string text_of(const DataSource& source, int64_t i) {
  const MicroBatch m = source.get({i});
  std::string text(1, static_cast<char>(m.input[0][0].item<int64_t>()));
  for (int64_t k = 0; k < m.weight; ++k) {
    text += static_cast<char>(m.target[0][k].item<int64_t>());
    if (k + 1 < m.weight) {
      EXPECT_TRUE(m.input[0][k + 1].equal(m.target[0][k]));
    }
  }
  return text;
}

std::vector<std::string> texts_of(const DataSource& source) {
  std::vector<std::string> all;
  for (int64_t i = 0; i < source.size(); ++i) all.push_back(text_of(source, i));
  return all;
}

}  // namespace

TEST(data_documents, end_at_an_empty_line_at_the_context_or_with_the_file) {
  PrivateFolder folder;
  write_file_atomic(folder / "a.txt", "one\ntwo\n\n\n\nthree\n\nx\n\n\n");
  write_file_atomic(folder / "b.txt", "abcdefghij");
  const Corpus corpus = open_documents(options_of(folder, 8));
  EXPECT_EQ(texts_of(*corpus.train),
            (std::vector<std::string>{"one\ntwo\n", "three\n", "x\n", "abcdefghi", "ij"}));
  EXPECT_EQ(corpus.train->lengths(), (std::vector<int32_t>{7, 5, 1, 8, 1}));
  EXPECT_EQ(corpus.validation, nullptr);
}

TEST(data_documents, every_byte_but_the_first_is_a_target_once) {
  PrivateFolder folder;
  std::string text;
  for (int i = 0; i < 500; ++i) text += static_cast<char>('a' + i * 7 % 26);
  write_file_atomic(folder / "a.txt", text);
  for (int64_t context = 1; context < 20; ++context) {
    const Corpus corpus = open_documents(options_of(folder, context));
    std::string seen(1, text[0]);
    for (const auto& piece : texts_of(*corpus.train)) seen += piece.substr(1);
    EXPECT_EQ(seen, text) << context;
  }
}

TEST(data_documents, rows_are_padded_to_the_longest_of_them_and_padding_is_no_target) {
  PrivateFolder folder;
  write_file_atomic(folder / "a.txt", "abcd\n\nab\n\nabcdefgh\n");
  const Corpus corpus = open_documents(options_of(folder, 16));
  const MicroBatch m = corpus.train->get({0, 1});
  EXPECT_EQ(m.input.sizes(), (at::IntArrayRef{2, 4}));
  EXPECT_EQ(m.weight, 4 + 2);
  EXPECT_EQ(m.row_weights, (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(m.target[1][2].item<int64_t>(), kNoTarget);
  EXPECT_EQ(m.target.ne(kNoTarget).sum().item<int64_t>(), m.weight);
  const Batch parts = cut_micro_batch(corpus.train->get({0, 1, 2}), 2);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].weight, 6);
  EXPECT_EQ(parts[1].weight, 8);
}

TEST(data_documents, some_are_held_out_and_none_is_in_both) {
  PrivateFolder folder;
  for (int f = 0; f < 20; ++f) {
    std::string text;
    for (int i = 0; i < 30; ++i)
      text += "file " + std::to_string(f) + " part " + std::to_string(i) + "\n\n";
    write_file_atomic(folder / ("f" + std::to_string(f)), text);
  }
  for (const bool one_file : {false, true}) {
    CorpusOptions options = options_of(folder, 64, 0.1);
    if (one_file) options.paths = {folder / "f3"};
    const Corpus corpus = open_documents(options);
    ASSERT_NE(corpus.validation, nullptr);
    EXPECT_EQ(corpus.train->size() + corpus.validation->size(), one_file ? 30 : 600);
    EXPECT_EQ(corpus.validation->size(), one_file ? 3 : 60);
    auto train = texts_of(*corpus.train);
    for (const auto& text : texts_of(*corpus.validation))
      EXPECT_EQ(std::count(train.begin(), train.end(), text), 0) << text;
  }
}

TEST(data_documents, too_little_text_is_refused) {
  PrivateFolder folder;
  write_file_atomic(folder / "a.txt", "a");
  EXPECT_TRUE(has(refusal([&] { open_documents(options_of(folder, 8)); }), "too little text"));
}

}  // namespace documents_test
