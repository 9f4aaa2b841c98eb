// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/error_file.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/launch/flags/text.h"

namespace trireme::launch {
namespace {

using nlohmann::json;

constexpr size_t kMostBytes = size_t{4} << 20;
constexpr int64_t kSecond = 1'000'000'000;

std::string text_of(const json& object, const char* key) {
  auto found = object.find(key);
  if (found == object.end()) return "";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

std::optional<int64_t> integer_of(const json& object, const char* key) {
  return parse_int(trim(text_of(object, key)));  // torchelastic writes it as a string
}

bool is_type_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '.' || c == ':';
  });
}

}  // namespace

void write_error_file(const std::string& path, std::string_view type, std::string_view message,
                      std::string_view callstack) {
  if (::access(path.c_str(), F_OK) == 0) return;
  int64_t now = wall_ns();
  std::string text = std::string(type) + ": " + std::string(message);
  json extra{{"py_callstack", callstack.empty() ? text : std::string(callstack)},
             {"timestamp", std::to_string(now / kSecond)},
             {"timestamp_ns", std::to_string(now)}};
  json file{{"message", {{"message", text}, {"extraInfo", extra}}}};
  write_file_atomic(path, file.dump(-1, ' ', false, json::error_handler_t::replace));
}

std::optional<ErrorReport> read_error_file(const std::string& path) {
  json file;
  try {
    file = json::parse(read_file(path, kMostBytes), nullptr, /*allow_exceptions=*/false);
  } catch (const Error&) {
    return std::nullopt;
  }
  if (!file.is_object() || !file.contains("message")) return std::nullopt;
  const json& message = file["message"];
  ErrorReport report;
  if (message.is_string()) {  // torchelastic writes this where the error had no traceback
    report.message = message.get<std::string>();
  } else if (message.is_object()) {
    report.message = text_of(message, "message");
    auto extra = message.find("extraInfo");
    if (extra != message.end() && extra->is_object()) {
      report.callstack = text_of(*extra, "py_callstack");
      if (auto ns = integer_of(*extra, "timestamp_ns")) {
        report.time_ns = *ns;
      } else if (auto s = integer_of(*extra, "timestamp");
                 s && *s >= 0 && *s < (int64_t{1} << 33)) {
        report.time_ns = *s * kSecond;
        report.whole_seconds = true;
      }
    }
  } else {
    return std::nullopt;
  }
  // "Type: what": a name without spaces before the first ": ".
  auto colon = report.message.find(": ");
  if (colon != std::string::npos && is_type_name(std::string_view(report.message).substr(0, colon)))
    report.type = report.message.substr(0, colon);
  return report;
}

}  // namespace trireme::launch
