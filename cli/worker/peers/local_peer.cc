// SPDX-License-Identifier: Apache-2.0
#include "cli/worker/peers/peer.h"

namespace trireme {
namespace {

class LocalPeer final : public BenchPeer {
 public:
  explicit LocalPeer(Group world) : world_(std::move(world)) {}
  void all_reduce(at::Tensor& tensor) override { world_.all_reduce(tensor).wait(); }

 private:
  Group world_;
};

}  // namespace

std::unique_ptr<BenchPeer> local_peer(Group world) {
  return std::make_unique<LocalPeer>(std::move(world));
}

}  // namespace trireme
