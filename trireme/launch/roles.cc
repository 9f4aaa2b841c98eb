// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/roles.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <numeric>

#include "trireme/base/check.h"
#include "trireme/launch/flags/text.h"

namespace trireme::launch {
namespace {

constexpr int64_t kMostOfRole = int64_t{1} << 20;

// Its last character is no digit: "server1" and "0" would be "server" and "10".
bool is_role_name(std::string_view name) {
  const auto fits = [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), fits) &&
         !std::isdigit(static_cast<unsigned char>(name.back()));
}

}  // namespace

std::vector<RoleCount> parse_roles(std::string_view text, const std::string& origin) {
  std::vector<RoleCount> roles;
  for (const std::string_view part : split(text, ',')) {
    const size_t at = part.find('=');
    const auto name = trim(part.substr(0, at));
    const int64_t count =
        at == std::string_view::npos ? 0 : parse_int(trim(part.substr(at + 1))).value_or(0);
    check<UsageError>(count >= 1 && count <= kMostOfRole,
                      "{}={}: write NAME=COUNT for each role, as in --role server=1 --role "
                      "trainer=2",
                      origin, text);
    check<UsageError>(is_role_name(name),
                      "{}={}: a role's name is up to 64 letters, digits, '_', '-' and '.', and "
                      "does not end in a digit, because its workers are numbered: server0, server1",
                      origin, text);
    roles.push_back({std::string(name), static_cast<int>(count)});
  }
  return roles;
}

std::string roles_text(const std::vector<RoleCount>& roles) {
  std::string text;
  for (const RoleCount& role : roles)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", role.name, role.count);
  return text;
}

int workers_of(const std::vector<RoleCount>& roles) {
  return std::accumulate(roles.begin(), roles.end(), 0,
                         [](int sum, const RoleCount& role) { return sum + role.count; });
}

Role role_of(const std::vector<RoleCount>& roles, int rank) {
  int before = 0;
  for (const RoleCount& role : roles) {
    if (rank >= before && rank < before + role.count) return {role.name, rank - before, role.count};
    before += role.count;
  }
  fail<UsageError>("there is no role for rank {}: {} are {} workers", rank, roles_text(roles),
                   before);
}

void check_roles(const std::vector<RoleCount>& roles, const std::vector<int>& workers_of_nodes) {
  if (roles.empty()) return;
  const int started = std::accumulate(workers_of_nodes.begin(), workers_of_nodes.end(), 0);
  check<UsageError>(started == workers_of(roles),
                    "--role {} are {} workers, and the {} nodes of this job start {}: make "
                    "--nproc-per-node and --role agree",
                    roles_text(roles), workers_of(roles), workers_of_nodes.size(), started);
}

}  // namespace trireme::launch
