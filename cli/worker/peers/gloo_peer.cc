// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/zeros.h>

#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "cli/worker/peers/peer.h"
#include "trireme/rendezvous/rank_env.h"

namespace trireme {
namespace {

using bench::Op;

c10d::ReduceOp::RedOpType c10d_reduce_op(bench::Red red) {
  switch (red) {
    case bench::Red::prod:
      return c10d::ReduceOp::PRODUCT;
    case bench::Red::min:
      return c10d::ReduceOp::MIN;
    case bench::Red::max:
      return c10d::ReduceOp::MAX;
    default:
      return c10d::ReduceOp::SUM;
  }
}

class GlooPeer final : public BenchPeer {
 public:
  explicit GlooPeer(Group world) : rank_(world.rank()), size_(world.size()) {
    // One host: loopback, as `trireme run` and torchrun --standalone have it.
    const RankEnv env = read_rank_env();
    const bool one_host = env.world_size == 1 || env.single_host() || env.master_addr.empty();
    const std::string host = one_host ? "127.0.0.1" : env.master_addr;
    c10d::TCPStoreOptions store_options;
    store_options.port = 0;
    store_options.isServer = rank_ == 0;
    store_options.waitWorkers = false;
    at::Tensor port = at::zeros({1}, at::kLong);
    if (rank_ == 0) {
      store_ = c10::make_intrusive<c10d::TCPStore>(host, store_options);
      *static_cast<int64_t*>(port.data_ptr()) = store_->getPort();
    }
    world.broadcast(port, 0).wait();
    if (rank_ != 0) {
      store_options.port = static_cast<uint16_t>(*static_cast<int64_t*>(port.data_ptr()));
      store_ = c10::make_intrusive<c10d::TCPStore>(host, store_options);
    }
    auto options = c10d::ProcessGroupGloo::Options::create();
    const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
    options->devices.push_back(
        one_host                  ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
        : interface && *interface ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                                  : c10d::ProcessGroupGloo::createDefaultDevice());
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store_, rank_, size_, options);
  }

  std::string lacks(Op op, bench::Red red, const bench::Type& type) const override {
    const std::string name = type.name;
    if (op == Op::reduce_scatter) return "no reduce_scatter";
    if (bench::reduces(op) && red == bench::Red::avg) return "no avg";
    if (name == "bfloat16" && op != Op::sendrecv && op != Op::pingpong && op != Op::barrier)
      return "no bfloat16";
    return "";
  }

  void run(BenchCall& c) override {
    switch (c.op) {
      case Op::all_reduce: {
        c10d::AllreduceOptions options;
        options.reduceOp = c10d_reduce_op(c.red);
        std::vector<at::Tensor> tensors{c.out};
        group_->allreduce(tensors, options)->wait();
        return;
      }
      case Op::all_gather: {
        std::vector<std::vector<at::Tensor>> outputs{c.out_parts};
        std::vector<at::Tensor> inputs{c.in};
        group_->allgather(outputs, inputs)->wait();
        return;
      }
      case Op::broadcast: {
        c10d::BroadcastOptions options;
        options.rootRank = c.root;
        std::vector<at::Tensor> tensors{c.out};
        group_->broadcast(tensors, options)->wait();
        return;
      }
      case Op::reduce: {
        c10d::ReduceOptions options;
        options.reduceOp = c10d_reduce_op(c.red);
        options.rootRank = c.root;
        std::vector<at::Tensor> tensors{c.out};
        group_->reduce(tensors, options)->wait();
        return;
      }
      case Op::gather: {
        c10d::GatherOptions options;
        options.rootRank = c.root;
        std::vector<std::vector<at::Tensor>> outputs;
        if (rank_ == c.root) outputs.push_back(c.out_parts);
        std::vector<at::Tensor> inputs{c.in};
        group_->gather(outputs, inputs, options)->wait();
        return;
      }
      case Op::scatter: {
        c10d::ScatterOptions options;
        options.rootRank = c.root;
        std::vector<at::Tensor> outputs{c.out};
        std::vector<std::vector<at::Tensor>> inputs;
        if (rank_ == c.root) inputs.push_back(c.in_parts);
        group_->scatter(outputs, inputs, options)->wait();
        return;
      }
      case Op::all_to_all: {
        std::vector<int64_t> equal_out, equal_in;
        group_->alltoall_base(c.out, c.in, equal_out, equal_in)->wait();
        return;
      }
      case Op::sendrecv: {
        std::vector<at::Tensor> out{c.out}, in{c.in};
        auto sent = group_->send(in, (rank_ + 1) % size_, 0);
        group_->recv(out, (rank_ + size_ - 1) % size_, 0)->wait();
        sent->wait();
        return;
      }
      case Op::pingpong: {
        std::vector<at::Tensor> out{c.out}, in{c.in};
        if (rank_ == 0) {
          group_->send(in, 1, 0)->wait();
          group_->recv(out, 1, 0)->wait();
        } else if (rank_ == 1) {
          group_->recv(out, 0, 0)->wait();
          group_->send(out, 0, 0)->wait();
        }
        return;
      }
      case Op::barrier:
        group_->barrier()->wait();
        return;
      case Op::reduce_scatter:
        return;  // refused by lacks()
    }
  }

 private:
  const int rank_, size_;
  c10::intrusive_ptr<c10d::TCPStore> store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

}  // namespace

std::unique_ptr<BenchPeer> gloo_peer(Group world) {
  return std::make_unique<GlooPeer>(std::move(world));
}

}  // namespace trireme
