// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/rounds/replaced_parameters.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/lines.h"
#include "trireme/base/philox.h"
#include "trireme/comm/objects.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/host_data.h"

namespace trireme {
namespace {

constexpr const char* kRefused = "refused: ";  // the first line of a rank that cannot go on

uint64_t hash_of(const at::Tensor& t) {
  const at::Tensor bytes = t.detach().cpu().contiguous();
  return stable_hash(std::string_view(host_bits<const char>(bytes), bytes.nbytes()));
}

// "a.weight = 1f…" → "a.weight"
std::string name_in(const std::string& line) { return line.substr(0, line.rfind(" = ")); }

std::string kind_of(const at::Tensor& t) {
  std::ostringstream text;
  text << c10::toString(t.scalar_type()) << " " << t.sizes() << " on " << t.device();
  return text.str();
}

}  // namespace

ReplacedParameters::ReplacedParameters(std::string wrapper, NamedTensors trained,
                                       NamedTensors frozen, Group group, RoundRecord& record)
    : wrapper_(std::move(wrapper)),
      group_(std::move(group)),
      record_(record),
      news_(record.add([this] { return found_.empty() && refusal_.empty() ? 0.0 : 1.0; })) {
  for (auto& [name, t] : trained) all_.push_back({name, t, StorageMark(t), true, false});
  for (auto& [name, t] : frozen) all_.push_back({name, t, StorageMark(t), false, false});
}

std::string ReplacedParameters::first() const {
  for (const Watched& w : all_)
    if (w.mark.moved(w.tensor)) return w.name;
  return "";
}

bool ReplacedParameters::fit() const {
  return std::all_of(all_.begin(), all_.end(),
                     [](const Watched& w) { return w.mark.fits(w.tensor); });
}

void ReplacedParameters::refuse(const Watched& w, const std::string& why) {
  if (!refusal_.empty()) return;
  refusal_ = fmt::format("parameter '{}' {}", w.name, why);
}

bool ReplacedParameters::look(const NamedTensors& now) {
  refusal_.clear();
  for (const auto& [name, t] : now)
    for (const Watched& w : all_)
      if (w.name == name && !w.tensor.is_same(t))
        refuse(w,
               fmt::format("is another tensor of the module now than when {} was built, so its "
                           "gradients are not reduced: replace modules and parameters before, or "
                           "build it again after that",
                           wrapper_));
  for (Watched& w : all_) {
    if (!w.mark.fits(w.tensor)) {
      refuse(w, fmt::format("is {} now, which it was not when {} was built: call torch::load(), "
                            "to() and set_data() before, or build it again after them",
                            kind_of(w.tensor), wrapper_));
      continue;
    }
    if (w.mark.moved(w.tensor)) {
      // A hook does not wait for a device: what lies there is read in check().
      if (is_asynchronous(w.tensor.device()))
        found_.push_back({w.name, w.tensor.variable_data()});
      else
        found_.push_back({fmt::format("{} = {:016x}", w.name, hash_of(w.tensor)), {}});
      w.mark = StorageMark(w.tensor);
    }
    if (!w.trained && w.tensor.requires_grad())
      refuse(w, fmt::format("requires a gradient now, which it did not when {} was built: call "
                            "requires_grad_() before, or build it again after that",
                            wrapper_));
    if (w.trained && w.frozen_since == w.tensor.requires_grad()) {
      w.frozen_since = !w.frozen_since;
      found_.push_back(
          {fmt::format("{} = {}", w.name, w.frozen_since ? "frozen" : "trained again"), {}});
    }
  }
  return refusal_.empty();
}

void ReplacedParameters::accept() {
  for (Watched& w : all_) w.mark = StorageMark(w.tensor);
}

bool ReplacedParameters::check(const std::vector<bool>& has_batch) {
  if (!mismatch_.empty()) throw Mismatch(mismatch_);
  if (record_.sum(news_) == 0) return false;
  std::string mine = refusal_.empty() ? "" : kRefused + refusal_ + "\n";
  for (const Found& f : found_)
    mine +=
        f.line + (f.values.defined() ? fmt::format(" = {:016x}", hash_of(f.values)) : "") + "\n";
  found_.clear();
  const auto texts = detail::all_gather_bytes(group_, mine, CallSite::here());
  std::optional<size_t> first;
  std::vector<std::string> want;
  for (size_t r = 0; r < texts.size(); ++r) {
    if (!has_batch[r]) continue;
    const std::vector<std::string> lines = lines_of(texts[r]);
    if (!lines.empty() && lines[0].rfind(kRefused, 0) == 0)
      throw UsageError(
          fmt::format("rank {}: {}", r, lines[0].substr(std::string_view(kRefused).size())),
          {static_cast<int>(r), -1, "replaced", -1});
    if (!first) {
      first = r;
      want = lines;
      continue;
    }
    for (size_t i = 0; i < std::max(want.size(), lines.size()); ++i) {
      const std::string a = i < want.size() ? want[i] : "", b = i < lines.size() ? lines[i] : "";
      if (a == b) continue;
      const std::string name = name_in(a.empty() ? b : a);
      mismatch_ = fmt::format(
          "parameter '{}' was exchanged or frozen after {} was built (torch::load(), to(), "
          "set_data(), requires_grad_()), {}: ranks no longer hold the same model. Do it on every "
          "rank alike, or before",
          name, wrapper_,
          a.empty() || b.empty() ? fmt::format("on rank {} and not on rank {}",
                                               a.empty() ? r : *first, a.empty() ? *first : r)
                                 : fmt::format("and not alike on ranks {} and {}", *first, r));
      throw Mismatch(mismatch_, {static_cast<int>(*first), static_cast<int>(r), "replaced", -1});
    }
  }
  return !want.empty();
}

}  // namespace trireme
