// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/failure.h"

#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <tuple>

#include "trireme/launch/flags/text.h"
#include "trireme/launch/process/signals.h"

namespace trireme::launch {
namespace {

constexpr size_t kWidth = 60;
constexpr size_t kMostText = 16 << 10;
constexpr int64_t kSecondNs = 1'000'000'000;

std::string local_time(int64_t ns) {
  time_t seconds = static_cast<time_t>(ns / kSecondNs);
  tm parts{};
  ::localtime_r(&seconds, &parts);
  char text[64];
  ::strftime(text, sizeof text, "%Y-%m-%d_%H:%M:%S", &parts);
  return text;
}

// Workers' words go to a terminal: control characters stay out, lines are indented under the field.
std::string as_field(std::string_view text) {
  std::string out;
  for (char c : trim(text.substr(0, kMostText))) {
    if (c == '\n')
      out += "\n    ";
    else if (static_cast<unsigned char>(c) >= 32 || c == '\t')
      out += c;
  }
  if (text.size() > kMostText) out += "\n    …";
  return out;
}

std::string entry(size_t index, const std::string& host, const WorkerFailure& f) {
  std::string text = fmt::format("[{}]:\n", index);
  text += fmt::format("  time      : {}\n", local_time(f.time_ns()));
  text += fmt::format("  host      : {}\n", host);
  text += fmt::format("  rank      : {} (local_rank: {})\n", f.rank, f.local_rank);
  text += fmt::format("  exitcode  : {} (pid: {})\n", f.exit_code, f.pid);
  text += fmt::format("  error_file: {}\n", f.error_file.empty() ? "<N/A>" : f.error_file);
  text += fmt::format("  traceback : {}\n", as_field(f.explanation()));
  return text;
}

}  // namespace

bool WorkerFailure::is_consequence() const {
  return report &&
         (report->type == "PeerLost" || report->type == "Aborted" || report->type == "Timeout");
}

int64_t WorkerFailure::time_ns() const {
  if (!report || !report->time_ns) return observed_ns;
  // A stamp in whole seconds means some instant within that second.
  int64_t latest = *report->time_ns + (report->whole_seconds ? kSecondNs - 1 : 0);
  return std::min(observed_ns, latest);
}

std::string WorkerFailure::explanation() const {
  std::string text;
  if (exit_code < 0)
    text =
        fmt::format("Signal {} ({}) received by PID {}", -exit_code, signal_name(-exit_code), pid);
  if (!note.empty()) text += (text.empty() ? "" : ": ") + note;
  if (report) {
    if (!text.empty()) text += "\n";
    bool stack_says_it = report->callstack.find(report->message) != std::string::npos;
    text += stack_says_it               ? report->callstack
            : report->callstack.empty() ? report->message
                                        : report->message + "\n" + report->callstack;
  }
  if (text.empty())
    text = fmt::format("exit code {} and no error file: what it printed above says why", exit_code);
  return text;
}

size_t first_cause(const std::vector<WorkerFailure>& failures) {
  auto key = [&](size_t i) {
    return std::tuple(failures[i].is_consequence(), failures[i].time_ns(), failures[i].rank);
  };
  size_t best = 0;
  for (size_t i = 1; i < failures.size(); ++i)
    if (key(i) < key(best)) best = i;
  return best;
}

std::string failure_sentence(const WorkerFailure& f) {
  std::string text = fmt::format("rank {} (pid {}) ", f.rank, f.pid);
  text += f.exit_code < 0 ? fmt::format("was ended by {}", signal_name(-f.exit_code))
                          : fmt::format("failed with exit code {}", f.exit_code);
  if (!f.note.empty()) text += " (" + f.note + ")";
  if (!f.report) return text;
  const std::string message = as_field(f.report->message);
  return text + ": " + message.substr(0, message.find('\n'));
}

bool names_a_step(const std::string& message) {
  for (size_t at = message.find("step "); at != std::string::npos;
       at = message.find("step ", at + 1))
    if (at + 5 < message.size() && message[at + 5] >= '0' && message[at + 5] <= '9') return true;
  return false;
}

std::string format_error_block(const std::string& name, const std::string& host,
                               const std::vector<WorkerFailure>& failures) {
  if (failures.empty()) return "";
  size_t root = first_cause(failures);
  std::vector<size_t> others;
  for (size_t i = 0; i < failures.size(); ++i)
    if (i != root) others.push_back(i);
  std::sort(others.begin(), others.end(), [&](size_t a, size_t b) {
    return std::tuple(failures[a].time_ns(), failures[a].rank) <
           std::tuple(failures[b].time_ns(), failures[b].rank);
  });

  std::string border = std::string(kWidth, '=') + "\n", line = std::string(kWidth, '-') + "\n";
  std::string text = border + name + " FAILED\n" + line + "Failures:\n";
  if (others.empty()) text += "  <NO_OTHER_FAILURES>\n";
  size_t index = 1;
  for (size_t i : others) text += entry(index++, host, failures[i]);
  text += line + "Root Cause (first observed failure):\n" + entry(0, host, failures[root]) + border;
  return text;
}

}  // namespace trireme::launch
