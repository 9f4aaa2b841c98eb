// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/stand_in.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/as_strided_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>
#include <torch/library.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "tests/gpu/stand_in_memory.h"
#include "trireme/base/check.h"

// Two CUDA devices for a LibTorch that has none.
namespace trireme::testing {
namespace {

using c10::DeviceIndex;
using c10::DispatchKey;
using c10::Stream;

// ── memory ──────────────────────────────────────────────────────────────────────────────────────

// One file, mapped twice: where tensors say they are nobody may touch it; kernels know the other.
class Memory {
 public:
  static Memory& of_process() {
    static auto* memory = new Memory;  // tensors may outlive static objects
    return *memory;
  }

  void* take(size_t bytes, DeviceIndex device) {
    const size_t size = std::bit_ceil(std::max<size_t>(bytes, 512));
    std::lock_guard lock(mutex_);
    Half& half = halves_[static_cast<size_t>(device)];
    auto& free = half.free[size];
    char* p;
    if (!free.empty()) {
      p = free.back();
      free.pop_back();
    } else {
      check<Error>(half.used + size <= kBytes / 2, "the stand-in GPU is out of memory");
      p = device_ + static_cast<size_t>(device) * (kBytes / 2) + half.used;
      half.used += size;
    }
    half.taken[p] = size;
    std::memset(for_kernels(p), 0x7f, size);  // what nobody wrote is no zero
    return p;
  }
  void give_back(void* p) {
    std::lock_guard lock(mutex_);
    Half& half = halves_[static_cast<size_t>(index_of(p))];
    const auto it = half.taken.find(static_cast<char*>(p));
    const size_t size = it->second;
    half.taken.erase(it);
    std::memset(for_kernels(p), 0xff, size);  // NaN for who reads what is gone
    half.free[size].push_back(static_cast<char*>(p));
  }
  bool has(const void* p) const { return p >= device_ && p < device_ + kBytes; }
  DeviceIndex index_of(const void* p) const {
    return static_cast<DeviceIndex>((static_cast<const char*>(p) - device_) /
                                    static_cast<ptrdiff_t>(kBytes / 2));
  }
  void* for_kernels(const void* p) const { return host_ + (static_cast<const char*>(p) - device_); }
  bool has_for_kernels(const void* p) const { return p >= host_ && p < host_ + kBytes; }

 private:
  static constexpr size_t kBytes = size_t{8} << 30;  // sparse
  struct Half {
    size_t used = 0;
    std::map<size_t, std::vector<char*>> free;
    std::map<char*, size_t> taken;
  };

  Memory() {
    const int file = memfd_create("stand-in GPU", MFD_CLOEXEC);
    check<Error>(file >= 0 && ftruncate(file, kBytes) == 0, "no memory for the stand-in GPU");
    device_ = static_cast<char*>(mmap(nullptr, kBytes, PROT_NONE, MAP_SHARED, file, 0));
    host_ = static_cast<char*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0));
    check<Error>(device_ != MAP_FAILED && host_ != MAP_FAILED, "no memory for the stand-in GPU");
    close(file);
  }

  std::mutex mutex_;
  Half halves_[kStandInGpus];
  char *device_, *host_;
};

thread_local DeviceIndex current_device = 0;

c10::Device device_or_current(c10::optional<c10::Device> device) {
  return {c10::kCUDA, device && device->has_index() ? device->index() : current_device};
}

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) const override {
    const c10::Device device(c10::kCUDA, current_device);
    if (bytes == 0) return {nullptr, nullptr, &nothing, device};
    void* p = Memory::of_process().take(bytes, current_device);
    return {p, p, [](void* q) { Memory::of_process().give_back(q); }, device};
  }
  static void nothing(void*) {}
};
DeviceAllocator allocator;

// ── what LibTorch asks of a device ──────────────────────────────────────────────────────────────

struct GuardImpl final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device d) const override {
    const c10::Device before = getDevice();
    setDevice(d);
    return before;
  }
  c10::Device getDevice() const override { return {c10::kCUDA, current_device}; }
  void setDevice(c10::Device d) const override {
    check<Error>(d.index() < kStandInGpus, "there is no GPU {}", static_cast<int>(d.index()));
    if (d.index() >= 0) current_device = d.index();
  }
  void uncheckedSetDevice(c10::Device d) const noexcept override {
    if (d.index() >= 0) current_device = d.index();
  }
  Stream getStream(c10::Device d) const noexcept override { return Stream(Stream::DEFAULT, d); }
  Stream getDefaultStream(c10::Device d) const override { return Stream(Stream::DEFAULT, d); }
  Stream getStreamFromGlobalPool(c10::Device d, bool) const override { return getStream(d); }
  Stream exchangeStream(Stream s) const noexcept override { return s; }
  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const Stream&) const override {}
  DeviceIndex deviceCount() const noexcept override { return kStandInGpus; }
};

}  // namespace
}  // namespace trireme::testing

namespace at {

struct StandInHooks final : CUDAHooksInterface {
  explicit StandInHooks(CUDAHooksArgs) {}
  void initCUDA() const override {}
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasPrimaryContext(int64_t) const override { return true; }
  int64_t current_device() const override { return trireme::testing::current_device; }
  int getNumGPUs() const override { return trireme::testing::kStandInGpus; }
  void deviceSynchronize(int64_t) const override {}
  Allocator* getPinnedMemoryAllocator() const override { return GetAllocator(kCPU); }
  Allocator* getCUDADeviceAllocator() const override { return &trireme::testing::allocator; }
  Device getDeviceFromPtr(void* p) const override {
    TORCH_CHECK(trireme::testing::Memory::of_process().has(p),
                "The specified pointer resides on host memory and is not registered with any CUDA "
                "device.");
    return {kCUDA, trireme::testing::Memory::of_process().index_of(p)};
  }
  const Generator& getDefaultCUDAGenerator(DeviceIndex index) const override {
    static auto* all =
        new std::vector<Generator>{detail::createCPUGenerator(), detail::createCPUGenerator()};
    return (*all)[static_cast<size_t>(index < 0 ? trireme::testing::current_device : index)];
  }
};
C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", StandInHooks);

}  // namespace at

namespace trireme::testing {
namespace {

C10_REGISTER_GUARD_IMPL(CUDA, GuardImpl);

// ── kernels ─────────────────────────────────────────────────────────────────────────────────────

bool is_stand_in(const at::Tensor& t) { return t.defined() && t.device().is_cuda(); }

struct Moved {
  at::Tensor device, host;
};

/// The same bytes, as a tensor that a CPU's kernel may touch.
at::Tensor readable(const at::Tensor& t) {
  const auto options = at::TensorOptions().dtype(t.dtype());
  TORCH_CHECK(t.numel() == 0 || Memory::of_process().has(t.data_ptr()),
              "an illegal memory access was encountered");
  at::Tensor host;
  if (t.numel() == 0)
    host = at::empty_strided(t.sizes(), t.strides(), options);
  else
    host = at::from_blob(Memory::of_process().for_kernels(t.data_ptr()), t.sizes(), t.strides(),
                         options);
  if (t.unsafeGetTensorImpl()->is_wrapped_number())
    host.unsafeGetTensorImpl()->set_wrapped_number(true);
  return host;
}

at::Tensor on_device(const at::Tensor& host, c10::Device device) {
  const c10::impl::VirtualGuardImpl impl(c10::kCUDA);
  const c10::Device before = impl.exchangeDevice(device);
  at::Tensor t =
      at::detail::empty_strided_generic(host.sizes(), host.strides(), &allocator,
                                        c10::DispatchKeySet(DispatchKey::CUDA), host.scalar_type());
  impl.setDevice(before);
  if (t.numel() > 0)
    std::memcpy(Memory::of_process().for_kernels(t.storage().data()), host.data_ptr(),
                t.storage().nbytes());
  return t;
}

/// A view of what is on a device, made by a CPU's kernel from `of.host`.
at::Tensor same_view(const at::Tensor& host, const Moved& of) {
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(of.device.storage()), of.device.key_set(), host.dtype());
  int64_t offset = of.device.storage_offset();
  if (host.numel() > 0) {
    const auto* base =
        static_cast<const char*>(Memory::of_process().for_kernels(of.device.storage().data()));
    offset = (static_cast<const char*>(host.data_ptr()) - base) /
             static_cast<int64_t>(host.element_size());
  }
  view.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(), offset);
  return view;
}

class Kernel {
 public:
  Kernel(const c10::OperatorHandle& op, bool mixes) : op_(op), mixes_(mixes) {}

  void run(torch::jit::Stack* stack) {
    const auto& schema = op_.schema();
    const size_t count = schema.arguments().size(), first = stack->size() - count;
    for (size_t i = 0; i < count; ++i) (*stack)[first + i] = to_host((*stack)[first + i]);
    refuse_host_tensors();
    {
      at::AutoDispatchBelowADInplaceOrView guard;
      op_.redispatchBoxed(c10::DispatchKeySet(DispatchKey::CPU), stack);
    }
    for (const Moved& m : moved_) after_write(m);
    for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i)
      (*stack)[i] = to_device((*stack)[i]);
  }

 private:
  at::Tensor to_host(const at::Tensor& t) {
    if (!is_stand_in(t)) {
      if (t.defined() && t.dim() > 0) plain_.push_back(t);
      return t;
    }
    device_ = t.device();
    moved_.push_back({t, readable(t)});
    return moved_.back().host;
  }
  c10::IValue to_host(const c10::IValue& v) {
    if (v.isTensor()) return to_host(v.toTensor());
    if (v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : v.toTensorVector()) list.push_back(to_host(t));
      return list;
    }
    if (v.isOptionalTensorList()) {
      c10::List<c10::optional<at::Tensor>> list;
      for (const auto& entry : v.toOptionalTensorList()) {
        const c10::optional<at::Tensor> t = static_cast<c10::optional<at::Tensor>>(entry);
        list.push_back(t ? c10::optional<at::Tensor>(to_host(*t)) : c10::nullopt);
      }
      return list;
    }
    if (v.isDevice()) {
      device_ = v.toDevice();
      return c10::Device(c10::kCPU);
    }
    return v;
  }

  // As every kernel of CUDA does.
  void refuse_host_tensors() const {
    TORCH_CHECK(mixes_ || plain_.empty() || moved_.empty(),
                "Expected all tensors to be on the same device, but found at least two devices, "
                "cuda and cpu! (",
                c10::toString(op_.operator_name()), ")");
    for (const Moved& m : moved_)
      TORCH_CHECK(mixes_ || m.device.device() == moved_[0].device.device(),
                  "Expected all tensors to be on the same device, but found at least two devices, ",
                  m.device.device(), " and ", moved_[0].device.device(), "! (",
                  c10::toString(op_.operator_name()), ")");
  }

  // An `out` that the kernel gave another size.
  void after_write(const Moved& m) const {
    if (m.host.sizes() == m.device.sizes()) return;
    const at::Tensor fresh = on_device(m.host.contiguous(), m.device.device());
    c10::TensorImpl* impl = m.device.unsafeGetTensorImpl();
    impl->set_storage_keep_dtype(fresh.storage());
    impl->set_sizes_and_strides(fresh.sizes(), fresh.strides(), 0);
  }

  at::Tensor to_device(const at::Tensor& t) const {
    if (!t.defined() || !device_.is_cuda()) return t;
    for (const Moved& m : moved_)
      if (m.host.unsafeGetTensorImpl() == t.unsafeGetTensorImpl()) return m.device;
    for (const at::Tensor& p : plain_)
      if (p.unsafeGetTensorImpl() == t.unsafeGetTensorImpl()) return t;  // what was written to
    if (t.numel() > 0 && Memory::of_process().has_for_kernels(t.data_ptr()))
      for (const Moved& m : moved_)
        if (m.device.numel() > 0 && within(t, m)) return same_view(t, m);
    return on_device(t.is_non_overlapping_and_dense() ? t : t.contiguous(), device_);
  }
  static bool within(const at::Tensor& t, const Moved& m) {
    const auto* base =
        static_cast<const char*>(Memory::of_process().for_kernels(m.device.storage().data()));
    const auto* p = static_cast<const char*>(t.data_ptr());
    return p >= base && p < base + m.device.storage().nbytes();
  }
  c10::IValue to_device(const c10::IValue& v) const {
    if (v.isTensor()) return to_device(v.toTensor());
    if (v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : v.toTensorVector()) list.push_back(to_device(t));
      return list;
    }
    return v;
  }

  const c10::OperatorHandle& op_;
  const bool mixes_;  // may take tensors of the CPU too
  c10::Device device_{c10::kCPU};
  std::vector<Moved> moved_;
  std::vector<at::Tensor> plain_;
};

void run_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Kernel(op, false).run(stack);
}
void run_mixing(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Kernel(op, true).run(stack);
}

at::Tensor empty(c10::IntArrayRef sizes, c10::optional<at::ScalarType> dtype,
                 c10::optional<at::Layout>, c10::optional<at::Device> device,
                 c10::optional<bool> /*pin*/, c10::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(device_or_current(device));
  return at::detail::empty_generic(sizes, &allocator, c10::DispatchKeySet(DispatchKey::CUDA),
                                   c10::dtype_or_default(dtype), format);
}
at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                         c10::optional<at::ScalarType> dtype, c10::optional<at::Layout>,
                         c10::optional<at::Device> device, c10::optional<bool>) {
  const c10::DeviceGuard guard(device_or_current(device));
  return at::detail::empty_strided_generic(sizes, strides, &allocator,
                                           c10::DispatchKeySet(DispatchKey::CUDA),
                                           c10::dtype_or_default(dtype));
}

// Nothing is late here, so any memory of the host will do.
bool is_pinned(const at::Tensor&, c10::optional<at::Device>) { return false; }
at::Tensor pin_memory(const at::Tensor& t, c10::optional<at::Device>) { return t.clone(); }

TORCH_LIBRARY_IMPL(_, CUDA, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_kernel>());
}
TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", at::native::as_strided_tensorimpl);  // of a view: reads no bytes
  m.impl("is_pinned", is_pinned);
  m.impl("_pin_memory", pin_memory);
  for (const char* op : {"copy_", "index.Tensor", "index_put_", "_index_put_impl_"})
    m.impl(op, torch::CppFunction::makeFromBoxedFunction<&run_mixing>());
}

}  // namespace

at::Tensor for_kernels(const at::Tensor& t) {
  if (!is_stand_in(t)) return t;
  if (t.numel() == 0) return at::empty(t.sizes(), at::TensorOptions().dtype(t.dtype()));
  return at::from_blob(
      Memory::of_process().for_kernels(t.data_ptr()), t.sizes(), t.strides(), [t](void*) {},
      at::TensorOptions().dtype(t.dtype()));
}

}  // namespace trireme::testing
