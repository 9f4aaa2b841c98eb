// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/checked_backend.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/comm/call_words.h"
#include "trireme/comm/flight/call_text.h"
#include "trireme/comm/forwarding_backend.h"

namespace trireme::detail {
namespace {

using flight::CallWords;
using flight::OpKind;

constexpr size_t kEach = 64;  // collectives between two comparisons of hashes

/// A call as ranks tell it to each other.
struct Told {
  uint64_t seq, digest, count;
  int32_t root;
  uint8_t op, dtype, red, spare;
  char site[96];  // the end of file:line
};
static_assert(sizeof(Told) == 128);

Told tell(uint64_t seq, const CallWords& w, CallSite at) {
  Told t{};
  t.seq = seq;
  t.count = w.count;
  t.root = w.root;
  t.op = static_cast<uint8_t>(w.op);
  t.dtype = static_cast<uint8_t>(w.dtype);
  t.red = static_cast<uint8_t>(w.red);
  // Parts of an all_to_all may be as uneven as they like.
  t.digest = stable_hash({seq, t.op, t.dtype, t.red, static_cast<uint32_t>(t.root),
                          w.op == OpKind::all_to_all ? 0 : w.count});
  const std::string site =
      at.file && *at.file ? fmt::format("{}:{}", at.file, at.line) : std::string();
  const size_t skip = site.size() < sizeof t.site ? 0 : site.size() - sizeof t.site + 1;
  std::memcpy(t.site, site.c_str() + skip, site.size() - skip);
  return t;
}

std::string text_of(const Told& t) {
  const std::string site(t.site, ::strnlen(t.site, sizeof t.site));
  return flight::call_text(static_cast<OpKind>(t.op), static_cast<flight::DType>(t.dtype),
                           static_cast<flight::RedOp>(t.red), t.root, t.count) +
         (site.empty() ? "" : " at " + site);
}

class CheckedBackend final : public ForwardingBackend {
 public:
  CheckedBackend(std::shared_ptr<Backend> inner, bool each, const std::string& group)
      : ForwardingBackend(std::move(inner)), group_(group), each_(each), last_(each ? 1 : kEach) {}

  Token all_reduce(const at::Tensor& t, ReduceOp op, CallSite site) override {
    note(words_of(OpKind::all_reduce, t, 0, op), site, t.device());
    return inner_->all_reduce(t, op, site);
  }
  Token broadcast(const at::Tensor& t, int root, CallSite site) override {
    note(words_of(OpKind::broadcast, t, root), site, t.device());
    return inner_->broadcast(t, root, site);
  }
  Token reduce(const at::Tensor& t, int root, ReduceOp op, CallSite site) override {
    note(words_of(OpKind::reduce, t, root, op), site, t.device());
    return inner_->reduce(t, root, op, site);
  }
  Token all_gather(const at::Tensor& output, const at::Tensor& input, CallSite site) override {
    note(words_of(OpKind::all_gather, input), site, input.device());
    return inner_->all_gather(output, input, site);
  }
  Token reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                       CallSite site) override {
    note(words_of(OpKind::reduce_scatter, output, 0, op), site, output.device());
    return inner_->reduce_scatter(output, input, op, site);
  }
  Token gather(const at::Tensor& output, const at::Tensor& input, int root,
               CallSite site) override {
    note(words_of(OpKind::gather, input, root), site, input.device());
    return inner_->gather(output, input, root, site);
  }
  Token scatter(const at::Tensor& output, const at::Tensor& input, int root,
                CallSite site) override {
    note(words_of(OpKind::scatter, output, root), site, output.device());
    return inner_->scatter(output, input, root, site);
  }
  Token all_to_all(const at::Tensor& output, const at::Tensor& input,
                   const std::vector<int64_t>& output_counts,
                   const std::vector<int64_t>& input_counts, CallSite site) override {
    note(words_of(OpKind::all_to_all, input), site, input.device());
    return inner_->all_to_all(output, input, output_counts, input_counts, site);
  }
  Token barrier(CallSite site) override {
    note({.op = OpKind::barrier}, site, device_);
    return inner_->barrier(site);
  }
  std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                    const std::string& group) override {
    return checked_backend(inner_->subgroup(members, group), each_ ? "each" : "hash", group);
  }

 private:
  void note(const CallWords& words, CallSite site, at::Device device) {
    device_ = device;
    Told& t = told_[calls_ % kEach];
    t = tell(++calls_, words, site);
    hash_ = mix64(hash_ ^ t.digest);
    if (size() == 1 || calls_ % last_ != 0) return;
    if (each_) return compare(&t, 1);
    // Every rank sees the same numbers, so all of them go on to the calls, or none does.
    const auto hashes = exchange(&hash_, sizeof hash_);
    for (int r = 1; r < size(); ++r)
      if (std::memcmp(hashes.data(), hashes.data() + static_cast<size_t>(r) * sizeof hash_,
                      sizeof hash_) != 0)
        return compare(told_, kEach);
  }

  /// The first of these calls that differs is the end.
  void compare(const Told* mine, size_t count) {
    const auto all = exchange(mine, count * sizeof(Told));
    auto of = [&](int r, size_t i) {
      Told t;
      std::memcpy(&t, all.data() + (static_cast<size_t>(r) * count + i) * sizeof t, sizeof t);
      return t;
    };
    for (size_t i = 0; i < count; ++i) {
      const Told first = of(0, i);
      for (int r = 1; r < size(); ++r) {
        const Told other = of(r, i);
        if (other.digest == first.digest) continue;
        const std::string text = fmt::format(
            "call {} of group {}: rank 0 called {}, but rank {} called {}. Every rank must make "
            "the "
            "same calls in the same order",
            first.seq, group_, text_of(first), r, text_of(other));
        inner_->abort(text, AbortKind::mismatch);
        throw Mismatch(text, {rank(), rank() ? 0 : r, "", static_cast<int64_t>(first.seq)});
      }
    }
  }

  /// Everybody's bytes, rank after rank.
  std::vector<char> exchange(const void* mine, size_t bytes) {
    const auto n = static_cast<int64_t>(bytes);
    const auto options = at::TensorOptions(at::kByte);
    at::Tensor in = at::empty({n}, options);
    std::memcpy(in.data_ptr(), mine, bytes);
    at::Tensor out = at::empty({n * size()}, options.device(device_));
    inner_->wait(inner_->all_gather(out, in.to(device_), CallSite::here()), timeout());
    out = out.cpu();
    std::vector<char> all(static_cast<size_t>(out.numel()));
    std::memcpy(all.data(), out.data_ptr(), all.size());
    return all;
  }

  const std::string group_;
  const bool each_;
  const uint64_t last_;  // of how many collectives are compared at once
  uint64_t calls_ = 0, hash_ = 0;
  Told told_[kEach] = {};
  at::Device device_ = at::kCPU;  // of the last call
};

}  // namespace

std::shared_ptr<Backend> checked_backend(std::shared_ptr<Backend> inner,
                                         const std::string& check_word, const std::string& group) {
  if (check_word == "off") return inner;
  check<UsageError>(check_word == "each" || check_word == "hash",
                    "check is '{}'; each, hash and off are known", check_word);
  return std::make_shared<CheckedBackend>(std::move(inner), check_word == "each", group);
}

}  // namespace trireme::detail
