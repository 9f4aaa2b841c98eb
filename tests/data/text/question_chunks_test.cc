// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/question_chunks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>
#include <set>

#include "tests/data/text/errors.h"
#include "trireme/data/text/sentences.h"

namespace trireme::question_chunks_test {
namespace {

constexpr int32_t kPadding = 0, kUnknown = 1, kFirst = 2, kSeparator = 3;

/// A vocabulary of w0 … w99 (4 to 103), which a text says as "w5"; and of a few signs.
WordPieceTokenizer tokenizer() {
  std::string text = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n";
  for (int i = 0; i < 100; ++i) text += "w" + std::to_string(i) + "\n";
  text += "p\n<\n>\n/\n.\nq\n##q\n";
  return WordPieceTokenizer(std::make_shared<Vocabulary>(Vocabulary::from_text(text, "vocab.txt")));
}

std::string words(int from, int to) {
  std::string text;
  for (int i = from; i < to; ++i) text += (text.empty() ? "w" : " w") + std::to_string(i);
  return text;
}

Question question_of(const std::string& document, const std::string& answer = "") {
  Question q;
  q.where = "nq.jsonl:1";
  q.id = "7";
  q.question = "w90 w91";
  q.document = document;
  if (answer.empty()) return q;
  q.answer_class = AnswerClass::short_answer;
  q.answer_begin = static_cast<uint32_t>(document.find(answer));
  q.answer_end = q.answer_begin + static_cast<uint32_t>(answer.size());
  return q;
}

constexpr ChunkOptions kSmall{.max_length = 15, .max_question = 2, .stride = 6};  // 10 for a chunk

struct Cut {
  uint32_t begin, end;
  int32_t start_id;
  bool operator==(const Cut&) const = default;
};
std::vector<Cut> cuts(const QuestionChunker& chunker) {
  std::vector<Cut> all;
  for (const DocumentChunk& chunk : chunker.chunks())
    all.push_back({chunk.begin, chunk.end, chunk.start_id});
  return all;
}

TEST(data_text_question_chunks, by_stride_each_chunk_is_full_and_knows_whether_it_answers) {
  QuestionChunker chunker(tokenizer(), kSmall);
  chunker.cut(question_of(words(0, 20), "w8 w9"));
  // [CLS] w90 w91 [SEP] and then the chunk: piece 8 is the ninth of the first, the third of the
  // second.
  EXPECT_EQ(cuts(chunker), (std::vector<Cut>{{0, 10, 12}, {6, 16, 6}, {12, 20, -1}, {18, 20, -1}}));
  EXPECT_EQ(chunker.chunks()[0].end_id, 14);  // behind the last piece: [SEP]
  QuestionSample sample;
  chunker.sample(1, &sample);
  EXPECT_EQ(sample.input_ids, (std::vector<int32_t>{kFirst, 94, 95, kSeparator, 10, 11, 12, 13, 14,
                                                    15, 16, 17, 18, 19, kSeparator}));
  EXPECT_EQ(sample.answer_class, AnswerClass::short_answer);
  EXPECT_EQ(std::vector<int32_t>(sample.input_ids.begin() + sample.start_id,
                                 sample.input_ids.begin() + sample.end_id),
            (std::vector<int32_t>{12, 13}));
  EXPECT_FLOAT_EQ(sample.start_position, 6.0f / 15);
  EXPECT_FLOAT_EQ(sample.end_position, 8.0f / 15);
  EXPECT_EQ(sample.id, "7");
  chunker.sample(2, &sample);
  EXPECT_EQ(sample.answer_class, AnswerClass::unknown);
  EXPECT_EQ(sample.start_id, -1);
  EXPECT_EQ(sample.start_position, -1);
}

// The published recipe gives such a document the position of its last piece.
TEST(data_text_question_chunks, a_document_without_an_answer_has_no_position_in_any_chunk) {
  QuestionChunker chunker(tokenizer(), kSmall);
  chunker.cut(question_of(words(0, 20)));
  for (const DocumentChunk& chunk : chunker.chunks()) {
    EXPECT_EQ(chunk.answer_class, AnswerClass::unknown);
    EXPECT_EQ(chunk.start_id, -1);
    EXPECT_EQ(chunk.end_id, -1);
  }
}

TEST(data_text_question_chunks, every_answer_is_found_in_its_chunk_whatever_the_sizes) {
  size_t answered = 0;
  for (const bool by_sentence : {false, true})
    for (const int length : {8, 15, 30, 200})
      for (int begin = 0; begin < 40; ++begin)
        for (const int size : {1, 2, 3}) {
          QuestionChunker chunker(
              tokenizer(),
              {.max_length = length, .max_question = 2, .stride = 2, .by_sentence = by_sentence});
          std::string document = words(0, 13) + " . " + words(13, 15) + " . " + words(15, 45);
          Question q = question_of(document, words(begin, begin + 1));
          const std::string last = words(begin + size - 1, begin + size);
          q.answer_end = static_cast<uint32_t>(document.find(last) + last.size());
          chunker.cut(q);
          std::vector<bool> seen(chunker.pieces().size());
          for (size_t i = 0; i < chunker.chunks().size(); ++i) {
            const DocumentChunk& chunk = chunker.chunks()[i];
            QuestionSample sample;
            chunker.sample(i, &sample);
            ASSERT_LE(sample.input_ids.size(), static_cast<size_t>(length));
            for (uint32_t p = chunk.begin; p < chunk.end; ++p) seen[p] = true;
            if (chunk.start_id < 0) continue;
            ++answered;
            ASSERT_EQ(sample.input_ids[static_cast<size_t>(chunk.start_id)], 4 + begin);
            ASSERT_EQ(sample.input_ids[static_cast<size_t>(chunk.end_id) - 1],
                      4 + begin + size - 1);
          }
          ASSERT_EQ(std::count(seen.begin(), seen.end(), false), 0);
        }
  EXPECT_GT(answered, 1000u);
}

TEST(data_text_question_chunks, by_sentence_a_chunk_begins_and_ends_with_sentences) {
  QuestionChunker chunker(tokenizer(), {.max_length = 15, .max_question = 2, .by_sentence = true});
  // 4, 5, 3 and 12 pieces; the last is longer than a chunk.
  const std::string document = "w0 w1 w2 . W3 w4 w5 w6 . W7 w8 . W9 " + words(10, 20) + " .";
  chunker.cut(question_of(document, "w8"));
  EXPECT_EQ(cuts(chunker),
            (std::vector<Cut>{{0, 9, -1}, {4, 12, 10}, {9, 12, 5}, {12, 22, -1}, {22, 24, -1}}));
}

TEST(data_text_question_chunks, sentences_end_where_a_reader_would_say) {
  const auto parts = [](const std::string& text) {
    std::vector<std::string> out;
    const auto begins = sentence_begins(text);
    for (size_t i = 0; i < begins.size(); ++i)
      out.push_back(text.substr(
          begins[i], i + 1 < begins.size() ? begins[i + 1] - begins[i] : std::string::npos));
    return out;
  };
  using Parts = std::vector<std::string>;
  EXPECT_EQ(parts("It sank . It was new."), (Parts{"It sank . ", "It was new."}));
  EXPECT_EQ(parts("Why? Because! \"Yes.\" (No.) Ok"),
            (Parts{"Why? ", "Because! ", "\"Yes.\" ", "(No.) ", "Ok"}));
  EXPECT_EQ(parts("Mr. Smith of the U.S. Army, J. Doe et al. wrote e.g. this"),
            Parts{"Mr. Smith of the U.S. Army, J. Doe et al. wrote e.g. this"});
  EXPECT_EQ(parts("He said . '' She left"), (Parts{"He said . '' ", "She left"}));
  EXPECT_EQ(parts(""), Parts{""});
}

TEST(data_text_question_chunks, tags_are_left_out_and_answers_keep_their_place) {
  const std::string document = "<P> w1 w2 </P> <Table> <Tr> w3 w<4> <> <b w5 </P>";
  QuestionChunker chunker(tokenizer(),
                          {.max_length = 100, .max_question = 2, .stride = 90, .drop_tags = true});
  chunker.cut(question_of(document, "<P> w1 w2 </P>"));
  QuestionSample sample;
  chunker.sample(0, &sample);
  EXPECT_EQ(sample.start_id, 4);
  EXPECT_EQ(sample.end_id, 6);
  std::vector<std::string> seen;
  for (const TextPiece& piece : chunker.pieces())
    seen.push_back(document.substr(piece.begin, piece.end - piece.begin));
  EXPECT_EQ(seen, (std::vector<std::string>{"w1", "w2", "w3", "w", "<", "4", ">", "<", ">", "<",
                                            "b", "w5"}));
  EXPECT_ERROR(chunker.cut(question_of(document, "<Table> <Tr>")), Corrupt,
               "nq.jsonl:1: no piece of the document is in the answer");
  EXPECT_ERROR(chunker.cut(question_of("<P> </P>")), Corrupt,
               "nq.jsonl:1: the document has no piece");
}

TEST(data_text_question_chunks, a_long_question_is_cut_and_its_room_goes_to_the_document) {
  Question q = question_of(words(0, 30), "w2");
  q.question = words(50, 80);
  QuestionChunker chunker(tokenizer(), {.max_length = 20, .max_question = 5, .stride = 6});
  chunker.cut(q);
  EXPECT_EQ(chunker.chunks()[0].end, 12u);
  q.question = "w50";
  chunker.cut(q);
  EXPECT_EQ(chunker.chunks()[0].end, 16u);
  EXPECT_EQ(chunker.chunks()[0].start_id, 5);
}

TEST(data_text_question_chunks, chunks_are_chosen_by_weight_and_by_seed_epoch_and_sample_alone) {
  QuestionChunker chunker(
      tokenizer(),
      {.max_length = 15, .max_question = 2, .stride = 10, .weights = {1, 1, 1, 1, 0.5}});
  chunker.cut(question_of(words(0, 30), "w12"));
  ASSERT_EQ(chunker.chunks().size(), 3u);  // of weights 0.5, 1 and 0.5
  std::array<double, 3> chosen{};
  for (int sample = 0; sample < 20000; ++sample)
    chosen[chunker.choose(1, 0, sample)] += 1.0 / 20000;
  EXPECT_NEAR(chosen[0], 0.25, 0.015);
  EXPECT_NEAR(chosen[1], 0.5, 0.015);
  QuestionChunker other(
      tokenizer(),
      {.max_length = 15, .max_question = 2, .stride = 10, .weights = {1, 1, 1, 1, 0.5}});
  other.cut(question_of(words(0, 30), "w12"));
  int epochs_differ = 0, seeds_differ = 0;
  for (int sample = 0; sample < 200; ++sample) {
    EXPECT_EQ(chunker.choose(1, 5, sample), other.choose(1, 5, sample));
    epochs_differ += chunker.choose(1, 5, sample) != chunker.choose(1, 6, sample);
    seeds_differ += chunker.choose(1, 5, sample) != chunker.choose(2, 5, sample);
  }
  EXPECT_GT(epochs_differ, 80);
  EXPECT_GT(seeds_differ, 80);
}

TEST(data_text_question_chunks, a_weight_of_0_is_never_chosen_unless_all_have_it) {
  QuestionChunker chunker(
      tokenizer(), {.max_length = 15, .max_question = 2, .stride = 10, .weights = {1, 1, 1, 1, 0}});
  chunker.cut(question_of(words(0, 30), "w12"));
  for (int sample = 0; sample < 1000; ++sample) ASSERT_EQ(chunker.choose(1, 0, sample), 1u);
  chunker.cut(question_of(words(0, 30)));
  std::array<int, 3> chosen{};
  for (int sample = 0; sample < 1000; ++sample) ++chosen[chunker.choose(1, 0, sample)];
  for (const int times : chosen) EXPECT_GT(times, 250);
}

TEST(data_text_question_chunks, a_batch_is_padded_to_its_longest_row) {
  QuestionChunker chunker(tokenizer(), kSmall);
  chunker.cut(question_of(words(0, 13), "w1"));
  std::vector<QuestionSample> samples(2);
  chunker.sample(2, &samples[0]);
  chunker.sample(0, &samples[1]);
  const QuestionBatch batch = collate(samples, kPadding);
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.length, 15);
  const auto row = [&](const std::vector<int64_t>& all, int r) {
    return std::vector<int64_t>(all.begin() + 15 * r, all.begin() + 15 * (r + 1));
  };
  EXPECT_EQ(row(batch.input_ids, 0),
            (std::vector<int64_t>{2, 94, 95, 3, 16, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(row(batch.token_types, 0),
            (std::vector<int64_t>{0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(row(batch.attention_mask, 0),
            (std::vector<int64_t>{1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(row(batch.attention_mask, 1), std::vector<int64_t>(15, 1));
  EXPECT_EQ(batch.start_ids, (std::vector<int64_t>{-1, 5}));
  EXPECT_EQ(batch.classes, (std::vector<int64_t>{4, 2}));
  EXPECT_ERROR(collate({}, kPadding), UsageError, "a batch of no samples");
}

TEST(data_text_question_chunks, a_split_takes_its_fraction_of_each_class) {
  std::vector<AnswerClass> classes;
  const std::array<int, 5> counts{1, 2, 100, 300, 1000};
  for (int c = 0; c < 5; ++c)
    for (int i = 0; i < counts[static_cast<size_t>(c)]; ++i)
      classes.push_back(static_cast<AnswerClass>(c));
  const StratifiedSplit split = stratified_split(classes, 0.05, 1);
  EXPECT_EQ(split.train.size() + split.validation.size(), classes.size());
  std::array<int, 5> held{};
  for (const int64_t i : split.validation)
    ++held[static_cast<size_t>(classes[static_cast<size_t>(i)])];
  EXPECT_EQ(held, (std::array<int, 5>{0, 1, 5, 15, 50}));
  EXPECT_TRUE(std::is_sorted(split.train.begin(), split.train.end()));
  EXPECT_EQ(stratified_split(classes, 0.05, 1).validation, split.validation);
  EXPECT_NE(stratified_split(classes, 0.05, 2).validation, split.validation);
  EXPECT_TRUE(stratified_split(classes, 0, 1).validation.empty());
  EXPECT_TRUE(stratified_split({}, 0.5, 1).train.empty());
  EXPECT_ERROR(stratified_split(classes, 1, 1), UsageError, "the fraction that validates is 1");
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
    return "";
  } catch (const Corrupt& error) {
    return error.what();
  }
}

TEST(data_text_question_chunks, the_quick_check_refuses_what_cutting_would_and_nothing_else) {
  std::mt19937 random(1);
  const std::vector<std::string> parts{"w1",     "w2 ",   " ",      "<P>",    " <P> ",
                                       "\u200b", "<b>w3", "\u0301", "\u00a0", "\t",
                                       "w4w5 ",  ">",     "\u4e2d", "w6 w7"};
  ChunkOptions options{.max_length = 100, .max_question = 2, .stride = 90};
  QuestionChunker plain(tokenizer(), options), plain_too(tokenizer(), options);
  options.drop_tags = true;
  QuestionChunker dropping(tokenizer(), options), dropping_too(tokenizer(), options);
  std::set<std::string> reasons;
  int good = 0;
  for (int i = 0; i < 6000; ++i) {
    const bool long_one = i % 50 == 0;  // longer than what is looked at
    Question q = question_of("");
    for (size_t n = 1 + random() % 7; n > 0; --n) q.document += parts[random() % parts.size()];
    if (long_one) q.document = std::string(random() % 300, ' ') + q.document + words(0, 60);
    if (random() % 8 == 0) q.question = parts[random() % parts.size()];
    if (random() % 4 != 0) {
      q.answer_class = AnswerClass::short_answer;
      const auto place = [&] {
        size_t at = random() % (q.document.size() + 1);
        while (at < q.document.size() && (q.document[at] & 0xC0) == 0x80) ++at;
        return static_cast<uint32_t>(at);
      };
      q.answer_begin = place();
      q.answer_end = std::max(q.answer_begin, place());
    }
    QuestionChunker &one = i % 2 == 0 ? plain : dropping,
                    &other = i % 2 == 0 ? plain_too : dropping_too;
    const std::string cut = error_of([&] { one.cut(q); });
    ASSERT_EQ(error_of([&] { other.check_cuttable(q); }), cut)
        << '"' << q.document << "\" " << q.answer_begin << " " << q.answer_end;
    if (cut.empty())
      ++good;
    else
      reasons.insert(cut.substr(0, cut.find(" bytes")));
  }
  EXPECT_GT(good, 2000);
  EXPECT_EQ(reasons.size(),
            4u);  // no piece in the question, the document, the answer; an empty answer
}

TEST(data_text_question_chunks, bad_options_and_bad_questions_are_refused) {
  const auto with = [](const ChunkOptions& options) {
    QuestionChunker chunker(tokenizer(), options);
  };
  EXPECT_ERROR(with({.max_length = 67}), UsageError, "max_length 67 leaves no room for a document");
  EXPECT_ERROR(with({.max_question = 0}), UsageError, "max_question is 0");
  EXPECT_ERROR(with({.stride = 0}), UsageError, "stride is 0");
  EXPECT_ERROR(with({.stride = 318}), UsageError,
               "a stride of 318 leaves out text between chunks, which may have 317 pieces");
  EXPECT_ERROR(with({.weights = {1, 1, 1, 1, -1}}), UsageError, "a chunk's weight is -1");
  EXPECT_ERROR(with({.weights = {1, 1, 1, 1, std::nan("")}}), UsageError,
               "a chunk's weight is nan");
  EXPECT_ERROR(with({.weights = {0, 0, 0, 0, 0}}), UsageError, "all 0");
  QuestionChunker chunker(tokenizer(), kSmall);
  EXPECT_ERROR(chunker.choose(1, 0, 0), UsageError, "cut() comes first");
  QuestionSample sample;
  EXPECT_ERROR(chunker.sample(0, &sample), UsageError, "there is no chunk 0: there are 0");
  EXPECT_ERROR(chunker.cut(question_of("\u200b")), Corrupt,
               "nq.jsonl:1: the document has no piece");
  EXPECT_ERROR(chunker.cut(question_of("w1 \xff")), Corrupt,
               "nq.jsonl:1: byte 3 of the text is not UTF-8");
  Question outside = question_of("w1 w2", "w2");
  outside.answer_end = 99;
  EXPECT_ERROR(chunker.cut(outside), Corrupt,
               "the answer is bytes 3 to 99, and the document has 5");
  EXPECT_EQ(kUnknown, tokenizer().vocabulary().unknown());
}

}  // namespace
}  // namespace trireme::question_chunks_test
