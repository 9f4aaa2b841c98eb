// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <climits>
#include <map>
#include <string>

#include "trireme/comm/mpi/flavour.h"
#include "trireme/comm/mpi/large_plan.h"

namespace trireme::detail::plan_test {
namespace {

using Flavours = std::vector<MpiFlavour>;

MpiGetenv with(std::map<std::string, std::string> set) {
  return [set](const char* name) -> const char* {
    const auto at = set.find(name);
    return at == set.end() ? nullptr : at->second.c_str();
  };
}

TEST(comm_mpi_plan, pieces_cover_a_count_once_and_in_order) {
  for (int64_t count = 0; count <= 40; ++count)
    for (int64_t limit = 1; limit <= 41; ++limit) {
      int64_t at = 0;
      for (const MpiPiece& piece : mpi_pieces(count, limit)) {
        EXPECT_EQ(piece.begin, at);
        EXPECT_LE(piece.count, limit);
        EXPECT_TRUE(piece.count > 0 || count == 0);
        at += piece.count;
      }
      EXPECT_EQ(at, count);
    }
  EXPECT_EQ(mpi_pieces(0, 5), std::vector<MpiPiece>({{0, 0}}));
  const int64_t huge = int64_t{5} << 30;
  EXPECT_EQ(mpi_pieces(huge, int64_t{2} << 30 >> 1).size(), 5u);
}

TEST(comm_mpi_plan, one_call_never_holds_more_than_an_int_or_a_gibibyte_a_rank) {
  const MpiLimits limits;
  EXPECT_EQ(limits.piece(1), int64_t{1} << 30);
  EXPECT_EQ(limits.piece(16), int64_t{1} << 26);
  EXPECT_TRUE(limits.fit(int64_t{1} << 28, 4, 7));
  EXPECT_FALSE(limits.fit(int64_t{1} << 28, 4, 8));  // 2³¹ elements
  EXPECT_FALSE(limits.fit((int64_t{1} << 28) + 1, 4, 1));
  for (int64_t size : {1, 2, 4, 8, 16})
    for (int64_t ranks = 1; ranks <= 64; ++ranks)
      for (int64_t count : {0L, 1L, 1L << 20, 1L << 26, 1L << 29, 1L << 31, 1L << 40})
        if (limits.fit(count, size, ranks)) {
          EXPECT_LE(count * ranks, INT_MAX);
          EXPECT_LE(count * size, int64_t{1} << 30);
        }
}

TEST(comm_mpi_plan, the_library_in_the_process_says_which_mpi) {
  EXPECT_EQ(mpi_among({"/lib/libc.so.6", "/usr/lib/libmpi.so.40"}), MpiFlavour::openmpi);
  EXPECT_EQ(mpi_among({"/usr/lib/libmpich.so.12"}), MpiFlavour::mpich);
  EXPECT_EQ(mpi_among({"/opt/intel/libmpi.so.12"}), MpiFlavour::mpich);
  EXPECT_EQ(mpi_among({"", "/lib/libc.so.6", "/usr/lib/libmpi_cxx.so.40"}), std::nullopt);
  EXPECT_EQ(mpi_choice(with({{"PMI_RANK", "0"}}), {"/usr/lib/libmpi.so.40"}),
            Flavours{MpiFlavour::openmpi});
}

TEST(comm_mpi_plan, the_launcher_says_which_mpi) {
  EXPECT_EQ(mpi_choice(with({{"OMPI_COMM_WORLD_RANK", "3"}, {"PMIX_RANK", "3"}}), {}),
            Flavours{MpiFlavour::openmpi});
  EXPECT_EQ(mpi_choice(with({{"PMI_RANK", "3"}}), {}), Flavours{MpiFlavour::mpich});
  EXPECT_EQ(mpi_choice(with({{"PMI_RANK", "3"}, {"TRIREME_MPI", "openmpi"}}), {}),
            Flavours{MpiFlavour::openmpi});
  EXPECT_EQ(mpi_choice(with({{"PMIX_RANK", "3"}}), {}),
            (Flavours{MpiFlavour::openmpi, MpiFlavour::mpich}));
  EXPECT_EQ(mpi_choice(with({{"TRIREME_MPI", "lam"}}), {}), std::nullopt);
}

TEST(comm_mpi_plan, torchrun_and_a_shell_start_no_mpi) {
  EXPECT_FALSE(started_for_mpi(with({})));
  EXPECT_FALSE(started_for_mpi(with({{"RANK", "0"}, {"WORLD_SIZE", "2"}})));
  EXPECT_FALSE(started_for_mpi(with({{"SLURM_JOB_ID", "7"}})));  // a batch script
  EXPECT_TRUE(started_for_mpi(with({{"SLURM_STEP_ID", "0"}})));
  EXPECT_TRUE(started_for_mpi(with({{"PMIX_RANK", "0"}})));
}

}  // namespace
}  // namespace trireme::detail::plan_test
