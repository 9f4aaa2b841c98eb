// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/wrappers/by_device.h"

#include <c10/core/Device.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/comm/wrappers/one_device.h"

namespace trireme::detail {
namespace {

constexpr int kKindBits = 6;  // bits of a token's kind are the backend's own, the rest select it

class ByDevice final : public Backend {
 public:
  struct Part {
    at::DeviceType device;
    std::shared_ptr<Backend> backend;
  };

  ByDevice(std::string name, std::vector<Part> parts)
      : Backend(parts[0].backend->rank(), parts[0].backend->size(), parts[0].backend->timeout()),
        name_(std::move(name)),
        parts_(std::move(parts)) {}

  const std::string& name() const override { return name_; }
  bool supports(Collective op, at::ScalarType dtype, at::DeviceType device) const override {
    for (const Part& part : parts_)
      if (part.device == device) return part.backend->supports(op, dtype, device);
    return false;
  }
  bool supports(ReduceOp op, at::ScalarType dtype) const override {
    return std::all_of(parts_.begin(), parts_.end(),
                       [&](const Part& p) { return p.backend->supports(op, dtype); });
  }
  bool wait_orders_streams(at::DeviceType device) const override {
    return std::any_of(parts_.begin(), parts_.end(), [&](const Part& p) {
      return p.device == device && p.backend->wait_orders_streams(device);
    });
  }
  at::Tensor empty(at::IntArrayRef sizes, at::TensorOptions options) override {
    return parts_[index_of(options.device().type())].backend->empty(sizes, options);
  }

  Token post(const Call& call) override {
    const at::Tensor* t = call.counted();
    const size_t index = t ? index_of(t->device().type()) : 0;
    check_one_device(call);
    return marked(parts_[index].backend->post(call), index);
  }

  void wait(Token token, Duration timeout) override { of(token).wait(inner(token), timeout); }
  bool completed(Token token) override { return of(token).completed(inner(token)); }
  int source(Token token) override { return of(token).source(inner(token)); }
  void when_complete(Token token, std::function<void()> done) override {
    of(token).when_complete(inner(token), std::move(done));
  }
  int64_t shared_bytes() const override {
    int64_t bytes = 0;
    for (const Part& part : parts_) bytes += part.backend->shared_bytes();
    return bytes;
  }
  void progress() override {
    for (Part& part : parts_) part.backend->progress();
  }
  void abort(const std::string& why, AbortKind kind) override {
    for (Part& part : parts_) part.backend->abort(why, kind);
  }

  std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                    const std::string& name) override {
    std::vector<Part> parts;
    for (Part& part : parts_)
      parts.push_back({part.device, make_subgroup(*part.backend, members,
                                                  fmt::format("{}:{}", name, parts.size()))});
    return std::make_shared<ByDevice>(name_, std::move(parts));
  }

 private:
  size_t index_of(at::DeviceType device) const {
    for (size_t i = 0; i < parts_.size(); ++i)
      if (parts_[i].device == device) return i;
    fail<UsageError>("the backends {} include none for {}", name_,
                     c10::DeviceTypeName(device, true));
  }
  static Token marked(Token token, size_t index) {
    if (token.kind) token.kind |= static_cast<uint8_t>(index << kKindBits);
    return token;
  }
  Backend& of(Token token) { return *parts_[token.kind >> kKindBits].backend; }
  static Token inner(Token token) {
    token.kind &= (1 << kKindBits) - 1;
    return token;
  }

  const std::string name_;
  std::vector<Part> parts_;
};

}  // namespace

bool is_by_device(const std::string& backend) { return backend.find(':') != std::string::npos; }

std::shared_ptr<Backend> by_device_backend(const std::string& text, const MakeForDevice& make) {
  struct Wanted {
    std::string device, backend;
  };
  std::vector<Wanted> wanted;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, end - at);
    const size_t colon = item.find(':');
    check<UsageError>(colon != std::string::npos && colon > 0 && colon + 1 < item.size(),
                      "backend '{}': write DEVICE:BACKEND,… as in cpu:local,cuda:nccl", text);
    wanted.push_back({item.substr(0, colon), item.substr(colon + 1)});
    at = end + 1;
  }
  check<UsageError>(wanted.size() <= (size_t{1} << (8 - kKindBits)),
                    "backend '{}': more than {} devices", text, 1 << (8 - kKindBits));
  std::vector<ByDevice::Part> parts;
  for (const Wanted& w : wanted) {
    at::DeviceType device;
    try {
      device = c10::Device(w.device).type();
    } catch (const std::exception&) {
      fail<UsageError>("backend '{}': there is no device '{}'; use cpu or cuda", text, w.device);
    }
    for (const auto& part : parts)
      check<UsageError>(part.device != device, "backend '{}': two for {}", text, w.device);
    parts.push_back({device, nullptr});
  }
  for (size_t i = 0; i < wanted.size(); ++i)
    parts[i].backend = make(wanted[i].backend, wanted[i].device);
  return std::make_shared<ByDevice>(text, std::move(parts));
}

}  // namespace trireme::detail
