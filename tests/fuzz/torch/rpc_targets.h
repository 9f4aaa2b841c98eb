// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/rpc_actor_targets.h"
#include "tests/support/pretend_call.h"
#include "trireme/rpc/autograd/context.h"
#include "trireme/rpc/autograd/contexts.h"
#include "trireme/rpc/codec/tensor.h"
#include "trireme/rpc/codec/tensor_crossing.h"
#include "trireme/rpc/server/parameter_server.h"
#include "trireme/rpc/server/protocol.h"

// What other workers say that has tensors in it: targets as those of ../targets.h, for the half of
// the library that has LibTorch. Those of actors are here, too: their headers need
// std::source_location, which the clang of libFuzzer may lack.
namespace trireme::fuzz {

/// Bytes that are taken one behind the other; beyond the end there are zeros.
class Bytes {
 public:
  explicit Bytes(std::string_view bytes) : left_(bytes) {}
  bool empty() const { return left_.empty(); }
  uint8_t byte() {
    const auto taken = take(1);
    return taken.empty() ? 0 : static_cast<uint8_t>(taken[0]);
  }
  size_t two() {
    const size_t low = byte();
    return low | size_t{byte()} << 8;
  }
  std::string take(size_t n) {
    const std::string taken(left_.substr(0, n));
    left_.remove_prefix(taken.size());
    return taken;
  }
  std::string rest() { return take(left_.size()); }

 private:
  std::string_view left_;
};

inline encoding::Attachment body_of(size_t bytes) {
  auto memory = std::make_shared<std::string>(bytes, '\1');
  return {std::shared_ptr<const void>(memory, memory->data()), bytes};
}

/// A count of bodies, two bytes for the length of each, and a list of tensors.
inline void rpc_tensors(std::string_view all) {
  struct Noting final : rpc::detail::TensorCrossing {
    rpc::wire::Context said() const override { return {}; }
    void leaves(const at::Tensor&) override {}
    void comes(at::Tensor& tensor) override { tensor.requires_grad_(); }
  };
  const auto executor = std::make_shared<testing::PretendExecutor>();
  const auto line = std::make_shared<testing::PretendLine>("trainer0", 2, executor);
  for (const bool within : {false, true}) {
    Bytes bytes(all);
    std::vector<encoding::Attachment> bodies;
    for (int n = bytes.byte() % 8; n > 0; --n) bodies.push_back(body_of(bytes.two()));
    const std::string value = bytes.rest();
    rpc::detail::CallTransit transit(line, within ? std::make_shared<Noting>() : nullptr);
    encoding::Reader reader(value, std::move(bodies));
    reader.set_transit(&transit);
    std::vector<at::Tensor> tensors;
    try {
      reader.get(tensors);
    } catch (const Corrupt&) {
      continue;
    }
    // What came may be sent on, and is the same then.
    encoding::Writer writer;
    writer.set_transit(&transit);
    writer.put(tensors);
    const std::string again = writer.take();
    encoding::Reader second(again, writer.take_attachments());
    second.set_transit(&transit);
    std::vector<at::Tensor> same;
    second.get(same);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor &a = tensors[i], &b = same[i];
      if (a.defined() != b.defined()) throw std::logic_error("a tensor is undefined, or not");
      if (!a.defined()) continue;
      if (!a.is_contiguous() || a.sizes() != b.sizes() || a.dtype() != b.dtype() ||
          a.requires_grad() != b.requires_grad())
        throw std::logic_error("a tensor that is sent on becomes another");
      if (a.nbytes() > 0 && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) != 0)
        throw std::logic_error("a tensor that is sent on has other elements");
    }
  }
}

/// What a hostile description may have a server allocate is limited by the memory that there is;
/// what lies below is left out here, since it takes a moment. None: they are none.
inline std::optional<double> bytes_described(const std::string& arguments) {
  rpc::server::Join join;
  encoding::Reader reader(arguments);
  try {
    reader.get(join);
  } catch (const Error&) {
    return {};
  }
  double bytes = 0;
  for (const auto& key : join.keys) {
    double numel = 1;
    for (const int64_t size : key.sizes) numel *= static_cast<double>(size);
    bytes += 8 * numel;
  }
  for (const auto& table : join.tables)
    bytes += 8 * static_cast<double>(table.rows) * static_cast<double>(table.width);
  return bytes;
}

/// A byte that says whether the server is synchronous; then calls: the method, a byte for who calls
/// and how many bodies it brings, two for the length of its arguments, these.
inline void rpc_server_calls(std::string_view all) {
  Bytes bytes(all);
  rpc::ServerOptions options{.workers = 2};
  if (bytes.byte() & 1) options.staleness = 1;
  std::vector<std::shared_ptr<testing::PretendCall>> calls;
  const rpc::ParameterServer server(options);
  const rpc::Offer offer = server.offer();
  const auto executor = std::make_shared<testing::PretendExecutor>();
  const std::shared_ptr<testing::PretendLine> lines[] = {
      std::make_shared<testing::PretendLine>("trainer0", 2, executor),
      std::make_shared<testing::PretendLine>("trainer1", 3, executor)};
  while (!bytes.empty() && calls.size() < 64) {
    const auto& method = offer.methods[bytes.byte() % offer.methods.size()];
    const uint8_t who = bytes.byte();
    std::string arguments = bytes.take(bytes.two());
    std::vector<encoding::Attachment> bodies;
    for (int n = who >> 1 & 3; n > 0; --n) bodies.push_back(body_of(2400));
    if (&method == offer.methods.data()) {
      const auto described = bytes_described(arguments);
      if (described && *described > 1e6 && *described < 1e12) continue;
    }
    calls.push_back(std::make_shared<testing::PretendCall>(
        lines[who & 1], executor, std::vector<rpc::wire::Link>{{"server0", method.name}},
        std::move(arguments), std::move(bodies)));
    method.run(calls.back());
  }
  for (const auto& call : calls) call->stop();
}

/// Calls of others within a context in which this worker has made a tensor of one of theirs: the
/// method, a byte for the length of its arguments, these.
inline void rpc_autograd_calls(std::string_view all) {
  Bytes bytes(all);
  const auto executor = std::make_shared<testing::PretendExecutor>();
  const auto line = std::make_shared<testing::PretendLine>("trainer0", 2, executor);
  const rpc::Offer offer = rpc::autograd::offer();
  offer.carrier->joined("server0", 1, executor);
  std::vector<std::shared_ptr<testing::PretendCall>> calls;
  {
    const auto arrived = offer.carrier->arrived({2, 1, 1}, line);
    auto& crossing = dynamic_cast<rpc::detail::TensorCrossing&>(*arrived.crossing);
    at::Tensor x = at::tensor({1.0, 2.0});
    crossing.comes(x);
    crossing.leaves(x * at::tensor({3.0, 4.0}).requires_grad_());
  }
  while (!bytes.empty() && calls.size() < 64) {
    const auto& method = offer.methods[bytes.byte() % offer.methods.size()];
    calls.push_back(std::make_shared<testing::PretendCall>(
        line, executor, std::vector<rpc::wire::Link>{{"server0", method.name}},
        bytes.take(bytes.byte())));
    method.run(calls.back());
    executor->run_all();
  }
  // Whoever began the context is gone.
  offer.carrier->lost(*line);
  executor->run_all();
  std::static_pointer_cast<rpc::autograd::Contexts>(offer.carrier)->ended({2, 1});
  for (const auto& call : calls)
    if (!call->answered() && call->method() != "trireme.autograd.run")
      throw std::logic_error("a call of a backward is never answered");
  for (const auto& call : calls) call->stop();
}

struct TorchTarget {
  const char* name;
  void (*run)(std::string_view);
};
inline constexpr TorchTarget kTorchTargets[] = {{"rpc_tensors", rpc_tensors},
                                                {"rpc_server_calls", rpc_server_calls},
                                                {"rpc_autograd_calls", rpc_autograd_calls},
                                                {"rpc_actor_messages", rpc_actor_messages}};

}  // namespace trireme::fuzz
