// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/flight/recorder.h"

#include <fmt/core.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstring>
#include <string>

namespace trireme::flight {

bool ticks_are_time() {
#if defined(__x86_64__)
  static const bool invariant = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d >> 8 & 1);
  }();
  return invariant;
#else
  return true;  // ticks() is the steady clock there
#endif
}

Recorder::Recorder(Ring* ring) : ring_(ring) {
  ring_->born_ticks = now();
  ring_->born_ns = now_ns();
}

uint32_t Recorder::find_site(CallSite at) {
  auto [it, fresh] = sites_[at.file].try_emplace(at.line, static_cast<uint32_t>(kSites));
  if (fresh) {
    const uint32_t n = ring_->site_count.load(std::memory_order_relaxed);
    if (n < kSites) {
      std::string text =
          at.file && *at.file ? fmt::format("{}:{}", at.file, at.line) : std::string("?");
      if (text.size() >= sizeof(Site)) text = "…" + text.substr(text.size() - sizeof(Site) + 8);
      std::memcpy(ring_->sites[n].text, text.c_str(), text.size() + 1);
      ring_->site_count.store(n + 1, std::memory_order_release);
      it->second = n;
    }
  }
  last_site_ = at;
  return last_index_ = it->second;
}

}  // namespace trireme::flight
