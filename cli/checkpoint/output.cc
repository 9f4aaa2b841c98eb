// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint/output.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "trireme/base/check.h"
#include "trireme/base/file/result_file.h"
#include "trireme/checkpoint/steps/element_size.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/planner/memory_plan.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

struct Character {
  uint32_t code;
  size_t bytes;
};

// The UTF-8 character at the beginning; nothing for what is none.
std::optional<Character> first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const size_t n = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (n == 0 || lead > 0xf4 || text.size() < n) return {};
  uint32_t code = n == 1 ? lead : lead & (0xff >> (n + 1));
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool overlong = (n == 3 && code < 0x800) || (n == 4 && code < 0x10000);
  if (overlong || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return Character{code, n};
}

bool changes_the_terminal(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0xfeff ||
         (code >= 0x200b && code < 0x2010) || (code >= 0x2028 && code < 0x202f) ||
         (code >= 0x2060 && code < 0x2070);
}

void write_stdout(std::string_view text) {
  const bool ok =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  check<ResourceError>(ok || errno == EPIPE, "cannot write to stdout: {}", errno_text());
}

}  // namespace

std::string shown(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto c = first_character(text);
    const size_t n = c ? c->bytes : 1;
    if (c && !changes_the_terminal(c->code))
      out += text.substr(0, n);
    else if (c && c->code > 0xff)
      out += fmt::format("\\u{{{:x}}}", c->code);
    else
      out += fmt::format("\\x{:02x}", c ? c->code : static_cast<unsigned char>(text[0]));
    text.remove_prefix(n);
  }
  return out;
}

void deliver(const CheckpointFlags& flags, const std::string& text,
             const nlohmann::ordered_json& json) {
  if (flags.json != "-") write_stdout(text);
  if (flags.json.empty()) return;
  const std::string dumped =
      json.dump(2, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (flags.json == "-") return write_stdout(dumped);
  write_result_file(flags.json, dumped);
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  const auto width_of = [](const std::string& cell) {  // in characters
    return static_cast<size_t>(
        std::count_if(cell.begin(), cell.end(), [](char c) { return (c & 0xc0) != 0x80; }));
  };
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += row[i] + std::string(widths[i] + 2 - width_of(row[i]), ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string list_text(const std::vector<int64_t>& list) {
  return fmt::format("[{}]", fmt::join(list, ", "));
}

std::string bytes_text(uint64_t bytes) {
  constexpr uint64_t kMost = uint64_t{std::numeric_limits<int64_t>::max()};
  return mebibytes(static_cast<int64_t>(std::min(bytes, kMost)));
}

std::string time_text(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  if (!::gmtime_r(&time, &parts)) return "?";
  char text[64];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string value_text(const IndexValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return fmt::format("int {}", *i);
  if (const auto* d = std::get_if<double>(&value)) return fmt::format("double {}", *d);
  return "string " + shown(std::get<std::string>(value));
}

nlohmann::ordered_json number_json(double x) {
  if (std::isfinite(x)) return x;
  return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
}

nlohmann::ordered_json value_json(const IndexValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return *i;
  if (const auto* d = std::get_if<double>(&value)) return number_json(*d);
  return std::get<std::string>(value);
}

void check_folder(const std::string& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  check<UsageError>(status.type() != fs::file_type::not_found, "there is no folder {}", path);
  check<ResourceError>(fs::status_known(status), "cannot look at {}: {}", path, error.message());
  check<UsageError>(fs::is_directory(status), "{} is not a folder", path);
  fs::directory_iterator(path, error);
  check<ResourceError>(!error, "cannot read the folder {}: {}", path, error.message());
}

std::string step_folder_at(const std::string& path) {
  check_folder(path);
  try {
    return find_checkpoint(path);
  } catch (const Error&) {
    // A run may just have deleted it, or saved another step and deleted the one that `latest`
    // named.
    check_not_deleted(path);
    return find_checkpoint(path);
  }
}

std::string name_of(const std::string& path) { return fs::path(path).filename().string(); }

bool matches(const std::string& glob, const std::string& name) {
  return glob.empty() || ::fnmatch(glob.c_str(), name.c_str(), 0) == 0;
}

uint64_t bytes_of(const IndexTensor& tensor) {
  uint64_t bytes = static_cast<uint64_t>(safetensors_item_size(tensor.dtype));
  for (int64_t dim : tensor.shape())
    if (dim == 0) return 0;
  for (int64_t dim : tensor.shape())
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes)) return UINT64_MAX;
  return bytes;
}

}  // namespace trireme
