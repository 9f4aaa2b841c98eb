// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/data/source.h"
#include "trireme/data/text/question_chunks.h"
#include "trireme/data/text/question_file.h"
#include "trireme/data/text/question_predictions.h"
#include "trireme/data/text/squad.h"
#include "trireme/data/text/word_piece.h"

namespace trireme {

struct QuestionOptions {
  std::string path;  // lines of Natural Questions, or a file of SQuAD
  QuestionFormat format = QuestionFormat::by_content;
  OnBadSample bad = OnBadSample::stop;
  std::string vocabulary;  // path of vocab.txt
  SpecialPieces special = {};
  WordPieceOptions word_piece = {};
  ChunkOptions chunks = {};
  /// A file whose questions are all held out (SQuAD's dev file); then no question of `path` is.
  std::string held_out_path = {};
  /// Else so many of the questions of each class are; 0: none. Unset: 0.05 without held_out_path.
  std::optional<double> held_out_fraction = std::nullopt;
  uint64_t seed = 42;  // of what is held out, and of the chunks that are shown
  /// Memory for documents that have been cut into pieces, so that they need not be read and cut
  /// again. Those that were used last are kept.
  int64_t keep_bytes = int64_t{256} << 20;
  /// A folder in which the documents of all files stay in pieces, for later epochs, for other ranks
  /// and for later runs: open_questions() makes what is missing there, and reads no file from end
  /// to end else. "": none.
  std::string prepared_folder = {};
};

/// Questions as samples for an encoder. A micro-batch has, for each row:
///
///   input            [rows, length] int64: [CLS] question [SEP] chunk [SEP], then padding, as long
///                    as the longest row of the micro-batch
///   more:
///   token_types      [rows, length] int64: 1 for the chunk and what follows it, else 0
///   attention_mask   [rows, length] int64: 0 for padding, else 1
///   start_ids, end_ids  [rows] int64: the answer's first piece in the row, and the one behind its
///                    last; -1: there is none, ignored by the loss
///   start_positions, end_positions  [rows] float: the same over max_length; -1: none
///   classes          [rows] int64: AnswerClass
///
/// A sample of training data is a question: of its document one chunk is shown, chosen by weight
/// from seed, epoch and the question's number in the file, so the same on any rank. A sample of
/// held-out data is a chunk, and all chunks of a question follow each other. Weights are samples.
///
/// get() throws Corrupt for a question that can no longer be read. Threads: any.
class TRIREME_API QuestionSource : public DataSource {
 public:
  int64_t size() const override = 0;
  MicroBatch get(const std::vector<int64_t>& ids) const override { return get_in_epoch(ids, 0); }
  MicroBatch get_in_epoch(const std::vector<int64_t>& ids, int64_t epoch) const override = 0;

  virtual int64_t questions() const = 0;
  /// The number in the file of the question that a sample shows.
  virtual int64_t question_of(int64_t sample) const = 0;
  /// The question with its text.
  virtual Question read(int64_t question) const = 0;
  /// Of held-out data: the words of the document that pieces [start_id, end_id) of a sample's row
  /// stand for. UsageError for pieces that are not the chunk's.
  virtual std::string text_of(int64_t sample, int32_t start_id, int32_t end_id) const = 0;
};

struct QuestionData {
  std::shared_ptr<const QuestionSource> train, held_out;  // held_out: null where none is
  std::shared_ptr<const Vocabulary> vocabulary;
  int64_t left_out = 0;                     // bad samples
  std::vector<std::string> first_left_out;  // of the first few: file, line and reason
  /// Of the questions, the vocabulary and the options: the same where samples are the same.
  uint64_t identity = 0;
};

/// Reads the file from end to end once, and the held-out documents a second time, to count their
/// chunks. With a prepared_folder all documents are cut into pieces now, unless their pieces are
/// there: the ranks of a host, and of all hosts that share the folder, each make some of its parts,
/// and read what others make. A folder that cannot be written is a warning, and the file is read
/// (data/text/prepared/prepared_questions.h). Samples are the same with it and without. All ranks
/// that read the same file have the same samples, bad ones included. Throws UsageError for a
/// missing file or options that cannot be, Corrupt for a bad sample (with OnBadSample::stop) and a
/// bad vocabulary, each with file, line and reason.
TRIREME_API QuestionData open_questions(const QuestionOptions& options);

struct DummyQuestionOptions {
  int max_length = 384;  // pieces of every row
  int max_question = 64;
  int64_t samples = 10'000;
  // The defaults are those of bert-base-uncased.
  int64_t vocabulary = 30'522;
  int32_t padding = 0, unknown = 100, first = 101, separator = 102;
  uint64_t seed = 42;
};

/// The published recipe's DummyDataset, for speed and for first tries without a file: rows of
/// max_length pieces, `max_question` of them a question, the others a document. Pieces are drawn
/// from 1 … vocabulary - 1 alike, [PAD], [CLS] and [SEP] among them become [UNK]. Every answer
/// begins at 0 and ends at max_length - 1, at positions 0 and 1, of class 0. A sample is drawn anew
/// in each epoch. Tensors as QuestionSource's.
TRIREME_API std::shared_ptr<DataSource> make_dummy_questions(
    const DummyQuestionOptions& options = {});

/// What a model says of a micro-batch of held-out data, row by row, to be gathered from all ranks
/// (data/text/question_predictions.h). Logits: [rows, length], [rows, length] and [rows, 5], of any
/// float dtype and device.
TRIREME_API std::vector<ChunkPrediction> predict_chunks(const MicroBatch& batch,
                                                        const at::Tensor& start_logits,
                                                        const at::Tensor& end_logits,
                                                        const at::Tensor& class_logits,
                                                        const SpanOptions& options = {});

struct QuestionEvaluation {
  SquadScores answers;  // of questions
  ChunkScores chunks;
};
/// The chunks of all ranks together as figures, the same on any number of ranks and in any order.
TRIREME_API QuestionEvaluation evaluate_questions(const QuestionSource& held_out,
                                                  std::vector<ChunkPrediction> predictions,
                                                  const SpanOptions& options = {});

}  // namespace trireme
