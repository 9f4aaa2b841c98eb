// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/word_piece.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/data/text/errors.h"
#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "trireme/base/error.h"
#include "trireme/base/lines.h"
#include "trireme/data/text/utf8.h"

namespace trireme::word_piece_test {
namespace {

using trireme::testing::Command;
using trireme::testing::source_path;

std::shared_ptr<const Vocabulary> vocabulary_of(const std::vector<std::string>& pieces) {
  std::string text = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n";
  for (const std::string& piece : pieces) text += piece + "\n";
  return std::make_shared<Vocabulary>(Vocabulary::from_text(text, "vocab.txt"));
}

std::vector<std::string> words_of(WordPieceTokenizer& tokenizer, std::string_view text) {
  std::vector<std::string> out;
  for (const TextPiece& piece : tokenizer.encode(text))
    out.push_back(tokenizer.vocabulary().piece(piece.id));
  return out;
}

std::vector<std::string> parts_of(WordPieceTokenizer& tokenizer, const std::string& text) {
  std::vector<std::string> out;
  for (const TextPiece& piece : tokenizer.encode(text))
    out.push_back(text.substr(piece.begin, piece.end - piece.begin));
  return out;
}

using Words = std::vector<std::string>;

TEST(data_text_word_piece, random_texts_have_the_pieces_of_the_published_algorithm) {
  const PrivateFolder folder;
  Command python({"/usr/bin/python3", source_path("/tests/data/text/bert_reference.py"),
                  folder.path(), "7", "800"});
  const int status = python.finish(std::chrono::seconds(120));
  if (status == 127) GTEST_SKIP() << "no python3";
  ASSERT_EQ(status, 0) << python.err;
  // Characters that another Unicode knows and ours does not are control characters of ours.
  if (python.out != "14.0.0") GTEST_SKIP() << "python3 has Unicode " << python.out;
  const std::map<std::string, WordPieceOptions> options{
      {"uncased", {}},
      {"cased", {.lower_case = false}},
      {"lower with accents", {.strip_accents = false}},
      {"cased without accents", {.lower_case = false, .strip_accents = true}},
      {"without cjk", {.split_cjk = false}}};
  const auto vocabulary = std::make_shared<Vocabulary>(Vocabulary::from_file(folder / "vocab.txt"));
  std::map<std::string, WordPieceTokenizer> tokenizers;
  for (const auto& [name, option] : options)
    tokenizers.emplace(name, WordPieceTokenizer(vocabulary, option));
  size_t pieces = 0, unknown = 0;
  for (const std::string& line : lines_of(read_file(folder / "texts.jsonl"))) {
    const auto told = nlohmann::json::parse(line);
    const auto text = told["text"].get<std::string>();
    for (auto& [name, tokenizer] : tokenizers) {
      const auto expected = told["pieces"][name].get<Words>();
      ASSERT_EQ(words_of(tokenizer, text), expected)
          << name << ": " << told["text"].dump(-1, ' ', true);
      pieces += expected.size();
      for (const std::string& piece : expected) unknown += piece == "[UNK]";
      // Once more, from the cache, and with the places in the text.
      uint32_t before = 0;
      for (const TextPiece& piece : tokenizer.encode(text)) {
        ASSERT_LT(piece.begin, piece.end);
        ASSERT_LE(piece.end, text.size());
        ASSERT_GE(piece.end, before);  // an accent's pieces share its bytes
        before = piece.begin;
        ASSERT_NE(utf8_at(text, piece.begin).bytes, 0u);
        ASSERT_TRUE(piece.end == text.size() || utf8_at(text, piece.end).bytes != 0);
      }
      ASSERT_EQ(words_of(tokenizer, text), expected) << name;
    }
  }
  EXPECT_GT(pieces, 30'000u);
  EXPECT_GT(pieces, 4 * unknown);
  EXPECT_GT(unknown, 300u);
}

// The tables are what this Python has: nobody edits them, and a new version is seen.
TEST(data_text_word_piece, the_tables_of_characters_are_made_by_the_script_beside_them) {
  Command python({"/usr/bin/python3", source_path("/trireme/data/text/unicode_tables.py")});
  const int status = python.finish(std::chrono::seconds(120));
  if (status == 127) GTEST_SKIP() << "no python3";
  ASSERT_EQ(status, 0) << python.err;
  if (python.out.find("// Of Unicode 14.0.0.") == std::string::npos)
    GTEST_SKIP() << "python3 has another Unicode";
  EXPECT_TRUE(python.out == read_file(source_path("/trireme/data/text/unicode_tables.h")));
}

TEST(data_text_word_piece, a_piece_says_which_bytes_of_the_text_it_stands_for) {
  WordPieceTokenizer tokenizer(vocabulary_of({"un", "##aff", "##able", "cafe", "##s", ",", "中"}));
  EXPECT_EQ(parts_of(tokenizer, " Unaffable,\tCafés 中中"),
            (Words{"Un", "aff", "able", ",", "Café", "s", "中", "中"}));
  // An accent that is a character of its own is left out, and so is a soft hyphen.
  EXPECT_EQ(parts_of(tokenizer, "cafe\u0301s"), (Words{"cafe", "s"}));
  EXPECT_EQ(parts_of(tokenizer, "un\u00adaffable"), (Words{"un", "aff", "able"}));
  EXPECT_EQ(parts_of(tokenizer, "unknown un"), (Words{"unknown", "un"}));
}

TEST(data_text_word_piece, a_text_cannot_hold_special_pieces) {
  WordPieceTokenizer tokenizer(vocabulary_of({"[", "]", "sep"}));
  EXPECT_EQ(words_of(tokenizer, "[SEP]"), (Words{"[", "sep", "]"}));
}

TEST(data_text_word_piece, a_word_of_more_than_100_characters_is_unknown) {
  WordPieceTokenizer tokenizer(vocabulary_of({"a", "##a"}));
  EXPECT_EQ(words_of(tokenizer, std::string(100, 'a')).size(), 100u);
  EXPECT_EQ(words_of(tokenizer, std::string(101, 'a')), Words{"[UNK]"});
  EXPECT_EQ(words_of(tokenizer, std::string(1'000'000, 'a')), Words{"[UNK]"});
}

TEST(data_text_word_piece, bytes_that_are_not_utf8_are_refused_by_their_place) {
  WordPieceTokenizer tokenizer(vocabulary_of({"a"}));
  for (const char* bad :
       {"\xff", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe4\xb8"}) {
    std::vector<TextPiece> out;
    EXPECT_ERROR(tokenizer.encode(std::string("a a") + bad, &out), Corrupt,
                 "byte 3 of the text is not UTF-8");
  }
  EXPECT_EQ(words_of(tokenizer, "a"), Words{"a"});  // and is as good as before
}

TEST(data_text_word_piece, many_different_words_do_not_change_what_comes_out) {
  // Several times what the cache holds.
  WordPieceTokenizer tokenizer(
      vocabulary_of({"0",   "1",   "2",   "3",   "4",   "5",   "6",   "7",   "8",   "9",
                     "##0", "##1", "##2", "##3", "##4", "##5", "##6", "##7", "##8", "##9"}));
  for (int round = 0; round < 2; ++round)
    for (int n = 0; n < 150'000; ++n) {
      const std::string word = std::to_string(n);
      const auto pieces = tokenizer.encode(word);
      ASSERT_EQ(pieces.size(), word.size());
      for (size_t i = 0; i < word.size(); ++i)
        ASSERT_EQ(pieces[i].id, 4 + (word[i] - '0') + (i > 0 ? 10 : 0));
    }
}

TEST(data_text_word_piece, options_that_mean_nothing_are_refused) {
  EXPECT_ERROR(WordPieceTokenizer(nullptr), UsageError, "without a vocabulary");
  EXPECT_ERROR(WordPieceTokenizer(vocabulary_of({}), {.max_word_chars = 0}), UsageError,
               "max_word_chars is 0: it must be at least 1");
}

TEST(data_text_vocabulary, a_damaged_file_is_refused_by_line) {
  const std::string start = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n";
  const auto read = [&](const std::string& more) {
    return Vocabulary::from_text(start + more, "vocab.txt");
  };
  EXPECT_ERROR(read("a\n\nb\n"), Corrupt, "vocab.txt:6: an empty line");
  EXPECT_ERROR(read("a\nb\na\n"), Corrupt, "vocab.txt:7: the piece 'a' is in line 5 already");
  EXPECT_ERROR(read("a\nxy\xffz\n"), Corrupt, "vocab.txt:6: byte 3 of the line is not UTF-8");
  EXPECT_ERROR(read(std::string(1001, 'a')), Corrupt, "vocab.txt:5: a piece of 1001 bytes");
  EXPECT_ERROR(Vocabulary::from_text("[PAD]\n[UNK]\n[CLS]\n", "vocab.txt"), UsageError,
               "vocab.txt: the vocabulary has no piece '[SEP]'");
  EXPECT_ERROR(Vocabulary::from_text("", "vocab.txt"), UsageError, "no piece '[PAD]'");
  EXPECT_ERROR(Vocabulary::from_file("/nowhere/vocab.txt"), UsageError,
               "the vocabulary /nowhere/vocab.txt does not exist");
}

TEST(data_text_vocabulary, line_ends_of_windows_and_a_missing_last_one_are_read) {
  const auto read =
      Vocabulary::from_text("\xEF\xBB\xBF[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\nab", "vocab.txt");
  EXPECT_EQ(read.size(), 5);
  EXPECT_EQ(read.id_of("ab"), 4);
  EXPECT_EQ(read.id_of("a"), std::nullopt);
  EXPECT_EQ(read.padding(), 0);
  EXPECT_EQ(read.separator(), 3);
  EXPECT_ERROR(read.piece(5), UsageError, "there is no piece 5: there are 5");
}

TEST(data_text_vocabulary, a_table_with_too_few_rows_is_refused) {
  const auto vocabulary = vocabulary_of({"a"});
  vocabulary->check_fits(5, "the embedding");
  vocabulary->check_fits(8, "the embedding");  // padded for speed
  EXPECT_ERROR(vocabulary->check_fits(4, "the embedding"), UsageError,
               "vocab.txt: the vocabulary has 5 pieces and the embedding has 4 rows");
}

}  // namespace
}  // namespace trireme::word_piece_test
