// SPDX-License-Identifier: Apache-2.0
#include <ATen/EmptyTensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>

#include <cstring>
#include <utility>

#include "tests/support/pretend_device/compat.h"
#include "tests/support/pretend_device/current.h"
#include "tests/support/pretend_device/kernels.h"
#include "tests/support/pretend_device/machine.h"

// Tensors of the device are made, resized and set to other memory.
namespace trireme::pretend {
namespace {

struct DeviceAllocator final : AllocatorBase {
  c10::DataPtr allocate_bytes(size_t bytes) const override {
    const c10::Device device = current_device();
    if (bytes == 0) return {nullptr, device};
    Machine& machine = Machine::of_process();
    void* p = machine.memory(device.index()).take(bytes, machine.current_queue(device));
    return {p, p, &give_back, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  static void give_back(void* p) {
    Machine& machine = Machine::of_process();
    if (p) machine.memory(machine.mapping().device_of(p)).give_back(p);
  }
};

void check_dense(c10::optional<at::Layout> layout, c10::optional<bool> pin) {
  TORCH_CHECK(c10::layout_or_default(layout) == at::kStrided,
              "a pretend device has strided tensors only");
  TORCH_CHECK(!c10::pinned_memory_or_default(pin), "only tensors of the CPU can be pinned");
}

c10::Device device_or_current(c10::optional<at::Device> device) {
  return with_index(device.value_or(c10::Device(c10::kPrivateUse1)));
}

// More bytes behind the same storage, which all tensors on it see.
void grow(const at::Tensor& t, size_t bytes) {
  auto* storage = t.storage().unsafeGetStorageImpl();
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  Machine& machine = Machine::of_process();
  const c10::DeviceGuard guard(t.device());
  c10::DataPtr fresh = device_allocator().allocate(bytes);
  if (storage->nbytes() > 0)
    machine.current_queue(t.device())
        .enqueue([to = machine.mapping().for_kernels(fresh.get()),
                  from = machine.mapping().for_kernels(storage->data_ptr().get()),
                  n = storage->nbytes()] { std::memcpy(to, from, n); });
  storage->set_data_ptr_noswap(std::move(fresh));
  storage->set_nbytes(bytes);
}

}  // namespace

c10::Allocator& device_allocator() {
  static auto* allocator = new DeviceAllocator;
  return *allocator;
}

at::Tensor for_kernels(const at::Tensor& t) {
  const auto options = at::TensorOptions().dtype(t.dtype());
  void* bytes =
      t.numel() == 0 ? nullptr : Machine::of_process().mapping().for_kernels(t.data_ptr());
  at::Tensor seen = at::from_blob(bytes, t.sizes(), t.strides(), options);
  if (t.is_conj()) seen._set_conj(true);
  if (t.is_neg()) seen._set_neg(true);
  return seen;
}

at::Tensor empty(at::IntArrayRef sizes, c10::optional<at::ScalarType> dtype,
                 c10::optional<at::Layout> layout, c10::optional<at::Device> device,
                 c10::optional<bool> pin, c10::optional<at::MemoryFormat> format) {
  check_dense(layout, pin);
  const c10::DeviceGuard guard(device_or_current(device));
  return at::detail::empty_generic(sizes, &device_allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         c10::optional<at::ScalarType> dtype, c10::optional<at::Layout> layout,
                         c10::optional<at::Device> device, c10::optional<bool> pin) {
  check_dense(layout, pin);
  const c10::DeviceGuard guard(device_or_current(device));
  return at::detail::empty_strided_generic(sizes, strides, &device_allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef sizes,
                          c10::optional<at::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  const size_t bytes = at::detail::computeStorageNbytesContiguous(
      sizes, self.element_size(), static_cast<size_t>(self.storage_offset()));
  if (bytes > self.storage().nbytes()) grow(self, bytes);
  impl->set_sizes_contiguous(sizes);
  if (format && *format != at::MemoryFormat::Preserve) impl->empty_tensor_restride(*format);
  return self;
}

at::Tensor& set_to_part(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef sizes,
                        at::IntArrayRef strides) {
  TORCH_CHECK(source.device() == self.device(), "set_() of a tensor of ", self.device(),
              " to memory of ", source.device(), ": move it there first");
  at::DimVector dense(sizes.size());
  int64_t step = 1;
  for (size_t d = sizes.size(); d-- > 0; step *= std::max<int64_t>(sizes[d], 1)) dense[d] = step;
  const at::IntArrayRef by = strides.empty() ? at::IntArrayRef(dense) : strides;
  TORCH_CHECK(offset >= 0 &&
                  at::detail::computeStorageNbytes(sizes, by, self.element_size(),
                                                   static_cast<size_t>(offset)) <= source.nbytes(),
              "set_() to sizes ", sizes, " at offset ", offset, " of a storage of ",
              source.nbytes(), " bytes: it has fewer elements");
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_sizes_and_strides(sizes, by, offset);
  return self;
}

at::Tensor& set_to_storage(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<int64_t>(source.nbytes() / self.element_size());
  return set_to_part(self, std::move(source), 0, {elements}, {});
}

at::Tensor& set_to_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) return self;
  return set_to_part(self, source.storage(), source.storage_offset(), source.sizes(),
                     source.strides());
}

at::Tensor& set_to_nothing(at::Tensor& self) {
  const c10::DeviceGuard guard(self.device());
  at::Storage nothing(at::Storage::use_byte_size_t(), 0, &device_allocator(), true);
  return set_to_part(self, std::move(nothing), 0, {0}, {});
}

}  // namespace trireme::pretend
