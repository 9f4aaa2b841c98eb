// SPDX-License-Identifier: Apache-2.0
// The question-answering recipe of github.com/neuromation/ml-recipe-distributed-pytorch: BERT with
// five heads on Natural Questions, SQuAD, or questions that are drawn. docs/qa.md describes it.
//   ./qa dummy.json --nproc-per-node 2
//   ./qa squad.json --set qa.data_path=train-v1.1.json --set qa.vocab_file=vocab.txt
#include <cstdio>

#include "qa.h"

using namespace trireme;

Sources Qa::data(const Config& config) {
  qa_ = config.section<QaSection>();
  const auto seed = static_cast<uint64_t>(config.get_int("training.seed"));
  if (qa_.max_seq_len > qa_.max_position_embeddings)
    throw UsageError("qa.max_seq_len is " + std::to_string(qa_.max_seq_len) +
                     ", and the encoder has positions for " +
                     std::to_string(qa_.max_position_embeddings) +
                     " (qa.max_position_embeddings): shorten the sequences");
  if (qa_.dummy_dataset) {
    if (qa_.best_metric == "exact" || qa_.best_metric == "f1")
      throw UsageError("qa.best_metric is " + qa_.best_metric +
                       ", which drawn questions do not have: choose map, accuracy or loss");
    DummyQuestionOptions o;
    o.max_length = static_cast<int>(qa_.max_seq_len);
    o.max_question = static_cast<int>(qa_.max_question_len);
    o.samples = train_size_ = qa_.dummy_dataset_len;
    o.vocabulary = qa_.vocab_size;
    o.seed = seed;
    DummyQuestionOptions held_out = o;
    held_out.samples = std::max<int64_t>(1, o.samples / 20);
    held_out.seed = seed + 1;
    return {make_dummy_questions(o), make_dummy_questions(held_out),
            "drawn questions " + std::to_string(o.samples)};
  }
  if (!qa_.data_path || !qa_.vocab_file)
    throw UsageError(
        "qa.data_path and qa.vocab_file name the questions and the vocabulary: give "
        "both, or qa.dummy_dataset=true to draw questions");
  QuestionOptions o;
  o.path = *qa_.data_path;
  o.vocabulary = *qa_.vocab_file;
  o.held_out_path = qa_.test_data_path.value_or("");
  o.held_out_fraction = qa_.held_out_fraction;
  o.bad = qa_.bad_sample == "skip" ? OnBadSample::skip : OnBadSample::stop;
  if (qa_.prepared_dir.empty())
    throw UsageError("qa.prepared_dir (" + config.origin("qa.prepared_dir") +
                     ") is empty: name a folder, or say off");
  if (qa_.prepared_dir != "off") o.prepared_folder = qa_.prepared_dir;
  o.word_piece.lower_case = qa_.lowercase;
  o.chunks.max_length = static_cast<int>(qa_.max_seq_len);
  o.chunks.max_question = static_cast<int>(qa_.max_question_len);
  o.chunks.stride = static_cast<int>(qa_.doc_stride);
  o.chunks.by_sentence = qa_.split_by_sentence;
  o.chunks.drop_tags = qa_.drop_tags;
  if (qa_.chunk_weights.size() != o.chunks.weights.size())
    throw UsageError("qa.chunk_weights has " + std::to_string(qa_.chunk_weights.size()) +
                     " numbers: give one each for yes, no, short, long and unknown");
  std::copy(qa_.chunk_weights.begin(), qa_.chunk_weights.end(), o.chunks.weights.begin());
  o.seed = seed;
  const QuestionData questions = open_questions(o);
  questions.vocabulary->check_fits(qa_.vocab_size, "the encoder (qa.vocab_size)");
  held_out_ = questions.held_out;
  train_size_ = questions.train->size();
  return {questions.train, questions.held_out, "questions " + std::to_string(questions.identity)};
}

// No decay on biases and norms, and the recipe's schedule.
std::vector<Update> Qa::updates(const Config& config) {
  Update all{"all", {}, {}};
  for (const Piece& p : make(config)) all.pieces.push_back(p.path);
  // By value: the file of a run that goes on has all keys.
  if (config.get_string_list("optimizer.params.no_decay") ==
      std::vector<std::string>{"*.bias", "*norm*", "*ln*"})
    all.sets.push_back(R"(optimizer.params.no_decay=["*.bias", "*LayerNorm*"])");
  if (qa_.warmup_coef == 0) return {all};
  if (config.get_string("scheduler.type") != "constant")
    throw UsageError("qa.warmup_coef (" + config.origin("qa.warmup_coef") +
                     ") is the recipe's schedule, and scheduler.type (" +
                     config.origin("scheduler.type") + ") another: leave one of them out");
  int64_t steps = config.get_int("training.steps");
  if (const int64_t epochs = config.get_int("training.epochs"); epochs > 0) {
    if (!config.has("train_batch_size"))
      throw UsageError(
          "qa.warmup_coef is a share of all steps, which training.epochs and "
          "train_batch_size say: give train_batch_size, or training.steps");
    const int64_t batch = config.get_int("train_batch_size");
    const int64_t more = config.get_bool("training.drop_last") ? 0 : batch - 1;
    const int64_t of_epochs = epochs * ((train_size_ + more) / batch);
    steps = steps > 0 ? std::min(steps, of_epochs) : of_epochs;
  }
  const auto warmup = static_cast<int64_t>(std::ceil(qa_.warmup_coef * static_cast<double>(steps)));
  for (const std::string& set : {std::string("scheduler.type=linear"),
                                 "scheduler.params.warmup_num_steps=" + std::to_string(warmup),
                                 "scheduler.params.total_num_steps=" + std::to_string(steps),
                                 std::string("scheduler.params.min_lr_ratio=0")})
    all.sets.push_back(set);
  return {all};
}

void Qa::evaluated(HeldOutSums& sums, Group group) {
  std::vector<ChunkPrediction> all;
  for (auto& of_rank : all_gather_object(group, std::exchange(predictions_, {})))
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  double loss = 0;
  for (const auto& s : sums.all())
    if (s.weight > 0) loss += s.sum / s.weight;
  std::vector<std::pair<std::string, double>> figures{{"loss", loss}};
  if (held_out_) {
    const QuestionEvaluation e = evaluate_questions(*held_out_, std::move(all));
    const auto questions = static_cast<double>(e.answers.total);
    figures.insert(figures.end(), {{"map", e.chunks.map},
                                   {"accuracy", e.chunks.class_accuracy},
                                   {"exact", e.answers.exact / questions},
                                   {"f1", e.answers.f1 / questions}});
  } else {
    sort_predictions(&all);
    const ChunkScores chunks = score_chunks(all);
    figures.insert(figures.end(), {{"map", chunks.map}, {"accuracy", chunks.class_accuracy}});
  }
  // The first is what checkpoints are compared by, and the lowest is the best.
  HeldOutSums named;
  const auto best = std::find_if(figures.begin(), figures.end(),
                                 [&](const auto& f) { return f.first == qa_.best_metric; });
  if (best->first != "loss") named.add("held_out_1-" + best->first, 1 - best->second, 1);
  for (const auto& [name, value] : figures) named.add("held_out_" + name, value, 1);
  for (const auto& s : sums.all()) named.add(s.name, s.sum, s.weight);
  sums = named;
}

int main(int argc, char** argv) {
  MainProgram program = main_program([] { return std::make_unique<Qa>(); });
  program.purpose = "Train BERT to answer questions: Natural Questions, SQuAD, or drawn ones.";
  program.load = [load = program.load](const ConfigInputs& given) {
    ConfigInputs inputs = given;
    const Config config = load(given);
    for (ConfigOverride& set : ConfigInputs::from({}, settings_of(config)).overrides) {
      set.origin = "the qa keys";
      inputs.overrides.push_back(set);
    }
    if (config.section<QaSection>().sync_bn)
      std::fputs("qa.sync_bn: BERT has no BatchNorm, so there is nothing to convert\n", stderr);
    return load(inputs);
  };
  return train_main(argc, argv, program);
}
