// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/sources/question_source.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "tests/data/text/errors.h"
#include "tests/data/text/made_questions.h"
#include "tests/support/captured_log.h"
#include "trireme/base/file.h"
#include "trireme/data/loader.h"
#include "trireme/data/text/natural_questions.h"
#include "trireme/data/text/prepared/prepared_questions.h"

namespace trireme::question_source_test {
namespace {

using namespace made_questions;

/// A file with its vocabulary; chunks of up to 10 pieces, one each 6.
struct Made {
  explicit Made(const std::string& text, const std::string& pieces = vocabulary_text()) {
    write_file_atomic(folder / "questions", text);
    write_file_atomic(folder / "vocab.txt", pieces);
    options.path = folder / "questions";
    options.vocabulary = folder / "vocab.txt";
    options.chunks = {.max_length = 15, .max_question = 2, .stride = 6};
    options.held_out_fraction = 0;
  }
  QuestionData open() const { return open_questions(options); }
  PrivateFolder folder;
  QuestionOptions options;
};

/// Questions whose documents have 20 to 35 words, three of four of them with an answer.
std::string lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    const int begin = 3 + i % 15;
    const Annotation of[] = {{.begin = begin, .end = begin + 3},
                             {},
                             {.yes_no = "YES", .begin = begin, .end = begin + 2},
                             {.begin = 0, .end = 19, .short_begin = begin, .short_end = begin + 1}};
    text += natural_question(i, words(i % 40, i % 40 + 20 + i % 16), of[i % 4]) + "\n";
  }
  return text;
}

std::vector<int64_t> all_of(const DataSource& source) {
  std::vector<int64_t> ids(static_cast<size_t>(source.size()));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

bool same(const MicroBatch& a, const MicroBatch& b) {
  if (!a.input.equal(b.input) || a.samples != b.samples || a.weight != b.weight) return false;
  for (size_t i = 0; i < a.more.size(); ++i)
    if (a.more[i].first != b.more[i].first || !a.more[i].second.equal(b.more[i].second))
      return false;
  return a.more.size() == b.more.size();
}

TEST(data_question_source, a_micro_batch_has_the_tensors_of_its_questions) {
  const Made made(natural_question(1, words(0, 9), {.begin = 2, .end = 4}) + "\n" +
                  natural_question(2, "w5") + "\n");
  const QuestionData data = made.open();
  EXPECT_EQ(data.train->size(), 2);
  EXPECT_EQ(data.held_out, nullptr);
  const MicroBatch batch = data.train->get({0, 1});
  ASSERT_EQ(batch.input.sizes(), (at::IntArrayRef{2, 14}));
  // [CLS] w90 w91 [SEP] w0 … w8 [SEP]
  EXPECT_TRUE(batch.input.equal(at::tensor({2, 94, 95, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 3,  //
                                            2, 94, 95, 3, 9, 3, 0, 0, 0, 0, 0,  0,  0,  0},
                                           at::kLong)
                                    .view({2, 14})));
  EXPECT_TRUE(batch.tensor("token_types").sum(1).equal(at::tensor({10, 2}, at::kLong)));
  EXPECT_TRUE(batch.tensor("attention_mask").sum(1).equal(at::tensor({14, 6}, at::kLong)));
  EXPECT_TRUE(batch.tensor("start_ids").equal(at::tensor({6, -1}, at::kLong)));
  EXPECT_TRUE(batch.tensor("end_ids").equal(at::tensor({8, -1}, at::kLong)));
  EXPECT_TRUE(batch.tensor("classes").equal(at::tensor({3, 4}, at::kLong)));
  EXPECT_TRUE(batch.tensor("start_positions").allclose(at::tensor({6.0f / 15, -1.0f})));
  EXPECT_TRUE(batch.tensor("end_positions").allclose(at::tensor({8.0f / 15, -1.0f})));
  EXPECT_EQ(batch.weight, 2);
  EXPECT_EQ(batch.samples, (std::vector<int64_t>{0, 1}));
  EXPECT_ERROR(data.train->get({2}), UsageError, "there is no sample 2: there are 2");
  EXPECT_ERROR(data.train->get({-1}), UsageError, "there is no sample -1");
}

TEST(data_question_source, what_is_shown_is_a_function_of_seed_epoch_and_question_alone) {
  Made made(lines(40));
  made.options.chunks.weights = {1, 1, 1, 1, 1};
  const QuestionData data = made.open();
  const auto ids = all_of(*data.train);
  const MicroBatch first = data.train->get_in_epoch(ids, 0);
  EXPECT_TRUE(same(first, data.train->get(ids)));
  EXPECT_FALSE(same(first, data.train->get_in_epoch(ids, 1)));
  Made other(lines(40));
  other.options.chunks.weights = made.options.chunks.weights;
  other.options.keep_bytes = 0;
  EXPECT_TRUE(same(first, other.open().train->get(ids)));
  other.options.seed = 43;
  EXPECT_FALSE(same(first, other.open().train->get(ids)));
  // One by one, and in another order, as other ranks read them.
  for (const int64_t id : {39, 3, 17, 3}) {
    const MicroBatch one = data.train->get({id});
    const int64_t length = one.input.size(1);
    EXPECT_TRUE(one.input[0].equal(first.input[id].narrow(0, 0, length)));
    EXPECT_TRUE(one.tensor("start_ids")[0].equal(first.tensor("start_ids")[id]));
  }
}

TEST(data_question_source, a_loader_shows_each_epoch_of_a_run_on_any_number_of_ranks) {
  Made made(lines(24));
  made.options.chunks.weights = {1, 1, 1, 1, 1};
  const QuestionData data = made.open();
  const GlobalBatch plan({.dataset_size = 24, .leaf_size = 3, .leaves = 4});
  const auto rows = [&](int world) {
    std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>> seen;  // step and sample: chunk
    for (int rank = 0; rank < world; ++rank) {
      const auto make = leaf_batches(data.train, plan, rank, world);
      for (int64_t step = 0; step < 6; ++step)  // three epochs
        for (const MicroBatch& micro : make(step))
          for (size_t row = 0; row < micro.samples.size(); ++row) {
            const at::Tensor of = micro.input[static_cast<int64_t>(row)];
            std::vector<int64_t> pieces(of.data_ptr<int64_t>(),
                                        of.data_ptr<int64_t>() + of.numel());
            while (pieces.back() == 0) pieces.pop_back();
            seen[{step, micro.samples[row]}] = pieces;
          }
    }
    return seen;
  };
  const auto one = rows(1);
  EXPECT_EQ(one.size(), 72u);
  EXPECT_EQ(rows(2), one);
  EXPECT_EQ(rows(4), one);
  std::set<std::vector<int64_t>> different;
  for (const auto& [place, pieces] : one) different.insert(pieces);
  EXPECT_GT(different.size(), 40u);  // not the same 24 in each epoch
}

TEST(data_question_source, threads_that_read_at_once_get_what_one_gets) {
  for (const int64_t keep : {int64_t{0}, int64_t{2000}, int64_t{1} << 20}) {
    Made made(lines(30));
    made.options.keep_bytes = keep;
    const QuestionData data = made.open();
    std::vector<MicroBatch> expected;
    for (int64_t epoch = 0; epoch < 4; ++epoch)
      expected.push_back(data.train->get_in_epoch(all_of(*data.train), epoch));
    std::vector<std::thread> threads;
    std::vector<int> right(4);
    for (int64_t epoch = 0; epoch < 4; ++epoch)
      threads.emplace_back([&, epoch] {
        const auto at = static_cast<size_t>(epoch);
        for (int i = 0; i < 10; ++i)
          right[at] += same(data.train->get_in_epoch(all_of(*data.train), epoch), expected[at]);
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(right, std::vector<int>(4, 10));
  }
}

TEST(data_question_source, held_out_questions_show_each_of_their_chunks_and_are_not_trained_on) {
  Made made(lines(60));
  made.options.held_out_fraction = 0.1;
  const QuestionData data = made.open();
  std::set<int64_t> trained, held;
  for (int64_t i = 0; i < data.train->size(); ++i) trained.insert(data.train->question_of(i));
  QuestionChunker chunker(WordPieceTokenizer(data.vocabulary), made.options.chunks);
  int64_t sample = 0;
  while (sample < data.held_out->size()) {
    const int64_t number = data.held_out->question_of(sample);
    EXPECT_TRUE(held.insert(number).second);
    EXPECT_FALSE(trained.contains(number));
    chunker.cut(data.held_out->read(number));
    for (size_t i = 0; i < chunker.chunks().size(); ++i, ++sample) {
      ASSERT_EQ(data.held_out->question_of(sample), number);
      QuestionSample expected;
      chunker.sample(i, &expected);
      const MicroBatch batch = data.held_out->get_in_epoch({sample}, 7);  // no epoch changes it
      ASSERT_TRUE(batch.input[0].equal(at::tensor(expected.input_ids, at::kLong)));
      ASSERT_EQ(batch.tensor("classes")[0].item<int64_t>(),
                static_cast<int64_t>(expected.answer_class));
    }
  }
  EXPECT_EQ(held.size() + trained.size(), 60u);
  EXPECT_EQ(held.size(), 8u);  // a tenth of each of 4 classes, rounded up
  EXPECT_EQ(data.held_out->questions(), 8);
  EXPECT_ERROR(data.held_out->question_of(sample), UsageError, "there is no chunk");
  EXPECT_ERROR(data.train->text_of(0, 4, 5), UsageError, "ask held-out data");
}

TEST(data_question_source, a_file_of_its_own_can_be_held_out) {
  const std::string context = words(0, 30);
  Made made(squad(context, squad_question("a", "w3", 9)));
  write_file_atomic(made.folder / "dev",
                    squad(context, squad_question("b", "w20 w21", context.find("w20")) + "," +
                                       squad_question("c", "", 0)));
  made.options.held_out_path = made.folder / "dev";
  const QuestionData data = made.open();
  EXPECT_EQ(data.train->size(), 1);
  EXPECT_EQ(data.held_out->questions(), 2);
  EXPECT_EQ(data.held_out->read(0).id, "b");
  made.options.held_out_fraction = 0.1;
  EXPECT_ERROR(made.open(), UsageError, "is held out, and a fraction of");
}

TEST(data_question_source, text_is_the_documents_own) {
  Made made(squad("w1 W2, é w3!  w4 w5", squad_question("a", "w3", 9)));
  write_file_atomic(made.folder / "vocab.txt", vocabulary_text() + ",\n!\ne\n");
  made.options.held_out_path = made.options.path;
  const QuestionData data = made.open();
  ASSERT_EQ(data.held_out->size(), 2);
  // [CLS] w90 w91 [SEP] w1 w2 , e w3 ! w4 w5
  EXPECT_EQ(data.held_out->text_of(0, 4, 6), "w1 W2");
  EXPECT_EQ(data.held_out->text_of(0, 6, 11), ", é w3!  w4");
  EXPECT_EQ(data.held_out->text_of(0, 11, 12), "w5");
  EXPECT_EQ(data.held_out->text_of(1, 4, 6), "w4 w5");  // the chunk that begins at the seventh
  EXPECT_ERROR(data.held_out->text_of(0, 3, 5), UsageError, "whose chunk is 4 to 12");
  EXPECT_ERROR(data.held_out->text_of(0, 5, 5), UsageError, "pieces 5 to 5");
  EXPECT_ERROR(data.held_out->text_of(0, 5, 13), UsageError, "pieces 5 to 13");
}

/// Logits of somebody who knows the answers, but for the samples that are `wrong`.
std::vector<ChunkPrediction> oracle(const QuestionSource& source, const std::vector<int64_t>& ids,
                                    int64_t wrong = -1) {
  const MicroBatch batch = source.get(ids);
  at::Tensor starts = at::zeros(batch.input.sizes()), ends = at::zeros(batch.input.sizes());
  const at::Tensor classes = at::one_hot(batch.tensor("classes"), 5).to(at::kFloat) * 4;
  for (int64_t row = 0; row < batch.input.size(0); ++row) {
    const auto s = batch.tensor("start_ids")[row].item<int64_t>(),
               e = batch.tensor("end_ids")[row].item<int64_t>();
    if (s < 0) continue;
    starts[row][batch.samples[static_cast<size_t>(row)] == wrong ? 4 : s] = 5;
    ends[row][e] = 6;
  }
  return predict_chunks(batch, starts.to(at::kDouble), ends, classes);
}

TEST(data_question_source, right_logits_give_the_whole_mark_on_any_number_of_ranks) {
  Made made(lines(60));
  made.options.held_out_fraction = 0.2;
  made.options.bad = OnBadSample::stop;
  const auto held_out = made.open().held_out;
  const auto ids = all_of(*held_out);
  const QuestionEvaluation one = evaluate_questions(*held_out, oracle(*held_out, ids));
  // Where no chunk holds the whole answer, nobody can give it.
  EXPECT_EQ(one.answers.total, 12);
  EXPECT_EQ(one.answers.exact, 12);
  EXPECT_EQ(one.answers.f1, 12);
  EXPECT_EQ(one.answers.without_answer, 3);
  EXPECT_EQ(one.chunks.class_accuracy, 1);
  EXPECT_EQ(one.chunks.start_accuracy, 1);
  EXPECT_EQ(one.chunks.map, 1);
  EXPECT_EQ(one.chunks.total, held_out->size());
  for (const size_t ranks : {2u, 3u}) {
    std::vector<ChunkPrediction> gathered;
    for (size_t rank = ranks; rank-- > 0;) {
      std::vector<int64_t> mine{0};
      for (size_t i = rank; i < ids.size(); i += ranks) mine.push_back(ids[i]);
      for (const ChunkPrediction& p : oracle(*held_out, mine)) gathered.push_back(p);
    }
    const QuestionEvaluation together = evaluate_questions(*held_out, gathered);
    EXPECT_EQ(together.answers.exact, 12);
    EXPECT_EQ(together.answers.total, 12);
    EXPECT_EQ(together.chunks.total, held_out->size());
    EXPECT_EQ(together.chunks.map, 1);
  }
  const auto start = [&](int64_t sample) {
    return sample < 0 ? -1 : held_out->get({sample}).tensor("start_ids").item<int64_t>();
  };
  int64_t answered = 0;  // the first chunk with a question's answer, not at its beginning
  while (start(answered) < 5 || start(answered - 1) >= 0) ++answered;
  const QuestionEvaluation worse = evaluate_questions(*held_out, oracle(*held_out, ids, answered));
  EXPECT_LT(worse.answers.f1, 12);
  EXPECT_LT(worse.chunks.start_accuracy, 1);
}

TEST(data_question_source, bad_samples_are_named_with_file_line_and_reason_or_left_out_alike) {
  const std::string good = lines(2);
  Made made(good + natural_question(7, "w1 <P> w2", {.begin = 1, .end = 2}) + "\n" +
            natural_question(8, "\u200b") + "\n" + good + "{\"document_text\":\"w\n" +
            natural_question(9, "w1", {}, "\u200b") + "\n");
  made.options.chunks.drop_tags = true;
  const std::string path = made.options.path;
  EXPECT_ERROR(made.open(), Corrupt, path + ":3: no piece of the document is in the answer; mend");
  made.options.bad = OnBadSample::skip;
  for (int rank = 0; rank < 2; ++rank) {
    const QuestionData data = made.open();
    EXPECT_EQ(data.train->size(), 4);
    EXPECT_EQ(data.left_out, 4);
    EXPECT_EQ(data.first_left_out,
              (std::vector<std::string>{
                  path + ":3: no piece of the document is in the answer",
                  path + ":4: the document has no piece",
                  path + ":7: the line ends within its JSON: the file may have been cut off",
                  path + ":8: the question has no piece"}));
    EXPECT_EQ(data.train->get(all_of(*data.train)).input.size(0), 4);
  }
  const Made none("{\"question_text\":\"x\"}\n");
  QuestionOptions options = none.options;
  options.bad = OnBadSample::skip;
  EXPECT_ERROR(open_questions(options), UsageError,
               "no questions; 1 bad ones are left out, the first: " + options.path +
                   ":1: no 'document_text'");
}

TEST(data_question_source, options_and_files_that_do_not_fit_are_refused) {
  Made made(lines(8));
  const auto with = [&](auto change) {
    QuestionOptions options = made.options;
    change(options);
    open_questions(options);
  };
  EXPECT_ERROR(with([](auto& o) { o.path = ""; }), UsageError, "no file is given");
  EXPECT_ERROR(with([](auto& o) { o.path = "/nowhere"; }), UsageError, "does not exist");
  EXPECT_ERROR(with([](auto& o) { o.vocabulary = ""; }), UsageError, "take the vocab.txt");
  EXPECT_ERROR(with([](auto& o) { o.vocabulary = "/nowhere"; }), UsageError,
               "the vocabulary /nowhere does not exist");
  EXPECT_ERROR(with([](auto& o) { o.special.separator = "</s>"; }), UsageError,
               "the vocabulary has no piece '</s>'");
  EXPECT_ERROR(with([](auto& o) { o.keep_bytes = -1; }), UsageError, "keep_bytes is -1");
  EXPECT_ERROR(with([](auto& o) { o.chunks.stride = 0; }), UsageError, "stride is 0");
  EXPECT_ERROR(with([](auto& o) { o.held_out_fraction = 1; }), UsageError, "it must be from 0");
  Made few(lines(3));
  few.options.held_out_fraction = 0.5;
  EXPECT_ERROR(few.open(), UsageError, "3 questions are too few to hold out 0.5 of each class");
  // As many rows as the published weights have, and one less.
  const auto vocabulary = made.open().vocabulary;
  vocabulary->check_fits(vocabulary->size(), "bert.word_embeddings");
  EXPECT_ERROR(vocabulary->check_fits(vocabulary->size() - 1, "bert.word_embeddings"), UsageError,
               "pieces and bert.word_embeddings has");
  const Made twice(lines(8), vocabulary_text() + "w1\n");
  EXPECT_ERROR(twice.open(), Corrupt, "vocab.txt:110: the piece 'w1' is in line 6 already");
}

TEST(data_question_source, what_changes_samples_changes_the_identity_and_nothing_else_does) {
  Made made(lines(20));
  const uint64_t identity = made.open().identity;
  EXPECT_EQ(Made(lines(20)).open().identity, identity);
  made.options.keep_bytes = 7;
  EXPECT_EQ(made.open().identity, identity);
  const auto with = [&](auto change) {
    Made other(lines(20));
    change(other.options);
    return other.open().identity;
  };
  EXPECT_NE(with([](auto& o) { o.chunks.stride = 5; }), identity);
  EXPECT_NE(with([](auto& o) { o.chunks.weights[4] = 0.5; }), identity);
  EXPECT_NE(with([](auto& o) { o.seed = 1; }), identity);
  EXPECT_NE(with([](auto& o) { o.held_out_fraction = 0.2; }), identity);
  EXPECT_NE(with([](auto& o) { o.word_piece.lower_case = false; }), identity);
  EXPECT_NE(Made(lines(21)).open().identity, identity);
  EXPECT_NE(Made(lines(20), vocabulary_text() + "zebra\n").open().identity, identity);
}

TEST(data_question_source, prepared_pieces_change_no_sample_and_no_identity) {
  for (const bool by_sentence : {false, true})
    for (const bool drop_tags : {false, true}) {
      Made made(lines(60) + natural_question(7, "w1 <P> w2. W3 w4. w5", {.begin = 2, .end = 4}) +
                "\n");
      made.options.held_out_fraction = 0.2;
      made.options.chunks.by_sentence = by_sentence;
      made.options.chunks.drop_tags = drop_tags;
      const QuestionData text = made.open();
      made.options.prepared_folder = made.folder / "prepared";
      made.options.keep_bytes = 0;
      for (const char* when : {"made", "read"}) {
        const QuestionData prepared = made.open();
        EXPECT_EQ(prepared.identity, text.identity) << when;
        for (int64_t epoch = 0; epoch < 3; ++epoch)
          EXPECT_TRUE(same(prepared.train->get_in_epoch(all_of(*prepared.train), epoch),
                           text.train->get_in_epoch(all_of(*text.train), epoch)))
              << when;
        ASSERT_EQ(prepared.held_out->size(), text.held_out->size());
        EXPECT_TRUE(same(prepared.held_out->get(all_of(*prepared.held_out)),
                         text.held_out->get(all_of(*text.held_out))))
            << when;
        EXPECT_EQ(prepared.held_out->text_of(3, 4, 6), text.held_out->text_of(3, 4, 6)) << when;
        const int64_t question = text.held_out->question_of(3);
        EXPECT_EQ(prepared.held_out->read(question).where, text.held_out->read(question).where);
      }
      // Chunks of other sizes are of the same pieces.
      made.options.chunks.stride = 5;
      made.options.chunks.max_length = 14;
      const QuestionData other = made.open();
      made.options.prepared_folder.clear();
      const QuestionData other_text = made.open();
      EXPECT_EQ(other.identity, other_text.identity);
      EXPECT_TRUE(same(other.train->get(all_of(*other.train)),
                       other_text.train->get(all_of(*other_text.train))));
    }
}

TEST(data_question_source, bad_samples_are_told_alike_with_prepared_pieces) {
  Made made(lines(3) + natural_question(8, "\u200b") + "\n" + lines(2) +
            "{\"document_text\":\"w\n");
  made.options.bad = OnBadSample::skip;
  const QuestionData text = made.open();
  made.options.prepared_folder = made.folder / "prepared";
  for (int i = 0; i < 2; ++i) {
    const QuestionData prepared = made.open();
    EXPECT_EQ(prepared.left_out, 2);
    EXPECT_EQ(prepared.first_left_out, text.first_left_out);
    EXPECT_EQ(prepared.identity, text.identity);
  }
  made.options.bad = OnBadSample::stop;
  EXPECT_ERROR(made.open(), Corrupt, made.options.path + ":4: the document has no piece; mend");
}

TEST(data_question_source, a_prepared_question_that_is_damaged_is_cut_again_after_one_warning) {
  Made made(lines(30));
  const QuestionData text = made.open();
  made.options.prepared_folder = made.folder / "prepared";
  made.options.keep_bytes = 0;
  made.open();
  const std::string part =
      prepared_folder_of(made.options.path, made.options.prepared_folder) + "/part-00000.pieces";
  std::string bytes = read_file(part);
  for (size_t at = 150; at < 2000; at += 50) bytes[at] = static_cast<char>(bytes[at] ^ 4);
  write_file_atomic(part, bytes);
  const testing::CapturedLog log;
  const QuestionData damaged = made.open();
  for (int64_t epoch = 0; epoch < 3; ++epoch)
    EXPECT_TRUE(same(damaged.train->get_in_epoch(all_of(*damaged.train), epoch),
                     text.train->get_in_epoch(all_of(*text.train), epoch)));
  EXPECT_EQ(log.with("question 0 of it is damaged").size(), 1u);
  EXPECT_EQ(log.lines().size(), 1u);
}

TEST(data_question_source, ranks_that_are_threads_prepare_a_file_together) {
  Made made(lines(300));
  const QuestionData text = made.open();
  made.options.prepared_folder = made.folder / "prepared";
  made.options.held_out_fraction = 0;
  std::vector<uint64_t> identities(4);
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < identities.size(); ++rank)
    ranks.emplace_back([&, rank] { identities[rank] = made.open().identity; });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(identities, std::vector<uint64_t>(4, text.identity));
}

TEST(data_question_source, a_folder_that_cannot_be_made_is_one_warning_and_no_other_samples) {
  Made made(lines(20));
  const QuestionData text = made.open();
  made.options.prepared_folder = made.options.path + "/below-a-file";
  const testing::CapturedLog log;
  const QuestionData without = made.open();
  EXPECT_EQ(log.with("pieces are not kept in " + made.options.prepared_folder).size(), 1u);
  EXPECT_EQ(without.identity, text.identity);
  EXPECT_TRUE(
      same(without.train->get(all_of(*without.train)), text.train->get(all_of(*text.train))));
}

TEST(data_question_source, logits_of_another_shape_are_refused) {
  const Made made(lines(4));
  const MicroBatch batch = made.open().train->get({0, 1});
  const at::Tensor good = at::zeros(batch.input.sizes()), classes = at::zeros({2, 5});
  EXPECT_EQ(predict_chunks(batch, good, good, classes).size(), 2u);
  EXPECT_ERROR(predict_chunks(batch, good.t(), good, classes), UsageError, "logits are [rows");
  EXPECT_ERROR(predict_chunks(batch, good, good, at::zeros({2, 4})), UsageError, "logits are");
  EXPECT_ERROR(predict_chunks(batch, good, good, at::zeros({2, 5}) / 0), NumericError, "NaN");
}

}  // namespace
}  // namespace trireme::question_source_test
