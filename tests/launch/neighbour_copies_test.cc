// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/nodes/neighbour_copies.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/checkpoint/steps/pretend_worker.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/store/memory_store.h"

namespace trireme::launch::neighbour_copies_test {
namespace {

using test::memory_of;
using test::PretendWorker;

constexpr Duration kPatience = std::chrono::seconds(30);

std::string save(int64_t step) { return ".tmp-" + step_folder_name(step) + "-held-1-0badcafe"; }

/// A launcher with one rank, which is of its own number.
class Node {
 public:
  Node(const std::string& folder, Store& store, int node, int nodes, const net::Secret& secret)
      : node_(node),
        path_(folder + "/snapshots" + std::to_string(node)),
        holder_(path_),
        server_(net::Listener::loopback(), {"job", secret}) {
    ::setenv(kSnapshotsVariable, path_.c_str(), 1);
    rank_ = std::make_unique<SnapshotHandover>(node);
    ::unsetenv(kSnapshotsVariable);
    copies_ = std::make_unique<NeighbourCopies>(
        server_, "127.0.0.1", net::Credentials{"job", secret}, store.clone(Deadline::never()),
        NeighbourCopies::Place{node, std::vector<int>(static_cast<size_t>(nodes), 1)});
  }
  /// The rank has made it, in this slot.
  void make(int slot, int64_t step, int nodes, bool resumes = true) {
    PretendWorker worker;
    worker.rank = node_, worker.ranks = nodes, worker.step = step, worker.save = save(step);
    worker.resumes = resumes, worker.value = static_cast<float>(step);
    memory_[slot] = memory_of(worker.bytes());
    rank_->hold(slot, memory_[slot].get());
    holder_.serve();
    copies_->see(holder_);
  }
  /// (step, rank) of what is held beside the ranks' own memory.
  std::multiset<std::pair<int64_t, int64_t>> take() {
    std::multiset<std::pair<int64_t, int64_t>> all;
    for (const HandedSnapshot& copy : copies_->take()) {
      const auto snapshot = HeldSnapshot::open(copy.fd.get());
      if (!snapshot) throw std::runtime_error("a copy is not whole");
      EXPECT_EQ(snapshot->note().rank, copy.rank);
      EXPECT_TRUE(::fcntl(copy.fd.get(), F_GET_SEALS) & F_SEAL_WRITE);
      float value = 0;
      std::memcpy(&value, snapshot->data() + snapshot->plan().writes.at(0)[3], sizeof value);
      EXPECT_EQ(value, static_cast<float>(snapshot->note().step + copy.rank));
      all.insert({snapshot->note().step, copy.rank});
    }
    return all;
  }

 private:
  const int node_;
  const std::string path_;
  SnapshotHolder holder_;
  PartServer server_;
  UniqueFd memory_[2];
  std::unique_ptr<SnapshotHandover> rank_;
  std::unique_ptr<NeighbourCopies> copies_;
};

class launch_neighbour_copies : public ::testing::Test {
 protected:
  void start(int nodes) {
    for (int n = 0; n < nodes; ++n)
      nodes_.push_back(std::make_unique<Node>(folder_.path(), store_, n, nodes, secret_));
  }
  void make(int slot, int64_t step) {
    for (const auto& node : nodes_) node->make(slot, step, static_cast<int>(nodes_.size()));
  }
  /// Every node has said that it has copies of that step.
  void wait_for(int64_t step) {
    const auto observer = store_.clone(Deadline::never());
    for (size_t n = 0; n < nodes_.size(); ++n)
      EXPECT_EQ(observer->get("copied/" + save(step) + "/0/" + std::to_string(n),
                              Deadline::after(kPatience)),
                "");
  }

  PrivateFolder folder_{"trireme-test"};
  MemoryStore store_;
  const net::Secret secret_{net::generate_secret()};
  std::vector<std::unique_ptr<Node>> nodes_;
};

TEST_F(launch_neighbour_copies, each_node_has_its_own_and_those_of_the_node_before_it) {
  start(3);
  make(0, 4);
  wait_for(4);
  make(1, 8);
  wait_for(8);
  for (int n = 0; n < 3; ++n) {
    const std::multiset<std::pair<int64_t, int64_t>> all = nodes_[static_cast<size_t>(n)]->take();
    // The texts are there before the last of them has put the older copies away.
    EXPECT_EQ(all.count({8, n}), 1u) << n;
    EXPECT_EQ(all.count({8, (n + 2) % 3}), 1u) << n;
    EXPECT_LE(all.size(), 4u);
  }
}

TEST_F(launch_neighbour_copies, what_was_copied_stays_while_a_node_has_not_made_the_next) {
  start(2);
  make(0, 4);
  wait_for(4);
  nodes_[0]->make(1, 8, 2);  // and node 1 died before
  const auto said = store_.clone(Deadline::never());
  said->get("staged/" + save(8) + "/0/0", Deadline::after(kPatience));
  const auto zero = nodes_[0]->take(), one = nodes_[1]->take();
  for (const auto& all : {zero, one}) {
    EXPECT_EQ(all.count({4, 0}), 1u);
    EXPECT_EQ(all.count({4, 1}), 1u);
  }
}

TEST_F(launch_neighbour_copies, a_step_that_its_program_loads_from_the_disk_is_not_copied) {
  start(2);
  for (const auto& node : nodes_) node->make(0, 4, 2, /*resumes=*/false);
  make(1, 3);
  wait_for(3);
  for (const auto& node : nodes_)
    for (const auto& [step, rank] : node->take()) EXPECT_EQ(step, 3);
}

}  // namespace
}  // namespace trireme::launch::neighbour_copies_test
