// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <trireme/trireme.h>

#include <optional>
#include <string>
#include <vector>

/// The recipe's keys, under the recipe's names; those of the encoder have the names of
/// bert-base-uncased's config.json. docs/qa.md describes them.
struct QaSection {
  // Data.
  bool dummy_dataset = false;
  int64_t dummy_dataset_len = 10'000;
  std::optional<std::string> data_path, test_data_path, vocab_file;
  std::optional<double> held_out_fraction;
  std::string bad_sample = "stop", prepared_dir = "off";
  bool lowercase = true;
  int64_t max_seq_len = 384, max_question_len = 64, doc_stride = 128;
  bool split_by_sentence = false, drop_tags = false;
  std::vector<double> chunk_weights = {1, 1, 1, 1, 1e-3};
  // The encoder.
  int64_t vocab_size = 30'522, hidden_size = 768, num_hidden_layers = 12, num_attention_heads = 12,
          intermediate_size = 3072, max_position_embeddings = 512;
  double hidden_dropout_prob = 0.1, attention_probs_dropout_prob = 0.1;
  std::optional<std::string> bert_weights;
  // The loss.
  std::string loss = "ce";
  double focal_gamma = 2, smooth_alpha = 0.01;
  double w_start = 1, w_end = 1, w_start_reg = 1, w_end_reg = 1, w_cls = 1;
  // Training.
  std::optional<int64_t> batch_split;
  double warmup_coef = 0;
  bool sync_bn = false, debug = false;
  std::string best_metric = "map";

  void fields(trireme::Fields& f) {
    data_fields(f);
    model_fields(f);
    loss_fields(f);
    training_fields(f);
  }

 private:
  void data_fields(trireme::Fields& f) {
    f.field({.path = "qa.dummy_dataset",
             .help = "drawn questions, as the recipe's DummyDataset draws them: nothing is read"},
            dummy_dataset);
    f.field({.path = "qa.dummy_dataset_len",
             .min = 1,
             .max = f.kMany,
             .when = "qa.dummy_dataset=true",
             .help = "drawn questions of an epoch"},
            dummy_dataset_len);
    const char* real = "qa.dummy_dataset=false";
    f.field({.path = "qa.data_path",
             .when = real,
             .help = "questions: lines of Natural Questions (the simplified training format), or a "
                     "file of SQuAD 1.1 or 2.0"},
            data_path);
    f.field({.path = "qa.test_data_path",
             .when = real,
             .help = "questions to evaluate on, of the same format; else a part of qa.data_path"},
            test_data_path);
    f.field({.path = "qa.vocab_file", .when = real, .help = "vocab.txt of WordPiece"}, vocab_file);
    f.field({.path = "qa.held_out_fraction",
             .min = 0,
             .max = 0.5,
             .when = real,
             .help = "the part of each class of questions that is held out; 0.05 unless "
                     "qa.test_data_path is given"},
            held_out_fraction);
    f.field({.path = "qa.bad_sample",
             .choices = "stop skip",
             .when = real,
             .help = "a question that cannot be read ends the run, or is left out and counted"},
            bad_sample);
    f.field(
        {.path = "qa.prepared_dir",
         .when = real,
         .help = "a folder in which documents stay in pieces, for later epochs and runs: they "
                 "are all cut before the first step, a third of the file's size on disk; off: each "
                 "is cut when it is shown"},
        prepared_dir);
    f.field({.path = "qa.lowercase", .when = real, .help = "as \"uncased\" models were trained"},
            lowercase);
    f.field({.path = "qa.max_seq_len",
             .min = 8,
             .max = 1e5,
             .help = "pieces of a sequence: [CLS] question [SEP] document [SEP]"},
            max_seq_len);
    f.field({.path = "qa.max_question_len",
             .min = 1,
             .max = 1e5,
             .help = "pieces of a question; the rest of a longer one is left out"},
            max_question_len);
    f.field({.path = "qa.doc_stride",
             .min = 1,
             .max = 1e5,
             .when = real,
             .help = "pieces from one chunk of a document to the next"},
            doc_stride);
    f.field({.path = "qa.split_by_sentence",
             .when = real,
             .help = "chunks are whole sentences, as many as fit"},
            split_by_sentence);
    f.field({.path = "qa.drop_tags",
             .when = real,
             .help = "leave out words like <P>, which Natural Questions' documents have"},
            drop_tags);
    f.field({.path = "qa.chunk_weights",
             .min = 0,
             .when = real,
             .help = "how often a chunk of class yes, no, short, long, unknown is shown beside the "
                     "other chunks of its document"},
            chunk_weights);
  }
  void model_fields(trireme::Fields& f) {
    const auto size = [&](const char* path, int64_t& member, const char* help) {
      f.field({.path = path, .min = 1, .max = f.kMany, .help = help}, member);
    };
    size("qa.vocab_size", vocab_size, "pieces of the vocabulary");
    size("qa.hidden_size", hidden_size, "width of the encoder");
    size("qa.num_hidden_layers", num_hidden_layers, "blocks of the encoder");
    size("qa.num_attention_heads", num_attention_heads,
         "heads of attention; they divide the width");
    size("qa.intermediate_size", intermediate_size, "units of a block's feed-forward net");
    size("qa.max_position_embeddings", max_position_embeddings, "the longest sequence");
    f.field({.path = "qa.hidden_dropout_prob", .min = 0, .max = 0.99, .help = "dropout"},
            hidden_dropout_prob);
    f.field({.path = "qa.attention_probs_dropout_prob",
             .min = 0,
             .max = 0.99,
             .help = "dropout of attention"},
            attention_probs_dropout_prob);
    f.field({.path = "qa.bert_weights",
             .help = "the encoder's weights at the start of a new run: a file or folder of "
                     "bert-base-uncased (safetensors or .bin); the heads begin anew"},
            bert_weights);
  }
  void loss_fields(trireme::Fields& f) {
    f.field({.path = "qa.loss",
             .choices = "ce focal smooth",
             .help = "loss of the answer's class: cross-entropy, focal, or with smoothed labels"},
            loss);
    f.field({.path = "qa.focal_gamma",
             .min = 0,
             .max = 100,
             .when = "qa.loss=focal",
             .help = "exponent of the focal loss"},
            focal_gamma);
    f.field({.path = "qa.smooth_alpha",
             .min = 0,
             .max = 0.99,
             .when = "qa.loss=smooth",
             .help = "how much of a label the other classes share"},
            smooth_alpha);
    const auto weight = [&](const char* path, double& member, const char* help) {
      f.field({.path = path, .min = 0, .max = f.kWide, .help = help}, member);
    };
    weight("qa.w_start", w_start, "weight of the loss of the answer's first piece");
    weight("qa.w_end", w_end, "weight of the loss of its end");
    weight("qa.w_start_reg", w_start_reg, "weight of the squared error of the start's position");
    weight("qa.w_end_reg", w_end_reg, "weight of the squared error of the end's position");
    weight("qa.w_cls", w_cls, "weight of the loss of the answer's class");
  }
  void training_fields(trireme::Fields& f) {
    f.field({.path = "qa.batch_split",
             .min = 1,
             .max = f.kMany,
             .help = "micro-batches that one process would divide train_batch_size into: sets "
                     "train_micro_batch_size_per_gpu, whatever the number of ranks"},
            batch_split);
    f.field(
        {.path = "qa.warmup_coef",
         .min = 0,
         .max = 1,
         .help = "share of all steps in which the rate rises from 0, before it falls to 0, both "
                 "linearly; 0: scheduler.* says"},
        warmup_coef);
    f.field({.path = "qa.sync_bn",
             .help = "BatchNorm over all ranks, where the model has any: BERT has none"},
            sync_bn);
    f.field({.path = "qa.debug", .help = "one step, and nothing is saved"}, debug);
    f.field({.path = "qa.best_metric",
             .choices = "map accuracy loss exact f1",
             .help = "by what checkpoint.keep_best compares; exact and f1 need qa.data_path"},
            best_metric);
  }
};

/// Whether a file or a flag says so; the file of a run that goes on has all keys.
inline bool is_given(const trireme::Config& config, const char* key) {
  return config.has(key) && config.origin(key) != "default";
}

/// The settings of other sections that the recipe's keys stand for.
inline std::vector<std::string> settings_of(const trireme::Config& config) {
  using trireme::UsageError;
  const auto qa = config.section<QaSection>();
  std::vector<std::string> sets;
  if (qa.batch_split) {
    if (!config.has("train_batch_size"))
      throw UsageError("qa.batch_split (" + config.origin("qa.batch_split") +
                       ") divides train_batch_size, which is not given: give it");
    const int64_t batch = config.get_int("train_batch_size");
    const int64_t micro = batch / *qa.batch_split;
    if (micro * *qa.batch_split != batch)
      throw UsageError("qa.batch_split " + std::to_string(*qa.batch_split) + " (" +
                       config.origin("qa.batch_split") + ") does not divide train_batch_size " +
                       std::to_string(batch) + ": choose one that does");
    const char* key = "train_micro_batch_size_per_gpu";
    if (is_given(config, key) && config.get_int(key) != micro)
      throw UsageError("qa.batch_split makes micro-batches of " + std::to_string(micro) + ", and " +
                       key + " (" + config.origin(key) + ") is " +
                       std::to_string(config.get_int(key)) + ": leave one of them out");
    sets.push_back(key + ("=" + std::to_string(micro)));
  }
  if (qa.bert_weights) {
    if (is_given(config, "checkpoint.init") &&
        config.get_string("checkpoint.init") != *qa.bert_weights)
      throw UsageError("qa.bert_weights and checkpoint.init (" + config.origin("checkpoint.init") +
                       ") name different weights: leave one of them out");
    sets.push_back("checkpoint.init=" + *qa.bert_weights);
    // The heads that BERT was trained with, and those that it is to get.
    sets.push_back(R"(checkpoint.init_except=["heads.*", "cls.*"])");
  }
  if (qa.debug)
    for (const char* set :
         {"training.steps=1", "training.epochs=0", "training.eval_every=0",
          "checkpoint.at_end=false", "checkpoint.every=0", "checkpoint.every_minutes=0",
          "checkpoint.auto=false", "checkpoint.keep_best=0", "checkpoint.keep_every=0",
          "checkpoint.names=false"})
      sets.push_back(set);
  return sets;
}
