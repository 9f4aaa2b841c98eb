// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/codec/tensor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/rpc/codec/tensor_crossing.h"
#include "trireme/rpc/method.h"
#include "trireme/rpc/rpc.h"
#include "trireme/tensor/host_data.h"

namespace trireme::encoding {
namespace {

// Layout: how:u8, and unless it is undefined dtype:u8 dims:u8 size:i64*, then the elements where
// they are inline. The dtypes' numbers are LibTorch's, which are in its files and do not change.
enum How : uint8_t { undefined = 0, inside = 1, beside = 2 };
constexpr uint8_t kWithGradient = 4;  // beside one of the last two

constexpr uint8_t kMostDims = 64;

bool travels(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
    case at::kFloat:
    case at::kHalf:
    case at::kBFloat16:
    case at::kComplexDouble:
    case at::kComplexFloat:
    case at::kLong:
    case at::kInt:
    case at::kShort:
    case at::kChar:
    case at::kByte:
    case at::kBool:
      return true;
    default:
      return false;
  }
}

rpc::detail::TensorCrossing* crossing_of(Transit* transit) {
  const auto* of_call = dynamic_cast<rpc::detail::CallTransit*>(transit);
  if (!of_call || !of_call->crossing()) return nullptr;
  return dynamic_cast<rpc::detail::TensorCrossing*>(of_call->crossing().get());
}

/// Who gets the gradient of a tensor that leaves; null: nobody.
rpc::detail::TensorCrossing* gradient_wanted(Transit* transit, const at::Tensor& tensor) {
  if (!transit || !tensor.requires_grad() || !at::GradMode::is_enabled()) return nullptr;
  if (auto* crossing = crossing_of(transit)) return crossing;
  const auto* of_call = dynamic_cast<rpc::detail::CallTransit*>(transit);
  if (of_call && rpc::detail::current_context())
    fail<UsageError>(
        "a tensor that requires a gradient is sent to worker '{}', which takes no part in the "
        "context of this thread: let it offer rpc::autograd::offer() too, or send tensor.detach()",
        of_call->line()->peer());
  return nullptr;
}

/// The memory, for as long as the tensor.
Attachment lent(at::Tensor tensor, uint64_t bytes) {
  auto owner = std::make_shared<at::Tensor>(std::move(tensor));
  const void* data = host_bits<const void>(*owner);
  return {std::shared_ptr<const void>(std::move(owner), data), bytes};
}

void get_plain(Reader& reader, uint8_t how, at::Tensor& tensor) {
  uint8_t dtype = 0, dims = 0;
  if (how == undefined) {
    tensor = at::Tensor();
    return;
  }
  if (how != inside && how != beside) Reader::corrupt("a tensor is neither inside nor beside it");
  reader.get(dtype);
  if (!travels(static_cast<at::ScalarType>(dtype))) Reader::corrupt("a tensor has no dtype");
  reader.get(dims);
  if (dims > kMostDims) Reader::corrupt("a tensor has too many dims");
  const auto options = at::TensorOptions().dtype(static_cast<at::ScalarType>(dtype));
  uint64_t bytes = options.dtype().itemsize();
  std::vector<int64_t> sizes(dims);
  for (int64_t& size : sizes) {
    reader.get(size);
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes) ||
        bytes > uint64_t{1} << 40)
      Reader::corrupt("a tensor has sizes that no memory has");
  }
  // A size may be beyond the rest where another is 0, and strides are products of them.
  uint64_t most = 1;
  for (const int64_t size : sizes)
    if (__builtin_mul_overflow(most, static_cast<uint64_t>(std::max<int64_t>(size, 1)), &most) ||
        most > uint64_t{1} << 40)
      Reader::corrupt("a tensor has sizes that no memory has");
  if (how == inside) {
    if (bytes > Custom<at::Tensor>::kInlineBytes)
      Reader::corrupt("a tensor is larger than one inside may be");
    tensor = at::empty(sizes, options);
    reader.take(host_bits<char>(tensor), bytes);
    return;
  }
  Attachment memory = reader.attachment();
  if (memory.bytes != bytes) Reader::corrupt("a tensor's memory is not as large as its sizes say");
  // It is the receiver's own, or lent to nobody else.
  void* data = const_cast<void*>(memory.data.get());
  if (reinterpret_cast<uintptr_t>(data) % 16 != 0) {
    tensor = at::empty(sizes, options);
    std::memcpy(host_bits<char>(tensor), data, bytes);
    return;
  }
  tensor = at::from_blob(
      data, sizes, [owner = std::move(memory.data)](void*) mutable { owner.reset(); }, options);
}

}  // namespace

void Custom<at::Tensor>::put(Writer& writer, const at::Tensor& tensor) {
  if (!tensor.defined()) return writer.put(uint8_t{undefined});
  check<UsageError>(
      tensor.device().is_cpu() && tensor.layout() == at::kStrided && travels(tensor.scalar_type()),
      "a {} tensor of {} on {} cannot travel in a remote call: only dense ones of the "
      "CPU, of numbers and bool, can",
      tensor.layout() == at::kStrided ? "dense" : "sparse", c10::toString(tensor.scalar_type()),
      tensor.device().str());
  check<UsageError>(tensor.dim() <= kMostDims, "a tensor of {} dims cannot travel in a remote call",
                    tensor.dim());
  const uint64_t bytes = static_cast<uint64_t>(tensor.numel()) * tensor.element_size();
  const How how = bytes <= kInlineBytes ? inside : beside;
  const bool others = tensor.use_count() > 1 || tensor.storage().use_count() > 1;
  // detach(): what the bytes are does not depend on who records a graph. A conjugate view is
  // another reading of the same bytes, and contiguous() does not write it out.
  const at::Tensor plain = tensor.detach().resolve_conj().resolve_neg();
  const bool same_memory = plain.is_contiguous() && trireme::same_memory(plain, tensor);
  auto* const crossing = gradient_wanted(writer.transit(), tensor);
  writer.put(static_cast<uint8_t>(crossing ? how | kWithGradient : how));
  writer.put(static_cast<uint8_t>(tensor.scalar_type()));
  writer.put(static_cast<uint8_t>(tensor.dim()));
  for (const int64_t size : tensor.sizes()) writer.put(size);
  if (crossing) crossing->leaves(tensor);
  if (how == inside) {
    const at::Tensor whole = plain.contiguous();
    writer.put_bytes(host_bits<const char>(whole), bytes);
  } else if (!same_memory) {
    writer.attach(lent(plain.contiguous(), bytes));
  } else {
    writer.attach(lent(writer.copies_shared() && others ? plain.clone() : plain, bytes));
  }
}

void Custom<at::Tensor>::get(Reader& reader, at::Tensor& tensor) {
  uint8_t how = 0;
  reader.get(how);
  if (how <= kWithGradient) return get_plain(reader, how, tensor);
  auto* const crossing = crossing_of(reader.transit());
  if (!crossing) Reader::corrupt("a tensor requires a gradient in a call without a context");
  get_plain(reader, how & ~kWithGradient, tensor);
  if (!tensor.is_floating_point() && !tensor.is_complex())
    Reader::corrupt("a tensor of integers requires a gradient");
  crossing->comes(tensor);
}

}  // namespace trireme::encoding

namespace trireme::rpc {

at::Tensor empty(const Peer& to, at::IntArrayRef sizes, at::ScalarType dtype) {
  uint64_t bytes = c10::elementSize(dtype);
  for (const int64_t size : sizes) {
    check<UsageError>(size >= 0, "a tensor has a size of {}", size);
    check<UsageError>(!__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes),
                      "a tensor is larger than any memory");
  }
  auto memory = to.empty(bytes);
  void* data = memory.get();
  return at::from_blob(
      data, sizes, [memory = std::move(memory)](void*) {}, at::TensorOptions().dtype(dtype));
}

}  // namespace trireme::rpc

namespace trireme::rpc::detail {
TensorCrossing::~TensorCrossing() = default;
}  // namespace trireme::rpc::detail
