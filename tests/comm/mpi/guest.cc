// SPDX-License-Identifier: Apache-2.0
// A program of somebody's that uses MPI itself, started by mpirun. argv[1]: the fact.
#include <mpi.h>
#include <torch/types.h>

#include <cstdio>
#include <string>
#include <thread>

#include "tests/support/desync_programs.h"
#include "trireme/base/check.h"
#include "trireme/trireme.h"

namespace {

using trireme::Error;
using trireme::Group;

void expect_refused(MPI_Comm comm, const std::string& part) {
  try {
    trireme::mpi_group(comm);
  } catch (const trireme::UsageError& e) {
    trireme::check<Error>(std::string(e.what()).find(part) != std::string::npos, "{}", e.what());
    return;
  }
  trireme::fail<Error>("not refused: {}", part);
}

void own_communicator() {
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  // All but rank 0, the other way round.
  MPI_Comm mine;
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 0, -rank, &mine);
  expect_refused(MPI_COMM_NULL, "MPI_COMM_NULL");
  Group world = trireme::mpi_group(MPI_COMM_WORLD, std::chrono::seconds(20));
  trireme::check<Error>(world.rank() == rank && world.size() == size && world.backend() == "mpi",
                        "rank {} of {}", world.rank(), world.size());
  // Our messages and the program's own do not meet.
  int theirs = -1;
  MPI_Request request;
  MPI_Irecv(&theirs, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
  at::Tensor x = at::full({3}, 1 + rank, at::kInt);
  auto work = world.all_reduce(x);
  at::Tensor y = at::zeros({1}, at::kInt);
  auto sent = world.isend(at::full({1}, 100 + rank, at::kInt), (rank + 1) % size, 4);
  world.recv(y, (rank + size - 1) % size, 4).wait();
  sent.wait();
  const int word = 7 + rank;
  MPI_Send(&word, 1, MPI_INT, (rank + 1) % size, 4, MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  work.wait();
  trireme::check<Error>(theirs == 7 + (rank + size - 1) % size, "their message: {}", theirs);
  trireme::check<Error>(y.item<int>() == 100 + (rank + size - 1) % size, "our message");
  trireme::check<Error>(x[2].item<int>() == size * (size + 1) / 2, "all_reduce");
  if (mine != MPI_COMM_NULL) {
    Group some = trireme::mpi_group(mine);
    trireme::check<Error>(some.size() == size - 1 && some.rank() == size - 1 - rank, "order");
    at::Tensor z = at::full({1}, rank, at::kInt);
    some.broadcast(z, 0).wait();
    trireme::check<Error>(z.item<int>() == size - 1, "broadcast");
    some = {};
    MPI_Comm_free(&mine);
  }
  // One that is older than MPI's end is dead and harmless.
  MPI_Finalize();
  try {
    world.barrier();
    trireme::fail<Error>("a barrier without MPI");
  } catch (const trireme::Aborted& e) {
    trireme::check<Error>(std::string(e.what()).find("MPI_Finalize") != std::string::npos, "{}",
                          e.what());
  }
}

// Calls that differ, and orders that differ: there is no store, ranks tell each other by MPI.
void desync() {
  using trireme::testing::DesyncProgram;
  using trireme::testing::DesyncWorld;
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<const DesyncProgram*> programs;
  std::vector<DesyncWorld> worlds;
  for (const DesyncProgram& p : trireme::testing::desync_programs())
    for (const char* name : {"operation", "count", "parts_of_all_to_all", "tag_of_a_message",
                             "both_receive_first", "order_of_two_groups", "wrong_group",
                             "circle_over_three_groups", "message_inside_a_collective"}) {
      if (p.name != std::string(name) || p.at_least() > size) continue;
      programs.push_back(&p);
      worlds.emplace_back(trireme::mpi_group(MPI_COMM_WORLD, std::chrono::seconds(20), "each"),
                          p.groups);
    }
  std::vector<std::string> wrong(programs.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < programs.size(); ++i)
    threads.emplace_back([&, i] {
      const auto end = run_desync(*programs[i], std::move(worlds[i]));
      wrong[i] = judge_desync(*programs[i], end, rank, size);
    });
  for (auto& t : threads) t.join();
  for (const std::string& text : wrong) trireme::check<Error>(text.empty(), "{}", text);
}

void recorded() {
  Group world = trireme::mpi_group(MPI_COMM_WORLD, std::chrono::seconds(20), "each");
  world.barrier();
  try {
    world.all_reduce(at::ones({world.rank() == 1 ? 7 : 8})).wait();
  } catch (const trireme::Mismatch&) {
    return;
  }
  trireme::fail<Error>("no Mismatch");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string fact = argc > 1 ? argv[1] : "";
  int level = 0;
  MPI_Init_thread(&argc, &argv, fact == "low_level" ? MPI_THREAD_FUNNELED : MPI_THREAD_SERIALIZED,
                  &level);
  try {
    if (fact == "low_level") {
      expect_refused(MPI_COMM_WORLD, "MPI was initialised at MPI_THREAD_FUNNELED");
    } else if (fact == "desync") {
      desync();
    } else if (fact == "recorded") {
      recorded();
    } else {
      own_communicator();
    }
    int over = 0;
    MPI_Finalized(&over);
    if (!over) MPI_Finalize();
    std::fprintf(stderr, "all is well\n");
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", fact.c_str(), e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}
