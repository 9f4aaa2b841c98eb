// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/membership/announcement.h"

#include <nlohmann/json.hpp>

#include "trireme/base/check.h"

namespace trireme::launch {
namespace {

constexpr const char* kVersion = "trireme members 1";
constexpr size_t kMostMembers = 4096, kLongestText = 1024;

nlohmann::json json_of(const Member& member) {
  return {{"token", member.token}, {"host", member.host}, {"workers", member.workers}};
}

Member member_of(const nlohmann::json& json) {
  const Member member{json.at("token"), json.at("host"), json.at("workers")};
  check<Corrupt>(!member.token.empty() && member.token.size() <= kLongestText &&
                     member.host.size() <= kLongestText && member.workers >= 1 &&
                     member.workers <= 4096,
                 "the job's store says of a launcher: {}", json.dump());
  return member;
}

template <class Read>
auto read(const std::string& text, Read&& body) try {
  const auto json = nlohmann::json::parse(text);
  check<Corrupt>(json.at("version") == kVersion, "the job's store holds '{}', and this is '{}'",
                 json.at("version").dump(), kVersion);
  return body(json);
} catch (const nlohmann::json::exception& error) {
  fail<Corrupt>("the job's store says who is in the job in words that are not ours: {}",
                error.what());
}

std::string dump(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string to_text(const Announcement& a) {
  nlohmann::json members = nlohmann::json::array();
  for (const Member& member : a.generation.members) members.push_back(json_of(member));
  return dump({{"version", kVersion},
               {"generation", a.generation.number},
               {"restarts", a.restarts},
               {"members", members}});
}

Announcement read_announcement(const std::string& text) {
  return read(text, [](const nlohmann::json& json) {
    Announcement a{{json.at("generation"), {}}, json.at("restarts")};
    const auto& members = json.at("members");
    check<Corrupt>(a.generation.number >= 0 && a.restarts >= 0 && members.is_array() &&
                       !members.empty() && members.size() <= kMostMembers,
                   "the job's store announces generation {} after {} restarts with {} members",
                   a.generation.number, a.restarts, members.size());
    for (const auto& member : members) a.generation.members.push_back(member_of(member));
    return a;
  });
}

std::string to_text(const Member& member) {
  nlohmann::json json = json_of(member);
  json["version"] = kVersion;
  return dump(json);
}

Member read_member(const std::string& text) {
  return read(text, [](const nlohmann::json& json) { return member_of(json); });
}

}  // namespace trireme::launch
