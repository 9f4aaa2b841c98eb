// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/desync/comparing_backend.h"

#include <ATen/ops/empty.h>
#include <fmt/core.h>

#include <cstring>

#include "trireme/comm/call_words.h"

namespace trireme::detail {

Token ComparingBackend::post(const Call& call) {
  if (call.facts().is_message) {
    const Token token = posted([&] { return inner_->post(call); });
    message_posted(call, token);
    return token;
  }
  // What ranks compare goes through the CPU's memory where it can, beside what their devices do.
  if (const at::Tensor* t = call.counted())
    device_ =
        inner_->supports(Collective::all_gather, at::kByte, at::kCPU) ? at::kCPU : t->device();
  site_ = call.site;
  calls_.add(words_of(call), call.site);
  counted(call);
  const Token token = posted([&] { return inner_->post(call); });
  calls_.posted(token);
  return token;
}

bool ComparingBackend::completed(Token token) {
  const bool had_failed = std::exchange(failed_, true);
  const bool yes = inner_->completed(token);
  failed_ = had_failed;
  return yes;
}

std::vector<char> ComparingBackend::exchange(const void* mine, size_t bytes) {
  const auto n = static_cast<int64_t>(bytes);
  const auto options = at::TensorOptions(at::kByte);
  at::Tensor in = at::empty({n}, options);
  std::memcpy(in.data_ptr(), mine, bytes);
  in = in.to(device_);
  at::Tensor out = at::empty({n * size()}, options.device(device_));
  failed_ = true;  // until it is done
  wait_for_others(
      inner_->post({.op = Collective::all_gather, .input = &in, .output = &out, .site = site_}));
  failed_ = false;
  out = out.cpu();
  std::vector<char> all(static_cast<size_t>(out.numel()));
  std::memcpy(all.data(), out.data_ptr(), all.size());
  return all;
}

void ComparingBackend::compare(const ToldCall* mine, size_t count) {
  const auto all = exchange(mine, count * sizeof(ToldCall));
  auto of = [&](int r, size_t i) {
    ToldCall t;
    std::memcpy(&t, all.data() + (static_cast<size_t>(r) * count + i) * sizeof t, sizeof t);
    return t;
  };
  for (size_t i = 0; i < count; ++i) {
    const ToldCall first = of(0, i);
    for (int r = 1; r < size(); ++r) {
      const ToldCall other = of(r, i);
      if (other.digest != first.digest) refuse(first.seq, 0, text_of(first), r, text_of(other));
    }
  }
}

void ComparingBackend::refuse(uint64_t number, int a, const std::string& text, int b,
                              const std::string& others_text) {
  mismatch(fmt::format("call {} of group {}: rank {} called {}, but rank {} called {}. Every "
                       "rank must make the same calls in the same order",
                       number, group_, a, text, b, others_text),
           b);
}

void ComparingBackend::mismatch(const std::string& text, int peer) {
  end_others(text);
  abort(text, AbortKind::mismatch);
  throw Mismatch(text, {rank(), rank() ? 0 : peer, "", static_cast<int64_t>(calls_.count())});
}

std::vector<int> ComparingBackend::board_ranks_of(const std::vector<int>& members) const {
  std::vector<int> ranks;
  for (int m : members) ranks.push_back(board_rank(m));
  return ranks;
}

}  // namespace trireme::detail
