// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/file/fault_plan.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string_view>

#include "trireme/base/check.h"

namespace trireme {
namespace {

using detail::FaultPlan;
using detail::FileFault;

constexpr std::string_view kFileCallNames[] = {
    "open",    "create",    "write",   "pwrite", "read",     "pread",    "pread-cached",
    "fsync",   "fdatasync", "close",   "rename", "exchange", "mkdir",    "unlink",
    "rmdir",   "opendir",   "readdir", "stat",   "truncate", "allocate", "lock",
    "statvfs", "map",       "link",    "touch"};

constexpr struct {
  std::string_view name;
  FileFault::Act act;
  int error;
} kFileFaultNames[] = {{"kill-before", FileFault::kill_before, 0},
                       {"kill-after", FileFault::kill_after, 0},
                       {"kill-group-before", FileFault::group_before, 0},
                       {"kill-group-after", FileFault::group_after, 0},
                       {"ENOSPC", FileFault::give_error, ENOSPC},
                       {"EDQUOT", FileFault::give_error, EDQUOT},
                       {"EIO", FileFault::give_error, EIO},
                       {"EROFS", FileFault::give_error, EROFS},
                       {"EINVAL", FileFault::give_error, EINVAL},
                       {"ENOLCK", FileFault::give_error, ENOLCK},
                       {"EOPNOTSUPP", FileFault::give_error, EOPNOTSUPP},
                       {"short", FileFault::shorten, 0},
                       {"fsync-fails", FileFault::fail_sync, EIO}};

int64_t count_in(std::string_view text, const std::string& item, int64_t least) {
  int64_t value = 0;
  for (char c : text) {
    check<UsageError>(c >= '0' && c <= '9' && value < 1'000'000'000,
                      "file fault '{}': '{}' is not a number", item, text);
    value = value * 10 + (c - '0');
  }
  check<UsageError>(!text.empty() && value >= least,
                    "file fault '{}': '{}' is not a number from {}", item, text, least);
  return value;
}

FileFault fault_in(const std::string& item) {
  const auto colon = item.find(':');
  check<UsageError>(colon != std::string::npos,
                    "file fault '{}': write NUMBER:WHAT, only=TEXT, rank=R, slow=BYTES, count=PATH "
                    "or record=PATH",
                    item);
  std::string_view number(item.data(), colon), what(item);
  what.remove_prefix(colon + 1);
  FileFault fault;
  if (std::find(std::begin(kFileCallNames), std::end(kFileCallNames), number) !=
      std::end(kFileCallNames)) {
    fault.kind = number;
  } else {
    fault.onwards = !number.empty() && number.back() == '+';
    if (fault.onwards) number.remove_suffix(1);
    fault.number = count_in(number, item, 1);
  }
  for (const auto& known : kFileFaultNames) {
    if (known.name != what) continue;
    fault.act = known.act, fault.error = known.error;
    check<UsageError>((!fault.onwards && fault.kind.empty()) || fault.act == FileFault::give_error,
                      "file fault '{}': only an error of the system goes with {}, not {}", item,
                      fault.onwards ? "'+'" : "a kind of calls", what);
    return fault;
  }
  fail<UsageError>(
      "file fault '{}': unknown fault; use kill-before, kill-after, kill-group-before, "
      "kill-group-after, ENOSPC, EDQUOT, EIO, EROFS, EINVAL, ENOLCK, EOPNOTSUPP, short or "
      "fsync-fails",
      item);
}

void take_item(FaultPlan& plan, const std::string& item) {
  const auto equals = item.find('=');
  if (equals == std::string::npos) {
    plan.faults.push_back(fault_in(item));
    return;
  }
  const std::string name = item.substr(0, equals), value = item.substr(equals + 1);
  check<UsageError>(!value.empty(), "file fault '{}': nothing behind the '='", item);
  if (name == "only") {
    plan.only = value;
  } else if (name == "count") {
    plan.count = value;
  } else if (name == "record") {
    plan.record = value;
  } else if (name == "slow") {
    plan.bytes_a_second = count_in(value, item, 1);
  } else {
    check<UsageError>(name == "rank",
                      "file fault '{}': unknown word; use only, rank, slow, count or record", item);
    plan.rank = static_cast<int>(count_in(value, item, 0));
  }
}

// A disk on which nothing can be changed, or that has no room, goes on to serve other calls.
bool refused_by_such_a_disk(const detail::FileCall& call, int error) {
  switch (call.kind) {
    case FileCallKind::create:
    case FileCallKind::write:
    case FileCallKind::pwrite:
    case FileCallKind::mkdir:
    case FileCallKind::link:
    case FileCallKind::rename:
    case FileCallKind::exchange:
    case FileCallKind::allocate:
      return true;
    case FileCallKind::unlink:
    case FileCallKind::rmdir:
    case FileCallKind::truncate:
    case FileCallKind::touch:
      return error == EROFS || error == EIO;
    default:
      return error == EIO;
  }
}

bool moves_bytes(FileCallKind kind) {
  return kind == FileCallKind::write || kind == FileCallKind::pwrite ||
         kind == FileCallKind::read || kind == FileCallKind::pread ||
         kind == FileCallKind::pread_cached;
}

bool syncs(FileCallKind kind) {
  return kind == FileCallKind::fsync || kind == FileCallKind::fdatasync;
}

}  // namespace

const char* name_of(FileCallKind kind) { return kFileCallNames[static_cast<size_t>(kind)].data(); }

namespace detail {

FaultPlan parse_fault_plan(const std::string& text) {
  FaultPlan plan;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) take_item(plan, text.substr(begin, end - begin));
    begin = end + 1;
  }
  check<UsageError>(text.empty() || !plan.empty(),
                    "file faults '{}' name no fault, no rate, no count and no record", text);
  check<UsageError>(plan.count.empty() || plan.record.empty(),
                    "file faults '{}': record counts as well; leave count out", text);
  return plan;
}

bool hits(const FileFault& fault, int64_t number, const detail::FileCall& call) {
  if (!fault.kind.empty()) return fault.kind == name_of(call.kind);
  if (number < fault.number) return false;
  switch (fault.act) {
    case FileFault::shorten:
      return moves_bytes(call.kind) && call.size > 1;
    case FileFault::fail_sync:
      return syncs(call.kind);
    case FileFault::give_error:
      return number == fault.number || (fault.onwards && refused_by_such_a_disk(call, fault.error));
    default:
      return number == fault.number;
  }
}

}  // namespace detail
}  // namespace trireme
