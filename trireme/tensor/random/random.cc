// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/random/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/ones.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numbers>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/host_data.h"
#include "trireme/tensor/random/box_runs.h"
#include "trireme/tensor/random/random_aten.h"
#include "trireme/tensor/random/random_boxes.h"
#include "trireme/tensor/random/random_kernels.h"

namespace trireme {
namespace {

constexpr int64_t kWords = detail::kWordsPerCall;

// fill(words, first, out, n): n <= 64 elements of T from the 64 words that serve elements first …
// first+63.

// What the whole tensor has at the boxes' elements. Neighbouring runs may lie in one group of
// words.
template <class Fill, class T>
void fill_boxes(const ParameterLayout& layout, uint64_t key, Fill fill, T* out) {
  uint32_t words[kWords];
  T group[kWords];
  int64_t drawn = -1;  // the group's first element
  for (const Box& box : layout.boxes) {
    detail::each_run(
        layout.shape, box.offsets, box.lengths, [&](int64_t begin, int64_t local, int64_t count) {
          for (int64_t i = begin; i < begin + count;) {
            const int64_t first = i / kWords * kWords;
            if (first != drawn) {
              detail::philox_words(key, static_cast<uint64_t>(first / 4), words);
              fill(words, group, kWords);
              drawn = first;
            }
            const int64_t end = std::min(begin + count, first + kWords);
            std::copy(group + (i - first), group + (end - first), out + local + (i - begin));
            i = end;
          }
        });
    out += box.numel();
  }
}

// `layout`: the part of a whole tensor that t holds; nullptr: all of it.
template <class Fill>
void fill_tensor(at::Tensor& t, const char* op, uint64_t key, const ParameterLayout* layout,
                 Fill fill) {
  check<UsageError>(t.defined() && t.is_floating_point(),
                    "{}: fills tensors of a floating-point type only, not {}: convert it first", op,
                    t.defined() ? c10::toString(t.scalar_type()) : "an undefined one");
  check<UsageError>(!layout || t.sizes() == layout->local_shape(),
                    "{}: the tensor is {} and its layout {}: make it with the sizes that "
                    "local_shape() gives",
                    op, fmt::join(t.sizes().vec(), " × "),
                    fmt::join(layout ? layout->local_shape() : std::vector<int64_t>{}, " × "));
  at::NoGradGuard no_grad;
  const bool wide = t.scalar_type() == at::kDouble;
  const bool direct =
      t.device().is_cpu() && t.is_contiguous() && (wide || t.scalar_type() == at::kFloat);
  const at::ScalarType drawn = wide ? at::kDouble : at::kFloat;
  // Drawn on the CPU for every device: a logarithm may have another last bit there.
  const bool there = is_asynchronous(t.device());
  const at::Tensor staged =
      there ? host_buffer(t.sizes(), t.scalar_type(), t.device()) : at::Tensor();
  const bool stages_alone = there && t.scalar_type() == drawn;
  auto flat = direct ? t : stages_alone ? staged : at::empty(t.sizes(), at::dtype(drawn));
  const int64_t n = flat.numel();
  uint32_t words[kWords];
  auto run = [&](auto* out) {
    if (layout) return fill_boxes(*layout, key, fill, out);
    for (int64_t i = 0; i < n; i += kWords) {
      detail::philox_words(key, static_cast<uint64_t>(i / 4), words);
      fill(words, out + i, std::min(kWords, n - i));
    }
  };
  if (wide)
    run(host_data<double>(flat));
  else
    run(host_data<float>(flat));
  if (direct) return;
  if (!there) {
    t.copy_(flat);
    return;
  }
  if (!stages_alone) staged.copy_(flat);
  copy_in_stream_order(t, staged);
}

}  // namespace

namespace {

void fill_uniform(at::Tensor& t, uint64_t key, double low, double high,
                  const ParameterLayout* layout) {
  fill_tensor(t, "uniform_", key, layout, [&](const uint32_t* words, auto* out, int64_t n) {
    using T = std::remove_pointer_t<decltype(out)>;
    constexpr int kShift = sizeof(T) == 8 ? 0 : 8;  // as many bits as the type holds exactly
    const T scale = static_cast<T>((high - low) * (kShift ? 0x1p-24 : 0x1p-32));
    const T base = static_cast<T>(low);
    for (int64_t i = 0; i < n; ++i) out[i] = base + static_cast<T>(words[i] >> kShift) * scale;
  });
}

void fill_normal(at::Tensor& t, uint64_t key, double mean, double std,
                 const ParameterLayout* layout) {
  fill_tensor(t, "normal_", key, layout, [&](const uint32_t* words, auto* out, int64_t n) {
    using T = std::remove_pointer_t<decltype(out)>;
    for (int64_t i = 0; i < n; i += 2) {
      const double u = (words[i] + 1.0) * 0x1p-32;  // (0, 1]: its logarithm is finite
      const double radius = std * std::sqrt(-2.0 * std::log(u));
      const double angle = 2.0 * std::numbers::pi * (words[i + 1] * 0x1p-32);
      out[i] = static_cast<T>(mean + radius * std::cos(angle));
      if (i + 1 < n) out[i + 1] = static_cast<T>(mean + radius * std::sin(angle));
    }
  });
}

}  // namespace

void uniform_(at::Tensor t, uint64_t key, double low, double high) {
  fill_uniform(t, key, low, high, nullptr);
}
void uniform_(at::Tensor t, uint64_t key, double low, double high, const ParameterLayout& layout) {
  fill_uniform(t, key, low, high, &layout);
}
void normal_(at::Tensor t, uint64_t key, double mean, double std) {
  fill_normal(t, key, mean, std, nullptr);
}
void normal_(at::Tensor t, uint64_t key, double mean, double std, const ParameterLayout& layout) {
  fill_normal(t, key, mean, std, &layout);
}

namespace {
struct ScopeState {
  RandomContext context;
  std::unordered_map<uint64_t, int64_t> calls;
};
thread_local ScopeState* current_scope = nullptr;
}  // namespace

struct RandomScope::State : ScopeState {};

RandomScope::RandomScope(RandomContext context)
    : state_(new State{{std::move(context), {}}}), before_(static_cast<State*>(current_scope)) {
  current_scope = state_;
}

RandomScope::RandomScope(const Snapshot& snapshot)
    : state_(snapshot.state_ ? new State(*snapshot.state_) : nullptr),
      before_(static_cast<State*>(current_scope)) {
  current_scope = state_;
}

RandomScope::Snapshot RandomScope::snapshot() {
  Snapshot now;
  if (current_scope) now.state_ = std::make_shared<State>(*static_cast<State*>(current_scope));
  return now;
}

RandomScope::~RandomScope() {
  current_scope = before_;
  delete state_;
}

const RandomContext* RandomScope::current() {
  return current_scope ? &current_scope->context : nullptr;
}

int64_t RandomScope::next_call(uint64_t module_key) {
  check<UsageError>(current_scope,
                    "random: no RandomScope is set on this thread: set one around the forward");
  return current_scope->calls[module_key]++;
}

namespace {

// A probability in 1/65536ths: one Philox block serves eight elements.
constexpr int64_t kCertain = 65536;

// Elements from which on a device draws its own mask, some 130 operators long. The CPU draws one in
// 1.4 ns an element, which is less below this if an operator takes a device 5 µs to begin.
constexpr int64_t kDrawnOnDevice = int64_t{1} << 19;

// What a mask is drawn from. `whole` and `box` are of one sample's elements; empty where x has all.
struct Mask {
  std::vector<int64_t> row_keys;
  int64_t threshold;
  std::vector<int64_t> whole, offsets, lengths;
  bool is_part() const { return !whole.empty(); }
};

// dropout_row() for elements `first` … `first` + n - 1 of a row, which may begin anywhere.
void dropout_run(const float* x, float* y, int64_t n, uint64_t key, uint32_t threshold, float scale,
                 int64_t first) {
  constexpr int64_t kGroup = detail::kDropoutGroup;
  const int64_t skip = first % kGroup, head = skip ? std::min(n, kGroup - skip) : 0;
  if (head > 0) {
    float group[kGroup] = {};
    std::copy(x, x + head, group + skip);
    detail::dropout_row(group, group, skip + head, key, threshold, scale, first - skip);
    std::copy(group + skip, group + skip + head, y);
  }
  if (n > head)
    detail::dropout_row(x + head, y + head, n - head, key, threshold, scale, first + head);
}

// A whole row's mask on the device, of which the box is taken.
at::Tensor mask_on_device(const Mask& mask, const at::Tensor& x) {
  const auto rows = static_cast<int64_t>(mask.row_keys.size());
  if (!mask.is_part())
    return detail::dropout_mask(mask.row_keys, rows ? x.numel() / rows : 0, mask.threshold,
                                x.device())
        .reshape(x.sizes());
  std::vector<int64_t> sizes{rows};
  int64_t width = 1;
  for (const int64_t size : mask.whole) sizes.push_back(size), width *= size;
  at::Tensor all =
      detail::dropout_mask(mask.row_keys, width, mask.threshold, x.device()).reshape(sizes);
  for (size_t d = 0; d < mask.whole.size(); ++d)
    all = all.narrow(static_cast<int64_t>(d) + 1, mask.offsets[d], mask.lengths[d]);
  return all;
}

at::Tensor drop(const at::Tensor& x, const Mask& mask) {
  at::NoGradGuard no_grad;
  const int64_t threshold = mask.threshold;
  const int64_t rows = x.size(0), width = rows ? x.numel() / rows : 0;
  const float scale = threshold == kCertain
                          ? 0.0f
                          : static_cast<float>(double(kCertain) / double(kCertain - threshold));
  auto run = [&](const float* in, float* out, float factor) {
    for (int64_t r = 0; r < rows; ++r, in += width, out += width) {
      const auto key = static_cast<uint64_t>(mask.row_keys[static_cast<size_t>(r)]);
      const auto limit = static_cast<uint32_t>(threshold);
      if (!mask.is_part())
        detail::dropout_row(in, out, width, key, limit, factor);
      else
        detail::each_run(mask.whole, mask.offsets, mask.lengths,
                         [&](int64_t begin, int64_t local, int64_t count) {
                           dropout_run(in + local, out + local, count, key, limit, factor, begin);
                         });
    }
  };
  if (x.device().is_cpu() && x.scalar_type() == at::kFloat) {
    auto in = x.contiguous();
    auto out = at::empty_like(in);
    run(host_data<float>(in), host_data<float>(out), scale);
    return out;
  }
  at::Tensor dropped;
  if (is_asynchronous(x.device()) && x.numel() >= kDrawnOnDevice) {
    dropped = mask_on_device(mask, x);
  } else {
    auto kept = at::ones(x.sizes(), at::dtype(at::kFloat));
    run(host_data<float>(kept), host_data<float>(kept), 1.0f);
    dropped = host_buffer(x.sizes(), at::kBool, x.device());
    at::lt_out(dropped, kept, 0.5);
    if (is_asynchronous(x.device())) {
      const at::Tensor there = at::empty(x.sizes(), x.options().dtype(at::kBool));
      copy_in_stream_order(there, dropped);
      dropped = there;
    }
  }
  const double exact =
      threshold == kCertain ? 0.0 : double(kCertain) / double(kCertain - threshold);
  return x.mul(exact).masked_fill_(dropped, 0);
}

struct KeyedDropout : torch::autograd::Function<KeyedDropout> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, Mask mask) {
    auto y = drop(x, mask);
    ctx->saved_data["row_keys"] = std::move(mask.row_keys);
    ctx->saved_data["threshold"] = mask.threshold;
    if (mask.is_part()) {
      ctx->saved_data["whole"] = std::move(mask.whole);
      ctx->saved_data["offsets"] = std::move(mask.offsets);
      ctx->saved_data["lengths"] = std::move(mask.lengths);
    }
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    if (!grads[0].defined()) return {at::Tensor(), at::Tensor()};
    const auto& saved = ctx->saved_data;
    auto list = [&](const char* name) {
      const auto found = saved.find(name);
      return found == saved.end() ? std::vector<int64_t>{} : found->second.toIntVector();
    };
    Mask mask{list("row_keys"), saved.at("threshold").toInt(), list("whole"), list("offsets"),
              list("lengths")};
    // Linear in x, so its own derivative; through apply() it can be differentiated again.
    return {KeyedDropout::apply(grads[0], std::move(mask)), at::Tensor()};
  }
};

// The mask of the module's next call, of whole rows. 0 < p.
Mask next_mask(const at::Tensor& x, double p, std::string_view module_name) {
  check<UsageError>(p > 0 && p <= 1, "dropout '{}': the probability is {}, outside [0, 1]",
                    module_name, p);
  const auto* context = RandomScope::current();
  check<UsageError>(
      context, "dropout '{}': no RandomScope is set on this thread: set one around the forward",
      module_name);
  const auto samples = static_cast<int64_t>(context->samples.size());
  check<UsageError>(x.dim() > 0 && x.size(0) == samples,
                    "dropout '{}': the tensor has {} rows and the RandomScope {} samples: dim 0 of "
                    "the activation must be the samples of the micro-batch",
                    module_name, x.dim() > 0 ? x.size(0) : 0, samples);
  check<UsageError>(x.is_floating_point(),
                    "dropout '{}': the tensor is of type {}, not a float type", module_name,
                    c10::toString(x.scalar_type()));
  const uint64_t module_key = stable_hash(module_name);
  const auto call = static_cast<uint64_t>(RandomScope::next_call(module_key));
  Mask mask{{}, 0, {}, {}, {}};
  mask.row_keys.reserve(context->samples.size());
  for (auto sample : context->samples)
    mask.row_keys.push_back(static_cast<int64_t>(
        stable_hash({context->seed, module_key, call, static_cast<uint64_t>(context->step),
                     static_cast<uint64_t>(sample)})));
  // A certainty stays one, and nothing else becomes one.
  mask.threshold = p == 1 ? kCertain : std::min<int64_t>(std::llround(p * kCertain), kCertain - 1);
  return mask;
}

// Of one sample's elements: without the first dim.
std::vector<int64_t> inner(at::IntArrayRef sizes) {
  return std::vector<int64_t>(sizes.begin() + 1, sizes.end());
}

}  // namespace

at::Tensor keyed_dropout(const at::Tensor& x, double p, std::string_view module_name) {
  if (p == 0) return x;
  return KeyedDropout::apply(x, next_mask(x, p, module_name));
}

at::Tensor keyed_dropout(const at::Tensor& x, double p, std::string_view module_name,
                         at::IntArrayRef whole, const Box& box) {
  return keyed_dropout(x, p, module_name, whole, std::vector<Box>{box}, 1);
}

at::Tensor keyed_dropout(const at::Tensor& x, double p, std::string_view module_name,
                         at::IntArrayRef whole, const std::vector<Box>& boxes, int64_t dim) {
  const auto at = static_cast<size_t>(dim);
  for (const Box& box : boxes) {
    const auto fault = fault_of(Slice{"", whole.vec(), box.offsets, box.lengths});
    check<UsageError>(fault.empty(), "dropout '{}': the part of the activation is wrong: {}",
                      module_name, fault);
    std::vector<int64_t> due = x.sizes().vec();
    if (boxes.size() > 1) due.at(at) = box.lengths.at(at);
    check<UsageError>(whole.size() > 1 && due == box.lengths && box.lengths[0] == whole[0],
                      "dropout '{}': the tensor is {} and its box {} of {}: the box must have the "
                      "tensor's sizes and all samples",
                      module_name, fmt::join(x.sizes().vec(), " × "), fmt::join(box.lengths, " × "),
                      fmt::join(whole.vec(), " × "));
  }
  if (p == 0) return x;
  Mask mask = next_mask(x, p, module_name);
  mask.whole = inner(whole);
  std::vector<at::Tensor> parts;
  int64_t begin = 0;
  for (const Box& box : boxes) {
    mask.offsets = inner(box.offsets);
    mask.lengths = inner(box.lengths);
    if (boxes.size() == 1) return KeyedDropout::apply(x, std::move(mask));
    const int64_t length = box.lengths[at];
    parts.push_back(KeyedDropout::apply(x.narrow(dim, begin, length), mask));
    begin += length;
  }
  return at::cat(parts, dim);
}

void seed_default_generator(uint64_t seed) {
  auto generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace trireme
