// SPDX-License-Identifier: Apache-2.0
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>

#include "tests/support/pretend_device/current.h"
#include "tests/support/pretend_device/kernels.h"
#include "tests/support/pretend_device/machine.h"

// Copies run late, on the current stream of the device, by raw pointers: who frees or rewrites
// memory too early gets what is there by then. The rules of what blocks are CUDA's.
namespace trireme::pretend {
namespace {

// As a thread of the device does it.
Queue::Work copying(const at::Tensor& to, const at::Tensor& from) {
  return [to, from] {
    const at::AutoDispatchBelowADInplaceOrView below;
    at::Tensor(to).copy_(from);
  };
}

at::Tensor without_owner(const at::Tensor& host) {
  at::Tensor seen = at::from_blob(host.data_ptr(), host.sizes(), host.strides(),
                                  at::TensorOptions().dtype(host.dtype()));
  return seen;
}

// What a copy engine can do: bytes in a row.
bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  return a.dtype() == b.dtype() && a.is_contiguous() && b.is_contiguous() &&
         a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

void to_device(const at::Tensor& to, const at::Tensor& host, bool non_blocking) {
  Machine& machine = Machine::of_process();
  Queue& queue = machine.current_queue(to.device());
  if (!non_blocking) {
    refuse_host_wait("a copy to the device that is not non_blocking");
    host_wait(queue.enqueue(copying(for_kernels(to), host)), "a copy to the device");
  } else if (machine.pinned().holds(host.data_ptr()) && same_layout(to, host)) {
    ++machine.async_copies;
    machine.pinned().used(host.data_ptr(),
                          queue.enqueue(copying(for_kernels(to), without_owner(host))));
  } else {  // through memory of the driver: the caller may change its own when this returns
    ++machine.staged_copies;
    queue.enqueue(copying(for_kernels(to), host.clone()));
  }
}

void to_host(const at::Tensor& host, const at::Tensor& from, bool non_blocking) {
  Machine& machine = Machine::of_process();
  Queue& queue = machine.current_queue(from.device());
  if (non_blocking && machine.pinned().holds(host.data_ptr()) && same_layout(host, from)) {
    ++machine.async_copies;
    machine.pinned().used(host.data_ptr(),
                          queue.enqueue(copying(without_owner(host), for_kernels(from))));
    return;
  }
  refuse_host_wait("a copy to the host that is not non_blocking and pinned");
  if (non_blocking) ++machine.staged_copies;
  host_wait(queue.enqueue(copying(host, for_kernels(from))), "a copy to the host");
}

// By the stream of the source's device, in order with that of the destination's.
void between_devices(const at::Tensor& to, const at::Tensor& from) {
  Machine& machine = Machine::of_process();
  Queue& queue = machine.current_queue(from.device());
  Queue& theirs = machine.current_queue(to.device());
  queue.wait_for(theirs.newest());
  theirs.wait_for(queue.enqueue(copying(for_kernels(to), for_kernels(from))));
}

}  // namespace

at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  if (self.is_same(src)) return self;
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::Tensor from = src.sizes() == self.sizes() ? src : src.expand(self.sizes());
  if (self.numel() == 0) return self;
  if (!is_ours(from))
    to_device(self, from, non_blocking);
  else if (!is_ours(self))
    to_host(self, from, non_blocking);
  else
    between_devices(self, from);
  return self;
}

// What comes to the host without blocking comes into pinned memory.
at::Tensor to_copy(const at::Tensor& self, c10::optional<at::ScalarType> dtype,
                   c10::optional<at::Layout> layout, c10::optional<at::Device> device,
                   c10::optional<bool> pin, bool non_blocking,
                   c10::optional<at::MemoryFormat> format) {
  if (!non_blocking || !device || !device->is_cpu() || !is_ours(self))
    return at::native::_to_copy(self, dtype, layout, device, pin, non_blocking, format);
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::Tensor from = dtype && *dtype != self.scalar_type() ? self.to(*dtype) : self;
  at::Tensor host = at::detail::empty_generic(
      from.sizes(), &pinned_allocator(), c10::DispatchKeySet(c10::DispatchKey::CPU),
      from.scalar_type(),
      format.value_or(at::MemoryFormat::Preserve) == at::MemoryFormat::Preserve
          ? from.suggest_memory_format()
          : *format);
  host.copy_(from, true);
  return host;
}

bool is_pinned(const at::Tensor& self, c10::optional<at::Device>) {
  return self.is_cpu() && Machine::of_process().pinned().holds(self.storage().data());
}

at::Tensor pin_memory(const at::Tensor& self, c10::optional<at::Device>) {
  TORCH_CHECK(self.is_cpu(), "cannot pin a tensor of ", self.device(),
              ": only tensors of the CPU can be pinned");
  at::Tensor pinned = at::detail::empty_generic(self.sizes(), &pinned_allocator(),
                                                c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                self.scalar_type(), self.suggest_memory_format());
  pinned.copy_(self);
  return pinned;
}

void record_stream(at::Tensor& self, at::Stream s) {
  if (self.storage().data())
    Machine::of_process()
        .memory(self.device().index())
        .used_on(self.storage().data(), Machine::of_process().queue(s));
}

}  // namespace trireme::pretend
