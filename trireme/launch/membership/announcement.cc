// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/membership/announcement.h"

#include <nlohmann/json.hpp>

#include "trireme/base/check.h"

namespace trireme::launch {
namespace {

constexpr const char* kVersion = "trireme members 2";
constexpr size_t kMostMembers = 4096, kLongestText = 1024, kMostBefore = 16;
constexpr int64_t kMostClaims = int64_t{1} << 40;

/// From 0 to `most`.
int64_t whole(const nlohmann::json& json, const char* name, int64_t most) {
  const auto& value = json.at(name);
  check<Corrupt>(
      value.is_number_integer() && value.get<int64_t>() >= 0 && value.get<int64_t>() <= most,
      "the job's store says {} of {}", value.dump(), name);
  return value;
}

nlohmann::json json_of(const Member& member) {
  return {{"token", member.token},
          {"host", member.host},
          {"workers", member.workers},
          {"address", member.address}};
}

Member member_of(const nlohmann::json& json) {
  const Member member{json.at("token"), json.at("host"),
                      static_cast<int>(whole(json, "workers", 4096)), json.at("address")};
  check<Corrupt>(!member.token.empty() && member.token.size() <= kLongestText &&
                     member.host.size() <= kLongestText && member.address.size() <= kLongestText &&
                     member.workers >= 1 && member.workers <= 4096,
                 "the job's store says of a launcher: {}", json.dump());
  return member;
}

nlohmann::json json_of(const Generation& generation) {
  nlohmann::json members = nlohmann::json::array();
  for (const Member& member : generation.members) members.push_back(json_of(member));
  return {{"generation", generation.number}, {"keeper", generation.keeper}, {"members", members}};
}

Generation generation_of(const nlohmann::json& json) {
  Generation g{whole(json, "generation", kMostClaims), {}, json.at("keeper")};
  const auto& members = json.at("members");
  check<Corrupt>(g.number >= 0 && g.number < kMostClaims && g.keeper.size() <= kLongestText &&
                     members.is_array() && !members.empty() && members.size() <= kMostMembers,
                 "the job's store speaks of generation {} with {} members", g.number,
                 members.size());
  for (const auto& member : members) g.members.push_back(member_of(member));
  return g;
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
  nlohmann::json json = json_of(a.generation), before = nlohmann::json::array();
  for (const Generation& g : a.before) before.push_back(json_of(g));
  json["version"] = kVersion;
  json["restarts"] = a.restarts;
  json["job"] = a.job;
  json["claims_from"] = a.claims_from;
  json["before"] = before;
  return dump(json);
}

Announcement read_announcement(const std::string& text) {
  return read(text, [](const nlohmann::json& json) {
    Announcement a{generation_of(json), static_cast<int>(whole(json, "restarts", INT32_MAX)),
                   json.at("job"), whole(json, "claims_from", kMostClaims)};
    const auto& before = json.at("before");
    check<Corrupt>(
        a.restarts >= 0 && a.claims_from >= 0 && a.claims_from < kMostClaims &&
            a.job.size() <= kLongestText && before.is_array() && before.size() <= kMostBefore,
        "the job's store announces generation {} after {} restarts, of claims from {} on, "
        "behind {} others",
        a.generation.number, a.restarts, a.claims_from, before.size());
    for (const auto& g : before) {
      a.before.push_back(generation_of(g));
      check<Corrupt>(a.before.back().number < a.generation.number,
                     "the job's store announces generation {} behind generation {}",
                     a.generation.number, a.before.back().number);
    }
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
