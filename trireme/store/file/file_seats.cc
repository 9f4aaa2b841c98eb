// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/file/file_seats.h"

#include <fmt/core.h>

#include <optional>

namespace trireme::detail {
namespace {

using End = FileState::Client::End;

std::string name_of(const FileState::Client& client) {
  auto process = fmt::format("process {} on {}", client.process, client.host);
  return client.rank == kNoRank ? process : fmt::format("rank {} ({})", client.rank, process);
}

}  // namespace

FileSeat find_seat(const FileState& state, const FileMember& member,
                   const std::function<bool(uint32_t)>& lives, const std::string& where) {
  const FileState::Client *alive = nullptr, *dead = nullptr, *mine = nullptr;
  bool is_leaving = false;
  for (const auto& [number, client] : state.clients()) {
    bool is_here = client.end == End::none && lives(number);
    if (is_here && !alive) alive = &client;
    if (!is_here && client.end != End::left && !dead) dead = &client;
    if (is_here && client.rank == member.rank) mine = &client;
    if (client.end == End::left && client.rank != kNoRank) is_leaving = true;
  }
  auto refused = [](std::string why) { return FileSeat{FileVerdict::refused, std::move(why)}; };
  auto left_behind = [&](const std::string& whose) {
    return refused(fmt::format(
        "{} was left behind by {}: {} ended without leaving it. Delete the file and start all "
        "ranks again (or its folder does not share file locks between hosts: then use "
        "tcp://host:port)",
        where, whose, dead ? name_of(*dead) : "the process that made it"));
  };

  // All left in order, and the last of them could not remove it.
  if (!alive && !dead && !state.clients().empty()) return {FileVerdict::take_over, ""};
  if (state.job_id() != member.job_id) {
    auto other = fmt::format("job '{}'", state.job_id());
    if (!alive) return left_behind(other);
    return refused(fmt::format("{} is in use by {} ({}): give each job a file of its own", where,
                               other, name_of(*alive)));
  }
  if (state.attempt() > member.attempt)
    return refused(fmt::format(
        "{} belongs to attempt {} of this job and this rank to attempt {}: it was started too late",
        where, state.attempt(), member.attempt));
  if (state.attempt() < member.attempt) {
    if (!alive) return {FileVerdict::take_over, ""};
    return {FileVerdict::come_again,
            fmt::format("{} of attempt {} still lives", name_of(*alive), state.attempt())};
  }
  if (is_leaving && alive)
    return {FileVerdict::come_again,
            fmt::format("{} has not left an earlier group yet", name_of(*alive))};
  // Nobody is in it, or somebody who was is no more: what it says is not to be built upon.
  if (dead || !alive) return left_behind("an earlier run of this job");
  if (state.world_size() != member.world_size)
    return refused(fmt::format(
        "rank {} was started for a world of {} ranks, and {} of this job ({}) for one of {}: start "
        "all ranks of a job alike",
        member.rank, member.world_size, name_of(*alive), where, state.world_size()));
  if (mine)
    return refused(
        fmt::format("rank {} of this job is taken already, by {} ({}): start each rank "
                    "once, and give each job a file of its own",
                    member.rank, name_of(*mine), where));
  return {FileVerdict::enter, ""};
}

}  // namespace trireme::detail
