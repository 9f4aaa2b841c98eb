// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/rank_label.h"

#include <cstdlib>

namespace trireme {
namespace {
int rank_of_process() {
  const char* rank = std::getenv("RANK");
  return rank && *rank ? std::atoi(rank) : -1;
}
constexpr int kUnset = -2;
thread_local int rank_of_thread = kUnset;
}  // namespace

void set_thread_rank(int rank) { rank_of_thread = rank; }

int thread_rank() { return rank_of_thread == kUnset ? rank_of_process() : rank_of_thread; }

std::string rank_label() {
  int rank = thread_rank();
  return rank < 0 ? "" : "[rank " + std::to_string(rank) + "] ";
}

}  // namespace trireme
