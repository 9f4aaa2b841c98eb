// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/zeros.h>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "cli/worker/peers/peer.h"

namespace trireme {
namespace {

class GlooPeer final : public BenchPeer {
 public:
  explicit GlooPeer(Group world) {
    c10d::TCPStoreOptions store_options;
    store_options.port = 0;
    store_options.isServer = world.rank() == 0;
    store_options.waitWorkers = false;
    at::Tensor port = at::zeros({1}, at::kLong);
    if (world.rank() == 0) {
      store_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", store_options);
      *static_cast<int64_t*>(port.data_ptr()) = store_->getPort();
    }
    world.broadcast(port, 0).wait();
    if (world.rank() != 0) {
      store_options.port = static_cast<uint16_t>(*static_cast<int64_t*>(port.data_ptr()));
      store_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", store_options);
    }
    auto options = c10d::ProcessGroupGloo::Options::create();
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    group_ =
        c10::make_intrusive<c10d::ProcessGroupGloo>(store_, world.rank(), world.size(), options);
  }

  void all_reduce(at::Tensor& tensor) override {
    std::vector<at::Tensor> tensors{tensor};
    group_->allreduce(tensors)->wait();
  }
  bool supports(at::ScalarType t) const override { return t != at::kBFloat16; }

 private:
  c10::intrusive_ptr<c10d::TCPStore> store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

}  // namespace

std::unique_ptr<BenchPeer> gloo_peer(Group world) {
  return std::make_unique<GlooPeer>(std::move(world));
}

}  // namespace trireme
