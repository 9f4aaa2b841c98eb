// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>

#include <string>
#include <unordered_set>
#include <vector>

#include "tests/support/pretend_device/borrowed.h"
#include "tests/support/pretend_device/current.h"
#include "tests/support/pretend_device/kernels.h"
#include "tests/support/pretend_device/machine.h"

// An operator by the CPU's kernel: when the current stream has drained, at once, on the device's
// own bytes. Another stream's work may be under way meanwhile; who needed it and did not wait,
// computes with what is there.
namespace trireme::pretend {
namespace {

// Their results come to the host: on a GPU they block.
bool answers_the_host(const std::string& op) {
  static const std::unordered_set<std::string> kOps{
      "aten::_local_scalar_dense", "aten::equal",    "aten::nonzero",
      "aten::masked_select",       "aten::_unique2", "aten::unique_consecutive",
      "aten::unique_dim",          "aten::bincount"};
  return kOps.count(op) > 0;
}

// May take tensors of the CPU beside those of the device: indices, as on a GPU.
bool takes_host_tensors(const std::string& op) {
  static const std::unordered_set<std::string> kOps{"aten::index", "aten::index_put_",
                                                    "aten::_index_put_impl_"};
  return kOps.count(op) > 0;
}

class Call {
 public:
  explicit Call(const c10::OperatorHandle& op) : op_(op), name_(op.operator_name().name) {}

  void run(torch::jit::Stack* stack) {
    const auto& schema = op_.schema();
    const size_t count = schema.arguments().size(), first = stack->size() - count;
    for (size_t i = first; i < stack->size(); ++i) look_at((*stack)[i]);
    TORCH_CHECK(device_.type() == c10::kPrivateUse1, c10::toString(op_.operator_name()),
                ": no argument says which pretend device it is for");
    check_devices();
    Machine& machine = Machine::of_process();
    // As LibTorch says it of a device that has no fallback.
    TORCH_CHECK_NOT_IMPLEMENTED(
        !machine.lacks(name_), "Could not run '", c10::toString(op_.operator_name()),
        "' with arguments from the 'PrivateUse1' backend. This could be because the operator "
        "doesn't exist for this backend.");
    machine.note_fallback(c10::toString(op_.operator_name()));
    Queue& queue = machine.current_queue(device_);
    if (answers_the_host(name_)) host_wait(queue.newest(), name_.c_str());
    queue.drain();
    for (size_t i = first; i < stack->size(); ++i) (*stack)[i] = lend((*stack)[i]);
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
      lent_.keep_changes();
      for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i)
        (*stack)[i] = take_back((*stack)[i]);
    }
  }

 private:
  void look_at(const c10::IValue& v) {
    if (v.isTensor()) return look_at(v.toTensor());
    if (v.isTensorList())
      for (const at::Tensor& t : v.toTensorVector()) look_at(t);
    if (v.isOptionalTensorList())
      for (const c10::optional<at::Tensor> t : v.toOptionalTensorList())
        if (t) look_at(*t);
    if (v.isDevice() && v.toDevice().type() == c10::kPrivateUse1) meet(with_index(v.toDevice()));
  }
  void look_at(const at::Tensor& t) {
    if (!t.defined()) return;
    if (is_ours(t))
      meet(t.device());
    else if (t.dim() > 0)
      of_host_ = true;
  }
  void meet(c10::Device device) {
    if (device_.type() == c10::kPrivateUse1 && device_ != device)
      other_ = device;
    else
      device_ = device;
  }

  void check_devices() const {
    TORCH_CHECK(!other_,
                "Expected all tensors to be on the same device, but found at least two "
                "devices, ",
                device_, " and ", *other_, "! (", name_, ")");
    TORCH_CHECK(!of_host_ || takes_host_tensors(name_),
                "Expected all tensors to be on the same device, but found at least two devices, ",
                device_, " and cpu! (", name_, ")");
  }

  at::Tensor lend(const at::Tensor& t) { return t.defined() && is_ours(t) ? lent_.lend(t) : t; }
  c10::IValue lend(const c10::IValue& v) {
    if (v.isTensor()) return lend(v.toTensor());
    if (v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : v.toTensorVector()) list.push_back(lend(t));
      return list;
    }
    if (v.isOptionalTensorList()) {
      c10::List<c10::optional<at::Tensor>> list;
      for (const c10::optional<at::Tensor> t : v.toOptionalTensorList())
        list.push_back(t ? c10::optional<at::Tensor>(lend(*t)) : c10::nullopt);
      return list;
    }
    if (v.isDevice()) return c10::Device(c10::kCPU);
    return v;
  }

  c10::IValue take_back(const c10::IValue& v) const {
    if (v.isTensor()) return lent_.take_back(v.toTensor(), device_);
    if (v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : v.toTensorVector()) list.push_back(lent_.take_back(t, device_));
      return list;
    }
    return v;
  }

  const c10::OperatorHandle& op_;
  const std::string name_;
  c10::Device device_{c10::kCPU};
  c10::optional<c10::Device> other_;
  bool of_host_ = false;
  Borrowed lent_;
};

}  // namespace

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) { Call(op).run(stack); }

}  // namespace trireme::pretend
