// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "cli/doctor/advice.h"
#include "cli/doctor/child.h"
#include "cli/doctor/sections.h"
#include "cli/worker_program.h"

namespace trireme::doctor {

std::string text_of(const HalfRate& rate) {
  const double ratio = rate.bfloat16 / rate.float32;
  return fmt::format("{:.0f} GFLOP/s in LibTorch's matmul, {:.2f} × its float32 ({:.0f}): {}",
                     rate.bfloat16, ratio, rate.float32,
                     ratio < 0.95   ? "saves memory, costs time"
                     : ratio < 1.05 ? "saves memory, not time"
                                    : "saves memory and time");
}

// What bf16.enabled would do to a step on this CPU: measured where it runs, in the worker, with the
// kernels that the launcher would give it.
void say_bfloat16(Section* s, const std::string& coretype) {
  const std::string worker = find_worker_program();
  if (worker.empty()) return s->row("bfloat16", "not measured: this build has no LibTorch");
  const Answer answer = ask({worker, "half-rate"}, std::chrono::seconds(60),
                            {{"OPENBLAS_CORETYPE", coretype}, {"OPENBLAS_NUM_THREADS", "1"}});
  const ordered_json rates = ordered_json::parse(answer.text, nullptr, false);
  if (!answer.failed.empty() || rates.is_discarded() || !rates.is_object()) {
    s->row("bfloat16", "not measured: " + (answer.failed.empty() ? "no answer" : answer.failed));
    return;
  }
  const HalfRate rate{rates.value("float32", 0.0), rates.value("bfloat16", 0.0)};
  s->json["matmul_1024_one_thread"] = rates;
  if (rate.float32 > 0) s->row("bfloat16", text_of(rate));
}

}  // namespace trireme::doctor
