// SPDX-License-Identifier: Apache-2.0
#include "cli/worker/peers/peer.h"

namespace trireme {
namespace {

using bench::Op;

ReduceOp reduce_op(bench::Red red) {
  switch (red) {
    case bench::Red::prod:
      return ReduceOp::product;
    case bench::Red::min:
      return ReduceOp::min;
    case bench::Red::max:
      return ReduceOp::max;
    case bench::Red::avg:
      return ReduceOp::avg;
    default:
      return ReduceOp::sum;
  }
}

Collective collective(Op op) {
  switch (op) {
    case Op::all_reduce:
      return Collective::all_reduce;
    case Op::all_gather:
      return Collective::all_gather;
    case Op::reduce_scatter:
      return Collective::reduce_scatter;
    case Op::broadcast:
      return Collective::broadcast;
    case Op::reduce:
      return Collective::reduce;
    case Op::gather:
      return Collective::gather;
    case Op::scatter:
      return Collective::scatter;
    case Op::all_to_all:
      return Collective::all_to_all;
    case Op::sendrecv:
    case Op::pingpong:
      return Collective::send;
    case Op::barrier:
      break;
  }
  return Collective::barrier;
}

/// A Group of ours, whatever its backend.
class GroupPeer final : public BenchPeer {
 public:
  explicit GroupPeer(Group group) : group_(std::move(group)) {}

  std::string lacks(Op op, bench::Red red, const bench::Type& type) const override {
    const auto dtype = scalar_type_of(type);
    if (op != Op::barrier && !group_.supports(collective(op), dtype, at::kCPU))
      return std::string("no ") + name_of(op) + " of " + type.name;
    if (bench::reduces(op) && !group_.supports(reduce_op(red), dtype))
      return std::string("no ") + name_of(red) + " of " + type.name;
    return "";
  }

  void run(BenchCall& c) override {
    const int me = group_.rank(), n = group_.size();
    const std::vector<at::Tensor> none;
    switch (c.op) {
      case Op::all_reduce:
        return group_.all_reduce(c.out, reduce_op(c.red)).wait();
      case Op::all_gather:
        return group_.all_gather_into_tensor(c.out, c.in).wait();
      case Op::reduce_scatter:
        return group_.reduce_scatter_tensor(c.out, c.in, reduce_op(c.red)).wait();
      case Op::broadcast:
        return group_.broadcast(c.out, c.root).wait();
      case Op::reduce:
        return group_.reduce(c.out, c.root, reduce_op(c.red)).wait();
      case Op::gather:
        return group_.gather(me == c.root ? c.out_parts : none, c.in, c.root).wait();
      case Op::scatter:
        return group_.scatter(c.out, me == c.root ? c.in_parts : none, c.root).wait();
      case Op::all_to_all:
        return group_.all_to_all_single(c.out, c.in).wait();
      case Op::sendrecv: {
        Work sent = group_.isend(c.in, (me + 1) % n);
        group_.recv(c.out, (me + n - 1) % n).wait();
        return sent.wait();
      }
      case Op::pingpong:
        if (me == 0) {
          group_.send(c.in, 1).wait();
          group_.recv(c.out, 1).wait();
        } else if (me == 1) {
          group_.recv(c.out, 0).wait();
          group_.send(c.out, 0).wait();
        }
        return;
      case Op::barrier:
        return group_.barrier();
    }
  }

 private:
  Group group_;
};

}  // namespace

std::unique_ptr<BenchPeer> group_peer(Group group) {
  return std::make_unique<GroupPeer>(std::move(group));
}

at::ScalarType scalar_type_of(const bench::Type& type) {
  const std::string name = type.name;
  return name == "float"      ? at::kFloat
         : name == "double"   ? at::kDouble
         : name == "half"     ? at::kHalf
         : name == "bfloat16" ? at::kBFloat16
         : name == "int8"     ? at::kChar
         : name == "uint8"    ? at::kByte
         : name == "int32"    ? at::kInt
                              : at::kLong;
}

}  // namespace trireme
