// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/weights/bert_names.h"

#include <gtest/gtest.h>

#include "tests/interop/told.h"
#include "tests/interop/weight_files.h"
#include "trireme/base/error.h"

namespace trireme::interop::bert_names_test {
namespace {

using namespace trireme::interop::testing;
using Names = std::vector<std::string>;

WeightSource source_of(const PrivateFolder& folder, const std::vector<std::string>& names) {
  std::vector<Floats> tensors;
  for (const std::string& name : names) tensors.push_back({name, {2}});
  write_bytes(folder / "x.safetensors", safetensors_text(tensors));
  return open_weights(folder / "x.safetensors");
}

const char kQuery[] = "encoder.layer.0.attention.self.query.weight";

TEST(interop_bert_names, a_file_of_tensorflow_has_norms_and_positions_of_its_own) {
  const PrivateFolder folder;
  WeightSource source =
      source_of(folder, {std::string("bert.") + kQuery, "bert.embeddings.LayerNorm.gamma",
                         "bert.embeddings.LayerNorm.beta", "bert.embeddings.position_ids",
                         "cls.predictions.transform.LayerNorm.gamma"});
  ASSERT_TRUE(has_bert_names(source));
  take_bert_names(source);
  EXPECT_EQ(names_of(source),
            (Names{"bert.embeddings.LayerNorm.bias", "bert.embeddings.LayerNorm.weight",
                   std::string("bert.") + kQuery, "cls.predictions.transform.LayerNorm.weight"}));
  EXPECT_SAYS(source.notes.back(), "gamma and beta of LayerNorm are weight and bias here");
}

TEST(interop_bert_names, an_encoder_saved_by_itself_gets_its_prefix) {
  const PrivateFolder folder;
  for (const std::string prefix : {"", "model.bert."}) {
    WeightSource source =
        source_of(folder, {prefix + kQuery, prefix + "embeddings.word_embeddings.weight",
                           prefix + "pooler.dense.bias", "qa_outputs.weight"});
    take_bert_names(source);
    EXPECT_EQ(names_of(source),
              (Names{"bert.embeddings.word_embeddings.weight", std::string("bert.") + kQuery,
                     "bert.pooler.dense.bias", "qa_outputs.weight"}));
    EXPECT_SAYS(source.notes.back(), "'bert.' was put before them");
  }
}

TEST(interop_bert_names, what_needs_no_change_is_not_spoken_of_and_others_are_no_bert) {
  const PrivateFolder folder;
  WeightSource source = source_of(folder, {std::string("bert.") + kQuery});
  const size_t notes = source.notes.size();
  take_bert_names(source);
  EXPECT_EQ(source.notes.size(), notes);
  EXPECT_FALSE(has_bert_names(source_of(folder, {"h.0.attn.c_attn.weight"})));
  EXPECT_FALSE(has_bert_names(source_of(folder, {std::string("x") + kQuery})));
}

TEST(interop_bert_names, two_of_one_name_are_refused) {
  const PrivateFolder folder;
  WeightSource source =
      source_of(folder, {std::string("bert.") + kQuery, "bert.embeddings.LayerNorm.gamma",
                         "bert.embeddings.LayerNorm.weight"});
  EXPECT_THROW(take_bert_names(source), UsageError);
}

}  // namespace
}  // namespace trireme::interop::bert_names_test
