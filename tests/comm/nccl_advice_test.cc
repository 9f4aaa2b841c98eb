// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "trireme/comm/nccl/advice.h"

namespace nccl_advice_test {

using trireme::detail::nccl_advice;
using trireme::detail::no_gpu_text;

TEST(comm_nccl_advice, two_ranks_on_one_gpu_are_told_so) {
  // As LibTorch 2.x passes NCCL's words on.
  const std::string said =
      "NCCL error in: ProcessGroupNCCL.cpp:3690, invalid usage (run with NCCL_DEBUG=WARN for "
      "details), NCCL version 2.28.9\nncclInvalidUsage: This usually reflects invalid usage of "
      "NCCL library.\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device "
      "1000";
  EXPECT_NE(nccl_advice(said).find("same GPU"), std::string::npos);
  EXPECT_EQ(nccl_advice("NCCL error in: x.cpp:1, unhandled system error"), "");
}

TEST(comm_nccl_advice, a_machine_without_gpus_is_told_what_to_look_at) {
  EXPECT_NE(no_gpu_text(nullptr).find("nvidia-smi"), std::string::npos);
  EXPECT_NE(no_gpu_text("7").find("CUDA_VISIBLE_DEVICES is '7'"), std::string::npos);
}

}  // namespace nccl_advice_test
