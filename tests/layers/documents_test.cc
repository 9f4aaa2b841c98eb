// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/documents.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace documents_test {

using namespace trireme;

namespace {
at::Tensor row(std::vector<int64_t> values) { return at::tensor(values).unsqueeze(0); }
}  // namespace

TEST(layers_documents, each_begins_behind_the_end_of_the_one_before) {
  const at::Tensor starts = document_starts(row({5, 9, 4, 4, 9, 9, 7}), 9);
  EXPECT_TRUE(starts.equal(row({0, 0, 2, 2, 2, 5, 6}))) << starts;
  EXPECT_TRUE(positions_in_documents(starts).equal(row({0, 1, 0, 1, 2, 0, 0})));
}

TEST(layers_documents, rows_do_not_meet_and_one_without_an_end_is_one_document) {
  const at::Tensor ids = at::cat({row({1, 2, 9}), row({3, 4, 5})});
  EXPECT_TRUE(document_starts(ids, 9).equal(at::zeros({2, 3}, at::kLong)));
  EXPECT_TRUE(document_starts(row({9}), 9).equal(row({0})));
  EXPECT_EQ(document_starts(at::zeros({0, 4}, at::kLong), 9).numel(), 0);
}

TEST(layers_documents, what_is_no_rows_of_tokens_is_refused) {
  EXPECT_THROW(document_starts(at::zeros({3}, at::kLong), 9), UsageError);
  EXPECT_THROW(document_starts(at::zeros({3, 2}), 9), UsageError);
}

}  // namespace documents_test
