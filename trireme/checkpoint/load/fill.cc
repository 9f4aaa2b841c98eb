// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load/fill.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/checkpoint/safetensors_dtype.h"
#include "trireme/checkpoint/steps/element_size.h"
#include "trireme/tensor/device.h"

namespace trireme {
namespace {

constexpr uint64_t kWindow = uint64_t{4} << 20;  // what a thread reads at a time
constexpr uint64_t kGap = uint64_t{64} << 10;    // … with holes as long as this
constexpr size_t kWindows = 8;                   // … and how many there are at once
constexpr size_t kRuns = size_t{1} << 16;        // … with so many runs in them

struct Run {
  uint64_t from;  // byte in the file
  int64_t to;     // … and in the tensor
  size_t bytes;
};

/// Bytes that lie together in a file, with the runs in them.
struct Window {
  const PartSource* file;
  uint64_t begin, end;
  size_t first, last;  // runs
};

/// The runs of some copies, a few windows at a time: a part may be larger than memory that is left.
class Windows {
 public:
  /// body(bytes of the run, run), on LibTorch's threads if `to` is given: then a run that is a
  /// window by itself is read to where it belongs behind `to`.
  template <class Body>
  void for_each(const OpenedStep& opened, const IndexTensor& t, const std::vector<Copy>& copies,
                int64_t each, uint8_t* to, const Body& body) {
    for (const Copy& copy : copies) {
      const PartBytes part = opened.bytes(t, t.parts[copy.part]);
      for_each_run(copy, [&](int64_t at, int64_t dest, int64_t run) {
        const auto bytes = static_cast<uint64_t>(run * each);
        for (uint64_t done = 0; done < bytes; done += kWindow) {
          const Run piece{part.begin + static_cast<uint64_t>(at * each) + done,
                          dest * each + static_cast<int64_t>(done),
                          static_cast<size_t>(std::min(kWindow, bytes - done))};
          const bool fits = fits_last(part.file, piece);
          if (runs_.size() == kRuns || (!fits && windows_.size() == kWindows)) flush(to, body);
          add(part.file, piece, fits);
        }
      });
    }
    flush(to, body);
  }

 private:
  bool fits_last(const PartSource* file, const Run& run) const {
    if (windows_.empty()) return false;
    const Window& last = windows_.back();
    // What lies between two runs is read as well: no block that neither of them is in.
    return last.file == file && run.from >= last.begin && run.from <= last.end + kGap &&
           run.from + run.bytes - last.begin <= kWindow;
  }
  void add(const PartSource* file, const Run& run, bool fits) {
    if (!fits || windows_.empty())
      windows_.push_back({file, run.from, run.from, runs_.size(), runs_.size()});
    runs_.push_back(run);
    windows_.back().end = std::max(windows_.back().end, run.from + run.bytes);
    windows_.back().last = runs_.size();
  }
  template <class Body>
  void flush(uint8_t* to, const Body& body) {
    auto some = [&](int64_t first, int64_t last) {
      std::vector<uint8_t> bytes;
      for (int64_t i = first; i < last; ++i) {
        const Window& w = windows_[static_cast<size_t>(i)];
        if (to && w.last - w.first == 1) {
          w.file->read_again(w.begin, {to + runs_[w.first].to, runs_[w.first].bytes});
          continue;
        }
        bytes.resize(static_cast<size_t>(w.end - w.begin));
        w.file->read_again(w.begin, bytes);
        for (size_t r = w.first; r < w.last; ++r)
          body(bytes.data() + (runs_[r].from - w.begin), runs_[r]);
      }
    };
    const auto n = static_cast<int64_t>(windows_.size());
    if (to)
      at::parallel_for(0, n, 1, some);
    else
      some(0, n);
    windows_.clear(), runs_.clear();
  }

  std::vector<Run> runs_;
  std::vector<Window> windows_;
};

}  // namespace

const TensorSource& Filler::next(const std::string& name, const at::Tensor& local) {
  check<UsageError>(next_ < plan_.tensors.size() && plan_.tensors[next_].shown == name &&
                        plan_.tensors[next_].numel == local.numel(),
                    "load: '{}' changed between two walks", name);
  return plan_.tensors[next_++];
}

void Filler::copy(const IndexTensor& saved, const std::vector<Copy>& copies, at::Tensor& to) const {
  auto* bytes = static_cast<uint8_t*>(to.data_ptr());
  Windows().for_each(
      opened_, saved, copies, to.element_size(), bytes,
      [&](const uint8_t* from, const Run& run) { std::memcpy(bytes + run.to, from, run.bytes); });
}

// Some elements at a time, so that no second copy of a large tensor exists.
void Filler::convert(const IndexTensor& saved, const std::vector<Copy>& copies,
                     at::Tensor& to) const {
  const at::ScalarType dtype = safetensors_scalar_type(saved.dtype);
  const auto each = static_cast<int64_t>(c10::elementSize(dtype));
  const int64_t most = static_cast<int64_t>(kWindow) / each;
  at::Tensor flat = to.view({-1}), staged = at::detail::empty_cpu({most}, dtype), converted;
  std::vector<std::pair<int64_t, int64_t>> runs;  // first element in `to`, elements
  int64_t n = 0;
  const auto flush = [&] {
    if (runs.size() > 1 && to.is_cpu()) {  // perhaps of a few elements each
      if (!converted.defined()) converted = at::detail::empty_cpu({most}, to.scalar_type());
      converted.narrow(0, 0, n).copy_(staged.narrow(0, 0, n));
      const auto* from = static_cast<const uint8_t*>(converted.data_ptr());
      auto* bytes = static_cast<uint8_t*>(to.data_ptr());
      const auto size = static_cast<int64_t>(to.element_size());
      for (const auto& [at, count] : runs) {
        std::memcpy(bytes + at * size, from, static_cast<size_t>(count * size));
        from += count * size;
      }
      if (!to.is_inference()) to.unsafeGetTensorImpl()->bump_version();
    } else {
      int64_t done = 0;
      for (const auto& [at, count] : runs) {
        flat.narrow(0, at, count).copy_(staged.narrow(0, done, count));
        done += count;
      }
    }
    runs.clear(), n = 0;
  };
  Windows().for_each(
      opened_, saved, copies, each, nullptr, [&](const uint8_t* from, const Run& run) {
        const int64_t count = static_cast<int64_t>(run.bytes) / each;
        if (n + count > most || runs.size() == kRuns) flush();
        std::memcpy(static_cast<uint8_t*>(staged.data_ptr()) + n * each, from, run.bytes);
        runs.emplace_back(run.to / each, count);
        n += count;
      });
  flush();
}

void Filler::fill(const IndexTensor& saved, const std::vector<Copy>& copies,
                  at::Tensor local) const {
  if (local.numel() == 0) return;
  const at::ScalarType dtype = safetensors_scalar_type(saved.dtype);
  if (local.is_cpu() && local.is_contiguous() && local.scalar_type() == dtype) {
    copy(saved, copies, local);
    if (!local.is_inference()) local.unsafeGetTensorImpl()->bump_version();
    return;
  }
  constexpr int64_t kSmall = 16 << 20;  // bytes; … and of a run that is worth a copy to a device
  constexpr int64_t kLongRun = 64 << 10;
  const auto each = static_cast<int64_t>(c10::elementSize(dtype));
  const bool long_runs = std::all_of(copies.begin(), copies.end(),
                                     [&](const Copy& copy) { return copy.run * each >= kLongRun; });
  if (local.is_contiguous() && (local.is_cpu() || long_runs) && local.numel() * each > kSmall)
    return convert(saved, copies, local);
  if (is_asynchronous(local.device()) && local.scalar_type() == dtype) {
    at::Tensor staged = host_buffer(local.sizes(), dtype, local.device());
    copy(saved, copies, staged);
    return copy_in_stream_order(local, staged);
  }
  at::Tensor staged = at::detail::empty_cpu(local.sizes(), dtype);
  copy(saved, copies, staged);
  local.copy_(staged);
}

void Filler::tensor(const Slice& slice, at::Tensor local) {
  const TensorSource& source = next(slice.name, local);
  if (source.saved) fill(*source.saved, source.copies, std::move(local));
}

void Filler::rank_tensor(const std::string& name, int, int, RankStateRule, at::Tensor local) {
  const TensorSource& source = next(name, local);
  if (!source.saved || source.rule == RankStateRule::begin_anew) return;
  if (!source.rule) return fill(*source.saved, source.copies, std::move(local));
  at::Tensor sum = at::detail::empty_cpu(local.sizes(), local.scalar_type());
  sum.zero_();
  at::Tensor row =
      at::detail::empty_cpu(local.sizes(), safetensors_scalar_type(source.saved->dtype));
  for (const auto& copies : source.rows) {
    copy(*source.saved, copies, row);
    sum.add_(row);
  }
  if (source.rule == RankStateRule::average) sum.div_(static_cast<double>(source.old_ranks));
  local.copy_(sum);
}

}  // namespace trireme
